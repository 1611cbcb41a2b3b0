"""The case tables of tests/cases, through every matcher.

A table is a schema, a list of events, and filters with the rows that each must match. Where Spark's ANSI mode would stop
the query, `spark` has the same filter with `try_` functions; the tables are checked against Spark in
tests/integration/test_spark_oracle.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.case_tables import TABLES, rows_by_filter
from tests.examples import all_below

from wherecast.engine.engine import Engine
from wherecast.language.syntax.limits import Limits
from wherecast.matchers.registry import MATCHERS


@pytest.mark.sampled
@pytest.mark.parametrize("matcher", MATCHERS)
@pytest.mark.parametrize("topic", TABLES)
def test_each_filter_matches_its_rows(topic: str, matcher: str, tmp_path: Path) -> None:
    """All filters of a table in one engine: each matches exactly the events it should, in a batch, alone and when opened."""
    table = TABLES[topic]
    engine = Engine(table["schema"], matcher=matcher)
    outcome = engine.subscribe_many(enumerate(case["filter"] for case in table["cases"]))
    assert not outcome.quarantined
    for case, rows in zip(table["cases"], rows_by_filter(engine, table), strict=True):
        assert rows == case["matches"], case["filter"]
    engine.save(tmp_path)
    assert rows_by_filter(Engine.open(tmp_path), table) == rows_by_filter(engine, table)
    for row, event in enumerate(table["events"]):
        expected = {number for number, case in enumerate(table["cases"]) if row in case["matches"]}
        assert set(engine.match(event)) == expected, event


@pytest.mark.sampled
@pytest.mark.parametrize("topic", TABLES)
def test_each_filter_alone_and_as_a_cover(topic: str) -> None:
    """A filter means the same alone in its engine, and with at most one clause."""
    table = TABLES[topic]
    for case in (table["cases"][number] for number in all_below(len(table["cases"]))):
        for clauses in (64, 1):
            engine = Engine(table["schema"], limits=Limits(clauses=clauses))
            engine.subscribe(0, case["filter"])
            rows = [row for row, ids in enumerate(engine.match_batch(table["events"])) if ids]
            assert rows == case["matches"], f"{case['filter']} with {clauses} clauses"


def test_there_are_enough_cases() -> None:
    """The tables hold at least 300 cases in eleven topics."""
    assert len(TABLES) >= 11
    assert sum(len(table["cases"]) for table in TABLES.values()) >= 300
