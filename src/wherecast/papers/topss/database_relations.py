"""Clauses and events as relations of integers, and what a statement answers as hits.

A constraint is a predicate of the paper, `attr op val`, over codes: the integers of `index.codes` keep the order of the
values they stand for, so every column is a number and every comparison is the one that the filter asked for. The paper's
four operators say all constraints but three kinds:

- `between`, which needs a second value: two predicates `>` and `<` would do for one value per event, but an array may
  hold one element above the lower end and another below the upper end and none between them;
- several intervals (IN): several rows with one number, and one of them is enough;
- none at all: such a clause asks for `EVERY`, an attribute that every event has.

Events go the same way, one row for each attribute and value, 64 events to a *word*: `bits` says which events of the word
have the value. A statement then settles a predicate for 64 events at a time, by OR and AND where the paper, with one event
per statement, knows only true and false.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.index.boxes import FAR, FIRST_CODE, NULL_CODE, Boxes, EventCodes
from wherecast.kernels.arrays import Ints, Longs
from wherecast.language.sequences import take_ranges
from wherecast.matchers.protocol import Hits

#: Events in a word.
WORD = 64
#: The attribute that every event has, with value 0.
EVERY = -1

_BITS = (np.uint64(1) << np.arange(WORD, dtype=np.uint64)).view(np.int64)

EQUAL, UNEQUAL, BELOW, ABOVE, BETWEEN = range(5)


class PredicateRows(NamedTuple):
    """The relation subs(sid, attr, op, val) of the paper, with a number for each predicate of a subscription."""

    sid: Ints  # (rows,) clause
    part: Ints  # (rows,) predicate of the clause; it holds when one of its rows does
    attr: Ints  # (rows,)
    op: Ints  # (rows,) EQUAL .. BETWEEN
    val: Ints  # (rows,)
    high: Ints  # (rows,) upper end of BETWEEN; 0 for the others

    def constraint_ptr(self) -> Longs:
        """Rows `ptr[i]` .. `ptr[i + 1] - 1` are those of constraint i; rows of one constraint stand together."""
        fresh = np.ones(self.sid.size + 1, bool)
        fresh[1:-1] = (np.diff(self.sid) != 0) | (np.diff(self.part) != 0)
        return np.flatnonzero(fresh)


def predicate_rows(boxes: Boxes, sids: Ints) -> PredicateRows:
    """Clauses as predicates; clause c is given the number `sids[c]`."""
    sizes = np.diff(boxes.ptr)
    is_last = boxes.attr >= 0  # of its constraint
    ended = np.zeros(is_last.size + 1, np.int32)  # constraints before each row
    np.cumsum(is_last, out=ended[1:])
    part = ended[:-1] - np.repeat(ended[boxes.ptr[:-1]], sizes)
    attr = np.where(is_last, boxes.attr, ~boxes.attr).astype(np.int32)
    op, val, high, keep = _compare(boxes.lo, boxes.hi, is_last)
    rows = PredicateRows(np.repeat(sids, sizes), part, attr, op, val, high)
    return _ask_for_every(PredicateRows(*(column[keep] for column in rows)), sids[sizes == 0])


def _compare(lo: Ints, hi: Ints, is_last: npt.NDArray[np.bool_]) -> tuple[Ints, Ints, Ints, npt.NDArray[np.bool_]]:
    """Intervals as operator, value and upper end, and which of them to keep."""
    op = np.select([lo == hi, hi == FAR, lo == FIRST_CODE], [EQUAL, ABOVE, BELOW], BETWEEN).astype(np.int32)
    val = np.select([op == ABOVE, op == BELOW], [lo - 1, hi + 1], lo).astype(np.int32)
    high = np.where(op == BETWEEN, hi, 0).astype(np.int32)
    # All codes below a value and all above it, NULL not among them: one predicate of the paper.
    around = (lo[:-1] == FIRST_CODE) & (hi[:-1] + 2 == lo[1:]) & (hi[1:] == FAR) & ~is_last[:-1]
    pair = np.flatnonzero(around)
    op[pair], val[pair], high[pair] = UNEQUAL, hi[pair] + 1, 0
    keep = np.ones(op.size, bool)
    keep[pair + 1] = False
    return op, val, high, keep


def _ask_for_every(rows: PredicateRows, sids: Ints) -> PredicateRows:
    """Rows of clauses without a constraint, added to the rows of the others."""
    every = {"sid": sids, "attr": EVERY, "op": EQUAL}
    columns = [np.append(a, np.full(sids.size, every.get(name, 0), a.dtype)) for name, a in rows._asdict().items()]
    return PredicateRows(*columns)


class EventRows(NamedTuple):
    """The relation events(word, attr, val, bits): which events of a word have a value."""

    word: Ints
    attr: Ints
    val: Ints
    bits: Longs  # one bit set; rows that differ in nothing else are united by the statement


def event_rows(events: EventCodes, first: int, end: int) -> EventRows:
    """Events `first` to `end - 1`, numbered from 0; one row per value, several for an array."""
    codes = events.codes[first:end]
    event, attr = np.nonzero(codes >= 0)
    array_event, array_attr = np.nonzero(codes < 0)
    chosen = ~codes[array_event, array_attr].astype(np.int64)
    elements, ptr = take_ranges(events.list_ptr, chosen)
    sizes = np.diff(ptr)
    every = np.arange(len(codes))
    event = np.concatenate((event, np.repeat(array_event, sizes), every))
    attr = np.concatenate((attr, np.repeat(array_attr, sizes), np.full(every.size, EVERY)))
    val = np.concatenate((codes[codes >= 0], events.list_codes[elements], np.full(every.size, NULL_CODE, np.int32)))
    return EventRows((event // WORD).astype(np.int32), attr.astype(np.int32), val, _BITS[event % WORD])


def hits_of_words(word: Ints, sid: Ints, bits: Longs, n_events: int) -> Hits:
    """Answers, one row per word and clause, as hits."""
    order = np.argsort(word, kind="stable")
    sid, bits = sid[order], bits[order]
    bounds = np.searchsorted(word[order], np.arange(-(-n_events // WORD) + 1))
    found = [np.zeros(0, np.int32)]
    for event in range(n_events):
        rows = slice(bounds[event // WORD], bounds[event // WORD + 1])
        found.append(sid[rows][np.flatnonzero(bits[rows] & _BITS[event % WORD])])
    ptr = np.cumsum([ids.size for ids in found], dtype=np.int64)
    return Hits(ptr, np.concatenate(found))
