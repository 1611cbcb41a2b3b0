"""What somebody sees who waits for experiments: a bar with the time left on a terminal, a line per experiment elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wherecast.cli.report import printable, say

if TYPE_CHECKING:
    from rich.console import RenderableType

    from wherecast.papers.lab.experiment import Progress
    from wherecast.papers.lab.forecast import Forecast


class LabWatch:
    """Runs one after another, by their forecast."""

    def __init__(self, forecast: Forecast, n_runs: int, *, silent: bool) -> None:
        self._forecast = forecast
        self._n_runs = n_runs
        self._silent = silent  # a bar is on the screen: say nothing
        self._number = 0
        self._name: str | None = None
        self._start = time.monotonic()
        self._line = ""

    @contextmanager
    def running(self, name: str) -> Iterator[Progress]:
        """A run; call what this yields with a line that says how far it is."""
        self._number += 1
        self._name, self._start, self._line = name, time.monotonic(), name
        if not self._silent:
            say(f"{self._place()} {name}; {self._time_left()}")
        try:
            yield self._note
        finally:
            self._forecast.finish(name, self._elapsed())
            self._name = None

    def render(self) -> RenderableType:
        """The bar, as it is now."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        bar = ProgressBar(total=1.0, completed=self._forecast.share(self._name, self._elapsed()), width=30)
        line = Table.grid(padding=(0, 1))
        line.add_row(Text(self._place()), bar, Text(self._time_left()), Text(self._line, "dim", no_wrap=True))
        return line

    def _note(self, line: str) -> None:
        self._line = printable(line)

    def _place(self) -> str:
        return f"[{self._number}/{self._n_runs}]"

    def _time_left(self) -> str:
        from wherecast.papers.lab.forecast import show_duration

        return f"about {show_duration(self._forecast.left(self._name, self._elapsed()))} left"

    def _elapsed(self) -> float:
        return time.monotonic() - self._start if self._name else 0.0


@contextmanager
def watch_runs(forecast: Forecast, n_runs: int) -> Iterator[LabWatch]:
    """Watch so many runs."""
    if not sys.stderr.isatty() or not n_runs:
        yield LabWatch(forecast, n_runs, silent=False)
        return
    from rich.console import Console
    from rich.live import Live

    watch = LabWatch(forecast, n_runs, silent=True)
    # Twice a second: drawing takes time from what is measured.
    with Live(
        get_renderable=watch.render,
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=2,
        redirect_stdout=sys.stdout.isatty(),
    ):
        yield watch
