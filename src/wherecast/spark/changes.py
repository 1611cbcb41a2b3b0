"""Applying changes: a set of upserts and deletes laid over an index as a small new version.

Every server gets a layer of what it gains and the ids that die below it. What becomes of each row is told in `change_rows`.
Refused and late rows leave no trace in the index, so applying the same rows again gives them again, and replays instead of
the applied ones: whoever must not miss a refused row may write it down after the commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from wherecast.engine.engine import Engine
from wherecast.engine.segment import Members, build_segment
from wherecast.language.schema import Schema
from wherecast.matchers.registry import find_matcher
from wherecast.spark.change_rows import News, Unapplied, check_changes, read_changes
from wherecast.spark.errors import StaleVersionError
from wherecast.spark.index import Index
from wherecast.spark.layers import write_layer, write_segment
from wherecast.spark.manifest import Layer, Manifest, SavedPlan
from wherecast.spark.names import Rule
from wherecast.spark.parts import split_members
from wherecast.spark.plans import save_plan
from wherecast.spark.sequences import extend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Matcher of a layer of changes.
_MATCHER = "adaptive"
#: Rows of a set that are logged one by one.
_LOGGED = 10

_log = logging.getLogger(__name__)


class Applied(NamedTuple):
    """Outcome of applying changes. Every row given is applied, refused, late or replayed; see `change_rows`."""

    manifest: Manifest
    """The version that has them."""
    changes: int
    """Ids that were changed."""
    applied: int
    refused: int
    late: int
    replayed: int
    quarantine: pa.Table
    """Refused and late rows: `sequence`, `op`, `id`, `filter`, `message` (of a row that came as a message and cannot be
    read) and `reason`. A refused upsert leaves the older subscription in place."""


def apply_changes(changes: DataFrame, index: Index | str) -> Applied:
    """Commit a version with these changes, if there is anything new among them.

    Columns are `sequence`, `op` (`upsert` or `delete`), `id` and `filter`, and `priority` if you like. A row that carries an
    error in a column `__wherecast_error` is refused with it.
    """
    index = Index(index) if isinstance(index, str) else index
    case_sensitive = Rule.of(changes.sparkSession).case_sensitive
    return commit_changes(index, lambda manifest: read_changes(changes, manifest), case_sensitive=case_sensitive)


def commit_changes(index: Index, read: Callable[[Manifest], Unapplied], *, case_sensitive: bool = False) -> Applied:
    """Commit a version with the changes that `read` finds missing in the current one."""
    while True:
        with index.change() as manifest:
            rows, replayed = read(manifest)
            schema = Schema.from_json(manifest.schema)
            news = check_changes(rows, schema, manifest.sequence, case_sensitive=case_sensitive)
            try:
                changed = lay_over(index, manifest, news) if news.numbers.size else manifest
            except StaleVersionError:
                continue  # other changes, or buckets were moved, or layers merged: lay over that version
        replayed += news.replayed
        applied = Applied(changed, len(news.ids), news.numbers.size, news.refused, news.late, replayed, news.quarantine)
        _log_outcome(index, applied)
        return applied


def _log_outcome(index: Index, applied: Applied) -> None:
    """Tell what was not applied, row by row up to a limit, and the counts of all."""
    for row in applied.quarantine.slice(0, _LOGGED).to_pylist():
        _log.warning(
            "change not applied: sequence=%s id=%.100r reason=%.500r", row["sequence"], row["id"], row["reason"]
        )
    _log.log(
        logging.WARNING if len(applied.quarantine) else logging.INFO,
        "changes: applied=%d refused=%d late=%d replayed=%d version=%d sequence=%d index=%s",
        applied.applied,
        applied.refused,
        applied.late,
        applied.replayed,
        applied.manifest.version,
        applied.manifest.sequence,
        index.url,
    )


def lay_over(index: Index, manifest: Manifest, news: News) -> Manifest:
    """Commit a version with one more layer per server."""
    schema = Schema.from_json(manifest.schema)
    plan, parts = _per_server(index, manifest, news.members)
    attributes, layers = set(manifest.attributes), []
    for server in range(len(manifest.servers)):
        layer, asked = _write(index, schema, parts.get(server), news.ids)
        layers.append(layer)
        attributes.update(asked)
    sequence, gaps = extend(manifest.sequence, manifest.gaps, news.numbers)
    changed = replace(
        manifest,
        plan=plan,
        servers=tuple((*below, layer) for below, layer in zip(manifest.servers, layers, strict=True)),
        attributes=tuple(sorted(attributes)),
        sequence=sequence,
        gaps=gaps,
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


def _per_server(index: Index, manifest: Manifest, members: Members) -> tuple[SavedPlan | None, dict[int, Members]]:
    """The plan that covers the new filters, and what each server gets."""
    if not members.filter_of.size:
        return manifest.plan, {}
    plan = index.plan(manifest)
    if plan is None:
        return None, {0: members}
    plan = plan.copy()  # the one that tasks share must not change
    plan.insert(members.filters, np.bincount(members.filter_of, minlength=members.filters.n_filters))
    return save_plan(index.store, plan), {part.server: part.members for part in split_members(members, plan)}
