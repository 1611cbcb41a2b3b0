"""The tables and statements of the database matchers, and what they say when something is missing."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.property.database_changes import FORMULATIONS, found
from tests.unit.boxes import Constraint, make_boxes, make_events, random_case

from wherecast.bench.connections import URL_VARIABLE, DuckDB, hide_password, open_database
from wherecast.engine.engine import Engine
from wherecast.errors import MatcherError
from wherecast.index.boxes import FAR, EventCodes
from wherecast.matchers.scan import ScanMatcher
from wherecast.papers.topss import database
from wherecast.papers.topss.database import DatabaseMatcher, GroupingMatcher
from wherecast.papers.topss.database_relations import ABOVE, BELOW, BETWEEN, EQUAL, EVERY, UNEQUAL, predicate_rows

pytestmark = pytest.mark.slow  # kernels of a paper's matcher are compiled for nothing else

OPEN = int(FAR)


@pytest.fixture(autouse=True)
def _no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)


# -- clauses as rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("intervals", "rows"),
    [
        ([(4, 4)], [(EQUAL, 4, 0)]),
        ([(0, 0)], [(EQUAL, 0, 0)]),
        ([(1, 5)], [(BELOW, 6, 0)]),
        ([(1, 1)], [(EQUAL, 1, 0)]),
        ([(5, OPEN)], [(ABOVE, 4, 0)]),
        ([(1, OPEN)], [(ABOVE, 0, 0)]),
        ([(0, OPEN)], [(ABOVE, -1, 0)]),
        ([(3, 7)], [(BETWEEN, 3, 7)]),
        ([(0, 3)], [(BETWEEN, 0, 3)]),
        ([(1, 3), (5, OPEN)], [(UNEQUAL, 4, 0)]),
        ([(1, 1), (3, OPEN)], [(UNEQUAL, 2, 0)]),
        ([(0, 0), (1, 3), (5, OPEN)], [(EQUAL, 0, 0), (UNEQUAL, 4, 0)]),
        ([(1, 3), (6, OPEN)], [(BELOW, 4, 0), (ABOVE, 5, 0)]),
        ([(2, 2), (4, 4), (6, 8)], [(EQUAL, 2, 0), (EQUAL, 4, 0), (BETWEEN, 6, 8)]),
    ],
)
def test_constraints_are_predicates_of_the_paper(
    intervals: list[tuple[int, int]], rows: list[tuple[int, int, int]]
) -> None:
    """Each constraint becomes the operators of the paper where these say it, all rows of it with one number."""
    got = predicate_rows(make_boxes([[(1, [(9, 9)])], [(2, intervals)]], [10, 10, 10]), np.array([7, 3], np.int32))
    assert list(zip(got.op.tolist(), got.val.tolist(), got.high.tolist(), strict=True)) == [(EQUAL, 9, 0), *rows]
    assert got.sid.tolist() == [7] + [3] * len(rows)
    assert got.attr.tolist() == [1] + [2] * len(rows)
    assert got.part.tolist() == [0] * (1 + len(rows))


def test_a_clause_without_constraints_asks_for_what_every_event_has() -> None:
    """It has a row too, so that counting finds it; neighbours with the same operator stay apart."""
    got = predicate_rows(make_boxes([[], [(0, [(1, 3)]), (1, [(5, OPEN)])]], [9, 9]), np.arange(2, dtype=np.int32))
    assert got.attr.tolist() == [0, 1, EVERY]
    assert got.sid.tolist() == [1, 1, 0]
    assert got.part.tolist() == [0, 1, 0]


# -- matching ---------------------------------------------------------------------------------------------------------


@FORMULATIONS
def test_no_attributes(formulation: type[DatabaseMatcher]) -> None:
    """Over an empty schema a clause without constraints matches, and no clauses match nothing."""
    nothing = EventCodes(np.zeros((3, 0), np.int32), np.zeros(1, np.int64), np.zeros(0, np.int32))
    assert found(formulation.build(make_boxes([[], []], [])), nothing) == [[0, 1]] * 3
    assert found(formulation.build(make_boxes([], [])), nothing) == [[]] * 3


@FORMULATIONS
@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 128, 129])
def test_words_of_events(formulation: type[DatabaseMatcher], n: int) -> None:
    """Every bit of a word is an event, the sign bit too; the last word may be short."""
    matcher = formulation.build(make_boxes([[(0, [(c, c)])] for c in range(130)], [130]))
    assert found(matcher, make_events([[e] for e in range(n)], 1)) == [[e] for e in range(n)]


@FORMULATIONS
def test_large_batches_are_cut(formulation: type[DatabaseMatcher], monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch with too many groups for one statement is matched by several, with the same result."""
    boxes, events = random_case(np.random.default_rng(5), 40, 300, [9, 30, 5], [1])
    monkeypatch.setattr(database, "_GROUPS", 80)
    matcher = formulation.build(boxes)
    assert "one statement for 128 events" in matcher.explain_plan()
    assert found(matcher, events) == found(ScanMatcher.build(boxes), events)


@FORMULATIONS
def test_weights(formulation: type[DatabaseMatcher]) -> None:
    """An event weighs as much as the clauses that hold for it."""
    matcher = formulation.build(make_boxes([[(0, [(1, 4)])], [(0, [(3, 3)])], []], [9]))
    weights = np.array([0, 5, 7, 7], np.int32)  # 5, 2 and 0
    assert matcher.weigh(make_events([[0], [1], [3], [5]], 1), weights).tolist() == [0, 5, 7, 0]


@FORMULATIONS
def test_threads_share_a_matcher(formulation: type[DatabaseMatcher]) -> None:
    """Batches matched at the same time by several threads give what one thread gives."""
    boxes, events = random_case(np.random.default_rng(4), 300, 64, [9, 200, 50, 3], [1])
    matcher = formulation.build(boxes)
    parts = [events._replace(codes=events.codes[i : i + 8]) for i in range(0, 64, 8)]
    with ThreadPoolExecutor(4) as pool:
        together = [ids for part in pool.map(lambda part: found(matcher, part), parts) for ids in part]
    assert together == found(ScanMatcher.build(boxes), events)


@FORMULATIONS
def test_joins_are_hashed(formulation: type[DatabaseMatcher]) -> None:
    """The database compares no row with all others: every join hashes, equality by attribute and value."""
    boxes, _ = random_case(np.random.default_rng(1), 3000, 1, [50, 2000, 9], [])
    plan = formulation.build(boxes).explain_statement()
    joins = set(re.findall(r"[A-Z]\w+ Join|\w+ Product", plan))
    assert joins == {"Hash Join"}
    assert re.search(r"attr = attr,? *│.*\n.*val = val|attr = attr, val = val", plan)


# -- changes ----------------------------------------------------------------------------------------------------------


def test_predicates_are_stored_once() -> None:
    """Clauses share predicates; what nobody uses is deleted, and its number is given away again."""
    a: Constraint = (0, [(3, 3)])
    b: Constraint = (1, [(2, 2), (4, 4)])
    matcher = GroupingMatcher.build(make_boxes([[a], [a, b], [b], [(1, [(2, 2)])]], [9, 9]))
    assert matcher.stats()["rows"] == {"subs": 4, "preds": 1 + 2 + 1, "subs_preds": 5}
    matcher.remove(np.array([0, 3], np.int32))
    assert matcher.stats()["rows"] == {"subs": 2, "preds": 1 + 2, "subs_preds": 3}
    assert matcher.insert(make_boxes([[(0, [(5, 8)])], [a]], [9, 9])).tolist() == [0, 3]
    assert matcher.stats()["rows"] == {"subs": 4, "preds": 1 + 2 + 1, "subs_preds": 5}
    assert set(matcher.arrays()["part"].tolist()) == {0, 1, 2}


@FORMULATIONS
def test_removed_ids_are_given_again_first(formulation: type[DatabaseMatcher]) -> None:
    """New clauses take the ids of removed ones, then new ids."""
    matcher = formulation.build(make_boxes([[(0, [(c, c)])] for c in range(5)], [9]))
    matcher.remove(np.array([3, 1], np.int32))
    assert sorted(matcher.insert(make_boxes([[]] * 3, [9])).tolist()) == [1, 3, 5]
    assert found(matcher, make_events([[1], [4]], 1)) == [[1, 3, 5], [1, 3, 4, 5]]


@FORMULATIONS
@pytest.mark.parametrize("unknown", [-1, 2, 7])
def test_only_what_is_there_can_be_removed(formulation: type[DatabaseMatcher], unknown: int) -> None:
    """An id out of range or removed before is refused, and the others given with it stay."""
    matcher = formulation.build(make_boxes([[]] * 3, [9]))
    matcher.remove(np.array([2], np.int32))
    with pytest.raises(MatcherError, match=f"no clause {unknown}"):
        matcher.remove(np.array([0, unknown], np.int32))
    assert found(matcher, make_events([[1]], 1)) == [[0, 1]]


@FORMULATIONS
def test_a_failed_insertion_changes_nothing(
    formulation: type[DatabaseMatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the database refuses, the matcher is as before and can go on."""
    matcher = formulation.build(make_boxes([[(0, [(1, 1)])]], [9]))

    def refuse(*_: object, **__: object) -> None:
        raise MatcherError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(matcher._database, "run", refuse)
        with pytest.raises(MatcherError, match="disk full"):
            matcher.insert(make_boxes([[(0, [(2, 2)])]], [9]))
    assert found(matcher, make_events([[1], [2]], 1)) == [[0], []]
    assert matcher.insert(make_boxes([[(0, [(2, 2)])]], [9])).tolist() == [1]
    assert found(matcher, make_events([[1], [2]], 1)) == [[0], [1]]


# -- engine and databases ---------------------------------------------------------------------------------------------


@FORMULATIONS
def test_engine_saves_and_opens(formulation: type[DatabaseMatcher], tmp_path: object) -> None:
    """An engine on a database answers as the default one does, also when saved and opened."""
    texts = ["price < 5 OR tag = 'x'", "price <> 3", "tag IN ('x', 'y') AND price BETWEEN 2 AND 4", "tag IS NULL"]
    rows = [{"price": p, "tag": t} for p in (None, 1, 3, 4, 9) for t in (None, "x", "y", "z")]
    engine = Engine({"price": "long", "tag": "string"}, matcher=formulation.name)
    default = Engine({"price": "long", "tag": "string"})
    for one in (engine, default):
        one.subscribe_many(enumerate(texts))
    wanted = [sorted(ids) for ids in default.match_batch(rows).to_lists()]
    assert [sorted(ids) for ids in engine.match_batch(rows).to_lists()] == wanted
    engine.save(f"{tmp_path}/saved")
    assert [sorted(ids) for ids in Engine.open(f"{tmp_path}/saved").match_batch(rows).to_lists()] == wanted


def test_a_failed_statement_leaves_nothing() -> None:
    """Statements of one call all take effect, or none; the error says what DuckDB said."""
    duck = DuckDB()
    duck.run(["CREATE TABLE t (a INTEGER)"])
    with pytest.raises(MatcherError, match="nonsense"):
        duck.run(["INSERT INTO t SELECT a FROM rows", "INSERT INTO nonsense VALUES (1)"], rows={"a": np.arange(3)})
    assert duck.fetch("SELECT count(*) AS n FROM t")["n"].tolist() == [0]


def test_without_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra to install."""
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MatcherError, match=r"wherecast\[lab\]"):
        GroupingMatcher.build(make_boxes([], []))


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra to install."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MatcherError, match=r"wherecast\[postgresql\]"):
        open_database("postgresql://localhost/x")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:secret@127.0.0.1:1/x", "postgresql://ann@127.0.0.1:1/x: no connection"),
        (
            "postgresql://ann@127.0.0.1:1/x?password=secret",
            "postgresql://ann@127.0.0.1:1/x?password=...: no connection",
        ),
        ("mysql://ann:secret@host/x", "mysql://ann@host/x: not a PostgreSQL URL"),
        (
            "postgresql://ann:secret@host:port/x?nonsense=secret1",
            "postgresql://ann@host:port/x?nonsense=secret1: PostgreSQL cannot read this URL",
        ),
    ],
)
def test_a_wrong_url_is_named_without_its_password(url: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the argument as from the environment: the error shows where it tried, not the secret."""
    monkeypatch.setenv(URL_VARIABLE, url)
    for given in (url, None):
        with pytest.raises(MatcherError) as caught:
            GroupingMatcher.build(make_boxes([], []), url=given)
        assert str(caught.value).startswith(shown)
        assert "secret@" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://h/x", "postgresql://h/x"),
        ("postgresql://u@h/x", "postgresql://u@h/x"),
        ("postgresql://u:p:q@r/s@h:5/x", "postgresql://u@h:5/x"),
        ("postgresql://u:@/x?host=/tmp&password=p&port=1", "postgresql://u@/x?host=/tmp&password=...&port=1"),
    ],
)
def test_passwords_are_hidden(url: str, shown: str) -> None:
    """Wherever a URL may have one, even where it should have been escaped."""
    assert hide_password(url) == shown
