"""Buckets onto servers so that the load is even, and as few of them moved as possible when it no longer is.

Theory of operation
-------------------
Event-space partitioning (Event Distribution Network, section III.A) hashes signatures into more buckets than there are
servers and keeps an *indirection table*: `table[bucket]` is the server of a bucket. A bucket has a weight, the work it
causes; the load of a server is the weight of its buckets; the *imbalance* is the largest load divided by the smallest.

- `assign_buckets` fills an empty table: the heaviest bucket first, each onto the server with the least load so far. The
  largest load is then at most 4/3 - 1/(3 servers) times what the best assignment could do (Graham 1969; the paper
  quotes the weaker bound of 2 - 1/servers for buckets in any order).
- `rebalance` moves nothing until the imbalance passes a threshold. Then one bucket after another goes to the least
  loaded server until the imbalance is well below the threshold: each time the bucket after which the imbalance is
  lowest. Mostly that is one of the most loaded server; if all it has is too heavy or too light to help, another gives.
- `add_server` fills the new server: each time the most loaded server that can spare a bucket gives the heaviest that it
  can spare and that still fits. All other buckets stay.
- `remove_server` deals the buckets of one server to the others as `assign_buckets` does. All other buckets stay.

To find the fewest moves is NP-hard, as is the best assignment. Where one move is enough, `rebalance` makes one: if any
bucket of the most loaded server helps somewhere, it helps as much on the least loaded one, and all moves to that one are
tried. Where it takes more, the greedy choice seldom needs more than an exhaustive search (of 131,000 tables of up to six buckets, one
move more in 1,159 and two more in 8), or stops short of it if servers have only two or three buckets.

Nothing here knows what a bucket holds. All functions are deterministic: ties go to the lower number.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Floats, Ints, Longs

#: How far `rebalance` goes, as a share of what the threshold allows above 1: from beyond 2.0 down to 1.75. With the paper's
#: subscriptions and 100 million uniform new ones this is 2.7 calls of 1.4 buckets. Stopped at the threshold itself, which
#: is soon passed again: 3.3 calls of one bucket; at a quarter: 1.7 calls of 7 buckets.
SETTLED = 0.75


class Moves(NamedTuple):
    """Buckets that change their server, each once: `buckets[i]` goes from `sources[i]` to another, `targets[i]`."""

    buckets: Longs  # (moves,) ascending
    sources: Ints  # (moves,)
    targets: Ints  # (moves,)

    @classmethod
    def between(cls, old: Ints, new: Ints) -> Moves:
        """What turns one table into another."""
        buckets = np.flatnonzero(old != new)
        return cls(buckets, old[buckets], new[buckets])


def apply_moves(table: Ints, moves: Moves) -> Ints:
    """The table after the moves; the one given stays as it is."""
    new = table.copy()
    new[moves.buckets] = moves.targets
    return new


def server_loads(weights: Floats, table: Ints, n_servers: int) -> Floats:
    """Load of each server, (n_servers,)."""
    return np.bincount(table, weights, n_servers).astype(np.float64, copy=False)


def imbalance(loads: Floats) -> float:
    """The largest load divided by the smallest: 1 is perfect, infinite if some servers have work and others none."""
    low, high = float(loads.min()), float(loads.max())
    if low > 0:
        return high / low
    return np.inf if high > 0 else 1.0


def assign_buckets(weights: Floats, n_servers: int) -> Ints:
    """A table for these buckets: longest first, each onto the least loaded server."""
    table = np.zeros(weights.size, np.int32)
    _deal(np.arange(weights.size), weights, np.arange(n_servers), np.zeros(n_servers), table)
    return table


def rebalance(weights: Floats, table: Ints, n_servers: int, threshold: float) -> Moves:
    """Few moves that settle an imbalance beyond the threshold, or lower it as far as this greedy search can.

    No moves at all mean that it is within the threshold, or that no move would lower it: a bucket heavier than the
    mean load, for example, stays too heavy wherever it goes.
    """
    loads, new, best = server_loads(weights, table, n_servers), table.copy(), table
    lowest = imbalance(loads)
    if lowest <= threshold:
        return Moves.between(table, table)
    movable = weights > 0
    while lowest > 1 + SETTLED * (threshold - 1):
        bucket = _best_to_move(weights, new, loads, movable)
        if bucket is None:
            break
        source, target = new[bucket], loads.argmin()
        loads[source] -= weights[bucket]
        loads[target] += weights[bucket]
        new[bucket], movable[bucket] = target, False
        if imbalance(loads) < lowest:
            lowest, best = imbalance(loads), new.copy()
    return Moves.between(table, best)


def add_server(weights: Floats, table: Ints, n_servers: int) -> Moves:
    """What a new server takes from the `n_servers` there are; its number is `n_servers`.

    It takes no more than its fair share, the mean load, and leaves to each giver the mean load less a mean bucket.
    """
    loads = server_loads(weights, table, n_servers)
    room = loads.sum() / (n_servers + 1)
    floor = room - loads.sum() / max(weights.size, 1)
    new, movable = table.copy(), weights > 0
    while True:
        spare = np.minimum(loads[table] - floor, room)
        fitting = np.flatnonzero(movable & (weights <= spare))
        if not fitting.size:
            return Moves.between(table, new)
        bucket = fitting[np.lexsort((-weights[fitting], -loads[table[fitting]]))[0]]
        new[bucket], movable[bucket] = n_servers, False
        loads[table[bucket]] -= weights[bucket]
        room -= weights[bucket]


def remove_server(weights: Floats, table: Ints, n_servers: int, server: int) -> Moves:
    """What the other servers take over from one that leaves. Their numbers stay."""
    others = np.delete(np.arange(n_servers), server)
    new = table.copy()
    _deal(np.flatnonzero(table == server), weights, others, server_loads(weights, table, n_servers)[others], new)
    return Moves.between(table, new)


def _deal(buckets: Longs, weights: Floats, servers: Longs, loads: Floats, table: Ints) -> None:
    """Enter each of the buckets in the table, the heaviest first, under the least loaded of the servers.

    Buckets without weight come last and are dealt as if they weighed what the lightest other does: they will not stay
    empty, and one server should not get them all.
    """
    lightest = weights[buckets].min(where=weights[buckets] > 0, initial=np.inf)
    assumed = np.where(weights > 0, weights, lightest if np.isfinite(lightest) else 1.0).tolist()
    heap = [(load, server) for load, server in zip(loads.tolist(), servers.tolist(), strict=True)]
    heapq.heapify(heap)
    for bucket in buckets[np.argsort(-weights[buckets], kind="stable")].tolist():
        load, server = heap[0]
        table[bucket] = server
        heapq.heapreplace(heap, (load + assumed[bucket], server))


def _best_to_move(weights: Floats, table: Ints, loads: Floats, movable: npt.NDArray[np.bool_]) -> int | None:
    """The bucket to give to the least loaded server: after it the imbalance is lowest, or else the two most alike."""
    target = loads.argmin()
    gaps = (loads - loads[target])[table]
    useful = np.flatnonzero(movable & (weights < gaps))
    if not useful.size:
        return None
    moved = weights[useful]
    after = np.tile(loads, (useful.size, 1))
    after[np.arange(useful.size), table[useful]] -= moved
    after[:, target] += moved
    with np.errstate(divide="ignore"):  # a second server without load
        spread = after.max(1) / after.min(1)
    levelled = moved * (gaps[useful] - moved)  # half of what the move takes off the sum of squared loads
    return int(useful[np.lexsort((-levelled, spread))[0]])
