"""Rules: subscriptions as rows of a table, and the columns that belong to them.

A table of rules has a column of ids and one of filters; all others, such as a severity or an owner, are *rule columns*. They are
stored with the layer that holds the rule, so a version of an index has the columns that belong to its filters, whatever
becomes of the table.

On the way through Spark a rule has one column more, `rule`: a struct of its columns and of a hash of its content. The content
is the filter and all columns as JSON, so that a value that moves from one column to another, or becomes NULL, changes the hash. Two contents have the same
64-bit hash about once in 10^19 edits.

In a layer, `rules.arrow` has a row for each slot of the layer's engine, in the order of the slots. Matching finds
slots, so the columns of a match are taken by position; nothing is looked up by id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.errors import SchemaError, SubscriptionError
from wherecast.spark.columns import ERROR, MESSAGE, PREFIX, NameRule, quoted
from wherecast.spark.manifest import Manifest
from wherecast.spark.store import IndexStoreError
from wherecast.spark.versions import arrow_schema, is_valid_utf8, is_variant, make_valid_utf8

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

#: The column of structs, and the field that has the hash.
RULE, HASH = "rule", f"{PREFIX}_hash"
#: The file of a layer.
RULES = "rules.arrow"
#: How JSON is written for the hash: nothing left out, and the same in every session.
_JSON = {"ignoreNullFields": "false", "timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
         "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}  # fmt: skip


# Tables of rules


def find_column(rows: DataFrame, name: str, what: str) -> str:
    """A column as the table spells it. Raises SubscriptionError if there is none, or several."""
    found = NameRule.of(rows.sparkSession).group(rows.columns).get(NameRule.of(rows.sparkSession).key(name), [])
    if len(found) != 1:
        how = "need a" if not found else "have more than one"
        raise SubscriptionError(f"{what} {how} column {name!r}; found {', '.join(rows.columns)}")
    return found[0]


def rule_columns(rows: DataFrame, known: Iterable[str]) -> StructType:
    """The rule columns of a table: all but the known ones. Raises SubscriptionError if one cannot be stored."""
    from pyspark.sql.types import StructField, StructType

    rule = NameRule.of(rows.sparkSession)
    others = [f for f in rows.schema.fields if f.name not in {*known, ERROR, MESSAGE}]
    names = rule.group(f.name for f in others)
    for field in others:
        if field.name.lower().startswith(PREFIX):
            raise SubscriptionError(
                f"the rules have a column {field.name!r}; names that begin with {PREFIX} are reserved"
            )
        if len(names[rule.key(field.name)]) > 1:
            raise SubscriptionError(f"the rules have more than one column {field.name!r}; drop or rename one")
        _check_storable(field.name, field.dataType)
    return StructType([StructField(f.name, plain_type(f.dataType)) for f in others])


def _check_storable(name: str, kind: DataType) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        if is_variant(kind):
            raise TypeError
        arrow_schema(StructType().add(name, kind), "UTC")
    except (PySparkException, TypeError):
        raise SubscriptionError(
            f"the column {name!r} of the rules holds {kind.simpleString()}, which cannot be stored; cast it or drop it"
        ) from None


def plain_type(kind: DataType) -> DataType:
    """A type that any values of its kind have: NULLs are allowed, and a column of nothing but NULLs is one of texts."""
    from pyspark.sql import types as T  # noqa: N812

    match kind:
        case T.NullType():
            return T.StringType()
        case T.StructType():
            return T.StructType([T.StructField(f.name, plain_type(f.dataType)) for f in kind.fields])
        case T.ArrayType():
            return T.ArrayType(plain_type(kind.elementType))
        case T.MapType():
            return T.MapType(plain_type(kind.keyType), plain_type(kind.valueType))
    return kind


def rule_struct(
    rows: DataFrame, filter: Column, columns: StructType, what: str = "rules"
) -> tuple[Column, list[Column]]:
    """The column `rule` of rows, and what is wrong with texts in them.

    A column that the rows do not have is NULL. Raises SubscriptionError if one has another type than it has in the index.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import NullType, StringType

    groups, rule = NameRule.of(rows.sparkSession).group(rows.columns), NameRule.of(rows.sparkSession)
    values, faults = [], []
    for field in columns.fields:
        found = groups.get(rule.key(field.name), [])
        value = quoted(found[0]) if found else F.lit(None)
        kind = rows.schema[found[0]].dataType if found else NullType()
        if isinstance(kind, NullType):
            value = value.cast(field.dataType)
        elif plain_type(kind) != field.dataType:
            raise SubscriptionError(
                f"the column {field.name!r} of the {what} holds {kind.simpleString()}, in the index it is "
                f"{field.dataType.simpleString()}; cast it, or build the index again"
            )
        elif isinstance(kind, StringType):
            wrong = ~is_valid_utf8(value)
            faults.append(F.when(wrong, F.lit(f"the {field.name} is not valid UTF-8")))
            value = make_valid_utf8(value)
        values.append(value.alias(field.name))
    content = F.to_json(F.struct(filter.alias(HASH), *values), _JSON)
    return F.struct(F.xxhash64(content).alias(HASH), *values).alias(RULE), faults


def stored_columns(rows: DataFrame) -> StructType:
    """The rule columns of rows that have a column `rule`."""
    from pyspark.sql.types import StructType

    _, *fields = cast("StructType", plain_type(rows.schema[RULE].dataType)).fields
    return StructType(fields)


def columns_of(manifest: Manifest) -> StructType:
    """The rule columns of a version."""
    from pyspark.sql.types import StructType

    if not manifest.columns:
        return StructType([])
    try:
        return StructType.fromJson(json.loads(manifest.columns))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IndexStoreError(f"the index has no valid rule columns ({error!s:.200}); build it again") from None


def arrow_form(columns: StructType) -> pa.Schema:
    """What a layer stores: the hash, and the columns in one Arrow type for each Spark type."""
    return pa.schema([pa.field(HASH, pa.int64()), *arrow_schema(columns, "UTC")])


def choose_columns(
    chosen: Iterable[str] | Mapping[str, str] | str, manifest: Manifest, spark: SparkSession
) -> dict[str, str]:
    """The rule columns that a caller asks for, as the index spells them, and what the result calls them.

    `*` asks for all. Raises SchemaError if there is no such column, or one is asked for twice.
    """
    known = columns_of(manifest).names
    if isinstance(chosen, str):
        chosen = known if chosen == "*" else [chosen]
    shown = dict(chosen) if isinstance(chosen, Mapping) else {name: name for name in chosen}
    rule, found = NameRule.of(spark), {}
    for name, other in shown.items():
        spelled = rule.find(name, rule.group(known))
        if spelled is None:
            there = f"it has {', '.join(known)}" if known else "it has none: build it again to store them"
            raise SchemaError(f"the index has no rule column {name!r}; {there}")
        found[spelled] = other
    for spellings in rule.group([*found.values()]).values():
        if len(spellings) > 1:
            raise SchemaError(f"two rule columns are called {spellings[0]!r}; give each a name of its own")
    return found


# Rules in parts and layers


def struct_rows(column: pa.ChunkedArray, form: pa.Schema) -> pa.Table:
    """The column `rule` as a table of the stored form: Spark's timestamps have the zone of the session."""
    parts = [pa.Table.from_struct_array(chunk).cast(form) for chunk in column.chunks]
    return pa.concat_tables(parts) if parts else form.empty_table()


def to_bytes(rules: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rules.schema) as writer:
        writer.write_table(rules)
    return cast("bytes", sink.getvalue().to_pybytes())


def from_bytes(content: Any) -> pa.Table:
    return pa.ipc.open_stream(content).read_all()


def by_slot(rules: pa.Table, slots: npt.NDArray[np.int64]) -> pa.Table:
    """Rows in the order of slots, of which each has one."""
    order = np.empty(len(slots), np.int64)
    order[slots] = np.arange(len(slots))
    return rules.take(pa.array(order))


def write_rules(path: Path, rules: pa.Table) -> str:
    """Write the rules of a layer; the SHA-256 of the file."""
    whole = rules.combine_chunks()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, whole.schema) as writer:
        writer.write_table(whole)
    return digest_file(path)


def digest_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class RuleTable:
    """Hashes and columns of the rules of a server, by place: the slots of its layers laid end to end."""

    def __init__(self, parts: list[pa.Table]) -> None:
        self.parts = [part for part in parts if len(part)] or parts[:1]
        self.ends = np.cumsum([len(part) for part in self.parts])

    def __len__(self) -> int:
        return int(self.ends[-1]) if self.parts else 0

    def take(self, places: npt.NDArray[np.int64], names: list[str] | None = None) -> pa.Table:
        """The rows at some places, by default with all columns."""
        parts = self.parts if names is None else [part.select(names) for part in self.parts]
        if len(parts) == 1:
            return parts[0].take(pa.array(places))
        which = np.searchsorted(self.ends, places, "right")
        order = np.argsort(which, kind="stable")
        cuts = np.searchsorted(which[order], np.arange(len(parts) + 1))
        starts = self.ends - [len(part) for part in parts]
        pieces = [
            part.take(pa.array(places[order[first:last]] - start))
            for part, start, first, last in zip(parts, starts, cuts, cuts[1:], strict=False)
            if last > first
        ]
        if not pieces:
            return parts[0].slice(0, 0)
        back = np.empty(order.size, np.int64)
        back[order] = np.arange(order.size)
        return pa.concat_tables(pieces).combine_chunks().take(pa.array(back))
