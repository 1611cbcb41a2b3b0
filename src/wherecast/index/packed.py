"""Boxes at rest: the same rows in as few bytes as their codes need.

Matchers have layouts of their own; the boxes themselves are read again only to merge segments, to explain and to save.
So they are kept small: codes in the narrowest unsigned type, upper ends left out where every interval is a point, row
counts instead of offsets, owners and residuals left out where there is nothing to say. An interval that is open to the
right ends at the highest code instead of FAR, which no code exceeds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.index.boxes import FAR, Boxes


class PackedBoxes(NamedTuple):
    """`Boxes` without redundancy. Array types vary with the values they hold."""

    sizes: npt.NDArray[Any]  # (clauses,) rows of each clause
    attr: npt.NDArray[Any]  # (rows,) signed, as in Boxes
    lo: npt.NDArray[Any]  # (rows,)
    hi: npt.NDArray[Any]  # (rows,), or empty: equal to lo
    filter_ids: npt.NDArray[np.int32]  # (clauses,), or empty: clause c is filter c
    residuals: npt.NDArray[np.int32]  # (clauses,), or empty: no clause has one
    n_filters: int
    widths: npt.NDArray[np.int32]

    @property
    def n_clauses(self) -> int:
        return int(self.sizes.size)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self if isinstance(a, np.ndarray))

    def clauses_of(self, filter: int) -> range:
        """Clauses of one filter."""
        if not self.filter_ids.size and self.n_clauses:
            return range(filter, filter + 1)
        first, end = np.searchsorted(self.filter_ids, [filter, filter + 1])
        return range(int(first), int(end))


def pack_boxes(boxes: Boxes) -> PackedBoxes:
    top = (boxes.widths - 1)[np.where(boxes.attr < 0, ~boxes.attr, boxes.attr)]
    hi = np.where(boxes.hi == FAR, top, boxes.hi)
    identity = boxes.n_clauses == boxes.n_filters and np.array_equal(boxes.filter_ids, np.arange(boxes.n_filters))
    none = np.zeros(0, np.int32)
    code = np.min_scalar_type(int(boxes.widths.max(initial=1)) - 1)
    return PackedBoxes(
        _narrow(np.diff(boxes.ptr)),
        boxes.attr.astype(np.int8) if boxes.n_attributes <= 128 else boxes.attr,
        boxes.lo.astype(code),
        np.zeros(0, code) if np.array_equal(hi, boxes.lo) else hi.astype(code),
        none if identity else boxes.filter_ids,
        boxes.residuals if np.any(boxes.residuals >= 0) else none,
        boxes.n_filters,
        boxes.widths,
    )


def _narrow(values: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


def unpack_boxes(packed: PackedBoxes) -> Boxes:
    n = packed.n_clauses
    ptr = np.zeros(n + 1, np.int64)
    np.cumsum(packed.sizes, out=ptr[1:])
    attr = packed.attr.astype(np.int16)
    lo = packed.lo.astype(np.int32)
    hi = packed.hi.astype(np.int32) if packed.hi.size or not lo.size else lo
    top = (packed.widths - 1)[np.where(attr < 0, ~attr, attr)]
    return Boxes(
        packed.filter_ids if packed.filter_ids.size or not n else np.arange(n, dtype=np.int32),
        ptr,
        attr,
        lo,
        np.where((hi == top) & (hi > 0), FAR, hi),
        packed.residuals if packed.residuals.size else np.full(n, -1, np.int32),
        packed.n_filters,
        packed.widths,
    )
