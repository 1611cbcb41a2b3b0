"""Who the RAPIDMatch paper compares, on its two models of events, and the adaptive matcher beside them.

RAPIDMatch and the tree are the same search tree, as in the paper: the tree is RAPIDMatch without sets and blocks.
Counting has lists of subscriptions. The adaptive matcher is shown a sample of other events than those it matches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numpy as np

from wherecast.index.boxes import Boxes, EventCodes
from wherecast.kernels.arrays import Floats, Longs
from wherecast.matchers.adaptive import AdaptiveMatcher
from wherecast.papers.lab.experiment import show_number
from wherecast.papers.lab.plots import PALETTE
from wherecast.papers.lab.rows import Cell, Rows, choose, group, numbers
from wherecast.papers.lab.timing import Subject, time_subjects
from wherecast.papers.rapidmatch.binary import STAR, BinaryIndex, Values, pack_events, pack_subscriptions
from wherecast.papers.rapidmatch.workload import BinaryWorkload, draw_exponential, draw_light
from wherecast.papers.topss.matcher import CountingMatcher

PAPER = "rapidmatch-2005"
Model: TypeAlias = Literal["zipf", "exponential"]
#: Properties.
K = 100
#: Ones up to which RAPIDMatch takes an event for light.
C = 10
_SAMPLE = 200
#: Matchers in the order and colours of the figures.
COLORS = dict(zip(("rapid", "tree", "adaptive", "counting"), PALETTE, strict=False))


def draw(model: Model, parameter: float, n: int, n_events: int, seed: int) -> tuple[BinaryWorkload, Values]:
    """Subscriptions and events of section 6, and a sample of further events."""
    if model == "zipf":
        drawn = draw_light(n, a=parameter, k=K, n_events=n_events + _SAMPLE, seed=seed)
    else:
        drawn = draw_exponential(n, p=parameter, k=K, n_events=n_events + _SAMPLE, seed=seed)
    return drawn._replace(events=drawn.events[:n_events]), drawn.events[n_events:]


def code_subscriptions(values: Values) -> Boxes:
    """Subscriptions in code space: NULL is 0, the property's 0 is 1 and its 1 is 2."""
    n, k = values.shape
    owner, attr = np.nonzero(values != STAR)
    code = values[owner, attr].astype(np.int32) + 1
    ptr, ids = np.searchsorted(owner, np.arange(n + 1)), np.arange(n, dtype=np.int32)
    return Boxes(ids, ptr, attr.astype(np.int16), code, code, np.full(n, -1, np.int32), n, np.full(k, 3, np.int32))


def code_events(values: Values) -> EventCodes:
    """Events in the codes of `code_subscriptions`."""
    return EventCodes(values.astype(np.int32) + 1, np.zeros(1, np.int64), np.zeros(0, np.int32))


class Contenders:
    """All matchers with the same subscriptions."""

    def __init__(self, subscriptions: Values, sample: Values, *, counting: bool = False) -> None:
        rows, boxes = pack_subscriptions(subscriptions), code_subscriptions(subscriptions)
        self._subscriptions = subscriptions
        self._trees = {"rapid": BinaryIndex.build(rows, K, C), "tree": BinaryIndex.build(rows, K, -1)}
        self._matchers: dict[str, Any] = {"adaptive": AdaptiveMatcher.build(boxes, code_events(sample))}
        if counting:
            self._matchers["counting"] = CountingMatcher.build(boxes)

    def count_matches(self, events: Values) -> Longs:
        """Matches of each event."""
        return np.diff(self._trees["tree"].match(pack_events(events)).event_ptr)

    def measure(self, events: Values, rounds: int) -> list[dict[str, Cell]]:
        """A row for each matcher: its time, and what it counts, per event."""
        bits, codes = pack_events(events), code_events(events)
        subjects = [_subject(name, index, bits) for name, index in self._trees.items()]
        subjects += [Subject.of(name, matcher, codes) for name, matcher in self._matchers.items()]
        truth = BinaryWorkload(self._subscriptions, events).workload("light").truth()
        timings = time_subjects(subjects, len(events), truth, rounds=rounds)
        counts = {name: _count_search(index, bits) for name, index in self._trees.items()}
        counts |= {name: _count_matcher(name, matcher, codes) for name, matcher in self._matchers.items()}
        ones = events.sum(axis=1)
        common = {
            "subscriptions": len(self._subscriptions),
            "ones_per_event": float(ones.mean()),
            "light_levels_per_event": float(np.where(ones <= C, K / (ones + 1), 0).mean()),
        }
        rows: list[dict[str, Cell]] = []
        for name, timing in timings.items():
            found = {"us_per_event": timing.us_per_event, "matches_per_event": timing.matches_per_event}
            rows.append({"matcher": name, **common, **found, **counts[name]})
        return rows


def _subject(name: str, index: BinaryIndex, bits: Any) -> Subject:
    return Subject(name, lambda first, end: index.match(bits[first:end]), len(bits))


def _count_search(index: BinaryIndex, bits: Any) -> dict[str, float]:
    """Nodes of trees that store every node, subscriptions compared as a whole, and levels that are not tested."""
    tally = index.tally(bits)
    visits, compared, skipped = np.array([tally.nodes, tally.rows_compared, tally.levels_skipped]) / tally.events
    return _name_counts(visits, compared, skipped, sum(a.nbytes for a in index.arrays().values()))


def _count_matcher(name: str, matcher: Any, codes: EventCodes) -> dict[str, float]:
    """For counting, hits are what nodes are for trees; the adaptive matcher has nodes and leaves."""
    facts = matcher.stats(codes)
    if name == "counting":
        return _name_counts(facts["updates_per_event"], 0.0, 0.0, facts["bytes"])
    visits = facts["nodes_per_event"] + facts["leaves_per_event"]
    return _name_counts(visits, facts["candidates_per_event"], 0.0, facts["bytes"])


def _name_counts(visits: float, compared: float, skipped: float, size: int) -> dict[str, float]:
    return {
        "visits_per_event": float(visits),
        "compared_per_event": float(compared),
        "levels_skipped_per_event": float(skipped),
        "bytes": size,
    }


# -- reading rows -----------------------------------------------------------------------------------------------------


def ratios(rows: Rows, x: str, column: str, slower: str = "tree", quicker: str = "rapid") -> Mapping[float, float]:
    """The median over seeds of slower / quicker, for each x."""
    return {
        float(place): float(np.median(column_of(own, slower, column) / column_of(own, quicker, column)))
        for place, own in group(rows, x)
    }


def column_of(rows: Rows, matcher: str, column: str) -> Floats:
    """One column of one matcher."""
    return numbers(choose(rows, matcher=matcher), column)


def show_range(found: Mapping[float, float]) -> str:
    """The smallest and the largest."""
    return f"{show_number(min(found.values()))} to {show_number(max(found.values()))}"
