"""Numbers for values, rows, constraints and texts: equal ones have one number, in the order in which they first occur.

Sorting would say the same, at several times the memory and time. Tables of hashes are arrays of a power of two of places, all -1 before; each
kernel gives up, and returns -1, when it has found more than there is room for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wherecast.kernels.arrays import Bools, Bytes, Ints, Longs, Shorts, Singles
from wherecast.kernels.codes import hash_words, same_bytes
from wherecast.kernels.jit import Scalar, jit

_MIX = np.uint64(0x9E3779B97F4A7C15)
_B29, _B32 = np.uint64(29), np.uint64(32)


@jit
def mix(state: Scalar, value: Scalar) -> Scalar:
    """A hash of what was hashed before and one more number."""
    state = (state ^ np.uint64(value)) * _MIX
    return state ^ (state >> _B29)


@jit
def number_rows(attr: Shorts, null: Bools, lo: Longs, hi: Longs, table: Ints, first: Longs, numbers: Ints) -> Scalar:
    """The number of each row of filters, and the first row of each number; returns how many numbers there are."""
    mask = table.size - 1
    count = 0
    for row in range(attr.size):
        state = mix(mix(mix(np.uint64(null[row]), np.int64(attr[row])), lo[row]), hi[row])
        at = np.int64(state >> _B32) & mask
        while table[at] >= 0:
            known = first[table[at]]
            if attr[known] == attr[row] and lo[known] == lo[row] and hi[known] == hi[row] and null[known] == null[row]:
                break
            at = (at + 1) & mask
        if table[at] < 0:
            if count == first.size:
                return -1
            table[at] = count
            first[count] = row
            count += 1
        numbers[row] = table[at]
    return count


@jit
def number_runs(rows: Ints, is_last: Bools, table: Ints, first: Longs, numbers: Ints) -> tuple[Scalar, Scalar]:
    """As `number_rows` for runs of row numbers, each up to a row that is the last of a constraint; also how many runs there are."""
    mask = table.size - 1
    count, runs, begin = 0, 0, 0
    while begin < rows.size:
        end = begin
        state = mix(np.uint64(0), rows[end])
        while not is_last[rows[end]]:
            end += 1
            state = mix(state, rows[end])
        at = np.int64(state >> _B32) & mask
        while table[at] >= 0:
            known, place = first[table[at]], begin
            # Two runs are equal if they are up to the end of this one: only the last row of a run is a last one.
            while place <= end and rows[known + place - begin] == rows[place]:
                place += 1
            if place > end:
                break
            at = (at + 1) & mask
        if table[at] < 0:
            if count == first.size:
                return -1, runs
            table[at] = count
            first[count] = begin
            count += 1
        numbers[runs] = table[at]
        runs += 1
        begin = end + 1
    return count, runs


@jit
def repeats_column(ptr: Longs, rows: Ints, attr: Ints) -> Scalar:
    """Whether a clause has two constraints on one column; `attr` is that of a numbered row, ~attr if its constraint goes on."""
    for clause in range(ptr.size - 1):
        for entry in range(ptr[clause] + 1, ptr[clause + 1]):
            before, own = attr[rows[entry - 1]], attr[rows[entry]]
            if before >= 0 and before == (own if own >= 0 else ~own):  # constraints on one column are neighbours
                return True
    return False


@jit
def sort_constraints(ptr: Longs, numbers: Ints, record: Ints, chance: Singles, out_ptr: Longs, out: Ints) -> Scalar:
    """The records of each clause's constraints, the rarest first; records of -1 are left out. Returns how many there are."""
    size = 0
    out_ptr[0] = 0
    for clause in range(ptr.size - 1):
        begin = size
        for entry in range(ptr[clause], ptr[clause + 1]):
            k = record[numbers[entry]]
            if k < 0:
                continue
            at = size
            while at > begin and chance[out[at - 1]] > chance[k]:
                out[at] = out[at - 1]
                at -= 1
            out[at] = k
            size += 1
        out_ptr[clause + 1] = size
    return size


@jit
def sum_rows(values: Any, begin: Longs, stop: Longs, out: Any) -> None:
    """The sum of values[begin[i]:stop[i]], none of which is empty."""
    for i in range(out.size):
        total = values[begin[i]]
        for row in range(begin[i] + 1, stop[i]):
            total += values[row]
        out[i] = total


@jit
def number_values(values: Longs, table: Ints, known: Longs, numbers: Longs) -> Scalar:
    """The number of each value, and the value of each number; returns how many numbers there are. `known` has room for all."""
    mask = table.size - 1
    count = 0
    for i in range(values.size):
        at = np.int64(mix(np.uint64(0), values[i]) >> _B32) & mask
        while table[at] >= 0 and known[table[at]] != values[i]:
            at = (at + 1) & mask
        if table[at] < 0:
            table[at] = count
            known[count] = values[i]
            count += 1
        numbers[i] = table[at]
    return count


@jit
def number_slices(ptr: Longs, values: Longs, table: Ints, known: Longs, numbers: Longs) -> Scalar:
    """The number of each sequence values[ptr[i]:ptr[i + 1]], and the first sequence of each number; returns how many numbers there are.

    `known` has room for all.
    """
    mask = table.size - 1
    count = 0
    for i in range(numbers.size):
        size = ptr[i + 1] - ptr[i]
        state = mix(np.uint64(0), size)
        for place in range(ptr[i], ptr[i + 1]):
            state = mix(state, values[place])
        at = np.int64(state >> _B32) & mask
        while table[at] >= 0:
            other, same = known[table[at]], 0
            if ptr[other + 1] - ptr[other] == size:
                while same < size and values[ptr[other] + same] == values[ptr[i] + same]:
                    same += 1
                if same == size:
                    break
            at = (at + 1) & mask
        if table[at] < 0:
            table[at] = count
            known[count] = i
            count += 1
        numbers[i] = table[at]
    return count


@jit
def number_texts(
    data: Bytes, first: Longs, end: Longs, seed: np.uint64, table: Ints, known: Longs, numbers: Longs
) -> Scalar:
    """The number of each text data[first[i]:end[i]], and the first text of each number; returns how many numbers there are.

    `known` has room for all.
    """
    mask = table.size - 1
    count = 0
    for i in range(first.size):
        at = np.int64(hash_words(data, first[i], end[i], seed) >> _B32) & mask
        while table[at] >= 0:
            other = known[table[at]]
            if same_bytes(data, first[i], end[i], data, first[other], end[other]):
                break
            at = (at + 1) & mask
        if table[at] < 0:
            table[at] = count
            known[count] = i
            count += 1
        numbers[i] = table[at]
    return count
