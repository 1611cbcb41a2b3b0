"""Versions of an index, each with a layer of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from wherecast.engine.engine import Engine
from wherecast.spark.index import Index
from wherecast.spark.layers import write_layer
from wherecast.spark.manifest import Layer, Manifest
from wherecast.spark.rules import HASH


@lru_cache
def make_engine() -> Engine:
    engine = Engine({"price": "double"})
    engine.subscribe(1, "price > 1")
    return engine


def write(index: Index) -> Layer:
    return write_layer(index.store, make_engine())


def manifest_of(layer: Layer, parent: int | None = None) -> Manifest:
    schema = make_engine().schema.to_json()
    return Manifest(0, schema, "bigint", None, ((layer,),), ("price",), 0, "", parent, compacted=True)


def commit(index: Index) -> Manifest:
    """One more version, with a layer of its own."""
    with index.begin() as before:
        return index.commit(manifest_of(write(index), None if before is None else before.version))


#: What the layers of an index with owners store.
FORM = pa.schema([(HASH, pa.int64()), ("owner", pa.string())])
COLUMNS = json.dumps(
    {"type": "struct", "fields": [{"name": "owner", "type": "string", "nullable": True, "metadata": {}}]}
)


def rule_rows(numbers: list[int]) -> pa.Table:
    """Rules whose hash is their number."""
    return pa.table([numbers, [f"owner {n}" for n in numbers]], schema=FORM)


def make_ruled_index(path: Path) -> tuple[Index, Manifest, Layer]:
    """An index with three rules."""
    engine, index = Engine({"price": "double"}), Index(path)
    engine.subscribe_many([(i, f"price > {i}") for i in (1, 2, 3)])
    layer = write_layer(index.store, engine, rules=rule_rows(engine.ids().to_pylist()))
    manifest = Manifest(
        0, engine.schema.to_json(), "bigint", None, ((layer,),), ("price",), 0, "", None, compacted=True
    )
    return index, index.commit(replace(manifest, columns=COLUMNS)), layer
