"""The search of a matching tree: which clauses an event reaches, and how many nodes and edges that takes.

Theory of operation
-------------------
From the root, look at the event's value of the tested attribute, follow the edges that agree with it and the `*`
edge, and report the clauses of every node reached (section 3 of the paper). The order is depth first with a stack of
nodes still to visit; as no node is pushed twice, a stack as long as the tree is long enough.

With *successors* (see `links`), a value edge is followed alone. Its `*` sibling is among the successors of the
node behind it, or of a node further down, and is searched when the search gets stuck there.

An event that has a list of codes in one column follows the edges of each of them. Successors rest on one value per
attribute, so such batches are searched without. Of a factored column, it searches the subtrees of several cells; a
clause that is in two of them is then found twice, and the caller drops repeats.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wherecast.kernels.arrays import Ints, Longs
from wherecast.kernels.descent import Projected
from wherecast.kernels.jit import Scalar, hot, inlined
from wherecast.papers.gryphon.kernels.grow import Levels
from wherecast.papers.gryphon.kernels.sets import in_set
from wherecast.papers.gryphon.kernels.tree import (
    CLAUSE,
    ENTRY,
    FOLLOWING,
    LABEL,
    LEVEL,
    NEXT,
    POINTS,
    SETS,
    STARS,
    Tree,
    find_child,
)


class Links(NamedTuple):
    """Successors of each node: `ids[first[v]:end[v]]`; no rows at all if they are not used."""

    first: Longs  # (nodes,)
    end: Longs  # (nodes,)
    ids: Ints


@inlined
def edge_holds(
    sets: Ints, lo: Ints, hi: Ints, label: Scalar, code: Scalar, list_ptr: Longs, list_codes: Ints
) -> Scalar:
    """Whether a code, or any code of the list that a negative one names, satisfies the label of a set."""
    if code >= 0:
        return in_set(sets, lo, hi, label, code)
    for k in range(list_ptr[~code], list_ptr[~code + 1]):
        if in_set(sets, lo, hi, label, np.int64(list_codes[k])):
            return True
    return False


@inlined
def has_cell(levels: Levels, f: Scalar, code: Scalar, cell: Scalar, list_ptr: Longs, list_codes: Ints) -> Scalar:
    """Whether a code, or any code of a list, lies in a cell of a factor."""
    first = levels.cell_ptr[f]
    if code >= 0:
        return levels.cell[first + code] == cell
    for k in range(list_ptr[~code], list_ptr[~code + 1]):
        if levels.cell[first + list_codes[k]] == cell:
            return True
    return False


@inlined
def push_root(nodes: Ints, table: Ints, subtree: Scalar, stack: Ints, top: Scalar) -> Scalar:
    root = find_child(nodes, table, 0, subtree)
    if root >= 0:
        stack[top] = root
        top += 1
    return top


@inlined
def push_roots(nodes: Ints, table: Ints, levels: Levels, codes: Ints, list_ptr: Longs, list_codes: Ints, event: Scalar,
               stack: Ints) -> Scalar:  # fmt: skip
    """Push the roots of the subtrees that an event belongs to: one, unless it has a list in a factored column."""
    subtree, subtrees = 0, 1
    several: Scalar = False
    for f in range(levels.factored.size):
        code = np.int64(codes[event, levels.factored[f]])
        several |= code < 0
        subtrees *= levels.n_cells[f]
        if code >= 0:
            subtree = subtree * levels.n_cells[f] + levels.cell[levels.cell_ptr[f] + code]
    if not several:
        return push_root(nodes, table, subtree, stack, 0)
    top = 0
    for number in range(subtrees):
        rest, agrees = number, True
        for back in range(levels.factored.size):
            f = levels.factored.size - 1 - back
            code = np.int64(codes[event, levels.factored[f]])
            agrees = agrees and has_cell(levels, f, code, rest % levels.n_cells[f], list_ptr, list_codes)
            rest //= levels.n_cells[f]
        if agrees:
            top = push_root(nodes, table, number, stack, top)
    return top


@hot
def search(
    tree: Tree, levels: Levels, links: Links, batch: Projected, start: Scalar, stack: Ints, out: Ints, counts: Longs,
    visits: Longs,
) -> Scalar:  # fmt: skip
    """Match events start: into `out`; return the first event that did not fit, to be continued with a larger array.

    `counts` gets the clauses per event; `visits` the nodes visited and the edges tried, in total.
    """
    nodes, table, entries, sets, lo, hi = tree.nodes, tree.table, tree.entries, tree.sets, tree.lo, tree.hi
    codes, list_ptr, list_codes = batch
    linked = links.first.size > 0 and list_codes.size == 0
    n, seen, tried = 0, 0, 0
    for event in range(start, codes.shape[0]):
        begin, seen_before, tried_before = n, seen, tried
        top = push_roots(nodes, table, levels, codes, list_ptr, list_codes, event, stack)
        while top > 0:
            top -= 1
            node = np.int64(stack[top])
            seen += 1
            entry = np.int64(nodes[node, ENTRY])
            while entry >= 0:
                if n == out.size:
                    visits[0] += seen_before
                    visits[1] += tried_before
                    return event
                out[n] = entries[entry, CLAUSE]
                n += 1
                entry = np.int64(entries[entry, FOLLOWING])
            level = nodes[node, LEVEL]
            alone: Scalar = False
            if level >= 0:
                code = np.int64(codes[event, level])
                branch = np.int64(nodes[node, SETS])
                if nodes[node, POINTS] > 0:
                    if code >= 0:
                        tried += 1
                        child = find_child(nodes, table, node, code)
                        if child >= 0:
                            stack[top] = child
                            top += 1
                            alone = linked and branch < 0
                    else:
                        for k in range(list_ptr[~code], list_ptr[~code + 1]):
                            tried += 1
                            child = find_child(nodes, table, node, np.int64(list_codes[k]))
                            if child >= 0:
                                stack[top] = child
                                top += 1
                while branch >= 0:
                    tried += 1
                    if edge_holds(sets, lo, hi, np.int64(nodes[branch, LABEL]), code, list_ptr, list_codes):
                        stack[top] = branch
                        top += 1
                    branch = np.int64(nodes[branch, NEXT])
                if nodes[node, STARS] >= 0 and not alone:
                    tried += 1
                    stack[top] = nodes[node, STARS]
                    top += 1
            if linked and not alone:
                for k in range(links.first[node], links.end[node]):
                    tried += 1
                    stack[top] = links.ids[k]
                    top += 1
        counts[event] = n - begin
    visits[0] += seen
    visits[1] += tried
    return codes.shape[0]
