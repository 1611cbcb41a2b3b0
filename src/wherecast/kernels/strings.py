"""Strings to codes: a hash table over Arrow's string layout.

The strings of an attribute are one byte buffer and offsets, sorted; the table maps a string's hash to its place. Tables are
open-addressed with linear probing at half load; a slot holds the place and 32 bits of the hash, so that bytes are
compared about once. The hash is seeded: nobody can prepare strings that collide.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.jit import hot, inlined, jit
from wherecast.kernels.arrays import Bytes, Ints, Longs


_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xD6E8FEB86659FD93)
_SHIFT = np.uint64(32)


@inlined
def hash_bytes(data: Bytes, start: int, end: int, seed: np.uint64) -> np.uint64:
    """A 64-bit hash of data[start:end]."""
    h = seed ^ (np.uint64(end - start) * _MULTIPLIER)
    for i in range(start, end):
        h = (h ^ np.uint64(data[i])) * _MULTIPLIER
        h ^= h >> np.uint64(29)
    h = (h ^ (h >> _SHIFT)) * _MIX
    return h ^ (h >> _SHIFT)


@jit
def fill_table(offsets: Longs, data: Bytes, seed: np.uint64, places: Ints, marks: npt.NDArray[np.uint32]) -> None:
    """Enter every string; `places` starts as -1 everywhere and has a power of two slots."""
    mask = np.uint64(places.size - 1)
    for i in range(offsets.size - 1):
        h = hash_bytes(data, offsets[i], offsets[i + 1], seed)
        slot = h & mask
        while places[np.int64(slot)] >= 0:
            slot = (slot + np.uint64(1)) & mask
        places[np.int64(slot)] = i
        marks[np.int64(slot)] = np.uint32(h >> _SHIFT)


@inlined
def compare_bytes(a: Bytes, a0: int, a1: int, b: Bytes, b0: int, b1: int) -> np.int64 | int:
    """Less than, equal to or greater than zero, by bytes and then by length."""
    n = min(a1 - a0, b1 - b0)
    for i in range(n):
        d = np.int64(a[a0 + i]) - np.int64(b[b0 + i])
        if d != 0:
            return d
    return (a1 - a0) - (b1 - b0)


@inlined
def find_code(
    offsets: Longs, data: Bytes, places: Ints, marks: npt.NDArray[np.uint32], ordered: bool,
    values: Bytes, start: int, end: int, h: np.uint64,
) -> np.int64 | int:  # fmt: skip
    """Code of values[start:end], with hash h.

    String j is 2j + 2, the gap below it 2j + 1; gaps are told apart only if `ordered`.
    """
    mask = np.uint64(places.size - 1)
    mark = np.uint32(h >> _SHIFT)
    slot = np.int64(h & mask)
    while places[slot] >= 0:
        j = np.int64(places[slot])
        if marks[slot] == mark and compare_bytes(values, start, end, data, offsets[j], offsets[j + 1]) == 0:
            return 2 * j + 2
        slot = np.int64(np.uint64(slot + 1) & mask)
    if not ordered:
        return np.int64(1)
    low, high = np.int64(0), np.int64(offsets.size - 1)
    while low < high:
        middle = (low + high) >> 1
        if compare_bytes(data, offsets[middle], offsets[middle + 1], values, start, end) < 0:
            low = middle + 1
        else:
            high = middle
    return 2 * low + 1


@hot
def encode_string(
    offsets: Longs, data: Bytes, places: Ints, marks: npt.NDArray[np.uint32], ordered: bool, seed: np.uint64,
    value: Bytes,
) -> np.int64 | int:  # fmt: skip
    """Code of one string."""
    h = hash_bytes(value, 0, value.size, seed)
    return find_code(offsets, data, places, marks, ordered, value, 0, value.size, h)


@hot
def hash_strings(values_offsets: Ints, values: Bytes, seed: np.uint64, out: npt.NDArray[np.uint64]) -> None:
    """Hashes of a column."""
    for row in range(out.size):
        out[row] = hash_bytes(values, values_offsets[row], values_offsets[row + 1], seed)


@hot
def encode_strings(
    offsets: Longs, data: Bytes, places: Ints, marks: npt.NDArray[np.uint32], ordered: bool, values_offsets: Ints,
    values: Bytes, valid: npt.NDArray[np.bool_], hashes: npt.NDArray[np.uint64], out: Ints,
) -> None:  # fmt: skip
    """Codes of a column with known hashes, 0 where a value is not valid; `valid` is empty where all are.

    Hashing apart lets the table be asked for many strings at the same time, which is a fifth faster even for one table.
    """
    for row in range(out.size):
        start, end = values_offsets[row], values_offsets[row + 1]
        out[row] = find_code(offsets, data, places, marks, ordered, values, start, end, hashes[row])
    for row in range(valid.size):
        if not valid[row]:
            out[row] = 0
