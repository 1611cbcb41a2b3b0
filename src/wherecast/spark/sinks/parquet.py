"""Parquet files: an attempt beside, one manifest per batch, then moved into sight."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa
import pyarrow.parquet as pq

from wherecast.errors import SchemaError
from wherecast.spark.columns import FILE
from wherecast.spark.sinks.drafts import Drafts, attempt_prefix, write_empty
from wherecast.spark.sinks.sink import Sink, SinkError
from wherecast.spark.store import IndexStoreError, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wherecast.spark.config import SinkConfig
    from wherecast.spark.stream import Batch

_log = logging.getLogger(__name__)

_MANIFESTS, _ATTEMPTS = "_wherecast", "_attempts"
_OWNER = f"{_MANIFESTS}/stream.json"
#: Hadoop's setting for the file `_SUCCESS`, which says what our manifest says; a file is a few milliseconds of every batch.
_MARKER = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
#: Parquet's setting for a column: whether it tries a dictionary. Of ids that hardly repeat it fills one of 1 MB for every file and throws it away, which is
#: 6 % of a batch. So columns for which it did that go without, and every so many batches it may try again.
_DICTIONARY, _EVERY = "parquet.enable.dictionary", 50


class Parquet(Sink):
    """Parquet files under `path`, one folder `batch_id=n` per micro-batch: read it with `spark.read.parquet(path)`.

    `written_by="python"`: the tasks that match write the files themselves, so that what they find does not travel to Spark and is not copied there.
    Dead letters are written by Spark all the same. See `drafts` for what is refused.

    The first stream that writes a batch owns the sink; others are refused.

    `batch_column` names the folders. Spark reads it as a column and ignores a column of that name in the files. `partition_by` are
    columns that become folders inside: `batch_id=0/day=2024-06-01/`.

    A stream that has written batches before finds an empty folder only if its output was deleted, or if it is to write
    elsewhere from now on. The first is refused; `goes_on=True` says that it is the second.
    """

    needs = (("path",),)

    def __init__(
        self,
        path: str,
        *,
        batch_column: str = "batch_id",
        partition_by: Sequence[str] = (),
        goes_on: bool = False,
        written_by: Literal["spark", "python"] = "spark",
    ) -> None:
        if written_by not in ("spark", "python"):
            raise SinkError(f"written_by is {written_by!r}; expected 'spark' or 'python'")
        if written_by == "python" and partition_by:
            raise SinkError(
                "only Spark's own writer makes folders of columns; leave out written_by='python' or partition_by"
            )
        self._store = Store(path)
        self.path = self._store.url
        self.batch_column = batch_column
        self.partition_by = tuple(partition_by)
        self.goes_on = goes_on
        self.written_by = written_by
        # Columns without a dictionary in the last batch that tried; None: not known.
        self._plain: tuple[str, ...] | None = None

    @classmethod
    def of(cls, config: SinkConfig, application: str) -> Self:  # noqa: ARG003 - the folder knows its stream
        return cls(
            str(config.path),
            batch_column=config.batch_column,
            partition_by=config.partition_by,
            goes_on=config.goes_on,
            written_by=config.written_by,  # type: ignore[arg-type]  # the file was checked
        )

    def expect(self, columns: Sequence[str], found: str) -> Self:  # noqa: ARG002
        """Raises SchemaError if one of the columns has the name of the folders, or one to partition by is missing."""
        known = [name.lower() for name in columns]
        missing = next((name for name in self.partition_by if name.lower() not in known), None)
        if missing is not None:
            raise SchemaError(f"partition_by names the column {missing!r}, and the rows have {', '.join(columns)}")
        for name in columns:
            if name.lower() == self.batch_column.lower():
                raise SchemaError(
                    f"the column {name!r} would be replaced by the number of the batch when the files are read; rename "
                    f"it, or give the folders another name: Parquet(path, batch_column='...')"
                )
        return self

    def admit(self, stream: str | None) -> None:
        """The owner may come back; a new stream needs a sink without batches."""
        owner = self._owner()
        if owner is not None and owner != stream:
            raise self._stranger(owner, stream)
        if owner is None and stream is None and self._newest() >= 0:
            raise self._stranger("of an unknown id", stream)

    def holds(self, batch: Batch) -> bool:
        """A batch is in when its manifest is; a move that was cut short is done now."""
        self._claim(batch)
        manifest = self._read(_manifest(batch), "attempt")
        if manifest is None:
            return False
        if manifest.get("offsets", batch.offsets) != batch.offsets:
            raise SinkError(
                f"the sink {self.path} has batch {batch} of this stream, but from other source offsets: the checkpoint has "
                f"lost its progress and counts its batches anew, so that new events would be taken for old ones; restore "
                f"the checkpoint, or use a new checkpoint and a new sink"
            )
        self._show(str(manifest["attempt"]), batch)
        return True

    def drafts(self, spark: SparkSession) -> Drafts | None:
        """Beside attempts, which readers do not see either; None where Spark writes."""
        return Drafts.beside(self._store, _ATTEMPTS, spark) if self.written_by == "python" else None

    def write(self, matches: DataFrame, batch: Batch) -> None:
        """Write aside, commit by creating the manifest, then move into sight."""
        self.expect(matches.columns, "")
        self._claim(batch)
        attempt = f"{_ATTEMPTS}/{attempt_prefix(batch)}{secrets.token_hex(4)}"
        if FILE in matches.columns:
            self._take(matches, attempt)
        else:
            self._save(matches, attempt, batch)
        self._store.sync(attempt)
        manifest = {"batch": batch, "attempt": attempt, "stream": batch.stream, "offsets": batch.offsets}
        # If it is there already, a run that was thought dead was quicker.
        self._store.create(_manifest(batch), json.dumps(manifest).encode())
        self.holds(batch)

    def _take(self, matches: DataFrame, attempt: str) -> None:
        """Have tasks write files, and take those that they name. Tasks that failed, or were slower than their double, name nothing."""
        named = [row[0] for row in matches.select(FILE).collect() if row[0] is not None]
        self._store.gather(named, attempt)
        if not named:
            write_empty(self._store, f"{attempt}/part-00000.parquet", matches.drop(FILE).schema)

    def _save(self, matches: DataFrame, attempt: str, batch: int) -> None:
        """Have Spark write the files of an attempt."""
        writer = matches.write.option(_MARKER, "false")
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        plain = None if batch % _EVERY == 0 else self._plain
        for column in plain or ():
            writer = writer.option(f"{_DICTIONARY}#{column}", "false")
        writer.parquet(f"{self.path}/{attempt}")
        if plain is None:
            self._plain = self._find_plain(attempt)

    def _find_plain(self, attempt: str) -> tuple[str, ...] | None:
        """The columns for which Parquet has kept no dictionary, by one of the files; None if that has no rows or cannot be read."""
        file = self._store.open_any(attempt, ".parquet")
        if file is None:
            return None
        with file:
            try:
                footer = pq.read_metadata(file)
            except (OSError, pa.ArrowException) as error:  # an encrypted footer: what was written is as good
                _log.debug("columns without a dictionary are not known: %s", error)
                return None
        if footer.num_row_groups == 0:
            return None
        group = footer.row_group(0)
        columns = (group.column(number) for number in range(group.num_columns))
        return tuple(column.path_in_schema for column in columns if not column.has_dictionary_page)

    def _claim(self, batch: Batch) -> None:
        """Make the stream of a batch the owner if there is none, in one step; refuse it if there is another."""
        owner = self._owner()
        if owner is None:
            # Written by a release that did not record the owner: the stream that goes on after these batches takes it over.
            if self._newest() > batch:
                raise self._stranger("of an unknown id", batch.stream)
            if batch > 0 and self._newest() < 0 and not self.goes_on:
                raise SinkError(
                    f"the sink {self.path} is empty, and the stream is at batch {int(batch)}: its earlier output was deleted or is "
                    f"elsewhere; restore it, start with a new checkpoint to write all of it again, or say that the stream goes "
                    f"on in a new folder: Parquet(path, goes_on=True), in a file goes_on = true"
                )
            self._store.create(_OWNER, json.dumps({"stream": batch.stream}).encode())
            owner = self._owner()
        if owner != batch.stream:
            raise self._stranger(str(owner), batch.stream)

    def _stranger(self, owner: str, stream: str | None) -> SinkError:
        return SinkError(
            f"the sink {self.path} holds batches of another stream ({owner}; this one is {stream or 'new'}), and both count "
            f"from 0: batches of one would be taken for the other's; give this stream a sink of its own, or start it with "
            f"the checkpoint that wrote this sink"
        )

    def _owner(self) -> str | None:
        known = self._read(_OWNER, "stream")
        return None if known is None else str(known["stream"])

    def _newest(self) -> int:
        """The highest batch number in the sink; -1 if there is none."""
        names = (name.removesuffix(".json") for name in self._store.names(_MANIFESTS))
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def _read(self, name: str, key: str) -> dict[str, Any] | None:
        """One of our files, which must have a key; None if it is not there."""
        try:
            content = json.loads(self._store.read(name))
        except FileNotFoundError:
            return None
        except ValueError:
            content = None
        if not isinstance(content, dict) or key not in content:
            raise IndexStoreError(f"{self.path}/{name} is damaged; restore it")
        return content

    def _show(self, attempt: str, batch: int) -> None:
        if self._store.exists(attempt):
            self._store.move(attempt, f"{self.batch_column}={batch}")
        for name in self._store.names(_ATTEMPTS):  # of runs that were killed, and drafts
            if name < attempt_prefix(batch + 1):
                self._store.remove(f"{_ATTEMPTS}/{name}")


def _manifest(batch: int) -> str:
    return f"{_MANIFESTS}/{batch:012d}.json"
