"""A report as sections of the documentation: on the page of each paper, what stands between two marks is generated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from wherecast.papers.lab.experiment import LabError, Scale
from wherecast.papers.lab.forecast import show_duration
from wherecast.papers.lab.report.entries import PAPERS, ReportEntry, show_cell, summarize
from wherecast.papers.lab.results import write_text

BEGIN = "<!-- lab:begin -->"
END = "<!-- lab:end -->"
FIGURES = "figures"
#: Lines of a table of measured values.
SHOWN = 20


def write_sections(entries: Sequence[ReportEntry], scale: Scale, folder: Path) -> list[Path]:
    """Put the section of each paper onto its page, and its figures beside the pages; the pages written."""
    pages = []
    for name, paper in PAPERS.items():
        own = [entry for entry in entries if entry.experiment.paper == name]
        if own:
            path = folder / paper.page
            text = path.read_text(encoding="utf-8") if path.exists() else f"# {paper.title}\n\n{paper.citation}.\n"
            page = replace_section(text, render_section(own, scale), str(path))
            write_figures(own, folder / FIGURES)
            write_text(path, page)
            pages.append(path)
    return pages


def replace_section(page: str, section: str, name: str) -> str:
    """The page with this section in place of the one it has; at its end if it has none.

    Raises LabError if the marks make no section, or if the new section lacks an experiment that the page shows.
    """
    marks = page.count(BEGIN), page.count(END)
    if marks == (0, 0):
        return f"{page.rstrip()}\n\n{section}\n"
    start, end = page.find(BEGIN), page.find(END)
    if marks != (1, 1) or end < start:
        raise LabError(f"'{name}' must have {BEGIN} once and {END} once after it, or neither")
    lost = [title for title in _titles(page[start:end]) if title not in _titles(section)]
    if lost:
        raise LabError(
            f"'{name}' shows {lost[0]!r}, and there are no results of it; run its experiment at this scale first, "
            f"or remove that part from the page"
        )
    return page[:start] + section + page[end + len(END) :]


def _titles(section: str) -> list[str]:
    """The experiments that a section shows."""
    return re.findall(r"^### (.+)$", section, re.MULTILINE)


def render_section(entries: Sequence[ReportEntry], scale: Scale) -> str:
    """What the lab has to say of one paper, with its marks."""
    parts = [BEGIN, "## The lab's figures", _preface(entries, scale), *map(_part, entries), END]
    return "\n\n".join(parts)


def write_figures(entries: Sequence[ReportEntry], folder: Path) -> None:
    """The figures that the sections show."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        for drawing, svg in entry.figures:
            write_text(folder / f"{drawing.name}.svg", svg)


def _preface(entries: Sequence[ReportEntry], scale: Scale) -> str:
    """Scale, time, place."""
    holds = [finding.holds for entry in entries for _, finding in entry.findings]
    machines = [entry.record.machine for entry in entries]
    places = {f"{m['cores']} cores of {m['cpu']}, Python {m['python']}" for m in machines}
    return (
        f"Measured at scale `{scale}`, {max(entry.record.finished for entry in entries)[:10]}, "
        f"on {' and '.join(sorted(places))}. {sum(holds)} of {len(holds)} claims hold. "
        "Written by `wherecast lab report --docs`; [the guide](../guides/lab.md) says how to run it again."
    )


def _part(entry: ReportEntry) -> str:
    experiment = entry.experiment
    parts = [f"### {experiment.title}"]
    parts += [f"![{drawing.title}]({FIGURES}/{drawing.name}.svg)" for drawing, _ in entry.figures]
    claims = [
        (claim.claim, claim.paper_figure, show_cell(finding.ours), "yes" if finding.holds else "**no**")
        for claim, finding in entry.findings
    ]
    if claims:
        parts.append(_table(("claim", "paper", "ours", "holds"), claims))
    reasons = [
        f"- {claim.claim} {claim.why_not}" for claim, finding in entry.findings if claim.why_not and not finding.holds
    ]
    if reasons:
        parts.append("Why not:\n\n" + "\n".join(reasons))
    settings = "; ".join(f"{name} {value}" for name, value in entry.record.settings.items())
    parts.append(f"`{experiment.name}`, {show_duration(entry.record.seconds)}: {_cell(settings)}.")
    measured = summarize(entry.rows, SHOWN)
    note = f": {measured.note}" if measured.note else ""
    parts += [f"<details><summary>Measured{note}</summary>", _table(measured.columns, measured.lines), "</details>"]
    return "\n\n".join(parts)


def _table(titles: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [titles, ["---"] * len(titles), *lines]
    return "\n".join(f"| {' | '.join(_cell(text) for text in row)} |" for row in rows)


def _cell(text: str) -> str:
    """A text that cannot end its cell, nor open a tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
