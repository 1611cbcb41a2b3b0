"""The lock files: what `make install` may fetch."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements-build.lock", "requirements.lock")


@pytest.mark.parametrize("lock", [*LOCKS, "deploy/requirements.lock"])
def test_every_package_has_hashes_and_no_registry(lock):
    """One version and its hashes per line; where it comes from is for the machine to say."""
    text = (ROOT / lock).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert lines
    for line in lines:
        assert re.fullmatch(r"[\w.\-\[\],]+==\S+( ; .+?)?( +--hash=sha256:[0-9a-f]{64})+", line), line
    assert "://" not in text


@pytest.mark.parametrize("uv", ["", "/opt/uv"])
def test_installing_checks_hashes(uv):
    """With pip and with uv: the locks with their hashes, no build fetches anything, the checkout itself comes last, then its kernels."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MAKE")
    }  # `make test` sets them
    command = ["make", "-n", "-B", "--no-print-directory", f"UV={uv}", "install"]
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    *_, locks, checkout, warm, _ = made.splitlines()
    assert f"for lock in {' '.join(LOCKS)};" in locks
    assert "$install --require-hashes --no-deps --no-build-isolation -r $lock" in locks
    assert "$install --no-deps --no-build-isolation -e ." in checkout
    assert "wherecast warm" in warm
    assert ("/opt/uv pip install" in made) == bool(uv)
