"""Sinks: where the matches of a micro-batch go, once.

Spark may hand the same batch over again. A sink is exactly-once when writing batch n a second time leaves it as it was:

| sink      | how                                                                  | guarantee                          |
|-----------|----------------------------------------------------------------------|------------------------------------|
| `Parquet` | an attempt beside, one manifest per batch, then moved into sight      | exactly once                       |
| `Delta`   | the table's own transaction number is the batch number               | exactly once                       |
| `Kafka`   | keys name batch and row, equal in every attempt                      | at least once, repeats by their key |
| `Foreach` | a function of yours, told the batch number                            | what your function makes of it     |
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from wherecast.errors import SchemaError, WherecastError
from wherecast.spark.errors import IndexStoreError
from wherecast.spark.names import quoted
from wherecast.spark.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MANIFESTS, _ATTEMPTS = "_wherecast", "_attempts"


class Sink(Protocol):
    """Takes the matches of a micro-batch."""

    def holds(self, batch: int) -> bool:
        """Whether this batch is in it already, wholly; then it need not be matched again."""

    def write(self, matches: DataFrame, batch: int) -> None:
        """Write a batch; a second time must not add to the first."""


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

    `batch_column` is what the folders are called. Spark reads it as a column, in place of one of that name in the files.
    """

    def __init__(self, path: str, *, batch_column: str = "batch_id") -> None:
        self._store = Store(path)
        self.path = self._store.url
        self.batch_column = batch_column

    def check_columns(self, names: Iterable[str]) -> None:
        """Raises SchemaError if one of the columns is called as the folders are."""
        for name in names:
            if name.lower() == self.batch_column.lower():
                raise SchemaError(
                    f"the column {name!r} would be replaced by the number of the batch when the files are read; rename "
                    f"it, or give the folders another name: Parquet(path, batch_column='...')"
                )

    def holds(self, batch: int) -> bool:
        """A batch is in when its manifest is; a move that was cut short is done now."""
        attempt = self._attempt_of(batch)
        if attempt is None:
            return False
        self._show(attempt, batch)
        return True

    def write(self, matches: DataFrame, batch: int) -> None:
        """Write aside, commit by creating the manifest, then move into sight."""
        self.check_columns(matches.columns)
        attempt = f"{_ATTEMPTS}/{_attempt_prefix(batch)}{secrets.token_hex(4)}"
        matches.write.parquet(f"{self.path}/{attempt}")
        # If it is there already, a run that was thought dead was quicker.
        self._store.create(_manifest(batch), json.dumps({"batch": batch, "attempt": attempt}).encode())
        self._show(str(self._attempt_of(batch)), batch)

    def _attempt_of(self, batch: int) -> str | None:
        try:
            return str(json.loads(self._store.read(_manifest(batch)))["attempt"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError):
            raise IndexStoreError(
                f"{self.path}/{_manifest(batch)} is damaged; restore it or remove the batch"
            ) from None

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

    `application` names the stream to the table, which skips batch numbers that it has from that name already: another
    stream into the same table, and one that begins anew with a new checkpoint, needs another name.
    """

    def __init__(self, path: str, application: str) -> None:
        self.path = path
        self.application = application

    def holds(self, batch: int) -> bool:  # noqa: ARG002 - the table itself refuses what it has
        return False

    def write(self, matches: DataFrame, batch: int) -> None:
        """Append in a transaction that the table takes once per (application, batch)."""
        if not _has_delta(matches.sparkSession):
            raise WherecastError("this Spark session has no Delta Lake; add the package io.delta:delta-spark to it")
        with _computed(matches) as rows:
            writer = rows.write.format("delta").mode("append")
            writer.option("txnAppId", self.application).option("txnVersion", batch).save(self.path)


def _has_delta(spark: SparkSession) -> bool:
    return "delta" in (spark.conf.get("spark.sql.extensions", "") or "").lower()


@dataclass(frozen=True, slots=True)
class Kafka:
    """A Kafka topic: one message per match, JSON, keyed so that a consumer can tell a repeated message.

    The key is `batch/subscription/digest/number`: the digest is that of the message, the number tells equal messages of a
    batch apart. None of it depends on the attempt. One that dies half way leaves a part of the batch in the topic, and the
    next writes all of it again, with the same keys: who drops messages whose key was there sees every match once.
    """

    topic: str
    servers: str
    options: Mapping[str, str] = field(default_factory=dict)
    found: str | None = None
    """The column with what was found, empty: none; `stream` sets it. By default `subscription` or `subscriptions`."""

    def holds(self, batch: int) -> bool:  # noqa: ARG002 - a topic cannot be asked
        return False

    def write(self, matches: DataFrame, batch: int) -> None:
        """Send a message per row."""
        with _computed(_keyed(matches, batch, self.found)) as messages:
            writer = messages.write.format("kafka").option("kafka.bootstrap.servers", self.servers)
            writer.option("topic", self.topic).options(**self.options).save()


def _keyed(matches: DataFrame, batch: int, found: str | None = None) -> DataFrame:
    """`key` and `value` of messages, the same in every attempt at a batch."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import ArrayType

    if found is None:
        found = "subscriptions" if "subscriptions" in matches.columns else "subscription"
    name = F.lit("")
    if found in matches.columns:
        if isinstance(matches.schema[found].dataType, ArrayType):  # servers answer in any order
            matches = matches.withColumn(found, F.array_sort(quoted(found)))
        else:
            name = quoted(found).cast("string")
    content = F.to_json(F.struct(*map(quoted, matches.columns)))
    messages = matches.select(name.alias("name"), content.alias("value")).withColumn("digest", F.sha2("value", 256))
    # Equal messages are interchangeable, so it does not matter which of them gets which number.
    number = F.row_number().over(Window.partitionBy("name", "digest").orderBy("digest"))
    return messages.select(F.concat_ws("/", F.lit(str(batch)), "name", "digest", number).alias("key"), "value")


@dataclass(frozen=True, slots=True)
class Foreach:
    """Anything else: `function(matches, batch)` is called for every batch, and again for one that is replayed.

    Matches are computed once, however often the function looks at them, even if never.
    """

    function: Callable[[DataFrame, int], None]

    def holds(self, batch: int) -> bool:  # noqa: ARG002 - the function decides
        return False

    def write(self, matches: DataFrame, batch: int) -> None:
        with _computed(matches) as rows:
            self.function(rows, batch)
