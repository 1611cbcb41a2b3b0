"""Which of many literals occur in a text: an Aho-Corasick automaton over Arrow's string layout.

Theory of operation
-------------------
The naive way looks for each literal in each text; its cost grows with their number. Aho and Corasick ("Efficient string
matching", 1975) put all literals into one trie. While a text is read byte by byte, the *state* is the longest string of the
trie that the text read so far ends with. A state has children (one more byte), a *failure state* (its longest proper suffix in the
trie, where the search goes on when no child fits) and outputs (the literals it ends with). What is done differently here:

**Classes.** Bytes are renumbered: 1 for bytes in no literal, then one class per byte that is in some. Rows of tables get short.

**Anchors.** `^x` and `x$` are literals too: UTF-8 never has the bytes START and END, so a literal may begin with the one and end
with the other, and a text is read as if they stood around it. They have classes of their own, which no byte of a text has; so
a text with such bytes, although not UTF-8, gets the right answer as well.

**Two kinds of states.** A row with the next state for each class (failures followed beforehand) is the quickest, but a million
states with 100 classes would take 400 MB, and each step a cache miss. Nearly all states have one child or none. So only the root and
the states with several children have a row in `table`. The others are *links*: the class of the one child in `labels`, the child
itself in the next place, and in `fails` the state to try instead. The rest of a literal is then a run of 16-bit labels: 20 bytes
of a literal are 40 bytes in one or two cache lines, where rows took 20 lines. Rows of 3,000 literals fit the first-level cache.

**Links that are not states.** A state with several children that gets no row, because the table is full, is a chain of links: the
failure of each but the last is the link to the next child. Where the run of a literal reaches a state with a row, a link without
a child leads there by its failure. The search knows nothing of both.

**Numbers.** States with a row are numbered by the place of the row, so no multiplication is needed; links follow from
`table.size` on. A state with outputs carries the bit FOUND in the table and in its label: other states cost no look at outputs.

**Failures.** At a link with label c another link with label c, or with none, is no alternative, so failures skip it (as in Knuth, Morris and
Pratt). A byte then follows few failures even in texts like 'aaaa', and per text there are no more failures than bytes.

**Outputs.** Literals are distinct, so a state's outputs are its longest one, then the longest other literal that this one ends with, and so on.
The search marks what it has found in a text. Where it meets a marked literal, all shorter ones are marked too, and it
stops; a text costs one step per byte and one per distinct literal, however often they overlap.

Measured and left out: a full table (see above), a loop that skips bytes that begin no literal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.jit import Scalar, hot, inlined, jit

Bytes = npt.NDArray[np.uint8]
Shorts = npt.NDArray[np.uint16]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
States = npt.NDArray[np.uint32]

#: Stand for the start and the end of a text in a literal.
START, END = 0xFE, 0xFF
#: Where their classes are in `classes`.
START_AT, END_AT = 256, 257
#: Class of bytes that are in no literal.
OTHER = 1
#: Codes: a text that is missing, one that is there, and the first literal.
MISSING, THERE, FIRST_LITERAL = 0, 1, 2

#: A label without the bit FOUND, and the label of a link without a child.
LABEL = np.uint64(0x1FF)
NO_CHILD = np.uint64(0x1FF)
_FOUND_LABEL = np.uint64(0x8000)
_TO_FOUND = np.uint64(16)  # from the bit in a label to the bit in a state
#: A state without the bit FOUND.
STATE = np.uint64(0x7FFFFFFF)
FOUND = np.uint64(0x80000000)
_ZERO, _ONE = np.uint64(0), np.uint64(1)


class Automaton(NamedTuple):
    """The literals of a column, ready to be looked for. Literal i has the code i + FIRST_LITERAL; code 0 is none."""

    classes: Shorts  # (258,) class of each byte, of START and of END
    table: States  # (rows * (1 + classes),) per row the code of its longest output, then the next state by class
    labels: Shorts  # (links,) class of the child, which is the next link; the last one has no child
    fails: States  # (links,) the state to try if the class is another one
    outputs: Ints  # (links,) code of the longest output
    shorter: Ints  # (literals + 2,) code of the longest other literal that a literal ends with


# Search


@inlined
def next_state(table: States, labels: Shorts, fails: States, state: Scalar, byte_class: Scalar) -> Scalar:
    """The state after one more byte, with the bit FOUND if it has outputs."""
    rows_end = np.uint64(table.size)
    while state >= rows_end:
        link = state - rows_end
        if labels[link] & LABEL == byte_class:
            return (state + _ONE) | ((labels[link + _ONE] & _FOUND_LABEL) << _TO_FOUND)
        state = np.uint64(fails[link])
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
    automaton: Automaton, data: Bytes, start: Scalar, end: Scalar, seen: Bytes, out: Ints, at: Scalar
) -> Scalar:
    """Write THERE and the sorted codes of the literals in data[start:end] to out[at:].

    `seen` is 0 everywhere, before and after. Returns where the codes end, or -1 if `out` is too small.
    """
    classes, table, labels, fails, outputs, shorter = automaton
    if at == out.size:
        return -1
    out[at] = THERE
    w = at + 1
    state = np.uint64(table[classes[START_AT]]) & STATE
    place, stop = np.uint64(start), np.uint64(end)
    while place < stop and w >= 0:
        state = next_state(table, labels, fails, state, classes[data[place]])
        if state & FOUND:
            state &= STATE
            w = write_outputs(longest_output(table, outputs, state), shorter, seen, out, w)
        place += _ONE
    if w >= 0:
        state = next_state(table, labels, fails, state, classes[END_AT])
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
    automaton: Automaton, offsets: Longs | Ints, data: Bytes, valid: npt.NDArray[np.bool_], row: int, seen: Bytes,
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
def search_one(automaton: Automaton, data: Bytes, seen: Bytes, out: Ints) -> Scalar:
    """Write the codes of one text to `out`; their number, or -1 if `out` is too small."""
    return search_text(automaton, data, 0, data.size, seen, out, 0)


# Construction


@jit
def build_automaton(data: Bytes, offsets: Longs, most_words: int) -> tuple[int, Automaton]:
    """The automaton of distinct literals, none of them empty; `most_words` bounds the table, except for the root's row.

    Returns also a literal that repeats an earlier one, or -1; then the automaton is of no use.
    """
    n_most = data.size + 1
    child, sibling = np.zeros(n_most, np.int32), np.zeros(n_most, np.int32)
    symbol, own = np.zeros(n_most, np.uint8), np.zeros(n_most, np.int32)
    n, repeated = _insert(data, offsets, child, sibling, symbol, own)
    child, sibling, symbol, own = child[:n], sibling[:n], symbol[:n], own[:n]
    classes, n_classes = _classify(data)
    order = _breadth_first(child, sibling)
    place, n_rows, n_extra = _choose_rows(child, sibling, order, n_classes + 1, most_words)
    n_links = n - n_rows + n_extra
    label_of = np.empty(n, np.uint16)
    for node in range(n):
        s = symbol[node]
        label_of[node] = classes[s if s < START else s - START + START_AT]
    table, labels = np.zeros(n_rows * (n_classes + 1), np.uint32), np.zeros(n_links, np.uint16)
    fails, outputs = np.zeros(n_links, np.uint32), np.zeros(n_links, np.int32)
    shorter = np.zeros(offsets.size - 1 + FIRST_LITERAL, np.int32)
    tail = _lay_out(child, sibling, label_of, place, n_extra, table.size, labels, fails)
    automaton = (classes, table, labels, fails, outputs, shorter)
    _connect(child, sibling, label_of, own, order, place, tail, n_classes, automaton)
    return repeated, automaton


@jit
def _insert(data: Bytes, offsets: Longs, child: Ints, sibling: Ints, symbol: Bytes, own: Ints) -> tuple[int, int]:
    """The trie: node 0 is the root, `own` the code of a literal that ends here; (nodes, repeated literal or -1)."""
    n, repeated = 1, -1
    first = np.zeros(256, np.int32)  # children of the root, which may be many
    for i in range(offsets.size - 1):
        start, end = offsets[i], offsets[i + 1]
        node = first[data[start]]
        at = start if node == 0 else start + 1
        while at < end and node != 0:
            next_node = child[node]
            while next_node != 0 and symbol[next_node] != data[at]:
                next_node = sibling[next_node]
            if next_node == 0:
                break
            node = next_node
            at += 1
        while at < end:
            symbol[n] = data[at]
            sibling[n] = child[node]
            child[node] = n
            if node == 0:
                first[data[at]] = n
            node = n
            n += 1
            at += 1
        if own[node] != 0:
            repeated = i
        own[node] = i + FIRST_LITERAL
    return n, repeated


@jit
def _classify(data: Bytes) -> tuple[Shorts, int]:
    """The classes of bytes and anchors, and how many there are."""
    used = np.zeros(256, np.bool_)
    for byte in data:
        used[byte] = True
    classes, n = np.full(258, OTHER, np.uint16), OTHER
    for byte in range(256):
        if used[byte]:
            n += 1
            classes[byte if byte < START else byte - START + START_AT] = n
    return classes, n


@jit
def _breadth_first(child: Ints, sibling: Ints) -> Ints:
    order = np.zeros(child.size, np.int32)
    n = 1
    for i in range(child.size):
        node = child[order[i]]
        while node != 0:
            order[n] = node
            n += 1
            node = sibling[node]
    return order


@jit
def _choose_rows(child: Ints, sibling: Ints, order: Ints, row_words: int, most_words: int) -> tuple[Ints, int, int]:
    """Rows for nodes with several children, those near the root first.

    Returns the place of each node's row, -1 if it has none; how many rows there are; how many links that are not states.
    """
    place = np.full(child.size, -1, np.int32)
    n_rows = n_extra = 0
    for node in order:
        if node == 0 or (sibling[child[node]] != 0 and (n_rows + 1) * row_words <= most_words):
            place[node] = n_rows * row_words
            n_rows += 1
    for node in range(child.size):
        if place[node] < 0:
            head = child[node]
            while head != 0:  # one link more for each further child, and one in front of each row
                n_extra += (place[head] >= 0) + (sibling[head] != 0)
                head = sibling[head]
    return place, n_rows, n_extra


@jit
def _lay_out(
    child: Ints,
    sibling: Ints,
    label_of: Shorts,
    place: Ints,
    n_extra: int,
    rows_end: int,
    labels: Shorts,
    fails: States,
) -> Ints:
    """Give every node without a row its links, so that the first child of each stands next to it.

    Returns each node's last link, whose failure is still to be found; for a node with a row the link in front of it, or -1.
    """
    tail = np.full(child.size, -1, np.int32)
    stack = np.empty((n_extra + 1, 3), np.int32)  # a node, one of its children, and the link of the child before or -1
    n = 0
    for node in range(1, child.size):
        if place[node] >= 0:  # it has a row, or has got its links after its parent's
            continue
        top = 1
        stack[0, 0], stack[0, 1], stack[0, 2] = node, child[node], -1
        while top > 0:
            top -= 1
            owner, head, before = stack[top, 0], stack[top, 1], stack[top, 2]
            if before < 0:
                place[owner] = rows_end + n
            else:
                fails[before] = rows_end + n
            tail[owner] = n
            labels[n] = label_of[head] if head != 0 else NO_CHILD
            n += 1
            if head == 0:
                continue
            if sibling[head] != 0:
                stack[top, 0], stack[top, 1], stack[top, 2] = owner, sibling[head], n - 1
                top += 1
            if 0 <= place[head] < rows_end:
                labels[n], fails[n], tail[head] = NO_CHILD, place[head], n
                n += 1
            else:
                stack[top, 0], stack[top, 1], stack[top, 2] = head, child[head], -1
                top += 1
    return tail


@jit
def _connect(
    child: Ints, sibling: Ints, label_of: Shorts, own: Ints, order: Ints, place: Ints, tail: Ints, n_classes: int,
    automaton: Automaton,
) -> None:  # fmt: skip
    """Failures, rows and outputs, from the root down: those of states nearer to the root are known then."""
    _, table, labels, fails, outputs, shorter = automaton
    rows_end = table.size
    fail = np.zeros(child.size, np.uint32)
    filled = np.full(n_classes + 1, -1, np.int32)  # the node in whose row a class was filled in last
    for node in order:
        has_row = place[node] < rows_end
        if not has_row:
            label = labels[tail[node]] & LABEL
            fails[tail[node]] = _alternative(labels, fails, rows_end, np.uint64(fail[node]), label)
        head = child[node]
        while head != 0:
            label = np.uint64(label_of[head])
            if node != 0:
                fail[head] = next_state(table, labels, fails, np.uint64(fail[node]), label) & STATE
            code = longest_output(table, outputs, np.uint64(fail[head]))
            if own[head] != 0:
                shorter[own[head]] = code
                code = np.int64(own[head])
            _set_output(table, labels, outputs, place[head], tail[head], code)
            if has_row:
                filled[label] = node
                table[place[node] + label_of[head]] = np.uint64(place[head]) | (FOUND if code != 0 else _ZERO)
            head = sibling[head]
        if has_row and node != 0:
            _fill_row(table, labels, fails, place[node], np.uint64(fail[node]), filled, node)


@jit
def _alternative(labels: Shorts, fails: States, rows_end: int, state: Scalar, label: Scalar) -> Scalar:
    """The next state after failures that has a row or a child of another class."""
    while state >= np.uint64(rows_end):
        link = state - np.uint64(rows_end)
        if labels[link] & LABEL != label and labels[link] & LABEL != NO_CHILD:
            break
        state = np.uint64(fails[link])
    return state


@jit
def _set_output(table: States, labels: Shorts, outputs: Ints, place: int, tail: int, code: int) -> None:
    """Enter the longest output of a state, in its row and the link in front of it, or in its link."""
    link = place - table.size
    if link < 0:
        table[place] = code
        link = tail
    if link >= 0 and code != 0:
        outputs[link] = code
        labels[link] = np.uint64(labels[link]) | _FOUND_LABEL


@jit
def _fill_row(table: States, labels: Shorts, fails: States, place: int, state: Scalar, filled: Ints, node: int) -> None:
    """Enter what failures lead to for classes that the node itself has no child for; the nearest failure counts."""
    while state >= np.uint64(table.size):
        link = state - np.uint64(table.size)
        label = labels[link] & LABEL
        if label != NO_CHILD and filled[label] != node:
            filled[label] = node
            table[place + np.int64(label)] = next_state(table, labels, fails, state, label)
        state = np.uint64(fails[link])
    for label in range(1, filled.size):
        if filled[label] != node:
            table[place + label] = table[np.int64(state) + label]


@jit
def failures_end(table: States, fails: States) -> bool:
    """Whether following failures from any link ends at a row: what a search relies on."""
    known = np.zeros(fails.size, np.bool_)
    on_way = np.zeros(fails.size, np.bool_)
    for first in range(fails.size):
        link = first
        while link >= 0 and not known[link]:
            if on_way[link]:
                return False
            on_way[link] = True
            link = np.int64(fails[link]) - table.size
        link = first
        while link >= 0 and not known[link]:
            known[link] = True
            link = np.int64(fails[link]) - table.size
    return True
