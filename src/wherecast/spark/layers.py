"""Layers and plans: what the manifests of an index name, written as new folders, opened and checked.

A layer is a saved engine (`engine/`) and, where there are some, the ids that it replaces or removes in the layers below
(`removed.arrow`), and the columns of its rules (`rules.arrow`, see `rules`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from wherecast.engine.engine import Engine
from wherecast.engine.persist import save_segments
from wherecast.engine.segment import Segment
from wherecast.errors import PlanError, SnapshotError, SubscriptionError
from wherecast.index.snapshot import MANIFEST
from wherecast.language.events.schema import Schema
from wherecast.partition.plan import Plan
from wherecast.spark.manifest import Layer, SavedPlan
from wherecast.spark.rules import RULES, RuleTable, digest_file, write_rules
from wherecast.spark.store import LAYERS, PLANS, IndexStoreError, Store, checksum

ENGINE, REMOVED = "engine", "removed.arrow"
#: Engines kept open per worker process: mapped, so an idle one costs address space and little else.
_OPEN_ENGINES = 32


def write_layer(store: Store, engine: Engine, removed: pa.Array | None = None, rules: pa.Table | None = None) -> Layer:
    """Save an engine as a new folder of the store, with the columns of its rules by place."""
    assert rules is None or len(rules) == engine.slots()
    return _write_layer_folder(store, engine.save, len(engine), removed, rules)


def write_segment(
    store: Store,
    segment: Segment,
    schema: Schema,
    matcher: str,
    removed: pa.Array | None = None,
    rules: pa.Table | None = None,
) -> Layer:
    """Save a segment as the engine that has nothing else, with the columns of its rules by slot."""
    assert rules is None or len(rules) == len(segment)

    def save(path: Path) -> None:
        save_segments(path, schema, matcher, (segment,), version=1)

    return _write_layer_folder(store, save, len(segment), removed, rules)


def _write_layer_folder(
    store: Store, save: Callable[[Path], None], size: int, removed: pa.Array | None, rules: pa.Table | None
) -> Layer:
    with store.new_folder(LAYERS) as (folder, name):
        save(folder / ENGINE)
        if removed is not None and len(removed):
            _write_ids(folder / REMOVED, removed)
        digest = None if rules is None or not len(rules) else write_rules(folder / RULES, rules)
        nbytes = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        return Layer(name, layer_checksum(folder), size, nbytes, digest)


def layer_checksum(folder: Path) -> str:
    """SHA-256 of the files that hold the sums or the content of all others."""
    return checksum(folder, (f"{ENGINE}/manifest.json", REMOVED))


@lru_cache(maxsize=_OPEN_ENGINES)
def open_layers(url: str, layers: tuple[Layer, ...]) -> Engine:
    """The engine of some layers, kept open for the tasks to come.

    Raises:
        IndexStoreError: a layer is missing or damaged; nothing is served from half an index.
    """
    store = Store(url)
    engine = None
    for layer in layers:
        opened, removed = _open_layer(store, layer)
        if engine is None:
            engine = opened
            continue
        try:
            engine.apply(opened, removed)
        except SubscriptionError as error:
            raise IndexStoreError(
                f"{store.url}/{layer.folder} does not fit the layers below it ({error}); build the index again"
            ) from None
    assert engine is not None
    return engine


def _open_layer(store: Store, layer: Layer) -> tuple[Engine, pa.ChunkedArray | tuple[()]]:
    place = f"{store.url}/{layer.folder}"
    try:
        folder = store.fetch(layer.folder)
        if layer_checksum(folder) != layer.checksum:
            raise IndexStoreError(
                f"{place} is not what the index says (its checksum does not fit); build the index again"
            )
        return Engine.open(folder / ENGINE), _read_ids(folder / REMOVED)
    except (OSError, pa.ArrowException, SnapshotError) as error:
        raise IndexStoreError(f"{place} cannot be read ({error}); restore the files or build the index again") from None


def _write_ids(path: Path, ids: pa.Array) -> None:
    table = pa.table({"id": ids})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _read_ids(path: Path) -> pa.ChunkedArray | tuple[()]:
    if not path.exists():
        return ()
    with pa.OSFile(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    table.validate(full=True)  # offsets of a forged file lead anywhere
    if table.schema.names != ["id"]:
        raise pa.ArrowInvalid(f"{path} has no ids")
    return table["id"]


@lru_cache(maxsize=_OPEN_ENGINES)
def open_rules(url: str, layers: tuple[Layer, ...], form: pa.Schema) -> RuleTable:
    """The rules of some layers, mapped, kept open for the tasks to come.

    A layer of an index that stored no rules has NULLs. Raises IndexStoreError if a file is missing, damaged or another.
    """
    return RuleTable([_open_rules(Store(url), layer, form) for layer in layers])


def _open_rules(store: Store, layer: Layer, form: pa.Schema) -> pa.Table:
    if layer.rules is None:
        slots = open_layers(store.url, (layer,)).slots() if layer.subscriptions else 0
        return pa.table([pa.nulls(slots, field.type) for field in form], schema=form)
    place = f"{store.url}/{layer.folder}/{RULES}"
    path = store.fetch(layer.folder) / RULES
    try:
        if digest_file(path) != layer.rules:
            raise IndexStoreError(
                f"{place} is not what the index says (its checksum does not fit); build the index again"
            )
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        table.validate(full=True)  # offsets of a forged file lead anywhere
    except (OSError, pa.ArrowException) as error:
        raise IndexStoreError(f"{place} cannot be read ({error}); restore the files or build the index again") from None
    if not table.schema.equals(form):
        raise IndexStoreError(f"{place} has other columns than the index; build the index again")
    return table


def save_plan(store: Store, plan: Plan) -> SavedPlan:
    """Write a plan as a new folder of the store."""
    with store.new_folder(PLANS) as (folder, name):
        plan.save(folder)
        return SavedPlan(name, _plan_checksum(folder))


def _plan_checksum(folder: Path) -> str:
    """SHA-256 of the file that holds the sums of all others."""
    return checksum(folder, (MANIFEST,))


@lru_cache(maxsize=8)
def open_plan(url: str, saved: SavedPlan) -> Plan:
    """A plan, kept open. Raises IndexStoreError if it is missing, damaged or another."""
    place = f"{url}/{saved.folder}"
    try:
        folder = Store(url).fetch(saved.folder)
        if saved.checksum is not None and _plan_checksum(folder) != saved.checksum:
            raise IndexStoreError(
                f"the plan {place} is not what the index says (its checksum does not fit); build the index again"
            )
        return Plan.open(folder)
    except (OSError, SnapshotError, PlanError) as error:
        raise IndexStoreError(f"the plan {place} cannot be read ({error}); build the index again") from None
