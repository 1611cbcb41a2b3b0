"""Figures of the last five minutes for the console: a row of counters for each second, by tenant and space.

They are of this process and of one tenant at a time; `metrics` has those of all tenants together, for Prometheus.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

#: How many seconds are kept.
KEPT_S = 300
#: Spaces whose figures are kept at a time; those that were quiet for KEPT_S make room.
_SPACES = 2_000
#: Upper ends of the classes of publish times, in milliseconds: each a quarter above the last.
_ENDS_MS = 0.2 * 1.25 ** np.arange(48)
_EVENTS, _MATCHES, _TIMES = 0, 1, 2

Counts = npt.NDArray[np.int64]


class _Ring:
    """Counters of one space; second s is in row s % KEPT_S."""

    def __init__(self) -> None:
        self.seconds = np.full(KEPT_S, -1, np.int64)
        self.counts: Counts = np.zeros((KEPT_S, _TIMES + _ENDS_MS.size + 1), np.int64)

    def row(self, second: int) -> Counts:
        place = second % KEPT_S
        if self.seconds[place] != second:
            self.seconds[place] = second
            self.counts[place] = 0
        found: Counts = self.counts[place]
        return found

    def add_to(self, total: Counts, first: int) -> None:
        """Add the rows of the seconds from `first` on to those of `total`."""
        at = self.seconds - first
        kept = (at >= 0) & (at < len(total)) & (self.seconds >= 0)
        total[at[kept]] += self.counts[kept]


class Statistics:
    """Counts per second. Its methods are for the event loop."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._rings: dict[tuple[str, str], _Ring] = {}

    def count(self, tenant: str, space: str, events: int, matches: int) -> None:
        """Events that are durable now, and their matches."""
        row = self._row(tenant, space)
        row[_EVENTS] += events
        row[_MATCHES] += matches

    def time(self, tenant: str, space: str, seconds: float) -> None:
        """A publish took so long, from the request to its answer."""
        self._row(tenant, space)[_TIMES + int(np.searchsorted(_ENDS_MS, seconds * 1000))] += 1

    def last(self, tenant: str, space: str | None, seconds: int) -> dict[str, Any]:
        """The last whole seconds of a space, or of all spaces of a tenant; the newest last."""
        first = int(self._clock_s()) - seconds
        total: Counts = np.zeros((seconds, _TIMES + _ENDS_MS.size + 1), np.int64)
        for (owner, name), ring in self._rings.items():
            if owner == tenant and space in (None, name):
                ring.add_to(total, first)
        return {
            "events": total[:, _EVENTS].tolist(),
            "matches": total[:, _MATCHES].tolist(),
            "publishes": total[:, _TIMES:].sum(axis=1).tolist(),
            "publish_ms": {name: _quantiles(total[:, _TIMES:], q) for name, q in (("p50", 0.5), ("p99", 0.99))},
        }

    def _row(self, tenant: str, space: str) -> Counts:
        second = int(self._clock_s())
        ring = self._rings.get((tenant, space))
        if ring is None:
            if len(self._rings) >= _SPACES:
                self._forget(second)
            ring = self._rings[tenant, space] = _Ring()
        return ring.row(second)

    def _forget(self, second: int) -> None:
        """Make room: the quiet ones go, and if there are none, the one that was quiet for longest."""
        quiet = [key for key, ring in self._rings.items() if ring.seconds.max() < second - KEPT_S]
        for key in quiet or [min(self._rings, key=lambda key: int(self._rings[key].seconds.max()))]:
            del self._rings[key]


def _quantiles(times: Counts, q: float) -> list[float | None]:
    """A quantile for each second by the end of its class, up to a quarter too high; None where nothing was published."""
    return list(_ends(times, q))


def _ends(times: Counts, q: float) -> Iterable[float | None]:
    for row, total in zip(np.cumsum(times, axis=1), times.sum(axis=1), strict=True):
        place = min(int(np.searchsorted(row, q * total)), _ENDS_MS.size - 1)
        yield round(float(_ENDS_MS[place]), 2) if total else None
