"""From a list of clauses to a leaf: which columns become bitmaps, and what is left to check.

Theory of operation
-------------------
A leaf knows the cells of its path. A column filed under at shift 0 is settled: the code is known, the constraint
holds, nothing is stored. A column filed under at a larger shift keeps buckets of the cell only. Any other column gets
one row per code while it has at most `EXACT_CODES` of them, otherwise `COARSE_BITS` bits of buckets over its whole
range; constraints of such inexact columns are checked again for the few clauses that survive the AND.

A column becomes a bitmap only if the rows would cost more bytes than a few checks: a column that one clause in a
hundred constrains is cheaper to check on the survivors. A leaf with few clauses has no bitmaps at all.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.bits import ONE
from wherecast.kernels.descent import BITS_AT, LEAF_WORDS, ROW_AT, SHIFT_AT
from wherecast.kernels.jit import jit

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

#: A column of up to this many codes has one row per code.
EXACT_CODES = 64
#: Other columns have 2**COARSE_BITS buckets.
COARSE_BITS = 5
#: Bytes of a stored constraint (column, lo, hi), the unit in which bitmaps are weighed.
ROW_BYTES = 10
#: Cycles of checking one clause, of one leaf column, of one leaf: decide between rows and bitmaps.
CHECK, PER_COLUMN, PER_LEAF = 8, 6, 30


@jit
def bits_of(width: int) -> int:
    """Number of bits of the codes 0 .. width - 1."""
    bits = 0
    while (1 << bits) < width:
        bits += 1
    return bits


@jit
def path_of(leaf: int, parent: Ints, step: Ints, path: Ints, path_shift: Ints, path_key: Ints, clear: bool) -> None:
    """Mark the columns on the way to a leaf with the shift and key they were filed under, or clear the marks.

    `step[leaf]` and `path[p]` are (column, shift, key, parent path); column -1 says no step.
    """
    if step[leaf, 0] >= 0:
        path_shift[step[leaf, 0]] = -1 if clear else step[leaf, 1]
        path_key[step[leaf, 0]] = step[leaf, 2]
    at = parent[leaf]
    while at >= 0:
        path_shift[path[at, 0]] = -1 if clear else path[at, 1]
        path_key[path[at, 0]] = path[at, 2]
        at = path[at, 3]


@jit
def plan_leaf(members: Ints, first: int, end: int, ptr: Longs, column: Ints, width: Ints, path_shift: Ints, thrift: int,
              load: Ints, touched: Ints, bits: Ints, shifts: Ints) -> tuple[int, int]:  # fmt: skip
    """Choose the form of a leaf: `bits[c]` of buckets for each bitmap column (-1: none), words (0: a row leaf).

    Returns the number of touched columns and the words. `load` is all zero before and after.
    """
    n_touched, rows = 0, 0
    for i in range(first, end):
        for k in range(ptr[members[i]], ptr[members[i] + 1]):
            c = column[k]
            if path_shift[c] != 0:
                if load[c] == 0:
                    touched[n_touched] = c
                    n_touched += 1
                load[c] += 1
                rows += 1
    size = end - first
    n_maps, map_bytes = 0, 0
    for t in range(n_touched):
        c = touched[t]
        if path_shift[c] > 0 and width[c] > EXACT_CODES:
            bits[c] = min(path_shift[c], COARSE_BITS)
            shifts[c] = path_shift[c] - bits[c]
        else:
            all_bits = bits_of(width[c])
            bits[c] = all_bits if width[c] <= EXACT_CODES else min(all_bits, COARSE_BITS)
            shifts[c] = all_bits - bits[c]
        n_rows = min(1 << bits[c], (width[c] + (1 << shifts[c]) - 1) >> shifts[c])
        needed = n_rows * ((size + 63) // 64) * 8 + 8
        if needed > thrift * ROW_BYTES * load[c]:
            bits[c] = -1
        else:
            n_maps += 1
            map_bytes += needed
        load[c] = 0
    few = size * CHECK < PER_LEAF + PER_COLUMN * n_maps and rows * ROW_BYTES <= map_bytes + 64
    if size <= 8 or few or n_maps == 0 or size > 64 * LEAF_WORDS:
        for t in range(n_touched):
            bits[touched[t]] = -1
        return n_touched, 0
    return n_touched, (size + 63) // 64


@jit
def is_exact(c: int, width: Ints, bits: Ints, shifts: Ints) -> bool:
    """Whether the bitmap of a column decides its constraint.

    Buckets of a cell never do, even one code wide: of an event's list, codes outside the cell fall into them too.
    """
    return bits[c] >= 0 and shifts[c] == 0 and width[c] <= EXACT_CODES


@jit
def fill_rows(members: Ints, first: int, end: int, ptr: Longs, column: Ints, lo: Ints, hi: Ints, list_at: Ints,
              list_end: Ints, width: Ints, path_shift: Ints, bits: Ints, shifts: Ints, row_ptr: Ints,
              row_column: npt.NDArray[np.int16], row_lo: Ints, row_hi: Ints, n: int, fill: bool) -> int:  # fmt: skip
    """Store (or count) the constraints that the bitmaps do not decide; a clause's stand rarest first in `ptr` order."""
    for i in range(first, end):
        if fill:
            row_ptr[i] = n
        for k in range(ptr[members[i]], ptr[members[i] + 1]):
            c = column[k]
            if path_shift[c] == 0 or is_exact(c, width, bits, shifts):
                continue
            if fill and list_at[k] >= 0:
                row_column[n], row_lo[n], row_hi[n] = ~c, list_at[k], list_end[k]
            elif fill:
                row_column[n], row_lo[n], row_hi[n] = c, lo[k], hi[k]
            n += 1
    return n


@jit
def set_bits(maps: npt.NDArray[np.uint64], place: int, words: int, slot: int, first: int, last: int) -> None:
    """Set one clause's bit in the rows first .. last."""
    bit = ONE << np.uint64(slot & 63)
    for row in range(first, last + 1):
        maps[place + row * words + (slot >> 6)] |= bit


@jit
def fill_column(members: Ints, first: int, end: int, ptr: Longs, column: Ints, lo: Ints, hi: Ints, list_at: Ints,
                list_end: Ints, list_lo: Ints, list_hi: Ints, c: int, bits: int, shift: int, n_rows: int, cell: int,
                maps: npt.NDArray[np.uint64], place: int, words: int) -> None:  # fmt: skip
    """The rows of one column: a clause without a constraint on it is in all of them. `cell` < 0: no path cell."""
    low = 0 if cell < 0 else cell << (bits + shift)
    high = np.int64(2**31 - 1) if cell < 0 else low + (1 << (bits + shift)) - 1
    for i in range(first, end):
        free = True
        for k in range(ptr[members[i]], ptr[members[i] + 1]):
            if column[k] != c:
                continue
            free = False
            if list_at[k] < 0:
                begin, stop = max(np.int64(lo[k]), low), min(np.int64(hi[k]), high)
                set_bits(maps, place, words, i - first, (begin - low) >> shift, (stop - low) >> shift)
                continue
            for at in range(list_at[k], list_end[k]):
                begin, stop = max(np.int64(list_lo[at]), low), min(np.int64(list_hi[at]), high)
                if begin <= stop:
                    set_bits(maps, place, words, i - first, (begin - low) >> shift, (stop - low) >> shift)
        if free:
            set_bits(maps, place, words, i - first, 0, n_rows - 1)


@jit
def build_leaves(
    leaf_ptr: Longs, members: Ints, parent: Ints, step: Ints, path: Ints, thrift: Ints,
    ptr: Longs, column: Ints, lo: Ints, hi: Ints, list_at: Ints, list_end: Ints, list_lo: Ints, list_hi: Ints,
    width: Ints, leaves: Longs, columns: Longs, maps: npt.NDArray[np.uint64], row_ptr: Ints,
    row_column: npt.NDArray[np.int16], row_lo: Ints, row_hi: Ints, fill: bool,
) -> tuple[int, int, int]:  # fmt: skip
    """Lay out all leaves; without `fill`, only measure. Returns the numbers of columns, map words and rows."""
    n_columns = width.size
    path_shift = np.full(n_columns, -1, np.int32)
    path_key = np.zeros(n_columns, np.int32)
    load = np.zeros(n_columns, np.int32)
    touched = np.zeros(n_columns, np.int32)
    bits = np.full(n_columns, -1, np.int32)
    shifts = np.zeros(n_columns, np.int32)
    n_packed, n_words, n_rows = 0, 0, 0
    for leaf in range(leaf_ptr.size - 1):
        first, end = leaf_ptr[leaf], leaf_ptr[leaf + 1]
        path_of(leaf, parent, step, path, path_shift, path_key, False)
        n_touched, words = plan_leaf(
            members, first, end, ptr, column, width, path_shift, thrift[leaf], load, touched, bits, shifts
        )
        if fill:
            leaves[leaf, 0], leaves[leaf, 1], leaves[leaf, 2] = first, end - first, words
            leaves[leaf, 3], leaves[leaf, 5] = n_packed, n_words
        n_rows = fill_rows(members, first, end, ptr, column, lo, hi, list_at, list_end, width, path_shift, bits,
                           shifts, row_ptr, row_column, row_lo, row_hi, n_rows, fill)  # fmt: skip
        at_row = 0
        for t in range(n_touched):
            c = np.int64(touched[t])
            if bits[c] < 0:
                continue
            rows = min(1 << bits[c], (width[c] + (1 << shifts[c]) - 1) >> shifts[c])
            if fill:
                columns[n_packed] = (
                    c | (np.int64(shifts[c]) << SHIFT_AT) | (np.int64(bits[c]) << BITS_AT) | (np.int64(at_row) << ROW_AT)
                )
                cell = path_key[c] if path_shift[c] > 0 and width[c] > EXACT_CODES else -1
                fill_column(members, first, end, ptr, column, lo, hi, list_at, list_end, list_lo, list_hi, c, bits[c],
                            shifts[c], rows, cell, maps, n_words + at_row * words, words)  # fmt: skip
            n_packed += 1
            at_row += rows
            bits[c] = -1
        n_words += at_row * words
        if fill:
            leaves[leaf, 4] = n_packed
        path_of(leaf, parent, step, path, path_shift, path_key, True)
    if fill:
        row_ptr[leaf_ptr[leaf_ptr.size - 1]] = n_rows
    return n_packed, n_words, n_rows
