"""Sinks take the batches of one stream, each once, and only from the source offsets that they know: without Spark."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wherecast.spark.clean import Pins
from wherecast.spark.config import SinkConfig
from wherecast.spark.index import Index
from wherecast.spark.sinks.delta import Delta
from wherecast.spark.sinks.foreach import Foreach
from wherecast.spark.sinks.jdbc import Jdbc
from wherecast.spark.sinks.kafka import Kafka
from wherecast.spark.sinks.kinds import KINDS
from wherecast.spark.sinks.parquet import Parquet
from wherecast.spark.sinks.sink import Sink, SinkError
from wherecast.spark.store import IndexStoreError, Store
from wherecast.spark.stream import Batch, Checkpoint


def rows(*numbers: int) -> Any:
    """What a sink needs of a DataFrame: two files and a marker, as Spark writes them."""

    def write(path: str) -> None:
        folder = Path(path)
        folder.mkdir(parents=True)
        for part, number in enumerate(numbers):
            pq.write_table(pa.table({"row": [number]}), folder / f"part-{part}.parquet")
        (folder / "_SUCCESS").touch()

    writer = SimpleNamespace(parquet=write)
    writer.option = lambda *_: writer
    return SimpleNamespace(columns=["row"], write=writer)


def found(path: Path) -> list[int]:
    files = path.glob("batch_id=*/*.parquet")
    return sorted(row for file in files for row in pq.read_table(file, partitioning=None)["row"].to_pylist())


def take(sink: Parquet, batch: Batch, *numbers: int) -> None:
    """As a stream does it."""
    if not sink.holds(batch):
        sink.write(rows(*numbers), batch)


def make_checkpoint(folder: Path, stream: str, offsets: list[str], files: dict[int, list[str]] | None = None) -> None:
    """As Spark writes it; `files` are those of each offset of a source of files."""
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": stream}))
    for number, line in enumerate(offsets):
        (folder / "offsets" / str(number)).write_text(f'v1\n{{"batchTimestampMs":{os.urandom(4).hex()!r}}}\n{line}')
    for number, paths in (files or {}).items():
        entries = [json.dumps({"path": path, "timestamp": 1, "batchId": number}) for path in paths]
        (folder / "sources" / "0" / str(number)).write_text("\n".join(["v1", *entries]))


def test_no_dictionary_where_parquet_gave_it_up(tmp_path: Path) -> None:
    """A column that has come out without a dictionary is written without trying one, until a later batch tries again."""
    options: dict[str, str] = {}

    def write(path: str) -> None:
        Path(path).mkdir(parents=True)
        table = pa.table({"host": ["a", "a"], "ids": [[1, 2], [3]]})
        pq.write_table(table, Path(path) / "part-0.parquet", use_dictionary=["host"])

    def option(name: str, value: str) -> Any:
        options[name] = value
        return writer

    writer = SimpleNamespace(parquet=write, option=option)
    sink, asked = Parquet(str(tmp_path)), []
    for number in (0, 1, 49, 50):
        options.clear()
        matches: Any = SimpleNamespace(columns=["host", "ids"], write=writer)
        sink.write(matches, Batch(number, "one", "a"))
        asked.append({name: value for name, value in options.items() if "dictionary" in name})
    without = {"parquet.enable.dictionary#ids.list.element": "false"}
    assert asked == [{}, without, without, {}]


def test_a_footer_that_cannot_be_read_does_not_stop_a_batch(tmp_path: Path) -> None:
    """Footers may be encrypted. The batch is written all the same, and the next one tries a dictionary, too."""
    options: list[str] = []

    def write(path: str) -> None:
        Path(path).mkdir(parents=True)
        (Path(path) / "part-0.parquet").write_bytes(b"PARE" + bytes(20) + b"PARE")

    def option(name: str, _: str) -> Any:
        options.append(name)
        return writer

    writer = SimpleNamespace(parquet=write, option=option)
    sink = Parquet(str(tmp_path))
    for number in (0, 1):
        matches: Any = SimpleNamespace(columns=["ids"], write=writer)
        sink.write(matches, Batch(number, "one", "a"))
        assert sink.holds(Batch(number, "one", "a"))
    assert not [name for name in options if "dictionary" in name]


def test_two_streams_one_sink(tmp_path: Path) -> None:
    """The stream that comes second is refused, at its first batch and at its start; the first goes on."""
    sink = Parquet(str(tmp_path))
    take(sink, Batch(0, "one", "a"), 1, 2)
    with pytest.raises(SinkError, match=r"another stream \(one; this one is two\).*a sink of its own"):
        take(sink, Batch(1, "two", "a"), 3)
    with pytest.raises(SinkError, match="another stream"):
        sink.write(rows(3), Batch(1, "two", "a"))
    for stranger in ("two", None):
        with pytest.raises(SinkError, match="another stream"):
            sink.admit(stranger)
    sink.admit("one")
    take(sink, Batch(0, "one", "a"), 1, 2)
    take(sink, Batch(1, "one", "b"), 3)
    assert found(tmp_path) == [1, 2, 3]


def test_dead_letters_need_a_sink_of_their_own(tmp_path: Path) -> None:
    """In the sink of the matches they would be taken for a repetition of the matches."""
    batch, sink = Batch(0, "one", "a"), Parquet(str(tmp_path))
    take(sink, batch, 1)
    with pytest.raises(SinkError, match="one/dead-letters"):
        take(sink, batch.dead_letters, 2)


def test_the_first_to_claim_a_sink_wins(tmp_path: Path) -> None:
    """Of streams that start together exactly one writes."""
    outcomes: list[object] = []
    barrier = threading.Barrier(8)

    def run(stream: str) -> None:
        barrier.wait()
        try:
            take(Parquet(str(tmp_path)), Batch(0, stream, "a"), int(stream))
            outcomes.append(int(stream))
        except SinkError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=run, args=(str(n),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [outcome for outcome in outcomes if isinstance(outcome, int)]
    assert len(outcomes) == 8
    assert len(winners) == 1
    assert found(tmp_path) == winners


def test_a_batch_of_other_offsets_is_no_repetition(tmp_path: Path) -> None:
    """A stream that lost its progress counts anew: what it calls batch 0 now is not what the sink has as batch 0."""
    sink = Parquet(str(tmp_path))
    take(sink, Batch(0, "one", "a"), 1)
    with pytest.raises(
        SinkError, match=r"batch 0 of this stream, but from other source offsets.*restore the checkpoint"
    ):
        take(sink, Batch(0, "one", "b"), 2)


def test_a_sink_without_an_owner(tmp_path: Path) -> None:
    """Written by an earlier release: the stream that goes on there takes it over, one that is behind or new is refused."""
    store, sink = Store(tmp_path), Parquet(str(tmp_path))
    for number in (0, 1):
        store.create(f"_wherecast/{number:012d}.json", json.dumps({"batch": number, "attempt": "_attempts/x"}).encode())
    with pytest.raises(SinkError, match="another stream"):
        sink.admit(None)
    with pytest.raises(SinkError, match="another stream"):
        sink.holds(Batch(0, "new", "a"))
    sink.admit("old")
    assert sink.holds(Batch(1, "old", "a"))
    take(sink, Batch(2, "old", "b"), 5)
    with pytest.raises(SinkError, match="another stream"):
        sink.holds(Batch(3, "other", "c"))


@pytest.mark.parametrize("name", ["stream", "000000000000"])
@pytest.mark.parametrize("content", [b"{", b"[]", b'{"x": 1}'])
def test_a_damaged_sink_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    """What cannot be read is not guessed."""
    sink = Parquet(str(tmp_path))
    take(sink, Batch(0, "one", "a"), 1)
    (tmp_path / "_wherecast" / f"{name}.json").write_bytes(content)
    with pytest.raises(IndexStoreError, match=f"{name}.json is damaged"):
        sink.holds(Batch(0, "one", "a"))


def test_data_is_durable_before_its_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file of a batch, and every folder on the way, is on disk before the manifest that names it appears."""
    steps: list[tuple[str, str]] = []
    fsync, link, move = os.fsync, os.link, Store.move

    def traced_fsync(handle: int) -> None:
        fsync(handle)
        steps.append(("sync", str(Path(f"/proc/self/fd/{handle}").readlink())))

    def traced_link(source: Any, target: Any) -> None:
        steps.append(("create", str(target)))
        link(source, target)

    def traced_move(store: Store, source: str, target: str) -> None:
        steps.append(("move", f"{store.url}/{target}"))
        move(store, source, target)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(os, "link", traced_link)
    monkeypatch.setattr(Store, "move", traced_move)
    out = tmp_path / "new" / "sink"
    take(Parquet(str(out)), Batch(0, "one", "a"), 1, 2)
    created = steps.index(("create", str(out / "_wherecast" / f"{0:012d}.json")))
    moved = steps.index(("move", str(out / "batch_id=0")))
    before = {Path(path) for kind, path in steps[:created] if kind == "sync"}
    [attempt] = {path.parent for path in before if path.name == "_SUCCESS"}
    assert attempt.parent == out / "_attempts"
    assert {path.name for path in before if path.parent == attempt} == {"part-0.parquet", "part-1.parquet", "_SUCCESS"}
    assert {attempt, attempt.parent, out, out.parent} <= before
    # The manifest itself, and after the move both folders that the batch was moved between.
    between = [Path(path) for kind, path in steps[created:moved] if kind == "sync"]
    assert out / "_wherecast" in between
    after = {Path(path) for kind, path in steps[moved:] if kind == "sync"}
    assert {out, out / "_attempts"} <= after


def test_a_batch_is_known_by_stream_and_offsets(tmp_path: Path) -> None:
    """Equal when it is read again, another for another stream or other offsets; its number stays a number."""
    make_checkpoint(tmp_path / "a", "one", ['{"t":{"0":5}}', '{"t":{"0":9}}'])
    make_checkpoint(tmp_path / "b", "two", ['{"t":{"0":5}}'])
    checkpoint = Checkpoint(str(tmp_path / "a"))
    first = checkpoint.batch(0)
    assert (first, f"{first}", first.stream) == (0, "0", "one")
    make_checkpoint(tmp_path / "a", "one", ['{"t":{"0":5}}'])  # the time of planning is not a part of it
    assert checkpoint.batch(0).key == first.key
    others = [checkpoint.batch(1), Checkpoint(str(tmp_path / "b")).batch(0), first.dead_letters]
    assert len({batch.key for batch in (first, *others)}) == 4
    assert checkpoint.newest() == 1
    assert Checkpoint(str(tmp_path / "c")).newest() == -1


def test_offsets_of_files_are_the_files(tmp_path: Path) -> None:
    """A source of files only counts: the same count may stand for other files once a checkpoint is lost."""
    make_checkpoint(tmp_path, "one", ['{"logOffset":0}', "-"], {0: ["x", "y"]})
    checkpoint = Checkpoint(str(tmp_path))
    first = checkpoint.batch(0).offsets
    log = tmp_path / "sources" / "0" / "0"
    log.rename(log.with_name("0.compact"))
    assert checkpoint.batch(0).offsets == first
    make_checkpoint(tmp_path, "one", [], {0: ["x", "z"]})
    assert checkpoint.batch(0).offsets != first
    assert checkpoint.batch(1).offsets


def test_the_files_of_a_batch(tmp_path: Path) -> None:
    """All that its offset has more than the one before, under their plain names; other sources have none."""
    files = {0: ["file:///x/a%20b"], 1: ["file:///x/c"], 2: ["file:///x/d", "file:///x/e"]}
    make_checkpoint(
        tmp_path, "one", ["-", '{"logOffset":0}', '{"logOffset":2}', '{"logOffset":3}', '{"t":{"0":5}}'], files
    )
    checkpoint = Checkpoint(str(tmp_path))
    log = tmp_path / "sources" / "0" / "1"
    log.write_text("v1\n" + "\n".join(log.with_name(name).read_text().split("\n", 1)[1] for name in ("0", "1")))
    log.rename(log.with_name("1.compact"))
    assert [checkpoint.files(n) for n in (0, 1, 2, 4)] == [
        [],
        ["file:///x/a b"],
        ["file:///x/c", "file:///x/d", "file:///x/e"],
        [],
    ]
    with pytest.raises(IndexStoreError, match="sources/0/3 is gone"):
        checkpoint.files(3)


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    """An id that cannot be read is no new stream."""
    (tmp_path / "metadata").write_text("{")
    with pytest.raises(IndexStoreError, match="metadata is damaged"):
        Checkpoint(str(tmp_path)).stream()


def test_a_checkpoint_that_lost_its_progress(tmp_path: Path) -> None:
    """Pins far ahead of the checkpoint tell that batches were run which it has forgotten; one ahead is pinned anew."""
    index = Index(tmp_path)
    pins = Pins(index, "checkpoint")
    for number in range(3):
        version = json.dumps({"batch": number, "version": 1}).encode()
        index.store.create(f"{pins._folder}/{number:012d}.json", version)
    with pytest.raises(IndexStoreError, match=r"lost its progress: batch 2 was run, .* ends with nothing"):
        pins.resume(-1)
    assert pins.known() == {0: 1, 1: 1, 2: 1}
    pins.resume(2)
    assert pins.known() == {0: 1, 1: 1, 2: 1}
    pins.resume(1)
    assert pins.known() == {0: 1, 1: 1}


def test_other_sinks_tell_streams_apart() -> None:
    """They admit every stream: a table, a topic and a function get the stream with each batch."""
    for sink in (Delta("path", "name"), Kafka("topic", "servers"), Foreach(lambda *_: None)):
        sink.admit(None)
        sink.admit("two")
        assert not sink.holds(Batch(0, "two", "a"))


def test_an_output_that_was_deleted(tmp_path: Path) -> None:
    """The stream is refused, unless it is told that it goes on in a new folder."""
    out = str(tmp_path / "out")
    take(Parquet(out), Batch(0, "one", "a"), 1)
    shutil.rmtree(out)
    with pytest.raises(SinkError, match="is empty, and the stream is at batch 1: its earlier output was deleted"):
        take(Parquet(out), Batch(1, "one", "b"), 2)
    assert not Path(out).exists()
    take(Parquet(out, goes_on=True), Batch(1, "one", "b"), 2)
    take(Parquet(out), Batch(2, "one", "c"), 3)
    assert found(tmp_path / "out") == [2, 3]


def test_a_table_that_was_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that goes on does not begin a new table in silence; Delta and Iceberg are tried in test_spark_lakes.py."""
    database = SimpleNamespace(has_table=lambda _: False)
    monkeypatch.setattr(Jdbc, "_connect", lambda *_: nullcontext(database))
    rows: Any = SimpleNamespace(sparkSession=None)
    with pytest.raises(
        SinkError, match="no table matches, and the stream is at batch 3: its earlier output was deleted"
    ):
        Jdbc("jdbc:postgresql://a/b", "matches").write(rows, Batch(3, "one", "o"))


@pytest.mark.parametrize("name", sorted(KINDS))
def test_kinds_are_made_of_a_configuration(name: str, tmp_path: Path) -> None:
    """Every kind that a file can name is made of the keys that it needs; the sink for dead letters too."""
    keys = {"path": str(tmp_path), "servers": "a:1", "topic": "t", "url": "jdbc:postgresql://a/b", "table": "s.t"}
    keys |= {"url": "http://a:8080/v1/spaces/b"} if name == "broker" else {}
    needed = {group[0]: keys[group[0]] for group in KINDS[name].needs}
    sink = KINDS[name].of(SinkConfig(name, **needed), "wherecast-x")
    assert isinstance(sink, KINDS[name])
    assert isinstance(sink.expect(["row"], "subscription"), KINDS[name])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Jdbc("jdbc:postgresql://a/b", "matches; DROP TABLE x"), "expected a name such as 'matches'"),
        (lambda: Jdbc("jdbc:quaint://a/b?password=secret", "matches"), r"the driver of jdbc:quaint://a/b is not known"),
        (Delta, "either a path or the name of a table"),
        (lambda: Delta("p", table="t"), "either a path or the name of a table"),
    ],
)
def test_what_a_sink_cannot_be(make: Callable[[], Sink], message: str) -> None:
    """A sink that could not work is refused when it is made."""
    with pytest.raises(SinkError, match=message):
        make()


def test_a_sink_of_ones_own_needs_write_only() -> None:
    """Everything else has a default."""

    class Nowhere(Sink):
        def write(self, matches: Any, batch: Batch) -> None:
            pass

    sink = Nowhere()
    assert sink.expect(["a"], "") is sink
    assert not sink.holds(Batch(1, "s", "o"))
    with pytest.raises(TypeError, match="write"):
        Sink()  # type: ignore[abstract]
