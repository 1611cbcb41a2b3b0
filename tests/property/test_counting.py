"""Counting, in every combination of index and association, equals the scan: at rest and through any changes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.boxes import make_boxes, make_events, random_case, random_intervals
from tests.unit.counting_matchers import COMBINATIONS, Clause, found

from wherecast.index.boxes import EventCodes
from wherecast.matchers.scan import ScanMatcher
from wherecast.papers.topss.matcher import CountingMatcher

pytestmark = pytest.mark.slow

WIDTHS = [4, 9, 60, 1, 12]
ARRAYS = [2, 4]


@pytest.mark.parametrize("matcher", COMBINATIONS)
@examples(25, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), n_clauses=st.integers(0, 150), n_events=st.integers(0, 8),
       widths=st.lists(st.integers(1, 300), min_size=1, max_size=6), n_arrays=st.integers(0, 2))  # fmt: skip
def test_random_sets(
    matcher: type[CountingMatcher], seed: int, n_clauses: int, n_events: int, widths: list[int], n_arrays: int
) -> None:
    """Random sets of every kind of constraint, NULL and arrays among them, match what the scan matches."""
    arrays = list(range(min(n_arrays, len(widths))))
    boxes, events = random_case(np.random.default_rng(seed), n_clauses, n_events, widths, arrays)
    assert found(matcher.build(boxes), events) == found(ScanMatcher.build(boxes), events)


def random_clause(rng: np.random.Generator) -> Clause:
    """A clause of up to ten constraints; now and then one of 300, so that counters must widen."""
    if rng.random() < 0.02:
        return [(2, [(i % 60, i % 60), (70 + i, 70 + i)]) for i in range(300)]
    draw = random.Random(int(rng.integers(2**62)))
    return [
        (a, random_intervals(draw, width))
        for a, width in enumerate(WIDTHS)
        for _ in range(int(rng.random() < 0.4) * (int(rng.integers(1, 4)) if a in ARRAYS else 1))
    ]


def random_events(rng: np.random.Generator) -> EventCodes:
    return random_case(rng, 0, 6, [*WIDTHS[:2], 400, *WIDTHS[3:]], ARRAYS)[1]


@pytest.mark.parametrize("matcher", COMBINATIONS)
@examples(15, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), steps=st.lists(st.sampled_from(["insert", "remove", "update", "open"]), max_size=25))
def test_any_changes(matcher: type[CountingMatcher], seed: int, steps: list[str]) -> None:
    """After each insertion, removal, update and reopening, the matcher is as good as new, and ids are used again."""
    rng = np.random.default_rng(seed)
    widths = [*WIDTHS[:2], 400, *WIDTHS[3:]]
    live, there, highest = matcher.build(make_boxes([], widths)), dict[int, Clause](), 0
    for step in steps:
        chosen = rng.permutation(list(there))[: int(rng.integers(0, 8))].astype(np.int32)
        if step == "insert":
            clauses = [random_clause(rng) for _ in range(int(rng.integers(0, 12)))]
            ids = live.insert(make_boxes(clauses, widths)).tolist()
            assert not there.keys() & set(ids)
            there |= dict(zip(ids, clauses, strict=True))
            highest = max(highest, len(there))
            assert max(there, default=-1) < highest
        elif step == "remove":
            live.remove(chosen)
            there = {i: clause for i, clause in there.items() if i not in chosen}
        elif step == "update":
            clauses = [random_clause(rng) for _ in chosen]
            live.update(chosen, make_boxes(clauses, widths))
            there |= dict(zip(chosen.tolist(), clauses, strict=True))
        else:
            live = matcher.from_arrays(live.arrays())
            highest = max(there, default=-1) + 1  # free numbers behind the last are forgotten
        events = random_events(rng)
        ids = sorted(there)
        scan = found(ScanMatcher.build(make_boxes([there[i] for i in ids], widths)), events)
        assert found(live, events) == [[ids[k] for k in row] for row in scan]
        assert live.n_clauses == len(there)


@pytest.mark.parametrize("matcher", COMBINATIONS)
@examples(10)
@given(seed=st.integers(0, 2**32), n=st.integers(0, 40))
def test_nothing_stays_behind(matcher: type[CountingMatcher], seed: int, n: int) -> None:
    """A matcher whose clauses are all removed has no predicates, and matches nothing."""
    boxes, events = random_case(np.random.default_rng(seed), n, 4, WIDTHS, ARRAYS)
    live = matcher.build(boxes)
    live.remove(np.arange(n, dtype=np.int32))
    facts = live.stats(events)
    assert facts["clauses"] == facts["predicates"] == facts["associations"] == 0
    assert facts["satisfied_per_event"] == 0
    assert found(live, events) == [[]] * 4
    assert found(live, make_events([], len(WIDTHS))) == []
