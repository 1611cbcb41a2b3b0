"""Events as Arrow tables, nested names as structs: what Spark and DuckDB read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from tests.property.strategies import Space

ARROW_TYPES = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "float": pa.float32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "boolean": pa.bool_(),
    "money": pa.decimal128(10, 2),
    "wide": pa.decimal128(30, 5),
    "binary": pa.binary(),
    "wall": pa.timestamp("us"),
}


def events_table(space: Space, events: list[dict[str, Any]]) -> pa.Table:
    """One row per event; a missing attribute is NULL."""
    columns = {}
    for name, kind in space.types.items():
        values = [event.get(name) for event in events]
        if kind.startswith("map<"):
            pairs = [None if items is None else [*items.items()] for items in values]
            columns[name] = pa.array(pairs, pa.map_(pa.string(), ARROW_TYPES[kind[4:-1]]))
            continue
        data_type = pa.list_(ARROW_TYPES[kind[6:-1]]) if kind.startswith("array<") else ARROW_TYPES[kind]
        columns[name] = pa.array(values, data_type)
    return pa.table(_nested(columns))


def _nested(columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    out: dict[str, Any] = {}
    for name, array in columns.items():
        first, _, rest = name.partition(".")
        if rest:
            out.setdefault(first, {})[rest] = array
        else:
            out[first] = array
    return {name: value if isinstance(value, pa.Array) else _struct(_nested(value)) for name, value in out.items()}


def _struct(fields: dict[str, pa.Array]) -> pa.Array:
    return pa.StructArray.from_arrays(list(fields.values()), list(fields))
