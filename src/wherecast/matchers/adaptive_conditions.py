"""Boxes as the adaptive matcher sees them: one record per constraint, with its chance to hold.

Theory of operation
-------------------
Rows of one constraint become one record: the hull [lo, hi] and, where there are several intervals, a range of a list.
Constraints that every code satisfies are dropped. Attributes of few codes are renumbered (see `kernels.events`).

Chances come from a sample of events: the share whose code lies in the intervals, smoothed by one imagined event that
is spread evenly over the codes. Without a sample that imagined event is all there is: every code of an attribute is
taken to be equally likely, so a constraint's chance is its share of the codes. As codes are the pieces into which the
filters' own constants cut the domain, this says that events are most varied where filters are most detailed.

A constraint's *filing* keeps it in few cells: the smallest shift at which its interval
meets at most two, in steps of two bits (four times the width), or its single codes when it is a short list.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.errors import LimitError
from wherecast.index.boxes import EventCodes
from wherecast.index.packed import PackedBoxes, unpack_between
from wherecast.kernels.arrays import Ints, Longs, Singles
from wherecast.kernels.descent import Projected
from wherecast.kernels.filing import COARSE_BITS
from wherecast.kernels.guards import FINE_WORDS, GUARD_BITS, SHIFT_BITS, SHIFT_MASK, Buckets, fill_buckets
from wherecast.kernels.jit import frozen
from wherecast.kernels.leftover import EXACT_CODES
from wherecast.kernels.likelihood import count_holding, find_correlation
from wherecast.kernels.numbering import repeats_column, sort_constraints, sum_rows
from wherecast.language.filters.numbered import blocks, number_constraints
from wherecast.language.sequences import distinct, numbered, pointer, take_ranges
from wherecast.matchers.projection import Projection, project

#: Entries of the table that says the buckets of a column's codes.
MOST_PLACES = 1 << 14
#: Attributes with at most this many codes are renumbered.
RENUMBERED = 4096
#: A list of at most this many codes is filed under each of them.
SHORT_LIST = 8
#: Bits between two sizes of cells. On `range`, 1 looks up twice as often for a fifth fewer candidates and is slower by
#: a fifth; 3 is as fast, with a quarter more candidates.
STEP = 2
#: Rows that are described at a time.
BLOCK_ROWS = 1 << 20
#: A column number is stored in 15 bits.
MOST_COLUMNS = 2**15


class Conditions(NamedTuple):
    """Constraints by clause, rarest first: `number[ptr[c]:ptr[c + 1]]` are the places of those of clause c in the arrays behind.

    Where clauses repeat constraints, each has one place: a number takes 4 bytes, a constraint 40.
    """

    ptr: Longs  # (clauses + 1,)
    number: Ints
    column: Ints  # (constraints,)
    lo: Ints  # hull
    hi: Ints
    list_at: Ints  # first interval in list_lo, or -1 when the hull is all
    list_end: Ints
    list_lo: Ints
    list_hi: Ints
    shift: Ints  # filing
    filed: Singles  # chance that an event meets a cell of the filing
    chance: Singles  # chance to hold
    passed: Singles  # chance that the bitmap of a leaf does not exclude it: more where buckets are coarse


_UNNUMBERED = np.zeros(0, np.int32)


class _Rows(NamedTuple):
    """The rows of some clauses, those left out that every code satisfies."""

    clauses: int
    clause: Ints  # of each constraint, counted from the first of these
    attribute: Ints  # of each row
    lo: Ints
    hi: Ints
    begin: Longs  # first row of each constraint, and the one after its last
    stop: Longs


def _read_rows(packed: PackedBoxes, widths: Ints, first_clause: int, end_clause: int) -> _Rows:
    boxes = unpack_between(packed, first_clause, end_clause)
    last = boxes.attr >= 0
    attribute = np.where(last, boxes.attr, ~boxes.attr).astype(np.int32)
    top = widths[attribute] - 1
    lo, hi = np.minimum(boxes.lo, top), np.minimum(boxes.hi, top)
    first = np.ones(attribute.size, bool)
    first[1:] = last[:-1]
    clauses = end_clause - first_clause
    clause = np.repeat(np.arange(clauses, dtype=np.int32), np.diff(boxes.ptr))
    kept = ~(first & last & (lo <= 0) & (hi >= top))
    begin, stop = np.flatnonzero(first[kept]), np.flatnonzero(last[kept]) + 1
    return _Rows(clauses, clause[kept][begin], attribute[kept], lo[kept], hi[kept], begin, stop)


def _column_keys(rows: _Rows, counts: Callable[[int], Longs] | None) -> Longs:
    """A number for the column of each constraint: repeated attributes of a clause get further columns.

    The rarest of them has the first one (`counts`, see `_count_elements`). Clauses are filed under their rarest constraints, so
    an event's elements are then looked up in one table and not in one for each further column.
    """
    clause, attribute = rows.clause, rows.attribute[rows.begin]
    position = np.arange(attribute.size)
    fresh = np.ones(attribute.size, bool)
    fresh[1:] = (clause[1:] != clause[:-1]) | (attribute[1:] != attribute[:-1])
    first = np.maximum.accumulate(np.where(fresh, position, 0))
    nth = position - first
    repeated = np.zeros(attribute.size, bool)
    repeated[first[~fresh]] = repeated[~fresh] = True
    if counts is None:
        return attribute.astype(np.int64) << 32 | nth
    for a in np.unique(attribute[repeated]).tolist():
        here = np.flatnonzero(repeated & (attribute == a))
        below = counts(a)
        seen = below[rows.hi[rows.stop[here] - 1] + 1] - below[rows.lo[rows.begin[here]]]
        order = np.lexsort((seen, first[here]))
        nth[here[order]] = nth[here]  # those of a clause stay together, so each gets the number of its place
    return attribute.astype(np.int64) << 32 | nth


def _count_elements(sample: EventCodes, widths: Ints, attribute: int) -> Longs:
    """How many codes, and elements of lists, of an attribute are below each code in the sample."""
    codes, top = sample.codes[:, attribute], int(widths[attribute]) - 1
    lists = np.zeros(sample.list_ptr.size - 1, bool)
    lists[~codes[codes < 0]] = True
    elements = sample.list_codes[np.repeat(lists, np.diff(sample.list_ptr))]
    found = np.bincount(np.minimum(np.concatenate((codes[codes >= 0], elements)), top), minlength=top + 1)
    return np.concatenate(([0], np.cumsum(found)))


class _Codes:
    """Which codes of each attribute some clause asks for.

    The codes of all attributes that may be renumbered stand in one array, and one more behind those of each.
    """

    def __init__(self, widths: Ints) -> None:
        self._is_small = widths <= RENUMBERED
        self._ptr = pointer(np.where(self._is_small, widths + 1, 0), widths.size)
        self._ends = np.zeros(self._ptr[-1], np.int64)  # intervals that begin at a code, less those that ended before
        self._is_used = np.zeros(widths.size, bool)

    def add(self, rows: _Rows) -> None:
        here = np.flatnonzero(self._is_small[rows.attribute])
        at = self._ptr[rows.attribute[here]]
        self._ends += np.bincount(at + rows.lo[here], minlength=self._ends.size)
        self._ends -= np.bincount(at + rows.hi[here] + 1, minlength=self._ends.size)
        self._is_used[rows.attribute[here]] = True

    def tables(self, attribute: Ints) -> tuple[Longs, Ints]:
        """New codes of some attributes, all that nobody asks for as 0, and where each begins; empty: they stay as they are."""
        live = np.cumsum(self._ends) > 0  # every interval ends within its attribute
        seen = np.concatenate(([0], np.cumsum(live)))
        n_dead = np.diff(self._ptr) - 1 - np.diff(seen[self._ptr])
        is_changed = (self._is_used & (n_dead > 1))[attribute]
        new = np.where(live, seen[1:] - np.repeat(seen[self._ptr[:-1]], np.diff(self._ptr)), 0)
        places, ptr = take_ranges(self._ptr, attribute[is_changed].astype(np.int64))
        kept = np.ones(places.size, bool)
        kept[ptr[1:] - 1] = False  # the one behind
        sizes = np.where(is_changed, np.diff(self._ptr)[attribute] - 1, 0)
        return pointer(sizes, attribute.size), new[places[kept]].astype(np.int32)


def describe(boxes: PackedBoxes, sample: EventCodes | None) -> tuple[Projection, Conditions, Projected | None]:
    """Columns and constraints of a set of boxes, and the sample in those columns."""
    repeated = _constraints_once(boxes)
    if repeated is None:
        return _describe_each(boxes, sample)
    table, ptr, number = repeated
    columns, conditions, batch = _describe_each(table, sample)
    return columns, _by_clause(conditions, ptr, number), batch


#: Fewer rows are described one by one.
FEW_ROWS = 1 << 16


def _constraints_once(boxes: PackedBoxes) -> tuple[PackedBoxes, npt.NDArray[Any], npt.NDArray[Any]] | None:
    """Each constraint as a clause; the constraints of each clause, and which they are.

    None if they hardly repeat, or if a clause has two on one column: those have further columns (see `_column_keys`).
    """
    rows = boxes.number
    if rows.size < FEW_ROWS or _repeats_column(boxes):  # or rows hardly repeat, and have no numbers
        return None
    is_last = boxes.attr >= 0
    ends = np.arange(boxes.attr.size + 1, dtype=np.int32)
    if is_last.all():
        return boxes._replace(ptr=ends, number=rows[:0]), boxes.ptr, rows
    found = number_constraints(rows.astype(np.int32), is_last)
    if found is None:
        return None
    numbers, first = found
    stops = np.flatnonzero(is_last[rows]) + 1  # of all constraints
    begins = np.concatenate(([0], stops[:-1]))
    places, table_ptr = take_ranges(np.concatenate(([0], stops)), np.searchsorted(begins, first))
    ptr = np.searchsorted(begins, boxes.ptr)
    return boxes._replace(ptr=table_ptr.astype(np.int32), number=rows[places]), ptr, numbers


def _repeats_column(boxes: PackedBoxes) -> bool:
    attr = boxes.attr.astype(np.int32)
    return any(
        repeats_column(_within(boxes.ptr, block, begin), boxes.number[begin:end].astype(np.int32), attr)
        for block, begin, end in blocks(boxes.ptr)
    )


def _within(ptr: npt.NDArray[Any], block: slice, begin: int) -> Longs:
    """The pointer of the clauses of a block, whose constraints begin at `begin`."""
    return ptr[block.start : block.stop + 1].astype(np.int64) - begin


def _by_clause(conditions: Conditions, ptr: npt.NDArray[Any], number: npt.NDArray[Any]) -> Conditions:
    """Constraints that are described once, listed for each clause."""
    record = np.where(np.diff(conditions.ptr) > 0, conditions.ptr[:-1], -1).astype(np.int32)
    out_ptr, out = np.zeros(ptr.size, np.int64), np.empty(number.size, np.int32)
    size = 0
    for block, begin, end in blocks(ptr):
        own = _within(ptr, block, begin)
        ends = np.empty(own.size, np.int64)
        found = sort_constraints(own, number[begin:end].astype(np.int32), record, conditions.chance, ends, out[size:])
        out_ptr[block.start + 1 : block.stop + 1] = ends[1:] + size
        size += found
    return conditions._replace(ptr=out_ptr, number=out[:size])


def _describe_each(boxes: PackedBoxes, sample: EventCodes | None) -> tuple[Projection, Conditions, Projected | None]:
    """`describe`, each constraint by itself.

    Rows are taken a block of clauses at a time: what is computed on the way takes four times the memory of the result.
    """
    widths = np.maximum(boxes.widths, 1).astype(np.int32)
    parts = list(pairwise(_block_ends(boxes)))
    codes, found = _Codes(widths), [np.zeros(0, np.int64)]
    sample = sample if sample is not None and sample.n_events else None
    counts = None if sample is None else cache(partial(_count_elements, sample, widths))

    def read(part: tuple[int, int]) -> tuple[_Rows, Longs, Longs]:
        """Rows, the columns of their constraints, and which of these each has."""
        rows = _read_rows(boxes, widths, *part)
        return rows, *numbered(_column_keys(rows, counts))

    read = cache(read) if len(parts) == 1 else read
    for part in parts:
        rows, own_keys, _ = read(part)
        codes.add(rows)
        found.append(own_keys)
    keys = distinct(np.concatenate(found))
    if keys.size > MOST_COLUMNS:
        raise LimitError(f"too many columns: {keys.size} needed, at most {MOST_COLUMNS}")
    columns = _projection((keys >> 32).astype(np.int32), widths, codes)
    batch = None if sample is None else project(columns, sample)
    described = []
    for part in parts:
        rows, own_keys, number = read(part)
        column = np.searchsorted(keys, own_keys).astype(np.int32)[number]
        described.append(
            _constraints(columns, rows.clauses, rows.clause, column, *_renumbered(columns, rows, column), batch)
        )
    conditions = _joined(described)
    return columns, conditions._replace(number=np.arange(conditions.column.size, dtype=np.int32)), batch


def _block_ends(boxes: PackedBoxes) -> list[int]:
    """Clauses at which blocks of about equally many rows begin and end."""
    n = -(-int(boxes.ptr[-1]) // BLOCK_ROWS)
    cuts = np.searchsorted(boxes.ptr, np.arange(1, n) * BLOCK_ROWS) if n > 1 else np.zeros(0, np.int64)
    return sorted({0, boxes.n_clauses, *cuts.tolist()}) if boxes.n_clauses else [0, 0]


def _projection(attribute: Ints, widths: Ints, codes: _Codes) -> Projection:
    ptr, table = codes.tables(attribute)
    changed = np.flatnonzero(np.diff(ptr))
    new_widths = widths[attribute]
    if changed.size:
        new_widths[changed] = np.maximum.reduceat(table, ptr[changed]) + 1
    columns = Projection(attribute, widths[attribute], new_widths, ptr, table)
    return Projection(*(frozen(array) for array in columns))


def _renumbered(columns: Projection, rows: _Rows, column: Ints) -> tuple[Longs, Longs, Ints, Ints]:
    """First and last rows of the constraints, and the rows in new codes."""
    at = columns.table_ptr[:-1][np.repeat(column, rows.stop - rows.begin)]
    changed = np.repeat(np.diff(columns.table_ptr)[column] > 0, rows.stop - rows.begin)
    lo, hi = rows.lo, rows.hi
    lo[changed] = columns.table[at[changed] + lo[changed]]
    hi[changed] = columns.table[at[changed] + hi[changed]]
    return rows.begin, rows.stop, lo, hi


def _joined(parts: list[Conditions]) -> Conditions:
    """The conditions of all blocks as one; each block is let go of."""
    if len(parts) == 1:
        return parts[0]
    fields: list[list[Any]] = [list(values) for values in zip(*parts, strict=True)]
    parts.clear()
    sizes = np.cumsum([0, *(lo.size for lo in fields[7])])  # lists before each block
    ends = np.cumsum([0, *(ptr[-1] for ptr in fields[0])])
    fields[0] = [np.zeros(1, np.int64), *(ptr[1:] + before for ptr, before in zip(fields[0], ends, strict=False))]
    fields[5] = [np.where(at < 0, at, at + n).astype(np.int32) for at, n in zip(fields[5], sizes, strict=False)]
    fields[6] = [(end + n).astype(np.int32) for end, n in zip(fields[6], sizes, strict=False)]
    out = []
    while fields:  # an array at a time
        out.append(np.concatenate(fields.pop(0)))
    return Conditions(*out)


def _constraints(
    columns: Projection, n_clauses: int, clause: Ints, column: Ints, begin: Longs, stop: Longs, lo: Ints, hi: Ints,
    batch: Projected | None,
) -> Conditions:  # fmt: skip
    several = stop - begin > 1
    in_list = np.repeat(several, stop - begin)
    size = np.where(several, stop - begin, 0)
    list_end = np.cumsum(size)
    list_at = np.where(several, list_end - size, -1)
    hull_lo, hull_hi = lo[begin], hi[stop - 1]
    codes = _sums(hi - lo + 1, begin, stop)
    row_column = np.repeat(column, stop - begin)
    row_chance = chances(columns, row_column, lo, hi, batch)
    chance = passed = _sums(row_chance, begin, stop)
    coarse = np.flatnonzero(columns.width[row_column] > EXACT_CODES)
    if coarse.size:  # many sets have no such column, and this is much memory
        shifts = bucket_shift(columns.width[row_column[coarse]])
        row_chance[coarse] = chances(columns, row_column[coarse], *_whole_cells(lo[coarse], hi[coarse], shifts), batch)
        passed = _sums(row_chance, begin, stop)
    shift = filing_shift(hull_lo, hull_hi)
    short = several & (codes <= SHORT_LIST)
    shift[short] = 0
    cell_lo, cell_hi = _whole_cells(hull_lo, hull_hi, shift)
    # NULL is in the lowest cell, but is not looked up for those who do not ask for it.
    cell_lo = np.maximum(cell_lo, np.minimum(hull_lo, 1))
    filed = np.where(short, chance, chances(columns, column, cell_lo, cell_hi, batch))
    ptr = pointer(np.bincount(clause, minlength=n_clauses), n_clauses)
    each, order = np.arange(clause.size, dtype=np.int32), np.empty(clause.size, np.int32)
    sort_constraints(ptr, each, each, chance.astype(np.float32), np.empty_like(ptr), order)
    return Conditions(
        ptr, _UNNUMBERED, column[order], hull_lo[order], hull_hi[order], list_at[order].astype(np.int32),
        list_end[order].astype(np.int32), lo[in_list], hi[in_list],
        shift[order].astype(np.int32), filed[order].astype(np.float32), chance[order].astype(np.float32),
        np.minimum(passed[order], 1).astype(np.float32),
    )  # fmt: skip


def _sums(values: npt.NDArray[Any], begin: Longs, stop: Longs) -> npt.NDArray[Any]:
    """Sums over the rows of each constraint."""
    sums = np.empty(begin.size, values.dtype)
    sum_rows(values, begin, stop, sums)
    return sums


def _whole_cells(lo: Ints, hi: Ints, shift: Ints) -> tuple[Ints, Ints]:
    """Intervals extended to the cells that they meet."""
    return lo >> shift << shift, ((hi >> shift) + 1 << shift) - 1


def bucket_shift(width: Ints) -> Ints:
    """Low bits of a code of a wide column that the bitmap of a leaf, which is not the cell of a test, leaves out."""
    return np.ceil(np.log2(width)).astype(np.int32) - COARSE_BITS


def guard_buckets(columns: Projection, batch: Projected | None) -> tuple[Ints, Longs, Buckets]:
    """How guards see codes: low bits that they leave out, and tables of buckets where a column has more codes than buckets."""
    width = columns.width.astype(np.int64)
    most = 1 << GUARD_BITS
    near = np.where(width > most, np.ceil(np.log2(np.maximum(width / MOST_PLACES, 1))), 0).astype(np.int32)
    size = np.where(width > most, near_places(width - 1, near) + 1, 0)
    ptr = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    table = np.zeros(ptr[-1], np.int16)
    fine: list[int] = []
    for c in np.flatnonzero(size).tolist():
        weights = np.full(size[c], 0.5 / size[c])
        if batch is not None:
            codes = sample_codes(batch, c)
            seen = np.bincount(near_places(codes, near[c]), minlength=size[c])
            weights += 0.5 * seen / max(codes.size, 1)
            if codes.size >= _LONG_LIST * len(batch.codes):
                fine.append(c)
        fill_buckets(weights, int(near[c]), most, table[ptr[c] : ptr[c + 1]])
    _, number = np.unique(columns.attribute[fine], return_inverse=True)  # columns of one attribute have the same lists
    near[fine] |= (1 + number).astype(np.int32) << SHIFT_BITS
    return near, ptr, table


def shares_below(columns: Projection, near: Ints, batch: Projected | None) -> tuple[Longs, Singles]:
    """The share of the events that is before each place of a column's buckets, and after the last; of columns without exact bitmaps.

    A tenth is spread evenly over the places, as a sample has not seen all.
    """
    width, shift = columns.width.astype(np.int64), near & SHIFT_MASK
    places = np.where(width > EXACT_CODES, near_places(width - 1, shift) + 1, 0)
    ptr = np.concatenate([[0], np.cumsum(np.where(places > 0, places + 1, 0))]).astype(np.int64)
    below = np.zeros(ptr[-1], np.float32)
    for c in np.flatnonzero(places).tolist():
        share = np.full(places[c], 1 / places[c])
        if batch is not None:
            seen = np.bincount(near_places(sample_codes(batch, c), shift[c]), minlength=places[c])
            share = 0.1 * share + 0.9 * seen / max(len(batch.codes), 1)
        below[ptr[c] + 1 : ptr[c + 1]] = np.cumsum(share)
    return ptr, below


#: Clauses and events that are compared to see how often constraints hold together.
_COMPARED = 1000


def measure_correlation(conditions: Conditions, batch: Projected | None) -> float:
    """How far constraints hold together, see `kernels.likelihood`; 0 if nothing is known of events."""
    c = conditions
    # Of one constraint there is nothing to learn, and many such clauses would outweigh the others.
    several = np.flatnonzero(np.diff(c.ptr) > 1).astype(np.int32)
    if batch is None or not several.size:
        return 0.0
    codes = batch.codes[:_COMPARED]
    given = several[:: -(-several.size // _COMPARED)], c.ptr, c.number
    holding = count_holding(*given, c.column, c.lo, c.hi, c.list_at, c.list_end, c.list_lo, c.list_hi, codes)
    return float(find_correlation(*given, c.chance, len(codes), holding))


#: Codes that the events of a sample have in a column, on average, for which it has fine buckets.
_LONG_LIST = 16


def count_marks(near: Ints) -> int:
    """Words that an event needs to mark the buckets that its lists meet."""
    return 4 * near.size + FINE_WORDS * int((near >> SHIFT_BITS).max(initial=0))


def near_places(codes: npt.NDArray[Any], shift: Any) -> Longs:
    """`guards.near_bucket` of many codes."""
    places: Longs = (codes + (np.int64(1) << shift) - 1) >> shift
    return places


def filing_shift(lo: Ints, hi: Ints) -> Ints:
    """Smallest shift, a multiple of STEP, at which [lo, hi] meets at most two cells; 0 for a single code."""
    shift = np.zeros(lo.size, np.int32)
    for _ in range(0, 31, STEP):
        wide = (hi >> shift) - (lo >> shift) > 1
        if not wide.any():
            break
        shift[wide] += STEP
    return shift


def chances(columns: Projection, column: Ints, lo: Ints, hi: Ints, batch: Projected | None) -> npt.NDArray[np.float64]:
    """Chance that an event has a code in each interval."""
    width = columns.width[column]
    share = (np.minimum(hi, width - 1) - lo + 1) / width
    if batch is None:
        return share
    result = np.empty(column.size)
    order = np.argsort(column, kind="stable")
    bounds = np.searchsorted(column[order], np.arange(columns.width.size + 1))
    n = batch.codes.shape[0]
    for c in range(columns.width.size):
        rows = order[bounds[c] : bounds[c + 1]]
        codes = sample_codes(batch, c)
        hits = np.searchsorted(codes, hi[rows], "right") - np.searchsorted(codes, lo[rows], "left")
        result[rows] = (np.minimum(hits, n) + share[rows]) / (n + 1)
    return result


def sample_codes(batch: Projected, column: int) -> Ints:
    """All codes of a column in the sample, sorted."""
    codes = batch.codes[:, column]
    lists = [batch.list_codes[batch.list_ptr[~c] : batch.list_ptr[~c + 1]] for c in codes[codes < 0].tolist()]
    return np.sort(np.concatenate([codes[codes >= 0], *lists]))
