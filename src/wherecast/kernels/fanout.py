"""Fan-out: from the filters an event satisfies to the subscriptions of each.

Two passes over the filter ids, one to measure and one to write, so that the output is exactly as long as needed. An engine
has several segments; each writes its part of every event behind the `cursor` that the one before it left, so the
subscriptions of an event end up together without sorting.

`died` is the version at which each slot's subscription was removed, or empty where none was; a reader at `version` skips
what died then or before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.kernels.jit import hot

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@hot
def count_subscriptions(
    ptr: Ints, event_ptr: Longs, filter_ids: Ints, died: Longs, version: int, counts: Longs
) -> None:
    """Add to counts[e] the number of live subscriptions to the filters of event e."""
    for e in range(counts.size):
        total = 0
        for i in range(event_ptr[e], event_ptr[e + 1]):
            f = filter_ids[i]
            if died.size == 0:
                total += ptr[f + 1] - ptr[f]
            else:
                for slot in range(ptr[f], ptr[f + 1]):
                    if died[slot] > version:
                        total += 1
        counts[e] += total


@hot
def write_values(
    ptr: Ints,
    event_ptr: Longs,
    filter_ids: Ints,
    died: Longs,
    version: int,
    values: npt.NDArray[Any],
    cursor: Longs,
    out: npt.NDArray[Any],
) -> None:
    """Write the values (ids, say) of the live slots of every event at its cursor, and move the cursor on."""
    for e in range(cursor.size):
        at = cursor[e]
        if died.size == 0:
            # Every filter has a subscriber, and most have one: write it before asking whether there are more.
            for i in range(event_ptr[e], event_ptr[e + 1]):
                slot, end = ptr[filter_ids[i]], ptr[filter_ids[i] + 1]
                out[at] = values[slot]
                at += 1
                slot += 1
                while slot < end:
                    out[at] = values[slot]
                    at += 1
                    slot += 1
        else:
            for i in range(event_ptr[e], event_ptr[e + 1]):
                for slot in range(ptr[filter_ids[i]], ptr[filter_ids[i] + 1]):
                    if died[slot] > version:
                        out[at] = values[slot]
                        at += 1
        cursor[e] = at
