"""Events before and after the descent: codes of the index's columns, and clauses found twice.

Theory of operation
-------------------
An attribute of few codes is renumbered when an index is built: codes that no constraint contains (gaps between the
values asked for, NULL) become the one code 0, the others follow in order. That makes bitmaps smaller, and intervals
remain intervals. Columns that no clause constrains are left out. The lists of array attributes are sorted and freed
of repetitions, so that a lookup can skip equal keys.

A clause filed in several cells is met twice only by an event with several codes in that column; `drop_repeats` then
keeps the first of each, in one pass, with one stamp per clause.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.jit import Scalar, jit
from wherecast.kernels.arrays import Ints, Longs



@jit
def renumber(code: Scalar, width: Scalar, first: Scalar, end: Scalar, table: Ints) -> Scalar:
    """New code of one code; a code beyond the attribute's last (never sent by a correct coder) counts as the last."""
    code = min(code, width - 1)
    return code if first == end else table[first + code]


@jit
def prepare_codes(codes: Ints, attribute: Ints, width: Ints, table_ptr: Longs, table: Ints, out: Ints) -> Scalar:
    """Codes by column; lists become ~r with r counted up. Returns the number of lists."""
    n_lists = 0
    for event in range(codes.shape[0]):
        for c in range(attribute.size):
            code = codes[event, attribute[c]]
            if code >= 0:
                out[event, c] = renumber(code, width[c], table_ptr[c], table_ptr[c + 1], table)
            else:
                out[event, c] = ~n_lists
                n_lists += 1
    return n_lists


@jit
def prepare_lists(codes: Ints, list_ptr: Longs, list_codes: Ints, attribute: Ints, width: Ints, table_ptr: Longs,
                  table: Ints, out_ptr: Longs, out: Ints, fill: Scalar) -> Scalar:  # fmt: skip
    """The lists of `prepare_codes`, sorted and distinct; without `fill`, only an upper bound of their total size."""
    n, n_lists = 0, 0
    for event in range(codes.shape[0]):
        for c in range(attribute.size):
            code = codes[event, attribute[c]]
            if code >= 0:
                continue
            first, end = list_ptr[~code], list_ptr[~code + 1]
            if not fill:
                n += end - first
                continue
            begin = n
            for k in range(first, end):
                out[n] = renumber(list_codes[k], width[c], table_ptr[c], table_ptr[c + 1], table)
                n += 1
            out[begin:n] = np.sort(out[begin:n])
            stop, n = n, begin
            for k in range(begin, stop):
                if n == begin or out[k] != out[n - 1]:
                    out[n] = out[k]
                    n += 1
            n_lists += 1
            out_ptr[n_lists] = n
    return n


@jit
def drop_repeats(ids: Ints, ptr: Longs, stamps: Ints) -> Scalar:
    """Keep each id once per event, in place; `stamps` has one entry per clause, all -1. Returns how many remain."""
    read, write = 0, 0
    for event in range(ptr.size - 1):
        for at in range(read, ptr[event + 1]):
            clause = ids[at]
            if stamps[clause] != event:
                stamps[clause] = event
                ids[write] = clause
                write += 1
        read = ptr[event + 1]
        ptr[event + 1] = write
    return write
