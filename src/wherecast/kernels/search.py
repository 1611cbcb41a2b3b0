"""Binary search of many values at once, through a sorted order.

NumPy's `searchsorted` with a `sorter` first converts values and order to one type: of a mapped index it would read all of both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.kernels.jit import hot


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
