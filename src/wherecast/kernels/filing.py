"""Building the tree of `descent`: in which cells each clause is filed, and what leaves hold. Which tests a node has is chosen in `choosing`.

Theory of operation
-------------------
The clauses of one cell, and those that no test serves, make leaves. A leaf knows the cells of its path. A column filed under
at shift 0 is settled: the code is known, the constraint holds, nothing is stored. A column filed under at a larger shift keeps buckets of the cell only. Any other column gets
one row per code while it has at most `EXACT_CODES` of them, otherwise `COARSE_BITS` bits of buckets over its whole
range; the boxes of the few clauses that survive the AND of such inexact columns are checked.

Where many of a leaf's clauses hold at once (wide ranges, `<>`), that second check would be all the work. Such a leaf has
a second row beside each: bit i says that clause i *surely* holds for every code of the bucket. Only
clauses that may hold and do not surely hold are checked: those with an end of an interval in the event's bucket.

A column becomes a bitmap only if enough clauses constrain it: one that is constrained by one clause in a hundred is
cheaper to check on the survivors, unless nearly all clauses of the leaf survive (`CROWDED_THRIFT`). Where guards (see `leaves`) are estimated to cost less, and in a leaf with few
clauses, there are no bitmaps at all.

Constraint `number[entry]` for the entries `ptr[clause]` .. `ptr[clause + 1] - 1` are those of a clause: where clauses repeat constraints, each is described once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Ints, Longs, Singles
from wherecast.kernels.guards import Buckets, pack_guards
from wherecast.kernels.jit import ONE, Scalar, jit
from wherecast.kernels.leaves import (
    BITS_AT,
    CHECKED,
    COLUMN,
    COLUMN_END,
    FOLD_AT,
    LEAF_WORDS,
    MAP,
    PAIRED,
    ROW_AT,
    SHIFT_AT,
    SIDE_BY_SIDE,
    SIZE,
    SLOT,
    SURE,
    WORDS,
)
from wherecast.kernels.leftover import EXACT_CODES, is_exact, price_checks
from wherecast.kernels.likelihood import together

#: Most clauses of a leaf that never has bitmaps.
ROW_LEAF = 8
#: Other columns have 2**COARSE_BITS buckets, twice as many in a leaf with sure rows, where each saves checks.
COARSE_BITS = 4
#: Bitmap bytes per byte of constraint rows that `plan_leaf` allows in the tree.
THRIFT = 2
#: How many times that where many clauses of a leaf hold and a row decides: what has no bitmap there is checked for nearly every event.
CROWDED_THRIFT = 4
#: Bitmap bytes that sparing a clause one check is worth.
ROW_BYTES = 10
#: Cycles of one guard, of one leaf column, of one leaf: decide between guards and bitmaps.
GUARD, PER_COLUMN, PER_LEAF = 4, 6, 30
#: What second guards must save, in units of their cost: they take memory.
PAIR_MARGIN = 1.5
#: Share of a leaf's clauses that are expected to hold, from which on it has sure rows.
CROWDED = 1 / 16


@jit
def sign_clauses(members: Ints, ptr: Longs, number: Ints, column: Ints, out: npt.NDArray[np.uint64]) -> None:
    """A bit per constrained column (modulo 64): equal numbers for clauses over the same columns."""
    for i in range(members.size):
        found = np.uint64(0)
        for entry in range(ptr[members[i]], ptr[members[i] + 1]):
            found |= ONE << np.uint64(column[number[entry]] & 63)
        out[i] = found


@jit
def weigh_blocks(
    members: Ints, cuts: Longs, ptr: Longs, number: Ints, column: Ints, width: Ints
) -> tuple[Scalar, Scalar]:
    """Bits and columns of all members, where each block has a row per code of every column that one of its clauses constrains."""
    last = np.full(width.size, -1, np.int64)  # the block that had a column
    bits, columns = 0, 0
    for block in range(cuts.size - 1):
        size = cuts[block + 1] - cuts[block]
        for i in range(cuts[block], cuts[block + 1]):
            for entry in range(ptr[members[i]], ptr[members[i] + 1]):
                c = column[number[entry]]
                if last[c] != block:
                    last[c] = block
                    bits += size * width[c]
                    columns += size
    return bits, columns


@jit
def bits_of(width: Scalar) -> Scalar:
    """Number of bits of the codes 0 .. width - 1."""
    bits = 0
    while (1 << bits) < width:
        bits += 1
    return bits


@jit
def count_rows(c: Scalar, width: Ints, bits: Ints, shifts: Ints, folds: Ints) -> Scalar:
    """Number of rows of a column: a bucket each, but for that of code 0 in a folded one."""
    return min(1 << bits[c], (width[c] + (1 << shifts[c]) - 1) >> shifts[c]) - folds[c]


@jit
def path_of(
    leaf: Scalar, parent: Ints, step: Ints, path: Ints, path_shift: Ints, path_key: Ints, clear: Scalar
) -> None:
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
def plan_leaf(members: Ints, first: Scalar, end: Scalar, ptr: Longs, number: Ints, column: Ints, list_at: Ints, list_end: Ints, list_lo: Ints,
              list_hi: Ints, lo: Ints, hi: Ints, filed: Singles, chance: Singles, passed: Singles, width: Ints, near: Ints, bucket_ptr: Longs,
              buckets: Buckets, below_ptr: Longs, below: Singles, path_shift: Ints, correlation: Scalar, thrift: Scalar, crowded: Scalar, load: Ints, touched: Ints, bits: Ints, shifts: Ints,
              folds: Ints) -> tuple[Scalar, Scalar, Scalar]:  # fmt: skip
    """Choose the form of a leaf: `bits[c]` of buckets for each bitmap column (-1: none), words (0: a row leaf).

    Returns the number of touched columns, the words, and guards for each slot of a row leaf. `load` is all zero before and after.
    """
    n_touched = 0
    for i in range(first, end):
        for entry in range(ptr[members[i]], ptr[members[i] + 1]):
            k = number[entry]
            c = column[k]
            if path_shift[c] != 0:
                if load[c] == 0:
                    touched[n_touched] = c
                    n_touched += 1
                load[c] += 1
    size = end - first
    n_maps = 0
    for t in range(n_touched):
        c = touched[t]
        if path_shift[c] > 0 and width[c] > EXACT_CODES:
            bits[c] = min(path_shift[c], COARSE_BITS)
            shifts[c] = path_shift[c] - bits[c]
        else:
            all_bits = bits_of(width[c])
            bits[c] = all_bits if width[c] <= EXACT_CODES else min(all_bits, COARSE_BITS)
            shifts[c] = all_bits - bits[c]
        needed = count_rows(c, width, bits, shifts, folds) * ((size + 63) // 64) * 8 + 8
        factor = CROWDED_THRIFT if crowded and shifts[c] == 0 else 1
        if needed > factor * thrift * ROW_BYTES * load[c]:
            bits[c] = -1
        else:
            n_maps += 1
            if crowded and shifts[c] > 0:
                bits[c] += 1
                shifts[c] -= 1
        load[c] = 0
    words = (size + 63) // 64
    guarded = size <= ROW_LEAF or n_maps == 0 or size > 64 * LEAF_WORDS
    by_maps, by_guards, by_pairs = price_checks(members, first, end, ptr, number, column, list_at, list_end, list_lo, list_hi, lo, hi, filed, chance,
                                                passed, width, near, bucket_ptr, buckets, below_ptr, below, path_shift, correlation, crowded, bits, shifts)  # fmt: skip
    n_guards = 2 if by_guards - by_pairs > PAIR_MARGIN * GUARD * size else 1
    if not guarded and thrift == THRIFT:
        bitmaps = PER_LEAF + n_maps * (PER_COLUMN + words * (1 + crowded)) + by_maps
        guarded = n_guards * size * GUARD + (by_pairs if n_guards == 2 else by_guards) < bitmaps
    if guarded:
        for t in range(n_touched):
            bits[touched[t]] = -1
        return n_touched, 0, n_guards
    return n_touched, words, n_guards


@jit
def is_undecided(members: Ints, first: Scalar, end: Scalar, ptr: Longs, number: Ints, column: Ints, width: Ints, path_shift: Ints,
                 bits: Ints, shifts: Ints) -> Scalar:  # fmt: skip
    """Whether path and bitmaps leave some constraint of a leaf to be checked."""
    for i in range(first, end):
        for entry in range(ptr[members[i]], ptr[members[i] + 1]):
            k = number[entry]
            if path_shift[column[k]] != 0 and not is_exact(column[k], width, bits, shifts):
                return True
    return False


@jit
def is_foldable(members: Ints, first: Scalar, end: Scalar, ptr: Longs, number: Ints, column: Ints, lo: Ints, hi: Ints, list_at: Ints,
                c: Scalar) -> Scalar:  # fmt: skip
    """Whether every constraint of a leaf on a column of codes 0, 1, 2 asks for 1 or for 2."""
    for i in range(first, end):
        for entry in range(ptr[members[i]], ptr[members[i] + 1]):
            k = number[entry]
            if column[k] == c and (list_at[k] >= 0 or lo[k] == 0 or lo[k] != hi[k]):
                return False
    return True


@jit
def is_crowded(
    members: Ints, first: Scalar, end: Scalar, ptr: Longs, number: Ints, column: Ints, chance: Singles, path_shift: Ints,
    correlation: Scalar,
) -> Scalar:  # fmt: skip
    """Whether many clauses of a leaf are expected to hold for an event that reaches it."""
    total = 0.0
    for i in range(first, end):
        product, rarest, is_here = 1.0, 1.0, False
        for entry in range(ptr[members[i]], ptr[members[i] + 1]):
            k = number[entry]
            is_here |= path_shift[column[k]] >= 0
            if path_shift[column[k]] < 0:
                product, rarest = product * chance[k], min(rarest, np.float64(chance[k]))
        total += together(product, rarest, correlation, is_here)
    return total > CROWDED * (end - first)


@jit
def set_bits(
    maps: npt.NDArray[np.uint64], place: Scalar, stride: Scalar, slot: Scalar, first: Scalar, last: Scalar
) -> None:
    """Set one clause's bit in the rows first .. last."""
    bit = ONE << np.uint64(slot & 63)
    for row in range(first, last + 1):
        maps[place + row * stride + (slot >> 6)] |= bit


@jit
def is_mapped(clause: Scalar, ptr: Longs, number: Ints, column: Ints, path_shift: Ints, bits: Ints) -> Scalar:
    """Whether bitmaps (or the path) have all columns of a clause."""
    for entry in range(ptr[clause], ptr[clause + 1]):
        k = number[entry]
        if path_shift[column[k]] != 0 and bits[column[k]] < 0:
            return False
    return True


@jit
def fill_column(members: Ints, first: Scalar, end: Scalar, ptr: Longs, number: Ints, column: Ints, lo: Ints, hi: Ints, list_at: Ints,
                list_end: Ints, list_lo: Ints, list_hi: Ints, width: Ints, path_shift: Ints, path_key: Ints, bits: Ints,
                shifts: Ints, folds: Ints, c: Scalar, maps: npt.NDArray[np.uint64], place: Scalar, stride: Scalar, sure: Scalar) -> None:  # fmt: skip
    """The rows of one column, `stride` words apart: a clause without a constraint on it is in all of them.

    With `sure`, a clause with a constraint is in a row only if the whole bucket lies in one of its intervals, and a
    clause that also has columns without bitmaps is in none.
    """
    shift, fold, n_rows = shifts[c], folds[c], count_rows(c, width, bits, shifts, folds)
    low: Scalar = np.int64(0)
    if path_shift[c] > 0 and width[c] > EXACT_CODES:
        low = np.int64(path_key[c]) << path_shift[c]
    high = low + (np.int64(n_rows + fold) << shift) - 1
    inner = (1 << shift) - 1 if sure else 0
    for i in range(first, end):
        if sure and not is_mapped(members[i], ptr, number, column, path_shift, bits):
            continue
        free = True
        for entry in range(ptr[members[i]], ptr[members[i] + 1]):
            k = number[entry]
            if column[k] != c:
                continue
            free = False
            single = list_at[k] < 0
            for at in range(0 if single else list_at[k], 1 if single else list_end[k]):
                begin = max(np.int64(lo[k] if single else list_lo[at]), low)
                stop: Scalar = np.int64(hi[k] if single else list_hi[at])
                stop = high if stop >= width[c] - 1 else min(stop, high)
                if begin <= stop:
                    start, last = (begin - low + inner) >> shift, (stop - low - inner) >> shift
                    set_bits(maps, place, stride, i - first, start - fold, last - fold)
        if free:
            set_bits(maps, place, stride, i - first, 0, n_rows - 1)


@jit
def find_needed(members: Ints, first: Scalar, end: Scalar, ptr: Longs, number: Ints, column: Ints, lo: Ints, presence: Singles,
                counts: Ints) -> Scalar:  # fmt: skip
    """Of the columns in which all clauses of a leaf need a value, the one that the fewest events have; -1 if there is none.

    NULL shares a cell with the lowest values, so events without a value meet leaves that cannot match. `counts` is all
    zero before and after.
    """
    best, rarest = np.int64(-1), np.float32(2.0)
    for i in range(first, end):
        for entry in range(ptr[members[i]], ptr[members[i] + 1]):
            k = number[entry]
            counts[column[k]] += lo[k] > 0
    for entry in range(ptr[members[first]], ptr[members[first] + 1]):
        k = number[entry]
        if counts[column[k]] == end - first and presence[column[k]] < rarest:
            best, rarest = np.int64(column[k]), presence[column[k]]
    for i in range(first, end):
        for entry in range(ptr[members[i]], ptr[members[i] + 1]):
            k = number[entry]
            counts[column[k]] = 0
    return best


@jit
def count_entries(members: Ints, ptr: Longs) -> Scalar:
    """Constraints of some clauses."""
    size = 0
    for i in range(members.size):
        size += ptr[members[i] + 1] - ptr[members[i]]
    return size


@jit
def plan_leaves(
    leaf_ptr: Longs, members: Ints, parent: Ints, step: Ints, path: Ints, thrift: Ints,
    ptr: Longs, number: Ints, column: Ints, lo: Ints, hi: Ints, list_at: Ints, list_end: Ints, list_lo: Ints, list_hi: Ints,
    filed: Singles, chance: Singles, passed: Singles, width: Ints, presence: Singles, near: Ints, bucket_ptr: Longs, buckets: Buckets,
    below_ptr: Longs, below: Singles, correlation: Scalar, leaves: Longs, columns: Longs,
) -> tuple[Scalar, Scalar, Scalar]:  # fmt: skip
    """Decide what each leaf has: its record and its columns. Returns the numbers of columns, map words and guards of all."""
    n_columns = width.size
    path_shift = np.full(n_columns, -1, np.int32)
    path_key = np.zeros(n_columns, np.int32)
    load = np.zeros(n_columns, np.int32)
    counts = np.zeros(n_columns, np.int32)
    touched = np.zeros(n_columns, np.int32)
    bits = np.full(n_columns, -1, np.int32)
    shifts = np.zeros(n_columns, np.int32)
    folds = np.zeros(n_columns, np.int32)
    n_packed, n_words, n_guards = 0, 0, 0
    for leaf in range(leaf_ptr.size - 1):
        first, end = leaf_ptr[leaf], leaf_ptr[leaf + 1]
        path_of(leaf, parent, step, path, path_shift, path_key, 0)
        crowded = is_crowded(members, first, end, ptr, number, column, chance, path_shift, correlation)
        n_touched, words, guards = plan_leaf(members, first, end, ptr, number, column, list_at, list_end, list_lo, list_hi, lo, hi,
                                             filed, chance, passed, width, near, bucket_ptr, buckets, below_ptr, below, path_shift, correlation, thrift[leaf],
                                             crowded, load, touched, bits, shifts, folds)  # fmt: skip
        undecided = is_undecided(members, first, end, ptr, number, column, width, path_shift, bits, shifts)
        leaves[leaf, SLOT], leaves[leaf, SIZE], leaves[leaf, WORDS] = first, end - first, words
        leaves[leaf, COLUMN], leaves[leaf, MAP] = n_packed, n_words
        leaves[leaf, CHECKED] = undecided
        if undecided:
            leaves[leaf, CHECKED] |= (
                find_needed(members, first, end, ptr, number, column, lo, presence, counts) + 1 << 1
            )
        rows, inexact = 0, 0
        for t in range(n_touched):
            c = np.int64(touched[t])
            if bits[c] >= 0:
                folds[c] = width[c] == 3 and is_foldable(members, first, end, ptr, number, column, lo, hi, list_at, c)
                columns[n_packed] = (
                    c
                    | (np.int64(shifts[c]) << SHIFT_AT)
                    | (np.int64(bits[c]) << BITS_AT)
                    | (np.int64(folds[c]) << FOLD_AT)
                    | (np.int64(rows) << ROW_AT)
                )
                n_packed += 1
                rows += count_rows(c, width, bits, shifts, folds)
                inexact += not is_exact(c, width, bits, shifts)
        sure = crowded and inexact > 0
        n_words += rows * words * (1 + sure)
        leaves[leaf, COLUMN_END], leaves[leaf, SURE] = n_packed, SIDE_BY_SIDE if sure else 0
        if words == 0 and undecided:
            leaves[leaf, MAP], leaves[leaf, SURE] = n_guards, PAIRED if guards == 2 else 1
            n_guards += guards * (end - first)
        for t in range(n_touched):
            bits[touched[t]] = -1
            folds[touched[t]] = 0
        path_of(leaf, parent, step, path, path_shift, path_key, 1)
    return n_packed, n_words, n_guards


@jit
def fill_leaves(
    members: Ints, parent: Ints, step: Ints, path: Ints,
    ptr: Longs, number: Ints, column: Ints, lo: Ints, hi: Ints, list_at: Ints, list_end: Ints, list_lo: Ints, list_hi: Ints,
    filed: Singles, chance: Singles, width: Ints, near: Ints, bucket_ptr: Longs, buckets: Buckets,
    leaves: Longs, columns: Longs, maps: npt.NDArray[np.uint64], guards: Ints,
) -> None:  # fmt: skip
    """Write the bitmaps and guards of leaves that are planned."""
    path_shift, path_key = np.full(width.size, -1, np.int32), np.zeros(width.size, np.int32)
    bits, shifts = np.full(width.size, -1, np.int32), np.zeros(width.size, np.int32)
    folds = np.zeros(width.size, np.int32)
    for leaf in range(leaves.shape[0]):
        first, end, words = leaves[leaf, SLOT], leaves[leaf, SLOT] + leaves[leaf, SIZE], leaves[leaf, WORDS]
        path_of(leaf, parent, step, path, path_shift, path_key, 0)
        if words == 0 and leaves[leaf, SURE]:
            in_pairs = leaves[leaf, SURE] == PAIRED
            for i in range(first, end):
                guard, second = pack_guards(members[i], in_pairs, ptr, number, column, lo, hi, list_at, list_end, list_lo, list_hi, filed, chance,
                                            width, path_shift, near, bucket_ptr, buckets)  # fmt: skip
                guards[leaves[leaf, MAP] + i - first] = np.int32(guard)
                if in_pairs:
                    guards[leaves[leaf, MAP] + end - first + i - first] = np.int32(second)
        for at in range(leaves[leaf, COLUMN], leaves[leaf, COLUMN_END]):
            c = columns[at] & 0xFFFF
            bits[c], shifts[c] = (columns[at] >> BITS_AT) & 31, (columns[at] >> SHIFT_AT) & 31
            folds[c] = (columns[at] >> FOLD_AT) & 1
        has_sure = leaves[leaf, SURE] == SIDE_BY_SIDE
        place, stride = leaves[leaf, MAP], words * (1 + has_sure)
        for at in range(leaves[leaf, COLUMN], leaves[leaf, COLUMN_END]):
            c = columns[at] & 0xFFFF
            for sure in range(1 + has_sure):
                fill_column(members, first, end, ptr, number, column, lo, hi, list_at, list_end, list_lo, list_hi, width, path_shift,
                            path_key, bits, shifts, folds, c, maps, place + sure * words, stride, sure == 1)  # fmt: skip
            place += count_rows(c, width, bits, shifts, folds) * stride
        for at in range(leaves[leaf, COLUMN], leaves[leaf, COLUMN_END]):
            bits[columns[at] & 0xFFFF] = -1
        path_of(leaf, parent, step, path, path_shift, path_key, 1)


# -- cells --------------------------------------------------------------------------------------------------------------


@jit
def count_cells(chosen: Longs, shift: Ints, lo: Ints, hi: Ints, list_at: Ints, list_end: Ints, list_lo: Ints,
                list_hi: Ints, cells: Longs) -> None:  # fmt: skip
    """In how many cells each clause is filed: the codes of a short list one by one, otherwise the cells of its hull."""
    for i in range(chosen.size):
        k = chosen[i]
        if list_at[k] >= 0 and shift[i] == 0:
            cells[i] = 0
            for at in range(list_at[k], list_end[k]):
                cells[i] += list_hi[at] - list_lo[at] + 1
        else:
            cells[i] = (hi[k] >> shift[i]) - (lo[k] >> shift[i]) + 1


@jit
def list_cells(chosen: Longs, shift: Ints, lo: Ints, hi: Ints, list_at: Ints, list_end: Ints, list_lo: Ints,
               list_hi: Ints, owner: Ints, key: Ints) -> None:  # fmt: skip
    """The cells that `count_cells` counted: `owner` is the position in `chosen`, `key` the code without low bits."""
    n = 0
    for i in range(chosen.size):
        k = chosen[i]
        if list_at[k] >= 0 and shift[i] == 0:
            for at in range(list_at[k], list_end[k]):
                for code in range(list_lo[at], list_hi[at] + 1):
                    owner[n] = i
                    key[n] = code
                    n += 1
        else:
            for cell in range(lo[k] >> shift[i], (hi[k] >> shift[i]) + 1):
                owner[n] = i
                key[n] = cell
                n += 1


@jit
def fill_hash(keys: Ints, children: Ints, table: Ints) -> None:
    """Enter distinct keys into an empty table of pairs whose number is a power of two."""
    mask = table.size // 2 - 1
    for i in range(keys.size):
        at = (((np.int64(keys[i]) * 2654435769) & 0xFFFFFFFF) >> 7) & mask
        while table[2 * at + 1] != 0:
            at = (at + 1) & mask
        table[2 * at] = keys[i]
        table[2 * at + 1] = children[i]
