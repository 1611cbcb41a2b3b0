"""Subscriptions into and out of a matching tree, one at a time.

Theory of operation
-------------------
A clause arrives as constraints in the order of the tree's levels, each a level and a label. There are three ways to
follow the tree and create what is missing:

- `follow_levels`: the equality tree of the paper (section 4, appendix B). A node at depth i tests level i; a clause
  that has no constraint there takes the `*` edge.
- `follow_collapsed`: the same without chains of `*` edges (section 5). A node tests the first level that any clause
  below it constrains. A clause that constrains an earlier level gets a new node in the place of the one it met, which
  becomes the new one's `*` child; when the last such clause leaves, that is undone. So the shape depends on the
  clauses alone, not on the order in which they came.
- `follow_tests`: the general tree (section 3, appendix A). A node holds one test: the value of an attribute, or
  whether it lies in a set of codes, with the results inside and outside. A clause takes the edge of the result that
  one of its constraints implies, else `*`; a constraint that follows from an edge it took is not tested again.

A node without test is a leaf. It gets one when a clause comes by that has constraints left.

Factoring (section 5) cuts the codes of some levels into cells and keeps one tree per combination of cells. A clause
goes into each combination that it meets; where a cell lies inside its constraint, that constraint is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wherecast.kernels.arrays import Ints, Longs
from wherecast.kernels.jit import Scalar, hot, inlined
from wherecast.papers.gryphon.kernels.sets import implies, meets, rest_implies
from wherecast.papers.gryphon.kernels.tree import (
    CLAUSES,
    ENTRY,
    EXAMINE,
    FIRST,
    FREE_CLAUSE,
    LABEL,
    LEVEL,
    LIVE_CLAUSES,
    LIVE_ENTRIES,
    LIVE_NODES,
    NONE,
    PARENT,
    POINTS,
    SETS,
    SIZE,
    STAR,
    STARS,
    TEST,
    TWIN,
    WANTED_ENTRIES,
    WANTED_NODES,
    Tree,
    add_node,
    attach,
    detach,
    free_node,
    hand_over,
    hang,
    label_outside,
    label_set,
    release_label,
    set_label,
    step,
    unhang,
    use_label,
)

#: Ways to follow the tree.
BY_LEVELS, COLLAPSED, BY_TESTS = range(3)


class Clauses(NamedTuple):
    """Constraints of clauses, by clause and in the order of levels."""

    ptr: Longs  # (clauses + 1,)
    level: Ints  # (constraints,)
    label: Ints  # (constraints,) a code or a set, see `tree`


class Levels(NamedTuple):
    """What the levels of a tree look at, most popular first, the factored ones last."""

    attribute: Ints  # (levels,)
    width: Ints  # (levels,) codes of the attribute
    factored: Ints  # (factors,) levels that are cut into cells
    n_cells: Ints  # (factors,)
    cell_ptr: Longs  # (factors + 1,) places in `cell`
    cell: Ints  # cell of each code
    cell_size: Ints  # (factors * most cells,) codes of each cell; those of factor f from f * most cells on


class Workspace(NamedTuple):
    """Memory that an insertion works in."""

    level: Ints  # (levels + 1,) constraints that are left in one subtree
    label: Ints
    done: Ints
    cells: Ints  # (factors + 1, most cells) cells that the clause meets
    inside: Ints  # (factors + 1, most cells) codes of the cell that the clause meets, then whether these are all
    met: Ints  # (factors + 1,) number of cells that the clause meets
    turn: Ints  # (factors + 1,) which of them the current combination takes


@inlined
def follow_levels(tree: Tree, node: Scalar, depth: Scalar, level: Ints, label: Ints, n: Scalar) -> Scalar:
    """The node of a clause in the tree of one level per depth; levels past `depth` only while constraints are left."""
    at, i = 0, 0
    while at < depth or i < n:
        tree.nodes[node, LEVEL] = at
        edge = STAR
        if i < n and level[i] == at:
            edge = label[i]
            i += 1
        node = step(tree, node, edge)
        at += 1
    return node


@inlined
def insert_above(tree: Tree, node: Scalar) -> Scalar:
    """A new node in the place of another, which becomes its `*` child and hands its clauses over."""
    parent, label = np.int64(tree.nodes[node, PARENT]), np.int64(tree.nodes[node, LABEL])
    detach(tree, node)
    above = add_node(tree, parent, label)
    release_label(tree, label)
    attach(tree, node, above, STAR)
    hand_over(tree, node, above)
    return above


@inlined
def follow_collapsed(tree: Tree, node: Scalar, level: Ints, label: Ints, n: Scalar) -> Scalar:
    """The node of a clause in the tree without chains of `*` edges."""
    i = 0
    while i < n:
        at = tree.nodes[node, LEVEL]
        if NONE < at < level[i]:
            node = step(tree, node, STAR)
            continue
        if at > level[i]:
            node = insert_above(tree, node)
        tree.nodes[node, LEVEL] = level[i]
        node = step(tree, node, label[i])
        i += 1
    return node


@inlined
def decide(tree: Tree, node: Scalar, attribute: Ints, level: Ints, label: Ints, done: Ints, n: Scalar) -> Scalar:
    """The result of a node's test that a clause implies, as a label; `*` if it implies none.

    Constraints still to be tested come first, so that a test made for one of them is decided by it.
    """
    test, tested = tree.nodes[node, TEST], attribute[tree.nodes[node, LEVEL]]
    for finished in range(2):
        for i in range(n):
            if done[i] == finished and attribute[level[i]] == tested:
                if test == EXAMINE:
                    if label[i] >= 0:
                        return np.int64(label[i])
                elif implies(tree, label[i], test):
                    return np.int64(test)
                elif not meets(tree, label[i], test):
                    return np.int64(set_label(label_set(test), 1))
    return np.int64(STAR)


@inlined
def follows_from(tree: Tree, edge: Scalar, label: Scalar, width: Scalar) -> Scalar:
    """Whether whoever takes an edge satisfies a constraint."""
    if edge == STAR:
        return False
    if edge >= 0:
        return label == edge if label >= 0 else implies(tree, edge, label)
    if label_outside(edge):
        return rest_implies(tree, edge, label, width)
    return label < 0 and implies(tree, edge, label)


@inlined
def follow_tests(
    tree: Tree, node: Scalar, attribute: Ints, width: Ints, level: Ints, label: Ints, done: Ints, n: Scalar
) -> Scalar:
    """The node of a clause in the general tree."""
    for i in range(n):
        done[i] = 0
    i = 0
    while i < n:
        if done[i]:
            i += 1
            continue
        if tree.nodes[node, LEVEL] == NONE:
            tree.nodes[node, LEVEL] = level[i]
            tree.nodes[node, TEST] = EXAMINE if label[i] >= 0 else label[i]
            use_label(tree, tree.nodes[node, TEST])
        edge = decide(tree, node, attribute, level, label, done, n)
        tested = attribute[tree.nodes[node, LEVEL]]
        node = step(tree, node, edge)
        for k in range(n):
            if not done[k] and attribute[level[k]] == tested:
                done[k] = follows_from(tree, edge, np.int64(label[k]), width[level[k]])
    return node


@inlined
def meet_cells(tree: Tree, levels: Levels, clauses: Clauses, clause: Scalar, work: Workspace) -> Scalar:
    """The cells that a clause meets, factor by factor; returns the number of combinations."""
    most = work.cells.shape[1]
    combinations = 1
    for f in range(levels.factored.size):
        first = levels.cell_ptr[f]
        for cell in range(levels.n_cells[f]):
            work.cells[f, cell], work.inside[f, cell] = cell, 0
        work.met[f] = levels.n_cells[f]
        for i in range(clauses.ptr[clause], clauses.ptr[clause + 1]):
            if clauses.level[i] == levels.factored[f]:
                label = np.int64(clauses.label[i])
                if label >= 0:
                    work.inside[f, levels.cell[first + label]] += 1
                else:
                    row = label_set(label)
                    for k in range(tree.sets[row, FIRST], tree.sets[row, FIRST] + tree.sets[row, SIZE]):
                        for code in range(tree.lo[k], tree.hi[k] + 1):
                            work.inside[f, levels.cell[first + code]] += 1
                met = 0
                for cell in range(levels.n_cells[f]):
                    if work.inside[f, cell] > 0:
                        work.cells[f, met] = cell
                        work.inside[f, met] = work.inside[f, cell] == levels.cell_size[f * most + cell]
                        met += 1
                work.met[f] = met
        work.turn[f] = 0
        combinations *= work.met[f]
    return combinations


@inlined
def choose_subtree(levels: Levels, clauses: Clauses, clause: Scalar, work: Workspace) -> tuple[Scalar, Scalar]:
    """The subtree of the current combination, and the number of constraints left there, which are put into `work`.

    The next call is for the next combination.
    """
    subtree = 0
    for f in range(levels.factored.size):
        subtree = subtree * levels.n_cells[f] + work.cells[f, work.turn[f]]
    n = 0
    for i in range(clauses.ptr[clause], clauses.ptr[clause + 1]):
        kept = True
        for f in range(levels.factored.size):
            if clauses.level[i] == levels.factored[f] and work.inside[f, work.turn[f]]:
                kept = False
        if kept:
            work.level[n], work.label[n] = clauses.level[i], clauses.label[i]
            n += 1
    for f in range(levels.factored.size):
        work.turn[f] += 1
        if work.turn[f] < work.met[f]:
            break
        work.turn[f] = 0
    return subtree, n


@hot
def insert_clauses(
    tree: Tree, levels: Levels, clauses: Clauses, order: Longs, ids: Ints, start: Scalar, way: Scalar, depth: Scalar,
    work: Workspace,
) -> Scalar:  # fmt: skip
    """Insert the clauses order[start:], clause c as ids[c].

    Returns the first place of `order` for which there was no room.
    """
    counts = tree.counts
    for at in range(start, order.size):
        clause = order[at]
        combinations = meet_cells(tree, levels, clauses, clause, work)
        most = 3 * (clauses.ptr[clause + 1] - clauses.ptr[clause]) + levels.attribute.size + 2
        counts[WANTED_NODES] = counts[LIVE_NODES] + combinations * most
        counts[WANTED_ENTRIES] = counts[LIVE_ENTRIES] + combinations
        if counts[WANTED_NODES] > tree.nodes.shape[0] or counts[WANTED_ENTRIES] > tree.entries.shape[0]:
            return at
        for _ in range(combinations):
            subtree, n = choose_subtree(levels, clauses, clause, work)
            node = np.int64(step(tree, 0, subtree))
            if way == COLLAPSED:
                node = follow_collapsed(tree, node, work.level, work.label, n)
            elif way == BY_LEVELS:
                node = follow_levels(tree, node, depth, work.level, work.label, n)
            else:
                node = follow_tests(tree, node, levels.attribute, levels.width, work.level, work.label, work.done, n)
            hang(tree, ids[clause], node)
    return order.size


@hot
def take_ids(tree: Tree, ids: Ints) -> None:
    """Clause ids for new clauses, those of removed clauses first; there is room in `clauses`."""
    counts = tree.counts
    for i in range(ids.size):
        id = counts[FREE_CLAUSE]
        if id >= 0:
            counts[FREE_CLAUSE] = -3 - tree.clauses[id]
        else:
            id = counts[CLAUSES]
            counts[CLAUSES] += 1
        tree.clauses[id] = NONE
        ids[i] = id
    counts[LIVE_CLAUSES] += ids.size


@inlined
def forget_test(tree: Tree, node: Scalar) -> None:
    """Make a node without children a leaf again."""
    test = np.int64(tree.nodes[node, TEST])
    tree.nodes[node, LEVEL] = tree.nodes[node, TEST] = NONE
    release_label(tree, test)


@inlined
def splice(tree: Tree, node: Scalar) -> None:
    """Put the `*` child of a node, its only child, in the node's place."""
    parent, label, child = tree.nodes[node, PARENT], np.int64(tree.nodes[node, LABEL]), tree.nodes[node, STARS]
    detach(tree, child)
    detach(tree, node)
    attach(tree, child, parent, label)
    hand_over(tree, node, child)
    forget_test(tree, node)
    free_node(tree, node)


@inlined
def prune(tree: Tree, node: Scalar, collapse: Scalar) -> None:
    """Free a node from which a clause or a child was taken, if it serves nobody, and so on upward."""
    nodes = tree.nodes
    while node != 0:
        branches = nodes[node, POINTS] > 0 or nodes[node, SETS] >= 0
        if branches or nodes[node, STARS] >= 0:
            if collapse and not branches:
                splice(tree, node)
            return
        forget_test(tree, node)
        if nodes[node, ENTRY] >= 0:
            return
        parent, label = np.int64(nodes[node, PARENT]), np.int64(nodes[node, LABEL])
        detach(tree, node)
        free_node(tree, node)
        release_label(tree, label)
        node = parent


@hot
def remove_clauses(tree: Tree, ids: Ints, collapse: Scalar) -> None:
    """Take clauses out, all of which are there."""
    for i in range(ids.size):
        entry = np.int64(tree.clauses[ids[i]])
        while entry >= 0:
            twin = np.int64(tree.entries[entry, TWIN])
            prune(tree, np.int64(unhang(tree, entry)), collapse)
            entry = twin
        tree.clauses[ids[i]] = -3 - tree.counts[FREE_CLAUSE]
        tree.counts[FREE_CLAUSE] = ids[i]
    tree.counts[LIVE_CLAUSES] -= ids.size
