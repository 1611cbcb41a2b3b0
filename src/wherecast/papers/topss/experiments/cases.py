"""A workload of the TOPSS paper at one size, with the matchers that its figures compare.

The adaptive matcher stands beside the paper's in every figure. It is shown a sample of other events than those it
matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from wherecast.bench.workloads.form import Workload
from wherecast.index.boxes import Boxes, EventCodes
from wherecast.kernels.arrays import Floats
from wherecast.matchers.protocol import Matcher
from wherecast.matchers.registry import find_matcher
from wherecast.papers.lab.experiment import Progress
from wherecast.papers.lab.plots import PALETTE, REFERENCE
from wherecast.papers.lab.rows import Row, Rows, choose, levels, numbers
from wherecast.papers.lab.timing import Subject, time_subjects
from wherecast.papers.topss.workload import SPECIFICATIONS, Specification

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER = "topss-2002"
MILLION = 1_000_000
#: Subscriptions of the paper's tables.
PAPER_SIZES = (1_000, 5_000, 10_000, 50_000, 100_000, 500_000, MILLION, 5 * MILLION)
W4 = SPECIFICATIONS["W4"]
#: The paper's names for ways to store associations, and ours, with the matchers that have them.
MATCHERS = {
    "lists": "counting",
    "bits": "counting-bit",
    "bytes": "counting-byte",
    "database": "database",
    "adaptive": "adaptive",
}
COLORS = dict(zip(MATCHERS, PALETTE, strict=False))
_SAMPLE = 200


@dataclass(frozen=True, slots=True)
class MatchingCase:
    """Subscriptions and events, as numbers and as codes."""

    workload: Workload
    boxes: Boxes
    events: EventCodes
    sample: EventCodes

    @classmethod
    def draw(cls, specification: Specification, n: int, n_events: int) -> MatchingCase:
        """A workload with n subscriptions."""
        drawn = specification.make(n, n_events + _SAMPLE)
        codes = [specification.code_events(part) for part in (drawn.events[:n_events], drawn.events[n_events:])]
        workload = replace(drawn, events=drawn.events[:n_events])
        return cls(workload, specification.code_predicates(drawn.predicates), *codes)

    def build(self, matcher: str) -> Matcher:
        """A matcher of the registry with these subscriptions."""
        return find_matcher(matcher).build(self.boxes, self.sample)


@dataclass(frozen=True, slots=True)
class MatchingSettings:
    """W4 at several sizes. The database takes minutes and the byte matrix gigabytes beyond `most_costly`."""

    matchers: tuple[str, ...]
    sizes: tuple[int, ...] = PAPER_SIZES
    most_costly: int = MILLION
    rounds: int = 5
    n_events: int = 20

    def cases(self, name: str, progress: Progress) -> Iterator[tuple[int, list[str], MatchingCase]]:
        """Every size, and the matchers that are run on it."""
        for n in self.sizes:
            progress(f"{name}: {n:,} of {self.sizes[-1]:,} subscriptions")
            costly = () if n <= self.most_costly else ("database", "bytes")
            chosen = [matcher for matcher in self.matchers if matcher not in costly]
            yield n, chosen, MatchingCase.draw(W4, n, self.n_events)


def measure_matching(name: str, settings: MatchingSettings, progress: Progress) -> list[Row]:
    """Time for an event of W4 and what is counted for it, by size and matcher.

    Events come ten at a time as in the paper; the database gets a statement for each.
    """
    rows: list[Row] = []
    for n, chosen, case in settings.cases(name, progress):
        built = {matcher: case.build(MATCHERS[matcher]) for matcher in chosen}
        at_once = {"database": 1}
        subjects = [Subject.of(m, built[m], case.events, at_once.get(m, W4.events_at_once)) for m in chosen]
        timings = time_subjects(subjects, settings.n_events, case.workload.truth(), rounds=settings.rounds)
        lists: Any = built["lists"]
        hits = float(lists.tally(case.events).updates.mean())
        for matcher, live in built.items():
            rows.append({
                "subscriptions": n,
                "matcher": matcher,
                "ms_per_event": timings[matcher].us_per_event / 1e3,
                "matches_per_event": timings[matcher].matches_per_event,
                "updates_per_event": 0.0 if matcher == "adaptive" else hits,  # the same however they are counted
                "entries_per_event": _entries_read(matcher, live, case.events),
            })  # fmt: skip
    return rows


def _entries_read(matcher: str, live: Any, events: EventCodes) -> float:
    """Entries that an event reads: ids, words, bytes, rows, or clauses of the leaves that it reaches."""
    if matcher == "database":
        return float(live.stats()["rows"]["subs_preds"])
    facts = live.stats(events)
    return float(facts["candidates_per_event" if matcher == "adaptive" else "entries_per_event"])


# -- reading rows -----------------------------------------------------------------------------------------------------


def at_size(rows: Rows, n: Any, column: str) -> dict[str, float]:
    """One column at one size, by matcher."""
    return {str(row["matcher"]): float(row[column]) for row in choose(rows, subscriptions=n)}


def largest_size(rows: Rows, *matchers: str) -> int:
    """The most subscriptions that all of these were run with."""
    sizes = [set(levels(choose(rows, matcher=matcher), "subscriptions")) for matcher in matchers]
    return max(int(n) for n in set.intersection(*sizes))


def draw_curves(axes: Axes, rows: Rows, column: str, printed: Mapping[str, Floats]) -> None:
    """A curve for each matcher over the subscriptions and, broken, what the paper printed; both axes logarithmic."""
    for matcher in levels(rows, "matcher"):
        own, color = choose(rows, matcher=matcher), COLORS[str(matcher)]
        axes.plot(numbers(own, "subscriptions"), numbers(own, column), ".-", color=color, label=str(matcher))
        if str(matcher) in printed:
            axes.plot(PAPER_SIZES, printed[str(matcher)], "--", color=color, linewidth=1)
    if printed:
        axes.plot([], [], "--", color=REFERENCE, linewidth=1, label="the paper, 2002")
    axes.set(xscale="log", yscale="log", xlabel="subscriptions")
