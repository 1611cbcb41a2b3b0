"""A client of Spark Connect in a process of its own: a process that has a classic session cannot be one.

Run by test_spark_connect.py: `python connect_driver.py sc://HOST:PORT FOLDER`. What was found goes to `outcome.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType
from tests.integration.small_market import EVENTS, SCHEMA, STRATEGIES, STREAMED, SUBSCRIPTIONS

from wherecast import spark as ws
from wherecast.spark.files import FileColumns, Footers
from wherecast.spark.pipeline import brief

Query = TypeVar("Query")
CHANGE = pa.table({"sequence": [1, 2], "op": ["upsert", "upsert"], "id": [7, 8], "filter": ["price > 5", "price <"]})


def started(start: Callable[[], Query]) -> Query:
    """A query. Spark Connect gives up on a Python for `foreachBatch` after ten seconds, which no setting changes: a busy machine gets more tries."""
    for _ in range(4):
        try:
            return start()
        except PySparkException as error:
            if "worker failed to connect back" not in str(error):
                raise
    return start()


def pairs(rows: list[Any]) -> list[tuple[str, int]]:
    return sorted((row.note, row.subscription) for row in rows)


def match_all(spark: Any, folder: Path, strategy: Any) -> dict[str, Any]:
    """Build, match in every form, change, compact, match again."""
    index = str(folder / strategy)
    subscriptions = spark.createDataFrame(
        pa.table({"id": [r[0] for r in SUBSCRIPTIONS], "filter": [r[1] for r in SUBSCRIPTIONS]})
    )
    events = spark.createDataFrame(EVENTS).withColumnsRenamed({"price": "Price", "symbol": "SYMBOL"})
    ws.build_index(subscriptions, SCHEMA, index, strategy=strategy, servers=3)
    found = {"pairs": pairs(ws.match(events, index).collect())}
    lists = ws.match(events, index, output="lists").collect()
    found["lists"] = sorted((row.note, id) for row in lists for id in row.subscriptions)
    ws.apply_changes(spark.createDataFrame(CHANGE), index)
    ws.compact(spark, index)
    found["changed"] = pairs(events.transform(ws.match, index).collect())
    return found


def stream_all(spark: Any, folder: Path, strategy: str) -> dict[str, Any]:
    """Two batches with a change of the subscriptions between them, subscribers joined, a poison event set apart, a file refused."""
    index, work = str(folder / strategy), folder / f"stream-{strategy}"
    for name in ("events", "changes"):
        (work / name).mkdir(parents=True)
    pq.write_table(EVENTS, work / "events" / "0.parquet")
    people = spark.createDataFrame(pa.table({"id": [*range(1, 10)], "mail": [f"{n}@here" for n in range(1, 10)]}))
    columns = StructType.fromDDL("Symbol string, PRICE double, volume bigint, note string, __wherecast_error string")
    query = started(
        lambda: ws.stream(
            spark.readStream.schema(columns).parquet(str(work / "events")),
            index,
            ws.Parquet(str(work / "matches")),
            str(work / "checkpoint"),
            subscribers=people,
            dead_letters=ws.Parquet(str(work / "dead")),
            rebalancer=ws.Rebalancer(every=1),
            check_files=FileColumns(Footers("parquet", {}), columns),
        )
    )
    query.processAllAvailable()
    change = pa.table(
        {"sequence": [3, 4], "op": ["upsert", "upsert"], "id": [9, 8], "filter": ["volume > 0", "volume >"]}
    )
    pq.write_table(change, work / "changes" / "0.parquet")
    changes = spark.readStream.schema("sequence bigint, op string, id bigint, filter string")
    followed = started(
        lambda: ws.follow_changes(
            changes.parquet(str(work / "changes")),
            index,
            str(work / "checkpoint-changes"),
            dead_letters=ws.Parquet(str(work / "refused")),
        )
    )
    followed.processAllAvailable()
    followed.stop()
    poison = EVENTS.append_column("__wherecast_error", pa.array(["broken", *[None] * (len(EVENTS) - 1)]))
    pq.write_table(poison, work / "events" / "1.parquet")
    query.processAllAvailable()
    pq.write_table(EVENTS.append_column("new", pa.array([1] * len(EVENTS))), work / "events" / "2.parquet")
    try:
        query.processAllAvailable()
        stopped = "nothing stopped it"
    except PySparkException as error:
        stopped = brief(error)
    query.stop()
    matches = spark.read.parquet(str(work / "matches")).collect()
    return {
        "pairs": {n: pairs([row for row in matches if row.batch_id == n]) for n in (0, 1)},
        "mails": sorted({(row.subscription, row.mail) for row in matches}),
        "dead": [(row.note, row.error) for row in spark.read.parquet(str(work / "dead")).collect()],
        "refused": [row.id for row in spark.read.parquet(str(work / "refused")).collect()],
        "stopped": stopped,
        "reports": [asdict(report) for report in query.reports],
        "progress": [p["wherecast"]["batch"] for p in query.recentProgress if p["wherecast"]],
    }


def write_all(spark: Any, folder: Path) -> dict[str, Any]:
    """Tasks write what they match, of a batch and of a stream; a setting of encryption is found."""
    index, work = ws.Index(folder / "broadcast"), folder / "written"
    (work / "events").mkdir(parents=True)
    pq.write_table(EVENTS, work / "events" / "0.parquet")
    events = spark.read.parquet(str(work / "events"))
    numbers = index.write(events, ws.Parquet(str(work / "once"), written_by="python"))
    query = started(
        lambda: index.stream(
            spark.readStream.schema(events.schema).parquet(str(work / "events")),
            ws.Parquet(str(work / "streamed"), written_by="python"),
            str(work / "checkpoint"),
            dead_letters=ws.Parquet(str(work / "dead")),
            trigger={"availableNow": True},
        )
    )
    query.awaitTermination()
    spark.conf.set("parquet.crypto.factory.class", "some.Factory")
    try:
        index.write(events, ws.Parquet(str(work / "refused"), written_by="python"))
        refused = "nothing was refused"
    except ws.SinkError as error:
        refused = str(error)
    spark.conf.unset("parquet.crypto.factory.class")
    return {
        "matches": numbers["matches"],
        **{name: pairs(spark.read.parquet(str(work / name)).collect()) for name in ("once", "streamed")},
        "refused": refused,
    }


def main(address: str, folder: Path) -> None:
    spark = ws.create_session("connect", address, **{"spark.sql.shuffle.partitions": 2})
    outcome = {strategy: {"match": match_all(spark, folder, strategy)} for strategy in STRATEGIES}
    for strategy in STREAMED:
        outcome[strategy]["stream"] = stream_all(spark, folder, strategy)
    outcome["written"] = write_all(spark, folder)
    (folder / "outcome.json").write_text(json.dumps(outcome))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
