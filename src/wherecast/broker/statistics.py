"""Figures of the last five minutes for the console: a row of counters for each second, by tenant and space.

They are of this process and of one tenant at a time; `metrics` has those of all tenants together, for Prometheus.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

#: How many seconds are kept.
KEPT_S = 300
#: Spaces whose figures are kept at a time, 64 KB each; the one that was quiet for longest makes room.
KEPT_SPACES = 500
#: Upper ends of the classes of publish times, in milliseconds: each a quarter above the last.
_ENDS_MS = 0.2 * 1.25 ** np.arange(48)
_EVENTS, _MATCHES, _DELIVERED, _DEAD = range(4)

Counts = npt.NDArray[np.int64]
Times = npt.NDArray[np.int32]


class _Ring:
    """Counters of one space; second s is in row s % KEPT_S."""

    def __init__(self) -> None:
        self.seconds = np.full(KEPT_S, -1, np.int64)
        self.counts: Counts = np.zeros((KEPT_S, 4), np.int64)
        self.times: Times = np.zeros((KEPT_S, _ENDS_MS.size + 1), np.int32)

    def place(self, second: int) -> int:
        place = second % KEPT_S
        if self.seconds[place] != second:
            self.seconds[place] = second
            self.counts[place] = 0
            self.times[place] = 0
        return place

    def add_to(self, counts: Counts, times: Counts, first: int) -> None:
        """Add the rows of the seconds from `first` on."""
        at = self.seconds - first
        kept = (at >= 0) & (at < len(counts)) & (self.seconds >= 0)
        counts[at[kept]] += self.counts[kept]
        times[at[kept]] += self.times[kept]


class Statistics:
    """Counts per second. Its methods are for the event loop."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._rings: OrderedDict[tuple[str, str], _Ring] = OrderedDict()

    def count(self, tenant: str, space: str, events: int, matches: int) -> None:
        """Events that are durable now, and their matches."""
        ring = self._ring(tenant, space)
        ring.counts[ring.place(int(self._clock_s()))] += (events, matches, 0, 0)

    def end_delivery(self, tenant: str, space: str, *, dead: bool) -> None:
        """A delivery has ended, well or as a dead letter."""
        ring = self._ring(tenant, space)
        ring.counts[ring.place(int(self._clock_s())), _DEAD if dead else _DELIVERED] += 1

    def time(self, tenant: str, space: str, seconds: float) -> None:
        """A publish took so long, from the request to its answer."""
        ring = self._ring(tenant, space)
        ring.times[ring.place(int(self._clock_s())), np.searchsorted(_ENDS_MS, seconds * 1000)] += 1

    def last(self, tenant: str, space: str | None, seconds: int) -> dict[str, Any]:
        """The last whole seconds of a space, or of all spaces of a tenant; the newest last."""
        first = int(self._clock_s()) - seconds
        counts: Counts = np.zeros((seconds, 4), np.int64)
        times: Counts = np.zeros((seconds, _ENDS_MS.size + 1), np.int64)
        for (owner, name), ring in self._rings.items():
            if owner == tenant and space in (None, name):
                ring.add_to(counts, times, first)
        return {
            "events": counts[:, _EVENTS].tolist(),
            "matches": counts[:, _MATCHES].tolist(),
            "delivered": counts[:, _DELIVERED].tolist(),
            "dead": counts[:, _DEAD].tolist(),
            "publishes": times.sum(axis=1).tolist(),
            "publish_ms": {"p50": _quantiles(times, 0.5), "p99": _quantiles(times, 0.99)},
        }

    def _ring(self, tenant: str, space: str) -> _Ring:
        ring = self._rings.get((tenant, space))
        if ring is None:
            ring = self._rings[tenant, space] = _Ring()
            if len(self._rings) > KEPT_SPACES:
                self._rings.popitem(last=False)
        self._rings.move_to_end((tenant, space))
        return ring


def _quantiles(times: Counts, q: float) -> list[float | None]:
    """A quantile for each second by the end of its class, up to a quarter too high; None where nothing was published."""
    found: list[float | None] = []
    for row, total in zip(np.cumsum(times, axis=1), times.sum(axis=1), strict=True):
        place = min(int(np.searchsorted(row, q * total)), _ENDS_MS.size - 1)
        found.append(round(float(_ENDS_MS[place]), 2) if total else None)
    return found
