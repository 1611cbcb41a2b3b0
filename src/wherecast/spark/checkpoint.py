"""Checkpoint: what is written down about a stream, so that a batch which is run again is the same batch.

Spark's checkpoint. A batch number alone says little: every stream counts from 0, and so does one whose checkpoint was lost.
Sinks recognise a batch by three things: its number, the stream that it belongs to, and the source offsets that it covers.

- `metadata` holds the id of the stream. It is made when the checkpoint is new and stays for all later runs.
- `offsets/n` holds the source offsets of batch n, a line per source. It is written before the batch is handed over, and a
  batch that is repeated keeps it.
- `sources/i/n` holds the files behind offset n, where source i is a folder of files: the offset itself is a mere count.

Pins. Spark may run a micro-batch again, after a crash or because a commit was lost. The index version of a batch is written
down before it is matched and never changed. So the second run sees the subscriptions that the first one saw, whatever was
changed in between: the output of a batch is a function of (batch, version). Pins live in the index, where a clean-up finds
which versions are still needed.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

from wherecast.spark.store import PINS, IndexStoreError, Store

if TYPE_CHECKING:
    from wherecast.spark.index import Index


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
        """The same for all attempts at this batch, and different for every other batch."""
        return f"{self.stream}/{int(self)}/{self.offsets}"

    @property
    def dead_letters(self) -> Batch:
        """The same batch for the sink of dead letters, which must differ from the sink of the matches."""
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

    def dead_letters(self) -> str | None:
        """What the stream is called where it writes its dead letters; None before its first start."""
        stream = self.stream()
        return None if stream is None else dead_letters_of(stream)

    def newest(self) -> int:
        """The last batch whose offsets Spark has written down; -1 if there is none."""
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


# Pins

#: Pins kept behind the newest one. Spark replays the last batch only; the others are for people.
_KEPT = 10


class Pins:
    """The pins of one stream, told from others by its checkpoint."""

    def __init__(self, index: Index, checkpoint: str) -> None:
        self._index = index
        self._folder = f"{PINS}/{stream_name(checkpoint)}"

    def pin(self, batch: int) -> int:
        """The version of a batch: the one pinned before, else the current one, pinned now and durably."""
        name = f"{self._folder}/{batch:012d}.json"
        while True:
            known = _read_pin(self._index.store, name)
            if known is not None:
                return known
            version = self._index.latest()
            if not self._index.store.create(name, json.dumps({"batch": batch, "version": version}).encode()):
                continue
            # A version may be cleaned away before its pin is there, but not while it is the current one.
            if version == self._index.latest():
                self._forget_before(batch - _KEPT)
                return version
            self._index.store.remove(name)

    def known(self) -> dict[int, int]:
        """The versions of the batches whose pins are kept, oldest first."""
        names = sorted(self._index.store.names(self._folder))
        versions = {
            int(name.removesuffix(".json")): _read_pin(self._index.store, f"{self._folder}/{name}") for name in names
        }
        return {batch: version for batch, version in versions.items() if version is not None}

    def clear(self) -> None:
        """Remove all pins: the stream begins anew."""
        self._index.store.remove(self._folder)

    def resume(self, newest: int) -> None:
        """Go on after batch `newest`, the last in the checkpoint; the next one is pinned anew.

        Raises IndexStoreError if later ones were run as well: then the checkpoint has lost its progress. One more than
        that may be: the pin survives a failure of the machine that the checkpoint's last file may not survive.
        """
        ahead = [batch for batch in self.known() if batch > newest]
        if ahead and max(ahead) > newest + 1:
            raise IndexStoreError(
                f"the checkpoint has lost its progress: batch {max(ahead)} was run, but its folder 'offsets' ends with "
                f"{newest if newest >= 0 else 'nothing'}, so that new events would be taken for old ones; restore the "
                f"checkpoint, or use a new checkpoint and a new sink"
            )
        for batch in ahead:
            self._index.store.remove(f"{self._folder}/{batch:012d}.json")

    def _forget_before(self, batch: int) -> None:
        for name in self._index.store.names(self._folder):
            if int(name.removesuffix(".json")) < batch:
                self._index.store.remove(f"{self._folder}/{name}")


def stream_name(checkpoint: str) -> str:
    """What a stream is called inside an index; the same for every way to write the place of its checkpoint."""
    return hashlib.sha256(Store(checkpoint).url.encode()).hexdigest()[:16]


def pinned_versions(store: Store) -> set[int]:
    """Versions that some stream may ask for again. Pins that are forgotten meanwhile are left out."""
    names = [f"{PINS}/{stream}/{name}" for stream in store.names(PINS) for name in store.names(f"{PINS}/{stream}")]
    return {version for name in names if (version := _read_pin(store, name)) is not None}


def _read_pin(store: Store, name: str) -> int | None:
    """The version of a pin; None if there is no such pin."""
    try:
        return int(json.loads(store.read(name))["version"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        raise IndexStoreError(f"the pin {store.url}/{name} is damaged; remove the stream's checkpoint") from None
