"""Layers: saved engines that are laid over each other, and what tasks keep open of them.

The folder of a layer holds a saved engine (`engine/`) and, where there is something to say, `removed.arrow` (ids that die
in the layers below) and `replicas.arrow` (subscriptions that live on several servers, and on which).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from wherecast.engine.engine import Engine
from wherecast.engine.persist import save_segments
from wherecast.engine.segment import Segment
from wherecast.errors import SnapshotError
from wherecast.language.schema import Schema
from wherecast.spark.errors import IndexStoreError
from wherecast.spark.manifest import Layer
from wherecast.spark.store import Store

ENGINE, REMOVED, REPLICAS = "engine", "removed.arrow", "replicas.arrow"
#: Engines kept open per worker process: mapped, so an idle one costs address space and little else.
_OPEN_ENGINES = 32


class Served(NamedTuple):
    """What one server serves in one version."""

    engine: Engine
    replicas: pa.Table | None
    """Columns `id` and `servers`: subscriptions that other servers hold too."""


def write_layer(
    store: Store, engine: Engine, removed: pa.Array | None = None, replicas: pa.Table | None = None
) -> Layer:
    """Save an engine as a new folder of the store."""
    return _write(store, engine.save, len(engine), removed, replicas)


def write_segment(
    store: Store, segment: Segment, schema: Schema, matcher: str, replicas: pa.Table | None = None
) -> Layer:
    """Save a segment as the engine that has nothing else."""

    def save(path: Path) -> None:
        save_segments(path, schema, matcher, (segment,), version=1)

    return _write(store, save, len(segment), None, replicas)


def _write(
    store: Store, save: Callable[[Path], None], size: int, removed: pa.Array | None, replicas: pa.Table | None
) -> Layer:
    with store.new_folder("layers") as (folder, name):
        save(folder / ENGINE)
        if removed is not None and len(removed):
            _write_table(folder / REMOVED, pa.table({"id": removed}))
        if replicas is not None and len(replicas):
            _write_table(folder / REPLICAS, replicas)
        nbytes = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        gone = 0 if removed is None else len(removed)
        return Layer(name, layer_checksum(folder), size, gone, nbytes)


def replicas_of(rows: pa.Table) -> pa.Table | None:
    """Subscriptions that live on several servers, and on which."""
    if "servers" not in rows.column_names:
        return None
    several = pc.greater(pc.list_value_length(rows["servers"]), 1)
    return rows.select(["id", "servers"]).filter(several)


def layer_checksum(folder: Path) -> str:
    """SHA-256 of the files that hold the sums or the content of all others."""
    digest = hashlib.sha256()
    for name in (f"{ENGINE}/manifest.json", REMOVED, REPLICAS):
        file = folder / name
        digest.update(name.encode() + (file.read_bytes() if file.exists() else b""))
    return digest.hexdigest()


@lru_cache(maxsize=_OPEN_ENGINES)
def open_layers(url: str, layers: tuple[Layer, ...]) -> Served:
    """The engine of some layers, kept open for the tasks to come.

    Raises:
        IndexStoreError: a layer is missing or damaged; nothing is served from half an index.
    """
    store = Store(url)
    engine, replicas = None, []
    for layer in layers:
        opened, removed, shared = _open_layer(store, layer)
        replicas += [shared] if shared is not None else []
        if engine is None:
            engine = opened
        else:
            engine.apply(opened, removed)
    assert engine is not None
    return Served(engine, pa.concat_tables(replicas) if replicas else None)


def _open_layer(store: Store, layer: Layer) -> tuple[Engine, Sequence[Any], pa.Table | None]:
    place = f"{store.url}/{layer.folder}"
    try:
        folder = store.fetch(layer.folder)
        if layer_checksum(folder) != layer.checksum:
            raise IndexStoreError(
                f"{place} is not what the index says (its checksum does not fit); build the index again"
            )
        removed = _read_table(folder / REMOVED)
        ids = [] if removed is None else removed["id"].to_pylist()
        return Engine.open(folder / ENGINE), ids, _read_table(folder / REPLICAS)
    except (OSError, pa.ArrowException, SnapshotError) as error:
        raise IndexStoreError(f"{place} cannot be read ({error}); restore the files or build the index again") from None


def _write_table(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _read_table(path: Path) -> pa.Table | None:
    if not path.exists():
        return None
    with pa.OSFile(str(path)) as source:
        return pa.ipc.open_file(source).read_all()
