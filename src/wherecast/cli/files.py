"""The three file formats: which one a file is, and what is common to reading them."""

from __future__ import annotations

import csv
import enum
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from wherecast.cli.failures import CommandError, usage_error


class Format(enum.Enum):
    """How rows are stored in a file."""

    CSV = "CSV"
    JSON_LINES = "JSON lines"
    PARQUET = "Parquet"


_SUFFIXES = {
    ".csv": Format.CSV,
    ".jsonl": Format.JSON_LINES,
    ".ndjson": Format.JSON_LINES,
    ".json": Format.JSON_LINES,
    ".parquet": Format.PARQUET,
}


def format_of(path: Path) -> Format:
    """The format that a file's suffix stands for."""
    found = _SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise usage_error(f"'{path}': unknown suffix {path.suffix!r}; name it one of {', '.join(_SUFFIXES)}")
    return found


@contextmanager
def reading(path: Path, form: Format) -> Iterator[None]:
    """Turn what libraries say about an unreadable file into one line with its name."""
    import pyarrow as pa  # its errors are caught here

    try:
        yield
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CommandError(f"'{path}' cannot be read as {form.value}: {reason}") from None
    except OSError as error:  # Arrow raises it for damaged files too, without a number
        raise CommandError(f"'{path}' cannot be read: {error.strerror or str(error).splitlines()[0]}") from None


class Header(NamedTuple):
    """The first line of a CSV file, and whether rows follow it."""

    names: list[str]
    has_rows: bool


def read_header(path: Path) -> Header:
    """The column names of a CSV file."""
    try:
        # Whole blocks are decoded at once: bytes that are not text must not matter before their row is read.
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
            lines = filter(None, csv.reader(text))
            names = next(lines, None)
            has_rows = names is not None and _has_next(lines)
    except csv.Error as error:
        raise CommandError(f"'{path}' cannot be read as CSV: {error}") from None
    if names is None:
        raise CommandError(f"'{path}' is empty; a CSV file begins with a line of column names")
    if any("\udc80" <= character <= "\udcff" for character in "".join(names)):
        raise CommandError(f"'{path}' is not UTF-8 text; convert it first")
    return Header(names, has_rows)


def _has_next(lines: Iterator[list[str]]) -> bool:
    try:
        return next(lines, None) is not None
    except csv.Error:
        return True  # what is wrong with the row is said when it is read


def parse_json_line(line: bytes) -> dict[str, object]:
    """The object in one line. Raises ValueError with the reason."""
    try:
        found = json.loads(line.decode())
    except UnicodeDecodeError:
        raise ValueError("the line is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"the line is not valid JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError):
        raise ValueError("the line is not usable JSON: nested too deep, or a number too long") from None
    if not isinstance(found, dict):
        raise ValueError(f"expected one JSON object per line, found {_kind(found)}")  # noqa: TRY004 - its caller needs one class
    return found


def _kind(value: object) -> str:
    return {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}.get(type(value), "a number")
