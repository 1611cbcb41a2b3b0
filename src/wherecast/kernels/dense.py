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

from wherecast.kernels.bits import HAS_COMPRESS, ONE, ZERO, popcount, trailing_zeros
from wherecast.kernels.descent import SLOT, WORDS, Batch, Scratch, Tree, find_bits, list_bits, list_word
from wherecast.kernels.jit import Scalar, hot

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@hot
def count_dense(tree: Tree, batch: Batch, first: Scalar, end: Scalar, scratch: Scratch, counts: Longs) -> None:
    """Add the matches of leaves first:end to `counts`."""
    _, _, _, leaves, columns, maps, _, _, _, _, _, _, _ = tree
    codes, list_ptr, list_codes = batch
    _, places, found, _ = scratch
    for leaf in range(first, end):
        words = leaves[leaf, WORDS]
        for event in range(codes.shape[0]):
            find_bits(leaves, columns, maps, codes, list_ptr, list_codes, event, leaf, places, found)
            total = 0
            for i in range(words):
                total += popcount(found[i])
            counts[event] += total


@hot
def weigh_dense(
    tree: Tree, batch: Batch, first: Scalar, end: Scalar, scratch: Scratch, word_weights: Ints, ptr: Ints, totals: Longs
) -> None:
    """Add the weights of the matches of leaves first:end to `totals`; clause c weighs ptr[c + 1] - ptr[c].

    A word whose clauses weigh the same has that weight in `word_weights` and is counted, one with 0 there is listed.
    """
    _, _, _, leaves, columns, maps, slots, _, _, _, _, _, _ = tree
    codes, list_ptr, list_codes = batch
    _, places, found, _ = scratch
    base = 0
    for leaf in range(first, end):
        words, slot = leaves[leaf, WORDS], leaves[leaf, SLOT]
        same = word_weights[base] if words > 0 else 0
        for i in range(words):
            if word_weights[base + i] != same:
                same = 0
        for event in range(codes.shape[0]):
            find_bits(leaves, columns, maps, codes, list_ptr, list_codes, event, leaf, places, found)
            total = 0
            if same > 0:  # a plain sum, which the compiler turns into vector instructions
                for i in range(words):
                    total += popcount(found[i])
                totals[event] += same * total
                continue
            for i in range(words):
                word, weight = found[i], word_weights[base + i]
                if weight > 0:
                    total += weight * popcount(word)
                else:
                    while word != ZERO:
                        clause = slots[slot + 64 * i + trailing_zeros(word)]
                        total += ptr[clause + 1] - ptr[clause]
                        word &= word - ONE
            totals[event] += total
        base += words


@hot
def list_dense(
    tree: Tree, batch: Batch, first: Scalar, end: Scalar, scratch: Scratch, cursor: Longs, stop: Longs, out: Ints
) -> None:
    """Write the matches of leaves first:end to `out`; `cursor` is each event's place, moved on, `stop` its end."""
    _, _, _, leaves, columns, maps, slots, _, _, _, _, _, _ = tree
    codes, list_ptr, list_codes = batch
    _, places, found, _ = scratch
    for leaf in range(first, end):
        words, slot = leaves[leaf, WORDS], leaves[leaf, SLOT]
        for event in range(codes.shape[0]):
            find_bits(leaves, columns, maps, codes, list_ptr, list_codes, event, leaf, places, found)
            n = cursor[event]
            last = stop[event] - 64  # beyond it, a whole write would reach the next event's matches
            for i in range(words):
                word = found[i]
                if HAS_COMPRESS and n <= last:
                    if word != ZERO:
                        n = list_word(word, slots, slot + 64 * i, out, n)
                else:
                    n = list_bits(word, slots, slot + 64 * i, out, n)
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
