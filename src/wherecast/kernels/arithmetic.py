"""Arithmetic on arrays of numbers, one pass for each operation; the steps of expressions do it block by block (`kernels.steps`).

Theory of operation
-------------------
NumPy turns integers into doubles first, in an array of their own, and tells in several passes which results fit: that takes two to three times as long.
Here each operation is one loop that the compiler turns into vector instructions. An operation that some numbers are not fit for says for each
row whether its result stands (`fits`), and returns 0 if all do: so it is most often, and then nobody looks at `fits`.

Without AVX-512, no vector instruction turns a 64-bit integer into a double, or a double into one. For numbers below 2 ** 51 an addition does: the lowest
bits of 1.5 * 2 ** 52 + n are those of n (`_near_double`, `_near_long`). That is two to four times as quick as one number at a time. Larger numbers are
converted one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wherecast.kernels.arrays import Bools, Floats, Longs
from wherecast.kernels.jit import Scalar, hot, hot_helper, inlined, trailing_zeros

_LAST = 2**63 - 1
_INFINITY = 0x7FF0000000000000
#: 1.5 * 2 ** 52, and its bits. Its neighbours are 1 apart.
_MIDDLE = 6755399441055744.0
_MIDDLE_BITS = 0x4338000000000000
#: Doubles below it are those of `_near_long`.
_NEAR = 2.0**51


@inlined
def _near_double(value: Scalar) -> Scalar:
    """An integer between -2 ** 51 and 2 ** 51 as a double."""
    return np.int64(value + np.int64(_MIDDLE_BITS)).view(np.float64) - _MIDDLE


@inlined
def _near_long(value: Scalar) -> Scalar:
    """A double without fraction between -2 ** 51 and 2 ** 51 as an integer."""
    return np.float64(value + _MIDDLE).view(np.int64) - np.int64(_MIDDLE_BITS)


# -- doubles -------------------------------------------------------------------------------------------------------------


@hot
def add_numbers(a: Any, b: Any, out: Any) -> None:
    """Sums; one side may be integers, or all three where 64 bits are known to hold the sums."""
    for i in range(out.size):
        out[i] = a[i] + b[i]


@hot
def subtract_numbers(a: Any, b: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = a[i] - b[i]


@hot
def multiply_numbers(a: Any, b: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = a[i] * b[i]


@hot_helper
def divide_doubles(a: Floats, b: Floats, out: Floats, fits: Bools) -> Scalar:
    """Quotients, but for divisors that are zero."""
    others = np.int64(0)
    for i in range(out.size):
        is_zero = b[i] == 0.0
        fits[i] = not is_zero
        others += is_zero
        out[i] = a[i] / (1.0 if is_zero else b[i])
    return others


@hot_helper
def negate_doubles(a: Floats, out: Floats) -> None:
    for i in range(out.size):
        out[i] = -a[i]


@hot_helper
def longs_to_doubles(a: Longs, out: Floats) -> None:
    for i in range(out.size):
        out[i] = a[i]


@hot_helper
def round_to_floats(a: Floats, out: Floats) -> None:
    """The nearest doubles that 32 bits hold."""
    for i in range(out.size):
        out[i] = np.float32(a[i])


@hot_helper
def words_to_keys(words: Longs, out: Longs) -> None:
    """The keys of doubles, which are given as words, as `codes.float_key` makes them."""
    for i in range(out.size):
        size = words[i] & np.int64(_LAST)
        key = words[i] ^ ((words[i] >> 63) & np.int64(_LAST))
        out[i] = np.int64(_LAST) if size > np.int64(_INFINITY) else (np.int64(0) if size == 0 else key)


@hot
def truncate_doubles(values: Floats, above: Scalar, below: Scalar, out: Longs, fits: Bools) -> Scalar:
    """The whole parts of doubles between two limits, else 0; returns 0 if all are, else `fits` says which.

    2 ** 63 is as good as the last integer.
    """
    if -_NEAR <= above and below <= _NEAR:
        # Most often all are inside. That the largest is takes less time to tell than to look at each.
        largest = np.int64(0)
        for i in range(values.size):
            value = values[i]
            largest = max(largest, np.float64(value).view(np.int64) & np.int64(_LAST))
            out[i] = _near_long(np.trunc(value))
        if largest < np.float64(min(-above, below)).view(np.int64):
            return np.int64(0)
        for i in range(values.size):
            value = values[i]
            is_inside = (above < value) & (value < below)
            fits[i] = is_inside
            out[i] = _near_long(np.trunc(value) if is_inside else 0.0)
        return np.int64(1)
    others = np.int64(0)
    for i in range(values.size):
        value = values[i]
        is_inside = above < value < below
        fits[i] = is_inside
        others += not is_inside
        out[i] = (_LAST if value >= 2.0**63 else np.int64(value)) if is_inside else 0
    return others


# -- integers ------------------------------------------------------------------------------------------------------------


@hot_helper
def add_longs(a: Longs, b: Longs, out: Longs, fits: Bools) -> Scalar:
    """Sums modulo 2 ** 64. Overflow: both have one sign, the sum has the other."""
    others = np.int64(0)
    for i in range(out.size):
        total = a[i] + b[i]
        is_wrong = ((a[i] ^ total) & (b[i] ^ total)) < 0
        out[i], fits[i] = total, not is_wrong
        others += is_wrong
    return others


@hot_helper
def subtract_longs(a: Longs, b: Longs, out: Longs, fits: Bools) -> Scalar:
    others = np.int64(0)
    for i in range(out.size):
        total = a[i] - b[i]
        is_wrong = ((a[i] ^ b[i]) & (a[i] ^ total)) < 0
        out[i], fits[i] = total, not is_wrong
        others += is_wrong
    return others


@hot_helper
def multiply_longs(a: Longs, b: Longs, out: Longs, fits: Bools) -> Scalar:
    """Doubles are off by less than one part in 2 ** 52: far from the limit they decide, near it a division does."""
    others = np.int64(0)
    for i in range(out.size):
        size = abs(np.float64(a[i]) * np.float64(b[i]))
        product = a[i] * b[i]
        is_wrong = size >= 2.0**62
        out[i], fits[i] = product, not is_wrong
        others += is_wrong
    if others:
        for i in range(out.size):
            if not fits[i]:
                size = abs(np.float64(a[i]) * np.float64(b[i]))
                # Divided by the larger one, which is neither 0 nor -1 here.
                large, small = (a[i], b[i]) if abs(np.float64(a[i])) >= abs(np.float64(b[i])) else (b[i], a[i])
                fits[i] = size <= 2.0**64 and out[i] % large == 0 and out[i] // large == small
    return others


@hot_helper
def keep_within(a: Longs, low: Scalar, high: Scalar, out: Longs, fits: Bools) -> Scalar:
    """Integers, of which those between two others fit."""
    others = np.int64(0)
    for i in range(out.size):
        is_inside = low <= a[i] <= high
        out[i], fits[i] = a[i], is_inside
        others += not is_inside
    return others


@hot_helper
def find_units(a: Longs, unit: Scalar, out: Longs) -> None:
    """How often a positive unit is in each integer, rounded down.

    The unit's factors of two are shifted out, so that doubles hold what is left: of days, of any integer. A half is added because (n + 1/2) / unit is at least 1 / (2 unit)
    away from a whole number, and the product with the inverse is off by less than that as long as n is below 2 ** 50.
    """
    shift = trailing_zeros(np.uint64(unit))
    inverse = 1.0 / np.float64(unit >> shift)
    far = np.uint64(0)
    for i in range(out.size):
        short = a[i] >> shift
        far |= _beyond(short)
        out[i] = _near_long(np.floor((_near_double(short) + 0.5) * inverse))
    if far:
        for i in range(out.size):
            out[i] = a[i] // unit


@hot_helper
def find_rests(a: Longs, unit: Scalar, out: Longs) -> None:
    """What is left of each integer after the units of `find_units`."""
    shift = trailing_zeros(np.uint64(unit))
    short_unit, below = np.float64(unit >> shift), (np.int64(1) << shift) - 1
    inverse = 1.0 / short_unit
    far = np.uint64(0)
    for i in range(out.size):
        far |= _beyond(a[i] >> shift)
        short = _near_double(a[i] >> shift)
        rest = short - np.floor((short + 0.5) * inverse) * short_unit
        out[i] = (_near_long(rest) << shift) | (a[i] & below)
    if far:
        for i in range(out.size):
            out[i] = a[i] % unit


@inlined
def _beyond(short: Scalar) -> Scalar:
    """0 if an integer is between -2 ** 50 and 2 ** 50. What is computed with others means nothing, and is computed anew."""
    return np.uint64(short + np.int64(2**50)) >> np.uint64(51)


@hot
def sizes_between(offsets: Any, out: Longs) -> None:
    """How many elements are between neighbouring offsets, which have 32 or 64 bits."""
    for i in range(out.size):
        out[i] = offsets[i + 1] - offsets[i]
