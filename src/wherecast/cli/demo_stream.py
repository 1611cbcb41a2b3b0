"""The demo on Spark: a pipeline from a configuration of its own, fed while it runs, and what came of it."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.table import Table

from wherecast.cli.demo_acts import busiest, fired_quotes, first_match, spread_out, try_sql
from wherecast.cli.demo_market import SCHEMA, AlertMarket, ChangeLog
from wherecast.cli.demo_page import DemoResult, describe_quote, write_page
from wherecast.cli.failures import usage_error
from wherecast.cli.pipeline import follow
from wherecast.cli.report import note_first_compilation, say
from wherecast.spark.config import read_config
from wherecast.spark.pipeline import Pipeline, open_pipeline
from wherecast.spark.progress import BatchProgress, Watch, add_up, live_view

if TYPE_CHECKING:
    from wherecast.spark.stream import MatchQuery

SERVERS = 8
BATCHES = 16
#: Changes are written after every so many batches, as a share of the subscriptions.
_CHANGES_EVERY, _CHANGED_SHARE = 4, 0.005

#: What the configuration of a demo begins with: by it the next demo knows what it may remove.
_HEADER = "# The pipeline of `wherecast demo`."
_CONFIG = f"""\
{_HEADER} Run it again with: wherecast pipeline run {{place}}/pipeline.toml

[pipeline]
index = "index"
checkpoint = "checkpoint"
output = "pairs"
subscribers = true
trigger = "0 seconds"

[schema]
file = "schema.json"

[subscriptions]
path = "subscriptions.parquet"

[plan]
strategy = "auto"

[events]
source = "files"
path = "events"
per_trigger = 1

[changes]
source = "files"
path = "changes"

[sink]
kind = "parquet"
path = "matches"

[spark]
"spark.sql.shuffle.partitions" = {SERVERS}
"""
_OURS = ("index", "checkpoint", "events", "changes", "matches", "servers")
#: The rule that is edited while the stream runs, who does it, and how long before the end.
_EDITED, _EDITOR = 0, "you"


@dataclass(slots=True)
class Demo:
    """A folder with a workload, and what is fed into it while the pipeline runs."""

    out: Path
    changes: ChangeLog
    batches: int
    """Files of events, each a micro-batch."""
    edit: str
    """What the rule that is edited live becomes."""
    written: list[tuple[int, float]] = field(default_factory=list)
    """Of each file of changes: its last sequence number, and when it was written (Unix time). The first is the edit."""

    def feed(self, done: int) -> None:
        """Write the next changes when it is time, never so late that no batch is left to see them."""
        due = 1 + min(done - 1, self.batches - 3) // _CHANGES_EVERY if done else 0
        if due > len(self.written):
            count = max(4, int(self.changes.subscriptions * _CHANGED_SHARE))
            changes = self.changes.write(count) if self.written else self.changes.edit(_EDITED, self.edit, _EDITOR)
            _put(changes, self.out / "changes" / f"{len(self.written):03d}.parquet")
            self.written.append((self.changes.sequence, time.time()))


def run_stream_demo(out: Path, n_subscriptions: int, n_events: int, seed: int) -> None:
    """Write a workload into `out`, run the pipeline over it, and show what came out."""
    begin = time.perf_counter()
    note_first_compilation()
    with _writing(out):
        _make_room(out)
    with ThreadPoolExecutor(1) as pool:  # Spark starts meanwhile
        generating = pool.submit(_write_workload, out, n_subscriptions, n_events, seed)
        with open_pipeline(read_config(out / "pipeline.toml")) as pipeline:
            demo = generating.result()
            say(f"started Spark in {_since(begin)}")
            say(f"generated {n_subscriptions:,} subscriptions and {n_events:,} quotes meanwhile: {out}/")
            result = _play(pipeline, demo)
    _show(result)
    page = write_page(out / "report.html", result)
    typer.echo(f"\nthe page with plots: {page}")
    typer.echo(f"where the pipeline stands: wherecast pipeline status {out / 'pipeline.toml'}")
    typer.echo(f"all done in {_since(begin)}")


def _play(pipeline: Pipeline, demo: Demo) -> DemoResult:
    begin = time.perf_counter()
    built = pipeline.build()
    build_s = time.perf_counter() - begin
    say(f"built the index in {build_s:.1f} s; the plan: {'broadcast' if built.plan is None else built.plan.strategy}")
    batches = _run(pipeline, demo)
    say(f"second act: the same rules on {SERVERS} servers, and a part of the work in plain Spark SQL")
    return _result(pipeline, demo, batches, build_s)


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise usage_error(f"'{out}' cannot be written: {error.strerror or error}") from None


def _write_workload(out: Path, n_subscriptions: int, n_events: int, seed: int) -> Demo:
    market, begin = AlertMarket(seed), time.time() - BATCHES
    sizes = [len(part) for part in np.array_split(np.empty(n_events), min(BATCHES, n_events))]
    quotes: list[pa.Table] = []
    with _writing(out):
        pq.write_table(market.subscriptions(n_subscriptions), out / "subscriptions.parquet")
        for number, size in enumerate(sizes):
            file = out / "events" / f"{number:03d}.parquet"
            quotes.append(market.quotes(size))
            _put(quotes[-1], file)
            os.utime(file, times=(begin + number, begin + number))  # a stream takes files by age
    return Demo(out, ChangeLog(market, n_subscriptions), len(sizes), f"symbol = '{busiest(quotes)}' AND volume >= 1000")


def _make_room(out: Path) -> None:
    """Remove what an earlier demo left in a folder, and write the configuration; what is somebody else's is refused."""
    config = out / "pipeline.toml"
    if not (config.is_file() and config.read_text(encoding="utf-8", errors="replace").startswith(_HEADER)):
        for name in (config.name, *_OURS):
            if (out / name).exists():
                raise usage_error(
                    f"'{out / name}' was not made by a demo and is not replaced; name another folder with --out"
                )
    for name in _OURS:
        shutil.rmtree(out / name, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    config.write_text(_CONFIG.format(place=out), encoding="utf-8")
    (out / "schema.json").write_text(json.dumps(SCHEMA, indent=2) + "\n", encoding="utf-8")
    for name in ("events", "changes"):
        (out / name).mkdir()


def _put(table: pa.Table, path: Path) -> None:
    """Make a file appear whole: a stream is looking."""
    partial = path.with_name(f".{path.name}")
    pq.write_table(table, partial)
    partial.rename(path)


def _run(pipeline: Pipeline, demo: Demo) -> list[BatchProgress]:
    """Run until every file of events is through."""
    with Watch(pipeline.spark) as watch, live_view("quotes on their way to subscribers") as show:
        running = pipeline.run()

        def batches_of(query: MatchQuery) -> list[BatchProgress]:
            batches = watch.batches(query)
            demo.feed(len(batches))
            return batches

        return follow(running, batches_of, (show,), until=lambda batches: len(batches) >= demo.batches)


def _result(pipeline: Pipeline, demo: Demo, batches: list[BatchProgress], build_s: float) -> DemoResult:
    index, out, spark = pipeline.index, demo.out, pipeline.spark
    plan = index.plan(index.read())
    files = sorted((out / "events").iterdir())
    subscriptions = pq.read_table(out / "subscriptions.parquet")
    filters = dict(zip(subscriptions["id"].to_pylist(), subscriptions["filter"].to_pylist(), strict=True))
    before = filters[_EDITED]
    for file in sorted((out / "changes").glob("*.parquet")):
        changes = pq.read_table(file)
        filters.update(zip(changes["id"].to_pylist(), changes["filter"].to_pylist(), strict=True))
    sequences = {manifest.version: manifest.sequence for manifest in index.manifests()}
    return DemoResult(
        subscriptions.num_rows,
        demo.changes.sequence,
        build_s,
        "broadcast" if plan is None else plan.strategy,
        batches,
        add_up(batches),
        live_delays(demo.written, batches, sequences),
        fired_quotes(out, batches[-1].batch, filters),
        first_match(out, batches, _EDITED, _EDITOR, before, demo.edit, demo.written[0][1]) if demo.written else None,
        try_sql(spark, subscriptions, files[-1]),
        spread_out(spark, out / "subscriptions.parquet", out / "servers", files[-3:], SERVERS),
    )


def live_delays(
    written: list[tuple[int, float]], batches: list[BatchProgress], sequences: dict[int, int]
) -> list[float]:
    """Seconds from writing each file of changes to the start of the first batch that is matched with them."""
    delays = []
    for sequence, at in written:
        for batch in batches:
            if batch.report is not None and sequences.get(batch.report.version, 0) >= sequence:
                delays.append(batch.started_s - at)
                break
    return delays


def _show(result: DemoResult) -> None:
    _show_quotes(result)
    table = Table("what", "measured", title="the run", title_justify="left")
    for name, value in result.figures():
        table.add_row(name, value)
    typer.echo()
    Console(highlight=False).print(table, markup=False)


def _show_quotes(result: DemoResult) -> None:
    table = Table("quote", "fired the alert", "of", title="quotes with alerts they fired", title_justify="left")
    for fired in result.fired:
        for number, alert in enumerate(fired.alerts):
            told = f"{alert.subscriber}, by {alert.channel}"
            table.add_row("" if number else describe_quote(fired.quote), alert.filter, told)
        if fired.total > len(fired.alerts):
            table.add_row("", f"and {fired.total - len(fired.alerts):,} more", "")
    typer.echo()
    Console(highlight=False).print(table, markup=False)


def _since(begin: float) -> str:
    return f"{time.perf_counter() - begin:.1f} s"
