"""Search trees over binary properties: nodes in one flat array, inserted into, removed from, laid out anew.

Theory of operation
-------------------
A tree tests the properties level by level, in cyclic order from property `start`; level l is property (start + l) mod k,
and the tree ends after `levels` of them. A node is four 32-bit numbers:

    property, child on 0, child on 1, child on *

A child is 0 (none), the place of a node (positive, a multiple of 4), or `~row` (negative): a *leaf*, one subscription.
Two kinds of single-child chains are not stored. A node whose only edge is `*` is left out: the edge leads to the next
node that has another. A subtree with one subscription is a leaf, whatever levels are left: the search compares the
event with the whole row of the subscription, and the rows are shared by all trees. So a tree has at most one node per
test that two of its subscriptions share or part at, and its size does not depend on k.

Subscriptions that a tree cannot tell apart (they differ in properties it skips, or not at all) are a list at the end of
their path. A list is made of the same nodes, on the property k, which is 0 in every event: a subscription hangs at 0,
the rest of the list at `*`. The search needs no case for it.

Node 0 is not used. Node 1 + i is the head of tree i: its `*` child is the root. Nodes that were given back are a chain
through their `*` fields. Levels grow along every path, so no path is longer than k, lists aside.

A row is the subscription as bits: `words` words that say which properties it tests, then as many that say which of
them are 1. `words` is k // 64 + 1, so that property k has a place.
"""

from __future__ import annotations

import numpy as np

from wherecast.kernels.arrays import Ints, Longs, Words
from wherecast.kernels.jit import ONE, ZERO, Scalar, hot, inlined, popcount, trailing_zeros

#: Fields of a node.
ON_ZERO, ON_ONE, ON_STAR, NODE = 1, 2, 3, 4
#: Columns of `trees`: the block whose properties a tree does not test, and its set: n1 at most, n1* at least.
BLOCK, BLOCK_END, MOST_ONES, LEAST_OPEN = range(4)
#: Places in `state`: where the next new node goes, and the first of those given back (0: none).
USED, FREE = 0, 1


@inlined
def bit_at(words: Words, row: Scalar, at: Scalar) -> Scalar:
    """One bit of a row, 0 or 1."""
    return np.int64((words[row, at >> 6] >> np.uint64(at & 63)) & ONE)


@inlined
def has_bit(words: Words, row: Scalar, first: Scalar, end: Scalar) -> Scalar:
    """Whether a row has a bit in first .. end - 1."""
    at = first
    while at < end:
        word = words[row, at >> 6] >> np.uint64(at & 63)
        step = 64 - (at & 63)
        if at + step > end:
            word = word << np.uint64(64 - (end - at))  # what is beyond the end goes first
        if word != ZERO:
            return True
        at += step
    return False


@inlined
def next_level(rows: Words, row: Scalar, level: Scalar, start: Scalar, k: Scalar, levels: Scalar) -> Scalar:
    """The first level, from this one on, that a row tests; `levels` if there is none."""
    while level < levels:
        at = start + level
        if at >= k:
            at -= k
        word = rows[row, at >> 6] >> np.uint64(at & 63)
        if word != ZERO:
            level += trailing_zeros(word)
            break
        step = 64 - (at & 63)
        level += step if at + step < k else k - at
    return min(level, levels)


@inlined
def property_at(level: Scalar, start: Scalar, k: Scalar, levels: Scalar) -> Scalar:
    """The property of a level; k at the end of the path."""
    if level >= levels:
        return k
    return start + level if start + level < k else start + level - k


@inlined
def level_of(at: Scalar, start: Scalar, k: Scalar, levels: Scalar) -> Scalar:
    """The level of a property; `levels` for k."""
    if at == k:
        return levels
    return at - start if at >= start else at - start + k


@inlined
def new_node(nodes: Ints, state: Longs, at: Scalar) -> Scalar:
    """A node on a property, without children."""
    node = state[FREE]
    if node != 0:
        state[FREE] = nodes[node + ON_STAR]
    else:
        node = state[USED]
        state[USED] = node + NODE
    nodes[node] = at
    nodes[node + ON_ZERO] = 0
    nodes[node + ON_ONE] = 0
    nodes[node + ON_STAR] = 0
    return node


@inlined
def side(rows: Words, row: Scalar, words: Scalar, at: Scalar, tested: Scalar) -> Scalar:
    """The field of a node on property `at` where a row goes on; the end of a path counts as a 0."""
    return ON_ZERO + bit_at(rows, row, 64 * words + at) if tested else ON_STAR


@inlined
def insert_row(
    nodes: Ints, state: Longs, rows: Words, row: Scalar, head: Scalar, start: Scalar, k: Scalar, levels: Scalar
) -> None:
    """Put a row into a tree. There must be room for k + 1 nodes."""
    words = rows.shape[1] // 2
    slot, here = head + ON_STAR, 0
    level = next_level(rows, row, 0, start, k, levels)
    while nodes[slot] != 0:
        child = np.int64(nodes[slot])
        if child > 0:
            there = level_of(np.int64(nodes[child]), start, k, levels)
        else:
            there = next_level(rows, ~child, here, start, k, levels)
        here = there + 1 if there < level else level + 1
        if child > 0 and there < level:
            slot = child + ON_STAR
        elif child > 0 and there == level and level < levels:
            slot = child + side(rows, row, words, np.int64(nodes[child]), True)
            level = next_level(rows, row, level + 1, start, k, levels)
        else:
            # A leaf, a later node, or a list: a new node takes the place and what was there hangs below it.
            first = min(level, there)
            at = property_at(first, start, k, levels)
            node = new_node(nodes, state, at)
            if first == levels or child > 0:
                nodes[node + ON_STAR] = child
            else:
                nodes[node + side(rows, ~child, words, at, there == first)] = child
            nodes[slot] = node
            slot = node + side(rows, row, words, at, level == first)
            if level == first:
                level = next_level(rows, row, level + 1, start, k, levels)
    nodes[slot] = ~row


@hot
def fill_tree(
    nodes: Ints, state: Longs, rows: Words, ids: Ints, first: int, head: int, start: int, k: int, levels: int
) -> int:
    """Put the rows `ids[first:]` into a tree until there may be no room; the first that is left."""
    for i in range(first, ids.size):
        if state[USED] + NODE * (k + 1) > nodes.size:
            return i
        insert_row(nodes, state, rows, np.int64(ids[i]), head, start, k, levels)
    return ids.size


@inlined
def remove_row(
    nodes: Ints, state: Longs, rows: Words, row: Scalar, head: Scalar, start: Scalar, k: Scalar, levels: Scalar,
    path: Longs,
) -> None:  # fmt: skip
    """Take a row out of a tree that has it; what is left of its path is collapsed as if it had never been there."""
    words = rows.shape[1] // 2
    slot, depth = head + ON_STAR, 0
    level = next_level(rows, row, 0, start, k, levels)
    while np.int64(nodes[slot]) != ~row:
        node = np.int64(nodes[slot])
        there = level_of(np.int64(nodes[node]), start, k, levels)
        if there == levels and depth >= 2 and nodes[nodes[path[depth - 2]]] == k:
            path[depth - 2] = path[depth - 1]  # in a list, the node before is the only one that can collapse
            depth -= 1
        path[depth] = slot
        depth += 1
        if there < level:
            slot = node + ON_STAR
        elif there < levels:
            slot = node + side(rows, row, words, np.int64(nodes[node]), True)
            level = next_level(rows, row, level + 1, start, k, levels)
        else:
            slot = node + (ON_ZERO if np.int64(nodes[node + ON_ZERO]) == ~row else ON_STAR)
    nodes[slot] = 0
    while depth > 0:
        depth -= 1
        node = np.int64(nodes[path[depth]])
        zero, one, star = nodes[node + ON_ZERO], nodes[node + ON_ONE], nodes[node + ON_STAR]
        if zero == 0 and one == 0:
            nodes[path[depth]] = star
        elif star == 0 and ((zero < 0 and one == 0) or (one < 0 and zero == 0)):
            nodes[path[depth]] = zero + one
        else:
            break
        nodes[node + ON_ZERO] = nodes[node + ON_ONE] = 0
        nodes[node + ON_STAR] = state[FREE]
        state[FREE] = node


@hot
def copy_tree(source: Ints, target: Ints, state: Longs, head: int, stack: Longs) -> None:
    """Append the first tree of `source` to `target` in the order in which a search reads it. There must be room."""
    stack[0], stack[1] = source[NODE + ON_STAR], head + ON_STAR
    depth = 2
    while depth > 0:
        depth -= 2
        node, slot = stack[depth], stack[depth + 1]
        while node > 0:
            copy = state[USED]
            state[USED] = copy + NODE
            target[slot] = copy
            target[copy] = source[node]
            for field in range(ON_ZERO, ON_STAR):
                child = source[node + field]
                target[copy + field] = child
                if child > 0:
                    stack[depth], stack[depth + 1] = child, copy + field
                    depth += 2
            slot = copy + ON_STAR
            node = np.int64(source[node + ON_STAR])
        target[slot] = node


# --- the sets and blocks of RAPIDMatch --------------------------------------------------------------------------------


@inlined
def belongs(rows: Words, row: Scalar, sizes: Ints, trees: Longs, t: Scalar) -> Scalar:
    """Whether a row is in the set S_i of tree t and has no 1 in its block."""
    if sizes[row, 0] > trees[t, MOST_ONES] or sizes[row, 1] < trees[t, LEAST_OPEN]:
        return False
    ones = 32 * rows.shape[1]  # where their bits begin
    return not has_bit(rows, row, ones + trees[t, BLOCK], ones + trees[t, BLOCK_END])


@hot
def measure_rows(rows: Words, k: int, ids: Ints, sizes: Ints) -> None:
    """For each row, n1 (its ones) and n1* (its ones and stars)."""
    words = rows.shape[1] // 2
    for i in range(ids.size):
        ones, tested = 0, 0
        for w in range(words):
            tested += popcount(rows[ids[i], w])
            ones += popcount(rows[ids[i], words + w])
        sizes[ids[i], 0] = ones
        sizes[ids[i], 1] = k - tested + ones


@hot
def list_members(rows: Words, sizes: Ints, ids: Ints, trees: Longs, t: int, out: Ints) -> int:
    """Those of `ids` that belong to tree t; how many there are."""
    n = 0
    for i in range(ids.size):
        if belongs(rows, np.int64(ids[i]), sizes, trees, t):
            out[n] = ids[i]
            n += 1
    return n


@hot
def insert_rows(
    nodes: Ints, state: Longs, rows: Words, sizes: Ints, trees: Longs, k: int, ids: Ints, place: Longs
) -> bool:
    """Put rows into every tree they belong to; False when there may be no room, to be called again with more.

    `place` is where to go on: the position in `ids`, and the tree.
    """
    for i in range(place[0], ids.size):
        for t in range(place[1] if i == place[0] else 0, len(trees)):
            if belongs(rows, np.int64(ids[i]), sizes, trees, t):
                if state[USED] + NODE * (k + 1) > nodes.size:
                    place[0], place[1] = i, t
                    return False
                start, levels = trees[t, BLOCK_END] % k, k - trees[t, BLOCK_END] + trees[t, BLOCK]
                insert_row(nodes, state, rows, np.int64(ids[i]), NODE * (1 + t), start, k, levels)
    return True


@hot
def remove_rows(
    nodes: Ints, state: Longs, rows: Words, sizes: Ints, trees: Longs, k: int, ids: Ints, path: Longs
) -> None:
    """Take rows out of every tree they belong to. `path` has room for k + 3 places."""
    for i in range(ids.size):
        for t in range(len(trees)):
            if belongs(rows, np.int64(ids[i]), sizes, trees, t):
                start, levels = trees[t, BLOCK_END] % k, k - trees[t, BLOCK_END] + trees[t, BLOCK]
                remove_row(nodes, state, rows, np.int64(ids[i]), NODE * (1 + t), start, k, levels, path)
