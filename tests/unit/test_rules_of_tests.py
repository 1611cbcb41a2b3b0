"""What CONTRIBUTING.md asks of tests, as far as their source shows it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "thread_time"}


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """The source of all tests and their helpers, by path."""
    return {str(p.relative_to(TESTS)): ast.parse(p.read_text("utf-8")) for p in sorted(TESTS.rglob("*.py"))}


def test_no_test_module_is_imported(trees):
    """Helpers that two modules share live in a module of their own."""
    found = [
        f"{path} imports {name}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
        if name.startswith("tests.") and name.rpartition(".")[2].startswith("test_")
    ]
    assert not found


def test_no_clock_decides(trees):
    """Neither unit tests nor properties read a clock, so none can fail on a slow machine."""
    found = [
        f"{path}:{node.lineno} reads time.{node.attr}"
        for path, tree in trees.items()
        if path.startswith(("unit", "property"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.removesuffix("_ns") in CLOCKS
        and isinstance(node.value, ast.Name)
        and node.value.id == "time"
    ]
    assert not found
