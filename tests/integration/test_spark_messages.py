"""Messages in and out, without a broker: how JSON is read, and how keys are made."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from wherecast import spark as ws
from wherecast.language.schema import Schema
from wherecast.spark import kafka
from wherecast.spark.sinks import _keyed
from wherecast.spark.stream import Reports

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = Schema.of({"symbol": "string", "price": "double", "volume": "long", "place.zip": "long"})
GOOD: dict[bytes, tuple[Any, ...]] = {
    b'{"symbol": "A", "price": 7, "volume": 1}': ("A", 7.0, 1, None),
    b'{"symbol": "A", "other": {"x": 1}, "place": {"zip": 5}}': ("A", None, None, 5),
    b'{"symbol": 5, "price": null}': ("5", None, None, None),
    b' {} ': (None, None, None, None),
}  # fmt: skip
BAD: dict[bytes | None, str] = {
    None: "the message is empty",
    b"": "the message is empty",
    b"  ": "the message is empty",
    b"nonsense": "the message is no JSON object",
    b'{"symbol": "A"': "the message is no JSON object",
    b'{"symbol": "A"} and more': "the message is no JSON object",
    b'{"symbol": "A"}{"symbol": "B"}': "the message is no JSON object",
    b'[{"symbol": "A"}]': "the message is no JSON object",
    b"null": "the message is no JSON object",
    b"5": "the message is no JSON object",
    b'"x"': "the message is no JSON object",
    b"\xff\xfe{": "the message is no JSON object",
    b'{"price": "x", "volume": 1.5}': "price is x, expected double; volume is 1.5, expected bigint",
    b'{"price": {"a": 1}, "volume": [1]}': 'price is {"a":1}, expected double; volume is [1], expected bigint',
    b'{"volume": 99999999999999999999}': "volume is 99999999999999999999, expected bigint",
    b'{"place": {"zip": "q"}}': "a value does not fit the schema",
}
CHANGES = {
    b'{"sequence": 1, "op": "upsert", "id": 4, "filter": "price > 1"}': None,
    b'{"sequence": 2, "op": "delete", "id": 4}': None,
    b'{"op": "upsert", "id": 4}': "sequence is missing",
    b'{"sequence": 1, "op": "set", "id": 4}': "op is set, expected upsert or delete",
    b'{"sequence": 1, "op": "delete", "id": "x"}': "id is x, expected bigint",
    b"{}": "sequence is missing; op is missing; id is missing",
    b"x": "the message is no JSON object",
}


def messages(spark: SparkSession, values: list[bytes | None]) -> DataFrame:
    rows = [(value, "t", 0, offset) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, "value binary, topic string, partition int, offset bigint")


def test_events(spark: SparkSession) -> None:
    """What fits is an event; what does not says why and where, and keeps its text."""
    values = [*GOOD, *BAD]
    rows = kafka.parse_events(messages(spark, values), SCHEMA).collect()
    for offset, (value, row) in enumerate(zip(values, rows, strict=True)):
        if value in GOOD:
            zip_code = row.place.zip if row.place else None
            assert (row.symbol, row.price, row.volume, zip_code) == GOOD[value]
            assert (row["__wherecast_message"], row["__wherecast_error"]) == (None, None)
        else:
            assert row["__wherecast_error"] == f"t/0@{offset}: {BAD[value]}"
            assert row["__wherecast_message"] == (None if value is None else value.decode(errors="replace"))


def test_changes(spark: SparkSession) -> None:
    """A change needs its number, what to do, and to whom."""
    rows = kafka.parse_changes(messages(spark, [*CHANGES]), "bigint").collect()
    found = [None if row["__wherecast_error"] is None else row["__wherecast_error"].partition(": ")[2] for row in rows]
    assert found == list(CHANGES.values())


def keys(frame: DataFrame, batch: int = 3) -> Counter[tuple[str, str]]:
    return Counter((row.key, row.value) for row in _keyed(frame, batch).collect())


def test_keys_do_not_depend_on_the_attempt(spark: SparkSession) -> None:
    """Rows in another order and elsewhere get the same keys, and equal rows get different ones."""
    rows = [("A", 1.0, 7), ("A", 1.0, 7), ("A", 1.0, 8), ("B", None, 7)]
    names = "symbol string, price double, subscription bigint"
    first = keys(spark.createDataFrame(rows, names).coalesce(1))
    assert first == keys(spark.createDataFrame(rows[::-1], names).repartition(3))
    assert len({key for key, _ in first}) == len(rows)
    assert not first.keys() & keys(spark.createDataFrame(rows, names), 4).keys()


def test_keys_of_lists(spark: SparkSession) -> None:
    """In whatever order servers answered, the list of an event is the same message."""
    names = "symbol string, subscriptions array<bigint>"
    assert keys(spark.createDataFrame([("A", [3, 1, 2])], names)) == keys(
        spark.createDataFrame([("A", [1, 2, 3])], names)
    )


def test_a_function_that_does_not_look(spark: SparkSession, tmp_path: Path) -> None:
    """A stream whose sink never computes the matches goes on all the same, and still counts them."""
    (tmp_path / "events").mkdir()
    spark.range(1, 6).write.mode("append").parquet(str(tmp_path / "events"))
    filters = spark.createDataFrame([(1, "id > 2"), (2, "id = 1")], "id bigint, filter string")
    index = ws.build_index(filters, {"id": "long"}, str(tmp_path / "index")).index
    calls: list[int] = []
    query = ws.stream(
        spark.readStream.schema("id bigint").parquet(str(tmp_path / "events")),
        index,
        ws.Foreach(lambda _, batch: calls.append(batch)),
        str(tmp_path / "checkpoint"),
        trigger={"availableNow": True},
    )
    assert query.awaitTermination(60)
    assert calls == [0]
    assert [(r.batch, r.events, r.matches) for r in query.reports] == [(0, 5, 4)]
    assert Reports(index, str(tmp_path / "checkpoint")).read() == query.reports


def test_connector_package() -> None:
    """The connector is that of the installed Spark."""
    assert kafka.connector_package() == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
