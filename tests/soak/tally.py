"""Tally: what a soak has done and what it has found."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

#: Differences that are shown in full; the others are counted.
_SHOWN = 20


class Tally:
    """Counts from all threads, and the differences."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.differences: list[str] = []
        self._lock = threading.Lock()
        self._begin = time.monotonic()

    def count(self, name: str, n: int = 1) -> None:
        with self._lock:
            self.counts[name] += n

    def struck(self, operation: str) -> None:
        """A fault has struck an operation."""
        with self._lock:
            self.faults[operation] += 1

    def differ(self, text: str) -> None:
        with self._lock:
            self.differences.append(text)
            if len(self.differences) <= _SHOWN:
                print(f"DIFFERENCE {self.part}: {text[:3000]}", file=sys.stderr, flush=True)

    def check(self, holds: bool, text: str) -> None:
        self.count("checks")
        if not holds:
            self.differ(text)

    @contextmanager
    def guarding(self, who: str) -> Iterator[None]:
        """Whoever dies in this block is told of."""
        try:
            yield
        except BaseException:  # noqa: BLE001 - of a thread nobody else would hear
            self.differ(f"{who} died\n{traceback.format_exc()}")

    def line(self, **more: object) -> str:
        """Progress as key=value."""
        shown = {
            "part": self.part,
            "elapsed_s": round(time.monotonic() - self._begin),
            **self.counts,
            **({"faults": self.faults.total()} if self.faults else {}),
            "differences": len(self.differences),
            **more,
        }
        return " ".join(f"{name}={value}" for name, value in shown.items())
