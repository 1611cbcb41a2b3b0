"""Changes: upserts and deletes with a sequence number, applied to an index as a small new version.

Rows. A change is a row (`sequence`, `op`, `id`, `filter`, and the columns of the rule): `op` is `upsert` or `delete`, and the sequence number, 1 or
higher, names this change and no other. What becomes of a row:

| row | outcome |
|---|---|
| cannot be read, a field is missing or wrong, the filter or the id is refused | *refused*, with the reason |
| its number is also that of a different change in the same set | *refused*, both of them |
| its number is in the index already, or the same row is there twice | *replayed*: there is nothing to do |
| its number is below that of the last change applied, and not in the index | *late*: not applied, with the reason |
| else | *applied*; of several to one id the one with the highest number counts |

Every row is counted once. The sequence of an index goes on with applied rows only.

Numbers. An index has the changes up to some number, its `sequence`, except for some *gaps*: numbers that never came, or whose
change was refused. A number up to `sequence` that is in no gap is a replay. A number in a gap is late: later changes are in,
perhaps to the same id, so it can neither be applied nor be called a replay. Most logs have few gaps. Of a log with many, the
oldest gaps are joined: then a change that the index has may be called late, but none that it lacks is called a replay.

Applying. Every server gets a layer of what it gains and the ids that die below it. Refused and late rows leave no trace in
the index, so applying the same rows again refuses them again, and finds the applied ones replayed: whoever must not miss a
refused row may write it down after the commit.

Following a change log. What happens to a micro-batch, in this order:

1. its changes are committed as a new version of the index;
2. rows that were not applied go to the sink for dead letters;
3. counts go to the reports;
4. if layers have piled up, they are merged, and versions that nobody needs are removed;
5. Spark commits the batch.

Killed anywhere, the batch is handed over again. Then its applied rows are replays, and the others come out of step 1 as they
did before, so step 2 loses none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.engine.checks import check_id, check_priority
from wherecast.engine.engine import Engine
from wherecast.engine.ids import join_ids
from wherecast.engine.segment import Members, build_segment
from wherecast.errors import LimitError, SubscriptionError
from wherecast.kernels.arrays import Longs
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import take_filters
from wherecast.matchers.registry import find_matcher
from wherecast.spark.columns import ERROR, MESSAGE, NameRule, quoted
from wherecast.spark.files import CheckFiles
from wherecast.spark.index import Index
from wherecast.spark.layers import save_plan, write_layer, write_segment
from wherecast.spark.manifest import Layer, Manifest, SavedPlan
from wherecast.spark.progress import ChangeReport, ReportingQuery, Reports
from wherecast.spark.rules import (
    HASH,
    RULE,
    arrow_form,
    by_slot,
    columns_of,
    find_column,
    plain_type,
    rule_struct,
    struct_rows,
)
from wherecast.spark.sinks.sink import Sink
from wherecast.spark.store import IndexStoreError, StaleVersionError
from wherecast.spark.stream import Checkpoint
from wherecast.spark.subscriptions import (
    INTEGERS,
    Part,
    id_values,
    priority_column,
    reason_of,
    split_members,
    text_column,
    text_fault,
)
from wherecast.spark.tidying import KEPT_VERSIONS, MOST_LAYERS, finish_tidying, tidy_beside
from wherecast.spark.versions import from_arrow, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType


# Numbers

#: First and last number of each, rising.
Gaps = tuple[tuple[int, int], ...]
#: Gaps that an index remembers; a manifest has some twenty bytes for each.
MOST_GAPS = 10_000


def find_replays(numbers: Longs, sequence: int, gaps: Gaps) -> npt.NDArray[np.bool_]:
    """Which numbers an index has."""
    ends = np.array(gaps, np.int64).reshape(-1, 2)
    place = np.searchsorted(ends[:, 0], numbers, side="right") - 1
    late = np.zeros(numbers.size, bool)
    if len(ends):
        late = (place >= 0) & (numbers <= ends[np.maximum(place, 0), 1])
    return np.asarray((numbers >= 1) & (numbers <= sequence) & ~late)


def extend(sequence: int, gaps: Gaps, applied: Longs) -> tuple[int, Gaps]:
    """Sequence and gaps of an index once it has new changes, whose numbers rise."""
    before = np.concatenate([np.array([sequence], np.int64), applied[:-1]])
    holes = np.flatnonzero(applied - before > 1)
    found = zip((before[holes] + 1).tolist(), (applied[holes] - 1).tolist(), strict=True)
    all_gaps = (*gaps, *found)
    surplus = len(all_gaps) - MOST_GAPS
    if surplus > 0:
        all_gaps = ((all_gaps[0][0], all_gaps[surplus][1]), *all_gaps[surplus + 1 :])
    return int(applied[-1]) if applied.size else sequence, all_gaps


# Rows

#: More changes than this at once are a new set of subscriptions: build the index again.
MOST_CHANGES = 1_000_000
#: What a row that is not applied looks like.
QUARANTINE = pa.schema(
    [("sequence", pa.int64())] + [(name, pa.string()) for name in ("op", "id", "filter", "message", "reason")]
)
_NULLS = "void"
_REPLAYED = "replayed"


class Unapplied(NamedTuple):
    """Rows that a version does not have, and how many of the others there are."""

    rows: pa.Table
    """Columns `sequence`, `op`, `id`, `filter`, `priority`, `message`, `error` and `rule`, see `rules`."""
    replayed: int


def check_change_columns(changes: DataFrame, manifest: Manifest) -> dict[str, str]:
    """What a DataFrame calls `sequence`, `op`, `id` and `filter`.

    Raises SubscriptionError if it cannot hold changes to an index.
    """
    given = {"sequence": "sequence", "op": "op", "id": manifest.id_column, "filter": manifest.filter_column}
    names = {name: find_column(changes, other, "changes") for name, other in given.items()}
    allowed = {"sequence": INTEGERS, "id": INTEGERS if manifest.id_type == "bigint" else ("string",)}
    for name, kinds in allowed.items():
        kind = changes.schema[names[name]].dataType.typeName()
        if kind not in (*kinds, _NULLS):
            wanted = "integers" if kinds == INTEGERS else "strings, as the ids of this index are"
            raise SubscriptionError(
                f"the column {names[name]!r} of the changes holds {kind}, expected {wanted}: cast it"
            )
    return names


def read_changes(changes: DataFrame, manifest: Manifest) -> Unapplied:
    """The changes that a version does not have."""
    from pyspark.sql import functions as F  # noqa: N812

    names = check_change_columns(changes, manifest)
    if "priority" in changes.columns:
        changes = changes.withColumn("priority", priority_column(changes))
    known = [F.col(ERROR)] if ERROR in changes.columns else []
    message = F.col(MESSAGE) if MESSAGE in changes.columns else F.lit(None)
    texts = ("op", "filter") if manifest.id_type == "bigint" else ("op", "id", "filter")
    id = text_column(names["id"]) if "id" in texts else quoted(names["id"]).cast("bigint")
    rule, faults = rule_struct(changes, text_column(names["filter"]), columns_of(manifest), "changes")
    rows = changes.select(
        quoted(names["sequence"]).cast("bigint").alias("sequence"),
        text_column(names["op"]).alias("op"),
        id.alias("id"),
        text_column(names["filter"]).alias("filter"),
        priority_column(changes),
        message.cast("string").alias("message"),
        F.coalesce(*known, *(text_fault(names[name]) for name in texts), *faults).alias("error"),
        rule,
    )
    sift = SiftTask(manifest.sequence, manifest.gaps)
    found = to_arrow(rows.mapInArrow(sift.sift, _with_field(rows.schema, _REPLAYED)).limit(MOST_CHANGES + 1))
    if len(found) > MOST_CHANGES:
        raise LimitError(f"more than {MOST_CHANGES:,} changes at once; build the index again with build_index")
    counts = found[_REPLAYED]
    return Unapplied(found.filter(counts.is_null()).drop_columns([_REPLAYED]), pc.sum(counts).as_py() or 0)


def _with_field(schema: StructType, name: str) -> StructType:
    """A schema of which every field may be NULL, and one of counts."""
    from pyspark.sql.types import LongType, StructField, StructType

    fields = [StructField(f.name, plain_type(f.dataType)) for f in schema.fields]
    return StructType([*fields, StructField(name, LongType())])


@dataclass(frozen=True, slots=True)
class SiftTask:
    """What a task does to leave out the changes that a version has."""

    sequence: int
    gaps: Gaps

    def sift(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The other rows, with NULL in a column `replayed`, and at the end a row with nothing but the number left out."""
        replayed, names = 0, None
        for batch in batches:
            numbers = batch.column("sequence").fill_null(0).to_numpy(zero_copy_only=False)
            known = find_replays(numbers, self.sequence, self.gaps) & ~batch.column("error").is_valid().to_numpy(False)
            rest = batch.filter(pa.array(~known))
            replayed, names = replayed + int(known.sum()), batch.schema
            yield _with_count(rest, pa.nulls(rest.num_rows, pa.int64()))
        if names is not None and replayed:
            nothing = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in names], names.names)
            yield _with_count(nothing, pa.array([replayed], pa.int64()))


def _with_count(batch: pa.RecordBatch, counts: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, counts], [*batch.schema.names, _REPLAYED])


class News(NamedTuple):
    """Checked changes, one per id, and what is left out of them."""

    members: Members
    """What is added."""
    rules: pa.Table
    """A row for each member."""
    ids: pa.Array
    """What is added or removed: all of it dies below."""
    numbers: Longs
    """Of the rows that are applied, rising."""
    refused: int
    late: int
    replayed: int
    """Rows that are there twice."""
    quarantine: pa.Table
    """Rows that are refused or late."""


def check_changes(
    rows: pa.Table, schema: Schema, form: pa.Schema, sequence: int, *, case_sensitive: bool = False
) -> News:
    """What becomes of rows that an index with changes up to `sequence` does not have; `form` is that of its rules."""
    rows = rows.sort_by("sequence")
    compiled = Compiler(schema, case_sensitive=case_sensitive).compile_many(rows["filter"].to_pylist())
    hashes = pc.struct_field(rows[RULE], HASH)
    changes, errors = rows.drop_columns([RULE]).append_column(HASH, hashes).to_pylist(), dict(compiled.errors)
    reasons = {row: fault for row, change in enumerate(changes) if (fault := _find_fault(change, errors.get(row)))}
    late = {
        row: f"sequence {change['sequence']} is late: changes with higher numbers are applied already, and this one is not; "
        "send it again with a higher number"
        for row, change in enumerate(changes)
        if row not in reasons and change["sequence"] <= sequence
    }
    good = [row for row in range(len(changes)) if row not in reasons and row not in late]
    clashes, once = _find_clashes(changes, good)
    reasons |= clashes
    last = {changes[row]["id"]: row for row in once}
    chosen = np.array(sorted(last.values()), np.int64)
    left_out = reasons | late
    added = chosen[np.asarray(pc.equal(rows["op"], "upsert").take(pa.array(chosen)))]
    return News(
        _members(rows, compiled.filters, compiled.filter_of, added),
        struct_rows(rows[RULE].take(pa.array(added)), form),
        rows["id"].take(pa.array(chosen)).combine_chunks(),
        np.array([changes[row]["sequence"] for row in once], np.int64),
        len(reasons),
        len(late),
        len(good) - len(clashes) - len(once),
        _quarantine(changes, left_out),
    )


def _find_fault(change: dict[str, Any], error: Exception | None) -> str:
    """Why a change cannot be made; empty if it can."""
    if change["error"] is not None:
        return str(change["error"])
    for name in ("sequence", "op", "id"):
        if change[name] is None:
            return f"the {name} is missing"
    if change["sequence"] < 1:
        return f"sequence is {change['sequence']}, expected 1 or higher"
    if change["op"] not in ("upsert", "delete"):
        return f"op is {change['op']!r:.40}, expected upsert or delete"
    try:
        check_id(change["id"])
        if change["op"] == "upsert":
            check_priority(change["priority"])
    except SubscriptionError as objection:
        return str(objection)
    return reason_of(error) if error is not None and change["op"] == "upsert" else ""


def _find_clashes(changes: list[dict[str, Any]], good: list[int]) -> tuple[dict[int, str], list[int]]:
    """Rows whose number is that of a different change too, with the reason; and of the others one for each number."""
    meant: dict[int, set[tuple[Any, ...]]] = {}
    for row in good:
        change = changes[row]
        what = (change[HASH], str(change["priority"])) if change["op"] == "upsert" else ()
        meant.setdefault(change["sequence"], set()).add((change["op"], change["id"], *what))
    clashes: dict[int, str] = {}
    first: dict[int, int] = {}
    for row in good:
        number = changes[row]["sequence"]
        if len(meant[number]) > 1:
            clashes[row] = (
                f"{len(meant[number])} different changes have the sequence {number}; give each its own number"
            )
        else:
            first.setdefault(number, row)
    return clashes, list(first.values())


def _members(rows: pa.Table, filters: Any, filter_of: Any, added: Longs) -> Members:
    """What is added by some rows."""
    used, number = np.unique(filter_of[added], return_inverse=True)
    whose = rows.take(pa.array(added))
    return Members(take_filters(filters, used), number, id_values(whose["id"]), whose["priority"].to_numpy())


def _quarantine(changes: list[dict[str, Any]], reasons: dict[int, str]) -> pa.Table:
    picked = [{**changes[row], "reason": reasons[row]} for row in sorted(reasons)]
    texts = [[None if p[n] is None else str(p[n]) for p in picked] for n in QUARANTINE.names[1:]]
    return pa.table([[p["sequence"] for p in picked], *texts], schema=QUARANTINE)


# Applying

#: Matcher of a layer of changes.
_MATCHER = "adaptive"
#: Rows of a set that are logged one by one.
_LOGGED = 10

_log = logging.getLogger(__name__)


class Applied(NamedTuple):
    """Outcome of applying changes. Every row given is applied, refused, late or replayed."""

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
    """Commit a new version with these changes, unless all of them are in the index already.

    Columns are `sequence`, `op` (`upsert` or `delete`), `id` and `filter`, and optionally `priority`. A row that carries an
    error in a column `__wherecast_error` is refused with it.
    """
    index = Index(index) if isinstance(index, str) else index
    case_sensitive = NameRule.of(changes.sparkSession).case_sensitive
    return commit_changes(index, lambda manifest: read_changes(changes, manifest), case_sensitive=case_sensitive)


def commit_changes(index: Index, read: Callable[[Manifest], Unapplied], *, case_sensitive: bool = False) -> Applied:
    """Commit a version with the changes that `read` finds missing in the current one."""
    while True:
        with index.change() as manifest:
            if manifest.synced:
                raise IndexStoreError(
                    f"the index {index.url} follows a table, and the next sync would undo changes of a log; change the table, "
                    "or build the index again and apply changes from then on"
                )
            rows, replayed = read(manifest)
            schema = Schema.from_json(manifest.schema)
            form = arrow_form(columns_of(manifest))
            news = check_changes(rows, schema, form, manifest.sequence, case_sensitive=case_sensitive)
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
    changed = with_layers(index, manifest, news.members, news.rules, news.ids)
    sequence, gaps = extend(manifest.sequence, manifest.gaps, news.numbers)
    return index.commit(replace(changed, sequence=sequence, gaps=gaps))


def with_layers(index: Index, manifest: Manifest, members: Members, rules: pa.Table, gone: pa.Array) -> Manifest:
    """A version to commit: one more layer per server, with new members and without the ids that are gone below."""
    schema = Schema.from_json(manifest.schema)
    plan, parts = _per_server(index, manifest, members, rules)
    attributes, layers = set(manifest.attributes), []
    for server in range(len(manifest.servers)):
        layer, asked = _write(index, schema, parts.get(server), gone)
        layers.append(layer)
        attributes.update(asked)
    return replace(
        manifest,
        plan=plan,
        servers=tuple((*below, layer) for below, layer in zip(manifest.servers, layers, strict=True)),
        attributes=tuple(sorted(attributes)),
        parent=manifest.version,
        compacted=False,
    )


def _write(index: Index, schema: Schema, part: Part | None, gone: pa.Array) -> tuple[Layer, list[str]]:
    """The layer of a server, and the attributes that its filters ask for."""
    if part is None:
        return write_layer(index.store, Engine(schema), gone), []
    segment = build_segment([part.members], schema, find_matcher(_MATCHER))
    asked = [schema.attributes[a].name for a in segment.attributes]
    rules = by_slot(part.rules, segment.subscriptions.ids.find_many(join_ids([np.asarray(part.members.ids)])))
    return write_segment(index.store, segment, schema, _MATCHER, gone, rules), asked


def _per_server(
    index: Index, manifest: Manifest, members: Members, rules: pa.Table
) -> tuple[SavedPlan | None, dict[int, Part]]:
    """The plan that covers the new filters, and what each server gets."""
    if not members.filter_of.size:
        return manifest.plan, {}
    plan = index.plan(manifest)
    if plan is None:
        return None, {0: Part(0, members, rules)}
    plan = plan.copy()  # the one that tasks share must not change
    plan.insert(members.plain, np.bincount(members.filter_of, minlength=members.filters.n_filters))
    return save_plan(index.store, plan), {part.server: part for part in split_members(members, rules, plan)}


# Following a change log

_DEAD_LETTERS = "sequence bigint, op string, id string, filter string, message string, error string"


class ChangesQuery(ReportingQuery[ChangeReport]):
    """A stream of changes that is being applied to an index."""

    def __init__(self, query: StreamingQuery, reports: Reports[ChangeReport], index: Index) -> None:
        super().__init__(query, reports)
        self._index = index

    def stop(self) -> None:
        """End the stream, and wait for layers that are being merged."""
        self.query.stop()
        finish_tidying(self._index)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802 - Spark's name for it
        """Wait for the end of the stream, and for layers that are being merged; with a timeout, whether the end has come."""
        if timeout is not None:
            return self.query.awaitTermination(timeout)  # type: ignore[arg-type]  # it takes seconds of any type
        self.query.awaitTermination()
        finish_tidying(self._index)
        return None


def follow_changes(
    changes: DataFrame,
    index: Index | str,
    checkpoint: str,
    *,
    dead_letters: Sink | None = None,
    most_layers: int = MOST_LAYERS,
    keep_versions: int = KEPT_VERSIONS,
    check_files: CheckFiles | None = None,
    **trigger: Any,
) -> ChangesQuery:
    """Keep an index up to date with a streaming change log: every micro-batch of it that has news is a new version.

    Rows that cannot be applied (refused ones and late ones) are counted in the `reports` of the query and
    logged, and go to `dead_letters`, where there is such a sink, with their reason in `error`.

    Once a server has more than `most_layers` layers, they are merged beside (`tidying`), and versions that neither a stream has pinned nor
    are among the newest `keep_versions` are removed. `check_files` is as for `stream`.
    """
    index = Index(index) if isinstance(index, str) else index
    place = Checkpoint(checkpoint)
    if dead_letters is not None:
        dead_letters.admit(place.dead_letters())
    check_change_columns(changes, index.read())
    reports = Reports(index, checkpoint, ChangeReport)
    runner = ChangeRunner(index, place, dead_letters, reports, most_layers, keep_versions, check_files)
    writer = changes.writeStream.foreachBatch(runner)
    writer = writer.trigger(**trigger) if trigger else writer
    return ChangesQuery(place.start(writer, changes.sparkSession), reports, index)


@dataclass(frozen=True, slots=True)
class ChangeRunner:
    """What `foreachBatch` calls with changes; on Spark Connect in a process of the server."""

    index: Index
    checkpoint: Checkpoint
    dead_letters: Sink | None
    reports: Reports[ChangeReport]
    most_layers: int
    keep_versions: int
    check_files: CheckFiles | None

    def __call__(self, changes: DataFrame, number: int) -> None:
        """Apply one batch; again, with the same outcome, if Spark hands it over again."""
        begin = time.perf_counter()
        if self.check_files is not None:
            self.check_files(changes.sparkSession, self.checkpoint.files(number))
        applied = apply_changes(changes, self.index)
        batch = self.checkpoint.batch(number).dead_letters
        if self.dead_letters is not None and not self.dead_letters.holds(batch):
            self.dead_letters.write(_letters(changes.sparkSession, applied.quarantine), batch)
        self.reports.add(
            ChangeReport(
                number,
                applied.manifest.version,
                applied.applied,
                applied.refused,
                applied.late,
                applied.replayed,
                time.perf_counter() - begin,
            )
        )
        tidy_beside(changes.sparkSession, self.index, applied.manifest, self.most_layers, self.keep_versions)


def _letters(spark: SparkSession, quarantine: pa.Table) -> DataFrame:
    """Rows that were not applied, as dead letters."""
    names = ["error" if name == "reason" else name for name in quarantine.schema.names]
    return from_arrow(spark, quarantine.rename_columns(names), _DEAD_LETTERS)
