"""The default matcher: files every clause where the fewest events ask for it, by estimated cost.

Theory of operation
-------------------
Naively, an event is compared with every clause. This matcher departs from that in three ways, each where it pays:

1. *Filing.* A clause is looked at only by events that meet its rarest constraint: a shallow tree of lookups
   (`kernels.descent`), points by their code, ranges by dyadic cells.
2. *Bitmaps.* The clauses that remain are tested 64 at a time: per column and bucket of codes a row of bits, ANDed.
3. *Dense part.* Clauses that no lookup would spare (most of them match, or nothing in them is rare) are bitmaps
   without a tree, matched for all events of a batch while they are in the cache (`kernels.dense`).

Which clause goes where is decided in `adaptive_plan` from chances estimated in `adaptive_conditions`. All state is
flat arrays: `arrays()` and `from_arrays()` are the stored form, and an index opened from mapped files is used as is.
Matching writes nothing but its own results, so threads may share one matcher.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt

from wherecast.errors import SnapshotError
from wherecast.index.bounds import StoredArrays
from wherecast.index.boxes import Boxes, EventCodes
from wherecast.index.packed import PackedBoxes, pack_boxes
from wherecast.index.pages import side_by_side
from wherecast.index.points import EventPoint
from wherecast.kernels.arrays import Bools, Ints, Longs
from wherecast.kernels.arrow import COLUMN_WORDS
from wherecast.kernels.by_leaf import REVISITS, LeafRoom, match_by_leaf
from wherecast.kernels.dense import (
    Planes,
    copy_events,
    count_dense,
    expand_dense,
    fill_planes,
    list_dense,
    weigh_dense,
)
from wherecast.kernels.descent import (
    BLOCK,
    KEPT,
    NO_NULL,
    STORED_FIELDS,
    WAITING,
    LookupTree,
    Projected,
    Scratch,
    descend,
    mark_codes,
    tally_descend,
)
from wherecast.kernels.events import count_single, count_subscriptions
from wherecast.kernels.few import FewRoom, match_few
from wherecast.kernels.guards import LEAST_OWN, SHIFT_BITS
from wherecast.kernels.jit import direct, frozen, plain
from wherecast.kernels.leaves import (
    CHECKED,
    LEAF_WORDS,
    PLACES_PADDING,
    SIZE,
    SLOT_PADDING,
    UNASKED,
    WORDS,
)
from wherecast.kernels.present import MANY_COLUMNS, PADDING
from wherecast.kernels.rows import Points, Rows
from wherecast.kernels.single import Room, match_point
from wherecast.kernels.stored_columns import ROOM_WORDS
from wherecast.matchers.adaptive_check import check_adaptive, read_tree
from wherecast.matchers.adaptive_conditions import count_marks, describe
from wherecast.matchers.adaptive_plan import Costs, TreeBuilder, weigh_words
from wherecast.matchers.projection import Projection, project
from wherecast.matchers.protocol import Arrays, DenseHits, Hits, Matcher, each_once

#: Place of the matches among the numbers of `_tally`.
LEAVES, CANDIDATES, MATCHES = 1, 2, 4


#: Matches that get room before the first is found; what a plan expects comes out of a file.
MOST_EXPECTED = 1 << 27

#: Events that go from stored values to clauses at a time, and codes that they may have in all: of events with few columns more go together. These stay in the cache.
MOST_FEW, FEW_CODES = (512, 2_048), (1 << 15, 1 << 13)

#: Of a piece of a batch that is matched leaf by leaf: visits at least and at most (24 bytes each), events at most, and visits for each leaf between these.
PIECE_VISITS, MOST_VISITS, PIECE_EVENTS, LEAF_VISITS = 1 << 19, 1 << 22, 1 << 14, 16
#: Smaller indexes than this are in the cache anyway.
FAR_BYTES = 1 << 21

#: Codes in lists of one event that get room before the first event.
_LIST_CODES = 64

_NONE_DIED = np.zeros(0, np.int64)
_NO_COLUMNS = frozen(np.zeros(0, np.int32))


class AdaptiveMatcher(Matcher):
    """Matches batches of events against boxes; built once, then read only."""

    name: ClassVar[str] = "adaptive"

    def __init__(
        self,
        columns: Projection,
        tree: LookupTree,
        rows: Rows,
        facts: Longs,
        visits: npt.NDArray[np.float64],
        word_weights: Ints,
    ) -> None:
        self._projection = Projection(*(frozen(array) for array in columns))
        tree = tree._replace(starts=root_starts(tree, columns.attribute.size))
        self._tree = LookupTree(*(frozen(array) for array in tree))
        self._plain = plain(self._tree)  # what kernels are given
        self._rows = plain(Rows(*(frozen(array) for array in rows)))
        self._facts, self._visits, self._word_weights = facts, visits, frozen(word_weights)
        self.n_clauses, first, end, self._stack, replicated = (int(x) for x in facts)
        self._dense = (first, end)
        self._replicated = bool(replicated)
        self._weight_planes: Planes | None = None
        self._grown = bool(tree.nodes[0].any())
        self._largest = int(tree.leaves[:, SIZE].max(initial=0))
        self._n_marks = count_marks(tree.near)
        # Memory of calls that have ended, for single events and for batches; taking and putting back are atomic.
        self._spare: list[tuple[Scratch, Room]] = []
        self._spare_scratch: list[Scratch] = []
        self._spare_few: list[tuple[Scratch, FewRoom]] = []
        self._spare_leaf_rooms: list[LeafRoom] = []

    @classmethod
    def build(
        cls,
        boxes: Boxes,
        sample: EventCodes | None = None,
        weights: Ints | None = None,
        costs: Costs | None = None,
    ) -> Self:
        """Plan and lay out an index.

        `sample` says what events look like (see `adaptive_conditions` without one), `weights` what each clause counts
        for in `weigh`.
        """
        return cls._build(pack_boxes(boxes), sample, weights, costs)

    @classmethod
    def build_sharing(cls, packed: PackedBoxes, sample: EventCodes | None = None, weights: Ints | None = None) -> Self:
        """As `build`; candidates are checked against the boxes that the caller keeps, so that there is one copy."""
        return cls._build(packed, sample, weights, None)

    @classmethod
    def _build(cls, boxes: PackedBoxes, sample: EventCodes | None, weights: Ints | None, costs: Costs | None) -> Self:
        columns, conditions, batch = describe(boxes, sample)
        planner = TreeBuilder(columns, conditions, batch, costs or Costs(), weights)
        del conditions
        planner.grow()
        tree = LookupTree(*side_by_side(planner.finish()))
        tests = np.diff(tree.nodes[:, :2], axis=1).max() + np.diff(tree.nodes[:, 2:], axis=1).max()
        facts = boxes.n_clauses, *planner.dense, (planner.depth + 1) * tests + 8, planner.leaves.slots > boxes.n_clauses
        words = weigh_words(tree, *planner.dense, np.ones(boxes.n_clauses, np.int32) if weights is None else weights)
        given = columns, tree, rows_of(boxes), np.array(facts, np.int64)
        matcher = cls(*given, np.zeros(5), words)
        if sample is None or not sample.n_events:
            return matcher
        return cls(*given, matcher._tally(sample), words)  # what is kept follows from the visits

    def arrays(self) -> Arrays:
        """The whole state but the boxes, by name."""
        parts = {**self._projection._asdict(), **{f"tree_{k}": getattr(self._tree, k) for k in STORED_FIELDS}}
        return {**parts, "facts": self._facts, "visits": self._visits, "word_weights": self._word_weights}

    @classmethod
    def check(cls, arrays: Arrays, boxes: PackedBoxes, weights: Ints | None) -> None:
        check_adaptive(StoredArrays(arrays, f"matcher {cls.name!r}"), boxes, weights)

    @classmethod
    def from_arrays(cls, arrays: Arrays, boxes: PackedBoxes) -> Self:
        """The matcher of these boxes whose `arrays()` these are; nothing is copied."""
        columns = Projection(**{k: arrays[k] for k in Projection._fields})
        tree = read_tree(arrays)
        return cls(columns, tree, rows_of(boxes), arrays["facts"], arrays["visits"], arrays["word_weights"])

    def order(self) -> Longs | None:
        return self._tree.slots[:-SLOT_PADDING].astype(np.int64)

    def renumbered(self, place: Ints, boxes: PackedBoxes) -> Self:
        slots = self._tree.slots.copy()
        slots[:-SLOT_PADDING] = place[slots[:-SLOT_PADDING]]
        arrays = self._projection, self._tree._replace(slots=slots), rows_of(boxes)
        return type(self)(*arrays, self._facts, self._visits, self._word_weights)

    def match(self, events: EventCodes) -> tuple[Longs, Ints]:
        """Clauses that hold, each once per event: `ids[ptr[e]:ptr[e + 1]]` are those of event e."""
        batch = plain(project(self._projection, events))
        scratch = self._borrow(batch)
        ptr, ids = self._descend(batch, events, scratch)
        if not self.has_dense:
            self._give_back(batch, scratch)
            return ptr, ids
        counts = np.diff(ptr)
        dense_counts = np.zeros(counts.size, np.int64)
        count_dense(self._plain, batch, *self._dense, scratch, dense_counts)
        ptr = _offsets(counts + dense_counts)
        cursor = ptr[:-1].copy()
        out = np.empty(ptr[-1], np.int32)
        copy_events(ids, counts, cursor, out)
        list_dense(self._plain, batch, *self._dense, scratch, cursor, ptr[1:], out)
        self._give_back(batch, scratch)
        return ptr, out

    def match_stored(
        self, values: Longs, jobs: Longs, is_open: Bools, n_events: int, n_columns: int
    ) -> tuple[Longs, Ints] | None:
        """`match` in one call, from stored values that are not lists; None if there is a dense part."""
        if not self._grown or self.has_dense or self._goes_by_leaf(n_events):
            return None
        call, given = self._match_few
        try:
            rooms = self._spare_few.pop()
        except IndexError:
            rooms = self._few_room(len(values), n_columns)
        found = self._in_pieces(n_events, partial(call, values, jobs, is_open, *given, *rooms))
        self._spare_few.append(rooms)
        return found

    @cached_property
    def _match_few(self) -> tuple[Any, tuple[Any, ...]]:
        """The kernel from stored values, and its arguments that are always the same."""
        columns = self._projection
        given = (
            (columns.attribute, columns.source_width, columns.table_ptr, columns.table),
            *(_present_columns(columns) if self._tree.starts.size else (_NO_COLUMNS, _NO_COLUMNS)),
            int(_needs_value(self._tree, columns)),
            np.full(1, -1, np.int64),
            self._plain,
            self._rows,
        )
        table, flags = np.zeros((1, 1), np.int64), np.zeros(0, np.bool_)
        examples = *self._few_room(1, 1), 0, table[0], np.zeros(0, np.int32)
        return direct(match_few, table, table, flags, *given, *examples), given

    def _few_room(self, n_attributes: int, n_columns: int) -> tuple[Scratch, FewRoom]:
        """Memory for the events that are matched at a time."""
        widths = n_columns, self._projection.attribute.size
        n = max(BLOCK, *(min(codes // max(*widths, 1), most) for codes, most in zip(FEW_CODES, MOST_FEW, strict=True)))
        codes, projected = (np.empty((n, k), np.int32) for k in widths)
        room = FewRoom(
            np.empty((n_attributes, COLUMN_WORDS), np.int64), codes, projected, np.empty(n, np.bool_), np.empty(n, np.int32),
            np.zeros(n + 1, np.int64), np.zeros(3, np.int64), np.empty(ROOM_WORDS, np.uint64), np.zeros(0, np.uint8),
            np.zeros(2, np.int64), np.zeros(0, np.int32), *_numbers(n_columns), np.empty(n_columns + 1, np.uint64), np.empty((n >> 6) + 1, np.uint64),
        )  # fmt: skip
        return self._scratch(Projected(projected, room.list_ptr, room.list_codes)), plain(room)

    def match_one(self, point: EventPoint) -> int:
        """The clauses that hold for one event, each once, to `point.clauses`; returns their number."""
        call, given = self._match_point
        try:
            scratch, room = self._spare.pop()
        except IndexError:
            scratch, room = self._room(_LIST_CODES)
        n = -1
        while n < 0:
            n = call(*given, scratch, room, (point.codes, point.list_ptr, point.list_codes), point.clauses)
            if n == -1:
                point.grow_clauses()
            elif n < 0:
                scratch, room = self._room(-2 * n)
        self._spare.append((scratch, room))
        return n

    @cached_property
    def _match_point(self) -> tuple[Any, tuple[Any, ...]]:
        """The kernel for one event, and its arguments that are always the same."""
        columns = self._projection
        facts = *self._dense, int(self._grown), int(self._replicated), self._stack
        given = (
            self._plain,
            self._rows,
            (columns.attribute, columns.source_width, columns.table_ptr, columns.table),
            facts,
        )
        codes = np.zeros((1, 1), np.int32), np.zeros(0, np.int64), np.zeros(0, np.int32)
        return direct(match_point, *given, *self._room(1), codes, codes[2]), given

    def _room(self, n_codes: int) -> tuple[Scratch, Room]:
        """Memory for one event with lists of so many codes in all."""
        width = self._projection.attribute.size
        lists = np.zeros(width + 1, np.int64), np.empty(n_codes, np.int32)
        batch = Projected(np.empty((1, width), np.int32), *lists)
        longs = [np.zeros(size, np.int64) for size in (2, 1, 1, 1)]
        return self._scratch(batch), plain(Room(*batch, *longs))

    def gate(self) -> tuple[int, npt.NDArray[np.bool_]] | None:
        """An attribute and, by code, whether an event with that code may match anything; None if all may."""
        first, end, rest, end_rest = self._tree.nodes[0].tolist() if len(self._tree.nodes) else (0, 0, 0, 1)
        column = np.unique(self._tree.tests[first:end, 0])
        if rest < end_rest or self.has_dense or column.size != 1:
            return None
        c = int(column[0])
        table = self._projection.table[self._projection.table_ptr[c] : self._projection.table_ptr[c + 1]]
        codes = table if table.size else np.arange(self._projection.source_width[c], dtype=np.int32)
        marks = np.zeros(codes.size, bool)
        mark_codes(self._tree.tests, self._tree.table, first, end, frozen(codes), marks)
        return int(self._projection.attribute[c]), marks

    def weigh(self, events: EventCodes, ptr: Ints) -> Longs:
        """Sum of the weights of the clauses that hold, per event; clause c weighs ptr[c + 1] - ptr[c].

        The weights must be those that `build` was given.
        """
        (event_ptr, ids), dense = self.match_apart(events)
        totals = np.zeros(event_ptr.size - 1, np.int64)
        count_subscriptions(ptr, count_single(ptr), event_ptr, ids, _NONE_DIED, 0, _NONE_DIED, totals)
        dense.add_weights(ptr, totals)
        return totals

    @property
    def has_dense(self) -> bool:
        return self._dense[0] < self._dense[1]

    def match_apart(self, events: EventCodes) -> tuple[Hits, DenseHits]:
        """The clauses of the tree, and those of the dense part."""
        batch = plain(project(self._projection, events))
        scratch = self._borrow(batch)
        found = self._descend(batch, events, scratch)
        self._give_back(batch, scratch)
        return Hits(*found), _UnlistedHits(self, batch)

    def _add_dense_weights(self, batch: Projected, ptr: Ints, totals: Longs) -> None:
        scratch = self._borrow(batch)
        weigh_dense(self._plain, batch, *self._dense, scratch, self._word_weights, self._planes(ptr), totals)
        self._give_back(batch, scratch)

    def _expand_dense(
        self, batch: Projected, ptr: Ints, values: npt.NDArray[Any], cursor: Longs, ends: Longs, out: npt.NDArray[Any]
    ) -> None:
        scratch = self._borrow(batch)
        n = 64 * LEAF_WORDS + 64
        expand_dense(self._plain, batch, *self._dense, scratch, self._word_weights, np.empty(n, np.int32), ptr, frozen(values),
                     np.empty(n, values.dtype), cursor, ends, out)  # fmt: skip
        self._give_back(batch, scratch)

    def _planes(self, ptr: Ints) -> Planes:
        """The weights of the dense part as `weigh_dense` reads them, made when first asked for."""
        if self._weight_planes is None:
            first, end = self._dense
            given = self._tree.leaves, self._tree.slots, first, end, self._word_weights, np.diff(ptr)
            row_ptr = np.zeros(end - first + 1, np.int64)
            size = fill_planes(*given, plain(Planes(row_ptr, np.zeros(0, np.uint64))), 0)
            planes = plain(Planes(row_ptr, np.zeros(size, np.uint64)))
            fill_planes(*given, planes, 1)
            self._weight_planes = planes
        return self._weight_planes

    def _borrow(self, batch: Projected) -> Scratch:
        """Memory for a call; where there are no lists, that of an earlier one may do."""
        try:
            return self._scratch(batch) if batch[2].size else self._spare_scratch.pop()
        except IndexError:
            return self._scratch(batch)

    def _give_back(self, batch: Projected, scratch: Scratch) -> None:
        """Keep the memory of a call that has ended."""
        if not batch[2].size:
            self._spare_scratch.append(scratch)

    def _scratch(self, batch: Projected) -> Scratch:
        codes, list_ptr, list_codes = batch
        longest = max(list_codes.size, 1)
        if longest > 1 and len(codes) > 1:
            longest = int(np.diff(list_ptr).max(initial=1))
        stack = np.empty(self._stack * longest, np.int32)
        places = np.empty(2 * codes.shape[1] + PLACES_PADDING, np.int64)
        found = np.empty(2 * LEAF_WORDS + 3, np.uint64)
        largest = self._largest
        kept = (
            np.empty(largest + WAITING + UNASKED, np.int32), np.empty(largest + KEPT, np.int32), np.empty((BLOCK, 2), np.int64)
        )  # fmt: skip
        own, met = np.zeros(max(codes.shape[1], LEAST_OWN), np.int32), np.empty(self._n_marks, np.uint64)
        return plain(Scratch(stack, places, found, *kept, own, met, *_numbers(codes.shape[1])))

    def _descend(self, batch: Projected, events: EventCodes, scratch: Scratch) -> tuple[Longs, Ints]:
        """Matches of the tree part."""
        n_events = events.n_events
        if not self._grown or not n_events:
            return np.zeros(n_events + 1, np.int64), np.zeros(0, np.int32)
        # Nothing looks at the types behind `direct`, so they are made sure of here.
        lists = np.ascontiguousarray(events.list_ptr, np.int64), np.ascontiguousarray(events.list_codes, np.int32)
        points = cast("Points", (np.ascontiguousarray(events.codes, np.int32), *lists))
        if self._goes_by_leaf(n_events) and not events.list_codes.size:
            return self._match_by_leaf(batch, points, scratch)
        descend_events, given = self._descend_events
        ptr, ids = self._in_pieces(
            n_events, lambda start, ptr, out: descend_events(*given, batch, points, start, scratch, out, ptr)
        )
        return each_once(Hits(ptr, ids), self.n_clauses) if self._replicated and events.list_codes.size else (ptr, ids)

    def _goes_by_leaf(self, n_events: int) -> bool:
        """Whether so many events are expected to meet the leaves often enough to go leaf by leaf."""
        return n_events >= self._events_by_leaf

    @cached_property
    def _events_by_leaf(self) -> float:
        """The events of a batch from which on it goes leaf by leaf. Never, where events count as lists or go by the columns in which they have values, and where that takes too much memory."""
        tree = self._tree
        is_far = sum(array.nbytes for array in (*tree, *self._rows)) >= FAR_BYTES
        serves = self._grown and is_far and not tree.starts.size and not (tree.near >> SHIFT_BITS).any()
        least = REVISITS * len(tree.leaves)
        return least / max(self._visits.item(LEAVES), 1e-9) if serves and least <= MOST_VISITS else float("inf")

    def _match_by_leaf(self, batch: Projected, points: Points, scratch: Scratch) -> tuple[Longs, Ints]:
        """Matches of the tree part for events without lists."""
        try:
            room = self._spare_leaf_rooms.pop()
        except IndexError:
            room = self._leaf_room(1)

        def match_from(start: int, ptr: Longs, out: Ints) -> int:
            nonlocal room
            stop: int = match_by_leaf(self._plain, self._rows, batch, points, start, scratch, room, out, ptr)
            if stop < 0:
                raise SnapshotError("an event meets more leaves than the index has; the file is damaged, build it anew")
            if stop == start and len(room.found) < len(out):
                room = self._leaf_room(len(out))
            return stop

        found = self._in_pieces(len(batch[0]), match_from)
        self._spare_leaf_rooms.append(room)
        return found

    def _leaf_room(self, n_found: int) -> LeafRoom:
        """Memory for a piece of a batch that goes leaf by leaf, and for so many matches at least."""
        n_leaves = len(self._tree.leaves)
        n_visits = min(max(PIECE_VISITS, LEAF_VISITS * n_leaves), MOST_VISITS)
        # What a plan expects comes out of a file.
        n_events = max(min(int(n_visits / max(self._visits.item(LEAVES), 1)), PIECE_EVENTS), 1)
        expected = min(int(1.2 * n_events * self._visits.item(MATCHES)), MOST_EXPECTED)
        n_found = max(n_found, expected + self._largest + WAITING + UNASKED + 64)
        return LeafRoom(
            np.empty(n_visits, np.int32), np.empty(n_events + 1, np.int64), np.empty(n_visits, np.int32), np.empty(n_leaves + 1, np.int64),
            np.empty((n_visits, 4), np.int32), np.empty(n_found, np.int32), np.empty((n_events, max(self._projection.attribute.size, LEAST_OWN)), np.int32),
        )  # fmt: skip

    def _in_pieces(self, n_events: int, match_from: Callable[[int, Longs, Ints], int]) -> tuple[Longs, Ints]:
        """Matches by a kernel that says the first event that did not fit: it goes on from there in a further piece."""
        ptr = np.empty(n_events + 1, np.int64)
        ptr[0] = 0
        least = 64 * (LEAF_WORDS + 1)
        pieces, start, size = [], 0, least + min(int(self._room_per_event * n_events), MOST_EXPECTED)
        while start < n_events:
            out = np.empty(size, np.int32)
            stop = match_from(start, ptr, out)
            if start == 0 and stop == n_events:  # nearly always
                return ptr, out[: ptr.item(stop)]
            pieces.append(out[: ptr.item(stop) - ptr.item(start)])
            if stop == start:
                size *= 4
            elif stop < n_events:
                size = max(size, int(1.1 * ptr[stop] / stop * (n_events - stop)) + least)
            start = stop
        return ptr, pieces[0] if len(pieces) == 1 else np.concatenate([np.zeros(0, np.int32), *pieces])

    @cached_property
    def _room_per_event(self) -> float:
        return 1.2 * self._visits.item(MATCHES)

    @cached_property
    def _descend_events(self) -> tuple[Any, tuple[Any, ...]]:
        """The kernel for a batch, and its arguments that are always the same."""
        given = self._plain, self._rows
        batch = np.zeros((1, 1), np.int32), np.zeros(1, np.int64), np.zeros(0, np.int32)
        return direct(descend, *given, batch, batch, 0, self._scratch(Projected(*batch)), batch[2], batch[1]), given

    def candidates(self, events: EventCodes | None) -> float:
        """Clauses an event is compared with, on average: of these events, or as planned."""
        visits = self._visits if events is None else self._tally(events)
        return float(visits[CANDIDATES])

    def stats(self, events: EventCodes | None = None) -> dict[str, Any]:
        """Size and shape of the index, and what an event costs: measured on `events`, else on the sample of `build`.

        `bytes` leaves out the boxes, which an engine keeps anyway. `candidates_per_event` are slots that an event's leaves hold, `checked_per_event` those tested one by one.
        """
        tree, sizes = self._tree, self._tree.leaves[:, SIZE]
        visits = self._visits if events is None else self._tally(events)
        parts = {k: int(v.nbytes) for k, v in self.arrays().items()}
        names = "nodes_per_event", "leaves_per_event", "candidates_per_event", "checked_per_event"
        return {
            "clauses": self.n_clauses,
            "slots": int(sizes.sum()),
            "nodes": len(tree.nodes),
            "tests": len(tree.tests),
            "leaves": len(tree.leaves),
            "row_leaves": int((tree.leaves[:, WORDS] == 0).sum()),
            "dense_clauses": int(sizes[slice(*self._dense)].sum()),
            **dict(zip(names, visits.tolist(), strict=False)),
            "bytes": sum(parts.values()),
            "parts": parts,
        }

    def explain_plan(self) -> str:
        """The plan in a few lines: the parts, the root's tests, what an event visits."""
        tree, facts = self._tree, self.stats()
        n_dense = self._dense[1] - self._dense[0]
        sizes = f"{facts['nodes']} nodes, {facts['tests']} tests, {facts['leaves'] - n_dense} leaves"
        visits = "an event visits {nodes_per_event:.1f} nodes and {leaves_per_event:.1f} leaves"
        checks = "{candidates_per_event:.1f} candidates, {checked_per_event:.1f} of them checked one by one"
        lines = [
            f"{facts['clauses']} clauses in {facts['slots']} slots, {facts['bytes']} bytes",
            f"dense part: {facts['dense_clauses']} clauses in {n_dense} bitmap leaves",
            f"tree: {sizes} ({facts['row_leaves']} without bitmaps)",
            f"{visits} with {checks}".format(**facts),
            "the root looks up:",
        ]
        first, end = tree.nodes[0, :2].tolist() if len(tree.nodes) else (0, 0)
        for column, shift, _, size, _ in tree.tests[first : min(end, first + 40)].tolist():
            kind = f"table of {size}" if size > 0 else f"hash of {-size}"
            cell = "single codes" if shift & 31 == 0 else f"cells of {1 << (shift & 31)} codes"
            lines.append(f"  attribute {self._projection.attribute[column]} (column {column}) by {cell}, {kind}")
        if end - first > 40:
            lines.append(f"  and {end - first - 40} more")
        elif end == first:
            lines.append("  nothing (no column is worth a lookup)")
        return "\n".join(lines)

    def _tally(self, events: EventCodes) -> npt.NDArray[np.float64]:
        """Per event: nodes, leaves, slots of those leaves, slots checked one by one, matches of the tree."""
        batch = plain(project(self._projection, events))
        totals = np.zeros(5, np.int64)
        dense = self._tree.leaves[slice(*self._dense), SIZE]
        if self._grown:
            scratch = self._scratch(batch)
            tally_descend(self._plain, batch, scratch, totals)
            totals[MATCHES] = self._descend(batch, events, scratch)[0][-1]
        visits: npt.NDArray[np.float64] = totals / max(events.n_events, 1)
        visits += np.array([0, dense.size, dense.sum(), 0, 0])
        return visits


class _UnlistedHits(DenseHits):
    """What holds of the dense part of a matcher: searched for each question, as its bits may take more memory than the index."""

    def __init__(self, matcher: AdaptiveMatcher, batch: Projected) -> None:
        self._matcher, self._batch = matcher, batch

    def add_weights(self, ptr: Ints, totals: Longs) -> None:
        self._matcher._add_dense_weights(self._batch, ptr, totals)  # noqa: SLF001 - a part of it

    def expand(self, ptr: Ints, values: npt.NDArray[Any], cursor: Longs, ends: Longs, out: npt.NDArray[Any]) -> None:
        self._matcher._expand_dense(self._batch, ptr, values, cursor, ends, out)  # noqa: SLF001 - a part of it


def rows_of(boxes: PackedBoxes) -> Rows:
    """What kernels need of packed boxes."""
    return Rows(boxes.ptr, boxes.number, boxes.attr, boxes.lo, boxes.hi)


def _needs_value(tree: LookupTree, columns: Projection) -> bool:
    """Whether an event of which all is NULL, or has no code that a clause asks for, meets nothing."""
    first, end, rest, end_rest = tree.nodes[0].tolist()
    is_needed = tree.leaves[rest:end_rest, CHECKED] >> 1
    of_null = columns.table[columns.table_ptr[:-1][np.diff(columns.table_ptr) > 0]]
    return bool((tree.tests[first:end, 1] >= NO_NULL).all() and is_needed.all() and not of_null.any())


def root_starts(tree: LookupTree, n_columns: int) -> Ints:
    """The first test of the root on each column, from 1 on, 0 where there is none; empty if an event is to ask each test.

    That is so where few columns have tests, where a test takes NULL, where every event has a list, and where tests of a column are not together, as no planner has them.
    """
    first, end = tree.nodes[0, :2].tolist() if len(tree.nodes) else (0, 0)
    tests = tree.tests[first:end]
    starts = np.zeros(n_columns, np.int32)
    begins = np.flatnonzero(np.diff(tests[:, 0], prepend=-1))
    column = tests[begins, 0]
    if column.size < MANY_COLUMNS or (tests[:, 1] < NO_NULL).any() or (tree.near >> SHIFT_BITS).any():
        return starts[:0]
    starts[column] = first + begins + 1
    return starts if np.unique(column).size == column.size else starts[:0]


def _present_columns(columns: Projection) -> tuple[Ints, Ints]:
    """The column of each attribute, -1 for none, and the codes of an event without a value; empty if an attribute has several."""
    attribute = columns.attribute
    if np.unique(attribute).size < attribute.size:
        return _NO_COLUMNS, _NO_COLUMNS
    places = np.full(attribute[-1] + 1, -1, np.int32)
    places[attribute] = np.arange(attribute.size)
    renumbered = np.diff(columns.table_ptr) > 0
    nulls = np.zeros(attribute.size, np.int32)
    nulls[renumbered] = columns.table[columns.table_ptr[:-1][renumbered]]
    return frozen(places), frozen(nulls)


def _numbers(n_columns: int) -> tuple[Ints, Ints]:
    """0, 1, 2, ... and room for a list of columns."""
    return np.arange(n_columns + PADDING, dtype=np.int32), np.empty(n_columns + PADDING, np.int32)


def _offsets(counts: Longs) -> Longs:
    ptr = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=ptr[1:])
    return ptr
