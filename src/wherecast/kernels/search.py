"""Binary search of many values or texts at once, through a sorted order.

NumPy's `searchsorted` with a `sorter` first converts values and order to one type: of a mapped index it would read all of both.
Texts are UTF-8, text i being letters[ptr[i]:ptr[i + 1]]; the order of their bytes is that of their characters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.kernels.jit import Scalar, hot, inlined


@hot
def find_places(
    values: npt.NDArray[Any],
    order: npt.NDArray[np.int32],
    wanted: npt.NDArray[np.int64],
    places: npt.NDArray[np.int64],
) -> None:
    """Write to places[i] where wanted[i] is in `values`, or -1; `order` sorts the values."""
    for i in range(wanted.size):
        low, high = 0, order.size
        while low < high:
            middle = (low + high) >> 1
            if values[order[middle]] < wanted[i]:
                low = middle + 1
            else:
                high = middle
        places[i] = order[low] if low < order.size and values[order[low]] == wanted[i] else -1


@hot
def find_texts(
    ptr: npt.NDArray[Any],
    letters: npt.NDArray[np.uint8],
    order: npt.NDArray[np.int32],
    wanted_ptr: npt.NDArray[Any],
    wanted_letters: npt.NDArray[np.uint8],
    places: npt.NDArray[np.int64],
) -> None:
    """Write to places[i] where the wanted text i is among the texts, or -1; `order` sorts the texts."""
    for i in range(places.size):
        begin, end = wanted_ptr[i], wanted_ptr[i + 1]
        low, high = 0, order.size
        while low < high:
            middle = (low + high) >> 1
            slot = order[middle]
            if compare_bytes(letters, ptr[slot], ptr[slot + 1], wanted_letters, begin, end) < 0:
                low = middle + 1
            else:
                high = middle
        places[i] = -1
        if low < order.size:
            slot = order[low]
            if compare_bytes(letters, ptr[slot], ptr[slot + 1], wanted_letters, begin, end) == 0:
                places[i] = slot


@inlined
def compare_bytes(
    one: npt.NDArray[np.uint8],
    at: Scalar,
    end: Scalar,
    other: npt.NDArray[np.uint8],
    other_at: Scalar,
    other_end: Scalar,
) -> Scalar:
    """Below zero if one[at:end] comes before other[other_at:other_end], zero if they are equal, else above."""
    shorter = min(end - at, other_end - other_at)
    for k in range(shorter):
        if one[at + k] != other[other_at + k]:
            return np.int64(one[at + k]) - np.int64(other[other_at + k])
    return np.int64((end - at) - (other_end - other_at))
