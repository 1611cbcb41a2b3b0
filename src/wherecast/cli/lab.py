"""`wherecast lab`: run the papers' experiments, and report them. What it does is in `wherecast.papers.lab`, imported on demand.

Who waits for experiments sees a bar with the time left on a terminal, a line per experiment elsewhere.
"""

from __future__ import annotations

import enum
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wherecast.cli.failures import CommandError, usage_error
from wherecast.cli.report import printable, say, say_error, say_note

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from wherecast.papers.lab.experiment import Claim, Experiment, Finding, Progress, Scale
    from wherecast.papers.lab.forecast import Forecast
    from wherecast.papers.lab.results import Results
    from wherecast.papers.lab.runner import RunOutcome


class LabWatch:
    """Runs one after another, by their forecast."""

    def __init__(self, forecast: Forecast, n_runs: int, *, silent: bool) -> None:
        self._forecast = forecast
        self._n_runs = n_runs
        self._silent = silent  # a bar is on the screen: say nothing
        self._number = 0
        self._name: str | None = None
        self._start = time.monotonic()
        self._line = ""

    @contextmanager
    def running(self, name: str) -> Iterator[Progress]:
        """A run; call what this yields with a line that says how far it is."""
        self._number += 1
        self._name, self._start, self._line = name, time.monotonic(), name
        if not self._silent:
            say(f"{self._place()} {name}; {self._time_left()}")
        try:
            yield self._note
        finally:
            self._forecast.finish(name, self._elapsed())
            self._name = None

    def render(self) -> RenderableType:
        """The bar, as it is now."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        bar = ProgressBar(total=1.0, completed=self._forecast.share(self._name, self._elapsed()), width=30)
        line = Table.grid(padding=(0, 1))
        line.add_row(Text(self._place()), bar, Text(self._time_left()), Text(self._line, "dim", no_wrap=True))
        return line

    def _note(self, line: str) -> None:
        self._line = printable(line)

    def _place(self) -> str:
        return f"[{self._number}/{self._n_runs}]"

    def _time_left(self) -> str:
        from wherecast.papers.lab.forecast import show_duration

        return f"about {show_duration(self._forecast.left(self._name, self._elapsed()))} left"

    def _elapsed(self) -> float:
        return time.monotonic() - self._start if self._name else 0.0


@contextmanager
def watch_runs(forecast: Forecast, n_runs: int) -> Iterator[LabWatch]:
    """Watch so many runs."""
    if not sys.stderr.isatty() or not n_runs:
        yield LabWatch(forecast, n_runs, silent=False)
        return
    from rich.console import Console
    from rich.live import Live

    watch = LabWatch(forecast, n_runs, silent=True)
    # Twice a second: drawing takes time from what is measured.
    with Live(
        get_renderable=watch.render,
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=2,
        redirect_stdout=sys.stdout.isatty(),
    ):
        yield watch


lab_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Repeat the papers' experiments: tables, figures, claims, reports. Needs the extra `lab`.",
)


class ScaleName(enum.StrEnum):
    """How large experiments are."""

    SMALL = "small"
    PAPER = "paper"
    LARGE = "large"


ScaleOption = Annotated[
    ScaleName, typer.Option(help="small: seconds each; paper: the paper's sizes; large: beyond them, for some.")
]
ResultsOption = Annotated[Path, typer.Option("--results", metavar="DIR", file_okay=False, help="What `lab run` wrote.")]
OUTPUT = Path("lab-output")


@lab_app.command("list")
def list_experiments(results: ResultsOption = OUTPUT) -> None:
    """Show the experiments, with the scales they have and roughly the time each takes.

    A time is that of the last run here; after a tilde it is a guess.
    """
    from rich.table import Table

    from wherecast.papers.lab.experiment import EXPERIMENTS, load_experiment
    from wherecast.papers.lab.results import Results

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("name", "paper", "title", "scales"):
        table.add_column(title)
    for experiment in map(load_experiment, EXPERIMENTS):
        scales = (f"{scale} {_show_time(experiment, scale, Results(results))}" for scale in experiment.settings)
        table.add_row(experiment.name, experiment.paper, experiment.title, ", ".join(scales))
    _console().print(table)


def _show_time(experiment: Experiment[Any], scale: Scale, results: Results) -> str:
    from wherecast.papers.lab.forecast import expected_seconds, show_duration

    known = results.record(experiment.name, scale) is not None
    return ("" if known else "~") + show_duration(expected_seconds(experiment, scale, results))


@lab_app.command("run")
def run_experiments(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Experiments; see `lab list`.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every experiment that has the scale.")] = False,
    scale: ScaleOption = ScaleName.PAPER,
    out: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="Where results go: Parquet, CSV, PNG, SVG.")
    ] = OUTPUT,
    again: Annotated[bool, typer.Option("--again", help="Run experiments again that have current results.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON line per claim instead of a table.")] = False,
) -> None:
    """Run experiments and say which of the papers' claims hold.

    What ran before with the same settings and the same code is not run again, so an interrupted run is continued by
    the same command. An experiment that fails does not stop the others; the exit code is then 1. A claim that does not
    hold is a result, not a failure.

    \b
    Examples:
      wherecast lab run --all --scale small
      wherecast lab run edn-growth edn-bloom
      wherecast lab run --all --json > claims.jsonl
    """
    from wherecast.papers.lab.results import Results

    chosen = _choose(names or [], scale.value, everything=everything)
    outcomes: list[RunOutcome] = []
    failed: list[str] = []
    for experiment, outcome in _run_each(chosen, scale.value, Results(out), again=again):
        if outcome is None:
            failed.append(experiment.name)
            continue
        outcomes.append(outcome)
        if as_json:
            for claim, finding in outcome.findings:
                typer.echo(json.dumps(_claim_fields(claim, finding)))
    if not as_json:
        _print_claims(outcomes)
    say(f"{len(outcomes)} of {len(chosen)} results are in {out / scale}; `wherecast lab report` shows them")
    if failed:
        raise CommandError(f"failed: {', '.join(failed)}")


def _choose(names: Sequence[str], scale: Scale, *, everything: bool) -> list[Experiment[Any]]:
    """The experiments asked for; whatever is wrong with the call is said before anything runs."""
    from importlib.util import find_spec

    from wherecast.papers.lab.experiment import EXPERIMENTS, LabError, load_experiment

    if find_spec("matplotlib") is None:
        raise usage_error("the lab draws with matplotlib, which is not installed; pip install 'wherecast[lab]'")
    if bool(names) == everything:
        raise usage_error("name experiments or give --all; `wherecast lab list` shows them")
    try:
        chosen = [load_experiment(name) for name in dict.fromkeys(names or EXPERIMENTS)]
        if everything:
            without = [experiment.name for experiment in chosen if scale not in experiment.settings]
            if without:
                say_note(f"no scale {scale}, left out: {', '.join(without)}")
            return [experiment for experiment in chosen if scale in experiment.settings]
        for experiment in chosen:
            experiment.at(scale)
    except LabError as error:
        raise usage_error(str(error)) from None
    return chosen


def _run_each(
    chosen: Sequence[Experiment[Any]], scale: Scale, results: Results, *, again: bool
) -> Iterator[tuple[Experiment[Any], RunOutcome | None]]:
    """Experiments as they finish; None for what has failed."""
    from wherecast.papers.lab.forecast import Forecast, expected_seconds
    from wherecast.papers.lab.runner import is_current, judge_again, run_experiment

    due = {e.name: expected_seconds(e, scale, results) for e in chosen if again or not is_current(e, scale, results)}
    if len(due) < len(chosen):
        say(f"{len(chosen) - len(due)} of {len(chosen)} are there already; --again runs them as well")
    with watch_runs(Forecast(due), len(due)) as watch:
        for experiment in chosen:
            outcome = None
            try:
                if experiment.name in due:
                    with watch.running(experiment.name) as progress:
                        outcome = run_experiment(experiment, scale, results, progress)
                else:
                    outcome = judge_again(experiment, scale, results)
            except KeyboardInterrupt:
                say_note(f"what is finished stays in {results.root}; the same command continues")
                raise
            except Exception as error:  # noqa: BLE001 - one failure must not cost the other results
                if os.environ.get("WHERECAST_DEBUG"):
                    traceback.print_exc()
                say_error(f"{experiment.name}: {type(error).__name__}: {error} (WHERECAST_DEBUG=1 shows where)")
            yield experiment, outcome


def _claim_fields(claim: Claim, finding: Finding) -> dict[str, object]:
    """A claim and our side of it, as a line of JSON has them."""
    ours = finding.ours
    if isinstance(ours, float) and not math.isfinite(ours):
        ours = str(ours)  # JSON has no such number
    fields = {"paper": claim.paper, "name": claim.name, "claim": claim.claim, "paper_figure": claim.paper_figure}
    return {**fields, "ours": ours, "holds": finding.holds}


def _print_claims(outcomes: Sequence[RunOutcome]) -> None:
    from rich.table import Table
    from rich.text import Text

    from wherecast.papers.lab.report.entries import show_cell

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("experiment", "claim", "paper", "ours", "holds"):
        table.add_column(title)
    findings = [pair for outcome in outcomes for pair in outcome.findings]
    for claim, finding in findings:
        mark = Text("yes", "green") if finding.holds else Text("no", "red")
        cells = (claim.name, claim.claim, claim.paper_figure, show_cell(finding.ours))
        table.add_row(*(Text(cell) for cell in cells), mark)
    if findings:
        _console().print(table)
        typer.echo(f"{sum(finding.holds for _, finding in findings)} of {len(findings)} claims hold")


@lab_app.command("report")
def write_report(
    results: ResultsOption = OUTPUT,
    scale: ScaleOption = ScaleName.PAPER,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="The HTML page. Default: report.html beside the results."),
    ] = None,
    docs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", exists=True, file_okay=False, help="Write sections of these pages instead: DIR/topss.md ..."
        ),
    ] = None,
) -> None:
    """Write what was measured beside what the papers say: one HTML page, or sections of the documentation.

    Claims are judged and figures drawn anew from the stored rows; nothing is run. In pages of the documentation only
    what stands between <!-- lab:begin --> and <!-- lab:end --> is replaced.

    \b
    Examples:
      wherecast lab report
      wherecast lab report --scale small --out report.html
      wherecast lab report --docs docs/papers
    """
    from wherecast.papers.lab.experiment import EXPERIMENTS, load_experiment
    from wherecast.papers.lab.report.entries import gather
    from wherecast.papers.lab.report.page import render_page
    from wherecast.papers.lab.report.sections import write_sections
    from wherecast.papers.lab.results import Results, write_text

    entries = gather(map(load_experiment, EXPERIMENTS), scale.value, Results(results))
    if not entries:
        raise CommandError(
            f"no results at scale {scale} in '{results}'; `wherecast lab run --all --scale {scale}` makes them"
        )
    missing = EXPERIMENTS.keys() - {entry.experiment.name for entry in entries}
    if missing:
        say_note(f"not run at scale {scale}: {', '.join(sorted(missing))}")
    outdated = [entry.experiment.name for entry in entries if entry.outdated]
    if outdated:
        say_note(f"settings or code have changed since these ran: {', '.join(outdated)}")
    for entry in entries:
        if entry.problem:
            say_note(f"{entry.experiment.name}: {entry.problem}")
    if docs is not None:
        for path in write_sections(entries, scale.value, docs):
            say(f"wrote {path}")
    if docs is None or out is not None:
        path = out or results / "report.html"
        write_text(path, render_page(entries, scale.value))
        say(f"wrote {path}")


def _console() -> Console:
    from rich.console import Console

    # A pipe has no width: give the table room instead of wrapping it.
    return Console() if sys.stdout.isatty() else Console(width=200)
