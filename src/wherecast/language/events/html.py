"""Tables for notebooks. Everything is escaped: names, ids and filters come from strangers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

#: Characters of a cell that are shown.
_LONGEST = 300


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]], *, more: int = 0) -> str:
    """A title above a table of texts; `more` tells how many rows are not shown."""
    head = "".join(f"<th>{_cell(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    rest = f"<div>... {more:,} more</div>" if more > 0 else ""
    return f"<div><b>{_cell(title)}</b></div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


def _cell(value: object) -> str:
    text = str(value)
    return escape(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")
