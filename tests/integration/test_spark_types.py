"""Types as Spark has them: decimals, binaries, maps, arrays of structs, and columns with dots in their names."""

from __future__ import annotations

import itertools
import random
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.oracle.ask import ask_spark, holds

from wherecast import spark as ws
from wherecast.engine.engine import Engine
from wherecast.language.events.schema import Schema
from wherecast.spark.match import match

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiling_spark")]


def compare(
    spark: SparkSession,
    schema: Schema,
    events: pa.Table,
    filters: list[str],
    *,
    spark_texts: dict[str, str] | None = None,
    least: float = 0.9,
) -> None:
    """Wherecast, in a batch and event by event, answers what Spark answers; most filters compile.

    `spark_texts` has what Spark is asked where an error would stop the query: `try_add(a, b)` for `a + b`.
    """
    engine = Engine(schema)
    refused = engine.subscribe_many(list(enumerate(filters))).quarantined
    assert len(refused) <= (1 - least) * len(filters), [str(r) for r in refused[:5]]
    known = [i for i in range(len(filters)) if i not in {r.id for r in refused}]
    theirs = ask_spark(spark, events, [holds((spark_texts or {}).get(filters[i], filters[i])) for i in known])
    stopped = [
        f"{filters[i]}: {answer}" for i, answer in zip(known, theirs, strict=True) if not isinstance(answer, list)
    ]
    assert not stopped, "\n".join(stopped[:10])
    batch = [set(found) for found in engine.match_batch(events)]
    single = [set(engine.match(event)) for event in events.to_pylist()]
    different = [
        f"{filters[i]} on {events.slice(row, 1).to_pylist()}: Spark {held}, batch {i in batch[row]}, single {i in single[row]}"
        for i, answer in zip(known, theirs, strict=True)
        for row, held in enumerate(answer)
        if not held == (i in batch[row]) == (i in single[row])
    ]
    assert not different, "\n".join(different[:10])


OPS = ("=", "<>", "<", "<=", ">", ">=", "<=>")


def test_decimals(spark: SparkSession) -> None:
    """Decimals of few and of many digits against literals of all kinds, integers, doubles and each other."""
    rng = random.Random(1)
    schema = Schema.of(
        {
            "d": "decimal(10,2)",
            "w": "decimal(38,10)",
            "s": "decimal(18,17)",
            "i": "int",
            "f": "double",
            "a": "array<decimal(10,2)>",
        }
    )
    literals = [
        "0",
        "1",
        "1.5",
        "-1.5",
        "1.505",
        "99999999.99",
        "1e0",
        "1.5D",
        "-1.5e2",
        "12345678901",
        "0.0000000001",
        "2L",
        "1.50BD",
    ]
    numbers = [Decimal(text) for text in ("0", "1", "1.5", "-1.5", "1.51", "99999999.99", "-99999999.99", "0.01")]

    def row() -> dict[str, Any]:
        d = rng.choice(numbers)
        return {
            "d": rng.choice([None, d, d]),
            "w": rng.choice([None, d, d * 10**19 + Decimal("0.0000000001"), d + Decimal("0.0000000001")]),
            "s": rng.choice([None, Decimal("0.10000000000000001"), Decimal("0.1"), Decimal("1.50000000000000000")]),
            "i": rng.choice([None, 0, 1, -1, 2**31 - 1]),
            "f": rng.choice([None, 0.0, 1.5, -1.5, 0.1, float("nan"), 99999999.99]),
            "a": rng.choice([None, [], [d, None], [d, Decimal("1.5")]]),
        }

    events = pa.Table.from_pylist([row() for _ in range(40)], schema.to_arrow())
    filters = [
        f"{name} {op} {literal}" for name, op, literal in itertools.product("dws", OPS, [*literals, "0.1", "1e-1"])
    ]
    filters += [f"{a} {op} {b}" for (a, b), op in itertools.product(itertools.permutations("dwsif", 2), OPS)]
    tries = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide", "%": "try_mod"}
    operands = ("w", "s", "i", "f", "2", "0.5", "1e0")
    computed = {f"d {op} {n} > 1.5": f"{tries[op]}(d, {n}) > 1.5" for op, n in itertools.product(tries, operands)}
    filters += computed
    filters += [
        "d IN (1, 1.5, NULL)",
        "w NOT IN (1.50, 0)",
        "s IN (1e-1, 1)",
        "d IN (i, 1.5)",
        "d BETWEEN 0 AND 1.5",
        "-d > 1",
    ]
    filters += [
        "abs(d) = 1.5",
        "array_contains(a, 1.5)",
        "array_contains(a, 1)",
        "NOT array_contains(a, 1.50)",
        "size(a) = 2",
    ]
    filters += [f"NOT (d {op} 1.5 AND w > 0)" for op in OPS] + ["d IS NULL", "w IS NOT NULL"]
    filters += [
        "d = '1.5'",
        "d IN ('1.5', '2')",
        "w > '1.25'",
        "s <> '0.1'",
        "CAST(d AS STRING) = '1.50'",
        "round(d) = 2",
    ]
    filters += ["coalesce(d, w) = 1.5", "CASE WHEN d > 1 THEN d ELSE w END = 1.5", "greatest(d, s) = 1.5", "a[0] = 1.5"]
    filters += ["exists(a, x -> x > 1.4)", "forall(a, x -> x < 2)", "exists(a, x -> x = 1.5)", "CAST(w AS DOUBLE) > 1"]
    computed["a[0] = 1.5"] = "get(a, 0) = 1.5"
    compare(spark, schema, events, filters, spark_texts=computed, least=0.85)


def test_binaries(spark: SparkSession) -> None:
    """Bytes of every length against literals and each other."""
    schema = Schema.of({"b": "binary", "c": "binary", "l": "array<binary>"})
    values = [b"", b"\x00", b"\x00\x00", b"\x1a", b"\x1a\x2b", b"\x7f", b"\x80", b"\xff", None]
    rows = [{"b": b, "c": c, "l": [b, c]} for b, c in itertools.product(values, values)]
    filters = [
        f"b {op} X'{digits}'" for op, digits in itertools.product(OPS, ("", "00", "1a", "1A2B", "80", "0ff", "ff"))
    ]
    filters += [f"b {op} c" for op in OPS] + ["b IN (X'1A', X'')", "b NOT IN (X'1A', NULL)", "b IS NULL"]
    filters += ["array_contains(l, X'80')", "b BETWEEN X'1A' AND X'80'"]
    compare(spark, schema, pa.Table.from_pylist(rows, schema.to_arrow()), filters)


def test_arrays_of_structs_and_names_with_dots(spark: SparkSession, tmp_path: Path) -> None:
    """In an engine and in a pipeline, `items.price` is an array and `host.name` in backticks a column, as in Spark."""
    columns = (
        "id int, host string, `host.name` string, items array<struct<price: double, by: struct<name: string>>>, "
        "d decimal(20,2), q struct<r: int>"
    )
    rows = [
        (1, "h", "n", [(1.5, ("a",)), (2.5, None)], Decimal("1.50"), (1,)),
        (2, None, "h", [None, (None, ("b",))], Decimal("12345678901234567.25"), (2,)),
        (3, "n", None, [], None, None),
        (4, "h", "h", None, Decimal("-1.50"), (None,)),
    ]
    filters = ["`host.name` = 'n'", "host = `host.name`", "array_contains(items.price, 2.5D)", "size(items.price) = 2"]
    filters += [
        "items.price IS NULL",
        "array_contains(items.by.name, 'b')",
        "d > 1.5",
        "d = 12345678901234567.25",
        "q.r = 1",
    ]
    events = spark.createDataFrame(rows, columns).coalesce(1)
    wanted = {(row.id, i) for i, text in enumerate(filters) for row in events.where(text).select("id").collect()}
    assert len(wanted) >= len(filters)
    schema = Schema.of(events)
    assert schema["`host.name`"].type_name == "string"
    engine = Engine(schema)
    engine.subscribe_many(list(enumerate(filters)))
    found = engine.match_batch(events.toArrow()).to_lists()
    assert {(row[0], i) for row, ids in zip(rows, found, strict=True) for i in ids} == wanted
    subscriptions = spark.createDataFrame(list(enumerate(filters)), "id int, filter string")
    for strategy in ("broadcast", "event-space"):
        ws.build_index(subscriptions, events, str(tmp_path / strategy), strategy=strategy, servers=2, events=events)
        matched = match(events, str(tmp_path / strategy))
        assert matched.columns == [*events.columns, "subscription"]
        assert {(row.id, row.subscription) for row in matched.collect()} == wanted
