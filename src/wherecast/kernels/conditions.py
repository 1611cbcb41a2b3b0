"""Comparisons and what is made of their answers, on arrays of numbers; conditions are 0 or 1.

A row that is NULL has any value. A mask says which rows are known, that is, not NULL. The order of doubles is Spark's, in which NaN is the greatest and equals itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wherecast.kernels.arrays import Bools, Longs
from wherecast.kernels.jit import Scalar, hot, hot_helper

# -- comparisons of doubles, or of integers ----------------------------------------------------------------------------


@hot_helper
def are_greater(a: Any, b: Any, out: Longs) -> None:
    for i in range(out.size):
        out[i] = (not a[i] <= b[i]) & (b[i] == b[i])


@hot_helper
def are_not_less(a: Any, b: Any, out: Longs) -> None:
    for i in range(out.size):
        out[i] = (a[i] >= b[i]) | (a[i] != a[i])


@hot_helper
def are_equal(a: Any, b: Any, out: Longs) -> None:
    for i in range(out.size):
        out[i] = (a[i] == b[i]) | ((a[i] != a[i]) & (b[i] != b[i]))


# -- logic -------------------------------------------------------------------------------------------------------------


@hot_helper
def negate(a: Longs, out: Longs) -> None:
    for i in range(out.size):
        out[i] = 1 - a[i]


@hot_helper
def are_null(known: Bools, out: Longs) -> None:
    for i in range(out.size):
        out[i] = not known[i]


@hot_helper
def are_true(a: Longs, known: Bools, out: Any) -> None:
    for i in range(out.size):
        out[i] = (a[i] != 0) & known[i]


@hot_helper
def combine(a: Any, b: Any, is_or: Scalar, out: Any) -> None:
    """OR or AND of conditions without NULL, or of masks."""
    for i in range(out.size):
        out[i] = a[i] | b[i] if is_or else a[i] & b[i]


@hot_helper
def decide(a: Longs, has_a: Bools, b: Longs, has_b: Bools, is_or: Scalar, out: Longs, known: Bools) -> None:
    """OR or AND where NULLs are: one side may decide alone."""
    winner = np.int64(is_or)
    for i in range(out.size):
        is_decided = ((a[i] == winner) & has_a[i]) | ((b[i] == winner) & has_b[i])
        known[i] = is_decided | (has_a[i] & has_b[i])
        out[i] = winner if is_decided else 1 - winner


# -- choices -----------------------------------------------------------------------------------------------------------


@hot_helper
def choose_greater(a: Any, b: Any, first: Longs, other: Longs, out: Longs) -> None:
    """The first value where a is greater than b, else the other: what `are_greater` and `choose_values` say, without writing the condition."""
    for i in range(out.size):
        x, y = first[i], other[i]
        out[i] = x if (not a[i] <= b[i]) & (b[i] == b[i]) else y


@hot_helper
def choose_not_less(a: Any, b: Any, first: Longs, other: Longs, out: Longs) -> None:
    """As `choose_greater`, by `are_not_less`."""
    for i in range(out.size):
        x, y = first[i], other[i]
        out[i] = x if (a[i] >= b[i]) | (a[i] != a[i]) else y


@hot_helper
def choose_equal(a: Any, b: Any, first: Longs, other: Longs, out: Longs) -> None:
    """As `choose_greater`, by `are_equal`."""
    for i in range(out.size):
        x, y = first[i], other[i]
        out[i] = x if (a[i] == b[i]) | ((a[i] != a[i]) & (b[i] != b[i])) else y


# A constant is one number: reading it from an array for each row takes a third of the time of such a loop.


@hot_helper
def choose_above(a: Any, one: Any, first: Longs, other: Longs, out: Longs) -> None:
    """As `choose_greater`, where b is one number."""
    is_number = one == one
    for i in range(out.size):
        x, y = first[i], other[i]
        out[i] = x if (not a[i] <= one) & is_number else y


@hot_helper
def choose_from(a: Any, one: Any, first: Longs, other: Longs, out: Longs) -> None:
    """As `choose_not_less`, where b is one number."""
    for i in range(out.size):
        x, y = first[i], other[i]
        out[i] = x if (a[i] >= one) | (a[i] != a[i]) else y


@hot_helper
def choose_at(a: Any, one: Any, first: Longs, other: Longs, out: Longs) -> None:
    """As `choose_equal`, where b is one number."""
    is_nan = one != one
    for i in range(out.size):
        x, y = first[i], other[i]
        out[i] = x if (a[i] == one) | ((a[i] != a[i]) & is_nan) else y


@hot
def choose_values(use_first: Any, first: Any, other: Any, out: Any) -> None:
    """One of two values. NumPy's `where` branches on the mask, and takes ten times as long where that varies."""
    for i in range(out.size):
        a, b = first[i], other[i]  # both are read, so that nothing branches
        out[i] = a if use_first[i] else b


@hot
def choose_or_one(use_first: Bools, first: Any, one: Any, out: Any) -> None:
    """The same where the other is one value for all rows."""
    for i in range(out.size):
        a = first[i]
        out[i] = a if use_first[i] else one
