"""Texts to codes, all columns of a batch in one call.

Theory of operation
-------------------
The naive way calls a kernel for each column: the value of an attribute, the literals in it, the literals in it in lower case. With 300 attributes
these are 900 calls, each with arrays of its own, and an event has a text in one attribute of ten. The calls then take longer
than the texts. So a batch is coded by one call. It is given two tables: one row for each attribute, which says where its texts
are, and one for each column, which says what to do with them (a *job*): look up the text, or search it. The jobs of an attribute follow one another, so
its texts are in the cache, and the rows that have a text are listed once for all of them. What is NULL costs no more than that.

Lower case: ASCII letters are folded on the way, by the classes of the automaton. Other letters are not for a kernel; a job that meets one is given up
and left to the caller.
"""

from __future__ import annotations

import numpy as np

from wherecast.kernels.arrays import Bools, Bytes, Ints, Longs
from wherecast.kernels.automaton import END_AT, search_text
from wherecast.kernels.codes import find_code, find_place, hash_words
from wherecast.kernels.jit import Scalar, array_at, hot, inlined, prefetch

#: What a job is: the code of a text itself, the literals in it, and those in it in lower case.
VALUE, LITERALS, LOWER = 0, 1, 2
#: Numbers of a row: of a job (text, column, kind, and then sizes and addresses), and of the texts of an attribute.
JOB_WORDS, TEXT_WORDS = 11, 4
#: Bytes of each array of the next job that are fetched ahead.
_FETCHED = 4096
#: Of so many constants the place of a text is found sooner than its hash.
_FEW_STRINGS = 64


@hot
def code_texts(
    texts: Longs, jobs: Longs, done: Longs, rows: Ints, seen: Bytes, given_up: Bools, codes: Ints, first_list: int,
    list_ptr: Longs, list_codes: Ints,
) -> Scalar:  # fmt: skip
    """Write the codes of texts to codes[event, column]; those that are NULL stay as they are. Returns whether all is done.

    Row t of `texts`: addresses of offsets, bytes and validity (0: all are valid), and the place of the first text there. Sets of several
    codes are lists (see `index.boxes.EventCodes`): list r is list_codes[list_ptr[r - first_list]:list_ptr[r - first_list + 1]]. `done` says
    where to go on: the job, the place in its rows, and the next list. If a list does not fit, make room and call again. `rows`
    is room for a number per event.
    """
    job, place, n_lists = done[0], done[1], done[2]
    text, n_rows, before = np.int64(-1), 0, n_lists
    while job < jobs.shape[0]:
        given = jobs[job]
        if given[0] != text:
            text = given[0]
            n_rows = _list_rows(texts[text], rows)
        if job + 1 < jobs.shape[0]:
            _fetch(jobs[job + 1])
        if given[2] == VALUE:
            _look_up(texts[text], given, rows[:n_rows], codes)
        else:
            if place == 0:
                before = n_lists
            place, n_lists = _search(
                texts[text], given, rows[:n_rows], place, seen, codes, first_list, list_ptr, list_codes, n_lists
            )
            if place < 0:
                given_up[job], n_lists = True, before
            elif place < n_rows:
                break
        job, place = job + 1, 0
    done[0], done[1], done[2] = job, place, n_lists
    return job == jobs.shape[0]


@inlined
def _fetch(job: Longs) -> None:
    """Bring the beginnings of a job's arrays into the cache, while another one is done: searching a text waits for each step."""
    if job[2] == VALUE:
        return
    for place, width in ((6, 1), (7, 4 * job[4]), (8, 8 * job[5])):
        size = 2 * END_AT if place == 6 else width
        array = array_at(job[place], size, np.uint8)
        for at in range(0, min(size, _FETCHED), 64):
            prefetch(array, at)


@inlined
def _list_rows(text: Longs, rows: Ints) -> Scalar:
    """List the rows that have a text; how many there are."""
    if text[2] == 0:
        for row in range(rows.size):
            rows[row] = row
        return rows.size
    first, n = text[3], 0
    valid = array_at(text[2], (first + rows.size + 7) >> 3, np.uint8)
    for row in range(rows.size):
        at = first + row
        rows[n] = row
        n += (valid[at >> 3] >> (at & 7)) & 1
    return n


@inlined
def _look_up(text: Longs, job: Longs, rows: Ints, codes: Ints) -> None:
    """The code of each text by the constants of a column."""
    column, n_strings, n_slots, ordered = job[1], job[3], job[4], job[5] != 0
    if n_strings == 0:  # filters ask only whether there is a value
        for row in rows:
            codes[row, column] = 1
        return
    offsets = array_at(job[7], n_strings + 1, np.int64)
    constants = array_at(job[8], offsets[n_strings], np.uint8)
    places, marks = array_at(job[9], n_slots, np.int32), array_at(job[10], n_slots, np.uint32)
    ends = array_at(text[0] + 4 * text[3], codes.shape[0] + 1, np.int32)
    data = array_at(text[1], np.int64(ends[codes.shape[0]]), np.uint8)
    seed, is_short = np.uint64(job[6]), ordered and n_strings <= _FEW_STRINGS
    for row in rows:
        start: Scalar = np.int64(ends[row])
        end: Scalar = np.int64(ends[row + 1])
        if is_short:
            codes[row, column] = find_place(offsets, constants, data, start, end)
        else:
            h = hash_words(data, start, end, seed)
            codes[row, column] = find_code(offsets, constants, places, marks, ordered, data, start, end, h)


@inlined
def _search(
    text: Longs, job: Longs, rows: Ints, place: Scalar, seen: Bytes, codes: Ints, first_list: Scalar, list_ptr: Longs,
    list_codes: Ints, n_lists: Scalar,
) -> tuple[Scalar, Scalar]:  # fmt: skip
    """The set of literals in each text, from a place in `rows` on.

    Returns the place where `list_codes` or `list_ptr` is full, all rows if none is, -1 at a letter that the caller has to fold; and the next list.
    """
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
