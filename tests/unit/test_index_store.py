"""The index directory without Spark: stores, manifests, layers, pins, versions."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from wherecast.engine.engine import Engine
from wherecast.errors import SubscriptionError
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.partition.plan import Plan, weigh
from wherecast.spark.build import Built
from wherecast.spark.clean import Pins, pinned_versions, stream_name
from wherecast.spark.index import Index
from wherecast.spark.layers import REMOVED, layer_checksum, open_layers, open_plan, save_plan, write_layer
from wherecast.spark.manifest import Manifest, _header
from wherecast.spark.progress import BatchReport, Reports
from wherecast.spark.sinks.parquet import Parquet
from wherecast.spark.store import IndexStoreError, StaleVersionError, Store, open_filesystem
from wherecast.spark.stream import Batch

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


def test_one_place_has_one_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a folder is written, its URL is the same, and so is the name of the stream with that checkpoint."""
    monkeypatch.chdir(tmp_path)
    ways = [
        "ck/events",
        "ck/events/",
        "./ck/../ck/events",
        str(tmp_path / "ck/events"),
        f"file://{tmp_path}/ck/events/",
    ]
    assert {Store(way).url for way in ways} == {str(tmp_path / "ck/events")}
    assert len({stream_name(way) for way in ways}) == 1
    assert stream_name("ck/changes") != stream_name("ck/events")


def test_hadoops_name_of_s3() -> None:
    """What Spark calls s3a:// is opened as s3://, and keeps the name that Spark knows."""
    url = "s3a://bucket/index?region=eu-west-1"
    found, path = open_filesystem(url)
    assert (found.type_name, path) == ("s3", "bucket/index")
    assert Store(url).url == url


def test_age_of_a_folder_on_an_object_store(tmp_path: Path) -> None:
    """Where folders have no time, the newest file inside counts; where nothing has one, it is taken for new."""
    files = {"a": 100.0, "b/c": 300.0, "b/d": 200.0}

    class ObjectStore:
        def get_file_info(self, asked):
            if not isinstance(asked, fs.FileSelector):
                return fs.FileInfo(asked, fs.FileType.Directory)
            assert asked.recursive
            return [fs.FileInfo(name, fs.FileType.File, mtime=mtime) for name, mtime in files.items()]

    store = Store(tmp_path)
    store._fs = ObjectStore()
    assert store.age_s("layers/x", 1000.0) == 700.0
    files.clear()
    assert store.age_s("layers/x", 1000.0) == 0.0


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
    assert index.serve(index.read(), 0).match({"price": 3.0}) == [2]
    with pytest.raises(IndexStoreError, match="begin again"):
        index.commit(replace(make_manifest(index, (3, "price > 3")), parent=1))
    with pytest.raises(IndexStoreError, match="newest: 1, 2"):
        index.read(7)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda b: b[:-5], "damaged"),
        (lambda b: b.replace(b"price", b"prise"), "damaged"),
        (lambda b: b.replace(b'"format_version": 3', b'"format_version": 9'), "this build reads"),
        (lambda _: b"{}", "not an index manifest"),
        (lambda _: b"\xff\xfe", "not an index manifest"),
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


def test_a_flipped_bit_of_the_first_line_is_noticed(tmp_path: Path) -> None:
    """The checksum covers what is behind the first line; no bit of the line itself can be another, that of the format included."""
    index = Index(tmp_path)
    index.commit(make_manifest(index, (1, "price > 1")))
    [file] = (tmp_path / "versions").iterdir()
    content = file.read_bytes()
    for bit in range(8 * (content.index(b"\n") + 1)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(IndexStoreError):
            Manifest.from_bytes(bytes(damaged), f"bit {bit}")


def forge(index: Index, edit: Callable[[dict[str, Any]], object], format_version: int = 3) -> None:
    """Edit the newest manifest and give it the checksum that fits."""
    name = f"versions/{index.latest():09d}.json"
    fields = json.loads(index.store.read(name).partition(b"\n")[2])
    edit(fields)
    body = json.dumps(fields).encode()
    digest = hashlib.sha256(body).hexdigest()
    header = {"format": "wherecast-index", "format_version": format_version, "sha256": digest}
    index.store.replace(name, json.dumps(header).encode() + b"\n" + body)


def make_routed(index: Index) -> Manifest:
    """A version with a plan and two servers."""
    schema = Schema.of(SCHEMA)
    compiled = Compiler(schema).compile_many([f"symbol = 'S{i}'" for i in range(20)])
    plan = Plan.build(compiled.filters, weigh(compiled), schema, 2, strategy="event-space")
    layers = tuple((write_layer(index.store, make_engine((n, "price > 1"))),) for n in range(2))
    saved = save_plan(index.store, plan)
    return index.commit(Manifest(0, schema.to_json(), "bigint", saved, layers, ("price",), 0, "", None, compacted=True))


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an index with a plan and two servers, to be copied."""
    folder = tmp_path_factory.mktemp("routed")
    make_routed(Index(folder))
    return folder


@pytest.mark.sampled
@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m["servers"][0][0].update(folder="/etc"),
        lambda m: m["servers"][0][0].update(folder="layers/../../elsewhere"),
        lambda m: m["servers"][0][0].update(folder="../layers/0123456789abcdef"),
        lambda m: m["servers"][0][0].update(folder=m["plan"]["folder"]),
        lambda m: m["servers"][0][0].update(folder=7),
        lambda m: m["servers"][0][0].update(checksum=None),
        lambda m: m["servers"][0][0].update(subscriptions="7"),
        lambda m: m["servers"][0][0].update(more=1),
        lambda m: m["servers"][0][0].pop("nbytes"),
        lambda m: m["servers"][0].clear(),
        lambda m: m["servers"].clear(),
        lambda m: m.update(servers=7),
        lambda m: m.update(servers=[[7]]),
        lambda m: m.update(plan=None),
        lambda m: m["plan"].update(folder="/etc"),
        lambda m: m["plan"].update(folder="plans/.."),
        lambda m: m["plan"].update(checksum=7),
        lambda m: m.update(plan="plans/../../x"),
        lambda m: m.update(version="1"),
        lambda m: m.update(version=2),
        lambda m: m.update(id_type="double"),
        lambda m: m.update(sequence=True),
        lambda m: m.update(sequence=-1),
        lambda m: m.update(sequence=2**63),
        lambda m: m.update(attributes=[None]),
        lambda m: m.update(attributes=None),
        lambda m: m.update(gaps=[[3, 1]]),
        lambda m: m.update(gaps=[[1, 2, 3]]),
        lambda m: m.update(gaps=[["a", "b"]]),
        lambda m: m.update(sequence=5, gaps=[[1, 5]]),
        lambda m: m.pop("compacted"),
        lambda m: m.update(parent="1"),
        lambda m: m.update(stranger=1),
    ],
)
def test_a_forged_manifest_is_refused(routed: Path, tmp_path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Checksums that fit do not help: fields have their types, and folders are folders of this index."""
    shutil.copytree(routed, tmp_path, dirs_exist_ok=True)
    index = Index(tmp_path)
    index.read()
    forge(index, edit)
    with pytest.raises(IndexStoreError, match=r"contradicts itself|was moved"):
        index.read()


def test_another_plan_is_refused(tmp_path: Path) -> None:
    """A plan for other servers, or one that is not the plan the manifest was made with, is not used."""
    index = Index(tmp_path)
    manifest = make_routed(index)
    assert index.plan(index.read()) is not None
    forge(index, lambda m: m.update(servers=[*m["servers"], m["servers"][0]]))
    with pytest.raises(IndexStoreError, match="is for 2 servers, version 1 has 3"):
        index.plan(index.read())
    other = save_plan(index.store, Plan.build(*_some_filters(), Schema.of(SCHEMA), 2, strategy="event-space"))
    assert manifest.plan is not None
    shutil.rmtree(tmp_path / manifest.plan.folder)
    shutil.copytree(tmp_path / other.folder, tmp_path / manifest.plan.folder)
    open_plan.cache_clear()
    with pytest.raises(IndexStoreError, match="not what the index says"):
        index.plan(manifest)


def _some_filters() -> tuple[Any, Any]:
    compiled = Compiler(Schema.of(SCHEMA)).compile_many(["symbol = 'X'"])
    return compiled.filters, weigh(compiled)


def test_an_index_of_format_1_is_read(tmp_path: Path) -> None:
    """Its manifests have no checksum of the plan and no gaps; changes made of it are of the new format."""
    index = Index(tmp_path)
    manifest = make_routed(index)
    assert manifest.plan is not None

    def downgrade(fields: dict[str, Any]) -> None:
        fields["plan"] = fields["plan"]["folder"]
        for name in ("gaps", "columns", "id_column", "filter_column", "quarantine", "synced"):
            del fields[name]

    forge(index, downgrade, format_version=1)
    old = index.read()
    assert old == replace(manifest, plan=replace(manifest.plan, checksum=None))
    assert index.plan(old) is not None
    assert index.serve(old, 1).ids().to_pylist() == [1]
    index.commit(replace(old, parent=1))
    assert index.read().plan == old.plan


@pytest.mark.parametrize("link", ["{layer}", "layers", "{layer}/engine", "{layer}/removed.arrow"])
def test_links_are_not_followed(tmp_path: Path, link: str) -> None:
    """A folder of an index, or what is in it, may not be elsewhere."""
    store = Store(tmp_path / "index")
    layer = write_layer(store, make_engine((1, "price > 1")), pa.array([5]))
    place = tmp_path / "index" / link.format(layer=layer.folder)
    moved = place.rename(tmp_path / "elsewhere")
    place.symlink_to(moved)
    with pytest.raises(IndexStoreError, match="is a link"):
        open_layers(store.url, (layer,))


def test_two_builds_at_once(tmp_path: Path) -> None:
    """Of two who begin with nothing, the second is told to begin again; so is a build beside changes."""
    index = Index(tmp_path)
    first, second = make_manifest(index, (1, "price > 1")), make_manifest(index, (2, "price > 2"))
    index.commit(first)
    with pytest.raises(StaleVersionError, match="version 1 was committed while changing nothing"):
        index.commit(second)
    assert index.versions() == [1]


def test_everything_is_on_the_disk_before_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and folders of layers and plans are synced before the manifest is there; then the manifest and its folder are."""
    steps: list[tuple[str, Path]] = []
    fsync, link, rename = os.fsync, os.link, Path.rename

    def record_sync(handle: int) -> None:
        steps.append(("sync", Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    def record_link(source: Path, target: Path) -> None:
        steps.append(("link", Path(target)))
        assert ("sync", Path(source)) in steps
        link(source, target)

    def record_rename(source: Path, target: Path) -> Path:
        steps[:] = [(what, target / p.relative_to(source) if p.is_relative_to(source) else p) for what, p in steps]
        steps.append(("rename", target))
        return rename(source, target)

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "link", record_link)
    monkeypatch.setattr(Path, "rename", record_rename)
    index = Index(tmp_path / "new" / "index")
    made = make_routed(index)
    delta = write_layer(index.store, make_engine((7, "price > 7")), pa.array([5]))
    index.commit(replace(made, servers=((*made.servers[0], delta), made.servers[1]), parent=1))
    root = tmp_path / "new" / "index"
    for number, manifest in ((1, made), (2, index.read())):
        created = steps.index(("link", root / f"versions/{number:09d}.json"))
        before = steps[:created]
        for folder in manifest.folders:
            for path in (root / folder, *(root / folder).rglob("*")):
                assert ("sync", path) in before, path
            assert before.index(("rename", root / folder)) < _last(before, ("sync", (root / folder).parent))
        assert ("sync", root / "versions") in steps[created:]
        for folder in (tmp_path, tmp_path / "new", root):  # they have new names in them
            assert ("sync", folder) in before


def _last(steps: list[tuple[str, Path]], step: tuple[str, Path]) -> int:
    return len(steps) - 1 - steps[::-1].index(step)


def test_layers_lie_over_each_other(tmp_path: Path) -> None:
    """What a layer removes is gone below it, what it adds is there."""
    store = Store(tmp_path)
    base = write_layer(store, make_engine((1, "price > 1"), (2, "price > 2"), (3, "price > 3")))
    delta = write_layer(store, make_engine((2, "price < 0"), (4, "price > 4")), pa.array([2, 3, 99]))
    engine = open_layers(store.url, (base, delta))
    assert sorted(engine.match({"price": 9.0})) == [1, 4]
    assert engine.match({"price": -1.0}) == [2]
    assert len(engine) == 3
    assert sorted(engine.ids().to_pylist()) == [1, 2, 4]


def test_layers_that_do_not_fit(tmp_path: Path) -> None:
    """A layer that adds what is there already, or removes what is no id, is refused: nothing is served twice."""
    store = Store(tmp_path)
    base = write_layer(store, make_engine((1, "price > 1")))
    twice = write_layer(store, make_engine((1, "price > 2")))
    with pytest.raises(IndexStoreError, match=r"1 ids are in both engines.*build the index again"):
        open_layers(store.url, (base, twice))
    odd = write_layer(store, make_engine((2, "price > 2")), pa.array([1.5]))
    with pytest.raises(IndexStoreError, match="row 0: an id is a string or an integer"):
        open_layers(store.url, (base, odd))


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


def test_a_pin_is_of_a_version_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that is cleaned away between looking and pinning is not pinned; the current one is."""
    index = Index(tmp_path)
    index.commit(make_manifest(index, (1, "price > 1")))
    create = Store.create

    def overtaken(store: Store, name: str, content: bytes) -> bool:
        if "pins" in name and index.versions() == [1]:
            index.commit(replace(make_manifest(index, (2, "price > 2")), parent=1))
            assert index.clean(keep=1) == [1]
        return create(store, name, content)

    monkeypatch.setattr(Store, "create", overtaken)
    pins = Pins(index, "checkpoint")
    assert pins.pin(0) == 2
    assert pins.known() == {0: 2}


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


def test_drafts_of_the_killed_are_removed(tmp_path: Path) -> None:
    """What a process that was killed left half done goes once it is old; what is young may be somebody's at work."""
    index = Index(tmp_path)
    index.commit(make_manifest(index, (1, "price > 1")))
    draft = tmp_path / "layers" / ".draft-abc"
    (draft / "engine").mkdir(parents=True)
    (draft / "engine" / "half").write_text("x")
    index.clean()
    assert draft.exists()
    index.clean(grace_s=0)
    assert not draft.exists()
    assert index.serve(index.read(), 0)


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


BATCH = Batch(3, "stream", "offsets")


def test_a_sink_that_was_cut_short_is_completed(tmp_path: Path) -> None:
    """With the manifest created the batch counts; moving it into sight is made up for."""
    sink, store = Parquet(str(tmp_path), goes_on=True), Store(tmp_path)
    assert not sink.holds(BATCH)
    attempt = tmp_path / "_attempts" / "000000000003-abcd"
    attempt.mkdir(parents=True)
    (attempt / "part.parquet").write_bytes(b"")
    store.create("_wherecast/000000000003.json", b'{"batch": 3, "attempt": "_attempts/000000000003-abcd"}')
    assert sink.holds(BATCH)
    assert (tmp_path / "batch_id=3" / "part.parquet").exists()
    assert sink.holds(BATCH)


def test_attempts_of_the_killed_are_removed(tmp_path: Path) -> None:
    """Once a batch is in, what other runs left of it goes; attempts at other batches stay."""
    sink, store = Parquet(str(tmp_path), goes_on=True), Store(tmp_path)
    for name in ("000000000003-abcd", "000000000003-dead", "000000000004-abcd"):
        (tmp_path / "_attempts" / name).mkdir(parents=True)
    assert not sink.holds(BATCH)
    assert len(store.names("_attempts")) == 3
    store.create("_wherecast/000000000003.json", b'{"batch": 3, "attempt": "_attempts/000000000003-abcd"}')
    assert sink.holds(BATCH)
    assert store.names("_attempts") == ["000000000004-abcd"]
    assert (tmp_path / "batch_id=3").exists()


# -- reports ----------------------------------------------------------------------------------------------------------


def make_report(batch: int, events: int, *, replayed: bool = False) -> BatchReport:
    return BatchReport(batch, 1, events, events, 9, 7, 0, 0, replayed, 1.0, None, 0.5, 2.0)


def test_a_replay_keeps_the_numbers(tmp_path: Path) -> None:
    """A batch that the sink has already is marked as replayed; what was counted when it was matched stays."""
    reports = Reports(Index(tmp_path), "checkpoint", BatchReport)
    for batch in range(3):
        reports.add(make_report(batch, 100))
    again = Reports(Index(tmp_path), "checkpoint", BatchReport)
    again.add(make_report(2, 0, replayed=True))
    assert again.read() == [*(make_report(batch, 100) for batch in range(2)), make_report(2, 100, replayed=True)]
    again.add(make_report(3, 0, replayed=True))  # nothing is known of it
    assert again.read()[-1] == make_report(3, 0, replayed=True)


@pytest.mark.parametrize("content", [b"{", b"\xff", b"7", b'[{"batch": 1}]', b'["x"]', b'{"a": 1}'])
def test_damaged_reports_are_forgotten(tmp_path: Path, content: bytes) -> None:
    """Numbers for people never stop a stream: the next batch begins a new file."""
    reports = Reports(Index(tmp_path), "checkpoint", BatchReport)
    reports.add(make_report(0, 100))
    [file] = (tmp_path / "reports").iterdir()
    file.write_bytes(content)
    assert reports.read() == []
    again = Reports(Index(tmp_path), "checkpoint", BatchReport)
    again.add(make_report(1, 50))
    assert again.read() == [make_report(1, 50)]


def test_a_forged_manifest_is_refused_or_harmless(tmp_path: Path) -> None:
    """Whatever stands in the place of a part of a manifest, its checksum being right: an error of ours or an engine."""
    index = Index(tmp_path / "index")
    genuine = make_manifest(index, (1, "price > 5"))
    body = json.loads(genuine.to_bytes().partition(b"\n")[2])
    values = [None, True, -1, 2**70, 1.5, "", "..", "layers/..", "/etc", [], {}, [[]], [{}], [[{}]], [None]]
    places = [(key,) for key in body] + [("servers", 0), ("servers", 0, 0), ("attributes", 0)]
    places += [("servers", 0, 0, key) for key in body["servers"][0][0]]
    refused = 0
    for *way, last in places:
        for value in values:
            forged = json.loads(json.dumps(body))
            at = forged
            for key in way:
                at = at[key]
            at[last] = value
            text = json.dumps(forged).encode()
            try:
                manifest = Manifest.from_bytes(_header(text) + text, "forged")
                for layers in manifest.servers:
                    if layers:
                        open_layers(index.store.url, layers)
            except IndexStoreError:
                refused += 1
    assert refused > len(places) * len(values) / 2


def test_forged_removed_ids_are_refused(tmp_path: Path) -> None:
    """Offsets of removed ids that lead out of their file are noticed before they are followed."""
    index = Index(tmp_path / "index")
    base = write_layer(index.store, make_engine((1, "price > 5")))
    layer = write_layer(index.store, make_engine((2, "price > 6")), pa.array(["a", "bc", "def"]))
    file = index.store.fetch(layer.folder) / REMOVED
    offsets, lies = (b"".join(n.to_bytes(4, "little") for n in ends) for ends in ((0, 1, 3, 6), (0, 1, 2**30, 6)))
    content = file.read_bytes()
    assert content.count(offsets) == 1
    file.write_bytes(content.replace(offsets, lies))
    forged = replace(layer, checksum=layer_checksum(file.parent))
    with pytest.raises(IndexStoreError, match="cannot be read"):
        open_layers(index.store.url, (base, forged))


def test_what_notebooks_show_of_an_index(tmp_path: Path) -> None:
    """Versions with their numbers, names escaped; a folder without an index is no error."""
    index = Index(tmp_path / "<b>x&y")
    assert "&lt;b&gt;x&amp;y" in index._repr_html_()
    before = None
    for _ in range(12):
        before = index.commit(replace(make_manifest(index, (1, "price > 1")), parent=before and before.version))
    assert repr(index) == f"Index({index.url!r})"
    page = index._repr_html_()
    assert "<b>x" not in page
    assert "<td>12</td>" in page
    assert "... 2 more" in page
    built = Built(index, before, None, None)
    assert repr(built) == f"Built(version 12 of {index.url!r}: 1 subscriptions, 1 servers)"
    assert "<b>x" not in built._repr_html_()
