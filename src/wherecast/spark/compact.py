"""Compaction: the layers of every server merged into one, as a Spark job with a task per server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from wherecast.spark.index import Index
from wherecast.spark.layers import write_layer
from wherecast.spark.manifest import Layer, Manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact(spark: SparkSession, index: Index | str) -> Manifest:
    """Commit a version with one layer per server; the current one if it is compact already."""
    index = Index(index) if isinstance(index, str) else index
    manifest = index.read()
    if manifest.compacted:
        return manifest
    servers = spark.range(len(manifest.servers)).repartition(len(manifest.servers), "id")
    merge = MergeTask(index.url, manifest.version)
    done = servers.mapInArrow(merge.merge_servers, "server bigint, layer string").toArrow()
    layers = {row["server"]: Layer(**json.loads(row["layer"])) for row in done.to_pylist()}
    merged = tuple((layers[s],) for s in range(len(manifest.servers)))
    return index.commit(replace(manifest, servers=merged, parent=manifest.version, compacted=True))


@dataclass(frozen=True, slots=True)
class MergeTask:
    """What a task does to compact servers."""

    url: str
    version: int

    def merge_servers(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A layer for each server whose number comes."""
        index = Index(self.url)
        manifest = index.read(self.version)
        for batch in batches:
            for server in batch.column("id").to_pylist():
                served = index.serve(manifest, server)
                served.engine.merge(everything=True)
                layer = write_layer(index.store, served.engine, replicas=_living(served.replicas, served.engine.ids()))
                texts = pa.array([json.dumps(asdict(layer))])
                yield pa.RecordBatch.from_arrays([pa.array([server], pa.int64()), texts], ["server", "layer"])


def _living(replicas: pa.Table | None, ids: pa.Array) -> pa.Table | None:
    """The newest word on where each living subscription is held."""
    if replicas is None:
        return None
    last = {id: row for row, id in enumerate(replicas["id"].to_pylist())}
    newest = replicas.take(pa.array(sorted(last.values()), pa.int64()))
    return newest.filter(pc.is_in(newest["id"], ids))
