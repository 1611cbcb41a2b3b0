"""Changes: upserts and deletes with a sequence number, laid over an index as a small new version.

A change is a row (`sequence`, `op`, `id`, `filter`): `op` is `upsert` or `delete`. Of several changes to one id the last
counts; what the index has already (its manifest names the last sequence number) is skipped, so applying the same changes
twice changes nothing. Every server gets a layer of what it gains and the ids that die below it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.engine.engine import Engine
from wherecast.errors import LimitError, SubscriptionError
from wherecast.language.compile import Compiled
from wherecast.language.concat import take_filters
from wherecast.language.schema import Schema
from wherecast.partition.plan import Plan
from wherecast.spark.errors import StaleVersionError
from wherecast.spark.index import Index
from wherecast.spark.layers import replicas_of, write_layer
from wherecast.spark.manifest import Manifest
from wherecast.spark.plans import save_plan
from wherecast.spark.subscriptions import QUARANTINE, compile_distinct, quarantine
from wherecast.spark.tasks import ERROR

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: More changes than this at once are a new set of subscriptions: build the index again.
MOST_CHANGES = 1_000_000
_COLUMNS = ("sequence", "op", "id", "filter")


class Applied(NamedTuple):
    """Outcome of applying changes: the version that has them, and the upserts that were refused."""

    manifest: Manifest
    changes: int
    """New changes that took effect."""
    quarantine: pa.Table
    """Columns `id`, `filter`, `reason`; a refused upsert leaves the older subscription in place."""


def apply_changes(
    changes: DataFrame, index: Index | str, *, refuse: Callable[[pa.Table], None] | None = None
) -> Applied:
    """Commit a version with these changes, if there is anything new among them.

    Rows that carry an error in a column `__error` are left out. `refuse` is told the upserts that are refused (as in
    `Applied.quarantine`, maybe none) before the version is committed: changes that are applied twice refuse nothing the
    second time, so that later would be too late for one who must not miss any.
    """
    index = Index(index) if isinstance(index, str) else index
    while True:
        manifest = index.read()
        rows = read_changes(changes, manifest)
        if not len(rows):
            if refuse is not None:
                refuse(QUARANTINE.empty_table())
            return Applied(manifest, 0, QUARANTINE.empty_table())
        try:
            return lay_over(index, manifest, rows, refuse)
        except StaleVersionError:
            continue  # buckets were moved or layers merged meanwhile: lay over that version


def read_changes(changes: DataFrame, manifest: Manifest) -> pa.Table:
    """The changes that a version does not have yet: the last one of each id, in order."""
    from pyspark.sql import functions as F  # noqa: N812

    missing = [name for name in _COLUMNS if name not in changes.columns]
    if missing:
        raise SubscriptionError(f"changes need the columns {', '.join(_COLUMNS)}; {missing[0]!r} is missing")
    if ERROR in changes.columns:
        changes = changes.where(F.col(ERROR).isNull())
    priority = F.col("priority").cast("float") if "priority" in changes.columns else F.lit(0.0).cast("float")
    fresh = changes.where(F.col("sequence") > manifest.sequence).select(
        F.col("sequence").cast("bigint"), "op", F.col("id").cast(manifest.id_type), "filter", priority.alias("priority")
    )
    rows = fresh.limit(MOST_CHANGES + 1).toArrow()
    if len(rows) > MOST_CHANGES:
        raise LimitError(f"more than {MOST_CHANGES:,} changes at once; build the index again with build_index")
    wrong = rows.filter(pc.invert(pc.fill_null(pc.is_in(rows["op"], pa.array(["upsert", "delete"])), False)))
    if len(wrong):
        raise SubscriptionError(f"change {wrong['sequence'][0]}: op is {wrong['op'][0]}, expected 'upsert' or 'delete'")
    rows = rows.sort_by("sequence")
    ids = rows["id"].to_pylist()
    last = {id: row for row, id in enumerate(ids)}
    return rows.take(pa.array(sorted(last.values()), pa.int64()))


def lay_over(
    index: Index, manifest: Manifest, rows: pa.Table, refuse: Callable[[pa.Table], None] | None = None
) -> Applied:
    """A version with one more layer per server."""
    schema = Schema.from_json(manifest.schema)
    upserts = rows.filter(pc.equal(rows["op"], "upsert"))
    compiled, reasons = compile_distinct(upserts["filter"], schema)
    bad = upserts.filter(pa.array(compiled.filter_of < 0))
    texts = bad["filter"].to_pylist()
    refused = quarantine(bad["id"].to_pylist(), texts, [reasons[text] for text in texts])
    gone = rows["id"].filter(pc.invert(pc.is_in(rows["id"], bad["id"].combine_chunks()))).combine_chunks()
    plan, parts = _per_server(index, manifest, compiled, upserts)
    layers, attributes = [], set(manifest.attributes)
    for part in parts:
        engine = Engine(schema)
        engine.subscribe_many(part.select(["id", "filter", "priority"]))
        attributes.update(engine.attributes())
        layers.append(write_layer(index.store, engine, gone, replicas_of(part)))
    changed = replace(
        manifest,
        plan=plan,
        servers=tuple((*below, layer) for below, layer in zip(manifest.servers, layers, strict=True)),
        attributes=tuple(sorted(attributes)),
        sequence=int(pc.max(rows["sequence"]).as_py()),
        parent=manifest.version,
        compacted=False,
    )
    if refuse is not None:
        refuse(refused)
    return Applied(index.commit(changed), len(rows) - len(bad), refused)


def _per_server(
    index: Index, manifest: Manifest, compiled: Compiled, upserts: pa.Table
) -> tuple[str | None, list[pa.Table]]:
    """The folder of the plan that covers the new filters, and the upserts that each server gets."""
    good = np.flatnonzero(compiled.filter_of >= 0)
    added = upserts.take(pa.array(good))
    plan = index.plan(manifest)
    if plan is None:
        return None, [added]
    folder, (chosen, weights) = manifest.plan, np.unique(compiled.filter_of[good], return_counts=True)
    if chosen.size:
        plan = Plan.from_bytes(plan.to_bytes())  # the one that tasks share must not change
        plan.insert(take_filters(compiled.filters, chosen), weights)
        folder = save_plan(index.store, plan)
    ptr, servers = plan.place(compiled.filters)
    homes = [servers[ptr[f] : ptr[f + 1]].tolist() for f in compiled.filter_of[good].tolist()]
    placed = added.append_column("servers", pa.array(homes, pa.list_(pa.int32())))
    here = [pa.array([server in home for home in homes], pa.bool_()) for server in range(plan.n_servers)]
    return folder, [placed.filter(mask) for mask in here]
