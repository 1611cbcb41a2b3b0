"""Compiled filters: clauses in value space, as flat arrays.

This is what registering produces and what an index is built from. A row is one interval of *positions* of an attribute:
the sortable key of a number, date or boolean (see `values`), and `4 * rank + side` for a string, where `rank` is the
place of the string in `strings` and `side` says before it (0), at it (1) or after it (2). `null` rows stand for NULL
itself. As in `Boxes`, all rows of a constraint but the last carry `~attr`.

Each filter has a digest of its canonical form: equal digests mean equal filters, whatever their spelling.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.language.expression import Param, Type
from wherecast.language.normalize import Rest
from wherecast.language.keys import KEY_MAX, KEY_MIN

BEFORE, AT, AFTER = 0, 1, 2

#: Columns of literals: scalars by their Param, IN lists (as sets of keys) by (Param, common type).
LiteralColumns = dict[Param | tuple[Param, Type], npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Program:
    """The residuals of one clause shape, with the literals of every clause that has it, as columns."""

    rests: tuple[Rest, ...]
    columns: LiteralColumns = field(hash=False, compare=False)
    length: int = field(hash=False, compare=False)  # rows of the columns (there may be no column)


class Filters(NamedTuple):
    """`n` compiled filters. Clause and row arrays are in filter order."""

    clause_ptr: npt.NDArray[np.int64]  # (n + 1,) clauses of filter f; none: it never matches
    row_ptr: npt.NDArray[np.int64]  # (clauses + 1,)
    attr: npt.NDArray[np.int16]  # (rows,)
    null: npt.NDArray[np.bool_]  # (rows,) the row is NULL, its lo and hi are 0
    lo: npt.NDArray[np.int64]  # (rows,) KEY_MIN: open to the left
    hi: npt.NDArray[np.int64]  # (rows,) KEY_MAX: open to the right
    program: npt.NDArray[np.int32]  # (clauses,) -1: no residual
    program_row: npt.NDArray[np.int32]  # (clauses,) row in the program's columns
    strings: list[str]  # sorted, distinct
    programs: list[Program]
    digests: list[bytes]  # 16 bytes each

    @property
    def n_filters(self) -> int:
        return int(self.clause_ptr.size - 1)


_ROW = np.dtype([("clause", "<i4"), ("attr", "<i2"), ("ends", "u1", 2), ("lo", "<u8", 2), ("hi", "<u8", 2)])


def digest_filters(filters: Filters, is_string: npt.NDArray[np.bool_], residual_texts: dict[int, str]) -> list[bytes]:
    """Digests of canonical forms. `residual_texts` has the residual of a clause in words, by clause."""
    rows = np.zeros(filters.attr.size, _ROW)
    clauses = np.diff(filters.clause_ptr)
    owner = np.repeat(np.arange(filters.row_ptr.size - 1), np.diff(filters.row_ptr))
    rows["clause"] = (owner - np.repeat(filters.clause_ptr[:-1], clauses)[owner]) if owner.size else 0
    rows["attr"] = filters.attr
    column = np.where(filters.attr < 0, ~filters.attr, filters.attr)
    text = is_string[column] & ~filters.null
    marks = _string_marks(filters.strings)
    for end, values, open_end, bit in (("lo", filters.lo, KEY_MIN, 0), ("hi", filters.hi, KEY_MAX, 1)):
        rows[end][:, 0] = values.view(np.uint64)
        bounded = text & (values != open_end)
        rows["ends"][bounded, bit] = 1 + (values[bounded] & 3)
        rows[end][bounded] = marks[values[bounded] >> 2]
    rows["ends"][filters.null, 0] = 9
    data, width = rows.tobytes(), _ROW.itemsize
    first = (filters.row_ptr[filters.clause_ptr] * width).tolist()
    counts = clauses.tolist()
    out = [
        hashlib.blake2b(data[a:b], digest_size=16, key=b"%d" % c).digest()
        for a, b, c in zip(first, first[1:], counts, strict=False)
    ]
    for f in sorted({int(np.searchsorted(filters.clause_ptr, c, "right")) - 1 for c in residual_texts}):
        texts = [residual_texts.get(c, "") for c in range(filters.clause_ptr[f], filters.clause_ptr[f + 1])]
        out[f] = hashlib.blake2b("\0".join(texts).encode(), digest_size=16, key=out[f]).digest()
    return out


def _string_marks(strings: list[str]) -> npt.NDArray[np.uint64]:
    marks = b"".join(hashlib.blake2b(s.encode("utf-8", "surrogatepass"), digest_size=16).digest() for s in strings)
    return np.frombuffer(marks, np.uint64).reshape(-1, 2)
