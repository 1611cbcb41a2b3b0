"""Where the values of events are in memory, for kernels that read all columns of a batch in one call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import TypeAlias

import numpy as np

from wherecast.kernels.arrays import Longs
from wherecast.kernels.arrow import ARRAY_WORDS, COLUMN_WORDS, OFFSET, find_buffers
from wherecast.kernels.jit import address_of, direct
from wherecast.language.events.events import EventBatch
from wherecast.language.events.sources import PlainBatch


def find_values(events: EventBatch, attributes: Iterable[int]) -> Longs:
    """Addresses (see `kernels.arrow`) of the values of some attributes, by attribute; rows of others mean nothing.

    They stand as long as the batch does.
    """
    stored: _Stored | None = events.stored
    if stored is None:
        table: Longs = _zeros((len(events.schema.attributes), COLUMN_WORDS), _LONG)
        stored = events.stored = table, set(), () if events.plain is None else _export(events.plain, table)
    table, others, exported = stored
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


#: Addresses of the values of a batch, as far as they have been asked for; which attributes were found one by one, and which at once. An object of a
#: class takes three times as long to make.
_Stored: TypeAlias = tuple[Longs, set[int], Collection[int]]
#: Looking up `np.zeros` takes a quarter of the time of a small array, and finding the dtype of the class as much.
_zeros, _LONG = np.zeros, np.dtype(np.int64)
#: Memory that record batches are exported to, with its address; taking and putting back are atomic.
_spare: list[tuple[Longs, int]] = []


def _export(plain: PlainBatch, table: Longs) -> Collection[int]:
    """Find all columns of a record batch at once."""
    if not len(plain.events):
        return ()
    try:
        room = _spare.pop()
    except IndexError:
        array = np.zeros(ARRAY_WORDS, np.int64)
        room = array, address_of(array)
    plain.events._export_to_c(room[1])  # noqa: SLF001 - the way of Arrow to do so without a capsule, which takes twice as long
    _find_buffers()(room[1], plain.columns.listed, table)
    _spare.append(room)
    return plain.columns.places


@cache
def _find_buffers() -> Callable[[int, Longs, Longs], None]:
    table = np.zeros((1, COLUMN_WORDS), np.int64)
    return direct(find_buffers, 0, table, table)
