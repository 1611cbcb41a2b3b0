"""Taking times: warm-up, the garbage collector off, medians, and contestants in turns so that ratios are fair.

Machines drift: a neighbour wakes up, a clock steps down. So what is compared is timed in the same minutes, round by
round, and each timed pass follows an untimed one of the same contestant, which brings its index back into the caches.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import numpy as np

from wherecast.errors import WherecastError

T = TypeVar("T")


class WrongCountError(WherecastError):
    """A contestant that does not find what it must: it gets no time."""


class Contestant(NamedTuple):
    """Something that matches events: `run(n)` matches the first n and answers how many matches it found."""

    name: str
    run: Callable[[int], int]
    build_s: float = 0.0
    size_bytes: int | None = None


class Timing(NamedTuple):
    """The outcome for one contestant."""

    us_per_event: float  # median over the rounds
    best_us_per_event: float
    events: int
    matches: int

    @property
    def matches_per_event(self) -> float:
        """Matches found, per event."""
        return self.matches / self.events


class Percentiles(NamedTuple):
    """Of single calls, in microseconds."""

    p50_us: float
    p99_us: float
    calls: int


@contextmanager
def collector_off() -> Iterator[None]:
    """No garbage collection inside, one before."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def timed(function: Callable[[], T]) -> tuple[T, float]:
    """The result, and the seconds it took."""
    with collector_off():
        start = time.perf_counter()
        result = function()
        return result, time.perf_counter() - start


def check_count(who: str, found: int, expected: int, events: int) -> None:
    """Refuse to time a contestant that is wrong."""
    if found != expected:
        raise WrongCountError(
            f"{who}: {found} matches in the first {events} events, expected {expected}; nothing is timed"
        )


def time_in_turns(
    contestants: Sequence[Contestant], n_events: int, *, rounds: int = 5, budget_s: float = 2.0
) -> dict[str, Timing]:
    """Median time per event of each contestant.

    One that would need longer than `budget_s` for a pass over all events gets fewer of them, from the first on.
    """
    seconds: dict[str, list[float]] = {c.name: [] for c in contestants}
    with collector_off():
        events = {c.name: _events_within(c, n_events, budget_s) for c in contestants}
        matches = {c.name: c.run(events[c.name]) for c in contestants}
        for _ in range(rounds):
            for c in contestants:
                if len(contestants) > 1:
                    c.run(events[c.name])
                start = time.perf_counter()
                c.run(events[c.name])
                seconds[c.name].append(time.perf_counter() - start)
    return {name: _timing(taken, events[name], matches[name]) for name, taken in seconds.items()}


def _events_within(contestant: Contestant, n_events: int, budget_s: float) -> int:
    """As many events as a pass of `budget_s` can take, at least a few."""
    n = min(20, n_events)
    contestant.run(n)
    while True:
        start = time.perf_counter()
        contestant.run(n)
        taken = time.perf_counter() - start
        if n == n_events or taken > budget_s / 8:
            break
        n = min(8 * n, n_events)
    return max(min(20, n_events), min(n_events, int(budget_s / taken * n)))


def _timing(seconds: Sequence[float], events: int, matches: int) -> Timing:
    return Timing(statistics.median(seconds) / events * 1e6, min(seconds) / events * 1e6, events, matches)


def time_calls(calls: Iterable[Callable[[], object]]) -> Percentiles:
    """Percentiles of single calls, each made once, in order."""
    taken, clock = [], time.perf_counter_ns
    with collector_off():
        for call in calls:
            start = clock()
            call()
            taken.append(clock() - start)
    p50, p99 = np.percentile(np.asarray(taken, np.float64), (50, 99)) / 1e3
    return Percentiles(round(float(p50), 2), round(float(p99), 2), len(taken))
