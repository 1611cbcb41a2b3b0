"""Messages for people, on standard error: errors with a caret, lists that stop after ten, one note per fact.

Standard output is for results only. Texts of others (filters, ids, values) are printed without their control characters:
a file must not be able to write to the terminal.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from wherecast import kernels
from wherecast.errors import FilterError

#: How many bad rows are shown before they are only counted.
SHOWN = 10
_WIDEST = 160
_AROUND = 60


def say(text: str = "") -> None:
    """One line on standard error."""
    typer.echo(text, err=True)


def say_error(error: FilterError | str) -> None:
    """An error, and for a filter the line it is in with a caret under the place."""
    message = str(error)
    typer.echo(f"{typer.style('error:', fg=typer.colors.RED, bold=True)} {printable(message)}", err=True)
    if isinstance(error, FilterError) and error.text:
        say(indent(caret_lines(error)))


def say_note(text: str) -> None:
    """A warning: something the user may not expect, but not an error."""
    typer.echo(f"{typer.style('note:', fg=typer.colors.YELLOW, bold=True)} {printable(text)}", err=True)


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say_note(record.getMessage())


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """What the library logs meanwhile as a warning is a note of the command."""
    log, handler = logging.getLogger("wherecast"), _Notes(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def indent(text: str) -> str:
    """Every line two blanks to the right."""
    return "\n".join("  " + line for line in text.split("\n"))


def printable(text: str) -> str:
    """The text with one `?` for each character that is not visible; length and line breaks stay."""
    return "".join(c if c.isprintable() or c == "\n" else " " if c == "\t" else "?" for c in text)


def caret_lines(error: FilterError) -> str:
    """The line of the filter that is wrong, a caret line under it; a very long line is cut around the place."""
    line, _, carets = error.caret().partition("\n")
    start = len(carets) - len(carets.lstrip(" "))
    end = len(carets)
    if len(line) > _WIDEST:
        left, right = max(0, start - _AROUND), min(len(line), start + _AROUND)
        head, tail = "..." if left else "", "..." if right < len(line) else ""
        line = head + line[left:right] + tail
        start, end = start - left + len(head), min(end, right) - left + len(head)
    line = printable(line)
    from rich.cells import cell_len  # needed only when something is wrong

    # Characters of Chinese, Japanese and Korean take two cells of a terminal.
    return f"{line}\n{' ' * cell_len(line[:start])}{'^' * max(1, cell_len(line[start:end]))}"


class Shortlist:
    """Bad rows as they come: the first ten are shown, the others counted."""

    def __init__(self, plural: str) -> None:
        self.plural = plural
        self.count = 0

    def add(self, message: str, error: Exception | None = None) -> None:
        """One bad row. A filter's error adds its line and caret."""
        self.count += 1
        if self.count <= SHOWN:
            say(printable(message))
            if isinstance(error, FilterError) and error.text:
                say(indent(caret_lines(error)))

    def finish(self) -> None:
        """Say how many were not shown."""
        if self.count > SHOWN:
            say(f"... and {self.count - SHOWN:,} more {self.plural}")


def note_first_compilation() -> None:
    """The first match after installation compiles the kernels: say so, or it looks as if nothing happens."""
    compiled = Path(kernels.__file__).parent / "__pycache__"
    if not any(compiled.glob("*.nbi")):
        say_note("compiling the matching kernels, once; this takes about half a minute")
