"""Searching the trees of `kernels.binary`: the tree of an event, the subscriptions it finds there, what that took.

Theory of operation
-------------------
At a node the search follows the edge of the event's value and the `*` edge. It goes on along `*` at once, where the next
node usually stands next in memory, and keeps the other child for later. What it keeps lies on ever deeper levels, so
k + 1 places are enough.

`tally_search` walks the same trees and counts what the paper's algorithm would do in trees whose chains are stored node
by node: a chain that is skipped or compared as a row counts for each of its levels up to the one that stops the search.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Ints, Longs, Words
from wherecast.kernels.jit import Scalar, hot, inlined, popcount
from wherecast.papers.rapidmatch.kernels.binary import (
    BLOCK,
    BLOCK_END,
    NODE,
    ON_STAR,
    ON_ZERO,
    bit_at,
    has_bit,
    level_of,
    next_level,
    property_at,
)


@hot
def choose_trees(events: Words, k: int, first_tree: Longs, chosen: Ints) -> None:
    """The tree of each event.

    `first_tree[t]` is the first of the t + 1 trees for events with t ones, or -1; its last entry is the tree for
    events with more.
    """
    last = first_tree.size - 1
    for e in range(len(events)):
        t = 0
        for w in range(events.shape[1]):
            t += popcount(events[e, w])
        if t >= last or first_tree[t] < 0:  # no event has so few ones, if the partition is right
            chosen[e] = first_tree[last]
            continue
        block = 0
        while has_bit(events, e, block * k // (t + 1), (block + 1) * k // (t + 1)):
            block += 1
        chosen[e] = first_tree[t] + block


@inlined
def holds(rows: Words, row: Scalar, events: Words, event: Scalar, words: Scalar) -> Scalar:
    """Whether an event has the value of every property that a row tests."""
    for w in range(words):
        if (events[event, w] ^ rows[row, words + w]) & rows[row, w]:
            return False
    return True


@hot
def search_trees(
    nodes: Ints, rows: Words, events: Words, chosen: Ints, first: int, stack: Ints, out: Ints, counts: Longs
) -> int:
    """List the rows that hold for each event, from the first on; the event at which `out` was full, or their number."""
    words = events.shape[1]
    n = 0
    for e in range(first, len(events)):
        begin = n
        node = nodes[NODE * (1 + chosen[e]) + ON_STAR]
        depth = 0
        while True:
            while node > 0:
                at = np.int64(nodes[node])
                child = nodes[node + ON_ZERO + bit_at(events, e, at)]
                node = nodes[node + ON_STAR]
                if child > 0:
                    stack[depth] = child
                    depth += 1
                elif child < 0 and holds(rows, np.int64(~child), events, e, words):
                    if n == out.size:
                        return e
                    out[n] = ~child
                    n += 1
            if node < 0 and holds(rows, np.int64(~node), events, e, words):
                if n == out.size:
                    return e
                out[n] = ~node
                n += 1
            if depth == 0:
                break
            depth -= 1
            node = stack[depth]
        counts[e] = n - begin
    return len(events)


#: Places in the totals of `tally_search`.
LEVELS_SKIPPED, NODES, EDGES, STORED_NODES, ROWS_COMPARED, MATCHES = range(6)


@inlined
def tally_leaf(
    rows: Words, row: Scalar, events: Words, event: Scalar, level: Scalar, start: Scalar, k: Scalar, levels: Scalar,
    totals: Longs,
) -> None:  # fmt: skip
    """Count the chain that a leaf stands for, from a level on: one node and one edge a level, to the first that fails."""
    words = events.shape[1]
    totals[ROWS_COMPARED] += 1
    here = level
    while True:
        test = next_level(rows, row, here, start, k, levels)
        if test == levels:
            totals[NODES] += levels - level
            totals[EDGES] += levels - level
            totals[MATCHES] += 1
            return
        at = property_at(test, start, k, levels)
        if bit_at(events, event, at) != bit_at(rows, row, words * 64 + at):
            totals[NODES] += test - level + 1
            totals[EDGES] += test - level
            return
        here = test + 1


@hot
def tally_search(
    nodes: Ints, rows: Words, events: Words, chosen: Ints, trees: Longs, k: int, stack: Longs, totals: Longs
) -> None:
    """Add up what the search of all events takes."""
    for e in range(len(events)):
        block, end = trees[chosen[e], BLOCK], trees[chosen[e], BLOCK_END]
        start, levels = end % k, k - (end - block)
        totals[LEVELS_SKIPPED] += end - block
        stack[0], stack[1] = nodes[NODE * (1 + chosen[e]) + ON_STAR], 0
        depth = 2
        while depth > 0:
            depth -= 2
            node, level = stack[depth], stack[depth + 1]
            while node > 0:
                at = np.int64(nodes[node])
                there = level_of(at, start, k, levels)
                child, star = nodes[node + ON_ZERO + bit_at(events, e, at)], nodes[node + ON_STAR]
                totals[STORED_NODES] += 1
                totals[NODES] += there - level
                totals[EDGES] += there - level
                level = there
                if at < k:
                    totals[NODES] += 1
                    totals[EDGES] += np.int64(child != 0) + np.int64(star != 0)
                    level += 1
                if child > 0:
                    stack[depth], stack[depth + 1] = child, level
                    depth += 2
                elif child < 0:
                    tally_leaf(rows, np.int64(~child), events, e, level, start, k, levels, totals)
                node = np.int64(star)
            if node < 0:
                tally_leaf(rows, ~node, events, e, level, start, k, levels, totals)


@hot
def walk_trees(nodes: Ints, trees: Longs, k: int, n_rows: int, seen: npt.NDArray[np.bool_], stack: Ints) -> bool:
    """Whether the links of trees out of a file lead to nodes of later levels, each by one link, and to rows.

    On level k there are lists: the next node hangs at `*` and a row at 0. `seen` is True for node 0 and the heads only,
    `stack` has as many places as `nodes`.
    """
    for t in range(len(trees)):
        end, levels = trees[t, BLOCK_END], k - trees[t, BLOCK_END] + trees[t, BLOCK]
        start = end % k
        head = NODE * (1 + t)
        stack[0] = head
        depth = 1
        while depth > 0:
            depth -= 1
            node = np.int64(stack[depth])
            level: Scalar = np.int64(-1)
            if node != head:
                level = level_of(np.int64(nodes[node]), start, k, levels)
            for field in range(ON_ZERO if node != head else ON_STAR, NODE):
                child = np.int64(nodes[node + field])
                if child < 0 and ~child >= n_rows:
                    return False
                if child <= 0:
                    continue
                if child % NODE or child >= nodes.size or seen[child // NODE] or nodes[child] < 0 or nodes[child] > k:
                    return False
                there = level_of(np.int64(nodes[child]), start, k, levels)
                in_list = level == levels and there == levels and field == ON_STAR
                if there > levels or (there == levels and nodes[child] != k) or (there <= level and not in_list):
                    return False
                seen[child // NODE] = True
                stack[depth] = child
                depth += 1
    return True
