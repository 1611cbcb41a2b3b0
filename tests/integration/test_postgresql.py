"""The database matchers on a real PostgreSQL: what DuckDB's tests say of the statements holds there too."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.case_tables import TABLES, rows_by_filter
from tests.examples import examples
from tests.property.database_changes import CHANGES, FORMULATIONS, Change, Clause, clauses, events, follow, found
from tests.servers.postgresql import running_postgresql
from tests.unit.boxes import make_boxes, make_events, random_case

from wherecast.bench.connections import URL_VARIABLE, PostgreSQL
from wherecast.engine.engine import Engine
from wherecast.errors import MatcherError
from wherecast.index.boxes import EventCodes
from wherecast.matchers.scan import ScanMatcher
from wherecast.papers.topss.database import DatabaseMatcher, GroupingMatcher

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """URL of a PostgreSQL of this session's own."""
    with running_postgresql() as started:
        yield started.url


@pytest.fixture
def url(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The server, in the environment as well."""
    monkeypatch.setenv(URL_VARIABLE, server)
    return server


@FORMULATIONS
def test_equals_the_scan(formulation: type[DatabaseMatcher], server: str) -> None:
    """Every clause that boxes can express, through random changes, in both formulations."""

    @examples(20)
    @given(first=st.lists(clauses(), max_size=12), changes=CHANGES, batch=events())
    def check(first: list[Clause], changes: list[Change], batch: EventCodes) -> None:
        follow(formulation, first, changes, batch, server)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(URL_VARIABLE, server)
        check()


@FORMULATIONS
@pytest.mark.parametrize("topic", ["arrays", "nulls", "strings"])
def test_case_tables(topic: str, formulation: type[DatabaseMatcher], url: str) -> None:
    """Through the engine, which finds the server by the environment, each filter matches its rows."""
    table = TABLES[topic]
    engine = Engine(table["schema"], matcher=formulation.name)
    engine.subscribe_many(enumerate(case["filter"] for case in table["cases"]))
    assert rows_by_filter(engine, table) == [case["matches"] for case in table["cases"]]
    assert "PostgreSQL 18" in engine.explain_plan()


@FORMULATIONS
def test_threads_take_turns(formulation: type[DatabaseMatcher], url: str) -> None:
    """Batches matched at the same time by several threads give what one thread gives."""
    boxes, batch = random_case(np.random.default_rng(4), 300, 64, [9, 200, 50, 3], [1])
    matcher = formulation.build(boxes)
    parts = [batch._replace(codes=batch.codes[i : i + 8]) for i in range(0, 64, 8)]
    with ThreadPoolExecutor(4) as pool:
        together = [ids for part in pool.map(lambda part: found(matcher, part), parts) for ids in part]
    assert together == found(ScanMatcher.build(boxes), batch)


@FORMULATIONS
def test_no_nested_loops(formulation: type[DatabaseMatcher], url: str) -> None:
    """Joins of a set of some size are hashed or merged, equality by attribute and value."""
    boxes, _ = random_case(np.random.default_rng(1), 3000, 1, [50, 2000, 9], [])
    plan = formulation.build(boxes).explain_statement()
    assert "Nested Loop" not in plan
    assert "(p.attr = w.attr) AND (p.val = w.val)" in plan


def test_matchers_keep_apart_and_leave_nothing(url: str) -> None:
    """Two matchers on one server do not see each other, and a matcher that is gone has left no table."""
    a = GroupingMatcher.build(make_boxes([[(0, [(1, 1)])]], [9]))
    b = GroupingMatcher.build(make_boxes([[(0, [(2, 2)])]] * 2, [9]))
    one = make_events([[1], [2]], 1)
    assert found(a, one) == [[0], []]
    assert found(b, one) == [[], [0, 1]]
    del a, b
    gc.collect()
    left = PostgreSQL(url).fetch("SELECT count(*) AS n FROM pg_class WHERE relname = 'subs_preds'")
    assert left["n"].tolist() == [0]


def test_a_failed_statement_leaves_nothing(url: str) -> None:
    """Statements of one call all take effect, or none; the connection can be used again."""
    server = PostgreSQL(url)
    server.run(["CREATE TABLE t (a BIGINT)"])
    with pytest.raises(MatcherError, match="nonsense"):
        server.run(["INSERT INTO t SELECT a FROM rows", "INSERT INTO nonsense VALUES (1)"], rows={"a": np.arange(3)})
    assert server.fetch("SELECT count(*) AS n FROM t")["n"].tolist() == [0]


def test_a_server_that_does_not_know_the_database(server: str) -> None:
    """The error has the server's reason, and not the password."""
    with pytest.raises(MatcherError, match="does not exist") as caught:
        GroupingMatcher.build(make_boxes([], []), url=server.replace("/postgres?", "/elsewhere?"))
    assert "unused" not in str(caught.value)
