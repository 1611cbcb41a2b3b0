"""Building an index as a Spark job: place filters on servers, build each server's engine in a task, commit one manifest.

The driver looks at distinct filters only, and only where events are to be routed (`event-space`, `filter-set`, `auto`): it
compiles them, makes the plan and says for each where it lives. Subscriptions themselves never pass through the driver:
they are joined with the placement of their filter, sent to their servers by `repartitionById` and built there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from wherecast.engine.engine import Engine
from wherecast.language.schema import Schema
from wherecast.spark.index import Index
from wherecast.spark.layers import replicas_of, write_layer
from wherecast.spark.manifest import Layer, Manifest
from wherecast.spark.plans import make_plan, save_plan
from wherecast.spark.store import Store
from wherecast.spark.subscriptions import (
    QUARANTINE,
    compile_distinct,
    id_type,
    quarantine,
    read_rows,
    reason_of,
    split_unusable,
)

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
    sample = None if events is None else _take_sample(events)
    plan, placed, refused = None, rows, QUARANTINE.empty_table()
    if strategy != "broadcast":
        n_servers = servers or _parallelism(subscriptions)
        plan, placed, refused = _place(rows, schema, strategy, n_servers, sample)
        plan = None if plan.strategy == "broadcast" else plan
    task = ServerBuilder(index.url, schema, matcher, sample)
    if plan is None:
        result = rows.coalesce(1).mapInArrow(task.build_whole, _RESULT)
    else:
        result = placed.repartitionById(plan.n_servers, placed["server"]).mapInArrow(task.build_servers, _RESULT)
    layers, attributes, bad = _collect(result.toArrow())
    manifest = Manifest(
        version=0,
        schema=schema.to_json(),
        id_type=id_type(rows),
        plan=None if plan is None else save_plan(index.store, plan),
        servers=tuple(
            (layers[s] if s in layers else write_layer(index.store, Engine(schema, matcher=matcher)),)
            for s in range(1 if plan is None else plan.n_servers)
        ),
        attributes=tuple(attributes),
        sequence=sequence,
        created="",
        parent=parent,
        compacted=True,
    )
    left_out = rows.sparkSession.createDataFrame(pa.concat_tables([refused, bad]))
    return Built(index, index.commit(manifest), plan, left_out)


def plan_subscriptions(
    subscriptions: DataFrame,
    schema: Schema,
    strategy: Strategy,
    servers: int | None = None,
    events: DataFrame | None = None,
) -> Plan:
    """The plan that `build_index` would use; nothing is built or written."""
    sample = None if events is None else _take_sample(events)
    rows = read_rows(subscriptions)
    return _place(rows, schema, strategy, servers or _parallelism(subscriptions), sample)[0]


def _parallelism(frame: DataFrame) -> int:
    """Tasks that run at a time; Spark Connect does not say, and then 8 servers are a fair start."""
    try:
        return int(frame.sparkSession.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001 - a session without a context raises what it likes
        return 8


def _take_sample(events: DataFrame) -> pa.Table:
    return events.limit(_SAMPLE).toArrow()


def _place(
    rows: DataFrame, schema: Schema, strategy: Strategy, n_servers: int, sample: pa.Table | None
) -> tuple[Plan, DataFrame, pa.Table]:
    """The plan, the rows with a server each (once per replica), and the rows that are left out."""
    from pyspark.sql import functions as F  # noqa: N812

    spark = rows.sparkSession
    repeated = rows.groupBy("id").count().where("count > 1 OR id IS NULL").select(F.col("id").alias("twice"))
    unusable = rows.join(repeated, F.col("id").eqNullSafe(F.col("twice"))).drop("twice").toArrow()
    if len(unusable):
        rows = rows.where("id IS NOT NULL").join(repeated, F.col("id") == F.col("twice"), "left_anti")
    _, refused = split_unusable(unusable)
    counted = rows.groupBy("filter").count().toArrow()
    compiled, reasons = compile_distinct(counted["filter"], schema)
    good = np.flatnonzero(compiled.filter_of >= 0)
    weights = np.zeros(compiled.filters.n_filters, np.int64)
    np.add.at(weights, compiled.filter_of[good], np.asarray(counted["count"])[good])
    plan = make_plan(compiled.filters, weights, schema, n_servers, strategy, sample)
    ptr, servers = plan.place(compiled.filters)
    starts, sizes = ptr[:-1][compiled.filter_of[good]], np.diff(ptr)[compiled.filter_of[good]]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    taken = servers[np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])]
    homes = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(taken))
    table = pa.table({"text": counted["filter"].take(pa.array(good)), "servers": homes})
    located = rows.join(spark.createDataFrame(table), F.col("filter") == F.col("text")).drop("text")
    placed = located.withColumn("server", F.explode("servers"))
    if reasons:
        texts = pa.table({"text": list(reasons), "reason": list(reasons.values())})
        failed = rows.join(spark.createDataFrame(texts), F.col("filter").eqNullSafe(F.col("text"))).toArrow()
        bad = quarantine(failed["id"].to_pylist(), failed["filter"].to_pylist(), failed["reason"].to_pylist())
        refused = pa.concat_tables([refused, bad])
    return plan, placed, refused


def _collect(result: pa.Table) -> tuple[dict[int, Layer], list[str], pa.Table]:
    """Layers by server, the attributes that filters use, and the rows that were left out."""
    layers: dict[int, Layer] = {}
    attributes: set[str] = set()
    for row in result.filter(result["layer"].is_valid()).to_pylist():
        layers[row["server"]] = Layer(**json.loads(row["layer"]))
        attributes.update(row["attributes"])
    return layers, sorted(attributes), result.filter(result["layer"].is_null()).select(QUARANTINE.names)


@dataclass(frozen=True, slots=True)
class ServerBuilder:
    """What a task does to build the engine of a server."""

    url: str
    schema: Schema
    matcher: str
    sample: pa.Table | None

    def build_whole(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows into server 0."""
        rows = pa.Table.from_batches(list(batches)) if (batches := list(batches)) else None
        if rows is None:
            return
        usable, unusable = split_unusable(rows)
        yield from self._build(0, usable, unusable)

    def build_servers(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of this partition, which Spark made of one server's rows (or of several, wrapped around)."""
        if not (found := list(batches)):
            return
        rows = pa.Table.from_batches(found)
        for server in rows["server"].unique().to_pylist():
            mine = rows.filter(pa.compute.equal(rows["server"], server))
            yield from self._build(server, mine, QUARANTINE.empty_table())

    def _build(self, server: int, rows: pa.Table, unusable: pa.Table) -> Iterator[pa.RecordBatch]:
        engine = Engine(self.schema, matcher=self.matcher)
        outcome = engine.subscribe_many(rows.select(["id", "filter", "priority"]))
        if self.sample is not None and len(engine):
            engine.plan(self.sample)
        bad = [q.row for q in outcome.quarantined]
        refused = quarantine(
            rows["id"].take(pa.array(bad, pa.int64())).to_pylist(),
            rows["filter"].take(pa.array(bad, pa.int64())).to_pylist(),
            [reason_of(q.error) for q in outcome.quarantined],
        )
        layer = write_layer(Store(self.url), engine, replicas=replicas_of(rows))
        yield _result(server, layer, engine.attributes())
        for batch in pa.concat_tables([unusable, refused]).to_batches():
            yield _left_out(server, batch)


def _result(server: int, layer: Layer, attributes: list[str]) -> pa.RecordBatch:
    none = pa.array([None], pa.string())
    columns: list[Any] = [pa.array([server], pa.int32()), pa.array([json.dumps(asdict(layer))])]
    columns += [pa.array([attributes], pa.list_(pa.string())), none, none, none]
    return pa.RecordBatch.from_arrays(columns, _RESULT_NAMES)


def _left_out(server: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    n = rows.num_rows
    columns = [pa.array([server] * n, pa.int32()), pa.nulls(n, pa.string()), pa.nulls(n, pa.list_(pa.string()))]
    return pa.RecordBatch.from_arrays([*columns, *rows.columns], _RESULT_NAMES)
