"""One way to time matchers: what each finds is compared with brute force first, then all are timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from wherecast.bench.measure import Contestant, Timing, WrongCountError, time_in_turns
from wherecast.bench.workloads.truth import GroundTruth
from wherecast.index.boxes import EventCodes
from wherecast.kernels.arrays import Ints, Longs
from wherecast.matchers.protocol import Matcher

#: For a pass over all events.
BUDGET_S = 1.0


class Subject(NamedTuple):
    """A matcher with the events that it is to match."""

    name: str
    match: Callable[[int, int], tuple[Longs, Ints]]  # hits of the events from the first number to before the second
    at_once: int  # events of one call

    @classmethod
    def of(cls, name: str, matcher: Matcher, events: EventCodes, at_once: int | None = None) -> Subject:
        """A matcher of the product; without `at_once` all events are one batch."""

        def match(first: int, end: int) -> tuple[Longs, Ints]:
            return matcher.match(events._replace(codes=events.codes[first:end]))

        return cls(name, match, at_once or events.n_events)

    def run(self, n: int) -> int:
        """Match the first n events; how many matches there are."""
        starts = range(0, n, self.at_once)
        return sum(self.match(first, min(first + self.at_once, n))[1].size for first in starts)


def check_matches(subject: Subject, truth: GroundTruth) -> None:
    """Raise WrongCountError unless the first events match what brute force says, by number and sum of ids."""
    ptr, ids = subject.match(0, truth.counts.size)
    sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(ids, dtype=np.int64)))[ptr]
    wrong = np.flatnonzero((np.diff(ptr) != truth.counts) | (np.diff(sums) != truth.id_sums))
    if wrong.size:
        e = int(wrong[0])
        raise WrongCountError(
            f"{subject.name}, event {e}: {ptr[e + 1] - ptr[e]} matches with id sum {sums[e + 1] - sums[e]}, expected "
            f"{truth.counts[e]} with {truth.id_sums[e]}; nothing is timed"
        )


def time_subjects(
    subjects: Sequence[Subject], n_events: int, truth: GroundTruth, *, rounds: int = 5
) -> dict[str, Timing]:
    """Median time per event of each, by name; one that needs more than `BUDGET_S` for a pass gets fewer events."""
    for subject in subjects:
        check_matches(subject, truth)
    contestants = [Contestant(subject.name, subject.run) for subject in subjects]
    return time_in_turns(contestants, n_events, rounds=rounds, budget_s=BUDGET_S)
