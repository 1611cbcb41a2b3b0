"""Typed filters as binary properties: the content space is cut into cells, and cells become properties.

Theory of operation
-------------------
(Kale, Hazan, Cao, Singh 2005, section 4, after definition 3.) The paper reaches the general model by "partitioning the
content space and taking each partition as a binary property". Here the space is the codes of each attribute.

*Cells.* Two codes that no constraint tells apart are in one cell. That is the coarsest partition that loses nothing; a
cell need not be contiguous (the values between the constants of an equality all fall into one).

*Attributes with one code per event.* An event is in exactly one cell, so it sets one property:

- a constraint on one cell is a 1 there;
- a constraint on several cells is a 0 on each of the others: not there, so in one of these. No 1 could say that.

One cell may go without a property, if every constraint on several cells includes it: an event in it sets nothing, and "in
this cell" is a 0 on all the others. The commonest such cell is chosen, because zeros are what RAPIDMatch lives on: of
`p = 0` and `p = 1` it makes one property that is usually 0, and one for "neither", which NULL must have.

*Attributes with several codes per event* (arrays), and those of which it is not known (no events were shown). A
constraint asks for any element in a set, and no conjunction over cells says that for a set of several. So each distinct
constraint is a partition of its own, and a 1. These overlap: an event may set several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from wherecast.errors import MatcherError
from wherecast.index.bounds import StoredArrays
from wherecast.index.boxes import Boxes, EventCodes
from wherecast.kernels.arrays import Bools, Ints, Longs, Words
from wherecast.kernels.jit import frozen
from wherecast.papers.rapidmatch.kernels.partition import join_tests, set_properties

#: A tree has a level per property and a subscription a row of two bits per property.
MOST_PROPERTIES = 2048


class MisfitError(MatcherError):
    """A constraint that is not a conjunction of the properties of a partition."""


class DistinctConstraints(NamedTuple):
    """The constraints of boxes, equal ones with one number.

    An interval that is open to the right ends at its attribute's width, a code that no event has; one that begins there
    never holds.
    """

    owner: Longs  # (constraints,) clause
    number: Longs  # (constraints,) 0 .. distinct - 1
    attribute: Longs  # (distinct,)
    first: Longs  # (distinct,) rows of an example: first .. first + size - 1
    size: Longs  # (distinct,)
    lo: Longs  # (rows,)
    hi: Longs  # (rows,)

    @classmethod
    def of(cls, boxes: Boxes) -> Self:
        """Number constraints by their first interval, then by that number and the next interval, and so on."""
        row_attribute = np.where(boxes.attr < 0, ~boxes.attr, boxes.attr).astype(np.int64)
        width = boxes.widths.astype(np.int64)[row_attribute]
        lo, hi = np.minimum(boxes.lo, width), np.where(boxes.hi >= width - 1, width, boxes.hi)
        end = np.flatnonzero(boxes.attr >= 0) + 1
        first = np.concatenate(([0], end))[:-1]
        size = end - first
        interval = np.unique(lo << 32 | hi, return_inverse=True)[1]
        number = np.unique(row_attribute[first] << 32 | interval[first], return_inverse=True)[1]
        for step in range(1, int(size.max(initial=1))):
            more = np.flatnonzero(size > step)
            longer = np.unique(number[more] << 32 | interval[first[more] + step], return_inverse=True)[1]
            number[more] = longer + number.max() + 1
        _, example, number = np.unique(number, return_index=True, return_inverse=True)
        owner = np.searchsorted(boxes.ptr, first, side="right") - 1
        return cls(owner, number, row_attribute[first[example]], first[example], size[example], lo, hi)

    def repeated(self) -> Longs:
        """The attributes that some clause constrains more than once: arrays."""
        attribute = self.attribute[self.number]
        again = (np.diff(self.owner) == 0) & (np.diff(attribute) == 0)
        return np.unique(attribute[1:][again])

    def of_attribute(self, attribute: int) -> tuple[Longs, Longs, Longs]:
        """The distinct ones on an attribute as rows: the constraint of each row counted from 0, low and high end."""
        mine = np.flatnonzero(self.attribute == attribute)
        size = self.size[mine]
        which = np.repeat(np.arange(mine.size), size)
        rows = np.repeat(self.first[mine] - (np.cumsum(size) - size), size) + np.arange(which.size)
        return which, self.lo[rows], self.hi[rows]


class CodePartition(NamedTuple):
    """Cells and properties of all attributes; see `kernels.partition` for the layout."""

    seg_ptr: Longs  # (attributes + 1,)
    seg_start: Ints  # (segments,) first code; ascending per attribute from 0
    seg_cell: Ints  # (segments,)
    cell_masks: Words  # (cells, words) properties that a code in the cell sets
    cell_property: Ints  # (cells,) of an attribute with one code: the property, or -1; of others -1
    widths: Ints  # (attributes,) the last code, which no event has
    single: Bools  # (attributes,) one code per event
    n_properties: Ints  # (1,)

    @property
    def k(self) -> int:
        """Number of properties, at least one."""
        return int(self.n_properties[0])

    def count_ones(self) -> tuple[int, int]:
        """The least and the most properties that an event can set."""
        least = most = 0
        for a, single in enumerate(self.single.tolist()):
            cells = self._cells(a)
            if cells.size > 1 and single:
                most += 1
                least += int((self.cell_property[cells] >= 0).all())
            elif cells.size > 1:
                most += int(np.bitwise_count(np.bitwise_or.reduce(self.cell_masks[cells])).sum())
        return least, most

    def _cells(self, attribute: int) -> Ints:
        return np.unique(self.seg_cell[self.seg_ptr[attribute] : self.seg_ptr[attribute + 1]])

    def convert_events(self, events: EventCodes) -> Words:
        """The properties of events. Raises MatcherError where an array comes unexpected."""
        bits = np.zeros((events.n_events, self.cell_masks.shape[1]), np.uint64)
        attribute = set_properties(
            events.codes, events.list_ptr, events.list_codes,
            self.seg_ptr, self.seg_start, self.seg_cell, self.cell_masks, self.single, bits,
        )  # fmt: skip
        if attribute >= 0:
            raise MatcherError(
                f"attribute {attribute} has an array, but the events shown to RAPIDMatch had single values there; "
                "build it with a sample of events as they are"
            )
        return bits

    def convert_boxes(self, boxes: Boxes, constraints: DistinctConstraints) -> Words:
        """Rows of clauses (see `kernels.binary`). Raises MisfitError if these properties cannot say a constraint."""
        tests = np.zeros((constraints.attribute.size, 2 * self.cell_masks.shape[1]), np.uint64)
        for a in np.unique(constraints.attribute).tolist():
            held = self._held_cells(a, *constraints.of_attribute(a))
            tests[constraints.attribute == a] = (
                self._ask_for_cells(a, held) if self.single[a] else self._ask_for_sets(a, held)
            )
        rows = np.zeros((boxes.n_clauses, tests.shape[1]), np.uint64)
        join_tests(constraints.owner, constraints.number, tests, rows)
        return rows

    def _held_cells(self, attribute: int, which: Longs, lo: Longs, hi: Longs) -> Bools:
        """(constraints, cells of the attribute): the cells that make up each constraint."""
        start = self.seg_start[self.seg_ptr[attribute] : self.seg_ptr[attribute + 1]]
        cell = self.seg_cell[self.seg_ptr[attribute] : self.seg_ptr[attribute + 1]]
        cell = cell - cell.min()
        first, last = np.searchsorted(start, lo, side="right") - 1, np.searchsorted(start, hi, side="right") - 1
        cut = (start[first] != lo) | (np.append(start[1:], self.widths[attribute] + 1)[last] != hi + 1)
        inside = _cover(which, first, last + 1, start.size)
        held = np.zeros((len(inside), cell.max() + 1), bool)
        np.logical_or.at(held.T, cell, inside.T)
        if cut.any() or not np.array_equal(held[:, cell], inside):
            raise MisfitError(
                f"attribute {attribute}: a constraint ends inside a cell of the partition; give a finer one"
            )
        return held

    def _ask_for_cells(self, attribute: int, held: Bools) -> Words:
        """A 1 on the only cell of a constraint, or a 0 on all that are outside."""
        cells = self._cells(attribute)
        nameless = self.cell_property[cells] < 0
        one = (held.sum(axis=1) == 1) & ~nameless[held.argmax(axis=1)]
        if (~held[~one][:, nameless]).any():
            raise MisfitError(
                f"attribute {attribute}: a constraint on several cells leaves out the one without property"
            )
        tested = np.where(one[:, None], held, ~held)
        masks = self.cell_masks[cells]
        return np.concatenate([_join_masks(tested, masks), _join_masks(tested & one[:, None], masks)], axis=1)

    def _ask_for_sets(self, attribute: int, held: Bools) -> Words:
        """A 1 on the property that these cells set and no others; nothing where any code will do."""
        masks = self.cell_masks[self._cells(attribute)]
        sets = np.unpackbits(masks.astype("<u8").view(np.uint8), axis=1, bitorder="little").astype(bool)
        by_cells = {sets[:, p].tobytes(): p for p in np.flatnonzero(sets.any(axis=0)).tolist()}
        closed = np.flatnonzero(~held.all(axis=1))
        asked = np.array([by_cells.get(row.tobytes(), -1) for row in held[closed]], np.int64)
        if (asked < 0).any():
            raise MisfitError(
                f"attribute {attribute}: no conjunction of 0, 1 and * over the cells of the partition says that an array "
                "has an element in one of several; give each set that is asked for, or no partition"
            )
        ones = np.zeros((len(held), masks.shape[1]), np.uint64)
        ones[closed, asked >> 6] = np.uint64(1) << (asked & 63).astype(np.uint64)
        return np.concatenate([ones, ones], axis=1)


def check_partition(stored: StoredArrays, widths: Ints) -> int:
    """That a stored partition puts every code into a cell, and cells set properties that there are; how many there are."""
    same = np.array_equal(stored.column("partition_widths", np.int32), widths)
    stored.require(same, "partition_widths", "is not that of the codes")
    k = int(stored.column("partition_n_properties", np.int32, size=1)[0])
    stored.require(1 <= k <= MOST_PROPERTIES, "partition_n_properties", f"has {k} properties")
    ptr, start = stored.column("partition_seg_ptr", np.int64), stored.column("partition_seg_start", np.int32)
    stored.offsets(ptr, start.size, "partition_seg_ptr")
    of_all = ptr.size == widths.size + 1 and (ptr[1:] > ptr[:-1]).all()
    stored.require(of_all, "partition_seg_ptr", "leaves out an attribute")
    cell = stored.column("partition_seg_cell", np.int32, size=start.size)
    masks = stored.table("partition_cell_masks", np.uint64, k // 64 + 1)
    stored.within(cell, 0, len(masks), "partition_seg_cell")
    stored.within(stored.column("partition_cell_property", np.int32, size=len(masks)), -1, k, "partition_cell_property")
    stored.column("partition_single", np.bool_, size=widths.size)
    return k


def make_partition(boxes: Boxes, constraints: DistinctConstraints, sample: EventCodes | None) -> CodePartition:
    """The coarsest partition that these constraints allow. Raises MatcherError if it has too many properties."""
    single = np.zeros(boxes.n_attributes, bool)
    if sample is not None and sample.n_events:
        single[:] = (sample.codes >= 0).all(axis=0)
        single[constraints.repeated()] = False
    parts = []
    for a in range(boxes.n_attributes):
        start, cell, held = _merge_segments(*constraints.of_attribute(a), int(boxes.widths[a]))
        if single[a] and sample is not None:
            parts.append(_Part(start, cell, _choose_properties(start, cell, held, sample.codes[:, a])))
        else:
            parts.append(_Part(start, cell, held[~held.all(axis=1)]))
    return _lay_out(parts, boxes.widths, single)


def cut_partition(boxes: Boxes, cuts: Sequence[Any], sample: EventCodes | None) -> CodePartition:
    """The partition whose cells begin at given codes, one list per attribute; every cell is a property."""
    if len(cuts) != boxes.n_attributes:
        raise MatcherError(
            f"a partition needs a list of codes for each of {boxes.n_attributes} attributes, not {len(cuts)}"
        )
    single = np.ones(boxes.n_attributes, bool)
    if sample is not None and sample.n_events:
        single[:] = (sample.codes >= 0).all(axis=0)
    single[DistinctConstraints.of(boxes).repeated()] = False
    parts = []
    for codes in cuts:
        start = np.unique(np.append(np.asarray(codes, np.int64), 0).clip(0))
        n = start.size
        parts.append(_Part(start, np.arange(n), np.eye(n, dtype=bool) if n > 1 else np.zeros((0, 1), bool)))
    return _lay_out(parts, boxes.widths, single)


class _Part(NamedTuple):
    """One attribute of a partition: segments, their cells, and the cells that set each property."""

    start: Longs
    cell: Longs
    properties: Bools  # (properties, cells)


def _merge_segments(which: Longs, lo: Longs, hi: Longs, width: int) -> tuple[Longs, Longs, Bools]:
    """Segments between the ends of intervals, their cells, and the cells of each constraint.

    Two segments are in one cell if the same constraints hold there: if the sums of these constraints' random numbers
    agree. (`convert_boxes` checks each constraint against the cells, so a coincidence would be noticed.)
    """
    start = np.unique(np.concatenate(([0], lo, hi[hi < width] + 1)))
    n = int(which.max(initial=-1)) + 1
    weight = np.random.default_rng(n).integers(0, 2**64, n, dtype=np.uint64)
    total = np.zeros(start.size + 1, np.uint64)
    first, end = np.searchsorted(start, lo), np.searchsorted(start, hi + 1)
    np.add.at(total, first, weight[which])
    np.subtract.at(total, end, weight[which])
    _, example, cell = np.unique(np.cumsum(total)[:-1], return_index=True, return_inverse=True)
    if n * start.size > 16 * MOST_PROPERTIES**2:
        raise _too_many(max(n, example.size))
    return start, cell, _cover(which, first, end, start.size)[:, example]


def _choose_properties(start: Longs, cell: Longs, held: Bools, codes: Ints) -> Bools:
    """A property for every cell, except the commonest of those that all constraints on several cells include."""
    n = held.shape[1]
    several = held[held.sum(axis=1) > 1]
    seen = np.bincount(cell[np.searchsorted(start, codes, side="right") - 1], minlength=n)
    seen[~several.all(axis=0)] = -1
    spared = int(seen.argmax()) if seen.max() >= 0 else -1
    return np.asarray(np.eye(n, dtype=bool)[np.arange(n) != spared])


def _lay_out(parts: list[_Part], widths: Ints, single: Bools) -> CodePartition:
    k = sum(len(p.properties) for p in parts)
    if k > MOST_PROPERTIES:
        raise _too_many(k)
    seg_ptr = np.cumsum([0, *(p.start.size for p in parts)])
    n_cells = [p.properties.shape[1] for p in parts]
    cell_base, property_base = np.cumsum([0, *n_cells]), np.cumsum([0, *(len(p.properties) for p in parts)])
    sets = np.zeros((sum(n_cells), 64 * (k // 64 + 1)), bool)
    cell_property = np.full(sum(n_cells), -1, np.int32)
    for a, part in enumerate(parts):
        number, cell = np.nonzero(part.properties)
        sets[cell_base[a] + cell, property_base[a] + number] = True
        if single[a]:
            cell_property[cell_base[a] + cell] = property_base[a] + number
    masks = np.packbits(sets, axis=1, bitorder="little").view("<u8").astype(np.uint64, copy=False)
    start = np.concatenate([np.zeros(0, np.int64), *(p.start for p in parts)]).astype(np.int32)
    seg_cell = np.concatenate([np.zeros(0, np.int64), *(p.cell + b for p, b in zip(parts, cell_base, strict=False))])
    n_properties = np.array([max(k, 1)], np.int32)
    fields = seg_ptr, start, seg_cell.astype(np.int32), masks, cell_property, widths, single, n_properties
    return CodePartition(*(frozen(field) for field in fields))


def _too_many(k: int) -> MatcherError:
    return MatcherError(
        f"RAPIDMatch needs a partition of the content space into at most {MOST_PROPERTIES} properties, and these filters "
        f"need {k}; use the adaptive matcher, or one that looks values up (counting, tree)"
    )


def _cover(which: Longs, first: Longs, end: Longs, n: int) -> Bools:
    """(constraints, segments): which segments the intervals first .. end - 1 of each constraint cover."""
    change = np.zeros((int(which.max(initial=-1)) + 1, n + 1), np.int8)
    np.add.at(change, (which, first), 1)
    np.add.at(change, (which, end), -1)
    return np.asarray(np.cumsum(change, axis=1, dtype=np.int8)[:, :-1] > 0)


def _join_masks(chosen: Bools, masks: Words) -> Words:
    """For each row, the masks of its chosen cells, joined."""
    joined = np.zeros((len(chosen), masks.shape[1]), np.uint64)
    for cell in range(chosen.shape[1]):
        joined[chosen[:, cell]] |= masks[cell]
    return joined
