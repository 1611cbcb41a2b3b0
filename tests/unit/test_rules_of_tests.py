"""What CONTRIBUTING.md asks of tests, as far as their source shows it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
IMPORT = re.compile(r"^\s*(?:from|import) (tests\.(?:\w+\.)*test_\w+)", re.MULTILINE)
CLOCK = re.compile(r"\btime\.(?:time|monotonic|perf_counter|process_time|thread_time)(?:_ns)?\b")


def found(pattern: re.Pattern[str], *folders: str) -> Iterator[str]:
    """Where tests and their helpers have what a pattern matches."""
    for folder in folders:
        for path in sorted((TESTS / folder).rglob("*.py")):
            yield from (
                f"{path.relative_to(TESTS)}: {match[0].strip()}" for match in pattern.finditer(path.read_text())
            )


def test_no_test_module_is_imported():
    """Helpers that two modules share live in a module of their own."""
    assert IMPORT.search("x = 1\n    from tests.unit.test_x import y")
    assert not list(found(IMPORT, "."))


def test_no_clock_decides():
    """Neither unit tests nor properties read a clock, so none can fail on a slow machine."""
    assert CLOCK.search("start = time" + ".perf_counter_ns()")
    assert not list(found(CLOCK, "unit", "property"))
