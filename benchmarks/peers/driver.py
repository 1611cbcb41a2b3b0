"""Peers that are not Python: a small program reads filters and events from files, and prints what it measured."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.peers.peer import CannotError, Measured, Peer
from benchmarks.peers.workloads import PeerWorkload

DRIVERS = Path(__file__).parent / "drivers"
#: Seconds that loading may take.
LOAD_S = 15


class DriverPeer(Peer):
    """A peer behind a program of the folder `drivers`: PROGRAM FOLDER BUDGET_S LOAD_S FILTERS."""

    def measure(self, workload: PeerWorkload, budget_s: float) -> Measured:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write(folder / "filters", self.filters(workload))
            write(folder / "events", (self.event(workload, event) for event in workload.events))
            printed = call(*self.command(), name, str(budget_s), str(LOAD_S), str(len(workload.filters)))
            found = json.loads(printed.splitlines()[-1])
            if "stopped" in found:
                raise CannotError(found["stopped"])
            tally = np.array(json.loads((folder / "tally").read_text()), np.int64)
        return Measured(found["load_s"], found["us_per_event"], found["events"], found["checked"], tally)

    def command(self) -> list[str]:
        """The program, compiled if need be."""
        raise NotImplementedError

    def filters(self, workload: PeerWorkload) -> Iterable[Any]:
        """Pairs of an id and what the driver registers for it. Raises CannotError."""
        raise NotImplementedError

    def event(self, workload: PeerWorkload, event: dict[str, Any]) -> Any:
        """What the driver is given for an event."""
        raise NotImplementedError


def write(path: Path, lines: Iterable[Any]) -> None:
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")


def call(*command: str, cwd: Path | None = None) -> str:
    """What a program prints; its failure ends the run."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout[-1000:] + done.stderr[-3000:])
    return done.stdout
