"""What a time was measured on."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

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
