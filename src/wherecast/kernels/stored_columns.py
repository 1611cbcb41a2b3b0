"""Values to codes, all columns of a batch in one call.

Theory of operation
-------------------
The naive way calls a kernel for each column: the value of an attribute, the literals in it, the literals in it in lower case. With 300 attributes
these are 900 calls, each with arrays of its own, and an event has a value in one attribute of ten. The calls then take longer
than the values; in a batch of a hundred events they do so with four attributes. So a batch is coded by one call. It is given two tables: one row
for each attribute, which says where its values are (`kernels.arrow`), and one for each column, which says what to do with them (a *job*):
look up the value, or search the text. The jobs of an attribute follow one another, so its texts are in the cache, and the rows that
have a text are listed once for all of them. What is NULL costs no more than that.

Texts that are looked up are hashed some at a time, and the places in the table that they will be compared with are asked for together.

Lower case: ASCII letters are folded on the way, by the classes of the automaton. Other letters are not for a kernel; a job that meets one is given up
and left to the caller.
"""

from __future__ import annotations

import numpy as np

from wherecast.kernels.arrays import Bools, Bytes, Ints, Longs, Words
from wherecast.kernels.automaton import END_AT, search_text
from wherecast.kernels.codes import bits_key, find_cells, find_code, find_place, hash_words, valid_word
from wherecast.kernels.jit import ONE, ZERO, Scalar, array_at, hot, inlined, prefetch, trailing_zeros

#: What a job is: the code of a text itself, the literals in it, and those in it in lower case; the code of an integer, or of a double.
VALUE, LITERALS, LOWER, LONGS, DOUBLES = 0, 1, 2, 3, 4
#: Numbers of a job: attribute, column, kind, and then sizes and addresses.
JOB_WORDS = 11
#: Texts that are hashed before the first of them is looked up, and numbers that are looked for together; numbers for that.
HASHED = 64
ROOM_WORDS = 2 * HASHED
#: Bytes of each array of the next job that are fetched ahead.
_FETCHED = 4096
#: Of so many constants the place of a text is found sooner than its hash.
_FEW_STRINGS = 64


@hot
def code_columns(
    values: Longs, jobs: Longs, is_open: Bools, wanted: Bools, done: Longs, rows: Ints, room: Words, seen: Bytes, given_up: Bools, codes: Ints,
    first_list: int, list_ptr: Longs, list_codes: Ints,
) -> Scalar:  # fmt: skip
    """Write the codes of values to codes[event, column]; those that are NULL stay as they are. Returns whether all is done.

    Row a of `values` says where those of attribute a are. Events that are not `wanted` get no codes; all are if it is empty. Where `is_open` is not empty,
    it says of each code of the first job's column whether the event is wanted; `wanted` is written, and events that are not have codes in that column only. Sets of several
    codes are lists (see `index.boxes.EventCodes`): list r is list_codes[list_ptr[r - first_list]:list_ptr[r - first_list + 1]]. `done` says
    where to go on: the job, the place in its rows, and the next list. If a list does not fit, make room and call again. `rows`
    is room for a number per event, `room` for ROOM_WORDS of them.
    """
    job, place, n_lists = done[0], done[1], done[2]
    attr, n_rows, before = np.int64(-1), 0, n_lists
    while job < jobs.shape[0]:
        given = jobs[job]
        own = values[given[0]]
        if given[0] != attr or job == 1:
            attr = given[0]
            n_rows = _list_rows(own, wanted if job > 0 or is_open.size == 0 else wanted[:0], rows)
        if job + 1 < jobs.shape[0]:
            _fetch(jobs[job + 1])
        if given[2] >= LONGS:
            _find_cells(own, given, rows[:n_rows], room.view(np.int64), codes)
        elif given[2] == VALUE:
            _look_up(own, given, rows[:n_rows], room, codes)
        else:
            if place == 0:
                before = n_lists
            place, n_lists = _search(
                own, given, rows[:n_rows], place, seen, codes, first_list, list_ptr, list_codes, n_lists
            )
            if place < 0:
                given_up[job], n_lists = True, before
            elif place < n_rows:
                break
        if job == 0 and is_open.size > 0:
            _admit(codes, given[1], is_open, wanted)
        job, place = job + 1, 0
    done[0], done[1], done[2] = job, place, n_lists
    return job == jobs.shape[0]


@inlined
def _admit(codes: Ints, column: Scalar, is_open: Bools, wanted: Bools) -> None:
    """Say which events are wanted by their code in a column; `wanted` is empty if all are."""
    for row in range(wanted.size):
        wanted[row] = is_open[codes[row, column]]


@inlined
def _find_cells(own: Longs, job: Longs, rows: Ints, room: Longs, codes: Ints) -> None:
    """The codes of 64-bit values."""
    column, scale, low, step, widest, are_doubles = job[1], job[5], job[6], job[7], job[10], job[2] == DOUBLES
    starts, table = array_at(job[8], job[3], np.int64), array_at(job[9], job[4], np.int32)
    stored = array_at(own[0] + 8 * own[3], codes.shape[0], np.int64)
    for first in range(0, rows.size, HASHED):
        own_rows = rows[first : min(first + HASHED, rows.size)]
        keys, cells = room[: own_rows.size], room[HASHED : HASHED + own_rows.size]
        for i in range(own_rows.size):
            keys[i] = bits_key(stored[own_rows[i]], are_doubles)
        find_cells(starts, table, scale, low, step, widest, keys, cells)
        for i in range(own_rows.size):
            codes[own_rows[i], column] = cells[i]


@inlined
def _fetch(job: Longs) -> None:
    """Bring the beginnings of a job's arrays into the cache, while another one is done: searching a text waits for each step."""
    if job[2] != LITERALS and job[2] != LOWER:
        return
    for place, width in ((6, 1), (7, 4 * job[4]), (8, 8 * job[5])):
        size = 2 * END_AT if place == 6 else width
        array = array_at(job[place], size, np.uint8)
        for at in range(0, min(size, _FETCHED), 64):
            prefetch(array, at)


@inlined
def _list_rows(own: Longs, wanted: Bools, rows: Ints) -> Scalar:
    """List the rows that are wanted and have a value; how many there are."""
    if own[0] == 0:
        return 0
    n = 0
    if own[2] == 0:
        for row in range(rows.size):
            rows[n] = row
            n += wanted.size == 0 or wanted[row]
        return n
    offset = own[3]
    valid = array_at(own[2], (offset + rows.size + 7) >> 3, np.uint8)
    for first in range(0, rows.size, 64):
        word = valid_word(valid, offset + first, offset + min(first + 64, rows.size))
        while word != ZERO:
            row = first + trailing_zeros(word)
            word &= word - ONE
            rows[n] = row
            n += wanted.size == 0 or wanted[row]
    return n


@inlined
def _look_up(text: Longs, job: Longs, rows: Ints, hashes: Words, codes: Ints) -> None:
    """The code of each text by the constants of a column."""
    column, n_strings, n_slots, ordered = job[1], job[3], job[4], job[5] != 0
    if n_strings == 0:  # filters ask only whether there is a value
        for row in rows:
            codes[row, column] = 1
        return
    if rows.size == 0:
        return
    offsets = array_at(job[7], n_strings + 1, np.int64)
    constants = array_at(job[8], offsets[n_strings], np.uint8)
    places, marks = array_at(job[9], n_slots, np.int32), array_at(job[10], n_slots, np.uint32)
    ends = array_at(text[0] + 4 * text[3], codes.shape[0] + 1, np.int32)
    data = array_at(text[1], np.int64(ends[codes.shape[0]]), np.uint8)
    seed, mask = np.uint64(job[6]), np.uint64(n_slots - 1)
    if ordered and n_strings <= _FEW_STRINGS:
        for row in rows:
            codes[row, column] = find_place(offsets, constants, data, np.int64(ends[row]), np.int64(ends[row + 1]))
        return
    for first in range(0, rows.size, HASHED):
        stop = min(first + HASHED, rows.size)
        for i in range(first, stop):
            start: Scalar = np.int64(ends[rows[i]])
            end: Scalar = np.int64(ends[rows[i] + 1])
            h = hash_words(data, start, end, seed)
            hashes[i - first] = h
            prefetch(places, np.int64(h & mask))
            prefetch(marks, np.int64(h & mask))
        for i in range(first, stop):
            row = rows[i]
            start, end = np.int64(ends[row]), np.int64(ends[row + 1])
            h = hashes[i - first]
            codes[row, column] = find_code(offsets, constants, places, marks, ordered, data, start, end, h)


@inlined
def _search(
    text: Longs, job: Longs, rows: Ints, place: Scalar, seen: Bytes, codes: Ints, first_list: Scalar, list_ptr: Longs,
    list_codes: Ints, n_lists: Scalar,
) -> tuple[Scalar, Scalar]:  # fmt: skip
    """The set of literals in each text, from a place in `rows` on.

    Returns the place where `list_codes` or `list_ptr` is full, all rows if none is, -1 at a letter that the caller has to fold; and the next list.
    """
    if rows.size == 0:
        return np.int64(0), n_lists
    column, n_literals, table_words, n_links = job[1], job[3], job[4], job[5]
    classes, table = array_at(job[6], END_AT + 1, np.uint16), array_at(job[7], table_words, np.uint32)
    links, outputs = array_at(job[8], n_links, np.uint64), array_at(job[9], n_links, np.int32)
    shorter = array_at(job[10], n_literals + 2, np.int32)
    automaton = (classes, table, links, outputs, shorter)
    ends = array_at(text[0] + 4 * text[3], codes.shape[0] + 1, np.int32)
    data = array_at(text[1], np.int64(ends[codes.shape[0]]), np.uint8)
    if job[2] == LOWER and not _is_ascii(data, np.int64(ends[0]), np.int64(ends[codes.shape[0]])):
        return np.int64(-1), n_lists
    for i in range(place, rows.size):
        row = rows[i]
        start, end = np.int64(ends[row]), np.int64(ends[row + 1])
        own = n_lists - first_list
        first = list_ptr[own]
        last = search_text(automaton, data, start, end, seen, list_codes, first)
        if last < 0 or own + 1 == list_ptr.size:
            return np.int64(i), n_lists
        if last == first + 1:
            codes[row, column] = list_codes[first]
        else:
            codes[row, column] = ~n_lists
            n_lists += 1
            list_ptr[own + 1] = last
    return np.int64(rows.size), n_lists


@inlined
def _is_ascii(data: Bytes, start: Scalar, end: Scalar) -> Scalar:
    """Whether there are no other letters; what NULLs hide counts too."""
    found = np.uint8(0)
    for i in range(start, end):
        found |= data[i]
    return found < 128
