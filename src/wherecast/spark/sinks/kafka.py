"""Kafka topics: keys name stream, batch and row, equal in every attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

from wherecast.spark.columns import quoted
from wherecast.spark.sinks.sink import Sink, computed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from wherecast.spark.config import SinkConfig
    from wherecast.spark.stream import Batch


@dataclass(frozen=True, slots=True)
class Kafka(Sink):
    """A Kafka topic: one message per match, JSON, keyed so that a consumer can tell a repeated message.

    The key is `stream/batch/offsets/subscription/digest/number`: the first three name the batch (`Batch.key`), the digest is
    that of the message, the number tells equal messages of a batch apart. None of it depends on the attempt. If an attempt
    dies half way, a part of the batch is in the topic, and the next attempt writes all of it again with the same keys. A consumer
    that drops messages with a known key sees every match once.
    """

    needs: ClassVar = (("servers",), ("topic",))

    topic: str
    servers: str
    options: Mapping[str, str] = field(default_factory=dict)
    found: str | None = None
    """The column with what was found, empty: none; `expect` sets it. By default `subscription` or `subscriptions`."""

    @classmethod
    def of(cls, config: SinkConfig, application: str) -> Self:  # noqa: ARG003 - keys have the stream
        return cls(str(config.topic), str(config.servers), config.options)

    def expect(self, columns: Sequence[str], found: str) -> Self:  # noqa: ARG002
        return replace(self, found=found)

    def write(self, matches: DataFrame, batch: Batch) -> None:
        """Send a message per row."""
        with computed(_keyed(matches, batch, self.found)) as messages:
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
