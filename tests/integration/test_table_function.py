"""Matching from SQL gives what `match` gives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from wherecast import spark as ws
from wherecast.errors import SchemaError
from wherecast.spark.store import IndexStoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = {"symbol": "string", "price": "double"}
FILTERS = [f"symbol IN ('S{n % 7}', 'S{n % 5}') AND price < {n}" for n in range(40)] + ["price > 30", "symbol IS NULL"]
EVENTS = pa.table(
    {
        "number": list(range(300)),
        "symbol": [None if n % 31 == 0 else f"S{n % 9}" for n in range(300)],
        "price": [float(n % 41) for n in range(300)],
    }
)


@pytest.fixture
def events(spark: SparkSession) -> str:
    spark.createDataFrame(EVENTS).repartition(2).createOrReplaceTempView("quotes")
    return "quotes"


def build(spark: SparkSession, path: Path, strategy: Any, ids: list[Any]) -> None:
    subscriptions = spark.createDataFrame(pa.table({"id": ids, "filter": FILTERS}))
    ws.build_index(subscriptions, SCHEMA, str(path), strategy=strategy, servers=3)


@pytest.mark.parametrize(
    ("strategy", "form"), [("broadcast", int), ("event-space", str), ("event-space", int), ("filter-set", str)]
)
def test_equals_match(spark: SparkSession, tmp_path: Path, events: str, strategy: str, form: type) -> None:
    """Every pair once, whatever the plan, ids in their own type; SQL goes on from there."""
    build(spark, tmp_path, strategy, [form(n) for n in range(len(FILTERS))])
    ws.register_table_function(spark, str(tmp_path), columns="number BIGINT, symbol STRING, price DOUBLE")
    found = spark.sql(f"SELECT * FROM wherecast_match(TABLE({events}))")
    assert found.columns == ["number", "symbol", "price", "subscription"]
    expected = ws.match(spark.table(events), str(tmp_path)).select(*found.columns)
    assert Counter(map(tuple, found.collect())) == Counter(map(tuple, expected.collect()))
    query = f"SELECT count(*) FROM wherecast_match(TABLE(SELECT symbol, price FROM {events} WHERE price > 30))"
    assert spark.sql(query).first()[0] == expected.where("price > 30").count()


def test_columns_by_default(spark: SparkSession, tmp_path: Path, events: str) -> None:
    """The attributes of the index come back, others do not; a column that the table lacks is NULL."""
    build(spark, tmp_path, "broadcast", list(range(len(FILTERS))))
    ws.register_table_function(spark, str(tmp_path), "alerts")
    found = spark.sql(f"SELECT * FROM alerts(TABLE({events}))")
    assert found.columns == ["symbol", "price", "subscription"]
    lacking = spark.sql(f"SELECT DISTINCT symbol, subscription FROM alerts(TABLE(SELECT price FROM {events}))")
    assert {tuple(row) for row in lacking.collect()} == {(None, 40), (None, 41)}


def test_version_is_fixed_until_registered_again(spark: SparkSession, tmp_path: Path, events: str) -> None:
    """Changes are seen by functions registered after them."""
    build(spark, tmp_path, "event-space", list(range(len(FILTERS))))
    ws.register_table_function(spark, str(tmp_path))
    query = f"SELECT count(*) FROM wherecast_match(TABLE({events})) WHERE subscription = 7000"
    log = pa.table({"sequence": [1], "op": ["upsert"], "id": [7000], "filter": ["symbol = 'S8'"]})
    ws.apply_changes(spark.createDataFrame(log), str(tmp_path))
    assert spark.sql(query).first()[0] == 0
    ws.register_table_function(spark, str(tmp_path))
    assert spark.sql(query).first()[0] == EVENTS["symbol"].to_pylist().count("S8")
    ws.register_table_function(spark, str(tmp_path), version=1)
    assert spark.sql(query).first()[0] == 0


def test_refused(spark: SparkSession, tmp_path: Path) -> None:
    """No index, and a column that matching adds, are refused at registration."""
    with pytest.raises(IndexStoreError, match="there is no index"):
        ws.register_table_function(spark, str(tmp_path / "nowhere"))
    build(spark, tmp_path, "broadcast", list(range(len(FILTERS))))
    with pytest.raises(SchemaError, match="'subscription', and matching adds"):
        ws.register_table_function(spark, str(tmp_path), columns="symbol STRING, subscription BIGINT")
