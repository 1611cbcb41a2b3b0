"""Matching by descent: a shallow tree of table lookups whose leaves are small bitmaps.

Theory of operation
-------------------
The naive matcher looks at every clause. The tree looks at few of them, and at 64 in one instruction:

- A *node* is a list of tests. A *test* takes the event's code in one column, drops its low `shift` bits and looks the
  rest up in a table: direct where the keys are dense, open-addressed hash where they are not. The table names a
  child. A clause is filed under one test of a node, in the few cells that its interval meets, so an event with one
  code per column meets it at most once. Clauses that no test serves are in the node's *rest* leaves.
- A *bitmap leaf* has, per column, one row of bits for each bucket of codes: bit i says whether clause i can hold for
  a code of that bucket. The bucket of a code is some of its middle bits (`(code >> shift) & mask`), so that the same
  form serves an attribute of five values, where rows are exact, and a slice of one with half a million. ANDing one
  row per column leaves the candidates.
- A *row leaf* (few clauses) and the candidates of inexact columns are checked interval by interval; a constraint of
  many intervals is one row that names a sorted list, searched by bisection, so an IN of 10,000 costs 14 steps.

A column is an attribute, except that the second and further constraints of a clause on one array attribute have
columns of their own. A negative code names a list of codes (sorted, distinct); a constraint then holds if any does.

Measured and rejected: binary search instead of tables (three times slower at the root of `range`); leaving the AND
loop as soon as all words are zero (the mispredicted branch costs more than the loads it saves).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.bits import FULL, ONE, ZERO, popcount, trailing_zeros
from wherecast.kernels.jit import inlined, jit

#: Most clauses of one bitmap leaf, in words: its rows and the accumulator stay in the first-level cache.
LEAF_WORDS = 64
#: Fields of a leaf.
SLOT, SIZE, WORDS, COLUMN, COLUMN_END, MAP = range(6)
#: Parts of a packed leaf column: column number | shift | bucket bits | first row.
SHIFT_AT, BITS_AT, ROW_AT = 16, 21, 32

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


class Tree(NamedTuple):
    """The whole index as flat arrays; what is stored and mapped."""

    nodes: Ints  # (nodes, 4) first test, end of tests, first rest leaf, end of rest leaves; node 0 is the root
    tests: Ints  # (tests, 5) column, shift, lowest key, size (negative: hash of -size entries), place in `table`
    table: Ints  # 0 nothing, k > 0 leaf k - 1, k < 0 node -k; a hash holds pairs (key, child)
    leaves: Longs  # (leaves, 6) first slot, slots, words (0: row leaf), first column, end of columns, place in `maps`
    columns: Longs  # (leaf columns,) packed, see SHIFT_AT
    maps: Words  # rows of `words` words
    slots: Ints  # (slots,) clause of each slot
    row_ptr: Ints  # (slots + 1,) constraints still to check for each slot
    row_column: npt.NDArray[np.int16]  # (rows,) column, or ~column when lo:hi is a range of `list_lo`
    row_lo: Ints
    row_hi: Ints
    list_lo: Ints  # sorted disjoint intervals of constraints with several
    list_hi: Ints


class Batch(NamedTuple):
    """Prepared events: one code per column, or ~r for the list `list_codes[list_ptr[r]:list_ptr[r + 1]]`."""

    codes: Ints  # (events, columns)
    list_ptr: Longs
    list_codes: Ints  # ascending and distinct within a list


@inlined
def hash_key(key: int) -> int:
    """Spread neighbouring keys: Knuth's multiplicative hash."""
    return ((np.int64(key) * 2654435769) & 0xFFFFFFFF) >> 7


@inlined
def find_child(tests: Ints, table: Ints, test: int, code: int) -> int:
    """Child for a code: 0 if none."""
    key = code >> tests[test, 1]
    size = np.int64(tests[test, 3])
    start = np.int64(tests[test, 4])
    if size > 0:
        at = key - tests[test, 2]
        return np.int64(table[start + at]) if at >= 0 and at < size else np.int64(0)
    mask = -size - 1
    at = hash_key(key) & mask
    while table[start + 2 * at + 1] != 0:
        if table[start + 2 * at] == key:
            return np.int64(table[start + 2 * at + 1])
        at = (at + 1) & mask
    return np.int64(0)


@inlined
def in_intervals(lo: Ints, hi: Ints, first: int, end: int, code: int) -> bool:
    """Whether a code lies in one of the sorted disjoint intervals first:end."""
    stop = end
    while first < stop:
        middle = (first + stop) >> 1
        if hi[middle] < code:
            first = middle + 1
        else:
            stop = middle
    return first < end and lo[first] <= code


@inlined
def code_holds(code: int, column: int, lo: int, hi: int, list_lo: Ints, list_hi: Ints) -> bool:
    """Whether one code satisfies a stored constraint."""
    if column >= 0:
        return lo <= code and code <= hi
    return in_intervals(list_lo, list_hi, np.int64(lo), np.int64(hi), code)


@jit
def row_holds(tree: Tree, batch: Batch, event: int, row: int) -> bool:
    """Whether a list of codes, or a code and a list of intervals, satisfies a stored constraint: the rare cases."""
    column = np.int64(tree.row_column[row])
    lo, hi = tree.row_lo[row], tree.row_hi[row]
    code = np.int64(batch.codes[event, column if column >= 0 else ~column])
    if code >= 0:
        return code_holds(code, column, lo, hi, tree.list_lo, tree.list_hi)
    for at in range(batch.list_ptr[~code], batch.list_ptr[~code + 1]):
        if code_holds(np.int64(batch.list_codes[at]), column, lo, hi, tree.list_lo, tree.list_hi):
            return True
    return False


@inlined
def slot_holds(tree: Tree, batch: Batch, event: int, slot: int) -> bool:
    """Check the constraints that are left for a slot, rarest first."""
    row_column, row_lo, row_hi, codes = tree.row_column, tree.row_lo, tree.row_hi, batch.codes
    for row in range(tree.row_ptr[slot], tree.row_ptr[slot + 1]):
        column = np.int64(row_column[row])
        code = codes[event, column] if column >= 0 else np.int32(-1)
        if code >= 0:
            if code < row_lo[row] or code > row_hi[row]:
                return False
        elif not row_holds(tree, batch, event, row):
            return False
    return True


@inlined
def gather_rows(columns: Longs, first: int, end: int, words: int, base: int, codes: Ints, event: int, places: Longs) -> int:
    """Where the event's row of each leaf column starts in `maps`; columns with a list of codes are left out."""
    count = 0
    for at in range(first, end):
        packed = columns[at]
        code = np.int64(codes[event, packed & 0xFFFF])
        if code >= 0:
            bucket = (code >> ((packed >> SHIFT_AT) & 31)) & ((1 << ((packed >> BITS_AT) & 31)) - 1)
            places[count] = base + ((packed >> ROW_AT) + bucket) * words
            count += 1
    return count


@inlined
def and_rows(maps: Words, places: Longs, count: int, words: int, size: int, found: Words) -> None:
    """AND `count` rows of `words` words; without rows, everything of `size` slots is found."""
    if count == 0:
        for i in range(words):
            found[i] = FULL if size >= 64 * i + 64 else (ONE << np.uint64(max(size - 64 * i, 0))) - ONE
    elif words < 4:
        for i in range(words):
            word = FULL
            for j in range(count):
                word &= maps[places[j] + i]
            found[i] = word
    else:
        for i in range(0, words, 4):  # words of larger leaves are a multiple of four: one 256-bit register
            word0 = word1 = word2 = word3 = FULL
            for j in range(count):
                at = places[j] + i
                word0 &= maps[at]
                word1 &= maps[at + 1]
                word2 &= maps[at + 2]
                word3 &= maps[at + 3]
            found[i] = word0
            found[i + 1] = word1
            found[i + 2] = word2
            found[i + 3] = word3


@jit
def and_lists(tree: Tree, batch: Batch, event: int, leaf: int, found: Words) -> None:
    """AND the columns in which the event has a list: for each, the OR of the rows of its codes."""
    words = tree.leaves[leaf, WORDS]
    for at in range(tree.leaves[leaf, COLUMN], tree.leaves[leaf, COLUMN_END]):
        packed = tree.columns[at]
        code = batch.codes[event, packed & 0xFFFF]
        if code >= 0:
            continue
        shift = (packed >> SHIFT_AT) & 31
        mask = (1 << ((packed >> BITS_AT) & 31)) - 1
        for i in range(words):
            word = ZERO
            for k in range(batch.list_ptr[~code], batch.list_ptr[~code + 1]):
                bucket = (np.int64(batch.list_codes[k]) >> shift) & mask
                word |= tree.maps[tree.leaves[leaf, MAP] + ((packed >> ROW_AT) + bucket) * words + i]
            found[i] &= word


@inlined
def find_bits(tree: Tree, batch: Batch, event: int, leaf: int, places: Longs, found: Words) -> None:
    """The candidates of a bitmap leaf, as bits."""
    leaves = tree.leaves
    words, first, end = leaves[leaf, WORDS], leaves[leaf, COLUMN], leaves[leaf, COLUMN_END]
    count = gather_rows(tree.columns, first, end, words, leaves[leaf, MAP], batch.codes, event, places)
    and_rows(tree.maps, places, count, words, leaves[leaf, SIZE], found)
    if count < end - first:
        and_lists(tree, batch, event, leaf, found)


@inlined
def search_leaf(tree: Tree, batch: Batch, event: int, leaf: int, places: Longs, found: Words, out: Ints, n: int) -> int:
    """Append the clauses of one leaf that hold to `out[n:]`; return the new n."""
    slots, leaves = tree.slots, tree.leaves
    first, words = leaves[leaf, SLOT], leaves[leaf, WORDS]
    end = first + leaves[leaf, SIZE]
    if words == 0:
        for slot in range(first, end):
            if slot_holds(tree, batch, event, slot):
                out[n] = slots[slot]
                n += 1
        return n
    find_bits(tree, batch, event, leaf, places, found)
    exact = tree.row_ptr[first] == tree.row_ptr[end]
    for i in range(words):
        word = found[i]
        while word != ZERO:
            slot = first + 64 * i + trailing_zeros(word)
            word &= word - ONE
            if exact or slot_holds(tree, batch, event, slot):
                out[n] = slots[slot]
                n += 1
    return n


@inlined
def count_leaf(tree: Tree, batch: Batch, event: int, leaf: int, places: Longs, found: Words) -> int:
    """Number of clauses of one leaf that hold."""
    leaves = tree.leaves
    first, words = leaves[leaf, SLOT], leaves[leaf, WORDS]
    end = first + leaves[leaf, SIZE]
    n = 0
    if words == 0:
        for slot in range(first, end):
            n += slot_holds(tree, batch, event, slot)
        return n
    find_bits(tree, batch, event, leaf, places, found)
    exact = tree.row_ptr[first] == tree.row_ptr[end]
    for i in range(words):
        word = found[i]
        if exact:
            n += popcount(word)
            continue
        while word != ZERO:
            n += slot_holds(tree, batch, event, first + 64 * i + trailing_zeros(word))
            word &= word - ONE
    return n


@inlined
def push_list(tree: Tree, batch: Batch, test: int, code: int, stack: Ints, top: int) -> int:
    """Push the children that a list of codes meets; the list is sorted, so equal keys follow each other."""
    last = np.int64(-1)
    for k in range(batch.list_ptr[~code], batch.list_ptr[~code + 1]):
        element = np.int64(batch.list_codes[k])
        key = element >> tree.tests[test, 1]
        child = find_child(tree.tests, tree.table, test, element)
        if child != 0 and key != last:
            stack[top] = child
            top += 1
        last = key
    return top


@inlined
def push_children(tree: Tree, batch: Batch, event: int, node: int, stack: Ints, top: int) -> int:
    """Push the rest leaves of a node and the children that the event meets; return the new top."""
    nodes, tests, table, codes = tree.nodes, tree.tests, tree.table, batch.codes
    for leaf in range(nodes[node, 2], nodes[node, 3]):
        stack[top] = leaf + 1
        top += 1
    for test in range(nodes[node, 0], nodes[node, 1]):
        code = np.int64(codes[event, tests[test, 0]])
        if code < 0:
            top = push_list(tree, batch, test, code, stack, top)
            continue
        child = find_child(tests, table, test, code)
        stack[top] = child
        top += child != 0
    return top


@jit
def descend(tree: Tree, batch: Batch, start: int, stack_size: int, out: Ints, counts: Longs) -> int:
    """Match events start: into `out`, their numbers into `counts`; return the first event that did not fit.

    A leaf is searched only if all its slots fit into `out`; otherwise the event is given up and the caller comes back
    with a larger array.
    """
    stack = np.empty(stack_size, np.int32)
    places = np.empty(max(batch.codes.shape[1], 1), np.int64)
    found = np.empty(LEAF_WORDS, np.uint64)
    leaves = tree.leaves
    n = 0
    for event in range(start, batch.codes.shape[0]):
        begin = n
        stack[0] = 0
        top = 1
        while top > 0:
            top -= 1
            item = np.int64(stack[top])
            if item <= 0:
                top = push_children(tree, batch, event, -item, stack, top)
            else:
                if n + leaves[item - 1, SIZE] > out.size:
                    return event
                n = search_leaf(tree, batch, event, item - 1, places, found, out, n)
        counts[event] = n - begin
    return batch.codes.shape[0]


@jit
def count_descend(tree: Tree, batch: Batch, stack_size: int, counts: Longs) -> None:
    """Numbers of matches only."""
    stack = np.empty(stack_size, np.int32)
    places = np.empty(max(batch.codes.shape[1], 1), np.int64)
    found = np.empty(LEAF_WORDS, np.uint64)
    for event in range(batch.codes.shape[0]):
        n = 0
        stack[0] = 0
        top = 1
        while top > 0:
            top -= 1
            item = np.int64(stack[top])
            if item <= 0:
                top = push_children(tree, batch, event, -item, stack, top)
            else:
                n += count_leaf(tree, batch, event, item - 1, places, found)
        counts[event] = n
