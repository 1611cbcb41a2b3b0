"""Progress of long work: a bar where a person looks, a line in the log elsewhere.

    with progress("compiling", len(texts)) as step:
        for part in parts:
            ...
            step.advance(len(part))

Work says how far it is, always; whether anybody sees it is decided outside, by `shown`: a caller who passes
`progress=True`, or a command. Then it is a bar on standard error if that is a terminal, or in the cell of a notebook. In all
other cases the logger `wherecast.progress` says at INFO how far the work is, every few seconds: short work logs nothing.

The bar is drawn by rich, which the command line uses anyway. A step inside another has no bar of its own.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_log = logging.getLogger(__name__)

#: Seconds between two lines in the log; work that ends sooner has none.
LOG_EVERY = 5.0
#: Pictures of a bar per second.
REFRESH = 5

_is_shown: ContextVar[bool] = ContextVar("_is_shown", default=False)


class ProgressStep:
    """A piece of work of `total` parts, of which `done` are done. This one logs; those with a bar follow."""

    def __init__(self, title: str, total: int) -> None:
        self.title = title
        self.total = total
        self.done = 0
        self.begin = time.monotonic()
        self._next = self.begin + LOG_EVERY

    def advance(self, parts: int = 1) -> None:
        """So many more parts are done."""
        self.done += parts
        now = time.monotonic()
        if now >= self._next:
            self._next = now + LOG_EVERY
            self._show(now - self.begin)

    def _show(self, seconds: float) -> None:
        _log.info("%s: %s of %s, %.0f s", self.title, f"{self.done:,}", f"{self.total:,}", seconds)

    def close(self) -> None:
        """Nothing more comes, whether or not all is done."""
        seconds = time.monotonic() - self.begin
        if seconds >= LOG_EVERY and self.done >= self.total:
            _log.info("%s: done, %s in %.1f s", self.title, f"{self.total:,}", seconds)


class _TerminalStep(ProgressStep):
    """A bar on standard error, which is gone when the work is done."""

    def __init__(self, title: str, total: int) -> None:
        super().__init__(title, total)
        self._bar, self._task = _terminal_bar(title, total)
        self._bar.start()

    def advance(self, parts: int = 1) -> None:
        self.done += parts
        self._bar.advance(self._task, parts)

    def close(self) -> None:
        self._bar.stop()


def _terminal_bar(title: str, total: int) -> tuple[Progress, TaskID]:
    # Imported only where somebody looks.
    from rich import progress as rich  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TaskProgressColumn())
    times = (rich.TimeElapsedColumn(), rich.TextColumn("left"), rich.TimeRemainingColumn())
    console = Console(stderr=True)
    bar = rich.Progress(*columns, *times, console=console, transient=True, refresh_per_second=REFRESH)
    return bar, bar.add_task(title, total=max(total, 1))


class _NotebookStep(ProgressStep):
    """A bar in the cell of a notebook. rich would need ipywidgets there; HTML needs nothing."""

    def __init__(self, title: str, total: int) -> None:
        super().__init__(title, total)
        from IPython.display import display  # noqa: PLC0415 - a notebook has it

        self._next = self.begin
        self._handle = display(self, display_id=True)  # type: ignore[no-untyped-call]

    def _show(self, seconds: float) -> None:  # noqa: ARG002 - the cell says it all
        self._next = time.monotonic() + 1 / REFRESH
        self._handle.update(self)

    def close(self) -> None:
        self._handle.update(self)

    def _repr_html_(self) -> str:
        seconds = time.monotonic() - self.begin
        bar = f'<progress value="{self.done}" max="{max(self.total, 1)}"></progress>'
        return f"<div>{self.title} {bar} {self.done:,} of {self.total:,}, {seconds:.0f} s</div>"


@contextmanager
def shown(wanted: bool = True) -> Iterator[None]:  # noqa: FBT002 - shown() reads as a sentence
    """Whether the work within shows its bars; as it is outside where it is not `wanted`."""
    before = _is_shown.set(_is_shown.get() or wanted)
    try:
        yield
    finally:
        _is_shown.reset(before)


@contextmanager
def progress(title: str, total: int) -> Iterator[ProgressStep]:
    """A step of `total` parts; call `advance` on what it yields."""
    step = _step_class()(title, total)
    inside = _is_shown.set(False)
    try:
        yield step
    finally:
        _is_shown.reset(inside)
        step.close()


def _step_class() -> type[ProgressStep]:
    if not _is_shown.get():
        return ProgressStep
    if _is_notebook():
        return _NotebookStep
    return _TerminalStep if sys.stderr.isatty() else ProgressStep


def _is_notebook() -> bool:
    """Whether this runs in the kernel of a notebook (and not in IPython's own terminal)."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")
