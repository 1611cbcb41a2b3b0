"""Checkpoint: what Spark has written down about a stream, read to tell its batches from those of others.

A batch number alone says little: every stream counts from 0, and so does one whose checkpoint was lost. Sinks recognise a
batch by three things: its number, the stream that it belongs to, and the source offsets that it covers.

- `metadata` holds the id of the stream. It is made when the checkpoint is new and stays for all later runs.
- `offsets/n` holds the source offsets of batch n, a line per source. It is written before the batch is handed over, and a
  batch that is repeated keeps it.
- `sources/i/n` holds the files behind offset n, where source i is a folder of files: the offset itself is a mere count.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Self
from urllib.parse import unquote

from wherecast.spark.errors import IndexStoreError
from wherecast.spark.store import Store


class Batch(int):
    """The number of a micro-batch, which also says where the batch comes from."""

    stream: str
    """Id of the stream, as in its checkpoint; for dead letters followed by `/dead-letters`."""
    offsets: str
    """Digest of the source offsets that the batch covers."""

    def __new__(cls, number: int, stream: str, offsets: str) -> Self:
        batch = super().__new__(cls, number)
        batch.stream, batch.offsets = stream, offsets
        return batch

    @property
    def key(self) -> str:
        """Equal for all attempts at this batch, and for nothing else."""
        return f"{self.stream}/{int(self)}/{self.offsets}"

    @property
    def dead_letters(self) -> Batch:
        """The same batch for the sink of dead letters, which must be another than that of the matches."""
        return Batch(self, dead_letters_of(self.stream), self.offsets)


def dead_letters_of(stream: str) -> str:
    """What a stream is called where it writes its dead letters."""
    return f"{stream}/dead-letters"


class Checkpoint:
    """The checkpoint folder of a stream."""

    def __init__(self, path: str) -> None:
        self._store = Store(path)
        self.url = path if "://" in path else self._store.url  # for Spark, whose working directory may be another

    def stream(self) -> str | None:
        """The id of the stream; None before its first start."""
        try:
            return str(json.loads(self._store.read("metadata"))["id"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            raise IndexStoreError(f"{self.url}/metadata is damaged; restore the checkpoint or use a new one") from None

    def planned(self) -> int:
        """The last batch that Spark has planned; -1 if there is none."""
        return max((int(name) for name in self._store.names("offsets") if name.isdigit()), default=-1)

    def batch(self, number: int) -> Batch:
        """A batch that Spark has handed over."""
        stream = self.stream()
        if stream is None:
            raise IndexStoreError(f"{self.url}/metadata is gone while the stream runs; restore the checkpoint")
        return Batch(number, stream, self._offsets(number))

    def files(self, number: int) -> list[str]:
        """The files of a batch that Spark has handed over, of all sources that are folders of files."""
        before, found = self._lines(number - 1) if number else [], []
        for source, line in enumerate(self._lines(number)):
            first = _log_offset(before[source]) if source < len(before) else None
            last = _log_offset(line)
            # Several offsets, where the stream was killed between writing down files and planning their batch.
            for offset in range(0 if first is None else first + 1, 0 if last is None else last + 1):
                files = [unquote(json.loads(entry)["path"]) for entry in self._files(source, offset)]
                if not files:
                    raise IndexStoreError(f"{self.url}/sources/{source}/{offset} is gone; restore the checkpoint")
                found += files
        return found

    def _offsets(self, number: int) -> str:
        covered = [[line, *self._files(source, _log_offset(line))] for source, line in enumerate(self._lines(number))]
        return hashlib.sha256(json.dumps(covered).encode()).hexdigest()[:16]

    def _lines(self, number: int) -> list[str]:
        """The offset of each source at the end of a batch."""
        # The first two lines are the version of the format and settings of the session.
        return self._store.read(f"offsets/{number}").decode().splitlines()[2:]

    def _files(self, source: int, count: Any) -> list[str]:
        """The entries of files that an offset of a source of files stands for; other offsets speak for themselves."""
        for name in (f"{count}", f"{count}.compact"):
            try:
                lines = self._store.read(f"sources/{source}/{name}").decode().splitlines()[1:]
            except FileNotFoundError:
                continue
            return sorted(line for line in lines if json.loads(line).get("batchId") == count)
        return []


def _log_offset(offset: str) -> Any:
    try:
        found = json.loads(offset)
    except ValueError:  # "-", for a source that has nothing yet
        return None
    return found.get("logOffset") if isinstance(found, dict) else None
