"""Memory: what this process has, and whether it stays level.

Level means: the median of the last fifth of the samples is at most 1.2 times that of the second fifth plus 50 MB. The first
fifth is the warm-up.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

#: Fewer samples say nothing.
FEWEST = 20


def read_rss_mb() -> float:
    """Memory of this process that is in RAM."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("/proc/self/status has no VmRSS")


def compare_fifths(samples_mb: list[float]) -> tuple[float, float]:
    """Medians of the second and of the last fifth."""
    fifth = max(1, len(samples_mb) // 5)
    return median(samples_mb[fifth : 2 * fifth] or samples_mb), median(samples_mb[-fifth:])


def is_level(samples_mb: list[float]) -> bool:
    second, last = compare_fifths(samples_mb)
    return len(samples_mb) < FEWEST or last <= 1.2 * second + 50
