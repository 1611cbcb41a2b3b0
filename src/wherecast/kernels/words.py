"""Words: which of the words that filters look for are in a text.

Theory of operation
-------------------
The naive way cuts a text into strings and looks each up in a dictionary. Here nothing is cut: one pass over the bytes folds
ASCII letters and packs them into a 64-bit *key*. Eight bytes are folded at once, and where the word ends is the first of them that is not a letter: a loop over
bytes would mispredict the end of nearly every word. A word of up to eight letters is its key, so that comparing keys
compares words; the key of a longer one is a hash, and its letters are compared, too. A slot of the table holds a key and the
number of its word: one memory access for most words. These accesses are what takes the time, so words are looked up a few
dozen at once, after their slots have been fetched.

The numbers of the words found are collected as bits, with a second level of bits that says which words of bits are not empty.
Reading them off gives each number once, in order, and costs what is there.

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
from wherecast.kernels.automaton import FIRST_LITERAL
from wherecast.kernels.jit import (
    Scalar,
    eight_bytes,
    hot,
    inlined,
    jit,
    leading_zeros,
    prefetch,
    swap_bytes,
    trailing_zeros,
)

_ONE, _SHIFT, _BYTE, _ZERO = np.uint64(1), np.uint64(32), np.uint64(8), np.uint64(0)
_MULTIPLIER, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_NUMBER = np.uint64(0x7FFFFFFF)
_HIGH_BITS = np.uint64(0x8080808080808080)
#: Of the second half of a slot: its word has more letters than a key.
_IS_LONG = np.uint64(1 << 32)
#: Letters of a key, and words that are looked up at once.
KEY_LETTERS, TOGETHER = 8, 32

#: Where known words begin, their bytes, their table (per slot a key and the number of the word plus one, 0 where it is free),
#: and the seed of the hashes.
Vocabulary = tuple[Any, ...]
#: Memory of one search: keys, begins and ends of the words to be looked up; bits of the words found, and of their words.
SearchRoom = tuple[Any, ...]


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
def _mixed(key: np.uint64, seed: np.uint64) -> np.uint64:
    h = (key ^ seed) * _MULTIPLIER
    h = (h ^ (h >> _SHIFT)) * _MIX
    return h ^ (h >> _SHIFT)


@inlined
def _slot_of(key: np.uint64, seed: np.uint64, mask: np.uint64) -> np.uint64:
    return (_mixed(key, seed) >> np.uint64(16)) & mask


@inlined
def _same_letters(
    offsets: Longs, data: Bytes, word: Scalar, folds: Bytes, text: Bytes, start: Scalar, end: Scalar
) -> Scalar:
    at = offsets[word]
    if offsets[word + 1] - at != end - start:
        return False
    for i in range(end - start):
        if data[at + i] != folds[text[start + i]]:
            return False
    return True


@inlined
def _look_up(vocabulary: Vocabulary, folds: Bytes, text: Bytes, count: Scalar, room: SearchRoom, n: Scalar) -> Scalar:
    """Enter the first `count` words of `room` that are known among those found, of which there are n; how many there are then."""
    offsets, data, slots, seed = vocabulary
    keys, begins, ends, found, summary = room
    mask = np.uint64((slots.size >> 1) - 1)
    for i in range(count):
        key = keys[i]
        is_long = ends[i] - begins[i] > KEY_LETTERS
        slot = _slot_of(key, seed, mask)
        while True:
            entry = slots[np.int64(slot) * 2 + 1]
            if entry == _ZERO:
                break
            if slots[np.int64(slot) * 2] == key and (entry & _IS_LONG != _ZERO) == is_long:
                word = np.int64(entry & _NUMBER) - 1
                if not is_long or _same_letters(offsets, data, word, folds, text, begins[i], ends[i]):
                    bit = _ONE << np.uint64(word & 63)
                    bits = found[word >> 6]
                    if bits & bit == _ZERO:
                        n += 1
                        if bits == _ZERO:
                            summary[word >> 12] |= _ONE << np.uint64((word >> 6) & 63)
                        found[word >> 6] = bits | bit
                    break
            slot = (slot + _ONE) & mask
    return n


@inlined
def _read_off(room: SearchRoom, out: Ints, n: Scalar, is_written: Scalar) -> Scalar:
    """Write the codes of the words found to out[n:], ascending, if told so, and clear the bits; where they end."""
    found, summary = room[3], room[4]
    for i in range(summary.size):
        rest = summary[i]
        summary[i] = _ZERO
        while rest != _ZERO:
            at = np.int64(i * 64) + np.int64(trailing_zeros(rest))
            rest &= rest - _ONE
            bits = found[at]
            found[at] = _ZERO
            while bits != _ZERO:
                if is_written:
                    out[n] = at * 64 + np.int64(trailing_zeros(bits)) + FIRST_LITERAL
                    n += 1
                bits &= bits - _ONE
    return n


@inlined
def _code_point(text: Bytes, at: Scalar, end: Scalar) -> tuple[Scalar, Scalar]:
    """The code point of a character beyond ASCII, and its bytes; 0 and 1 where it is not UTF-8."""
    first = np.int64(text[at])
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if first < 0xC0 or first >= 0xF8 or at + size > end:
        return np.int64(0), np.int64(1)
    point = first & (0x7F >> size)
    for i in range(1, size):
        point = point << 6 | (np.int64(text[at + i]) & 0x3F)
    return min(point, np.int64(0x10FFFF)), np.int64(size)


@inlined
def _at_least(bytes_: Scalar, limit: int) -> Scalar:
    """The highest bit of each byte: whether the byte, below 128, is `limit` or more."""
    return bytes_ + np.uint64(0x0101010101010101 * (128 - limit))


@inlined
def _fold_eight(word: Scalar) -> tuple[Scalar, Scalar]:
    """Eight bytes, the first the highest, with ASCII letters in lower case; and how many of them begin a word of ASCII."""
    low = word & ~_HIGH_BITS
    folded = low | ((_at_least(low, 65) & ~_at_least(low, 91) & _HIGH_BITS) >> np.uint64(2))
    letters = _at_least(folded, 97) & ~_at_least(folded, 123)
    digits = _at_least(low, 48) & ~_at_least(low, 58)
    underscores = _at_least(low, 95) & ~_at_least(low, 96)
    others = ~((letters | digits | underscores) & ~word) & _HIGH_BITS
    return folded, leading_zeros(others) >> 3


@inlined
def _pass_word(text: Bytes, at: Scalar, end: Scalar, seed: np.uint64) -> tuple[Scalar, Scalar]:
    """The key of the longest run of ASCII letters from `at` on, and where it ends. Stops early where fewer than eight bytes are left in memory."""
    key, is_first = _ZERO, True
    while at + KEY_LETTERS <= text.size:
        folded, letters = _fold_eight(swap_bytes(eight_bytes(text, at)))
        letters = min(letters, end - at)
        if letters == 0:
            break
        rest = folded >> np.uint64(8 * (KEY_LETTERS - letters))
        key = rest if is_first else _mixed(key, seed) << np.uint64(8 * (letters - 1)) ^ rest
        is_first = False
        at += letters
        if letters < KEY_LETTERS:
            break
    return key, at


@inlined
def _search(
    vocabulary: Vocabulary, folds: Bytes, characters: Bools, is_stemmed: bool, text: Bytes, start: Scalar,
    end: Scalar, row: Scalar, room: SearchRoom, out: Ints, n: Scalar, others: Longs, n_others: Scalar,
) -> tuple[Scalar, Scalar]:  # fmt: skip
    """Append the codes of the known words of text[start:end] to out[:n], and the words left to the caller to `others`.

    Returns where both end; -1 if `out` or `others` is too small.
    """
    slots, seed = vocabulary[2], vocabulary[3]
    keys, begins, ends = room[0], room[1], room[2]
    mask = np.uint64((slots.size >> 1) - 1)
    at, count, distinct, fits = np.int64(start), 0, np.int64(0), True
    while at < end:
        begin, is_plain, letters = at, not is_stemmed, 0
        key, at = _pass_word(text, at, end, seed)
        if at < end and (text[at] >= 128 or folds[text[at]] != 0):  # not all of the word, or too near to the end
            key, at = _ZERO, begin
        while at < end:
            byte = text[at]
            fold = folds[byte]
            if fold != 0:
                if letters == KEY_LETTERS:  # the letters so far are hashed
                    key, letters = _mixed(key, seed), 0
                key = key << _BYTE | np.uint64(fold) if letters else key ^ np.uint64(fold)
                letters += 1
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
        elif is_plain:
            prefetch(slots, np.int64(_slot_of(key, seed, mask)) * 2)
            keys[count], begins[count], ends[count] = key, begin, at
            count += 1
            at += at < end and text[at] < 128  # a blank, most often
            if count == TOGETHER:
                distinct = _look_up(vocabulary, folds, text, count, room, distinct)
                count = 0
        elif 3 * n_others + 3 > others.size:
            fits = False
            break
        else:
            others[3 * n_others], others[3 * n_others + 1], others[3 * n_others + 2] = row, begin, at
            n_others += 1
    distinct = _look_up(vocabulary, folds, text, count, room, distinct)
    fits = fits and n + distinct + 1 <= out.size
    if fits:
        out[n] = np.int32(1)  # the text is there
        n += 1
    n = _read_off(room, out, n, fits)
    return n if fits else np.int64(-1), n_others


@hot
def search_words(
    vocabulary: Vocabulary, folds: Bytes, characters: Bools, is_stemmed: bool, offsets: Longs | Ints, data: Bytes,
    valid: npt.NDArray[np.bool_], row: int, room: SearchRoom, ptr: Longs, out: Ints, others: Longs, state: Longs,
) -> Scalar:  # fmt: skip
    """Codes of the texts from `row` on: those of text r are out[ptr[r]:ptr[r + 1]], 0 alone where it is not valid.

    Words that are not plain ASCII, or all if `is_stemmed`, are written to `others` as text, start and end; state[0] of them
    are there. The bits of `room` are empty before and after. Returns the number of texts, or the one for which `out` or
    `others` is too small; ptr[row] and state are known then.
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
                vocabulary, folds, characters, is_stemmed, data, offsets[r], offsets[r + 1], r, room, out, n, others,
                n_others,
            )  # fmt: skip
            if end < 0:
                return r
            n, n_others = end, found
        ptr[r + 1] = n
        state[0] = n_others
    return offsets.size - 1


@jit
def fill_slots(offsets: Longs, data: Bytes, seed: np.uint64, slots: Words) -> None:
    """Enter every word; `slots` starts as 0 everywhere and has a power of two of pairs."""
    mask = np.uint64((slots.size >> 1) - 1)
    for word in range(offsets.size - 1):
        key, letters = _ZERO, 0
        for i in range(offsets[word], offsets[word + 1]):
            if letters == KEY_LETTERS:
                key, letters = _mixed(key, seed), 0
            key = key << _BYTE | np.uint64(data[i]) if letters else key ^ np.uint64(data[i])
            letters += 1
        slot = _slot_of(key, seed, mask)
        while slots[np.int64(slot) * 2 + 1] != _ZERO:
            slot = (slot + _ONE) & mask
        is_long = offsets[word + 1] - offsets[word] > KEY_LETTERS
        slots[np.int64(slot) * 2] = key
        slots[np.int64(slot) * 2 + 1] = np.uint64(word + 1) | (_IS_LONG if is_long else _ZERO)
