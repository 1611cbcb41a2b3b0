"""Operands: the attributes of events in the form that the evaluator of expressions wants (see `language.evaluate`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.language.events import EventBatch
from wherecast.language.keys import key_of
from wherecast.language.nullable import Nullable
from wherecast.language.types import Kind
from wherecast.language.values import Scalar


def attribute_values(events: EventBatch, attr: int) -> Nullable:
    """An attribute's values as the evaluator wants them."""
    array = events.array(attr)
    attribute = events.schema.attributes[attr]
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    if attribute.is_array:
        return Nullable(_objects(_plain_lists(array, attribute.kind)), valid)
    if attribute.kind is Kind.STRING:
        return Nullable(_objects("" if v is None else v for v in array.to_pylist()), valid)
    return Nullable(_plain_numbers(array, attribute.kind), valid)


def one_value(value: Scalar | None, kind: Kind) -> Nullable:
    """The value of a scalar attribute in one event, as the evaluator wants it."""
    if kind is Kind.STRING:
        return Nullable(np.array(["" if value is None else value], object), np.array([value is not None]))
    if kind in (Kind.FLOAT, Kind.BOOLEAN):
        dtype = np.float64 if kind is Kind.FLOAT else np.bool_
        return Nullable(np.array([0 if value is None else value], dtype), np.array([value is not None]))
    return Nullable(np.array([0 if value is None else key_of(value)], np.int64), np.array([value is not None]))


def _objects(values: Any) -> npt.NDArray[np.object_]:
    return np.fromiter(values, object)


def _plain_numbers(array: pa.Array, kind: Kind) -> npt.NDArray[Any]:
    """Dates as days, timestamps as microseconds, the rest as it is; NULLs as zero."""
    if kind is Kind.DATE:
        array = array.cast(pa.int32()).cast(pa.int64())
    elif kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ):
        array = array.cast(pa.int64())
    if array.null_count:
        array = array.fill_null(False if kind is Kind.BOOLEAN else 0)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _plain_lists(array: pa.Array, kind: Kind) -> list[list[Any]]:
    if kind is Kind.DATE:
        array = array.cast(pa.list_(pa.int32()))
    elif kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ):
        array = array.cast(pa.list_(pa.int64()))
    return [[] if v is None else v for v in array.to_pylist()]
