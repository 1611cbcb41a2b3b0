"""The commands of the operations pages, of the broker's quick start and of the guide to digests run; alerts are about figures that exist."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from tests.servers.ports import free_ports
from tests.servers.wherecast_broker import running_wherecast

from wherecast import Client
from wherecast.broker.metrics import Metrics

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "operations"


def blocks(page: str, kind: str) -> list[str]:
    """The fenced blocks of a kind; those inside a list are indented."""
    text = (PAGES / page).read_text()
    return [block for _, block in re.findall(rf"^( *)```{kind}\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)]


def run(command: str, **names: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **names}
    done = subprocess.run(["sh", "-e", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


class Receiver(NamedTuple):
    """The receiver of webhooks that the quick start shows."""

    process: subprocess.Popen[str]
    port: int

    def line(self) -> str:
        """The next message that it prints; it comes within seconds, or the test ends by its limit."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@contextmanager
def receiver_of_the_quick_start(folder: Path) -> Iterator[Receiver]:
    """It listens at a free port instead of 9000."""
    [port] = free_ports(1)
    (program,) = blocks("../start/broker.md", "python receiver")
    (folder / "receiver.py").write_text(program.replace("9000", str(port)))
    command = [sys.executable, str(folder / "receiver.py")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield Receiver(process, port)
    finally:
        process.kill()
        process.communicate()


def run_digests(client: Client) -> None:
    """The guide to digests: what is published waits for the digest, and is delivered when nothing holds it."""
    names = {"client": client}
    *first, last = blocks("../guides/digests.md", "python broker")
    for block in first:
        exec(compile(block, "digests.md", "exec"), names)
    while sum(one["space"] == "logins" for one in client.deliveries(subscriber="ann")) < 3:
        time.sleep(0.05)
    exec(compile(last, "digests.md", "exec"), names)
    assert names["most"][0][0] == "ann"


@pytest.mark.slow
def test_commands_of_the_broker(tmp_path: Path) -> None:
    """Figures, questions, a backup while it runs and a restore do what the pages say."""
    settings = ("webhook_allow=127.0.0.1/32", f"file_folder={tmp_path / 'files'}")
    with (
        running_wherecast(tmp_path, settings=settings) as broker,
        Client(broker.url, broker.token) as client,
        receiver_of_the_quick_start(tmp_path) as received,
    ):
        client.create_space("quotes", {"symbol": "string", "price": "double"})
        client.subscribe("quotes", "symbol = 'IBM' AND price < 120", id="cheap-ibm")
        names = {
            "URL": broker.url,
            "TOKEN": broker.token,
            "DATABASE": str(tmp_path / "wherecast.db"),
            "BACKUP": str(tmp_path / "backup.db"),
        }
        for page in ("metrics.md", "runbook.md", "backup.md"):
            printed = "".join(run(block, **names) for block in blocks(page, "sh"))
            if page == "metrics.md":
                assert "# HELP wherecast_events_total" in printed
            if page == "runbook.md":
                assert '"cheap-ibm"' in printed
                assert "price < 120" in printed
        calls = [block.replace(":9000", f":{received.port}") for block in blocks("../start/broker.md", "sh broker")]
        printed = "".join(run(block, **names) for block in calls)
        assert '"matches":1' in printed.replace(" ", "")
        assert '"subscriptions":["chips"]' in printed.replace(" ", "")
        assert json.loads(received.line())["data"]["subscriptions"] == ["chips"]
        run_digests(client)
        client.subscribe("quotes", "price > 1", id="later")
        broker.stop()
        (restore,) = blocks("backup.md", "sh stopped")
        run(restore, **names)
        broker.start(broker.port)
        assert client.match("quotes", {"symbol": "IBM", "price": 5.0})["subscriptions"] == ["cheap-ibm"]


def test_copy_of_an_index(tmp_path: Path) -> None:
    """A copied folder is an index with the same versions."""
    shutil.copytree(ROOT / "tests" / "fixtures" / "index-2", tmp_path / "index")
    (copy,) = blocks("backup.md", "sh index")
    assert run(copy, INDEX=str(tmp_path / "index")).strip() == "[1, 2]"


def test_alerts_are_about_figures_that_exist() -> None:
    """Every figure in an alert is exported, and every alert leads to a part of the runbook."""
    exported = {sample.name for family in Metrics().registry.collect() for sample in family.samples}
    exported |= {family.name + end for family in Metrics().registry.collect() for end in ("_total", "_bucket")}
    headings = re.findall(r"^## (.*)$", (PAGES / "runbook.md").read_text(), re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    (group,) = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]:
        assert set(re.findall(r"wherecast_\w+", rule["expr"])) <= exported, rule["alert"]
        assert rule["annotations"]["runbook"].partition("#")[2] in anchors
