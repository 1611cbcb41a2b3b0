"""Events from stored values to clauses, a few at a time, in one call.

Theory of operation
-------------------
Coding, projecting and descending could be one call each for a whole batch. In a batch of a hundred events, what is between the calls is half of the
time: arrays that are made and described for each step, and a cache and a branch predictor full of Python when the next kernel begins. In a batch of thousands, what
one step writes has left the cache when the next one reads it. So one call does all steps for some hundred events, in memory that the caller keeps for the next batch,
and then for the next events. Left out before the tree is asked, which looks ahead 16 events at a time, are events that the gate stops, and those
without any code that the root looks up: most events of a set with few optional attributes.

Where every clause needs a value or more, events with fewer values are left out before anything is looked up. Bits say which events
have a value, so 64 events are counted at the same time, and those that are left are listed from bits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wherecast.kernels.arrays import Bools, Bytes, Ints, Longs, Words
from wherecast.kernels.arrow import OFFSET
from wherecast.kernels.codes import valid_word
from wherecast.kernels.descent import (
    LookupTree,
    Projected,
    Scratch,
    descend,
)
from wherecast.kernels.events import has_code, renumber, renumber_event
from wherecast.kernels.jit import ONE, ZERO, Scalar, array_at, hot, inlined, popcount, trailing_zeros
from wherecast.kernels.leaves import first_bits
from wherecast.kernels.present import list_present
from wherecast.kernels.rows import Points, Rows, fewest_values
from wherecast.kernels.stored_columns import code_columns


class FewRoom(NamedTuple):
    """Memory for a few events on their way through a matcher; none of them has lists."""

    values: Longs  # (attributes, COLUMN_WORDS)
    codes: Ints  # (events, columns of the codebook)
    projected: Ints  # (events, columns of the matcher)
    wanted: Bools  # (events,)
    rows: Ints  # (events,)
    ends: Longs  # (events + 1,) where the matches of the events that are left end
    done: Longs  # (3,)
    words: Words  # (ROOM_WORDS,)
    seen: Bytes  # empty, as there are no lists
    list_ptr: Longs  # (2,)
    list_codes: Ints  # empty
    numbers: Ints  # (columns of the codebook + PADDING,) 0, 1, 2, ...
    there: Ints  # (columns of the codebook + PADDING,)
    counts: Words  # (columns of the codebook + 1,)
    admitted: Words  # (events / 64 + 1,) bits of the events with enough values


@inlined
def project_present(codes: Ints, event: Scalar, columns: tuple[Ints, Ints, Longs, Ints], places: Ints, nulls: Ints, there: Ints, n_there: Scalar,
                    out: Ints, row: Scalar) -> Scalar:  # fmt: skip
    """`renumber_event` by the columns of the codebook there[:n_there] in which an event has a value; whether one of its codes is not 0.

    `places` says the matcher's column of each, -1 or nothing if it has none, and `nulls` are the codes of an event without any value.
    """
    _, width, table_ptr, table = columns
    some: Scalar = np.int32(0)
    for column in range(nulls.size):
        out[row, column] = nulls[column]
    for i in range(n_there):
        attribute = np.int64(there[i])
        c = np.int64(places[attribute]) if attribute < places.size else np.int64(-1)
        if c >= 0:
            code = renumber(codes[event, attribute], width[c], table_ptr[c], table_ptr[c + 1], table)
            out[row, c] = code
            some |= code
    return some != 0


@inlined
def write_ends(ptr: Longs, rows: Ints, ends: Longs) -> None:
    """Write where the matches of each event end, behind ptr[0]; those of event rows[i] are the matches ends[i]:ends[i + 1], the others have none."""
    ptr[1:] = 0
    for i in range(rows.size):
        ptr[rows[i] + 1] = ends[i + 1] - ends[i]
    for event in range(1, ptr.size):
        ptr[event] += ptr[event - 1]


@inlined
def have_values(own: Longs, job: Longs, first: Scalar, end: Scalar) -> Scalar:
    """Which of the events first:end, at most 64, have a value for a job, as bits."""
    row = own[job[0]]
    if row[2] == 0:
        return first_bits(end - first) if row[0] != 0 else ZERO
    valid = array_at(row[2], (row[OFFSET] + end + 7) >> 3, np.uint8)
    return valid_word(valid, row[OFFSET] + first, row[OFFSET] + end)


@inlined
def are_few(own: Longs, jobs: Longs, n: Scalar, most: Scalar) -> Scalar:
    """Whether events have at most `most` values on average, by the first 64 of n."""
    count: Scalar = np.int64(0)
    n = min(n, 64)
    for job in range(jobs.shape[0]):
        count += popcount(have_values(own, jobs[job], 0, n))
    return count <= n * most


@inlined
def admit(own: Longs, jobs: Longs, fewest: Scalar, n: Scalar, counts: Words, admitted: Words) -> None:
    """Say, as bits, which of n events have at least `fewest` values, which is at least 1.

    64 events are counted at the same time: bit e of counts[i] says whether event e has more than i values.
    """
    for first in range(0, n, 64):
        end = min(first + 64, n)
        counts[:fewest] = ZERO
        for job in range(jobs.shape[0]):
            there = have_values(own, jobs[job], first, end)
            for i in range(fewest):
                more = counts[i] & there
                counts[i] |= there
                there = more
        admitted[first >> 6] = counts[fewest - 1]


@inlined
def list_admitted(admitted: Words, n: Scalar, rows: Ints) -> Scalar:
    """List those of n events whose bits are set; how many they are."""
    count = np.int64(0)
    for at in range((n + 63) >> 6):
        word = admitted[at]
        while word != ZERO:
            rows[np.uint64(count)] = 64 * at + trailing_zeros(word)
            count += 1
            word &= word - ONE
    return count


@inlined
def list_wanted(wanted: Bools, n: Scalar, rows: Ints) -> Scalar:
    """List those of n events that are wanted, which all are if `wanted` is empty; how many they are."""
    count = np.int64(0)
    for row in range(n):
        rows[np.uint64(count)] = row
        count += wanted.size == 0 or wanted[row]
    return count


@hot
def match_few(
    values: Longs,
    jobs: Longs,
    is_open: Bools,
    columns: tuple[Ints, Ints, Longs, Ints],
    places: Ints,
    nulls: Ints,
    needs_value: int,
    fewest: Longs,
    tree: LookupTree,
    boxes: Rows,
    scratch: Scratch,
    room: FewRoom,
    first: int,
    ptr: Longs,
    out: Ints,
) -> Scalar:
    """Match events first: into `out`; return the first event that did not fit. `ptr` is as in `descend`.

    `values`, `jobs` and `is_open` are those of `code_columns`; without `is_open` all events are wanted. `places` and `nulls` are those of
    `project_present`, empty where there are few columns. `needs_value` says that an event without any code but 0, which is NULL, meets no clause.
    fewest[0] is the number of values that an event needs to satisfy any clause, -1 until events with few values come: then it is found and written.
    """
    attribute, width, table_ptr, table = columns
    own, codes, projected, wanted, rows, ends, done, words, seen, list_ptr, list_codes, numbers, there, counts, admitted = room  # fmt: skip
    begin, n_events = ptr[first], ptr.size - 1
    while first < n_events:
        n: Scalar = min(codes.shape[0], n_events - first)
        for a in range(values.shape[0]):
            for word in range(values.shape[1]):
                own[a, word] = values[a, word]
            own[a, OFFSET] += first
        codes[:n] = 0
        done[:] = 0
        asked = wanted[: n if is_open.size > 0 else 0]
        if is_open.size == 0 and fewest[0] < 0 and are_few(own, jobs, n, max(jobs.shape[0] >> 1, 1)):
            fewest[0] = fewest_values(boxes[0], boxes[1], boxes[2], boxes[3])
        by_values = is_open.size == 0 and fewest[0] > 0 and are_few(own, jobs, n, 2 * fewest[0] - 1)
        if by_values:
            admit(own, jobs, min(fewest[0], jobs.shape[0] + 1), n, counts, admitted)
        if by_values and fewest[0] > 1:  # else all events with a value are admitted
            asked = wanted[:n]
            for row in range(n):
                asked[row] = (admitted[row >> 6] >> np.uint64(row & 63)) & ONE != ZERO
        code_columns(own, jobs, is_open, asked, done, rows[:n], words, seen, wanted[:0], codes[:n], 0, list_ptr,
                     list_codes)  # fmt: skip
        left = 0
        n_wanted = list_admitted(admitted, n, rows) if by_values else list_wanted(asked, n, rows)
        for i in range(n_wanted):
            event = np.int64(rows[i])
            some: Scalar = False
            n_there: Scalar = codes.shape[1]
            if places.size > 0:
                n_there = list_present(codes, event, numbers, there)
            if 2 * n_there < codes.shape[1]:
                if n_there > 0 or not needs_value:
                    some = project_present(codes, event, columns, places, nulls, there, n_there, projected, left)
            elif not needs_value or has_code(codes, event):
                some = renumber_event(codes, event, attribute, width, table_ptr, table, projected, left)
            if some or not needs_value:
                rows[left] = event
                for a in range(codes.shape[1] if left < event else 0):
                    codes[left, a] = codes[event, a]
                left += 1
        ends[0] = 0
        batch = Projected(projected[:left], list_ptr, list_codes)
        points = Points(codes[:left], list_ptr, list_codes)
        fit = descend(tree, boxes, batch, points, 0, scratch, out[ptr[first] - begin :], ends)
        n = n if fit == left else np.int64(rows[fit])
        write_ends(ptr[first : first + n + 1], rows[:fit], ends)
        first += n
        if fit < left:
            break
    return first
