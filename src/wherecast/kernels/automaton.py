"""Which of many literals occur in a text: an Aho-Corasick automaton over Arrow's string layout.

Theory of operation
-------------------
The naive way looks for each literal in each text; its cost grows with the number of literals. Aho and Corasick ("Efficient string
matching", 1975) put all literals into one trie. While a text is read byte by byte, the *state* is the longest string of the
trie that the text read so far ends with. A state has children (one byte more), a *failure state* (its longest proper suffix in the
trie, where the search goes on when no child fits) and *outputs* (the literals that it ends with). The departures from this:

**Classes.** Bytes are renumbered: 1 for all bytes in no literal, then one class for each byte that is in some. This keeps the rows of
tables short. A byte of class 1 leads to the root from everywhere, so no table is asked.

**Anchors.** `^x` and `x$` are literals too. UTF-8 never has the bytes START and END, so a literal may begin with the one and end
with the other, and a text is read as if they stood around it. They have classes of their own, which no byte of a text has. So
even a text with such bytes, which is not UTF-8, gets the right answer.

**Two kinds of states.** A row with the next state for each class, failures followed beforehand, needs one load per byte. But a million
states with 50 classes take 200 MB, and then each byte is a cache miss. Nearly all states have one child or none. So only
the root and states with several children have a row in `table`. Other states are *links*: one word with the class of the
only child, whose link is the next one, and the state to try for other classes. A literal is then mostly a run of neighbouring
words. Measured against rows for all states: 3,000 similar words 0.40 against 0.43 us per text of 71 bytes, 3,000 random literals of 6
to 20 bytes 0.94 against 1.44 us per text of 114 bytes. 100,000 literals of 10 to 20 bytes take 5 to 9 us and 22 MB; a plain
full table takes 13 to 15 us and 223 MB. Not tried: a double array, which scatters the run of a literal over memory. A small automaton has rows for
all states and a search without links: 64 against 99 ns per text of 35 bytes with 76 literals.

**Words that are not states.** A state with several children that gets no row because the table is full is a chain of links: the
failure of each but the last one is the link for the next child. Where the run of a literal reaches a state with a row, a link
without a child leads to the row by its failure. The search needs no code for either.

**Numbers.** A state with a row is numbered by the place of its row, which saves a multiplication; links are numbered from
`table.size` on. The bit FOUND beside a state tells that it has outputs, so that other states cost no look at outputs.

**Failures.** If the child of a link has not fitted, neither does the child of another link if it has the same class. Failures skip such links, as in
the search of Knuth, Morris and Pratt, and links without a child. So few failures follow one another, even in texts like 'aaaa'.

**Outputs.** Literals are distinct. So the outputs of a state are its longest one, then the longest other literal that this one ends
with, and so on. The search marks what it has found in a text. At a marked literal it stops, because the shorter ones are
marked as well. A text costs one step per byte and one per distinct literal, however often literals overlap.

Measured and left out: sorting the few codes of a text by counting (6 % faster with 12 codes, slower with one).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bytes, Ints, Longs, Words
from wherecast.kernels.jit import Scalar, hot, inlined, jit

Shorts = npt.NDArray[np.uint16]
States = npt.NDArray[np.uint32]

#: Stand for the start and the end of a text in a literal.
START, END = 0xFE, 0xFF
#: Where their classes are in `classes`.
START_AT, END_AT = 256, 257
#: Class of bytes that are in no literal.
OTHER = 1
#: Codes: a text that is missing, one that is there, and the first literal.
MISSING, THERE, FIRST_LITERAL = 0, 1, 2

#: A state, and a bit beside it: the state has outputs.
STATE, FOUND = np.uint64(0x7FFFFFFF), np.uint64(0x80000000)
#: A link is the class of its child above this many bits, the bit FOUND of its own state, and the state after a failure.
LABEL_SHIFT = np.uint64(32)
#: Class of the child of a link without one.
NO_CHILD = np.uint64(0x1FF)
_ZERO, _ONE = np.uint64(0), np.uint64(1)


class Automaton(NamedTuple):
    """The literals of a column, ready to be looked for. Literal i has the code i + FIRST_LITERAL; code 0 is none."""

    classes: Shorts  # (258,) class of each byte, of START and of END
    table: States  # (rows * (1 + classes),) per row the code of its longest output, then the next state by class
    links: Words  # (links,) class of the child, which is the next link, and the state to try for other classes
    outputs: Ints  # (links,) code of the longest output
    shorter: Ints  # (literals + 2,) code of the longest other literal that a literal ends with


#: An automaton as kernels are given it.
Arrays = tuple[Shorts, States, Words, Ints, Ints]


# Search


@inlined
def next_state(table: States, links: Words, state: Scalar, byte_class: Scalar) -> Scalar:
    """The state after one more byte, with the bit FOUND if it has outputs."""
    rows_end = np.uint64(table.size)
    while state >= rows_end:
        link = links[state - rows_end]
        if link >> LABEL_SHIFT == byte_class:
            state += _ONE
            return state | (links[state - rows_end] & FOUND)
        state = link & STATE
    return np.uint64(table[state + byte_class])


@inlined
def longest_output(table: States, outputs: Ints, state: Scalar) -> Scalar:
    """Code of the longest literal that a state ends with, 0 if there is none."""
    rows_end = np.uint64(table.size)
    return np.int64(table[state]) if state < rows_end else np.int64(outputs[state - rows_end])


@inlined
def write_outputs(code: Scalar, shorter: Ints, seen: Bytes, out: Ints, end: Scalar) -> Scalar:
    """Write a code, and those of the literals it ends with, to out[end:] unless `seen`; the new end, or -1: no room."""
    while code != 0 and seen[code] == 0:
        if end == out.size:
            return -1
        seen[code] = 1
        out[end] = code
        end += 1
        code = np.int64(shorter[code])
    return end


@inlined
def search_text(
    automaton: Arrays, data: Bytes | bytes, start: Scalar, end: Scalar, seen: Bytes, out: Ints, at: Scalar
) -> Scalar:
    """Write THERE and the sorted codes of the literals in data[start:end] to out[at:].

    `seen` is 0 everywhere, before and after. Returns where the codes end, or -1 if `out` is too small.
    """
    classes, table, links, outputs, shorter = automaton
    if at == out.size:
        return -1
    out[at] = THERE
    w = at + 1
    state = np.uint64(table[classes[START_AT]]) & STATE
    place, stop = np.uint64(start), np.uint64(end)
    while links.size == 0 and place < stop and w >= 0:
        state = np.uint64(table[state + classes[data[place]]])
        place += _ONE
        if state & FOUND:
            state &= STATE
            w = write_outputs(np.int64(table[state]), shorter, seen, out, w)
    while place < stop and w >= 0:
        byte_class = classes[data[place]]
        place += _ONE
        if byte_class == OTHER:
            state = _ZERO
            continue
        state = next_state(table, links, state, byte_class)
        if state & FOUND:
            state &= STATE
            w = write_outputs(longest_output(table, outputs, state), shorter, seen, out, w)
    if w >= 0:
        state = next_state(table, links, state, classes[END_AT])
        if state & FOUND:
            w = write_outputs(longest_output(table, outputs, state & STATE), shorter, seen, out, w)
    sort_codes(out, at + 1, w)
    for i in range(at + 1, w if w >= 0 else out.size):
        seen[out[i]] = 0
    return w


@inlined
def sort_codes(codes: Ints, start: Scalar, end: Scalar) -> None:
    """Sort codes[start:end], mostly a handful: Shell's sort, in place."""
    gap = 1
    while gap * 9 < end - start:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(start + gap, end):
            code, j = codes[i], i
            while j >= start + gap and codes[j - gap] > code:
                codes[j] = codes[j - gap]
                j -= gap
            codes[j] = code
        gap //= 3


@hot
def search_texts(
    automaton: Arrays, offsets: Longs | Ints, data: Bytes, valid: npt.NDArray[np.bool_], row: int, seen: Bytes,
    ptr: Longs, out: Ints,
) -> Scalar:  # fmt: skip
    """Codes of the texts from `row` on: those of text r are out[ptr[r]:ptr[r + 1]], MISSING alone where it is not valid.

    `valid` is empty where all texts are. Returns the number of texts, or the one for which `out` is too small; ptr[row] is
    known then, so that the search can go on there with more room.
    """
    end = ptr[row]
    for r in range(row, ptr.size - 1):
        if valid.size == 0 or valid[r]:
            end = search_text(automaton, data, offsets[r], offsets[r + 1], seen, out, end)
        elif end < out.size:
            out[end] = MISSING
            end += 1
        else:
            end = -1
        if end < 0:
            return r
        ptr[r + 1] = end
    return ptr.size - 1


@hot
def search_one(
    automaton: Arrays, text: bytes, seen: Bytes, column: int, codes: Ints, list_ptr: Longs, list_codes: Ints, n: int
) -> Scalar:
    """The set of one text as the code of an event in a column: its only code, or list n (see `index.boxes.EventCodes`).

    Returns the number of lists then, or -1 if `list_codes` is too small.
    """
    begin = list_ptr[n]
    end = search_text(automaton, text, 0, len(text), seen, list_codes, begin)
    if end < 0:
        return -1
    if end == begin + 1:
        codes[column] = list_codes[begin]
        return n
    codes[column] = ~n
    list_ptr[n + 1] = end
    return n + 1


# Construction


@jit
def build_automaton(data: Bytes, offsets: Longs, codes: Ints, most_words: int, small_words: int) -> tuple[int, Arrays]:
    """The automaton of sorted literals, none of them empty; literal i has codes[i], from FIRST_LITERAL on.

    `most_words` bounds the table, except for the root's row; a table of `small_words` may have rows for all states. Returns also a literal that repeats another one, or -1.
    """
    symbol, child_ptr, own, repeated = _make_trie(data, offsets, codes)
    classes, n_classes = _classify(data)
    place, n_rows, n_extra = _choose_rows(child_ptr, n_classes + 1, most_words, small_words)
    label_of = np.empty(symbol.size, np.uint16)
    for node in range(symbol.size):
        label_of[node] = classes[_class_at(symbol[node])]
    table = np.zeros(n_rows * (n_classes + 1), np.uint32)
    links = np.zeros(symbol.size - n_rows + n_extra, np.uint64)
    outputs, shorter = np.zeros(links.size, np.int32), np.zeros(codes.size + FIRST_LITERAL, np.int32)
    tail = _lay_out(child_ptr, label_of, n_extra, place, table.size, links)
    automaton = (classes, table, links, outputs, shorter)
    _connect(child_ptr, label_of, own, place, tail, n_classes, automaton)
    return repeated, automaton


@jit
def _make_trie(data: Bytes, offsets: Longs, codes: Ints) -> tuple[Bytes, Ints, Ints, int]:
    """The trie level by level: sorted literals with a common beginning stand together, so do then the children of a node.

    Returns per node (0 is the root) its last byte, where its children begin, the code of the literal that ends there or 0;
    and a repeated literal or -1.
    """
    symbol, own = np.zeros(data.size + 1, np.uint8), np.zeros(data.size + 1, np.int32)
    child_ptr = np.zeros(data.size + 2, np.int32)
    live = np.arange(codes.size)  # the literals that are not at their end yet
    node_of = np.zeros(codes.size, np.int32)
    n, n_closed, n_live, depth, repeated = 1, 0, codes.size, 0, -1
    while n_live > 0:
        n_left = 0
        for i in live[:n_live]:
            node, at = node_of[i], offsets[i] + depth
            if at == offsets[i + 1]:
                repeated = i if own[node] != 0 else repeated
                own[node] = codes[i]
                continue
            while n_closed <= node:  # its children are the next ones
                child_ptr[n_closed] = n
                n_closed += 1
            if child_ptr[node] == n or symbol[n - 1] != data[at]:
                symbol[n] = data[at]
                n += 1
            node_of[i] = n - 1
            live[n_left] = i
            n_left += 1
        n_live = n_left
        depth += 1
    child_ptr[n_closed : n + 1] = n
    return symbol[:n].copy(), child_ptr[: n + 1].copy(), own[:n].copy(), repeated


@inlined
def _class_at(byte: Scalar) -> Scalar:
    """Where `classes` has the class of a byte of a literal."""
    return np.int64(byte) if byte < START else np.int64(byte) - START + START_AT


@jit
def _classify(data: Bytes) -> tuple[Shorts, int]:
    """The classes of bytes and anchors, and how many there are."""
    used = np.zeros(256, np.bool_)
    for byte in data:
        used[byte] = True
    classes, n = np.full(END_AT + 1, OTHER, np.uint16), OTHER
    for byte in range(256):
        if used[byte]:
            n += 1
            classes[_class_at(byte)] = n
    return classes, n


@jit
def _choose_rows(child_ptr: Ints, row_words: int, most_words: int, small_words: int) -> tuple[Ints, int, int]:
    """Rows for nodes with several children, those near the root first; for all nodes if these are few.

    Returns the place of each node's row, -1 if it has none; how many rows there are; how many links that are not states.
    """
    place = np.full(child_ptr.size - 1, -1, np.int32)
    n_rows = n_extra = 0
    is_small = place.size * row_words <= small_words
    for node in range(place.size):
        is_fork = child_ptr[node + 1] - child_ptr[node] > 1
        if node == 0 or is_small or (is_fork and (n_rows + 1) * row_words <= most_words):
            place[node] = n_rows * row_words
            n_rows += 1
    for node in range(place.size):
        if place[node] < 0:  # one link more for each further child, and one in front of each row
            n_extra += max(child_ptr[node + 1] - child_ptr[node] - 1, 0)
            for head in range(child_ptr[node], child_ptr[node + 1]):
                n_extra += place[head] >= 0
    return place, n_rows, n_extra


@jit
def _lay_out(child_ptr: Ints, label_of: Shorts, n_extra: int, place: Ints, rows_end: int, links: Words) -> Ints:
    """Give every node without a row its links, so that the first child of each stands next to it.

    Returns each node's last link, whose failure is still to be found; for a node with a row the link in front of it, or -1.
    """
    tail = np.full(place.size, -1, np.int32)
    stack = np.empty((n_extra + 1, 3), np.int32)  # a node, one of its children, and the link of the child before or -1
    n = 0
    for node in range(1, place.size):
        if place[node] >= 0:  # it has a row, or has got its links after its parent's
            continue
        top = 1
        stack[0, 0], stack[0, 1], stack[0, 2] = node, child_ptr[node], -1
        while top > 0:
            top -= 1
            owner, head, before = stack[top, 0], stack[top, 1], stack[top, 2]
            if before < 0:
                place[owner] = rows_end + n
            else:
                links[before] |= np.uint64(rows_end + n)
            tail[owner] = n
            n += 1
            if head == child_ptr[owner + 1]:
                links[n - 1] = NO_CHILD << LABEL_SHIFT
                continue
            links[n - 1] = np.uint64(label_of[head]) << LABEL_SHIFT
            if head + 1 < child_ptr[owner + 1]:
                stack[top, 0], stack[top, 1], stack[top, 2] = owner, head + 1, n - 1
                top += 1
            if 0 <= place[head] < rows_end:
                links[n], tail[head] = NO_CHILD << LABEL_SHIFT | np.uint64(place[head]), n
                n += 1
            else:
                stack[top, 0], stack[top, 1], stack[top, 2] = head, child_ptr[head], -1
                top += 1
    return tail


@jit
def _connect(
    child_ptr: Ints, label_of: Shorts, own: Ints, place: Ints, tail: Ints, n_classes: int, automaton: Arrays
) -> None:
    """Failures, rows and outputs, from the root down: those of states nearer to the root are known then."""
    _, table, links, outputs, shorter = automaton
    fail = np.zeros(place.size, np.uint32)
    filled = np.full(n_classes + 1, -1, np.int32)  # the node in whose row a class was filled in last
    for node in range(place.size):
        has_row = place[node] < table.size
        if not has_row:
            links[tail[node]] |= _alternative(links, table.size, links[tail[node]], np.uint64(fail[node]))
        for head in range(child_ptr[node], child_ptr[node + 1]):
            label = np.uint64(label_of[head])
            if node != 0:
                fail[head] = next_state(table, links, np.uint64(fail[node]), label) & STATE
            code = longest_output(table, outputs, np.uint64(fail[head]))
            if own[head] != 0:
                shorter[own[head]] = code
                code = np.int64(own[head])
            _set_output(table, links, outputs, place[head], tail[head], code)
            if has_row:
                filled[label] = node
                table[np.uint64(place[node]) + label] = np.uint64(place[head]) | (FOUND if code != 0 else _ZERO)
        if has_row and node != 0:
            _fill_row(table, links, place[node], np.uint64(fail[node]), filled, node)


@inlined
def _alternative(links: Words, rows_end: int, failed: Scalar, state: Scalar) -> Scalar:
    """The next state after failures that has a row or a child of another class than the link that failed."""
    while state >= np.uint64(rows_end):
        link = links[state - np.uint64(rows_end)]
        label = link >> LABEL_SHIFT
        if label != failed >> LABEL_SHIFT and label != NO_CHILD:
            break
        state = link & STATE
    return state


@inlined
def _set_output(table: States, links: Words, outputs: Ints, place: Scalar, tail: Scalar, code: Scalar) -> None:
    """Enter the longest output of a state, in its row and the link in front of it, or in its link."""
    link = place - table.size
    if link < 0:
        table[place] = code
        link = np.int64(tail)
    if link >= 0 and code != 0:
        outputs[link] = code
        links[link] |= FOUND


@jit
def _fill_row(table: States, links: Words, place: int, state: Scalar, filled: Ints, node: int) -> None:
    """Enter what failures lead to for classes that the node itself has no child for; the nearest failure counts."""
    while state >= np.uint64(table.size):
        link = links[state - np.uint64(table.size)]
        label = link >> LABEL_SHIFT
        if label != NO_CHILD and filled[label] != node:
            filled[label] = node
            table[np.uint64(place) + label] = next_state(table, links, state, label)
        state = link & STATE
    for byte_class in range(1, filled.size):
        if filled[byte_class] != node:
            table[place + byte_class] = table[np.int64(state) + byte_class]


@jit
def failures_end(links: Words, rows_end: int) -> bool:
    """Whether following failures from any link ends at a row: what a search relies on."""
    known, on_way = np.zeros(links.size, np.bool_), np.zeros(links.size, np.bool_)
    for first in range(links.size):
        link: Scalar = first
        while link >= 0 and not known[link]:
            if on_way[link]:
                return False
            on_way[link] = True
            link = np.int64(links[link] & STATE) - rows_end
        link = first
        while link >= 0 and not known[link]:
            known[link] = True
            link = np.int64(links[link] & STATE) - rows_end
    return True
