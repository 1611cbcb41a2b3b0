"""The examples do what they say, at small scale."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples.detection_rules import data, job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_detection_rules(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alerts are those of Spark's own join, and an owner that is edited in the table shows in the next batch."""
    assert len(Path(job.__file__).read_text().splitlines()) < 40
    monkeypatch.setattr(data, "PROGRAMS", data.PROGRAMS[:4])  # so that few events meet many rules
    data.write(tmp_path, rules=120, events=60)
    everyone = {"rule_id": ["all"], "condition": ["host IS NOT NULL"], "severity": ["low"], "owner": ["ann"]}
    table = pa.concat_tables([pq.read_table(tmp_path / "rules"), pa.table(everyone)], promote_options="default")
    conditions = [f"count_if({condition})" for condition in table["condition"].to_pylist()]
    events = spark.read.schema(job.EVENTS).json(str(tmp_path / "events"))
    counts, wanted = events.selectExpr(*conditions).collect()[0], Counter[tuple[object, ...]]()
    follower = query = None
    try:
        for batch, owner in enumerate(("ann", "bob")):
            owners = [*table["owner"].to_pylist()[:-1], owner]
            table = table.set_column(3, "owner", [owners])
            pq.write_table(table, tmp_path / "rules" / "rules.parquet")
            if follower is None or query is None:
                follower, query = job.start(spark, str(tmp_path))
            else:
                follower.processAllAvailable()
                (tmp_path / "events" / "1.json").write_bytes((tmp_path / "events" / "0.json").read_bytes())
            query.processAllAvailable()
            rules = zip(*(table[name].to_pylist() for name in ("rule_id", "severity", "owner")), strict=True)
            wanted.update({(batch, *rule): count for rule, count in zip(rules, counts, strict=True)})
    finally:
        for running in (query, follower):
            if running is not None:
                running.stop()
    alerts = spark.read.parquet(str(tmp_path / "alerts")).select("batch_id", "rule_id", "severity", "owner")
    found = Counter(tuple(row) for row in alerts.collect())
    assert found == +wanted
    assert len(found) > 5
