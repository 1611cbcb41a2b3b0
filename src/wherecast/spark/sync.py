"""Sync: make an index equal to a table of rules, in one commit.

The naive way builds the index anew from the table, whatever has changed. Here the two are compared first, by Spark: the table
gives the id and the content hash of each rule (see `rules`), tasks read the same of the layers and of the quarantine, and
one aggregation by id keeps the ids that differ. Only the rows of these come to the driver, which lays them over the current version as
changes are (see `changes`). If they are too many for that, or the table has gained or lost a column, the index is
built anew by tasks.

The table is the truth:

| rule | outcome |
|---|---|
| new, or its filter or a column was edited | live in the next version |
| its row is gone | removed, also from the quarantine |
| new or edited, and refused | not live; in the quarantine with reason and position |
| its id is there twice | nothing is committed; the error lists such ids |

A table that is edited while it is read may be seen in part; what was missed differs at the next sync.

A table and a change log cannot both be the truth. So `sync` refuses an index with numbered changes, and `apply` an index that
was synced.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.engine.segment import Members
from wherecast.errors import LimitError, SubscriptionError
from wherecast.language.events.html import html_table
from wherecast.language.events.schema import Schema
from wherecast.language.filters.filters import concat_filters
from wherecast.progress import progress
from wherecast.spark.build import How, build_version
from wherecast.spark.changes import with_layers
from wherecast.spark.columns import NameRule
from wherecast.spark.index import Index
from wherecast.spark.manifest import Manifest
from wherecast.spark.quarantine import log_refused, open_quarantine, save_quarantine
from wherecast.spark.rules import HASH, RULE, arrow_form, columns_of, stored_columns
from wherecast.spark.store import IndexStoreError, StaleVersionError
from wherecast.spark.subscriptions import CompileTask, id_type, quarantine, read_parts, read_rows
from wherecast.spark.versions import from_arrow, repartition_by_id, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wherecast.partition.plan import Strategy

#: More differences than this are a new set of rules: the index is built anew, by tasks.
MOST_DIFFERENCES = 100_000
#: Ids that an error lists, and rows of a batch that a task hands on.
_LISTED, _BATCH = 20, 100_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, repr=False)
class SyncReport:
    """What a sync has done."""

    manifest: Manifest
    """The version that equals the table."""
    added: int
    changed: int
    removed: int
    """Rules that are not live any more: their row is gone, or was edited and is refused."""
    refused: int
    """Rules of the table that are not live because they are refused; `Index.quarantine` lists them."""
    committed: bool
    """False: the index had it all already."""

    @property
    def version(self) -> int:
        return self.manifest.version

    def __repr__(self) -> str:
        return f"SyncReport(version {self.version}: {self._counts()})"

    def _repr_html_(self) -> str:
        return html_table("SyncReport", ("", ""), [("version", self.version), ("content", self._counts())])

    def _counts(self) -> str:
        done = f"{self.added:,} added, {self.changed:,} changed, {self.removed:,} removed"
        return f"{done if self.committed else 'nothing to do'}, {self.refused:,} refused"


def sync_rules(rules: DataFrame, index: Index, only: pa.Table | None = None) -> SyncReport:
    """Commit one version that equals a table of rules; none if the current version does.

    Args:
        rules: The table.
        index: It gets the version.
        only: Ids to compare, in a column `id`, where it is known that no others differ; see `feeds`.

    Raises:
        SubscriptionError: Ids are there twice, or a column is missing or has another type than in the index.
        IndexStoreError: The index has numbered changes.
    """
    while True:
        with index.change() as manifest:
            if manifest.sequence:
                raise IndexStoreError(
                    f"the index {index.url} has changes of a log up to number {manifest.sequence}, and a sync with a table would "
                    "undo them; apply changes to it, or build it again from the table and sync from then on"
                )
            try:
                synced, refused = _sync(rules, index, manifest, only)
            except StaleVersionError:
                continue  # layers were merged, or buckets moved: compare with that version
        if synced.committed:
            log_refused(refused, synced.version, index.url)
        _log.info(
            "sync: added=%d changed=%d removed=%d refused=%d version=%d index=%s",
            *(synced.added, synced.changed, synced.removed, synced.refused, synced.version, index.url),
        )
        return synced


def _sync(rules: DataFrame, index: Index, manifest: Manifest, only: pa.Table | None) -> tuple[SyncReport, pa.Table]:
    """One attempt: what it has done, and the rules that it refused."""
    names, known = (manifest.id_column, manifest.filter_column), columns_of(manifest)
    rows = read_rows(rules, *names)
    rule = NameRule.of(rules.sparkSession)
    same = {*map(rule.key, stored_columns(rows).names)} == {*map(rule.key, known.names)}
    if id_type(rows) != manifest.id_type:
        raise SubscriptionError(
            f"the ids of the table are {id_type(rows)}, those of the index {manifest.id_type}: cast them"
        )
    rows_as_stored = read_rows(rules, *names, known)  # refuses a column of another type
    if same:
        rows = rows_as_stored
    differing = _compare(rows, index, manifest, only)
    found = to_arrow(differing.limit(MOST_DIFFERENCES + 1))
    _refuse_twice(differing if len(found) > MOST_DIFFERENCES else None, found)
    if same and len(found) <= MOST_DIFFERENCES:
        return _lay_over(rows, index, manifest, found)
    _log.info("sync builds the index anew: version=%d index=%s", manifest.version, index.url)
    return _build_anew(rows, index, manifest, differing)


# Comparing


def _compare(rows: DataFrame, index: Index, manifest: Manifest, only: pa.Table | None) -> DataFrame:
    """The ids that differ: `id`, `n` (how often the table has it) and `live` (1: the version has it, 0: it is in quarantine)."""
    from pyspark.sql import functions as F  # noqa: N812

    nothing, one = F.lit(None).cast("int"), F.lit(1)
    theirs = rows.select("id", F.col(f"{RULE}.{HASH}").alias("wanted"), F.lit(None).cast("bigint").alias("held"))
    theirs = theirs.select("*", one.alias("n"), nothing.alias("live"))
    ours = _list_rules(rows.sparkSession, index, manifest)
    ours = ours.select(
        "id", F.lit(None).cast("bigint").alias("wanted"), F.col("hash").alias("held"), nothing.alias("n"), "live"
    )
    compared = theirs.unionAll(ours)
    if only is not None:
        # Rows without an id are compared every time, see below.
        kind = pa.int64() if manifest.id_type == "bigint" else pa.string()
        ids = pa.table({"chosen": pa.array([None, *only["id"].to_pylist()], kind)})
        chosen = F.broadcast(from_arrow(rows.sparkSession, ids, f"chosen {manifest.id_type}"))
        compared = compared.join(chosen, F.col("id").eqNullSafe(F.col("chosen")), "left_semi")
    grouped = compared.groupBy("id").agg(
        F.sum("n").alias("n"), *(F.max(c).alias(c) for c in ("wanted", "held", "live"))
    )
    # Rows without an id are always looked at: there may be several, and the largest hash does not stand for all.
    return grouped.where("id IS NULL OR NOT (n <=> 1 AND wanted <=> held)").select("id", "n", "live")


def _list_rules(spark: SparkSession, index: Index, manifest: Manifest) -> DataFrame:
    """Ids and hashes of the rules that a version has, and of those in its quarantine; replicas are there several times."""
    from pyspark.sql import functions as F  # noqa: N812

    servers = spark.range(len(manifest.servers)).select(F.col("id").cast("int").alias("server"))
    servers = repartition_by_id(servers, len(manifest.servers), "server")
    live = servers.mapInArrow(ListTask(index.url, manifest).list_rules, f"id {manifest.id_type}, hash bigint")
    live = live.select("*", F.lit(1).alias("live"))
    refused = open_quarantine(index.store, manifest.quarantine)
    if not len(refused):
        return live
    frame = from_arrow(spark, _held(refused), "id string, hash bigint")
    return live.unionAll(frame.select(F.col("id").cast(manifest.id_type), "hash", F.lit(0)))


def _held(refused: pa.Table) -> pa.Table:
    """Ids and hashes of a quarantine. A build refuses all rows of an id that occurs twice; what is left of them is looked at."""
    counted = refused.group_by("id").aggregate([(HASH, "min"), (HASH, "count")])
    once = pc.equal(counted[f"{HASH}_count"], 1)
    return pa.table({"id": counted["id"], "hash": pc.if_else(once, counted[f"{HASH}_min"], None)})


@dataclass(frozen=True, slots=True)
class ListTask:
    """What a task does to list the rules of servers."""

    url: str
    manifest: Manifest

    def list_rules(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Ids and hashes of the servers whose numbers come."""
        index, kind = Index(self.url), pa.int64() if self.manifest.id_type == "bigint" else pa.string()
        for batch in batches:
            for server in batch.column("server").to_pylist():
                engine = index.serve(self.manifest, server)
                hashes = index.serve_rules(self.manifest, server).take(engine.places(), [HASH])[HASH]
                listed = pa.table({"id": engine.ids().cast(kind), "hash": hashes})
                yield from listed.combine_chunks().to_batches(max_chunksize=_BATCH)


def _refuse_twice(differing: DataFrame | None, found: pa.Table) -> None:
    """Raises SubscriptionError if the table has an id more than once. `differing` are all ids, where not all were found."""
    if differing is None:
        twice = found.filter(pc.and_(pc.greater(found["n"], 1), found["id"].is_valid()))["id"]
        count = len(twice)
    else:
        many = differing.where("n > 1 AND id IS NOT NULL")
        twice, count = to_arrow(many.select("id").limit(_LISTED))["id"], many.count()
    if count:
        listed = ", ".join(repr(id) for id in sorted(twice.to_pylist())[:_LISTED])
        raise SubscriptionError(
            f"{count:,} ids of the table occur more than once: {listed}{', ...' if count > _LISTED else ''}; which of the "
            "rows counts is not clear, so nothing is changed: make the ids unique"
        )


# Committing


def _lay_over(rows: DataFrame, index: Index, manifest: Manifest, found: pa.Table) -> tuple[SyncReport, pa.Table]:
    """Commit a version with the rows of the ids that were found to differ."""
    before = open_quarantine(index.store, manifest.quarantine)
    if not len(found):
        return SyncReport(manifest, 0, 0, 0, len(before), committed=False), before.slice(0, 0)
    part, refused = _compile(_fetch(rows, found), manifest, NameRule.of(rows.sparkSession))
    members, rules = part
    gone = found.filter(pc.equal(found["live"].fill_null(0), 1))["id"]
    kept = _keep(before, found)
    after = pa.concat_tables([kept, refused])
    added, changed, removed = _count(members, gone)
    if not (len(gone) or members.filter_of.size) and _content(after) == _content(before):
        return SyncReport(manifest, 0, 0, 0, len(after), committed=False), refused
    changes = with_layers(index, manifest, members, rules, gone.combine_chunks())
    committed = index.commit(replace(changes, quarantine=save_quarantine(index.store, after), synced=True))
    return SyncReport(committed, added, changed, removed, len(after), committed=True), refused


def _fetch(rows: DataFrame, found: pa.Table) -> pa.Table:
    """The rows of the ids that the table has."""
    from pyspark.sql import functions as F  # noqa: N812

    wanted = found.filter(pc.greater(found["n"].fill_null(0), 0)).select(["id"])
    ids = from_arrow(rows.sparkSession, wanted.rename_columns(["wanted"]), f"wanted {id_type(rows)}")
    return to_arrow(rows.join(F.broadcast(ids), F.col("id").eqNullSafe(F.col("wanted")), "left_semi"))


def _compile(rows: pa.Table, manifest: Manifest, rule: NameRule) -> tuple[tuple[Members, pa.Table], pa.Table]:
    """Rows as members with their rules, and those that are refused."""
    schema, form = Schema.from_json(manifest.schema), arrow_form(columns_of(manifest))
    nameless = rows.filter(rows["id"].is_null())
    refused = [quarantine(nameless, ["the id is missing"] * len(nameless))]
    none = np.zeros(0, np.int64)
    compiled = [(Members(concat_filters([], schema), none, none, np.zeros(0, np.float32)), form.empty_table())]
    named = rows.filter(rows["id"].is_valid()).combine_chunks()
    for batch in CompileTask(schema, form, rule.case_sensitive).compile(named.to_batches()):
        parts, left_out = read_parts(batch)
        refused.append(left_out)
        compiled += [(part.members, part.rules) for part in parts]
    if len(compiled) > 2:  # gigabytes of text: combining has left several chunks
        raise LimitError(
            "the rules that differ are too large to be compiled at once; build the index again from the table"
        )
    return compiled[-1], pa.concat_tables(refused)


def _keep(before: pa.Table, found: pa.Table) -> pa.Table:
    """What stays in quarantine: rules whose content is as it was."""
    touched = pc.is_in(before["id"], value_set=found["id"].cast(pa.string()).drop_null().combine_chunks())
    return before.filter(pc.and_(pc.invert(touched), before["id"].is_valid()))


def _count(members: Members, gone: pa.ChunkedArray) -> tuple[int, int, int]:
    """How many rules are added, changed and removed."""
    now, before = set(np.asarray(members.ids).tolist()), set(gone.to_pylist())
    return len(now - before), len(now & before), len(before - now)


def _content(refused: pa.Table) -> list[Any]:
    return sorted(zip(*(map(str, refused[name].to_pylist()) for name in ("id", HASH, "reason")), strict=True))


def _build_anew(rows: DataFrame, index: Index, manifest: Manifest, differing: DataFrame) -> tuple[SyncReport, pa.Table]:
    """Commit a version that is built from the whole table, planned as the one before."""
    from pyspark.sql import functions as F  # noqa: N812

    plan = index.plan(manifest)
    strategy = cast("Strategy", "broadcast" if plan is None else plan.strategy)
    how = How(Schema.from_json(manifest.schema), strategy, len(manifest.servers))
    with progress("building the index", 2) as step:
        built, _, refused = build_version(index, rows, how, step)
    bad = from_arrow(rows.sparkSession, refused.select(["id"]).rename_columns(["bad"]), "bad string").distinct()
    known = differing.where("id IS NOT NULL").join(bad, F.col("id").cast("string") == F.col("bad"), "left")
    # A rule that was live and whose edit is refused is removed, as it is where a version is laid over.
    live, there = F.coalesce("live", F.lit(0)) == 1, (F.coalesce("n", F.lit(0)) > 0) & F.col("bad").isNull()
    counted = known.agg(
        F.count_if(~live & there).alias("added"),
        F.count_if(live & there).alias("changed"),
        F.count_if(live & ~there).alias("removed"),
    )
    counts = counted.collect()[0].asDict()
    built = replace(built, id_column=manifest.id_column, filter_column=manifest.filter_column)
    committed = index.commit(replace(built, parent=manifest.version, synced=True))
    return SyncReport(committed, **counts, refused=len(refused), committed=True), refused
