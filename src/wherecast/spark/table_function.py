"""Matching from SQL: `SELECT * FROM wherecast_match(TABLE(events))`.

A table function of Spark's must say what columns it returns when it is registered (its vectorised form has no `analyze`), so
the columns of the events are given then, by default the attributes of the index; others of the table are not seen, missing ones
are NULL. The version of the index is fixed then too: all tasks of a query must see the same. Register again to move on.

There is no shuffle inside a function: each task asks all servers for the events it has. For an index that is too large for
one host, use `match`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from wherecast.errors import SchemaError
from wherecast.language.events.schema import Schema
from wherecast.spark.columns import (
    PREFIX,
    SERVER,
    NameRule,
    Names,
    Path,
    check_batch,
    check_moments,
    check_session,
    conform,
    field_at,
    resolve,
)
from wherecast.spark.index import Index
from wherecast.spark.match import RuleColumns, choose_rules
from wherecast.spark.rules import columns_of
from wherecast.spark.tasks import MatchTask
from wherecast.spark.versions import arrow_schema, parse_columns, require

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType
    from pyspark.sql.udtf import UserDefinedTableFunction


def register_table_function(
    spark: SparkSession,
    index: Index | str,
    name: str = "wherecast_match",
    *,
    columns: StructType | str | None = None,
    version: int | None = None,
    names: Mapping[str, str] | None = None,
    rules: RuleColumns = (),
) -> None:
    """Make an index callable from SQL: one row per match, the event's columns, `subscription` and rule columns.

    Args:
        spark: The session in which to register it.
        index: An `Index`, or its path.
        name: The name of the function.
        columns: Columns of the events to return, as a StructType or DDL; by default the attributes of the index.
        version: The version of the index; by default the current one, decided now.
        names: `{"subscription": "rule"}` renames that column, if the events have one of that name.
        rules: Rule columns to add to each match, as `columns` of `match`.
    """
    require("a table function over an index", (4, 1))
    from pyspark.sql.functions import arrow_udtf
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    index = Index(index) if isinstance(index, str) else index
    manifest = index.read(version)
    schema = Schema.from_json(manifest.schema)
    check_session(spark, schema)
    if columns is None:
        columns = schema.to_spark()
    wanted = parse_columns(columns) if isinstance(columns, str) else columns
    rule, subscription = NameRule.of(spark), Names.of(names).subscription
    chosen = choose_rules(rules, "pairs", manifest, spark)
    _refuse_names(wanted.names, [subscription, *chosen.values()], rule)
    kind, stored = LongType() if manifest.id_type == "bigint" else StringType(), columns_of(manifest)
    added = [StructField(name, stored[column].dataType) for column, name in chosen.items()]
    returned = StructType([*wanted.fields, StructField(subscription, kind), *added])
    where = resolve(wanted, schema, manifest.attributes, rule)
    check_moments(wanted, schema, {name: path for name, path in where.items() if name in manifest.attributes})
    used = {schema[name].column: path for name, path in where.items() if name in manifest.attributes}
    task = MatchTask(index.url, manifest, counts=False, explain=False, tally=False, strict=True, rules=tuple(chosen))
    shown = (subscription, *chosen.values())
    form = arrow_schema(wanted, schema.time_zone)

    class WherecastMatch:
        def eval(self, events: pa.RecordBatch) -> Iterator[pa.Table]:
            check_batch(events, schema)  # the zone of the session may have changed since
            yield from match_table(task, conform(events, form, rule), used, form, shown)

    # The worker tells a table argument by its annotation, which this module's future import has made a text.
    WherecastMatch.eval.__annotations__ = {"events": pa.RecordBatch}
    function = cast("UserDefinedTableFunction", arrow_udtf(WherecastMatch, returnType=returned))
    spark.udtf.register(name, function)


def _refuse_names(columns: list[str], added: list[str], rule: NameRule) -> None:
    groups = rule.group(columns)
    for name in columns:
        rule.find(name, groups)
        if name.lower().startswith(PREFIX):
            raise SchemaError(f"the column {name!r}: names that begin with {PREFIX} are reserved; rename it")
    for name in added:
        clash = rule.find(name, groups)
        if clash is not None:
            raise SchemaError(
                f"the events have a column {clash!r}, and matching adds one of that name; rename it, or give ours another "
                "name: names={'subscription': '...'}, or for a rule column rules={'owner': '...'}"
            )


def match_table(
    task: MatchTask, batch: pa.RecordBatch, where: Mapping[str, Path], form: pa.Schema, shown: Sequence[str]
) -> Iterator[pa.Table]:
    """The matches of a batch of events, as pairs: the columns of `form`, then those of `shown`, the subscription first.

    The task gives plain answers.
    """
    used = {name: field_at(batch, path) for name, path in where.items() if path[0] in batch.schema.names}
    events = pa.RecordBatch.from_arrays(list(used.values()), list(used)) if used else batch
    sent, rows = (events, None) if task.manifest.plan is None else _send(task, events)
    start = 0
    for lists in task.match([sent]):
        found = pc.add(pc.list_parent_indices(lists), start)
        start += len(lists)
        places = found if rows is None else rows.take(found)
        columns: dict[str, Any] = {
            field.name: batch.column(field.name).take(places)
            if field.name in batch.schema.names
            else pa.nulls(len(places), field.type)
            for field in form
        }
        matches = lists.flatten()
        parts = matches.flatten() if task.is_wide else [matches]
        yield pa.table({**columns, **dict(zip(shown, parts, strict=True))})


def _send(task: MatchTask, events: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
    """One row per event and server, as Spark's explode would make it, and whose row each is."""
    routed = pa.concat_arrays([*task.route([events])])
    if pa.types.is_list(routed.type):
        rows, servers = pc.list_parent_indices(routed), routed.flatten()
    else:
        rows, servers = pc.indices_nonzero(routed.is_valid()), routed.drop_null()
    sent = events.take(rows)
    return pa.RecordBatch.from_arrays([*sent.columns, servers], [*sent.schema.names, SERVER]), rows
