"""Syncing with a table without Spark: what tasks list, what the driver makes of it, and how a table is followed."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.index_versions import make_ruled_index

from wherecast.errors import SubscriptionError, WherecastError
from wherecast.spark import follow as follow_module
from wherecast.spark import sync as sync_module
from wherecast.spark.columns import NameRule
from wherecast.spark.follow import follow_table
from wherecast.spark.index import Index
from wherecast.spark.rules import HASH
from wherecast.spark.subscriptions import QUARANTINE
from wherecast.spark.sync import ListTask, SyncReport


def test_tasks_list_what_a_version_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids with the hashes of their content, in batches."""
    monkeypatch.setattr(sync_module, "_BATCH", 2)
    index, manifest, _ = make_ruled_index(tmp_path)
    listed = list(ListTask(index.url, manifest).list_rules([pa.record_batch([pa.array([0])], ["server"])]))
    assert [batch.num_rows for batch in listed] == [2, 1]
    assert sorted((row["id"], row["hash"]) for batch in listed for row in batch.to_pylist()) == [(1, 1), (2, 2), (3, 3)]


def differing(*rows: tuple[Any, Any, Any]) -> pa.Table:
    kinds = [("id", pa.int64()), ("n", pa.int64()), ("live", pa.int32())]
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=pa.schema(kinds))


def test_ids_that_are_there_twice_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names them, up to a limit; several rows without an id are another matter."""
    monkeypatch.setattr(sync_module, "_LISTED", 2)
    sync_module._refuse_twice(None, differing((None, 5, None), (1, 1, None), (2, None, 1)))
    with pytest.raises(SubscriptionError, match=r"3 ids of the table occur more than once: 4, 7, \.\.\.;"):
        sync_module._refuse_twice(None, differing((9, 2, 1), (7, 3, None), (4, 2, 1), (1, 1, None)))


def test_rows_that_differ(tmp_path: Path) -> None:
    """Good rows become members with their rules, bad ones and those without an id are refused with reason and position."""
    _, manifest, _ = make_ruled_index(tmp_path)
    rules = [{HASH: 10 * n, "owner": f"by {n}"} for n in range(4)]
    rows = pa.table(
        {
            "id": pa.array([2, 7, None, 8], pa.int64()),
            "filter": ["price > 5", "\n  prise > 1", "price > 1", "price > 8"],
            "priority": pa.array([0.0] * 4, pa.float32()),
            "fault": pa.nulls(4, pa.string()),
            "rule": pa.array(rules, pa.struct([(HASH, pa.int64()), ("owner", pa.string())])),
        }
    )
    (members, kept), refused = sync_module._compile(rows, manifest, NameRule(case_sensitive=False))
    assert np.asarray(members.ids).tolist() == [2, 8]
    assert kept["owner"].to_pylist() == ["by 0", "by 3"]
    assert [(r["id"], r["position"], r[HASH]) for r in refused.to_pylist()] == [(None, None, 20), ("7", "2:3", 10)]
    gone = pa.chunked_array([pa.array([2, 3], pa.int64())])
    assert sync_module._count(members, gone) == (1, 1, 1)


def test_what_stays_in_quarantine() -> None:
    """Rules that the table still has as they were; rows without an id are looked at anew."""
    before = pa.table([["1", "2", None], ["x"] * 3, ["bad"] * 3, ["1:1"] * 3, [1, 2, 3]], schema=QUARANTINE)
    assert sync_module._keep(before, differing((2, None, 0), (None, 1, None)))["id"].to_pylist() == ["1"]


def test_a_table_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Each look reads the table anew; one that fails is logged and told, and the next one comes all the same."""
    index, manifest, _ = make_ruled_index(tmp_path)
    reads: list[Any] = []
    outcome: dict[str, Any] = {"now": True}

    def sync(rows: Any, _: Index) -> SyncReport:
        reads.append(rows)
        if isinstance(outcome["now"], Exception):
            raise outcome["now"]
        return SyncReport(manifest, 1, 0, 0, 0, committed=outcome["now"])

    monkeypatch.setattr(follow_module, "sync_rules", sync)
    source: Any = lambda: SimpleNamespace(inputFiles=list)  # noqa: E731
    once = follow_table(source, index, {"availableNow": True})
    assert once.awaitTermination()
    assert len(reads) == 1
    assert [report.added for report in once.reports] == [1]
    outcome["now"] = SubscriptionError("ids twice")
    query = follow_table(source, index, {"processingTime": "1 hour"})
    with pytest.raises(SubscriptionError, match="ids twice"):
        query.processAllAvailable()
    assert "ids twice" in caplog.text
    outcome["now"] = False
    query.processAllAvailable()
    assert query.isActive
    assert query.exception() is None
    query.stop()
    assert not query.isActive
    assert not query.reports
    assert len({id(rows) for rows in reads}) == len(reads) > 2, "each look reads anew"


@pytest.mark.parametrize("trigger", [{"processingTime": "soon"}, {"continuous": "1 second"}, {}])
def test_triggers_of_a_table(tmp_path: Path, trigger: dict[str, str]) -> None:
    """A trigger that a table cannot have is refused with one that it can."""
    with pytest.raises(WherecastError, match=r"expected \{'processingTime': '10 seconds'\}"):
        follow_table(threading.active_count, Index(tmp_path), trigger)  # type: ignore[arg-type]
