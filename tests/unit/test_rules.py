"""The columns of rules without Spark: by place, in layers, in indexes of older formats."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.index_versions import make_ruled_index, rule_rows

from wherecast.engine.engine import Engine
from wherecast.spark.index import Index
from wherecast.spark.layers import open_layers, open_rules, write_layer
from wherecast.spark.quarantine import open_quarantine, save_quarantine
from wherecast.spark.rules import HASH, RULES, RuleTable
from wherecast.spark.servers import carry_rules
from wherecast.spark.store import IndexStoreError, Store
from wherecast.spark.subscriptions import QUARANTINE

FIXTURES = Path(__file__).parents[1] / "fixtures"


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.data())
def test_rules_are_taken_by_place(sizes: list[int], data: st.DataObject) -> None:
    """Whatever the layers, place n is the n-th row of all."""
    starts = np.cumsum([0, *sizes]).tolist()
    table = RuleTable([rule_rows(list(range(start, start + size))) for start, size in zip(starts, sizes, strict=False)])
    assert len(table) == starts[-1]
    wanted = data.draw(st.lists(st.integers(0, starts[-1] - 1), max_size=9)) if starts[-1] else []
    assert table.take(np.array(wanted, np.int64)).combine_chunks() == rule_rows(wanted).combine_chunks()
    assert table.take(np.array(wanted, np.int64), ["owner"]).column_names == ["owner"]


def test_places_follow_changes() -> None:
    """The place of a match is that of its subscription, through removals, changes and layers."""
    engine, other = Engine({"price": "double"}), Engine({"price": "double"})
    engine.subscribe_many([(i, f"price > {i % 3}") for i in range(10)])
    engine.subscribe_many([(3, "price > 1")], replace=True)
    engine.unsubscribe(4)
    other.subscribe_many([(20, "price > 0"), (5, "price > 0")])
    engine.apply(other, [5])
    ids = engine.ids().to_pylist()
    by_place = dict(zip(engine.places().tolist(), ids, strict=True))
    assert sorted(ids) == [0, 1, 2, 3, 5, 6, 7, 8, 9, 20]
    assert engine.places([20, 5, 4]).tolist() == [engine.slots() - 2, engine.slots() - 1, -1]
    matches = engine.match_batch([{"price": 9.0}, {"price": 0.5}])
    assert [by_place[place] for place in matches.places().tolist()] == matches.subscription_ids().tolist()
    assert engine.ids_at(matches.places()).to_pylist() == matches.subscription_ids().tolist()


@pytest.mark.parametrize("ids", [[], [5, 2**40, -1], ["b", "é", "7"], [7, "7", "x"]])
def test_ids_at_places(ids: list[Any]) -> None:
    """Ids of any type come back as given."""
    engine = Engine({"price": "double"})
    engine.subscribe_many([(id, "price > 1") for id in ids])
    assert engine.ids_at(engine.places()) == engine.ids()
    assert engine.ids_at(engine.places(ids)).to_pylist() == ids


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "other"])
def test_damaged_rules_are_refused(tmp_path: Path, damage: str) -> None:
    """A file of rules that is not what the manifest says is not read; matching without columns does not need it."""
    index, manifest, layer = make_ruled_index(tmp_path)
    file = tmp_path / layer.folder / RULES
    content = file.read_bytes()
    if damage == "remove":
        file.unlink()
    else:
        bad = {"flip": content[:-50] + b"\xff" + content[-49:], "cut": content[:100], "other": b"ARROW1"}
        file.write_bytes(bad[damage])
    with pytest.raises(IndexStoreError, match=r"rules\.arrow (is not what the index says|cannot be read)"):
        index.serve_rules(manifest, 0)
    assert index.serve(manifest, 0).match({"price": 2.5}) == [1, 2]


def test_rules_that_do_not_fit_their_engine(tmp_path: Path) -> None:
    """More rows than places, or other columns than the manifest has, are refused: a place would lead anywhere."""
    index, manifest, layer = make_ruled_index(tmp_path)
    with pytest.raises(IndexStoreError, match="other columns"):
        index.serve_rules(replace(manifest, columns=""), 0)
    other = Engine({"price": "double"})
    other.subscribe(1, "price > 1")
    short = write_layer(index.store, other, rules=rule_rows([1]))
    shutil.copy(tmp_path / short.folder / RULES, tmp_path / layer.folder / RULES)
    forged = replace(manifest, servers=((replace(layer, rules=short.rules),),))
    with pytest.raises(IndexStoreError, match="3 places for subscriptions and 1 rules"):
        index.serve_rules(forged, 0)


@pytest.mark.parametrize("format_version", [1, 2])
def test_older_indexes_open(tmp_path: Path, format_version: int) -> None:
    """Indexes of formats without rule columns open, match as before, and are compacted; their rules have NULLs."""
    shutil.copytree(FIXTURES / "index-2", tmp_path / "index")
    index = Index(tmp_path / "index")
    if format_version == 1:
        for file in (tmp_path / "index" / "versions").iterdir():
            downgrade(file)
    manifest = index.read()
    assert (manifest.columns, manifest.quarantine, manifest.synced, manifest.id_column) == ("", None, False, "id")
    engine = index.serve(manifest, 0)
    events = [{"symbol": "A", "price": 1.0}, {"symbol": "B", "price": 500.0}, {"symbol": "C", "price": 1.0}]
    assert [sorted(ids) for ids in engine.match_batch(events)] == [[1], [3], [4]]
    assert index.serve_rules(manifest, 0).take(engine.places())[HASH].to_pylist() == [None] * 3
    merged = open_layers.__wrapped__(index.url, manifest.servers[0])
    merged.merge(everything=True)
    layer = write_layer(index.store, merged, rules=carry_rules(index, manifest, 0, merged))
    assert open_rules(index.url, (layer,), pa.schema([(HASH, pa.int64())])).take(np.arange(3))[HASH].null_count == 3


def downgrade(file: Path) -> None:
    """A manifest of format 2 as one of format 1."""
    import hashlib

    body = json.loads(file.read_bytes().partition(b"\n")[2])
    del body["gaps"]
    content = json.dumps(body).encode()
    header = {"format": "wherecast-index", "format_version": 1, "sha256": hashlib.sha256(content).hexdigest()}
    file.write_bytes(json.dumps(header).encode() + b"\n" + content)


def test_lint_of_an_index(tmp_path: Path) -> None:
    """It says what the engine of its rules says."""
    index, manifest, _ = make_ruled_index(tmp_path)
    assert [str(f) for f in index.lint()] == [str(f) for f in index.serve(manifest, 0).lint()]


def test_a_quarantine_is_checked(tmp_path: Path) -> None:
    """Refused rules come back as they were saved, and a damaged file is refused."""
    store = Store(tmp_path)
    refused = pa.table([["1"], ["prise > 1"], ["unknown attribute"], ["1:1"], [7]], schema=QUARANTINE)
    assert save_quarantine(store, refused.slice(0, 0)) is None
    assert open_quarantine(store, None) == refused.slice(0, 0)
    saved = save_quarantine(store, refused)
    assert saved is not None
    assert open_quarantine(store, saved) == refused
    (tmp_path / saved.folder / "refused.arrow").write_bytes(b"")
    with pytest.raises(IndexStoreError, match="is not what the index says"):
        open_quarantine(store, saved)
