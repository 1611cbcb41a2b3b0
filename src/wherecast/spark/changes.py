"""Changes: upserts and deletes with a sequence number, laid over an index as a small new version.

A change is a row (`sequence`, `op`, `id`, `filter`): `op` is `upsert` or `delete`. What the index has already (its manifest
names the last sequence number) is skipped, so applying the same changes twice changes nothing. Changes that cannot be made
are refused with a reason; of the others to one id the last counts, so that the outcome does not depend on how a log is cut
into batches. Every server gets a layer of what it gains and the ids that die below it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.engine.engine import Engine
from wherecast.engine.segment import Members, build_segment
from wherecast.errors import LimitError, SubscriptionError
from wherecast.language.compile import Compiler
from wherecast.language.concat import take_filters
from wherecast.language.schema import Schema
from wherecast.matchers.registry import find_matcher
from wherecast.spark.errors import StaleVersionError
from wherecast.spark.index import Index
from wherecast.spark.layers import write_layer, write_segment
from wherecast.spark.manifest import Layer, Manifest
from wherecast.spark.names import ERROR, Rule
from wherecast.spark.parts import id_values, split_members
from wherecast.spark.plans import save_plan
from wherecast.spark.subscriptions import priority_column, quarantine, reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: More changes than this at once are a new set of subscriptions: build the index again.
MOST_CHANGES = 1_000_000
_COLUMNS = ("sequence", "op", "id", "filter")
#: Matcher of a layer of changes.
_MATCHER = "adaptive"


class Applied(NamedTuple):
    """Outcome of applying changes: the version that has them, and those that were refused."""

    manifest: Manifest
    changes: int
    """Ids that were changed."""
    quarantine: pa.Table
    """Columns `id`, `filter`, `reason`; a refused upsert leaves the older subscription in place."""


def apply_changes(
    changes: DataFrame, index: Index | str, *, refuse: Callable[[pa.Table], None] | None = None
) -> Applied:
    """Commit a version with these changes, if there is anything new among them.

    Rows that carry an error in a column `__wherecast_error` are left out. `refuse` is told the changes that are refused (as in
    `Applied.quarantine`, maybe none) before the version is committed: changes that are applied twice refuse nothing the
    second time, so that later would be too late for one who must not miss any.
    """
    index = Index(index) if isinstance(index, str) else index
    while True:
        manifest = index.read()
        case_sensitive = Rule.of(changes.sparkSession).case_sensitive
        schema = Schema.from_json(manifest.schema)
        news = check_changes(read_changes(changes, manifest), schema, case_sensitive=case_sensitive)
        if refuse is not None:
            refuse(news.refused)
        if news.sequence is None:
            return Applied(manifest, 0, news.refused)
        try:
            return Applied(lay_over(index, manifest, news), len(news.ids), news.refused)
        except StaleVersionError:
            continue  # buckets were moved or layers merged meanwhile: lay over that version


def read_changes(changes: DataFrame, manifest: Manifest) -> pa.Table:
    """The changes that a version does not have yet, in order; those without a number come last."""
    from pyspark.sql import functions as F  # noqa: N812

    missing = [name for name in _COLUMNS if name not in changes.columns]
    if missing:
        raise SubscriptionError(f"changes need the columns {', '.join(_COLUMNS)}; {missing[0]!r} is missing")
    if ERROR in changes.columns:
        changes = changes.where(F.col(ERROR).isNull())
    sequence = F.col("sequence").cast("bigint")
    fresh = changes.where((sequence > manifest.sequence) | sequence.isNull()).select(
        sequence.alias("sequence"), "op", F.col("id").cast(manifest.id_type), "filter", priority_column(changes)
    )
    rows = fresh.limit(MOST_CHANGES + 1).toArrow()
    if len(rows) > MOST_CHANGES:
        raise LimitError(f"more than {MOST_CHANGES:,} changes at once; build the index again with build_index")
    return rows.sort_by("sequence")


class News(NamedTuple):
    """Checked changes, one per id."""

    members: Members
    """What is added."""
    ids: pa.Array
    """What is added or removed: all of it dies below."""
    sequence: int | None
    """Of the last change, refused ones included; None: there is none."""
    refused: pa.Table


def check_changes(rows: pa.Table, schema: Schema, *, case_sensitive: bool = False) -> News:
    """Changes that can be made, the last of each id, and those that cannot."""
    compiled = Compiler(schema, case_sensitive=case_sensitive).compile_many(rows["filter"].to_pylist())
    errors = dict(compiled.errors)
    reasons = [
        _objection(change, errors.get(number)) for number, change in enumerate(rows.select(_COLUMNS).to_pylist())
    ]
    bad = [number for number, reason in enumerate(reasons) if reason]
    refused = rows.take(pa.array(bad, pa.int64()))
    ids = rows["id"].to_pylist()
    last = {ids[number]: number for number, reason in enumerate(reasons) if not reason}
    chosen = np.array(sorted(last.values()), np.int64)
    added = chosen[np.asarray(pc.equal(rows["op"], "upsert").take(pa.array(chosen)))]
    used, filter_of = np.unique(compiled.filter_of[added], return_inverse=True)
    whose = rows.take(pa.array(added))
    members = Members(
        take_filters(compiled.filters, used), filter_of, id_values(whose["id"]), whose["priority"].to_numpy()
    )
    return News(
        members,
        rows["id"].take(pa.array(chosen)).combine_chunks(),
        pc.max(rows["sequence"]).as_py(),
        quarantine(refused["id"].to_pylist(), refused["filter"].to_pylist(), [reasons[n] for n in bad]),
    )


def _objection(change: dict[str, object], error: Exception | None) -> str:
    """Why a change cannot be made; empty if it can."""
    for name in ("sequence", "op", "id"):
        if change[name] is None:
            return f"the {name} is missing"
    if change["op"] not in ("upsert", "delete"):
        return f"op is {change['op']}, expected upsert or delete"
    return reason_of(error) if error is not None and change["op"] == "upsert" else ""


def lay_over(index: Index, manifest: Manifest, news: News) -> Manifest:
    """Commit a version with one more layer per server."""
    assert news.sequence is not None
    schema = Schema.from_json(manifest.schema)
    folder, parts = _per_server(index, manifest, news.members)
    attributes, layers = set(manifest.attributes), []
    for server in range(len(manifest.servers)):
        layer, asked = _write(index, schema, parts.get(server), news.ids)
        layers.append(layer)
        attributes.update(asked)
    changed = replace(
        manifest,
        plan=folder,
        servers=tuple((*below, layer) for below, layer in zip(manifest.servers, layers, strict=True)),
        attributes=tuple(sorted(attributes)),
        sequence=news.sequence,
        parent=manifest.version,
        compacted=False,
    )
    return index.commit(changed)


def _write(index: Index, schema: Schema, members: Members | None, gone: pa.Array) -> tuple[Layer, list[str]]:
    """The layer of a server, and the attributes that its filters ask for."""
    if members is None:
        return write_layer(index.store, Engine(schema), gone), []
    segment = build_segment([members], schema, find_matcher(_MATCHER))
    asked = [schema.attributes[a].name for a in segment.attributes]
    return write_segment(index.store, segment, schema, _MATCHER, gone), asked


def _per_server(index: Index, manifest: Manifest, members: Members) -> tuple[str | None, dict[int, Members]]:
    """The folder of the plan that covers the new filters, and what each server gets."""
    if not members.filter_of.size:
        return manifest.plan, {}
    plan = index.plan(manifest)
    if plan is None:
        return None, {0: members}
    plan = plan.copy()  # the one that tasks share must not change
    plan.insert(members.filters, np.bincount(members.filter_of, minlength=members.filters.n_filters))
    return save_plan(index.store, plan), {part.server: part.members for part in split_members(members, plan)}
