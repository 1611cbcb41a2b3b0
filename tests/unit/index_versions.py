"""Versions of an index, each with a layer of its own."""

from __future__ import annotations

from functools import lru_cache

from wherecast.engine.engine import Engine
from wherecast.spark.index import Index
from wherecast.spark.layers import write_layer
from wherecast.spark.manifest import Layer, Manifest


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
