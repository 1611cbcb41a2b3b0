"""The matchers by name: one list feeds the engine, the command line, the tests and the benchmarks."""

from __future__ import annotations

from importlib import import_module

from wherecast.errors import MatcherError
from wherecast.matchers.protocol import Matcher

#: name -> "module:class"; a matcher is imported only when it is used, so that Numba is loaded only where it is needed.
MATCHERS = {
    "scan": "wherecast.matchers.scan:ScanMatcher",
    "adaptive": "wherecast.matchers.adaptive:AdaptiveMatcher",
    "counting": "wherecast.matchers.counting:CountingMatcher",
    "counting-table": "wherecast.matchers.counting:CountingTableMatcher",
    "counting-bit": "wherecast.matchers.counting:CountingBitMatcher",
    "counting-byte": "wherecast.matchers.counting:CountingByteMatcher",
    "tree": "wherecast.matchers.tree:TreeMatcher",
    "tree-plain": "wherecast.matchers.tree:PlainTreeMatcher",
    "tree-general": "wherecast.matchers.tree:GeneralTreeMatcher",
    "rapid": "wherecast.matchers.rapid:RapidMatcher",
    "database": "wherecast.matchers.database:GroupingMatcher",
    "database-sequential": "wherecast.matchers.database:SequentialMatcher",
}


def find_matcher(name: str) -> type[Matcher]:
    """The matcher class of this name, or a MatcherError that lists what there is."""
    if name not in MATCHERS:
        raise MatcherError(f"no matcher {name!r}; there are: {', '.join(MATCHERS)}")
    module, _, cls = MATCHERS[name].partition(":")
    found: type[Matcher] = getattr(import_module(module), cls)
    return found
