"""Servers: versions made of the current one by jobs with a task per server.

Compaction merges the layers of every server into one. The plan is counted anew from what is left: changes only ever add to
it, so that filters which nobody has any more would go on drawing events and weighing on the balance.

Rebalancing moves buckets when traffic makes some servers do much more than others. A `Rebalancer` looks at every few batches
and lets the plan count which buckets their events fall into. Once the imbalance passes the threshold, the plan moves as few
buckets as bring it back, and a new version of the index is made of the old one: servers that give filters up get a layer that
removes them, servers that gain some get a layer of those. Batches that are pinned to the old version still find it; the next
batch pins the new one, plan and layers together. So nothing is lost and nothing is matched twice.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.engine.engine import Engine
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.filters import Filters, take_filters
from wherecast.partition.balance import imbalance
from wherecast.partition.event_space import EventSpace
from wherecast.partition.plan import Plan
from wherecast.progress import progress as steps
from wherecast.progress import shown
from wherecast.spark.columns import renamed, select_attributes, without_dots
from wherecast.spark.index import Index
from wherecast.spark.layers import open_layers, open_plan, save_plan, write_layer
from wherecast.spark.manifest import Layer, Manifest, SavedPlan
from wherecast.spark.store import StaleVersionError
from wherecast.spark.subscriptions import filters_and_weights
from wherecast.spark.versions import repartition_by_id, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_on_servers(
    spark: SparkSession,
    n_servers: int,
    work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    result: str,
) -> pa.Table:
    """What `work` makes of the number of each server, given in a column `server`."""
    from pyspark.sql import functions as F  # noqa: N812

    numbers = spark.range(n_servers).select(F.col("id").cast("int").alias("server"))
    return to_arrow(repartition_by_id(numbers, n_servers, "server").mapInArrow(work, result))


# Compaction

_MERGED = "server int, layer string, filters binary"


def compact(spark: SparkSession, index: Index | str, *, progress: bool = False) -> Manifest:
    """Commit a version with one layer per server; the current one if it is compact already.

    It may run beside changes: layers that were added meanwhile stay on top of the merged one.

    With `progress` a terminal or a notebook shows which step it is at; the log says it anyway.

    Raises:
        StaleVersionError: the layers that were merged are not those of the index any more; call it again.
    """
    index = Index(index) if isinstance(index, str) else index
    with index.change() as manifest:
        if manifest.compacted:
            return manifest
        with shown(progress), steps("compacting", 2) as step:
            done = run_on_servers(spark, len(manifest.servers), MergeTask(index.url, manifest).merge_servers, _MERGED)
            layers = {
                row["server"]: Layer.from_json(row["layer"]) for row in done.select(["server", "layer"]).to_pylist()
            }
            merged = tuple((layers[s],) for s in range(len(manifest.servers)))
            step.advance()
            plan = _count_anew(index, manifest, done["filters"].to_pylist())
            step.advance()
        return _commit_merged(index, manifest, replace(manifest, plan=plan, servers=merged, compacted=True))


#: Changes that may be committed while a merged version tries to be.
_ATTEMPTS = 20


def _commit_merged(index: Index, before: Manifest, merged: Manifest) -> Manifest:
    """Commit merged layers in place of those they are made of. Raises StaleVersionError."""
    for _ in range(_ATTEMPTS):
        newest = index.read()
        combined = _with_merged(newest, before, merged)
        with suppress(StaleVersionError):  # changes came between; they go on top
            return index.commit(combined)
    raise StaleVersionError(f"{_ATTEMPTS} versions were committed while merged layers of {index.url} were to be")


def _with_merged(newest: Manifest, before: Manifest, merged: Manifest) -> Manifest:
    """The newest version, with merged layers in place of those of an earlier one, which must be at its bottom."""
    if newest.version == before.version:
        return replace(merged, parent=newest.version)
    depths = [len(layers) for layers in before.servers]
    bottoms = tuple(layers[:depth] for layers, depth in zip(newest.servers, depths, strict=False))
    if len(newest.servers) != len(before.servers) or bottoms != before.servers:
        raise StaleVersionError(
            f"the layers of version {before.version} were replaced while they were merged; begin again"
        )
    tops = (layers[depth:] for layers, depth in zip(newest.servers, depths, strict=True))
    servers = tuple((*below, *above) for below, above in zip(merged.servers, tops, strict=True))
    # The plan stays that of the newest version: it covers what came meanwhile. Filters that are gone leave it at the next merge.
    return replace(newest, servers=servers, parent=newest.version, compacted=False)


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
        index = Index(self.url)
        for batch in batches:
            for server in batch.column("server").to_pylist():
                # Not the engine that is kept open for matching: merging brings all of it into memory.
                engine = open_layers.__wrapped__(self.url, self.manifest.servers[server])
                engine.merge(everything=True)
                layer = write_layer(index.store, engine, rules=carry_rules(index, self.manifest, server, engine))
                columns = [[server], [layer.to_json()], [None if plan is None else _counted(engine, plan, server)]]
                kinds = pa.int32(), pa.string(), pa.binary()
                arrays = [pa.array(values, kind) for values, kind in zip(columns, kinds, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, ["server", "layer", "filters"])


def carry_rules(index: Index, manifest: Manifest, server: int, engine: Engine) -> pa.Table:
    """The rules of an engine that was made of some subscriptions of a server, by their places in it."""
    places = np.zeros(engine.slots(), np.int64)  # a place of a removed subscription gets any rule
    places[engine.places()] = index.serve(manifest, server).places(engine.ids())
    return index.serve_rules(manifest, server).take(places)


def _counted(engine: Engine, plan: Plan, server: int) -> bytes:
    """The filters whose first home is this server, with their numbers of subscriptions."""
    filters, weights = engine.filters()
    ptr, homes = plan.place(filters)
    first = np.flatnonzero((np.diff(ptr) > 0) & (homes[np.minimum(ptr[:-1], max(homes.size - 1, 0))] == server))
    return pickle.dumps((take_filters(filters, first), weights[first]), 5)


# Rebalancing

_MOVED = "server int, layer string"


@dataclass(slots=True)
class Rebalancer:
    """Watches the load of an event-space index and moves buckets past a threshold."""

    threshold: float = 2.0
    """Largest load by smallest."""
    every: int = 10
    """Batches between two looks."""
    _batches: int = field(default=0, init=False)
    _plan: Plan | None = field(default=None, init=False)
    _saved: SavedPlan | None = field(default=None, init=False)

    def observe(self, events: DataFrame, index: Index, manifest: Manifest) -> Manifest | None:
        """Count a batch; returns the new version if buckets were moved."""
        self._batches += 1
        if manifest.plan is None or self._batches % self.every:
            return None
        plan = self._follow(index, manifest)
        if plan is None or not isinstance(plan.partition, EventSpace):
            return None
        plan.partition.seen += count_buckets(events, index, manifest.plan, plan.partition.n_buckets)
        if imbalance(plan.partition.loads()) <= self.threshold or manifest.version != index.latest():
            return None
        try:
            return move_buckets(events.sparkSession, index, manifest, plan, self.threshold)
        except StaleVersionError:
            return None  # subscriptions changed meanwhile; the next look sees to it

    @property
    def imbalance(self) -> float | None:
        """Of the servers' loads, by the traffic that was seen; None before the first look."""
        return None if self._plan is None else imbalance(self._plan.partition.loads())

    def _follow(self, index: Index, manifest: Manifest) -> Plan | None:
        """The plan that is in use, with the events that were seen so far, also under the plans before it."""
        if self._saved != manifest.plan:
            plan, before = index.plan(manifest), self._plan
            plan = None if plan is None else plan.copy()  # the one that tasks share must not change
            if plan is not None and before is not None and isinstance(plan.partition, EventSpace):
                plan.partition.carry_over(before.partition)
            self._plan, self._saved = plan, manifest.plan
        return self._plan


def count_buckets(events: DataFrame, index: Index, plan: SavedPlan, n_buckets: int) -> npt.NDArray[np.int64]:
    """How many events fall into each bucket of an event-space plan."""
    attributes = select_attributes(events, open_plan(index.url, plan).schema)
    task = CountTask(index.url, plan, tuple(attributes.columns))
    plain = renamed(attributes, without_dots(attributes.columns))
    counted = to_arrow(plain.mapInArrow(task.count, "bucket int, events bigint"))
    counts = np.bincount(counted["bucket"].to_numpy(), counted["events"].to_numpy(), n_buckets)
    return counts.astype(np.int64)


@dataclass(frozen=True, slots=True)
class CountTask:
    """What a task does to count the events of buckets."""

    url: str
    plan: SavedPlan
    columns: tuple[str, ...]

    def count(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Buckets with events, and how many."""
        plan = open_plan(self.url, self.plan)
        assert isinstance(plan.partition, EventSpace)
        total = np.zeros(plan.partition.n_buckets, np.int64)
        for batch in batches:
            events = batch.rename_columns(list(self.columns))
            total += plan.partition.count_events(EventBatch.read(plan.schema, events, on_error="skip"))
        buckets = np.flatnonzero(total).astype(np.int32)
        yield pa.RecordBatch.from_arrays([pa.array(buckets), pa.array(total[buckets])], ["bucket", "events"])


def move_buckets(
    spark: SparkSession, index: Index, manifest: Manifest, observed: Plan, threshold: float
) -> Manifest | None:
    """Commit a version in which buckets are moved; None if no move would help.

    Raises:
        StaleVersionError: `manifest` is not the current version any more.
    """
    assert manifest.plan is not None
    new = observed.copy()
    if not new.rebalance(threshold).buckets.size:
        return None
    with index.change() as current:
        if current.version != manifest.version:
            raise StaleVersionError(f"version {manifest.version} is not the current one any more; begin again")
        plan = save_plan(index.store, new)
        move = MoveTask(index.url, manifest, plan)
        layers = [list(below) for below in manifest.servers]
        for row in run_on_servers(spark, len(manifest.servers), move.move_servers, _MOVED).to_pylist():
            layers[row["server"]].append(Layer.from_json(row["layer"]))
        return index.commit(
            replace(manifest, plan=plan, servers=tuple(map(tuple, layers)), parent=manifest.version, compacted=False)
        )


@dataclass(frozen=True, slots=True)
class MoveTask:
    """What a task does for a server that may give filters up: a layer for each server that gains some, one for itself."""

    url: str
    manifest: Manifest
    new_plan: SavedPlan

    def move_servers(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Layers for the servers whose numbers come, and for those that gain from them."""
        index = Index(self.url)
        assert self.manifest.plan is not None
        move = Move(open_plan(self.url, self.manifest.plan), open_plan(self.url, self.new_plan))
        for batch in batches:
            for source in batch.column("server").to_pylist():
                yield from self._move(index, move, source)

    def _move(self, index: Index, move: Move, source: int) -> Iterator[pa.RecordBatch]:
        engine = index.serve(self.manifest, source)
        for target in range(len(self.manifest.servers)):
            gained = engine.subset(lambda filters, t=target: move.gained(filters, source, t))  # type: ignore[misc]
            if len(gained):
                rules = carry_rules(index, self.manifest, source, gained)
                yield _row(target, write_layer(index.store, gained, rules=rules))
        lost = engine.subset(lambda filters: move.lost(filters, source))
        if len(lost):
            yield _row(source, write_layer(index.store, Engine(engine.schema), lost.ids()))


@dataclass(frozen=True, slots=True)
class Move:
    """From one plan to another."""

    old: Plan
    new: Plan

    def gained(self, filters: Filters, source: int, target: int) -> npt.NDArray[np.bool_]:
        """Filters that come to `target`, from the first server that had them."""
        had, has = self._held(filters)
        first = np.argmax(had, axis=1) == source
        return np.asarray(has[:, target] & ~had[:, target] & first)

    def lost(self, filters: Filters, source: int) -> npt.NDArray[np.bool_]:
        """Filters that `source` gives up."""
        had, has = self._held(filters)
        return np.asarray(had[:, source] & ~has[:, source])

    def _held(self, filters: Filters) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which server holds which filter, before and after."""
        held = np.zeros((2, filters.n_filters, self.new.n_servers), bool)
        for which, plan in enumerate((self.old, self.new)):
            ptr, servers = plan.place(filters)
            held[which, np.repeat(np.arange(filters.n_filters), np.diff(ptr)), servers] = True
        return held[0], held[1]


def _row(server: int, layer: Layer) -> pa.RecordBatch:
    columns = [pa.array([server], pa.int32()), pa.array([layer.to_json()])]
    return pa.RecordBatch.from_arrays(columns, ["server", "layer"])
