"""`wherecast pipeline`: build an index and run a stream on Spark, as a TOML file says.

What it does is in `wherecast.spark`, imported when a command runs.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wherecast.cli.failures import usage_error
from wherecast.cli.report import Shortlist, say, say_note
from wherecast.progress import shown

if TYPE_CHECKING:
    from wherecast.partition.plan import Plan
    from wherecast.spark.build import Built
    from wherecast.spark.config import PipelineConfig
    from wherecast.spark.pipeline import Pipeline, Running
    from wherecast.spark.progress import BatchProgress, PipelineStatus, Show, Totals
    from wherecast.spark.stream import MatchQuery

pipeline_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Match streams on Spark: build an index, run a stream, show its status. Needs the extra `spark`.",
)

_LOOK_S = 0.5
_VERSIONS_SHOWN = 10

ConfigArgument = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, metavar="CONFIG", help="The pipeline, a TOML file.")
]
MasterOption = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Spark's master: local[4], spark://host:7077, yarn. Default: all cores here."),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@pipeline_app.command("build")
def build(
    config: ConfigArgument,
    master: MasterOption = None,
    start_over: Annotated[
        bool, typer.Option("--start-over", help="Build even if that undoes changes that were applied to the index.")
    ] = False,
) -> None:
    """Build a new version of the index from all subscriptions, and make it current.

    A running stream takes it up with its next micro-batch. Bad subscriptions are reported and left out. A build that would
    undo applied changes is refused: the key `sequence` in [subscriptions] says which of them the table contains.

    \b
    Examples:
      wherecast pipeline build pipeline.toml
      wherecast pipeline build pipeline.toml --master spark://host:7077
    """
    with _opened(config, master) as pipeline:
        begin = time.perf_counter()
        with shown():
            built = pipeline.build(start_over=start_over)
        _report_left_out(built)
        say(f"version {built.version} of {built.index.url} is ready, after {time.perf_counter() - begin:.1f} s")
        typer.echo(_describe_plan(built.plan))


@pipeline_app.command("explain")
def explain(config: ConfigArgument, master: MasterOption = None, as_json: JsonFlag = False) -> None:
    """Show the plan that a build would make: expected traffic, balance and cost. Nothing is written.

    Events to plan for are those of `plan.sample`, else those that a source of files has already, else made of the
    constants in the filters.

    \b
    Examples:
      wherecast pipeline explain pipeline.toml
      wherecast pipeline explain pipeline.toml --json
    """
    with _opened(config, master) as pipeline:
        plan = pipeline.explain()
        if not as_json:
            typer.echo(_describe_plan(plan))
            return
        costs = [cost._asdict() for cost in plan.considered]
        typer.echo(json.dumps({**plan.stats(), "considered": costs}, default=float))


@pipeline_app.command("run")
def run(
    config: ConfigArgument,
    master: MasterOption = None,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Stop after this long. Default: run until stopped.")
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Append one JSON line per micro-batch.")
    ] = None,
) -> None:
    """Match events as they come, until stopped; with the trigger "available-now" until all that is there is matched.

    The index is built first if there is none. Stopped or killed, the next run goes on where this one was; the guide says
    what each sink guarantees then.

    \b
    Examples:
      wherecast pipeline run pipeline.toml
      wherecast pipeline run pipeline.toml --master local[4] --timeout 60
    """
    from wherecast.spark.progress import Watch, add_up, live_view

    with _opened(config, master) as pipeline, _log(metrics) as log:
        if not pipeline.index.versions():
            say("there is no index yet: building it")
        with Watch(pipeline.spark) as watch:
            running = pipeline.run()
            if running.built is not None:
                _report_left_out(running.built)
            end = float("inf") if timeout is None else time.monotonic() + timeout
            with live_view("wherecast pipeline") as show:
                batches = follow(running, watch.batches, (show, log), lambda _: time.monotonic() >= end)
        _say_totals(add_up(batches))


@pipeline_app.command("status")
def status(config: ConfigArgument, as_json: JsonFlag = False) -> None:
    """Show where a pipeline stands: versions of its index, what they hold, and its last batches.

    Reads files only; Spark is not started, and a running stream is not disturbed.

    \b
    Examples:
      wherecast pipeline status pipeline.toml
      wherecast pipeline status pipeline.toml --json
    """
    from wherecast.spark.progress import read_status

    found = read_status(_read(config))
    if as_json:
        typer.echo(json.dumps(asdict(found)))
    else:
        _show_status(found)


def follow(
    running: Running,
    batches_of: Callable[[MatchQuery], list[BatchProgress]],
    shows: Sequence[Show],
    until: Callable[[list[BatchProgress]], bool],
) -> list[BatchProgress]:
    """Show a running pipeline until it ends or it is enough; its batches. It is stopped then."""
    batches: list[BatchProgress] = []
    ended = False
    try:
        while not (ended or until(batches)):
            ended = running.wait(_LOOK_S)
            batches = batches_of(running.matches)
            for show in shows:
                show(batches)
    finally:
        running.stop()
    return batches


def _read(path: Path) -> PipelineConfig:
    """The configuration; a wrong one is a wrong call."""
    from wherecast.spark.config import ConfigError, read_config

    try:
        return read_config(path)
    except ConfigError as error:
        raise usage_error(f"{path}: {error}") from None


@contextmanager
def _opened(path: Path, master: str | None) -> Iterator[Pipeline]:
    """A pipeline in a session; what is wrong with its configuration is a wrong call."""
    from wherecast.cli.report import note_first_compilation
    from wherecast.spark.config import ConfigError
    from wherecast.spark.pipeline import open_pipeline

    gc.enable()
    config = _read(path)
    note_first_compilation()
    try:
        with open_pipeline(config, master) as pipeline:
            yield pipeline
    except ConfigError as error:
        raise usage_error(f"{path}: {error}") from None


@contextmanager
def _log(path: Path | None) -> Iterator[Show]:
    """Appends each batch to a file once, as a line of JSON."""
    if path is None:
        yield lambda _batches: None
        return
    written = 0

    def write(batches: Sequence[BatchProgress]) -> None:
        nonlocal written
        stream.writelines(batch.to_json() + "\n" for batch in batches[written:])
        stream.flush()
        written = len(batches)

    try:
        stream = path.open("a", encoding="utf-8")
    except OSError as error:
        raise usage_error(f"'{path}' cannot be written: {error.strerror}") from None
    with stream:
        yield write


def _report_left_out(built: Built) -> None:
    bad = Shortlist("bad subscriptions")
    for row in built.quarantine.toLocalIterator():
        bad.add(f"id {row.id!r:.80}: {row.reason}")
    bad.finish()
    if bad.count:
        say_note(f"{bad.count:,} subscriptions were refused and left out")


def _describe_plan(plan: Plan | None) -> str:
    return "broadcast: every worker has all subscriptions" if plan is None else plan.explain()


def _say_totals(whole: Totals) -> None:
    if not whole.batches:
        say_note("no events came")
        return
    say(f"{whole.events:,} events in {whole.batches:,} batches: {whole.matches:,} matches")
    say(
        f"  {whole.events_per_s:,.0f} events/s; a batch takes {whole.median_s:.2f} s, the slowest took {whole.slowest_s:.2f} s"
    )
    if whole.dropped:
        say(f"  {whole.dropped:,} events were sent nowhere: no summary admits them")
    if whole.errors:
        say(f"  {whole.errors:,} events did not fit the schema")


def _show_status(found: PipelineStatus) -> None:
    from rich.console import Console
    from rich.table import Table

    typer.echo(f"index {found.index}")
    if not found.versions:
        typer.echo("not built yet; `wherecast pipeline build` does it")
        return
    table = Table("version", "made (UTC)", "strategy", "servers", "layers", "MB", "last change")
    for v in found.versions[-_VERSIONS_SHOWN:]:
        table.add_row(
            str(v.version), v.created[:19], v.strategy, str(v.servers), str(v.layers), f"{v.nbytes / 1e6:,.1f}",
            str(v.sequence),
        )  # fmt: skip
    Console(highlight=False).print(table, markup=False)
    held = found.subscriptions
    spread = f"; servers hold {min(held):,} to {max(held):,} each" if len(held) > 1 else ""
    typer.echo(f"the current version has {found.total:,} subscriptions{spread}")
    typer.echo(f"batches committed: events {_upto(found.events_batch)}, changes {_upto(found.changes_batch)}")
    if found.batches:
        table = Table("batch", "index", "events", "matches", "dropped", "bad", "seconds")
        for b in found.batches:
            numbers = (b.batch, b.version, b.events, b.matches, b.dropped, b.errors)
            table.add_row(*(f"{number:,}" for number in numbers), f"{b.seconds:.2f}")
        Console(highlight=False).print(table, markup=False)


def _upto(batch: int | None) -> str:
    return "none" if batch is None else f"0 to {batch:,}"
