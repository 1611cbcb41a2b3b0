"""Words: which of the words that filters look for are in a text.

Theory of operation
-------------------
The naive way cuts a text into strings and looks each up in a dictionary. Here nothing is cut: one pass over the bytes folds
ASCII letters by a table, hashes as it goes, and looks a word up where it ends, by hash and then by bytes. Each word of a text
is written once: a stamp per known word says in which text it was seen last.

What a byte of a character beyond ASCII belongs to is told by its code point, from a table of all of them. The letters of such a
word are not folded here, because Unicode's rules are not a table of bytes: the kernel writes down where the word is, and the
caller looks it up. The same is done with every word where words are compared by stems.

Hashes are seeded: nobody can prepare words that collide.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bools, Bytes, Ints, Longs, Words
from wherecast.kernels.automaton import FIRST_LITERAL, sort_codes
from wherecast.kernels.jit import Scalar, hot, inlined, jit

_ONE, _SHIFT, _TURN = np.uint64(1), np.uint64(32), np.uint64(29)
_MULTIPLIER, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_PLACE = np.uint64(0xFFFFFFFF)

#: Where known words begin, their bytes, their table (a slot holds 32 bits of the hash and the number of the word, plus one), and
#: the seed of the hashes.
Vocabulary = tuple[Any, ...]


def _folds() -> Bytes:
    """By byte: 0 if it is not part of an ASCII word, else the letter in lower case, the digit or `_`."""
    table = np.zeros(256, np.uint8)
    for byte in b"abcdefghijklmnopqrstuvwxyz0123456789_":
        table[byte] = byte
    table[ord("A") : ord("Z") + 1] = table[ord("a") : ord("z") + 1]
    table.flags.writeable = False
    return table


FOLDS = _folds()


@inlined
def _last_mix(h: np.uint64) -> np.uint64:
    h = (h ^ (h >> _SHIFT)) * _MIX
    return h ^ (h >> _SHIFT)


@inlined
def _step(h: np.uint64, byte: Scalar) -> np.uint64:
    h = (h ^ np.uint64(byte)) * _MULTIPLIER
    return h ^ (h >> _TURN)


@inlined
def _find_word(
    vocabulary: Vocabulary, folds: Bytes, text: Bytes | bytes, start: Scalar, end: Scalar, h: np.uint64
) -> Scalar:
    """The number of the ASCII word text[start:end], with hash h, or -1."""
    offsets, data, slots, _ = vocabulary
    mask = np.uint64(slots.size - 1)
    h = _last_mix(h)
    slot, mark = h & mask, h >> _SHIFT
    while slots[np.int64(slot)] != 0:
        entry = slots[np.int64(slot)]
        if entry >> _SHIFT == mark:
            word = np.int64(entry & _PLACE) - 1
            at = offsets[word]
            if offsets[word + 1] - at == end - start:
                i = np.int64(0)
                while i < end - start and data[at + i] == folds[text[start + i]]:
                    i += 1
                if i == end - start:
                    return word
        slot = (slot + _ONE) & mask
    return np.int64(-1)


@inlined
def _code_point(text: Bytes | bytes, at: Scalar, end: Scalar) -> tuple[Scalar, Scalar]:
    """The code point of a character beyond ASCII, and its bytes; 0 and 1 where it is not UTF-8."""
    first = np.int64(text[at])
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if first < 0xC0 or at + size > end:
        return np.int64(0), np.int64(1)
    point = first & (0x7F >> size)
    for i in range(1, size):
        point = point << 6 | (np.int64(text[at + i]) & 0x3F)
    return min(point, np.int64(0x10FFFF)), np.int64(size)


@inlined
def _search(
    vocabulary: Vocabulary, folds: Bytes, characters: Bools, is_stemmed: bool, text: Bytes | bytes, start: Scalar,
    end: Scalar, row: Scalar, stamp: Scalar, seen: Ints, out: Ints, n: Scalar, others: Longs, n_others: Scalar,
) -> tuple[Scalar, Scalar]:  # fmt: skip
    """Append the codes of the known words of text[start:end] to out[:n], and the words left to the caller to `others`.

    Returns where both end; -1 if `out` or `others` is too small.
    """
    if n + 1 > out.size:
        return np.int64(-1), n_others
    seed = vocabulary[3]
    first = n
    out[n] = np.int32(1)  # the text is there
    n += 1
    at = np.int64(start)
    while at < end:
        h, begin, is_plain = seed, at, not is_stemmed
        while at < end:
            byte = text[at]
            fold = folds[byte]
            if fold != 0:
                h = _step(h, fold)
                at += 1
            elif byte < 128:
                break
            else:
                point, size = _code_point(text, at, end)
                if not characters[point]:
                    break
                is_plain = False
                at += size
        if at == begin:
            at += 1 if text[at] < 128 else _code_point(text, at, end)[1]
            continue
        if is_plain:
            word = _find_word(vocabulary, folds, text, begin, at, h)
            if word >= 0 and seen[word] != stamp:
                seen[word] = stamp
                if n == out.size:
                    return np.int64(-1), n_others
                out[n] = word + FIRST_LITERAL
                n += 1
        else:
            if 3 * n_others + 3 > others.size:
                return np.int64(-1), n_others
            others[3 * n_others], others[3 * n_others + 1], others[3 * n_others + 2] = row, begin, at
            n_others += 1
    sort_codes(out, first, n)
    return n, n_others


@hot
def search_words(
    vocabulary: Vocabulary, folds: Bytes, characters: Bools, is_stemmed: bool, offsets: Longs | Ints, data: Bytes,
    valid: npt.NDArray[np.bool_], row: int, stamp: int, seen: Ints, ptr: Longs, out: Ints, others: Longs, state: Longs,
) -> Scalar:  # fmt: skip
    """Codes of the texts from `row` on: those of text r are out[ptr[r]:ptr[r + 1]], 0 alone where it is not valid.

    Words that are not plain ASCII, or all if `is_stemmed`, are written to `others` as text, start and end; state[0] of them
    are there. `seen` has a stamp by word; text r has the stamp `stamp` + r, which no word may have yet. Returns the number of texts, or the one for which
    `out` or `others` is too small; ptr[row] and state are known then.
    """
    n, n_others = ptr[row], state[0]
    for r in range(row, offsets.size - 1):
        if valid.size > 0 and not valid[r]:
            if n == out.size:
                return r
            out[n] = 0
            n += 1
        else:
            end, found = _search(
                vocabulary, folds, characters, is_stemmed, data, offsets[r], offsets[r + 1], r, stamp + r, seen, out, n,
                others, n_others,
            )  # fmt: skip
            if end < 0:
                return r
            n, n_others = end, found
        ptr[r + 1] = n
        state[0] = n_others
    return offsets.size - 1


@jit
def fill_slots(offsets: Longs, data: Bytes, seed: np.uint64, slots: Words) -> None:
    """Enter every word; `slots` starts as 0 everywhere and has a power of two of them."""
    mask = np.uint64(slots.size - 1)
    for word in range(offsets.size - 1):
        h = seed
        for i in range(offsets[word], offsets[word + 1]):
            h = _step(h, data[i])
        h = _last_mix(h)
        slot = h & mask
        while slots[np.int64(slot)] != 0:
            slot = (slot + _ONE) & mask
        slots[np.int64(slot)] = (h >> _SHIFT) << _SHIFT | np.uint64(word + 1)
