"""Projection: the attributes that a matcher asks for, and event codes as it sees them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from wherecast.index.boxes import EventCodes
from wherecast.kernels.arrays import Ints, Longs
from wherecast.kernels.descent import Projected
from wherecast.kernels.events import prepare_codes, prepare_lists
from wherecast.kernels.jit import direct, frozen


class Projection(NamedTuple):
    """What an event code needs on its way to a column."""

    attribute: Ints  # (columns,) attribute of each column, ascending
    source_width: Ints  # (columns,) codes of the attribute
    width: Ints  # (columns,) codes of the column
    table_ptr: Longs  # (columns + 1,) renumbering of a column, empty where codes stay
    table: Ints


#: What a batch without lists has in their place.
_NO_LISTS, _NO_CODES = np.zeros(1, np.int64), np.zeros(0, np.int32)


def project(projection: Projection, events: EventCodes) -> Projected:
    """Bring events into the columns of an index."""
    codes, list_ptr, list_codes = events
    attribute, source_width, _, table_ptr, table = projection
    given = attribute, source_width, table_ptr, table
    out = np.empty((codes.shape[0], attribute.size), np.int32)
    # Nothing looks at the types behind `direct`, so they are made sure of here.
    codes, list_ptr = np.ascontiguousarray(codes, np.int32), np.ascontiguousarray(list_ptr, np.int64)
    n_lists, n_codes = _prepare_codes()(codes, list_ptr, *given, out)
    if n_lists == 0:
        return Projected(out, _NO_LISTS, _NO_CODES)
    ptr, lists = np.zeros(n_lists + 1, np.int64), np.empty(n_codes, np.int32)
    size = prepare_lists(frozen(codes), frozen(list_ptr), frozen(list_codes), *given, ptr, lists)
    return Projected(out, ptr, lists[:size])


@cache
def _prepare_codes() -> Callable[..., tuple[int, int]]:
    codes = frozen(np.zeros((1, 1), np.int32))
    offsets, numbers = frozen(np.zeros(0, np.int64)), frozen(np.zeros(0, np.int32))
    return direct(prepare_codes, codes, offsets, numbers, numbers, offsets, numbers, np.zeros((1, 1), np.int32))
