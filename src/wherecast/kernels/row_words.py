"""Rows of filters as bytes, from which digests are made.

A row is nine words of 32 bits: its column with marks of its two ends, the lower end, the upper end. An end is a key and
zero, or, of a string, the string's own digest, so that the bytes do not depend on the batch a filter came with.
"""

from __future__ import annotations

from typing import Any

from wherecast.kernels.arrays import Bools, Longs, Shorts
from wherecast.kernels.late import late, late_hot

#: Words of a row.
ROW_WORDS = 9
_LEAST, _MOST = -(2**63), 2**63 - 1
#: What stands for the ends of a row of NULL.
_NULL = 9


@late_hot
def _put(word: Any, out: Any, row: Any, at: Any) -> Any:
    out[row, at], out[row, at + 1] = word & 0xFFFFFFFF, (word >> 32) & 0xFFFFFFFF


@late
def write_rows(attr: Shorts, null: Bools, lo: Longs, hi: Longs, is_text: Bools, marks: Longs, out: Any) -> None:
    """Write all rows; `marks` are the digests of strings, by rank, and `is_text` tells which columns have ranks."""
    for i in range(attr.size):
        column = attr[i] if attr[i] >= 0 else ~attr[i]
        has_ranks = is_text[column] and not null[i]
        head = int(attr[i]) & 0xFFFF
        if has_ranks and lo[i] != _LEAST:
            head |= (1 + (lo[i] & 3)) << 16
            _put(marks[lo[i] >> 2, 0], out, i, 1)
            _put(marks[lo[i] >> 2, 1], out, i, 3)
        else:
            _put(lo[i], out, i, 1)
            _put(0, out, i, 3)
        if has_ranks and hi[i] != _MOST:
            head |= (1 + (hi[i] & 3)) << 24
            _put(marks[hi[i] >> 2, 0], out, i, 5)
            _put(marks[hi[i] >> 2, 1], out, i, 7)
        else:
            _put(hi[i], out, i, 5)
            _put(0, out, i, 7)
        out[i, 0] = head | (_NULL << 16 if null[i] else 0)
