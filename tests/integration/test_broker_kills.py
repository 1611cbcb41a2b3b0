"""The broker is killed while it works; what it acknowledged stays, and feeds have every match once.

`python -m tests.integration.broker_kills_run --kills 100` does more of it.
"""

from __future__ import annotations

import re
import shutil
import subprocess

import httpx
import pytest
from tests.integration.broker_history import SPACE, make_space, run_with_kills
from tests.servers.postgresql import running_postgresql
from tests.servers.wherecast_broker import running_wherecast


@pytest.mark.slow
def test_kills_lose_nothing_that_was_acknowledged(tmp_path):
    """After kill -9 at random moments: no acknowledged item lost, no phantom, each feed exact."""
    with running_wherecast(tmp_path, settings=("heartbeat_s=0.5",)) as broker:
        run_with_kills(broker, 3, 1)


@pytest.mark.slow
def test_kills_on_postgresql(tmp_path):
    """The same on PostgreSQL."""
    with (
        running_postgresql() as server,
        running_wherecast(tmp_path, database=server.url, settings=("heartbeat_s=0.5",)) as broker,
    ):
        run_with_kills(broker, 1, 2)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed (Debian: apt install strace)")
def test_nobody_is_answered_before_fsync(tmp_path):
    """Between the write of what a client asked for to the log file and the answer to it there is an fsync of that file.

    Each request has a number of its own, which is looked for in what is written: the broker also writes for itself, at any time.
    """
    trace = tmp_path / "trace"
    calls = "trace=pwrite64,fsync,fdatasync,sendto,sendmsg,write,writev"
    wrap = ("strace", "-f", "-y", "-s", "5000", "-e", calls, "-o", str(trace))
    numbers = [7_000_000_000 + n for n in range(20)]
    with running_wherecast(tmp_path, wrap=wrap) as broker:
        make_space(broker)
        headers = {"Authorization": f"Bearer {broker.token}"}
        with httpx.Client(base_url=broker.url, headers=headers, timeout=60) as http:
            for subscribed, published in zip(numbers[::2], numbers[1::2], strict=True):
                filter = f"n > {subscribed}"
                http.put(f"{SPACE}/subscriptions/s{subscribed}", json={"filter": filter}).raise_for_status()
                key = {"Idempotency-Key": str(published)}  # events are compressed, keys are not
                http.post(f"{SPACE}/publish", json={"n": published}, headers=key).raise_for_status()
        subprocess.run(["pkill", "-KILL", "-P", str(broker.process.pid)], check=False)  # strace's child
    lines = trace.read_text(errors="replace").splitlines()
    written = [_first(lines, 0, rf"pwrite64\(\d+<[^>]*-wal>.*{number}") for number in numbers]
    syncs = _completed_syncs(lines)
    answered = _answers_after(lines, written[0])
    assert len(answered) == len(numbers)
    for number, start, end in zip(numbers, written, answered, strict=True):
        assert any(start < sync < end for sync in syncs), f"{number} was answered before fsync: {lines[end][:200]}"


def _first(lines: list[str], start: int, pattern: str) -> int:
    """The first line from `start` on that has the pattern."""
    return next(place for place in range(start, len(lines)) if re.search(pattern, lines[place]))


def _completed_syncs(lines: list[str]) -> list[int]:
    """Where a sync of the log file has ended. A call that waits while another thread works has two lines."""
    ended, waiting = [], set()
    for place, line in enumerate(lines):
        thread = line.split()[0]
        if re.search(r"f(data)?sync\(\d+<[^>]*-wal>", line):
            if re.search(r"\)\s+= 0$", line):
                ended.append(place)
            else:
                waiting.add(thread)
        elif thread in waiting and re.search(r"f(data)?sync resumed>.*= 0$", line):
            waiting.remove(thread)
            ended.append(place)
    return ended


def _answers_after(lines: list[str], start: int) -> list[int]:
    """Where the answers to the client begin."""
    answer = re.compile(r"(sendto|write|sendmsg|writev)\(\d+<(TCP|socket).*HTTP/1\.1 20")
    return [place for place in range(start, len(lines)) if answer.search(lines[place])]
