"""The commands of the operations pages and of the broker's quick start run; the alerts are about figures that exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
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


@pytest.mark.slow
def test_commands_of_the_broker(tmp_path: Path) -> None:
    """Figures, questions, a backup while it runs and a restore do what the pages say."""
    with running_wherecast(tmp_path) as broker, Client(broker.url, broker.token) as client:
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
        printed = "".join(run(block, **names) for block in blocks("../start/broker.md", "sh broker"))
        assert '"matches":1' in printed.replace(" ", "")
        assert '"subscriptions":["chips"]' in printed.replace(" ", "")
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
