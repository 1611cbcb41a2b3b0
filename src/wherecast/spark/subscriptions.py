"""Subscriptions in: a DataFrame of ids and filters, compiled once per distinct filter, bad rows set aside.

A row needs `id` (an integer or a string) and `filter` (SQL); `priority` is optional, any other column belongs to the
subscriber and is not looked at. What cannot be registered is *quarantined*: returned with a reason, never dropped silently
and never fatal for the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from wherecast.errors import FilterError, SubscriptionError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Spark's names of the types that integers have.
INTEGERS = ("byte", "short", "integer", "long")
#: What a quarantined row looks like.
QUARANTINE = pa.schema([("id", pa.string()), ("filter", pa.string()), ("reason", pa.string())])


def read_rows(subscriptions: DataFrame) -> DataFrame:
    """`id`, `filter` and `priority` of a DataFrame, ids as bigint or string, and `fault`, see `text_fault`.

    Raises SubscriptionError if a column is missing or has the wrong type.
    """
    from pyspark.sql import functions as F  # noqa: N812

    for name in ("id", "filter"):
        if name not in subscriptions.columns:
            raise SubscriptionError(f"subscriptions need a column {name!r}; found {', '.join(subscriptions.columns)}")
    kind = subscriptions.schema["id"].dataType.typeName()
    if kind not in (*INTEGERS, "string"):
        raise SubscriptionError(f"the column 'id' holds {kind}; ids are integers or strings: cast it")
    texts = ("id", "filter") if kind == "string" else ("filter",)
    return subscriptions.select(
        text_column("id") if "id" in texts else F.col("id").cast("bigint").alias("id"),
        text_column("filter"),
        priority_column(subscriptions),
        F.coalesce(*map(text_fault, texts)).alias("fault"),
    )


def priority_column(rows: DataFrame) -> Column:
    """The column `priority`, 0 where there is none. Raises SubscriptionError if it does not hold numbers."""
    from pyspark.sql import functions as F  # noqa: N812

    kind = rows.schema["priority"].dataType.typeName() if "priority" in rows.columns else "void"
    if kind not in (*INTEGERS, "float", "double", "decimal", "void"):
        raise SubscriptionError(f"the column 'priority' holds {kind}; priorities are numbers: cast it")
    given = F.col("priority") if "priority" in rows.columns else F.lit(0.0)
    return F.coalesce(given.cast("float"), F.lit(0.0).cast("float")).alias("priority")


def text_column(name: str) -> Column:
    """A column of texts; bytes that are not UTF-8, which Arrow cannot take, are replaced."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.make_valid_utf8(F.col(name).cast("string")).alias(name)


def text_fault(name: str) -> Column:
    """Why a text cannot be taken as it is; NULL if it can."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.when(~F.is_valid_utf8(F.col(name).cast("string")), F.lit(f"the {name} is not valid UTF-8"))


def find_faults(rows: pa.Table) -> dict[int, str]:
    """Rows whose texts cannot be taken as they are, and why."""
    faulty = np.flatnonzero(rows["fault"].is_valid())
    return dict(zip(faulty.tolist(), rows["fault"].take(pa.array(faulty)).to_pylist(), strict=True))


def id_type(rows: DataFrame) -> str:
    """`bigint` or `string`."""
    return str(rows.schema["id"].dataType.simpleString())


def set_unusable_apart(rows: DataFrame) -> tuple[DataFrame, pa.Table]:
    """Rows whose id can be registered, and those that are quarantined because it is missing or not unique."""
    from pyspark.sql import functions as F  # noqa: N812

    spark = rows.sparkSession
    wrong = rows.groupBy("id").count().where("count > 1 OR id IS NULL").select(F.col("id").alias("wrong")).toArrow()
    if not len(wrong):
        return rows, QUARANTINE.empty_table()
    ids = F.broadcast(spark.createDataFrame(wrong, f"wrong {id_type(rows)}"))
    same = F.col("id").eqNullSafe(F.col("wrong"))
    unusable = rows.join(ids, same).toArrow()
    reasons = [
        "the id is missing" if id is None else f"the id {id!r} occurs more than once"
        for id in unusable["id"].to_pylist()
    ]
    refused = quarantine(unusable["id"].to_pylist(), unusable["filter"].to_pylist(), reasons)
    return rows.join(ids, same, "left_anti"), refused


def quarantine(ids: list[Any], filters: list[str | None], reasons: list[str]) -> pa.Table:
    """Quarantined rows as a table."""
    return pa.table([[None if i is None else str(i) for i in ids], filters, reasons], schema=QUARANTINE)


def quarantine_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Quarantined rows as a DataFrame. The types are said, because Spark Connect cannot see those of an empty table."""
    return spark.createDataFrame(table, "id string, filter string, reason string")


def reason_of(error: Exception) -> str:
    """Why a filter is refused, for a person who sees nothing else of it."""
    return f"{error.reason}: {error}" if isinstance(error, FilterError) else str(error)
