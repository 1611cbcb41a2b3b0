"""Fan-out: from the filters an event satisfies to the subscriptions of each.

Two passes over the filter ids, one to measure and one to write, so that the output is exactly as long as needed. Filters
with many subscribers are copied in runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.kernels.jit import hot

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@hot
def count_subscriptions(ptr: Ints, event_ptr: Longs, filter_ids: Ints, counts: Longs) -> None:
    """counts[e] = number of subscriptions to the filters of event e."""
    for e in range(counts.size):
        total = 0
        for i in range(event_ptr[e], event_ptr[e + 1]):
            f = filter_ids[i]
            total += ptr[f + 1] - ptr[f]
        counts[e] = total


@hot
def write_slots(ptr: Ints, filter_ids: Ints, out: Longs) -> None:
    """The slots of all filters, one after the other."""
    at = 0
    for i in range(filter_ids.size):
        f = filter_ids[i]
        for slot in range(ptr[f], ptr[f + 1]):
            out[at] = slot
            at += 1


@hot
def write_values(ptr: Ints, filter_ids: Ints, values: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
    """The values (ids, say) of all slots of all filters, one after the other."""
    at = 0
    for i in range(filter_ids.size):
        f = filter_ids[i]
        for slot in range(ptr[f], ptr[f + 1]):
            out[at] = values[slot]
            at += 1
