"""Matching the clauses that every event meets: all events against one leaf, then the next leaf.

Theory of operation
-------------------
When a large share of all clauses matches, the cheapest way is to read one bit per clause and column. The order of the
loops is everything: with the events outside, each event streams all bitmaps through the cache (31 GB/s measured on
`topss`); with the leaves outside, the rows of a leaf (at most LEAF_WORDS words each) stay in the first-level cache
while all events pass by. Ids are written in a second pass, when every event's place in the output is known.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.bits import ONE, ZERO, popcount, trailing_zeros
from wherecast.kernels.descent import SLOT, WORDS, Batch, Scratch, Tree, find_bits
from wherecast.kernels.jit import hot

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@hot
def count_dense(tree: Tree, batch: Batch, first: int, end: int, scratch: Scratch, counts: Longs) -> None:
    """Add the matches of leaves first:end to `counts`."""
    leaves, columns, maps = tree.leaves, tree.columns, tree.maps
    codes, list_ptr, list_codes = batch
    _, places, found = scratch
    for leaf in range(first, end):
        words = leaves[leaf, WORDS]
        for event in range(codes.shape[0]):
            find_bits(leaves, columns, maps, codes, list_ptr, list_codes, event, leaf, places, found)
            total = 0
            for i in range(words):
                total += popcount(found[i])
            counts[event] += total


@hot
def list_dense(tree: Tree, batch: Batch, first: int, end: int, scratch: Scratch, cursor: Longs, out: Ints) -> None:
    """Write the matches of leaves first:end to `out`; `cursor` has each event's place and is moved on."""
    leaves, columns, maps = tree.leaves, tree.columns, tree.maps
    codes, list_ptr, list_codes = batch
    _, places, found = scratch
    slots = tree.slots
    for leaf in range(first, end):
        words, slot = leaves[leaf, WORDS], leaves[leaf, SLOT]
        for event in range(codes.shape[0]):
            find_bits(leaves, columns, maps, codes, list_ptr, list_codes, event, leaf, places, found)
            n = cursor[event]
            for i in range(words):
                word = found[i]
                base = slot + 64 * i
                while word != ZERO:
                    out[n] = slots[base + trailing_zeros(word)]
                    n += 1
                    word &= word - ONE
            cursor[event] = n


@hot
def copy_events(source: Ints, counts: Longs, cursor: Longs, out: Ints) -> None:
    """Copy each event's ids from one packed array to its place in another."""
    read = 0
    for event in range(counts.size):
        write = cursor[event]
        for i in range(counts[event]):
            out[write + i] = source[read + i]
        read += counts[event]
        cursor[event] = write + counts[event]
