"""Jobs with a task for each server of an index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_on_servers(
    spark: SparkSession,
    n_servers: int,
    work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    result: str,
) -> pa.Table:
    """What `work` makes of the number of each server, given in a column `server`."""
    from pyspark.sql import functions as F  # noqa: N812

    numbers = spark.range(n_servers).select(F.col("id").cast("int").alias("server"))
    return numbers.repartitionById(n_servers, "server").mapInArrow(work, result).toArrow()
