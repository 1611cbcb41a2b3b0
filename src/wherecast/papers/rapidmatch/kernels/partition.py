"""Between codes and binary properties: which properties an event sets, which ones a clause tests.

A partition is flat: the segments of attribute a are seg_ptr[a] .. seg_ptr[a + 1] - 1, each a run of codes from
`seg_start` to the next; `seg_cell` says to which cell a segment belongs, `cell_masks` which properties a code in that
cell sets.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Ints, Longs, Words
from wherecast.kernels.jit import Scalar, hot, inlined


@inlined
def find_segment(seg_start: Ints, first: Scalar, end: Scalar, code: Scalar) -> Scalar:
    """The segment that a code is in; the first begins at code 0."""
    while end - first > 1:
        middle = (first + end) // 2
        if seg_start[middle] <= code:
            first = middle
        else:
            end = middle
    return first


@hot
def set_properties(
    codes: Ints, list_ptr: Longs, list_codes: Ints, seg_ptr: Longs, seg_start: Ints, seg_cell: Ints, cell_masks: Words,
    single: npt.NDArray[np.bool_], events: Words,
) -> int:  # fmt: skip
    """The properties of events; -1, or the first attribute that has an array where a single code was expected."""
    for e in range(len(codes)):
        for a in range(seg_ptr.size - 1):
            first, end, code = seg_ptr[a], seg_ptr[a + 1], codes[e, a]
            if end - first == 1:
                continue
            if code < 0 and single[a]:
                return a
            n = 1 if code >= 0 else list_ptr[~code + 1] - list_ptr[~code]
            for i in range(n):
                one = code if code >= 0 else list_codes[list_ptr[~code] + i]
                cell = seg_cell[find_segment(seg_start, first, end, one)]
                for w in range(events.shape[1]):
                    events[e, w] |= cell_masks[cell, w]
    return -1


@hot
def join_tests(owner: Longs, number: Longs, tests: Words, rows: Words) -> None:
    """Rows of clauses from the tests of their constraints."""
    for i in range(owner.size):
        for w in range(rows.shape[1]):
            rows[owner[i], w] |= tests[number[i], w]
