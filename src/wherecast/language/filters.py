"""Compiled filters: clauses in value space, as flat arrays.

This is what registering produces and what an index is built from. A row is one interval of *positions* of an attribute:
the sortable key of a number, date or boolean (see `values`), and `4 * rank + side` for a string, where `rank` is the
place of the string in `strings` and `side` says before it (0), at it (1) or after it (2). `null` rows stand for NULL
itself. As in `Boxes`, all rows of a constraint but the last carry `~attr`.

Each filter has a digest of its canonical form: equal digests mean equal filters, whatever their spelling.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
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


def take_ranges(ptr: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Positions of the chosen ranges of a CSR pointer, one after the other, and their own pointer."""
    sizes = ptr[chosen + 1] - ptr[chosen]
    out_ptr = np.zeros(chosen.size + 1, np.int64)
    np.cumsum(sizes, out=out_ptr[1:])
    return np.repeat(ptr[chosen] - out_ptr[:-1], sizes) + np.arange(out_ptr[-1]), out_ptr


def concat_filters(parts: Sequence[tuple[Filters, npt.NDArray[np.int64]]], is_string: npt.NDArray[np.bool_]) -> Filters:
    """The chosen filters of several batches as one, strings ranked anew and equal programs united."""
    strings = sorted({s for filters, _ in parts for s in filters.strings})
    rank = {s: i for i, s in enumerate(strings)}
    programs: dict[tuple[Rest, ...], list[LiteralColumns]] = {}
    starts: dict[tuple[Rest, ...], int] = {}
    number = {}
    taken = []
    for filters, chosen in parts:
        clauses, clause_ptr = take_ranges(filters.clause_ptr, chosen)
        rows, row_ptr = take_ranges(filters.row_ptr, clauses)
        ranks = np.array([rank[s] for s in filters.strings], np.int64)
        column = filters.attr[rows]
        text = is_string[np.where(column < 0, ~column, column)] & ~filters.null[rows]
        lo, hi = filters.lo[rows], filters.hi[rows]
        for ends, open_end in ((lo, KEY_MIN), (hi, KEY_MAX)):
            bounded = text & (ends != open_end)
            ends[bounded] = 4 * ranks[ends[bounded] >> 2] + (ends[bounded] & 3)
        program, program_row = filters.program[clauses], filters.program_row[clauses].astype(np.int64)
        for local in np.unique(program[program >= 0]).tolist():
            found = filters.programs[local]
            number.setdefault(found.rests, len(number))
            length = len(next(iter(found.columns.values()))) if found.columns else 0
            program_row[program == local] += starts.get(found.rests, 0)
            starts[found.rests] = starts.get(found.rests, 0) + length
            programs.setdefault(found.rests, []).append(found.columns)
        known = np.array([number.get(p.rests, -1) for p in filters.programs] or [-1], np.int32)
        program = np.where(program >= 0, known[program], -1)
        digests = [filters.digests[i] for i in chosen.tolist()]
        taken.append((clause_ptr, row_ptr, column, filters.null[rows], lo, hi, program, program_row, digests))
    if not taken:
        return _EMPTY
    columns = list(zip(*taken, strict=True))
    return Filters(
        _join_ptrs(columns[0]),
        _join_ptrs(columns[1]),
        *(np.concatenate(c) for c in columns[2:6]),
        np.concatenate(columns[6]).astype(np.int32),
        np.concatenate(columns[7]).astype(np.int32),
        strings,
        [Program(rests, _join_columns(found)) for rests, found in programs.items()],
        [d for digests in columns[8] for d in digests],
    )


def _join_ptrs(ptrs: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(np.concatenate([np.diff(p) for p in ptrs])))).astype(np.int64)


def _join_columns(found: list[LiteralColumns]) -> LiteralColumns:
    return {key: np.concatenate([columns[key] for columns in found]) for key in found[0]}


_NO_ROWS = np.zeros(0, np.int64)
_EMPTY = Filters(
    np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int16), np.zeros(0, bool), _NO_ROWS, _NO_ROWS,
    np.zeros(0, np.int32), np.zeros(0, np.int32), [], [], [],
)
