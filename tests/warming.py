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

from tests.unit.boxes import make_boxes, make_events

from wherecast import Engine
from wherecast.matchers.adaptive import AdaptiveMatcher

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


def compile_filters() -> None:
    """From texts to boxes, and from events to codes."""
    engine = Engine({"a": "int", "s": "string", "tags": "array<string>"}, matcher="scan")
    engine.subscribe_many(
        [(n, f"a > {n} AND (s LIKE '%x{n}%' OR a IN (1, {n + 7}) AND NOT s = 'y{n % 3}')") for n in range(40)]
        + [(100, "array_contains(tags, 'x')"), (101, "s LIKE 'a%'"), (102, "a + 1 > 2 AND lower(s) = 'x'")]
    )
    engine.match_batch([{"a": 7, "s": "x3", "tags": ["x"]}, {"a": None, "s": "y1", "tags": None}])


def build_matcher() -> None:
    """From boxes to a matcher, and from codes to matches."""
    boxes = make_boxes([[(n % 3, [(n % 7, n % 7 + n % 2)]), (3, [(n % 5, 9)])] for n in range(400)], [9, 9, 9, 9])
    events = make_events([[n % 9, n % 8, n % 7, n % 6] for n in range(40)], 4)
    AdaptiveMatcher.build(boxes, events).match(events)
    AdaptiveMatcher.build(boxes, None).match(events)


PARTS = (compile_filters, build_matcher)
