"""A few events from stored values to clauses, in one call.

Theory of operation
-------------------
For a batch of thousands, coding, projecting and descending are one call each, and what is between the calls is nothing beside them. For a batch
of a hundred it is half of the time: arrays that are made and described for each step, and a cache and a branch predictor full of
Python when the next kernel begins. So one call does all steps, in memory that the caller keeps for the next batch. Events that the gate stops
are left out before the tree is asked: it looks ahead 16 events at a time, and they would take the places of others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wherecast.kernels.arrays import Bools, Bytes, Ints, Longs, Words
from wherecast.kernels.descent import LookupTree, Projected, Scratch, descend
from wherecast.kernels.events import prepare_codes
from wherecast.kernels.jit import Scalar, hot
from wherecast.kernels.rows import Points, Rows
from wherecast.kernels.stored_columns import code_columns


class FewRoom(NamedTuple):
    """Memory for a few events on their way through a matcher; none of them has lists."""

    codes: Ints  # (events, attributes)
    projected: Ints  # (events, columns)
    wanted: Bools  # (events,)
    rows: Ints  # (events,)
    ends: Longs  # (events + 1,) where the matches of the events that are left end
    done: Longs  # (3,)
    words: Words  # (ROOM_WORDS,)
    seen: Bytes  # empty, as there are no lists
    list_ptr: Longs  # (2,)
    list_codes: Ints  # empty


@hot
def match_few(
    values: Longs,
    jobs: Longs,
    is_open: Bools,
    columns: tuple[Ints, Ints, Longs, Ints],
    tree: LookupTree,
    boxes: Rows,
    scratch: Scratch,
    room: FewRoom,
    n: int,
    ptr: Longs,
    out: Ints,
) -> Scalar:
    """Write the clauses that hold for n events to `out`, and where those of each end to ptr[1:]. Their number, -1 if `out` is too small.

    `values`, `jobs` and `is_open` are those of `code_columns`; without `is_open` all events are wanted.
    """
    attribute, width, table_ptr, table = columns
    codes, projected, wanted, rows, ends, done, words, seen, list_ptr, list_codes = room
    codes[:n] = 0
    done[:] = 0
    asked = wanted[: n if is_open.size > 0 else 0]
    code_columns(values, jobs, is_open, asked, done, rows[:n], words, seen, wanted[:0], codes[:n], 0, list_ptr,
                 list_codes)  # fmt: skip
    left = 0
    for event in range(n):
        if asked.size == 0 or asked[event]:
            rows[left] = event
            for a in range(codes.shape[1] if left < event else 0):
                codes[left, a] = codes[event, a]
            left += 1
    points = Points(codes[:left], list_ptr, list_codes)
    prepare_codes(codes[:left], list_ptr, attribute, width, table_ptr, table, projected[:left])
    ends[0] = 0
    batch = Projected(projected[:left], list_ptr, list_codes)
    if descend(tree, boxes, batch, points, 0, scratch, out, ends) < left:
        return np.int64(-1)
    met = 0
    ptr[0] = 0
    for event in range(n):
        met += met < left and rows[met] == event
        ptr[event + 1] = ends[met]
    return ends[left]
