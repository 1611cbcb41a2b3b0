"""`wherecast demo`: the main job on a generated workload, on Spark or, where that is not wanted or not there, without."""

from __future__ import annotations

import importlib.util
import json
import shlex
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.table import Table

from wherecast.cli.demo_market import SCHEMA, AlertMarket
from wherecast.cli.failures import usage_error
from wherecast.cli.match import MatchJob, run_match
from wherecast.cli.report import indent, say, say_note
from wherecast.engine.engine import Engine
from wherecast.engine.explain import Explanation

_TOP = 5


def run_demo(out: Path, n_subscriptions: int, n_events: int, seed: int, *, with_spark: bool) -> None:
    """Write a workload into `out`, match it, and show what came out."""
    if with_spark and importlib.util.find_spec("pyspark") is None:
        say_note("PySpark is not installed (pip install 'wherecast[spark]'): this is the small demo, without a stream")
        with_spark = False
    if with_spark:
        from wherecast.cli.demo_stream import run_stream_demo

        run_stream_demo(out, n_subscriptions, n_events, seed)
    else:
        run_engine_demo(out, n_subscriptions, n_events, seed)


def run_engine_demo(out: Path, n_subscriptions: int, n_events: int, seed: int) -> None:
    """Match in this process: files in, a file out, and a look at it."""
    begin = time.perf_counter()
    job = MatchJob(
        out / "schema.json", out / "subscriptions.parquet", out / "events.parquet", out=out / "matches.parquet"
    )
    subscriptions, events = _write_workload(job, n_subscriptions, n_events, seed)
    say(
        f"generated {n_subscriptions:,} subscriptions and {n_events:,} quotes in {time.perf_counter() - begin:.2f} s: {out}/"
    )
    result = run_match(job)
    filters = dict(zip(subscriptions["id"].to_pylist(), subscriptions["filter"].to_pylist(), strict=True))
    assert job.out is not None
    _show_top(pq.read_table(job.out), events, filters)
    _show_near_miss(result.engine, events, filters)
    typer.echo("\nto repeat the matching:")
    typer.echo(f"  {repeat_command(job)}")
    typer.echo(f"\nall done in {time.perf_counter() - begin:.1f} s")


def repeat_command(job: MatchJob) -> str:
    """The command that does the job again."""
    words = ["wherecast", "match", "--schema", str(job.schema), "--subscriptions", str(job.subscriptions)]
    return shlex.join([*words, "--events", str(job.events), "--out", str(job.out)])


def _write_workload(job: MatchJob, n_subscriptions: int, n_events: int, seed: int) -> tuple[pa.Table, pa.Table]:
    market = AlertMarket(seed)
    subscriptions, events = market.subscriptions(n_subscriptions), market.quotes(n_events)
    try:
        job.schema.parent.mkdir(parents=True, exist_ok=True)
        job.schema.write_text(json.dumps(SCHEMA, indent=2) + "\n", encoding="utf-8")
        pq.write_table(subscriptions, job.subscriptions)
        pq.write_table(events, job.events)
    except OSError as error:
        raise usage_error(f"'{job.schema.parent}' cannot be written: {error.strerror or error}") from None
    return subscriptions, events


def _show_top(matches: pa.Table, events: pa.Table, filters: dict[int, str]) -> None:
    console = Console(highlight=False)
    by_subscription = Counter(matches["subscription"].to_pylist())
    table = Table("subscription", "filter", "matches", title="subscriptions told most often", title_justify="left")
    for name, count in by_subscription.most_common(_TOP):
        table.add_row(str(name), filters[name], f"{count:,}")
    typer.echo()
    console.print(table, markup=False)
    symbols = events["symbol"].to_pylist()
    quoted = Counter(symbols)
    by_symbol = Counter(symbols[e] for e in matches["event"].to_pylist())
    table = Table("symbol", "quotes", "matches", title="symbols with most matches", title_justify="left")
    for symbol, count in by_symbol.most_common(_TOP):
        table.add_row(symbol, f"{quoted[symbol]:,}", f"{count:,}")
    typer.echo()
    console.print(table, markup=False)


def _show_near_miss(engine: Engine, events: pa.Table, filters: dict[int, str]) -> None:
    found = find_near_miss(engine, events, filters)
    if found is None:
        return
    event, name, explanation = found
    shown = ", ".join(f"{attribute}={value}" for attribute, value in event.items())
    typer.echo(f"\na near miss: subscription {name} asks for\n  {filters[name]}\nand gets no\n  {shown}\nbecause")
    typer.echo(indent(str(explanation)))


def find_near_miss(
    engine: Engine, events: pa.Table, filters: dict[int, str]
) -> tuple[dict[str, Any], int, Explanation] | None:
    """An event and a subscription to its symbol that fails by one predicate of several; None if there is none nearby."""
    for event in events.slice(0, 50).to_pylist():
        wanted = f"symbol = '{event['symbol']}' AND price >"
        for name in [i for i, text in filters.items() if text.startswith(wanted)][:20]:
            explanation = engine.explain(event, name)
            held = [p.holds for clause in explanation.clauses for p in clause.predicates]
            if held.count(False) == 1:
                return event, name, explanation
    return None
