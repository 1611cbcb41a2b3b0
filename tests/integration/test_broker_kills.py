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
    """Between the write of a commit to the log file and the answer to its client there is an fsync of that file."""
    trace = tmp_path / "trace"
    calls = "trace=openat,write,pwrite64,fsync,fdatasync,sendto,sendmsg,writev"
    wrap = ("strace", "-f", "-y", "-s", "64", "-e", calls, "-o", str(trace))
    with running_wherecast(tmp_path, wrap=wrap) as broker:
        make_space(broker)
        headers = {"Authorization": f"Bearer {broker.token}"}
        with httpx.Client(base_url=broker.url, headers=headers, timeout=60) as http:
            for n in range(10):
                http.put(f"{SPACE}/subscriptions/s{n}", json={"filter": f"n > {n}"}).raise_for_status()
                http.post(f"{SPACE}/publish", json={"n": n}).raise_for_status()
        subprocess.run(["pkill", "-KILL", "-P", str(broker.process.pid)], check=False)  # strace's child
    dirty, synced, answers = False, 0, 0
    for line in trace.read_text(errors="replace").splitlines():
        if re.search(r"pwrite64\(\d+<[^>]*-wal>", line):
            dirty = True
        elif re.search(r"f(data)?sync\(\d+<[^>]*-wal>\s*\)\s+= 0", line) or "fdatasync resumed" in line:
            dirty, synced = False, synced + 1
        elif re.search(r"(sendto|write|sendmsg|writev)\(\d+<(TCP|socket)", line) and "HTTP/1.1 20" in line:
            assert not dirty, line
            answers += 1
    assert answers >= 20
    assert synced >= 20
