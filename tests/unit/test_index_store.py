"""The index directory without Spark: stores, manifests, layers, pins, versions."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from wherecast.engine.engine import Engine
from wherecast.errors import SubscriptionError
from wherecast.spark.errors import IndexStoreError
from wherecast.spark.index import Index
from wherecast.spark.layers import open_layers, replicas_of, write_layer
from wherecast.spark.manifest import Manifest
from wherecast.spark.pins import Pins, pinned_versions
from wherecast.spark.sinks import Parquet
from wherecast.spark.store import Store, open_filesystem

SCHEMA = {"symbol": "string", "price": "double"}


def make_engine(*rows: tuple[int, str]) -> Engine:
    engine = Engine(SCHEMA)
    engine.subscribe_many(list(rows))
    return engine


def make_manifest(index: Index, *rows: tuple[int, str]) -> Manifest:
    engine = make_engine(*rows)
    layer = write_layer(index.store, engine)
    return Manifest(0, engine.schema.to_json(), "bigint", None, ((layer,),), ("price",), 0, "", None, compacted=True)


# -- stores -----------------------------------------------------------------------------------------------------------


def test_create_happens_once(tmp_path: Path) -> None:
    """Of many who create one file, one succeeds, and its content stays."""
    store, won = Store(tmp_path), []

    def create(number: int) -> None:
        if store.create("a/file", f"{number}".encode()):
            won.append(number)

    threads = [threading.Thread(target=create, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert store.read("a/file") == f"{won[0]}".encode()
    assert store.names("a") == ["file"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """What fails half way leaves nothing behind."""
    store = Store(tmp_path)
    with pytest.raises(ZeroDivisionError), store.new_folder("things") as (folder, _):
        (folder / "half").write_text(str(1 / 0))
    assert list((tmp_path / "things").iterdir()) == []
    with store.new_folder("things") as (folder, name):
        (folder / "whole").write_text("x")
        assert store.names("things") == []
    assert (store.fetch(name) / "whole").read_text() == "x"


def test_a_store_on_another_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through fsspec, folders are uploaded, and fetched into a cache of this host once."""
    pytest.importorskip("fsspec")
    monkeypatch.setenv("WHERECAST_CACHE", str(tmp_path / "cache"))
    store = Store(f"memory://{tmp_path.name}")
    assert store.local is None
    with store.new_folder("layers") as (folder, name):
        (folder / "file").write_text("content")
    assert store.create("versions/1", b"one")
    assert not store.create("versions/1", b"two")
    assert store.read("versions/1") == b"one"
    local = store.fetch(name)
    assert (local / "file").read_text() == "content"
    assert store.fetch(name) == local
    store.remove(name)
    assert store.names("layers") == []


def test_an_unreachable_url() -> None:
    """A scheme that nobody knows is refused with what would do."""
    with pytest.raises(IndexStoreError, match="fsspec"):
        open_filesystem("nowhere://bucket/path")


# -- manifests and versions -------------------------------------------------------------------------------------------


def test_versions_are_numbered_and_stay(tmp_path: Path) -> None:
    """Each commit is one version later; older ones can still be read."""
    index = Index(tmp_path)
    first = index.commit(make_manifest(index, (1, "price > 1")))
    second = index.commit(replace(make_manifest(index, (2, "price > 2")), parent=1))
    assert (first.version, second.version, index.latest()) == (1, 2, 2)
    assert index.read(1) == first
    assert index.serve(index.read(), 0).engine.match({"price": 3.0}) == [2]
    with pytest.raises(IndexStoreError, match="begin again"):
        index.commit(replace(make_manifest(index, (3, "price > 3")), parent=1))
    with pytest.raises(IndexStoreError, match="newest: 1, 2"):
        index.read(7)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda b: b[:-5], "damaged"),
        (lambda b: b.replace(b"price", b"prise"), "damaged"),
        (lambda b: b.replace(b'"format_version": 1', b'"format_version": 9'), "this build reads"),
        (lambda _: b"{}", "no index manifest"),
        (lambda _: b"\xff\xfe", "no index manifest"),
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, damage, message: str) -> None:
    """Whatever was done to it, it is not taken for a version."""
    index = Index(tmp_path)
    index.commit(make_manifest(index, (1, "price > 1")))
    [file] = (tmp_path / "versions").iterdir()
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(IndexStoreError, match=message):
        index.read()


def test_layers_lie_over_each_other(tmp_path: Path) -> None:
    """What a layer removes is gone below it, what it adds is there."""
    store = Store(tmp_path)
    base = write_layer(store, make_engine((1, "price > 1"), (2, "price > 2"), (3, "price > 3")))
    delta = write_layer(store, make_engine((2, "price < 0"), (4, "price > 4")), pa.array([2, 3, 99]))
    engine = open_layers(store.url, (base, delta)).engine
    assert sorted(engine.match({"price": 9.0})) == [1, 4]
    assert engine.match({"price": -1.0}) == [2]
    assert len(engine) == 3
    assert sorted(engine.ids().to_pylist()) == [1, 2, 4]


def test_applying_needs_one_schema() -> None:
    """An engine of another schema is refused."""
    with pytest.raises(SubscriptionError, match="schema"):
        Engine(SCHEMA).apply(Engine({"other": "long"}))


def test_subset_takes_whole_filters() -> None:
    """The chosen filters with all their subscriptions, and no others; the engine stays as it was."""
    engine = make_engine((1, "price > 1"), (2, "price > 2"), (3, "price > 1"))
    engine.unsubscribe(3)
    engine.subscribe(4, "price > 1 AND symbol = 'A'")
    with_symbol = engine.subset(
        lambda filters: filters.row_ptr[filters.clause_ptr[1:]] - filters.row_ptr[filters.clause_ptr[:-1]] > 1
    )
    assert with_symbol.ids().to_pylist() == [4]
    assert with_symbol.match({"price": 2.0, "symbol": "A"}) == [4]
    assert sorted(engine.match({"price": 9.0, "symbol": "A"})) == [1, 2, 4]
    assert engine.attributes() == ["symbol", "price"]


@pytest.mark.parametrize("name", ["engine/manifest.json", "removed.arrow"])
def test_a_layer_that_was_tampered_with_is_refused(tmp_path: Path, name: str) -> None:
    """The checksum in the manifest of the index covers every file of the layer."""
    store = Store(tmp_path)
    layer = write_layer(store, make_engine((1, "price > 1")), pa.array([5]))
    file = tmp_path / layer.folder / name
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(IndexStoreError, match="checksum"):
        open_layers(store.url, (layer,))


def test_replicas() -> None:
    """Only subscriptions on several servers are listed."""
    rows = pa.table({"id": [1, 2], "servers": pa.array([[0], [0, 2]], pa.list_(pa.int32()))})
    assert replicas_of(rows).to_pylist() == [{"id": 2, "servers": [0, 2]}]
    assert replicas_of(rows.select(["id"])) is None


# -- pins -------------------------------------------------------------------------------------------------------------


def test_a_pin_stays(tmp_path: Path) -> None:
    """A batch keeps the version it had first, whatever is committed later; each stream has pins of its own."""
    index = Index(tmp_path)
    index.commit(make_manifest(index, (1, "price > 1")))
    pins = Pins(index, "checkpoint")
    assert pins.pin(0) == 1
    index.commit(replace(make_manifest(index, (2, "price > 2")), parent=1))
    assert [pins.pin(0), pins.pin(1), Pins(index, "checkpoint").pin(0)] == [1, 2, 1]
    assert Pins(index, "another").pin(0) == 2
    assert pinned_versions(index.store) == {1, 2}


def test_a_new_stream_forgets_old_pins(tmp_path: Path) -> None:
    """Cleared pins are gone; the next batch 0 takes the current version."""
    index = Index(tmp_path)
    index.commit(make_manifest(index, (1, "price > 1")))
    pins = Pins(index, "checkpoint")
    pins.clear()
    pins.pin(0)
    index.commit(replace(make_manifest(index, (2, "price > 2")), parent=1))
    pins.clear()
    assert pins.pin(0) == 2


def test_pinned_versions_are_not_cleaned(tmp_path: Path) -> None:
    """A version that a stream may ask for stays; the others go, and the files that only they named."""
    index = Index(tmp_path)
    for version in range(4):
        index.commit(replace(make_manifest(index, (version, "price > 1")), parent=version or None))
        if version == 1:
            Pins(index, "checkpoint").pin(0)
    assert index.clean(keep=1, grace_s=0) == [1, 3]
    assert index.versions() == [2, 4]
    assert len(index.store.names("layers")) == 2


def test_young_files_are_left_alone(tmp_path: Path) -> None:
    """A layer that no version names yet may be somebody's about to commit."""
    index = Index(tmp_path)
    index.commit(make_manifest(index, (1, "price > 1")))
    write_layer(index.store, make_engine((2, "price > 2")))
    index.clean(keep=1)
    assert len(index.store.names("layers")) == 2
    index.clean(keep=1, grace_s=0)
    assert len(index.store.names("layers")) == 1


def test_a_damaged_pin_is_refused(tmp_path: Path) -> None:
    """A pin that cannot be read stops the stream: guessing could match against another version."""
    index = Index(tmp_path)
    index.commit(make_manifest(index, (1, "price > 1")))
    pins = Pins(index, "checkpoint")
    pins.pin(0)
    [file] = (tmp_path / "pins").glob("*/*.json")
    file.write_text("{")
    with pytest.raises(IndexStoreError, match="pin"):
        pins.pin(0)


def test_a_sink_that_was_cut_short_is_completed(tmp_path: Path) -> None:
    """With the manifest created the batch counts; moving it into sight is made up for."""
    sink, store = Parquet(str(tmp_path)), Store(tmp_path)
    assert not sink.holds(3)
    attempt = tmp_path / "_attempts" / "000000000003-abcd"
    attempt.mkdir(parents=True)
    (attempt / "part.parquet").write_bytes(b"")
    store.create("_wherecast/000000000003.json", b'{"batch": 3, "attempt": "_attempts/000000000003-abcd"}')
    assert sink.holds(3)
    assert (tmp_path / "batch_id=3" / "part.parquet").exists()
    assert sink.holds(3)
