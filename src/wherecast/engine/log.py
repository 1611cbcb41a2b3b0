"""The log: changes since the last segment, and how segments are merged.

Theory of operation
-------------------
The subscriptions of an engine are a short list of immutable segments, the oldest and largest first, and a log of the
latest changes. A change appends to the log and publishes a new `EngineState`; it costs nothing of the base. The first reader
of a state with a log builds a small segment of it (the *tip*) and leaves it for the others. A full log becomes a
segment. Segments are merged, aside and in the background, while each one is less than `RATIO` times as large as all
that came after it, so their number stays logarithmic and every subscription is rebuilt a logarithmic number of times.

Removing a subscription marks it with the version of its death (see `segment`). A merge reads what is alive at one version
and is published under the writers' lock, where the deaths that happened meanwhile are carried over.

A change either happens or does not, whatever fails on the way. Everything it needs is built first and aside. Then it
leaves marks that mean nothing yet: entries beyond the published end of the log, deaths of a version to come. One
assignment publishes the `EngineState` that gives them their meaning. What a failed change leaves is cleared by the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.engine.checks import SubscriptionId
from wherecast.engine.ids import IdColumn, id_at, join_ids, number_ids, take_ids
from wherecast.engine.segment import ALIVE, Members, Segment
from wherecast.errors import SubscriptionError
from wherecast.language.filters.compile import Compiled, Compiler

#: A log this long becomes a segment.
LOG_LIMIT = 512
#: Changes after which to look whether segments have become due for merging.
LOOK_EVERY = 64
#: A segment is merged with its successors when it is less than this many times their size.
RATIO = 8
#: A segment is rebuilt when more than this share of it is dead.
WASTE = 0.2
#: Building a segment takes a subscription as long as one more segment takes so many events, by estimate: 10 us and 0.15 us on stock.
EVENTS_PER_BUILD = 64
#: After fewer events nothing is merged for their sake.
LEAST_EVENTS = 1 << 14


class LogEntry:
    """A subscription in the log."""

    __slots__ = ("before", "died", "id", "place", "priority", "text")

    def __init__(self, id: SubscriptionId, text: str, priority: float) -> None:
        self.id = id
        self.text = text  # of a filter that is known to compile
        self.priority = priority
        self.died = int(ALIVE)
        self.place = -1  # in the log
        self.before: LogEntry | None = None  # the one of the same id that it comes after

    def die(self, version: int) -> None:
        """Be dead from a version on."""
        self.died = version


class SegmentSlots(NamedTuple):
    """Subscriptions in a segment."""

    segment: Segment
    slots: int | npt.NDArray[np.int64]

    def die(self, version: int) -> None:
        """Be dead from a version on."""
        self.segment.kill(self.slots, version)


class Log:
    """Entries that are published by a state, so many of them from the first on; whatever comes after them does not count."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self._latest: dict[SubscriptionId, LogEntry] = {}

    def find(self, id: SubscriptionId, size: int) -> LogEntry | None:
        """The last entry of an id among the first `size`, dead or alive."""
        entry = self._latest.get(id)
        while entry is not None and not (entry.place < size and self.entries[entry.place] is entry):
            entry = entry.before  # it was never published, or only later
        return entry

    def put(self, entry: LogEntry, size: int) -> None:
        """Write an entry behind the first `size`."""
        entry.place, entry.before = size, self.find(entry.id, size)
        del self.entries[size:]  # of changes that failed
        self.entries.append(entry)
        self._latest[entry.id] = entry


class EngineState(NamedTuple):
    """What a reader sees: segments, and the first `log_size` entries of a log that only grows."""

    version: int
    segments: tuple[Segment, ...]
    log: Log
    log_size: int
    size: int
    """Subscriptions that are alive."""

    def find(self, id: SubscriptionId) -> LogEntry | SegmentSlots | None:
        """Where a subscription is, if it is alive."""
        entry = self.log.find(id, self.log_size)
        if entry is not None and entry.died > self.version:
            return entry
        for segment in self.segments:
            slot = segment.find(id, self.version)
            if slot >= 0:
                return SegmentSlots(segment, slot)
        return None

    def find_many(self, ids: IdColumn) -> tuple[npt.NDArray[np.bool_], list[SegmentSlots]]:
        """Which ids are alive in the segments, and where."""
        is_found, places = np.zeros(len(ids), bool), []
        for segment in self.segments:
            slots = segment.find_many(ids, self.version)
            hits = slots >= 0
            if hits.any():
                is_found |= hits
                places.append(SegmentSlots(segment, np.unique(slots[hits])))
        return is_found, places

    def revive(self) -> None:
        """Take back the marks of a change that was never published."""
        for entry in self.log.entries[: self.log_size]:
            if entry.died > self.version:
                entry.died = int(ALIVE)
        for segment in self.segments:
            segment.revive(self.version)


class NextState(NamedTuple):
    """What a change comes to: the state to publish, and what dies with its version."""

    state: EngineState
    old: Sequence[LogEntry | SegmentSlots] = ()


class LogReader:
    """Entries of a log as members of a segment, each compiled once however often the log is read.

    Entries were validated one by one when they came; here they are compiled many at a time. Readers may race: each
    works on what it found and the last one's work is kept.
    """

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._known: tuple[Log, tuple[tuple[list[LogEntry], Compiled], ...]] = (Log(), ())

    def members(self, state: EngineState) -> list[Members]:
        """What is alive in the log of a state."""
        version, log, size = state.version, state.log, state.log_size
        owner, chunks = self._known
        if owner is not log:
            chunks = ()
        done = sum(len(entries) for entries, _ in chunks)
        if done < size:
            fresh = log.entries[done:size]
            chunks = (*chunks, (fresh, self._compiler.compile_many([e.text for e in fresh])))
            self._known = log, chunks
        parts = [
            _alive(entries[: max(size - first, 0)], compiled, version) for first, entries, compiled in _placed(chunks)
        ]
        return [p for p in parts if p.filter_of.size]


def _placed(chunks: Sequence[tuple[list[LogEntry], Compiled]]) -> Iterator[tuple[int, list[LogEntry], Compiled]]:
    first = 0
    for entries, compiled in chunks:
        yield first, entries, compiled
        first += len(entries)


def _alive(entries: list[LogEntry], compiled: Compiled, version: int) -> Members:
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


class Traffic:
    """Counts the events since the last change, and says when merging would have paid off for them.

    Changes leave a few segments behind, and each costs every event a little. If changes go on, a merge is soon in vain; if
    they have stopped, it pays for all events to come. So segments are merged when the events since the last change have paid as
    much for having several as the merge takes: at worst that is twice what the best choice had cost.
    """

    def __init__(self) -> None:
        self._version = -1  # a merge leaves it as it is
        self._events = 0

    def first_due(self, state: EngineState, segments: Sequence[Segment], events: int) -> int:
        """Index of the first segment to be merged with its successors, now that so many events come; len(segments) if none."""
        self._events = events + (self._events if self._version == state.version else 0)
        self._version = state.version
        first, size = len(segments), 0
        if self._events < LEAST_EVENTS:
            return first
        for i in range(len(segments) - 1, -1, -1):
            size += len(segments[i]) - segments[i].deaths
            if i + 1 < len(segments) and self._events * (len(segments) - 1 - i) >= EVENTS_PER_BUILD * size:
                first = i
        return first


def admit(
    state: EngineState, ids: IdColumn, rows: npt.NDArray[np.int64], replace: bool, errors: dict[int, Any]
) -> tuple[npt.NDArray[np.int64], list[SegmentSlots]]:
    """Rows to register, and the subscriptions that they replace. Of one id the last row counts, or without `replace` the first.

    Without `replace`, rows whose id is taken are added to the errors.
    """
    numbers = number_ids(take_ids(ids, rows))
    order = np.arange(numbers.size)[:: -1 if replace else 1]
    chosen = order[np.unique(numbers[order], return_index=True)[1]]
    is_taken, old = state.find_many(take_ids(ids, rows[chosen]))
    if replace:
        return rows[np.sort(chosen)], old
    admitted = rows[np.sort(chosen[~is_taken])]
    is_left = np.ones(rows.size, bool)
    is_left[chosen[~is_taken]] = False
    for row in rows[is_left].tolist():
        errors[row] = SubscriptionError(f"subscription {id_at(ids, row)!r} exists already; pass replace=True")
    return admitted, []


def count_places(places: Sequence[SegmentSlots]) -> int:
    """How many subscriptions there are in some places."""
    return sum(int(np.size(p.slots)) for p in places)


def carry_deaths(old: Segment, merged: Segment, version: int) -> None:
    """Mark in a merged segment, which nobody else has yet, what died in an old one after `version`."""
    died = old.died
    if died is None:
        return
    late = np.flatnonzero((died > version) & (died < ALIVE))
    if late.size:
        ids = join_ids([old.subscriptions.ids.take(late)])
        merged.kill(merged.subscriptions.ids.find_many(ids), died[late])
