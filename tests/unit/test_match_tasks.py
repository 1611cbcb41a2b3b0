"""What tasks answer, without Spark: an answer for each event, in their order."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.index_versions import make_ruled_index

from wherecast.engine.engine import Engine
from wherecast.errors import EventError
from wherecast.spark import tasks
from wherecast.spark.columns import ERROR, IDS, SERVER, TALLY
from wherecast.spark.index import Index
from wherecast.spark.layers import write_layer
from wherecast.spark.manifest import Manifest
from wherecast.spark.table_function import match_table
from wherecast.spark.tasks import MatchTask


@pytest.fixture
def task(tmp_path: Path) -> MatchTask:
    index, manifest, _ = make_ruled_index(tmp_path)
    return MatchTask(index.url, manifest, counts=False, explain=False, tally=True, strict=False)


def answers(task: MatchTask, **columns: Any) -> list[dict[str, Any]]:
    """The answers to a batch, whose pieces add up to it."""
    batch = pa.RecordBatch.from_pydict(columns)
    found = [row for piece in task.match([batch]) for row in piece.to_pylist()]
    assert len(found) == batch.num_rows
    for row in found:
        row[IDS] = row[IDS] if isinstance(row[IDS], int) else sorted(row[IDS], key=str)  # in no order
    return found


def counted(found: list[dict[str, Any]]) -> Counter[str]:
    """What the pieces of a batch have counted."""
    total: Counter[str] = Counter()
    for row in found:
        total.update(json.loads(row[TALLY] or "{}"))
    return total


def test_answers_are_in_the_order_of_events(task: MatchTask, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a batch is cut into pieces; the first event of a piece has what was counted in it."""
    prices = [0.0, 2.5, 9.0, None, 1.5] * 7
    wanted = [[], [1, 2], [1, 2, 3], [], [1]] * 7
    for most in (1, 3, 1_000):
        monkeypatch.setattr(tasks, "_FIRST_PIECE", most)
        monkeypatch.setattr(tasks, "_MATCHES", 2 * most)
        found = answers(task, price=prices)
        assert [row[IDS] for row in found] == wanted
        assert {row[ERROR] for row in found} == {None}
        numbers = counted(found)
        assert (numbers["events"], numbers["errors"], numbers["matches"]) == (35, 0, 42)
        assert numbers["candidates"] > 0
        assert found[0][TALLY] is not None
    only = answers(replace(task, counts=True, tally=False), price=prices)
    assert [row[IDS] for row in only] == list(map(len, wanted))
    assert TALLY not in only[0]


def test_events_that_are_known_to_be_bad(task: MatchTask) -> None:
    """They match nothing and keep their error, wherever they stand; a strict task fails with it."""
    errors = [None, "broken", None, "worse"]
    for one in (task, replace(task, counts=True)):
        found = answers(one, price=pa.array([9.0, 9.0, None, None]), **{ERROR: errors})
        assert [row[ERROR] for row in found] == errors
        assert [row[IDS] or 0 for row in found] == ([3, 0, 0, 0] if one.counts else [[1, 2, 3], 0, 0, 0])
        numbers = counted(found)
        assert (numbers["events"], numbers["errors"], numbers["matches"]) == (4, 2, 3)
    assert [row[IDS] for row in answers(task, price=[9.0], **{ERROR: ["broken"]})] == [[]]
    assert answers(task, price=[2.5], **{ERROR: pa.array([None], pa.string())})[0][IDS] == [1, 2]
    with pytest.raises(EventError, match="broken"):
        answers(replace(task, strict=True), price=[9.0, 9.0], **{ERROR: errors[:2]})


def test_values_that_do_not_fit(task: MatchTask) -> None:
    """The error names the row; other events of the batch are matched."""
    found = answers(task, price=["1.5", "x"])
    assert all("price" in row[ERROR] for row in found)
    with pytest.raises(EventError, match="price"):
        answers(replace(task, strict=True), price=["x"])


def test_rule_columns_and_events_without_attributes(task: MatchTask) -> None:
    """Matches are structs where rule columns are asked for; an event without any attribute is still an event."""
    wide = replace(task, rules=("owner",))
    assert answers(wide, price=[1.5, 0.5])[0][IDS] == [{"id": 1, "rule0": "owner 1"}]
    errors = answers(wide, price=[1.5, 0.5], **{ERROR: ["broken", None]})
    assert [row[IDS] for row in errors] == [[], []]
    assert [row[IDS] for row in answers(task, __wherecast_row=[True, True])] == [[], []]


def test_events_of_several_servers_in_one_batch(tmp_path: Path) -> None:
    """Each is matched on its own server and answered in its place; one that was sent nowhere matches nothing."""
    index, layers = Index(tmp_path), []
    for server in range(3):
        engine = Engine({"price": "double"})
        engine.subscribe(10 * server, "price > 1")
        engine.subscribe(10 * server + 1, "price IS NULL")
        layers.append((write_layer(index.store, engine),))
    schema = engine.schema.to_json()
    manifest = index.commit(Manifest(0, schema, "bigint", None, tuple(layers), ("price",), 0, "", None, compacted=True))
    task = MatchTask(index.url, manifest, counts=False, explain=False, tally=False, strict=False)
    servers = pa.array([2, 0, None, 1, 2, 0], pa.int32())
    found = answers(task, price=[2.0, None, 5.0, 2.0, None, 0.0], **{SERVER: servers})
    assert [row[IDS] for row in found] == [[20], [1], [], [10], [21], []]
    found = answers(task, price=[2.0] * 6, **{SERVER: servers, ERROR: [None, "bad", "bad", None, None, None]})
    assert [row[IDS] for row in found] == [[20], [], [], [10], [20], [0]]
    assert [row[ERROR] for row in found] == [None, "bad", "bad", None, None, None]
    assert answers(task, price=pa.array([], pa.float64()), **{SERVER: pa.array([], pa.int32())}) == []


def test_plain_answers(task: MatchTask) -> None:
    """Where no error can be told and nobody counts, an answer is the ids alone; a bad event fails the task."""
    plain = replace(task, strict=True, tally=False)
    batch = pa.RecordBatch.from_pydict({"price": [0.0, 1.5, 2.5]})
    assert [ids for part in plain.match([batch]) for ids in part.to_pylist()] == [[], [1], [1, 2]]
    bad = pa.RecordBatch.from_pydict({"price": [0.0], ERROR: ["bad"]})
    with pytest.raises(EventError, match="bad"):
        list(plain.match([bad]))


def test_pairs_of_a_table_function(task: MatchTask) -> None:
    """Columns that the events lack are NULL, rule columns follow the subscription."""
    task = replace(task, strict=True, tally=False)
    batch = pa.RecordBatch.from_pydict({"price": [0.0, 1.5, 2.5]})
    form = pa.schema([("price", pa.float64()), ("note", pa.string())])
    where = {"price": ("price",)}
    plain = pa.concat_tables(match_table(task, batch, where, form, ["rule"])).sort_by(
        [("price", "ascending"), ("rule", "ascending")]
    )
    assert plain.to_pydict() == {"price": [1.5, 2.5, 2.5], "note": [None] * 3, "rule": [1, 1, 2]}
    wide = replace(task, rules=("owner",))
    found = pa.concat_tables(match_table(wide, batch, where, form, ["rule", "whose"]))
    assert sorted(zip(found["rule"].to_pylist(), found["whose"].to_pylist(), strict=True)) == [
        (1, "owner 1"),
        (1, "owner 1"),
        (2, "owner 2"),
    ]
