"""Doubles rounded to places of the decimal system, where that is clear without writing them out.

Java rounds the shortest decimal that means the double. That decimal is within the last bit of the double, so away from a tie
the double itself decides; near one, and for large numbers, the caller has to write it out.
"""

from __future__ import annotations

import numpy as np

from wherecast.kernels.arrays import Bools, Floats
from wherecast.kernels.jit import Scalar, hot

#: Up to here both the decimal and the product are within a millionth of the double; beyond, the last bit may be a tie.
_LARGE = 2.0**31
#: How far from a whole number is still clear; a tie is at a half.
_CLEAR = 0.499_999


@hot
def round_doubles(values: Floats, unit: Scalar, is_fraction: bool, out: Floats, is_clear: Bools) -> None:
    """Multiples of 1 / unit (a fraction) or of unit that are nearest, without a negative zero; and where that is clear."""
    for i in range(values.size):
        value = values[i]
        scaled = abs(value) * unit if is_fraction else abs(value) / unit
        whole = np.floor(scaled + 0.5)
        is_clear[i] = whole < _LARGE and abs(scaled - whole) < _CLEAR
        near = whole / unit if is_fraction else whole * unit
        out[i] = (-near if value < 0 else near) + 0.0
