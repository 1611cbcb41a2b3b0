"""Texts against LIKE patterns, many pairs at once.

Theory of operation
-------------------
A pattern is bytes: ANY stands for `%`, ONE for `_`, neither of which is a byte of UTF-8; the rest is compared. The walk is greedy. At a
mismatch it goes back to the last `%` and lets it take one more character. Earlier ones need not be tried again: what they took
is the shortest possible, so whatever follows the last `%` has the most text to be found in.

The time is at most the length of the text times that of the pattern's longest piece, so callers keep long patterns away.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bytes, Ints, Longs
from wherecast.kernels.jit import Scalar, hot, inlined

#: Stand for `%` and `_`.
ANY, ONE = 0xFF, 0xFE
#: What a test says.
NO, YES, UNKNOWN = 0, 1, 2


@inlined
def character_end(data: Bytes, at: Scalar, end: Scalar) -> Scalar:
    """Where the character that begins at `at` ends: continuation bytes are 0b10xxxxxx."""
    at += 1
    while at < end and (data[at] & 0xC0) == 0x80:
        at += 1
    return at


@inlined
def small(byte: Scalar, fold: Scalar) -> Scalar:
    """A byte, a capital ASCII letter as the small one if `fold`."""
    return byte + 32 if fold and 65 <= byte <= 90 else byte


@inlined
def is_like(
    data: Bytes, start: Scalar, end: Scalar, fold: Scalar, pattern: Bytes, first: Scalar, last: Scalar
) -> Scalar:
    """Whether data[start:end] matches pattern[first:last]."""
    at, p = start, first
    again, resume = np.int64(-1), start  # behind the last ANY, and the text it has not taken yet
    while at < end:
        if p < last and pattern[p] == ANY:
            p += 1
            again, resume = p, at
        elif p < last and pattern[p] == ONE:
            p += 1
            at = character_end(data, at, end)
        elif p < last and pattern[p] == small(data[at], fold):
            p += 1
            at += 1
        elif again >= 0:
            resume = character_end(data, resume, end)
            at, p = resume, again
        else:
            return False
    while p < last and pattern[p] == ANY:
        p += 1
    return p == last


@hot
def match_texts(
    offsets: npt.NDArray[Any], data: Bytes, valid: npt.NDArray[np.bool_], fold: bool, rows: Longs, pattern_ptr: Longs,
    patterns: Bytes, numbers: Ints, out: Bytes,
) -> None:  # fmt: skip
    """out[i]: does text rows[i] match pattern numbers[i]? UNKNOWN where it is not valid; `valid` is empty where all are."""
    for i in range(rows.size):
        row, number = rows[i], numbers[i]
        if valid.size > 0 and not valid[row]:
            out[i] = UNKNOWN
        else:
            out[i] = is_like(
                data, np.int64(offsets[row]), np.int64(offsets[row + 1]), fold, patterns, pattern_ptr[number],
                pattern_ptr[number + 1],
            )  # fmt: skip
