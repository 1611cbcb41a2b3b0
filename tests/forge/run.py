"""Forge snapshots by the hundred, open each in another process, and count what becomes of them.

    python -m tests.forge.run --edits 2000

Each edit is made with right checksums (see `edits`). A forged file may be refused, or answer wrongly; it may not crash or
stall the process, take memory without bound, or raise what is none of our errors. With `NUMBA_BOUNDSCHECK=1` kernels
notice an access out of bounds that would do no visible harm.
"""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import NamedTuple, Self

from tests.forge.engines import save_engines

#: Seconds that a snapshot may take to open and answer; the warm-up compiles.
_LONGEST_S, _WARM_UP_S = 60, 900


class Report(NamedTuple):
    """How many edits had which outcome, and the ones that must not be."""

    counts: Counter[str]
    bad: list[str]


def run_edits(numbers: range, seed: int, folder: Path) -> Report:
    """Make and try these edits."""
    saved = folder / "saved"
    saved.mkdir()
    assert list(save_engines(saved))
    counts: Counter[str] = Counter()
    bad: list[str] = []
    todo = iter(numbers)
    while (number := next(todo, None)) is not None:
        with _Worker(saved, folder, seed) as worker:
            while number is not None:
                edit, kind, detail = worker.ask(number)
                counts[kind] += 1
                if kind not in ("refused", "harmless"):
                    bad.append(f"{kind} [{number}] {edit}\n{detail}")
                if kind in ("crashed", "stalled"):
                    break
                number = next(todo, None)
    return Report(counts, bad)


class _Worker:
    """A process that tries edits until one ends it."""

    def __init__(self, saved: Path, folder: Path, seed: int) -> None:
        scratch = Path(tempfile.mkdtemp(dir=folder))
        command = [sys.executable, "-m", "tests.forge.worker", str(saved), str(scratch), str(seed)]
        self._errors = scratch / "errors.txt"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        ready = self._read(_WARM_UP_S)
        assert ready == "ready\n", f"{ready}\n{self._errors.read_text()}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, number: int) -> tuple[str, str, str]:
        """(edit, outcome, detail) of one edit."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number}\n".encode())
        self._process.stdin.flush()
        edit = ""
        while True:
            line = self._read(_LONGEST_S)
            if line is None:
                return edit, "stalled", f"no answer after {_LONGEST_S} s"
            if not line:
                return edit, "crashed", f"exit {self._process.wait()}\n{self._errors.read_text()[-3000:]}"
            kind, text = json.loads(line)
            if kind != "edit":
                return edit, kind, text
            edit = text

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.decode())
        self._lines.put("")

    def _read(self, seconds: float) -> str | None:
        """A line; empty: the process has ended, None: it says nothing."""
        try:
            return self._lines.get(timeout=seconds)
        except queue.Empty:
            return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--edits", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first edit; to repeat one, with --edits 1")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wherecast-forge-") as folder:
        report = run_edits(range(given.first, given.first + given.edits), given.seed, Path(folder))
    for text in report.bad:
        print(text)
    print(", ".join(f"{kind}: {n}" for kind, n in sorted(report.counts.items())))
    return 1 if report.bad else 0


if __name__ == "__main__":
    sys.exit(main())
