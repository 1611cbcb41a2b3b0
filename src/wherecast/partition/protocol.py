"""What every way to partition is: it places filters on servers and routes events to them.

A partition is a promise: an event that satisfies a filter is routed to at least one server that holds it. It may route an
event to a server that has nothing for it (its summaries are covers), never the other way round.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from wherecast.language.events import EventBatch
from wherecast.language.filters import Filters
from wherecast.language.schema import Schema


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
