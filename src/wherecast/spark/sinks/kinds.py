"""The kinds of sinks that a pipeline's file can name. A new kind is a module of this folder and a row here."""

from __future__ import annotations

from wherecast.spark.sinks.broker import BrokerSink
from wherecast.spark.sinks.delta import Delta
from wherecast.spark.sinks.iceberg import Iceberg
from wherecast.spark.sinks.jdbc import Jdbc
from wherecast.spark.sinks.kafka import Kafka
from wherecast.spark.sinks.parquet import Parquet
from wherecast.spark.sinks.sink import Sink

KINDS: dict[str, type[Sink]] = {
    "parquet": Parquet,
    "kafka": Kafka,
    "delta": Delta,
    "iceberg": Iceberg,
    "jdbc": Jdbc,
    "broker": BrokerSink,
}
