"""Expression columns against the naive evaluator: with the least number of uses at one, every expression is a column."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.naive import NAIVE_FEATURES, check
from tests.property.strategies import FULL_KINDS, WIDTH_KINDS, Trial, trials
from tests.property.terms import text

from wherecast import Engine
from wherecast.index import expressions


@pytest.fixture(autouse=True)
def _every_expression_is_a_column() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(expressions, "FEW_USES", 1)
    patch.setattr(expressions, "FEW_TEXT_USES", 1)
    yield
    patch.undo()


@examples(150)
@given(trials(filters=8, events=8, features=NAIVE_FEATURES, kinds=FULL_KINDS), st.booleans())
@pytest.mark.parametrize("matcher", ["adaptive", "scan"])
def test_columns_of_all_kinds(matcher: str, trial: Trial, is_saved: bool) -> None:
    _check_columns(matcher, trial, is_saved=is_saved)


@examples(100)
@given(trials(filters=8, events=8, features=NAIVE_FEATURES, kinds=WIDTH_KINDS), st.booleans())
def test_columns_of_all_widths(trial: Trial, is_saved: bool) -> None:
    _check_columns("adaptive", trial, is_saved=is_saved)


def _check_columns(matcher: str, trial: Trial, *, is_saved: bool) -> None:
    engine = Engine(trial.space.schema, matcher=matcher)
    texts = [text(t) for t in trial.filters]
    engine.subscribe_many(enumerate(texts))
    engine.merge(everything=True)
    standing = dict(enumerate(trial.filters))
    before = {id: engine[id] for id in standing}
    if is_saved:
        with tempfile.TemporaryDirectory() as folder:
            engine.save(Path(folder) / "saved")
            engine = Engine.open(Path(folder) / "saved")
            check(engine, standing, trial.events)
            assert {id: engine[id] for id in standing} == before
    else:
        check(engine, standing, trial.events)
        assert {id: engine[id] for id in standing} == before
