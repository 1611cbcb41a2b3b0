"""Subscriptions from a file: columns `id` and `filter`, others are ignored."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wherecast.cli.failures import CommandError
from wherecast.cli.files import Format, format_of, parse_json_line, reading
from wherecast.cli.report import Shortlist

if TYPE_CHECKING:
    import pyarrow as pa


class SubscriptionRows(NamedTuple):
    """What a file holds: equally long lists, and the rows that are not subscriptions at all, with the reason."""

    rows: list[int]
    ids: list[object]
    filters: list[object]
    broken: list[tuple[int, str]]


def read_subscriptions(path: Path) -> SubscriptionRows:
    """All subscriptions of a file. Ids from CSV are text, and come back as they were written."""
    readers = {Format.CSV: _read_csv, Format.JSON_LINES: _read_json, Format.PARQUET: _read_parquet}
    return readers[format_of(path)](path)


def report_bad(path: Path, found: SubscriptionRows, errors: Iterable[tuple[int, Exception]]) -> int:
    """Show the first bad rows of a file, in order; how many there are. `errors` are of rows of `found`."""
    bad: list[tuple[int, str, str, Exception | None]] = [(row, f"row {row}", why, None) for row, why in found.broken]
    for row, error in errors:
        bad.append((found.rows[row], f"row {found.rows[row]}, id {found.ids[row]!r:.80}", str(error), error))
    shortlist = Shortlist("bad subscriptions")
    for _, place, reason, cause in sorted(bad, key=lambda b: b[0]):
        shortlist.add(f"{path}: {place}: {reason}", cause)
    shortlist.finish()
    return len(bad)


def _check_columns(path: Path, names: list[str]) -> None:
    for name in ("id", "filter"):
        if names.count(name) != 1:
            how = "no column" if name not in names else "more than one column"
            raise CommandError(
                f"'{path}' has {how} {name!r}; subscriptions need one `id` and one `filter`, found {', '.join(names)}"
            )


def _read_csv(path: Path) -> SubscriptionRows:
    from wherecast.cli.csv_rows import CsvRows  # imports Arrow

    found = SubscriptionRows([], [], [], [])
    source = CsvRows(path, ("id", "filter"))
    _check_columns(path, source.names)
    for rows, columns, broken in source:
        found.broken.extend((row, f"{reason}; put a filter with commas in double quotes") for row, reason in broken)
        if not rows.size:
            continue
        try:
            ids, filters = columns.column("id").to_pylist(), columns.column("filter").to_pylist()
        except UnicodeDecodeError:
            raise CommandError(f"'{path}' is not UTF-8 text; convert it first") from None
        found.rows.extend(rows.tolist())
        found.ids.extend(ids)
        found.filters.extend(filters)
    return found


def _read_json(path: Path) -> SubscriptionRows:
    found = SubscriptionRows([], [], [], [])
    with reading(path, Format.JSON_LINES):
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    for row, line in enumerate(line for line in lines if line.strip()):
        try:
            subscription = parse_json_line(line)
            for name in ("id", "filter"):
                if name not in subscription:
                    raise ValueError(f"{name!r} is missing")
        except ValueError as error:
            found.broken.append((row, str(error)))
            continue
        found.rows.append(row)
        found.ids.append(subscription["id"])
        found.filters.append(subscription["filter"])
    return found


def _read_parquet(path: Path) -> SubscriptionRows:
    import pyarrow.parquet as pq  # 30 ms

    with reading(path, Format.PARQUET):
        file = pq.ParquetFile(path)
        _check_columns(path, file.schema_arrow.names)
        table: pa.Table = file.read(columns=["id", "filter"])
        try:
            ids, filters = table.column("id").to_pylist(), table.column("filter").to_pylist()
        except UnicodeDecodeError:
            raise CommandError(f"'{path}' has texts that are not UTF-8; write it anew") from None
    return SubscriptionRows(list(range(len(ids))), ids, filters, [])
