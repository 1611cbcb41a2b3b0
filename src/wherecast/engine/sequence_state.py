"""SequenceState: what patterns remember of a stream, in arrays that grow, shrink and are stored.

`kernels.sequences` says what the states are. Here is their memory: a call of the kernel that runs out of room returns, gets arrays with what
still matters and more room, and goes on. The bytes are bounded: beyond the limit, hits that would need a new state are
left out and counted, until older states have left their window.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from wherecast.index.bounds import StoredArrays
from wherecast.kernels.arrays import Bools, Ints, Longs
from wherecast.kernels.jit import frozen
from wherecast.kernels.sequences import (
    COUNTERS,
    DONE,
    EVENTS,
    HEAP_FULL,
    MATCHES,
    NONE,
    OUT_FULL,
    REFUSED,
    SEEN,
    STATES,
    TIMERS,
    WORDS,
    EventArrays,
    MatchArrays,
    PatternArrays,
    StateArrays,
    compact,
    horizon,
    measure,
    replay,
    restore,
)

#: Bytes of states by default.
STATE_BYTES = 1 << 30
#: Events of one match at most, and the room for matches that a call begins with.
_MOST_EVENTS, _FIRST_MATCHES = 10_000, 1_024
#: The number of no event: states that were never used up have -1.
_NO_EVENT = -2
#: Words that are kept free at least: a state of any PATTERN, and the first ring of a COUNT.
_FREE_WORDS = 256


class WaitingEvents(NamedTuple):
    """Events that satisfy a step, in the order of arrival."""

    times: Longs
    positions: Longs
    keys: Ints  # (parts, events)
    hit_ptr: Longs
    hits: Ints

    @classmethod
    def none(cls, parts: int) -> WaitingEvents:
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, np.zeros((parts, 0), np.int32), np.zeros(1, np.int64), np.zeros(0, np.int32))

    def __add__(self, other: WaitingEvents) -> WaitingEvents:  # type: ignore[override]
        if not self.times.size:
            return other
        parts = max(len(self.keys), len(other.keys))
        return WaitingEvents(
            np.concatenate((self.times, other.times)),
            np.concatenate((self.positions, other.positions)),
            np.concatenate((_with_parts(self.keys, parts), _with_parts(other.keys, parts)), axis=1),
            np.concatenate((self.hit_ptr, other.hit_ptr[1:] + self.hit_ptr[-1])),
            np.concatenate((self.hits, other.hits)),
        )

    def take(self, rows: Longs) -> WaitingEvents:
        counts = np.diff(self.hit_ptr)[rows]
        ptr = np.concatenate(([0], np.cumsum(counts)))
        places = np.repeat(self.hit_ptr[:-1][rows] - ptr[:-1], counts) + np.arange(ptr[-1])
        return WaitingEvents(
            self.times[rows], self.positions[rows], np.take(self.keys, rows, axis=1), ptr, self.hits[places]
        )


def _with_parts(keys: Ints, parts: int) -> Ints:
    """Keys with rows for parts that came later: the patterns of these do not look at older events."""
    return keys if len(keys) == parts else np.pad(keys, ((0, parts - len(keys)), (0, 0)))


class FoundPatterns(NamedTuple):
    """Matches by time: pattern and key by number, and the positions of their events, `ptr[i]` .. `ptr[i + 1] - 1`."""

    pattern: Ints
    key: Ints
    time: Longs
    ptr: Longs
    events: Longs


class SequenceState:
    """The states of all patterns."""

    def __init__(self, limit_bytes: int = STATE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.counters = np.zeros(COUNTERS, np.int64)
        self._arrays = _new_arrays(0, 0, 0)
        self._retry = 0  # refused hits after which a full state is looked through again
        self._out = _new_matches(_FIRST_MATCHES)

    @property
    def refused(self) -> int:
        """Hits that found no room."""
        return int(self.counters[REFUSED])

    @property
    def states(self) -> int:
        """How many states are kept, those that have left their window included."""
        return int(self.counters[STATES])

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays)

    def replay(self, patterns: PatternArrays, events: EventArrays, end: int, until: int) -> FoundPatterns:
        """Replay the first `end` events in order, then fire all deadlines before `until`."""
        cursor, found = np.zeros(4, np.int64), []
        refuses = False
        while True:
            status = replay(events, end, until, patterns, self._arrays, self._out, self.counters, cursor, refuses)
            if status == DONE:
                break
            if status == OUT_FULL:
                found.append(self._taken())
                self._out = _new_matches(2 * self._out.pattern.size)
                continue
            at = events.order[cursor[0]]
            now, serial = int(events.times[at]), int(self.counters[SEEN] + cursor[0])
            if status == HEAP_FULL or self.counters[REFUSED] >= self._retry:
                has_room = self._make_room(patterns, now, serial)
                refuses = refuses or not has_room
            else:
                refuses = True
        found.append(self._taken())
        return _joined(found) if len(found) > 1 else found[0]

    def _taken(self) -> FoundPatterns:
        n, m = int(self.counters[MATCHES]), int(self.counters[EVENTS])
        self.counters[[MATCHES, EVENTS]] = 0
        out = self._out
        ptr, events = out.ptr[: n + 1].copy(), out.events[:m].copy()
        return FoundPatterns(out.pattern[:n].copy(), out.key[:n].copy(), out.time[:n].copy(), ptr, events)

    # -- room -----------------------------------------------------------------------------------------------------

    def _make_room(self, patterns: PatternArrays, now: int, serial: int) -> bool:
        """Drop what no longer matters, and grow; whether there is room now."""
        sizes = np.zeros(COUNTERS, np.int64)
        measure(patterns, self._arrays, now, serial, sizes)
        need = _FREE_WORDS + 4 * int(patterns.wanted.max(initial=0))
        timers = 2 * int(sizes[TIMERS]) + int(sizes[STATES]) // 4 + 16
        words, slots = 2 * int(sizes[WORDS]) + need, int(sizes[STATES]) + 16
        has_room = 8 * words + 64 * slots + 16 * timers <= self.limit_bytes
        if not has_room:
            words, slots = int(sizes[WORDS]) + need, int(sizes[STATES])
            has_room = 8 * words + 64 * slots + 16 * timers <= self.limit_bytes
            if not has_room:
                self._retry = int(self.counters[REFUSED]) + max(int(sizes[STATES]) // 4, 1)
                words = int(sizes[WORDS])
        self._move(patterns, _new_arrays(words, slots, timers), now, serial, np.zeros(1, np.int64), None)
        return has_room

    def _move(
        self, patterns: PatternArrays, new: StateArrays, now: int, serial: int, key_ptr: Longs, is_used: Bools | None
    ) -> None:
        if is_used is None:  # marks that nobody reads
            parts = int(patterns.part.max(initial=0)) + 1
            key_ptr, is_used = np.zeros(parts, np.int64), np.zeros(self._most_key() + 1, bool)
        compact(patterns, self._arrays, new, self.counters, now, serial, key_ptr, is_used)
        self._arrays = new

    def _most_key(self) -> int:
        used = self._arrays.table[:, 0]
        return int((used[used >= 0] & 0xFFFFFFFF).max(initial=0))

    def shrink(self, patterns: PatternArrays, now: int, key_counts: Longs) -> Bools:
        """Drop what no longer matters. Returns which keys are in use, those of all parts one behind the other."""
        sizes = np.zeros(COUNTERS, np.int64)
        measure(patterns, self._arrays, now, _NO_EVENT, sizes)
        new = _new_arrays(int(sizes[WORDS]), int(sizes[STATES]), int(sizes[TIMERS]))
        key_ptr = np.concatenate(([0], np.cumsum(key_counts)))
        is_used = np.zeros(int(key_ptr[-1]), bool)
        self._move(patterns, new, now, _NO_EVENT, key_ptr, is_used)
        return is_used

    def horizon(self, patterns: PatternArrays) -> int:
        """When there is something to do without another event: the first deadline, or the end of all windows; NEVER: never."""
        return int(horizon(patterns, self._arrays))

    # -- storing --------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, Any]:
        """The states as they are stored; call `shrink` before."""
        used = self._arrays.table[:, 0] >= 0
        places = np.append(np.sort(self._arrays.table[used, 1]), self.counters[WORDS])
        return {
            "words": self._arrays.words[: self.counters[WORDS]],
            "places": places,
            "counters": self.counters[[REFUSED, SEEN]],
        }

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, Any], patterns: PatternArrays, key_counts: Longs, limit_bytes: int = STATE_BYTES
    ) -> SequenceState:
        """States out of a file. Raises SnapshotError where they are not whole."""
        stored = StoredArrays(arrays, "states of patterns")
        words, places = stored.column("words", np.int64), stored.column("places", np.int64)
        stored.offsets(places, words.size, "places")
        made = cls(limit_bytes)
        n = places.size - 1
        made._arrays = _new_arrays(words.size, n, n)
        made._arrays.words[: words.size] = words
        bad = restore(patterns, frozen(words), frozen(places), made._arrays, made.counters, key_counts.astype(np.int32))
        stored.require(bad < 0, "words", f"has a state that is not whole, number {bad}")
        made.counters[[REFUSED, SEEN]] = stored.column("counters", np.int64, size=2)
        return made


def _new_arrays(words: int, states: int, timers: int) -> StateArrays:
    """Arrays for so many words, states and timers, with some room to spare."""
    slots = 1 << max(4, int(4 * states).bit_length())
    table = np.full((slots, 2), -1, np.int64)
    return StateArrays(
        np.empty(words + _FREE_WORDS, np.int64), table, np.empty(timers + 4, np.int64), np.empty(timers + 4, np.int64)
    )


def _new_matches(n: int) -> MatchArrays:
    ptr = np.zeros(n + 1, np.int64)
    events = np.empty(4 * n + _MOST_EVENTS, np.int64)
    return MatchArrays(np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int64), ptr, events)


def _joined(found: list[FoundPatterns]) -> FoundPatterns:
    starts = np.cumsum([0, *(f.events.size for f in found)])
    ptr = [f.ptr[1:] + start for f, start in zip(found, starts, strict=False)]
    return FoundPatterns(
        np.concatenate([f.pattern for f in found]),
        np.concatenate([f.key for f in found]),
        np.concatenate([f.time for f in found]),
        np.concatenate([[0], *ptr]),
        np.concatenate([f.events for f in found]),
    )


#: The least time: before all events.
BEGINNING = NONE + 1
