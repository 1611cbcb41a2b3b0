"""Compile the kernels that nearly every test needs once, although several processes run the tests.

Theory of operation. Numba keeps compiled kernels on disk, so only the first run compiles them. In that run each process would compile
all that its first tests need, and the first tests of all processes need much the same. Therefore the first two processes
compile a part each before their first test and wait for the other's; then everybody loads both from disk. Where kernels are
compiled already, this takes a fraction of a second.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from wherecast.cli.warm import PARTS

if TYPE_CHECKING:
    import pytest

#: Another process may have died.
_PATIENCE_S = 120


def warm_kernels(config: pytest.Config) -> None:
    """Compile this process' part, if it is one of several, and wait for the others."""
    about = getattr(config, "workerinput", {"workercount": 1})
    if about["workercount"] < len(PARTS):
        return
    folder = Path(config.option.basetemp).parent  # of this run; each process has a folder in it
    done = [folder / f"warmed-{part}" for part in range(len(PARTS))]
    mine = int(about["workerid"].removeprefix("gw"))
    if mine < len(PARTS):
        try:
            PARTS[mine]()
        finally:
            done[mine].touch()
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end and not all(file.exists() for file in done):
        time.sleep(0.02)
