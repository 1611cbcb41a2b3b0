"""Functions of texts, for a column at once, in Arrow's layout: text i is data[offsets[i]:offsets[i + 1]], in UTF-8.

Theory of operation
-------------------
The naive way calls a function of Python for each text: 200 to 500 ns. Arrow has some of the functions, at 10 to 60 ns, most of
it for memory that each of its steps allocates.

Here a function is one pass over the bytes, which writes the new texts and where each of them ends. Two passes would need arrays in between that are as large as the result. The
caller gives room for as many bytes as the result may have; memory that is not written costs nothing. Places count characters, so a byte that continues a character
(10xxxxxx) does not count; a column without any byte beyond ASCII need not look. What is looked for is compared byte by
byte: UTF-8 has no character inside another one.

What NULLs hide is computed too, and ignored by the caller.
"""

from __future__ import annotations

import numpy as np

from wherecast.kernels.arrays import Bools, Bytes, Floats, Longs, Shorts, Words
from wherecast.kernels.jit import Scalar, array_at, copy_8, eight_bytes, hot, inlined, popcount, trailing_zeros

#: Bytes that kernels may write behind the last text: as many as are copied of an empty one.
SPARE = 32


@inlined
def _is_start(byte: Scalar) -> Scalar:
    """Whether a byte begins a character."""
    return (byte & 0xC0) != 0x80


_HIGH_BITS = np.uint64(0x8080808080808080)


@inlined
def _continuing(word: Scalar) -> Scalar:
    """The highest bit of each of eight bytes that continues a character."""
    return word & ~(word << np.uint64(1)) & _HIGH_BITS


@inlined
def _count(data: Bytes, start: Scalar, end: Scalar) -> Scalar:
    """Characters of a text: its bytes but for those that continue one, looked for in eight bytes at a time."""
    at, n = np.int64(start), np.int64(end) - np.int64(start)
    while at < end and at + 8 <= data.size:
        behind = np.uint64(max(64 - 8 * (end - at), 0))  # what is behind the text does not count
        n -= popcount(_continuing(eight_bytes(data, at)) << behind)
        at += 8
    while at < end:
        n -= not _is_start(data[at])
        at += 1
    return n


@inlined
def _skip(data: Bytes, start: Scalar, end: Scalar, count: Scalar) -> Scalar:
    """Where the text begins after so many characters, or its end."""
    at, left = np.int64(start), np.int64(count)
    if left <= 0:
        return at
    while at + 8 <= end:
        begun = 8 - popcount(_continuing(eight_bytes(data, at)))
        if begun > left:
            break
        at, left = at + 8, left - begun
    while at < end:
        if _is_start(data[at]):
            if left == 0:
                return at
            left -= 1
        at += 1
    return at


_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_EACH_BYTE = np.uint64(0x0101010101010101)


@inlined
def _is_at(data: Bytes, at: Scalar, part: Bytes) -> Scalar:
    """Whether a part, whose first byte is there, stands at a place."""
    k = 1
    while k < part.size and data[at + k] == part[k]:
        k += 1
    return k == part.size


@inlined
def _find(data: Bytes, start: Scalar, end: Scalar, part: Bytes) -> Scalar:
    """Where a part first occurs, or -1. Eight bytes at a time are compared with its first one."""
    if part.size == 0:
        return np.int64(start)
    first, last, i = part[0], np.int64(end) - part.size, np.int64(start)
    firsts = np.uint64(first) * _EACH_BYTE
    while i <= last:
        if i + 8 <= data.size:
            others = eight_bytes(data, i) ^ firsts
            # The highest bit of each byte that is the first one.
            hits = ~(((others & _LOW_BITS) + _LOW_BITS) | others | _LOW_BITS)
            while hits:
                at = i + np.int64(trailing_zeros(hits) >> 3)
                if at > last:
                    return np.int64(-1)
                if _is_at(data, at, part):
                    return at
                hits &= hits - np.uint64(1)
            i += 8
        else:
            if data[i] == first and _is_at(data, i, part):
                return i
            i += 1
    return np.int64(-1)


@inlined
def _find_last(data: Bytes, start: Scalar, end: Scalar, part: Bytes) -> Scalar:
    """Where a part last occurs, or -1."""
    size = part.size
    for i in range(end - size, start - 1, -1):
        k = 0
        while k < size and data[i + k] == part[k]:
            k += 1
        if k == size:
            return i
    return np.int64(-1)


@inlined
def _copy_32(data: Bytes, start: Scalar, end: Scalar, out: Bytes, at: Scalar) -> None:
    """Copies 32 bytes, or as many as the part has where the data end before."""
    if start + 32 <= data.size:
        copy_8(data, start, out, at)
        copy_8(data, start + 8, out, at + 8)
        copy_8(data, start + 16, out, at + 16)
        copy_8(data, start + 24, out, at + 24)
    else:
        for i in range(start, min(end, start + 32)):
            out[at + i - start] = data[i]


@inlined
def _copy(data: Bytes, start: Scalar, end: Scalar, out: Bytes, at: Scalar) -> Scalar:
    """Copies a part; `out` has `SPARE` bytes more than all texts need. Returns where the copy ends.

    Most texts are short. The first 32 bytes are copied without asking whether there are so many: if that varies, the processor guesses wrong, and
    `trim` takes twice as long.
    """
    _copy_32(data, start, end, out, at)
    k = start + 32
    while k < end:
        _copy_32(data, k, end, out, at + k - start)
        k += 32
    return at + end - start


@hot
def count_characters(offsets: Longs, data: Bytes, out: Longs) -> None:
    """How many characters each text has."""
    for i in range(out.size):
        out[i] = _count(data, offsets[i], offsets[i + 1])


@hot
def locate_part(offsets: Longs, data: Bytes, part: Bytes, at: Scalar, is_ascii: bool, out: Longs) -> None:
    """Which character, from number `at` on, a part begins at, counted from 1; 0 if it does not occur."""
    for i in range(out.size):
        start, end = offsets[i], offsets[i + 1]
        first = min(start + at - 1, end + 1) if is_ascii else _skip(data, start, end, at - 1)
        found = _find(data, first, end, part)
        if found < 0:
            out[i] = 0
        else:
            out[i] = (found - start if is_ascii else _count(data, start, found)) + 1


# -- parts of texts: `ends` gets 0 and where each of them ends in `out` ----------------------------------------------------------------------------------------------------


@hot
def trim_parts(
    offsets: Longs, data: Bytes, is_removed: Bools, at_start: bool, at_end: bool, ends: Longs, out: Bytes
) -> None:
    """What is left when bytes (ASCII) are removed at the ends. The first one is removed without a branch: most texts have one or none."""
    last, at = max(data.size - 1, 0), np.int64(0)
    ends[0] = 0
    for i in range(ends.size - 1):
        start, end = offsets[i], offsets[i + 1]
        if at_start and data.size:
            start += (start < end) & is_removed[data[min(start, last)]]
            while start < end and is_removed[data[start]]:
                start += 1
        if at_end and data.size:
            end -= (start < end) & is_removed[data[max(end - 1, 0)]]
            while start < end and is_removed[data[end - 1]]:
                end -= 1
        at = _copy(data, start, end, out, at)
        ends[i + 1] = at


@hot
def slice_parts(
    offsets: Longs, data: Bytes, place: Scalar, count: Scalar, is_ascii: bool, ends: Longs, out: Bytes
) -> None:
    """So many characters from a place on; a negative place counts from the end, and may be before the text."""
    at = np.int64(0)
    ends[0] = 0
    for i in range(ends.size - 1):
        start, end = np.int64(offsets[i]), np.int64(offsets[i + 1])  # 32 bits hold no sum with `count`
        first = place
        if place < 0:
            first = place + (end - start if is_ascii else _count(data, start, end))
        last = first + count
        first, last = max(first, 0), max(last, 0)
        if is_ascii:
            at = _copy(data, min(start + first, end), min(start + last, end), out, at)
        else:
            start = _skip(data, start, end, first)
            at = _copy(data, start, _skip(data, start, end, last - first), out, at)
        ends[i + 1] = at


@hot
def split_parts(offsets: Longs, data: Bytes, mark: Bytes, number: Scalar, ends: Longs, out: Bytes) -> None:
    """The part of a number between marks, from the end if it is negative; the empty text if there are fewer."""
    size, written = mark.size, np.int64(0)
    ends[0] = 0
    for i in range(ends.size - 1):
        start, end = offsets[i], offsets[i + 1]
        left = number
        if number < 0:  # marks do not overlap, counted from the start
            n, at = np.int64(1), _find(data, start, end, mark)
            while at >= 0:
                n, at = n + 1, _find(data, at + size, end, mark)
            left = n + number + 1
        if left > 0:
            at = _find(data, start, end, mark)
            while left > 1 and at >= 0:
                start, left = at + size, left - 1
                at = _find(data, start, end, mark)
            if left == 1:
                written = _copy(data, start, end if at < 0 else at, out, written)
        ends[i + 1] = written


@hot
def index_parts(offsets: Longs, data: Bytes, mark: Bytes, count: Scalar, ends: Longs, out: Bytes) -> None:
    """What comes before the mark of a number, or after it if it is counted from the end; marks may overlap."""
    written = np.int64(0)
    ends[0] = 0
    for i in range(ends.size - 1):
        start, end = offsets[i], offsets[i + 1]
        if count > 0:
            at, left = start - 1, count
            while left > 0 and at + 1 >= start:
                at = _find(data, at + 1, end, mark)
                left -= 1
                if at < 0:
                    break
            if at >= 0:
                end = at
        else:
            at, left = end, -count
            while left > 0:
                at = _find_last(data, start, min(at + mark.size - 1, end), mark)
                left -= 1
                if at < 0:
                    break
            if at >= 0:
                start = at + mark.size
        written = _copy(data, start, end, out, written)
        ends[i + 1] = written


# -- texts made anew ---------------------------------------------------------------------------------------------------


@hot
def replace_bytes(offsets: Longs, data: Bytes, by: Shorts, out_offsets: Longs, out: Bytes) -> None:
    """Every byte as the table says, removed where that is negative."""
    at = np.int64(0)
    for i in range(offsets.size - 1):
        out_offsets[i] = at
        for k in range(offsets[i], offsets[i + 1]):
            new = by[data[k]]
            if new >= 0:
                out[at] = new
                at += 1
    out_offsets[offsets.size - 1] = at


@hot
def replace_parts(offsets: Longs, data: Bytes, old: Bytes, new: Bytes, ends: Longs, out: Bytes) -> None:
    """Texts with every occurrence of a part replaced, from the start."""
    size, at = old.size, np.int64(0)
    ends[0] = 0
    for i in range(offsets.size - 1):
        start, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
        found = _find(data, start, end, old)
        while found >= 0:
            at = _copy(data, start, found, out, at)
            at = _copy(new, np.int64(0), new.size, out, at)
            start = found + size
            found = _find(data, start, end, old)
        at = _copy(data, start, end, out, at)
        ends[i + 1] = at


@hot
def join_texts(columns: Longs, ends: Longs, out: Bytes) -> None:
    """The texts of several columns, one after the other.

    Each row of `columns` has the address of the offsets of a column's first text and how many bytes each of them has (4 or 8), the address of the bytes and
    how many there are, and 1, or 0 if all rows have the first text.
    """
    at = np.int64(0)
    ends[0] = 0
    for i in range(ends.size - 1):
        for k in range(columns.shape[0]):
            row = columns[k]
            first = row[0] + row[1] * row[4] * i
            if row[1] == 8:
                longs = array_at(first, 2, np.int64)
                start, end = longs[0], longs[1]
            else:
                ints = array_at(first, 2, np.int32)
                start, end = np.int64(ints[0]), np.int64(ints[1])
            at = _copy(array_at(row[2], row[3], np.uint8), start, end, out, at)
        ends[i + 1] = at


@hot
def switch_case(offsets: int, is_large: int, first: int, n: int, data: int, letter: int, out: int) -> Scalar:
    """Write the bytes of `n` texts to `out`, the 26 letters from one on in the other case. False if not all bytes are ASCII: then `out` is not the answer.

    Arrays are given by their addresses: making arrays of them takes Python longer than a thousand texts. Offsets have 64 bits if they are large. Every byte keeps its place.
    """
    if is_large:
        long_ends = array_at(offsets + 8 * first, n + 1, np.int64)
        start, end = long_ends[0], long_ends[n]
    else:
        ends = array_at(offsets + 4 * first, n + 1, np.int32)
        start, end = np.int64(ends[0]), np.int64(ends[n])
    given, made = array_at(data + start, end - start, np.uint8), array_at(out + start, end - start, np.uint8)
    # The letter is a constant in each loop: compared with a variable, bytes are widened to 64 bits, and the loop takes four times as long.
    return _switch_case(given, 65, made) if letter == 65 else _switch_case(given, 97, made)


@inlined
def _switch_case(data: Bytes, first: Scalar, out: Bytes) -> Scalar:
    seen = np.uint8(0)
    for k in range(out.size):
        byte = data[k]
        seen = np.uint8(seen | byte)
        out[k] = np.uint8(byte ^ 32) if first <= byte < first + 26 else byte
    return seen < 128


@inlined
def _bytes_from(data: Bytes, at: Scalar) -> Scalar:
    """Eight bytes from a place on, or as many as there are and zeros behind them."""
    if at + 8 <= data.size:
        return eight_bytes(data, at)
    word = np.uint64(0)
    for i in range(data.size - at):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@inlined
def _character(word: Scalar) -> Scalar:
    """The number of the character beyond ASCII that a word begins with, and its bytes; of what is no UTF-8, which NULLs may hide, no character's, and one byte."""
    if word & 0xC0E0 == 0x80C0:
        return (word & 31) << 6 | (word >> 8 & 63), np.int64(2)
    if word & 0xC0C0F0 == 0x8080E0:
        return (word & 15) << 12 | (word >> 8 & 63) << 6 | (word >> 16 & 63), np.int64(3)
    if word & 0xC0C0C0F8 == 0x808080F0:
        return (word & 7) << 18 | (word >> 8 & 63) << 12 | (word >> 16 & 63) << 6 | (word >> 24 & 63), np.int64(4)
    return np.int64(1 << 21), np.int64(1)


#: In the table of `switch_letters`, the size of what a character becomes by its neighbours.
BY_NEIGHBOURS = 255


@hot
def switch_letters(
    offsets: Longs, data: Bytes, first: Scalar, table: Words, is_left: Bools, ends: Longs, out: Bytes
) -> None:
    """Texts with their letters in the other case, but for those that are left to the caller.

    `table` has what a character becomes, by its number: up to seven bytes, and above them how many; 0 if it stays. Characters behind the table stay, too.
    `first` is the first of the 26 letters of ASCII that become others: these are looked for in eight bytes at a time.
    """
    # Added to a byte below 128, they give a byte with the highest bit if it is the first letter or one behind it, and one behind the last.
    from_first, behind_last = np.uint64(128 - first) * _EACH_BYTE, np.uint64(102 - first) * _EACH_BYTE
    at, to = np.int64(0), out.ctypes.data
    ends[0] = 0
    for i in range(is_left.size):
        k, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
        is_left[i] = False
        while k < end:
            word = _bytes_from(data, k)
            if word & np.uint64(128) == 0:
                low = word & _LOW_BITS
                word ^= ((low + from_first) & ~(low + behind_last) & _HIGH_BITS) >> np.uint64(2)
                size = np.int64(trailing_zeros(word & _HIGH_BITS)) >> 3  # up to a byte beyond ASCII
                taken = size = min(size, end - k)
            else:
                number, taken = _character(np.int64(word))
                is_whole = taken <= end - k
                size = taken = min(taken, end - k)
                new = table[number] if is_whole and number < table.size else np.uint64(0)
                if new:
                    word, size = new, np.int64(new >> np.uint64(56))
                    if size == BY_NEIGHBOURS:
                        is_left[i], size = True, np.int64(0)
            array_at(to + at, 1, np.uint64)[0] = word  # what is behind its bytes will be overwritten
            at, k = at + size, k + taken
        ends[i + 1] = at


@hot
def capitalise(offsets: Longs, data: Bytes, out: Bytes) -> None:
    """ASCII texts: the first letter and those after a space in upper case, the others in lower case; lengths stay."""
    first = offsets[0]
    for i in range(offsets.size - 1):
        is_first = True
        for k in range(offsets[i], offsets[i + 1]):
            byte = data[k]
            if is_first and 97 <= byte <= 122:
                byte -= np.uint8(32)
            elif not is_first and 65 <= byte <= 90:
                byte += np.uint8(32)
            out[k - first] = byte
            is_first = data[k] == 32


@inlined
def _padding(data: Bytes, start: Scalar, end: Scalar, fill_ends: Longs, size: Scalar, is_ascii: bool) -> Scalar:
    """Where a text is cut, and the bytes of filling that it gets. `fill_ends` has the ends of the characters that are filled in."""
    missing = size - (end - start if is_ascii else _count(data, start, end))
    if missing < 0:
        return (start + size if is_ascii else _skip(data, start, end, size)), np.int64(0)
    n_fill, filled = fill_ends.size, np.int64(0)
    if missing > 0 and n_fill > 0:
        rest = missing % n_fill
        filled = missing // n_fill * fill_ends[n_fill - 1] + (fill_ends[rest - 1] if rest else 0)
    return end, filled


@hot
def measure_padded(offsets: Longs, data: Bytes, fill_ends: Longs, size: Scalar, is_ascii: bool) -> Scalar:
    """How many bytes all texts have as `pad_texts` makes them."""
    total = np.int64(0)
    for i in range(offsets.size - 1):
        start = np.int64(offsets[i])
        cut, filled = _padding(data, start, np.int64(offsets[i + 1]), fill_ends, size, is_ascii)
        total += cut - start + filled
    return total


@hot
def pad_texts(
    offsets: Longs,
    data: Bytes,
    fill: Bytes,
    fill_ends: Longs,
    size: Scalar,
    is_ascii: bool,
    is_left: bool,
    ends: Longs,
    out: Bytes,
) -> None:
    """Texts of so many characters: cut, or filled before or after them."""
    at = np.int64(0)
    ends[0] = 0
    for i in range(offsets.size - 1):
        start = np.int64(offsets[i])
        cut, filled = _padding(data, start, np.int64(offsets[i + 1]), fill_ends, size, is_ascii)
        if not is_left:
            at = _copy(data, start, cut, out, at)
        if fill.size == 1:
            out[at : at + filled] = fill[0]
            at += filled
        else:
            k = 0
            for _ in range(filled):
                out[at] = fill[k]
                at += 1
                k = k + 1 if k + 1 < fill.size else 0
        if is_left:
            at = _copy(data, start, cut, out, at)
        ends[i + 1] = at


# -- numbers in texts --------------------------------------------------------------------------------------------------


_ZEROS, _HIGH_HALVES = np.uint64(0x3030303030303030), np.uint64(0xF0F0F0F0F0F0F0F0)
_LOW_HALVES, _TO_SIXTEEN = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0606060606060606)


@inlined
def _eight_digits(data: Bytes, start: Scalar, size: Scalar) -> Scalar:
    """At most eight bytes as digits, behind zeros: the first is the lowest byte."""
    left_out = np.uint64(8 * (size - 1))
    return (eight_bytes(data, start) << (np.uint64(56) - left_out)) | (_ZEROS >> np.uint64(8) >> left_out)


@inlined
def _are_digits(word: Scalar) -> Scalar:
    above_nine = ((word & _LOW_HALVES) + _TO_SIXTEEN) & _HIGH_HALVES
    return ((word & _HIGH_HALVES) == _ZEROS) & (above_nine == 0)


@inlined
def _number_of(word: Scalar) -> Scalar:
    """The number of eight digits: of pairs, of fours, of all."""
    digits = word & _LOW_HALVES
    pairs = (digits * np.uint64(10) + (digits >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    fours = (pairs * np.uint64(100) + (pairs >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    return np.int64((fours * np.uint64(10_000) + (fours >> np.uint64(32))) & np.uint64(0xFFFFFFFF))


@hot
def read_longs(offsets: Longs, data: Bytes, most: Scalar, out: Longs, is_read: Bools) -> None:
    """Integers of at most so many digits, without anything around them; other texts are not read."""
    for i in range(out.size):
        start, end = np.int64(offsets[i]), np.int64(offsets[i + 1])
        is_negative = start < end and data[start] == 45
        if is_negative:
            start += 1
        value, is_plain = np.int64(0), 0 < end - start <= most
        if is_plain and end - start <= 8 and start + 8 <= data.size:
            word = _eight_digits(data, start, end - start)
            value, is_plain = _number_of(word), _are_digits(word)
        elif is_plain:
            for k in range(start, end):
                digit = np.int64(data[k]) - 48
                is_plain &= 0 <= digit <= 9
                value = value * 10 + digit
        out[i] = -value if is_negative else value
        is_read[i] = is_plain


@hot
def write_longs(values: Longs, pairs: Bytes, offsets: Longs, out: Bytes) -> None:
    """Integers as texts. `pairs` are the texts of 00 to 99; `out` has 20 bytes for each number."""
    at = np.int64(0)
    for i in range(values.size):
        offsets[i] = at
        value = values[i]
        if value < 0:
            out[at] = 45
            at += 1
            rest = np.uint64(-(value + 1)) + np.uint64(1)  # the lowest has no positive one
        else:
            rest = np.uint64(value)
        size, power = 1, np.uint64(10)
        while size < 19 and rest >= power:  # 64 signed bits have 19 digits
            size += 1
            power = power * np.uint64(10)
        at += size
        k = at
        while rest >= np.uint64(100):
            pair = np.int64(rest % np.uint64(100)) * 2
            rest //= np.uint64(100)
            k -= 2
            out[k], out[k + 1] = pairs[pair], pairs[pair + 1]
        pair = np.int64(rest) * 2
        out[k - 1] = pairs[pair + 1]
        if rest >= np.uint64(10):
            out[k - 2] = pairs[pair]
    offsets[values.size] = at


@hot
def read_doubles(offsets: Longs, data: Bytes, powers: Floats, out: Floats, is_read: Bools) -> None:
    """Numbers of at most 15 digits, which a double holds, with a point or without; other texts are not read.

    Both the digits and a power of ten up to 10^22 are exact, so dividing them rounds once, as reading the text does.
    """
    for i in range(out.size):
        start, end = offsets[i], offsets[i + 1]
        is_negative = start < end and data[start] == 45
        if is_negative:
            start += 1
        value, places, is_plain = np.int64(0), -1, 0 < end - start <= 16
        if is_plain:
            for k in range(start, end):
                digit = np.int64(data[k]) - 48
                if digit == -2 and places < 0 and start < k < end - 1:
                    places = 0
                else:
                    is_plain &= 0 <= digit <= 9
                    value = value * 10 + digit
                    places += places >= 0
            is_plain &= end - start - (places >= 0) <= 15
        double = np.float64(value) / powers[max(places, 0)]
        out[i] = -double if is_negative else double
        is_read[i] = is_plain
