"""Sets of codes, each stored once: what an edge of a matching tree carries when that is not a single value.

A set is a list of closed intervals, ascending and not adjacent, so equal sets have equal lists and one set lies
inside another exactly if each interval of the one lies inside an interval of the other.
"""

from __future__ import annotations

import numpy as np

from wherecast.kernels.arrays import Ints, Longs
from wherecast.kernels.jit import Scalar, hot, inlined
from wherecast.papers.gryphon.kernels.tree import (
    FIRST,
    FREE_SET,
    HASH,
    LIVE_POOL,
    LIVE_SETS,
    NONE,
    POOL,
    SET_ROWS,
    SIZE,
    USES,
    Tree,
    add_row,
    hash_pair,
    label_outside,
    label_set,
    release_label,
    set_label,
)


@inlined
def in_intervals(lo: Ints, hi: Ints, first: Scalar, end: Scalar, code: Scalar) -> Scalar:
    """Whether a code lies in one of the sorted disjoint intervals first:end."""
    stop = end
    while first < stop:
        middle = (first + stop) >> 1
        if hi[middle] < code:
            first = middle + 1
        else:
            stop = middle
    return first < end and lo[first] <= code


@inlined
def join_intervals(rows_lo: Ints, rows_hi: Ints, first: Scalar, end: Scalar, lo: Ints, hi: Ints, at: Scalar) -> Scalar:
    """Write intervals to lo[at:], adjacent ones joined; returns how many there are."""
    n = 0
    for row in range(first, end):
        if n > 0 and rows_lo[row] <= hi[at + n - 1] + 1:
            hi[at + n - 1] = max(hi[at + n - 1], rows_hi[row])
        else:
            lo[at + n], hi[at + n] = rows_lo[row], rows_hi[row]
            n += 1
    return n


@inlined
def find_set(tree: Tree, at: Scalar, size: Scalar, hashed: Scalar) -> Scalar:
    """The set equal to the intervals lo[at:at + size], or NONE."""
    sets, table, lo, hi = tree.sets, tree.set_table, tree.lo, tree.hi
    mask = table.size - 1
    slot = hashed & mask
    while table[slot] >= 0:
        row = np.int64(table[slot])
        if sets[row, SIZE] == size and sets[row, HASH] == hashed:
            first = np.int64(sets[row, FIRST])
            equal = 0
            while equal < size and lo[first + equal] == lo[at + equal] and hi[first + equal] == hi[at + equal]:
                equal += 1
            if equal == size:
                return row
        slot = (slot + 1) & mask
    return np.int64(NONE)


@hot
def intern_sets(tree: Tree, ptr: Longs, rows_lo: Ints, rows_hi: Ints, start: Scalar, labels: Ints) -> Scalar:
    """Label each constraint, rows ptr[i]:ptr[i + 1], and count a use of its set.

    Starts with constraint `start`; returns the first one for which there was no room.
    """
    counts, sets = tree.counts, tree.sets
    for i in range(start, ptr.size - 1):
        at = counts[POOL]
        if at + ptr[i + 1] - ptr[i] > tree.lo.size or counts[LIVE_SETS] == sets.shape[0]:
            return i
        size = join_intervals(rows_lo, rows_hi, ptr[i], ptr[i + 1], tree.lo, tree.hi, at)
        if size == 1 and tree.lo[at] == tree.hi[at]:
            labels[i] = tree.lo[at]
            continue
        hashed: Scalar = np.int64(size)
        for k in range(at, at + size):
            hashed = hash_pair(hashed, hash_pair(tree.lo[k], tree.hi[k]))
        row = find_set(tree, at, size, hashed)
        if row < 0:
            row = counts[FREE_SET]
            if row >= 0:
                counts[FREE_SET] = sets[row, FIRST]
            else:
                row = counts[SET_ROWS]
                counts[SET_ROWS] += 1
            sets[row, FIRST], sets[row, SIZE], sets[row, HASH], sets[row, USES] = at, size, hashed, 0
            add_row(tree.set_table, sets, row)
            counts[LIVE_SETS] += 1
            counts[POOL] += size
            counts[LIVE_POOL] += size
        sets[row, USES] += 1
        labels[i] = set_label(row, 0)
    return ptr.size - 1


@hot
def release_labels(tree: Tree, labels: Ints) -> None:
    """Take back the uses that `intern_sets` counted."""
    for i in range(labels.size):
        release_label(tree, labels[i])


@inlined
def in_set(sets: Ints, lo: Ints, hi: Ints, label: Scalar, code: Scalar) -> Scalar:
    """Whether a code satisfies the label of a set."""
    row = label_set(label)
    first, size = np.int64(sets[row, FIRST]), np.int64(sets[row, SIZE])
    if size == 1:
        inside = lo[first] <= code <= hi[first]
    else:
        inside = in_intervals(lo, hi, first, first + size, code)
    return inside != (label_outside(label) == 1)


@inlined
def meets(tree: Tree, label: Scalar, test: Scalar) -> Scalar:
    """Whether a constraint (a code or a set) has a code in common with the set of a test."""
    if label >= 0:
        return in_set(tree.sets, tree.lo, tree.hi, test, label)
    row, other = label_set(label), label_set(test)
    i, j = np.int64(tree.sets[row, FIRST]), np.int64(tree.sets[other, FIRST])
    end, other_end = i + tree.sets[row, SIZE], j + tree.sets[other, SIZE]
    while i < end and j < other_end:
        if tree.hi[i] < tree.lo[j]:
            i += 1
        elif tree.hi[j] < tree.lo[i]:
            j += 1
        else:
            return True
    return False


@inlined
def implies(tree: Tree, label: Scalar, test: Scalar) -> Scalar:
    """Whether a constraint (a code or a set) lies inside the set of a test."""
    if label >= 0:
        return in_set(tree.sets, tree.lo, tree.hi, test, label)
    row, other = label_set(label), label_set(test)
    if row == other:
        return True
    i, j = np.int64(tree.sets[row, FIRST]), np.int64(tree.sets[other, FIRST])
    end, other_end = i + tree.sets[row, SIZE], j + tree.sets[other, SIZE]
    while i < end:
        while j < other_end and tree.hi[j] < tree.lo[i]:
            j += 1
        if j == other_end or tree.lo[i] < tree.lo[j] or tree.hi[i] > tree.hi[j]:
            return False
        i += 1
    return True


@inlined
def rest_implies(tree: Tree, test: Scalar, label: Scalar, width: Scalar) -> Scalar:
    """Whether all codes 0 .. width - 1 outside the set of a test satisfy a constraint (a code or a set)."""
    other = label_set(test)
    i, end = np.int64(0), np.int64(1)
    if label < 0:
        i = np.int64(tree.sets[label_set(label), FIRST])
        end = i + tree.sets[label_set(label), SIZE]
    j = np.int64(tree.sets[other, FIRST])
    other_end = j + tree.sets[other, SIZE]
    covered = np.int64(-1)
    while i < end or j < other_end:
        low = np.int64(width)
        high = low
        if i < end:
            low, high = (label, label) if label >= 0 else (np.int64(tree.lo[i]), np.int64(tree.hi[i]))
        if j < other_end and tree.lo[j] < low:
            low, high = np.int64(tree.lo[j]), np.int64(tree.hi[j])
            j += 1
        elif i < end:
            i += 1
        else:
            j += 1
        if low > covered + 1:
            return False
        covered = max(covered, high)
    return covered >= width - 1
