"""`wherecast bench`: measure any files, or the declared cases. What it does is in `wherecast.bench`, imported on demand."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wherecast.cli.report import say, say_note

if TYPE_CHECKING:
    from rich.console import Console

    from wherecast.bench.results import Result
    from wherecast.bench.workloads.form import CatalogueEntry

bench_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Measure your own files or the declared cases. Every answer is checked before a time is reported.",
)


class BenchOutput(enum.StrEnum):
    """What the engine is asked for."""

    COUNTS = "counts"
    IDS = "ids"
    LISTS = "lists"


JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON lines instead of a table.")]
CasesOption = Annotated[
    Path | None,
    typer.Option("--cases", exists=True, dir_okay=False, metavar="FILE", help="Declared cases. Default: those that come with Wherecast."),
]  # fmt: skip
ScaleOption = Annotated[
    float, typer.Option(min=0.00001, max=100, help="Multiply the declared number of subscriptions by this.")
]
RepeatOption = Annotated[int, typer.Option(min=1, max=1000, help="Timed passes; the median counts.")]


@bench_app.command("match")
def measure_match(
    schema: Annotated[
        Path, typer.Option("--schema", "-s", exists=True, dir_okay=False, metavar="FILE", help="JSON or YAML.")
    ],
    subscriptions: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, metavar="FILE", help="Columns id and filter.")
    ],
    events: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, metavar="FILE", help="One column per attribute.")
    ],
    matcher: Annotated[
        str | None, typer.Option(metavar="NAME", help="The matching algorithm. Default: adaptive.")
    ] = None,
    output: Annotated[BenchOutput, typer.Option(help="What to ask the engine for.")] = BenchOutput.COUNTS,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Threads to match with.")] = 1,
    repeat: RepeatOption = 5,
    as_json: JsonFlag = False,
) -> None:
    """Measure matching a file of events against a file of subscriptions.

    \b
    Example:
      wherecast bench match --schema schema.json --subscriptions subscriptions.parquet --events events.parquet --json
    """
    from wherecast.bench.results import tidy
    from wherecast.bench.run import measure_files
    from wherecast.bench.tables import print_figures
    from wherecast.cli.events import read_events
    from wherecast.language.events.schema import Schema

    attributes = Schema.from_file(schema)
    rows = _read_subscriptions(subscriptions)
    figures = measure_files(
        attributes, rows, read_events(events, attributes)[0], matcher, output.value, threads, repeat
    )
    if figures["subscriptions"] != len(rows):
        say_note(
            f"{len(rows) - int(figures['subscriptions'] or 0):,} subscriptions are bad and left out; `wherecast match` says why"
        )
    if as_json:
        typer.echo(json.dumps({name: tidy(value) for name, value in figures.items()}))
    else:
        print_figures(figures, _console())


def _read_subscriptions(path: Path) -> Any:
    """A table of id and filter; pairs where ids are of several types."""
    import pyarrow as pa

    from wherecast.cli.subscriptions import read_subscriptions

    found = read_subscriptions(path)
    try:
        return pa.table({"id": found.ids, "filter": found.filters})
    except pa.ArrowException:
        return list(zip(found.ids, found.filters, strict=True))


@bench_app.command("run")
def run_declared(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Cases; default all.", show_default=False)
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(metavar="GROUP", help="floor, growth, memory, build, updates, latency, threads or papers."),
    ] = None,
    scale: ScaleOption = 1.0,
    repeat: RepeatOption = 5,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="Where JSON lines go; an existing file is replaced."),
    ] = None,
    cases: CasesOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Run declared cases, with their baselines in the same run.

    A ratio is engine / baseline: below 1 the engine is faster. A wrong match count stops the run with exit code 1.

    \b
    Examples:
      wherecast bench run --group floor --scale 0.02
      wherecast bench run gryphon range --json --out results.jsonl
    """
    from wherecast.bench.cases import choose_cases, read_cases
    from wherecast.bench.run import run_cases

    chosen = [c.scaled(scale) for c in choose_cases(read_cases(cases), names or [], group)]
    _report(run_cases(chosen, rounds=repeat, say=say), out, as_json=as_json)


def _report(results: Any, out: Path | None, *, as_json: bool) -> list[Result]:
    """Write results as they come, and the table when all are there."""
    from wherecast.bench.results import describe_machine
    from wherecast.bench.tables import print_results

    machine, done = describe_machine(), []
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text("")
    try:
        for result in results:
            line = json.dumps(result.fields(machine))
            if out is not None:
                with out.open("a") as lines:
                    lines.write(line + "\n")
            if as_json:
                typer.echo(line)
            done.append(result)
    finally:  # what was measured before a failure is shown too
        if done and not as_json:
            print_results(done, machine, _console())
    return done


@bench_app.command("list")
def list_cases(cases: CasesOption = None) -> None:
    """Show the declared cases."""
    from wherecast.bench.cases import read_cases
    from wherecast.bench.tables import print_cases

    print_cases(read_cases(cases), _console())


@bench_app.command("curves")
def draw_curves(
    out: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="Where curves.jsonl, curves.png and curves.svg go.")
    ],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Cases; default all of growth.", show_default=False)
    ] = None,
    scale: ScaleOption = 1.0,
    largest: Annotated[int, typer.Option(min=10, help="Leave out larger sizes.")] = 5_000_000,
    repeat: RepeatOption = 5,
    cases: CasesOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure and draw time per event against subscriptions, at fixed matches per event.

    \b
    Example:
      wherecast bench curves --out bench-output --largest 1000000
    """
    import dataclasses

    from wherecast.bench.cases import choose_cases, read_cases
    from wherecast.bench.growth import plot_growth
    from wherecast.bench.run import run_cases

    chosen = [c.scaled(scale) for c in choose_cases(read_cases(cases), names or [], "growth")]
    chosen = [dataclasses.replace(c, sizes=tuple(n for n in c.sizes if n <= largest) or c.sizes[:1]) for c in chosen]
    results = _report(run_cases(chosen, rounds=repeat, say=say), out / "curves.jsonl", as_json=as_json)
    paths = [out / "curves.png", out / "curves.svg"]
    plot_growth(results, paths)
    say(f"curves: {', '.join(str(p) for p in paths)}")


@bench_app.command("workloads")
def write_workloads(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="Workloads, as NAME or NAME,KEY=VALUE,...; default all.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", file_okay=False, help="Each workload gets a folder of its name here. Default: list them."
        ),
    ] = None,
    scale: ScaleOption = 1.0,
) -> None:
    """List the workloads, or write them as files, for `bench match` and for other systems.

    A folder holds subscriptions.parquet, events.parquet, schema.json, and in truth.json what the first events match.

    \b
    Examples:
      wherecast bench workloads
      wherecast bench workloads --out bench-output/workloads gryphon rapidmatch-light,a=1.5 --scale 0.1
    """
    from wherecast.bench.workloads.catalogue import catalogue, find_entry, make_workload

    chosen = names or list(catalogue())
    entries = [find_entry(name) for name in chosen]  # a wrong name stops before anything is written
    if out is None:
        _print_workloads(entries, scale)
        return
    for name in chosen:
        workload = make_workload(name, scale)
        workload.write(out / name)
        say(f"{out / name}: {len(workload):,} subscriptions, {len(workload.events):,} events")


def _print_workloads(entries: list[tuple[CatalogueEntry, dict[str, int | float]]], scale: float) -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("workload", no_wrap=True)
    table.add_column("subscriptions", justify="right")
    table.add_column("what it is")
    table.add_column("parameters")
    for entry, parameters in entries:
        shown = " ".join(f"{key}={value:g}" for key, value in parameters.items())
        table.add_row(entry.name, f"{int(entry.size * scale):,}", entry.summary, shown)
    _console().print(table)


def _console() -> Console:
    import sys

    from rich.console import Console

    # A pipe has no width: give the table room instead of wrapping it.
    return Console() if sys.stdout.isatty() else Console(width=200)
