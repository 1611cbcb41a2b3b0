"""The subscriptions of a broker as a data source: `spark.read.format("wherecast")`.

    register_source(spark)
    rules = spark.read.format("wherecast").option("url", "http://127.0.0.1:8080/v1/spaces/quotes").load()

The columns are `id`, `filter`, `subscriber`, `state` and `version`, one row for each subscription that exists. To keep an index equal to a space,
use `index.follow(url)`.

Options: `url`; `token`, by default WHERECAST_TOKEN of the driver.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
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
    from pyspark.sql.datasource import DataSource, DataSourceReader

    class SubscriptionReader(DataSourceReader):
        """All subscriptions, in one task."""

        def __init__(self, space: BrokerSpace) -> None:
            self.space = space

        def read(self, partition: object) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002 - there is one
            return map(_row, self.space.export())

    class WherecastSource(DataSource):
        """The format `wherecast`."""

        @classmethod
        def name(cls) -> str:
            return "wherecast"

        def schema(self) -> str:
            return _COLUMNS

        def reader(self, schema: object) -> SubscriptionReader:  # noqa: ARG002 - it is ours
            return SubscriptionReader(_space(self.options))

    spark.dataSource.register(WherecastSource)


def _space(options: Any) -> BrokerSpace:
    if "url" not in options:
        raise WherecastError("the format 'wherecast' needs the option 'url': http://HOST:PORT/v1/spaces/NAME")
    return BrokerSpace(options["url"], options.get("token") or os.environ.get("WHERECAST_TOKEN"))


def _row(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["id"], row["filter"], row["subscriber"], row["state"], row["version"]
