"""Compaction: the layers of every server merged into one, as a Spark job with a task per server.

The plan is counted anew from what is left: changes only ever add to it, so that filters which nobody has any more would
go on drawing events and weighing on the balance.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from wherecast.engine.engine import Engine
from wherecast.language.filters import take_filters
from wherecast.language.schema import Schema
from wherecast.partition.plan import Plan
from wherecast.spark.index import Index
from wherecast.spark.layers import open_layers, write_layer
from wherecast.spark.manifest import Layer, Manifest, SavedPlan
from wherecast.spark.parts import filters_and_weights
from wherecast.spark.plans import open_plan, save_plan
from wherecast.spark.servers import run_on_servers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RESULT = "server int, layer string, filters binary"


def compact(spark: SparkSession, index: Index | str) -> Manifest:
    """Commit a version with one layer per server; the current one if it is compact already.

    Raises:
        StaleVersionError: another version was committed meanwhile; call it again.
    """
    index = Index(index) if isinstance(index, str) else index
    with index.change() as manifest:
        if manifest.compacted:
            return manifest
        done = run_on_servers(spark, len(manifest.servers), MergeTask(index.url, manifest).merge_servers, _RESULT)
        layers = {row["server"]: Layer.from_json(row["layer"]) for row in done.select(["server", "layer"]).to_pylist()}
        merged = tuple((layers[s],) for s in range(len(manifest.servers)))
        plan = _count_anew(index, manifest, done["filters"].to_pylist())
        return index.commit(replace(manifest, plan=plan, servers=merged, parent=manifest.version, compacted=True))


def _count_anew(index: Index, manifest: Manifest, left: list[bytes]) -> SavedPlan | None:
    """A plan for the filters that are left, each of them on one server's list; buckets stay where they are."""
    plan = index.plan(manifest)
    if plan is None:
        return None
    plan = plan.copy()  # the one that tasks share must not change
    plan.rebuild(*filters_and_weights(left, Schema.from_json(manifest.schema)))
    return save_plan(index.store, plan)


@dataclass(frozen=True, slots=True)
class MergeTask:
    """What a task does to compact servers."""

    url: str
    manifest: Manifest

    def merge_servers(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A layer for each server whose number comes, and the filters that are counted there."""
        plan = None if self.manifest.plan is None else open_plan(self.url, self.manifest.plan)
        for batch in batches:
            for server in batch.column("server").to_pylist():
                # Not the engine that is kept open for matching: merging brings all of it into memory.
                engine = open_layers.__wrapped__(self.url, self.manifest.servers[server])
                engine.merge(everything=True)
                layer = write_layer(Index(self.url).store, engine)
                columns = [[server], [layer.to_json()], [None if plan is None else _counted(engine, plan, server)]]
                kinds = pa.int32(), pa.string(), pa.binary()
                arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, ["server", "layer", "filters"])


def _counted(engine: Engine, plan: Plan, server: int) -> bytes:
    """The filters whose first home is this server, with their numbers of subscriptions."""
    filters, weights = engine.filters()
    ptr, homes = plan.place(filters)
    first = np.flatnonzero((np.diff(ptr) > 0) & (homes[np.minimum(ptr[:-1], max(homes.size - 1, 0))] == server))
    return pickle.dumps((take_filters(filters, first), weights[first]), 5)
