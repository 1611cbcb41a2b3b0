"""Patterns on Spark's stateful streams equal the naive replay: ties, repeated events, late ones, and a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.property.naive_sequences import Found, NaiveEvent, NaivePattern, NaiveReplay
from tests.property.sequence_streams import BEGIN, SCHEMA, moment, text_of

from wherecast import Engine, EventTime
from wherecast.errors import SchemaError
from wherecast.spark.advance import advance
from wherecast.spark.columns import schema_in_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PATTERNS: dict[object, NaivePattern] = {
    "ab": NaivePattern("AB", 8),
    "abc": NaivePattern("ABC", 15),
    "absent": NaivePattern("A", 6, "B"),
    "beat": NaivePattern("C", 9, "C"),
    "count": NaivePattern("A", 10, count=3),
    "anybody": NaivePattern("BC", 3, is_keyed=False),
}
LATENESS = 4


def batches(seed: int) -> list[list[NaiveEvent]]:
    """Times about in order with ties, events that come twice, late ones, some without key or time."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(4):
        times = 10 * number + rng.integers(-6, 11, 40)
        keys = rng.choice(["x", "y", "z", ""], 40).tolist()
        batch = [
            NaiveEvent(max(int(t), 0), k or None, "ABC"[c])
            for t, k, c in zip(times, keys, rng.integers(0, 3, 40), strict=True)
        ]
        found.append([*batch, *batch[:4], NaiveEvent(None, "x", "A")])
    return [*found, [NaiveEvent(1000, None, "")]]


def write(folder: Path, number: int, batch: list[NaiveEvent], first: int) -> None:
    rows = [
        {
            "row": first + n,
            "ts": None if e.time is None else moment(e.time).isoformat(),
            "key": e.key,
            "letters": e.letters,
        }
        for n, e in enumerate(batch)
    ]
    (folder / f"{number}.tmp").write_text("\n".join(map(json.dumps, rows)))
    (folder / f"{number}.tmp").rename(folder / f"{number}.json")


def test_spark_equals_the_naive_replay(spark: SparkSession, tmp_path: Path) -> None:
    """A stream that is stopped and started on its checkpoint finds what the naive replay finds, and drops what that drops.

    Its columns are spelled as Spark allows, and a session in another time zone is refused.
    """
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    engine = Engine(schema_in_session(SCHEMA, spark), event_time=EventTime("ts", f"{LATENESS} seconds"))
    engine.subscribe_many({id: text_of(pattern) for id, pattern in PATTERNS.items()})
    engine.save(tmp_path / "engine")
    (tmp_path / "events").mkdir()
    source = spark.readStream.schema("row bigint, ts timestamp, key string, letters string").json(
        str(tmp_path / "events")
    )
    source = source.selectExpr("row", "ts AS TS", "key AS `Key`", "letters")
    found: dict[int, list[Found]] = {}
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    with pytest.raises(SchemaError, match="time zone"):
        advance(source, tmp_path / "engine", event="row")
    spark.conf.set("spark.sql.session.timeZone", zone)

    def take(frame: DataFrame, number: int) -> None:
        found[number] = [
            Found(r.subscription, r.key or None, r.seconds, tuple(r.events))
            for r in frame.selectExpr("*", f"unix_seconds(time) - {int(BEGIN.timestamp())} AS seconds").collect()
        ]

    def start() -> Any:
        watched = advance(source, tmp_path / "engine", event="row")
        return watched.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    naive, wanted, first, dropped = NaiveReplay(PATTERNS, LATENESS), [], 0, 0
    query = start()
    for number, batch in enumerate(batches(3)):
        write(tmp_path / "events", number, batch, first)
        first += len(batch)
        wanted += naive.advance(batch)
        query.processAllAvailable()
        if number in (1, 4):
            dropped += sum(o.numRowsDroppedByWatermark for p in query.recentProgress for o in p.stateOperators)
            query.stop()
            query = start() if number == 1 else query
    matched = sorted((match for part in found.values() for match in part), key=repr)
    assert matched == sorted(wanted, key=repr)
    assert naive.late > 0
    assert dropped >= naive.late  # a row per key: with and without PARTITION BY


ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
