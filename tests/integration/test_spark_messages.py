"""Messages in and out, without a broker: how JSON is read, and how keys are made."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyspark
import pytest
from pyspark.sql.types import StructType

from wherecast import spark as ws
from wherecast.errors import SchemaError
from wherecast.language.events.schema import Schema
from wherecast.spark import kafka
from wherecast.spark.progress import Reports
from wherecast.spark.sinks.kafka import _keyed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = Schema.of(
    {"symbol": "string", "price": "double", "volume": "long", "place.zip": "long", "tags": "array<string>"}
)
#: Value, what is read of it, and whether the object is kept whole because it has fields without a column.
GOOD: dict[bytes, tuple[tuple[Any, ...], bool]] = {
    b'{"symbol": "A", "price": 7, "volume": 1}': (("A", 7.0, 1, None, None), False),
    b'{"symbol": "A", "other": {"x": 1}, "place": {"zip": 5}}': (("A", None, None, 5, None), True),
    b'{"symbol": "5", "price": null, "tags": ["x", null]}': (("5", None, None, None, ["x", None]), False),
    b' {"symbol": null} ': ((None, None, None, None, None), False),
    b' {} ': ((None, None, None, None, None), False),
    b'{"place": {"zip": 5, "city": "here"}}': ((None, None, None, 5, None), True),
    b'{"x": 1.50, "y": -0.0, "z": 123456789012345678901234567890123456789012345678}': ((None,) * 5, True),
    '{"symbol": "\u00e4\U0001f600"}'.encode(): (("\u00e4\U0001f600", None, None, None, None), False),
}  # fmt: skip
BAD: dict[bytes | None, str] = {
    None: "empty",
    b"": "empty",
    b"  ": "empty",
    b"nonsense": "not a JSON object",
    b'{"symbol": "A"': "not a JSON object",
    b'{"symbol": "A"} and more': "not a JSON object",
    b'{"symbol": "A"}{"symbol": "B"}': "not a JSON object",
    b'[{"symbol": "A"}]': "not a JSON object",
    b"null": "not a JSON object",
    b"5": "not a JSON object",
    b'"x"': "not a JSON object",
    b"\xff\xfe{": "not valid UTF-8",
    b'{"symbol": "\xff"}': "not valid UTF-8",
    b'{"price": "184.38"}': "price is 184.38, expected double",
    b'{"symbol": 5}': "symbol is 5, expected string",
    b'{"symbol": true, "tags": ["x"]}': "symbol is true, expected string",
    b'{"symbol": {"a": 1}}': 'symbol is {"a":1}, expected string',
    b'{"tags": ["x", 1]}': 'tags is ["x",1], expected array<string>',
    b'{"price": "x", "volume": 1.5}': "price is x, expected double; volume is 1.5, expected bigint",
    b'{"price": {"a": 1}, "volume": [1]}': 'price is {"a":1}, expected double; volume is [1], expected bigint',
    b'{"volume": 99999999999999999999}': "volume is 99999999999999999999, expected bigint",
    b'{"place": {"zip": "q"}}': "a value does not fit the schema",
    b'{"price": 1, "price": 2}': "price is there twice",
    b'{"Price": 1}': "Price differs from a column only in case",
}
CHANGES = {
    b'{"sequence": 1, "op": "upsert", "id": 4, "filter": "price > 1"}': None,
    b'{"sequence": 2, "op": "delete", "id": 4}': None,
    b'{"op": "upsert", "id": 4}': "sequence is missing",
    b'{"sequence": 1, "op": "set", "id": 4}': "op is set, expected upsert or delete",
    b'{"sequence": 1, "op": "delete", "id": "x"}': "id is x, expected bigint",
    b"{}": "sequence is missing; op is missing; id is missing",
    b'{"sequence": 1, "op": 5, "id": 4}': "op is 5, expected string; op is 5, expected upsert or delete",
    b'{"sequence": 1, "op": null, "id": 4}': "op is missing",
    b"x": "not a JSON object",
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
            expected, whole = GOOD[value]
            assert (row.symbol, row.price, row.volume, zip_code, row.tags) == expected
            assert row["_json"] == (value.decode() if whole else None)
            assert (row["__wherecast_message"], row["__wherecast_error"]) == (None, None)
        else:
            assert row["__wherecast_error"] == f"t/0@{offset}: {BAD[value]}"
            assert row["_json"] is None
            assert row["__wherecast_message"] == (None if value is None else value.decode(errors="replace"))


#: Of the columns below: a number, and whether it fits.
NUMBERS = {
    "a": {"127": True, "200": False},
    "b": {
        "1.25": True, "1.250": True, "-999.99": True, "125e-2": True, "1E2": True, '"1.25"': True, '"12E1"': True, "0E-10": True,
        "1.255": False, "12345.6": False, '"1.255"': False, "1.255E0": False, "1e3": False, '"x"': False, "true": False,
        "[1]": False, "1e-400": False, "1.25000000000000000000000000000000000000000001": False, '"1.25000000000000000001"': False,
    },
    "c": {"3e38": True, '"Infinity"': True, "1e300": False, "1e400": False, "-1e400": False},
    "d": {"1e308": True, '"-Infinity"': True, "NaN": True, "0.1": True, "1e400": False, "-1E+400": False, "1" * 400: False},
    "e": {
        "1": True, "12345678901234567890123456789012345678": True, "1.0": True, "1e37": True,
        "1.5": False, "0.00000000000000000000000000000000000000001": False, "123456789012345678901234567890123456789": False,
        "123456789012345678.5e0": False, "1e38": False, "5e-1": False,
    },
    "f": {"1.04": False, "1.0": True},
    "g": {"[1.5, null, 2]": True, "[1.55]": False},
    "h": {'{"x": 1.5}': True, '{"x": 1.55}': False, '{"x": null}': True},
}  # fmt: skip
COLUMNS = (
    "a tinyint, b decimal(5,2), c float, d double, e decimal(38,0), f decimal(37,0), g array<decimal(2,1)>, "
    "h struct<x: decimal(2,1)>"
)


def test_numbers_fit_or_are_refused(spark: SparkSession) -> None:
    """A number that a column cannot hold is not wrapped, rounded or made infinite; others are read as they are written."""
    columns = StructType.fromDDL(COLUMNS)
    given = [(name, text, fits) for name, texts in NUMBERS.items() for text, fits in texts.items()]
    values = [f'{{"{name}": {text}}}'.encode() for name, text, _ in given]
    rows = kafka.parse_events(messages(spark, values), columns).collect()
    found = [(name, text, row["__wherecast_error"] is None) for (name, text, _), row in zip(given, rows, strict=True)]
    assert found == given
    for (name, text, fits), row in zip(given, rows, strict=True):
        if not fits:
            assert f"{name} is " in row["__wherecast_error"] or name == "h"
            assert row["__wherecast_message"] == f'{{"{name}": {text}}}'
        elif name in "bef":
            assert row[name] == Decimal(text.strip('"'))
        elif name in "cd":
            assert repr(row[name]) == repr(float(np.float32(text.strip('"')) if name == "c" else text.strip('"')))
    assert [row.g for row in rows if row.g and row["__wherecast_error"] is None] == [
        [Decimal("1.5"), None, Decimal("2.0")]
    ]


def test_a_column_that_reading_adds(spark: SparkSession) -> None:
    """It must not be declared."""
    with pytest.raises(SchemaError, match="'_json'"):
        kafka.parse_events(messages(spark, []), StructType.fromDDL("_json string"))


def test_changes(spark: SparkSession) -> None:
    """A change needs its number, what to do, and to whom."""
    rows = kafka.parse_changes(messages(spark, [*CHANGES]), "bigint").collect()
    found = [None if row["__wherecast_error"] is None else row["__wherecast_error"].partition(": ")[2] for row in rows]
    assert found == list(CHANGES.values())


def keys(frame: DataFrame, batch: int = 3) -> Counter[tuple[str, str]]:
    return Counter((row.key, row.value) for row in _keyed(frame, ws.Batch(batch, "stream", "offsets")).collect())


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
    assert Reports(index, str(tmp_path / "checkpoint"), ws.BatchReport).read() == query.reports


def test_connector_package() -> None:
    """The connector is that of the installed Spark."""
    assert kafka.connector_package() == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
