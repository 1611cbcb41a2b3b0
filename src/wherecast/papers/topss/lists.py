"""Many growing lists in one pool: the paper's re-allocatable arrays (TOPSS, section 3.3).

Theory of operation
-------------------
A list has a place and a capacity. One that outgrows its capacity moves to the free end of the pool, with a quarter more
room than it asked for; when the end is reached, the pool is packed into a larger one. So adding costs amortised constant
time per entry. A list that is filled for the first time gets exactly the room it needs: bulk loading wastes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Ints, Longs
from wherecast.papers.topss.kernels.lists import fill_lists, move_lists, read_lists


def grown(array: npt.NDArray[Any], n: int, fill: int = 0) -> npt.NDArray[Any]:
    """The array with room for n entries: itself, or a copy at least half as large again, filled up with `fill`."""
    if n <= array.size:
        return array
    longer = np.full(max(n, array.size * 3 // 2), fill, array.dtype)
    longer[: array.size] = array
    return longer


def offsets(sizes: npt.NDArray[Any]) -> Longs:
    """Where each of several runs of these sizes starts, and the end of the last."""
    ptr = np.zeros(sizes.size + 1, np.int64)
    np.cumsum(sizes, out=ptr[1:])
    return ptr


class GrowingLists:
    """Lists of integers, numbered from 0."""

    def __init__(self) -> None:
        self.start = np.zeros(0, np.int64)  # (lists,) place of the first entry in the pool
        self.size = np.zeros(0, np.int32)  # (lists,) entries
        self.capacity = np.zeros(0, np.int32)  # (lists,) entries there is room for
        self.pool = np.zeros(0, np.int32)
        self.used = 0  # part of the pool that lists have been given

    def extend(self, n: int) -> None:
        """Have at least n lists; new ones are empty."""
        self.start, self.size, self.capacity = (grown(a, n) for a in (self.start, self.size, self.capacity))

    def make_room(self, more: int) -> None:
        """Have `more` free places at the end of the pool."""
        if self.used + more <= self.pool.size:
            return
        kept = np.flatnonzero(self.capacity).astype(np.int32)
        places = offsets(self.capacity[kept])
        spare = int(places[-1]) // 2 if kept.size else 0
        pool = np.empty(int(places[-1]) + more + spare, np.int32)
        move_lists(self.start, self.size, self.pool, kept, places, pool)
        self.pool, self.used = pool, int(places[-1])

    def reserve(self, keys: Ints, more: Ints) -> None:
        """Have room for more[i] further entries in list keys[i]; the keys are distinct."""
        need = self.size[keys] + more
        short = need > self.capacity[keys]
        keys, need = keys[short], need[short]
        capacity = np.where(self.size[keys] > 0, need + need // 4, need)
        self.make_room(int(capacity.sum()))
        places = offsets(capacity) + self.used
        move_lists(self.start, self.size, self.pool, keys, places, self.pool)
        self.capacity[keys] = capacity
        self.used = int(places[-1])

    def put(self, keys: Ints, ptr: Longs, values: Ints) -> None:
        """Fill empty lists: keys[i] with values[ptr[i]:ptr[i + 1]]."""
        self.reserve(keys, np.diff(ptr).astype(np.int32))
        fill_lists(self.start, self.size, self.pool, keys, ptr, values)

    def read(self, keys: Ints) -> tuple[Longs, Ints]:
        """Some lists, one after the other, and where each starts."""
        ptr = offsets(self.size[keys])
        values = np.empty(int(ptr[-1]), np.int32)
        read_lists(self.start, self.size, self.pool, keys, ptr, values)
        return ptr, values

    @property
    def nbytes(self) -> int:
        return self.start.nbytes + self.size.nbytes + self.capacity.nbytes + self.pool.nbytes
