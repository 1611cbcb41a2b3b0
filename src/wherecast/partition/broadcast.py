"""Broadcast: every server has every filter, and an event is matched where it is. For sets small enough to copy."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from wherecast.language.events import EventBatch
from wherecast.language.filters import Filters
from wherecast.language.schema import Schema
from wherecast.partition.protocol import Placement, Routes


class Broadcast:
    """All filters everywhere; events in turn to one server after the other, as if they had arrived there."""

    strategy: ClassVar[str] = "broadcast"

    def __init__(self, n_servers: int, total: int = 0) -> None:
        self.n_servers = n_servers
        self.total = total  # subscriptions

    def place(self, filters: Filters) -> Placement:
        """Every server."""
        n = filters.n_filters
        servers = np.tile(np.arange(self.n_servers, dtype=np.int32), n)
        return Placement(np.arange(n + 1, dtype=np.int64) * self.n_servers, servers)

    def insert(self, filters: Filters, weights: npt.NDArray[np.int64]) -> Placement:
        self.total += int(weights.sum())
        return self.place(filters)

    def remove(self, filters: Filters, weights: npt.NDArray[np.int64]) -> None:  # noqa: ARG002 - all are alike
        self.total -= int(weights.sum())

    def route(self, events: EventBatch) -> Routes:
        """One server for each event, in turn."""
        event_ids = np.arange(len(events), dtype=np.int64)
        return Routes(event_ids, (event_ids % self.n_servers).astype(np.int32))

    def loads(self) -> npt.NDArray[np.float64]:
        """The same for all."""
        return np.full(self.n_servers, self.total / self.n_servers)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"facts": np.array([self.n_servers, self.total], np.int64)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]], schema: Schema) -> Self:  # noqa: ARG003 - needs none
        n_servers, total = arrays["facts"].tolist()
        return cls(n_servers, total)

    def stats(self) -> dict[str, Any]:
        """Figures, named as those of the other partitions."""
        return {
            "subscriptions": self.total,
            "replication": float(self.n_servers),
            "imbalance": 1.0,
            "summary": "none",
            "summary_bytes": 0,
        }

    def explain(self) -> str:
        return (
            f"broadcast over {self.n_servers:,} servers: each has all {self.total:,} subscriptions\n"
            f"  {self.n_servers:,} copies per subscription; no event is sent anywhere, none is dropped"
        )
