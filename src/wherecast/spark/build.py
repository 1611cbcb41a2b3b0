"""Building an index as a Spark job: compile texts, place filters on servers, build each server in a task, commit one manifest.

Tasks compile the texts (see `subscriptions`). Where events are to be routed (`event-space`, `filter-set`, `auto`), the driver looks
at the compiled filters, makes the plan, and tasks split what they compiled by server. A server is built by one task. No
subscription passes through the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from wherecast.engine.engine import Engine
from wherecast.engine.ids import join_ids
from wherecast.engine.segment import build_segment
from wherecast.errors import SubscriptionError
from wherecast.language.events.events import EventBatch
from wherecast.language.events.html import html_table
from wherecast.language.events.schema import Schema
from wherecast.matchers.registry import find_matcher
from wherecast.partition.plan import Plan, Strategy
from wherecast.progress import ProgressStep, shown
from wherecast.progress import progress as steps
from wherecast.spark.columns import NameRule, schema_in_session, select_attributes
from wherecast.spark.index import Index
from wherecast.spark.layers import save_plan, write_layer, write_segment
from wherecast.spark.manifest import Layer, Manifest
from wherecast.spark.quarantine import log_refused, save_quarantine
from wherecast.spark.rules import HASH, arrow_form, by_slot, stored_columns
from wherecast.spark.store import IndexStoreError, Store
from wherecast.spark.subscriptions import (
    PART_ROWS,
    PARTS,
    QUARANTINE,
    CompileTask,
    Part,
    PlaceTask,
    filters_and_weights,
    id_type,
    quarantine_frame,
    read_parts,
    read_rows,
    set_unusable_apart,
)
from wherecast.spark.versions import repartition_by_id, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from wherecast.language.events.schema import SchemaSource

#: What a task that builds a server returns: the layer it wrote, or a row it had to leave out.
_RESULT = (
    "server int, layer string, attributes array<string>, "
    f"id string, filter string, reason string, position string, {HASH} bigint"
)
_RESULT_NAMES = ["server", "layer", "attributes", *QUARANTINE.names]
#: Events that matchers are planned with.
_SAMPLE = 1_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, repr=False)
class Built:
    """Outcome of a build: the committed version, and what is not in it."""

    index: Index
    manifest: Manifest
    plan: Plan | None
    quarantine: DataFrame
    """Columns `id`, `filter`, `reason` and `position`."""

    @property
    def version(self) -> int:
        return self.manifest.version

    def __repr__(self) -> str:
        return f"Built(version {self.version} of {self.index.url!r}: {self._counts()})"

    def _repr_html_(self) -> str:
        facts = [("index", self.index.url), ("version", self.version), ("content", self._counts())]
        return html_table("Built", ("", ""), [*facts, ("time", self.manifest.created)])

    def _counts(self) -> str:
        return f"{self.manifest.subscriptions:,} subscriptions, {len(self.manifest.servers):,} servers"


def build_index(
    subscriptions: DataFrame,
    schema: SchemaSource,
    path: str,
    *,
    id: str = "id",
    filter: str = "filter",
    strategy: Strategy = "broadcast",
    servers: int | None = None,
    events: DataFrame | None = None,
    sequence: int = 0,
    start_over: bool = False,
    matcher: str = "adaptive",
    progress: bool = False,
) -> Built:
    """Build a new version of the index at `path` from all subscriptions, and make it current.

    Changes that were applied to the index are gone unless `subscriptions` contain them. So a build is refused while the
    index has changes above `sequence`.

    Args:
        subscriptions: Columns `id` and `filter`, and optionally `priority`. All others are stored with the rules, for
            `match(columns=...)`.
        schema: The schema of the events, or anything that `Schema.of` takes, such as their DataFrame. Its time zone becomes that of the session, and so part of the version.
        path: A folder, or the URL of one on any file system that PyArrow or fsspec reaches.
        id: What the table calls the ids.
        filter: What it calls the filters.
        strategy: `broadcast` (every worker maps the whole index, events stay where they are), `event-space`, `filter-set`,
            or `auto` for the cheapest by the cost model.
        servers: How many servers to spread the filters over; by default as many as Spark runs tasks at a time.
        events: A sample of the traffic to plan for.
        sequence: Number of the last change that `subscriptions` contain, where there is a change log: they contain that one
            and all before it. The next change has a higher number.
        start_over: Build even if that undoes changes; numbers of changes go on from `sequence`.
        matcher: Name of the matching algorithm.
        progress: Show on a terminal or in a notebook which step it is at; the log says it anyway.

    Raises:
        IndexStoreError: The index has changes above `sequence`.
        StaleVersionError: Another version was committed during the build; nothing of this one is visible.
    """
    schema = schema_in_session(schema, subscriptions.sparkSession)
    index, rows = Index(path), read_rows(subscriptions, id, filter)
    with index.begin() as before, shown(progress), steps("building the index", 3) as step:
        _check_sequence(before, sequence, start_over=start_over)
        how = How(schema, strategy, servers, events, matcher)
        manifest, plan, refused = build_version(index, rows, how, step)
        parent = None if before is None else before.version
        committed = index.commit(
            replace(manifest, sequence=sequence, parent=parent, id_column=id, filter_column=filter)
        )
        step.advance()
    log_refused(refused, committed.version, index.url)
    return Built(index, committed, plan, quarantine_frame(rows.sparkSession, refused))


def _check_sequence(before: Manifest | None, sequence: int, *, start_over: bool) -> None:
    """Raises IndexStoreError if subscriptions with changes up to `sequence` would undo changes of a version."""
    if not 0 <= sequence < 2**63:
        raise SubscriptionError(f"sequence is {sequence}; expected the number of a change, or 0 if there are none")
    if before is None or before.sequence <= sequence:
        return
    if not start_over:
        raise IndexStoreError(
            f"the index has changes up to {before.sequence}, the table of subscriptions up to {sequence}: a build would undo "
            "those between; bring the table up to date and set `sequence` (in a pipeline: in [subscriptions]) to the number "
            "of the last change in it, or start over (start_over=True, --start-over)"
        )
    _log.warning(
        "build starts over: changes undone, sequence=%d before=%d version=%d", sequence, before.sequence, before.version
    )


@dataclass(frozen=True, slots=True)
class How:
    """How an index is to be built, see `build_index`."""

    schema: Schema
    strategy: Strategy = "broadcast"
    servers: int | None = None
    events: DataFrame | None = None
    matcher: str = "adaptive"


def build_version(
    index: Index, rows: DataFrame, how: How, step: ProgressStep
) -> tuple[Manifest, Plan | None, pa.Table]:
    """Write plan, layers and quarantine: the manifest to commit, the open plan, and the rows that are left out."""
    schema, matcher = how.schema, how.matcher
    sample = None if how.events is None else _take_sample(how.events, schema)
    columns = stored_columns(rows)
    usable, refused, n_rows = set_unusable_apart(rows)
    parts = placed = _compile(usable, schema, n_rows)
    plan = saved = None
    try:
        if how.strategy != "broadcast":
            parts = placed = parts.persist()  # read for the plan, and again to be placed
            plan = _plan(parts, schema, how.strategy, how.servers or _parallelism(rows), sample)
            plan = None if plan.strategy == "broadcast" else plan
        if plan is not None:
            saved = save_plan(index.store, plan)
            placed = parts.mapInArrow(PlaceTask(index.url, saved).place, PARTS)
        n_servers = 1 if plan is None else plan.n_servers
        step.advance()
        task = ServerBuilder(index.url, schema, matcher, sample)
        result = repartition_by_id(placed, n_servers, "server").mapInArrow(task.build_servers, _RESULT)
        layers, attributes, bad = _collect(to_arrow(result))
        step.advance()
    finally:
        parts.unpersist()
    refused = pa.concat_tables([refused, bad])
    manifest = Manifest(
        version=0,
        schema=schema.to_json(),
        id_type=id_type(rows),
        plan=saved,
        servers=tuple(
            (layers[s] if s in layers else write_layer(index.store, Engine(schema, matcher=matcher)),)
            for s in range(n_servers)
        ),
        attributes=tuple(attributes),
        sequence=0,
        created="",
        parent=None,
        compacted=True,
        columns=columns.json() if columns.fields else "",
        quarantine=save_quarantine(index.store, refused),
    )
    return manifest, plan, refused


def plan_subscriptions(
    subscriptions: DataFrame,
    schema: Schema,
    strategy: Strategy,
    servers: int | None = None,
    events: DataFrame | None = None,
) -> Plan:
    """The plan that `build_index` would use; nothing is built or written."""
    schema = schema_in_session(schema, subscriptions.sparkSession)
    sample = None if events is None else _take_sample(events, schema)
    usable, _, n_rows = set_unusable_apart(read_rows(subscriptions))
    return _plan(_compile(usable, schema, n_rows), schema, strategy, servers or _parallelism(subscriptions), sample)


def _parallelism(frame: DataFrame) -> int:
    """Tasks that run at a time; Spark Connect does not say, and then 8 servers are a fair start."""
    try:
        return int(frame.sparkSession.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001 - a session without a context raises what it likes
        return 8


def _take_sample(events: DataFrame, schema: Schema) -> pa.Table:
    return to_arrow(select_attributes(events, schema).limit(_SAMPLE))


def _compile(rows: DataFrame, schema: Schema, n_rows: int) -> DataFrame:
    """The parts of so many rows. Equal filters meet in one task, and a task has about one part: they are compiled and kept once."""
    form = arrow_form(stored_columns(rows))
    task = CompileTask(schema, form, NameRule.of(rows.sparkSession).case_sensitive)
    tasks = max(_parallelism(rows), n_rows // PART_ROWS)
    return rows.repartition(tasks, "filter").mapInArrow(task.compile, PARTS)


def _plan(parts: DataFrame, schema: Schema, strategy: Strategy, n_servers: int, sample: pa.Table | None) -> Plan:
    """A plan for the filters of parts."""
    column = to_arrow(parts.where("filters IS NOT NULL").select("filters"))["filters"]
    filters, weights = filters_and_weights(column.to_pylist(), schema)
    events = None if sample is None else EventBatch.read(schema, sample, on_error="skip")
    return Plan.build(filters, weights, schema, n_servers, strategy=strategy, events=events)


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
        rules = pa.concat_tables([part.rules for part in parts])
        members = [part.members for part in parts]
        ids = join_ids([np.asarray(part.ids) for part in members])
        parts.clear()  # with `members` the last hold on what was compiled, which is let go while the segment is built
        segment = build_segment(members, self.schema, find_matcher(self.matcher), sample)
        rules = by_slot(rules, segment.subscriptions.ids.find_many(ids))
        layer = write_segment(Store(self.url), segment, self.schema, self.matcher, rules=rules)
        return _result(server, layer, [self.schema.attributes[a].name for a in sorted(segment.attributes)])


def _result(server: int, layer: Layer, attributes: list[str]) -> pa.RecordBatch:
    columns: list[Any] = [pa.array([server], pa.int32()), pa.array([layer.to_json()])]
    columns += [pa.array([attributes], pa.list_(pa.string())), *(pa.nulls(1, field.type) for field in QUARANTINE)]
    return pa.RecordBatch.from_arrays(columns, _RESULT_NAMES)


def _left_out(rows: pa.RecordBatch) -> pa.RecordBatch:
    n = rows.num_rows
    columns = [pa.nulls(n, pa.int32()), pa.nulls(n, pa.string()), pa.nulls(n, pa.list_(pa.string()))]
    return pa.RecordBatch.from_arrays([*columns, *rows.columns], _RESULT_NAMES)
