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
from wherecast.language.compile import Compiled, Compiler
from wherecast.language.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What a quarantined row looks like.
QUARANTINE = pa.schema([("id", pa.string()), ("filter", pa.string()), ("reason", pa.string())])


def read_rows(subscriptions: DataFrame) -> DataFrame:
    """`id`, `filter` and `priority` of a DataFrame, ids as bigint or string. Raises SubscriptionError."""
    from pyspark.sql import functions as F  # noqa: N812

    for name in ("id", "filter"):
        if name not in subscriptions.columns:
            raise SubscriptionError(f"subscriptions need a column {name!r}; found {', '.join(subscriptions.columns)}")
    kind = subscriptions.schema["id"].dataType.typeName()
    if kind not in ("byte", "short", "integer", "long", "string"):
        raise SubscriptionError(f"the column 'id' holds {kind}; ids are integers or strings: cast it")
    id = F.col("id") if kind == "string" else F.col("id").cast("bigint")
    priority = F.col("priority").cast("float") if "priority" in subscriptions.columns else F.lit(0.0).cast("float")
    return subscriptions.select(id.alias("id"), F.col("filter").cast("string"), priority.alias("priority"))


def id_type(rows: DataFrame) -> str:
    """`bigint` or `string`."""
    return str(rows.schema["id"].dataType.simpleString())


def split_unusable(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Rows whose id can be registered, and those that are quarantined because it is missing or not unique."""
    counts = rows["id"].value_counts()
    often = counts.field("values").filter(pa.array(np.asarray(counts.field("counts")) > 1))
    bad = np.asarray(rows["id"].is_null())
    if len(often):
        bad = bad | np.asarray(pa.compute.is_in(rows["id"], often))
    if not bad.any():
        return rows, QUARANTINE.empty_table()
    unusable = rows.filter(pa.array(bad))
    reasons = [
        "the id is missing" if id is None else f"the id {id!r} occurs more than once"
        for id in unusable["id"].to_pylist()
    ]
    return rows.filter(pa.array(~bad)), quarantine(unusable["id"].to_pylist(), unusable["filter"].to_pylist(), reasons)


def quarantine(ids: list[Any], filters: list[str | None], reasons: list[str]) -> pa.Table:
    """Quarantined rows as a table."""
    return pa.table([[None if i is None else str(i) for i in ids], filters, reasons], schema=QUARANTINE)


def compile_distinct(texts: pa.ChunkedArray, schema: Schema) -> tuple[Compiled, dict[str | None, str]]:
    """Compile distinct texts; the reason of each that does not compile."""
    values = texts.to_pylist()
    compiled = Compiler(schema).compile_many(values)
    return compiled, {values[row]: reason_of(error) for row, error in compiled.errors}


def reason_of(error: FilterError | SubscriptionError) -> str:
    return f"{error.reason}: {error}" if isinstance(error, FilterError) else str(error)
