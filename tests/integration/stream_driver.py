"""A stream in a process of its own, which can be told to die at a certain point of a certain batch.

Run by test_spark_exactly_once.py: `python -m tests.integration.stream_driver FOLDER POINT BATCH [MASTER]`. The folder has
`events/` (one file per batch), `changes.parquet`, `subscriptions.parquet`, `strategy` and `sink` (parquet, foreach, jdbc, delta, iceberg or broker); matches go to
`matches/`, dead letters to `dead/`, or to tables of these names in the database that `jdbc` names. With the point `none` it runs to the end. Changes with a sequence number up to n are
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
from typing import Any

import pyarrow.parquet as pq
import pyspark
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
            die()

    def soon(self, point: str, delay_s: float) -> None:
        if self.is_due(point):
            threading.Timer(delay_s, die).start()

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


def base_of(folder: Path) -> str:
    """Where index, checkpoint and output are: in the folder, or at the URL that `store` names."""
    return (folder / "store").read_text() if (folder / "store").exists() else str(folder)


def hook_parquet(reaper: Reaper, folder: Path) -> None:
    """Points on the way of a batch into a Parquet sink, for the matches and for the dead letters."""
    for prefix in ("", "dead "):
        place = f"{base_of(folder)}/{'dead' if prefix else 'matches'}"

        def here(owner: Store | Parquet, *_: Any, place: str = place) -> bool:
            return (owner.path if isinstance(owner, Parquet) else owner.url) == place

        def manifest(store: Store, name: str, *_: Any, place: str = place) -> bool:
            return store.url == place and name.removesuffix(".json")[-1].isdigit()

        reaper.around(Parquet, "write", before=f"{prefix}before the write", only=here)
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


def hook_batches(reaper: Reaper, folder: Path, begin: Callable[[int], None]) -> None:
    """All points on the way of a batch; `begin` is called at its beginning."""
    reaper.around(clean_module.Pins, "pin", before="before the pin", after="after the pin")
    reaper.around(os, "link", before="pin drafted", only=lambda _, target: "/pins/" in str(target))
    hook_parquet(reaper, folder)
    hook_jdbc(reaper)
    hook_lake(reaper)
    hook_broker(reaper)
    reaper.around(Index, "commit", before="change written", after="change committed")
    run, work = BatchRunner.__call__, BatchRunner._run

    def work_slowly(runner: BatchRunner, *arguments: Any) -> Any:
        reaper.soon(MATCHING, 0.3)
        return work(runner, *arguments)

    def run_batch(runner: BatchRunner, events: Any, number: int) -> None:
        begin(number)
        run(runner, events, number)
        reaper.soon(NOT_COMMITTED, 0.0)
        if reaper.is_due(NOT_COMMITTED):
            time.sleep(5)

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


def settings_of(folder: Path, kind: str) -> dict[str, str]:
    """What a session needs for a sink and a store."""
    base, catalog = base_of(folder), folder / "catalog"
    needed = []
    if kind == "jdbc":
        needed.append({"spark.jars": ",".join(map(str, jdbc_jars()))})
    if kind in ("delta", "iceberg"):
        kept = catalog.read_text() if catalog.exists() else None
        needed.append(lake_settings(pyspark.__version__, f"{base}/lake", kept))
    if base.startswith("s3a:"):
        needed.append(s3a_settings(pyspark.__version__, dict(os.environ)))
    jars = ",".join(settings["spark.jars"] for settings in needed)
    return {name: value for settings in needed for name, value in settings.items()} | (
        {"spark.jars": jars} if jars else {}
    )


def main(folder: Path, point: str, batch: int, master: str) -> None:
    reaper = Reaper(point, batch)
    clean_module._KEPT = 1_000_000  # the test looks at all of them
    kind = (folder / "sink").read_text()
    base = base_of(folder)
    tables = {"delta": f"delta.`{base}/%s`", "iceberg": f"{CATALOG}.db.%s"}.get(kind)
    session = ws.create_session("driver", master, **SETTINGS, **settings_of(folder, kind))
    index = Index(f"{base}/index")
    if not index.versions():
        strategy: Any = (folder / "strategy").read_text()
        subscriptions = from_arrow(session, pq.read_table(folder / "subscriptions.parquet"))
        ws.build_index(subscriptions, SCHEMA, index.url, strategy=strategy, servers=2)
    all_changes = from_arrow(session, pq.read_table(folder / "changes.parquet"))

    def begin(number: int) -> None:
        reaper.now = number
        (folder / "begun").write_text(str(number))
        if number % CHANGE_EVERY == 0:
            changes_module.apply_changes(all_changes.where(F.col("sequence") <= number), index)

    hook_batches(reaper, folder, begin)
    source = session.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    sink: Any = ws.Parquet(f"{base}/matches")
    dead: Any = ws.Parquet(f"{base}/dead")
    if kind == "jdbc":
        sink, dead = (ws.Jdbc((folder / "jdbc").read_text(), table) for table in ("matches", "dead"))
    if kind == "delta":
        sink, dead = (ws.Delta(f"{base}/{name}") for name in ("matches", "dead"))
    if kind == "iceberg":
        sink, dead = (ws.Iceberg(f"{CATALOG}.db.{name}") for name in ("matches", "dead"))
    if kind == "broker":
        sink = ws.Broker(*(folder / "broker").read_text().split())
    if kind == "foreach":
        sink = ws.Foreach(Files(reaper, folder / "matches", ""))
        dead = ws.Foreach(Files(reaper, folder / "dead", "dead "))
    query = ws.stream(
        source.parquet(str(folder / "events")),
        index,
        sink,
        f"{base}/checkpoint",
        columns=["owner"],
        dead_letters=dead,
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    if tables is not None:  # for who reads Parquet only
        for name in ("matches", "dead"):
            if kind == "iceberg":
                session.catalog.refreshTable(tables % name)  # batches are written by sessions of their own
            session.table(tables % name).coalesce(1).write.parquet(str(folder / "exported" / name))
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "local[2]")
