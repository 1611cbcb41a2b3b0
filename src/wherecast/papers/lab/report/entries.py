"""Results gathered for a report: each experiment with its last run, judged anew.

Page and sections show the same: the papers (`PAPERS`), and rows as the median over seeds of whatever differs between them
(`summarize`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

from wherecast.papers.lab.experiment import Claim, Drawing, Experiment, Finding, Scale
from wherecast.papers.lab.plots import save_plot
from wherecast.papers.lab.results import Results, RunRecord, fingerprint
from wherecast.papers.lab.rows import Cell, Row, Rows, group, numbers


class Paper(NamedTuple):
    """A paper, and the page of the documentation about it."""

    title: str
    citation: str
    page: str  # its file in docs/papers


#: By the name that experiments and claims give.
PAPERS: dict[str, Paper] = {
    "topss-2002": Paper(
        "TOPSS (2002)",
        "Ashayer, Leung, Jacobsen: Predicate Matching and Subscription Matching in Publish/Subscribe Systems",
        "topss.md",
    ),
    "gryphon-matching-tree-1999": Paper(
        "Gryphon (1999)",
        "Aguilera, Strom, Sturman, Astley, Chandra: Matching Events in a Content-based Subscription System",
        "gryphon.md",
    ),
    "rapidmatch-2005": Paper(
        "RAPIDMatch (2005)",
        "Kale, Hazan, Cao, Singh: Analysis and Algorithms for Content-based Event Matching",
        "rapidmatch.md",
    ),
    "event-distribution-network-2002": Paper(
        "Event Distribution Network (2002)",
        "Wang, Qiu, Achlioptas, Das, Larson, Wang: Subscription Partitioning and Routing in Content-based "
        "Publish/Subscribe Systems",
        "edn.md",
    ),
    "chord-pubsub-2004": Paper(
        "Chord and OPChord (2004)",
        "Triantafillou, Aekaterinidis: Content-based Publish-Subscribe Over Structured P2P Networks",
        "chord.md",
    ),
}


class RowTable(NamedTuple):
    """A table of texts."""

    columns: list[str]
    lines: list[list[str]]
    note: str  # how it came about


def summarize(rows: Rows, at_most: int) -> RowTable:
    """Rows as a table of at most so many lines.

    If every seed has the same points in the same order, a line is one point: columns that are alike for all seeds
    stay, of the others it has the median.
    """
    points, n_seeds = _merge_seeds(rows)
    notes = [f"medians over {n_seeds} seeds"] if n_seeds > 1 else []
    shown = points
    if len(points) > at_most:
        shown = [points[i] for i in np.linspace(0, len(points) - 1, at_most).round().astype(int)]
        notes.append(f"{at_most} of {len(points):,} rows, evenly spaced")
    columns = list(points[0])
    return RowTable(columns, [[show_cell(row[name]) for name in columns] for row in shown], "; ".join(notes))


def _merge_seeds(rows: Rows) -> tuple[Rows, int]:
    seeds = [own for _, own in group(rows, "seed")] if "seed" in rows[0] else [rows]
    if len(seeds) < 2 or len({len(own) for own in seeds}) > 1:
        return rows, 1
    merged: list[dict[str, Cell]] = [{} for _ in seeds[0]]
    for name in rows[0]:
        if name == "seed":
            continue
        by_seed = [[row[name] for row in own] for own in seeds]
        if all(cells == by_seed[0] for cells in by_seed):
            column: list[Cell] = by_seed[0]
        elif any(isinstance(cell, str | bool) for cell in by_seed[0]):
            return rows, 1  # no median of texts
        else:
            column = np.median([numbers(own, name) for own in seeds], axis=0).tolist()
        for point, cell in zip(merged, column, strict=True):
            point[name] = cell
    found: list[Row] = [*merged]
    return found, len(seeds)


def show_cell(cell: Cell) -> str:
    """Three digits that matter, or all of a whole number."""
    if isinstance(cell, bool | str):
        return str(cell)
    return f"{cell:,.0f}" if isinstance(cell, int) or 1000 <= abs(cell) < 1e12 else f"{cell:.3g}"


@dataclass(frozen=True, slots=True)
class ReportEntry:
    """An experiment and what its last run found."""

    experiment: Experiment[Any]
    record: RunRecord
    rows: Rows
    findings: list[tuple[Claim, Finding]]
    figures: list[tuple[Drawing, str]]  # each as SVG
    outdated: bool  # settings or code have changed since
    problem: str = ""  # why findings and figures are missing


def gather(experiments: Iterable[Experiment[Any]], scale: Scale, results: Results) -> list[ReportEntry]:
    """The experiments that have a result."""
    records = ((experiment, results.record(experiment.name, scale)) for experiment in experiments)
    return [_examine(experiment, record, results.rows(record)) for experiment, record in records if record]


def _examine(experiment: Experiment[Any], record: RunRecord, rows: Rows) -> ReportEntry:
    """Rows may be of code that has changed since: what cannot be judged any more spoils no report."""
    outdated = record.fingerprint != fingerprint(experiment, record.scale)
    try:
        findings = experiment.judge(rows)
        figures = [(drawing, draw_svg(drawing, rows)) for drawing in experiment.drawings]
    except Exception as error:  # noqa: BLE001 - whatever the code of an experiment raises
        problem = f"The stored rows cannot be judged or drawn ({type(error).__name__}: {error}); run it again."
        return ReportEntry(experiment, record, rows, [], [], outdated, problem)
    return ReportEntry(experiment, record, rows, findings, figures, outdated)


def draw_svg(drawing: Drawing, rows: Rows) -> str:
    """A figure as SVG, without the lines before its element."""
    file = BytesIO()
    save_plot(drawing, rows, file, "svg")
    text = file.getvalue().decode()
    return text[text.index("<svg") :]
