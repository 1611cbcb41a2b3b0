"""Projection: the attributes that a matcher asks for, and event codes as it sees them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wherecast.index.boxes import EventCodes
from wherecast.kernels.arrays import Ints, Longs
from wherecast.kernels.descent import Projected
from wherecast.kernels.events import prepare_codes, prepare_lists
from wherecast.kernels.jit import frozen


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
    codes, list_ptr, list_codes = frozen(events.codes), frozen(events.list_ptr), frozen(events.list_codes)
    attribute, source_width, _, table_ptr, table = projection
    given = attribute, source_width, table_ptr, table
    out = np.empty((codes.shape[0], attribute.size), np.int32)
    n_lists, n_codes = prepare_codes(codes, list_ptr, *given, out)
    if n_lists == 0:
        return Projected(out, _NO_LISTS, _NO_CODES)
    ptr, lists = np.zeros(n_lists + 1, np.int64), np.empty(n_codes, np.int32)
    size = prepare_lists(codes, list_ptr, list_codes, *given, ptr, lists)
    return Projected(out, ptr, lists[:size])
