"""Delta tables: a transaction number is taken once per stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wherecast.errors import WherecastError
from wherecast.spark.sinks.sink import _computed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wherecast.spark.stream import Batch


class Delta:
    """A Delta table; needs delta-spark in the session.

    The table skips batch numbers that it has already from the same writer. A writer is named by `application` and the id
    of the stream, so several streams may write to one table.
    """

    def __init__(self, path: str, application: str) -> None:
        self.path = path
        self.application = application

    def admit(self, stream: str | None) -> None:
        """All streams: the table tells them apart."""

    def holds(self, batch: Batch) -> bool:  # noqa: ARG002 - the table itself refuses what it has
        return False

    def write(self, matches: DataFrame, batch: Batch) -> None:
        """Append in a transaction that the table takes once per (application, stream, batch)."""
        if not _has_delta(matches.sparkSession):
            raise WherecastError("this Spark session has no Delta Lake; add the package io.delta:delta-spark to it")
        with _computed(matches) as rows:
            writer = rows.write.format("delta").mode("append")
            writer = writer.option("txnAppId", f"{self.application}-{batch.stream}").option("txnVersion", int(batch))
            writer.save(self.path)


def _has_delta(spark: SparkSession) -> bool:
    return "delta" in (spark.conf.get("spark.sql.extensions", "") or "").lower()
