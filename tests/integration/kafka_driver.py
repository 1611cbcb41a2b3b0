"""A stream from topic to topic in a process of its own, which can be told to die after a batch was written.

Run by test_kafka.py: `python -m tests.integration.kafka_driver SERVERS FOLDER JARS BATCH`. Matches the topic `trades` against the index in
the folder and writes to the topic `alerts`. Once batch number BATCH is in the topic, and before Spark commits it, the
process kills itself.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark_settings import SETTINGS

from wherecast import spark as ws
from wherecast.spark.kafka import read_events
from wherecast.spark.stream import BatchRunner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start(session: SparkSession, servers: str, folder: Path) -> ws.MatchQuery:
    """Match what the topic holds."""
    index = ws.Index(str(folder / "index"))
    return ws.stream(
        read_events(session, servers, "trades", index.schema(), maxOffsetsPerTrigger=20),
        index,
        ws.Kafka("alerts", servers),
        str(folder / "checkpoint"),
        trigger={"availableNow": True},
    )


def main(servers: str, folder: Path, jars: str, batch: int) -> None:
    session = ws.create_session("driver", "local[2]", **{**SETTINGS, "spark.jars": jars})
    run = BatchRunner.__call__

    def run_and_die(runner: BatchRunner, events: Any, number: int) -> None:
        run(runner, events, number)
        if number == batch:
            os.kill(os.getpid(), signal.SIGKILL)

    BatchRunner.__call__ = run_and_die  # type: ignore[method-assign]
    start(session, servers, folder).awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
