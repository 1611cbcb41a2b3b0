"""Arrays side by side in memory, for huge pages.

Matching reads a few bytes here and there in arrays of some megabytes. With pages of 4 KB nearly every read first has to find its page, which in a virtual machine takes
longer than the read. Linux has pages of 2 MB for memory that asks for them, and NumPy asks, but only for arrays of 4 MB and more, and what is not a whole page of 2 MB stays small. So
arrays of about that size are copied into one piece that begins with a page. Larger ones are left alone: they lose little, and copying them would take memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_PAGE = 1 << 21
#: Arrays of fewer bytes are in the cache anyway; those of more have pages of their own.
_LEAST, _MOST = 1 << 18, 1 << 23
#: Cache lines begin with an array.
_LINE = 64


def side_by_side(arrays: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """The same arrays, those of a middling size in one piece of memory."""
    chosen = [i for i, array in enumerate(arrays) if _LEAST <= array.nbytes < _MOST]
    sizes = [-(-arrays[i].nbytes // _LINE) * _LINE for i in chosen]
    found = list(arrays)
    if sum(sizes) < _PAGE:
        return found
    memory = np.empty(sum(sizes) + _PAGE, np.uint8)
    at = -memory.ctypes.data % _PAGE
    for i, size in zip(chosen, sizes, strict=True):
        array = arrays[i]
        found[i] = memory[at : at + array.nbytes].view(array.dtype).reshape(array.shape)
        found[i][...] = array
        at += size
    return found
