"""Kafka in: events and changes as JSON messages, read by the rule of `messages`.

Spark's connector is a package of its own, `connector_package`, which the session must have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wherecast.language.events.schema import Schema
from wherecast.spark import messages as _messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def connector_package(version: str | None = None) -> str:
    """Maven coordinates of the connector for a Spark version, by default the installed one: for `spark.jars.packages`."""
    if version is None:
        import pyspark

        version = pyspark.__version__
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"


def read_events(
    spark: SparkSession, servers: str, topic: str, schema: Schema | StructType, **options: str | int
) -> DataFrame:
    """A stream of the events in a topic, for `stream`.

    Args:
        spark: A session that has the connector.
        servers: Addresses of brokers, `host:port,host:port`.
        topic: The topic; several are separated by commas.
        schema: Of the events, or their columns as Spark names them, which may be more than the attributes.
        **options: The connector's own, such as `maxOffsetsPerTrigger=10_000`. A stream that has no checkpoint yet begins
            with the oldest message unless `startingOffsets` says otherwise.
    """
    return parse_events(read_messages(spark, servers, topic, **options), schema)


def read_changes(
    spark: SparkSession,
    servers: str,
    topic: str,
    id_type: str,
    columns: StructType | None = None,
    **options: str | int,
) -> DataFrame:
    """A stream of the changes in a topic, for `follow_changes`; `id_type` is that of the index, `bigint` or `string`.

    `columns` are the rule columns of the index.

    Changes are applied in the order of their sequence numbers and each number once, so they must also arrive in that
    order: use a topic with one partition.
    """
    return parse_changes(read_messages(spark, servers, topic, **options), id_type, columns)


def read_messages(spark: SparkSession, servers: str, topic: str, **options: str | int) -> DataFrame:
    """A stream of messages as the connector gives them."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return reader.options(**{"startingOffsets": "earliest", **options}).load()


def parse_events(messages: DataFrame, schema: Schema | StructType) -> DataFrame:
    """Events of messages (`value`, `topic`, `partition`, `offset`), batch or stream."""
    return _messages.parse_events(_placed(messages), schema.to_spark() if isinstance(schema, Schema) else schema)


def parse_changes(messages: DataFrame, id_type: str, columns: StructType | None = None) -> DataFrame:
    """Changes of messages (`value`, `topic`, `partition`, `offset`), batch or stream."""
    return _messages.parse_changes(_placed(messages), id_type, columns=columns)


def _placed(messages: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    return messages.select(
        F.concat_ws("", "topic", F.lit("/"), "partition", F.lit("@"), "offset", F.lit(": ")).alias(_messages.PLACE),
        F.col("value").cast("string").alias(_messages.VALUE),
    )
