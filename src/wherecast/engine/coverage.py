"""Coverage: filters that are satisfied only by events that satisfy another one.

Theory of operation
-------------------
A filter is covered by another if each of its clauses lies inside a clause of the other: for each constraint of the outer box
there is one of the inner box on the same column with no other values, and the inner clause has all residuals of the outer
one. That is sufficient, not necessary: `a < 5 OR a >= 5` together may cover what neither clause does.

Comparing every filter with every other is quadratic. Instead the matcher does the work. A box that contains another
contains each of its points, so one *point* of each clause is matched against the other clauses: its lowest codes, NULL in
columns that it does not constrain. What is found is then compared exactly.

Coverage is transitive, so it is enough to compare with filters that nothing covers. Filters are taken from wide to narrow,
in rounds that double in size: a round is matched against what is left of the rounds before, then what is left of it
against itself. Of a hundred thousand nested conditions `a > 1`, `a > 2`, ... the first covers all others and is all that is
ever indexed.

Points may still lie in very many boxes of which none contains another: `a BETWEEN 1 AND 1001`, `a BETWEEN 2 AND 1002`, ... So the
number of pairs is bounded; filters whose turn does not come are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from wherecast.index.boxes import FIRST_CODE, NULL_CODE, Boxes, EventCodes
from wherecast.index.codes import Codebook, build_codes
from wherecast.kernels.arrays import Bools, Ints, Longs
from wherecast.kernels.containment import find_inside
from wherecast.language.events.schema import Schema
from wherecast.language.filters.canonical import words_of_clauses
from wherecast.language.filters.filters import Filters
from wherecast.language.sequences import take_ranges
from wherecast.matchers.adaptive import AdaptiveMatcher
from wherecast.matchers.protocol import Matcher
from wherecast.progress import progress

#: Pairs of clauses that are compared at most.
MOST_PAIRS = 100_000_000
#: Filters of the first round, and pairs that are held at a time.
_FIRST_ROUND, _PAIRS_AT_A_TIME = 256, 1_000_000


class Coverage(NamedTuple):
    """A filter that covers each filter (-1: none was found), and which filters were not compared with all others."""

    by: Longs
    is_open: Bools


def find_coverage(filters: Filters, schema: Schema, most_pairs: int = MOST_PAIRS) -> Coverage:
    """Which of some distinct filters, each of which can match, are covered by another of them."""
    search = _Search(filters, schema, most_pairs)
    size = _FIRST_ROUND
    order, at = search.from_wide_to_narrow(), 0
    maximal = np.zeros(0, np.int64)
    with progress("comparing", filters.n_filters) as step:
        while at < order.size:
            some = order[at : at + size]
            left = search.without_covered(some, maximal)
            maximal = np.concatenate((maximal, search.without_covered(left, left)))
            step.advance(some.size)
            at, size = at + some.size, 2 * size
    return Coverage(search.by, search.is_open)


class _Search:
    """All clauses in one code space, and what is known about coverage."""

    def __init__(self, filters: Filters, schema: Schema, most_pairs: int) -> None:
        self._filters = filters
        self._codebook, self._lo, self._hi = build_codes(filters, schema)
        self._words = dict(words_of_clauses(filters))  # what must hold besides the box, by clause
        self._owner = np.repeat(np.arange(filters.n_filters), np.diff(filters.clause_ptr))
        self._pairs_left = most_pairs
        self.by = np.full(filters.n_filters, -1, np.int64)
        self.is_open = np.zeros(filters.n_filters, bool)

    def from_wide_to_narrow(self) -> Longs:
        """An order in which a filter stands before those that it covers.

        A clause inside another constrains all columns of that one. So a filter that covers another has a clause with at
        most as many columns, or with as many and wider.
        """
        ends = self._filters.attr >= 0
        columns = np.diff(np.concatenate(([0], np.cumsum(ends)))[self._filters.row_ptr])
        widths = self._codebook.widths[np.where(ends, self._filters.attr, ~self._filters.attr)]
        size = np.minimum(self._hi, widths).astype(np.float64) - self._lo + 1
        width = np.diff(np.concatenate(([0.0], np.cumsum(size)))[self._filters.row_ptr])
        by_clause = np.lexsort((-width, columns, self._owner))
        best = by_clause[self._filters.clause_ptr[:-1]]  # of each filter its widest clause
        return np.lexsort((-np.diff(self._filters.clause_ptr), -width[best], columns[best]))

    def without_covered(self, filters: Longs, others: Longs) -> Longs:
        """The filters that none of the others covers. Of two that cover each other, the first of `filters` is left."""
        if not filters.size or not others.size:
            return filters
        rank = np.full(self._filters.n_filters, -1, np.int64)
        rank[filters] = np.arange(filters.size)
        inner, outer = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for clauses in self._near(filters, *self._boxes_of(others)):
            found = self._covering(*clauses)
            inner.append(found[0])
            outer.append(found[1])
        low, high = np.concatenate(inner), np.concatenate(outer)
        # Of a mutual pair only the one that comes later is covered; the other way round it is dropped.
        key = low * self._filters.n_filters + high
        mutual = np.isin(high * self._filters.n_filters + low, key)
        keep = ~mutual | (rank[high] < rank[low])
        low, high = low[keep], high[keep]
        self.by[low[::-1]] = high[::-1]  # the first one found, where there are several
        return filters[self.by[filters] < 0]

    def _boxes_of(self, filters: Longs) -> tuple[Boxes, Longs]:
        """The boxes of some filters, and which clauses they are."""
        clauses, _ = take_ranges(self._filters.clause_ptr, filters)
        rows, ptr = take_ranges(self._filters.row_ptr, clauses)
        owner = np.arange(clauses.size, dtype=np.int32)
        none = np.full(clauses.size, -1, np.int32)
        boxes = Boxes(
            owner,
            ptr,
            self._filters.attr[rows],
            self._lo[rows],
            self._hi[rows],
            none,
            clauses.size,
            self._codebook.widths,
        )
        return boxes, clauses

    def _near(self, filters: Longs, boxes: Boxes, known: Longs) -> Iterator[tuple[Longs, Longs]]:
        """Pairs of clauses, those of some filters at a time: the second is one of `known` and holds a point of the first."""
        sample, _ = self._points(filters[:: max(1, filters.size // 1_000)])
        matcher: Matcher = AdaptiveMatcher.build(boxes, sample)
        at, batch = 0, 64
        while at < filters.size:
            some = filters[at : at + batch]
            if self._pairs_left <= 0:
                self.is_open[filters[at:]] = True
                return
            points, clauses = self._points(some)
            ptr, found = matcher.match(points)
            self._pairs_left -= found.size
            yield np.repeat(clauses, np.diff(ptr)), known[found]
            at += batch
            batch = max(1, min(4 * batch, batch * _PAIRS_AT_A_TIME // max(found.size, 1)))

    def _covering(self, inner: Longs, outer: Longs) -> tuple[Longs, Longs]:
        """Pairs of filters of which the second covers the first, given pairs of clauses that may lie inside each other."""
        other = self._owner[inner] != self._owner[outer]
        inner, outer = inner[other], outer[other]
        inside = np.zeros(inner.size, bool)
        find_inside(self._filters.row_ptr, self._filters.attr, self._lo, self._hi, inner, outer, inside)
        inner, outer = inner[inside], outer[inside]
        keep = np.ones(inner.size, bool)
        for i in np.flatnonzero(self._filters.program[outer] >= 0).tolist():
            keep[i] = self._words[int(outer[i])] <= self._words.get(int(inner[i]), frozenset())
        # Each clause of the inner filter counts once per outer filter; all of them must be inside.
        n = self._filters.n_filters
        key = np.unique(inner[keep] * n + self._owner[outer[keep]])
        pairs, count = np.unique(self._owner[key // n] * n + key % n, return_counts=True)
        whole = pairs[count == np.diff(self._filters.clause_ptr)[pairs // n]]
        return whole // n, whole % n

    def _points(self, filters: Longs) -> tuple[EventCodes, Longs]:
        """A point of each clause of some filters, and the clauses."""
        boxes, clauses = self._boxes_of(filters)
        return _points_of(boxes, self._codebook), clauses


def _points_of(boxes: Boxes, codebook: Codebook) -> EventCodes:
    """The lowest code of each constraint; in a column of sets, one code of each."""
    first = np.ones(boxes.attr.size, bool)
    first[1:] = boxes.attr[:-1] >= 0
    rows = np.flatnonzero(first)
    column = np.where(boxes.attr[rows] < 0, ~boxes.attr[rows], boxes.attr[rows]).astype(np.int64)
    clause = np.searchsorted(boxes.ptr, rows, "right") - 1
    codes = np.zeros((boxes.n_clauses, boxes.n_attributes), np.int32)
    is_set = np.array([codebook.codes[c] is not None and codebook.is_set(c) for c in range(boxes.n_attributes)], bool)
    plain = ~is_set[column]
    codes[clause[plain], column[plain]] = boxes.lo[rows[plain]]
    pieces, ends = [], [0]
    in_set = np.flatnonzero(~plain)
    if in_set.size:
        key = clause[in_set] * boxes.n_attributes + column[in_set]
        starts = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1])))
        for number, own in enumerate(np.split(boxes.lo[rows[in_set]], starts[1:])):
            at = in_set[starts[number]]
            # NULL stands alone; whatever else is asked for, the set is there.
            elements = own if own[0] == NULL_CODE else np.unique(np.append(own, FIRST_CODE))
            codes[clause[at], column[at]] = ~number
            pieces.append(elements.astype(np.int32))
            ends.append(ends[-1] + elements.size)
    flat: Ints = np.concatenate(pieces) if pieces else np.zeros(0, np.int32)
    return EventCodes(codes, np.array(ends, np.int64), flat)
