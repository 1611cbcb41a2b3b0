"""Streams: versions change between batches, buckets move, poison is set apart, and nothing is taken for something else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wherecast import spark as ws
from wherecast.engine.engine import Engine
from wherecast.errors import WherecastError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = {"symbol": "string", "price": "double"}
ROWS = [(i, f"symbol = 'S{i % 40}' AND price < {i}") for i in range(1, 200)]


def write_events(folder: Path, symbols: list[str], files: int, seed: int = 0) -> pa.Table:
    """Files of 50 events each; every event has a number."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(seed)
    tables = []
    for number in range(files):
        table = pa.table(
            {
                "row": np.arange(50) + 50 * (number + 100 * seed),
                "symbol": rng.choice(symbols, 50),
                "price": np.round(rng.uniform(0, 200, 50), 2),
            }
        )
        pq.write_table(table, folder / f"{seed}-{number}.parquet")
        tables.append(table)
    return pa.concat_tables(tables)


def start(spark: SparkSession, tmp_path: Path, **options: Any) -> ws.MatchQuery:
    source = spark.readStream.schema("row bigint, symbol string, price double").option("maxFilesPerTrigger", 1)
    events = source.parquet(str(tmp_path / "events"))
    options.setdefault("checkpoint", str(tmp_path / "checkpoint"))
    return ws.stream(events, str(tmp_path / "index"), ws.Parquet(str(tmp_path / "out")), **options)


def build(spark: SparkSession, tmp_path: Path, strategy: Any) -> ws.Built:
    rows = spark.createDataFrame(pa.table({"id": [r[0] for r in ROWS], "filter": [r[1] for r in ROWS]}))
    return ws.build_index(rows, SCHEMA, str(tmp_path / "index"), strategy=strategy, servers=3)


def expected(events: pa.Table) -> Counter[tuple[int, int]]:
    engine = Engine(SCHEMA)
    engine.subscribe_many(ROWS)
    rows, ids = engine.match_batch(events).pairs()
    numbers = events["row"].to_numpy()
    return Counter(zip(numbers[rows].tolist(), ids.tolist(), strict=True))


def found(spark: SparkSession, tmp_path: Path) -> Counter[tuple[int, int]]:
    table = spark.read.parquet(str(tmp_path / "out")).select("row", "subscription").toArrow()
    return Counter(zip(table["row"].to_pylist(), table["subscription"].to_pylist(), strict=True))


def test_buckets_move_in_flight(spark: SparkSession, tmp_path: Path) -> None:
    """Skewed traffic makes a new version with moved buckets; nothing is lost or doubled before, at or after the move."""
    built = build(spark, tmp_path, "event-space")
    assert built.plan is not None
    events = write_events(tmp_path / "events", ["S1", "S2", "S3"], 8)
    query = start(spark, tmp_path, rebalancer=ws.Rebalancer(threshold=1.05, every=2))
    try:
        query.processAllAvailable()
        reports = query.reports
    finally:
        query.stop()
    assert any(report.rebalanced for report in reports)
    assert len({report.version for report in reports}) > 1
    assert sum(report.events for report in reports) == len(events)
    assert found(spark, tmp_path) == expected(events)


def test_numbers_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Reports and Spark's progress tell events, matches and events that no summary admitted."""
    build(spark, tmp_path, "event-space")
    events = write_events(tmp_path / "events", ["S1", "nobody", "noone"], 2)
    query = start(spark, tmp_path)
    try:
        query.processAllAvailable()
        reports, progress, last = query.reports, query.recentProgress, query.lastProgress
    finally:
        query.stop()
    assert last is not None
    assert last["wherecast"] == next((p["wherecast"] for p in progress if p["batchId"] == last["batchId"]), None)
    assert sum(report.matches for report in reports) == sum(expected(events).values())
    unwanted = sum(symbol != "S1" for symbol in events["symbol"].to_pylist())
    dropped = sum(report.dropped for report in reports)
    assert unwanted * 0.9 <= dropped <= unwanted  # a Bloom filter lets a few through
    assert all(report.sent == report.events - report.dropped for report in reports)
    assert all(report.candidates > 0 for report in reports if report.matches)
    ours = [p["wherecast"] for p in progress if p["wherecast"]]
    assert [o["matches"] for o in ours] == [report.matches for report in reports][-len(ours) :]


def test_a_new_checkpoint_does_not_take_over_an_old_sink(spark: SparkSession, tmp_path: Path) -> None:
    """Batches of a new stream count from 0 again: a sink that has such batches would silently skip them."""
    build(spark, tmp_path, "broadcast")
    write_events(tmp_path / "events", ["S1"], 1)
    query = start(spark, tmp_path)
    query.processAllAvailable()
    query.stop()
    with pytest.raises(WherecastError, match="the sink holds batches of an earlier stream"):
        start(spark, tmp_path, checkpoint=str(tmp_path / "another"))
    held = ws.Parquet(str(tmp_path / "out"))
    source = spark.readStream.schema("row bigint, symbol string, price double").parquet(str(tmp_path / "events"))
    new = {"checkpoint": str(tmp_path / "another"), "dead_letters": held}
    with pytest.raises(WherecastError, match="the sink for dead letters holds batches of an earlier stream"):
        ws.stream(source, str(tmp_path / "index"), ws.Parquet(str(tmp_path / "new")), **new)
    with pytest.raises(WherecastError, match="the sink for dead letters holds batches of an earlier stream"):
        ws.follow_changes(source, str(tmp_path / "index"), **new)
    again = start(spark, tmp_path)
    again.processAllAvailable()
    again.stop()


def test_following_changes(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Rows that are not applied are reported, logged and sent to the sink; rows that come again change nothing.

    Layers are merged and versions removed beside.
    """
    build(spark, tmp_path, "broadcast")
    folder, index = tmp_path / "changes", ws.Index(str(tmp_path / "index"))
    folder.mkdir()
    batches = [
        [(1, "upsert", 900, "price < 0"), (3, "delete", 1, None)],
        [(2, "upsert", 901, "price < 0"), (2**63 - 1, "upsert", 902, "prise < 0"), (4, "delete", 900, None)],
        [(5, "upsert", 903, "price < 0"), (4, "delete", 900, None)],
    ]
    kinds = pa.schema([("sequence", pa.int64()), ("op", pa.string()), ("id", pa.int64()), ("filter", pa.string())])
    source = spark.readStream.schema("sequence long, op string, id long, filter string").option("maxFilesPerTrigger", 1)

    def follow(checkpoint: str, **options: Any) -> ws.ChangesQuery:
        changes = source.parquet(str(folder))
        query = ws.follow_changes(changes, index, str(tmp_path / checkpoint), **options, availableNow=True)
        query.awaitTermination()
        return query

    for number, rows in enumerate(batches):
        pq.write_table(
            pa.Table.from_pylist([dict(zip(kinds.names, r, strict=True)) for r in rows], kinds),
            folder / f"{number}.parquet",
        )
        query = follow("ck", most_layers=1, keep_versions=1)
        index.clean(keep=1, grace_s=0)
    counts = [(r.applied, r.refused, r.late, r.replayed) for r in query.reports]
    assert counts == [(2, 0, 0, 0), (1, 1, 1, 0), (1, 0, 0, 1)]
    assert "change not applied: sequence=2 id='901' reason='sequence 2 is late" in caplog.text
    assert "sequence=9223372036854775807 id='902' reason=\"unknown" in caplog.text
    assert "applied=1 refused=1 late=1 replayed=0" in caplog.text
    manifest = index.read()
    assert (manifest.sequence, manifest.gaps, len(index.versions())) == (5, ((2, 2),), 1)
    assert {1, 900, 901, 902, 903} & set(index.serve(manifest, 0).ids().to_pylist()) == {903}

    # From the beginning again, as after a lost checkpoint, this time with a sink.
    query = follow("again", dead_letters=ws.Parquet(str(tmp_path / "dead")))
    assert [(r.applied, r.refused, r.late, r.replayed) for r in query.reports] == [
        (0, 0, 0, 2),
        (0, 1, 1, 1),
        (0, 0, 0, 2),
    ]
    dead = spark.read.parquet(str(tmp_path / "dead")).collect()
    assert {(row.sequence, row.op, row.id, row.filter, row.batch_id) for row in dead} == {
        (2, "upsert", "901", "price < 0", 1),
        (2**63 - 1, "upsert", "902", "prise < 0", 1),
    }
    assert all(row.error for row in dead)
    assert index.read() == manifest
    with pytest.raises(WherecastError, match="'op' is missing"):
        ws.follow_changes(source.parquet(str(folder)).drop("op"), index, str(tmp_path / "third"))
