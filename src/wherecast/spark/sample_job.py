"""A small job that loads the classes of most jobs: `python -m wherecast.spark.sample_job FOLDER`, for `wherecast.class_archive`."""

from __future__ import annotations

import sys
from pathlib import Path

from wherecast import spark as ws

_RULES = [(n, f"symbol = 'S{n % 5}' AND price > {n}", f"owner {n % 3}") for n in range(50)]
_EVENTS = [(f"S{n % 7}", float(n)) for n in range(100)]
_CHANGES = [(1, "upsert", 7, "price < 5", "owner 7")]


def run_job(folder: Path) -> None:
    """Build an index, match a batch, change a rule, and match a stream of files."""
    session = ws.create_session(master="local[2]", **{"spark.sql.shuffle.partitions": "2"})
    rules = session.createDataFrame(_RULES, "id long, filter string, owner string")
    session.createDataFrame(_EVENTS, "symbol string, price double").write.parquet(str(folder / "events"))
    events = session.read.parquet(str(folder / "events"))
    index = ws.Index.build(rules, folder / "index", schema=events, strategy="event-space", servers=2, sample=events)
    index.match(events, columns=["owner"]).collect()
    index.apply(session.createDataFrame(_CHANGES, "sequence long, op string, id long, filter string, owner string"))
    stream = session.readStream.schema(events.schema).parquet(str(folder / "events"))
    sink, checkpoint = ws.Parquet(str(folder / "matches")), str(folder / "checkpoint")
    query = index.stream(stream, sink, checkpoint, output="lists", trigger={"availableNow": True})
    query.awaitTermination()
    session.stop()


def end_java() -> None:
    """Wait for the end of the JVM, which PySpark leaves to itself: that is when Java writes its archive."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 - PySpark has no other way
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


if __name__ == "__main__":
    run_job(Path(sys.argv[1]))
    end_java()
