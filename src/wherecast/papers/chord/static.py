"""Rings that stand still: hop counts, loads and the costs of section 3.3, for up to a million nodes.

Theory of operation
-------------------
When nothing changes, a ring is a sorted array of ids, and the finger of a node for 2^e is the owner of id + 2^e. Look-ups
are followed hop by hop in a kernel (`kernels.ring`). Hops are counted as in `lookup`: all messages from the source to
the owner, the last one included. Counted so, the mean is 1/2 log2 N + c with c a little below one: the half comes
from the bits of the distance, each of which costs a hop with probability one half. Without the last hop c is one less.

Words have 64 bits here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Longs, Words
from wherecast.papers.chord.kernels.ring import count_hops, count_owned, count_spanned, fill_buckets

BITS = 64


@dataclass(frozen=True, slots=True)
class RangeCost:
    """Mean messages to store ranges, by the ways of storing them."""

    nodes: float  # on the arc
    owners: float  # of them, those that own a value
    by_value: float  # Chord: a look-up per value
    by_successor: float  # OPChord as published: a look-up, then from successor to successor
    by_owner: float  # a look-up, then from owner to owner, by fingers where nodes without values lie between
    side_by_side: float  # the same on a line laid out for this many nodes: ours


class StaticRing:
    """`count` nodes at random."""

    def __init__(self, count: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        ids = np.unique(self.random_ids(count + count // 1000 + 8))
        self.ids: Words = np.sort(self.rng.permutation(ids)[:count])
        self.index()

    def index(self) -> None:
        """Prepare look-ups, once the ids stand: a table of about one node per bucket."""
        bucket_bits = max(self.count.bit_length(), 1)
        self._shift = np.uint64(BITS - bucket_bits)
        self._starts = np.empty(1 << bucket_bits, np.int64)
        fill_buckets(self.ids, self._shift, self._starts)

    @property
    def count(self) -> int:
        return int(self.ids.size)

    def random_ids(self, count: int) -> Words:
        return self.rng.integers(0, 2**64, count, np.uint64)

    def hops(self, sources: Longs, positions: Words) -> Longs:
        """Messages of look-ups, the last one to the owner counted."""
        out = np.empty(sources.size, np.int64)
        count_hops(self.ids, self._starts, self._shift, sources, positions, out)
        return out

    def random_hops(self, count: int) -> Longs:
        """Hops of look-ups of random positions from random nodes."""
        return self.hops(self.rng.integers(0, self.count, count), self.random_ids(count))

    def owned(self, positions: Words) -> Longs:
        """How many of the positions each node owns."""
        load = np.zeros(self.count, np.int64)
        count_owned(self.ids, self._starts, self._shift, positions, load)
        return load

    def owners(self, positions: Words) -> Longs:
        """The node that owns each position."""
        return np.searchsorted(self.ids, positions) % self.count

    # -- costs of section 3.3 and 4.1 ------------------------------------------------------------------------------

    def range_cost(self, values: int, cells: int, trials: int) -> RangeCost:
        """Storing ranges of `values` values of a domain of `cells`, by each of the ways."""
        sources = self.rng.integers(0, self.count, trials)
        cell = self.rng.integers(0, max(cells - values, 1), trials).astype(np.uint64)
        gap = np.uint64(2**64 // cells)
        nodes, owners = np.empty(trials, np.int64), np.empty(trials, np.int64)
        counts = np.full(trials, values, np.int64)
        count_spanned(self.ids, self._starts, self._shift, cell * gap, counts, gap, nodes, owners)
        by_value = self.hops(np.repeat(sources, values), self.random_ids(trials * values))
        lead = self.hops(sources, cell * gap)
        narrow = np.uint64(2**64 // max(cells, self.count))
        return RangeCost(
            float(nodes.mean()),
            float(owners.mean()),
            float(by_value.sum() / trials),
            float((lead + nodes - 1).mean()),
            float(lead.mean() + self._jumps(cell * gap, values, gap)),
            float(self.hops(sources, cell * narrow).mean() + self._jumps(cell * narrow, values, narrow)),
        )

    def _jumps(self, first: Words, values: int, gap: np.uint64) -> float:
        """Mean hops from the owner of the first value to that of the last, owner by owner."""
        total, here = 0, self.owners(first)
        for step in range(1, values):
            position = first + np.uint64(step) * gap
            there = self.owners(position)
            moved = here != there
            total += int(self.hops(here[moved], position[moved]).sum())
            here = there
        return total / first.size

    def join_cost(self, trials: int) -> tuple[float, float]:
        """Mean messages by which a joining node finds its place and its fingers.

        First with every finger looked up from scratch, as in the analysis of Chord; then each from the finger before it, as
        `ring` does it. Both iterative: a question and an answer per step.
        """
        scratch = chained = 0
        for node in self.rng.integers(0, self.count, trials).tolist():
            steps = np.uint64(1) << np.arange(BITS, dtype=np.uint64)
            positions = self.ids[node] + steps
            fingers = self.owners(positions)
            own = int(self.owners(self.ids[node : node + 1] + np.uint64(1))[0])
            wanted = positions[fingers != own]
            before = np.concatenate(([own], fingers[fingers != own][:-1])).astype(np.int64)
            place = int(self.hops(self.rng.integers(0, self.count, 1), self.ids[node : node + 1])[0])
            through = np.full(wanted.size, own, np.int64)
            scratch += 2 * (place + int(self.hops(through, wanted).sum()))
            chained += 2 * (place + int(np.maximum(self.hops(before, wanted), 1).sum()))
        return scratch / trials, chained / trials


def fit_hops(counts: list[int], means: list[float]) -> tuple[float, float]:
    """Slope and constant of the mean hops against log2 of the number of nodes."""
    slope, constant = np.polyfit(np.log2(counts), means, 1)
    return float(slope), float(constant)


def imbalance(load: npt.NDArray[np.int64]) -> tuple[float, float]:
    """The highest load and the 99th percentile, as multiples of the mean."""
    mean = max(float(load.mean()), 1e-12)
    return float(load.max() / mean), float(np.percentile(load, 99) / mean)


def virtual_load(peers: int, each: int, positions: Words, seed: int) -> Longs:
    """The load of peers that are `each` nodes apiece."""
    ring = StaticRing(peers * each, seed)
    owner = ring.rng.permutation(np.repeat(np.arange(peers), each))
    return np.bincount(owner, weights=ring.owned(positions), minlength=peers).astype(np.int64)
