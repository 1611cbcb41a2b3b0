"""A stream that is killed over and over loses nothing, doubles nothing, and stays with the version it pinned."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyarrow import fs
from tests.integration.stream_job import (
    CHANGE_EVERY,
    INTO_BROKER,
    INTO_FOREACH,
    INTO_JDBC,
    INTO_LAKE,
    INTO_PARQUET,
    NOT_COMMITTED,
    SUBSCRIPTIONS,
    SYMBOLS,
    check_matches,
    make_events,
)
from tests.lakes import USUAL, has_lakes
from tests.servers.cluster import running_cluster
from tests.servers.ports import LOOPBACK
from tests.servers.postgresql import running_postgresql
from tests.servers.s3 import BUCKET, running_s3
from tests.servers.wherecast_broker import BrokerProcess, running_wherecast
from tests.spark_versions.run import environment

from wherecast import Client
from wherecast.spark.index import Index
from wherecast.spark.store import open_filesystem

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
#: Where the driver is killed. A run dies at each point on the way into a sink once, over all plans;
#: WHERECAST_KILLS=all adds the other points and each point with each plan. The soak (tests/soak) dies at random points.
KILLS = {
    ("parquet", "broadcast"): ["rows written", "manifest created", NOT_COMMITTED],
    ("parquet", "event-space"): ["before the write", "rows durable", "batch in sight"],
    ("parquet on s3", "broadcast"): ["manifest created"],
    ("jdbc", "broadcast"): INTO_JDBC,
    ("delta", "broadcast"): ["appended"],
    ("iceberg", "broadcast"): ["appended"],
    ("broker", "broadcast"): INTO_BROKER,
    ("foreach", "broadcast"): ["function half done"],
    ("foreach", "event-space"): ["function begins", "function ends"],
}
ALL_KILLS = {
    ("parquet", "broadcast"): [
        *("pin drafted", "mid-match", "change committed", *INTO_PARQUET),
        *("dead rows written", "dead manifest created", "dead batch in sight", NOT_COMMITTED),
    ],
    ("parquet", "event-space"): INTO_PARQUET,
    ("parquet on s3", "broadcast"): [*INTO_PARQUET, "dead manifest created", NOT_COMMITTED],
    ("jdbc", "broadcast"): [*INTO_JDBC, *(f"dead {point}" for point in INTO_JDBC), NOT_COMMITTED],
    ("delta", "broadcast"): [*INTO_LAKE, *(f"dead {point}" for point in INTO_LAKE), NOT_COMMITTED],
    ("iceberg", "broadcast"): [*INTO_LAKE, *(f"dead {point}" for point in INTO_LAKE), NOT_COMMITTED],
    ("broker", "broadcast"): [*INTO_BROKER, NOT_COMMITTED],
    ("foreach", "broadcast"): [*INTO_FOREACH, "dead function half done", NOT_COMMITTED],
    ("foreach", "event-space"): INTO_FOREACH,
}


def test_every_point_is_in_the_short_list() -> None:
    """No point on the way into a sink is left to the long run."""
    short = {
        sink: {p for (s, _), points in KILLS.items() if s == sink for p in points}
        for sink in ("parquet", "foreach", "jdbc", "delta", "iceberg", "broker")
    }
    assert short["parquet"] >= {*INTO_PARQUET}
    assert short["foreach"] >= {*INTO_FOREACH}
    assert short["jdbc"] >= {*INTO_JDBC}
    assert short["broker"] >= {*INTO_BROKER}
    # Both write a batch in one step of their own, so the moment after it is the one that may double a batch.
    assert short["delta"] == short["iceberg"] == {"appended"}
    assert KILLS.keys() == ALL_KILLS.keys()


def make_job(folder: Path, strategy: str, sink: str, batches: int) -> None:
    """Changes come at every sequence number; each rule has another owner than the one before."""
    rng = np.random.default_rng(7)
    ids, filters = zip(*SUBSCRIPTIONS, strict=True)
    owners = [f"first {id}" for id in ids]
    pq.write_table(pa.table({"id": ids, "filter": filters, "owner": owners}), folder / "subscriptions.parquet")
    changes = [
        (n, "delete", 1 + n % 59, None, None)
        if n % 4 == 0
        else (
            n,
            "upsert",
            0 if n % 4 == 1 else 100 + n % 30,
            SUBSCRIPTIONS[0][1] if n % 4 == 1 else f"symbol = '{SYMBOLS[n % 12]}'",
            f"by {n}",
        )
        for n in range(1, batches + 1)
    ]
    names = ("sequence", "op", "id", "filter", "owner")
    pq.write_table(
        pa.table({name: [c[i] for c in changes] for i, name in enumerate(names)}), folder / "changes.parquet"
    )
    (folder / "events").mkdir()
    for batch in range(batches):
        pq.write_table(make_events(batch, rng), folder / "events" / f"{batch:03d}.parquet")
    (folder / "strategy").write_text(strategy)
    (folder / "sink").write_text(sink)


def drive(folder: Path, point: str = "none", batch: int = -1, master: str = "local[2]") -> subprocess.Popen[bytes]:
    log = (folder / "log").open("ab")
    command = [sys.executable, "-m", "tests.integration.stream_driver", str(folder), point, str(batch), master]
    on_a_lake = (folder / "sink").read_text() in ("delta", "iceberg") and not has_lakes(pyspark.__version__)
    env = environment(USUAL) if on_a_lake else None
    return subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, start_new_session=True, env=env)


def finish(process: subprocess.Popen[bytes], folder: Path, expected: int) -> None:
    """Wait for an exit code; whatever the process started ends with it."""
    try:
        assert process.wait(timeout=240) == expected, (folder / "log").read_text()[-3000:]
    finally:
        with suppress(ProcessLookupError):  # all have ended
            os.killpg(process.pid, signal.SIGKILL)


def rules_at(folder: Path, sequence: int) -> dict[int, tuple[str, str]]:
    """Filters and owners once the changes up to a number are applied, by replaying them one by one."""
    rows = {r["id"]: (r["filter"], r["owner"]) for r in pq.read_table(folder / "subscriptions.parquet").to_pylist()}
    for change in pq.read_table(folder / "changes.parquet").to_pylist():
        if change["sequence"] > sequence:
            break
        if change["op"] == "delete":
            rows.pop(change["id"], None)
        else:
            rows[change["id"]] = change["filter"], change["owner"]
    return rows


def check_outcome(folder: Path) -> int:
    """How many versions were used; see `check_matches`."""
    index = Index(str(folder / "index"))
    pins = {}
    for file in (folder / "index" / "pins").glob("*/*.json"):
        pin = json.loads(file.read_text())
        pins[pin["batch"]] = pin["version"]

    def filters_at(version: int) -> list[tuple[int, str]]:
        return [(id, filter) for id, (filter, _) in rules_at(folder, index.read(version).sequence).items()]

    def owners_at(version: int) -> dict[int, str]:
        return {id: owner for id, (_, owner) in rules_at(folder, index.read(version).sequence).items()}

    return len(check_matches(folder, pins, filters_at, owners_at))


@pytest.mark.parametrize(("sink", "strategy"), list(KILLS))
def test_killed_at_every_point(tmp_path: Path, sink: str, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is killed -9 at each point, one after the other, and goes on each time; then it runs to the end."""
    with ExitStack() as running:
        if sink == "jdbc":
            server = running.enter_context(running_postgresql())
            (tmp_path / "database").write_text(server.url)
            (tmp_path / "jdbc").write_text(server.jdbc_url)
        if sink == "parquet on s3":
            for name, value in running.enter_context(running_s3()).items():
                monkeypatch.setenv(name, value)  # the driver inherits it
            (tmp_path / "store").write_text(f"s3a://{BUCKET}/{strategy}")
        if sink == "broker":
            (tmp_path / "served").mkdir()
            broker = running.enter_context(running_wherecast(tmp_path / "served"))
            (tmp_path / "broker").write_text(f"{make_space(broker)} {broker.token}")
        kill_at_every_point(tmp_path, sink, strategy)


def make_space(broker: BrokerProcess) -> str:
    """The address of a space where all subscriptions that a job ever has are registered: others would be left out."""
    with Client(broker.url, broker.token) as client:
        client.create_space("matches", {"price": "double"})
        client.load("matches", ({"id": str(id), "filter": "price > 0"} for id in range(130)))
    return f"{broker.url}/v1/spaces/matches"


def kill_at_every_point(folder: Path, sink: str, strategy: str) -> None:
    is_long = os.environ.get("WHERECAST_KILLS") == "all"
    points = (ALL_KILLS if is_long else KILLS)[sink, strategy]
    # Each process that Spark starts for Python loads everything anew, so the short run does with one.
    master = "local[2]" if is_long else "local[1]"
    make_job(folder, strategy, sink.partition(" ")[0], len(points) + 2)
    for batch, point in enumerate(points, 1):
        finish(drive(folder, point, batch, master), folder, -signal.SIGKILL)
    finish(drive(folder, master=master), folder, 0)
    if (folder / "store").exists():  # what is there is looked at here
        remote, place = open_filesystem((folder / "store").read_text())
        fs.copy_files(place, str(folder), source_filesystem=remote)
    assert check_outcome(folder) > len(points) // CHANGE_EVERY


def test_two_drivers_on_one_checkpoint(tmp_path: Path) -> None:
    """Two processes that run the same stream at once lose and double nothing; one that finds the other at work may stop with an error."""
    make_job(tmp_path, "broadcast", "parquet", 4)
    both = [drive(tmp_path, master="local[1]") for _ in range(2)]
    try:
        codes = [process.wait(timeout=240) for process in both]
    finally:
        for process in both:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert {*codes} <= {0, 1}
    finish(drive(tmp_path, master="local[1]"), tmp_path, 0)
    assert check_outcome(tmp_path) > 1


def test_executors_of_a_cluster_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a standalone cluster, whose processes share nothing but the store, killing executors -9 changes nothing in the outcome."""
    make_job(tmp_path, "event-space", "parquet", 9)
    (tmp_path / "cluster").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_IP", LOOPBACK)  # the driver inherits it
    with running_cluster(tmp_path / "cluster") as cluster:
        process = drive(tmp_path, master=cluster.url)
        killed: set[int] = set()
        matches = tmp_path / "matches"
        while process.poll() is None and len(killed) < 2:
            time.sleep(0.2)
            done = len(list(matches.glob("batch_id=*"))) if matches.exists() else 0
            if done > 5 * len(killed):
                executors = [pid for pid in executor_ids(cluster.sessions) if pid not in killed]
                if executors:
                    os.kill(executors[0], signal.SIGKILL)
                    killed.add(executors[0])
        finish(process, tmp_path, 0)
    assert len(killed) == 2
    assert check_outcome(tmp_path) > 2


def executor_ids(sessions: list[int]) -> list[int]:
    """Processes of some sessions that run an executor."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            if b"CoarseGrainedExecutorBackend" in command and os.getsid(int(folder.name)) in sessions:
                found.append(int(folder.name))
        except OSError:  # it has ended meanwhile
            continue
    return found
