"""Bounds: what must be true of arrays out of a file before a kernel follows them.

Kernels check nothing: they follow offsets, numbers and links where these lead, and a wrong one reads or writes memory that
is not theirs. Checksums do not help, because whoever can write a file can compute its checksums. So every structure that is
stored says, beside its `from_arrays`, what its arrays must be: of which type and length, within which bounds, which ones are
offsets. `StoredArrays` has the words for that. Each check is one or two passes of NumPy over one array; opening reads every byte
for the checksum anyway. What takes a walk (links of a tree) is a kernel of the structure.

A file that passes may still answer wrongly. It cannot crash the process, make it loop for ever or fill its memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from wherecast.errors import SnapshotError
from wherecast.kernels.arrays import Numbers


class StoredArrays:
    """The arrays of one structure. Every method raises SnapshotError where they are not what it says."""

    def __init__(self, arrays: Mapping[str, Any], owner: str) -> None:
        self._arrays = arrays
        self._owner = owner  # what they belong to, for messages

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def require(self, holds: object, name: str, reason: str) -> None:
        """That something holds of an array."""
        if not holds:
            raise SnapshotError(
                f"{self._owner}: the array {name!r} {reason}; the file is damaged or forged: restore it or save anew"
            )

    def array(self, name: str) -> Any:
        """An array of whatever kind."""
        array = self._arrays.get(name)
        self.require(array is not None, name, "is missing")
        return array

    def column(self, name: str, *dtypes: npt.DTypeLike, size: int | None = None) -> Numbers:
        """An array of one dimension, of one of these types, and of this length if one is given."""
        array = self._typed(name, dtypes, 1)
        self.require(size is None or array.size == size, name, f"has {array.size} values instead of {size}")
        return array

    def table(self, name: str, dtype: npt.DTypeLike, columns: int, rows: int | None = None) -> Numbers:
        """An array of two dimensions."""
        array = self._typed(name, (dtype,), 2)
        fits = array.shape[1] == columns and (rows is None or array.shape[0] == rows)
        self.require(fits, name, f"is {array.shape[0]} by {array.shape[1]} instead of {rows or 'any'} by {columns}")
        return array

    def _typed(self, name: str, dtypes: tuple[npt.DTypeLike, ...], dimensions: int) -> Numbers:
        array = self.array(name)
        if not (isinstance(array, np.ndarray) and array.dtype in dtypes and array.ndim == dimensions):
            found = f"{getattr(array, 'dtype', type(array).__name__)}, {getattr(array, 'ndim', 1)}-D"
            self.require(False, name, f"has the wrong type ({found})")
        return cast("Numbers", array)

    def within(self, values: Numbers, low: int, end: int, name: str) -> None:
        """That all values are in low .. end - 1."""
        if values.size:
            least, most = int(values.min()), int(values.max())
            self.require(low <= least and most < end, name, f"has values {least} .. {most} outside {low} .. {end - 1}")

    def offsets(self, values: Numbers, end: int, name: str) -> None:
        """That the values climb from 0 to `end`: each range lies within what they point into."""
        fits = values.size and values[0] == 0 and values[-1] == end and (values[1:] >= values[:-1]).all()
        self.require(fits, name, f"does not climb from 0 to {end}")
