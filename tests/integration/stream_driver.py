"""Streams in a process of their own, which can be told to die at a certain point of a certain batch of each.

Run by test_spark_exactly_once.py: `python -m tests.integration.stream_driver MASTER FOLDER POINT BATCH [FOLDER POINT BATCH ...]`. To
start a driver takes longer than a batch, so several streams share one: each waits at its own point, and the process dies when all are there.

The folder of a stream has
`events/` (one file per batch), `changes.parquet`, `subscriptions.parquet`, `strategy` and `sink` (parquet, drafts (Parquet that tasks write), foreach, jdbc, delta, iceberg or broker); matches go to
`matches/`, dead letters to `dead/`, or to tables of these names in the database that `jdbc` names. With the point `none` all run to the end; on a cluster they then begin each batch together. Changes with a sequence number up to n are
applied when batch n begins, every third batch; the number of the batch is then in the file `begun`. Where there is a file `store`, it has the
URL for index, checkpoint and output; where there is a file `catalog`, the database of Iceberg's tables.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.integration.stream_job import CHANGE_EVERY, MATCHING, NOT_COMMITTED, SCHEMA
from tests.jars.artifacts import jdbc_jars
from tests.lakes import CATALOG, lake_settings
from tests.servers.s3 import s3a_settings
from tests.spark_settings import SETTINGS

from wherecast import spark as ws
from wherecast.spark import changes as changes_module
from wherecast.spark import clean as clean_module
from wherecast.spark.index import Index
from wherecast.spark.sinks import broker as broker_module
from wherecast.spark.sinks import jdbc as jdbc_module
from wherecast.spark.sinks.jdbc import Jdbc
from wherecast.spark.sinks.parquet import Parquet
from wherecast.spark.store import Store
from wherecast.spark.stream import BatchRunner
from wherecast.spark.versions import from_arrow, to_arrow

COLUMNS = "row bigint, symbol string, price double, __wherecast_error string"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Reaper:
    """Kills this process at one point of one batch."""

    def __init__(self, point: str, batch: int) -> None:
        self.point, self.batch, self.now = point, batch, -1

    def is_due(self, point: str) -> bool:
        return self.point == point and self.now == self.batch

    def at(self, point: str) -> None:
        if self.is_due(point):
            self.die()

    def soon(self, point: str, delay_s: float) -> None:
        if self.is_due(point):
            self.die(delay_s)

    def die(self, delay_s: float = 0.0) -> None:
        """Kill this process now, or while the caller goes on."""
        if delay_s:
            threading.Timer(delay_s, die).start()
        else:
            die()

    def around(self, owner: Any, name: str, before: str | None = None, after: str | None = None,
               only: Callable[..., bool] = lambda *_: True) -> None:  # fmt: skip
        """Let a method die before or after its work."""
        work = getattr(owner, name)

        def method(*arguments: Any, **options: Any) -> Any:
            if before and only(*arguments):
                self.at(before)
            result = work(*arguments, **options)
            if after and only(*arguments):
                self.at(after)
            return result

        setattr(owner, name, method)


class Meeting(Reaper):
    """Kills this process when each of its streams is at its own point; until then they wait there.

    A batch runs in a thread, which says whose it is (`enter`). Other threads of the process never die.
    """

    def __init__(self, jobs: list[Job]) -> None:
        self._all_here, self._delays, self._thread = threading.Barrier(len(jobs)), list[float](), threading.local()

    def enter(self, job: Job, number: int) -> None:
        """From now on this thread works on a batch of a stream."""
        self._thread.point = job.point if number == job.batch else None

    def is_due(self, point: str) -> bool:
        return getattr(self._thread, "point", None) == point

    def die(self, delay_s: float = 0.0) -> None:
        """Wait for the others; who is to die in the midst of something goes on when all are there, the others stay."""
        self._thread.point = None
        self._delays.append(delay_s)
        self._all_here.wait()
        if not delay_s and any(self._delays):
            threading.Event().wait()  # for the end, which comes by another thread
        super().die(delay_s)


class Job(NamedTuple):
    """A stream, and where it dies."""

    folder: Path
    point: str = "none"
    batch: int = -1

    @property
    def base(self) -> str:
        """Where index, checkpoint and output are: in the folder, or at the URL that `store` names."""
        return self.read("store") or str(self.folder)

    @property
    def sink(self) -> str:
        return self.read("sink")

    def read(self, name: str) -> str:
        """What a file of the folder says; empty where there is none."""
        file = self.folder / name
        return file.read_text() if file.exists() else ""


def hook_parquet(reaper: Reaper) -> None:
    """Points on the way of a batch into a Parquet sink, for the matches and for the dead letters."""
    for prefix in ("", "dead "):
        folder = "/dead" if prefix else "/matches"

        def here(owner: Store | Parquet, *_: Any, folder: str = folder) -> bool:
            return (owner.path if isinstance(owner, Parquet) else owner.url).endswith(folder)

        def manifest(store: Store, name: str, *_: Any, folder: str = folder) -> bool:
            return store.url.endswith(folder) and name.removesuffix(".json")[-1].isdigit()

        reaper.around(Parquet, "write", before=f"{prefix}before the write", only=here)
        reaper.around(Store, "gather", before=f"{prefix}drafts written", only=here)
        reaper.around(Store, "sync", before=f"{prefix}rows written", after=f"{prefix}rows durable", only=here)
        reaper.around(Store, "create", after=f"{prefix}manifest created", only=manifest)
        reaper.around(Store, "move", after=f"{prefix}batch in sight", only=here)


def hook_jdbc(reaper: Reaper) -> None:
    """Points on the way of a batch into a table, for the matches and for the dead letters."""
    for prefix in ("", "dead "):
        target = "dead" if prefix else "matches"

        def is_staged(sink: Jdbc, _: Any, table: str, *__: Any, target: str = target) -> bool:
            return sink.table == target != table

        def here(_: Any, __: str, table: str, *___: Any, target: str = target) -> bool:
            return table == target

        reaper.around(Jdbc, "_save", after=f"{prefix}staging filled", only=is_staged)
        reaper.around(jdbc_module._Database, "take_over", after=f"{prefix}rows and key in", only=here)


def hook_lake(reaper: Reaper) -> None:
    """Points on the way of a batch into a Delta or Iceberg table, for the matches and for the dead letters."""
    for prefix in ("", "dead "):

        def here(_: Any, __: Any, batch: ws.Batch, prefix: str = prefix) -> bool:
            return batch.stream.endswith("/dead-letters") == bool(prefix)

        for sink in (ws.Delta, ws.Iceberg):
            reaper.around(sink, "write", f"{prefix}before the append", f"{prefix}appended", only=here)
            write = sink.write

            def write_slowly(self: Any, rows: Any, batch: ws.Batch, write: Any = write, prefix: str = prefix) -> None:
                if here(self, rows, batch, prefix):
                    reaper.soon(f"{prefix}mid-append", 0.5)
                write(self, rows, batch)

            sink.write = write_slowly  # type: ignore[method-assign]


def hook_broker(reaper: Reaper) -> None:
    """Points on the way of a batch to a broker: after the first of some pieces, and after all."""
    broker_module._PIECE = 8
    reaper.around(broker_module.BrokerSpace, "hand_over", after="piece handed over")
    reaper.around(ws.Broker, "write", after="all handed over")


def hook_batches(reaper: Reaper, begin: Callable[[BatchRunner, int], None]) -> None:
    """All points on the way of a batch; `begin` is called at its beginning."""
    reaper.around(clean_module.Pins, "pin", before="before the pin", after="after the pin")
    reaper.around(os, "link", before="pin drafted", only=lambda _, target: "/pins/" in str(target))
    hook_parquet(reaper)
    hook_jdbc(reaper)
    hook_lake(reaper)
    hook_broker(reaper)
    reaper.around(Index, "commit", before="change written", after="change committed")
    run, work = BatchRunner.__call__, BatchRunner._run

    def work_slowly(runner: BatchRunner, *arguments: Any) -> Any:
        reaper.soon(MATCHING, 0.3)
        return work(runner, *arguments)

    def run_batch(runner: BatchRunner, events: Any, number: int) -> None:
        begin(runner, number)
        run(runner, events, number)
        reaper.at(NOT_COMMITTED)

    BatchRunner._run, BatchRunner.__call__ = work_slowly, run_batch  # type: ignore[method-assign]


class Files:
    """A function for `Foreach` that may run again: two files per batch, the same ones in every attempt."""

    def __init__(self, reaper: Reaper, folder: Path, prefix: str) -> None:
        self.reaper, self.folder, self.prefix = reaper, folder, prefix

    def __call__(self, rows: Any, batch: ws.Batch) -> None:
        self.reaper.at(f"{self.prefix}function begins")
        place = self.folder / f"batch_id={batch}"
        place.mkdir(parents=True, exist_ok=True)
        key = place / "_key"
        if key.exists() and key.read_text() != batch.key:
            raise AssertionError(f"another attempt at batch {batch} had the key {key.read_text()}, not {batch.key}")
        key.write_text(batch.key)
        table = to_arrow(rows)
        table = table.sort_by([(name, "ascending") for name in ("row", "subscription") if name in table.column_names])
        half = len(table) // 2
        for number, part in enumerate((table.slice(0, half), table.slice(half))):
            pq.write_table(part, place / f".{number}")
            (place / f".{number}").rename(place / f"{number}.parquet")
            self.reaper.at(f"{self.prefix}function half done" if number == 0 else f"{self.prefix}function ends")


def settings_of(jobs: list[Job]) -> dict[str, str]:
    """What a session needs for the sinks and stores of some streams."""
    needed = []
    if any(job.sink == "jdbc" for job in jobs):
        needed.append({"spark.jars": ",".join(map(str, jdbc_jars()))})
    # The settings of Iceberg come last: its tables are found by the catalog, those of Delta by their paths.
    lakes = sorted((job for job in jobs if job.sink in ("delta", "iceberg")), key=lambda job: job.sink)
    needed += [lake_settings(pyspark.__version__, f"{job.base}/lake", job.read("catalog") or None) for job in lakes]
    if any(job.base.startswith("s3a:") for job in jobs):
        needed.append(s3a_settings(pyspark.__version__, dict(os.environ)))
    jars = dict.fromkeys(jar for settings in needed for jar in settings["spark.jars"].split(","))
    return {name: value for settings in needed for name, value in settings.items()} | (
        {"spark.jars": ",".join(jars)} if jars else {}
    )


def build(session: SparkSession, job: Job) -> Index:
    """The index of a stream, built in its first life."""
    index = Index(f"{job.base}/index")
    if not index.versions():
        strategy: Any = job.read("strategy")
        subscriptions = from_arrow(session, pq.read_table(job.folder / "subscriptions.parquet"))
        ws.build_index(subscriptions, SCHEMA, index.url, strategy=strategy, servers=2)
    return index


def make_sinks(job: Job, reaper: Reaper) -> tuple[Any, Any]:
    """Where the matches of a stream go, and its dead letters."""
    base, url = job.base, job.read("jdbc")
    kinds: dict[str, Callable[[str], Any]] = {
        "parquet": lambda name: ws.Parquet(f"{base}/{name}"),
        "drafts": lambda name: ws.Parquet(f"{base}/{name}", written_by="python"),
        "jdbc": lambda name: ws.Jdbc(url, name),
        "delta": lambda name: ws.Delta(f"{base}/{name}"),
        "iceberg": lambda name: ws.Iceberg(f"{CATALOG}.db.{name}"),
        "foreach": lambda name: ws.Foreach(Files(reaper, job.folder / name, "dead " if name == "dead" else "")),
    }
    if job.sink == "broker":
        return ws.Broker(*job.read("broker").split()), kinds["parquet"]("dead")
    return kinds[job.sink]("matches"), kinds[job.sink]("dead")


def start(session: SparkSession, job: Job, index: Index, reaper: Reaper) -> Any:
    """The query of a stream."""
    sink, dead = make_sinks(job, reaper)
    source = session.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    return ws.stream(
        source.parquet(str(job.folder / "events")),
        index,
        sink,
        f"{job.base}/checkpoint",
        columns=["owner"],
        dead_letters=dead,
        trigger={"availableNow": True},
    )


def export(session: SparkSession, job: Job) -> None:
    """Write the tables of a lake for those who read Parquet only."""
    tables = {"delta": f"delta.`{job.base}/%s`", "iceberg": f"{CATALOG}.db.%s"}.get(job.sink)
    for name in ("matches", "dead") if tables is not None else ():
        if job.sink == "iceberg":
            session.catalog.refreshTable(tables % name)  # batches are written by sessions of their own
        session.table(tables % name).coalesce(1).write.parquet(str(job.folder / "exported" / name))


def wait(queries: list[Any], is_doomed: bool) -> None:
    """Until all streams are through. When one fails, or misses the point where it is to die, others may wait for it: the process ends at once."""
    while any(query.isActive for query in queries):
        time.sleep(0.1)
        ended = [query.exception() for query in queries if not query.isActive]
        if any(ended) or (ended and is_doomed):
            print(*(error or "a stream missed its point" for error in ended), sep="\n", file=sys.stderr, flush=True)
            os._exit(1)
    for query in queries:
        query.awaitTermination()  # raises what ended it


def main(master: str, jobs: list[Job]) -> None:
    reaper = Meeting(jobs)
    clean_module._KEPT = 1_000_000  # the test looks at all of them
    session = ws.create_session("driver", master, **SETTINGS, **settings_of(jobs))
    indexes = [build(session, job) for job in jobs]
    job_of = {index.url: job for index, job in zip(indexes, jobs, strict=True)}
    all_changes = {job: from_arrow(session, pq.read_table(job.folder / "changes.parquet")) for job in jobs}
    together = None if master.startswith("local") else threading.Barrier(len(jobs))

    def begin(runner: BatchRunner, number: int) -> None:
        job = job_of[runner.index.url]
        reaper.enter(job, number)
        if together is not None:
            together.wait()
        (job.folder / "begun").write_text(str(number))
        if number % CHANGE_EVERY == 0:
            changes_module.apply_changes(all_changes[job].where(F.col("sequence") <= number), runner.index)

    hook_batches(reaper, begin)
    queries = [start(session, job, index, reaper) for job, index in zip(jobs, indexes, strict=True)]
    wait(queries, is_doomed=any(job.point != "none" for job in jobs))
    for job in jobs:
        export(session, job)
    session.stop()


def read_jobs(arguments: list[str]) -> list[Job]:
    """The streams that a command names, three arguments for each."""
    return [
        Job(Path(folder), point, int(batch))
        for folder, point, batch in zip(arguments[::3], arguments[1::3], arguments[2::3], strict=True)
    ]


if __name__ == "__main__":
    main(sys.argv[1], read_jobs(sys.argv[2:]))
