"""The arrays of a matching tree, and the steps by which one grows and shrinks.

Theory of operation
-------------------
An edge leads to exactly one node and a node is entered by exactly one edge, so a row of `nodes` is both: the edge's
label, and the node's test. A label is a code (a value of the tested attribute), a set of codes or its complement, or
`*`. A child is found by one open-addressed table over all (parent, label) pairs; the children behind sets are,
besides, a list at their parent, because a search has to try each of them. Clauses hang at the node where their last
test is passed.

Freed rows of `nodes`, `entries` and `sets` are chained and used again; freed clause ids are chained in `clauses`.
Node 0 does not belong to the tree: its children, labelled by number, are the roots of the subtrees (one, without
factoring).

No kernel here grows an array: the caller sees to it that there is room.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wherecast.kernels.arrays import Ints, Longs
from wherecast.kernels.jit import Scalar, inlined, jit

#: No row, no level, no test.
NONE = -1
#: The label of a `*` edge. Labels from 0 up are codes, labels below are sets, see `set_label`.
STAR = -1
#: The test of a node that looks at the value itself.
EXAMINE = -1
#: Columns of `nodes`.
PARENT, LABEL, HASH, LEVEL, TEST, STARS, SETS, POINTS, ENTRY, NEXT, PREVIOUS = range(11)
#: Columns of `entries`.
CLAUSE, NODE, FOLLOWING, PRECEDING, TWIN = range(5)
#: Columns of `sets`; the hash has the same place as in `nodes`.
FIRST, SIZE, _, USES = range(4)
#: Places in `counts`: rows ever used and first free row of each table, rows in use, intervals used and in use,
#: and how many rows an insertion would have needed when it stopped for want of room.
NODES, FREE_NODE, LIVE_NODES, ENTRIES, FREE_ENTRY, LIVE_ENTRIES, SET_ROWS, FREE_SET = range(8)
LIVE_SETS, POOL, LIVE_POOL, CLAUSES, FREE_CLAUSE, LIVE_CLAUSES, WANTED_NODES, WANTED_ENTRIES = range(8, 16)


class Tree(NamedTuple):
    """A matching tree; what is stored."""

    nodes: Ints  # (rows, 11) see PARENT and following; LEVEL is NONE where nothing is tested
    table: Ints  # power of two, at least twice the nodes: node by (parent, label), NONE where empty
    entries: Ints  # (rows, 5) a clause at a node: clause, node, next and previous at the node, next of the clause
    clauses: Ints  # (ids,) first entry; of a free id, -3 - the next free id (NONE after the last)
    sets: Ints  # (rows, 4) first interval, number of intervals (0: free row), hash, uses
    set_table: Ints  # power of two, at least twice the sets: set by content
    lo: Ints  # intervals of all sets, ascending and not adjacent within a set
    hi: Ints
    counts: Longs  # (16,) see NODES and following


@inlined
def hash_pair(a: Scalar, b: Scalar) -> Scalar:
    """31 well mixed bits of two numbers."""
    h = ((np.int64(a) * 2654435769) & 0xFFFFFFFF) ^ ((np.int64(b) * 2246822519) & 0xFFFFFFFF)
    h = ((h ^ (h >> 15)) * 739982445) & 0xFFFFFFFF
    return (h ^ (h >> 12)) & 0x7FFFFFFF


@inlined
def set_label(row: Scalar, outside: Scalar) -> Scalar:
    """The label of an edge for codes inside a set, or outside of it."""
    return -2 - (2 * row + outside)


@inlined
def label_set(label: Scalar) -> Scalar:
    return (-2 - label) >> 1


@inlined
def label_outside(label: Scalar) -> Scalar:
    return (-2 - label) & 1


@inlined
def add_row(table: Ints, rows: Ints, row: Scalar) -> None:
    """Enter a row under its HASH."""
    mask = table.size - 1
    at = rows[row, HASH] & mask
    while table[at] >= 0:
        at = (at + 1) & mask
    table[at] = row


@inlined
def drop_row(table: Ints, rows: Ints, row: Scalar) -> None:
    """Take a row out, moving back those that it had pushed on: no tombstones, so a table does not wear out."""
    mask = table.size - 1
    at = rows[row, HASH] & mask
    while table[at] != row:
        at = (at + 1) & mask
    hole = at
    at = (at + 1) & mask
    while table[at] >= 0:
        home = rows[table[at], HASH] & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            table[hole] = table[at]
            hole = at
        at = (at + 1) & mask
    table[hole] = NONE
    rows[row, HASH] = NONE


@jit
def fill_table(table: Ints, rows: Ints, n: Scalar) -> None:
    """Enter all rows that have a hash into an empty table."""
    for row in range(n):
        if rows[row, HASH] >= 0:
            add_row(table, rows, row)


@inlined
def find_child(nodes: Ints, table: Ints, parent: Scalar, label: Scalar) -> Scalar:
    """The child behind an edge, or NONE."""
    if label == STAR:
        return np.int64(nodes[parent, STARS])
    mask = table.size - 1
    at = hash_pair(parent, label) & mask
    while table[at] >= 0:
        node = np.int64(table[at])
        if nodes[node, PARENT] == parent and nodes[node, LABEL] == label:
            return node
        at = (at + 1) & mask
    return np.int64(NONE)


@inlined
def free_set(tree: Tree, row: Scalar) -> None:
    drop_row(tree.set_table, tree.sets, row)
    tree.counts[LIVE_SETS] -= 1
    tree.counts[LIVE_POOL] -= tree.sets[row, SIZE]
    tree.sets[row, SIZE] = 0
    tree.sets[row, FIRST] = tree.counts[FREE_SET]
    tree.counts[FREE_SET] = row


@inlined
def use_label(tree: Tree, label: Scalar) -> None:
    """Count a use of the set that a label names, if it names one."""
    if label < STAR:
        tree.sets[label_set(label), USES] += 1


@inlined
def release_label(tree: Tree, label: Scalar) -> None:
    """Take back a use; a set that nobody uses is freed."""
    if label < STAR:
        row = label_set(label)
        tree.sets[row, USES] -= 1
        if tree.sets[row, USES] == 0:
            free_set(tree, row)


@inlined
def attach(tree: Tree, node: Scalar, parent: Scalar, label: Scalar) -> None:
    """Make a node the child of another, by an edge that is not there yet."""
    nodes = tree.nodes
    nodes[node, PARENT], nodes[node, LABEL] = parent, label
    nodes[node, HASH] = nodes[node, NEXT] = nodes[node, PREVIOUS] = NONE
    if label == STAR:
        nodes[parent, STARS] = node
        return
    nodes[node, HASH] = hash_pair(parent, label)
    add_row(tree.table, nodes, node)
    if label >= 0:
        nodes[parent, POINTS] += 1
        return
    head = nodes[parent, SETS]
    nodes[node, NEXT] = head
    if head >= 0:
        nodes[head, PREVIOUS] = node
    nodes[parent, SETS] = node


@inlined
def detach(tree: Tree, node: Scalar) -> None:
    """Undo `attach`."""
    nodes = tree.nodes
    parent, label = nodes[node, PARENT], nodes[node, LABEL]
    if label == STAR:
        nodes[parent, STARS] = NONE
        return
    drop_row(tree.table, nodes, node)
    if label >= 0:
        nodes[parent, POINTS] -= 1
        return
    after, before = nodes[node, NEXT], nodes[node, PREVIOUS]
    if after >= 0:
        nodes[after, PREVIOUS] = before
    if before >= 0:
        nodes[before, NEXT] = after
    else:
        nodes[parent, SETS] = after


@inlined
def add_node(tree: Tree, parent: Scalar, label: Scalar) -> Scalar:
    """A new node without test, behind a new edge. The edge's set, if it has one, counts one more use."""
    nodes, counts = tree.nodes, tree.counts
    node = counts[FREE_NODE]
    if node >= 0:
        counts[FREE_NODE] = nodes[node, NEXT]
    else:
        node = counts[NODES]
        counts[NODES] += 1
    counts[LIVE_NODES] += 1
    nodes[node, LEVEL] = nodes[node, TEST] = nodes[node, STARS] = nodes[node, SETS] = nodes[node, ENTRY] = NONE
    nodes[node, POINTS] = 0
    use_label(tree, label)
    attach(tree, node, parent, label)
    return node


@inlined
def free_node(tree: Tree, node: Scalar) -> None:
    """Put a detached node back: a row without parent is free."""
    tree.nodes[node, PARENT] = tree.nodes[node, HASH] = NONE
    tree.nodes[node, NEXT] = tree.counts[FREE_NODE]
    tree.counts[FREE_NODE] = node
    tree.counts[LIVE_NODES] -= 1


@inlined
def step(tree: Tree, node: Scalar, label: Scalar) -> Scalar:
    """The child behind an edge, made if it is missing."""
    child = find_child(tree.nodes, tree.table, node, label)
    return child if child >= 0 else add_node(tree, node, label)


@inlined
def hand_over(tree: Tree, giver: Scalar, taker: Scalar) -> None:
    """Move all clauses of a node to one that has none."""
    entry = tree.nodes[giver, ENTRY]
    tree.nodes[taker, ENTRY], tree.nodes[giver, ENTRY] = entry, NONE
    while entry >= 0:
        tree.entries[entry, NODE] = taker
        entry = tree.entries[entry, FOLLOWING]


@inlined
def hang(tree: Tree, clause: Scalar, node: Scalar) -> None:
    """Enter a clause at a node."""
    entries, counts = tree.entries, tree.counts
    entry = counts[FREE_ENTRY]
    if entry >= 0:
        counts[FREE_ENTRY] = entries[entry, FOLLOWING]
    else:
        entry = counts[ENTRIES]
        counts[ENTRIES] += 1
    counts[LIVE_ENTRIES] += 1
    head = tree.nodes[node, ENTRY]
    entries[entry, CLAUSE], entries[entry, NODE] = clause, node
    entries[entry, FOLLOWING], entries[entry, PRECEDING] = head, NONE
    entries[entry, TWIN] = tree.clauses[clause]
    if head >= 0:
        entries[head, PRECEDING] = entry
    tree.nodes[node, ENTRY] = entry
    tree.clauses[clause] = entry


@inlined
def unhang(tree: Tree, entry: Scalar) -> Scalar:
    """Take an entry out; returns its node."""
    entries, counts = tree.entries, tree.counts
    node, after, before = entries[entry, NODE], entries[entry, FOLLOWING], entries[entry, PRECEDING]
    if after >= 0:
        entries[after, PRECEDING] = before
    if before >= 0:
        entries[before, FOLLOWING] = after
    else:
        tree.nodes[node, ENTRY] = after
    entries[entry, FOLLOWING] = counts[FREE_ENTRY]
    counts[FREE_ENTRY] = entry
    counts[LIVE_ENTRIES] -= 1
    return node
