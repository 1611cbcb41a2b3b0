"""A stream that is killed over and over loses nothing, doubles nothing, and stays with the version it pinned."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from wherecast.engine.engine import Engine
from wherecast.spark.index import Index

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DRIVER = Path(__file__).with_name("stream_driver.py")
SCHEMA = {"symbol": "string", "price": "double"}
EVENTS = 20
#: Where the driver dies: on the way of a batch into its sink, which is between these, and elsewhere. Changes are applied in
#: every third batch, and a point comes in every other.
INTO_PARQUET = ["before the write", "rows written", "rows durable", "manifest created", "batch in sight"]
INTO_FOREACH = ["function begins", "function half done", "function ends"]
NOT_COMMITTED = "done but not committed"
POINTS = {
    ("parquet", "broadcast"): [
        *("before the pin", "pin drafted", "change written", "after the pin", "mid-match", "change committed"),
        *INTO_PARQUET,
        *(f"dead {point}" for point in INTO_PARQUET),
        NOT_COMMITTED,
    ],
    ("parquet", "event-space"): ["change written", "mid-match", *INTO_PARQUET, "dead rows written", NOT_COMMITTED],
    ("foreach", "broadcast"): [*INTO_FOREACH, *(f"dead {point}" for point in INTO_FOREACH), NOT_COMMITTED],
    ("foreach", "event-space"): INTO_FOREACH,
}


def make_job(folder: Path, strategy: str, sink: str, batches: int) -> None:
    """Every event matches subscription 0, so that every event shows; changes come at every sequence number.

    The first two events of each file are poison.
    """
    rng = np.random.default_rng(7)
    symbols = [f"S{i}" for i in range(12)]
    rows = [(0, "price > 0 OR symbol IS NULL")]
    rows += [(i, f"symbol = '{symbols[i % 12]}' AND price < {i}") for i in range(1, 60)]
    pq.write_table(
        pa.table({"id": [r[0] for r in rows], "filter": [r[1] for r in rows]}), folder / "subscriptions.parquet"
    )
    changes = [
        (n, "delete", 1 + n % 59, None) if n % 4 == 0 else (n, "upsert", 100 + n % 30, f"symbol = '{symbols[n % 12]}'")
        for n in range(1, batches + 1)
    ]
    names = ("sequence", "op", "id", "filter")
    pq.write_table(
        pa.table({name: [c[i] for c in changes] for i, name in enumerate(names)}), folder / "changes.parquet"
    )
    (folder / "events").mkdir()
    for batch in range(batches):
        table = pa.table(
            {
                "row": np.arange(EVENTS) + batch * EVENTS,
                "symbol": rng.choice(symbols, EVENTS),
                "price": np.round(rng.uniform(0.01, 70, EVENTS), 2),
                "__wherecast_error": pa.array(["poison"] * 2 + [None] * (EVENTS - 2), pa.string()),
            }
        )
        pq.write_table(table, folder / "events" / f"{batch:03d}.parquet")
    (folder / "strategy").write_text(strategy)
    (folder / "sink").write_text(sink)


def drive(folder: Path, point: str = "none", batch: int = -1, master: str = "local[2]") -> subprocess.Popen[bytes]:
    log = (folder / "log").open("ab")
    command = [sys.executable, str(DRIVER), str(folder), point, str(batch), master]
    return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def finish(process: subprocess.Popen[bytes], folder: Path, expected: int) -> None:
    """Wait for an exit code; whatever the process started ends with it."""
    try:
        assert process.wait(timeout=240) == expected, (folder / "log").read_text()[-3000:]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def subscriptions_at(folder: Path, sequence: int) -> list[tuple[int, str]]:
    """What is subscribed once the changes up to a number are applied, by replaying them one by one."""
    rows = {r["id"]: r["filter"] for r in pq.read_table(folder / "subscriptions.parquet").to_pylist()}
    for change in pq.read_table(folder / "changes.parquet").to_pylist():
        if change["sequence"] > sequence:
            break
        if change["op"] == "delete":
            rows.pop(change["id"], None)
        else:
            rows[change["id"]] = change["filter"]
    return list(rows.items())


def check_outcome(folder: Path) -> int:
    """Every event of every file is there, once per subscription of the version that its batch pinned."""
    index = Index(str(folder / "index"))
    events = ds.dataset(folder / "events", format="parquet").to_table()
    place = {row: i for i, row in enumerate(events["row"].to_pylist())}
    found = ds.dataset(folder / "matches", format="parquet", partitioning="hive").to_table()
    pins = {}
    for file in (folder / "index" / "pins").glob("*/*.json"):
        pin = json.loads(file.read_text())
        pins[pin["batch"]] = pin["version"]
    versions_used, delivered = set(), Counter[int]()
    for batch in sorted(set(found["batch_id"].to_pylist())):
        mine = found.filter(pa.compute.equal(found["batch_id"], batch))
        pairs = Counter(zip(mine["row"].to_pylist(), mine["subscription"].to_pylist(), strict=True))
        engine = Engine(SCHEMA)
        engine.subscribe_many(subscriptions_at(folder, index.read(pins[batch]).sequence))
        rows = sorted(set(mine["row"].to_pylist()))
        part = events.take(pa.array([place[row] for row in rows]))
        event_rows, ids = engine.match_batch(part).pairs()
        assert pairs == Counter((rows[e], i) for e, i in zip(event_rows.tolist(), ids.tolist(), strict=True)), batch
        versions_used.add(pins[batch])
        delivered.update(rows)
    # Every good event matches, so each one shows in the batch that had it; none may show in two.
    poison = {row for row, error in zip(place, events["__wherecast_error"].to_pylist(), strict=True) if error}
    assert delivered == Counter(row for row in place if row not in poison)
    dead = ds.dataset(folder / "dead", format="parquet", partitioning="hive").to_table()
    assert Counter(dead["row"].to_pylist()) == Counter(poison)
    assert set(dead["error"].to_pylist()) == {"poison"}
    return len(versions_used)


@pytest.mark.parametrize(("sink", "strategy"), list(POINTS))
def test_killed_at_every_point(tmp_path: Path, sink: str, strategy: str) -> None:
    """The driver is killed -9 at each point, one after the other, and goes on each time; then it runs to the end."""
    points = POINTS[sink, strategy]
    make_job(tmp_path, strategy, sink, 2 * len(points) + 2)
    for number, point in enumerate(points):
        finish(drive(tmp_path, point, 2 * (number + 1)), tmp_path, -signal.SIGKILL)
    finish(drive(tmp_path), tmp_path, 0)
    assert check_outcome(tmp_path) > len(points) // 2


def test_executors_are_killed(tmp_path: Path) -> None:
    """In a cluster of two executors, killing them -9 while batches run changes nothing in the outcome."""
    make_job(tmp_path, "event-space", "parquet", 50)
    process = drive(tmp_path, master="local-cluster[2,1,1024]")
    killed: set[int] = set()
    matches = tmp_path / "matches"
    while process.poll() is None and len(killed) < 4:
        time.sleep(1.0)
        done = len(list(matches.glob("batch_id=*"))) if matches.exists() else 0
        if done > 5 * len(killed):
            executors = [pid for pid in executor_ids(process.pid) if pid not in killed]
            if executors:
                os.kill(executors[0], signal.SIGKILL)
                killed.add(executors[0])
    finish(process, tmp_path, 0)
    assert len(killed) >= 2
    assert check_outcome(tmp_path) > 10


def executor_ids(session: int) -> list[int]:
    """Processes of a session that run an executor."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            if b"CoarseGrainedExecutorBackend" in command and os.getsid(int(folder.name)) == session:
                found.append(int(folder.name))
        except OSError:  # it has ended meanwhile
            continue
    return found
