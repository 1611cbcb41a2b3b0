"""Rules with columns of their own: what comes out with a match is what Spark's join gives, version by version."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.small_market import EVENTS, SCHEMA

from wherecast import spark as ws
from wherecast.errors import SchemaError, SubscriptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

RULES = (
    "rule_id long, condition string, severity int, owner string, tags array<string>, "
    "contact struct<mail:string,rooms:array<int>>, since timestamp, marks map<string,double>"
)
MOMENT = dt.datetime(2024, 5, 1, 12, 30, 0, 123456)
ROWS: list[tuple[Any, ...]] = [
    (1, "symbol = 'A' AND price < 10", 3, "ann", ["x", None], ("a@b", [1, 2]), MOMENT, {"k": 1.5}),
    (2, "symbol IN ('A', 'B')", None, "bob", [], None, None, None),
    (3, "price BETWEEN 5 AND 15", 1, None, None, (None, None), MOMENT, {}),
    (4, "symbol = 'C' OR volume > 900", 2, "dée", ["y"], ("d@b", []), None, {"a": None}),
    (6, "symbol LIKE '%A%' AND price > volume", 2, "ann", ["z"], None, MOMENT, None),
]
COLUMNS = ["severity", "owner", "tags", "contact", "since", "marks"]
CHANGES = "sequence long, op string, rule_id long, condition string, severity int, owner string"


def rules_frame(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, RULES)


def joined(spark: SparkSession, rules: DataFrame, events: DataFrame, columns: list[str]) -> Counter[str]:
    """The matches by Spark's own WHERE and join, as texts."""
    found = None
    for row in rules.collect():
        mine = events.where(row.condition).crossJoin(rules.where(f"rule_id = {row.rule_id}"))
        found = mine if found is None else found.unionByName(mine)
    assert found is not None
    return Counter(map(str, found.select("note", "rule_id", *columns).collect()))


def matched(matches: DataFrame, columns: list[str]) -> Counter[str]:
    return Counter(map(str, matches.select("note", "rule_id", *columns).collect()))


@pytest.mark.parametrize("strategy", ["broadcast", "event-space"])
def test_columns_are_those_of_the_version(spark: SparkSession, tmp_path: Path, strategy: Any) -> None:
    """Columns of any type come out with each match, in pairs and lists; changes and compaction keep them."""
    events, rules = spark.createDataFrame(EVENTS), rules_frame(spark, ROWS)
    index = ws.Index.build(
        rules, tmp_path, schema=SCHEMA, id="rule_id", filter="condition", strategy=strategy, servers=3
    )
    named: Any = {"names": {"subscription": "rule_id"}}
    wanted = joined(spark, rules, events, COLUMNS)
    assert matched(index.match(events, columns="*", **named), COLUMNS) == wanted
    lists = index.match(events, columns=COLUMNS, output="lists", **named)
    assert matched(lists.selectExpr("note", "inline(subscriptions)"), COLUMNS) == wanted
    assert events.transform(index.match, columns={"owner": "who"}).columns == [*events.columns, "subscription", "who"]

    changes = [
        (1, "upsert", 2, "symbol IN ('A', 'B')", 9, "eve"),
        (2, "upsert", 7, "symbol = 'D'", None, "fay"),
        (3, "delete", 6, None, None, None),
    ]
    applied = index.apply(spark.createDataFrame(changes, CHANGES))
    assert (applied.applied, applied.refused) == (3, 0)
    after = [ROWS[0], (2, ROWS[1][1], 9, "eve", *[None] * 4), *ROWS[2:4], (7, "symbol = 'D'", None, "fay", *[None] * 4)]
    now = joined(spark, rules_frame(spark, after), events, COLUMNS)
    assert matched(index.match(events, columns=COLUMNS, **named), COLUMNS) == now
    index.compact()
    assert {len(layers) for layers in index.read().servers} == {1}
    assert matched(index.match(events, columns=COLUMNS, **named), COLUMNS) == now
    assert matched(index.match(events, columns=COLUMNS, version=1, **named), COLUMNS) == wanted


def test_columns_that_cannot_be(spark: SparkSession, tmp_path: Path) -> None:
    """What is not there, clashes, has another type than in the index or cannot be stored is refused with what to do."""
    events, rules = spark.createDataFrame(EVENTS), rules_frame(spark, ROWS)
    index = ws.Index.build(rules, tmp_path, schema=events, id="RULE_ID", filter="condition")
    with pytest.raises(SchemaError, match="no rule column 'ownr'; it has severity, owner"):
        index.match(events, columns=["ownr"])
    with pytest.raises(SchemaError, match=r"both the events and the rules have a column 'owner'.*columns="):
        index.match(events.selectExpr("*", "1 AS Owner"), columns=["owner"])
    with pytest.raises(SchemaError, match="matching adds one of that name"):
        index.match(events, columns={"owner": "subscription"})
    with pytest.raises(SchemaError, match="'counts' tells no rules"):
        index.match(events, columns=["owner"], output="counts")
    changes = spark.createDataFrame([(1, "delete", 1, None, None)], f"{CHANGES.rpartition(',')[0]}")
    with pytest.raises(
        SubscriptionError, match="'severity' of the changes holds string, in the index it is int; cast it"
    ):
        index.apply(changes.withColumn("severity", changes.severity.cast("string")))
    with pytest.raises(SubscriptionError, match="'v' of the rules holds variant, which cannot be stored"):
        ws.Index.build(
            rules.selectExpr("*", "parse_json('1') AS v"),
            tmp_path / "v",
            schema=events,
            id="rule_id",
            filter="condition",
        )
    assert index.explain({"symbol": "A", "price": 7.0}, 1).matches
