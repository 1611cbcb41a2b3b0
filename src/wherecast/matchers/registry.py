"""The matchers by name: one list feeds the engine, the command line, the tests and the benchmarks."""

from __future__ import annotations

from importlib import import_module

from wherecast.errors import MatcherError
from wherecast.matchers.protocol import Matcher

#: name -> "module:class"; a matcher is imported only when it is used, so that Numba is loaded only where it is needed.
MATCHERS = {
    "scan": "wherecast.matchers.scan:ScanMatcher",
    "adaptive": "wherecast.matchers.adaptive:AdaptiveMatcher",
    "counting": "wherecast.papers.topss.matcher:CountingMatcher",
    "counting-table": "wherecast.papers.topss.matcher:CountingTableMatcher",
    "counting-bit": "wherecast.papers.topss.matcher:CountingBitMatcher",
    "counting-byte": "wherecast.papers.topss.matcher:CountingByteMatcher",
    "tree": "wherecast.papers.gryphon.matcher:TreeMatcher",
    "tree-plain": "wherecast.papers.gryphon.matcher:PlainTreeMatcher",
    "tree-general": "wherecast.papers.gryphon.matcher:GeneralTreeMatcher",
    "rapid": "wherecast.papers.rapidmatch.matcher:RapidMatcher",
    "database": "wherecast.papers.topss.database:GroupingMatcher",
    "database-sequential": "wherecast.papers.topss.database:SequentialMatcher",
}


def find_matcher(name: str) -> type[Matcher]:
    """The matcher class of this name, or a MatcherError that lists what there is."""
    if name not in MATCHERS:
        raise MatcherError(f"no matcher {name!r}; there are: {', '.join(MATCHERS)}")
    module, _, cls = MATCHERS[name].partition(":")
    found: type[Matcher] = getattr(import_module(module), cls)
    return found
