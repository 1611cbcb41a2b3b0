"""Delta tables: a transaction number is taken once per stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from wherecast.spark.sinks.sink import Sink, SinkError, computed, refuse_lost_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wherecast.spark.config import SinkConfig
    from wherecast.spark.stream import Batch


class Delta(Sink):
    """A Delta table, by its path or by its name (`table`); needs delta-spark in the session.

    The table skips batch numbers that it has already from the same writer. A writer is named by `application` and the id
    of the stream, so several streams may write to one table.
    """

    needs = (("path", "table"),)

    def __init__(self, path: str | None = None, application: str = "wherecast", *, table: str | None = None) -> None:
        if (path is None) == (table is None):
            raise SinkError("a Delta table has either a path or the name of a table: Delta(path) or Delta(table='...')")
        self.path = path
        self.table = table
        self.application = application

    @classmethod
    def of(cls, config: SinkConfig, application: str) -> Self:
        return cls(config.path, application, table=config.table)

    def write(self, matches: DataFrame, batch: Batch) -> None:
        """Append in a transaction that the table takes once per (application, stream, batch)."""
        if not _has_delta(matches.sparkSession):
            raise SinkError("this Spark session has no Delta Lake; add the package io.delta:delta-spark to it")
        name = self.table or f"delta.`{self.path}`"
        if batch > 0 and not _has_table(matches.sparkSession, name):
            refuse_lost_table(name, batch)
        with computed(matches) as rows:
            writer = rows.write.format("delta").mode("append")
            writer = writer.option("txnAppId", f"{self.application}-{batch.stream}").option("txnVersion", int(batch))
            writer.save(self.path) if self.table is None else writer.saveAsTable(self.table)


def _has_table(spark: SparkSession, name: str) -> bool:
    from pyspark.errors import AnalysisException

    try:
        return bool(spark.catalog.tableExists(name))
    except AnalysisException as error:
        if "DELTA_MISSING_DELTA_TABLE" in str(error):  # what Delta 4 says of a path without a table
            return False
        raise


def _has_delta(spark: SparkSession) -> bool:
    return "delta" in (spark.conf.get("spark.sql.extensions", "") or "").lower()
