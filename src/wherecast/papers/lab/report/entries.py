"""Results gathered for a report: each experiment with its last run, judged anew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from wherecast.papers.lab.claims import Claim, Finding
from wherecast.papers.lab.experiment import Drawing, Experiment, Scale
from wherecast.papers.lab.fingerprint import fingerprint
from wherecast.papers.lab.plots import save_plot
from wherecast.papers.lab.results import Results, RunRecord
from wherecast.papers.lab.rows import Rows


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
