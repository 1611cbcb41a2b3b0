"""The simulated network of the Event Distribution Network paper, section III.B.

Theory of operation
-------------------
What a server has to do depends on how many subscriptions and symbols fall into its buckets, not on which ones. So the
network is simulated on counts: a symbol has a bucket, by the hash that the product routes with, and a number of
subscriptions; new ones are a multinomial draw over the symbols. A hundred million subscriptions are a few hundred draws.

The weight of a bucket is the paper's: its distinct symbols times its subscriptions. Every seed is another market, another
hash and other new subscriptions; how much that changes the figures is part of the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from wherecast.kernels.arrays import Floats
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.papers.edn.workload import PAPER_MARKET, Market, count_subscriptions, every_symbol
from wherecast.papers.lab.experiment import Progress
from wherecast.partition.balance import Moves, apply_moves, assign_buckets, imbalance, server_loads
from wherecast.partition.signatures import sign_events
from wherecast.partition.summary import buckets_of

PAPER = "event-distribution-network-2002"
MILLION = 1_000_000


@lru_cache(maxsize=2)
def _symbols(market: Market) -> EventBatch:
    return EventBatch.read(Schema.of({"symbol": "string"}), every_symbol(market))


class Network:
    """Subscriptions per symbol, symbols in buckets, buckets on servers: one seed of it."""

    def __init__(self, market: Market, n_servers: int, ratio: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.n_servers = n_servers
        self.n_buckets = n_servers * ratio
        self.signatures = sign_events(_symbols(market), [0], seed)
        self.buckets = buckets_of(self.signatures, self.n_buckets)
        self.subscriptions = count_subscriptions(market, self.rng).subscriptions
        self.table = assign_buckets(self.weights(), n_servers)

    def weights(self) -> Floats:
        """Distinct symbols times subscriptions, by bucket."""
        asked = self.buckets[self.subscriptions > 0]
        distinct = np.bincount(asked, minlength=self.n_buckets).astype(np.float64)
        return distinct * np.bincount(self.buckets, self.subscriptions, self.n_buckets)

    def loads(self) -> Floats:
        return server_loads(self.weights(), self.table, self.n_servers)

    def imbalance(self) -> float:
        return imbalance(self.loads())

    def grow(self, chances: Floats, n_new: int) -> None:
        """New subscriptions arrive and are routed by the table."""
        self.subscriptions = self.subscriptions + self.rng.multinomial(n_new, chances)

    def move(self, moves: Moves) -> dict[str, float]:
        """Move buckets; how many, and what share of all subscriptions goes along."""
        self.table = apply_moves(self.table, moves)
        migrated = self.subscriptions[np.isin(self.buckets, moves.buckets)].sum() / self.subscriptions.sum()
        return {"buckets_moved": moves.buckets.size, "migrated_percent": 100 * float(migrated)}


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """The paper's network, and how many times to draw it."""

    market: Market = PAPER_MARKET
    n_servers: int = 50
    ratio: int = 10
    seeds: int = 20

    def networks(self, name: str, progress: Progress) -> Iterator[tuple[int, Network]]:
        """A network for each seed."""
        for seed in range(self.seeds):
            progress(f"{name}: seed {seed + 1} of {self.seeds}")
            yield seed, Network(self.market, self.n_servers, self.ratio, seed)
