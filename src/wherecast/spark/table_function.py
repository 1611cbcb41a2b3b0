"""Matching from SQL: `SELECT * FROM wherecast_match(TABLE(events))`.

A table function of Spark's must say what columns it returns when it is registered (its vectorised form has no `analyze`), so
the columns of the events are given then, by default the attributes of the index; others of the table are not seen, missing
ones are NULL. The version of the index is fixed then too: all tasks of a query must see the same. Register again to move on.

There is no shuffle inside a function: each task asks all servers for the events it has. For an index that is too large for
one host, use `match`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.errors import SchemaError
from wherecast.language.schema import Schema
from wherecast.spark.index import Index
from wherecast.spark.tasks import IDS, SERVER, SERVERS, MatchTask
from wherecast.spark.zone import check_batch, check_moments, check_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType
    from pyspark.sql.udtf import UserDefinedTableFunction

_SUBSCRIPTION = "subscription"


def register_table_function(
    spark: SparkSession,
    index: Index | str,
    name: str = "wherecast_match",
    *,
    columns: StructType | str | None = None,
    version: int | None = None,
) -> None:
    """Make an index callable from SQL: one row per match, the event's columns and `subscription`.

    Args:
        spark: The session whose SQL shall know it.
        index: An `Index`, or its path.
        name: Of the function.
        columns: Columns of the events to return, as a StructType or DDL; by default the attributes of the index.
        version: Of the index; by default the current one, decided now.
    """
    from pyspark.sql.functions import arrow_udtf
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    index = Index(index) if isinstance(index, str) else index
    manifest = index.read(version)
    schema = Schema.from_json(manifest.schema)
    check_session(spark, schema)
    if columns is None:
        columns = schema.to_spark()
    wanted = cast("StructType", StructType.fromDDL(columns)) if isinstance(columns, str) else columns
    check_moments(wanted, schema, manifest.attributes)
    if _SUBSCRIPTION in wanted.names:
        raise SchemaError(f"the columns of the events have the name {_SUBSCRIPTION!r}, which matching adds; rename it")
    kind = cast("StructType", StructType.fromDDL(f"{_SUBSCRIPTION} {manifest.id_type}"))
    returned = StructType([*wanted.fields, *kind.fields])
    task = MatchTask(index.url, manifest, counts=False, explain=False, tally=False, strict=True)
    form = to_arrow_schema(wanted, timezone=schema.time_zone)

    class WherecastMatch:
        def eval(self, events: pa.RecordBatch) -> Iterator[pa.Table]:
            check_batch(events, schema)  # the zone of the session may have changed since
            yield from match_table(task, events, form)

    # The worker tells a table argument by its annotation, which this module's future import has made a text.
    WherecastMatch.eval.__annotations__ = {"events": pa.RecordBatch}
    function = cast("UserDefinedTableFunction", arrow_udtf(WherecastMatch, returnType=returned))
    spark.udtf.register(name, function)


def match_table(task: MatchTask, events: pa.RecordBatch, form: pa.Schema) -> Iterator[pa.Table]:
    """The matches of a batch of events, as pairs: the columns of `form`, and `subscription`."""
    batch = events.select([name for name in form.names if name in events.schema.names])
    found = task.match_here([batch]) if task.manifest.plan is None else task.match_served(_send(task, batch))
    for answer in found:
        lists = answer.column(IDS)
        rows = pc.list_parent_indices(lists)
        columns: dict[str, Any] = {
            field.name: answer.column(field.name).take(rows)
            if field.name in batch.schema.names
            else pa.nulls(len(rows), field.type)
            for field in form
        }
        yield pa.table({**columns, _SUBSCRIPTION: lists.flatten()})


def _send(task: MatchTask, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A routed batch with one row per event and server, as Spark's explode would make it."""
    for routed in task.route([batch]):
        servers = routed.column(SERVERS)
        rows = np.asarray(pc.list_parent_indices(servers))
        sent = routed.take(pa.array(rows))
        yield pa.RecordBatch.from_arrays([*sent.columns, servers.flatten()], [*sent.schema.names, SERVER])
