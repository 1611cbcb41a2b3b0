"""Delta: changes since the last segment, and how segments are merged.

Theory of operation
-------------------
The subscriptions of an engine are a short list of immutable segments, the oldest and largest first, and a log of the
latest changes. A change appends to the log and publishes a new `State`; it costs nothing of the base. The first reader
of a state with a log builds a small segment of it (the *tip*) and leaves it for the others. A full log becomes a
segment. Segments are merged, aside and in the background, while each one is less than `RATIO` times as large as all
that came after it, so their number stays logarithmic and every subscription is rebuilt a logarithmic number of times.

Removing a subscription marks it with the version of its death (see `segment`). A merge reads what is alive at one version
and is published under the writers' lock, where the deaths that happened meanwhile are carried over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from wherecast.engine.ids import SubscriptionId
from wherecast.engine.segment import ALIVE, Members, Segment
from wherecast.language.compile import Compiled, Compiler

#: A log this long becomes a segment.
LOG_LIMIT = 512
#: Changes after which to look whether segments have become due for merging.
LOOK_EVERY = 64
#: A segment is merged with its successors when it is less than this many times their size.
RATIO = 8
#: A segment is rebuilt when more than this share of it is dead.
WASTE = 0.2


class Entry:
    """A subscription in the log."""

    __slots__ = ("died", "id", "priority", "text")

    def __init__(self, id: SubscriptionId, text: str, priority: float) -> None:
        self.id = id
        self.text = text  # of a filter that is known to compile
        self.priority = priority
        self.died = int(ALIVE)


class State(NamedTuple):
    """What a reader sees: segments, and the first `log_size` entries of a log that only grows."""

    version: int
    segments: tuple[Segment, ...]
    log: list[Entry]
    log_size: int


class LogReader:
    """Entries of a log as members of a segment, each compiled once however often the log is read.

    Entries were validated one by one when they came; here they are compiled many at a time. Readers may race: each
    works on what it found and the last one's work is kept.
    """

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._known: tuple[list[Entry], tuple[tuple[list[Entry], Compiled], ...]] = ([], ())

    def members(self, log: list[Entry], size: int, version: int) -> list[Members]:
        """What is alive at `version` among the first `size` entries."""
        owner, chunks = self._known
        if owner is not log:
            chunks = ()
        done = sum(len(entries) for entries, _ in chunks)
        if done < size:
            fresh = log[done:size]
            chunks = (*chunks, (fresh, self._compiler.compile_many([e.text for e in fresh])))
            self._known = log, chunks
        parts = [
            _alive(entries[: max(size - first, 0)], compiled, version) for first, entries, compiled in _placed(chunks)
        ]
        return [p for p in parts if p.filter_of.size]


def _placed(chunks: Sequence[tuple[list[Entry], Compiled]]) -> Iterator[tuple[int, list[Entry], Compiled]]:
    first = 0
    for entries, compiled in chunks:
        yield first, entries, compiled
        first += len(entries)


def _alive(entries: list[Entry], compiled: Compiled, version: int) -> Members:
    rows = [i for i, e in enumerate(entries) if e.died > version]
    priorities = np.array([entries[i].priority for i in rows], np.float32)
    return Members(compiled.filters, compiled.filter_of[rows], [entries[i].id for i in rows], priorities)


def first_to_merge(segments: Sequence[Segment]) -> int:
    """Index of the first segment of the run at the end that should be merged; len(segments) if none."""
    first, behind = len(segments), 0
    for i in range(len(segments) - 1, -1, -1):
        size = len(segments[i]) - segments[i].deaths
        if behind and size < RATIO * behind:
            first = i
        if segments[i].deaths > WASTE * len(segments[i]):
            first = i
        behind += size
    return first
