"""Operands: the attributes of events in the form that the evaluator of expressions wants (see `language.evaluate`)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.language.events.arrow import element_of
from wherecast.language.events.events import EventBatch
from wherecast.language.events.kinds import unscaled_of
from wherecast.language.events.schema import Attribute
from wherecast.language.events.types import Type
from wherecast.language.events.values import Scalar, Stored, key_of
from wherecast.language.functions.row import GrownTextError
from wherecast.language.nullable import ListValues, Nullable, arrow_valid


@contextmanager
def numbering(events: EventBatch) -> Iterator[None]:
    """Gives a text that grows too long the row that its event had in the input."""
    try:
        yield
    except GrownTextError as grown:
        grown.renumber(events.rows)
        raise


#: The key under which a batch keeps the values of an attribute in this form: several expressions may read them.
_OPERANDS = -3
#: And that of the pairs of its maps.
_PAIRS = -4


def attribute_values(events: EventBatch, attr: int) -> Nullable:
    """An attribute's values as the evaluator wants them."""
    return events.derive(attr, _OPERANDS, lambda array: _values(array, events.schema.attributes[attr]))


def _values(array: pa.Array, attribute: Attribute) -> Nullable:
    if attribute.value is not None or attribute.is_array:
        return Nullable.of_lists(_lists(array, attribute), arrow_valid(array))
    if not attribute.is_text:
        return Nullable(_plain_numbers(array), arrow_valid(array))
    if attribute.type is Type.DECIMAL:
        return Nullable(_unscaled(array.to_pylist(), is_array=False), arrow_valid(array))
    return Nullable.of_texts(array)


def _lists(array: pa.Array, attribute: Attribute) -> ListValues:
    """Arrays, or maps with keys."""
    bounds = _list_bounds(array)
    if attribute.value is None:
        return ListValues(bounds, lambda: _values(array.flatten(), element_of(attribute)))
    value = attribute.value
    return ListValues(
        bounds,
        lambda: _values(pc.struct_field(array.flatten(), "value"), value),
        lambda: _values(pc.struct_field(array.flatten(), "key"), element_of(attribute)),
    )


def _list_bounds(array: pa.Array) -> npt.NDArray[np.integer[Any]]:
    """Where the elements of each list begin, counted from any number.

    They are counted among those that `flatten` gives, which leaves out what NULLs hide.
    """
    if not array.null_count and (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        return array.offsets.to_numpy()  # type: ignore[no-any-return]
    sizes = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))


class MapPairs(NamedTuple):
    """The pairs of a batch of maps, by which the value of a key is found without a look at single maps."""

    owners: npt.NDArray[np.int64]  # the row of each pair
    keys: npt.NDArray[np.int32]  # the number of its key
    numbers: dict[Any, int]  # of keys
    values: pa.Array

    @classmethod
    def of(cls, array: pa.Array) -> MapPairs:
        pairs = array.flatten()
        keys = pc.struct_field(pairs, "key").dictionary_encode()
        numbers = {key: number for number, key in enumerate(keys.dictionary.to_pylist())}
        owners = pc.list_parent_indices(array).to_numpy(zero_copy_only=False)
        return cls(owners, keys.indices.to_numpy(zero_copy_only=False), numbers, pc.struct_field(pairs, "value"))

    def find(self, key: Any, length: int) -> pa.Array:
        """The value of a key in each of so many maps."""
        number = self.numbers.get(key)
        if number is None:
            return pa.nulls(length, self.values.type)
        hits = np.flatnonzero(self.keys == number)
        places = np.full(length, -1)
        places[self.owners[hits]] = hits
        return self.values.take(pa.array(places, mask=places < 0))


def map_value(events: EventBatch, attr: int, key: Any) -> pa.Array:
    """The value of a key in each map of an attribute, in its canonical type."""
    return events.derive(attr, _PAIRS, MapPairs.of).find(key, len(events))


def one_value(value: Stored | None, attribute: Attribute) -> Nullable:
    """The value of an attribute in one event, as the evaluator wants it."""
    valid = np.array([value is not None])
    if attribute.value is not None:
        return Nullable(_objects([_plain_map(value if isinstance(value, dict) else {}, attribute.value)]), valid)
    if attribute.type is Type.DECIMAL:
        return Nullable(_unscaled([value], is_array=attribute.is_array), valid)
    if isinstance(value, list) or attribute.is_array:
        elements = value if isinstance(value, list) else []
        return Nullable(_objects([[_plain_element(element) for element in elements]]), valid)
    if attribute.is_text:
        return Nullable(np.array(["" if value is None else value], object), valid)
    if isinstance(value, bool | float):
        return Nullable(np.array([value]), valid)
    assert not isinstance(value, dict), "only a map is one"
    dtype = _DTYPES.get(attribute.type, np.int64)
    return Nullable(np.array([0 if value is None else key_of(value)], dtype), valid)


def _plain_map(values: dict[Scalar, Scalar | None], attribute: Attribute) -> dict[Any, Any]:
    """A map whose values are those of an attribute."""
    plain: Callable[[Any], Any] = unscaled_of if attribute.type is Type.DECIMAL else _plain_element
    return {_plain_element(key): None if value is None else plain(value) for key, value in values.items()}


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
        array = array.view(pa.int32())
        if not array.null_count:
            return array.to_numpy().astype(np.int64)  # type: ignore[no-any-return]
        array = array.cast(pa.int64())
    elif pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    if array.null_count:
        array = array.fill_null(False if pa.types.is_boolean(array.type) else 0)
    return np.asarray(array.to_numpy(zero_copy_only=False))
