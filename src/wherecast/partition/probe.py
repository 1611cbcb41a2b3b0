"""Events made of the constants that filters compare with: what to expect where no sample of events is at hand.

For each attribute one value per event, drawn from the distinct constants, all alike, and each attribute for itself: the
uniform event rate that the Event Distribution Network assumes (section III.A).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.language.arrow import canonical_type
from wherecast.language.events import EventBatch
from wherecast.language.filters import Filters
from wherecast.language.keys import KEY_MAX, KEY_MIN, NAN_KEY, key_floats
from wherecast.language.schema import Attribute, Kind, Schema
from wherecast.language.types import integer_range

PROBES = 4096


def probe_events(filters: Filters, schema: Schema) -> EventBatch:
    """Events as likely to hit a constant as any other."""
    rng = np.random.default_rng(0)
    column = np.where(filters.attr < 0, ~filters.attr, filters.attr)
    arrays = []
    for attr, attribute in enumerate(schema.attributes):
        rows = (column == attr) & ~filters.null
        ends = np.concatenate([filters.lo[rows], filters.hi[rows]])
        ends = np.unique(ends[(ends != KEY_MIN) & (ends != KEY_MAX)])
        drawn = rng.choice(ends, PROBES) if ends.size else ends
        arrays.append(_values(drawn, attribute, filters.strings))
    return EventBatch.read(schema, pa.table(arrays, [a.name for a in schema.attributes]))


def _values(keys: npt.NDArray[np.int64], attribute: Attribute, strings: list[str]) -> pa.Array:
    """Values of an attribute, from their positions (see `language.filters`); NULLs if there are none."""
    if not keys.size:
        return pa.nulls(PROBES, canonical_type(attribute))
    element = canonical_type(attribute).value_type if attribute.is_array else canonical_type(attribute)
    values: Any
    if attribute.kind is Kind.STRING:
        values = pa.array([strings[rank] for rank in (keys >> 2).tolist()], element)
    elif attribute.kind is Kind.FLOAT:
        floats = np.where(keys == NAN_KEY, np.nan, key_floats(keys))
        with np.errstate(over="ignore"):  # beyond 32 bits is infinity, which fits
            values = pa.array(floats.astype(np.float32) if attribute.bits == 32 else floats).cast(element)
    elif attribute.kind is Kind.BOOLEAN:
        values = pa.array(keys.clip(0, 1).astype(bool))
    elif attribute.kind is Kind.DATE:
        values = pa.array(keys.astype(np.int32)).cast(element)
    else:
        # A constant may lie outside the width of its attribute; an event may not.
        inside = keys.clip(*integer_range(attribute.bits)) if attribute.kind is Kind.INTEGER else keys
        values = pa.array(inside).cast(element)
    if attribute.is_array:
        return pa.ListArray.from_arrays(pa.array(np.arange(PROBES + 1, dtype=np.int32)), values)
    return values
