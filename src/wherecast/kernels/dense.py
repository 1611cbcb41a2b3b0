"""Matching the clauses that every event meets: all events against one leaf, then the next leaf.

Theory of operation
-------------------
When a large share of all clauses matches, the cheapest way is to read one bit per clause and column. The order of the
loops is everything: with the events outside, each event streams all bitmaps through the cache (31 GB/s measured on
`topss`); with the leaves outside, the rows of a leaf (at most LEAF_WORDS words each) stay in the first-level cache
while all events pass by. Ids are written in a second pass, when every event's place in the output is known.

To weigh matches is to count them where all clauses of a word have one subscription, as most have. The weights of other
words are kept as bit planes: the sum is a count for each bit of the weights, and no clause is looked at by itself.

`expand_dense` goes on to the subscriptions of each clause while they, too, are in the cache: listing clauses first and
looking up their subscriptions event by event takes twice as long on `topss`. Most clauses have one subscription. In a batch, the values of
those of a leaf are put side by side once, and then the bits of a word choose among 64 of them, wherever filters stand in the index. Subscriptions
of other clauses are copied by runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Ints, Longs, Words
from wherecast.kernels.descent import LookupTree, Projected, Scratch
from wherecast.kernels.events import copy_run
from wherecast.kernels.jit import (
    HAS_COMPRESS,
    HAS_PERMUTE,
    ONE,
    ZERO,
    Scalar,
    count_both_4,
    count_rows_1,
    count_rows_4,
    count_rows_16,
    hot,
    inlined,
    jit,
    popcount,
    trailing_zeros,
)
from wherecast.kernels.leaves import (
    COLUMN,
    COLUMN_END,
    FOLD_AT,
    MAP,
    ROW_AT,
    SIZE,
    SLOT,
    WORDS,
    and_rows,
    find_bits,
    first_bits,
    list_bits,
    list_word,
)

#: From so many events on, the values of a leaf's clauses are put side by side first: for one event that takes longer than writing them.
NEAR = 16


@inlined
def is_simple(columns: Longs, first: Scalar, end: Scalar, list_codes: Ints) -> Scalar:
    """Whether `gather_exact` serves a leaf: no column is folded, no event has a list."""
    for at in range(first, end):
        if (columns[at] >> FOLD_AT) & 1:
            return False
    return list_codes.size == 0


@inlined
def gather_exact(
    columns: Longs, first: Scalar, end: Scalar, words: Scalar, base: Scalar, codes: Ints, event: Scalar, places: Longs
) -> Scalar:
    """`gather_rows` for columns that have a row for each code, as those of the dense part do."""
    for at in range(first, end):
        packed = columns[at]
        places[at - first] = base + ((packed >> ROW_AT) + codes[event, packed & 0xFFFF]) * words
    return end - first


@inlined
def count_words(maps: Words, places: Longs, count: Scalar, words: Scalar) -> Scalar:
    """Number of bits in the first `words` words of the AND of rows; there is at least one row."""
    total, at = 0, 0
    while at + 16 <= words:
        total += count_rows_16(maps, places, count, at, 0)
        at += 16
    if words >= 16:
        # The last sixteen again, without those counted already: a leaf has some thirty words, so that its tail matters.
        return total + count_rows_16(maps, places, count, words - 16, at - words + 16) if at < words else total
    while at + 4 <= words:
        total += count_rows_4(maps, places, count, at, 0)
        at += 4
    while at < words:
        total += count_rows_1(maps, places, count, at, 0)
        at += 1
    return total


@inlined
def count_found(found: Words, words: Scalar) -> Scalar:
    """Number of bits in some words."""
    total = 0
    for i in range(words):
        total += popcount(found[i])
    return total


@inlined
def count_single(word_weights: Ints, base: Scalar, words: Scalar) -> Scalar:
    """How many of a leaf's words, from the first on, hold clauses of weight 1 only; light clauses come first."""
    single = 0
    while single < words and word_weights[base + single] == 1:
        single += 1
    return single


@hot
def count_dense(
    tree: LookupTree, batch: Projected, first: Scalar, end: Scalar, scratch: Scratch, counts: Longs
) -> None:
    """Add the matches of leaves first:end to `counts`."""
    _, _, _, leaves, columns, maps, _, _, _, _, _, _ = tree
    codes, list_ptr, list_codes = batch
    _, places, found, _, _, _, _, _, _, _ = scratch
    for leaf in range(first, end):
        words, at = leaves[leaf, WORDS], leaves[leaf, MAP]
        begin, stop = leaves[leaf, COLUMN], leaves[leaf, COLUMN_END]
        if stop > begin and is_simple(columns, begin, stop, list_codes):
            for event in range(codes.shape[0]):
                count = gather_exact(columns, begin, stop, words, at, codes, event, places)
                counts[event] += count_words(maps, places, count, words)
        else:
            for event in range(codes.shape[0]):
                find_bits(leaves, columns, maps, codes, list_ptr, list_codes, event, leaf, places, found)
                counts[event] += count_found(found, words)


class Planes(NamedTuple):
    """The weights of clauses, bit by bit: row b of a leaf has the clauses whose weight has bit b.

    The words of a leaf that come before its first clause of another weight than 1 are left out.
    """

    ptr: Longs  # (leaves + 1,) where the rows of each leaf begin
    rows: Words  # of a multiple of four words, the last ones empty


@jit
def fill_planes(
    leaves: Longs, slots: Ints, first: Scalar, end: Scalar, word_weights: Ints, weights: Ints, planes: Planes,
    fill: Scalar,
) -> Scalar:  # fmt: skip
    """The planes of leaves first:end; without `fill`, only `ptr`. Returns how many words they have in all."""
    ptr, rows = planes
    base, n = 0, 0
    for leaf in range(first, end):
        slot, size, words = leaves[leaf, SLOT], leaves[leaf, SIZE], leaves[leaf, WORDS]
        single = count_single(word_weights, base, words)
        length, bits = (words - single + 3) // 4 * 4, 0
        for k in range(64 * single, size):
            weight = weights[slots[slot + k]]
            b = 0
            while weight >> b > 0:
                if fill and (weight >> b) & 1:
                    rows[n + b * length + (k >> 6) - single] |= ONE << np.uint64(k & 63)
                b += 1
            bits = max(bits, b)
        n += bits * length
        ptr[leaf - first + 1] = n
        base += words
    return n


@inlined
def weigh_found(found: Words, first: Scalar, words: Scalar, rows: Words, begin: Scalar, end: Scalar) -> Scalar:
    """Weight of the bits in words first:words of a leaf, by its planes; up to three words behind them are read."""
    total, bit, row, length = 0, 0, begin, (words - first + 3) // 4 * 4
    while row < end:
        for i in range(0, length, 4):
            total += count_both_4(found, first + i, rows, row + i) << bit
        bit += 1
        row += length
    return total


@hot
def weigh_dense(
    tree: LookupTree, batch: Projected, first: Scalar, end: Scalar, scratch: Scratch, word_weights: Ints, planes: Planes,
    totals: Longs,
) -> None:  # fmt: skip
    """Add the weights of the matches of leaves first:end to `totals`."""
    _, _, _, leaves, columns, maps, _, _, _, _, _, _ = tree
    codes, list_ptr, list_codes = batch
    _, places, found, _, _, _, _, _, _, _ = scratch
    ptr, rows = planes
    base = 0
    for leaf in range(first, end):
        words, begin, stop, at = leaves[leaf, WORDS], leaves[leaf, COLUMN], leaves[leaf, COLUMN_END], leaves[leaf, MAP]
        single = count_single(word_weights, base, words)
        lowest, highest = ptr[leaf - first], ptr[leaf - first + 1]
        if stop > begin and is_simple(columns, begin, stop, list_codes):
            for event in range(codes.shape[0]):
                count = gather_exact(columns, begin, stop, words, at, codes, event, places)
                total = count_words(maps, places, count, single)
                if single < words:
                    and_rows(maps, places, count, single, words, 0, found)
                    total += weigh_found(found, single, words, rows, lowest, highest)
                totals[event] += total
        else:
            for event in range(codes.shape[0]):
                find_bits(leaves, columns, maps, codes, list_ptr, list_codes, event, leaf, places, found)
                total = count_found(found, single)
                totals[event] += total + weigh_found(found, single, words, rows, lowest, highest)
        base += words


@inlined
def list_eights(word: Scalar, source: npt.NDArray[Any], base: Scalar, out: npt.NDArray[Any], n: Scalar) -> Scalar:
    """Append source[base + i] for each bit i of a word, eight at a time; source[base + 64] is read.

    The end of a loop over bits is mispredicted for about every word; that a word has more than eight bits is rare.
    out[n:n + 64] may be overwritten.
    """
    count = popcount(word)
    at = np.uint64(n)
    for _ in range(8):
        out[at] = source[np.uint64(base + trailing_zeros(word))]
        at += ONE
        word &= word - ONE
    if count > 8:
        for _ in range(8):
            out[at] = source[np.uint64(base + trailing_zeros(word))]
            at += ONE
            word &= word - ONE
        while word != ZERO:
            out[at] = source[np.uint64(base + trailing_zeros(word))]
            at += ONE
            word &= word - ONE
    return n + count


@inlined
def list_any(word: Scalar, slots: Ints, base: Scalar, out: Ints, n: Scalar) -> Scalar:
    """Append slots[base + i] for each bit i of a word, as this machine does it best; out[n:n + 64] may be overwritten."""
    if HAS_COMPRESS or HAS_PERMUTE:
        return list_word(word, slots, base, out, n)
    return list_eights(word, slots, base, out, n)


@hot
def list_dense(
    tree: LookupTree,
    batch: Projected,
    first: Scalar,
    end: Scalar,
    scratch: Scratch,
    cursor: Longs,
    stop: Longs,
    out: Ints,
) -> None:
    """Write the matches of leaves first:end to `out`; `cursor` is each event's place, moved on, `stop` its end."""
    _, _, _, leaves, columns, maps, slots, _, _, _, _, _ = tree
    codes, list_ptr, list_codes = batch
    _, places, found, _, _, _, _, _, _, _ = scratch
    for leaf in range(first, end):
        words, slot = leaves[leaf, WORDS], leaves[leaf, SLOT]
        for event in range(codes.shape[0]):
            find_bits(leaves, columns, maps, codes, list_ptr, list_codes, event, leaf, places, found)
            n = cursor[event]
            last = stop[event] - 64  # beyond it, a whole write would reach the next event's matches
            for i in range(words):
                if n <= last:
                    n = list_any(found[i], slots, slot + 64 * i, out, n)
                else:
                    n = list_bits(found[i], slots, slot + 64 * i, out, n)
            cursor[event] = n


@inlined
def list_words(found: Words, first: Scalar, end: Scalar, slots: Ints, slot: Scalar, out: Ints) -> Scalar:
    """Clauses of the bits of words first:end of a leaf; returns how many. `out` has room for 64 more."""
    n = 0
    for i in range(first, end):
        n = list_any(found[i], slots, slot + 64 * i, out, n)
    return n


@inlined
def gather_values(
    slots: Ints, slot: Scalar, size: Scalar, ptr: Ints, values: npt.NDArray[Any], near: npt.NDArray[Any]
) -> Scalar:
    """Write the values of the first clauses of slots[slot:slot + size], those with one value each, to `near`; how many there are."""
    for k in range(size):
        value = ptr[np.uint32(slots[np.uint64(slot + k)])]
        if ptr[np.uint32(slots[np.uint64(slot + k)]) + 1] != value + 1:
            return np.int64(k)
        near[np.uint64(k)] = values[np.uint32(value)]
    return np.int64(size)


@inlined
def write_near(
    word: Scalar, near: npt.NDArray[Any], base: Scalar, out: npt.NDArray[Any], at: Scalar, end: Scalar
) -> Scalar:
    """Write near[base + i] for each bit i of a word; out[:end] may be overwritten behind them."""
    if at + 64 > end:
        return list_bits(word, near, base, out, at)
    if HAS_COMPRESS:
        return list_word(word, near, base, out, at)
    return list_eights(word, near, base, out, at)


@inlined
def write_runs(
    clauses: Ints, n: Scalar, ptr: Ints, values: npt.NDArray[Any], out: npt.NDArray[Any], at: Scalar, end: Scalar
) -> Scalar:
    """Write the values of clauses[:n]; out[:end] may be overwritten behind them."""
    for i in range(n):
        value = np.int64(ptr[clauses[i]])
        at = copy_run(values, value, ptr[clauses[i] + 1] - value, out, at, end)
    return at


@hot
def expand_dense(
    tree: LookupTree, batch: Projected, first: Scalar, end: Scalar, scratch: Scratch, word_weights: Ints, clauses: Ints, ptr: Ints,
    values: npt.NDArray[Any], near: npt.NDArray[Any], cursor: Longs, ends: Longs, out: npt.NDArray[Any],
) -> None:  # fmt: skip
    """Write values[ptr[c]:ptr[c + 1]] of every clause c of leaves first:end that holds, at each event's cursor.

    An event's part of `out` ends at `ends`; `clauses` is scratch for those of a leaf and 64 more, `near` for their values.
    """
    _, _, _, leaves, columns, maps, slots, _, _, _, _, _ = tree
    codes, list_ptr, list_codes = batch
    _, places, found, _, _, _, _, _, _, _ = scratch
    base = 0
    for leaf in range(first, end):
        words, slot = leaves[leaf, WORDS], leaves[leaf, SLOT]
        begin, stop = leaves[leaf, COLUMN], leaves[leaf, COLUMN_END]
        simple = is_simple(columns, begin, stop, list_codes)
        single = count_single(word_weights, base, words)
        base += words
        is_near = codes.shape[0] >= NEAR
        n_near = gather_values(slots, slot, leaves[leaf, SIZE], ptr, values, near) if is_near else np.int64(0)
        for event in range(codes.shape[0]):
            if simple:
                count = gather_exact(columns, begin, stop, words, leaves[leaf, MAP], codes, event, places)
                and_rows(maps, places, count, 0, words, leaves[leaf, SIZE], found)
            else:
                find_bits(leaves, columns, maps, codes, list_ptr, list_codes, event, leaf, places, found)
            at = cursor[event]
            if is_near:
                for i in range(n_near >> 6):
                    at = write_near(found[i], near, 64 * i, out, at, ends[event])
                others: Scalar = n_near >> 6
                if others < words:
                    light = first_bits(n_near & 63)
                    at = write_near(found[others] & light, near, 64 * others, out, at, ends[event])
                    found[others] &= ~light
            else:
                n = list_words(found, 0, single, slots, slot, clauses)
                for i in range(n):  # unsigned: a sign would be tested for each
                    out[np.uint64(at + i)] = values[np.uint32(ptr[np.uint32(clauses[i])])]
                at += n
                others = single
            n = list_words(found, others, words, slots, slot, clauses)
            cursor[event] = write_runs(clauses, n, ptr, values, out, at, ends[event])


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
