"""Changes as rows: upserts and deletes with a sequence number, read from a DataFrame and checked.

A change is a row (`sequence`, `op`, `id`, `filter`): `op` is `upsert` or `delete`, and the sequence number, 1 or higher, names
this change and no other. What becomes of a row:

| row | outcome |
|---|---|
| cannot be read, a field is missing or wrong, the filter or the id is refused | *refused*, with the reason |
| its number is also that of a different change in the same set | *refused*, both of them |
| its number is in the index already, or the same row is there twice | *replayed*: there is nothing to do |
| its number is below that of the last change applied, and not in the index | *late*: not applied, with the reason |
| else | *applied*; of several to one id the one with the highest number counts |

Every row is counted once. The sequence of an index goes on with applied rows only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.engine.checks import check_id, check_priority
from wherecast.engine.segment import Members
from wherecast.errors import LimitError, SubscriptionError
from wherecast.kernels.arrays import Longs
from wherecast.language.compile import Compiler
from wherecast.language.filters import take_filters
from wherecast.language.schema import Schema
from wherecast.spark.manifest import Manifest
from wherecast.spark.names import ERROR, MESSAGE
from wherecast.spark.parts import id_values
from wherecast.spark.sequences import Gaps, find_replays
from wherecast.spark.subscriptions import INTEGERS, priority_column, reason_of, text_column, text_fault

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: More changes than this at once are a new set of subscriptions: build the index again.
MOST_CHANGES = 1_000_000
#: What a row that is not applied looks like.
QUARANTINE = pa.schema(
    [("sequence", pa.int64())] + [(name, pa.string()) for name in ("op", "id", "filter", "message", "reason")]
)
_COLUMNS = ("sequence", "op", "id", "filter")
_NULLS = "void"
_REPLAYED = "replayed"


class Unapplied(NamedTuple):
    """Rows that a version does not have, and how many of the others there are."""

    rows: pa.Table
    """Columns `sequence`, `op`, `id`, `filter`, `priority`, `message` and `error`."""
    replayed: int


def check_change_columns(changes: DataFrame, id_type: str) -> None:
    """Raises SubscriptionError if a DataFrame cannot hold changes to an index with ids of this type."""
    missing = [name for name in _COLUMNS if name not in changes.columns]
    if missing:
        raise SubscriptionError(f"changes need the columns {', '.join(_COLUMNS)}; {missing[0]!r} is missing")
    allowed = {"sequence": INTEGERS, "id": INTEGERS if id_type == "bigint" else ("string",)}
    for name, kinds in allowed.items():
        kind = changes.schema[name].dataType.typeName()
        if kind not in (*kinds, _NULLS):
            wanted = "integers" if kinds == INTEGERS else "strings, as the ids of this index are"
            raise SubscriptionError(f"the column {name!r} of the changes holds {kind}, expected {wanted}: cast it")


def read_changes(changes: DataFrame, manifest: Manifest) -> Unapplied:
    """The changes that a version does not have."""
    from pyspark.sql import functions as F  # noqa: N812

    check_change_columns(changes, manifest.id_type)
    known = [F.col(ERROR)] if ERROR in changes.columns else []
    message = F.col(MESSAGE) if MESSAGE in changes.columns else F.lit(None)
    texts = ("op", "filter") if manifest.id_type == "bigint" else ("op", "id", "filter")
    rows = changes.select(
        F.col("sequence").cast("bigint").alias("sequence"),
        text_column("op"),
        text_column("id") if "id" in texts else F.col("id").cast("bigint").alias("id"),
        text_column("filter"),
        priority_column(changes),
        message.cast("string").alias("message"),
        F.coalesce(*known, *map(text_fault, texts)).alias("error"),
    )
    sift = SiftTask(manifest.sequence, manifest.gaps)
    kinds = f"sequence bigint, op string, id {manifest.id_type}, filter string, priority float, message string, error string"
    found = rows.mapInArrow(sift.sift, f"{kinds}, {_REPLAYED} bigint").limit(MOST_CHANGES + 1).toArrow()
    if len(found) > MOST_CHANGES:
        raise LimitError(f"more than {MOST_CHANGES:,} changes at once; build the index again with build_index")
    counts = found[_REPLAYED]
    return Unapplied(found.filter(counts.is_null()).drop_columns([_REPLAYED]), pc.sum(counts).as_py() or 0)


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


def check_changes(rows: pa.Table, schema: Schema, sequence: int, *, case_sensitive: bool = False) -> News:
    """What becomes of rows that an index with changes up to `sequence` does not have."""
    rows = rows.sort_by("sequence")
    compiled = Compiler(schema, case_sensitive=case_sensitive).compile_many(rows["filter"].to_pylist())
    changes, errors = rows.to_pylist(), dict(compiled.errors)
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
    return News(
        _members(rows, compiled.filters, compiled.filter_of, chosen),
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
        what = (change["filter"], str(change["priority"])) if change["op"] == "upsert" else ()
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


def _members(rows: pa.Table, filters: Any, filter_of: Any, chosen: Longs) -> Members:
    """What is added by the chosen rows."""
    added = chosen[np.asarray(pc.equal(rows["op"], "upsert").take(pa.array(chosen)))]
    used, number = np.unique(filter_of[added], return_inverse=True)
    whose = rows.take(pa.array(added))
    return Members(take_filters(filters, used), number, id_values(whose["id"]), whose["priority"].to_numpy())


def _quarantine(changes: list[dict[str, Any]], reasons: dict[int, str]) -> pa.Table:
    picked = [{**changes[row], "reason": reasons[row]} for row in sorted(reasons)]
    texts = [[None if p[n] is None else str(p[n]) for p in picked] for n in QUARANTINE.names[1:]]
    return pa.table([[p["sequence"] for p in picked], *texts], schema=QUARANTINE)
