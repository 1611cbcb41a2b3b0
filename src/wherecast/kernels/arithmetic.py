"""Numbers of a column computed in one pass.

NumPy turns integers into doubles first, in an array of their own, and tells in several passes which numbers fit: that takes two to three times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from wherecast.kernels.arrays import Bools, Floats, Longs
from wherecast.kernels.jit import Scalar, hot

_LAST = 2**63 - 1


@hot
def add_doubles(a: Any, b: Any, out: Floats) -> None:
    """Sums; one side may be integers."""
    for i in range(out.size):
        out[i] = a[i] + b[i]


@hot
def subtract_doubles(a: Any, b: Any, out: Floats) -> None:
    for i in range(out.size):
        out[i] = a[i] - b[i]


@hot
def multiply_doubles(a: Any, b: Any, out: Floats) -> None:
    for i in range(out.size):
        out[i] = a[i] * b[i]


@hot
def truncate_doubles(values: Floats, above: Scalar, below: Scalar, out: Longs, fits: Bools) -> Scalar:
    """The whole parts of doubles between two limits, and which these are; returns how many others there are.

    2 ** 63 is as good as the last integer.
    """
    others = np.int64(0)
    for i in range(values.size):
        value = values[i]
        is_inside = above < value < below
        fits[i] = is_inside
        others += not is_inside
        out[i] = (_LAST if value >= 2.0**63 else np.int64(value)) if is_inside else 0
    return others


@hot
def sizes_between(offsets: Any, out: Longs) -> None:
    """How many elements are between neighbouring offsets, which have 32 or 64 bits."""
    for i in range(out.size):
        out[i] = offsets[i + 1] - offsets[i]
