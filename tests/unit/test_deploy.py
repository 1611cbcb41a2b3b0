"""The files in deploy/: what a linter and systemd say, and that each path and command in them exists."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wherecast.broker.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


@pytest.mark.slow
def test_container_file():
    """The linter has nothing to say, what is copied exists and is not ignored, and the command is one of the program."""
    linter = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([linter, DEPLOY / "Containerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    text = (DEPLOY / "Containerfile").read_text()
    kept = {line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line.startswith("!")}
    for line in re.findall(r"^COPY (?!--)(.*)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert source in kept, source
    (command,) = re.findall(r"^CMD \[(.*)\]$", text, re.MULTILINE)
    first, option, _ = (part.strip(' "') for part in command.split(","))
    call = [sys.executable, "-m", "wherecast", first, "--help"]
    assert option in subprocess.run(call, capture_output=True, text=True, check=True).stdout


def test_unit_of_systemd(tmp_path):
    """Systemd accepts the unit, and the settings that it names exist."""
    text = (DEPLOY / "wherecast.service").read_text()
    for name in re.findall(r"WHERECAST_(\w+)=", text):
        assert name.lower() in Settings.__dataclass_fields__
    assert "ExecStart=/opt/wherecast/bin/wherecast serve\n" in text
    systemd = shutil.which("systemd-analyze")
    if systemd is None:
        pytest.skip("systemd-analyze is not installed; the unit was not verified")
    unit = tmp_path / "wherecast.service"
    unit.write_text(text.replace("/opt/wherecast/bin/wherecast serve", "/bin/true"))
    done = subprocess.run([systemd, "verify", unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "wherecast.service:" not in done.stderr
