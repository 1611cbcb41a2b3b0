"""Boxes at rest: the same rows in as few bytes as they need, and in a form that kernels can check events against.

Where filters ask for few values, the same rows come again and again: then every distinct row is kept once, and a clause's
rows are numbers of one or two bytes. Upper ends are left out where every interval is a point, owners and residuals where
there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.index.bounds import StoredArrays
from wherecast.index.boxes import FAR, Boxes
from wherecast.index.codes import Codebook
from wherecast.index.pages import side_by_side
from wherecast.kernels.jit import frozen
from wherecast.kernels.rows import Rows, find_bad_clause, find_bad_row
from wherecast.language.filters.numbered import NumberedFilters, blocks, renumber
from wherecast.language.sequences import distinct, numbered, pointer, take_ranges

#: Attributes with fewer codes than this may have their rows numbered.
_FEW_CODES = 2**16 - 1
#: Rows that are numbered at a time.
_BLOCK_ROWS = 1 << 20


class PackedBoxes(NamedTuple):
    """`Boxes` without redundancy; the first five arrays are `kernels.rows.Rows`."""

    ptr: npt.NDArray[np.int32]  # (clauses + 1,)
    number: npt.NDArray[Any]  # (rows,) unsigned: place of each row in attr, lo, hi; or empty: its own
    attr: npt.NDArray[Any]  # signed, as in Boxes
    lo: npt.NDArray[np.int32]
    hi: npt.NDArray[np.int32]  # or empty: equal to lo
    filter_ids: npt.NDArray[np.int32]  # (clauses,), or empty: clause c is filter c
    residuals: npt.NDArray[np.int32]  # (clauses,), or empty: no clause has one
    n_filters: int
    widths: npt.NDArray[np.int32]

    @property
    def n_clauses(self) -> int:
        return int(self.ptr.size) - 1

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self if isinstance(a, np.ndarray))

    def clauses_of(self, filter: int) -> range:
        """Clauses of one filter."""
        if not self.filter_ids.size and self.n_clauses:
            return range(filter, filter + 1)
        first, end = np.searchsorted(self.filter_ids, [filter, filter + 1])
        return range(int(first), int(end))


def open_boxes(arrays: Mapping[str, Any], n_filters: int, codebook: Codebook, residuals: int) -> PackedBoxes:
    """Boxes out of a file, in these codes; raises SnapshotError if they are not boxes.

    Not only matching follows them: filters are made of them again, and other matchers of those. So they must be what
    the compiler makes.
    """
    widths = codebook.widths
    several = np.array([codebook.is_set(number) for number in range(widths.size)], bool)
    stored = StoredArrays(arrays, "boxes")
    rows = Rows(
        stored.column("ptr", np.int32),
        stored.column("number", np.uint8, np.uint16),
        stored.column("attr", np.int8, np.int16),
        stored.column("lo", np.int32),
        stored.column("hi", np.int32),
    )
    stored.require(np.array_equal(stored.column("widths", np.int32), widths), "widths", "is not that of the codes")
    check_rows(stored, rows, widths, several)
    clauses = rows.ptr.size - 1
    owners, left = stored.column("filter_ids", np.int32), stored.column("residuals", np.int32)
    stored.require(owners.size or clauses in (0, n_filters), "filter_ids", "is missing")
    stored.require(owners.size in (0, clauses), "filter_ids", f"has {owners.size} values for {clauses} clauses")
    stored.within(owners, 0, n_filters, "filter_ids")
    stored.require((owners[1:] >= owners[:-1]).all(), "filter_ids", "does not climb")
    stored.require(left.size in (0, clauses), "residuals", f"has {left.size} values for {clauses} clauses")
    stored.within(left, -1, residuals, "residuals")
    return PackedBoxes(*rows, owners, left, n_filters, widths)


def check_rows(
    stored: StoredArrays, rows: Rows, widths: npt.NDArray[np.int32], several: npt.NDArray[np.bool_] | None = None
) -> None:
    """That rows out of a file are intervals of codes, clauses are constraints in order, and numbers name rows.

    `several` says on which attributes a clause may have more than one constraint; None: on any. Raises SnapshotError; the
    types of the arrays have been checked.
    """
    ptr, number, attr, lo, hi = (frozen(array) for array in rows)
    places = attr.size
    stored.require(lo.size == places, "lo", f"has {lo.size} values for {places} rows")
    stored.require(hi.size in (0, places), "hi", f"has {hi.size} values for {places} rows")
    stored.within(number, 0, places, "number")
    stored.offsets(ptr, number.size or places, "ptr")
    row = find_bad_row(attr, lo, hi, frozen(widths), FAR)
    stored.require(row < 0, "lo", f"has no interval of codes in row {row}")
    clause = find_bad_clause(ptr, number, attr, lo, hi, np.ones(widths.size, bool) if several is None else several)
    stored.require(clause < 0, "attr", f"has no constraints in clause {clause}")


_NONE = np.zeros(0, np.int32)


def pack_boxes(boxes: Boxes) -> PackedBoxes:
    identity = boxes.n_clauses == boxes.n_filters and np.array_equal(boxes.filter_ids, np.arange(boxes.n_filters))
    owners = _NONE if identity else boxes.filter_ids
    residuals = boxes.residuals if np.any(boxes.residuals >= 0) else _NONE
    rows = _stored(boxes.ptr, *_number_rows(boxes), boxes.n_attributes)
    return PackedBoxes(*rows, owners, residuals, boxes.n_filters, boxes.widths)


def pack_numbered(filters: NumberedFilters, table: Boxes) -> PackedBoxes:
    """The boxes of filters whose constraints are numbered, as `pack_boxes` packs them. `table` has a clause for each number."""
    ptr, number = _numbered_rows(filters, np.diff(table.ptr))
    found = _distinct_rows(table, [slice(0, table.attr.size)], number.size)
    if found is None:
        place = np.zeros(0, np.uint8)
        attr, lo, hi = (_taken(column, number) for column in (table.attr, table.lo, table.hi))
    else:
        keys, narrow = found
        own = np.searchsorted(keys, _row_keys(table, slice(0, table.attr.size))).astype(narrow)
        place = _taken(own, number)
        attr, lo, hi = _rows_of(keys)
    owners = _NONE
    if not np.array_equal(filters.clause_ptr, np.arange(filters.n_filters + 1)):
        owners = np.repeat(np.arange(filters.n_filters, dtype=np.int32), np.diff(filters.clause_ptr))
    rows = _stored(ptr, place, attr, lo, hi, table.n_attributes)
    return PackedBoxes(*rows, owners, _NONE, filters.n_filters, table.widths)


def _numbered_rows(filters: NumberedFilters, sizes: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], Any]:
    """The rows of each clause, and the place of each row in the table, where constraints have so many rows."""
    if (sizes == 1).all():
        return filters.ptr, filters.number
    starts = pointer(sizes, sizes.size)
    n_rows = np.zeros(filters.ptr.size - 1, np.int64)
    for block, begin, end in blocks(filters.ptr):
        rows = pointer(sizes[filters.number[begin:end]], end - begin)
        n_rows[block] = np.diff(rows[filters.ptr[block.start : block.stop + 1] - begin])
    ptr = pointer(n_rows, n_rows.size)
    number = np.empty(ptr[-1], np.min_scalar_type(max(int(starts[-1]) - 1, 0)))
    for block, begin, end in blocks(filters.ptr):
        number[ptr[block.start] : ptr[block.stop]] = take_ranges(starts, filters.number[begin:end].astype(np.int64))[0]
    return ptr, number


def _taken(values: npt.NDArray[Any], places: npt.NDArray[Any]) -> npt.NDArray[Any]:
    out = np.empty(places.size, values.dtype)
    renumber(places, values, out)
    return out


def _stored(
    ptr: npt.NDArray[np.int64], number: npt.NDArray[Any], attr: npt.NDArray[Any], lo: Any, hi: Any, n_attributes: int
) -> Rows:
    """The first five arrays of packed boxes, as small as they can be."""
    small = attr.astype(np.int8) if n_attributes <= 128 else attr
    return Rows(*side_by_side([ptr.astype(np.int32), number, small, lo, _NONE if np.array_equal(lo, hi) else hi]))


def _number_rows(boxes: Boxes) -> tuple[npt.NDArray[Any], npt.NDArray[np.int16], Any, Any]:
    """(number, attr, lo, hi): the distinct rows, if they are few, else all rows."""
    # A block at a time: sorting all rows at once takes five times their memory.
    parts = [slice(at, at + _BLOCK_ROWS) for at in range(0, boxes.attr.size, _BLOCK_ROWS)]
    found = _distinct_rows(boxes, parts, boxes.attr.size)
    if found is None:
        return np.zeros(0, np.uint8), boxes.attr, boxes.lo, boxes.hi
    keys, narrow = found
    number = np.empty(boxes.attr.size, narrow)
    for part in parts:
        own, places = numbered(_row_keys(boxes, part))
        number[part] = np.searchsorted(keys, own)[places]
    return number, *_rows_of(keys)


def _distinct_rows(boxes: Boxes, parts: list[slice], n_rows: int) -> tuple[npt.NDArray[np.int64], Any] | None:
    """The distinct rows as numbers, in order, and the type of their places; None if so many rows are smaller without places."""
    if int(boxes.widths.max(initial=1)) >= _FEW_CODES:
        return None
    keys = distinct(np.concatenate([np.zeros(0, np.int64), *(distinct(_row_keys(boxes, part)) for part in parts)]))
    narrow = np.min_scalar_type(max(keys.size - 1, 0))
    return None if narrow.itemsize > 2 or keys.size * 8 > n_rows * (8 - narrow.itemsize) else (keys, narrow)


def _rows_of(keys: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int16], Any, Any]:
    """(attr, lo, hi) of rows that are given as numbers."""
    ends = (keys & 0xFFFF).astype(np.int32)
    lo, hi = (keys >> 16 & 0xFFFF).astype(np.int32), np.where(ends == _FEW_CODES, FAR, ends)
    return (keys >> 32).astype(np.int16), lo, hi


def _row_keys(boxes: Boxes, rows: slice) -> npt.NDArray[np.int64]:
    """Some rows as numbers: attribute, lo and hi, each in bits of its own."""
    ends = np.where(boxes.hi[rows] == FAR, _FEW_CODES, boxes.hi[rows])
    return boxes.attr[rows].astype(np.int64) << 32 | boxes.lo[rows].astype(np.int64) << 16 | ends


#: Clauses that are put in order at a time.
_BLOCK_CLAUSES = 1 << 17


def order_filters(packed: PackedBoxes, order: npt.NDArray[np.int64]) -> tuple[PackedBoxes, npt.NDArray[np.int64]]:
    """The boxes with filter order[i] as filter i, and the clauses in their new order."""
    if packed.filter_ids.size:
        first = np.searchsorted(packed.filter_ids, np.arange(packed.n_filters + 1))
        clauses, ptr = take_ranges(first, order)
        owners = np.repeat(np.arange(packed.n_filters, dtype=np.int32), np.diff(ptr))
    else:
        clauses, owners = order, _NONE
    sizes = np.diff(packed.ptr)[clauses]
    ptr, starts = pointer(sizes, sizes.size), packed.ptr.astype(np.int64)
    columns = (packed.number,) if packed.number.size else (packed.attr, packed.lo, packed.hi)
    moved = [np.empty_like(column) for column in columns]
    for begin in range(0, clauses.size, _BLOCK_CLAUSES):
        block = clauses[begin : begin + _BLOCK_CLAUSES]
        rows, _ = take_ranges(starts, block)
        for column, out in zip(columns, moved, strict=True):
            if column.size:
                out[ptr[begin] : ptr[begin + block.size]] = column[rows]
    rows_of = (*moved, *packed[2:5]) if packed.number.size else (packed.number, *moved)
    residuals = packed.residuals[clauses] if packed.residuals.size else packed.residuals
    stored = Rows(*side_by_side([ptr.astype(np.int32), *rows_of]))
    return PackedBoxes(*stored, owners, residuals, packed.n_filters, packed.widths), clauses


def unpack_clauses(packed: PackedBoxes, clauses: npt.NDArray[np.int64]) -> Boxes:
    """Some clauses; the cost does not depend on how many others there are."""
    ends: npt.NDArray[Any] = packed.ptr
    rows, ptr = take_ranges(ends, clauses)
    places = packed.number[rows] if packed.number.size else rows
    lo = packed.lo[places]
    return Boxes(
        packed.filter_ids[clauses] if packed.filter_ids.size else clauses.astype(np.int32),
        ptr,
        packed.attr[places].astype(np.int16),
        lo,
        packed.hi[places] if packed.hi.size else lo,
        packed.residuals[clauses] if packed.residuals.size else np.full(clauses.size, -1, np.int32),
        packed.n_filters,
        packed.widths,
    )


def unpack_between(packed: PackedBoxes, first: int, end: int) -> Boxes:
    """Neighbouring clauses, of which each is taken for a filter without a residual."""
    begin, stop = int(packed.ptr[first]), int(packed.ptr[end])
    rows = packed.number[begin:stop] if packed.number.size else slice(begin, stop)
    lo, none = packed.lo[rows], np.full(end - first, -1, np.int32)
    return Boxes(
        np.arange(end - first, dtype=np.int32),
        packed.ptr[first : end + 1].astype(np.int64) - begin,
        packed.attr[rows].astype(np.int16),
        lo,
        packed.hi[rows] if packed.hi.size else lo,
        none,
        end - first,
        packed.widths,
    )


def unpack_boxes(packed: PackedBoxes) -> Boxes:
    n = packed.n_clauses
    attr, lo = packed.attr.astype(np.int16), packed.lo
    hi = packed.hi if packed.hi.size else lo
    if packed.number.size:
        attr, lo, hi = attr[packed.number], lo[packed.number], hi[packed.number]
    return Boxes(
        packed.filter_ids if packed.filter_ids.size or not n else np.arange(n, dtype=np.int32),
        packed.ptr.astype(np.int64),
        attr,
        lo,
        hi,
        packed.residuals if packed.residuals.size else np.full(n, -1, np.int32),
        packed.n_filters,
        packed.widths,
    )
