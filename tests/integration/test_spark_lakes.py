"""Delta and Iceberg: sinks take a batch once, and an index follows a table by what changed in it.

Run where both are there for the Spark at hand: `python -m tests.spark_versions.run 3.5 tests/integration/test_spark_lakes.py`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from tests.integration.small_market import SCHEMA
from tests.lakes import CATALOG, USUAL, has_lakes

from wherecast import spark as ws
from wherecast.errors import SubscriptionError
from wherecast.spark import follow as follow_module
from wherecast.spark.feeds import ChangeFeed, feed_of
from wherecast.spark.stream import Batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.lakes,
    pytest.mark.slow,
    pytest.mark.skipif(
        not has_lakes(pyspark.__version__),
        reason=f"no Delta and Iceberg for Spark {pyspark.__version__}; test_spark_versions.py runs this on Spark {USUAL}",
    ),
]

FORMATS = {
    "delta": ("lake_rules", "USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"),
    "iceberg": (f"{CATALOG}.db.rules", "USING iceberg"),
}


@pytest.mark.parametrize("kind", ["delta path", "delta table", "iceberg"])
def test_a_batch_is_taken_once(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """A batch that comes again is left out; the same number of another stream, and the next number, are taken."""
    name = {"delta table": "once_matches", "iceberg": f"{CATALOG}.db.matches"}.get(kind, f"delta.`{tmp_path / 'out'}`")
    sinks: dict[str, Callable[[], ws.Sink]] = {
        "delta path": lambda: ws.Delta(str(tmp_path / "out")),
        "delta table": lambda: ws.Delta(table=name),
        "iceberg": lambda: ws.Iceberg(name),
    }
    rows = spark.createDataFrame([(1, "a"), (2, "b")], "row long, owner string")
    for batch in (Batch(0, "one", "o"), Batch(0, "one", "o"), Batch(0, "two", "o"), Batch(1, "one", "p")):
        sinks[kind]().write(rows, batch)
    other = spark.newSession().createDataFrame(rows.collect(), rows.schema)
    for again in (other, rows):  # what another session has written is known here at once
        sinks[kind]().write(again, Batch(2, "one", "q"))
    if kind == "iceberg":
        spark.catalog.refreshTable(name)
    assert spark.sql(f"SELECT count(*) FROM {name}").collect()[0][0] == 8
    if kind == "delta path":
        shutil.rmtree(tmp_path / "out")
    else:
        spark.sql(f"DROP TABLE {name}")
    with pytest.raises(ws.SinkError, match="the stream is at batch 3: its earlier output was deleted"):
        sinks[kind]().write(rows, Batch(3, "one", "r"))


@pytest.mark.parametrize("kind", list(FORMATS))
def test_an_index_follows_what_changed(spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: Any) -> None:
    """Inserts, updates, deletes and overwrites of the table are in the index; only ids that changed are compared.

    A look at a table that is as it was compares nothing.
    """
    name, using = FORMATS[kind]
    spark.sql(f"CREATE TABLE {name} (rule_id BIGINT, condition STRING, owner STRING) {using}")
    spark.sql(f"INSERT INTO {name} VALUES (1, 'price < 10', 'ann'), (2, 'price < 3', 'bob'), (NULL, 'price > 1', 'x')")
    index = ws.Index.build(spark.table(name), tmp_path / "index", schema=SCHEMA, id="rule_id", filter="condition")
    compared: list[Any] = []
    sync = follow_module.sync_rules

    def spy(rules: Any, index: Any, only: Any = None) -> Any:
        compared.append(None if only is None else sorted(only["id"].to_pylist(), key=str))
        return sync(rules, index, only)

    monkeypatch.setattr(follow_module, "sync_rules", spy)
    follower = index.follow(name, trigger={"processingTime": "1 hour"})

    def look(*statements: str) -> None:
        for statement in statements:
            spark.sql(statement)
        follower.processAllAvailable()
        report = index.sync(spark.table(name))  # compares the whole table: nothing may have been missed
        assert not report.committed

    try:
        look()
        assert {*compared} == {None}  # the whole table
        compared.clear()
        look()
        assert compared == []
        look(f"INSERT INTO {name} VALUES (3, 'price > 5', 'cid')", f"UPDATE {name} SET owner = 'eve' WHERE rule_id = 1")
        assert {1, 3} <= {*compared.pop()}
        look(f"DELETE FROM {name} WHERE rule_id = 2", f"UPDATE {name} SET condition = 'prise < 1' WHERE rule_id = 3")
        assert {2, 3} <= {*compared.pop()}
        assert {row.id for row in index.quarantine().collect()} == {None, "3"}
        spark.sql(f"INSERT INTO {name} VALUES (1, 'price > 7', 'two')")
        with pytest.raises(SubscriptionError, match="more than once: 1"):
            follower.processAllAvailable()
        look(f"INSERT OVERWRITE {name} VALUES (7, 'price > 7', 'gil')")
    finally:
        follower.stop()
    assert {row.id for row in index.quarantine().collect()} == set()
    assert index.explain({"price": 8.0}, 7).matches


def test_the_guide_to_delta(spark: SparkSession, tmp_path: Path) -> None:
    """The Python of the guide runs from top to bottom, and what it asserts holds."""
    page = (Path(__file__).parents[2] / "docs" / "guides" / "delta.md").read_text("utf-8")
    blocks = re.findall(r"^```python delta\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names = {"spark": spark, "folder": str(tmp_path)}
    for block in blocks:
        exec(compile(block, "delta.md", "exec"), names)
    assert len(blocks) == 3


def test_a_table_that_cannot_tell(spark: SparkSession, tmp_path: Path) -> None:
    """A Delta table without a change data feed is compared whole, and other tables have no feed."""
    spark.sql("CREATE TABLE silent_rules (rule_id BIGINT, condition STRING) USING delta")
    feed = feed_of(spark, "silent_rules")
    assert isinstance(feed, ChangeFeed)
    first = feed.version()
    spark.sql("INSERT INTO silent_rules VALUES (1, 'price < 10')")
    second = feed.version()
    assert first is not None
    assert second is not None
    assert feed.changed_ids(first, second, "rule_id") is None
    assert feed.read(first).count() == 0
    spark.range(3).write.parquet(str(tmp_path / "plain"))
    assert feed_of(spark, f"parquet.`{tmp_path / 'plain'}`") is None
