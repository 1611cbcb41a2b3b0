"""Building an index as a Spark job: compile texts, place filters on servers, build each server in a task, commit one manifest.

Tasks compile the texts (see `parts`). Where events are to be routed (`event-space`, `filter-set`, `auto`), the driver looks
at the compiled filters, makes the plan, and tasks split what they compiled by server. A server is built by one task. No
subscription passes through the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from wherecast.engine.engine import Engine
from wherecast.engine.segment import build_segment
from wherecast.language.events import EventBatch
from wherecast.language.schema import Schema
from wherecast.matchers.registry import find_matcher
from wherecast.spark.index import Index
from wherecast.spark.layers import write_layer, write_segment
from wherecast.spark.manifest import Layer, Manifest
from wherecast.spark.names import Rule, select_attributes
from wherecast.spark.parts import PARTS, CompileTask, Part, PlaceTask, filters_and_weights, read_parts
from wherecast.spark.plans import make_plan, save_plan
from wherecast.spark.store import Store
from wherecast.spark.subscriptions import QUARANTINE, id_type, quarantine_frame, read_rows, set_unusable_apart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from wherecast.partition.plan import Plan, Strategy

#: What a task that builds a server returns: the layer it wrote, or a row it had to leave out.
_RESULT = "server int, layer string, attributes array<string>, id string, filter string, reason string"
_RESULT_NAMES = ["server", "layer", "attributes", "id", "filter", "reason"]
#: Events that matchers are planned with.
_SAMPLE = 1_000


@dataclass(frozen=True, slots=True)
class Built:
    """Outcome of a build: the committed version, and what is not in it."""

    index: Index
    manifest: Manifest
    plan: Plan | None
    quarantine: DataFrame
    """Columns `id`, `filter` and `reason`."""

    @property
    def version(self) -> int:
        return self.manifest.version


def build_index(
    subscriptions: DataFrame,
    schema: Schema | dict[str, object],
    path: str,
    *,
    strategy: Strategy = "broadcast",
    servers: int | None = None,
    events: DataFrame | None = None,
    sequence: int = 0,
    matcher: str = "adaptive",
) -> Built:
    """Build a new version of the index at `path` from all subscriptions, and make it current.

    Args:
        subscriptions: Columns `id` and `filter`, and `priority` if you like; others are ignored.
        schema: The schema of the events.
        path: A folder, or the URL of one on any file system that PyArrow or fsspec reaches.
        strategy: `broadcast` (every worker maps the whole index, events stay where they are), `event-space`, `filter-set`,
            or `auto` for the cheapest by the cost model.
        servers: How many servers to spread the filters over; by default as many as Spark runs tasks at a time.
        events: A sample of the traffic to plan for.
        sequence: Number of the last change that `subscriptions` contain, where there is a change log.
        matcher: Name of the matching algorithm.
    """
    schema = schema if isinstance(schema, Schema) else Schema.of(schema)
    index, rows = Index(path), read_rows(subscriptions)
    parent = max(index.versions(), default=None)
    sample = None if events is None else _take_sample(events, schema)
    usable, refused = set_unusable_apart(rows)
    parts = placed = _compile(usable, schema)
    plan = folder = None
    try:
        if strategy != "broadcast":
            parts = placed = parts.persist()  # read for the plan, and again to be placed
            plan = _plan(parts, schema, strategy, servers or _parallelism(subscriptions), sample)
            plan = None if plan.strategy == "broadcast" else plan
        if plan is not None:
            folder = save_plan(index.store, plan)
            placed = parts.mapInArrow(PlaceTask(index.url, folder).place, PARTS)
        n_servers = 1 if plan is None else plan.n_servers
        task = ServerBuilder(index.url, schema, matcher, sample)
        result = placed.repartitionById(n_servers, "server").mapInArrow(task.build_servers, _RESULT)
        layers, attributes, bad = _collect(result.toArrow())
    finally:
        parts.unpersist()
    manifest = Manifest(
        version=0,
        schema=schema.to_json(),
        id_type=id_type(rows),
        plan=folder,
        servers=tuple(
            (layers[s] if s in layers else write_layer(index.store, Engine(schema, matcher=matcher)),)
            for s in range(n_servers)
        ),
        attributes=tuple(attributes),
        sequence=sequence,
        created="",
        parent=parent,
        compacted=True,
    )
    left_out = quarantine_frame(rows.sparkSession, pa.concat_tables([refused, bad]))
    return Built(index, index.commit(manifest), plan, left_out)


def plan_subscriptions(
    subscriptions: DataFrame,
    schema: Schema,
    strategy: Strategy,
    servers: int | None = None,
    events: DataFrame | None = None,
) -> Plan:
    """The plan that `build_index` would use; nothing is built or written."""
    sample = None if events is None else _take_sample(events, schema)
    usable, _ = set_unusable_apart(read_rows(subscriptions))
    return _plan(_compile(usable, schema), schema, strategy, servers or _parallelism(subscriptions), sample)


def _parallelism(frame: DataFrame) -> int:
    """Tasks that run at a time; Spark Connect does not say, and then 8 servers are a fair start."""
    try:
        return int(frame.sparkSession.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001 - a session without a context raises what it likes
        return 8


def _take_sample(events: DataFrame, schema: Schema) -> pa.Table:
    return select_attributes(events, schema).limit(_SAMPLE).toArrow()


def _compile(rows: DataFrame, schema: Schema) -> DataFrame:
    """The parts of rows: equal filters meet in one task."""
    task = CompileTask(schema, Rule.of(rows.sparkSession).case_sensitive)
    return rows.repartition(_parallelism(rows), "filter").mapInArrow(task.compile, PARTS)


def _plan(parts: DataFrame, schema: Schema, strategy: Strategy, n_servers: int, sample: pa.Table | None) -> Plan:
    """A plan for the filters of parts."""
    column = parts.where("filters IS NOT NULL").select("filters").toArrow()["filters"]
    filters, weights = filters_and_weights(column.to_pylist(), schema)
    return make_plan(filters, weights, schema, n_servers, strategy, sample)


def _collect(result: pa.Table) -> tuple[dict[int, Layer], list[str], pa.Table]:
    """Layers by server, the attributes that filters use, and the rows that were left out."""
    layers: dict[int, Layer] = {}
    attributes: set[str] = set()
    for row in result.filter(result["layer"].is_valid()).to_pylist():
        layers[row["server"]] = Layer.from_json(row["layer"])
        attributes.update(row["attributes"])
    return layers, sorted(attributes), result.filter(result["layer"].is_null()).select(QUARANTINE.names)


@dataclass(frozen=True, slots=True)
class ServerBuilder:
    """What a task does to build the engine of a server."""

    url: str
    schema: Schema
    matcher: str
    sample: pa.Table | None

    def build_servers(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Parts of one server, or of several where Spark wrapped around, to layers; refused rows go along."""
        servers: dict[int, list[Part]] = {}
        for parts, refused in map(read_parts, batches):
            for part in parts:
                servers.setdefault(part.server, []).append(part)
            for batch in refused.to_batches():
                yield _left_out(batch)
        for server in list(servers):
            yield self._build(server, servers.pop(server))

    def _build(self, server: int, parts: list[Part]) -> pa.RecordBatch:
        sample = None if self.sample is None else EventBatch.read(self.schema, self.sample, on_error="skip")
        matcher = find_matcher(self.matcher)
        segment = build_segment([part.members for part in parts], self.schema, matcher, sample)
        layer = write_segment(Store(self.url), segment, self.schema, self.matcher)
        return _result(server, layer, [self.schema.attributes[a].name for a in sorted(segment.attributes)])


def _result(server: int, layer: Layer, attributes: list[str]) -> pa.RecordBatch:
    none = pa.array([None], pa.string())
    columns: list[Any] = [pa.array([server], pa.int32()), pa.array([layer.to_json()])]
    columns += [pa.array([attributes], pa.list_(pa.string())), none, none, none]
    return pa.RecordBatch.from_arrays(columns, _RESULT_NAMES)


def _left_out(rows: pa.RecordBatch) -> pa.RecordBatch:
    n = rows.num_rows
    columns = [pa.nulls(n, pa.int32()), pa.nulls(n, pa.string()), pa.nulls(n, pa.list_(pa.string()))]
    return pa.RecordBatch.from_arrays([*columns, *rows.columns], _RESULT_NAMES)
