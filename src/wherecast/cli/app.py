"""The commands and their options. What they do is in modules of their own, imported when a command runs."""

from __future__ import annotations

import enum
import gc
import os
import time
from pathlib import Path
from typing import Annotated

import typer

import wherecast
from wherecast.cli.bench import bench_app
from wherecast.cli.broker import broker_app
from wherecast.cli.delivery import delivery_app
from wherecast.cli.failures import GuardedGroup
from wherecast.cli.lab import lab_app
from wherecast.cli.partition import partition_app
from wherecast.cli.peer import peer_app
from wherecast.cli.pipeline import pipeline_app

# Wherecast does no matrix algebra, and starting the threads for it takes NumPy 70 ms.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

app = typer.Typer(
    name="wherecast",
    cls=GuardedGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(bench_app, name="bench")
app.add_typer(broker_app)
app.add_typer(delivery_app)
app.add_typer(lab_app, name="lab")
app.add_typer(partition_app, name="partition")
app.add_typer(peer_app, name="peer")
app.add_typer(pipeline_app, name="pipeline")


class OnError(enum.StrEnum):
    """What to do with an event that does not fit the schema."""

    RAISE = "raise"
    SKIP = "skip"


SchemaOption = Annotated[
    Path,
    typer.Option(
        "--schema", "-s", exists=True, dir_okay=False, metavar="FILE",
        help='The attributes and their types, JSON or YAML: {"symbol": "string", "price": "double"}.',
    ),
]  # fmt: skip


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"wherecast {wherecast.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Publish/subscribe by WHERE clause: which of many SQL filters does each event satisfy?

    \b
    Examples:
      wherecast check "symbol = 'IBM' AND price < 120" -s schema.json
      wherecast lint subs.csv -s schema.json
      wherecast match -s schema.json --subscriptions subs.csv --events events.csv
      wherecast pipeline run pipeline.toml
      wherecast serve
      wherecast demo --out demo-output
    """


@app.command()
def check(
    text: Annotated[
        str, typer.Argument(metavar="FILTER", help="A SQL condition, or - to read it from standard input.")
    ],
    schema: SchemaOption,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, errors included.")] = False,
) -> None:
    """Show what a filter means: its normal form, the box of each clause, and its residuals.

    If the filter is wrong, the exit code is 1 and a caret marks the place.

    \b
    Examples:
      wherecast check "price BETWEEN 10 AND 20 OR symbol = 'A'" -s schema.json
      wherecast check - -s schema.yaml --json < filter.sql
    """
    from wherecast.cli.check import check_filter

    check_filter(text, schema, as_json=as_json)


@app.command()
def init(
    events: Annotated[
        Path,
        typer.Argument(exists=True, metavar="EVENTS", help="A sample: a file (.jsonl, .csv, .parquet) or a folder."),
    ],
    rules: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, metavar="RULES", help="Ids, filters and any other columns.")
    ],
    out: Annotated[Path, typer.Option(dir_okay=False, metavar="FILE", help="The file to write.")] = Path(
        "pipeline.toml"
    ),
    id_column: Annotated[
        str | None, typer.Option("--id", metavar="NAME", help="The column of the ids. Default: found by its name.")
    ] = None,
    filter_column: Annotated[
        str | None,
        typer.Option("--filter", metavar="NAME", help="The column of the filters. Default: found by looking."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a commented pipeline.toml for `wherecast pipeline`, from a sample of the events and the rules.

    Rules that would be refused are shown. The file works as it is; change what you like.

    \b
    Examples:
      wherecast init events.jsonl rules.csv
      wherecast init events/ rules.parquet --id rule_id --filter condition
    """
    from wherecast.cli.init import InitJob, write_pipeline

    gc.enable()
    write_pipeline(InitJob(events, rules, out, id_column, filter_column, force))


class FailOn(enum.StrEnum):
    """The findings that make `lint` fail."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    NEVER = "never"


class Show(enum.StrEnum):
    """The findings that `lint` shows."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@app.command()
def lint(
    file: Annotated[
        Path,
        typer.Argument(
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="Columns id and filter: .csv, .jsonl or .parquet; or a filter in each line: .txt or .sql.",
        ),
    ],
    schema: SchemaOption,
    show: Annotated[Show, typer.Option(help="Show findings of this severity and worse.")] = Show.NOTE,
    fail_on: Annotated[
        FailOn, typer.Option(help="Exit with 1 if there are findings of this severity or worse.")
    ] = FailOn.WARNING,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find filters that are wrong or cost more than they need to.

    Filters that are refused, never match, always match, are equal to or covered by another, compare with NULL, quote a
    name as a text, are evaluated on every event, or have a condition that changes nothing; each with its place and what to
    write instead.

    The exit code is 1 if there is a finding of the severity --fail-on or worse, else 0; it is 2 if the command was called wrongly.

    \b
    Examples:
      wherecast lint subs.csv -s schema.json
      wherecast lint rules.parquet -s schema.yaml --show warning --fail-on error
      wherecast lint filters.sql -s schema.json --json
    """
    from wherecast.cli.lint import lint_file
    from wherecast.language.filters.spelling import Severity

    gc.enable()
    fails = None if fail_on is FailOn.NEVER else Severity(fail_on.value)
    lint_file(file, schema, Severity(show.value), fails, as_json=as_json)


@app.command()
def match(
    schema: SchemaOption,
    subscriptions: Annotated[
        Path,
        typer.Option(
            exists=True, dir_okay=False, metavar="FILE", help="Columns id and filter: .csv, .jsonl or .parquet."
        ),
    ],
    events: Annotated[
        Path,
        typer.Option(
            exists=True, dir_okay=False, metavar="FILE", help="One column per attribute: .csv, .jsonl or .parquet."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Where matches go: .csv, .jsonl or .parquet. Default: CSV to standard output.",
        ),
    ] = None,
    matcher: Annotated[
        str | None, typer.Option(metavar="NAME", help="The matching algorithm. Default: adaptive.")
    ] = None,
    on_error: Annotated[
        OnError, typer.Option(help="What to do with an event that does not fit the schema: stop, or skip it.")
    ] = OnError.RAISE,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Stop if any subscription is bad, before anything is matched; refuse events whose names differ from "
            "attributes only in case, or that have no known name.",
        ),
    ] = False,
) -> None:
    """Match a file of events against a file of subscriptions.

    The result has the columns [bold]event[/bold] (0-based row of the event) and [bold]subscription[/bold] (the id as given).
    Files are CSV, JSON lines (.jsonl, .ndjson, .json) or Parquet, by suffix. Bad subscriptions are reported and left out.

    \b
    Examples:
      wherecast match -s schema.json --subscriptions subs.csv --events events.csv
      wherecast match -s schema.yaml --subscriptions subs.parquet \\
          --events events.jsonl --out matches.parquet --on-error skip
    """
    from wherecast.cli.match import MatchJob, run_match

    gc.enable()
    run_match(
        MatchJob(schema, subscriptions, events, out, matcher, skip_bad_events=on_error is OnError.SKIP, strict=strict)
    )


@app.command()
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Where the files go; created if missing.")],
    subscriptions: Annotated[int, typer.Option(min=1, max=10_000_000, help="How many subscriptions.")] = 100_000,
    events: Annotated[int, typer.Option(min=1, max=100_000_000, help="How many events.")] = 600_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same workload.")] = 1,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Match in this process, without Spark and without changes.")
    ] = False,
) -> None:
    """Stream stock quotes through Spark to the subscriptions they match, while subscriptions change.

    Generates quotes and alerts, matches them in a stream into Parquet, edits a rule on the way, does a part of the work in plain
    Spark SQL, and spreads the rules over 8 servers. Shows quotes with the alerts they fired: live, as a summary, and as a page
    with plots. About 90 seconds on 2 cores.

    \b
    Examples:
      wherecast demo --out demo-output
      wherecast demo --out demo-output --subscriptions 1000000 --seed 7
      wherecast demo --out demo-output --no-spark
    """
    from wherecast.cli.demo import run_demo

    gc.enable()
    run_demo(out, subscriptions, events, seed, with_spark=not no_spark)


@app.command()
def doctor(
    spark: Annotated[bool, typer.Option("--spark", help="Start a Spark session, too; takes some seconds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that everything Wherecast needs is here and works, and say what to do where it does not.

    Python, matching, the cache of compiled kernels, disk, Spark, Java and the port of the broker. The exit code is 1 if there
    is a problem; notes about optional parts do not count.

    \b
    Examples:
      wherecast doctor
      wherecast doctor --spark
    """
    from wherecast.cli.doctor import run_doctor

    run_doctor(with_spark=spark, as_json=as_json)


@app.command()
def warm() -> None:
    """Do now what would slow down the first match and the first Spark session.

    Compiles the matching kernels: one to three minutes on two cores after an installation, and some seconds where they are compiled already.
    Kernels that few filters need, such as those of similar vectors, are compiled at their first use. Where Spark is installed, a small job
    runs, and Java keeps the classes that it loads in the user's cache (190 MB), from where later sessions map them.

    \b
    Examples:
      wherecast warm
    """
    from wherecast.cli.report import say
    from wherecast.cli.warm import archive_classes, compile_kernels

    began = time.perf_counter()
    compile_kernels()
    say(f"the matching kernels are compiled; that took {time.perf_counter() - began:.0f} s")
    began = time.perf_counter()
    say(f"{archive_classes()}; that took {time.perf_counter() - began:.0f} s")


def main() -> None:
    """Run the command line."""
    gc.disable()  # importing makes no garbage to speak of, and looking for it takes a tenth of the start
    app(prog_name="wherecast")
