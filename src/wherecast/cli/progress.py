"""A progress bar on standard error, where that is a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def progress_bar(title: str, size: int) -> Iterator[Advance]:
    """A bar of `size` steps; call what it yields with the steps done so far."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console  # for people only
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=max(size, 1))
        yield lambda done: bar.update(task, completed=done)
