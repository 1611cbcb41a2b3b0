"""One event from codes to subscriptions: what `descent`, `dense` and `events` do for a batch, in one call each.

Theory of operation
-------------------
For one event the work of the kernels is a microsecond; what costs is everything between them: arrays of one, made and
described anew for each step. So one call does all steps of a matcher, and one all steps of the fan-out, in memory that
the caller keeps for the next event. A kernel that lacks room says how much it needs; the caller comes again with more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Ints, Longs
from wherecast.kernels.automaton import sort_codes
from wherecast.kernels.dense import count_dense, list_dense
from wherecast.kernels.descent import (
    LookupTree,
    Projected,
    Scratch,
    descend,
)
from wherecast.kernels.events import prepare_codes, prepare_lists
from wherecast.kernels.jit import Scalar, hot, inlined
from wherecast.kernels.rows import Points, Rows


class Room(NamedTuple):
    """Memory for one event on its way through a matcher."""

    codes: Ints  # (1, columns) as `Projected` has them
    list_ptr: Longs  # (columns + 1,)
    list_codes: Ints
    ends: Longs  # (2,) where the matches of the event end
    counts: Longs  # (1,)
    cursor: Longs  # (1,)
    stop: Longs  # (1,)


@inlined
def distinct(ids: Ints, n: Scalar) -> Scalar:
    """Sort ids[:n] and keep each once; how many there are then."""
    sort_codes(ids, 0, n)
    kept = min(n, 1)
    for i in range(1, n):
        if ids[i] != ids[kept - 1]:
            ids[kept] = ids[i]
            kept += 1
    return kept


@hot
def match_point(
    tree: LookupTree,
    rows: Rows,
    columns: tuple[Ints, Ints, Longs, Ints],
    facts: tuple[int, int, int, int, int],
    scratch: Scratch,
    room: Room,
    point: Points,
    out: Ints,
) -> Scalar:
    """Write the clauses that hold for the one event of `point` to `out`; their number.

    `columns` are attributes, widths and renumberings (see `matchers.projection`), `facts` the first dense leaf and the one
    after the last, whether there is a tree, whether clauses may be found twice, and how much of the stack a code needs.
    -1: `out` is too small; -1 - k: the lists of columns need room for k codes, and the stack as much.
    """
    attribute, width, table_ptr, table = columns
    first, end, is_grown, is_replicated, stack_of_code = facts
    codes, list_ptr, list_codes, ends, counts, cursor, stop = room
    point_codes, point_ptr, point_lists = point
    n_lists, n_codes = prepare_codes(point_codes, point_ptr, attribute, width, table_ptr, table, codes)
    if n_codes > list_codes.size or max(n_codes, 1) * stack_of_code > scratch[0].size:
        return -1 - n_codes
    size = 0
    if n_lists > 0:
        size = prepare_lists(
            point_codes, point_ptr, point_lists, attribute, width, table_ptr, table, list_ptr, list_codes
        )
    batch = Projected(codes, list_ptr, list_codes[:size])
    n = np.int64(0)
    if is_grown:
        if descend(tree, rows, batch, point, 0, scratch, out, ends) == 0:
            return -1
        n = ends[1]
        if is_replicated and n_lists > 0:
            n = distinct(out, n)
    if first < end:
        counts[0] = 0
        count_dense(tree, batch, first, end, scratch, counts)
        if n + counts[0] > out.size:
            return -1
        cursor[0], stop[0] = n, out.size
        list_dense(tree, batch, first, end, scratch, cursor, stop, out)
        n = cursor[0]
    return n


@hot
def expand_point(
    ptr: npt.NDArray[Any],
    filter_ids: Ints,
    values: npt.NDArray[Any],
    died: Longs,
    version: int,
    clauses: Ints,
    n: int,
    out: Longs,
) -> Scalar:
    """Write the subscriptions to the filters of clauses[:n] that are alive at a version to `out`; their number.

    `filter_ids` is empty where clause c is filter c, `died` where none is dead. A subscription is given by its value, or
    by its slot where `values` is empty. `clauses` becomes the filters. -k: `out` needs room for k.
    """
    most = 0  # filters of several clauses are counted for each
    for i in range(n):
        owner = filter_ids[clauses[i]] if filter_ids.size > 0 else clauses[i]
        most += ptr[owner + 1] - ptr[owner]
    if most > out.size:
        return -most
    if filter_ids.size > 0:
        for i in range(n):
            clauses[i] = filter_ids[clauses[i]]
        n = distinct(clauses, n)
    at = 0
    for i in range(n):
        for slot in range(ptr[clauses[i]], ptr[clauses[i] + 1]):
            if died.size == 0 or died[slot] > version:
                out[at] = values[slot] if values.size > 0 else slot
                at += 1
    return at
