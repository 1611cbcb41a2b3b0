"""`wherecast lint`: find filters of a file that are probably wrong or cost more than they need to.

LintFindings are results and go to standard output; rows that are not subscriptions at all are reported on standard error, and
count as errors.
"""

from __future__ import annotations

import json
from pathlib import Path

import typer

from wherecast.cli.failures import REFUSED, CommandError
from wherecast.cli.report import caret_lines, indent, note_first_compilation, printable, say
from wherecast.cli.subscriptions import SubscriptionRows, read_subscriptions, report_bad
from wherecast.engine.lint import LintFinding, LintFindings, lint
from wherecast.language.events.schema import Schema
from wherecast.language.filters.spelling import Severity

#: Files with a filter in each line; its number is its id.
_LINES = (".txt", ".sql")
_COLORS = {
    Severity.ERROR: typer.colors.RED,
    Severity.WARNING: typer.colors.YELLOW,
    Severity.NOTE: typer.colors.BLUE,
}


def lint_file(path: Path, schema_path: Path, show: Severity, fail_on: Severity | None, *, as_json: bool) -> None:
    """Print the findings of `show` or worse; exit with 1 if there are some of `fail_on` or worse."""
    schema = Schema.from_file(schema_path)
    rows = _read_lines(path) if path.suffix.lower() in _LINES else read_subscriptions(path)
    note_first_compilation()
    report_bad(path, rows, ())
    found = lint(zip(rows.ids, rows.filters, strict=True), schema, progress=True)
    shown = found.at_least(show)
    typer.echo(json.dumps(_fields(rows, found, shown), indent=2, default=str) if as_json else _page(path, rows, shown))
    if not as_json:
        say(found.summary)
    if fail_on is not None and (found.at_least(fail_on) or rows.broken):
        raise typer.Exit(REFUSED)


def _read_lines(path: Path) -> SubscriptionRows:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise CommandError(f"'{path}' is not UTF-8 text; convert it first") from None
    numbers = [number for number, line in enumerate(lines, 1) if line.strip()]
    return SubscriptionRows(numbers, list(numbers), [lines[number - 1] for number in numbers], [])


def _page(path: Path, rows: SubscriptionRows, shown: list[LintFinding]) -> str:
    return "\n".join(line for finding in shown for line in _lines(path, rows, finding)) or "nothing to report"


def _lines(path: Path, rows: SubscriptionRows, finding: LintFinding) -> list[str]:
    severity = typer.style(f"{finding.severity}: {finding.code}:", fg=_COLORS[finding.severity], bold=True)
    place = f"{path}: row {rows.rows[finding.row]}, id {finding.id!r:.80}"
    head = f"{printable(place)}: {severity} {printable(finding.message)}; {printable(finding.advice)}"
    return [head, *([indent(caret_lines(finding.place))] if finding.filter else [])]


def _fields(rows: SubscriptionRows, found: LintFindings, shown: list[LintFinding]) -> dict[str, object]:
    return {
        "filters": found.filters,
        "uncompared": found.uncompared,
        "broken_rows": [{"row": row, "reason": reason} for row, reason in rows.broken],
        "counts": found.counts,
        "findings": [{**finding.to_dict(), "row": rows.rows[finding.row]} for finding in shown],
    }
