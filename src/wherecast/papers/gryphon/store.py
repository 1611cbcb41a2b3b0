"""Memory of a matching tree: its tables, each doubled when it is full."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.errors import LimitError
from wherecast.index.bounds import StoredArrays
from wherecast.kernels.arrays import Ints
from wherecast.papers.gryphon.kernels.tree import (
    CLAUSE,
    CLAUSES,
    ENTRIES,
    ENTRY,
    FIRST,
    FOLLOWING,
    FREE_CLAUSE,
    FREE_ENTRY,
    FREE_NODE,
    FREE_SET,
    LABEL,
    LEVEL,
    LIVE_CLAUSES,
    LIVE_ENTRIES,
    LIVE_NODES,
    LIVE_POOL,
    LIVE_SETS,
    NEXT,
    NODE,
    NODES,
    NONE,
    PARENT,
    POINTS,
    POOL,
    PRECEDING,
    PREVIOUS,
    SET_ROWS,
    SETS,
    SIZE,
    STAR,
    STARS,
    WANTED_ENTRIES,
    WANTED_NODES,
    Tree,
    fill_table,
)

#: Rows are numbered in 32 bits, and a table has twice as many places.
MOST_ROWS = 2**30
#: What a tree starts with.
FIRST_ROWS = 16


def empty_tree() -> Tree:
    """No clause, and node 0 without a root."""
    counts = np.zeros(16, np.int64)
    counts[[FREE_NODE, FREE_ENTRY, FREE_SET, FREE_CLAUSE]] = NONE
    counts[[NODES, LIVE_NODES]] = 1
    nodes = np.full((FIRST_ROWS, 11), NONE, np.int32)
    nodes[0, POINTS], nodes[0, LABEL] = 0, STAR
    tables = [np.full(2 * FIRST_ROWS, NONE, np.int32) for _ in range(2)]
    entries, sets, none = (
        np.zeros((FIRST_ROWS, 5), np.int32),
        np.zeros((FIRST_ROWS, 4), np.int32),
        np.zeros(0, np.int32),
    )
    return Tree(nodes, tables[0], entries, none, sets, tables[1], none, none, counts)


def grow_nodes(tree: Tree) -> Tree:
    """Room for the nodes and entries that the last insertion wanted."""
    wanted, wanted_entries = int(tree.counts[WANTED_NODES]), int(tree.counts[WANTED_ENTRIES])
    if wanted_entries > len(tree.entries):
        tree = tree._replace(entries=_enlarged(tree.entries, int(tree.counts[ENTRIES]), 2 * wanted_entries))
    if wanted > len(tree.nodes):
        used = int(tree.counts[NODES])
        tree = tree._replace(nodes=_enlarged(tree.nodes, used, 2 * wanted))
        tree = tree._replace(table=_refilled(tree.table, tree.nodes, used))
    return tree


def grow_sets(tree: Tree, rows: int) -> Tree:
    """Room for twice as many sets, and for the intervals of one more constraint of `rows` intervals."""
    if 2 * tree.counts[LIVE_SETS] >= len(tree.sets):
        used = int(tree.counts[SET_ROWS])
        tree = tree._replace(sets=_enlarged(tree.sets, used, 2 * len(tree.sets)))
        tree = tree._replace(set_table=_refilled(tree.set_table, tree.sets, used))
    if int(tree.counts[POOL]) + rows > tree.lo.size:
        tree = _with_pool(tree, 2 * int(tree.counts[LIVE_POOL]) + rows)
    return tree


def grow_clauses(tree: Tree, n: int) -> Tree:
    """Room for ids below n."""
    return tree if n <= tree.clauses.size else tree._replace(clauses=_enlarged(tree.clauses, tree.clauses.size, 2 * n))


def trimmed(tree: Tree) -> Tree:
    """The rows that are used, as they are stored."""
    counts = tree.counts
    return tree._replace(
        nodes=tree.nodes[: counts[NODES]],
        entries=tree.entries[: counts[ENTRIES]],
        sets=tree.sets[: counts[SET_ROWS]],
        lo=tree.lo[: counts[POOL]],
        hi=tree.hi[: counts[POOL]],
    )


def check_tree(stored: StoredArrays, n_levels: int, n_clauses: int) -> None:
    """That a search of a stored tree stays inside it and ends. The engine removes nothing from one, so no row is free.

    A search enters a node only from its parent, by the one edge that the node's label names, and lists are linked both ways.
    If each link is the reverse of another, no node is entered twice and no list runs in a circle.
    """
    counts = stored.column("tree_counts", np.int64, size=16)
    nodes, entries = stored.table("tree_nodes", np.int32, 11), stored.table("tree_entries", np.int32, 5)
    sets, lo = stored.table("tree_sets", np.int32, 4), stored.column("tree_lo", np.int32)
    stored.column("tree_hi", np.int32, size=lo.size)
    clauses = stored.column("tree_clauses", np.int32)
    used = {NODES: len(nodes), LIVE_NODES: len(nodes), ENTRIES: len(entries), LIVE_ENTRIES: len(entries)}
    used |= {SET_ROWS: len(sets), POOL: lo.size, CLAUSES: n_clauses, LIVE_CLAUSES: n_clauses}
    used |= dict.fromkeys((FREE_NODE, FREE_ENTRY, FREE_CLAUSE), NONE)
    stored.require(counts[list(used)].tolist() == list(used.values()), "tree_counts", "is not that of the rows")
    stored.require(clauses.size >= n_clauses, "tree_clauses", "is too short")
    for name, rows in (("tree_table", nodes), ("tree_set_table", sets)):
        table = stored.column(name, np.int32)
        stored.require(table.size and table.size & (table.size - 1) == 0, name, f"has {table.size} places")
        stored.within(table, NONE, len(rows), name)
        stored.require(table.min() < 0, name, "has no empty place")
    first, size = sets[:, FIRST].astype(np.int64), sets[:, SIZE].astype(np.int64)
    held = (size == 0) | ((size > 0) & (first >= 0) & (first + size <= lo.size))
    stored.require(held.all(), "tree_sets", "has intervals that there are not")
    _check_nodes(stored, nodes, len(sets), len(entries), n_levels)
    stored.within(entries[:, CLAUSE], 0, n_clauses, "tree_entries")
    owners = np.flatnonzero(nodes[:, ENTRY] >= 0)
    _check_lists(stored, entries, nodes[owners, ENTRY], owners, (NODE, FOLLOWING, PRECEDING), "tree_entries")


def _check_nodes(stored: StoredArrays, nodes: Ints, n_sets: int, n_entries: int, n_levels: int) -> None:
    n = len(nodes)
    stored.require(n > 0 and nodes[0, PARENT] == NONE and nodes[0, STARS] == NONE, "tree_nodes", "has no root")
    stored.within(nodes[1:, PARENT], 0, n, "tree_nodes")
    for field, limit in {LEVEL: n_levels, STARS: n, SETS: n, ENTRY: n_entries}.items():
        stored.within(nodes[:, field], NONE, limit, "tree_nodes")
    label = nodes[:, LABEL].astype(np.int64)
    stored.within((-2 - label[label < STAR]) >> 1, 0, n_sets, "tree_nodes")  # see `kernels.tree.label_set`
    above = np.flatnonzero(nodes[:, STARS] >= 0)
    behind = nodes[above, STARS]
    stored.require((nodes[behind, PARENT] == above).all(), "tree_nodes", "has a `*` child of another node")
    stored.require((label[behind] == STAR).all(), "tree_nodes", "has a `*` child behind another edge")
    above = np.flatnonzero(nodes[:, SETS] >= 0)
    heads = nodes[above, SETS]
    _check_lists(stored, nodes, heads, above, (PARENT, NEXT, PREVIOUS), "tree_nodes")
    in_list = np.concatenate((heads, nodes[nodes[:, NEXT] >= 0, NEXT]))
    stored.require((label[in_list] < STAR).all(), "tree_nodes", "has a value in a list of sets")


def _check_lists(
    stored: StoredArrays, rows: Ints, heads: Ints, owners: npt.NDArray[Any], fields: tuple[int, int, int], name: str
) -> None:
    """That lists begin at their owners and are linked both ways: a row then follows one other or none."""
    owner, following, preceding = fields
    stored.within(rows[:, following], NONE, len(rows), name)
    begins = (rows[heads, owner] == owners) & (rows[heads, preceding] == NONE)
    stored.require(begins.all(), name, "has a list that does not begin at its owner")
    before = np.flatnonzero(rows[:, following] >= 0)
    after = rows[before, following]
    linked = (rows[after, preceding] == before) & (rows[after, owner] == rows[before, owner])
    stored.require(linked.all(), name, "has a link that is not returned")


def writable(tree: Tree) -> Tree:
    """The same tree in memory of its own, where it is in somebody else's."""
    return Tree(**{k: v if v.flags.writeable else v.copy() for k, v in tree._asdict().items()})


def _enlarged(array: npt.NDArray[Any], used: int, rows: int) -> npt.NDArray[Any]:
    rows = max(rows, FIRST_ROWS)
    if rows > MOST_ROWS:
        raise LimitError(f"matching tree full: {rows:,} rows requested, at most {MOST_ROWS:,}")
    larger = np.empty((rows, *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger


def _refilled(table: Ints, rows: Ints, used: int) -> Ints:
    """A table of at least twice as many places as there may be rows."""
    if table.size >= 2 * len(rows):
        return table
    table = np.full(1 << (2 * len(rows) - 1).bit_length(), NONE, np.int32)
    fill_table(table, rows, used)
    return table


def _with_pool(tree: Tree, size: int) -> Tree:
    """The intervals of the live sets, moved together into a larger pool."""
    sets = tree.sets
    live = np.flatnonzero(sets[: tree.counts[SET_ROWS], SIZE] > 0)
    sizes = sets[live, SIZE].astype(np.int64)
    ends = np.cumsum(sizes)
    used = int(sizes.sum())
    taken = np.arange(used) + np.repeat(sets[live, 0] - ends + sizes, sizes)
    lo, hi = np.empty(max(size, FIRST_ROWS), np.int32), np.empty(max(size, FIRST_ROWS), np.int32)
    lo[:used], hi[:used] = tree.lo[taken], tree.hi[taken]
    sets[live, 0] = ends - sizes
    tree.counts[POOL] = used
    return tree._replace(lo=lo, hi=hi)
