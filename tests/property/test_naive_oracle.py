"""The engine against an evaluator that is too simple to be wrong, while subscriptions come and go."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples, randoms
from tests.property.naive import NAIVE_FEATURES, check
from tests.property.strategies import MAP_KINDS, WIDTH_KINDS, FilterMaker, Trial, make_event, make_space, trials
from tests.property.terms import Term, text

from wherecast.engine.engine import Engine
from wherecast.language.syntax.limits import Limits
from wherecast.matchers.registry import MATCHERS

PRODUCT = ("adaptive", "scan")
PAPERS = [name for name in MATCHERS if name not in PRODUCT]
TRIALS = trials(filters=5, events=6, features=NAIVE_FEATURES)


@examples(120)
@given(TRIALS)
@pytest.mark.parametrize("matcher", PRODUCT)
def test_matches_are_those_of_the_naive_evaluator(matcher: str, trial: Trial) -> None:
    """Random filters match exactly the events for which the naive evaluator says true."""
    compare(matcher, trial)


@examples(40)
@given(TRIALS)
@pytest.mark.parametrize("matcher", PAPERS)
def test_the_papers_match_as_the_naive_evaluator(matcher: str, trial: Trial) -> None:
    """The same for the matchers of the papers, which share all but the matching itself with the two above."""
    compare(matcher, trial)


def compare(matcher: str, trial: Trial) -> None:
    engine = Engine(trial.space.schema, matcher=matcher)
    for number, term in enumerate(trial.filters):
        engine.subscribe(number, text(term))
    check(engine, dict(enumerate(trial.filters)), trial.events)


@examples(150)
@given(trials(filters=5, events=6, features=NAIVE_FEATURES, kinds=WIDTH_KINDS), st.booleans())
def test_numbers_compute_in_their_width(trial: Trial, is_saved: bool) -> None:
    """TINYINT, SMALLINT, INT and FLOAT overflow and round where they end, also in an engine that was saved and opened."""
    engine = Engine(trial.space.schema)
    engine.subscribe_many(enumerate(text(t) for t in trial.filters))
    if is_saved:
        with tempfile.TemporaryDirectory() as folder:
            engine.save(Path(folder) / "saved")
            check(Engine.open(Path(folder) / "saved"), dict(enumerate(trial.filters)), trial.events)
    else:
        check(engine, dict(enumerate(trial.filters)), trial.events)


@examples(100)
@given(trials(filters=6, events=6, features=NAIVE_FEATURES, kinds=MAP_KINDS), st.booleans())
def test_later_types(trial: Trial, is_saved: bool) -> None:
    """Decimals of both widths, bytes, wall clocks, arrays of them and maps, also in an engine that was saved and opened."""
    engine = Engine(trial.space.schema)
    assert not engine.subscribe_many(enumerate(text(t) for t in trial.filters)).quarantined
    if is_saved:
        with tempfile.TemporaryDirectory() as folder:
            engine.save(Path(folder) / "saved")
            check(Engine.open(Path(folder) / "saved"), dict(enumerate(trial.filters)), trial.events)
    else:
        check(engine, dict(enumerate(trial.filters)), trial.events)


@examples(80)
@given(trials(filters=4, events=6, features=NAIVE_FEATURES), st.integers(1, 8))
def test_covering_boxes_lose_nothing(trial: Trial, clauses: int) -> None:
    """However few clauses a filter may have, covers and residuals together say the same."""
    engine = Engine(trial.space.schema, limits=Limits(clauses=clauses))
    engine.subscribe_many(enumerate(text(t) for t in trial.filters))
    check(engine, dict(enumerate(trial.filters)), trial.events)


RANDOM = randoms()
STEPS = st.lists(st.sampled_from(["add", "add", "remove", "replace", "match"]), max_size=14)


@examples(60)
@given(RANDOM, STEPS)
@pytest.mark.parametrize("matcher", PRODUCT)
def test_subscriptions_come_and_go(matcher: str, rng: random.Random, steps: list[str]) -> None:
    """After any sequence of adds, removals and replacements the engine answers for what stands."""
    live_through(matcher, rng, steps)


@examples(20)
@given(RANDOM, STEPS)
@pytest.mark.parametrize("matcher", PAPERS)
def test_subscriptions_of_the_papers_come_and_go(matcher: str, rng: random.Random, steps: list[str]) -> None:
    """The same for the matchers of the papers."""
    live_through(matcher, rng, steps)


def live_through(matcher: str, rng: random.Random, steps: list[str]) -> None:
    space = make_space(rng)
    maker = FilterMaker(rng, space, NAIVE_FEATURES)
    pool = [maker.condition(2) for _ in range(4)]  # few, so that equal filters meet
    engine = Engine(space.schema, matcher=matcher)
    standing: dict[int, Term] = {}
    for step in (*steps, "match"):
        if step == "match":
            check(engine, standing, [make_event(rng, space) for _ in range(3)])
        elif step == "add":
            number = len(standing) + 100 * rng.randint(0, 9)
            standing[number] = rng.choice(pool)
            engine.subscribe(number, text(standing[number]), replace=True)
        elif standing:
            number = rng.choice(sorted(standing))
            if step == "remove":
                engine.unsubscribe(number)
                del standing[number]
            else:
                standing[number] = rng.choice(pool)
                engine.subscribe(number, text(standing[number]), replace=True)
