"""A report as one HTML page that needs nothing else: styles and figures are inside."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from importlib.resources import files

from wherecast.papers.lab.experiment import Claim, Drawing, Finding, Scale
from wherecast.papers.lab.forecast import show_duration
from wherecast.papers.lab.report.entries import PAPERS, ReportEntry, show_cell, summarize

OUTDATED = " Settings or code have changed since."
#: Lines of a table of measured values.
SHOWN = 60
#: Tables that are no longer than this are open.
OPEN = 12


def render_page(entries: Sequence[ReportEntry], scale: Scale) -> str:
    """The page."""
    by_paper = {paper: [entry for entry in entries if entry.experiment.paper == paper] for paper in PAPERS}
    sections = [_paper(paper, own) for paper, own in by_paper.items() if own]
    style = files(__package__).joinpath("page.css").read_text()
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Wherecast lab</title>
<style>
{style}</style>
</head>
<body>
<h1>Wherecast lab</h1>
<p>Tables and figures of {len(sections)} {"paper" if len(sections) == 1 else "papers"} on publish/subscribe, measured again at scale
<b>{scale}</b>: what each paper claims, what we find, and whether the claim holds here.</p>
{_overview(by_paper)}
{"".join(sections)}
{_machines(entries)}
</body>
</html>
"""


def _overview(by_paper: dict[str, list[ReportEntry]]) -> str:
    lines = []
    for paper, own in by_paper.items():
        if own:
            judged = [finding.holds for entry in own for _, finding in entry.findings]
            seconds = sum(entry.record.seconds for entry in own)
            link = f'<a href="#{escape(paper)}">{escape(PAPERS[paper].title)}</a>'
            lines.append([link, *map(str, (len(own), len(judged), sum(judged))), show_duration(seconds)])
    return _table(["paper", "experiments", "claims", "hold", "time"], lines, numeric=(1, 2, 3, 4))


def _paper(name: str, entries: Iterable[ReportEntry]) -> str:
    paper = PAPERS[name]
    articles = "".join(_article(entry) for entry in entries)
    return (
        f'<h2 id="{escape(name)}">{escape(paper.title)}</h2>\n<p class="soft">{escape(paper.citation)}</p>\n{articles}'
    )


def _article(entry: ReportEntry) -> str:
    experiment, record = entry.experiment, entry.record
    problem = f'<p class="problem">{escape(entry.problem)}</p>' if entry.problem else ""
    figures = "".join(_figure(drawing, svg) for drawing, svg in entry.figures)
    return f"""<article id="{escape(experiment.name)}">
<header><h3>{escape(experiment.title)}</h3><code class="soft">{escape(experiment.name)}</code></header>
{problem}{figures}{_claims(entry.findings)}
<p class="soft">Ran {show_duration(record.seconds)} on {_show_date(record.finished)}.{OUTDATED if entry.outdated else ""}</p>
{_settings(record.settings)}{_rows(entry)}
</article>
"""


def _figure(drawing: Drawing, svg: str) -> str:
    # As an image, so that names inside one figure cannot meet those of another.
    data = base64.b64encode(svg.encode()).decode()
    return f'<figure><img alt="{escape(drawing.title)}" src="data:image/svg+xml;base64,{data}"></figure>\n'


def _claims(findings: Sequence[tuple[Claim, Finding]]) -> str:
    if not findings:
        return ""
    lines = []
    for claim, finding in findings:
        why = f'<br><span class="soft">{escape(claim.why_not)}</span>' if claim.why_not and not finding.holds else ""
        mark = '<span class="mark yes">holds</span>' if finding.holds else '<span class="mark no">does not hold</span>'
        lines.append([escape(claim.claim) + why, escape(claim.paper_figure), escape(show_cell(finding.ours)), mark])
    return _table(["claim", "paper", "ours", ""], lines, kind="claims")


def _settings(settings: dict[str, str]) -> str:
    table = _table(
        ["setting", "value"], [[f"<code>{escape(name)}</code>", escape(text)] for name, text in settings.items()]
    )
    return f"<details><summary>Settings</summary>{table}</details>\n"


def _rows(entry: ReportEntry) -> str:
    summary = summarize(entry.rows, SHOWN)
    lines = [[escape(text) for text in line] for line in summary.lines]
    texts = {name for name, cell in entry.rows[0].items() if isinstance(cell, str)}
    numeric = [i for i, name in enumerate(summary.columns) if name not in texts]
    table = _table([escape(name) for name in summary.columns], lines, numeric=numeric)
    note = f": {summary.note}" if summary.note else ""
    state = " open" if len(lines) <= OPEN else ""
    return f"<details{state}><summary>Measured{escape(note)}</summary>{table}</details>"


def _machines(entries: Sequence[ReportEntry]) -> str:
    """Usually one; results may have been measured on several."""
    machines = {str(entry.record.machine): entry.record.machine for entry in entries}
    tables = []
    for machine in machines.values():
        fields = {name: value for name, value in machine.items() if name != "packages"}
        packages = machine.get("packages")
        fields |= packages if isinstance(packages, dict) else {}
        lines = [[escape(name.replace("_", " ")), escape(str(value))] for name, value in fields.items() if value]
        tables.append(_table(["", ""], lines))
    return f'<h2 id="machine">Measured on</h2>\n{"".join(tables)}'


def _show_date(finished: str) -> str:
    return f"{datetime.fromisoformat(finished):%Y-%m-%d %H:%M} UTC"


def _table(
    titles: Sequence[str], lines: Iterable[Sequence[str]], *, numeric: Sequence[int] = (), kind: str = ""
) -> str:
    """Cells are HTML."""

    def row(tag: str, cells: Sequence[str]) -> str:
        classes = [' class="number"' if i in numeric else "" for i in range(len(cells))]
        return "<tr>" + "".join(f"<{tag}{c}>{cell}</{tag}>" for c, cell in zip(classes, cells, strict=True)) + "</tr>"

    head = f"<thead>{row('th', titles)}</thead>" if any(titles) else ""
    body = "\n".join(row("td", line) for line in lines)
    return f'<div class="wide"><table class="{kind}">{head}<tbody>\n{body}\n</tbody></table></div>\n'
