"""What must be true of a stored adaptive matcher: see `index.bounds` for why, `kernels.descent` and `kernels.leaves` for the arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from wherecast.index.bounds import StoredArrays
from wherecast.index.packed import PackedBoxes
from wherecast.kernels import descent
from wherecast.kernels.arrays import Ints, Numbers
from wherecast.kernels.guards import SHIFT_BITS, SHIFT_MASK
from wherecast.kernels.jit import frozen
from wherecast.kernels.leaves import (
    BITS_AT,
    CHECKED,
    COLUMN,
    COLUMN_END,
    FOLD_AT,
    LEAF_WORDS,
    MAP,
    PAIRED,
    ROW_AT,
    SHIFT_AT,
    SIDE_BY_SIDE,
    SIZE,
    SLOT,
    SURE,
    WORDS,
    has_loose_bits,
)
from wherecast.matchers.adaptive_conditions import near_places
from wherecast.matchers.adaptive_plan import weigh_words

#: Numbers of `AdaptiveMatcher._tally`, the last of which says how much room matches get.
_VISITS = 5


def check_adaptive(stored: StoredArrays, boxes: PackedBoxes, weights: Ints | None) -> None:
    """Raises SnapshotError unless the arrays can be matched with; `weights` are those of the clauses, if they count."""
    width = _check_columns(stored, boxes)
    tree = _check_arrays(stored, width)
    n_clauses, first, end, stack, replicated = stored.column("facts", np.int64, size=5).tolist()
    stored.require(n_clauses == boxes.n_clauses and replicated in (0, 1), "facts", "does not fit the boxes")
    stored.require(0 <= first <= end <= len(tree.leaves), "facts", f"has no leaves {first} .. {end}")
    _check_nodes(stored, tree, width.size, stack)
    _check_leaves(stored, tree, width)
    stored.within(tree.slots, 0, max(n_clauses, 1), "tree_slots")
    visits = stored.column("visits", np.float64, size=_VISITS)
    stored.require(((visits >= 0) & (visits < 1e18)).all(), "visits", "has no averages")
    _check_dense(stored, tree, width, first, end, weights)


def _check_columns(stored: StoredArrays, boxes: PackedBoxes) -> Ints:
    """That events are brought into columns of so many codes, which are returned."""
    attribute = stored.column("attribute", np.int32)
    n = attribute.size
    stored.within(attribute, 0, boxes.widths.size, "attribute")
    source, width = stored.column("source_width", np.int32, size=n), stored.column("width", np.int32, size=n)
    stored.require(np.array_equal(source, boxes.widths[attribute]), "source_width", "is not that of the codes")
    table_ptr, table = stored.column("table_ptr", np.int64, size=n + 1), stored.column("table", np.int32)
    stored.offsets(table_ptr, table.size, "table_ptr")
    sizes = np.diff(table_ptr)
    whole = np.where(sizes > 0, sizes == source, width >= source)
    stored.require(whole.all(), "table_ptr", "leaves out codes of an attribute")
    stored.require(((table >= 0) & (table < np.repeat(width, sizes))).all(), "table", "has a code beyond its column")
    again = np.flatnonzero(attribute[1:] == attribute[:-1]) + 1  # these are given the lists of the column before
    renumbered = np.split(table, table_ptr[1:-1]) if n else []
    alike = all(width[c] == width[c - 1] and np.array_equal(renumbered[c], renumbered[c - 1]) for c in again.tolist())
    stored.require(alike, "table", "is not the same for all columns of an attribute")
    return width


def read_tree(arrays: Mapping[str, Numbers]) -> descent.LookupTree:
    """The tree among the arrays of a matcher; those of earlier versions have no guards, or no tables of buckets."""
    none = dict.fromkeys(("tree_guards", "tree_near"), np.zeros(0, np.int32))
    tables: dict[str, Numbers] = {"tree_bucket_ptr": np.zeros(0, np.int64), "tree_buckets": np.zeros(0, np.int16)}
    given: dict[str, Numbers] = {**none, **tables, **arrays}
    return descent.LookupTree(*(given[f"tree_{k}"] for k in descent.STORED_FIELDS))


def _check_arrays(stored: StoredArrays, width: Ints) -> descent.LookupTree:
    """That the arrays of the tree have their types; and the buckets of guards, which are then safe to look up."""
    guards = near = np.zeros(0, np.int32)
    bucket_ptr, buckets = np.zeros(0, np.int64), np.zeros(0, np.int16)
    if "tree_guards" in stored:
        guards, near = stored.column("tree_guards", np.int32), stored.column("tree_near", np.int32, size=width.size)
        stored.within(near & SHIFT_MASK, 0, 32, "tree_near")
        stored.within(near >> SHIFT_BITS, 0, width.size + 1, "tree_near")
        stored.within(guards & 0x7FFF, 0, max(width.size, 1), "tree_guards")
        stored.require(width.size or not guards.size, "tree_guards", "has no columns")
    if "tree_buckets" in stored:
        bucket_ptr, buckets = stored.column("tree_bucket_ptr", np.int64), stored.column("tree_buckets", np.int16)
        stored.require(bucket_ptr.size == near.size + 1, "tree_bucket_ptr", "does not fit the columns")
        stored.offsets(bucket_ptr, buckets.size, "tree_bucket_ptr")
        needed = near_places(width - 1, near & SHIFT_MASK) + 1
        size = np.diff(bucket_ptr)
        stored.require(((size == 0) | (size == needed)).all(), "tree_bucket_ptr", "leaves out codes of a column")
    return descent.LookupTree(
        stored.table("tree_nodes", np.int32, 4),
        stored.table("tree_tests", np.int32, 5),
        stored.column("tree_table", np.int32),
        stored.table("tree_leaves", np.int64, 8),
        stored.column("tree_columns", np.int64),
        stored.column("tree_maps", np.uint64),
        stored.column("tree_slots", np.int32),
        guards,
        near,
        bucket_ptr,
        buckets,
    )


def _check_nodes(stored: StoredArrays, tree: descent.LookupTree, n_columns: int, stack: int) -> None:
    """That tests and links stay inside, and that what a descent keeps for later fits the stack that is set for it."""
    nodes = tree.nodes
    stored.require(len(nodes) > 0, "tree_nodes", "has no root")
    for first, limit in ((0, len(tree.tests)), (2, len(tree.leaves))):
        fits = (nodes[:, first] >= 0) & (nodes[:, first] <= nodes[:, first + 1]) & (nodes[:, first + 1] <= limit)
        stored.require(fits.all(), "tree_nodes", f"has a range that is not in 0 .. {limit}")
    depths = np.full(len(nodes), -1, np.int32)
    depths[0] = 0
    arrays = frozen(nodes), frozen(tree.tests), frozen(tree.table)
    depth = descent.measure_depth(*arrays, n_columns, len(tree.leaves), depths)
    stored.require(depth >= 0, "tree_table", "has a link that leads out of the tree or back")
    pushed = int(np.diff(nodes[:, :2], axis=1).max()) + int(np.diff(nodes[:, 2:], axis=1).max())
    # Earlier versions counted a level of nodes that had become leaves.
    stored.require((depth + 1) * pushed < stack <= (len(nodes) + 1) * pushed + 8, "facts", f"has a stack of {stack}")


def _check_leaves(stored: StoredArrays, tree: descent.LookupTree, width: Ints) -> None:
    """That slots, columns and rows of all leaves exist: the columns of leaves follow each other, rows end in `maps`."""
    leaves, slots = tree.leaves, tree.slots.size - 64
    slot, size, words, place, sure = (leaves[:, field] for field in (SLOT, SIZE, WORDS, MAP, SURE))
    stored.require(slots >= 0, "tree_slots", "has no padding")
    fits = (slot >= 0) & (size >= 0) & (slot <= slots) & (size <= slots - slot)
    fits &= (words == 0) | ((words == (size + 63) >> 6) & (words <= LEAF_WORDS))
    guarded = (words == 0) & ((sure == 1) | (sure == PAIRED))
    fits &= (place >= 0) & (place <= np.where(guarded, tree.guards.size - size * sure, tree.maps.size))
    side_by_side = (words > 0) & (sure == SIDE_BY_SIDE)
    fits &= guarded | side_by_side | ((sure >= 0) & (sure <= np.where(words > 0, tree.maps.size, 0)))
    stored.require(fits.all(), "tree_leaves", "has a leaf beyond the slots or maps")
    stored.within(leaves[:, CHECKED] >> 1, 0, width.size + 1, "tree_leaves")
    ends = np.concatenate(([0], leaves[:, COLUMN_END]))
    stored.offsets(ends, tree.columns.size, "tree_leaves")
    stored.require(np.array_equal(leaves[:, COLUMN], ends[:-1]), "tree_leaves", "has columns in no order")
    stored.require(np.diff(ends).max(initial=0) <= width.size, "tree_leaves", "has a leaf with too many columns")

    packed, owner = tree.columns, np.repeat(np.arange(len(leaves)), np.diff(ends))
    column = packed & 0xFFFF
    stored.require((packed >= 0).all(), "tree_columns", "has a negative row")
    stored.within(column, 0, width.size, "tree_columns")
    buckets = np.minimum((width[column] - 1) >> (packed >> SHIFT_AT & 31), (1 << (packed >> BITS_AT & 31)) - 1)
    last = np.maximum(buckets - (packed >> FOLD_AT & 1), packed >> FOLD_AT & 1)  # a folded column has two rows at least
    rows = np.where(side_by_side, 0, sure)[owner] + (packed >> ROW_AT) + last + 1
    needed = place[owner] + rows * (words << side_by_side)[owner]
    stored.require(needed.max(initial=0) <= tree.maps.size, "tree_columns", "has a row beyond the maps")


def _check_dense(
    stored: StoredArrays, tree: descent.LookupTree, width: Ints, first: int, end: int, weights: Ints | None
) -> None:
    """That bitmaps alone decide the dense part, code by code, and that what is counted is what will be written."""
    leaves = tree.leaves[first:end]
    stored.require(((leaves[:, WORDS] > 0) & (leaves[:, CHECKED] == 0)).all(), "tree_leaves", "leaves checks to do")
    stored.require((leaves[:, SURE] == 0).all(), "tree_leaves", "has sure rows in the dense part")
    if end > first:
        packed = tree.columns[leaves[0, COLUMN] : leaves[-1, COLUMN_END]]
        exact = (packed >> SHIFT_AT & 31 == 0) & (1 << (packed >> BITS_AT & 31) >= width[packed & 0xFFFF])
        stored.require(exact.all(), "tree_columns", "has buckets of several codes in the dense part")
    words = int(leaves[:, WORDS].sum())
    kept = stored.column("word_weights", np.int32, size=words)
    loose = has_loose_bits(frozen(tree.leaves), frozen(tree.columns), frozen(width), frozen(tree.maps), first, end)
    stored.require(not loose, "tree_maps", "has a bit that stands for no clause")
    if weights is not None:
        stored.require(np.array_equal(kept, weigh_words(tree, first, end, weights)), "word_weights", "is not the sum")
