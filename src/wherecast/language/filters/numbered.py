"""Compiled filters whose constraints are kept once.

Millions of filters name the same conditions again and again: `b3 = 1`. A row of `Filters` takes 19 bytes; here each distinct constraint is
kept once, and a clause is numbers of one, two or four bytes. So what was compiled takes hardly more memory than the index that is made of it.

Filters with residuals, and those whose constraints hardly repeat, stay as they are (`number_filters` says None).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Ints, Longs
from wherecast.kernels.numbering import number_rows, number_runs
from wherecast.language.events.schema import Schema
from wherecast.language.filters.filters import Filters, concat_filters, take_filters
from wherecast.language.sequences import pointer, take_ranges

#: Numbers that are looked at at a time: NumPy makes 64-bit integers of those that it takes places from.
BLOCK = 1 << 20
#: Fewer rows are not worth numbers.
FEW_ROWS = 1 << 16
#: Rows per distinct one from which on numbers are worth it, and the rows that tell early that they are not.
_REPEATED, _LOOK = 4, 1 << 14


class NumberedFilters(NamedTuple):
    """`n` compiled filters without residuals."""

    clause_ptr: Longs  # (n + 1,)
    ptr: Longs  # (clauses + 1,) constraints of each clause
    number: npt.NDArray[Any]  # (constraints,) unsigned: place in the table
    table: Filters  # each constraint as a filter of one clause; no digests
    digests: bytes

    @property
    def n_filters(self) -> int:
        return int(self.clause_ptr.size - 1)


AnyFilters = Filters | NumberedFilters


def number_filters(filters: Filters, *, anyway: bool = False) -> NumberedFilters | None:
    """The same filters with each constraint once; None if there are residuals, or, unless `anyway`, if constraints hardly repeat."""
    if (filters.program >= 0).any() or (not anyway and not _may_repeat(filters)):
        return None
    found = _number_constraints(filters, filters.attr.size if anyway else None)
    if found is None:
        return None
    numbers, first = found
    several = filters.attr < 0
    ptr = filters.row_ptr - pointer(several, several.size)[filters.row_ptr] if several.any() else filters.row_ptr
    narrow = numbers.astype(np.min_scalar_type(max(first.size - 1, 0)))
    return NumberedFilters(filters.clause_ptr, ptr, narrow, _table(filters, first), filters.digests)


def _may_repeat(filters: Filters) -> bool:
    look = slice(0, _LOOK)
    few = filters.attr[look], filters.null[look], filters.lo[look], filters.hi[look]
    return filters.attr.size >= FEW_ROWS and _number_rows(*few) is not None


def plain_filters(filters: AnyFilters) -> Filters:
    """Filters with all rows of their own."""
    if isinstance(filters, Filters):
        return filters
    clause_ptr, ptr, number, table, digests = filters
    rows, row_ptr = take_ranges(table.row_ptr, number.astype(np.int64))
    none = np.full(ptr.size - 1, -1, np.int32), np.zeros(ptr.size - 1, np.int32)
    columns = table.attr[rows], table.null[rows], table.lo[rows], table.hi[rows]
    return Filters(clause_ptr, row_ptr[ptr], *columns, *none, table.strings, [], digests)


def take_numbered(filters: NumberedFilters, chosen: Longs) -> NumberedFilters:
    """Some filters, and the constraints that they have."""
    clauses, clause_ptr = take_ranges(filters.clause_ptr, chosen)
    ptr = pointer(np.diff(filters.ptr)[clauses], clauses.size)
    number = np.empty(ptr[-1], filters.number.dtype)
    is_used = np.zeros(filters.table.n_filters, bool)
    for block, begin, end in blocks(ptr):
        places, _ = take_ranges(filters.ptr, clauses[block])
        number[begin:end] = own = filters.number[places]
        is_used[own] = True
    digests = np.frombuffer(filters.digests, "V16")[chosen].tobytes() if filters.digests else b""
    if is_used.all():
        return NumberedFilters(clause_ptr, ptr, number, filters.table, digests)
    used = np.flatnonzero(is_used)
    renumber(number, np.cumsum(is_used) - 1, number)
    return NumberedFilters(clause_ptr, ptr, number, take_filters(filters.table, used), digests)


def concat_numbered(parts: list[NumberedFilters], schema: Schema) -> NumberedFilters:
    """All filters of several batches as one. The list is empty afterwards: each part is let go of when it has been copied."""
    if len(parts) == 1:
        return parts.pop()
    pile = concat_filters([part.table for part in parts], schema)
    found = _number_constraints(pile, pile.attr.size)
    assert found is not None, "there is room for all"
    numbers, first = found
    clause_ptr = _joined([part.clause_ptr for part in parts])
    ptr = _joined([part.ptr for part in parts])
    digests = b"".join([part.digests for part in parts])
    number = np.empty(ptr[-1], np.min_scalar_type(max(first.size - 1, 0)))
    at, table_at = 0, 0
    parts.reverse()
    while parts:
        part = parts.pop()
        own = numbers[table_at : table_at + part.table.n_filters]
        renumber(part.number, own, number[at : at + part.number.size])
        at += part.number.size
        table_at += own.size
    return NumberedFilters(clause_ptr, ptr, number, _table(pile, first), digests)


def renumber(numbers: npt.NDArray[Any], new: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
    """Write the new number of each number; `out` may be `numbers`."""
    for at in range(0, numbers.size, BLOCK):
        out[at : at + BLOCK] = new[numbers[at : at + BLOCK]]


def blocks(ptr: npt.NDArray[Any]) -> Iterator[tuple[slice, int, int]]:
    """Runs of sequences with about BLOCK values together, and where their values begin and end."""
    cuts = np.searchsorted(ptr, np.arange(BLOCK, int(ptr[-1]), BLOCK)).tolist()
    ends = sorted({0, ptr.size - 1, *cuts})
    for first, end in pairwise(ends):
        yield slice(first, end), int(ptr[first]), int(ptr[end])


def _number_constraints(filters: Filters, most: int | None = None) -> tuple[Ints, Longs] | None:
    """The number of each constraint, and the first row of each number; None if there are more than `most`, or they hardly repeat."""
    found = _number_rows(filters.attr, filters.null, filters.lo, filters.hi, most)
    if found is None or not (filters.attr < 0).any():
        return found
    rows, first = found
    return number_constraints(rows, filters.attr[first] >= 0, most)


def number_constraints(
    rows: Ints, is_last: npt.NDArray[np.bool_], most: int | None = None
) -> tuple[Ints, Longs] | None:
    """As `_number_constraints`, of rows that are numbered; `is_last` says which numbers are the last row of a constraint."""
    room = max(rows.size // _REPEATED, 1) if most is None else most
    first, numbers = np.empty(room, np.int64), np.empty(rows.size, np.int32)
    count, runs = number_runs(rows, is_last, _hash_table(room), first, numbers)
    return None if count < 0 else (numbers[:runs], first[:count])


def _number_rows(
    attr: npt.NDArray[np.int16], null: npt.NDArray[np.bool_], lo: Longs, hi: Longs, most: int | None = None
) -> tuple[Ints, Longs] | None:
    room = max(attr.size // _REPEATED, 1) if most is None else most
    first, numbers = np.empty(room, np.int64), np.empty(attr.size, np.int32)
    count = number_rows(attr, null, lo, hi, _hash_table(room), first, numbers)
    return None if count < 0 else (numbers, first[:count])


def _hash_table(room: int) -> Ints:
    return np.full(1 << (2 * room).bit_length(), -1, np.int32)


def _table(filters: Filters, first: Longs) -> Filters:
    """The constraints that begin at some rows, each a filter of one clause."""
    begins = np.flatnonzero(np.concatenate(([True], filters.attr[:-1] >= 0)))
    ends = np.concatenate((begins[1:], [filters.attr.size]))
    n = begins.size
    constraints = filters._replace(
        clause_ptr=np.arange(n + 1), row_ptr=np.concatenate((begins, ends[-1:])), digests=b"",
        program=np.full(n, -1, np.int32), program_row=np.zeros(n, np.int32), programs=[],
    )  # fmt: skip
    return take_filters(constraints, np.searchsorted(begins, first))


def _joined(ptrs: list[Longs]) -> Longs:
    """Pointers one after the other."""
    out = np.zeros(1 + sum(ptr.size - 1 for ptr in ptrs), np.int64)
    at = 0
    for ptr in ptrs:
        out[at + 1 : at + ptr.size] = ptr[1:] + (out[at] - ptr[0])
        at += ptr.size - 1
    return out
