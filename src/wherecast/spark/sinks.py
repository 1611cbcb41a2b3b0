"""Sinks: where the matches of a micro-batch go, once.

Spark may hand the same batch over again. A sink is exactly-once when writing batch n a second time leaves it as it was:

| sink      | how                                                                | guarantee                           |
|-----------|--------------------------------------------------------------------|-------------------------------------|
| `Parquet` | an attempt beside, one manifest per batch, then moved into sight   | exactly once; refuses other streams |
| `Delta`   | the table takes a transaction number once per stream               | exactly once                        |
| `Kafka`   | keys name stream, batch and row, equal in every attempt            | at least once, repeats by their key |
| `Foreach` | your function, told the batch and where it comes from              | what your function makes of it      |

Batch numbers of two streams are the same, so a sink that looked at numbers alone would take the batches of one stream for
repetitions of the other's, and drop them. `Batch` says which stream and which source offsets a batch comes from.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from wherecast.errors import SchemaError, WherecastError
from wherecast.spark.columns import quoted
from wherecast.spark.store import IndexStoreError, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from wherecast.spark.stream import Batch

_MANIFESTS, _ATTEMPTS = "_wherecast", "_attempts"
_OWNER = f"{_MANIFESTS}/stream.json"


class SinkError(WherecastError):
    """A sink that cannot take the batches of a stream; the message says why and what to do."""


class Sink(Protocol):
    """Takes the matches of a micro-batch."""

    def admit(self, stream: str | None) -> None:
        """Raises SinkError if the sink belongs to another stream; None is a stream that starts for the first time."""

    def holds(self, batch: Batch) -> bool:
        """Whether this batch was written completely; then it is not matched again. Raises SinkError."""

    def write(self, matches: DataFrame, batch: Batch) -> None:
        """Write a batch. Writing it twice must have the same result as writing it once."""


@contextmanager
def _computed(rows: DataFrame) -> Iterator[DataFrame]:
    """Rows that are computed whole before the first is written, for writers that are not a part of Spark's plan.

    Such a writer would also compute them out of sight of the stream's observations, which would wait for ever.
    """
    held = rows.persist()
    try:
        held.count()
        yield held
    finally:
        held.unpersist()


class Parquet:
    """Parquet files under `path`, one folder `batch_id=n` per micro-batch: read it with `spark.read.parquet(path)`.

    The first stream that writes a batch owns the sink; others are refused.

    `batch_column` names the folders. Spark reads it as a column and ignores a column of that name in the files.
    """

    def __init__(self, path: str, *, batch_column: str = "batch_id") -> None:
        self._store = Store(path)
        self.path = self._store.url
        self.batch_column = batch_column

    def check_columns(self, names: Iterable[str]) -> None:
        """Raises SchemaError if one of the columns has the name of the folders."""
        for name in names:
            if name.lower() == self.batch_column.lower():
                raise SchemaError(
                    f"the column {name!r} would be replaced by the number of the batch when the files are read; rename "
                    f"it, or give the folders another name: Parquet(path, batch_column='...')"
                )

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

    def write(self, matches: DataFrame, batch: Batch) -> None:
        """Write aside, commit by creating the manifest, then move into sight."""
        self.check_columns(matches.columns)
        self._claim(batch)
        attempt = f"{_ATTEMPTS}/{_attempt_prefix(batch)}{secrets.token_hex(4)}"
        matches.write.parquet(f"{self.path}/{attempt}")
        self._store.sync(attempt)
        manifest = {"batch": batch, "attempt": attempt, "stream": batch.stream, "offsets": batch.offsets}
        # If it is there already, a run that was thought dead was quicker.
        self._store.create(_manifest(batch), json.dumps(manifest).encode())
        self.holds(batch)

    def _claim(self, batch: Batch) -> None:
        """Make the stream of a batch the owner if there is none, in one step; refuse it if there is another."""
        owner = self._owner()
        if owner is None:
            # Written by a release that did not record the owner: the stream that goes on after these batches takes it over.
            if self._newest() > batch:
                raise self._stranger("of an unknown id", batch.stream)
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
        for name in self._store.names(_ATTEMPTS):  # of runs that were killed
            if name.startswith(_attempt_prefix(batch)):
                self._store.remove(f"{_ATTEMPTS}/{name}")


def _attempt_prefix(batch: int) -> str:
    return f"{batch:012d}-"


def _manifest(batch: int) -> str:
    return f"{_MANIFESTS}/{batch:012d}.json"


class Delta:
    """A Delta table; needs delta-spark in the session.

    The table skips batch numbers that it has already from the same writer. A writer is named by `application` and the id
    of the stream, so several streams may write to one table.
    """

    def __init__(self, path: str, application: str) -> None:
        self.path = path
        self.application = application

    def admit(self, stream: str | None) -> None:
        """All streams: the table tells them apart."""

    def holds(self, batch: Batch) -> bool:  # noqa: ARG002 - the table itself refuses what it has
        return False

    def write(self, matches: DataFrame, batch: Batch) -> None:
        """Append in a transaction that the table takes once per (application, stream, batch)."""
        if not _has_delta(matches.sparkSession):
            raise WherecastError("this Spark session has no Delta Lake; add the package io.delta:delta-spark to it")
        with _computed(matches) as rows:
            writer = rows.write.format("delta").mode("append")
            writer = writer.option("txnAppId", f"{self.application}-{batch.stream}").option("txnVersion", int(batch))
            writer.save(self.path)


def _has_delta(spark: SparkSession) -> bool:
    return "delta" in (spark.conf.get("spark.sql.extensions", "") or "").lower()


@dataclass(frozen=True, slots=True)
class Kafka:
    """A Kafka topic: one message per match, JSON, keyed so that a consumer can tell a repeated message.

    The key is `stream/batch/offsets/subscription/digest/number`: the first three name the batch (`Batch.key`), the digest is
    that of the message, the number tells equal messages of a batch apart. None of it depends on the attempt. If an attempt
    dies half way, a part of the batch is in the topic, and the next attempt writes all of it again with the same keys. A consumer
    that drops messages with a known key sees every match once.
    """

    topic: str
    servers: str
    options: Mapping[str, str] = field(default_factory=dict)
    found: str | None = None
    """The column with what was found, empty: none; `stream` sets it. By default `subscription` or `subscriptions`."""

    def admit(self, stream: str | None) -> None:
        """All streams: keys tell their messages apart."""

    def holds(self, batch: Batch) -> bool:  # noqa: ARG002 - a topic cannot be asked
        return False

    def write(self, matches: DataFrame, batch: Batch) -> None:
        """Send a message per row."""
        with _computed(_keyed(matches, batch, self.found)) as messages:
            writer = messages.write.format("kafka").option("kafka.bootstrap.servers", self.servers)
            writer.option("topic", self.topic).options(**self.options).save()


def _keyed(matches: DataFrame, batch: Batch, found: str | None = None) -> DataFrame:
    """`key` and `value` of messages, the same in every attempt at a batch."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import ArrayType, StructType

    if found is None:
        found = "subscriptions" if "subscriptions" in matches.columns else "subscription"
    name = F.lit("")
    if found in matches.columns:
        kind = matches.schema[found].dataType
        if isinstance(kind, ArrayType):  # servers answer in any order
            ordered = F.array_sort(quoted(found))
            if isinstance(kind.elementType, StructType):  # an id, and rule columns, which may have no order
                id = kind.elementType.names[0]
                ordered = F.array_sort(quoted(found), lambda a, b: F.when(a[id] < b[id], -1).otherwise(1))
            matches = matches.withColumn(found, ordered)
        else:
            name = quoted(found).cast("string")
    content = F.to_json(F.struct(*map(quoted, matches.columns)))
    messages = matches.select(name.alias("name"), content.alias("value")).withColumn("digest", F.sha2("value", 256))
    # Equal messages are interchangeable, so it does not matter which of them gets which number.
    number = F.row_number().over(Window.partitionBy("name", "digest").orderBy("digest"))
    return messages.select(F.concat_ws("/", F.lit(batch.key), "name", "digest", number).alias("key"), "value")


@dataclass(frozen=True, slots=True)
class Foreach:
    """Anything else: `function(matches, batch)` is called for every batch, and again for one that is replayed.

    `batch` is the batch number. It also has a `key`, which is the same for every attempt at a batch and differs between
    streams, and between batches of a stream that starts again: to write a batch once, remember the key, not the number.

    Matches are computed exactly once, however often the function reads them.
    """

    function: Callable[[DataFrame, Batch], None]

    def admit(self, stream: str | None) -> None:
        """All streams: the function decides."""

    def holds(self, batch: Batch) -> bool:  # noqa: ARG002 - the function decides
        return False

    def write(self, matches: DataFrame, batch: Batch) -> None:
        with _computed(matches) as rows:
            self.function(rows, batch)
