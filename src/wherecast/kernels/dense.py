"""Matching the clauses that every event meets: all events against one leaf, then the next leaf.

Theory of operation
-------------------
When a large share of all clauses matches, the cheapest way is to read one bit per clause and column. The order of the
loops is everything: with the events outside, each event streams all bitmaps through the cache (31 GB/s measured on
`topss`); with the leaves outside, the rows of a leaf (at most LEAF_WORDS words each) stay in the first-level cache
while all events pass by. Ids are written in a second pass, when every event's place in the output is known.

`expand_dense` goes on to the subscriptions of each clause while they, too, are in the cache: listing clauses first and
looking up their subscriptions event by event takes twice as long on `topss`. Clauses with one subscription, which are
most, are copied without a branch; others by runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.kernels.bits import HAS_COMPRESS, ONE, ZERO, popcount, trailing_zeros
from wherecast.kernels.descent import SLOT, WORDS, Batch, Scratch, Tree, find_bits, list_bits, list_word
from wherecast.kernels.fanout import copy_run
from wherecast.kernels.jit import Scalar, hot, inlined

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


@hot
def count_dense(tree: Tree, batch: Batch, first: Scalar, end: Scalar, scratch: Scratch, counts: Longs) -> None:
    """Add the matches of leaves first:end to `counts`."""
    _, _, _, leaves, columns, maps, _ = tree
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
    _, _, _, leaves, columns, maps, slots = tree
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
    _, _, _, leaves, columns, maps, slots = tree
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


@inlined
def list_words(found: Words, first: Scalar, end: Scalar, slots: Ints, slot: Scalar, out: Ints) -> Scalar:
    """Clauses of the bits of words first:end of a leaf; returns how many. `out` has room for 64 more."""
    n = 0
    for i in range(first, end):
        word = found[i]
        if HAS_COMPRESS and word != ZERO:
            n = list_word(word, slots, slot + 64 * i, out, n)
        else:
            n = list_bits(word, slots, slot + 64 * i, out, n)
    return n


@hot
def expand_dense(
    tree: Tree, batch: Batch, first: Scalar, end: Scalar, scratch: Scratch, word_weights: Ints, clauses: Ints, ptr: Ints,
    values: npt.NDArray[Any], cursor: Longs, ends: Longs, out: npt.NDArray[Any],
) -> None:  # fmt: skip
    """Write values[ptr[c]:ptr[c + 1]] of every clause c of leaves first:end that holds, at each event's cursor.

    An event's part of `out` ends at `ends`; `clauses` is scratch for those of a leaf and 64 more.
    """
    _, _, _, leaves, columns, maps, slots = tree
    codes, list_ptr, list_codes = batch
    _, places, found, _ = scratch
    base = 0
    for leaf in range(first, end):
        words, slot = leaves[leaf, WORDS], leaves[leaf, SLOT]
        single = 0
        while single < words and word_weights[base + single] == 1:
            single += 1
        base += words
        for event in range(codes.shape[0]):
            find_bits(leaves, columns, maps, codes, list_ptr, list_codes, event, leaf, places, found)
            at = cursor[event]
            n = list_words(found, 0, single, slots, slot, clauses)
            for i in range(n):  # unsigned: a sign would be tested for each
                out[np.uint64(at + i)] = values[np.uint32(ptr[np.uint32(clauses[i])])]
            at += n
            n = list_words(found, single, words, slots, slot, clauses)
            for i in range(n):
                run = np.int64(ptr[clauses[i]])
                at = copy_run(values, run, ptr[clauses[i] + 1] - run, out, at, ends[event])
            cursor[event] = at


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
