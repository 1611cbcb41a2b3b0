"""Iceberg tables: the snapshot of a batch carries the key of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from wherecast.spark.sinks.sink import Sink, computed, refuse_lost_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wherecast.spark.config import SinkConfig
    from wherecast.spark.stream import Batch

#: The property of a snapshot that has the key of its batch.
KEY = "wherecast.batch"


class Iceberg(Sink):
    """An Iceberg table by its name, which is made if it is missing; needs Iceberg's runtime and a catalog in the session.

    An append is one snapshot, and the snapshot carries the key of the batch. A batch whose key some snapshot has is not written
    again. So keep snapshots for longer than a stream may stand still between a crash and its next start: `expire_snapshots` removes keys.
    """

    needs = (("table",),)

    def __init__(self, table: str) -> None:
        self.table = table

    @classmethod
    def of(cls, config: SinkConfig, application: str) -> Self:  # noqa: ARG003 - keys have the stream
        return cls(str(config.table))

    def holds(self, batch: Batch) -> bool:
        """A batch is in when a snapshot has its key."""
        from pyspark.sql import SparkSession
        from pyspark.sql import functions as F  # noqa: N812

        spark = SparkSession.active()
        if not self._exists(spark):
            return False
        snapshots = spark.table(f"{self.table}.snapshots")
        return bool(snapshots.where(F.col("summary")[KEY] == batch.key).limit(1).count())

    def _exists(self, spark: SparkSession) -> bool:
        if not spark.catalog.tableExists(self.table):
            return False
        spark.catalog.refreshTable(self.table)  # a session keeps what it knew of a table for half a minute
        return bool(spark.catalog.tableExists(self.table))

    def write(self, matches: DataFrame, batch: Batch) -> None:
        """Append in one snapshot with the batch's key, unless there is one."""
        if self.holds(batch):
            return
        is_new = not self._exists(matches.sparkSession)
        if is_new:
            refuse_lost_table(self.table, batch)
        with computed(matches) as rows:
            if is_new:
                rows.limit(0).writeTo(self.table).using("iceberg").create()
            rows.writeTo(self.table).option(f"snapshot-property.{KEY}", batch.key).append()
