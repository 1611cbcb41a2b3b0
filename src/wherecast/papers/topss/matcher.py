"""The counting algorithm of TOPSS (sections 2 and 3): count each clause's satisfied predicates.

Theory of operation
-------------------
Naively, every predicate of every clause is evaluated. Here each distinct predicate is evaluated once, whoever has it:

1. *Predicates.* An index (`predicate_index`: ordered lists, or tables over the domain) finds those that hold and marks them
   in the predicate bit vector.
2. *Counting.* Each clause that has a marked predicate gets a hit, through the association from predicates to clauses
   (`association`: lists, bits or bytes).
3. *Comparing.* A clause holds if its hits equal its number of predicates. One without predicates always holds.

Clauses and predicates are inserted, removed and updated in place; their numbers are used again. The count vector is as
wide as the clause with most predicates needs (the paper: one byte), and its highest value marks numbers that are free.

The stored form (`arrays`) is the clauses, not the structures: loading a million of them takes about a second, and no
offset is taken from a file.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from wherecast.errors import MatcherError
from wherecast.index.bounds import StoredArrays
from wherecast.index.boxes import FAR, Boxes, EventCodes
from wherecast.index.packed import PackedBoxes, check_rows
from wherecast.kernels.arrays import Ints, Longs, Numbers, Words
from wherecast.kernels.rows import Rows
from wherecast.language.sequences import take_ranges
from wherecast.matchers.protocol import Arrays, Hits, Matcher
from wherecast.papers.topss.association import Association, BitMatrix, ByteMatrix, ListAssociation
from wherecast.papers.topss.kernels.counting import tally_predicates
from wherecast.papers.topss.lists import grown, offsets
from wherecast.papers.topss.predicate_index import ListIndex, PredicateIndex, TableIndex
from wherecast.papers.topss.predicates import ConstraintRows, Predicates

#: Predicate bit vectors made at a time, in bytes: they should stay in the cache between the stages.
_MARKED_BYTES = 1 << 20


class CountingTally(NamedTuple):
    """What matching costs in operations, per event."""

    satisfied: Longs  # (events,) predicates that hold
    updates: Longs  # (events,) hits given to clauses
    entries: Longs  # (events,) entries of the association read for that: ids, words of bits, or bytes


class CountingMatcher(Matcher):
    """Counting with ordered lists of predicates and lists of clauses."""

    name: ClassVar[str] = "counting"
    index_type: ClassVar[type[PredicateIndex]] = ListIndex
    association_type: ClassVar[type[Association]] = ListAssociation

    def __init__(self, widths: Ints) -> None:
        self._widths = widths
        self._predicates = Predicates()
        self._index = self.index_type(widths)
        self._association = self.association_type()
        self._n_numbers = 0  # clause numbers ever given
        self._free = np.zeros(0, np.int32)  # those of removed clauses
        self._needed: Numbers = np.zeros(0, np.uint8)  # (numbers,) predicates of each clause; the highest value: none

    @classmethod
    def build(
        cls,
        boxes: Boxes,
        sample: EventCodes | None = None,  # noqa: ARG003  # counting needs no statistics
        weights: Ints | None = None,  # noqa: ARG003
    ) -> Self:
        matcher = cls(boxes.widths)
        matcher.insert(boxes)
        return matcher

    # -- changing -------------------------------------------------------------------------------------------------

    @property
    def n_clauses(self) -> int:
        """Clauses that are there."""
        return self._n_numbers - self._free.size

    def insert(self, boxes: Boxes) -> Ints:
        """Add clauses; the ids they get, those of removed clauses first.

        Raises MatcherError, and changes nothing, if they do not fit the attributes or the memory.
        """
        recycled = min(boxes.n_clauses, self._free.size)
        end = self._n_numbers + boxes.n_clauses - recycled
        ptr, predicates = self._admit(boxes, end)
        ids = np.concatenate((np.sort(self._free[:recycled]), np.arange(self._n_numbers, end, dtype=np.int32)))
        self._free, self._n_numbers = self._free[recycled:], end
        self._file(ids, ptr, predicates)
        return ids

    def remove(self, clause_ids: Ints) -> None:
        """Take clauses out. Raises MatcherError, and changes nothing, if one of them is not there."""
        ids = self._check(clause_ids)
        self._unfile(ids)
        self._free = np.concatenate((self._free, ids))

    def update(self, clause_ids: Ints, boxes: Boxes) -> None:
        """Replace clauses, which keep their ids. Raises MatcherError, and changes nothing, as `insert` and `remove`."""
        ids = self._check(clause_ids)
        if ids.size != boxes.n_clauses:
            raise MatcherError(f"{boxes.n_clauses} clauses cannot replace {ids.size}; give one for each id")
        ptr, predicates = self._admit(boxes, self._n_numbers)
        self._unfile(ids)
        rows, ptr = take_ranges(ptr, np.argsort(clause_ids))
        self._file(ids, ptr, predicates[rows])

    def _check(self, clause_ids: Ints) -> Ints:
        """The ids in order, if each is there and named once."""
        ids = np.sort(np.asarray(clause_ids, np.int32))
        known = (ids >= 0) & (ids < self._n_numbers)
        missing = ids[~known | (self._needed[np.where(known, ids, 0)] == _none(self._needed))] if ids.size else ids
        if missing.size:
            raise MatcherError(f"there is no clause {int(missing[0])}; nothing was changed")
        if (ids[1:] == ids[:-1]).any():
            raise MatcherError(f"clause {int(ids[1:][ids[1:] == ids[:-1]][0])} is named twice; nothing was changed")
        return ids

    def _admit(self, boxes: Boxes, n_numbers: int) -> tuple[Longs, Ints]:
        """Number the predicates of clauses and make room for n_numbers clauses; (ptr, predicates) by clause."""
        constraints, ptr = self._read_constraints(boxes)
        predicates = self._predicates.keep_distinct(ptr, self._predicates.intern(constraints))
        fresh = self._predicates.use(predicates)
        try:
            self._association.reserve(int(predicates.max(initial=-1)) + 1, n_numbers)
        except MatcherError:
            self._predicates.drop(self._predicates.leave(predicates))
            raise
        self._index.insert(self._predicates, fresh)
        return ptr, predicates

    def _read_constraints(self, boxes: Boxes) -> tuple[ConstraintRows, Longs]:
        """The constraints of all clauses and, by clause, where they start."""
        if not np.array_equal(boxes.widths, self._widths):
            raise MatcherError("the clauses are over other attributes or codes than the matcher; build a new one")
        is_last = boxes.attr >= 0
        attr = np.where(is_last, boxes.attr, ~boxes.attr).astype(np.int32)
        last_code = self._widths[attr] - 1
        if (boxes.lo > last_code).any():
            row = int(np.argmax(boxes.lo > last_code))
            raise MatcherError(
                f"row {row} of the boxes starts at code {boxes.lo[row]} of attribute {attr[row]}, whose last is "
                f"{last_code[row]}; code filters and events with one codebook"
            )
        hi = np.where(boxes.hi >= last_code, FAR, boxes.hi)
        before = offsets(is_last)
        ptr = np.concatenate((np.zeros(1, np.int64), np.flatnonzero(is_last) + 1))
        return ConstraintRows(ptr, attr, boxes.lo, hi), before[boxes.ptr]

    def _file(self, ids: Ints, ptr: Longs, predicates: Ints) -> None:
        """Put admitted clauses under ids, ascending, that are free."""
        sizes = np.diff(ptr)
        self._widen(int(sizes.max(initial=0)))
        self._needed = grown(self._needed, self._n_numbers, _none(self._needed))
        self._association.insert(ids, ptr, predicates)
        self._needed[ids] = sizes

    def _unfile(self, ids: Ints) -> None:
        ptr, predicates = self._association.read(ids, self._needed)
        self._association.remove(ids, ptr, predicates)
        unused = self._predicates.leave(predicates)
        self._index.remove(self._predicates, unused)
        self._predicates.drop(unused)
        self._needed[ids] = _none(self._needed)

    def _widen(self, largest: int) -> None:
        """Let the count vector hold `largest`, and one value more for numbers that are free."""
        dtype = np.min_scalar_type(largest + 1)
        if dtype.itemsize > self._needed.itemsize:
            free = self._needed == _none(self._needed)
            self._needed = self._needed.astype(dtype)
            self._needed[free] = _none(self._needed)

    # -- matching -------------------------------------------------------------------------------------------------

    def match(self, events: EventCodes) -> Hits:
        counts = np.zeros(events.n_events, np.int64)
        hits = np.zeros(-(-self._n_numbers // 64) * 64, self._needed.dtype)
        pieces: list[Ints] = []
        for first, part in self._parts(events):
            bits = self.mark(part)
            pieces += self._count(bits, hits, counts[first : first + part.n_events])
        ids = pieces[0] if len(pieces) == 1 else np.concatenate([np.zeros(0, np.int32), *pieces])
        return Hits(offsets(counts), ids)

    def _count(self, bits: Words, hits: Numbers, counts: Longs) -> list[Ints]:
        """Clauses of some events; when the output is full, counting goes on in a further piece."""
        pieces, start, n = [], 0, self._n_numbers
        while start < counts.size:
            expected = int(1.1 * counts[:start].mean() * (counts.size - start)) if start else n
            out = np.empty(expected + n + 1, np.int32)
            stop = self._association.count(bits, self._needed, n, hits, start, out, counts)
            pieces.append(out[: counts[start:stop].sum()])
            start = stop
        return pieces

    def _parts(self, events: EventCodes) -> list[tuple[int, EventCodes]]:
        """The events in parts whose bit vectors are of bounded size, each with the number of its first."""
        codes = np.ascontiguousarray(events.codes, np.int32)
        step = max(1, _MARKED_BYTES // (8 * self._n_words))
        starts = range(0, len(codes), step)
        return [(i, EventCodes(codes[i : i + step], events.list_ptr, events.list_codes)) for i in starts]

    @property
    def _n_words(self) -> int:
        return self._predicates.n_numbers // 64 + 1

    def mark(self, events: EventCodes) -> Words:
        """The predicate bit vector of each event: bit p % 64 of word p // 64 says that predicate p holds."""
        bits = np.zeros((events.n_events, self._n_words), np.uint64)
        self._index.mark(events, bits)
        return bits

    # -- storing --------------------------------------------------------------------------------------------------

    def arrays(self) -> Arrays:
        """The clauses that are there, their ids, and the widths of the attributes."""
        ids = np.flatnonzero(self._needed[: self._n_numbers] != _none(self._needed)).astype(np.int32)
        ptr, predicates = self._association.read(ids, self._needed)
        owner = np.repeat(np.arange(ids.size), np.diff(ptr))
        predicates = predicates[np.lexsort((self._predicates.attr[predicates], owner))]
        row_ptr, lo, hi = self._predicates.intervals(predicates)
        attr = np.repeat(~self._predicates.attr[predicates], np.diff(row_ptr)).astype(np.int16)
        attr[row_ptr[1:] - 1] = ~attr[row_ptr[1:] - 1]
        return {"ids": ids, "ptr": row_ptr[ptr], "attr": attr, "lo": lo, "hi": hi, "widths": self._widths}

    @classmethod
    def check(cls, arrays: Arrays, boxes: PackedBoxes, weights: Ints | None) -> None:  # noqa: ARG003
        stored = StoredArrays(arrays, f"matcher {cls.name!r}")
        ids = stored.column("ids", np.int32)
        stored.within(ids, 0, boxes.n_clauses, "ids")
        stored.require((ids[1:] > ids[:-1]).all(), "ids", "does not climb")
        ptr, attr = stored.column("ptr", np.int64, size=ids.size + 1), stored.column("attr", np.int16)
        lo, hi = stored.column("lo", np.int32), stored.column("hi", np.int32, size=attr.size)
        widths = stored.column("widths", np.int32)
        stored.require(np.array_equal(widths, boxes.widths), "widths", "is not that of the codes")
        check_rows(stored, Rows(ptr, np.zeros(0, np.uint8), attr, lo, hi), widths)

    @classmethod
    def from_arrays(cls, arrays: Arrays, boxes: PackedBoxes | None = None) -> Self:  # noqa: ARG003 - it keeps its own
        """Load the clauses again, under their ids."""
        ids = np.array(arrays["ids"], np.int32)
        stored: dict[str, Any] = {name: np.array(arrays[name]) for name in ("ptr", "attr", "lo", "hi", "widths")}
        clauses = Boxes(filter_ids=ids, residuals=np.full(ids.size, -1, np.int32), n_filters=ids.size, **stored)
        matcher = cls(clauses.widths)
        end = int(ids[-1]) + 1 if ids.size else 0
        admitted = matcher._admit(clauses, end)
        matcher._n_numbers = end
        matcher._free = np.setdiff1d(np.arange(end, dtype=np.int32), ids, assume_unique=True)
        matcher._file(ids, *admitted)
        return matcher

    # -- telling --------------------------------------------------------------------------------------------------

    def tally(self, events: EventCodes) -> CountingTally:
        """The operations that matching these events takes."""
        satisfied, updates = np.zeros((2, events.n_events), np.int64)
        for first, part in self._parts(events):
            span = slice(first, first + part.n_events)
            tally_predicates(self.mark(part), self._predicates.users, satisfied[span], updates[span])
        return CountingTally(satisfied, updates, self._association.entries_read(satisfied, updates, self._n_numbers))

    def stats(self, events: EventCodes | None = None) -> dict[str, Any]:
        """Sizes and memory; with events, also the operations that matching them takes, on average."""
        parts = {
            "predicates": self._predicates.nbytes,
            "index": self._index.nbytes,
            **self._association.nbytes,
            "clauses": self._needed.nbytes + self._free.nbytes,
        }
        facts: dict[str, Any] = {
            "matcher": self.name,
            "clauses": self.n_clauses,
            "predicates": len(self._predicates),
            "associations": int(self._predicates.users.sum(dtype=np.int64)),
            "bytes": sum(parts.values()),
            "parts": parts,
        }
        if events is not None and events.n_events:
            satisfied, updates, entries = (float(x.mean()) for x in self.tally(events))
            facts |= {
                "satisfied_per_event": satisfied,
                "updates_per_event": updates,
                "entries_per_event": entries,
            }
        return facts

    def explain_plan(self) -> str:
        facts = self.stats()
        lines = [
            "{clauses} clauses, {predicates} distinct predicates, {associations} associations, {bytes} bytes".format(
                **facts
            ),
            f"predicates are found by {self.index_type.__name__}, their clauses by {self.association_type.__name__}",
            f"counters of {8 * self._needed.itemsize} bits",
        ]
        return "\n".join([*lines, *(f"  {part}: {size} bytes" for part, size in facts["parts"].items())])


class CountingTableMatcher(CountingMatcher):
    """Counting with predicate tables and lists of clauses: what the paper found best for millions."""

    name = "counting-table"
    index_type = TableIndex


class CountingBitMatcher(CountingMatcher):
    """Counting with ordered lists of predicates and a bit matrix."""

    name = "counting-bit"
    association_type = BitMatrix


class CountingByteMatcher(CountingMatcher):
    """Counting with ordered lists of predicates and a byte matrix."""

    name = "counting-byte"
    association_type = ByteMatrix


def _none(needed: Numbers) -> int:
    """The count that marks a free number: more predicates than any clause has."""
    return int(np.iinfo(needed.dtype).max)
