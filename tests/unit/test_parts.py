"""Parts: what tasks compile, split by server and build is what one engine would be, however the rows were cut."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from wherecast.engine.engine import Engine
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.partition.plan import Plan
from wherecast.spark import subscriptions as subscriptions_module
from wherecast.spark.build import ServerBuilder
from wherecast.spark.layers import open_layers, open_rules, save_plan
from wherecast.spark.manifest import Layer
from wherecast.spark.rules import HASH
from wherecast.spark.store import Store
from wherecast.spark.subscriptions import CompileTask, PlaceTask, filters_and_weights, read_parts

SCHEMA = Schema.of({"symbol": "string", "price": "double"})
FILTERS = [
    "symbol = 'A' AND price < 10",
    "symbol IN ('A', 'B')",
    "symbol = 'C' OR symbol = 'D'",
    "symbol = 'A' AND price < 10",
    "symbol = 'E' AND price * 2 > 9",
    "symbol = 'B'",
    "symbol = 'F' AND price >= 3",
]
FORM = pa.schema([(HASH, pa.int64()), ("owner", pa.string())])
EVENTS = pa.table({"symbol": list("AABCDEFZ"), "price": [1.0, 50.0, 2.0, 3.0, 4.0, 5.0, 2.0, 1.0]})


def rows_of(filters: Iterable[str | None], *, texts: bool = False) -> pa.RecordBatch:
    filters = list(filters)
    ids = [f"id-{i}" for i in range(len(filters))] if texts else list(range(len(filters)))
    priorities = pa.array([0.0] * len(filters), pa.float32())
    owners = pa.array([f"owner of {id}" for id in ids], pa.string())
    rules = pa.StructArray.from_arrays([pa.array(range(len(ids)), pa.int64()), owners], FORM.names)
    return pa.RecordBatch.from_arrays(
        [pa.array(ids), pa.array(filters, pa.string()), priorities, pa.nulls(len(filters), pa.string()), rules],
        ["id", "filter", "priority", "fault", "rule"],
    )


def build(path: Path, parts: Iterable[pa.RecordBatch]) -> dict[int, Engine]:
    """The servers that are built of parts."""
    built = list(ServerBuilder(str(path), SCHEMA, "adaptive", None).build_servers(parts))
    rows = [row for batch in built for row in batch.to_pylist() if row["layer"] is not None]
    layers = {row["server"]: Layer.from_json(row["layer"]) for row in rows}
    for layer in layers.values():
        check_rules(path, layer)
    return {server: open_layers(str(path), (layer,)) for server, layer in layers.items()}


def check_rules(path: Path, layer: Layer) -> None:
    """Each rule of a layer has the columns that came with it."""
    engine = open_layers(str(path), (layer,))
    taken = open_rules(str(path), (layer,), FORM).take(engine.places(), ["owner"])
    assert taken["owner"].to_pylist() == [f"owner of {id}" for id in engine.ids().to_pylist()]


def expected(batch: pa.RecordBatch) -> list[list[object]]:
    engine = Engine(SCHEMA)
    engine.subscribe_many(batch)
    return [sorted(ids) for ids in engine.match_batch(EVENTS)]


@pytest.mark.sampled
@pytest.mark.parametrize("part_rows", [1, 3, 1000])
@pytest.mark.parametrize("texts", [False, True])
def test_one_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_rows: int, texts: bool) -> None:
    """A server of all parts finds what an engine of all rows finds, wherever the rows were cut."""
    monkeypatch.setattr(subscriptions_module, "PART_ROWS", part_rows)
    batch = rows_of(FILTERS, texts=texts)
    pieces = [batch.slice(i, 1) for i in range(len(FILTERS))]
    (server,) = build(tmp_path, CompileTask(SCHEMA, FORM).compile(pieces)).items()
    assert server[0] == 0
    assert [sorted(ids) for ids in server[1].match_batch(EVENTS)] == expected(batch)


def test_many_servers(tmp_path: Path) -> None:
    """Servers hold what the plan says, together everything; no event finds a subscription on two of them."""
    batch = rows_of(FILTERS)
    compiled = list(CompileTask(SCHEMA, FORM).compile([batch]))
    filters, weights = filters_and_weights([row["filters"] for b in compiled for row in b.to_pylist()], SCHEMA)
    assert sorted(weights.tolist()) == [1, 1, 1, 1, 1, 2]
    plan = Plan.build(filters, weights, SCHEMA, 3, strategy="event-space")
    folder = save_plan(Store(str(tmp_path)), plan)
    servers = build(tmp_path, PlaceTask(str(tmp_path), folder).place(compiled))
    assert set().union(*servers.values()) == set(range(len(FILTERS)))
    routes = plan.route(EventBatch.read(SCHEMA, EVENTS))
    found: list[list[object]] = [[] for _ in range(len(EVENTS))]
    for event, server in zip(routes.event_ids.tolist(), routes.servers.tolist(), strict=True):
        found[event] += servers[server].match(EVENTS.slice(event, 1).to_pylist()[0])
    assert [sorted(ids) for ids in found] == expected(batch)


def test_ids_and_priorities_are_checked_as_by_an_engine() -> None:
    """A row that `subscribe_many` would quarantine is refused with the same words, and the others are built."""
    rows = pa.table(
        {
            "id": ["a", "x" * 1001, "c", "d", "e"],
            "filter": ["symbol = 'A'"] * 5,
            "priority": pa.array([1.0, 0.0, float("nan"), float("inf"), None], pa.float32()),
            "fault": pa.nulls(5, pa.string()),
            "rule": pa.nulls(5, pa.struct(FORM)),
        }
    ).to_batches()[0]
    engine = Engine(SCHEMA)
    wanted = [str(q.error) for q in engine.subscribe_many(rows).quarantined]
    parts, refused = zip(*map(read_parts, CompileTask(SCHEMA, FORM).compile([rows])), strict=True)
    assert [part.members.ids.tolist() for some in parts for part in some] == [["a", "e"]]
    assert pa.concat_tables(refused)["reason"].to_pylist() == wanted
    assert len(wanted) == 3


def test_refused_rows_go_along(tmp_path: Path) -> None:
    """A text that does not compile leaves its row, with the reason, and nothing else."""
    compiled = list(CompileTask(SCHEMA, FORM).compile([rows_of(["prise > 1", "symbol = 'A'", None])]))
    filters, weights = filters_and_weights(
        [row["filters"] for b in compiled for row in b.to_pylist() if row["filters"] is not None], SCHEMA
    )
    folder = save_plan(Store(str(tmp_path)), Plan.build(filters, weights, SCHEMA, 2, strategy="event-space"))
    placed = list(PlaceTask(str(tmp_path), folder).place(compiled))
    parts, refused = zip(*map(read_parts, placed), strict=True)
    assert [part.members.ids.tolist() for some in parts for part in some] == [[1]]
    left_out = pa.concat_tables(refused).to_pylist()
    assert [(row["id"], row["filter"]) for row in left_out] == [("0", "prise > 1"), ("2", None)]
    assert "price" in left_out[0]["reason"]


def test_ids_that_cannot_be_kept() -> None:
    """A row is left out with the reason of the engine's check, or with what was wrong when it was read."""
    batch = rows_of(["symbol = 'A'"] * 4, texts=True)
    batch = batch.set_column(0, "id", pa.array(["id-0", "id-1", "x" * 1001, "id-3"]))
    batch = batch.set_column(3, "fault", pa.array([None, "the filter is not valid UTF-8", None, None]))
    parts, refused = zip(*map(read_parts, CompileTask(SCHEMA, FORM).compile([batch])), strict=True)
    assert [part.members.ids.tolist() for some in parts for part in some] == [["id-0", "id-3"]]
    left_out = [(row["id"][:4], row["reason"]) for row in pa.concat_tables(refused).to_pylist()]
    assert left_out[0] == ("id-1", "the filter is not valid UTF-8")
    assert left_out[1][0] == "xxxx"
    assert "at most 1,000 characters" in left_out[1][1]
