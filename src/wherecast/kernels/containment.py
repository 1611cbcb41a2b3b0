"""Whether one box lies inside another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bools, Ints, Longs
from wherecast.kernels.jit import Scalar, hot, inlined


@inlined
def end_of_constraint(attr: npt.NDArray[np.int16], row: Scalar) -> Scalar:
    """The row after the last of the constraint that begins here."""
    while attr[row] < 0:
        row += 1
    return row + 1


@inlined
def is_subset(lo: Ints, hi: Ints, first: Scalar, end: Scalar, wide: Scalar, wide_end: Scalar) -> Scalar:
    """Whether every interval of one constraint lies in one of another's; both are sorted, and neighbours are united."""
    at = wide
    for row in range(first, end):
        while at < wide_end and hi[at] < lo[row]:
            at += 1
        if at == wide_end or lo[at] > lo[row] or hi[at] < hi[row]:
            return False
    return True


@hot
def find_inside(
    ptr: Longs, attr: npt.NDArray[np.int16], lo: Ints, hi: Ints, inner: Longs, outer: Longs, out: Bools
) -> None:
    """For pairs of clauses whether the first lies inside the second.

    Each constraint of the outer one must hold wherever some constraint of the inner one on the same column does.
    """
    for i in range(inner.size):
        inside = True
        wide, last = ptr[outer[i]], ptr[outer[i] + 1]
        while inside and wide < last:
            wide_end = end_of_constraint(attr, wide)
            inside = False
            row, stop = ptr[inner[i]], ptr[inner[i] + 1]
            while row < stop and not inside:
                end = end_of_constraint(attr, row)
                if attr[end - 1] == attr[wide_end - 1]:
                    inside = is_subset(lo, hi, row, end, wide, wide_end)
                row = end
            wide = wide_end
        out[i] = inside
