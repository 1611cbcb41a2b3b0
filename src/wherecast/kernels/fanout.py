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

from wherecast.kernels.bits import copy_8
from wherecast.kernels.jit import Scalar, hot, inlined
from wherecast.kernels.arrays import Ints, Longs



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


@inlined
def copy_run(
    values: npt.NDArray[Any], slot: Scalar, length: Scalar, out: npt.NDArray[Any], at: Scalar, end: Scalar
) -> Scalar:
    """Copy values[slot:slot + length] to out[at:], eight at a time; out[:end] may be overwritten behind the run.

    Most runs are shorter than eight, and how short cannot be predicted: they are copied whole without asking.
    """
    done = 0
    if at + length + 8 <= end and slot + length + 8 <= values.size:
        while done < length:
            copy_8(values, slot + done, out, at + done)
            done += 8
    while done < length:
        out[at + done] = values[slot + done]
        done += 1
    return at + length


@hot
def write_values(
    ptr: Ints,
    event_ptr: Longs,
    filter_ids: Ints,
    died: Longs,
    version: int,
    values: npt.NDArray[Any],
    cursor: Longs,
    ends: Longs,
    out: npt.NDArray[Any],
) -> None:
    """Write the values (ids, say) of the live slots of every event at its cursor, and move the cursor on.

    An event's part of `out` ends at `ends`.
    """
    for e in range(cursor.size):
        at, end = cursor[e], ends[e]
        for i in range(event_ptr[e], event_ptr[e + 1]):
            slot, stop = np.int64(ptr[filter_ids[i]]), np.int64(ptr[filter_ids[i] + 1])
            if died.size == 0:
                at = copy_run(values, slot, stop - slot, out, at, end)
            else:
                for s in range(slot, stop):
                    if died[s] > version:
                        out[at] = values[s]
                        at += 1
        cursor[e] = at
