"""The subscriptions of a broker as a data source: `spark.read.format("wherecast")`, and `spark.readStream` for what changes.

    register_source(spark)
    rules = spark.read.format("wherecast").option("url", "http://127.0.0.1:8080/v1/spaces/quotes").load()

The columns are `id`, `filter`, `subscriber`, `state` and `version`. A read has one row for each subscription that exists. To keep an index equal to a
space, use `index.follow(url)`.

A stream has the changes. Its offsets are versions of the space: a batch from one version to another has the subscriptions whose last change lies between
them, deleted ones with the state `deleted`; the first batch has all. A subscription that changes again before a batch is read comes with that later change. So
whoever keeps the latest row of each id has the subscriptions of the broker, also after a batch was repeated.

Options: `url`; `token`, by default WHERECAST_TOKEN of the driver.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from wherecast.errors import WherecastError
from wherecast.spark.brokers import BrokerSpace
from wherecast.spark.versions import require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = "id STRING, filter STRING, subscriber STRING, state STRING, version BIGINT"


def register_source(spark: SparkSession) -> None:
    """Make the format `wherecast` known to a session. Needs Spark 4.0."""
    require("the data source of a broker", (4, 0))
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

    class SubscriptionReader(DataSourceReader):
        """All subscriptions, in one task."""

        def __init__(self, space: BrokerSpace) -> None:
            self.space = space

        def read(self, partition: object) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002 - there is one
            return map(_row, self.space.export())

    class ChangeReader(DataSourceStreamReader):
        """What changed between two versions, in one task."""

        def __init__(self, space: BrokerSpace) -> None:
            self.space = space

        def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
            return {"version": 0}

        def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802 - without limits, as in Spark 4.0
            return {"version": self.space.version()}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
            versions = (start["version"], end["version"])
            return [] if versions[0] == versions[1] else [InputPartition(versions)]

        def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
            start, end = partition.value
            return (_row(row) for row in self.space.changes(start) if row["version"] <= end)

    class WherecastSource(DataSource):
        """The format `wherecast`."""

        @classmethod
        def name(cls) -> str:
            return "wherecast"

        def schema(self) -> str:
            return _COLUMNS

        def reader(self, schema: object) -> SubscriptionReader:  # noqa: ARG002 - it is ours
            return SubscriptionReader(_space(self.options))

        def streamReader(self, schema: object) -> ChangeReader:  # noqa: ARG002, N802 - it is ours
            return ChangeReader(_space(self.options))

    spark.dataSource.register(WherecastSource)


def _space(options: Any) -> BrokerSpace:
    if "url" not in options:
        raise WherecastError("the format 'wherecast' needs the option 'url': http://HOST:PORT/v1/spaces/NAME")
    return BrokerSpace(options["url"], options.get("token") or os.environ.get("WHERECAST_TOKEN"))


def _row(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["id"], row["filter"], row["subscriber"], row["state"], row["version"]
