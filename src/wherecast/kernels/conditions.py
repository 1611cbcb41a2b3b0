"""Comparisons and what is made of their answers, on arrays of numbers; conditions are 0 or 1.

A row that is NULL has any value. A mask says which rows are known, that is, not NULL. The order of doubles is Spark's, in which NaN is the greatest and equals itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wherecast.kernels.arrays import Bools, Longs
from wherecast.kernels.jit import Scalar, hot, hot_helper, inlined
from wherecast.kernels.step_kinds import EQUAL, GREATER, NOT_LESS, ONE_FIRST, ONE_OTHER

# -- comparisons of doubles, or of integers ----------------------------------------------------------------------------


@inlined
def holds(kind: Scalar, a: Any, b: Any) -> Scalar:
    """Whether a number is greater than another, not less, or equal, as `kind` says."""
    if kind == GREATER:
        return (not a <= b) & (b == b)
    if kind == NOT_LESS:
        return (a >= b) | (a != a)
    return (a == b) | ((a != a) & (b != b))


@hot_helper
def are_greater(a: Any, b: Any, out: Longs) -> None:
    for i in range(out.size):
        out[i] = holds(GREATER, a[i], b[i])


@hot_helper
def are_not_less(a: Any, b: Any, out: Longs) -> None:
    for i in range(out.size):
        out[i] = holds(NOT_LESS, a[i], b[i])


@hot_helper
def are_equal(a: Any, b: Any, out: Longs) -> None:
    for i in range(out.size):
        out[i] = holds(EQUAL, a[i], b[i])


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


@inlined
def choose_by(kind: Scalar, a: Any, b: Any, first: Longs, other: Longs, out: Longs) -> None:
    """The first value where a condition holds for a and b, else the other, without writing the condition."""
    for i in range(out.size):
        x, y = first[i], other[i]  # both are read, so that nothing branches
        out[i] = x if holds(kind, a[i], b[i]) else y


@inlined
def choose_by_one(kind: Scalar, a: Any, one: Any, first: Longs, other: Longs, alone: Scalar, out: Longs) -> None:
    """The same where b is one number. So may be the first value or the other, as `alone` says: then its array holds it once.

    Reading a constant from an array for each row takes a third of the time of such a loop.
    """
    if alone == ONE_FIRST:
        x = first[0]
        for i in range(out.size):
            y = other[i]
            out[i] = x if holds(kind, a[i], one) else y
    elif alone == ONE_OTHER:
        y = other[0]
        for i in range(out.size):
            x = first[i]
            out[i] = x if holds(kind, a[i], one) else y
    else:
        for i in range(out.size):
            x, y = first[i], other[i]
            out[i] = x if holds(kind, a[i], one) else y


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
