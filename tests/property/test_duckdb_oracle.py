"""Wherecast answers what DuckDB answers, where DuckDB's rules are Spark's.

Shared: comparisons of values of one type, IN, BETWEEN, three-valued logic, IS, LIKE without escapes, the order of
strings (bytes of UTF-8), NaN (equal to itself, above everything), -0.0, dates and timestamps, arrays for
`IS NULL`. Left out, because the two differ:

- arithmetic and decimals: overflow is an error, `/` of integers and the digits of decimals have other rules;
- integers against floats: DuckDB compares some of them exactly, Spark as doubles;
- dates against timestamps and plain strings against both: DuckDB does not know some of Spark's forms;
- LIKE with escapes (DuckDB has none by default), ILIKE, lower and upper (other case mappings), RLIKE (other engine);
- array_contains (`list_contains` is false, not NULL, where an element is NULL) and size (`len`);
- strings with NUL, which DuckDB's Arrow scan keeps but its literals cannot write; `<=>` and `IS NOT TRUE` are printed
  as DuckDB spells them.
"""

from __future__ import annotations

import random

import pytest
from tests.property.columns import events_table
from tests.property.strategies import (
    FULL_KINDS,
    LATER_KINDS,
    Features,
    FilterMaker,
    Space,
    Trial,
    make_event,
    make_space,
)
from tests.property.terms import Term, text

from wherecast.engine.engine import Engine

duckdb = pytest.importorskip("duckdb")

FEATURES = Features(
    arithmetic=False,
    decimals=False,
    casing=False,
    patterns=("like",),
    like_patterns=("", "%", "_", "a%", "%a", "%a%", "a_", "_b%", "a%b", "é%", "😀", "_", "%_%", "a\n%"),
    calls=False,
    arrays=False,
    mixed_times=False,
)
FILTERS, EVENTS = 40, 20
SEEDS = [seed if seed < 3 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(8)]


class OneTypeMaker(FilterMaker):
    """Compares values of one type only."""

    def _against(self, item: Term, *, plain: bool = False) -> Term:
        kind = "bigint" if item.type == "int" else item.type
        return self._plain_literal(kind) if kind != "boolean" else self._literal(kind)

    def _number(self, kind: str, depth: int, column_share: float = 0.8) -> Term:
        return super()._number("bigint" if kind == "int" else kind, 0, column_share)

    def _constant(self) -> Term:
        return Term("is", "boolean", (self._compare(),), value="NULL")


def make_shared_trial(rng: random.Random, kinds: tuple[str, ...]) -> Trial:
    space = make_space(rng, 5, kinds)
    values = {kind: [v for v in pool if v != "a\0b"] for kind, pool in space.values.items()}
    space = Space(space.types, values)
    maker = OneTypeMaker(rng, space, FEATURES)
    events = [make_event(rng, space) for _ in range(EVENTS)]
    return Trial(space, [maker.condition() for _ in range(FILTERS)], events)


@pytest.mark.sampled
@pytest.mark.parametrize("kinds", [FULL_KINDS, LATER_KINDS], ids=["first", "later"])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_shared_filter_means_what_duckdb_says(seed: int, kinds: tuple[str, ...]) -> None:
    """Comparisons, IN, BETWEEN, LIKE and logic give DuckDB's answers; later types are decimals, bytes and wall clocks."""
    trial = make_shared_trial(random.Random(seed), kinds)
    engine = Engine(trial.space.schema)
    for number, term in enumerate(trial.filters):
        engine.subscribe(number, text(term))
    matched = [set(ids) for ids in engine.match_batch(trial.events)]
    events = events_table(trial.space, trial.events)
    with duckdb.connect() as database:
        database.register("events", events)
        columns = ", ".join(f"({text(t, 'duckdb')}) IS TRUE" for t in trial.filters)
        answers = database.execute("SET TimeZone = 'UTC'").execute(f"SELECT {columns} FROM events").fetchall()
    for event, ids, row in zip(trial.events, matched, answers, strict=True):
        for number, answer in enumerate(row):
            shown = text(trial.filters[number], "duckdb")
            assert (number in ids) == answer, f"{shown}\n{event}\nWherecast: {number in ids}, DuckDB: {answer}"
