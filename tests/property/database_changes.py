"""Clauses that come and go in a database matcher, compared with the scan."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import strategies as st
from tests.unit.boxes import Constraint, make_boxes, make_events

from wherecast.index.boxes import FAR, EventCodes
from wherecast.matchers.protocol import Matcher
from wherecast.matchers.scan import ScanMatcher
from wherecast.papers.topss.database import DatabaseMatcher, GroupingMatcher, SequentialMatcher

Clause = list[Constraint]
FORMULATIONS = pytest.mark.parametrize("formulation", [GroupingMatcher, SequentialMatcher], ids=lambda m: m.name)
#: Attribute -> number of codes; the last two are arrays.
WIDTHS = [1, 2, 5, 9, 6, 4]
ARRAYS = {4, 5}


@st.composite
def intervals(draw: st.DrawFn, width: int) -> list[tuple[int, int]]:
    """Any set of codes, or all values but one, as disjoint intervals; the last may be open to the right."""
    some = st.sets(st.integers(0, width - 1), min_size=1)
    but_one = st.integers(1, width - 1).map(lambda v: set(range(1, width)) - {v}) if width > 2 else some
    codes = sorted(draw(some | but_one))
    starts = [c for c in codes if c - 1 not in codes]
    ends = [c for c in codes if c + 1 not in codes]
    if ends[-1] == width - 1 and draw(st.booleans()):
        ends[-1] = int(FAR)
    return list(zip(starts, ends, strict=True))


@st.composite
def clauses(draw: st.DrawFn) -> Clause:
    """At most one constraint per attribute, up to three on an array."""
    clause: Clause = []
    for attr in sorted(draw(st.sets(st.integers(0, len(WIDTHS) - 1)))):
        most = 3 if attr in ARRAYS else 1
        clause += [(attr, found) for found in draw(st.lists(intervals(WIDTHS[attr]), min_size=1, max_size=most))]
    return clause


@st.composite
def events(draw: st.DrawFn) -> EventCodes:
    """Several events, arrays NULL, empty or with elements."""
    element = {attr: st.integers(2, WIDTHS[attr] - 1) for attr in ARRAYS}
    array = {attr: st.just([0]) | st.sets(element[attr]).map(lambda s: [1, *sorted(s)]) for attr in ARRAYS}
    row = st.tuples(*(array[a] if a in ARRAYS else st.integers(0, w - 1) for a, w in enumerate(WIDTHS)))
    rows = draw(st.lists(row, max_size=12))
    return make_events([list(r) for r in rows * draw(st.sampled_from([1, 1, 11]))], len(WIDTHS))


def found(matcher: Matcher, batch: EventCodes) -> list[list[int]]:
    """Clause ids per event, in order."""
    ptr, ids = matcher.match(batch)
    return [sorted(ids[start:end].tolist()) for start, end in pairwise(ptr.tolist())]


def expected(present: dict[int, Clause], batch: EventCodes) -> list[list[int]]:
    """What the scan finds among clauses with these ids."""
    ids = sorted(present)
    scan = ScanMatcher.build(make_boxes([present[i] for i in ids], WIDTHS))
    return [[ids[place] for place in places] for places in found(scan, batch)]


#: Clauses to add, and which of those present to remove, as positions that wrap around.
Change = tuple[list[Clause], list[int]]
CHANGES = st.lists(st.tuples(st.lists(clauses(), max_size=5), st.lists(st.integers(0, 99), max_size=4)), max_size=4)


def follow(
    formulation: type[DatabaseMatcher], first: list[Clause], changes: list[Change], batch: EventCodes, url: str | None
) -> None:
    """A matcher agrees with the scan after each change, and so does the one that its arrays make."""
    matcher = formulation.build(make_boxes(first, WIDTHS), url=url)
    present = dict(enumerate(first))
    assert found(matcher, batch) == expected(present, batch)
    for added, removed in changes:
        gone = {sorted(present)[i % len(present)] for i in removed} if present else set()
        matcher.remove(np.array(sorted(gone), np.int32))
        present = {i: clause for i, clause in present.items() if i not in gone}
        ids = matcher.insert(make_boxes(added, WIDTHS)).tolist()
        assert not present.keys() & ids
        present |= dict(zip(ids, added, strict=True))
        assert found(matcher, batch) == expected(present, batch)
    assert matcher.stats()["clauses"] == len(present)
    assert found(formulation.from_arrays(matcher.arrays()), batch) == expected(present, batch)
