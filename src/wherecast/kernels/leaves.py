"""Leaves: which clauses of one leaf an event may satisfy.

Theory of operation
-------------------
A leaf has some clauses, in slots that follow each other. Naively, each is compared with the event.

- A *bitmap leaf* has, per column, one row of bits for each bucket of codes: bit i says whether clause i can hold for
  a code of that bucket. The bucket of a code is some of its middle bits (`(code >> shift) & mask`), so that the same
  form serves an attribute of five values, where rows are exact, and a slice of one with half a million. ANDing one
  row per column leaves the candidates. A *folded* column, of codes 0, 1 and 2, has no row for code 0: it is the AND of
  the other two, as the clauses that do not ask for 1 or for 2 are those that do not ask at all.
- A *row leaf* has no bitmaps. Beside each slot stands a *guard* (`kernels.guards`): the rarest constraint that the way to the
  leaf has not settled, in 32 bits. 64 guards make a word of candidates, as rows of bits do. With many optional columns nearly every
  clause of a leaf asks for other columns than its neighbours: no bitmap serves, and the guard refuses nearly all.

What neither bits nor guards decide is left to be compared with its box (`kernels.rows`). How many clauses of a word are found cannot be predicted, so the first
few are listed without asking.

Measured and rejected: four accumulators written out in Numba for the AND (LLVM gathers over the rows instead, see
`jit`); padding leaves to whole vectors (a tenth more memory on `gryphon`, no faster); checking clauses one by one without
bitmaps, as a tree of small leaves does (on `gryphon` the leaves of 16 clauses that pay then cost five times as much).
"""

from __future__ import annotations

import numpy as np

from wherecast.kernels.arrays import Ints, Longs, Words
from wherecast.kernels.guards import find_pairs
from wherecast.kernels.jit import (
    FULL,
    HAS_COMPRESS,
    HAS_PERMUTE,
    ONE,
    ZERO,
    Scalar,
    and_rows_1,
    and_rows_2,
    and_rows_4,
    and_rows_16,
    compress_16,
    config,
    inlined,
    jit,
    place_rows,
    popcount,
    prefetch,
    trailing_zeros,
)

#: Most clauses of one bitmap leaf, in words: its rows and the accumulator stay in the first-level cache.
LEAF_WORDS = 64
#: Clauses of a word that are listed without asking how many there are, which cannot be predicted: to be checked, and decided.
UNASKED, UNASKED_SURE = 3, 2
#: Slots behind the last.
SLOT_PADDING = 64
#: Fields of a leaf.
SLOT, SIZE, WORDS, COLUMN, COLUMN_END, MAP, CHECKED, SURE = range(8)
LEAF_FIELDS = 8
#: In a row leaf with guards SURE is 1, PAIRED if its slots have two, and MAP the place of the first guard. In a bitmap leaf SURE is 0 without sure rows, SIDE_BY_SIDE if each row of
#: bits is followed by its sure row, so that one pass over half as many lines of memory ANDs both; in older indexes, the number of rows before the sure rows.
SIDE_BY_SIDE, PAIRED = -1, 2
#: Parts of a packed leaf column: column number | shift | bucket bits | folded | first row.
SHIFT_AT, BITS_AT, FOLD_AT, ROW_AT = 16, 21, 26, 32

#: Columns of which an event's rows are asked for ahead. More are not, as the processor cannot wait for so many lines at the same time.
MOST_FETCHED = 32
#: Guards that are asked for ahead.
FETCHED_GUARDS = 256
#: Columns of which the rows are found at the same time, where there are so many and the machine has instructions for it.
ROWS_TOGETHER = 8
_FINDS_ROWS_TOGETHER = HAS_COMPRESS and not config.DISABLE_JIT
#: Places behind those of all rows, for whole writes.
PLACES_PADDING = 16

B16, B32, B48 = np.uint64(16), np.uint64(32), np.uint64(48)
LOW16, LOW32, LOW48 = np.uint64(2**16 - 1), np.uint64(2**32 - 1), np.uint64(2**48 - 1)


@inlined
def gather_rows(
    columns: Longs, first: Scalar, end: Scalar, stride: Scalar, base: Scalar, codes: Ints, event: Scalar, places: Longs
) -> tuple[Scalar, Scalar]:
    """Where the event's rows, of `stride` words, of each leaf column start in `maps`; columns with a list of codes are left out.

    Returns the number of rows and of columns left out.
    """
    count: Scalar = 0
    lists: Scalar = 0
    if _FINDS_ROWS_TOGETHER and end - first >= ROWS_TOGETHER:
        own = codes[np.uint64(event)]
        for at in range(first, end, ROWS_TOGETHER):
            both = place_rows(columns, at, end - at, own, stride, base, places, count)
            count, lists = both & 0xFFFFFFFF, lists + (both >> 32)
        return count, lists
    for at in range(first, end):
        packed = columns[np.uint64(at)]
        code = np.int64(codes[np.uint64(event), np.uint64(packed & 0xFFFF)])
        bucket = (code >> ((packed >> SHIFT_AT) & 31)) & ((1 << ((packed >> BITS_AT) & 31)) - 1)
        folded = (packed >> FOLD_AT) & 1
        row = base + ((packed >> ROW_AT) + max(bucket - folded, 0)) * stride
        places[np.uint64(count)] = row
        count += code >= 0
        places[np.uint64(count)] = row + stride
        count += (folded > bucket) & (code >= 0)
        lists += code < 0
    return count, lists


@inlined
def first_bits(n: Scalar) -> Scalar:
    """A word with the first n bits set, all for n >= 64, none for n <= 0."""
    return FULL if n >= 64 else (ONE << np.uint64(max(n, 0))) - ONE


@inlined
def and_rows(
    maps: Words, places: Longs, count: Scalar, first: Scalar, words: Scalar, size: Scalar, found: Words
) -> None:
    """AND `count` rows of `words` words, from word `first` on; without rows, all of `size` slots are found."""
    if count == 0:
        for i in range(first, words):
            found[i] = first_bits(size - 64 * i)
    else:
        at = first
        while at + 16 <= words:
            and_rows_16(maps, places, count, at, found)
            at += 16
        while at + 4 <= words:
            and_rows_4(maps, places, count, at, found)
            at += 4
        if at + 2 <= words:
            and_rows_2(maps, places, count, at, found)
            at += 2
        if at < words:
            and_rows_1(maps, places, count, at, found)


@inlined
def and_lists(columns: Longs, first: Scalar, end: Scalar, words: Scalar, stride: Scalar, base: Scalar, maps: Words, codes: Ints,
              list_ptr: Longs, list_codes: Ints, event: Scalar, found: Words) -> None:  # fmt: skip
    """AND the columns in which the event has a list: for each, the OR of the rows of its codes."""
    for at in range(first, end):
        packed = columns[at]
        code = np.int64(codes[event, packed & 0xFFFF])
        if code >= 0:
            continue
        shift = (packed >> SHIFT_AT) & 31
        mask = (1 << ((packed >> BITS_AT) & 31)) - 1
        folded = (packed >> FOLD_AT) & 1
        for i in range(words):
            word = ZERO
            for k in range(list_ptr[~code], list_ptr[~code + 1]):
                bucket = (np.int64(list_codes[k]) >> shift) & mask
                row = base + ((packed >> ROW_AT) + max(bucket - folded, 0)) * stride + i
                word |= maps[row] & maps[row + stride] if folded > bucket else maps[row]
            found[i] &= word


@inlined
def find_bits(leaves: Longs, columns: Longs, maps: Words, codes: Ints, list_ptr: Longs, list_codes: Ints, event: Scalar,
              leaf: Scalar, places: Longs, found: Words) -> None:  # fmt: skip
    """The candidates of a bitmap leaf, as bits; behind them, where the leaf has something to check, those that hold without a check.

    None does if the event has a list here.
    """
    words, first, end, sure = leaves[leaf, WORDS], leaves[leaf, COLUMN], leaves[leaf, COLUMN_END], leaves[leaf, SURE]
    base, stride = leaves[leaf, MAP], 2 * words if sure < 0 else words
    count, lists = gather_rows(columns, first, end, stride, base, codes, event, places)
    and_rows(maps, places, count, 0, stride, leaves[leaf, SIZE], found)
    if lists > 0:
        and_lists(columns, first, end, words, stride, base, maps, codes, list_ptr, list_codes, event, found)
    if leaves[leaf, CHECKED] == 0:
        return
    if sure == 0 or count == 0 or lists > 0:
        for i in range(words, 2 * words):
            found[i] = ZERO
    elif sure > 0:
        find_sure(columns, maps, codes, event, first, end, words, base + sure * words, places, found)


@inlined
def find_sure(columns: Longs, maps: Words, codes: Ints, event: Scalar, first: Scalar, end: Scalar, words: Scalar, base: Scalar,
              places: Longs, found: Words) -> None:  # fmt: skip
    """The AND of sure rows that begin at `base`, behind the candidates."""
    count, _ = gather_rows(columns, first, end, words, base, codes, event, places)
    for i in range(words):
        word = FULL
        for row in range(count):
            word &= maps[places[row] + i]
        found[words + i] = word


@inlined
def is_needless(leaves: Longs, leaf: Scalar, codes: Ints, event: Scalar) -> Scalar:
    """Whether all clauses of a leaf ask for a value in a column in which the event has none."""
    needed = leaves[leaf, CHECKED] >> 1
    return needed > 0 and codes[event, needed - 1] == 0


@inlined
def list_bits(word: Scalar, slots: Ints, base: Scalar, out: Ints, n: Scalar) -> Scalar:
    """Append slots[base + i] for each bit i of a word, one by one."""
    while word != ZERO:
        out[np.uint64(n)] = slots[np.uint64(base + trailing_zeros(word))]
        n += 1
        word &= word - ONE
    return n


@inlined
def list_few(word: Scalar, slots: Ints, base: Scalar, out: Ints, n: Scalar) -> Scalar:
    """The same where few bits are set; out[n:n + UNASKED_SURE] may be overwritten."""
    for _ in range(UNASKED_SURE if word != ZERO else 0):
        out[np.uint64(n)] = slots[np.uint64(base + trailing_zeros(word))]
        n += word != ZERO
        word &= word - ONE
    return list_bits(word, slots, base, out, n)


@inlined
def list_word(word: Scalar, slots: Ints, base: Scalar, out: Ints, n: Scalar) -> Scalar:
    """Append slots[base + i] for each bit i of a word, 16 at a time; out[n:n + 64] may be overwritten."""
    compress_16(slots, base, word, out, n)
    compress_16(slots, base + 16, word >> B16, out, n + popcount(word & LOW16))
    compress_16(slots, base + 32, word >> B32, out, n + popcount(word & LOW32))
    compress_16(slots, base + 48, word >> B48, out, n + popcount(word & LOW48))
    return n + popcount(word)


@inlined
def fetch_places(leaves: Longs, columns: Longs, guards: Ints, item: Scalar) -> None:
    """Bring what a leaf begins with into the cache: its columns, or its guards. An item of the stack may also be a node."""
    if item > 0:
        if leaves[item - 1, WORDS] > 0:
            prefetch(columns, leaves[item - 1, COLUMN])
        else:
            prefetch(guards, leaves[item - 1, MAP])


@inlined
def fetch_guards(leaves: Longs, guards: Ints, leaf: Scalar) -> None:
    """Bring the guards of a leaf into the cache, but for the first ones, which `fetch_places` asks for."""
    if leaves[leaf, WORDS] == 0:
        first = leaves[leaf, MAP]
        for at in range(first + 16, first + min(leaves[leaf, SIZE], np.int64(FETCHED_GUARDS)), 16):
            prefetch(guards, at)


@inlined
def fetch_slots(leaves: Longs, guards: Ints, slots: Ints, stack: Ints, first: Scalar, end: Scalar) -> None:
    """Bring guards and slots of all row leaves among many children into the cache at the same time."""
    for at in range(first, end):
        item = np.int64(stack[at])
        if item > 0 and leaves[item - 1, WORDS] == 0:
            prefetch(guards, leaves[item - 1, MAP])
            prefetch(slots, leaves[item - 1, SLOT])


@inlined
def fetch_rows(leaves: Longs, columns: Longs, maps: Words, codes: Ints, event: Scalar, item: Scalar) -> None:
    """Bring the rows that an event will ask of a bitmap leaf into the cache, unless they are many."""
    if item <= 0 or leaves[item - 1, WORDS] == 0:
        return
    words, base, sure = leaves[item - 1, WORDS], leaves[item - 1, MAP], leaves[item - 1, SURE]
    first, end = leaves[item - 1, COLUMN], leaves[item - 1, COLUMN_END]
    if end - first > MOST_FETCHED:
        return
    stride = 2 * words if sure < 0 else words
    for at in range(first, end):
        packed = columns[at]
        bucket = (np.int64(codes[event, packed & 0xFFFF]) >> ((packed >> SHIFT_AT) & 31)) & (
            (1 << ((packed >> BITS_AT) & 31)) - 1
        )
        row = base + ((packed >> ROW_AT) + bucket) * stride
        prefetch(maps, row)
        prefetch(maps, row + stride - 1)


@inlined
def search_leaf(leaves: Longs, columns: Longs, maps: Words, slots: Ints, guards: Ints, codes: Ints, list_ptr: Longs, list_codes: Ints,
                event: Scalar, leaf: Scalar, own: Ints, row_ptr: Ints, places: Longs, found: Words, waiting: Ints, count: Scalar,
                kept: Ints, held: Scalar) -> tuple[Scalar, Scalar]:  # fmt: skip
    """Append the clauses of a leaf that may hold for an event: those whose boxes are to be checked to waiting[:count], the others to kept[:held].

    `own` are the event's buckets. If one of them is of a list, guards take `list_guarded`.
    """
    first, size, words = leaves[leaf, SLOT], leaves[leaf, SIZE], leaves[leaf, WORDS]
    checked, guarded = leaves[leaf, CHECKED] > 0, words == 0 and leaves[leaf, SURE] > 0
    if words > 0:
        find_bits(leaves, columns, maps, codes, list_ptr, list_codes, event, leaf, places, found)
    for i in range((size + 63) >> 6):
        word = found[i] if words > 0 else first_bits(size - 64 * i)
        certain = found[words + i] if words > 0 else ZERO
        if guarded:
            guard = leaves[leaf, MAP] + 64 * i
            end = min(guard + 64, leaves[leaf, MAP] + size)
            word, certain = find_pairs(guards, guard, end, size, leaves[leaf, SURE] == PAIRED, own)
        if not checked:
            certain = word
        word &= ~certain
        if (HAS_COMPRESS or HAS_PERMUTE) and popcount(certain) > 8:
            held = list_word(certain, slots, first + 64 * i, kept, held)
        else:
            held = list_few(certain, slots, first + 64 * i, kept, held)
        for _ in range(UNASKED if word != ZERO else 0):
            clause = slots[np.uint64(first + 64 * i + trailing_zeros(word))]
            prefetch(row_ptr, np.int64(clause))
            waiting[np.uint64(count)] = clause
            count += word != ZERO
            word &= word - ONE
        while word != ZERO:
            clause = slots[np.uint64(first + 64 * i + trailing_zeros(word))]
            word &= word - ONE
            prefetch(row_ptr, np.int64(clause))
            waiting[np.uint64(count)] = clause
            count += 1
    return count, held


@jit
def has_loose_bits(leaves: Longs, columns: Longs, width: Ints, maps: Words, first: Scalar, end: Scalar) -> Scalar:
    """Whether a row of the first column of leaves first:end has a bit that stands for no slot.

    Counting and listing the matches of a leaf would then differ. One column is enough, as rows are ANDed.
    """
    for leaf in range(first, end):
        words, size = leaves[leaf, WORDS], leaves[leaf, SIZE]
        loose = ~first_bits(size - 64 * (words - 1))
        for at in range(leaves[leaf, COLUMN], min(leaves[leaf, COLUMN] + 1, leaves[leaf, COLUMN_END])):
            packed = columns[at]
            n_rows = width[packed & 0xFFFF] - ((packed >> FOLD_AT) & 1)
            for row in range(n_rows):
                if maps[leaves[leaf, MAP] + ((packed >> ROW_AT) + row) * words + words - 1] & loose:
                    return True
    return False
