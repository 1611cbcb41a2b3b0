"""What a case comes to: figures, goals met or missed, and the JSON line it becomes.

A time says little without the machine that it was measured on, so that is here too.
"""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from wherecast.bench.cases import Case

PACKAGES = ("wherecast", "numpy", "numba", "pyarrow", "duckdb")


@dataclass(frozen=True, slots=True)
class Machine:
    """Processor, memory and versions."""

    cpu: str
    cores: int
    memory_gib: float | None
    system: str
    python: str
    packages: dict[str, str | None]

    def fields(self) -> dict[str, object]:
        """As plain data."""
        return asdict(self)


def describe_machine() -> Machine:
    """This machine."""
    packages = {name: _version(name) for name in PACKAGES}
    system = f"{platform.system()} {platform.release()}"
    return Machine(_cpu(), _cores(), _memory_gib(), system, platform.python_version(), packages)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # no Linux
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None


Figure = float | int | None


class Goal(NamedTuple):
    """An upper bound on a figure."""

    figure: str
    limit: float
    value: Figure

    @property
    def met(self) -> bool:
        """Whether the figure is there and within the bound."""
        return self.value is not None and self.value <= self.limit


class Point(NamedTuple):
    """One size of a growth curve."""

    subscriptions: int
    us_per_event: float
    matches_per_event: float
    build_s: float
    bytes_per_subscription: float


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one case. `figures` are named with their unit; a ratio is engine / baseline."""

    case: Case
    subscriptions: int
    figures: dict[str, Figure] = field(default_factory=dict)
    points: tuple[Point, ...] = ()  # growth: one per size
    skipped: str | None = None

    def goals(self) -> list[Goal]:
        """The goals of the case against its figures, if it was run at the declared size."""
        if self.skipped or self.case.expected < 0:
            return []
        return [Goal(name, limit, self.figures.get(name)) for name, limit in self.case.goals]

    def fields(self, machine: Machine) -> dict[str, object]:
        """One JSON line, complete by itself."""
        case = self.case
        line: dict[str, object] = {
            "case": case.name,
            "kind": case.kind,
            "groups": list(case.groups),
            "workload": case.workload,
            "scale": case.scale,
            "matcher": case.matcher,
            "output": case.output,
            "threads": case.threads,
            "subscriptions": self.subscriptions,
            **{name: tidy(value) for name, value in self.figures.items()},
        }
        if self.points:
            line["points"] = [{name: tidy(value) for name, value in point._asdict().items()} for point in self.points]
        if self.skipped:
            line["skipped"] = self.skipped
        if goals := self.goals():
            line["goals"] = [{**g._asdict(), "value": tidy(g.value), "met": g.met} for g in goals]
        return {**line, "machine": machine.fields()}


def tidy(value: Figure) -> Figure:
    """A figure with four significant digits; integers as they are."""
    return float(f"{value:.4g}") if isinstance(value, float) else value
