"""Columns of events to canonical Arrow arrays.

Theory of operation
-------------------
A column comes as an Arrow array or as a list of Python values. The fast path converts all of it at once: an array of the
canonical type is taken as it is, without a copy; another Arrow type is cast; a list whose values all have the plain
Python type of the attribute is handed to Arrow. Only a column that does not pass is looked at value by value, with the
rules of `values`, so both paths accept the same values and the slow one explains the others.

The result names the rows that do not fit, but describes them only when asked: a column of a wrong type in a batch of a
million rows costs one message when the first error is raised, not a million.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from wherecast.errors import EventError
from wherecast.language.events.arrow import (
    canonical_type,
    declared_type,
    element_of,
    is_any_list,
    is_text_extension,
)
from wherecast.language.events.attributes import Attribute
from wherecast.language.events.keys import NAN_KEY, key_floats
from wherecast.language.events.scalars import (
    NO_ZONE,
    NONE_BAD,
    Fitted,
    convert_one_by_one,
    convert_scalars,
    fitter,
    is_canonical,
    read_text,
    valid_rows,
)
from wherecast.language.events.types import FULL_WIDTH, MOMENTS, Type, integer_range
from wherecast.language.events.values import (
    UnfitValueError,
    describe,
)
from wherecast.language.events.zone import UTC, Zone

if TYPE_CHECKING:
    import numpy.typing as npt

_NULL = frozenset({type(None)})
_LISTS = frozenset({list, tuple})


class Converted(NamedTuple):
    """A converted column. `describe(row)` says what is wrong with a bad row."""

    values: pa.Array  # canonical type, NULL in bad rows
    bad: npt.NDArray[np.int64]  # ascending rows
    describe: Callable[[int], str]


def null_column(attribute: Attribute, length: int) -> Converted:
    """A column that the events do not have."""
    return Converted(pa.nulls(length, canonical_type(attribute)), NONE_BAD, str)


def refused_column(attribute: Attribute, bad: npt.NDArray[np.int64], length: int, reason: str) -> Converted:
    """A column none of whose values can be used, all for the same reason."""
    return Converted(pa.nulls(length, canonical_type(attribute)), bad, lambda _: reason)


def whole_array(array: pa.Array | pa.ChunkedArray, attribute: Attribute) -> pa.Array:
    """One array of a chunked one; without a copy if it has one chunk."""
    if not isinstance(array, pa.ChunkedArray):
        return array
    if array.num_chunks == 1:
        return array.chunk(0)
    try:
        return array.combine_chunks()
    except pa.ArrowInvalid as error:  # offsets of strings and lists have 32 bits
        raise _too_large(attribute, error) from None


def convert_array(attribute: Attribute, array: pa.Array, zone: Zone = UTC) -> Converted:
    """Convert an Arrow array; `zone` is that of timestamps without one."""
    if not attribute.is_array and is_canonical(attribute, array):
        return Converted(array, NONE_BAD, str)
    array = _decode(array)
    convert = _convert_list if attribute.is_array else convert_scalars
    try:
        part = (_convert_map if attribute.value is not None else convert)(attribute, array, zone)
        part = _whole_vectors(part, attribute.size) if attribute.size else part
    except pa.ArrowInvalid as error:
        raise _too_large(attribute, error) from None
    return Converted(part.values, part.bad, lambda row: _explain(attribute, array, row))


def convert_values(attribute: Attribute, values: list[object], zone: Zone = UTC) -> Converted:
    """Convert a list of Python values; `zone` is that of timestamps without one."""
    array = _convert_plain(attribute, values, zone)
    if isinstance(array, Converted):
        return array
    part = Fitted(array, NONE_BAD) if array is not None else convert_one_by_one(attribute, values, zone)
    return Converted(whole_array(part.values, attribute), part.bad, lambda row: _explain_value(attribute, values[row]))


def from_positions(attribute: Attribute, positions: npt.NDArray[np.int64], strings: list[str]) -> pa.Array:
    """Values of an attribute, or elements, near the ends of constraints (see `filters`); all of them fit."""
    row, of = attribute.row, element_of(attribute)
    element = canonical_type(of)
    if attribute.is_text:
        texts = (strings[rank] for rank in (positions >> 2).tolist())
        return pa.array([row.load(text, of) for text in texts], declared_type(of))
    if row.has_digits:
        most = 10 ** attribute.digits[0] - 1
        return pa.array([row.load(key, of) for key in positions.clip(-most, most).tolist()], declared_type(of))
    if types.is_floating(element):
        floats = np.where(positions == NAN_KEY, np.nan, key_floats(positions))
        with np.errstate(over="ignore"):  # beyond 32 bits is infinity, which fits
            return pa.array(floats.astype(np.float32) if attribute.bits == 32 else floats).cast(element)
    if types.is_boolean(element):
        return pa.array(positions.clip(0, 1).astype(bool))
    # A constant may lie outside the width of its attribute; an event may not.
    ticks = pa.array(positions.clip(*integer_range(attribute.bits)))
    return ticks.cast(pa.int32()).view(element) if types.is_date32(element) else ticks.cast(element)


# Python values


def _convert_plain(attribute: Attribute, values: list[object], zone: Zone) -> pa.Array | Converted | None:
    """The fast path for a list, if all values have the plain Python type of the attribute."""
    if attribute.value is not None:
        return _convert_dicts(attribute, values, zone)
    found = set(map(type, values)) - _NULL
    elements: list[Any] = values
    if attribute.is_array:
        if not found <= _LISTS:
            return None
        elements = [*chain.from_iterable(filter(None, elements))]
        found = set(map(type, elements)) - _NULL
    try:
        if found <= attribute.row.python:
            if attribute.size:
                return convert_array(attribute, whole_array(pa.array(values, canonical_type(attribute)), attribute))
            if found == {dt.datetime}:
                return _convert_datetimes(attribute, values, elements, zone)
            if attribute.row.store is not None:
                return convert_array(attribute, whole_array(pa.array(values, declared_type(attribute)), attribute))
            array = pa.array(values, canonical_type(attribute))
            return array if attribute.bits == FULL_WIDTH else convert_array(attribute, whole_array(array, attribute))
        if found == {str} and (attribute.type in MOMENTS or attribute.coerce):
            text = pa.array(values, pa.list_(pa.string()) if attribute.is_array else pa.string())
            return convert_array(attribute, whole_array(text, attribute), zone)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return None
    return None


def _convert_datetimes(
    attribute: Attribute, values: list[object], elements: list[Any], zone: Zone
) -> pa.Array | Converted | None:
    """Datetimes that all have a time zone, or all have none; None for others, which are looked at singly."""
    naive = {e.tzinfo is None for e in elements if e is not None}
    if naive == {True}:
        walls = pa.array(values, pa.list_(NO_ZONE) if attribute.is_array else NO_ZONE)
        return convert_array(attribute, whole_array(walls, attribute), zone)
    # A datetime with a zone, at the end of year 9999, may be in the year 10000 in UTC.
    if attribute.type is Type.TIMESTAMP_NTZ or len(naive) > 1 or any(e and e.year in (1, 9999) for e in elements):
        return None
    return pa.array(values, canonical_type(attribute))


def _convert_dicts(attribute: Attribute, values: list[Any], zone: Zone) -> pa.Array | None:
    """Maps, if all of them are dictionaries and everything in them fits."""
    if not set(map(type, values)) - _NULL <= {dict}:
        return None
    assert attribute.value is not None, "only a map has values"
    keys = convert_values(element_of(attribute), [key for value in values if value for key in value], zone)
    items = convert_values(attribute.value, [v for value in values if value for v in value.values()], zone)
    if len(keys.bad) or len(items.bad):
        return None
    sizes = np.fromiter((len(value) if value else 0 for value in values), np.int64, len(values))
    gone = pa.array([value is None for value in values])
    part = _paired(canonical_type(attribute), keys.values, items.values, sizes, gone)
    return None if len(part.bad) else part.values


def _explain_value(attribute: Attribute, value: object) -> str:
    message = f"expected {attribute.type_name}, got {describe(value)}"
    try:
        fitter(attribute)(value)
    except UnfitValueError as misfit:
        message = str(misfit)
    return message


# Arrow arrays


def _decode(array: pa.Array) -> pa.Array:
    """The plain values under dictionaries, runs and extension types of text."""
    while True:
        if is_text_extension(array.type):
            array = array.storage
        elif types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        else:
            return array


def _convert_list(attribute: Attribute, array: pa.Array, zone: Zone) -> Fitted:
    target = canonical_type(attribute)
    if types.is_null(array.type):
        return Fitted(pa.nulls(len(array), target), NONE_BAD)
    if not is_any_list(array.type):
        return Fitted(pa.nulls(len(array), target), valid_rows(array))
    # flatten() knows slices, NULL lists and lists that overlap or are out of order. (A cast of a sliced list view to a
    # list gives wrong offsets in PyArrow 26.)
    elements = array.flatten()
    part = convert_scalars(element_of(attribute), _decode(elements), zone)
    if part.values is elements and array.type == target:
        return Fitted(array, NONE_BAD)
    lists, offsets = _relisted(array, part.values, target)
    # The last list that starts at or before a bad element holds it: empty lists before it start there too.
    return Fitted(lists, np.unique(np.searchsorted(offsets, part.bad, side="right") - 1))


def _whole_vectors(part: Fitted, size: int) -> Fitted:
    """Vectors among arrays of numbers; a row that has another size, a NULL in it or a number that is not finite is bad."""
    lists = part.values
    lengths = pc.list_value_length(lists)
    has_size = pc.fill_null(pc.equal(lengths, size), True).to_numpy(zero_copy_only=False)
    numbers = lists.flatten()
    finite = pc.fill_null(pc.is_finite(numbers), False).to_numpy(zero_copy_only=False)
    unfit = [part.bad, np.flatnonzero(~has_size)]
    if not finite.all():
        ends = np.cumsum(pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False), dtype=np.int64)
        unfit.append(np.searchsorted(ends, np.flatnonzero(~finite), side="right"))
    bad = np.unique(np.concatenate(unfit))
    if not bad.size:
        return part
    fits = np.ones(len(lists), bool)
    fits[bad] = False
    return Fitted(pc.if_else(pa.array(fits), lists, pa.scalar(None, lists.type)), bad)


def _convert_map(attribute: Attribute, array: pa.Array, zone: Zone) -> Fitted:
    target = canonical_type(attribute)
    if types.is_null(array.type):
        return Fitted(pa.nulls(len(array), target), NONE_BAD)
    if types.is_map(array.type):
        pair = [("key", array.type.key_type), ("value", array.type.item_type)]
        array = array.cast(pa.list_(pa.struct(pair)))
    elif array.type != target:
        return Fitted(pa.nulls(len(array), target), valid_rows(array))
    assert attribute.value is not None, "only a map has values"
    pairs = array.flatten()
    keys = convert_scalars(element_of(attribute), _decode(pc.struct_field(pairs, "key")), zone)
    items = convert_scalars(attribute.value, _decode(pc.struct_field(pairs, "value")), zone)
    sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    part = _paired(target, keys.values, items.values, sizes, array.is_null())
    unfit = np.concatenate([keys.bad, items.bad])
    if not unfit.size:
        return part
    owners = np.searchsorted(np.cumsum(sizes), unfit, side="right")
    return Fitted(part.values, np.unique(np.concatenate([part.bad, owners])))


def _paired(
    target: pa.DataType, keys: pa.Array, items: pa.Array, sizes: npt.NDArray[np.int64], gone: pa.Array
) -> Fitted:
    """Maps of so many pairs each; a row with a key that is NULL or that is there twice is bad."""
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    pairs = pa.StructArray.from_arrays([keys, items], fields=list(target.value_type))
    mask = gone if pc.any(gone).as_py() else None
    maps = pa.ListArray.from_arrays(pa.array(offsets).cast(pa.int32()), pairs, type=target, mask=mask)
    owners = np.repeat(np.arange(sizes.size), sizes)
    codes = pc.dictionary_encode(keys, null_encoding="encode").indices.to_numpy(zero_copy_only=False).astype(np.int64)
    places = np.sort(owners << 32 | codes)
    twice = places[1:][places[1:] == places[:-1]] >> 32
    return Fitted(maps, np.unique(np.concatenate([twice, owners[keys.is_null().to_numpy(zero_copy_only=False)]])))


def map_keys(array: pa.Array) -> pa.Array:
    """The lists of the keys of maps in their canonical type."""
    return field_of(array, 0)


def _relisted(array: pa.Array, values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Lists of other values, as many as `array.flatten()` has, and where each list begins."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets).cast(pa.int32()), values, type=kind, mask=mask), offsets


def struct_of(data_type: pa.DataType, *, in_lists: bool) -> pa.StructType | None:
    """The struct that a column holds, or holds lists of; None if it holds none."""
    if in_lists and is_any_list(data_type):
        data_type = data_type.value_type
    return data_type if types.is_struct(data_type) else None


def field_of(array: pa.Array, index: int) -> pa.Array:
    """A field of a column of structs; of lists of structs, the lists of the field."""
    if types.is_struct(array.type):
        return pc.struct_field(array, indices=[index])
    values = pc.struct_field(array.flatten(), indices=[index])
    return _relisted(array, values, pa.list_(values.type))[0]


def _explain(attribute: Attribute, array: pa.Array, row: int) -> str:
    """What is wrong with a row of an array that has been refused."""
    one = array.slice(row, 1)
    if attribute.is_array and attribute.value is None and is_any_list(array.type):
        element, elements = element_of(attribute), _decode(one.flatten())
        unfit = convert_scalars(element, elements, UTC).bad
        if attribute.size and not unfit.size:
            return _explain_value(attribute, one[0].as_py())
        position = int(unfit[0])
        return f"element {position}: {_explain(element, elements, position)}"
    if isinstance(array.type, pa.BaseExtensionType):
        return f"expected {attribute.type_name}, got {array.type}"
    try:
        value = one[0].as_py()
    except UnicodeDecodeError:
        return f"expected {attribute.type_name}, got invalid UTF-8 {describe(read_text(one)[0])}"
    except (ValueError, OverflowError):
        return f"expected {attribute.type_name}, got a {array.type} that it cannot hold"
    return _explain_value(attribute, value)


def _too_large(attribute: Attribute, error: pa.ArrowInvalid) -> EventError:
    return EventError(
        f"the column cannot be read as {attribute.type_name}: {error}; "
        "publish smaller batches if it holds more than 2 GiB, else write it anew",
        attribute=attribute.name,
    )
