"""The truth by brute force: every predicate of every subscription against every event, no index.

Written for the compiler, so that a million subscriptions and fifty events take a second; it shares no code with any
matcher.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Floats, Longs
from wherecast.kernels.jit import jit

#: How many events are checked before anything is timed.
CHECKED_EVENTS = 50


class GroundTruth(NamedTuple):
    """What each checked event matches."""

    counts: Longs  # (events,) subscriptions
    id_sums: Longs  # (events,) sum of their ids

    @property
    def matches(self) -> int:
        """All pairs."""
        return int(self.counts.sum())


def find_truth(ptr: Longs, attr: Longs, op: Longs, value: Floats, events: Floats, first_id: int = 0) -> GroundTruth:
    """Count and sum the ids, `first_id` and up, that each event satisfies."""
    counts, sums = np.zeros(len(events), np.int64), np.zeros(len(events), np.int64)
    _tally(ptr, attr, op, value, np.ascontiguousarray(events), first_id, counts, sums)
    return GroundTruth(counts, sums)


def match_none(ptr: Longs, attr: Longs, op: Longs, value: Floats, events: Floats) -> npt.NDArray[np.bool_]:
    """Which subscriptions no event satisfies."""
    silent = np.ones(ptr.size - 1, np.bool_)
    _mark_silent(ptr, attr, op, value, np.ascontiguousarray(events), silent)
    return silent


@jit
def _holds(ptr: Longs, attr: Longs, op: Longs, value: Floats, subscription: int, event: Floats) -> bool:
    for row in range(ptr[subscription], ptr[subscription + 1]):
        x, v, o = event[attr[row]], value[row], op[row]
        if o == 0:
            ok = x == v
        elif o == 1:
            ok = x != v
        elif o == 2:
            ok = x < v
        else:
            ok = x > v
        if not ok:
            return False
    return True


@jit
def _tally(
    ptr: Longs, attr: Longs, op: Longs, value: Floats, events: Floats, first_id: int, counts: Longs, sums: Longs
) -> None:
    for subscription in range(ptr.size - 1):
        for e in range(events.shape[0]):
            if _holds(ptr, attr, op, value, subscription, events[e]):
                counts[e] += 1
                sums[e] += first_id + subscription


@jit
def _mark_silent(
    ptr: Longs, attr: Longs, op: Longs, value: Floats, events: Floats, silent: npt.NDArray[np.bool_]
) -> None:
    for subscription in range(ptr.size - 1):
        for e in range(events.shape[0]):
            if _holds(ptr, attr, op, value, subscription, events[e]):
                silent[subscription] = False
                break
