"""How often constraints hold together is measured, and plans follow from it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.unit.boxes import Constraint, make_boxes, make_events, random_case, truth

from wherecast.index.boxes import Boxes, EventCodes
from wherecast.index.packed import pack_boxes
from wherecast.kernels.jit import hot
from wherecast.kernels.likelihood import count_holding, together
from wherecast.matchers.adaptive import AdaptiveMatcher
from wherecast.matchers.adaptive_conditions import describe, measure_correlation

COLUMNS, VALUES = 5, 1000
RNG = np.random.default_rng(7)


def share_values(values: np.ndarray, chance: float) -> list[list[int]]:
    """Rows of as many columns, in which each column has the row's value with that chance."""
    own = RNG.integers(1, VALUES, (values.size, COLUMNS))
    return np.where(RNG.random(own.shape) < chance, values[:, None], own).tolist()


def about(values: np.ndarray, chance: float, others: Sequence[list[Constraint]] = ()) -> tuple[Boxes, EventCodes]:
    """Clauses around values, a wide range in each column, and some others; and events about the same things."""
    centres = share_values(values, chance)
    clauses: list[list[Constraint]] = [
        [(a, [(max(at - 60, 1), min(at + 60, VALUES))]) for a, at in enumerate(row)] for row in centres
    ]
    events = make_events(share_values(RNG.integers(1, VALUES, 1500), chance), COLUMNS)
    return make_boxes([*clauses, *others], [VALUES + 1] * COLUMNS), events


def correlation(boxes: Boxes, events: EventCodes | None) -> float:
    _, conditions, batch = describe(pack_boxes(boxes), events)
    return measure_correlation(conditions, batch)


@pytest.mark.parametrize(("chance", "least", "most"), [(0.0, 0.0, 0.0), (0.9, 0.6, 0.95), (1.0, 0.95, 1.0)])
def test_correlation_is_measured(chance: float, least: float, most: float) -> None:
    """None where attributes have nothing to do with each other, all of it where all have the same value."""
    boxes, events = about(RNG.integers(1, VALUES, 800), chance)
    assert least <= correlation(boxes, events) <= most


def test_clauses_of_one_constraint_do_not_hide_the_others() -> None:
    """They hold far more often, and just as often as expected."""
    alone: list[list[Constraint]] = [[(a % COLUMNS, [(1, 600)])] for a in range(4000)]
    values = RNG.integers(1, VALUES, 400)
    boxes, events = about(values, 1.0)
    mixed, _ = about(values, 1.0, alone)
    assert correlation(make_boxes(alone, [VALUES + 1] * COLUMNS), events) == 0
    assert correlation(boxes, events) == correlation(mixed, events) > 0.9


def test_nothing_is_known_without_events_or_clauses() -> None:
    boxes, events = about(RNG.integers(1, VALUES, 100), 1.0)
    assert correlation(boxes, None) == 0
    assert correlation(make_boxes([], [VALUES] * COLUMNS), events) == 0
    assert correlation(make_boxes([[]], [VALUES] * COLUMNS), events) == 0


@hot
def chance(product: float, rarest: float, correlation: float, is_here: bool) -> float:
    """As a kernel asks for it."""
    return together(product, rarest, correlation, is_here)


def test_chances_between_product_and_rarest() -> None:
    assert chance(0.01, 0.1, 0.0, False) == 0.01
    assert chance(0.01, 0.1, 1.0, False) == pytest.approx(0.1)
    assert 0.01 < chance(0.01, 0.1, 0.5, False) < 0.1
    assert chance(0.01, 0.1, 1.0, True) == 1.0
    assert chance(0.0, 0.1, 0.5, False) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_pairs_that_hold_are_counted(seed: int) -> None:
    """As many as by definition, of clauses with lists as well; events without lists."""
    boxes, events = random_case(np.random.default_rng(seed), 60, 50, [4, 30, 200], arrays=[])
    _, conditions, batch = describe(pack_boxes(boxes), events)
    assert batch is not None
    clauses = np.arange(boxes.n_clauses, dtype=np.int32)
    c = conditions
    found = count_holding(
        clauses, c.ptr, c.number, c.column, c.lo, c.hi, c.list_at, c.list_end, c.list_lo, c.list_hi, batch.codes
    )
    assert found == sum(map(len, truth(boxes, events)))


def test_plans_follow_from_it() -> None:
    """Clauses about the events' own values: with the product of chances, most of what bitmaps leave over would come as a surprise."""
    boxes, events = about(RNG.integers(1, VALUES, 6000), 0.9)
    matcher = AdaptiveMatcher.build(boxes, events)
    apart = events._replace(codes=np.stack([RNG.permutation(column) for column in events.codes.T], 1))
    surprised = AdaptiveMatcher.build(boxes, apart)
    stats = [each.stats(events) for each in (matcher, surprised)]
    checked, surprise = (each["checked_per_event"] for each in stats)
    assert checked < 0.8 * surprise, stats
