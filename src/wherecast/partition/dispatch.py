"""The dispatcher of event-space partitioning: all that is needed to send an event where it may match.

It holds the routing attributes, the indirection table and a summary, some ten kilobytes per server, and nothing of the
filters. A batch is one kernel call: hash, bucket, summary, server.

In a tree of dispatchers (`hierarchy`) a server tells those above it which signatures it wants: a `SignatureCover`, the
counterpart of `Cover`. A server wants the events of the buckets that it owns, of those the ones that its Bloom filter or
dictionary passes. Precision is in bytes: Bloom filters are folded until they fit, and if
they still do not, only the buckets are told.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bools
from wherecast.kernels.dispatch import BY_BLOOM, BY_DICTIONARY, UNTESTED, dispatch_events
from wherecast.language.events.events import EventBatch
from wherecast.partition.protocol import Routes
from wherecast.partition.shares import Owners, deal
from wherecast.partition.signatures import event_columns, sign_events
from wherecast.partition.summary import Bloom, Dictionary, buckets_of

#: Where dealing begins in a batch, so that small batches do not all begin with the same server.
_TURNS = itertools.count()
_NO_HASHES, _NO_LONGS = np.zeros(0, np.uint64), np.zeros(0, np.int64)


class Dispatcher(NamedTuple):
    """Where events go."""

    attributes: tuple[int, ...]
    seed: int
    table: npt.NDArray[np.int32]  # (buckets,) the server of each, of a shared one the first
    summary: Bloom | Dictionary | None  # None: every event goes to the server of its bucket
    residual: int | None  # the server that sees all events, if there is one
    shared: Owners | None = None  # the servers of each bucket, where some have several

    def route(self, events: EventBatch) -> Routes:
        """Pairs of event and server; at most one per event, and one more with a residual server."""
        room = len(events) * (1 if self.residual is None else 2)
        event_ids, servers = np.empty(room, np.int64), np.empty(room, np.int32)
        test, ptr, words, keys, counts = UNTESTED, _NO_LONGS, _NO_HASHES, _NO_HASHES, _NO_LONGS
        if isinstance(self.summary, Bloom):
            test, ptr, words = BY_BLOOM, self.summary.ptr, self.summary.words
        elif isinstance(self.summary, Dictionary):
            test, keys, counts = BY_DICTIONARY, self.summary.keys, self.summary.counts
        n = dispatch_events(
            *event_columns(events, self.attributes), np.uint64(self.seed), self._marked(),
            test, ptr, words, keys, counts, -1 if self.residual is None else self.residual, event_ids, servers,
        )  # fmt: skip
        dealt = np.flatnonzero(servers[:n] < 0)
        if dealt.size:
            assert self.shared is not None
            servers[dealt] = deal(~servers[dealt].astype(np.int64), self.shared, next(_TURNS))
        return Routes(event_ids[:n], servers[:n])

    def _marked(self) -> npt.NDArray[np.int32]:
        """The table with the complement of its number for a bucket that several servers share."""
        if self.shared is None:
            return self.table
        return np.where(np.diff(self.shared.ptr) > 1, ~np.arange(self.table.size), self.table).astype(np.int32)

    @property
    def nbytes(self) -> int:
        """What the dispatcher keeps in memory."""
        return self.table.nbytes + (0 if self.summary is None else self.summary.nbytes)


@dataclass(frozen=True, slots=True, eq=False)
class SignatureCover:
    """Buckets, and what of them is wanted."""

    attributes: tuple[int, ...]
    seed: int
    buckets: Bools  # (buckets,) whose events are wanted
    summary: Bloom | Dictionary | None  # of those the signatures that are; None: all
    sees_all: bool = False  # the residual server, and whoever is above it

    @classmethod
    def of(cls, dispatcher: Dispatcher, server: int) -> SignatureCover:
        """What one server of a dispatcher wants. A shared bucket is the first owner's alone: a tree deals no events out."""
        buckets, summary = dispatcher.table == server, dispatcher.summary
        if isinstance(summary, Bloom):
            summary = summary.take(np.flatnonzero(buckets))
        elif isinstance(summary, Dictionary):
            wanted = summary.signatures()
            summary = Dictionary.build(wanted[buckets[buckets_of(wanted, buckets.size)]])
        return cls(dispatcher.attributes, dispatcher.seed, buckets, summary, dispatcher.residual == server)

    @property
    def nbytes(self) -> int:
        """One bit per bucket, and the summary."""
        return -(-self.buckets.size // 8) + (0 if self.summary is None else self.summary.nbytes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SignatureCover) or type(self.summary) is not type(other.summary):
            return False
        same = self.sees_all == other.sees_all and np.array_equal(self.buckets, other.buckets)
        if self.summary is None or other.summary is None:
            return same
        mine, others = self.summary.arrays(), other.summary.arrays()
        return same and all(np.array_equal(mine[name], others[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]  # arrays inside

    def admits(self, events: EventBatch) -> Bools:
        """Which events may match something here."""
        if self.sees_all:
            return np.ones(len(events), np.bool_)
        signatures = sign_events(events, self.attributes, self.seed)
        wanted: Bools = self.buckets[buckets_of(signatures, self.buckets.size)]
        return wanted if self.summary is None else wanted & self.summary.may_hold(signatures)

    def merge(self, others: Sequence[SignatureCover]) -> SignatureCover:
        """What any of these wants; they belong to one partition."""
        return reduce(_join, others, self)

    def coarsen(self, precision: int) -> SignatureCover:
        """At most this many bytes, or as few as there can be."""
        summary = self.summary
        if isinstance(summary, Dictionary) and self.nbytes > precision:
            summary = Bloom.build(summary.signatures(), self.buckets.size).take(np.flatnonzero(self.buckets))
        cover = self._with(summary)
        while isinstance(cover.summary, Bloom) and cover.nbytes > precision:
            folded = cover.summary.coarser()
            cover = self._with(folded if folded.nbytes < cover.summary.nbytes else None)
        return cover

    def _with(self, summary: Bloom | Dictionary | None) -> SignatureCover:
        return SignatureCover(self.attributes, self.seed, self.buckets, summary, self.sees_all)


def _join(one: SignatureCover, two: SignatureCover) -> SignatureCover:
    buckets, sees_all = one.buckets | two.buckets, one.sees_all or two.sees_all
    a, b = one.summary, two.summary
    if isinstance(a, Bloom) and isinstance(b, Bloom):
        return SignatureCover(one.attributes, one.seed, buckets, a.merge(b), sees_all)
    if isinstance(a, Dictionary) and isinstance(b, Dictionary):
        return SignatureCover(one.attributes, one.seed, buckets, a.merge(b), sees_all)
    # A dictionary beside a Bloom filter, or one of the two without either: what is left is the buckets.
    return SignatureCover(one.attributes, one.seed, buckets, None, sees_all)
