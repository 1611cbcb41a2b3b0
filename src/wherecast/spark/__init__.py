"""Wherecast on Spark: build an index of subscriptions, match events against it, batch and stream. Needs the extra `spark`.

>>> from wherecast import spark as ws
>>> session = ws.create_session()
>>> index = ws.Index.build(rules, "index", schema=events, id="rule_id", filter="condition")
>>> events.transform(index.match, columns=["severity"]).show()

`Index` has everything as methods. The functions beside it do the same, and also take the path of an index.
"""

from wherecast.spark.advance import advance
from wherecast.spark.build import Built, build_index
from wherecast.spark.changes import Applied, ChangesQuery, apply_changes, follow_changes
from wherecast.spark.follow import TableQuery
from wherecast.spark.index import Index
from wherecast.spark.match import Numbers, match
from wherecast.spark.progress import BatchReport, ChangeReport, Watch
from wherecast.spark.servers import Rebalancer, compact
from wherecast.spark.session import SessionError, create_session
from wherecast.spark.sinks.broker import BrokerSink as Broker
from wherecast.spark.sinks.delta import Delta
from wherecast.spark.sinks.foreach import Foreach
from wherecast.spark.sinks.iceberg import Iceberg
from wherecast.spark.sinks.jdbc import Jdbc
from wherecast.spark.sinks.kafka import Kafka
from wherecast.spark.sinks.parquet import Parquet
from wherecast.spark.sinks.sink import Sink, SinkError
from wherecast.spark.source import register_source
from wherecast.spark.store import IndexStoreError, StaleVersionError
from wherecast.spark.stream import Batch, MatchQuery, stream
from wherecast.spark.sync import SyncReport
from wherecast.spark.table_function import register_table_function

__all__ = [
    "Applied",
    "Batch",
    "BatchReport",
    "Broker",
    "Built",
    "ChangeReport",
    "ChangesQuery",
    "Delta",
    "Foreach",
    "Iceberg",
    "Index",
    "IndexStoreError",
    "Jdbc",
    "Kafka",
    "MatchQuery",
    "Numbers",
    "Parquet",
    "Rebalancer",
    "SessionError",
    "Sink",
    "SinkError",
    "StaleVersionError",
    "SyncReport",
    "TableQuery",
    "Watch",
    "advance",
    "apply_changes",
    "build_index",
    "compact",
    "create_session",
    "follow_changes",
    "match",
    "register_source",
    "register_table_function",
    "stream",
]
