"""Events from a file, a chunk at a time, so that a file may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from wherecast.cli.csv_rows import CsvRows, Events, convert_fields
from wherecast.cli.failures import CommandError
from wherecast.cli.files import Format, format_of, parse_json_line, reading
from wherecast.language.events.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_ROWS = 32_768


class EventChunk(NamedTuple):
    """Events, their 0-based rows in the file, and the rows between them that are not events, with the reason."""

    rows: npt.NDArray[np.int64]
    events: Events
    broken: list[tuple[int, str]]

    def part(self, start: int, end: int) -> Events:
        """Some of the events."""
        return self.events[start:end] if isinstance(self.events, list) else self.events.slice(start, end - start)


class EventFile(Protocol):
    """A file of events. `size` and `position` are in the same unit, rows or bytes."""

    size: int
    #: the column names, where the file says them before its rows
    names: list[str] | None

    @property
    def position(self) -> int:
        """How much has been read."""

    def __iter__(self) -> Iterator[EventChunk]: ...


def open_events(path: Path, schema: Schema) -> EventFile:
    """A file of events, in the format of its suffix."""
    kinds: dict[Format, type[CsvEvents | JsonEvents | ParquetEvents]] = {
        Format.CSV: CsvEvents,
        Format.JSON_LINES: JsonEvents,
        Format.PARQUET: ParquetEvents,
    }
    return kinds[format_of(path)](path, schema)


def read_events(path: Path, schema: Schema) -> tuple[Events, int]:
    """All events of a file, as one record batch, or as mappings where they came as JSON; and how many rows are none."""
    import pyarrow as pa

    chunks = list(open_events(path, schema))
    broken = sum(len(chunk.broken) for chunk in chunks)
    parts = [chunk.events for chunk in chunks if len(chunk.rows)]
    if not parts:
        raise CommandError(f"'{path}' has no events")
    if any(isinstance(part, list) for part in parts):
        return [event for part in parts for event in (part if isinstance(part, list) else part.to_pylist())], broken
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0], broken


def top_names(schema: Schema) -> set[str]:
    """The columns in which attributes can be: `a.b` is the column of that name, or a field of the column `a`."""
    return {name for a in schema.attributes for name in (a.column, a.path[0])}


class CsvEvents:
    """Events as lines of comma-separated fields, typed by the schema."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self.schema = schema
        self._rows = CsvRows(path, {a.name for a in schema.attributes})
        self.size = self._rows.size_bytes
        self.names: list[str] | None = self._rows.names

    @property
    def position(self) -> int:
        """Bytes read."""
        return self._rows.bytes_read

    def __iter__(self) -> Iterator[EventChunk]:
        for rows, columns, broken in self._rows:
            yield EventChunk(rows, convert_fields(columns, self.schema), broken)


class JsonEvents:
    """Events as one JSON object per line; empty lines are none."""

    def __init__(self, path: Path, schema: Schema) -> None:  # noqa: ARG002 - JSON has types of its own
        self.path = path
        self.size = path.stat().st_size
        self.position = 0
        self.names: list[str] | None = None

    def __iter__(self) -> Iterator[EventChunk]:
        row = 0
        with reading(self.path, Format.JSON_LINES), self.path.open("rb") as lines:
            rows: list[int] = []
            events: list[dict[str, object]] = []
            broken: list[tuple[int, str]] = []
            for number, line in enumerate(lines):
                self.position += len(line)
                text = line.removeprefix(b"\xef\xbb\xbf") if number == 0 else line
                if not text.strip():
                    continue
                try:
                    events.append(parse_json_line(text))
                    rows.append(row)
                except ValueError as error:
                    broken.append((row, str(error)))
                row += 1
                if len(rows) + len(broken) == CHUNK_ROWS:
                    yield EventChunk(np.array(rows, np.int64), events, broken)
                    rows, events, broken = [], [], []
            if rows or broken:
                yield EventChunk(np.array(rows, np.int64), events, broken)


class ParquetEvents:
    """Events as rows of a Parquet file; only columns that the schema knows are read."""

    def __init__(self, path: Path, schema: Schema) -> None:
        import pyarrow.parquet as pq  # 30 ms

        self.path = path
        with reading(path, Format.PARQUET):
            self._file = pq.ParquetFile(path)
        names: list[str] = list(self._file.schema_arrow.names)
        known = top_names(schema)
        self.names: list[str] | None = names
        self._columns = [name for name in names if name in known]
        self.size = int(self._file.metadata.num_rows)
        self.position = 0

    def __iter__(self) -> Iterator[EventChunk]:
        batches = self._file.iter_batches(CHUNK_ROWS, columns=self._columns)
        while True:
            with reading(self.path, Format.PARQUET):
                batch: pa.RecordBatch | None = next(batches, None)
            if batch is None:
                return
            rows = np.arange(self.position, self.position + batch.num_rows, dtype=np.int64)
            self.position += batch.num_rows
            yield EventChunk(rows, batch, [])
