"""Everything that runs in a classic session runs through Spark Connect, with the same outcome."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from tests.integration.small_market import EVENTS, SCHEMA, STRATEGIES, STREAMED, SUBSCRIPTIONS, engine_pairs
from tests.servers.ports import free_ports, is_open
from tests.spark_settings import SETTINGS

from wherecast.spark.session import java_home

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DRIVER = Path(__file__).with_name("connect_driver.py")
ROOT = DRIVER.parents[2]
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
CHANGED = [*SUBSCRIPTIONS, (7, "price > 5")]


@contextmanager
def running_server(folder: Path) -> Iterator[str]:
    """A Connect server of the installed PySpark, on a free port; ends with the block."""
    [port] = free_ports(1)
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-submit"), "--class", SERVER, "--master", "local[2]"]
    for name, value in {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.sql.warehouse.dir": folder / "warehouse",
        **SETTINGS,
    }.items():
        command += ["--conf", f"{name}={value}"]
    environment = {**os.environ, "JAVA_HOME": str(java_home()), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYSPARK_PYTHON"] = sys.executable
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True, cwd=folder)
    try:
        end = time.monotonic() + 90
        while not is_open(port):
            assert process.poll() is None, (folder / "server.log").read_text()[-3000:]
            assert time.monotonic() < end, (folder / "server.log").read_text()[-3000:]
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its Python workers too
        process.wait()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the client found."""
    folder = tmp_path_factory.mktemp("connect")
    with running_server(folder) as address:
        command = [sys.executable, str(DRIVER), address, str(folder)]
        # The tests, and whatever source this process uses.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    return json.loads((folder / "outcome.json").read_text())


def expected(rows: list[tuple[int, str]]) -> list[list[Any]]:
    return sorted(map(list, engine_pairs(SCHEMA, rows, EVENTS, "note")))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_match(outcome: dict[str, Any], strategy: str) -> None:
    """Pairs and lists are the engine's; so they are after a change and after compaction."""
    found = outcome[strategy]["match"]
    assert found["pairs"] == found["lists"] == expected(SUBSCRIPTIONS)
    assert found["changed"] == expected(CHANGED)


@pytest.mark.parametrize("strategy", STREAMED)
def test_stream(outcome: dict[str, Any], strategy: str) -> None:
    """Batches are matched, changes hold from the next one on, poison is set apart, and the client gets the reports."""
    found = outcome[strategy]["stream"]
    after = [pair for pair in expected([*CHANGED, (9, "volume > 0")]) if pair[0] != "a"]
    assert found["pairs"] == {"0": expected(CHANGED), "1": after}
    assert all(mail == f"{subscription}@here" for subscription, mail in found["mails"])
    assert found["dead"] == [["a", "broken"]]
    assert found["refused"] == ["8"]
    assert "2.parquet has the column 'new'" in found["stopped"]
    first, second = found["reports"]
    assert (first["batch"], first["events"], first["matches"]) == (0, len(EVENTS), len(found["pairs"]["0"]))
    assert (second["batch"], second["errors"], second["matches"]) == (1, 1, len(after))
    assert first["version"] < second["version"]
    assert sorted(set(found["progress"])) == [0, 1]  # Spark repeats the last batch while nothing comes


def test_tasks_that_write(outcome: dict[str, Any]) -> None:
    """A batch and a stream whose tasks write have the engine's matches, and encryption is refused."""
    found, all_rules = outcome["written"], expected(CHANGED)
    assert found["once"] == found["streamed"] == all_rules
    assert found["matches"] == len(all_rules)
    assert "parquet.crypto.factory.class is set, and only Spark's own writer encrypts" in found["refused"]
