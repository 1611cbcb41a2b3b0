"""A stream that is killed over and over loses nothing, doubles nothing, and stays with the version it pinned."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pyspark
import pytest
from pyarrow import fs
from tests.integration import stream_driver
from tests.integration.stream_driver import Job, Meeting
from tests.integration.stream_job import (
    CHANGE_EVERY,
    INTO,
    MATCHING,
    MATRIX,
    NOT_COMMITTED,
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
#: A driver that takes longer hangs.
PATIENCE_S = 600
#: `all`: the whole matrix of kills is run; `delta-s3`: the cells of that name. Soaks (tests/soak) die at random points.
CHOSEN = os.environ.get("WHERECAST_KILLS")
KILLS = {c: points for c, points in MATRIX.items() if CHOSEN == "all" or CHOSEN in "-".join(c)} if CHOSEN else SHARE


def test_every_point_is_in_the_share() -> None:
    """No point on the way into a sink is left to the long run."""
    for sink, into in INTO.items():
        points = {point for cell, points in SHARE.items() if cell.sink == sink for point in points}
        # The moment after the append of a lake is the one that may double a batch.
        assert points >= ({"appended"} if sink in ("delta", "iceberg") else {*into})
    assert SHARE.keys() <= MATRIX.keys()
    assert all(len(MATRIX[Cell(s, store)]) >= 10 for s in INTO for store in ("disk", "s3") if s != "foreach")


def spark_for(cell: Cell) -> str | None:
    """The version of Spark that has what a cell needs; None: the one that runs here."""
    if cell.sink not in ("delta", "iceberg"):
        return None
    if cell.store == "s3":
        return None if pyspark.__version__.startswith(f"{ON_S3}.") else ON_S3
    return None if has_lakes(pyspark.__version__) else USUAL


class Fleet(NamedTuple):
    """Cells whose streams share a driver: all on one store and one version of Spark."""

    cells: tuple[Cell, ...]

    @property
    def store(self) -> str:
        return self.cells[0].store

    @property
    def spark(self) -> str | None:
        return spark_for(self.cells[0])

    def __str__(self) -> str:
        return "+".join(map("-".join, self.cells))


def gather(cells: Iterable[Cell]) -> list[Fleet]:
    """All cells in as few drivers as there can be."""
    fleets: dict[tuple[str, str | None], list[Cell]] = {}
    for cell in cells:
        fleets.setdefault((cell.store, spark_for(cell)), []).append(cell)
    return [Fleet(tuple(fleet)) for fleet in fleets.values()]


def folder_of(place: Path, cell: Cell) -> Path:
    """Where the stream of a cell is."""
    return place / "-".join(cell)


@contextmanager
def surroundings(place: Path, fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The servers that the cells of a fleet need, where the driver finds them."""
    on_s3 = fleet.store == "s3"
    if on_s3 and fleet.spark is None and not has_s3a(pyspark.__version__):
        pytest.skip(f"no S3 client for Spark {pyspark.__version__} is pinned")
    with ExitStack() as running:
        if on_s3:
            for name, value in running.enter_context(running_s3()).items():
                monkeypatch.setenv(name, value)  # the driver inherits it
        for cell in fleet.cells:
            folder = folder_of(place, cell)
            if cell.sink == "jdbc" or (cell.sink == "iceberg" and on_s3):
                server = running.enter_context(running_postgresql())
                (folder / "catalog" if cell.sink == "iceberg" else folder / "jdbc").write_text(server.jdbc_url)
                if cell.sink == "jdbc":
                    (folder / "database").write_text(server.url)
            if on_s3:
                (folder / "store").write_text(f"s3a://{BUCKET}/{'-'.join(cell)}")
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


def drive(
    place: Path, jobs: list[Job], version: str | None = None, master: str = "local[1]"
) -> subprocess.Popen[bytes]:
    """Start a driver. Each process that Spark starts for Python loads everything anew, so by default it does with one."""
    log = (place / "log").open("ab")
    streams = [str(argument) for job in jobs for argument in job]
    command = [sys.executable, "-m", "tests.integration.stream_driver", master, *streams]
    env = None if version is None else environment(version)
    return subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, start_new_session=True, env=env)


def finish(process: subprocess.Popen[bytes], place: Path, expected: int) -> None:
    """Wait for an exit code; whatever the process started ends with it."""
    try:
        assert process.wait(timeout=PATIENCE_S) == expected, (place / "log").read_text()[-3000:]
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


def check_outcomes(place: Path, fleet: Fleet, least_versions: Callable[[Cell], int], subtests: pytest.Subtests) -> None:
    """Look at each stream of a fleet; it must have met more versions than that."""
    for cell in fleet.cells:
        with subtests.test("-".join(cell)):
            bring_here(folder_of(place, cell))
            assert check_outcome(folder_of(place, cell)) > least_versions(cell)


@pytest.mark.parametrize("fleet", gather(KILLS), ids=str)
def test_killed_at_every_point(
    tmp_path: Path, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """The driver is killed -9 with each stream at one of its points, again and again, and goes on each time; then it runs to the end."""
    for cell in fleet.cells:
        folder_of(tmp_path, cell).mkdir()
        make_job(folder_of(tmp_path, cell), cell, len(KILLS[cell]) + 2)
    with surroundings(tmp_path, fleet, monkeypatch):
        for life in range(max(len(KILLS[cell]) for cell in fleet.cells)):
            # A stream that has died at all of its points rests until the end.
            due = [cell for cell in fleet.cells if life < len(KILLS[cell])]
            jobs = [Job(folder_of(tmp_path, cell), KILLS[cell][life], life + 1) for cell in due]
            finish(drive(tmp_path, jobs, fleet.spark), tmp_path, -signal.SIGKILL)
        finish(drive(tmp_path, [Job(folder_of(tmp_path, cell)) for cell in fleet.cells], fleet.spark), tmp_path, 0)
        check_outcomes(tmp_path, fleet, lambda cell: len(KILLS[cell]) // CHANGE_EVERY, subtests)


def test_streams_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that is at its point waits there until all are at theirs; before, it passes all points."""
    deaths: list[str] = []
    monkeypatch.setattr(stream_driver, "die", lambda: deaths.append("killed"))
    jobs = [Job(Path("a"), "appended", 1), Job(Path("b"), NOT_COMMITTED, 2)]
    meeting = Meeting(jobs)

    def arrive(job: Job, number: int, point: str) -> None:
        meeting.enter(job, number)
        meeting.at(point)

    with ThreadPoolExecutor(2) as threads:
        threads.submit(arrive, jobs[1], 1, NOT_COMMITTED).result()
        threads.submit(arrive, jobs[1], 2, "appended").result()
        first = threads.submit(arrive, jobs[0], 1, "appended")
        assert not wait([first], timeout=0.1).done
        assert deaths == []
        threads.submit(arrive, jobs[1], 2, NOT_COMMITTED).result()
        first.result()
    assert deaths == ["killed"] * 2


def test_a_stream_dies_in_the_midst(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on once all are at their points, and is killed meanwhile."""
    killed = threading.Event()
    monkeypatch.setattr(stream_driver, "die", killed.set)
    job = Job(Path("a"), MATCHING, 1)
    meeting = Meeting([job])
    meeting.enter(job, 1)
    meeting.soon(MATCHING, 0.01)
    assert killed.wait(60)


def test_two_drivers_on_one_checkpoint(tmp_path: Path) -> None:
    """Two processes that run the same stream at once lose and double nothing; one that finds the other at work may stop with an error."""
    make_job(tmp_path, Cell("parquet"), 4)
    both = [drive(tmp_path, [Job(tmp_path)]) for _ in range(2)]
    try:
        codes = [process.wait(timeout=PATIENCE_S) for process in both]
    finally:
        for process in both:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert {*codes} <= {0, 1}
    finish(drive(tmp_path, [Job(tmp_path)]), tmp_path, 0)
    assert check_outcome(tmp_path) > 1


#: Whose executors are killed: every sink on every store, and in `make test` Parquet both ways.
WITH_SERVERS, BY_TASKS = Cell("parquet", strategy="event-space"), Cell("drafts")
EXECUTORS = [cell for cell in KILLS if cell.sink != "foreach"] if CHOSEN else [WITH_SERVERS, BY_TASKS]
#: How many executors are killed, and how many batches there are from one to the next. Fleets lose more: not all of their streams may use each.
KILLED, PAUSE = (4, 2) if CHOSEN else (2, 3)


@pytest.mark.parametrize("fleet", gather(EXECUTORS), ids=str)
def test_executors_of_a_cluster_are_killed(
    tmp_path: Path, fleet: Fleet, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """On a standalone cluster, whose processes share nothing but the store, killing executors -9 changes nothing in the outcome."""
    folders = [folder_of(tmp_path, cell) for cell in fleet.cells]
    for cell, folder in zip(fleet.cells, folders, strict=True):
        folder.mkdir()
        make_job(folder, cell, 9)
    (tmp_path / "cluster").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_IP", LOOPBACK)  # the driver inherits it
    with (
        surroundings(tmp_path, fleet, monkeypatch),
        running_cluster(tmp_path / "cluster", fleet.spark) as cluster,
    ):
        process = drive(tmp_path, [Job(folder) for folder in folders], fleet.spark, cluster.url)
        killed: set[int] = set()
        while process.poll() is None and len(killed) < KILLED:
            time.sleep(0.2)
            if min(map(batch_of, folders)) > PAUSE * len(killed):
                executors = [pid for pid in executor_ids(cluster.sessions) if pid not in killed]
                if executors:
                    os.kill(executors[0], signal.SIGKILL)
                    killed.add(executors[0])
        finish(process, tmp_path, 0)
        assert len(killed) == KILLED
        check_outcomes(tmp_path, fleet, lambda _: 2, subtests)


def batch_of(folder: Path) -> int:
    """The batch that a stream has begun; -1 before the first one."""
    begun = folder / "begun"
    return int(begun.read_text() or -1) if begun.exists() else -1


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
