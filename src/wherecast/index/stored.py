"""Where the values of events are in memory, for kernels that read all columns of a batch in one call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from wherecast.kernels.arrays import Longs
from wherecast.kernels.arrow import COLUMN_WORDS, OFFSET, find_buffers
from wherecast.kernels.jit import direct
from wherecast.language.events.events import EventBatch
from wherecast.language.events.sources import PlainBatch

_pointer: Any = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def find_values(events: EventBatch, attributes: Iterable[int]) -> Longs:
    """Addresses (see `kernels.arrow`) of the values of some attributes, by attribute; rows of others mean nothing.

    They stand as long as the batch does.
    """
    stored: _Stored | None = events.stored
    if stored is None:
        table: Longs = _zeros((len(events.schema.attributes), COLUMN_WORDS), _LONG)
        stored = events.stored = table, set(), _NOTHING if events.plain is None else _export(events.plain, table)
    table, others, (exported, _) = stored
    for attr in attributes:
        if attr not in others and attr not in exported:
            array = events.array(attr)  # which the batch keeps
            nulls = array.null_count
            if nulls < len(array):
                buffers = array.buffers()
                table[attr, 0] = buffers[1].address
                # The rest is 0 more often than not, and is so already: a row written at once takes ten times as long as a number.
                if len(buffers) > 2 and buffers[2] is not None:
                    table[attr, 1] = buffers[2].address
                if nulls:
                    table[attr, 2] = buffers[0].address
                if array.offset:
                    table[attr, OFFSET] = array.offset
            others.add(attr)
    return table


#: Attributes that were found at once, and what their addresses rest on.
_Exported: TypeAlias = tuple[Collection[int], object]
#: Addresses of the values of a batch, as far as they have been asked for; and which attributes were found one by one. An object of a class takes
#: three times as long to make.
_Stored: TypeAlias = tuple[Longs, set[int], _Exported]
_NOTHING: _Exported = ((), None)
#: Looking up `np.zeros` takes a quarter of the time of a small array, and finding the dtype of the class as much.
_zeros, _LONG = np.zeros, np.dtype(np.int64)


def _export(plain: PlainBatch, table: Longs) -> _Exported:
    """Find all columns of a record batch at once."""
    if not len(plain.events):
        return _NOTHING
    exported = plain.events.__arrow_c_array__()[1]
    _find_buffers()(_pointer(exported, b"arrow_array"), plain.columns.listed, table)
    return plain.columns.places, exported


@cache
def _find_buffers() -> Callable[[int, Longs, Longs], None]:
    table = np.zeros((1, COLUMN_WORDS), np.int64)
    return direct(find_buffers, 0, table, table)
