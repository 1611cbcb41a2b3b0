"""Where the values of events are in memory, for kernels that read all columns of a batch in one call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Any

import numpy as np

from wherecast.kernels.arrays import Longs
from wherecast.kernels.arrow import COLUMN_WORDS, find_buffers
from wherecast.kernels.jit import direct
from wherecast.language.events.events import EventBatch, PlainBatch

_pointer: Any = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def find_values(events: EventBatch, attributes: Iterable[int]) -> Longs:
    """Addresses (see `kernels.arrow`) of the values of some attributes, by attribute; rows of others mean nothing.

    They stand as long as the batch does.
    """
    if events.stored is None:
        events.stored = _Stored(events)
    found: Longs = events.stored.find(events, attributes)
    return found


class _Stored:
    """Addresses of the values of a batch, as far as they have been asked for."""

    def __init__(self, events: EventBatch) -> None:
        self._table = np.zeros((len(events.schema.attributes), COLUMN_WORDS), np.int64)
        self._known: Collection[int] = ()
        self._exported = None  # what the addresses of a record batch rest on
        if events.plain is not None and len(events):
            self._exported = self._export(events.plain)

    def _export(self, plain: PlainBatch) -> object:
        """Find all columns of a record batch at once."""
        exported = plain.events.__arrow_c_array__()[1]
        _find_buffers()(_pointer(exported, b"arrow_array"), plain.columns.listed, self._table)
        self._known = plain.columns.places
        return exported

    def find(self, events: EventBatch, attributes: Iterable[int]) -> Longs:
        """The table, in which these attributes are filled in."""
        missing = [attr for attr in attributes if attr not in self._known]
        for attr in missing:
            array = events.array(attr)  # which the batch keeps
            nulls = array.null_count
            if nulls < len(array):
                valid, values, *data = array.buffers()
                bitmap = valid.address if nulls else 0
                texts = data[0].address if data and data[0] is not None else 0
                self._table[attr] = values.address, texts, bitmap, array.offset
        if missing:
            self._known = {*self._known, *missing}
        return self._table


@cache
def _find_buffers() -> Callable[[int, Longs, Longs], None]:
    table = np.zeros((1, COLUMN_WORDS), np.int64)
    return direct(find_buffers, 0, table, table)
