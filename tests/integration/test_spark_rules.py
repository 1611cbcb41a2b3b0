"""Rules with columns of their own: what comes out with a match is what Spark's join gives, version by version."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.small_market import EVENTS, SCHEMA

from wherecast import spark as ws
from wherecast.errors import SchemaError, SubscriptionError, WherecastError
from wherecast.spark import sync as sync_module
from wherecast.spark.versions import from_arrow, spark_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

RULES = (
    "rule_id long, condition string, severity int, owner string, tags array<string>, "
    "contact struct<mail:string,rooms:array<int>>, since timestamp, marks map<string,double>"
)
MOMENT = dt.datetime(2024, 5, 1, 12, 30, 0, 123456, tzinfo=dt.UTC)
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
    events, rules = from_arrow(spark, EVENTS), rules_frame(spark, ROWS)
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
    events, rules = from_arrow(spark, EVENTS), rules_frame(spark, ROWS)
    index = ws.Index.build(rules, tmp_path, schema=events, id="RULE_ID", filter="condition")
    with pytest.raises(SchemaError, match="no rule column 'ownr'; it has severity, owner"):
        index.match(events, columns=["ownr"])
    with pytest.raises(SchemaError, match=r"both the events and the rules have a column 'Owner'.*columns="):
        index.match(events.selectExpr("*", "1 AS Owner"), columns=["owner"])
    with pytest.raises(SchemaError, match="matching adds one of that name"):
        index.match(events, columns={"owner": "subscription"})
    with pytest.raises(SchemaError, match="'counts' has one number per event and no rule columns"):
        index.match(events, columns=["owner"], output="counts")
    changes = spark.createDataFrame([(1, "delete", 1, None, None)], f"{CHANGES.rpartition(',')[0]}")
    with pytest.raises(
        SubscriptionError, match="'severity' of the changes holds string, in the index it is int; cast it"
    ):
        index.apply(changes.withColumn("severity", changes.severity.cast("string")))
    if spark_version() >= (4, 0):  # before, there are no variants
        variant = rules.selectExpr("*", "parse_json('1') AS v")
        with pytest.raises(SubscriptionError, match="'v' of the rules holds variant, which cannot be stored"):
            ws.Index.build(variant, tmp_path / "v", schema=events, id="rule_id", filter="condition")
    assert index.explain({"symbol": "A", "price": 7.0}, 1).matches


TABLE = "rule_id long, condition string, severity int, owner string"
FIRST: list[tuple[Any, ...]] = [
    (1, "symbol = 'A' AND price < 10", 3, "ann"),
    (2, "symbol IN ('A', 'B')", None, "bob"),
    (3, "price BETWEEN 5 AND 15", 1, None),
    (4, "symbol = 'C' OR volume > 900", 2, "dée"),
]
TWO = ["severity", "owner"]


def table(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, TABLE)


def counts(synced: ws.SyncReport) -> tuple[int, int, int, int, bool]:
    return synced.added, synced.changed, synced.removed, synced.refused, synced.committed


def build(spark: SparkSession, path: Path, rows: list[tuple[Any, ...]], **options: Any) -> ws.Index:
    return ws.Index.build(table(spark, rows), path, schema=SCHEMA, id="rule_id", filter="condition", **options)


@pytest.mark.parametrize("strategy", ["broadcast", "event-space"])
def test_sync_makes_the_index_equal_to_the_table(
    spark: SparkSession, tmp_path: Path, strategy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What was added, edited and removed is one version; a refused edit is in quarantine; a second sync commits nothing."""
    events = from_arrow(spark, EVENTS)
    index = build(spark, tmp_path, FIRST, strategy=strategy, servers=3)
    assert counts(index.sync(table(spark, FIRST))) == (0, 0, 0, 0, False)

    def check(rows: list[tuple[Any, ...]], good: list[tuple[Any, ...]], wanted: tuple[int, int, int, int]) -> None:
        synced = index.sync(table(spark, rows))
        assert counts(synced) == (*wanted, True), synced
        assert counts(index.sync(table(spark, rows[::-1]))) == (0, 0, 0, wanted[3], False)
        found = index.match(events, columns=TWO, names={"subscription": "rule_id"})
        assert matched(found, TWO) == joined(spark, table(spark, good), events, TWO)

    second = [
        FIRST[0],
        (2, "symbol IN ('A', 'B')", None, "eve"),
        (4, "prise > 1", 2, "dée"),
        (5, "symbol = 'D'", 0, "fay"),
    ]
    check(second, [second[0], second[1], second[3]], (1, 1, 2, 1))
    assert "rule refused: id='4'" in caplog.text
    [refused] = index.quarantine().collect()
    assert (refused.id, refused.filter, refused.position) == ("4", "prise > 1", "1:1")
    assert "did you mean 'price'" in refused.reason
    third = [
        *second[:2],
        (4, "prise > 1", 2, "gil"),
        second[3],
        (None, "price > 1", 1, "hal"),
        (6, "price <", 1, "ida"),
    ]
    check(third, [second[0], second[1], second[3]], (0, 0, 0, 3))
    index.compact()
    fourth = [*second[:2], (4, "price > 1", 2, "gil"), (6, "price <", 1, "ida")]
    check(fourth, fourth[:3], (1, 0, 1, 1))
    check(fourth[:3], fourth[:3], (0, 0, 0, 0))
    assert index.quarantine().count() == 0


def test_sync_refuses_what_has_no_truth(spark: SparkSession, tmp_path: Path) -> None:
    """Ids that occur twice, a type that is not that of the index, and a table beside a log of changes change nothing."""
    index = build(spark, tmp_path / "a", FIRST)
    with pytest.raises(SubscriptionError, match="2 ids of the table occur more than once: 1, 2; "):
        index.sync(table(spark, [*FIRST, *FIRST[:2]]))
    with pytest.raises(SubscriptionError, match="'severity' of the rules holds string, in the index it is int"):
        index.sync(table(spark, FIRST).selectExpr("rule_id", "condition", "'1' AS severity", "owner"))
    with pytest.raises(SubscriptionError, match="need a column 'rule_id'"):
        index.sync(table(spark, FIRST).withColumnRenamed("rule_id", "id"))
    assert index.versions() == [1]
    log = spark.createDataFrame([(1, "delete", 1, None, None, None)], CHANGES)
    index.sync(table(spark, FIRST[1:]))
    with pytest.raises(ws.IndexStoreError, match="follows a table"):
        index.apply(log)
    other = build(spark, tmp_path / "b", [*FIRST, (1, "price > 0", 1, "x")])
    assert counts(other.sync(table(spark, FIRST))) == (1, 0, 0, 0, True)  # its only row is in quarantine no more
    other = build(spark, tmp_path / "b", FIRST)
    other.apply(log)
    with pytest.raises(ws.IndexStoreError, match="has changes of a log up to number 1"):
        other.sync(table(spark, FIRST))


@pytest.mark.parametrize("strategy", ["broadcast", "event-space"])
def test_sync_of_another_set_of_rules(
    spark: SparkSession, tmp_path: Path, strategy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many differences, or a column more, build the index anew with the same plan; the counts are the same."""
    monkeypatch.setattr(sync_module, "MOST_DIFFERENCES", 2)
    events = from_arrow(spark, EVENTS)
    index = build(spark, tmp_path, FIRST, strategy=strategy, servers=3)
    rows = [
        (2, "symbol = 'A'", 1, "x"),
        (3, "symbol = 'B'", 1, "y"),
        (7, "symbol = 'C'", 1, "z"),
        (8, "volume <", 1, "z"),
    ]
    with pytest.raises(SubscriptionError, match="1 ids of the table occur more than once: 3"):
        index.sync(table(spark, [*rows, rows[1]]))
    synced = index.sync(table(spark, rows))
    assert (synced.changed, synced.removed, synced.refused, synced.committed) == (2, 2, 1, True)
    assert (synced.manifest.compacted, len(synced.manifest.servers)) == (True, len(index.read(1).servers))
    assert counts(index.sync(table(spark, rows))) == (0, 0, 0, 1, False)
    wider = table(spark, rows).selectExpr("*", "upper(owner) AS team")
    assert index.sync(wider).committed
    assert not index.sync(wider).committed
    found = index.match(events, columns=["team"], names={"subscription": "rule_id"})
    assert matched(found, ["team"]) == joined(spark, wider.where("rule_id < 8"), events, ["team"])


def test_a_stream_has_the_columns_of_its_version(spark: SparkSession, tmp_path: Path) -> None:
    """An owner that is edited while a stream runs shows from the next batch on; each batch has that of its version."""
    rules, events = tmp_path / "rules", tmp_path / "events"
    table(spark, FIRST).write.parquet(str(rules))
    index = build(spark, tmp_path / "index", FIRST)
    frame = from_arrow(spark, EVENTS)
    events.mkdir()
    source = spark.readStream.schema(frame.schema).parquet(str(events))
    follower = index.follow(lambda: spark.read.parquet(str(rules)), trigger={"processingTime": "1 hour"})
    sink, checkpoint = ws.Parquet(str(tmp_path / "out")), str(tmp_path / "checkpoint")
    query = index.stream(source, sink, checkpoint, columns={"owner": "who"})
    try:
        for owner in ("bob", "eve"):
            edited = [FIRST[0], (2, FIRST[1][1], None, owner), *FIRST[2:]]
            table(spark, edited).write.mode("overwrite").parquet(str(rules))
            follower.processAllAvailable()
            frame.coalesce(1).write.mode("append").parquet(str(events))
            query.processAllAvailable()
        table(spark, [*FIRST, FIRST[0]]).write.mode("overwrite").parquet(str(rules))
        with pytest.raises(SubscriptionError, match="more than once: 1"):
            follower.processAllAvailable()
        assert follower.isActive
    finally:
        query.stop()
        follower.stop()
    assert [counts(report) for report in follower.reports] == [(0, 1, 0, 0, True)]
    out = spark.read.parquet(str(tmp_path / "out")).where("subscription = 2").select("batch_id", "who").distinct()
    assert {tuple(row) for row in out.collect()} == {(0, "bob"), (1, "eve")}
    with pytest.raises(WherecastError, match="stays as it was when it was made"):
        index.follow(frame)  # type: ignore[call-overload]
