"""What every way to partition is: it places filters on servers and routes events to them.

A partition is a promise: an event that satisfies a filter is routed to at least one server that holds it. It may route an
event to a server that has nothing for it (its summaries are covers), never the other way round.

The simplest one is `Broadcast`: every server has every filter, and an event is matched where it is. For sets small enough
to copy.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.filters import Filters


class Placement(NamedTuple):
    """Which servers hold each filter: those of filter f are `servers[ptr[f]:ptr[f + 1]]`, each once."""

    ptr: npt.NDArray[np.int64]  # (filters + 1,)
    servers: npt.NDArray[np.int32]


class Routes(NamedTuple):
    """Pairs of event and server, each once; an event without a pair is dropped."""

    event_ids: npt.NDArray[np.int64]  # ascending
    servers: npt.NDArray[np.int32]


class Partition(Protocol):
    """A way to spread filters over servers. `weights` are subscriptions per filter."""

    strategy: ClassVar[str]
    n_servers: int

    @property
    def sends_to_one(self) -> bool:
        """Whether every event goes to one server at most."""

    def place(self, filters: Filters) -> Placement:
        """Where these filters live or would live; changes nothing."""

    def insert(self, filters: Filters, weights: npt.NDArray[np.int64]) -> Placement:
        """Take in new filters: place them, let the summaries cover them, count their load."""

    def remove(self, filters: Filters, weights: npt.NDArray[np.int64]) -> None:
        """Take filters out of the load; summaries shrink when they are next rebuilt."""

    def route(self, events: EventBatch) -> Routes:
        """Where a batch of events goes: one kernel call."""

    def loads(self) -> npt.NDArray[np.float64]:
        """Expected work per server, (n_servers,)."""

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The whole state as arrays, to be saved."""

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]], schema: Schema) -> Self:
        """The partition whose `arrays()` these are."""

    def stats(self) -> dict[str, Any]:
        """Figures: replication, imbalance, bytes of summaries, ..."""

    def explain(self) -> str:
        """What it does and what that costs, for a person."""


class Broadcast:
    """All filters everywhere; events in turn to one server after the other, as if they had arrived there."""

    strategy: ClassVar[str] = "broadcast"

    def __init__(self, n_servers: int, total: int = 0) -> None:
        self.n_servers = n_servers
        self.total = total  # subscriptions

    @property
    def sends_to_one(self) -> bool:
        return True

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
