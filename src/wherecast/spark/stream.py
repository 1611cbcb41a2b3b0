"""Stream: every micro-batch matched against one pinned version and written once.

What happens to a batch, in this order:

1. the index version is pinned, durably;
2. the sinks are asked whether they have the batch already (then there is nothing to do), and refuse one of another stream;
3. events are matched against that version, those that do not fit the schema set apart with their reason;
4. the sink writes the batch, idempotently; poison events go to the sink for dead letters;
5. Spark commits the batch.

Killed anywhere, the batch is handed over again and steps 1 and 2 make the second run equal to the first. Subscriptions
that change meanwhile make a new version, which the next batch pins.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Generic

from wherecast.partition.balance import imbalance
from wherecast.spark.checkpoint import Batch, Checkpoint, dead_letters_of
from wherecast.spark.index import Index
from wherecast.spark.manifest import Manifest
from wherecast.spark.match import FOUND, Output, check_columns, match
from wherecast.spark.names import ERROR, MESSAGE, Names, own_columns, quoted
from wherecast.spark.observed import NAMES, Numbers
from wherecast.spark.pins import Pins
from wherecast.spark.rebalance import Rebalancer
from wherecast.spark.reports import BatchReport, ChangeReport, Report, Reports
from wherecast.spark.sinks import Kafka, Parquet, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

#: Layers that a server may have before they are merged: each costs a little for every event.
MOST_LAYERS = 16
#: Versions kept beside those that are pinned.
KEPT_VERSIONS = 10


class ReportingQuery(Generic[Report]):
    """A running stream: Spark's query, and our numbers beside its own."""

    def __init__(self, query: StreamingQuery, reports: Reports[Report]) -> None:
        self.query = query
        self._reports = reports

    @property
    def reports(self) -> list[Report]:
        """The last batches, oldest first; also those of earlier runs from the same checkpoint."""
        return self._reports.read()

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802 - Spark's name for it
        """Spark's progress of each batch, with ours under `wherecast`."""
        return self._with_ours(self.query.recentProgress)

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name for it
        """Spark's progress of the last batch, with ours under `wherecast`; None if there is none yet."""
        last = self.query.lastProgress
        return None if last is None else self._with_ours([last])[0]

    def _with_ours(self, progress: Iterable[Any]) -> list[dict[str, Any]]:
        ours = {report.batch: asdict(report) for report in self.reports}
        return [{**p, "wherecast": ours.get(p.get("batchId", -1))} for p in map(_as_dict, progress)]

    def __getattr__(self, name: str) -> Any:
        """Everything else is the query's: `stop`, `awaitTermination`, `processAllAvailable`, `exception`, ..."""
        return getattr(self.query, name)


class MatchQuery(ReportingQuery[BatchReport]):
    """A stream of events that is being matched."""


class ChangesQuery(ReportingQuery[ChangeReport]):
    """A stream of changes that is being applied to an index."""


def _as_dict(progress: Any) -> dict[str, Any]:
    if isinstance(progress, Mapping):
        return dict(progress)
    import json  # noqa: PLC0415

    return dict(json.loads(progress.json))


@dataclass(frozen=True, slots=True)
class BatchRunner:
    """What `foreachBatch` calls; on Spark Connect in a process of the server, so it holds what can be sent there."""

    index: Index
    checkpoint: Checkpoint
    pins: Pins
    sink: Sink
    output: Output
    subscribers: str | None
    """Name of a temporary view."""
    dead_letters: Sink | None
    rebalancer: Rebalancer | None
    reports: Reports[BatchReport]
    names: Names

    def __call__(self, events: DataFrame, number: int) -> None:
        """Match and write one batch; again, with the same outcome, if Spark hands it over again."""
        begin = time.perf_counter()
        batch = self.checkpoint.batch(number)
        version = self.pins.pin(batch)
        manifest = self.index.read(version)
        # Both are asked before either is written to: one of them may belong to another stream.
        held = self.sink.holds(batch)
        done = (self.dead_letters is None or self.dead_letters.holds(batch.dead_letters)) and held
        before = time.perf_counter()
        numbers = dict.fromkeys(NAMES, 0) if done else self._run(events, batch, manifest)
        if numbers["errors"] and self.dead_letters is None:
            _log.warning(
                "batch=%d bad_events=%d: left out, because there is no sink for dead letters", number, numbers["errors"]
            )
        after = time.perf_counter()
        changed = None if self.rebalancer is None or done else self.rebalancer.observe(events, self.index, manifest)
        self.reports.add(
            BatchReport(
                number,
                version,
                **numbers,
                replayed=done,
                imbalance=self._imbalance(manifest),
                rebalanced=None if changed is None else changed.version,
                seconds=after - begin,
                overhead_ms=1e3 * (before - begin),
            )
        )

    def _imbalance(self, manifest: Manifest) -> float:
        """By the traffic that was seen, where somebody looks at it, else as the plan expects it."""
        seen = None if self.rebalancer is None else self.rebalancer.imbalance
        plan = self.index.plan(manifest)
        return seen or (1.0 if plan is None else imbalance(plan.partition.loads()))

    def _run(self, events: DataFrame, batch: Batch, manifest: Manifest) -> dict[str, int]:
        """Match and write; the numbers of the batch."""
        numbers = Numbers()
        matched = match(
            events,
            self.index,
            version=manifest,
            output=self.output,
            subscribers=None if self.subscribers is None else events.sparkSession.table(self.subscribers),
            on_error="skip" if self.dead_letters is None else "keep",
            numbers=numbers,
            names=replace(self.names, error=ERROR),  # under a name of ours until it is known which sink it goes to
        )
        if self.dead_letters is None:
            self.sink.write(matched.drop(MESSAGE) if MESSAGE in matched.columns else matched, batch)
        else:
            self._write_both(matched.persist(), [c for c in events.columns if c != ERROR], batch)
        return numbers.get()

    def _write_both(self, matched: DataFrame, columns: list[str], batch: Batch) -> None:
        """Matches to their sink, poison events to theirs; whichever has the batch already is left alone."""
        assert self.dead_letters is not None
        try:
            if not self.sink.holds(batch):
                self.sink.write(_good(matched), batch)
            if not self.dead_letters.holds(batch.dead_letters):
                bad = matched.where(quoted(ERROR).isNotNull()).select(*map(quoted, columns), ERROR)
                added = {ERROR: self.names.error, MESSAGE: self.names.message}
                self.dead_letters.write(bad.withColumnsRenamed(added), batch.dead_letters)
        finally:
            matched.unpersist()


def _good(matched: DataFrame) -> DataFrame:
    return matched.where(quoted(ERROR).isNull()).drop(ERROR, MESSAGE)


def stream(
    events: DataFrame,
    index: Index | str,
    sink: Sink,
    checkpoint: str,
    *,
    output: Output = "pairs",
    subscribers: DataFrame | None = None,
    dead_letters: Sink | None = None,
    rebalancer: Rebalancer | None = None,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    names: Mapping[str, str] | None = None,
) -> MatchQuery:
    """Start matching a stream of events.

    Args:
        events: A streaming DataFrame. How much it takes per batch is its own setting (`maxOffsetsPerTrigger`,
            `maxFilesPerTrigger`, `rowsPerSecond`).
        index: The index; each batch uses the version that is current when it begins.
        sink: Where matches go, see `sinks`.
        checkpoint: Spark's checkpoint folder; it also names the stream's pins.
        output: As for `match`.
        subscribers: As for `match`.
        dead_letters: Where events go that do not fit the schema, with their reason in `error` (and those that came as
            a message which cannot be read, with its text in `message`); without one they are left out and counted.
        rebalancer: Moves buckets of an event-space index when traffic makes the servers' loads uneven.
        trigger: Arguments of `DataStreamWriter.trigger`, such as `{"processingTime": "1 second"}`.
        name: Of the query.
        names: As for `match`; `error` and `message` name the columns of dead letters.
    """
    index = Index(index) if isinstance(index, str) else index
    chosen = Names.of(names)
    _refuse_clashes(chosen, events, sink, output, subscribers, dead_letters)
    if index.versions():
        check_columns(events, index.read())
    if isinstance(sink, Kafka):
        sink = replace(sink, found="" if output == "counts" else getattr(chosen, FOUND[output]))
    if isinstance(dead_letters, Kafka):
        dead_letters = replace(dead_letters, found="")
    reports, pins, place = Reports(index, checkpoint, BatchReport), Pins(index, checkpoint), Checkpoint(checkpoint)
    _admit(place, sink, dead_letters)
    if place.stream() is None:
        pins.clear()  # of an earlier stream of this name
    else:
        pins.resume(place.planned())
    view = None if subscribers is None else _view(subscribers)
    runner = BatchRunner(index, place, pins, sink, output, view, dead_letters, rebalancer, reports, chosen)
    writer = events.writeStream.foreachBatch(runner).option("checkpointLocation", place.url)
    if trigger:
        writer = writer.trigger(**trigger)
    if name:
        writer = writer.queryName(name)
    return MatchQuery(writer.start(), reports)


def _refuse_clashes(
    names: Names,
    events: DataFrame,
    sink: Sink,
    output: Output,
    subscribers: DataFrame | None,
    dead_letters: Sink | None,
) -> None:
    """Raises SchemaError if two columns of a sink would have one name."""
    names.refuse_clashes([FOUND[output]], events, subscribers)
    own = own_columns(events)
    if isinstance(sink, Parquet):
        sink.check_columns([*own, getattr(names, FOUND[output]), *([] if subscribers is None else subscribers.columns)])
    if dead_letters is None:
        return
    added = ["error", *(["message"] if MESSAGE in events.columns else [])]
    names.refuse_clashes(added, events)
    if isinstance(dead_letters, Parquet):
        dead_letters.check_columns([*own, *(getattr(names, key) for key in added)])


def _admit(checkpoint: Checkpoint, sink: Sink | None, dead_letters: Sink | None) -> None:
    """Raises SinkError if a sink belongs to another stream than that of a checkpoint."""
    stream = checkpoint.stream()
    if sink is not None:
        sink.admit(stream)
    if dead_letters is not None:
        dead_letters.admit(None if stream is None else dead_letters_of(stream))


def _view(frame: DataFrame) -> str:
    """A name for a DataFrame that the session of a batch knows too, wherever the batch runs."""
    name = f"wherecast_{secrets.token_hex(8)}"
    frame.createTempView(name)
    return name


def follow_changes(
    changes: DataFrame,
    index: Index | str,
    checkpoint: str,
    *,
    dead_letters: Sink | None = None,
    most_layers: int = MOST_LAYERS,
    keep_versions: int = KEPT_VERSIONS,
    **trigger: Any,
) -> ChangesQuery:
    """Keep an index up to date with a streaming change log: every micro-batch of it that has news is a new version.

    Rows that cannot be applied (see `change_rows`: refused ones and late ones) are counted in the `reports` of the query and
    logged, and go to `dead_letters`, where there is such a sink, with their reason in `error`.

    Once a server has more than `most_layers` layers, they are merged, and versions that neither a stream has pinned nor
    are among the newest `keep_versions` are removed.
    """
    from wherecast.spark.change_rows import check_change_columns  # noqa: PLC0415
    from wherecast.spark.follow import ChangeRunner  # noqa: PLC0415

    index = Index(index) if isinstance(index, str) else index
    place = Checkpoint(checkpoint)
    _admit(place, None, dead_letters)
    check_change_columns(changes, index.read().id_type)
    reports = Reports(index, checkpoint, ChangeReport)
    runner = ChangeRunner(index, place, dead_letters, reports, most_layers, keep_versions)
    writer = changes.writeStream.foreachBatch(runner).option("checkpointLocation", place.url)
    return ChangesQuery((writer.trigger(**trigger) if trigger else writer).start(), reports)
