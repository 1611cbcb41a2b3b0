"""An index on S3: commits are conditional puts, so two writers cannot lose each other's version."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyarrow import fs
from s3fs import S3FileSystem
from tests.servers.s3 import BUCKET, running_s3

from wherecast.language.events.schema import Schema
from wherecast.spark.index import Index
from wherecast.spark.manifest import Manifest
from wherecast.spark.sinks.parquet import Parquet
from wherecast.spark.sinks.sink import SinkError
from wherecast.spark.store import IndexStoreError, StaleVersionError, Store, open_filesystem
from wherecast.spark.stream import Batch

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The URL of a bucket, which all clients of this process find.

    A process that comes back to these tests gets another server, and s3fs would go on asking the first.
    """
    with running_s3() as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        S3FileSystem.clear_instance_cache()
        yield f"s3://{BUCKET}"


def test_a_file_is_created_once(s3: str) -> None:
    """Of eight writers at the same moment one is told that the file is its own, and that one's content stays."""
    store = Store(f"{s3}/once")
    with ThreadPoolExecutor(8) as threads:
        for round in range(5):
            name = f"versions/{round}.json"
            contents = [f"by {n}".encode() for n in range(8)]
            made = list(threads.map(lambda content, name=name: store.create(name, content), contents))
            assert made.count(True) == 1
            assert store.read(name) == contents[made.index(True)]


def test_a_writer_that_looked_too_early(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that appears between looking and putting stays, and the second writer hears of it."""
    first, second = Store(f"{s3}/early"), Store(f"{s3}/early")
    monkeypatch.setattr(second, "exists", lambda _: False)
    assert first.create("versions/1.json", b"first")
    with pytest.raises(OSError, match=r"pre-?conditions"):
        second.create("versions/1.json", b"second")
    monkeypatch.undo()
    assert not second.create("versions/1.json", b"second")
    assert first.read("versions/1.json") == b"first"


def test_two_writers_of_an_index(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both build on version 1. The later one is refused, and the version of the earlier one stays."""
    one, two = Index(f"{s3}/index"), Index(f"{s3}/index")
    schema = Schema.of({"price": "double"}).to_json()
    first = Manifest(0, schema, "bigint", None, ((),), (), sequence=0, created="", parent=None, compacted=True)
    base = one.commit(first)
    assert base.version == 1
    versions = two.versions
    monkeypatch.setattr(two, "versions", lambda: [v for v in versions() if v <= base.version])  # it looked a moment ago
    committed = one.commit(replace(base, parent=1, sequence=5))
    with pytest.raises(StaleVersionError, match="version 2 was committed by somebody else"):
        two.commit(replace(base, parent=1, sequence=6))
    assert Store(f"{s3}/index").read("versions/000000002.json") == committed.to_bytes()


def test_folders_are_fetched_and_removed(s3: str) -> None:
    """A folder goes up whole, comes down whole, and is gone when it is removed."""
    store = Store(f"{s3}/folders")
    with store.new_folder("layers") as (folder, name):
        (folder / "ids.arrow").write_bytes(b"ids")
        (folder / "inside").mkdir()
        (folder / "inside" / "more").write_bytes(b"more")
    found = store.fetch(name)
    assert (found / "ids.arrow").read_bytes() == b"ids"
    assert (found / "inside" / "more").read_bytes() == b"more"
    assert store.names("layers") == [name.partition("/")[2]]
    store.remove(name)
    assert store.names("layers") == []


def rows(*numbers: int) -> Any:
    """What a sink needs of a DataFrame: a file for each number, and a marker."""

    def write(url: str) -> None:
        remote, place = open_filesystem(url)
        for name in (*(f"part-{number}" for number in numbers), "_SUCCESS"):
            with remote.open_output_stream(f"{place}/{name}") as stream:
                stream.write(name.encode())

    writer = SimpleNamespace(parquet=write)
    writer.option = lambda *_: writer
    return SimpleNamespace(columns=["row"], write=writer)


def test_a_batch_whose_move_is_cut_short(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest decides; when the batch comes again, the rest of it is moved, and nothing is written twice."""
    url, batch = f"{s3.replace('s3:', 's3a:')}/out", Batch(0, "one", "a")
    copy = fs.copy_files

    def half(source: str, target: str, **options: Any) -> None:
        copy(f"{source}/part-1", f"{target}/part-1", **options)
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("wherecast.spark.store.fs.copy_files", half)
        with pytest.raises(OSError, match="killed"):
            Parquet(url).write(rows(1, 2), batch)
    store = Store(url)
    assert store.names("batch_id=0") == ["part-1"]
    assert Parquet(url).holds(batch)
    assert store.names("batch_id=0") == ["_SUCCESS", "part-1", "part-2"]
    assert store.names("_attempts") == []
    assert Parquet(url).holds(batch)
    with pytest.raises(SinkError, match="another stream"):
        Parquet(url).holds(Batch(0, "two", "a"))


def missing(protocol: str, **_: object) -> None:
    raise ImportError(protocol)


def test_without_its_driver_nothing_is_written(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where s3fs is not installed, a commit is refused rather than risked."""
    monkeypatch.setattr("fsspec.filesystem", missing)
    with pytest.raises(IndexStoreError, match="pip install s3fs"):
        Store(f"{s3}/without").create("versions/1.json", b"")
