"""Results as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from wherecast.bench.cases import Case
from wherecast.bench.results import Figure, Machine, Result

if TYPE_CHECKING:
    from rich.console import Console

_MATCH = (
    ("us/event", "us_per_event"),
    ("x floor", "floor_ratio"),
    ("of best", "floor_best_ratio"),
    ("x scan", "scan_ratio"),
    ("x duckdb", "duckdb_ratio"),
    ("x one thread", "one_thread_ratio"),
    ("floor us", "floor_us_per_event"),
    ("matches/event", "matches_per_event"),
    ("ns/match", "ns_per_match"),
    ("build s", "build_s"),
    ("open s", "open_s"),
    ("bytes/sub", "bytes_per_subscription"),
)
_UPDATES = (
    ("us/event", "us_per_event"),
    ("x with delta", "delta_ratio"),
    ("subscribe p50 us", "subscribe_p50_us"),
    ("p99 us", "subscribe_p99_us"),
    ("unsubscribe p50 us", "unsubscribe_p50_us"),
    ("p99 us ", "unsubscribe_p99_us"),
    ("changes/s", "changes_per_s"),
    ("us/event meanwhile", "meanwhile_us_per_event"),
)
_LATENCY = (("p50 us", "p50_us"), ("p99 us", "p99_us"), ("matches/event", "matches_per_event"))
_KINDS = {"match": _MATCH, "updates": _UPDATES, "latency": _LATENCY}


def show(value: Figure) -> str:
    """A figure with three digits that matter."""
    if value is None:
        return "-"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def print_results(results: Sequence[Result], machine: Machine, console: Console) -> None:
    """One table per kind of case, only with columns that hold something."""
    for kind, columns in _KINDS.items():
        rows = [r for r in results if r.case.kind == kind and not r.skipped]
        if rows:
            console.print(_table(rows, columns))
    for result in results:
        if result.points:
            console.print(_growth_table(result))
        if result.skipped:
            console.print(f"{result.case.name}: skipped: {result.skipped}")
    versions = ", ".join(f"{name} {version}" for name, version in machine.packages.items() if version)
    console.print(f"{machine.cpu}, {machine.cores} cores, Python {machine.python}, {versions}", style="dim")


def _table(results: Sequence[Result], columns: Sequence[tuple[str, str]]) -> Table:
    used = [(title, key) for title, key in columns if any(r.figures.get(key) is not None for r in results)]
    with_goals = any(r.goals() for r in results)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("case", no_wrap=True)
    for title in ("subscriptions", *(title.strip() for title, _ in used)):
        table.add_column(title, justify="right")
    if with_goals:
        table.add_column("goals")
    for result in results:
        cells = [show(result.figures.get(key)) for _, key in used]
        goals = [_goals(result)] if with_goals else []
        table.add_row(result.case.name, show(result.subscriptions), *cells, *goals)
    return table


def _growth_table(result: Result) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, title_justify="left")
    table.title = f"{result.case.name}: exponent {show(result.figures.get('growth_exponent'))}"
    for title in ("subscriptions", "us/event", "matches/event", "build s", "bytes/sub"):
        table.add_column(title, justify="right")
    for point in result.points:
        table.add_row(*(show(value) for value in point))
    return table


def _goals(result: Result) -> str:
    missed = [f"{g.figure} {show(g.value)} > {g.limit:g}" for g in result.goals() if not g.met]
    if missed:
        return f"[red]{'; '.join(missed)}[/red]"
    return "[green]met[/green]" if result.goals() else ""


def print_cases(cases: Sequence[Case], console: Console) -> None:
    """The declared cases."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("case", "kind", "workload", "output", "threads", "groups", "baselines"):
        table.add_column(title)
    for c in cases:
        table.add_row(c.name, c.kind, c.workload, c.output, str(c.threads), ", ".join(c.groups), ", ".join(c.baselines))
    console.print(table)


def print_figures(figures: dict[str, Figure], console: Console) -> None:
    """Figures of one measurement, one per line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in figures.items():
        table.add_row(name, show(value))
    console.print(table)
