"""Stream: every micro-batch matched against one pinned version and written once.

What happens to a batch, in this order:

1. the index version is pinned, durably;
2. the sinks are asked whether they have the batch already (then there is nothing to do), and refuse one of another stream;
3. events are matched against that version, those that do not fit the schema set apart with their reason;
4. the sink writes the batch, idempotently; poison events go to the sink for dead letters;
5. Spark commits the batch.

Killed anywhere, the batch is handed over again and steps 1 and 2 make the second run equal to the first. Subscriptions
that change meanwhile make a new version, which the next batch pins.

Spark's checkpoint. A batch number alone says little: every stream counts from 0, and so does one whose checkpoint was lost.
Sinks recognise a batch by three things: its number, the stream that it belongs to, and the source offsets that it covers.

- `metadata` holds the id of the stream. It is made when the checkpoint is new and stays for all later runs.
- `offsets/n` holds the source offsets of batch n, a line per source. It is written before the batch is handed over, and a
  batch that is repeated keeps it.
- `sources/i/n` holds the files behind offset n, where source i is a folder of files: the offset itself is a mere count.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

from wherecast.partition.balance import imbalance
from wherecast.spark.clean import Pins
from wherecast.spark.columns import ERROR, FOUND, MESSAGE, Names, Output, own_columns, quoted
from wherecast.spark.files import CheckFiles
from wherecast.spark.index import Index
from wherecast.spark.manifest import Manifest
from wherecast.spark.match import NAMES, Numbers, RuleColumns, check_columns, choose_rules, match
from wherecast.spark.progress import BatchReport, ReportingQuery, Reports
from wherecast.spark.servers import Rebalancer
from wherecast.spark.sinks.sink import Sink
from wherecast.spark.store import IndexStoreError, Store
from wherecast.spark.versions import file_manager
from wherecast.spark.writing import check_writing, match_and_write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from wherecast.spark.sinks.drafts import Drafts

_log = logging.getLogger(__name__)


# Batches


class Batch(int):
    """The number of a micro-batch, which also says where the batch comes from."""

    stream: str
    """Id of the stream, as in its checkpoint; for dead letters followed by `/dead-letters`."""
    offsets: str
    """Digest of the source offsets that the batch covers."""

    def __new__(cls, number: int, stream: str, offsets: str) -> Self:
        batch = super().__new__(cls, number)
        batch.stream, batch.offsets = stream, offsets
        return batch

    @property
    def key(self) -> str:
        """The same for all attempts at this batch, and different for every other batch."""
        return f"{self.stream}/{int(self)}/{self.offsets}"

    @property
    def dead_letters(self) -> Batch:
        """The same batch for the sink of dead letters, which must differ from the sink of the matches."""
        return Batch(self, dead_letters_of(self.stream), self.offsets)


def dead_letters_of(stream: str) -> str:
    """What a stream is called where it writes its dead letters."""
    return f"{stream}/dead-letters"


#: Spark's setting for the class that writes the files of checkpoints.
_FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_starting = threading.Lock()
#: A start does not wait longer than that for Spark to make the sources.
_SOURCES_S = 10.0


class Checkpoint:
    """The checkpoint folder of a stream."""

    def __init__(self, path: str) -> None:
        self._store = Store(path)
        self.url = path if "://" in path else self._store.url  # for Spark, whose working directory may be another

    def start(self, writer: DataStreamWriter, spark: SparkSession) -> StreamingQuery:
        """Start a query that has its checkpoint here. On a local disk it is written quickly; the session's settings stay as they were.

        By default Spark calls Hadoop's FileContext, which starts processes for each file on a local disk: 75 ms a file, three files a batch.
        Hadoop's FileSystem renames as well and takes 14 to 30 ms. Elsewhere, as on HDFS, only FileContext can replace a file.
        """
        writer = writer.option("checkpointLocation", self.url)
        manager = None if self._store.local is None else file_manager(spark)
        with _starting:
            if manager is None or spark.conf.get(_FILE_MANAGER, "") != "":
                return writer.start()
            spark.conf.set(_FILE_MANAGER, manager)
            try:
                query = writer.start()
                _await_sources(query)
                return query
            finally:
                spark.conf.unset(_FILE_MANAGER)

    def stream(self) -> str | None:
        """The id of the stream; None before its first start."""
        try:
            return str(json.loads(self._store.read("metadata"))["id"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise IndexStoreError(f"{self.url}/metadata is damaged; restore the checkpoint or use a new one") from None

    def dead_letters(self) -> str | None:
        """What the stream is called where it writes its dead letters; None before its first start."""
        stream = self.stream()
        return None if stream is None else dead_letters_of(stream)

    def newest(self) -> int:
        """The last batch whose offsets Spark has written down; -1 if there is none."""
        return max((int(name) for name in self._store.names("offsets") if name.isdigit()), default=-1)

    def batch(self, number: int) -> Batch:
        """A batch that Spark has handed over."""
        stream = self.stream()
        if stream is None:
            raise IndexStoreError(f"{self.url}/metadata is gone while the stream runs; restore the checkpoint")
        return Batch(number, stream, self._offsets(number))

    def files(self, number: int) -> list[str]:
        """The files of a batch that Spark has handed over, of all sources that are folders of files."""
        before, found = self._lines(number - 1) if number else [], []
        for source, line in enumerate(self._lines(number)):
            first = _log_offset(before[source]) if source < len(before) else None
            last = _log_offset(line)
            # Several offsets, where the stream was killed between writing down files and planning their batch.
            for offset in range(0 if first is None else first + 1, 0 if last is None else last + 1):
                files = [unquote(json.loads(entry)["path"]) for entry in self._files(source, offset)]
                if not files:
                    raise IndexStoreError(f"{self.url}/sources/{source}/{offset} is gone; restore the checkpoint")
                found += files
        return found

    def _offsets(self, number: int) -> str:
        covered = [[line, *self._files(source, _log_offset(line))] for source, line in enumerate(self._lines(number))]
        return hashlib.sha256(json.dumps(covered).encode()).hexdigest()[:16]

    def _lines(self, number: int) -> list[str]:
        """The offset of each source at the end of a batch."""
        # The first two lines are the version of the format and settings of the session.
        return self._store.read(f"offsets/{number}").decode().splitlines()[2:]

    def _files(self, source: int, count: Any) -> list[str]:
        """The entries of files that an offset of a source of files stands for; other offsets speak for themselves."""
        for name in (f"{count}", f"{count}.compact"):
            try:
                lines = self._store.read(f"sources/{source}/{name}").decode().splitlines()[1:]
            except FileNotFoundError:
                continue
            return sorted(line for line in lines if json.loads(line).get("batchId") == count)
        return []


def _await_sources(query: StreamingQuery) -> None:
    """Wait until Spark has made the sources, in a thread of its own: those of files have a log, which takes the settings of that moment."""
    end = time.monotonic() + _SOURCES_S
    while query.isActive and query.status["message"].startswith("Initializing") and time.monotonic() < end:
        time.sleep(0.005)


def _log_offset(offset: str) -> Any:
    try:
        found = json.loads(offset)
    except ValueError:  # "-", for a source that has nothing yet
        return None
    return found.get("logOffset") if isinstance(found, dict) else None


# Running


class MatchQuery(ReportingQuery[BatchReport]):
    """A stream of events that is being matched."""


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
    check_files: CheckFiles | None
    columns: RuleColumns
    drafts: Drafts | None
    """None: Spark writes what matches."""

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
        numbers = dict.fromkeys(NAMES, 0) if done else self._run(events, batch, manifest, None if held else self.drafts)
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

    def _run(self, events: DataFrame, batch: Batch, manifest: Manifest, drafts: Drafts | None) -> dict[str, int]:
        """Match and write; the numbers of the batch."""
        if self.check_files is not None:
            self.check_files(events.sparkSession, self.checkpoint.files(batch))
        numbers = Numbers()
        ask = match if drafts is None else partial(match_and_write, drafts=drafts.of(batch))
        matched = ask(
            events,
            self.index,
            version=manifest,
            output=self.output,
            subscribers=None if self.subscribers is None else events.sparkSession.table(self.subscribers),
            on_error="skip" if self.dead_letters is None else "keep",
            numbers=numbers,
            columns=self.columns,
            names=replace(self.names, error=ERROR),  # under a name of ours until it is known which sink it goes to
        )
        if self.dead_letters is None:
            self.sink.write(matched.drop(MESSAGE) if MESSAGE in events.columns else matched, batch)
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
    columns: RuleColumns = (),
    check_files: CheckFiles | None = None,
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
        columns: Rule columns to add to each match, as for `match`; they are those of the version that the batch has pinned.
        check_files: Where the source is a folder of files, called with the session and the files of every batch before they
            are read. What it raises stops the stream; the batch is not written, and comes again at the next start.
    """
    index = Index(index) if isinstance(index, str) else index
    chosen = Names.of(names)
    sink, drafts = prepare(sink, events, index, output=output, subscribers=subscribers, names=chosen, columns=columns)
    if dead_letters is not None:
        added = ["error", *(["message"] if MESSAGE in events.columns else [])]
        chosen.refuse_clashes(added, events)
        dead_letters = dead_letters.expect([*own_columns(events), *map(chosen.column, added)], "")
    reports, pins, place = Reports(index, checkpoint, BatchReport), Pins(index, checkpoint), Checkpoint(checkpoint)
    sink.admit(place.stream())
    if dead_letters is not None:
        dead_letters.admit(place.dead_letters())
    if place.stream() is None:
        pins.clear()  # of an earlier stream of this name
    else:
        pins.resume(place.newest())
    view = None if subscribers is None else _view(subscribers)
    runner = BatchRunner(
        index, place, pins, sink, output, view, dead_letters, rebalancer, reports, chosen, check_files, columns, drafts
    )
    writer = events.writeStream.foreachBatch(runner)
    if trigger:
        writer = writer.trigger(**trigger)
    if name:
        writer = writer.queryName(name)
    return MatchQuery(place.start(writer, events.sparkSession), reports)


def prepare(
    sink: Sink,
    events: DataFrame,
    index: Index,
    *,
    output: Output,
    subscribers: DataFrame | None,
    names: Names,
    columns: RuleColumns,
) -> tuple[Sink, Drafts | None]:
    """The sink for what events match, and where tasks write it themselves. Raises SchemaError or SinkError for what it cannot take."""
    rules: list[str] = []
    manifest = index.read() if index.versions() else None
    if manifest is not None:
        check_columns(events, manifest)
        rules = list(choose_rules(columns, output, manifest, events.sparkSession).values())
    rules = rules if output == "pairs" else []  # in lists they are fields of the matches
    names.refuse_clashes([FOUND[output]], events, subscribers, rules)
    found, own = names.found(output), own_columns(events)
    sink = sink.expect(
        [*own, found, *rules, *([] if subscribers is None else subscribers.columns)],
        "" if output == "counts" else found,
    )
    drafts = sink.drafts(events.sparkSession)
    if drafts is not None:
        check_writing(events, subscribers, None if manifest is None else index.plan(manifest))
    return sink, drafts


def _view(frame: DataFrame) -> str:
    """A name for a DataFrame that the session of a batch knows too, wherever the batch runs."""
    name = f"wherecast_{secrets.token_hex(8)}"
    frame.createTempView(name)
    return name
