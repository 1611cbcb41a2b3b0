"""Feeds: tables that know what has changed in them since a version: those of Delta and Iceberg, and the subscriptions of a broker.

A feed says which ids *may* differ between two versions of its table; what the rows are now is read from the table. So a feed may name too
many ids, and one that cannot tell (no change data feed, a table that was replaced, files of deletes) says so: then the whole table is compared, as with
any other table.

| format | version | what has changed |
|---|---|---|
| Delta | of the last commit | the change data feed (`delta.enableChangeDataFeed`) |
| Iceberg | the current snapshot of `main` | the table's `changes`, an incremental read |
| a broker | of the space | its `changes` |
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from wherecast.spark.brokers import BrokerSpace
from wherecast.spark.columns import quoted
from wherecast.spark.versions import from_arrow, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: More ids than this are not worth a list: the tables are compared whole.
MOST_IDS = 100_000

#: What a broker tells of a subscription.
_RULE = ("id", "filter", "subscriber")

_log = logging.getLogger(__name__)


class ChangeFeed(ABC):
    """A table, by its name in SQL, that has versions and tells what changed between two of them."""

    #: What `DESCRIBE TABLE EXTENDED` calls the format.
    provider: ClassVar[str]

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark, self.name = spark, name

    @abstractmethod
    def version(self) -> int | None:
        """The current version of the table; None: it has none yet."""

    @abstractmethod
    def changes(self, since: int, until: int) -> DataFrame:
        """Rows that were added, removed or edited after one version and up to another. May fail, also when it is computed."""

    def read(self, version: int | None) -> DataFrame:
        """The table in that version."""
        if version is None:
            return self.spark.table(self.name)
        return self.spark.sql(f"SELECT * FROM {self.name} VERSION AS OF {version}")  # noqa: S608 - a name is SQL

    def changed_ids(self, since: int, until: int, column: str) -> pa.Table | None:
        """Ids that may differ, in a column `id`; None if the table cannot tell, or if they are too many."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with PySpark
        from pyspark.errors import PySparkException

        try:
            ids = self.changes(since, until).select(quoted(column).alias("id")).distinct()
            found = to_arrow(ids.limit(MOST_IDS + 1))
        except (PySparkException, Py4JJavaError) as error:
            _log.info(
                "table=%s cannot tell what changed, comparing it whole: %s", self.name, str(error).partition("\n")[0]
            )
            return None
        return found if len(found) <= MOST_IDS else None


class DeltaFeed(ChangeFeed):
    """A Delta table; `delta.`/path`` names one by its path."""

    provider = "delta"

    def version(self) -> int | None:
        row = self.spark.sql(f"DESCRIBE HISTORY {self.name} LIMIT 1").first()
        return None if row is None else int(row["version"])

    def changes(self, since: int, until: int) -> DataFrame:
        reader = self.spark.read.format("delta").option("readChangeFeed", "true")
        return reader.option("startingVersion", since + 1).option("endingVersion", until).table(self.name)


class IcebergFeed(ChangeFeed):
    """An Iceberg table."""

    provider = "iceberg"

    def version(self) -> int | None:
        self.spark.catalog.refreshTable(self.name)  # a session keeps what it knew of a table for half a minute
        row = self.spark.table(f"{self.name}.refs").where("name = 'main'").select("snapshot_id").first()
        return None if row is None else int(row[0])

    def changes(self, since: int, until: int) -> DataFrame:
        reader = self.spark.read.format("iceberg").option("start-snapshot-id", since)
        return reader.option("end-snapshot-id", until).load(f"{self.name}.changes")


class BrokerFeed(ChangeFeed):
    """The active subscriptions of a space, by its address: `id`, `filter` and `subscriber`."""

    provider = "wherecast"

    def __init__(self, spark: SparkSession, name: str) -> None:
        super().__init__(spark, name)
        self.space = BrokerSpace(name)

    def version(self) -> int:
        return self.space.version()

    def changes(self, since: int, until: int) -> DataFrame:
        """Those after `until`, too: a feed may name too many."""
        rows = [row for row in self.space.changes(since) if until > since]
        return self._frame(rows)

    def read(self, version: int | None) -> DataFrame:  # noqa: ARG002 - a broker has the current ones only
        """As they are now, which may be later than the version: what is new already is found equal at the next look."""
        return self._frame([row for row in self.space.export() if row["state"] == "active"])

    def _frame(self, rows: list[dict[str, Any]]) -> DataFrame:
        table = pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in _RULE})
        return from_arrow(self.spark, table, ", ".join(f"{name} STRING" for name in _RULE))


FEEDS: tuple[type[ChangeFeed], ...] = (DeltaFeed, IcebergFeed)


def feed_of(spark: SparkSession, name: str) -> ChangeFeed | None:
    """The feed of a table, or of a broker's space by its address; None if its format has none."""
    from pyspark.errors import PySparkException

    if name.startswith(("http://", "https://")):
        return BrokerFeed(spark, name)

    try:
        described = spark.sql(f"DESCRIBE TABLE EXTENDED {name}")
    except PySparkException:  # files by their path, or no table: reading it tells
        return None
    row = described.where("lower(col_name) = 'provider'").select("data_type").first()
    provider = "" if row is None else str(row[0]).lower()
    return next((feed(spark, name) for feed in FEEDS if feed.provider == provider), None)
