"""Progress: what became of each micro-batch, and where a pipeline stands.

Reports. A batch may be run by another process than the one that started the stream: on Spark Connect it is the server's. So
the reports of the last batches are a file in the index, replaced as a whole after every batch, and not a list in memory.

A running query. `Watch` is a listener of Spark's. It hears of a batch when it is through, and puts our report of that batch
beside Spark's durations; `live_view` shows both.

The status of a pipeline is read from its files, without Spark: versions of the index, pins, committed batches.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from statistics import median
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from wherecast.spark.clean import Pins, stream_name
from wherecast.spark.config import PipelineConfig
from wherecast.spark.index import Index
from wherecast.spark.manifest import Manifest
from wherecast.spark.store import REPORTS, Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.table import Table

    from wherecast.spark.stream import MatchQuery


# Reports

#: Batches whose reports are kept.
_KEPT = 100


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The outcome of one micro-batch."""

    batch: int
    version: int
    """Of the index, as pinned."""
    events: int
    sent: int
    """Pairs of event and server; as many as events where there is one server."""
    candidates: int
    """Clauses that events were compared with, estimated from some of the events."""
    matches: int
    dropped: int
    """Events that no summary admitted, which no server saw."""
    errors: int
    """Events that did not fit the schema."""
    replayed: bool
    """The sink had the batch already."""
    imbalance: float
    """Work of the busiest server by that of the idlest: as the plan expects it, or as a rebalancer saw it."""
    rebalanced: int | None
    """The version that was made because of this batch, if one was."""
    seconds: float
    overhead_ms: float
    """Spent on pinning and bookkeeping, apart from matching, writing and rebalancing."""


@dataclass(frozen=True, slots=True)
class ChangeReport:
    """What became of one micro-batch of changes. Every row of it is applied, refused, late or replayed."""

    batch: int
    version: int
    """Of the index, with these changes in it."""
    applied: int
    refused: int
    """Rows that cannot be applied: unreadable, incomplete, or with a filter or id that is refused."""
    late: int
    """Rows that came after later ones were applied; they are not applied."""
    replayed: int
    """Rows that the index had already."""
    seconds: float


Report = TypeVar("Report", bound=BatchReport | ChangeReport)


class Reports(Generic[Report]):
    """The reports of one stream, told from others by its checkpoint."""

    def __init__(self, index: Index, checkpoint: str, kind: type[Report]) -> None:
        self._store = index.store
        self._name = f"{REPORTS}/{stream_name(checkpoint)}.json"
        self._kind = kind
        self._known: list[Report] | None = None

    def add(self, report: Report) -> None:
        """Append the report of a batch; one that is run again replaces what was said of it.

        A replay has nothing to count, so it leaves the numbers as they were.
        """
        known = self.read() if self._known is None else self._known
        if report.replayed:
            flag: Any = report.replayed  # a count of changes
            report = next((replace(r, replayed=flag) for r in known if r.batch == report.batch), report)
        self._known = [*(r for r in known if r.batch < report.batch), report][-_KEPT:]
        # All are numbers; `asdict` would look inside each of them, after every batch.
        names = [f.name for f in fields(self._kind)]
        told = [{name: getattr(r, name) for name in names} for r in self._known]
        self._store.replace(self._name, json.dumps(told).encode())

    def read(self) -> list[Report]:
        """The last batches, oldest first; also those of earlier runs from the same checkpoint.

        None where the file is damaged or of another release: numbers for people must not stop a stream.
        """
        try:
            return [self._kind(**fields) for fields in json.loads(self._store.read(self._name))]
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return []


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


def _as_dict(progress: Any) -> dict[str, Any]:
    if isinstance(progress, Mapping):
        return dict(progress)
    return dict(json.loads(progress.json))


# A running query

#: Batches that the live view shows.
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One micro-batch that is through."""

    batch: int
    started: str
    """UTC, ISO 8601."""
    events: int
    seconds: float
    """From the trigger to the commit."""
    durations_ms: Mapping[str, int]
    """Spark's steps, by its names: `latestOffset`, `walCommit`, `addBatch`, `commitOffsets`, ..."""
    report: BatchReport | None
    """Ours; None once it is no longer among the last ones."""

    @property
    def events_per_s(self) -> float:
        return self.events / self.seconds if self.seconds else 0.0

    @property
    def started_s(self) -> float:
        """Unix time."""
        return dt.datetime.fromisoformat(self.started).timestamp()

    def to_json(self) -> str:
        """One line of a log."""
        return json.dumps({**asdict(self), "events_per_s": round(self.events_per_s, 1)})


@dataclass(frozen=True, slots=True)
class Totals:
    """Some batches together."""

    batches: int
    events: int
    matches: int
    sent: int
    """Pairs of event and server."""
    dropped: int
    """Events that no server saw, because no summary admits them."""
    errors: int
    seconds: float
    median_s: float
    slowest_s: float
    imbalance: float
    """Of the last batch."""
    version: int
    """Of the index, in the last batch."""

    @property
    def events_per_s(self) -> float:
        return self.events / self.seconds if self.seconds else 0.0


def add_up(batches: Sequence[BatchProgress]) -> Totals:
    """The sums and the middle of some batches."""
    reports = [batch.report for batch in batches if batch.report is not None]
    seconds = [batch.seconds for batch in batches]
    return Totals(
        len(batches),
        sum(batch.events for batch in batches),
        sum(report.matches for report in reports),
        sum(report.sent for report in reports),
        sum(report.dropped for report in reports),
        sum(report.errors for report in reports),
        sum(seconds),
        median(seconds) if seconds else 0.0,
        max(seconds, default=0.0),
        reports[-1].imbalance if reports else 1.0,
        reports[-1].version if reports else 0,
    )


class Watch:
    """Listens to the queries of a session while it is open: `with Watch(spark) as watch: ...`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._heard: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._batches: dict[str, dict[int, BatchProgress]] = defaultdict(dict)
        self._lock = threading.Lock()
        self._listener = _make_listener(self._hear)

    def __enter__(self) -> Self:
        self._spark.streams.addListener(self._listener)
        return self

    def __exit__(self, *_: object) -> None:
        self._spark.streams.removeListener(self._listener)

    def batches(self, query: MatchQuery) -> list[BatchProgress]:
        """The completed batches of a query, oldest first."""
        name = str(query.query.id)
        with self._lock:
            heard, self._heard[name] = self._heard[name], []
        known = self._batches[name]
        if not query.query.isActive:  # the last word of a query that has ended may still be on its way
            heard += [p for p in query.recentProgress if int(p["batchId"]) not in known]
        reports = {report.batch: report for report in query.reports}
        for progress in heard:
            batch = int(progress["batchId"])
            # A trigger that finds nothing new is told under the number of the batch to come.
            if progress["numInputRows"] or batch in reports:
                known[batch] = _combine(progress, reports.get(batch))
        return list(known.values())

    def _hear(self, progress: dict[str, Any]) -> None:
        with self._lock:
            self._heard[str(progress["id"])].append(progress)


def _combine(progress: Mapping[str, Any], report: BatchReport | None) -> BatchProgress:
    durations = {name: int(value) for name, value in progress["durationMs"].items()}
    return BatchProgress(
        int(progress["batchId"]),
        str(progress["timestamp"]),
        # Spark counts rows as often as a batch reads them.
        int(progress["numInputRows"]) if report is None else report.events,
        durations.get("triggerExecution", 0) / 1e3,
        durations,
        report,
    )


def _make_listener(hear: Callable[[dict[str, Any]], None]) -> Any:
    """A listener of Spark's; its base class is there only where PySpark is."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            hear(json.loads(event.progress.json))

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            pass

    return Listener()


Show = Callable[[Sequence[BatchProgress]], None]

_TITLES = ("batch", "index", "events", "events/s", "matches", "dropped", "bad", "imbalance", "seconds")


@contextmanager
def live_view(title: str) -> Iterator[Show]:
    """Call what it yields with all batches so far: a table that is drawn anew, or a line per batch off a terminal."""
    if not sys.stderr.isatty():
        yield _line_writer()
        return
    # Imported only where somebody looks: the Python workers of Spark load this module, too.
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    with Live(console=Console(stderr=True), refresh_per_second=4) as live:
        yield lambda batches: live.update(draw_table(title, batches))


def draw_table(title: str, batches: Sequence[BatchProgress]) -> Table:
    """The last batches, and all of them together."""
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=title, title_justify="left", show_footer=True)
    whole = add_up(batches)
    together = ("all", whole.version, whole.events, whole.events_per_s, whole.matches, whole.dropped, whole.errors)
    for name, value in zip(_TITLES, _cells((*together, whole.imbalance, whole.seconds)), strict=True):
        table.add_column(name, value, justify="right")
    for batch in batches[-_SHOWN:]:
        table.add_row(*_cells(_values(batch)))
    return table


def _line_writer() -> Show:
    """Writes each batch once, as a line."""
    shown = 0

    def show(batches: Sequence[BatchProgress]) -> None:
        nonlocal shown
        for batch in batches[shown:]:
            cells = zip(_TITLES, _cells(_values(batch)), strict=True)
            sys.stderr.write("  ".join(f"{name} {value}" for name, value in cells) + "\n")
        shown = len(batches)
        sys.stderr.flush()

    return show


def _values(batch: BatchProgress) -> tuple[Any, ...]:
    report = batch.report
    ours = (None,) * 4 if report is None else (report.matches, report.dropped, report.errors, report.imbalance)
    version = None if report is None else report.version
    return (batch.batch, version, batch.events, batch.events_per_s, *ours, batch.seconds)


def _cells(values: Sequence[Any]) -> list[str]:
    forms = dict.fromkeys(_TITLES, "{:,.0f}") | {"imbalance": "{:.2f}", "seconds": "{:.2f}"}
    return [
        "-" if value is None else value if isinstance(value, str) else forms[name].format(value)
        for name, value in zip(_TITLES, values, strict=True)
    ]


# The status of a pipeline

#: Batches that a status names.
_BATCHES = 10


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """One version of the index."""

    version: int
    created: str
    strategy: str
    servers: int
    layers: int
    """Of the server that has most."""
    nbytes: int
    sequence: int
    """Of the last change in it."""


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """An index and the streams that use it."""

    index: str
    versions: tuple[VersionStatus, ...]
    """Oldest first; empty: not built yet."""
    total: int
    """Subscriptions in the current version, each counted once."""
    subscriptions: tuple[int, ...]
    """Held by each server; a subscription may be held by several."""
    pins: dict[int, int]
    """Batch to index version, of the last batches."""
    batches: tuple[BatchReport, ...]
    """What became of the last batches of events."""
    events_batch: int | None
    """The last batch of events that is committed; None: none yet."""
    changes_batch: int | None
    """The last batch of changes that is committed."""


def read_status(config: PipelineConfig) -> PipelineStatus:
    """Look at the files of a pipeline, which may be running."""
    index = Index(config.path(config.index))
    events, changes = config.checkpoint_of("events"), config.checkpoint_of("changes")
    manifests = index.manifests()
    return PipelineStatus(
        index.url,
        tuple(_describe(index, manifest) for manifest in manifests),
        *(_held(index, manifests[-1]) if manifests else (0, ())),
        Pins(index, events).known(),
        tuple(Reports(index, events, BatchReport).read()[-_BATCHES:]),
        _committed(events),
        _committed(changes),
    )


def _describe(index: Index, manifest: Manifest) -> VersionStatus:
    plan = index.plan(manifest)
    return VersionStatus(
        manifest.version,
        manifest.created,
        "broadcast" if plan is None else plan.strategy,
        len(manifest.servers),
        max(map(len, manifest.servers)),
        sum(layer.nbytes for layers in manifest.servers for layer in layers),
        manifest.sequence,
    )


def _held(index: Index, manifest: Manifest) -> tuple[int, tuple[int, ...]]:
    """How many subscriptions there are, and how many each server has."""
    engines = [index.serve(manifest, server) for server in range(len(manifest.servers))]
    held = tuple(map(len, engines))
    if len(engines) == 1:
        return held[0], held
    ids = [engine.ids() for engine in engines if len(engine)]
    return pc.count_distinct(pa.chunked_array(ids)).as_py() if ids else 0, held


def _committed(checkpoint: str) -> int | None:
    """Spark writes a file named after each batch that is through."""
    return max((int(name) for name in Store(checkpoint).names("commits") if name.isdigit()), default=None)
