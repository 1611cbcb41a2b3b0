"""Subscriptions in: a DataFrame of ids and filters, compiled once per distinct filter, bad rows set aside.

Rows. A row needs an id (an integer or a string) and a filter (SQL); `priority` is optional, and any other column goes along
(see `rules`). What cannot be registered is *quarantined*: returned with a reason, never dropped silently and never fatal
for the others.

Parts. Rows are sent to tasks by their filter, so that each distinct text is compiled once, by one task. What it makes of some
rows is a *part*: the filters, who has them, and the columns of these rules. A part goes on as bytes, whole or split by server,
and a server is built of the parts it gets; texts are never looked at again. The driver sees the filters of parts only, and only to make a plan.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.engine.segment import Members
from wherecast.engine.subscriptions import read_subscriptions
from wherecast.errors import FilterError, SubscriptionError
from wherecast.kernels.arrays import Longs
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import Filters, concat_filters, take_filters
from wherecast.partition.plan import Plan
from wherecast.spark.columns import quoted
from wherecast.spark.layers import open_plan
from wherecast.spark.manifest import SavedPlan
from wherecast.spark.rules import (
    HASH,
    RULE,
    find_column,
    from_bytes,
    rule_columns,
    rule_struct,
    struct_rows,
    to_bytes,
)
from wherecast.spark.versions import from_arrow, is_valid_utf8, make_valid_utf8, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType


# Rows

#: Spark's names of the types that integers have.
INTEGERS = ("byte", "short", "integer", "long")
#: What a quarantined row looks like; the hash is that of its content.
QUARANTINE = pa.schema(
    [*((name, pa.string()) for name in ("id", "filter", "reason", "position")), pa.field(HASH, pa.int64())]
)


def read_rows(
    subscriptions: DataFrame, id: str = "id", filter: str = "filter", columns: StructType | None = None
) -> DataFrame:
    """`id`, `filter` and `priority` of a DataFrame, ids as bigint or string, `fault` (see `text_fault`) and `rule` (see `rules`).

    `id` and `filter` say what the DataFrame calls these two; `columns` are the rule columns, by default all others.
    Raises SubscriptionError if a column is missing or has the wrong type.
    """
    from pyspark.sql import functions as F  # noqa: N812

    id, filter = (find_column(subscriptions, name, "subscriptions") for name in (id, filter))
    if "priority" in subscriptions.columns:
        subscriptions = subscriptions.withColumn("priority", priority_column(subscriptions))
    if columns is None:
        columns = rule_columns(subscriptions, (id, filter))
    kind = subscriptions.schema[id].dataType.typeName()
    if kind not in (*INTEGERS, "string"):
        raise SubscriptionError(f"the column {id!r} holds {kind}; ids are integers or strings: cast it")
    texts = (id, filter) if kind == "string" else (filter,)
    rule, faults = rule_struct(subscriptions, text_column(filter), columns)
    return subscriptions.select(
        (text_column(id) if id in texts else quoted(id).cast("bigint")).alias("id"),
        text_column(filter).alias("filter"),
        priority_column(subscriptions),
        F.coalesce(*map(text_fault, texts), *faults).alias("fault"),
        rule,
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
    return make_valid_utf8(quoted(name).cast("string")).alias(name)


def text_fault(name: str) -> Column:
    """Why a text cannot be taken as it is; NULL if it can."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.when(~is_valid_utf8(quoted(name).cast("string")), F.lit(f"the {name} is not valid UTF-8"))


def find_faults(rows: pa.Table) -> dict[int, str]:
    """Rows whose texts cannot be taken as they are, and why."""
    faulty = np.flatnonzero(rows["fault"].is_valid())
    return dict(zip(faulty.tolist(), rows["fault"].take(pa.array(faulty)).to_pylist(), strict=True))


def id_type(rows: DataFrame) -> str:
    """`bigint` or `string`."""
    return str(rows.schema["id"].dataType.simpleString())


def set_unusable_apart(rows: DataFrame) -> tuple[DataFrame, pa.Table, int]:
    """Rows whose id can be registered, those that are quarantined because it is missing or not unique, and how many there are."""
    from pyspark.sql import functions as F  # noqa: N812

    spark, n_rows = rows.sparkSession, rows.count()
    counted = rows.groupBy("id").count().where("count > 1 OR id IS NULL")
    wrong = to_arrow(counted.select(F.col("id").alias("wrong")))
    if not len(wrong):
        return rows, QUARANTINE.empty_table(), n_rows
    ids = F.broadcast(from_arrow(spark, wrong, f"wrong {id_type(rows)}"))
    same = F.col("id").eqNullSafe(F.col("wrong"))
    unusable = to_arrow(rows.join(ids, same))
    reasons = [
        "the id is missing" if id is None else f"the id {id!r} occurs more than once"
        for id in unusable["id"].to_pylist()
    ]
    return rows.join(ids, same, "left_anti"), quarantine(unusable, reasons), n_rows


def quarantine(rows: pa.Table, reasons: list[str], positions: list[str | None] | None = None) -> pa.Table:
    """Rows that are refused, as a table."""
    ids = [None if id is None else str(id) for id in rows["id"].to_pylist()]
    hashes = pc.struct_field(rows[RULE], HASH)
    return pa.table([ids, rows["filter"], reasons, positions or [None] * len(reasons), hashes], schema=QUARANTINE)


def quarantine_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Quarantined rows as a DataFrame."""
    shown = table.select(["id", "filter", "reason", "position"])
    return from_arrow(spark, shown, "id string, filter string, reason string, position string")


def reason_of(error: Exception) -> str:
    """Why a filter is refused, for a person who sees nothing else of it."""
    return f"{error.reason}: {error}" if isinstance(error, FilterError) else str(error)


def position_of(error: Exception) -> str | None:
    """Line and column of what is wrong in a filter."""
    return f"{error.line}:{error.column}" if isinstance(error, FilterError) else None


# Parts

#: A row is a part for a server, or a subscription that did not compile.
PARTS = (
    "server int, filters binary, members binary, rules binary, "
    f"id string, filter string, reason string, position string, {HASH} bigint"
)
_NAMES = ["server", "filters", "members", "rules", *QUARANTINE.names]
#: Rows and bytes of a part, about: what a task holds as text at a time, and far less than Spark takes as one value.
PART_ROWS, _PART_BYTES = 1_000_000, 1 << 29


class Part(NamedTuple):
    """Compiled subscriptions for a server."""

    server: int
    members: Members
    rules: pa.Table
    """A row for each member."""


@dataclass(frozen=True, slots=True)
class CompileTask:
    """Subscriptions in, parts for server 0 out."""

    schema: Schema
    form: pa.Schema
    """Of the rules."""
    case_sensitive: bool = False
    """Whether the names in filters must be written as in the schema."""

    def compile(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Parts of some rows, and the rows that are refused."""
        compiler = Compiler(self.schema, case_sensitive=self.case_sensitive)
        for rows in _gather(batches):
            incoming = read_subscriptions(rows)
            compiled = compiler.compile_many(incoming.texts)
            filter_of, errors = compiled.filter_of[incoming.text_of], incoming.refused(compiled.errors)
            refused = {row: reason_of(error) for row, error in errors.items()} | find_faults(rows)
            bad = np.array(sorted(refused), np.int64)
            good = np.delete(np.arange(filter_of.size), bad)
            if good.size:
                kept = rows.take(pa.array(good))
                ids, priorities = id_values(kept["id"]), incoming.priorities[good]
                members = Members(compiled.filters, filter_of[good], ids, priorities)
                yield part_row(Part(0, members, struct_rows(kept[RULE], self.form)))
            if bad.size:
                listed = bad.tolist()
                positions = [position_of(errors[row]) if row in errors else None for row in listed]
                yield _refused_rows(quarantine(rows.take(pa.array(bad)), [refused[row] for row in listed], positions))


@dataclass(frozen=True, slots=True)
class PlaceTask:
    """Parts in, parts for each server of a plan out."""

    url: str
    plan: SavedPlan

    def place(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The parts split by server; refused rows go along."""
        plan = open_plan(self.url, self.plan)
        for parts, refused in map(read_parts, batches):
            if len(refused):
                yield _refused_rows(refused)
            for part in parts:
                yield from map(part_row, split_members(part.members, part.rules, plan))


def split_members(members: Members, rules: pa.Table, plan: Plan) -> Iterator[Part]:
    """What each server gets."""
    ptr, servers = plan.place(members.plain)
    owner = np.repeat(np.arange(ptr.size - 1), np.diff(ptr))
    ids = np.asarray(members.ids)
    for server in np.unique(servers).tolist():
        chosen = np.unique(owner[servers == server])
        number = np.full(ptr.size - 1, -1, np.int64)
        number[chosen] = np.arange(chosen.size)
        mine = np.flatnonzero(number[members.filter_of] >= 0)
        filters, filter_of = take_filters(members.plain, chosen), number[members.filter_of[mine]]
        yield Part(server, Members(filters, filter_of, ids[mine], members.priorities[mine]), rules.take(pa.array(mine)))


def filters_and_weights(column: Iterable[bytes], schema: Schema) -> tuple[Filters, Longs]:
    """All filters of some parts, and how many subscriptions each has."""
    found = [pickle.loads(data) for data in column]  # noqa: S301 - from our own tasks
    filters = concat_filters([filters for filters, _ in found], schema)
    return filters, np.concatenate([np.zeros(0, np.int64), *(weights for _, weights in found)])


def part_row(part: Part) -> pa.RecordBatch:
    """A part as a row. Its filters stand apart from the rest, for who wants only these."""
    filters, *who = part.members
    weights = np.bincount(part.members.filter_of, minlength=filters.n_filters)
    values = [pickle.dumps((filters, weights), 5), pickle.dumps(who, 5), to_bytes(part.rules)]
    columns = [pa.array([part.server], pa.int32()), *(pa.array([v], pa.binary()) for v in values)]
    return pa.RecordBatch.from_arrays([*columns, *(pa.nulls(1, field.type) for field in QUARANTINE)], _NAMES)


def read_parts(batch: pa.RecordBatch) -> tuple[list[Part], pa.Table]:
    """The parts of a batch, and the refused rows that go along."""
    parts = []
    columns = [batch.column(name) for name in ("server", "filters", "members", "rules")]
    for server, filters, members, rules in zip(*columns, strict=True):
        if members.is_valid:
            compiled, _ = pickle.loads(filters.as_buffer())  # noqa: S301 - from our own tasks
            who = pickle.loads(members.as_buffer())  # noqa: S301
            parts.append(Part(server.as_py(), Members(compiled, *who), from_bytes(rules.as_buffer())))
    refused = pa.Table.from_batches([batch]).filter(batch.column("members").is_null())
    return parts, refused.select(QUARANTINE.names)


def _gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of about as many rows and bytes as a part has."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(b.num_rows for b in held) >= PART_ROWS or sum(b.nbytes for b in held) >= _PART_BYTES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def id_values(ids: pa.ChunkedArray) -> np.ndarray:
    """Ids as an engine takes them."""
    return ids.to_numpy() if pa.types.is_integer(ids.type) else np.array(ids.to_pylist(), object)


def _refused_rows(refused: pa.Table) -> pa.RecordBatch:
    n = len(refused)
    parts = [pa.nulls(n, pa.int32()), *(pa.nulls(n, pa.binary()) for _ in range(3))]
    return pa.RecordBatch.from_arrays([*parts, *(column.combine_chunks() for column in refused.columns)], _NAMES)
