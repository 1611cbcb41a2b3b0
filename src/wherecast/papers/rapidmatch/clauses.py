"""The boxes of live clauses by id: what RAPIDMatch partitions the space anew from when a clause cuts one of its cells."""

from __future__ import annotations

import numpy as np

from wherecast.index.boxes import Boxes
from wherecast.kernels.arrays import Ints, Longs, Shorts


class ClauseStore:
    """Boxes in parts, one per insertion; an id leads to the latest part that has it."""

    def __init__(self, boxes: Boxes) -> None:
        self._parts, self._place = [boxes], _places(0, boxes.n_clauses)

    def put(self, ids: Ints, boxes: Boxes) -> None:
        """Keep clauses under these ids."""
        needed = int(ids.max(initial=-1)) + 1
        if needed > len(self._place):
            more = np.zeros((max(needed, len(self._place) * 5 // 4), 2), np.int64)
            more[: len(self._place)] = self._place
            self._place = more
        self._place[ids] = _places(len(self._parts), ids.size)
        self._parts.append(boxes)

    def join(self, n: int) -> Boxes:
        """The clauses of ids 0 .. n - 1, from now on one part; a removed clause is whatever was last there."""
        if len(self._parts) > 1:
            starts = np.cumsum([0, *(p.n_clauses for p in self._parts)])
            joined = _take(_concat(self._parts), starts[self._place[:n, 0]] + self._place[:n, 1])
            self._parts, self._place = [joined], _places(0, n)
        return self._parts[0]

    @property
    def n_parts(self) -> int:
        return len(self._parts)


def _places(part: int, n: int) -> Longs:
    return np.stack([np.full(n, part), np.arange(n)], axis=1)


def compose_boxes(ptr: Longs, attr: Shorts, lo: Ints, hi: Ints, widths: Ints) -> Boxes:
    """Boxes of clauses that belong to nobody: a matcher does not look at filters and residuals."""
    n = ptr.size - 1
    return Boxes(np.arange(n, dtype=np.int32), ptr, attr, lo, hi, np.full(n, -1, np.int32), n, widths)


def _concat(parts: list[Boxes]) -> Boxes:
    ptr = np.concatenate(([0], np.cumsum(np.concatenate([np.diff(p.ptr) for p in parts]))))
    attr, lo, hi = (np.concatenate([p[i] for p in parts]) for i in (2, 3, 4))
    return compose_boxes(ptr, attr, lo, hi, parts[0].widths)


def _take(boxes: Boxes, chosen: Longs) -> Boxes:
    sizes = np.diff(boxes.ptr)[chosen]
    ptr = np.concatenate(([0], np.cumsum(sizes)))
    rows = np.arange(ptr[-1]) + np.repeat(boxes.ptr[chosen] - ptr[:-1], sizes)
    return compose_boxes(ptr, boxes.attr[rows], boxes.lo[rows], boxes.hi[rows], boxes.widths)
