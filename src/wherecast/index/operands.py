"""Operands: the attributes of events in the form that the evaluator of expressions wants (see `language.evaluate`)."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.language.events.events import EventBatch
from wherecast.language.events.kinds import unscaled_of
from wherecast.language.events.schema import Attribute
from wherecast.language.events.types import Type
from wherecast.language.events.values import Scalar, Stored, key_of
from wherecast.language.nullable import Nullable

#: The key under which a batch keeps the values of an attribute in this form: several expressions may read them.
_OPERANDS = -3


def attribute_values(events: EventBatch, attr: int) -> Nullable:
    """An attribute's values as the evaluator wants them."""
    return events.derive(attr, _OPERANDS, lambda array: _values(array, events.schema.attributes[attr]))


def _values(array: pa.Array, attribute: Attribute) -> Nullable:
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    if attribute.type is Type.DECIMAL:
        return Nullable(_unscaled(array.to_pylist(), is_array=attribute.is_array), valid)
    if attribute.is_array:
        return Nullable(_objects(_plain_lists(array)), valid)
    if attribute.is_text:
        return Nullable(_objects("" if v is None else v for v in array.to_pylist()), valid)
    return Nullable(_plain_numbers(array), valid)


def one_value(value: Stored | None, attribute: Attribute) -> Nullable:
    """The value of an attribute in one event, as the evaluator wants it."""
    valid = np.array([value is not None])
    if attribute.type is Type.DECIMAL:
        return Nullable(_unscaled([value], is_array=attribute.is_array), valid)
    if isinstance(value, list) or attribute.is_array:
        elements = value if isinstance(value, list) else []
        return Nullable(_objects([[_plain_element(element) for element in elements]]), valid)
    if attribute.is_text:
        return Nullable(np.array(["" if value is None else value], object), valid)
    if isinstance(value, bool | float):
        return Nullable(np.array([value]), valid)
    dtype = _DTYPES.get(attribute.type, np.int64)
    return Nullable(np.array([0 if value is None else key_of(value)], dtype), valid)


def _plain_element(element: Scalar | None) -> Any:
    """Dates as days, timestamps as microseconds, the rest as it is."""
    return key_of(element) if isinstance(element, dt.date) else element


_DTYPES = {Type.BOOLEAN: np.bool_, Type.FLOAT: np.float64, Type.DOUBLE: np.float64}


def _unscaled(stored: list[Any], *, is_array: bool) -> npt.NDArray[np.object_]:
    """Decimals, unscaled, of which an evaluator knows the scale; NULLs as zero."""
    if is_array:
        return _objects([None if e is None else unscaled_of(e) for e in v or ()] for v in stored)
    return _objects(0 if v is None else unscaled_of(v) for v in stored)


def _objects(values: Any) -> npt.NDArray[np.object_]:
    return np.fromiter(values, object)


def _plain_numbers(array: pa.Array) -> npt.NDArray[Any]:
    """Dates as days, timestamps as microseconds, the rest as it is; NULLs as zero."""
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32()).cast(pa.int64())
    elif pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    if array.null_count:
        array = array.fill_null(False if pa.types.is_boolean(array.type) else 0)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _plain_lists(array: pa.Array) -> list[list[Any]]:
    if pa.types.is_date32(array.type.value_type):
        array = array.cast(pa.list_(pa.int32()))
    elif pa.types.is_timestamp(array.type.value_type):
        array = array.cast(pa.list_(pa.int64()))
    return [[] if v is None else v for v in array.to_pylist()]
