"""How long experiments will take: as long as the last time, or as declared, or a guess; corrected as they finish."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wherecast.papers.lab.experiment import Experiment, Scale
from wherecast.papers.lab.results import Results

#: For an experiment that never ran here and declares nothing.
GUESS: dict[Scale, float] = {"small": 5.0, "paper": 120.0, "large": 1200.0}


def expected_seconds(experiment: Experiment[Any], scale: Scale, results: Results) -> float:
    """How long a run will take, roughly. A result from other code tells it as well."""
    record = results.record(experiment.name, scale)
    return record.seconds if record else experiment.seconds.get(scale, GUESS[scale])


class Forecast:
    """Runs that lie ahead, with the seconds each is expected to take."""

    def __init__(self, expected: Mapping[str, float]) -> None:
        # A second at least: what is shorter says nothing of the pace.
        self._expected = {name: max(seconds, 1.0) for name, seconds in expected.items()}
        self._taken = 0.0  # by the runs that are over
        self._promised = 0.0  # what had been expected of them

    def finish(self, name: str, taken: float) -> None:
        """A run is over."""
        self._promised += self._expected.pop(name)
        self._taken += taken

    def left(self, running: str | None = None, elapsed: float = 0.0) -> float:
        """Seconds that all runs still take, if one of them has been running for some.

        If those that are over took twice as long as expected, the others are expected to as well.
        """
        pace = self._taken / self._promised if self._promised else 1.0
        own = self._expected.get(running, 0.0) if running else 0.0
        others = sum(self._expected.values()) - own
        return others * pace + max(own * pace - elapsed, 0.0)

    def share(self, running: str | None = None, elapsed: float = 0.0) -> float:
        """How much of all time is over, from 0 to 1."""
        taken = self._taken + elapsed
        total = taken + self.left(running, elapsed)
        return taken / total if total else 1.0


def show_duration(seconds: float) -> str:
    """For people: `2 s`, `14 min`, `1 h 20 min`."""
    if seconds < 100:
        return f"{max(seconds, 1):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
