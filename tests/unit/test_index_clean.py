"""Cleaning an index beside builds, changes, streams, readers and other clean-ups, on a local disk and on an object store."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.examples import scaled
from tests.unit.index_versions import commit, manifest_of, write

from wherecast.spark import clean as clean_module
from wherecast.spark import tidying
from wherecast.spark.clean import Pins, pinned_versions
from wherecast.spark.index import Index
from wherecast.spark.layers import open_layers
from wherecast.spark.store import LEASES, IndexStoreError, StaleVersionError, Store


@pytest.fixture(params=["local", "memory"])
def index(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """An empty index; in memory, folders have no time, nothing is renamed and copies are mapped."""
    if request.param == "local":
        return Index(tmp_path / "index")
    pytest.importorskip("fsspec")
    monkeypatch.setenv("WHERECAST_CACHE", str(tmp_path / "cache"))
    return Index(f"memory://{tmp_path.name}")


def layers(index: Index) -> set[str]:
    return {f"layers/{name}" for name in index.store.names("layers", drafts=True)}


@contextmanager
def hooked(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, hook: Callable[..., None]) -> Iterator[None]:
    """Call a function before a method runs, with the method's arguments; not while it is running itself."""
    method, busy = getattr(owner, name), []

    def run(*arguments: Any, **options: Any) -> Any:
        if not busy:
            busy.append(True)
            try:
                hook(*arguments)
            finally:
                busy.clear()
        return method(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, run)
        yield


def expire(index: Index) -> None:
    """As if all writers had been suspended for long."""
    for name in index.store.names(LEASES):
        fields = json.loads(index.store.read(f"{LEASES}/{name}"))
        fields["renewed"] -= clean_module.EXPIRY_S
        index.store.replace(f"{LEASES}/{name}", json.dumps(fields).encode())


# -- writers ----------------------------------------------------------------------------------------------------------


def test_what_a_writer_made_stays(index: Index) -> None:
    """However old it is and however short the grace: its writer is still at work, and commits it afterwards."""
    commit(index)
    with index.begin() as before:
        assert before is not None
        layer = write(index)
        index.clean(keep=1, grace_s=0)
        committed = index.commit(manifest_of(layer, before.version))
    assert layer.folder in layers(index)
    assert len(index.serve(committed, 0)) == 1
    assert index.store.names(LEASES) == []


def test_the_version_that_a_writer_reads_stays(index: Index) -> None:
    """It goes with the next clean-up after the writer has ended."""
    first = commit(index)
    with index.begin() as before:
        commit(index)
        commit(index)
        assert index.clean(keep=1, grace_s=0) == [2]
        assert before == first
        assert len(index.serve(first, 0)) == 1
    assert index.clean(keep=1, grace_s=0) == [1]


def test_a_writer_that_is_overtaken_while_it_begins(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that came too late to hold a version is not relied upon: the writer begins with the next one."""
    commit(index)
    overtaken = []

    def overtake(*_: Any) -> None:
        if not overtaken:
            overtaken.append(commit(index))
            assert index.clean(keep=1, grace_s=0) == [1]

    with hooked(monkeypatch, Store, "replace", overtake), index.begin() as before:
        assert before == overtaken[0]


def test_a_writer_that_was_killed(index: Index) -> None:
    """What it left stays until its lease ends, and goes then; nothing of it was ever visible."""
    commit(index)
    lease = clean_module.hold(index.store, 1)
    lease.__enter__()
    content = index.store.read(f"{LEASES}/{index.store.names(LEASES)[0]}")
    layer = write(index)
    lease.__exit__(None, None, None)
    index.store.replace(f"{LEASES}/killed.json", content)
    index.clean(grace_s=0)
    assert layer.folder in layers(index)
    expire(index)
    index.clean(grace_s=0)
    assert layer.folder not in layers(index)
    assert index.store.names(LEASES) == []
    assert index.versions() == [1]


def test_a_lease_is_renewed(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as its writer runs, it does not end; errors of the file system do not stop that."""
    monkeypatch.setattr(clean_module, "RENEW_S", 0.01)
    renewals, enough = [], threading.Event()

    def count(_: Store, name: str, __: bytes) -> None:
        renewals.append(name)
        if len(renewals) == 3:
            raise OSError("for once")
        if len(renewals) > 5:
            enough.set()

    with hooked(monkeypatch, Store, "replace", count), index.begin():
        assert enough.wait(30)
        expire(index)
        while not clean_module.read_leases(index.store):
            time.sleep(0.01)
    assert index.store.names(LEASES) == []


@pytest.mark.sampled
@pytest.mark.parametrize("content", [b"", b"{", b"7", b'{"version": 1}', b"\xff"])
def test_a_damaged_lease_means_nothing(index: Index, content: bytes) -> None:
    """Its writer's host went down while writing it."""
    commit(index)
    index.store.replace(f"{LEASES}/damaged.json", content)
    layer = write(index)
    index.clean(grace_s=0)
    assert layer.folder not in layers(index)


# -- commits ----------------------------------------------------------------------------------------------------------


def test_a_version_of_missing_layers_is_not_committed(index: Index) -> None:
    """It would be visible and could not be read."""
    first = commit(index)
    layer = write(index)
    index.store.remove(layer.folder)
    with pytest.raises(StaleVersionError, match="removed by a clean-up before a version named it; begin again"):
        index.commit(manifest_of(layer, 1))
    index.store.remove(first.servers[0][0].folder)
    with pytest.raises(IndexStoreError, match="is missing; restore it or build the index again") as raised:
        index.commit(replace(first, parent=1))
    assert not isinstance(raised.value, StaleVersionError)  # to begin again would not help
    assert index.versions() == [1]


def test_a_writer_that_comes_back_during_a_clean_up(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders that are marked are not committed; nothing becomes visible, and the second attempt succeeds."""
    commit(index)
    outcomes: list[Any] = []
    with index.begin():
        layer = write(index)
        expire(index)

        def come_back(*_: Any) -> None:
            if layers(index) & {layer.folder} and any(".removing-" in name for name in layers(index)):
                try:
                    outcomes.append(index.commit(manifest_of(layer, 1)))
                except StaleVersionError as error:
                    outcomes.append(error)

        with hooked(monkeypatch, clean_module, "_named", come_back):
            index.clean(grace_s=0)
    assert [type(outcome) for outcome in outcomes] == [StaleVersionError]
    assert index.versions() == [1]
    assert layers(index) == index.read().folders
    assert commit(index).version == 2


def test_a_clean_up_during_a_commit(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the last look at its folders and the manifest, a clean-up finds their names in the lease of the commit."""
    monkeypatch.setattr(clean_module, "_SKEW_S", -60.0)  # that the folders are young does not help
    commit(index)
    with index.begin():
        layer = write(index)
        expire(index)

        def clean(_: Store, name: str, __: bytes) -> None:
            if name.startswith("versions"):
                Index(index.url).clean(keep=1, grace_s=0)

        with hooked(monkeypatch, Store, "create", clean):
            committed = index.commit(manifest_of(layer, 1))
    assert len(index.serve(committed, 0)) == 1


def test_a_commit_between_two_looks_of_a_clean_up(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders that no version named when they were found, but one names now, stay."""
    commit(index)
    layer, committed = write(index), []

    def come_first(*_: Any) -> None:
        if not committed and not any(".removing-" in name for name in layers(index)):
            committed.append(index.commit(manifest_of(layer, 1)))

    # The first look is over when folders are marked.
    with hooked(monkeypatch, clean_module, "_mark", come_first):
        index.clean(keep=2, grace_s=0)
    assert len(index.serve(committed[0], 0)) == 1
    assert layers(index) == {folder for manifest in index.manifests() for folder in manifest.folders}


def test_two_clean_ups_at_once(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """One finds gone what the other removed, at every step; a mark that one takes away leaves that of the other."""
    for _ in range(3):
        commit(index)
    write(index)
    with hooked(monkeypatch, Store, "remove", lambda *_: Index(index.url).clean(keep=1, grace_s=0)):
        assert set(index.clean(keep=1, grace_s=0)) == {1, 2}
    assert index.versions() == [3]
    assert layers(index) == index.read().folders


# -- readers and pins -------------------------------------------------------------------------------------------------


def test_pins_that_are_forgotten_meanwhile(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that goes on between listing its pins and reading them does not disturb a clean-up."""
    commit(index)
    pins = Pins(index, "checkpoint")
    pins.pin(0)
    with hooked(monkeypatch, Store, "read", lambda *_: pins.clear()):
        assert pinned_versions(index.store) == set()
    commit(index)
    pins.pin(1)
    with hooked(monkeypatch, Store, "read", lambda *_: pins.clear()):
        assert index.clean(keep=1, grace_s=0) == [1]


def test_reading_the_current_version_beside_a_clean_up(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader whose version is replaced and removed before it is read gets the next one."""
    commit(index)

    def overtake(_: Store, name: str) -> None:
        if name.endswith("1.json"):
            commit(index)
            index.clean(keep=1, grace_s=0)

    with hooked(monkeypatch, Store, "read", overtake):
        assert index.read().version == 2
    with pytest.raises(IndexStoreError, match=r"has no version 1 any more \(newest: 2\)"):
        index.read(1)


def test_using_a_version_that_is_gone(index: Index) -> None:
    """The reader is told that it was cleaned away, which is not damage."""
    old = commit(index)
    commit(index)
    index.clean(keep=1, grace_s=0)
    with pytest.raises(IndexStoreError, match=r"version 1 of .* was removed by a clean-up while it was used"):
        index.serve(old, 0)


def test_a_damaged_manifest_stops_a_clean_up(tmp_path: Path) -> None:
    """What it names is unknown, so no folder is removed."""
    index = Index(tmp_path)
    commit(index)
    write(index)
    before = layers(index)
    (tmp_path / "versions" / "000000001.json").write_bytes(b"{}")
    with pytest.raises(IndexStoreError, match="not an index manifest"):
        index.clean(grace_s=0)
    assert layers(index) == before


def test_a_clean_up_that_fails_does_not_end_the_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged and tried again later."""
    index = Index(tmp_path)
    monkeypatch.setattr(tidying, "compact", lambda *_: None)
    for error in (FileNotFoundError("gone"), IndexStoreError("a pin is damaged")):

        def fail(*_: Any, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(Index, "clean", fail)
        with caplog.at_level(logging.WARNING, logger="wherecast.spark"):
            tidying.tidy(None, index, 1)  # type: ignore[arg-type]
        assert str(error) in caplog.text


# -- all together -----------------------------------------------------------------------------------------------------


def test_everybody_at_once(tmp_path: Path) -> None:
    """Writers, streams that pin, readers and clean-ups in threads: no error, and every pinned version can be read."""
    index = Index(tmp_path)
    commit(index)
    failures: list[BaseException] = []
    committed: list[int] = []
    over = threading.Event()

    def forever(work: Callable[[Index, int], None]) -> Callable[[], None]:
        def run() -> None:
            own, round = Index(tmp_path), 0
            try:
                while not over.is_set():
                    work(own, round)
                    round += 1
            except BaseException as error:  # noqa: BLE001 - it fails the test
                failures.append(error)
                over.set()

        return run

    def write_version(own: Index, _: int) -> None:
        try:
            committed.append(commit(own).version)
        except StaleVersionError:
            return
        if len(committed) >= scaled(25):
            over.set()

    def follow_stream(own: Index, batch: int, name: str) -> None:
        pins = Pins(own, name)
        manifest = own.read(pins.pin(batch))
        assert len(open_layers.__wrapped__(own.url, manifest.servers[0])) == 1
        assert pins.pin(batch) == manifest.version

    def read(own: Index, _: int) -> None:
        with own.change() as manifest:
            assert len(open_layers.__wrapped__(own.url, manifest.servers[0])) == 1

    work = [write_version, write_version, read, lambda own, _: own.clean(keep=1, grace_s=0)]
    work += [lambda own, _: own.clean(keep=2, grace_s=0)]
    work += [lambda own, n, name=name: follow_stream(own, n, name) for name in ("a", "b")]
    threads = [threading.Thread(target=forever(w)) for w in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(committed) == len(set(committed)) >= scaled(25)
    index.clean(keep=1, grace_s=0)
    assert layers(index) == {folder for manifest in index.manifests() for folder in manifest.folders}


_WRITER = """
import sys
from wherecast.spark.store import StaleVersionError
sys.path.insert(0, sys.argv[2])
from tests.unit.index_versions import Index, commit
index, done = Index(sys.argv[1]), 0
while done < 8:
    try:
        commit(index)
    except StaleVersionError:
        continue
    done += 1
"""


@pytest.mark.slow
def test_processes_at_once(tmp_path: Path) -> None:
    """Two processes commit while this one cleans: each of their versions is committed once, and the last can be read."""
    command = [sys.executable, "-c", _WRITER, str(tmp_path), str(Path(__file__).parents[2])]
    writers = [subprocess.Popen(command) for _ in range(2)]
    index, seen = Index(tmp_path), 0
    while any(writer.poll() is None for writer in writers):
        index.clean(keep=1, grace_s=0)
        seen += bool(index.versions()) and len(index.serve(index.read(), 0))
    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen
    assert index.latest() == 16
    assert len(index.serve(index.read(), 0)) == 1
