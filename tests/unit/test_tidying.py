"""Merging layers beside changes, without Spark: the work of its tasks is done in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.index_versions import make_ruled_index, rule_rows

from wherecast.engine.engine import Engine
from wherecast.spark import servers, tidying
from wherecast.spark.index import Index
from wherecast.spark.layers import write_layer
from wherecast.spark.manifest import Manifest
from wherecast.spark.store import StaleVersionError


def change(index: Index, added: int, gone: int) -> Manifest:
    """One more version, with one more layer."""
    engine = Engine({"price": "double"})
    engine.subscribe(added, f"price > {added}")
    layer = write_layer(index.store, engine, pa.array([gone, added]), rule_rows([added]))
    before = index.read()
    top = tuple((*layers, layer) for layers in before.servers)
    return index.commit(replace(before, servers=top, parent=before.version, compacted=False, sequence=added))


def merging(monkeypatch: pytest.MonkeyPatch, beside: Callable[[], object]) -> None:
    """Let servers be merged here, and something happen before the merged version is committed."""

    def run(_: Any, n: int, work: Any, __: str) -> pa.Table:
        numbers = pa.RecordBatch.from_pydict({"server": pa.array(range(n), pa.int32())})
        done = pa.Table.from_batches(list(work([numbers])))
        beside()
        return done

    monkeypatch.setattr(servers, "run_on_servers", run)


def live(index: Index, manifest: Manifest) -> dict[int, str]:
    """Ids and owners."""
    engine = index.serve(manifest, 0)
    owners = index.serve_rules(manifest, 0).take(engine.places(), ["owner"])["owner"].to_pylist()
    return dict(zip(engine.ids().to_pylist(), owners, strict=True))


def test_changes_stay_on_top_of_merged_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules and their columns are those of the newest version; without changes in between there is one layer."""
    index, _, _ = make_ruled_index(tmp_path)
    change(index, 4, gone=1)
    merging(monkeypatch, lambda: change(index, 5, gone=2))
    merged = servers.compact(None, index)  # type: ignore[arg-type]
    assert (merged.version, merged.sequence, len(merged.servers[0]), merged.compacted) == (4, 5, 2, False)
    assert live(index, merged) == {3: "owner 3", 4: "owner 4", 5: "owner 5"}
    merging(monkeypatch, lambda: None)
    merged = servers.compact(None, index)  # type: ignore[arg-type]
    assert (len(merged.servers[0]), merged.compacted, merged.sequence) == (1, True, 5)
    assert live(index, merged) == {3: "owner 3", 4: "owner 4", 5: "owner 5"}
    assert servers.compact(None, index) == merged  # type: ignore[arg-type]


def test_layers_that_were_replaced_are_not_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another compaction, or a build, came first: nothing is committed."""
    index, _, _ = make_ruled_index(tmp_path)
    change(index, 4, gone=1)

    def other() -> None:
        merging(monkeypatch, lambda: None)
        servers.compact(None, index)  # type: ignore[arg-type]

    merging(monkeypatch, other)
    with pytest.raises(StaleVersionError, match="begin again"):
        servers.compact(None, index)  # type: ignore[arg-type]
    assert index.latest() == 3


def test_a_thread_tidies_and_only_a_pile_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread at a time; changes go on beside it until there are four times the layers allowed."""
    index, manifest, _ = make_ruled_index(tmp_path)
    may_end, calls = threading.Event(), []

    def tidy(*_: Any) -> None:
        calls.append(1)
        assert may_end.wait(30)

    monkeypatch.setattr(tidying, "tidy", tidy)
    tidying.tidy_beside(None, index, manifest, most_layers=1)  # type: ignore[arg-type]
    assert not calls, "one layer is allowed"
    for number in (4, 5):
        manifest = change(index, number, gone=1)
        tidying.tidy_beside(None, index, manifest, most_layers=1)  # type: ignore[arg-type]
    may_end.set()
    tidying.finish_tidying(index)
    assert len(calls) == 1
    for number in (6, 7):
        manifest = change(index, number, gone=1)
    tidying.tidy_beside(None, index, manifest, most_layers=1)  # type: ignore[arg-type]
    assert len(calls) == 2
    assert not tidying._threads[index.url].is_alive(), "five layers are more than four times one"
