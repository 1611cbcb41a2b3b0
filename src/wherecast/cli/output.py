"""Matches to a file or to standard output: columns `event` and `subscription`.

A file is written beside its place and moved there when it is complete: a run that fails leaves what was there before.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import pyarrow as pa

from wherecast.cli.failures import usage_error
from wherecast.cli.files import Format, format_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class MatchWriter(Protocol):
    """Takes matches batch by batch."""

    def write(self, events: npt.NDArray[np.int64], ids: npt.NDArray[Any]) -> None:
        """Add (event row, subscription id) pairs."""

    def close(self) -> None:
        """Finish the file."""

    def abandon(self) -> None:
        """Let go of a file that will be removed."""


@contextmanager
def open_output(path: Path | None, ids: Iterable[object]) -> Iterator[MatchWriter]:
    """Where matches go; None: CSV to standard output. `ids` are those that may occur, for the column type."""
    if path is None:
        writer: MatchWriter = LineWriter(sys.stdout.buffer, Format.CSV)
        yield writer
        writer.close()
        sys.stdout.buffer.flush()
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        stream = partial.open("wb")
    except OSError as error:
        raise usage_error(f"'{path}' cannot be written: {error.strerror}") from None
    try:
        with stream:
            form = format_of(path)
            writer = ParquetWriter(stream, id_type(ids)) if form is Format.PARQUET else LineWriter(stream, form)
            try:
                yield writer
                writer.close()
            except BaseException:
                writer.abandon()
                raise
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def id_type(ids: Iterable[object]) -> pa.DataType:
    """The type that all ids have."""
    kinds = {type(i) for i in ids}
    if len(kinds) > 1:
        raise usage_error(
            "some ids are integers and some are text, and a Parquet column has one type; write .jsonl, or give ids one type"
        )
    return pa.string() if str in kinds else pa.int64()


class LineWriter:
    """CSV or JSON lines. The text of an id is made once."""

    def __init__(self, stream: BinaryIO, form: Format) -> None:
        self._stream = stream
        self._texts: dict[object, str] = {}
        if form is Format.CSV:
            self._text, self._line = _csv_field, "{},{}\n"
            stream.write(b"event,subscription\n")
        else:
            self._text, self._line = _json_value, '{{"event": {}, "subscription": {}}}\n'

    def write(self, events: npt.NDArray[np.int64], ids: npt.NDArray[Any]) -> None:
        """Add (event row, subscription id) pairs."""
        texts, listed = self._texts, ids.tolist()
        for new in set(listed) - texts.keys():
            texts[new] = self._text(new)
        line = self._line.format
        lines = [line(event, texts[i]) for event, i in zip(events.tolist(), listed, strict=True)]
        self._stream.write("".join(lines).encode())

    def close(self) -> None:
        """Nothing is left to write."""

    def abandon(self) -> None:
        """Nothing is held."""


def _csv_field(value: object) -> str:
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if not text or any(c in text for c in ',"\r\n') else text


def _json_value(value: object) -> str:
    return json.dumps(value)


class ParquetWriter:
    """A Parquet file, in row groups of a useful size."""

    _ROW_GROUP = 1 << 17

    def __init__(self, stream: BinaryIO, ids: pa.DataType) -> None:
        import pyarrow.parquet as pq  # 30 ms

        self._schema = pa.schema([("event", pa.int64()), ("subscription", ids)])
        self._writer = pq.ParquetWriter(stream, self._schema)
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0

    def write(self, events: npt.NDArray[np.int64], ids: npt.NDArray[Any]) -> None:
        """Add (event row, subscription id) pairs."""
        column = pa.array(ids.tolist(), self._schema.field("subscription").type)
        self._waiting.append(pa.table([pa.array(events), column], self._schema))
        self._waiting_rows += len(column)
        if self._waiting_rows >= self._ROW_GROUP:
            self._flush()

    def close(self) -> None:
        """Write what is waiting, and the footer."""
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Close Arrow's writer while the stream is open. Else it closes itself later, fails, and Python prints a stack trace."""
        with suppress(OSError, pa.ArrowException):
            self._writer.close()

    def _flush(self) -> None:
        if self._waiting_rows:
            self._writer.write_table(pa.concat_tables(self._waiting), self._waiting_rows)
        self._waiting, self._waiting_rows = [], 0
