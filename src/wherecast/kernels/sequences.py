"""Patterns over several events: what the events of a stream do to the state of each pattern and key.

Theory of operation
-------------------
*The naive way* keeps, for each pattern and key, all events that satisfied a step, and for each new event looks for steps before it, in order
and within the window. Work and memory grow with the events in the window.

*Order.* Events are replayed by time, those of equal time by arrival. Whoever calls this has sorted them, and hands over only events that
nothing earlier can follow (`end`).

*One chain per step.* Of all ways to reach step k the one that began last is the best: whatever completes another completes it, and it
stays in the window longest. So a state keeps one chain per step: when it began, and the positions of its events. An event that
satisfies step k extends the chain of step k - 1 and replaces that of step k. Later steps are looked at first, so that one event is never two
steps of a chain. Work per step that an event satisfies, and memory per state, are constant.

*After a match* all events up to it are used up: the chains are cleared, and the event that completed the match does not begin another.

*THEN NOT.* Once the steps before it are found, the state is armed until the window ends, counted from the first step. An event that satisfies
the last step disarms it (and may begin a new chain: `beat THEN NOT beat`). A completion while it is armed is ignored. Deadlines wait in
a heap; before an event is replayed, all earlier deadlines fire, in order. A disarmed state leaves its entry in the heap, where it is skipped.

*COUNT* keeps the last positions and times in a ring, at most as many as are asked for; those that left the window go first.

*Memory.* States live in one array of words, found by a hash table of (pattern << 32 | key). Nothing is freed: when the array or the table is full,
`replay` returns where it stands, and `compact` copies what can still matter into arrays with more room. A state whose window has passed is not
copied, so memory follows the keys of a window, not those ever seen.

A state is `[pattern << 32 | key, number of the event that used up those before, ...]`. Of a PATTERN with m steps, chain k (0 .. m - 2) is `[begin,
k + 1 positions]`, and with THEN NOT `[deadline, m positions]` follow. Of a COUNT: `[size, first, capacity, (time, position) ...]`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wherecast.kernels.arrays import Bools, Ints, Longs
from wherecast.kernels.jit import Scalar, helper, jit

#: No time.
NONE = -(2**63)
#: The birth of a pattern that was removed: no event counts for it.
NEVER = 2**62
#: Where chains and rings begin in a state.
CHAINS, RING = 2, 5
#: Why `replay` returned.
DONE, OUT_FULL, STATE_FULL, HEAP_FULL = 0, 1, 2, 3
#: Numbers that `replay` keeps: used words, states, timers; matches and their events; hits that found no room; events replayed.
WORDS, STATES, TIMERS, MATCHES, EVENTS, REFUSED, SEEN, COUNTERS = 0, 1, 2, 3, 4, 5, 6, 7
#: The room a ring begins with.
_FIRST_RING = 4


class PatternArrays(NamedTuple):
    """All patterns, by number."""

    steps: Ints  # that occur; 0: a COUNT
    has_not: Bools
    wanted: Longs  # events that a COUNT asks for
    window: Longs  # microseconds
    part: Ints  # row of the keys of an event
    born: Longs  # the first position that counts; NEVER once it is removed
    use_ptr: Longs  # (levels, filters + 1): the uses of a filter as step number `level` of a pattern; that of THEN NOT is `steps`
    uses: Ints  # patterns


class StateArrays(NamedTuple):
    """What is known of the stream."""

    words: Longs
    table: Longs  # (slots, 2): key or -1, place in words; a power of two of slots
    timer_times: Longs  # a heap
    timer_places: Longs


class EventArrays(NamedTuple):
    """Events to replay, with the filters that each satisfies."""

    order: Longs
    times: Longs
    positions: Longs
    keys: Ints  # (parts, events); -1: there was no room for the key
    hit_ptr: Longs
    hits: Ints


class MatchArrays(NamedTuple):
    """Matches that were found."""

    pattern: Ints
    key: Ints
    time: Longs
    ptr: Longs
    events: Longs


@helper
def _slot(table: Longs, key: Scalar) -> Scalar:
    """Where a key is, or where it would be put."""
    mask = table.shape[0] - 1
    mixed = key * 0x9E3779B97F4A7C1
    at = (mixed ^ (mixed >> 32)) & mask
    while table[at, 0] != key and table[at, 0] >= 0:
        at = (at + 1) & mask
    return at


@helper
def _chain(k: Scalar) -> Scalar:
    """Where chain k begins, from the first one on."""
    return 2 * k + k * (k - 1) // 2


@helper
def _size(steps: Scalar, has_not: Scalar, capacity: Scalar) -> Scalar:
    """Words of a state."""
    if steps == 0:
        return RING + 2 * capacity
    return CHAINS + _chain(steps - 1) + (1 + steps if has_not else 0)


@helper
def _deadline(steps: Scalar) -> Scalar:
    return CHAINS + _chain(steps - 1)


@helper
def _clear(words: Longs, at: Scalar, steps: Scalar) -> None:
    for k in range(steps - 1):
        words[at + CHAINS + _chain(k)] = NONE


@helper
def _push(times: Longs, places: Longs, size: Scalar, time: Scalar, place: Scalar) -> None:
    at = size
    while at > 0 and times[(at - 1) >> 1] > time:
        times[at], places[at] = times[(at - 1) >> 1], places[(at - 1) >> 1]
        at = (at - 1) >> 1
    times[at], places[at] = time, place


@helper
def _pop(times: Longs, places: Longs, size: Scalar) -> None:
    """Remove the first of `size` timers."""
    time, place = times[size - 1], places[size - 1]
    at, child = 0, 1
    while child < size - 1:
        if child + 1 < size - 1 and times[child + 1] < times[child]:
            child += 1
        if times[child] >= time:
            break
        times[at], places[at] = times[child], places[child]
        at, child = child, 2 * child + 1
    times[at], places[at] = time, place


@helper
def _fire(patterns: PatternArrays, state: StateArrays, out: MatchArrays, counters: Longs, before: Scalar) -> Scalar:
    """Matches of all deadlines before a time. Returns DONE, or OUT_FULL where more remain."""
    words = state.words
    while counters[TIMERS] and state.timer_times[0] < before:
        time, at = state.timer_times[0], state.timer_places[0]
        pattern = words[at] >> 32
        steps = patterns.steps[pattern]
        armed = at + _deadline(steps)
        if words[armed] == time and patterns.born[pattern] != NEVER:
            n, m = counters[MATCHES], counters[EVENTS]
            if n >= out.pattern.size or m + steps > out.events.size:
                return OUT_FULL
            out.pattern[n], out.key[n], out.time[n] = pattern, words[at] & 0xFFFFFFFF, time
            for i in range(steps):
                out.events[m + i] = words[armed + 1 + i]
            out.ptr[n + 1] = m + steps
            counters[MATCHES], counters[EVENTS] = n + 1, m + steps
            words[armed] = NONE
            _clear(words, at, steps)
        _pop(state.timer_times, state.timer_places, counters[TIMERS])
        counters[TIMERS] -= 1
    return DONE


@helper
def _insert(patterns: PatternArrays, state: StateArrays, counters: Longs, slot: Scalar, key: Scalar) -> Scalar:
    """A new state, or -1 if there is no room."""
    pattern = key >> 32
    steps, has_not = patterns.steps[pattern], patterns.has_not[pattern]
    capacity = min(patterns.wanted[pattern], _FIRST_RING)
    at, size = counters[WORDS], _size(steps, has_not, capacity)
    if at + size > state.words.size or 2 * (counters[STATES] + 1) > state.table.shape[0]:
        return -1
    counters[WORDS] += size
    counters[STATES] += 1
    state.table[slot, 0], state.table[slot, 1] = key, at
    words = state.words
    words[at], words[at + 1] = key, -1
    if steps == 0:
        words[at + 2], words[at + 3], words[at + 4] = 0, 0, capacity
    else:
        _clear(words, at, steps)
        if has_not:
            words[at + _deadline(steps)] = NONE
    return at


@helper
def _grow_ring(state: StateArrays, counters: Longs, slot: Scalar, most: Scalar) -> Scalar:
    """Move a full ring to where there is room for twice as many; -1 if there is none."""
    words, at = state.words, state.table[slot, 1]
    capacity = words[at + 4]
    larger = min(2 * capacity, most)
    to = counters[WORDS]
    if to + RING + 2 * larger > words.size:
        return -1
    counters[WORDS] += RING + 2 * larger
    for i in range(CHAINS):
        words[to + i] = words[at + i]
    words[to + 2], words[to + 3], words[to + 4] = words[at + 2], 0, larger
    for i in range(words[at + 2]):
        old = at + RING + 2 * ((words[at + 3] + i) % capacity)
        words[to + RING + 2 * i], words[to + RING + 2 * i + 1] = words[old], words[old + 1]
    state.table[slot, 1] = to
    return to


@helper
def _count(patterns: PatternArrays, state: StateArrays, out: MatchArrays, counters: Longs, key: Scalar, time: Scalar,
           position: Scalar) -> Scalar:  # fmt: skip
    """An event that a COUNT counts."""
    pattern = key >> 32
    most, words = patterns.wanted[pattern], state.words
    n, m = counters[MATCHES], counters[EVENTS]
    if n >= out.pattern.size or m + most > out.events.size:
        return OUT_FULL
    slot = _slot(state.table, key)
    at = state.table[slot, 1] if state.table[slot, 0] == key else _insert(patterns, state, counters, slot, key)
    if at < 0:
        return STATE_FULL
    size, first, capacity = words[at + 2], words[at + 3], words[at + 4]
    while size and time - words[at + RING + 2 * first] > patterns.window[pattern]:
        first, size = (first + 1) % capacity, size - 1
    words[at + 2], words[at + 3] = size, first
    if size + 1 == most:
        for i in range(size):
            out.events[m + i] = words[at + RING + 2 * ((first + i) % capacity) + 1]
        out.events[m + size] = position
        out.pattern[n], out.key[n], out.time[n], out.ptr[n + 1] = pattern, key & 0xFFFFFFFF, time, m + most
        counters[MATCHES], counters[EVENTS] = n + 1, m + most
        words[at + 2] = 0
        return DONE
    if size == capacity:
        at = _grow_ring(state, counters, slot, most)
        if at < 0:
            return STATE_FULL
        first, capacity = 0, words[at + 4]
    last = at + RING + 2 * ((first + size) % capacity)
    words[last], words[last + 1] = time, position
    words[at + 2] = size + 1
    return DONE


@helper
def _step(patterns: PatternArrays, state: StateArrays, out: MatchArrays, counters: Longs, key: Scalar, level: Scalar,
          time: Scalar, position: Scalar, serial: Scalar) -> Scalar:  # fmt: skip
    """An event that satisfies one step of a PATTERN. Changes nothing unless it returns DONE."""
    pattern, words = key >> 32, state.words
    steps, has_not = patterns.steps[pattern], patterns.has_not[pattern]
    slot = _slot(state.table, key)
    at = state.table[slot, 1] if state.table[slot, 0] == key else -1
    if level == steps:  # what must not happen: deadlines before this event have fired
        if at >= 0:
            words[at + _deadline(steps)] = NONE
        return DONE
    if at < 0:
        if level > 0:
            return DONE
        at = _insert(patterns, state, counters, slot, key)
        if at < 0:
            return STATE_FULL
    if words[at + 1] == serial:
        return DONE
    begin, before = time, at + CHAINS + _chain(level - 1) if level else at
    if level > 0:
        begin = words[before]
        if begin == NONE or time - begin > patterns.window[pattern]:
            return DONE
    if level < steps - 1:
        chain = at + CHAINS + _chain(level)
        words[chain] = begin
        for i in range(level):
            words[chain + 1 + i] = words[before + 1 + i]
        words[chain + 1 + level] = position
        return DONE
    if not has_not:
        n, m = counters[MATCHES], counters[EVENTS]
        if n >= out.pattern.size or m + steps > out.events.size:
            return OUT_FULL
        out.pattern[n], out.key[n], out.time[n], out.ptr[n + 1] = pattern, key & 0xFFFFFFFF, time, m + steps
        for i in range(level):
            out.events[m + i] = words[before + 1 + i]
        out.events[m + level] = position
        counters[MATCHES], counters[EVENTS] = n + 1, m + steps
    else:
        armed = at + _deadline(steps)
        if words[armed] == NONE:
            if counters[TIMERS] >= state.timer_times.size:
                return HEAP_FULL
            words[armed] = begin + patterns.window[pattern]
            for i in range(level):
                words[armed + 1 + i] = words[before + 1 + i]
            words[armed + 1 + level] = position
            _push(state.timer_times, state.timer_places, counters[TIMERS], words[armed], at)
            counters[TIMERS] += 1
    _clear(words, at, steps)
    words[at + 1] = serial
    return DONE


@jit
def replay(events: EventArrays, end: Scalar, until: Scalar, patterns: PatternArrays, state: StateArrays, out: MatchArrays,
           counters: Longs, cursor: Longs, refuses: Scalar) -> Scalar:  # fmt: skip
    """Replay events order[:end] from the cursor (event, level, hit, use) on, then let deadlines before `until` fire.

    Returns DONE, or what is full; then it can be called again. If `refuses`, hits that need a new state where there is no room are counted
    and left out.
    """
    levels = patterns.use_ptr.shape[0]
    for n in range(cursor[0], end):
        event = events.order[n]
        time, position, serial = events.times[event], events.positions[event], counters[SEEN] + n
        cursor[0] = n
        if _fire(patterns, state, out, counters, time) != DONE:
            return OUT_FULL
        first, last = events.hit_ptr[event], events.hit_ptr[event + 1]
        for level in range(cursor[1], levels):
            step = levels - 1 - level  # later steps first
            for h in range(max(cursor[2], first), last):
                number = events.hits[h]
                begin = patterns.use_ptr[step, number]
                for u in range(begin + cursor[3], patterns.use_ptr[step, number + 1]):
                    pattern = patterns.uses[u]
                    if position < patterns.born[pattern]:
                        continue
                    part = events.keys[patterns.part[pattern], event]
                    if part < 0:
                        counters[REFUSED] += 1
                        continue
                    key = (np.int64(pattern) << 32) | np.int64(part)
                    if patterns.steps[pattern] == 0:
                        status = _count(patterns, state, out, counters, key, time, position)
                    else:
                        status = _step(patterns, state, out, counters, key, step, time, position, serial)
                    if status == STATE_FULL and refuses:
                        counters[REFUSED] += 1
                    elif status != DONE:
                        cursor[1], cursor[2], cursor[3] = level, h, u - begin
                        return status
                cursor[3] = 0
            cursor[2] = 0
        cursor[1] = 0
    cursor[0] = max(cursor[0], end)
    status = _fire(patterns, state, out, counters, until)
    if status == DONE:
        counters[SEEN] += end
    return status


@helper
def _matters(patterns: PatternArrays, words: Longs, at: Scalar, now: Scalar, serial: Scalar) -> Scalar:
    """Whether a state can still have a part in a match."""
    pattern = words[at] >> 32
    if patterns.born[pattern] == NEVER:
        return False
    steps, window = patterns.steps[pattern], patterns.window[pattern]
    if steps == 0:
        size = words[at + 2]
        last = at + RING + 2 * ((words[at + 3] + size - 1) % words[at + 4])
        return size > 0 and now - words[last] <= window
    if words[at + 1] == serial:
        return True
    for k in range(steps - 1):
        begin = words[at + CHAINS + _chain(k)]
        if begin != NONE and now - begin <= window:
            return True
    return patterns.has_not[pattern] and words[at + _deadline(steps)] != NONE


@jit
def measure(patterns: PatternArrays, state: StateArrays, now: Scalar, serial: Scalar, sizes: Longs) -> None:
    """How many words, states and timers `compact` will keep."""
    sizes[:] = 0
    words = state.words
    for slot in range(state.table.shape[0]):
        if state.table[slot, 0] >= 0:
            at = state.table[slot, 1]
            if _matters(patterns, words, at, now, serial):
                pattern = words[at] >> 32
                steps, has_not = patterns.steps[pattern], patterns.has_not[pattern]
                sizes[WORDS] += _size(steps, has_not, words[at + 4] if steps == 0 else 0)
                sizes[STATES] += 1
                sizes[TIMERS] += steps > 0 and has_not and words[at + _deadline(steps)] != NONE


@jit
def compact(patterns: PatternArrays, old: StateArrays, new: StateArrays, counters: Longs, now: Scalar, serial: Scalar,
            key_ptr: Longs, is_used: Bools) -> None:  # fmt: skip
    """Copy what matters into new arrays (the table empty: -1), and mark the keys that are used: `key_ptr[part] + key`."""
    counters[WORDS] = counters[STATES] = counters[TIMERS] = 0
    for slot in range(old.table.shape[0]):
        key = old.table[slot, 0]
        if key < 0 or not _matters(patterns, old.words, old.table[slot, 1], now, serial):
            continue
        at, to, pattern = old.table[slot, 1], counters[WORDS], key >> 32
        steps, has_not = patterns.steps[pattern], patterns.has_not[pattern]
        size = _size(steps, has_not, old.words[at + 4] if steps == 0 else 0)
        for i in range(size):
            new.words[to + i] = old.words[at + i]
        there = _slot(new.table, key)
        new.table[there, 0], new.table[there, 1] = key, to
        counters[WORDS] += size
        counters[STATES] += 1
        if steps and has_not and new.words[to + _deadline(steps)] != NONE:
            _push(new.timer_times, new.timer_places, counters[TIMERS], new.words[to + _deadline(steps)], to)
            counters[TIMERS] += 1
        is_used[key_ptr[patterns.part[pattern]] + (key & 0xFFFFFFFF)] = True


@jit
def horizon(patterns: PatternArrays, state: StateArrays) -> Scalar:
    """The first time after a deadline or, if there is none, after all windows; NEVER if there are no states."""
    first, last, words = np.int64(NEVER), np.int64(NONE), state.words
    for slot in range(state.table.shape[0]):
        if state.table[slot, 0] < 0:
            continue
        at = state.table[slot, 1]
        pattern = words[at] >> 32
        steps, window = patterns.steps[pattern], patterns.window[pattern]
        if steps == 0:
            if words[at + 2] > 0:
                newest = at + RING + 2 * ((words[at + 3] + words[at + 2] - 1) % words[at + 4])
                last = max(last, words[newest] + window)
            continue
        for k in range(steps - 1):
            begin = words[at + CHAINS + _chain(k)]
            if begin != NONE:
                last = max(last, begin + window)
        if patterns.has_not[pattern] and words[at + _deadline(steps)] != NONE:
            first = min(first, words[at + _deadline(steps)] + 1)
    if first < NEVER:
        return first
    return last + 1 if last != NONE else np.int64(NEVER)


@jit
def restore(
    patterns: PatternArrays, words: Longs, places: Longs, state: StateArrays, counters: Longs, keys: Ints
) -> Scalar:
    """Fill table and heap from states that were stored one behind the other. Returns the first that is not whole, or -1.

    `keys` is how many keys each part has; `places` where states begin, and the end.
    """
    for n in range(places.size - 1):
        at, size = places[n], places[n + 1] - places[n]
        if size < CHAINS:
            return n
        key = words[at]
        pattern = key >> 32
        if key < 0 or pattern >= patterns.steps.size or (key & 0xFFFFFFFF) >= keys[patterns.part[pattern]]:
            return n
        steps, has_not = patterns.steps[pattern], patterns.has_not[pattern]
        if steps == 0:
            if size < RING:
                return n
            held, first, capacity = words[at + 2], words[at + 3], words[at + 4]
            if not (0 < capacity <= patterns.wanted[pattern] and 0 <= first < capacity and 0 <= held <= capacity):
                return n
            if held >= patterns.wanted[pattern]:
                return n
        if size != _size(steps, has_not, words[at + 4] if steps == 0 else 0):
            return n
        slot = _slot(state.table, key)
        if state.table[slot, 0] == key:
            return n
        state.table[slot, 0], state.table[slot, 1] = key, at
        counters[STATES] += 1
        if steps and has_not and words[at + _deadline(steps)] != NONE:
            _push(state.timer_times, state.timer_places, counters[TIMERS], words[at + _deadline(steps)], at)
            counters[TIMERS] += 1
    counters[WORDS] = places[-1]
    return -1
