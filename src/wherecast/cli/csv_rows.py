"""Rows of a CSV file as batches of columns: first of text, then of values.

Arrow reads the text. Fields stay text until the schema says what they are, and a row with too many or too few fields is
set aside instead of ending the run. An empty field is NULL; a quoted empty field (`""`) is the empty string. Empty lines
are not rows.

The schema turns fields into values. A whole column is converted at once where all its fields are well-formed. Where one is not, the batch becomes mappings
in which that field stays text: the engine then refuses it with row and attribute, as it does for any event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from wherecast.cli.failures import CommandError
from wherecast.cli.files import Format, read_header, reading
from wherecast.language.events.scalars import read_plain
from wherecast.language.events.schema import Attribute, Schema

BLOCK_BYTES = 1 << 20


class CsvBatch(NamedTuple):
    """Rows that could be read, with their numbers in the file, and those that could not, with the reason."""

    rows: npt.NDArray[np.int64]
    columns: pa.RecordBatch
    broken: list[tuple[int, str]]


class CsvRows:
    """A CSV file, read block by block."""

    def __init__(self, path: Path, wanted: Collection[str]) -> None:
        self.path = path
        self.names, self._has_rows = read_header(path)
        self.size_bytes = path.stat().st_size
        self._columns = [name for name in dict.fromkeys(self.names) if name in wanted]
        for name in self._columns:
            if self.names.count(name) > 1:
                raise CommandError(f"'{path}' has the column {name!r} more than once; rename or remove one")
        self._broken: list[tuple[int, str]] = []
        self._file = pa.OSFile(str(path))

    @property
    def bytes_read(self) -> int:
        """How far the file has been read."""
        return self.size_bytes if self._file.closed else int(self._file.tell())

    def __iter__(self) -> Iterator[CsvBatch]:
        """All rows, batch by batch."""
        next_row = 0
        if not self._has_rows:
            return
        with self._file:
            with reading(self.path, Format.CSV):
                reader = self._open()
            while True:
                with reading(self.path, Format.CSV):
                    batch = next(iter(reader), None)
                if batch is None:
                    break
                rows = _numbers_without(next_row, batch.num_rows, [row for row, _ in self._broken])
                next_row = int(rows[-1]) + 1 if rows.size else next_row
                yield CsvBatch(rows, batch, self._take_broken(next_row))
        rest = self._take_broken(None)
        if rest:
            yield CsvBatch(np.zeros(0, np.int64), pa.RecordBatch.from_arrays([], []), rest)

    def _take_broken(self, before: int | None) -> list[tuple[int, str]]:
        """The rows set aside before a row, once. Arrow reads ahead, so there may be later ones."""
        taken = [b for b in self._broken if before is None or b[0] < before]
        self._broken = self._broken[len(taken) :]
        return taken

    def _open(self) -> pa.csv.CSVStreamingReader:
        # One thread: only then does Arrow number the rows that it cannot read.
        return pa.csv.open_csv(
            self._file,
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),
            parse_options=pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=self._set_aside),
            convert_options=pa.csv.ConvertOptions(
                check_utf8=False,  # the engine names the row and the attribute
                column_types=dict.fromkeys(self._columns or self.names, pa.string()),
                include_columns=self._columns,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _set_aside(self, row: pa.csv.InvalidRow) -> str:
        reason = f"expected {row.expected_columns} fields, found {row.actual_columns}"
        # Rows are counted from 1, and the first is the header.
        self._broken.append((row.number - 2, reason))
        return "skip"


def _numbers_without(start: int, count: int, missing: list[int]) -> npt.NDArray[np.int64]:
    """The `count` lowest numbers from `start` on that are not missing."""
    numbers = np.arange(start, start + count + len(missing), dtype=np.int64)
    return numbers[~np.isin(numbers, missing)][:count] if missing else numbers


#: A record batch or mappings; PyArrow has no types.
Events = Any


def convert_fields(batch: pa.RecordBatch, schema: Schema) -> Events:
    """A batch of text columns as events."""
    attributes = {a.name: a for a in schema.attributes}
    known = [name for name in batch.schema.names if name in attributes]
    if not any(attributes[name].is_array for name in known):
        columns = [read_plain(attributes[name], batch.column(name)) for name in known]
        if all(column is not None for column in columns):
            # An unknown column keeps the number of rows where no column is known.
            rest = [name for name in batch.schema.names if name not in attributes][: not known]
            return pa.RecordBatch.from_arrays(columns + [batch.column(n) for n in rest], known + rest)
    fields = {name: [_convert_field(attributes[name], text) for text in _texts(batch.column(name))] for name in known}
    return [{name: values[row] for name, values in fields.items()} for row in range(batch.num_rows)]


def _texts(column: pa.Array) -> list[str | bytes | None]:
    """The fields; what is not UTF-8 stays bytes."""
    out: list[str | bytes | None] = []
    for raw in column.view(pa.binary()).to_pylist():
        try:
            out.append(None if raw is None else raw.decode())
        except UnicodeDecodeError:
            out.append(raw)
    return out


def _convert_field(attribute: Attribute, text: str | bytes | None) -> object:
    """The value of a field; a field that is not well-formed comes back as it is."""
    if not isinstance(text, str):
        return text
    try:
        if attribute.is_array:
            return json.loads(text)
        plain = attribute.row.plain
        return text if plain is None or not re.match(plain.pattern, text) else plain.read(text)
    except (ValueError, RecursionError):
        return text
