"""A standalone Spark cluster of a test's own: a master and two workers as processes, each in a folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pyspark
from tests.servers.ports import LOOPBACK, free_ports, is_open
from tests.spark_settings import spark_jvm
from tests.spark_versions.run import environment, folder_of

from wherecast.spark.session import java_home

WORKERS = 2
_START_S = 120


class Cluster(NamedTuple):
    """Where the master is, and the sessions of the workers: their executors are in them."""

    url: str
    sessions: list[int]


@contextmanager
def running_cluster(folder: Path, version: str | None = None) -> Iterator[Cluster]:
    """The processes have nothing in common but what they are told by absolute paths: each works in a folder of its own.

    `version` is another one of Spark than the one that runs here.
    """
    port, *pages = free_ports(2 + WORKERS)
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, what: str, *arguments: str) -> None:
        place = folder / name
        place.mkdir()
        home = Path(pyspark.__file__).parent if version is None else folder_of(version) / "pyspark"
        variables = {
            **(os.environ if version is None else environment(version)),
            "SPARK_HOME": str(home),
            "JAVA_HOME": str(java_home()),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": spark_jvm(home),
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", "--host", LOOPBACK, *arguments]
        log = (place / "log").open("wb")
        started.append(
            subprocess.Popen(command, cwd=place, env=variables, stdout=log, stderr=log, start_new_session=True)
        )

    try:
        start("master", "master.Master", "--port", str(port), "--webui-port", str(pages[0]))
        _wait_for(port, folder / "master")
        url = f"spark://{LOOPBACK}:{port}"
        for number in range(WORKERS):
            limits = ("--cores", "1", "--memory", "1g", "--webui-port", str(pages[1 + number]))
            start(
                f"worker-{number}",
                "worker.Worker",
                *limits,
                "--work-dir",
                str(folder / f"worker-{number}" / "work"),
                url,
            )
        yield Cluster(url, [process.pid for process in started[1:]])
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for(port: int, place: Path) -> None:
    end = time.monotonic() + _START_S
    while not is_open(port):
        if time.monotonic() > end:
            raise RuntimeError(f"the master did not start: {(place / 'log').read_text()[-2000:]}")
        time.sleep(0.2)
