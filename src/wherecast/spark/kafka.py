"""Kafka in: events and changes as JSON messages, with the messages that are neither kept and named.

Spark's connector is a package of its own, `connector_package`, which the session must have. A message that is no JSON
object, or has a value of the wrong type, becomes a row like any other: it carries its text in `__wherecast_message` and the
reason in `__wherecast_error`, is matched with nothing, and ends where the stream's dead letters go. One bad message stops
nobody.

Of a JSON object, fields are found by name; those that the schema does not have are left out, those that the message does
not have are NULL. A number where the schema says string is taken as its text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from wherecast.language.schema import Schema
from wherecast.spark.names import ERROR, MESSAGE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_READ, _EVENT, _TEXTS, _CORRUPT = "__read", "__event", "__texts", "__corrupt"


def connector_package(version: str | None = None) -> str:
    """Maven coordinates of the connector for a Spark version, by default the installed one: for `spark.jars.packages`."""
    if version is None:
        import pyspark

        version = pyspark.__version__
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"


def read_events(spark: SparkSession, servers: str, topic: str, schema: Schema, **options: str | int) -> DataFrame:
    """A stream of the events in a topic, for `stream`.

    Args:
        spark: A session that has the connector.
        servers: Addresses of brokers, `host:port,host:port`.
        topic: The topic; several are separated by commas.
        schema: Of the events.
        **options: The connector's own, such as `maxOffsetsPerTrigger=10_000`. A stream that has no checkpoint yet begins
            with the oldest message unless `startingOffsets` says otherwise.
    """
    return parse_events(read_messages(spark, servers, topic, **options), schema)


def read_changes(spark: SparkSession, servers: str, topic: str, id_type: str, **options: str | int) -> DataFrame:
    """A stream of the changes in a topic, for `follow_changes`; `id_type` is that of the index, `bigint` or `string`.

    Changes are applied in the order of their sequence numbers and each number once, so they must also arrive in that
    order: use a topic with one partition.
    """
    return parse_changes(read_messages(spark, servers, topic, **options), id_type)


def read_messages(spark: SparkSession, servers: str, topic: str, **options: str | int) -> DataFrame:
    """A stream of messages as the connector gives them."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return reader.options(**{"startingOffsets": "earliest", **options}).load()


def parse_events(messages: DataFrame, schema: Schema) -> DataFrame:
    """Events of messages (`value`, `topic`, `partition`, `offset`), batch or stream."""
    return _parse(messages, schema.to_spark())


def parse_changes(messages: DataFrame, id_type: str) -> DataFrame:
    """Changes of messages (`value`, `topic`, `partition`, `offset`), batch or stream."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StructType

    declared = f"sequence bigint, op string, id {id_type}, filter string, priority float"
    op = F.col(_EVENT)["op"]
    wrong = F.when(~op.isin("upsert", "delete"), F.concat(F.lit("op is "), op, F.lit(", expected upsert or delete")))
    return _parse(messages, cast("StructType", StructType.fromDDL(declared)), ("sequence", "op", "id"), (wrong,))


def _parse(
    messages: DataFrame, struct: StructType, required: tuple[str, ...] = (), objections: tuple[Column, ...] = ()
) -> DataFrame:
    """The fields of JSON objects as columns, with `__wherecast_message` and `__wherecast_error` for what does not fit."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StringType, StructField, StructType

    read = messages.select(
        F.concat_ws("", "topic", F.lit("/"), "partition", F.lit("@"), "offset", F.lit(": ")).alias("place"),
        F.col("value").cast("string").alias("value"),
    )
    read = read.select("*", _read_json(struct).alias(_READ))
    read = read.select("*", F.col(_READ)[_EVENT].alias(_EVENT))
    event = F.col(_EVENT)
    misfit = event.isNull() | F.col(_READ)[_CORRUPT].isNotNull()
    for name in required:
        misfit |= event[name].isNull()
    for reason in objections:
        misfit |= reason.isNotNull()
    # Read as text, every JSON value fits: what is missing in the other reading is what did not.
    texts = StructType([StructField(f.name, StringType()) for f in struct.fields])
    read = read.select("*", F.when(misfit, _read_json(texts)).alias(_TEXTS))
    return read.select(
        *(event[f.name].alias(f.name) for f in struct.fields),
        F.when(misfit, F.make_valid_utf8("value")).alias(MESSAGE),
        F.when(misfit, F.concat("place", _reason(struct, required, objections))).alias(ERROR),
    )


def _read_json(struct: StructType) -> Column:
    """`value` as a struct of `__event`, and `__corrupt` where it is no JSON or a field does not fit.

    Spark reads the first JSON value and does not look at what follows it; inside an object it has to.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StringType, StructField, StructType

    wrapped = F.concat(F.lit(f'{{"{_EVENT}":'), F.col("value"), F.lit("}"))
    around = StructType([StructField(_EVENT, struct), StructField(_CORRUPT, StringType())])
    return F.from_json(wrapped, around, {"columnNameOfCorruptRecord": _CORRUPT})


def _reason(struct: StructType, required: tuple[str, ...], objections: tuple[Column, ...]) -> Column:
    """What is wrong with a message that does not fit."""
    from pyspark.sql import functions as F  # noqa: N812

    event, texts = F.col(_EVENT), F.col(_TEXTS)[_EVENT]
    wrong = [
        F.when(
            texts[f.name].isNotNull() & event[f.name].isNull(),
            F.concat(F.lit(f"{f.name} is "), texts[f.name], F.lit(f", expected {f.dataType.simpleString()}")),
        )
        for f in struct.fields
    ]
    missing = [F.when(texts[name].isNull(), F.lit(f"{name} is missing")) for name in required]
    found = F.concat_ws("; ", *wrong, *missing, *objections)
    return (
        F.when(F.coalesce(F.trim(F.col("value")), F.lit("")) == "", F.lit("the message is empty"))
        .when(texts.isNull() | F.col(_TEXTS)[_CORRUPT].isNotNull(), F.lit("the message is no JSON object"))
        .when(found == "", F.lit("a value does not fit the schema"))
        .otherwise(found)
    )
