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

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.errors import LimitError
from wherecast.index.boxes import Boxes, EventCodes
from wherecast.kernels.arrays import Ints, Longs, Singles
from wherecast.kernels.descent import Projected
from wherecast.kernels.filing import COARSE_BITS, EXACT_CODES, GUARD_BITS
from wherecast.kernels.jit import frozen
from wherecast.matchers.projection import Projection, project

#: Attributes with at most this many codes are renumbered.
RENUMBERED = 4096
#: A list of at most this many codes is filed under each of them.
SHORT_LIST = 8
#: Bits between two sizes of cells. On `range`, 1 looks up twice as often for a fifth fewer candidates and is slower by
#: a fifth; 3 is as fast, with a quarter more candidates.
STEP = 2
#: A column number is stored in 15 bits.
MOST_COLUMNS = 2**15


class Conditions(NamedTuple):
    """Constraints by clause, rarest first."""

    ptr: Longs  # (clauses + 1,)
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


def _number_columns(clause: Ints, attribute: Ints) -> tuple[Ints, Ints]:
    """Column of each constraint and attribute of each column: repeated attributes of a clause get further columns."""
    position = np.arange(attribute.size)
    fresh = np.ones(attribute.size, bool)
    fresh[1:] = (clause[1:] != clause[:-1]) | (attribute[1:] != attribute[:-1])
    nth = position - np.maximum.accumulate(np.where(fresh, position, 0))
    pairs, column = np.unique(attribute.astype(np.int64) << 32 | nth, return_inverse=True)
    if pairs.size > MOST_COLUMNS:
        raise LimitError(f"too many columns: {pairs.size} needed, at most {MOST_COLUMNS}")
    return column.astype(np.int32), (pairs >> 32).astype(np.int32)


def _renumber(widths: Ints, used: Ints, attribute: Ints, lo: Ints, hi: Ints) -> tuple[list[Ints], Ints]:
    """Per used attribute a table of new codes (empty: unchanged) and the new width; lo and hi change in place."""
    tables, new_widths = [], np.zeros(used.size, np.int32)
    order = np.argsort(attribute, kind="stable")
    bounds = np.searchsorted(attribute[order], np.stack([used, used + 1]))
    for i, a in enumerate(used.tolist()):
        width = int(widths[a])
        rows = order[bounds[0, i] : bounds[1, i]]
        table = np.zeros(0, np.int32)
        new_widths[i] = width
        if width <= RENUMBERED:
            cover = np.bincount(lo[rows], minlength=width + 1) - np.bincount(hi[rows] + 1, minlength=width + 1)
            live = np.cumsum(cover[:width]) > 0
            if width - np.count_nonzero(live) > 1:
                table = np.where(live, np.cumsum(live), 0).astype(np.int32)
                lo[rows], hi[rows] = table[lo[rows]], table[hi[rows]]
                new_widths[i] = table.max() + 1
        tables.append(table)
    return tables, new_widths


def describe(boxes: Boxes, sample: EventCodes | None) -> tuple[Projection, Conditions, Projected | None]:
    """Columns and constraints of a set of boxes, and the sample in those columns."""
    last = boxes.attr >= 0
    attribute = np.where(last, boxes.attr, ~boxes.attr).astype(np.int32)
    widths = np.maximum(boxes.widths, 1).astype(np.int32)
    top = widths[attribute] - 1
    lo, hi = np.minimum(boxes.lo, top), np.minimum(boxes.hi, top)
    first = np.ones(attribute.size, bool)
    first[1:] = last[:-1]
    clause = np.repeat(np.arange(boxes.n_clauses, dtype=np.int32), np.diff(boxes.ptr))
    idle = first & last & (lo <= 0) & (hi >= top)
    attribute, lo, hi, clause = (x[~idle] for x in (attribute, lo, hi, clause))
    first, last = first[~idle], last[~idle]
    used = np.unique(attribute)
    tables, new_widths = _renumber(widths, used, attribute, lo, hi)
    begin, stop = np.flatnonzero(first), np.flatnonzero(last) + 1
    column, column_attribute = _number_columns(clause[begin], attribute[begin])
    at = np.searchsorted(used, column_attribute)
    tables = [tables[i] for i in at]
    columns = Projection(
        column_attribute, widths[column_attribute], new_widths[at],
        np.concatenate([[0], np.cumsum([t.size for t in tables])]).astype(np.int64),
        np.concatenate([np.zeros(0, np.int32), *tables]),
    )  # fmt: skip
    columns = Projection(*(frozen(array) for array in columns))
    batch = project(columns, sample) if sample is not None and sample.n_events else None
    conditions = _constraints(columns, boxes.n_clauses, clause[begin], column, begin, stop, lo, hi, batch)
    return columns, conditions, batch


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
    codes = _sums(hi - lo + 1, begin)
    row_column = np.repeat(column, stop - begin)
    row_chance = chances(columns, row_column, lo, hi, batch)
    chance = passed = _sums(row_chance, begin)
    coarse = np.flatnonzero(columns.width[row_column] > EXACT_CODES)
    if coarse.size:  # many sets have no such column, and this is much memory
        shifts = bucket_shift(columns.width[row_column[coarse]])
        row_chance[coarse] = chances(columns, row_column[coarse], *_whole_cells(lo[coarse], hi[coarse], shifts), batch)
        passed = _sums(row_chance, begin)
    shift = filing_shift(hull_lo, hull_hi)
    short = several & (codes <= SHORT_LIST)
    shift[short] = 0
    filed = np.where(short, chance, chances(columns, column, *_whole_cells(hull_lo, hull_hi, shift), batch))
    order = np.lexsort((chance, clause))
    ptr = np.searchsorted(clause, np.arange(n_clauses + 1)).astype(np.int64)
    return Conditions(
        ptr, column[order], hull_lo[order], hull_hi[order], list_at[order].astype(np.int32),
        list_end[order].astype(np.int32), lo[in_list], hi[in_list],
        shift[order].astype(np.int32), filed[order].astype(np.float32), chance[order].astype(np.float32),
        np.minimum(passed[order], 1).astype(np.float32),
    )  # fmt: skip


def _sums(values: npt.NDArray[Any], begin: Longs) -> npt.NDArray[Any]:
    """Sums over the rows of each constraint."""
    return np.add.reduceat(values, begin) if begin.size else values


def _whole_cells(lo: Ints, hi: Ints, shift: Ints) -> tuple[Ints, Ints]:
    """Intervals extended to the cells that they meet."""
    return lo >> shift << shift, ((hi >> shift) + 1 << shift) - 1


def bucket_shift(width: Ints) -> Ints:
    """Low bits of a code of a wide column that the bitmap of a leaf, which is not the cell of a test, leaves out."""
    return np.ceil(np.log2(width)).astype(np.int32) - COARSE_BITS


def near_shift(width: Ints) -> Ints:
    """Low bits of a code that the buckets of guards leave out."""
    most = (1 << GUARD_BITS) - 1  # buckets, besides that of code 0
    return np.maximum(np.ceil(np.log2(np.maximum(width - 1, 1) / most)), 0).astype(np.int32)


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
