"""`wherecast match`: a file of events against a file of subscriptions.

Subscriptions are held in memory; events pass through in batches. A batch is as large as lets its matches fit in memory:
one event may match every subscription, so the size follows the matches per event seen so far. It also follows the speed, so
that the progress bar moves.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.cli.csv_rows import Events
from wherecast.cli.events import EventChunk, EventFile, open_events
from wherecast.cli.failures import CommandError, usage_error
from wherecast.cli.files import format_of
from wherecast.cli.output import MatchWriter, open_output
from wherecast.cli.report import Shortlist, note_first_compilation, say, say_note, warnings_as_notes
from wherecast.cli.subscriptions import read_subscriptions, report_bad
from wherecast.engine.engine import Engine
from wherecast.errors import EventError
from wherecast.language.events.names import NameCheck
from wherecast.language.events.schema import Schema
from wherecast.matchers.registry import MATCHERS
from wherecast.progress import progress, shown

FIRST_BATCH = 256
LARGEST_BATCH = 32_768
PAIRS_PER_BATCH = 1_000_000
SECONDS_PER_BATCH = 0.5


class MatchJob(NamedTuple):
    """What to match, and how."""

    schema: Path
    subscriptions: Path
    events: Path
    out: Path | None = None
    matcher: str | None = None
    skip_bad_events: bool = False
    strict: bool = False


class MatchResult(NamedTuple):
    """What came of it."""

    engine: Engine
    events: int
    matches: int
    skipped: int
    quarantined: int
    load_s: float
    match_s: float


def run_match(job: MatchJob) -> MatchResult:
    """Do the job, and say on standard error what was done."""
    check_paths(job)
    schema = Schema.from_file(job.schema)
    events = open_events(job.events, schema)
    begin = time.perf_counter()
    engine, quarantined = load_engine(job, schema)
    _note_missing(job.events, events, schema)
    middle = time.perf_counter()
    with warnings_as_notes(), open_output(job.out, iter(engine)) as writer:
        _check_names(job, events, schema)
        run = _Run(job, engine, writer)
        with shown(), progress("matching", events.size) as step:
            done = 0
            for chunk in events:
                for share in run.take(chunk):
                    step.advance(done + int((events.position - done) * share) - step.done)
                done = events.position
    run.skipped.finish()
    match_s = time.perf_counter() - middle
    result = MatchResult(engine, run.events, run.matches, run.skipped.count, quarantined, middle - begin, match_s)
    _summarize(job, result)
    return result


def check_paths(job: MatchJob) -> None:
    """Refuse what cannot work before anything is read."""
    if job.matcher is not None and job.matcher not in MATCHERS:
        raise usage_error(f"no matcher {job.matcher!r}; there are: {', '.join(MATCHERS)}")
    for path in (job.subscriptions, job.events, job.out):
        if path is not None:
            format_of(path)
    for path in (job.schema, job.subscriptions, job.events):
        if job.out is not None and job.out.exists() and job.out.samefile(path):
            raise usage_error(f"--out '{job.out}' is one of the input files; choose another name")


def load_engine(job: MatchJob, schema: Schema) -> tuple[Engine, int]:
    """An engine with all good subscriptions, and the number of bad ones, which are reported."""
    note_first_compilation()
    strict = job.strict
    engine = (
        Engine(schema, strict=strict) if job.matcher is None else Engine(schema, matcher=job.matcher, strict=strict)
    )
    found = read_subscriptions(job.subscriptions)
    registration = engine.subscribe_many(zip(found.ids, found.filters, strict=True), progress=True)
    bad = report_bad(job.subscriptions, found, ((q.row, q.error) for q in registration.quarantined))
    patterns = engine.stats().get("patterns", {}).get("patterns", 0)
    if patterns:
        raise CommandError(
            f"{job.subscriptions} has {patterns:,} patterns (PATTERN or COUNT), which look at several events; `wherecast match` takes "
            "events one by one: leave them out, or use Engine.advance in Python or wherecast.spark.advance"
        )
    if bad and job.strict:
        total = len(found.rows) + len(found.broken)
        raise CommandError(f"{bad:,} of {total:,} subscriptions are bad, and --strict allows none")
    return engine, bad


def _note_missing(path: Path, events: EventFile, schema: Schema) -> None:
    if events.names is None:
        return
    names = set(events.names)
    missing = [a.name for a in schema.attributes if not {a.column, a.path[0]} & names]
    if missing:
        shown = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        say_note(f"{path} has no column for {shown}; events are NULL there")


def _check_names(job: MatchJob, events: EventFile, schema: Schema) -> None:
    """Report columns that look like attributes: the engine does not get to see them, only what the schema knows is read."""
    reason = NameCheck(schema, strict=job.strict).check(dict.fromkeys(events.names or ()))
    if reason is not None:
        raise CommandError(f"{job.events}: {reason} (--strict)")


class _Run:
    """Events on their way through the engine to the writer."""

    def __init__(self, job: MatchJob, engine: Engine, writer: MatchWriter) -> None:
        self.job = job
        self.engine = engine
        self.writer = writer
        self.skipped = Shortlist("events that were skipped")
        self.events = 0
        self.matches = 0
        self.seconds = 0.0

    def take(self, chunk: EventChunk) -> Iterator[float]:
        """Match a chunk, and tell after each batch which share of it is done.

        A bad event ends the run or is reported, in the order of the file.
        """
        end = chunk.rows.size
        if chunk.broken and not self.job.skip_bad_events:
            end = int(np.searchsorted(chunk.rows, chunk.broken[0][0]))
        at = 0
        while at < end:
            next_at = min(at + self._batch_rows(), end)
            self._match(chunk.part(at, next_at), chunk.rows[at:next_at])
            at = next_at
            yield at / end
        for row, reason in chunk.broken:
            self._refuse(f"event {row}: {reason}")

    def _batch_rows(self) -> int:
        if not self.events:
            return FIRST_BATCH
        by_matches = PAIRS_PER_BATCH * self.events // max(self.matches, 1)
        by_time = int(SECONDS_PER_BATCH * self.events / max(self.seconds, 1e-6))
        return max(1, min(LARGEST_BATCH, by_matches, by_time))

    def _match(self, events: Events, rows: npt.NDArray[np.int64]) -> None:
        begin = time.perf_counter()
        try:
            found = self.engine.match_batch(events, on_error="skip" if self.job.skip_bad_events else "raise")
        except EventError as error:
            # Raised also when bad events are skipped: something is wrong with a column as a whole.
            raise self._error(_placed(error, rows)) from None
        for bad in found.errors:
            self._refuse(_placed(bad, rows))
        kept, ids = found.pairs()
        self.events += len(found)
        self.matches += ids.size
        self.writer.write(rows[kept], ids)
        self.seconds += time.perf_counter() - begin

    def _refuse(self, message: str) -> None:
        if not self.job.skip_bad_events:
            raise self._error(message)
        self.skipped.add(f"{self.job.events}: {message}")

    def _error(self, message: str) -> CommandError:
        hint = "" if self.job.skip_bad_events else "; --on-error skip leaves such events out"
        return CommandError(f"{self.job.events}: {message}{hint}")


def _placed(error: EventError, rows: npt.NDArray[np.int64]) -> str:
    """The message with the event's row in the file instead of the one in the batch."""
    if error.row is None:
        return str(error)
    return f"event {rows[error.row]}" + str(error).removeprefix(f"event {error.row}")


def _summarize(job: MatchJob, result: MatchResult) -> None:
    rate = result.events / result.match_s if result.match_s else 0
    say(f"{result.events:,} events against {len(result.engine):,} subscriptions: {result.matches:,} matches")
    say(
        f"  {rate:,.0f} events/s: matched in {result.match_s:.2f} s, "
        f"subscriptions loaded in {result.load_s:.2f} s (matcher {result.engine.matcher})"
    )
    if result.quarantined:
        say(f"  {result.quarantined:,} bad subscriptions left out")
    if result.skipped:
        say(f"  {result.skipped:,} bad events skipped")
    if job.out is not None:
        say(f"  matches are in {job.out}")
