"""Patterns on a stream of Spark: events per second, and what a micro-batch spends its time on, by the keys that it touches.

    python benchmarks/spark_patterns.py [--keys 100 1000] [--events N] [--batches N]

A stream of `--batches` files of `--events` events each, one file a micro-batch, over so many users; 100 patterns `a THEN b` per user, of which an event satisfies one step. The first
batches start Python workers and are not counted. A line has medians over the others: events/s of the whole query, keys with state, and of a micro-batch the milliseconds in all,
of `addBatch` (reading, steps, shuffle, states) and of committing the state. `steps_us` is the time of the steps alone, per event, by the same task in this process. What a key
costs is the difference of two lines.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from wherecast import Engine
from wherecast.spark.advance import StepTask, advance

KINDS = 100
SCHEMA = {"ts": "timestamp", "user": "bigint", "kind": "string", "price": "double"}
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def events(number: int, n: int, keys: int) -> pa.Table:
    """One batch: events of a minute, over all keys alike."""
    rng = np.random.default_rng(number)
    ts = 1_800_000_000_000_000 + 60_000_000 * number + np.sort(rng.integers(0, 60_000_000, n))
    return pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "user": rng.integers(0, keys, n),
            "kind": np.char.add("K", rng.integers(0, KINDS, n).astype(str)),
            "price": np.round(100 * rng.random(n), 2),
        }
    )


def save_engine(folder: Path) -> None:
    """Patterns per user: a low price of a kind, then a high one within three minutes."""
    engine = Engine(SCHEMA)
    within = "WITHIN INTERVAL 3 MINUTES PARTITION BY user"
    engine.subscribe_many(
        {i: f"PATTERN (kind = 'K{i}' AND price < 50 THEN kind = 'K{i}' AND price >= 50 {within})" for i in range(KINDS)}
    )
    engine.save(folder)


def measure(spark: Any, folder: Path, keys: int, n: int, batches: int) -> dict[str, Any]:
    """One stream."""
    source = folder / f"events{keys}"
    source.mkdir()
    for number in range(batches):
        pq.write_table(events(number, n, keys), source / f"{number:04d}.parquet")
    found = spark.readStream.schema("ts timestamp, user bigint, kind string, price double")
    stream = advance(found.option("maxFilesPerTrigger", 1).parquet(str(source)), folder / "engine")
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(folder / f"checkpoint{keys}"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = [p for p in query.recentProgress if p.numInputRows][2:]
    operators = [p.stateOperators[0] for p in progress]
    batch_ms = statistics.median(p.durationMs["triggerExecution"] for p in progress)
    add_ms = statistics.median(p.durationMs["addBatch"] for p in progress)
    commit_ms = statistics.median(o.commitTimeMs for o in operators)
    steps_us, touched = _steps(folder / "engine", events(0, n, keys))
    return {
        "keys": keys,
        "events_per_s": round(n / batch_ms * 1e3),
        "keys_touched": touched,
        "keys_with_state": round(statistics.median(o.numRowsTotal for o in operators)),
        "batch_ms": round(batch_ms),
        "add_batch_ms": round(add_ms),
        "commit_ms_of_all_tasks": round(commit_ms),
        "steps_us": round(steps_us, 2),
    }


def _steps(engine: Path, table: pa.Table) -> tuple[float, int]:
    """Microseconds per event of the task that matches steps, and how many keys have one."""
    batch = table.append_column("e", pa.nulls(len(table), pa.int64())).combine_chunks().to_batches()[0]
    task = StepTask(str(engine), tuple(table.schema.names))
    taken, rows = [], []
    for _ in range(5):
        start = time.perf_counter()
        rows = list(task.match(iter([batch])))
        taken.append(time.perf_counter() - start)
    return min(taken) / len(table) * 1e6, sum(len(part.column("key").unique()) for part in rows[:-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, nargs="+", default=[100, 1_000])
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--batches", type=int, default=8)
    given = parser.parse_args()
    from wherecast.spark.session import create_session  # noqa: PLC0415 - an extra

    settings = {
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
    }
    spark = create_session("wherecast-patterns", "local[2]", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as folder:
        save_engine(Path(folder) / "engine")
        for keys in given.keys:
            print(json.dumps(measure(spark, Path(folder), keys, given.events, given.batches)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
