"""Predicate indexes: which predicates a code satisfies, by ordered lists or by a table over the domain.

Theory of operation
-------------------
First stage of the counting algorithm. Both answer with the predicate bit vector, one per event.

*Lists* (TOPSS, section 3.1): the predicates of one attribute and operator, ordered by constant. Here all lists stand in
one sorted array: (attribute, operator, constant) is the key, so a list is a stretch of it, and what an event's code
satisfies is a part of the stretch that begins or ends at the code. Searching is binary where the paper walks a linked
list; inserting and deleting shift the array, O(predicates) like the paper's.

*Tables* (section 3.2): `array[operator][l..u]` of predicate numbers for each attribute, l..u being its codes. Inserting,
deleting and looking up is one access. The satisfied predicates of the code v are those in `>` below v, in `<` above v, in
`<>` anywhere but at v, and in `=` at v: no comparison, but empty slots are passed too, so the time grows with the domain.

RANGE predicates, which the paper does not have, are lists in both: ordered by lowest code, one entry for each interval,
searched up to the event's code and compared with the other end.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from wherecast.errors import MatcherError
from wherecast.index.boxes import EventCodes
from wherecast.kernels.arrays import Ints, Longs, Words
from wherecast.papers.topss.kernels.predicates import N_OPERATORS, RANGE, mark_lists, mark_tables
from wherecast.papers.topss.lists import offsets
from wherecast.papers.topss.predicates import Predicates

#: Codes of the widest domain that gets a table. The paper speaks of several thousand values; its W2 has 90,001.
WIDEST_TABLE = 1 << 17


class PredicateIndex(Protocol):
    """Finds the predicates that hold."""

    def __init__(self, widths: Ints) -> None:
        """Empty, for attributes of so many codes. Raises MatcherError if it cannot serve them."""

    def insert(self, predicates: Predicates, numbers: Ints) -> None:
        """Index predicates that are not indexed yet."""

    def remove(self, predicates: Predicates, numbers: Ints) -> None:
        """Take predicates out; they are still in `predicates`."""

    def mark(self, events: EventCodes, bits: Words) -> None:
        """Set bit p of bits[e] (words of 64) for each predicate p that event e satisfies."""

    @property
    def nbytes(self) -> int:
        """Memory."""


class ListIndex:
    """Ordered lists, one per attribute and operator, as stretches of one sorted array."""

    def __init__(self, widths: Ints) -> None:
        self._n_lists = N_OPERATORS * widths.size
        self._order = np.zeros(0, np.int64)  # (entries,) ascending: list << 32 | constant, or lowest code of a RANGE
        self._top = np.zeros(0, np.int32)  # (entries,) highest code of a RANGE
        self._numbers = np.zeros(0, np.int32)  # (entries,) predicate
        self._find_lists()

    def _find_lists(self) -> None:
        self._ptr = np.searchsorted(self._order, np.arange(self._n_lists + 1) << 32).astype(np.int64)
        self._attributes = np.flatnonzero(np.diff(self._ptr[::N_OPERATORS])).astype(np.int32)

    def insert(self, predicates: Predicates, numbers: Ints) -> None:
        order, top, owner = _entries(predicates, numbers)
        by_order = np.argsort(order, kind="stable")
        order, top, owner = order[by_order], top[by_order], owner[by_order]
        at = np.searchsorted(self._order, order)
        self._order, self._top = np.insert(self._order, at, order), np.insert(self._top, at, top)
        self._numbers = np.insert(self._numbers, at, owner)
        self._find_lists()

    def remove(self, predicates: Predicates, numbers: Ints) -> None:  # noqa: ARG002 - the entries say it all
        kept = ~np.isin(self._numbers, numbers)
        self._order, self._top, self._numbers = self._order[kept], self._top[kept], self._numbers[kept]
        self._find_lists()

    def mark(self, events: EventCodes, bits: Words) -> None:
        mark_lists(self._ptr, self._order, self._top, self._numbers, self._attributes, *events, bits)

    @property
    def nbytes(self) -> int:
        return self._order.nbytes + self._top.nbytes + self._numbers.nbytes + self._ptr.nbytes


def _entries(predicates: Predicates, numbers: Ints) -> tuple[Longs, Ints, Ints]:
    """Key, highest code and predicate of each entry: one per predicate, or per interval of a RANGE."""
    operator, constant = predicates.operators(numbers)
    ptr, lo, hi = predicates.intervals(numbers)
    owner = np.repeat(np.arange(numbers.size), np.diff(ptr))
    entries = np.flatnonzero((operator[owner] == RANGE) | (np.arange(owner.size) == ptr[:-1][owner]))
    owner = owner[entries]
    key = np.where(operator[owner] == RANGE, lo[entries], constant[owner]).astype(np.int64)
    lists = N_OPERATORS * predicates.attr[numbers[owner]].astype(np.int64) + operator[owner]
    return lists << 32 | key, hi[entries], numbers[owner]


class TableIndex:
    """A slot for each attribute, operator and code; RANGE predicates in ordered lists."""

    def __init__(self, widths: Ints) -> None:
        widest = int(widths.max(initial=0))
        if widest > WIDEST_TABLE:
            raise MatcherError(
                f"a predicate table over {widest} codes of attribute {int(widths.argmax())} is too wide, at most "
                f"{WIDEST_TABLE}; use matcher 'counting', whose ordered lists do not depend on the domain"
            )
        self._widths = widths
        base = offsets(RANGE * widths.astype(np.int64))
        self._base = base[:-1]
        self._table = np.full(int(base[-1]), -1, np.int32)
        self._in_attribute = np.zeros(widths.size, np.int32)  # predicates in the table of each attribute
        self._attributes = np.zeros(0, np.int32)
        self._ranges = ListIndex(widths)

    def insert(self, predicates: Predicates, numbers: Ints) -> None:
        self._put(predicates, numbers, 1)

    def remove(self, predicates: Predicates, numbers: Ints) -> None:
        self._put(predicates, numbers, -1)

    def _put(self, predicates: Predicates, numbers: Ints, change: int) -> None:
        operator, constant = predicates.operators(numbers)
        simple = operator != RANGE
        if not simple.all():
            file = self._ranges.insert if change > 0 else self._ranges.remove
            file(predicates, numbers[~simple])
        attr = predicates.attr[numbers[simple]]
        slots = self._base[attr] + operator[simple] * self._widths[attr].astype(np.int64) + constant[simple]
        self._table[slots] = numbers[simple] if change > 0 else -1
        np.add.at(self._in_attribute, attr, change)
        self._attributes = np.flatnonzero(self._in_attribute).astype(np.int32)

    def mark(self, events: EventCodes, bits: Words) -> None:
        mark_tables(self._table, self._base, self._widths, self._attributes, *events, bits)
        self._ranges.mark(events, bits)

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + self._base.nbytes + self._in_attribute.nbytes + self._ranges.nbytes
