"""Cutting plain texts at their literals, many in one call.

Texts come as bytes with a zero behind each. A text is *plain* if a literal in it is a number, or a string between single quotes without a quote or a
backslash in it, and if nothing outside of its literals has a meaning of its own: quoted names, comments, commas (which may separate
the values of a list). `syntax.skeletons` says what a literal is, and cuts all other texts.
"""

from __future__ import annotations

import numpy as np

from wherecast.kernels.arrays import Bytes, Longs
from wherecast.kernels.jit import Scalar, hot, inlined

_QUOTE, _BACKSLASH, _DOT, _DOLLAR, _UNDERSCORE = ord("'"), ord("\\"), ord("."), ord("$"), ord("_")
_COMMA, _BACKQUOTE, _DOUBLE_QUOTE, _MINUS, _PLUS = ord(","), ord("`"), ord('"'), ord("-"), ord("+")
_SLASH, _STAR, _ZERO, _NINE, _A, _Z = ord("/"), ord("*"), ord("0"), ord("9"), ord("a"), ord("z")
_E, _B, _D, _F, _L, _S, _Y = ord("e"), ord("b"), ord("d"), ord("f"), ord("l"), ord("s"), ord("y")
#: Added to a capital letter, it gives the small one.
_SMALL = 32
#: Bytes from here on are of other letters and signs; what they are is not known here.
_FOREIGN = 128


@inlined
def _is_digit(byte: Scalar) -> Scalar:
    return _ZERO <= byte <= _NINE


@inlined
def _is_word(byte: Scalar) -> Scalar:
    return _A <= (byte | _SMALL) <= _Z or _ZERO <= byte <= _NINE or byte == _UNDERSCORE


@inlined
def _is_suffix(byte: Scalar) -> Scalar:
    """L, D, F, S or Y."""
    return (byte | _SMALL) in (_L, _D, _F, _S, _Y)


@inlined
def _end_of_string(data: Bytes, at: Scalar) -> Scalar:
    """Where the string that begins at `at` ends; -1 if it has no end, or more than plain characters."""
    at += 1
    while data[at] != _QUOTE:
        if data[at] == 0 or data[at] == _BACKSLASH:
            return -1
        at += 1
    return -1 if data[at + 1] == _QUOTE else at + 1


@inlined
def _end_of_number(data: Bytes, first: Scalar, at: Scalar) -> Scalar:
    """Where the number that begins at `at`, in the text that begins at `first`, ends; `at` if none does; -1 if that is not certain."""
    start = at
    if at > first:
        before = data[at - 1]
        if _is_word(before) or before in (_DOT, _DOLLAR):
            return start
        if before >= _FOREIGN:
            return -1
    if data[at] == _DOT and not _is_digit(data[at + 1]):
        return start
    while _is_digit(data[at]) or data[at] == _DOT:
        at += 1
    if data[at] | _SMALL == _E:
        power = at + 1
        if data[power] == _PLUS or data[power] == _MINUS:
            power += 1
        if _is_digit(data[power]):
            at = power
            while _is_digit(data[at]):
                at += 1
    if data[at] | _SMALL == _B and data[at + 1] == data[at] + _D - _B:
        at += 2
    elif _is_suffix(data[at]):
        at += 1
    if data[at] >= _FOREIGN:
        return -1
    return start if _is_word(data[at]) or data[at] == _DOT else at


@inlined
def _is_special(byte: Scalar, following: Scalar) -> Scalar:
    return (
        byte in (_COMMA, _BACKQUOTE, _DOUBLE_QUOTE, _BACKSLASH)
        or (byte == _MINUS and following == _MINUS)
        or (byte == _SLASH and following == _STAR)
    )


@hot
def cut_plain(data: Bytes, bounds: Longs, n_pieces: Longs) -> Scalar:
    """The bounds of the pieces of all plain texts, text after text: a literal is what is between two pieces. Returns how many bounds there are.

    `n_pieces` gets the number of pieces of each text, 0 if it is not plain. A text of n bytes has at most 2 n + 2 bounds.
    """
    at: Scalar = np.int64(0)
    used: Scalar = np.int64(0)
    for text in range(n_pieces.size):
        first, begin = at, used
        bounds[used] = at
        used += 1
        while data[at] != 0:
            end = at
            if data[at] == _QUOTE:
                end = _end_of_string(data, at)
            elif _is_digit(data[at]) or data[at] == _DOT:
                end = _end_of_number(data, first, at)
            elif _is_special(data[at], data[at + 1]):
                end = -1
            if end < 0:
                used = begin
                while data[at] != 0:
                    at += 1
            elif end == at:
                at += 1
            else:
                bounds[used], bounds[used + 1] = at, end
                used += 2
                at = end
        if used > begin:
            bounds[used] = at
            used += 1
        n_pieces[text] = (used - begin) >> 1
        at += 1
    return used
