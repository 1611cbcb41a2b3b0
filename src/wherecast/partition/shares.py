"""Shares: a bucket that is too heavy for one server belongs to several, and its events are dealt out among them.

Theory of operation
-------------------
A hash spreads keys, not the work of one key. If a tenth of all filters ask for one symbol, then one of 50 servers does five
times its share, wherever the bucket of that symbol is put. Such a bucket gets several *entries* in the table of owners, each
with an equal part of its weight. Every server that owns one of its entries holds all filters of the bucket, and each event of the
bucket goes to one of them, in turn. So an event still goes to one server, and matches are found once.

The entries of a table are: one for each bucket, in their order, then the further ones, whose buckets are `extra`. What balances
buckets (`balance`) sees entries with weights and need not know about shares.

Considered: splitting such a bucket by a second attribute instead. It holds each filter once, but only helps where the filters of
the key compare another attribute for equality, and in stock they have ranges. Dealing out always helps. It costs copies: few,
because there are few heavy buckets (a server's fair share is `1 / servers` of all work, so fewer than `servers` buckets exceed it).
Buckets with few filters and few events are left whole: there is nothing to gain (`WORTH_SHARING`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wherecast.kernels.arrays import Bools, Floats, Ints, Longs
from wherecast.partition.balance import assign_buckets, imbalance, server_loads

#: Shares are made smaller until the imbalance is at most this.
EVEN = 1.2
#: Subscriptions, or events seen, that a bucket must have to be shared. Below that, receiving an event costs more than matching it.
WORTH_SHARING = 1_000
#: Weights of the largest shares that are tried, as parts of a server's fair share.
_GRAINS = (1.0, 0.5, 0.34, 0.25, 0.17, 0.125)


class Table(NamedTuple):
    """Who owns what."""

    servers: Ints  # (entries,) the owner of each entry: one per bucket, then more for those that are shared
    extra: Longs  # (entries - buckets,) the bucket of each further entry


class Owners(NamedTuple):
    """The servers of each bucket: those of bucket b are `servers[ptr[b]:ptr[b + 1]]`, a server once per entry."""

    ptr: Longs  # (buckets + 1,)
    servers: Ints


def buckets_of_entries(n_buckets: int, extra: Longs) -> Longs:
    """The bucket of each entry."""
    return np.concatenate((np.arange(n_buckets), extra))


def entry_weights(weights: Floats, extra: Longs) -> Floats:
    """The weight of each entry: that of its bucket, divided among the entries of the bucket."""
    entries = 1 + np.bincount(extra, minlength=weights.size)
    each = weights / entries
    return np.concatenate((each, each[extra]))


def assign(weights: Floats, n_servers: int, divisible: Bools) -> Table:
    """A table for buckets of these weights.

    Those of the divisible ones that are heavier than a server's fair share are shared, among as few as makes the load even.
    """
    none = np.zeros(0, np.int64)
    best = Table(assign_buckets(weights, n_servers), none)
    fair = weights.sum() / n_servers
    if not np.any(divisible & (weights > fair)):
        return best
    lowest = imbalance(server_loads(weights, best.servers, n_servers))
    for grain in _GRAINS:
        if lowest <= EVEN:
            break
        extra = shares_within(np.where(divisible, weights, 0.0), grain * fair, n_servers)
        parts = entry_weights(weights, extra)
        servers = assign_buckets(parts, n_servers)
        reached = imbalance(server_loads(parts, servers, n_servers))
        if reached < lowest:
            lowest, best = reached, Table(servers, extra)
    return best


def shares_within(weights: Floats, most: float, n_servers: int, extra: Longs | None = None) -> Longs:
    """Further entries, beyond `extra`, that keep every share within a weight; a bucket has as many entries as servers at most."""
    known = np.zeros(0, np.int64) if extra is None else extra
    needed = np.clip(np.ceil(weights / most), 1, n_servers).astype(np.int64) - 1
    lacking = np.maximum(needed - np.bincount(known, minlength=weights.size), 0)
    return np.concatenate((known, np.repeat(np.arange(weights.size), lacking)))


def owners(table: Table, n_buckets: int) -> Owners:
    """The servers of each bucket."""
    buckets = buckets_of_entries(n_buckets, table.extra)
    order = np.argsort(buckets, kind="stable")
    ptr = np.searchsorted(buckets[order], np.arange(n_buckets + 1))
    return Owners(ptr.astype(np.int64), table.servers[order])


def deal(groups: Longs, held: Owners, start: int) -> Ints:
    """A server for each of some events, whose buckets these are: the owners of a bucket in turn, the first from `start` on."""
    order = np.argsort(groups, kind="stable")
    of_sorted = groups[order]
    turns = np.empty(groups.size, np.int64)
    turns[order] = np.arange(groups.size) - np.searchsorted(of_sorted, of_sorted)
    first, end = held.ptr[groups], held.ptr[groups + 1]
    return held.servers[first + (turns + start) % (end - first)]
