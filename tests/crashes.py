"""Where a test process was when it crashed: told at the end of the run, where people look.

A process that crashes writes the stacks of its threads first. On the terminal these stand amid the dots of the other processes, long before
the summary; so each process writes them to a file, and the summary shows it.
"""

from __future__ import annotations

import faulthandler
import tempfile
from pathlib import Path
from typing import Any

import pytest

_FOLDER = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
#: Lines that are shown of the thread that crashed.
_MOST_LINES = 30


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Before a process starts: give it a folder."""
    stash = node.config.stash
    if _FOLDER not in stash:
        stash[_FOLDER] = tempfile.TemporaryDirectory(prefix="crashes-")
    node.workerinput["crashes"] = stash[_FOLDER].name


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """In a process: write there from now on. pytest itself has told it to write to the terminal."""
    given = getattr(config, "workerinput", None)
    if given is not None:
        path = Path(given["crashes"], given["workerid"])
        faulthandler.enable(path.open("w", encoding="utf-8"))  # open until the process ends


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    folder = config.stash.get(_FOLDER, None)
    if folder is None:
        return
    for path in sorted(Path(folder.name).iterdir()):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if lines:
            terminalreporter.section(f"process {path.name} crashed")
            current = next((at for at, line in enumerate(lines) if line.startswith("Current thread")), 1)
            for line in (lines[0], *lines[current : current + _MOST_LINES]):
                terminalreporter.write_line(line[:200])
