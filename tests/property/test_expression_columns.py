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
from tests.property.strategies import FULL_KINDS, MAP_KINDS, WIDTH_KINDS, Trial, trials
from tests.property.terms import text

from wherecast import Engine
from wherecast.index import expressions
from wherecast.matchers.registry import MATCHERS

OTHER_MATCHERS = [name for name in MATCHERS if name.startswith("database")]
MATCHERS_IN_MEMORY = [name for name in MATCHERS if name not in OTHER_MATCHERS]


@pytest.fixture(autouse=True)
def _every_expression_is_a_column() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(expressions, "FEW_USES", 1)
    patch.setattr(expressions, "FEW_TEXT_USES", 1)
    patch.setattr(expressions, "GUARDED_USE", 1)
    yield
    patch.undo()


@examples(150)
@given(trials(filters=8, events=8, features=NAIVE_FEATURES, kinds=FULL_KINDS), st.booleans())
@pytest.mark.parametrize("matcher", ["adaptive", pytest.param("scan", marks=pytest.mark.slow)])
def test_columns_of_all_kinds(matcher: str, trial: Trial, is_saved: bool) -> None:
    _check_columns(matcher, trial, is_saved=is_saved)


@examples(100)
@given(trials(filters=8, events=8, features=NAIVE_FEATURES, kinds=WIDTH_KINDS), st.booleans())
def test_columns_of_all_widths(trial: Trial, is_saved: bool) -> None:
    _check_columns("adaptive", trial, is_saved=is_saved)


@examples(60)
@given(trials(filters=8, events=8, features=NAIVE_FEATURES, kinds=MAP_KINDS), st.booleans())
def test_columns_of_later_types(trial: Trial, is_saved: bool) -> None:
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


#: Conditions whose columns are values, literals and regular expressions of computed texts, also two on one column.
CONDITIONS = [
    "trim(a) LIKE '%x%'",
    "trim(a) LIKE '%x%' AND trim(a) LIKE '%y%'",
    "trim(a) LIKE '%xy%' OR trim(a) LIKE 'y%'",
    "trim(a) LIKE '%x%y' AND n > 0",
    "NOT trim(a) LIKE '%x%'",
    "trim(a) ILIKE 'X%' AND trim(a) NOT LIKE '%y'",
    "concat(a, b) LIKE '%xy%'",
    "endswith(concat(a, b), 'y')",
    "lower(trim(a)) = 'xy'",
    "substring(a, 1, 2) IN ('xy', 'x')",
    "a RLIKE '^[x-z]+$'",
    "a RLIKE '[0-9]' AND a RLIKE '^[a-y]'",
    "NOT a RLIKE '^[x-z]+$' AND trim(b) LIKE '%y'",
    "trim(b) RLIKE 'x.?y'",
    "length(a) > 2 AND trim(a) LIKE '%y%'",
    "n * 2 > length(b)",
    "coalesce(a, b) LIKE '%y'",
    "trim(a) LIKE '%x%' IS NULL",
]
_TEXTS = st.one_of(st.none(), st.text("xyX 1ß\n", max_size=4))
_EVENTS = st.fixed_dictionaries({"a": _TEXTS, "b": _TEXTS, "n": st.one_of(st.none(), st.integers(-1, 3))})


@examples(25)
@given(st.lists(st.sampled_from(CONDITIONS), min_size=1, max_size=8, unique=True), st.lists(_EVENTS, max_size=8))
@pytest.mark.parametrize(
    "matchers",
    [
        ["adaptive", "scan"],
        pytest.param([m for m in MATCHERS_IN_MEMORY if m not in ("adaptive", "scan")], marks=pytest.mark.slow),
        pytest.param(OTHER_MATCHERS, marks=pytest.mark.slow),
    ],
)
def test_all_matchers_find_what_residuals_find(
    matchers: list[str], filters: list[str], events: list[dict[str, object]]
) -> None:
    """Columns of every kind, against the same filters evaluated one by one."""
    schema = {"a": "string", "b": "string", "n": "integer"}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FEW_USES", "FEW_TEXT_USES"):
            patch.setattr(expressions, name, 10**9)
        plain = Engine(schema, matcher="scan")
        plain.subscribe_many(enumerate(filters))
        expected = [sorted(ids) for ids in plain.match_batch(events).to_lists()]
    for matcher in matchers:
        engine = Engine(schema, matcher=matcher)
        engine.subscribe_many(enumerate(filters))
        assert [sorted(ids) for ids in engine.match_batch(events).to_lists()] == expected, matcher
        assert [sorted(engine.match(event)) for event in events] == expected, matcher
