"""Axes: the fixed coordinates in which a partition draws its boxes.

Theory of operation
-------------------
The codes of an index (see `index.codes`) belong to that index and change with its constants. A partition outlives many
indexes, so it has codes of its own: per attribute a list of cut points, chosen once from the filters at hand. If there are
few constants each of them is a cut; otherwise the cuts are taken at equal depth among them, so that cells hold about
equally many ends of constraints. Whatever constant comes later lies in some cell, and an interval of values becomes the
closed interval of the cells that it touches: rounded outward, it still holds every event that it held. The codes are
monotone in the values, which is all that this needs. NULL is cell 0.

A filter becomes *items*, boxes of cells of which one holds every event that the filter matches: one per clause, with the hull of
each constraint, or several where the hull of an IN list would let through at least twice the traffic of its
intervals. An array attribute bounds by any of its elements, so of several constraints on it any one will do.

Routing looks at a subset of the attributes (section III of the EDN paper): those whose constraints hold off the most
events. `chances` has the share of events in each cell, from a sample of events or else equal; the chance of a box is
the product over its axes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.index.boxes import FIRST_CODE, NULL_CODE, EventCodes
from wherecast.index.codes import Codebook, ColumnCodes, ValueCodes
from wherecast.index.keys import KeyCodes
from wherecast.index.strings import StringCodes
from wherecast.kernels.arrays import Floats, Ints, Longs
from wherecast.language.events.events import EventBatch
from wherecast.language.events.keys import KEY_MAX, KEY_MIN
from wherecast.language.events.schema import Attribute, Schema
from wherecast.language.filters.filters import AT, Filters
from wherecast.language.sequences import take_ranges

#: Cuts per axis: enough to tell thousands of boxes apart, few enough for a search within the first-level cache.
MOST_CUTS = 2048
#: Axes of a partition.
MOST_AXES = 12
#: Share of the events that a sample is assumed to have missed, spread evenly: no cell has chance zero.
_UNSEEN = 0.05
#: A constraint of several intervals is bounded by its hull unless the hull has this many times their chance.
_WASTEFUL = 2.0

#: Kinds of items, which are not drawn into one box (EDN, section III).
RANGE, EQUALITY = 0, 1


class Items(NamedTuple):
    """Boxes of cells that cover filters; a filter that never matches has none."""

    owner: Longs  # (items,) ascending: the filter an item belongs to
    lo: Ints  # (items, axes)
    hi: Ints  # (items, axes) at least lo

    def hulls(self, n_filters: int, widths: Ints) -> tuple[Ints, Ints]:
        """One box around the items of each filter; an empty one, from above the last cell to below the first, if none."""
        lo = np.tile(widths, (n_filters, 1))
        hi = np.full_like(lo, -1)
        if self.owner.size:
            first = np.flatnonzero(np.concatenate(([True], self.owner[1:] != self.owner[:-1])))
            lo[self.owner[first]] = np.minimum.reduceat(self.lo, first)
            hi[self.owner[first]] = np.maximum.reduceat(self.hi, first)
        return lo, hi


class Axes:
    """Cells of the attributes that a partition routes by, and how likely an event lies in each."""

    def __init__(self, codebook: Codebook, chances: list[Floats]) -> None:
        self.codebook = codebook
        self.attributes = codebook.used  # (axes,) the attribute of each axis
        self.chances = chances  # by axis: share of the events in each cell
        self.widths = codebook.widths[self.attributes]  # (axes,) number of cells, NULL included
        #: shares below each cell, axis after axis; those of axis a begin at `share_ptr[a]` and are one more than its cells
        self.shares = np.concatenate([np.zeros(0), *(np.concatenate(([0.0], np.cumsum(c))) for c in chances)])
        self.share_ptr = np.concatenate(([0], np.cumsum(self.widths + 1))).astype(np.int64)

    def __len__(self) -> int:
        return len(self.attributes)

    @property
    def schema(self) -> Schema:
        return self.codebook.schema

    @classmethod
    def choose(cls, filters: Filters, weights: Longs, schema: Schema, sample: EventBatch | None = None) -> Axes:
        """Axes for these filters: at most MOST_AXES, those whose constraints hold off the most events."""
        column = np.where(filters.attr < 0, ~filters.attr, filters.attr)
        codes: list[ColumnCodes | None] = [None] * len(schema)
        for attr in np.unique(column[column < len(schema)]).tolist():  # literals in texts have no order to cut
            codes[attr] = _cut_axis(filters, np.flatnonzero((column == attr) & ~filters.null), schema.attributes[attr])
        every = cls(book := Codebook(schema, codes), _estimate_chances(book, sample))
        if len(every) <= MOST_AXES:
            return every
        items = every.cover(filters)
        spared = [
            float((weights[items.owner] * (1 - every.axis_chance(a, items.lo[:, a], items.hi[:, a]))).sum())
            for a in range(len(every))
        ]
        kept = np.sort(np.argsort(spared, kind="stable")[-MOST_AXES:]).tolist()
        chosen = {every.attributes[a] for a in kept}
        book = Codebook(schema, [c if a in chosen else None for a, c in enumerate(codes)])
        return cls(book, [every.chances[a] for a in kept])

    def encode(self, events: EventBatch) -> EventCodes:
        """Events as points."""
        return self.codebook.encode(events)

    def axis_chance(self, axis: int, lo: Ints, hi: Ints) -> Floats:
        """Share of the events that lie in cells lo..hi of one axis."""
        shares = self.shares[self.share_ptr[axis] : self.share_ptr[axis + 1]]
        chance: Floats = np.minimum(shares[hi + 1] - shares[lo], 1.0)
        return chance

    def kinds(self, lo: Ints, hi: Ints) -> Longs:
        """EQUALITY where a box is one cell of an axis without a natural order (strings), else RANGE."""
        unordered = [self.schema.attributes[a].is_text for a in self.attributes]
        points = (lo == hi) & (lo != NULL_CODE) & np.array(unordered, bool)
        return np.where(points.any(1), EQUALITY, RANGE)

    def cover(self, filters: Filters) -> Items:
        """Items of filters; nothing they match lies outside."""
        n_clauses = filters.row_ptr.size - 1
        clause = np.repeat(np.arange(n_clauses), np.diff(filters.row_ptr))
        lo, hi = np.zeros((n_clauses, len(self)), np.int32), np.tile(self.widths - 1, (n_clauses, 1))
        owner = np.repeat(np.arange(filters.n_filters), np.diff(filters.clause_ptr))
        column = np.where(filters.attr < 0, ~filters.attr, filters.attr)
        # The worst constraint of each clause, as (waste, rows), to be replaced by its intervals below.
        split = _Splits(n_clauses)
        for axis, attr in enumerate(self.attributes):
            rows = np.flatnonzero(column == attr)
            if not rows.size:
                continue
            row_lo, row_hi = self._encode_rows(filters, rows, attr)
            last = np.flatnonzero(filters.attr[rows] >= 0)
            first = np.concatenate(([0], last[:-1] + 1))
            at, low, high = clause[rows[first]], np.minimum.reduceat(row_lo, first), np.maximum.reduceat(row_hi, first)
            lo[at, axis], hi[at, axis] = low, high
            if self.schema.attributes[attr].is_array:
                continue  # a later constraint on it may have taken the place of this one
            hull = self.axis_chance(axis, low, high)
            parts = np.add.reduceat(self.axis_chance(axis, row_lo, row_hi), first)
            split.offer(axis, at, hull - parts, hull > _WASTEFUL * parts, (row_lo, row_hi), (first, last))
        return split.apply(Items(owner, lo, hi))

    def _encode_rows(self, filters: Filters, rows: Longs, attr: int) -> tuple[Ints, Ints]:
        """The cells that rows of one attribute touch."""
        codes = self.codebook.codes[attr]
        lo, hi = np.full(rows.size, NULL_CODE, np.int32), np.full(rows.size, NULL_CODE, np.int32)
        real = np.flatnonzero(~filters.null[rows])
        low, high = filters.lo[rows[real]], filters.hi[rows[real]]
        if isinstance(codes, StringCodes):
            place = _place_strings(codes, filters.strings, low, high)
            lo[real] = np.where(low == KEY_MIN, FIRST_CODE, place(low))
            hi[real] = np.where(high == KEY_MAX, codes.width - 1, place(high))
        else:
            assert isinstance(codes, KeyCodes)
            lo[real] = np.where((low == KEY_MIN) & (high == KEY_MAX), FIRST_CODE, codes.encode_keys(low))
            hi[real] = codes.encode_keys(high)
        return lo, hi

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The whole state, by name."""
        out: dict[str, npt.NDArray[Any]] = {"attributes": np.array(self.attributes, np.int32)}
        for axis, attr in enumerate(self.attributes):
            codes = self.codebook.codes[attr]
            assert codes is not None
            out |= {f"{attr}.{name}": array for name, array in codes.arrays().items()}
            out[f"{attr}.chances"] = self.chances[axis]
        return out

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]], schema: Schema) -> Axes:
        codes: list[ColumnCodes | None] = [None] * len(schema)
        attributes = arrays["attributes"].tolist()
        for attr in attributes:
            kind = StringCodes if schema.attributes[attr].is_text else KeyCodes
            prefix = f"{attr}."
            codes[attr] = kind.from_arrays({n[len(prefix) :]: a for n, a in arrays.items() if n.startswith(prefix)})
        return cls(Codebook(schema, codes), [arrays[f"{attr}.chances"] for attr in attributes])


class _Splits:
    """Per clause the constraint whose hull wastes most, to be split into its intervals."""

    def __init__(self, n_clauses: int) -> None:
        self.waste = np.zeros(n_clauses)
        self.axis = np.full(n_clauses, -1, np.int64)
        self.first = np.zeros(n_clauses, np.int64)  # rows first .. end - 1 of `rows[axis]`
        self.end = np.ones(n_clauses, np.int64)
        self.rows: dict[int, tuple[Ints, Ints]] = {}

    def offer(
        self,
        axis: int,
        clauses: Longs,
        waste: Floats,
        wasteful: npt.NDArray[np.bool_],
        rows: tuple[Ints, Ints],
        bounds: tuple[Longs, Longs],
    ) -> None:
        """Constraints of one axis, each on its clause: rows bounds[0] .. bounds[1]."""
        better = wasteful & (waste > self.waste[clauses])
        at = clauses[better]
        self.waste[at], self.axis[at] = waste[better], axis
        self.first[at], self.end[at] = bounds[0][better], bounds[1][better] + 1
        self.rows[axis] = rows

    def apply(self, hulls: Items) -> Items:
        """The items: clauses with a split constraint once per interval."""
        copies = self.end - self.first
        if not np.any(copies > 1):
            return hulls
        clause = np.repeat(np.arange(copies.size), copies)
        row = np.arange(clause.size) - np.repeat(np.cumsum(copies) - copies, copies) + self.first[clause]
        items = Items(hulls.owner[clause], hulls.lo[clause], hulls.hi[clause])
        for axis, (lo, hi) in self.rows.items():
            at = np.flatnonzero(self.axis[clause] == axis)
            items.lo[at, axis], items.hi[at, axis] = lo[row[at]], hi[row[at]]
        return items


def _cut_axis(filters: Filters, rows: Longs, attribute: Attribute) -> ValueCodes:
    """Cuts at the constants of these rows, or at some of them at equal depth."""
    low, high = filters.lo[rows], filters.hi[rows]
    if attribute.is_text:
        ranks = _thin(np.concatenate((low[low != KEY_MIN] >> 2, high[high != KEY_MAX] >> 2)), MOST_CUTS // 2)
        return StringCodes.of([filters.strings[i] for i in ranks.tolist()], ordered=True)
    starts = _thin(np.concatenate((low[low > KEY_MIN], high[high < KEY_MAX] + 1)), MOST_CUTS)
    if attribute.is_array:  # the first code of an array says that it is there: no element may have it
        starts = np.union1d(starts, [KEY_MIN])
    return KeyCodes.of(starts)


def _thin(constants: Longs, most: int) -> Longs:
    """Distinct constants, in order; if they are too many, those at equal depth."""
    distinct = np.unique(constants)
    if distinct.size <= most:
        return distinct
    constants = np.sort(constants)
    return np.unique(constants[np.linspace(0, constants.size - 1, most).astype(np.int64)])


def _place_strings(codes: StringCodes, strings: list[str], *ends: Longs) -> Any:
    """A function from string positions to cells; a string that is not a cut lies in a gap, with all its sides."""
    bounded = [e[(e != KEY_MIN) & (e != KEY_MAX)] >> 2 for e in ends]
    used = np.unique(np.concatenate(bounded))
    cells = codes.encode(pa.array([strings[i] for i in used.tolist()], pa.string()))

    def place(positions: Longs) -> Ints:
        if not used.size:
            return np.zeros(positions.size, np.int32)
        cell = cells[np.minimum(np.searchsorted(used, positions >> 2), used.size - 1)]
        return np.where(cell % 2 == 0, cell + ((positions & 3) - AT), cell).astype(np.int32)

    return place


def _estimate_chances(book: Codebook, sample: EventBatch | None) -> list[Floats]:
    """Share of the events in each cell of each axis; an array counts in the cell of each of its elements."""
    out = []
    events = None if sample is None or not len(sample) else book.encode(sample)
    for attr in book.used:
        codes = book.codes[attr]
        assert codes is not None
        even = np.full(codes.width, 1 / codes.width)
        if events is None:
            out.append(even)
            continue
        cells = events.codes[:, attr]
        if (cells < 0).any():
            elements, _ = take_ranges(events.list_ptr, ~cells[cells < 0].astype(np.int64))
            cells = np.concatenate((cells[cells >= 0], events.list_codes[elements]))
        seen = np.bincount(cells, minlength=codes.width) / events.n_events
        out.append(_UNSEEN * even + (1 - _UNSEEN) * seen)
    return out
