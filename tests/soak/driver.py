"""A process that streams, follows changes, applies others, compacts and cleans, all at once, until it is killed.

Run by `stream`: `python -m tests.soak.driver FOLDER POINT BATCH`. It dies at a point (see `stream_job.POINTS`) from its
n-th batch on. With the point `drain` it works off everything that is there and ends.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from tests.integration.stream_driver import COLUMNS, Reaper, hook_batches
from tests.integration.stream_job import SCHEMA, SUBSCRIPTIONS
from tests.spark_settings import SETTINGS

from wherecast import spark as ws
from wherecast.spark import changes as changes_module
from wherecast.spark import clean as clean_module
from wherecast.spark.index import Index
from wherecast.spark.store import StaleVersionError, Store

CHANGES = "sequence bigint, op string, id bigint, filter string"


class SoonReaper(Reaper):
    """Kills this process at a point, from the n-th batch of this process on."""

    def is_due(self, point: str) -> bool:
        return self.point == point and self.now >= self.batch


def keep_what_is_removed(folder: Path) -> None:
    """Manifests and pins that go are copied: the oracle looks at all that ever were."""
    remove, root = Store.remove, str(folder / "index")

    def kept(store: Store, name: str) -> None:
        source = Path(store.url) / name
        if store.url == root and name.startswith(("versions/", "pins/")) and source.is_file():
            target = folder / "kept" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            draft = target.with_name(f".{target.name}-{threading.get_ident()}")
            with suppress(FileNotFoundError):
                shutil.copyfile(source, draft)
                draft.rename(target)
        remove(store, name)

    Store.remove = kept  # type: ignore[method-assign]


def journaled(folder: Path, who: str) -> Callable[[Any, Index], Any]:
    """`apply_changes` that writes down what it was given and what became of it."""
    apply = changes_module.apply_changes

    def work(changes: Any, index: Index) -> Any:
        rows = [[row.sequence, row.op, row.id, row.filter] for row in changes.collect()]
        applied = apply(changes, index)
        outcome = [applied.applied, applied.refused, applied.late, applied.replayed]
        line = json.dumps({"rows": rows, "version": applied.manifest.version, "outcome": outcome})
        with (folder / f"{who}.journal").open("a") as file:
            file.write(f"\n{line}\n")  # a line that was cut short ends here
        return applied

    return work


class Jobs:
    """Threads that work again and again; what ends one ends the process."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.errors: list[BaseException] = []

    def start(self, pause_s: float, work: Callable[[], object]) -> None:
        def run() -> None:
            try:
                while not self._stop.wait(pause_s):
                    with suppress(StaleVersionError):  # somebody else was quicker
                        work()
            except BaseException as error:  # noqa: BLE001 - told by the main thread
                self.errors.append(error)

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def apply_next(session: SparkSession, folder: Path, index: Index, apply: Callable[[Any, Index], Any]) -> bool:
    """Apply the next file of the second log, and remember that it is done; whether there was one."""
    for file in sorted((folder / "changes-b").glob("[0-9]*.parquet")):
        done = folder / "done-b" / file.name
        if not done.exists():
            apply(session.read.schema(CHANGES).parquet(str(file)), index)
            done.touch()
            return True
    return False


def main(folder: Path, point: str, batch: int) -> None:
    reaper = SoonReaper(point, batch)
    # Leases of killed writers end soon, so that clean-ups have something to do.
    clean_module.RENEW_S, clean_module.EXPIRY_S, clean_module._SKEW_S = 1.0, 10.0, 1.0
    session = ws.create_session("soak", "local[2]", **SETTINGS)
    index = Index(str(folder / "index"))
    if not index.versions():
        subscriptions = session.createDataFrame(SUBSCRIPTIONS, "id bigint, filter string")
        ws.build_index(subscriptions, SCHEMA, index.url, strategy="event-space", servers=2)
    keep_what_is_removed(folder)

    def begin(*_: Any) -> None:
        reaper.now += 1

    hook_batches(reaper, begin)
    changes_module.apply_changes = journaled(folder, "a")
    events = session.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder / "events"))
    changes = session.readStream.schema(CHANGES).option("maxFilesPerTrigger", 1).parquet(str(folder / "changes-a"))
    sinks = {name: ws.Parquet(str(folder / name)) for name in ("matches", "dead", "refused")}
    query = ws.stream(events, index, sinks["matches"], str(folder / "checkpoint-events"), dead_letters=sinks["dead"])
    follower = ws.follow_changes(
        changes,
        index,
        str(folder / "checkpoint-changes"),
        dead_letters=sinks["refused"],
        most_layers=4,
        keep_versions=2,
    )
    jobs, apply = Jobs(), journaled(folder, "b")
    jobs.start(0.5, lambda: apply_next(session, folder, index, apply))
    jobs.start(1.0, lambda: index.clean(2, grace_s=0.0))
    jobs.start(4.0, lambda: ws.compact(session, index))
    (folder / "ready").touch()
    while point != "drain":
        time.sleep(0.2)
        if jobs.errors or query.exception() or follower.exception():
            print(jobs.errors, query.exception(), follower.exception(), file=sys.stderr, flush=True)
            os._exit(3)
    query.processAllAvailable()
    follower.processAllAvailable()
    jobs.stop()
    if jobs.errors:
        raise jobs.errors[0]
    while apply_next(session, folder, index, apply):
        pass
    query.stop()
    follower.stop()
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
