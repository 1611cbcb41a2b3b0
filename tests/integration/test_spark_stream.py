"""Streams: versions change between batches, buckets move, poison is set apart, and nothing is taken for something else."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.clientserver import ClientServerConnection
from pyspark.errors import PySparkException
from pyspark.sql import functions

from wherecast import spark as ws
from wherecast.engine.engine import Engine
from wherecast.errors import SubscriptionError
from wherecast.spark.stream import BatchRunner
from wherecast.spark.versions import file_manager, from_arrow, spark_version, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = {"symbol": "string", "price": "double"}
#: Calls of the JVM for a batch: each takes 0.1 ms or more.
MOST_CALLS = 250
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
    sink = options.pop("sink", ws.Parquet(str(tmp_path / "out")))
    return ws.stream(events, str(tmp_path / "index"), sink, **options)


def start_and_end(spark: SparkSession, tmp_path: Path, **options: Any) -> None:
    """Take what is there; raises what stopped the stream."""
    start(spark, tmp_path, trigger={"availableNow": True}, **options).awaitTermination()


def build(spark: SparkSession, tmp_path: Path, strategy: Any) -> ws.Built:
    owners = [f"owner of {id}" for id, _ in ROWS]
    rows = from_arrow(spark, pa.table({"id": [r[0] for r in ROWS], "filter": [r[1] for r in ROWS], "owner": owners}))
    return ws.build_index(rows, SCHEMA, str(tmp_path / "index"), strategy=strategy, servers=3)


def expected(events: pa.Table) -> Counter[tuple[int, int]]:
    engine = Engine(SCHEMA)
    engine.subscribe_many(ROWS)
    rows, ids = engine.match_batch(events).pairs()
    numbers = events["row"].to_numpy()
    return Counter(zip(numbers[rows].tolist(), ids.tolist(), strict=True))


def found(spark: SparkSession, tmp_path: Path) -> Counter[tuple[int, int]]:
    table = to_arrow(spark.read.parquet(str(tmp_path / "out")).select("row", "subscription"))
    return Counter(zip(table["row"].to_pylist(), table["subscription"].to_pylist(), strict=True))


def test_buckets_move_in_flight(spark: SparkSession, tmp_path: Path) -> None:
    """Skewed traffic makes a new version with moved buckets; nothing is lost or doubled before, at or after the move.

    The columns of the rules move with them.
    """
    built = build(spark, tmp_path, "event-space")
    assert built.plan is not None
    events = write_events(tmp_path / "events", ["S1", "S2", "S3"], 5)
    query = start(spark, tmp_path, rebalancer=ws.Rebalancer(threshold=1.05, every=2), columns=["owner"])
    try:
        query.processAllAvailable()
        reports = query.reports
    finally:
        query.stop()
    assert any(report.rebalanced for report in reports)
    assert len({report.version for report in reports}) > 1
    assert sum(report.events for report in reports) == len(events)
    assert found(spark, tmp_path) == expected(events)
    assert spark.read.parquet(str(tmp_path / "out")).where(
        "owner <=> concat('owner of ', subscription)"
    ).count() == sum(expected(events).values())


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


@pytest.mark.parametrize("written_by", ["spark", "python"])
def test_a_batch_costs_one_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written_by: Any
) -> None:
    """A micro-batch into Parquet is one Spark job, and its plan takes few calls of the JVM: both are its price however small it is."""
    build(spark, tmp_path, "broadcast")
    write_events(tmp_path / "events", ["S1", "S2"], 3)
    calls: list[int] = []
    send, run = ClientServerConnection.send_command, BatchRunner.__call__

    def send_counted(connection: ClientServerConnection, command: str) -> Any:
        if calls and not command.startswith("m\n"):  # those give back memory, whenever Python finds the time
            calls[-1] += 1
        return send(connection, command)

    def run_counted(runner: BatchRunner, events: Any, number: int) -> None:
        calls.append(0)
        run(runner, events, number)

    monkeypatch.setattr(ClientServerConnection, "send_command", send_counted)
    monkeypatch.setattr(BatchRunner, "__call__", run_counted)
    sink = ws.Parquet(str(tmp_path / "out"), written_by=written_by)
    query = start(spark, tmp_path, sink=sink, trigger={"availableNow": True}, output="lists")
    query.awaitTermination()
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId))) == len(calls) == 3
    assert calls[1] < MOST_CALLS


@pytest.mark.skipif(spark_version() < (4, 1), reason="older versions pass whole rows and make no column")
def test_the_column_of_matches_is_made_once_for_a_version(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of one version share it; a new version has a new one, whose matches are those of the new rules."""
    made: list[Any] = []
    make: Any = functions

    def make_counted(*args: Any) -> Any:
        made.append(args)
        return arrow_udf(*args)

    arrow_udf = make.arrow_udf
    build(spark, tmp_path, "broadcast")
    monkeypatch.setattr(make, "arrow_udf", make_counted)
    write_events(tmp_path / "events", ["S1", "S2"], 3)
    start_and_end(spark, tmp_path)
    assert len(made) == 1
    log = from_arrow(spark, pa.table({"sequence": [1], "op": ["upsert"], "id": [777], "filter": ["price >= 0"]}))
    made.clear()  # changes may make columns of their own
    ws.apply_changes(log, str(tmp_path / "index"))
    changed = len(made)
    write_events(tmp_path / "events", ["S1", "S2"], 2, seed=1)
    start_and_end(spark, tmp_path)
    assert len(made) == changed + 1
    assert found(spark, tmp_path)[100 * 50, 777] == 1
    assert sum(id == 777 for _, id in found(spark, tmp_path)) == 2 * 50


def test_a_local_checkpoint_is_written_without_processes(spark: SparkSession, tmp_path: Path) -> None:
    """Spark renames its files by Hadoop's FileSystem; the session is as it was, and so is a choice that somebody has made."""
    setting = "spark.sql.streaming.checkpointFileManagerClass"
    build(spark, tmp_path, "broadcast")
    write_events(tmp_path / "events", ["S1"], 1)

    def managers(checkpoint: str) -> set[str]:
        query = start(
            spark, tmp_path, checkpoint=str(tmp_path / checkpoint), sink=ws.Parquet(str(tmp_path / checkpoint / "out"))
        )
        try:
            query.processAllAvailable()
            run: Any = query.query._jsq.streamingQuery()
            source = run.sources().head()
            log = source.getClass().getDeclaredField("metadataLog")
            log.setAccessible(True)
            logs = [run.offsetLog(), run.commitLog(), log.get(source)]
            return {str(log.fileManager().getClass().getSimpleName()) for log in logs}
        finally:
            query.stop()

    assert managers("one") == {"FileSystemBasedCheckpointFileManager"}
    assert spark.conf.get(setting, "") == ""
    chosen = str(file_manager(spark)).replace("FileSystemBased", "FileContextBased")
    spark.conf.set(setting, chosen)
    try:
        assert managers("two") == {"FileContextBasedCheckpointFileManager"}
        assert spark.conf.get(setting) == chosen
    finally:
        spark.conf.unset(setting)


def test_a_new_checkpoint_does_not_take_over_an_old_sink(spark: SparkSession, tmp_path: Path) -> None:
    """Batches of a new stream count from 0 again: a sink that has such batches would silently skip them."""
    build(spark, tmp_path, "broadcast")
    write_events(tmp_path / "events", ["S1"], 1)
    query = start(spark, tmp_path)
    query.processAllAvailable()
    query.stop()
    with pytest.raises(ws.SinkError, match="holds batches of another stream"):
        start(spark, tmp_path, checkpoint=str(tmp_path / "another"))
    held = ws.Parquet(str(tmp_path / "out"))
    source = spark.readStream.schema("row bigint, symbol string, price double").parquet(str(tmp_path / "events"))
    new = {"checkpoint": str(tmp_path / "another"), "dead_letters": held}
    with pytest.raises(ws.SinkError, match="holds batches of another stream"):
        ws.stream(source, str(tmp_path / "index"), ws.Parquet(str(tmp_path / "new")), **new)
    with pytest.raises(ws.SinkError, match="holds batches of another stream"):
        ws.follow_changes(source, str(tmp_path / "index"), **new)
    again = start(spark, tmp_path)
    again.processAllAvailable()
    again.stop()
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(ws.SinkError, match="holds batches of another stream"):
        start(spark, tmp_path)


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
    with pytest.raises(SubscriptionError, match="changes need a column 'op'"):
        ws.follow_changes(source.parquet(str(folder)).drop("op"), index, str(tmp_path / "third"))


def test_two_new_streams_into_one_sink(spark: SparkSession, tmp_path: Path) -> None:
    """One of them gets the sink, the other fails and stays refused; with a sink of its own it loses nothing."""
    build(spark, tmp_path, "broadcast")
    (tmp_path / "out").mkdir()
    places = [tmp_path / name for name in ("a", "b")]
    queries, tables = [], []
    for number, place in enumerate(places):
        (place / "events").mkdir(parents=True)
        (place / "index").symlink_to(tmp_path / "index")
        (place / "out").symlink_to(tmp_path / "out")
        queries.append(start(spark, place))
        tables.append(write_events(tmp_path / "drafts", ["S1", "S2"], 1, number))
    for number, place in enumerate(places):
        (tmp_path / "drafts" / f"{number}-0.parquet").rename(place / "events" / "0.parquet")
    failures = []
    for query in queries:
        try:
            query.processAllAvailable()
        except PySparkException as error:
            failures.append(str(error))
        query.stop()
    assert len(failures) == 1
    assert "holds batches of another stream" in failures[0]
    loser = next(n for n, query in enumerate(queries) if query.exception() is not None)
    with pytest.raises(ws.SinkError, match="holds batches of another stream"):
        start(spark, places[loser])
    assert found(spark, tmp_path) == expected(tables[1 - loser])
    (places[loser] / "out").unlink()
    again = start(spark, places[loser])
    again.processAllAvailable()
    again.stop()
    assert found(spark, places[loser]) == expected(tables[loser])


@pytest.mark.parametrize("lost", [("offsets", "commits"), ("offsets", "commits", "sources")], ids="-".join)
def test_a_checkpoint_that_lost_its_progress(spark: SparkSession, tmp_path: Path, lost: tuple[str, ...]) -> None:
    """Spark begins with batch 0 again: its new events are not taken for those that the sink has, but refused."""
    build(spark, tmp_path, "broadcast")
    write_events(tmp_path / "events", ["S1"], 1)
    start_and_end(spark, tmp_path)
    before = found(spark, tmp_path)
    for name in lost:
        shutil.rmtree(tmp_path / "checkpoint" / name)
    (tmp_path / "events" / "0-0.parquet").unlink()
    write_events(tmp_path / "events", ["S1"], 3, 1)
    with pytest.raises(PySparkException, match="has batch 0 of this stream, but from other source offsets"):
        start_and_end(spark, tmp_path)
    assert found(spark, tmp_path) == before
    for sink in (ws.Parquet(str(tmp_path / "new")), ws.Foreach(lambda *_: None)):
        shutil.rmtree(tmp_path / "checkpoint")
        start_and_end(spark, tmp_path, sink=sink)
        shutil.rmtree(tmp_path / "checkpoint" / "offsets")
        with pytest.raises(ws.IndexStoreError, match="lost its progress: batch 2 was run"):
            start(spark, tmp_path, sink=sink)


def test_dead_letters_in_the_sink_of_the_matches(spark: SparkSession, tmp_path: Path) -> None:
    """They would be taken for a repetition of the matches; refused before anything is written."""
    build(spark, tmp_path, "broadcast")
    write_events(tmp_path / "events", ["S1"], 1)
    with pytest.raises(PySparkException, match="holds batches of another stream"):
        start_and_end(spark, tmp_path, dead_letters=ws.Parquet(str(tmp_path / "out")))
    assert not list((tmp_path / "out").glob("batch_id=*"))


def test_a_function_is_told_where_a_batch_comes_from(spark: SparkSession, tmp_path: Path) -> None:
    """Numbers begin anew with a checkpoint, keys do not."""
    build(spark, tmp_path, "broadcast")
    write_events(tmp_path / "events", ["S1"], 2)
    calls: list[tuple[int, str]] = []
    sink = ws.Foreach(lambda _, batch: calls.append((batch, batch.key)))
    for _ in range(2):
        start_and_end(spark, tmp_path, sink=sink)
        shutil.rmtree(tmp_path / "checkpoint")
    assert [number for number, _ in calls] == [0, 1, 0, 1]
    assert len({key for _, key in calls}) == 4
