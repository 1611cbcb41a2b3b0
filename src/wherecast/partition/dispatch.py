"""The dispatcher of event-space partitioning: all that is needed to send an event where it may match.

It holds the routing attributes, the indirection table and a summary, some ten kilobytes per server, and nothing of the
filters. A batch is one kernel call: hash, bucket, summary, server.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.dispatch import BY_BLOOM, BY_DICTIONARY, UNTESTED, dispatch_events
from wherecast.language.events import EventBatch
from wherecast.partition.bloom import Bloom
from wherecast.partition.protocol import Routes
from wherecast.partition.signatures import event_columns
from wherecast.partition.summary import Dictionary

_NO_HASHES, _NO_LONGS = np.zeros(0, np.uint64), np.zeros(0, np.int64)


class Dispatcher(NamedTuple):
    """Where events go."""

    attributes: tuple[int, ...]
    seed: int
    table: npt.NDArray[np.int32]  # (buckets,) the server of each
    summary: Bloom | Dictionary | None  # None: every event goes to the server of its bucket
    residual: int | None  # the server that sees all events, if there is one

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
            *event_columns(events, self.attributes), np.uint64(self.seed), self.table,
            test, ptr, words, keys, counts, -1 if self.residual is None else self.residual, event_ids, servers,
        )  # fmt: skip
        return Routes(event_ids[:n], servers[:n])

    @property
    def nbytes(self) -> int:
        """What the dispatcher keeps in memory."""
        return self.table.nbytes + (0 if self.summary is None else self.summary.nbytes)
