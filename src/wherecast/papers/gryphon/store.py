"""Memory of a matching tree: its tables, each doubled when it is full."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.errors import LimitError
from wherecast.papers.gryphon.kernels.tree import (
    ENTRIES,
    FREE_CLAUSE,
    FREE_ENTRY,
    FREE_NODE,
    FREE_SET,
    LABEL,
    LIVE_NODES,
    LIVE_POOL,
    LIVE_SETS,
    NODES,
    NONE,
    POINTS,
    POOL,
    SET_ROWS,
    SIZE,
    STAR,
    WANTED_ENTRIES,
    WANTED_NODES,
    Ints,
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
