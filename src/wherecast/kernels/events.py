"""Events before and after matching: their codes as a matcher sees them, clauses found twice, and the fan-out.

Theory of operation
-------------------
*Before.* An attribute of few codes is renumbered when a matcher is built: codes that no constraint contains (gaps between
the values asked for, NULL) become the one code 0, the others follow in order. That makes bitmaps smaller, and intervals
remain intervals. Attributes that no clause constrains are left out. The lists of array attributes are sorted and freed
of repetitions, so that a lookup can skip equal keys.

*Clauses found twice.* A clause filed in several cells is met twice only by an event with several codes in that column;
`drop_repeats` then keeps the first of each, in one pass, with one bit per clause. The filters of several clauses are freed of repetitions likewise.

*Fan-out*, from the filters an event satisfies to the subscriptions of each: two passes over the filter ids, one to measure
and one to write, so that the output is exactly as long as needed. An engine has several segments; each writes its part of
every event behind the `cursor` that the one before it left, so the subscriptions of an event end up together without
sorting. Filters of one subscription come first, so the first `single` slots are filters, and nothing is looked up for them. `died` is the version at which each slot's subscription was removed, or empty where none was; a reader at `version`
skips what died then or before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Ints, Longs, Words
from wherecast.kernels.automaton import sort_codes
from wherecast.kernels.jit import ONE, ZERO, Scalar, copy_8, hot, inlined, jit, prefetch

_SIX, _LOW_SIX = np.uint64(6), np.uint64(63)


@jit
def renumber(code: Scalar, width: Scalar, first: Scalar, end: Scalar, table: Ints) -> Scalar:
    """New code of one code; a code beyond the attribute's last (never sent by a correct coder) counts as the last."""
    code = min(code, width - 1)
    return code if first == end else table[first + code]


@inlined
def has_code(codes: Ints, event: Scalar) -> Scalar:
    """Whether an event has a code other than 0."""
    some: Scalar = np.int32(0)
    for c in range(codes.shape[1]):
        some |= codes[event, c]
    return some != 0


@inlined
def renumber_event(
    codes: Ints, event: Scalar, attribute: Ints, width: Ints, table_ptr: Longs, table: Ints, out: Ints, row: Scalar
) -> Scalar:
    """The codes of an event without lists, by column, to a row of `out`; whether one of them is not 0."""
    some: Scalar = np.int32(0)
    for c in range(attribute.size):
        code = renumber(codes[event, attribute[c]], width[c], table_ptr[c], table_ptr[c + 1], table)
        out[row, c] = code
        some |= code
    return some != 0


@jit
def prepare_codes(
    codes: Ints, list_ptr: Longs, attribute: Ints, width: Ints, table_ptr: Longs, table: Ints, out: Ints
) -> tuple[Scalar, Scalar]:
    """Codes by column; lists become ~r with r counted up. Returns the number of lists, and of their codes at most.

    Columns of one attribute follow each other and are renumbered alike, so they share a list.
    """
    n_lists, n_codes = 0, 0
    for event in range(codes.shape[0]):
        for c in range(attribute.size):
            code = codes[event, attribute[c]]
            if code >= 0:
                out[event, c] = renumber(code, width[c], table_ptr[c], table_ptr[c + 1], table)
            elif c > 0 and attribute[c] == attribute[c - 1]:
                out[event, c] = out[event, c - 1]
            else:
                out[event, c] = ~n_lists
                n_lists += 1
                n_codes += list_ptr[~code + 1] - list_ptr[~code]
    return n_lists, n_codes


@jit
def prepare_lists(codes: Ints, list_ptr: Longs, list_codes: Ints, attribute: Ints, width: Ints, table_ptr: Longs,
                  table: Ints, out_ptr: Longs, out: Ints) -> Scalar:  # fmt: skip
    """The lists of `prepare_codes`, sorted and distinct. Returns the number of their codes."""
    n, n_lists = 0, 0
    for event in range(codes.shape[0]):
        for c in range(attribute.size):
            code = codes[event, attribute[c]]
            if code >= 0 or (c > 0 and attribute[c] == attribute[c - 1]):
                continue
            begin, ascends = n, True
            for k in range(list_ptr[~code], list_ptr[~code + 1]):
                out[n] = renumber(list_codes[k], width[c], table_ptr[c], table_ptr[c + 1], table)
                ascends = ascends and (n == begin or out[n] > out[n - 1])
                n += 1
            if not ascends:
                sort_codes(out, begin, n)
                stop, n = n, begin
                for k in range(begin, stop):
                    if n == begin or out[k] != out[n - 1]:
                        out[n] = out[k]
                        n += 1
            n_lists += 1
            out_ptr[n_lists] = n
    return n


#: Ids of an event that are compared with each other.
_FEW = 8


@hot
def drop_repeats(ids: Ints, ptr: Longs, owner: Ints, seen: Words) -> Scalar:
    """Keep each id once per event, in place; or the owner of each, if `owner` is not empty.

    `seen` has a bit per id, or owner, and is empty before and after: marks of an event are taken back by those that were kept. So a
    set of 40,000 needs 5 KB, however many events there are. Returns how many ids remain.
    """
    read, write = np.int64(0), np.int64(0)
    for event in range(ptr.size - 1):
        begin, end = write, ptr[event + 1]
        few = end - read <= _FEW
        for at in range(read, end):
            one = ids[np.uint64(at)]
            kept = owner[np.uint64(one)] if owner.size > 0 else one
            fresh: Scalar = True
            if few:
                for other in range(begin, write):
                    fresh &= ids[other] != kept
            else:
                word, bit = np.uint64(kept) >> _SIX, ONE << (np.uint64(kept) & _LOW_SIX)
                fresh = seen[word] & bit == ZERO
                seen[word] |= bit
            ids[np.uint64(write)] = kept
            write += fresh
        for at in range(write if few else begin, write):
            seen[np.uint64(ids[at]) >> _SIX] = ZERO
        read = end
        ptr[event + 1] = write
    return write


#: Filters whose values are asked for ahead.
AHEAD = 16

# -- fan-out -----------------------------------------------------------------------------------------------------------


@inlined
def slots_of(ptr: Ints, single: Scalar, filter_id: Scalar) -> tuple[Scalar, Scalar]:
    """First slot and end of the slots of a filter."""
    if filter_id < single:
        return np.int64(filter_id), np.int64(filter_id) + 1
    return np.int64(ptr[filter_id]), np.int64(ptr[filter_id + 1])


@jit
def count_single(ptr: Ints) -> Scalar:
    """How many filters, the first ones, have one subscription each. Every filter has one, so a slot equals its filter if all filters before it have one only."""
    first, end = 0, ptr.size - 1
    while first < end:
        middle = (first + end) >> 1
        if ptr[middle + 1] > middle + 1:
            end = middle
        else:
            first = middle + 1
    return first


@inlined
def are_mostly_single(ptr: Ints, single: Scalar) -> Scalar:
    """Whether so few filters have several subscriptions that among AHEAD filters there is seldom one: else asking costs more than it spares."""
    return (ptr.size - 1 - single) * 16 * AHEAD < ptr.size


@inlined
def are_single(filter_ids: Ints, first: Scalar, end: Scalar, single: Scalar) -> Scalar:
    """Whether the filters first:end, AHEAD of them, have one subscription each; no, if they are fewer."""
    if end - first < AHEAD:
        return False
    last: Scalar = np.int32(0)
    for i in range(AHEAD):
        last = max(last, filter_ids[np.uint64(first + i)])
    return last < single


@inlined
def count_singles(ptr: Ints, single: Scalar, filter_ids: Ints, first: Scalar, end: Scalar) -> Scalar:
    """Subscriptions of the filters first:end, of which nearly all have one."""
    total = np.int64(end - first)
    while first < end:
        stop = min(first + AHEAD, end)
        if not are_single(filter_ids, first, end, single):
            for i in range(first, stop):
                slot, last = slots_of(ptr, single, filter_ids[i])
                total += last - slot - 1
        first = stop
    return total


@inlined
def write_singles(ptr: Ints, single: Scalar, filter_ids: Ints, first: Scalar, end: Scalar, values: npt.NDArray[Any],
                  out: npt.NDArray[Any], at: Scalar) -> Scalar:  # fmt: skip
    """Write the values of their slots to out[at:]; the new end."""
    while first < end:
        stop = min(first + AHEAD, end)
        if are_single(filter_ids, first, end, single):
            for i in range(AHEAD):
                out[np.uint64(at + i)] = values[np.uint64(np.uint32(filter_ids[np.uint64(first + i)]))]
            at += AHEAD
        else:
            for i in range(first, stop):
                slot, last = slots_of(ptr, single, filter_ids[i])
                for s in range(slot, last):
                    out[at] = values[s]
                    at += 1
        first = stop
    return at


@hot
def count_subscriptions(
    ptr: Ints,
    single: int,
    event_ptr: Longs,
    filter_ids: Ints,
    died: Longs,
    version: int,
    values: npt.NDArray[Any],
    counts: Longs,
) -> None:
    """Add to counts[e] the number of live subscriptions to the filters of event e.

    Values of their slots, if there are any, are brought into the cache: `write_values` comes next.
    """
    if died.size == 0 and are_mostly_single(ptr, single):
        for e in range(counts.size):
            counts[e] += count_singles(ptr, single, filter_ids, event_ptr[e], event_ptr[e + 1])
        return
    for e in range(counts.size):
        first, end = event_ptr[e], event_ptr[e + 1]
        total = np.int64(0)
        for i in range(first, end if values.size > 0 else first):
            prefetch(values, slots_of(ptr, single, filter_ids[i])[0])
        for i in range(first, end):
            slot, stop = np.int64(ptr[filter_ids[i]]), np.int64(ptr[filter_ids[i] + 1])
            if died.size == 0:
                total += stop - slot
            else:
                for s in range(slot, stop):
                    total += died[s] > version
        counts[e] += total


@inlined
def copy_run(
    values: npt.NDArray[Any], slot: Scalar, length: Scalar, out: npt.NDArray[Any], at: Scalar, end: Scalar
) -> Scalar:
    """Copy values[slot:slot + length] to out[at:], eight at a time; out[:end] may be overwritten behind the run.

    Most runs are shorter than eight, and how short cannot be predicted: they are copied whole without asking.
    """
    done = 0
    if at + length + 8 <= end and slot + length + 8 <= values.size:
        while done < length:
            copy_8(values, slot + done, out, at + done)
            done += 8
    while done < length:
        out[at + done] = values[slot + done]
        done += 1
    return at + length


@hot
def write_values(
    ptr: Ints,
    single: int,
    event_ptr: Longs,
    filter_ids: Ints,
    died: Longs,
    version: int,
    values: npt.NDArray[Any],
    cursor: Longs,
    ends: Longs,
    out: npt.NDArray[Any],
) -> None:
    """Write the values (ids, say) of the live slots of every event at its cursor, and move the cursor on.

    An event's part of `out` ends at `ends`.
    """
    if died.size == 0 and are_mostly_single(ptr, single):
        for e in range(cursor.size):
            cursor[e] = write_singles(ptr, single, filter_ids, event_ptr[e], event_ptr[e + 1], values, out, cursor[e])
        return
    for e in range(cursor.size):
        at, end = cursor[e], ends[e]
        first = event_ptr[e]
        for i in range(first, event_ptr[e + 1]):
            slot, stop = slots_of(ptr, single, filter_ids[i])
            if died.size == 0 and slot < single:
                out[at] = values[slot]
                at += 1
            elif died.size == 0:
                at = copy_run(values, slot, stop - slot, out, at, end)
            else:
                for s in range(slot, stop):
                    if died[s] > version:
                        out[at] = values[s]
                        at += 1
        cursor[e] = at


@hot
def expand_filters(
    ptr: Ints,
    single: int,
    filter_ids: Ints,
    died: Longs,
    version: int,
    values: npt.NDArray[Any],
    room: Longs,
    out: npt.NDArray[Any],
) -> Scalar:
    """Both passes in one call, where nothing asks where events end: the number of values, which are in `out` if it has room for all.

    `room` is for five numbers: one array is made sooner than three.
    """
    room[0], room[1], room[2], room[3] = 0, filter_ids.size, 0, 0
    event_ptr, total, cursor, end = room[0:2], room[2:3], room[3:4], room[4:5]
    count_subscriptions(ptr, single, event_ptr, filter_ids, died, version, values, total)
    end[0] = total[0]
    if total[0] <= out.size:
        write_values(ptr, single, event_ptr, filter_ids, died, version, values, cursor, end, out)
    return total[0]
