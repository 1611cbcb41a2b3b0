"""Streams under load: a process that matches, follows changes, compacts and cleans is killed over and over.

When the time is up it is left to work off the rest. Then `replay` compares what came out with what was put in.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.integration.stream_job import POINTS
from tests.soak.producer import Producer
from tests.soak.replay import check_outcome
from tests.soak.tally import Tally

_ROOT = Path(__file__).parents[2]
#: A process that takes longer to start, to come to its point, or to work off the rest.
_LONGEST_START_S, _LONGEST_LIFE_S, _LONGEST_DRAIN_S = 240, 40, 600


def soak_stream(seconds: float, seed: int, lives: int | None = None, report_s: float = 30) -> Tally:
    """Kill the process until the time is up, or for a number of lives; then compare."""
    tally, rng = Tally("stream"), random.Random(seed)
    begin = reported = time.monotonic()
    number = 0
    with (
        tempfile.TemporaryDirectory(prefix="wherecast-soak-", ignore_cleanup_errors=True) as name,
        tally.guarding("stream"),
    ):
        folder = Path(name)
        producer = Producer(folder, seed)
        producer.step()
        while time.monotonic() - begin < seconds and (lives is None or number < lives) and not tally.differences:
            _live_and_die(folder, producer, rng, tally)
            number += 1
            if time.monotonic() - reported >= report_s:
                reported = time.monotonic()
                print(_line(tally, producer), flush=True)
        _drain(folder, tally)
        if not tally.differences:
            check_outcome(folder, producer.logs, tally)
        print(_line(tally, producer), flush=True)
    return tally


def _line(tally: Tally, producer: Producer) -> str:
    files = {f"change_files_{name}": len(log) for name, log in producer.logs.items()}
    return tally.line(event_files=producer.events, **files)


def _start(folder: Path, point: str, batch: int) -> subprocess.Popen[bytes]:
    (folder / "ready").unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.soak.driver", str(folder), point, str(batch)]
    scratch = os.environ | {"SPARK_LOCAL_DIRS": str(folder / "spark")}  # who is killed leaves files
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=_ROOT, env=scratch, start_new_session=True)


def _live_and_die(folder: Path, producer: Producer, rng: random.Random, tally: Tally) -> None:
    """One process, killed at a point of its own or at any moment."""
    at_point = rng.random() < 0.6
    point = rng.choice(POINTS["parquet"]) if at_point else "none"
    process = _start(folder, point, rng.randint(0, 3))
    try:
        _wait_until_ready(folder, process)
        end = time.monotonic() + (_LONGEST_LIFE_S if at_point else rng.uniform(0, 15))
        while process.poll() is None and time.monotonic() < end:
            producer.step()
            time.sleep(0.2)
    finally:
        _end(process)
    tally.count("kills")
    tally.count("kills_at_a_point", int(at_point and time.monotonic() < end))
    code = process.wait()
    tally.check(code == -signal.SIGKILL, f"a process ended with {code}, point {point}:\n{_tail(folder)}")


def _wait_until_ready(folder: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _LONGEST_START_S
    while process.poll() is None and not (folder / "ready").exists():
        assert time.monotonic() < end, f"a process does not start\n{_tail(folder)}"
        time.sleep(0.1)


def _drain(folder: Path, tally: Tally) -> None:
    process = _start(folder, "drain", 0)
    try:
        code = process.wait(_LONGEST_DRAIN_S)
        tally.check(code == 0, f"the last process ended with {code}:\n{_tail(folder)}")
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, and what is left of its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")[-2500:]
