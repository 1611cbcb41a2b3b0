"""Wherecast on Spark: build an index of subscriptions, match events against it, batch and stream. Needs the extra `spark`.

>>> from wherecast import spark as ws
>>> session = ws.create_session()
>>> built = ws.build_index(subscriptions, schema, "index")
>>> events.transform(ws.match, "index").show()
"""

from wherecast.spark.build import Built, build_index
from wherecast.spark.changes import Applied, apply_changes
from wherecast.spark.checkpoint import Batch
from wherecast.spark.compact import compact
from wherecast.spark.errors import IndexStoreError, SinkError, StaleVersionError
from wherecast.spark.index import Index
from wherecast.spark.match import match
from wherecast.spark.observed import Numbers
from wherecast.spark.progress import Watch
from wherecast.spark.rebalance import Rebalancer
from wherecast.spark.reports import BatchReport, ChangeReport
from wherecast.spark.session import SessionError, create_session
from wherecast.spark.sinks import Delta, Foreach, Kafka, Parquet, Sink
from wherecast.spark.stream import ChangesQuery, MatchQuery, follow_changes, stream
from wherecast.spark.table_function import register_table_function

__all__ = [
    "Applied",
    "Batch",
    "BatchReport",
    "Built",
    "ChangeReport",
    "ChangesQuery",
    "Delta",
    "Foreach",
    "Index",
    "IndexStoreError",
    "Kafka",
    "MatchQuery",
    "Numbers",
    "Parquet",
    "Rebalancer",
    "SessionError",
    "Sink",
    "SinkError",
    "StaleVersionError",
    "Watch",
    "apply_changes",
    "build_index",
    "compact",
    "create_session",
    "follow_changes",
    "match",
    "register_table_function",
    "stream",
]
