"""A stream that is killed over and over loses nothing, doubles nothing, and stays with the version it pinned."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from pyarrow import fs
from tests.integration.stream_job import (
    CHANGE_EVERY,
    INTO,
    MATRIX,
    SHARE,
    Cell,
    check_matches,
    make_job,
)
from tests.jars.artifacts import has_s3a
from tests.lakes import ON_S3, USUAL, has_lakes
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
#: Whether the whole matrix of kills is run. Soaks (tests/soak) die at random points.
IS_LONG = os.environ.get("WHERECAST_KILLS") == "all"
KILLS = MATRIX if IS_LONG else SHARE


def test_every_point_is_in_the_share() -> None:
    """No point on the way into a sink is left to the long run."""
    for sink, into in INTO.items():
        points = {point for cell, points in SHARE.items() if cell.sink == sink for point in points}
        # The moment after the append of a lake is the one that may double a batch.
        assert points >= ({"appended"} if sink in ("delta", "iceberg") else {*into})
    assert SHARE.keys() <= MATRIX.keys()
    assert all(len(MATRIX[Cell(s, store)]) >= 10 for s in INTO for store in ("disk", "s3") if s != "foreach")


@contextmanager
def surroundings(folder: Path, cell: Cell, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The servers that a cell needs, where the driver finds them."""
    on_s3 = cell.store == "s3"
    if on_s3 and spark_for(cell) is None and not has_s3a(pyspark.__version__):
        pytest.skip(f"no S3 client for Spark {pyspark.__version__} is pinned")
    with ExitStack() as running:
        if cell.sink == "jdbc" or (cell.sink == "iceberg" and on_s3):
            server = running.enter_context(running_postgresql())
            (folder / "catalog" if cell.sink == "iceberg" else folder / "jdbc").write_text(server.jdbc_url)
            if cell.sink == "jdbc":
                (folder / "database").write_text(server.url)
        if on_s3:
            for name, value in running.enter_context(running_s3()).items():
                monkeypatch.setenv(name, value)  # the driver inherits it
            (folder / "store").write_text(f"s3a://{BUCKET}/{cell.strategy}")
        if cell.sink == "broker":
            (folder / "served").mkdir()
            broker = running.enter_context(running_wherecast(folder / "served"))
            (folder / "broker").write_text(f"{make_space(broker)} {broker.token}")
        yield


def make_space(broker: BrokerProcess) -> str:
    """The address of a space where all subscriptions that a job ever has are registered: others would be left out."""
    with Client(broker.url, broker.token) as client:
        client.create_space("matches", {"price": "double"})
        client.load("matches", ({"id": str(id), "filter": "price > 0"} for id in range(130)))
    return f"{broker.url}/v1/spaces/matches"


def spark_for(cell: Cell) -> str | None:
    """The version of Spark that has what a cell needs; None: the one that runs here."""
    if cell.sink not in ("delta", "iceberg"):
        return None
    if cell.store == "s3":
        return None if pyspark.__version__.startswith(f"{ON_S3}.") else ON_S3
    return None if has_lakes(pyspark.__version__) else USUAL


def drive(
    folder: Path, cell: Cell, point: str = "none", batch: int = -1, master: str = "local[2]"
) -> subprocess.Popen[bytes]:
    log = (folder / "log").open("ab")
    command = [sys.executable, "-m", "tests.integration.stream_driver", str(folder), point, str(batch), master]
    version = spark_for(cell)
    env = None if version is None else environment(version)
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


def bring_here(folder: Path) -> None:
    """Copy what is on a store, to be looked at."""
    if (folder / "store").exists():
        remote, place = open_filesystem((folder / "store").read_text())
        fs.copy_files(place, str(folder), source_filesystem=remote)


@pytest.mark.parametrize("cell", KILLS, ids="-".join)
def test_killed_at_every_point(tmp_path: Path, cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is killed -9 at each point, one after the other, and goes on each time; then it runs to the end."""
    points = KILLS[cell]
    make_job(tmp_path, cell, len(points) + 2)
    with surroundings(tmp_path, cell, monkeypatch):
        # Each process that Spark starts for Python loads everything anew, so it does with one.
        for batch, point in enumerate(points, 1):
            finish(drive(tmp_path, cell, point, batch, "local[1]"), tmp_path, -signal.SIGKILL)
        finish(drive(tmp_path, cell, master="local[1]"), tmp_path, 0)
        bring_here(tmp_path)
        assert check_outcome(tmp_path) > len(points) // CHANGE_EVERY


def test_two_drivers_on_one_checkpoint(tmp_path: Path) -> None:
    """Two processes that run the same stream at once lose and double nothing; one that finds the other at work may stop with an error."""
    cell = Cell("parquet")
    make_job(tmp_path, cell, 4)
    both = [drive(tmp_path, cell, master="local[1]") for _ in range(2)]
    try:
        codes = [process.wait(timeout=240) for process in both]
    finally:
        for process in both:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert {*codes} <= {0, 1}
    finish(drive(tmp_path, cell, master="local[1]"), tmp_path, 0)
    assert check_outcome(tmp_path) > 1


#: Whose executors are killed: every sink on every store, and in `make test` one.
WITH_SERVERS = Cell("parquet", strategy="event-space")
EXECUTORS = [cell for cell in MATRIX if cell.sink != "foreach"] if IS_LONG else [WITH_SERVERS]


@pytest.mark.parametrize("cell", EXECUTORS, ids="-".join)
def test_executors_of_a_cluster_are_killed(tmp_path: Path, cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a standalone cluster, whose processes share nothing but the store, killing executors -9 changes nothing in the outcome."""
    make_job(tmp_path, cell, 9)
    (tmp_path / "cluster").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_IP", LOOPBACK)  # the driver inherits it
    with (
        surroundings(tmp_path, cell, monkeypatch),
        running_cluster(tmp_path / "cluster", spark_for(cell)) as cluster,
    ):
        process = drive(tmp_path, cell, master=cluster.url)
        killed: set[int] = set()
        while process.poll() is None and len(killed) < 2:
            time.sleep(0.2)
            begun = tmp_path / "begun"
            if begun.exists() and int(begun.read_text() or 0) > 5 * len(killed):
                executors = [pid for pid in executor_ids(cluster.sessions) if pid not in killed]
                if executors:
                    os.kill(executors[0], signal.SIGKILL)
                    killed.add(executors[0])
        finish(process, tmp_path, 0)
        bring_here(tmp_path)
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
