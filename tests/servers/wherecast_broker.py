"""A broker of a test's own: `wherecast serve` in a process, with its data in a folder."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_START_S = 60.0


class BrokerProcess:
    """A broker that can be killed and started again on the same data."""

    def __init__(
        self,
        folder: Path,
        *,
        database: str | None = None,
        settings: tuple[str, ...] = (),
        wrap: tuple[str, ...] = (),
        token: str = "",
    ) -> None:
        self.folder = folder
        self.database = database or f"sqlite:///{folder / 'wherecast.db'}"
        self.settings = settings
        self.wrap = wrap  # a command around the broker: strace
        self.token = token  # none: the broker makes the first one, and prints it
        self.url = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self, port: int = 0) -> None:
        """Start it and wait until it is ready."""
        command = [
            *self.wrap,
            sys.executable,
            "-m",
            "wherecast",
            "serve",
            "--database",
            self.database,
            "--port",
            str(port),
        ]
        for pair in self.settings:
            command += ["--set", pair]
        self.errors = (self.folder / "broker.log").open("a")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if " at http" not in line:
            self.process.wait()
            raise AssertionError((self.folder / "broker.log").read_text()[-3000:])
        self.url = line.split(" at ")[1].split()[0]
        if not self.token:
            self.token = self.process.stdout.readline().rsplit(" ", 1)[-1].strip()
        self.wait_ready()

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def wait_ready(self) -> None:
        end = time.monotonic() + _START_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                assert time.monotonic() < end, (self.folder / "broker.log").read_text()[-3000:]
                time.sleep(0.02)

    def kill(self) -> None:
        """End it as kill -9 does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self._ended()

    def stop(self) -> None:
        """End it as a supervisor does."""
        if self.process is not None:
            self.process.terminate()
            self._ended()

    def _ended(self) -> None:
        assert self.process is not None
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.close()
        self.process = None


@contextmanager
def running_wherecast(
    folder: Path,
    *,
    database: str | None = None,
    settings: tuple[str, ...] = (),
    wrap: tuple[str, ...] = (),
    token: str = "",
) -> Iterator[BrokerProcess]:
    """A broker, ended whatever happens; one on a database that has a token already is given it."""
    broker = BrokerProcess(folder, database=database, settings=settings, wrap=wrap, token=token)
    try:
        broker.start()
        yield broker
    finally:
        if broker.process is not None:
            broker.kill()
