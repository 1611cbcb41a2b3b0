"""Successor node sets: where a search goes on when it is stuck, found by looking at the tree alone.

Theory of operation
-------------------
Section 5 of the paper. Suppose a search follows value edges alone, and comes to node v. What it has not looked at yet
are the paths that have `*` where the path to v has a value. Of those, v's *successors* are the next ones: v's path
with one value of its last run of values replaced by `*`. (Values before an earlier `*` were replaced on the way there,
so no path comes up twice.) Where that path is not in the tree, its own successors stand in for it. For v behind edge
`c = l` of node u this says

    successors(v) = {u's * child} and, for each w of successors(u), advance(w)
    advance(w)    = {w's child for l}                                       if w tests c and has one
                    {w's * child} and advance(x) for x of successors(w)     if w tests c and has none
                    {w}                                                     if w tests another level

The last line is what collapsed `*` chains ask for: w has to make its own test. So does a w at which clauses hang,
which must be reported. Nodes behind `*` have no successors.

Sets of codes: an event may satisfy several edges of one node. A node with such edges is searched as without
successors, that is all edges and the `*` edge, then its own successors, and its children have none.

`successors(w)` is needed only for nodes w that are no deeper than u, so nodes are worked off by depth.
"""

from __future__ import annotations

import numpy as np

from wherecast.kernels.arrays import Ints, Longs
from wherecast.kernels.jit import Scalar, hot, inlined
from wherecast.papers.gryphon.kernels.search import Links
from wherecast.papers.gryphon.kernels.tree import ENTRY, LABEL, LEVEL, NONE, PARENT, SETS, STARS, Tree, find_child

#: A node has at most this many successors more than its parent; beyond, those of the parent are taken as they are.
MOST = 256


@hot
def measure_depths(nodes: Ints, depth: Ints) -> None:
    """Edges from node 0 to each node; 0 for free rows. `depth` starts as NONE everywhere."""
    for start in range(depth.size):
        if nodes[start, PARENT] < 0:
            depth[start] = 0
    for start in range(depth.size):
        node, steps = start, 0
        while depth[node] == NONE:
            node = nodes[node, PARENT]
            steps += 1
        total = depth[node] + steps
        node = start
        while depth[node] == NONE:
            depth[node] = total
            total -= 1
            node = nodes[node, PARENT]


@inlined
def put(ids: Ints, n: Scalar, node: Scalar) -> Scalar:
    """Append a node, if there is one."""
    if node >= 0:
        ids[n] = node
        n += 1
    return n


@inlined
def advance(tree: Tree, links: Links, parent: Scalar, label: Scalar, n: Scalar, stack: Ints) -> Scalar:
    """Append the successors of a parent, each a step further on the parent's test; NONE if they become too many."""
    nodes, table = tree.nodes, tree.table
    level, most = nodes[parent, LEVEL], n + MOST
    top = 0
    for k in range(links.first[parent], links.end[parent]):
        stack[top] = links.ids[k]
        top += 1
    while top > 0:
        top -= 1
        node = np.int64(stack[top])
        child = node
        if nodes[node, LEVEL] == level and nodes[node, SETS] < 0 and nodes[node, ENTRY] < 0:
            child = find_child(nodes, table, node, label)
            if child < 0:
                child = np.int64(nodes[node, STARS])
                if top + links.end[node] - links.first[node] > stack.size:
                    return NONE
                for k in range(links.first[node], links.end[node]):
                    stack[top] = links.ids[k]
                    top += 1
        if n == most:
            return NONE
        n = put(links.ids, n, child)
    return n


@hot
def link_nodes(tree: Tree, order: Longs, start: Scalar, n: Scalar, links: Links, stack: Ints) -> tuple[Scalar, Scalar]:
    """Find the successors of order[start:], nodes by depth, and append them to links.ids[:n].

    Returns the first place of `order` for which there was no room, and the new length.
    """
    nodes = tree.nodes
    for at in range(start, order.size):
        node = order[at]
        parent, label = np.int64(nodes[node, PARENT]), np.int64(nodes[node, LABEL])
        links.first[node] = links.end[node] = n
        if parent <= 0 or label < 0 or nodes[parent, SETS] >= 0:
            continue
        size = links.end[parent] - links.first[parent]
        if n + 1 + max(np.int64(MOST), size) > links.ids.size:
            return at, n
        n = put(links.ids, n, nodes[parent, STARS])
        moved = advance(tree, links, parent, label, n, stack) if size <= stack.size else np.int64(NONE)
        if moved < 0:
            moved = n
            for k in range(links.first[parent], links.end[parent]):
                moved = put(links.ids, moved, links.ids[k])
        n = moved
        links.end[node] = n
    return order.size, n
