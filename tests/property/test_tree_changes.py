"""Through any sequence of insertions and removals, every kind of matching tree answers what the scan does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.boxes import Constraint, make_boxes, make_events
from tests.unit.tree_settings import SETTINGS

from wherecast.index.boxes import FAR
from wherecast.matchers.scan import ScanMatcher
from wherecast.papers.gryphon.matcher import TreeMatcher, TreeSettings

pytestmark = pytest.mark.slow

#: Two scalar attributes, one of them tiny, and an array.
WIDTHS = [7, 3, 6]
ARRAY = 2

Clause = list[Constraint]


@st.composite
def interval_sets(draw: st.DrawFn, width: int) -> list[tuple[int, int]]:
    """One to three disjoint intervals, the last one open now and then; adjacent ones are allowed."""
    ends = sorted(draw(st.lists(st.integers(0, width - 1), min_size=1, max_size=3, unique=True)))
    intervals, low = [], 0
    for end in ends:
        intervals.append((draw(st.integers(low, end)), end))
        low = end + 1
    if draw(st.booleans()) and intervals[-1][1] == width - 1:
        intervals[-1] = intervals[-1][0], int(FAR)
    return intervals


@st.composite
def clauses(draw: st.DrawFn) -> Clause:
    """At most one constraint per scalar attribute, up to three on the array."""
    clause: Clause = []
    for attribute, width in enumerate(WIDTHS):
        for _ in range(draw(st.integers(0, 3 if attribute == ARRAY else 1))):
            clause.append((attribute, draw(interval_sets(width))))
    return clause


@st.composite
def rows(draw: st.DrawFn) -> list[int | list[int]]:
    """A code per scalar attribute; the array is NULL, or there with some elements."""
    scalars: list[int | list[int]] = [draw(st.integers(0, width - 1)) for width in WIDTHS[:ARRAY]]
    elements = draw(st.lists(st.integers(2, WIDTHS[ARRAY] - 1), max_size=3, unique=True))
    return [*scalars, draw(st.sampled_from([[0], [1, *elements]]))]


#: A change: clauses to insert, or places among the live clauses to remove, or None to analyse.
CHANGES = st.lists(
    st.one_of(st.lists(clauses(), max_size=4), st.lists(st.integers(0, 40), max_size=6).map(tuple), st.none()),
    max_size=8,
)


def check(matcher: TreeMatcher, live: dict[int, Clause], events: list[list[int | list[int]]]) -> None:
    """With the array, and with a plain code in its place: only then are successors used."""
    ids = np.array(sorted(live), np.int32)
    scan = ScanMatcher(make_boxes([live[i] for i in ids.tolist()], WIDTHS))
    plain: list[list[int | list[int]]] = [[*row[:ARRAY], row[ARRAY][-1]] for row in events]  # type: ignore[index]
    for batch in (make_events(events, len(WIDTHS)), make_events(plain, len(WIDTHS))):
        ptr, found = matcher.match(batch)
        expected_ptr, expected = scan.match(batch)
        assert ptr.tolist() == expected_ptr.tolist()
        for e in range(len(events)):
            assert sorted(found[ptr[e] : ptr[e + 1]].tolist()) == ids[expected[ptr[e] : ptr[e + 1]]].tolist()


@pytest.mark.parametrize("kind", SETTINGS.values(), ids=SETTINGS)
@examples(30)
@given(first=st.lists(clauses(), max_size=8), changes=CHANGES, events=st.lists(rows(), min_size=1, max_size=5))
def test_any_sequence_of_changes(
    kind: TreeSettings, first: list[Clause], changes: list[object], events: list[list[int | list[int]]]
) -> None:
    """Equal to the scan after each change; ids are used again; in the end, nothing is left."""
    matcher = TreeMatcher.build(make_boxes(first, WIDTHS), settings=kind)
    live = dict(enumerate(first))
    check(matcher, live, events)
    for change in changes:
        if change is None:
            matcher.analyse()
        elif isinstance(change, tuple):
            gone = {sorted(live)[place % len(live)] for place in change} if live else set()
            matcher.remove(np.array(sorted(gone), np.int32))
            live = {id: clause for id, clause in live.items() if id not in gone}
        else:
            assert isinstance(change, list)
            ids = matcher.insert(make_boxes(change, WIDTHS)).tolist()
            assert not live.keys() & set(ids)
            live.update(zip(ids, change, strict=True))
        check(matcher, live, events)
    matcher.remove(np.array(sorted(live), np.int32))
    assert [matcher.stats()[name] for name in ("clauses", "nodes", "entries", "sets")] == [0] * 4
