"""Stream: every micro-batch matched against one pinned version and written once.

What happens to a batch, in this order:

1. the index version is pinned, durably;
2. the sink is asked whether it has the batch already (then there is nothing to do);
3. events are matched against that version, those that do not fit the schema set apart with their reason;
4. the sink writes the batch, idempotently by its number; poison events go to the sink for dead letters;
5. Spark commits the batch.

Killed anywhere, the batch is handed over again and steps 1 and 2 make the second run equal to the first. Subscriptions
that change meanwhile make a new version, which the next batch pins.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from wherecast.partition.balance import imbalance
from wherecast.spark.errors import StaleVersionError
from wherecast.spark.index import Index
from wherecast.spark.manifest import Manifest
from wherecast.spark.match import Output, match
from wherecast.spark.pins import Pins
from wherecast.spark.rebalance import Rebalancer
from wherecast.spark.sinks import Sink
from wherecast.spark.tasks import ERROR

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_REPORTS = 100
#: Layers that a server may have before they are merged: each costs a little for every event.
MOST_LAYERS = 16
#: Versions kept beside those that are pinned.
KEPT_VERSIONS = 10


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What became of one micro-batch."""

    batch: int
    version: int
    """Of the index, as pinned."""
    events: int
    sent: int
    """Pairs of event and server; as many as events where there is one server."""
    matches: int
    dropped: int
    """Events that no summary admitted, which no server saw."""
    errors: int
    """Events that did not fit the schema."""
    replayed: bool
    """The sink had the batch already."""
    imbalance: float
    """Expected work of the busiest server by that of the idlest, by the plan."""
    rebalanced: int | None
    """The version that was made because of this batch, if one was."""
    seconds: float
    overhead_ms: float
    """Spent on pinning and bookkeeping, apart from matching, writing and rebalancing."""


class MatchQuery:
    """A running stream: Spark's query, and our numbers beside its own."""

    def __init__(self, query: StreamingQuery, reports: deque[BatchReport]) -> None:
        self.query = query
        self._reports = reports

    @property
    def reports(self) -> list[BatchReport]:
        """The last batches, oldest first."""
        return list(self._reports)

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802 - Spark's name for it
        """Spark's progress of each batch, with ours under `wherecast`."""
        ours = {report.batch: asdict(report) for report in self._reports}
        progress = [_as_dict(p) for p in self.query.recentProgress]
        return [{**p, "wherecast": ours.get(p.get("batchId", -1))} for p in progress]

    def __getattr__(self, name: str) -> Any:
        """Everything else is the query's: `stop`, `awaitTermination`, `processAllAvailable`, `exception`, ..."""
        return getattr(self.query, name)


def _as_dict(progress: Any) -> dict[str, Any]:
    if isinstance(progress, Mapping):
        return dict(progress)
    import json  # noqa: PLC0415

    return dict(json.loads(progress.json))


@dataclass(frozen=True, slots=True)
class BatchRunner:
    """What `foreachBatch` calls."""

    index: Index
    pins: Pins
    sink: Sink
    output: Output
    subscribers: DataFrame | None
    dead_letters: Sink | None
    rebalancer: Rebalancer | None
    reports: deque[BatchReport]

    def __call__(self, events: DataFrame, batch: int) -> None:
        """Match and write one batch; again, with the same outcome, if Spark hands it over again."""
        begin = time.perf_counter()
        version = self.pins.pin(batch)
        manifest = self.index.read(version)
        done = self.sink.holds(batch) and (self.dead_letters is None or self.dead_letters.holds(batch))
        before = time.perf_counter()
        numbers = {} if done else self._run(events, batch, manifest)
        after = time.perf_counter()
        changed = None if self.rebalancer is None or done else self.rebalancer.observe(events, self.index, manifest)
        plan = self.index.plan(manifest)
        self.reports.append(
            BatchReport(
                batch,
                version,
                **{name: numbers.get(name, 0) for name in ("events", "sent", "matches", "dropped", "errors")},
                replayed=done,
                imbalance=1.0 if plan is None else imbalance(plan.partition.loads()),
                rebalanced=None if changed is None else changed.version,
                seconds=after - begin,
                overhead_ms=1e3 * (before - begin),
            )
        )

    def _run(self, events: DataFrame, batch: int, manifest: Manifest) -> dict[str, int]:
        """Match and write; the numbers of the batch."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F  # noqa: N812

        traffic, found = Observation(), Observation()
        matched = match(
            events,
            self.index,
            version=manifest,
            output=self.output,
            subscribers=self.subscribers,
            on_error="keep",
            traffic=traffic,
        )
        is_bad = F.col("error").isNotNull()
        each = {"pairs": F.lit(1), "lists": F.size("subscriptions"), "counts": F.col("matches")}[self.output]
        matched = matched.observe(
            found,
            F.sum(F.when(~is_bad, each).otherwise(0)).alias("matches"),
            F.sum(is_bad.cast("int")).alias("errors"),
        )
        if self.dead_letters is None:
            self.sink.write(matched.where(~is_bad).drop("error"), batch)
        else:
            self._write_both(matched.persist(), [c for c in events.columns if c != ERROR], batch)
        return {name: int(value or 0) for name, value in {**traffic.get, **found.get}.items()}

    def _write_both(self, matched: DataFrame, columns: list[str], batch: int) -> None:
        """Matches to their sink, poison events to theirs; whichever has the batch already is left alone."""
        assert self.dead_letters is not None
        try:
            if not self.sink.holds(batch):
                self.sink.write(matched.where("error IS NULL").drop("error"), batch)
            if not self.dead_letters.holds(batch):
                self.dead_letters.write(matched.where("error IS NOT NULL").select(*columns, "error"), batch)
        finally:
            matched.unpersist()


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
        dead_letters: Where events go that do not fit the schema, with their reason; without one they are left out and
            counted.
        rebalancer: Moves buckets of an event-space index when traffic makes the servers' loads uneven.
        trigger: Arguments of `DataStreamWriter.trigger`, such as `{"processingTime": "1 second"}`.
        name: Of the query.
    """
    index = Index(index) if isinstance(index, str) else index
    reports: deque[BatchReport] = deque(maxlen=_REPORTS)
    runner = BatchRunner(index, Pins(index, checkpoint), sink, output, subscribers, dead_letters, rebalancer, reports)
    writer = events.writeStream.foreachBatch(runner).option("checkpointLocation", checkpoint)
    if trigger:
        writer = writer.trigger(**trigger)
    if name:
        writer = writer.queryName(name)
    return MatchQuery(writer.start(), reports)


def follow_changes(
    changes: DataFrame,
    index: Index | str,
    checkpoint: str,
    *,
    most_layers: int = MOST_LAYERS,
    keep_versions: int = KEPT_VERSIONS,
    **trigger: Any,
) -> StreamingQuery:
    """Keep an index up to date with a streaming change log: every micro-batch of it that has news is a new version.

    Once a server has more than `most_layers` layers, they are merged, and versions that neither a stream has pinned nor
    are among the newest `keep_versions` are removed.
    """
    from wherecast.spark.changes import apply_changes  # noqa: PLC0415
    from wherecast.spark.compact import compact  # noqa: PLC0415

    index = Index(index) if isinstance(index, str) else index

    def apply(batch: DataFrame, _: int) -> None:
        applied = apply_changes(batch, index)
        if max(map(len, applied.manifest.servers)) <= most_layers:
            return
        with suppress(StaleVersionError):  # buckets were moved meanwhile; the next changes merge them too
            compact(batch.sparkSession, index)
            index.clean(keep_versions)

    writer = changes.writeStream.foreachBatch(apply).option("checkpointLocation", checkpoint)
    return (writer.trigger(**trigger) if trigger else writer).start()
