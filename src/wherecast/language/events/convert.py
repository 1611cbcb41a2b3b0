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
    ARROW,
    canonical_type,
    declared_type,
    element_of,
    is_any_list,
    is_bytes,
    is_text,
    is_text_extension,
    signed_width,
)
from wherecast.language.events.attributes import Attribute
from wherecast.language.events.keys import NAN_KEY, instants, key_floats
from wherecast.language.events.types import FULL_WIDTH, MOMENTS, Kind, Type, integer_range
from wherecast.language.events.values import (
    DATE_PATTERN,
    INTEGER_MAX,
    TIMESTAMP_PATTERN,
    UnfitValueError,
    describe,
)
from wherecast.language.events.zone import UTC, Zone

if TYPE_CHECKING:
    import numpy.typing as npt

_NONE_BAD: npt.NDArray[np.int64] = np.empty(0, np.int64)
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_NULL = frozenset({type(None)})
_LISTS = frozenset({list, tuple})
_NO_ZONE = pa.timestamp("us")
# The years 1 to 9999, which is what Python and SQL can write: in days and in microseconds since 1970.
_DAYS = (dt.date.min.toordinal() - dt.date(1970, 1, 1).toordinal(), dt.date.max.toordinal() - 719_163)
_MICROSECONDS = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)


class Converted(NamedTuple):
    """A converted column. `describe(row)` says what is wrong with a bad row."""

    values: pa.Array  # canonical type, NULL in bad rows
    bad: npt.NDArray[np.int64]  # ascending rows
    describe: Callable[[int], str]


class _Part(NamedTuple):
    """Converted values and the rows that do not fit."""

    values: pa.Array
    bad: npt.NDArray[np.int64]


def null_column(attribute: Attribute, length: int) -> Converted:
    """A column that the events do not have."""
    return Converted(pa.nulls(length, canonical_type(attribute)), _NONE_BAD, str)


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
    if not attribute.is_array and _is_canonical(attribute, array):
        return Converted(array, _NONE_BAD, str)
    array = _decode(array)
    convert = _convert_list if attribute.is_array else _convert_scalars
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
    part = _Part(array, _NONE_BAD) if array is not None else _convert_one_by_one(attribute, values, zone)
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
        walls = pa.array(values, pa.list_(_NO_ZONE) if attribute.is_array else _NO_ZONE)
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


def _fitter(attribute: Attribute) -> Callable[..., Any]:
    if attribute.value is not None:
        return attribute.fit_map
    return attribute.fit_array if attribute.is_array else attribute.fit


def _convert_one_by_one(attribute: Attribute, values: list[object], zone: Zone) -> _Part:
    fit = _fitter(attribute)
    out: list[object] = []
    bad = []
    for row, value in enumerate(values):
        try:
            out.append(_stored(attribute, fit(value, zone)))
        except UnfitValueError:
            out.append(None)
            bad.append(row)
    return _Part(pa.array(out, canonical_type(attribute)), np.array(bad, np.int64))


def _stored(attribute: Attribute, fitted: Any) -> Any:
    if attribute.value is not None and fitted is not None:
        return [{"key": attribute.stored(key), "value": attribute.value.stored(value)} for key, value in fitted]
    if attribute.row.store is None or not attribute.is_array or fitted is None:
        return attribute.stored(fitted)
    return [attribute.stored(element) for element in fitted]


def _explain_value(attribute: Attribute, value: object) -> str:
    message = f"expected {attribute.type_name}, got {describe(value)}"
    try:
        _fitter(attribute)(value)
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


def _convert_list(attribute: Attribute, array: pa.Array, zone: Zone) -> _Part:
    target = canonical_type(attribute)
    if types.is_null(array.type):
        return _Part(pa.nulls(len(array), target), _NONE_BAD)
    if not is_any_list(array.type):
        return _Part(pa.nulls(len(array), target), valid_rows(array))
    # flatten() knows slices, NULL lists and lists that overlap or are out of order. (A cast of a sliced list view to a
    # list gives wrong offsets in PyArrow 26.)
    elements = array.flatten()
    part = _convert_scalars(element_of(attribute), _decode(elements), zone)
    if part.values is elements and array.type == target:
        return _Part(array, _NONE_BAD)
    lists, offsets = _relisted(array, part.values, target)
    # The last list that starts at or before a bad element holds it: empty lists before it start there too.
    return _Part(lists, np.unique(np.searchsorted(offsets, part.bad, side="right") - 1))


def _whole_vectors(part: _Part, size: int) -> _Part:
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
    return _Part(pc.if_else(pa.array(fits), lists, pa.scalar(None, lists.type)), bad)


def _convert_map(attribute: Attribute, array: pa.Array, zone: Zone) -> _Part:
    target = canonical_type(attribute)
    if types.is_null(array.type):
        return _Part(pa.nulls(len(array), target), _NONE_BAD)
    if types.is_map(array.type):
        pair = [("key", array.type.key_type), ("value", array.type.item_type)]
        array = array.cast(pa.list_(pa.struct(pair)))
    elif array.type != target:
        return _Part(pa.nulls(len(array), target), valid_rows(array))
    assert attribute.value is not None, "only a map has values"
    pairs = array.flatten()
    keys = _convert_scalars(element_of(attribute), _decode(pc.struct_field(pairs, "key")), zone)
    items = _convert_scalars(attribute.value, _decode(pc.struct_field(pairs, "value")), zone)
    sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    part = _paired(target, keys.values, items.values, sizes, array.is_null())
    unfit = np.concatenate([keys.bad, items.bad])
    if not unfit.size:
        return part
    owners = np.searchsorted(np.cumsum(sizes), unfit, side="right")
    return _Part(part.values, np.unique(np.concatenate([part.bad, owners])))


def _paired(
    target: pa.DataType, keys: pa.Array, items: pa.Array, sizes: npt.NDArray[np.int64], gone: pa.Array
) -> _Part:
    """Maps of so many pairs each; a row with a key that is NULL or that is there twice is bad."""
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    pairs = pa.StructArray.from_arrays([keys, items], fields=list(target.value_type))
    mask = gone if pc.any(gone).as_py() else None
    maps = pa.ListArray.from_arrays(pa.array(offsets).cast(pa.int32()), pairs, type=target, mask=mask)
    owners = np.repeat(np.arange(sizes.size), sizes)
    codes = pc.dictionary_encode(keys, null_encoding="encode").indices.to_numpy(zero_copy_only=False).astype(np.int64)
    places = np.sort(owners << 32 | codes)
    twice = places[1:][places[1:] == places[:-1]] >> 32
    return _Part(maps, np.unique(np.concatenate([twice, owners[keys.is_null().to_numpy(zero_copy_only=False)]])))


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


def is_plain(attribute: Attribute, data_type: pa.DataType) -> bool:
    """Whether a column of this type is converted by leaving it as it is; texts have to be valid."""
    if attribute.is_array or attribute.value is not None:
        return False
    return _has_canonical(attribute, data_type) or (attribute.kind is Kind.STRING and types.is_string(data_type))


def _is_canonical(attribute: Attribute, array: pa.Array) -> bool:
    """Whether values, or elements, are as an index has them."""
    return _has_canonical(attribute, array.type)


def _has_canonical(attribute: Attribute, data_type: pa.DataType) -> bool:
    row = attribute.row
    is_whole = row.store is None and attribute.bits == FULL_WIDTH and not attribute.is_text
    return is_whole and bool(data_type == ARROW[attribute.kind].canonical)


def _convert_scalars(attribute: Attribute, array: pa.Array, zone: Zone) -> _Part:
    if _is_canonical(attribute, array):
        return _Part(array, _NONE_BAD)
    target = canonical_type(attribute)
    if types.is_null(array.type):
        return _Part(pa.nulls(len(array), target), _NONE_BAD)
    if attribute.coerce:
        array = _coerced(attribute, array)
    part = _CONVERT[attribute.kind](attribute, array, target, zone)
    if part is None and attribute.coerce and (is_text(array.type) or types.is_floating(array.type)):
        return _convert_one_by_one(attribute, array.to_pylist() if _is_valid(array) else _read_text(array), zone)
    return _Part(pa.nulls(len(array), target), valid_rows(array)) if part is None else part


def _coerced(attribute: Attribute, array: pa.Array) -> pa.Array:
    """An array as `Row.coerce` would make it of its values, if that can be done at once."""
    if is_text(array.type):
        read = read_plain(attribute, array)
        return array if read is None else read
    # Floats have several texts: they are written one by one.
    is_written = types.is_boolean(array.type) or types.is_integer(array.type) or types.is_decimal(array.type)
    return array.cast(pa.string()) if attribute.type is Type.STRING and is_written else array


def read_plain(attribute: Attribute, texts: pa.Array) -> pa.Array | None:
    """Plain texts (see `kinds`) in the canonical type of an attribute; None if some text is not well-formed."""
    plain = attribute.row.plain
    if plain is None:
        return texts
    try:
        if pc.all(pc.match_substring_regex(texts, plain.pattern)).as_py() is False:
            return None
        return pc.utf8_trim_whitespace(texts).cast(canonical_type(element_of(attribute)))
    except pa.ArrowException:  # out of range, or not UTF-8
        return None


# One function per kind: the values of an array in the canonical type, or None if none of this array's type fits.


def _convert_booleans(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> _Part | None:  # noqa: ARG001
    return _Part(array, _NONE_BAD) if array.type == target else None


def _convert_strings(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> _Part | None:
    if not is_text(array.type):
        return None
    if not _is_valid(array):
        return _convert_one_by_one(attribute, _read_text(array), zone)
    return _Part(array if array.type == target else array.cast(target), _NONE_BAD)


def _convert_floats(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> _Part | None:  # noqa: ARG001
    if types.is_decimal(array.type):
        # By way of text, which Arrow reads to the nearest double; its own cast may miss it.
        array = array.cast(pa.string()).cast(target)
    if not (types.is_integer(array.type) or types.is_floating(array.type)):
        return None
    doubles = array.cast(target, safe=False)  # unsafe: an integer goes to the nearest double
    is_narrow = types.is_floating(array.type) and array.type.bit_width <= attribute.bits
    return _Part(doubles, _NONE_BAD) if is_narrow or attribute.bits == FULL_WIDTH else _rounded(doubles)


def _convert_decimals(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> _Part | None:  # noqa: ARG001
    declared = declared_type(attribute)
    if is_text(array.type):
        return _convert_one_by_one(attribute, array.to_pylist() if _is_valid(array) else _read_text(array), zone)
    if not (types.is_decimal(array.type) or types.is_integer(array.type) or types.is_floating(array.type)):
        return None
    try:
        if types.is_floating(array.type):  # the number that it is written as
            array = array.cast(pa.float64()).cast(pa.string())
        elif types.is_integer(array.type):
            array = array.cast(pa.decimal128(20, 0))
        return _Part(_stored_decimals(array.cast(declared), is_text=attribute.is_text), _NONE_BAD)
    except pa.ArrowInvalid:  # some value does not fit, or not without rounding
        return _convert_one_by_one(attribute, array.to_pylist(), zone)


def _stored_decimals(array: pa.Array, *, is_text: bool) -> pa.Array:
    """Decimals of 128 bits as an index has them (see `kinds`): unscaled, as integers of 64 bits or as ordered texts."""
    n = len(array)
    words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + n)]
    if is_text:
        raw = words.view(np.uint8).reshape(n, 16)[:, ::-1].copy()
        raw[:, 0] ^= 0x80  # so that negative ones come first
        digits = np.empty((n, 32), np.uint8)
        digits[:, 0::2], digits[:, 1::2] = _HEX[raw >> 4], _HEX[raw & 15]
        offsets = np.arange(0, 32 * n + 1, 32, dtype=np.int32)
        stored = pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(digits))
    else:
        stored = pa.array(words[0::2])
    return pc.if_else(array.is_valid(), stored, None) if array.null_count else stored


def _convert_bytes(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> _Part | None:  # noqa: ARG001
    if not is_bytes(array.type):
        return None
    array = array.cast(pa.binary())
    n, (_, offsets, data) = len(array), array.buffers()
    if not n or data is None:
        return _Part(pc.if_else(array.is_valid(), "", None).cast(target), _NONE_BAD)
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + n + 1].astype(np.int64)
    raw = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    digits = np.empty(2 * raw.size, np.uint8)
    digits[0::2], digits[1::2] = _HEX[raw >> 4], _HEX[raw & 15]
    places = pa.array(2 * (ends - ends[0])).cast(pa.int32())  # raises ArrowInvalid beyond 2 GiB
    texts = pa.StringArray.from_buffers(n, places.buffers()[1], pa.py_buffer(digits))
    return _Part(pc.if_else(array.is_valid(), texts, None) if array.null_count else texts, _NONE_BAD)


def _convert_dates(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> _Part | None:
    if is_text(array.type):
        return _convert_text(attribute, array, target, zone)
    if not types.is_date64(array.type):
        return None
    days = _floor_divide(array, 86_400_000)
    return _view(_cast_except(days, _outside(days, 2**31 - 1), pa.int32()), target)


def _convert_instants(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> _Part | None:
    if is_text(array.type):
        return _convert_text(attribute, array, target, zone)
    times = _as_timestamps(array)
    if times is None:
        return None
    part = _convert_timestamps(times, target)
    return part if times.type.tz is not None else _in_zone(part, zone)


def _convert_walls(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> _Part | None:
    if is_text(array.type):
        return _convert_text(attribute, array, target, zone)
    times = _as_timestamps(array)
    return None if times is None or times.type.tz is not None else _convert_timestamps(times, target)


def _convert_integers(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> _Part | None:
    if not (types.is_integer(array.type) or types.is_decimal(array.type)):
        return None
    if types.is_decimal(array.type):
        try:
            array = array.cast(target)
        except pa.ArrowInvalid:  # a fraction, or outside 64 bits
            return _convert_one_by_one(attribute, array.to_pylist(), zone)
    if signed_width(array.type) <= attribute.bits:
        return _Part(array.cast(target), _NONE_BAD)
    low, high = integer_range(attribute.bits)
    unfit = pc.greater(array, pa.scalar(high, array.type))
    if types.is_signed_integer(array.type):
        unfit = pc.or_(unfit, pc.less(array, pa.scalar(low, array.type)))
    return _cast_except(array, unfit, target)


_CONVERT: dict[Kind, Callable[[Attribute, pa.Array, pa.DataType, Zone], _Part | None]] = {
    Kind.BOOLEAN: _convert_booleans,
    Kind.INTEGER: _convert_integers,
    Kind.FLOAT: _convert_floats,
    Kind.DECIMAL: _convert_decimals,
    Kind.STRING: _convert_strings,
    Kind.BINARY: _convert_bytes,
    Kind.DATE: _convert_dates,
    Kind.TIMESTAMP: _convert_instants,
    Kind.TIMESTAMP_NTZ: _convert_walls,
}


def _rounded(doubles: pa.Array) -> _Part:
    """The nearest floats of 32 bits; what is beyond their range does not fit."""
    floats = doubles.cast(pa.float32())
    return _cast_except(floats, pc.and_(pc.is_inf(floats), pc.is_finite(doubles)), doubles.type)


def valid_rows(array: pa.Array) -> npt.NDArray[np.int64]:
    """The rows of an array that are not NULL."""
    return np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))


def _cast_except(array: pa.Array, unfit: pa.Array | None, target: pa.DataType) -> _Part:
    """Cast an array, NULL where `unfit` is true."""
    bad = _NONE_BAD
    if unfit is not None and pc.any(unfit).as_py():
        bad = np.flatnonzero(pc.fill_null(unfit, False).to_numpy(zero_copy_only=False))
        array = pc.if_else(unfit, pa.scalar(None, array.type), array)
    return _Part(array.cast(target), bad)


def _as_timestamps(array: pa.Array) -> pa.Array | None:
    """Timestamps, or dates as their midnights, of any unit; None for an array of another type."""
    if types.is_date32(array.type):
        return array.cast(pa.timestamp("s"))
    if types.is_date64(array.type):
        return array.view(pa.timestamp("ms"))
    return array if types.is_timestamp(array.type) else None


def _in_zone(part: _Part, zone: Zone) -> _Part:
    """Wall clocks that were given the type of instants, as the instants that they mean; others stay wall clocks."""
    if part.values.type.tz is None or zone is UTC:
        return part
    ticks = part.values.view(pa.int64())
    walls = np.asarray(pc.fill_null(ticks, 0).to_numpy(zero_copy_only=False))
    mask = ticks.is_null().to_numpy(zero_copy_only=False) if ticks.null_count else None
    return _Part(pa.array(instants(zone, walls), pa.int64(), mask=mask).view(part.values.type), part.bad)


def _convert_timestamps(array: pa.Array, target: pa.DataType) -> _Part:
    if array.type.unit == "us":
        return _Part(array.view(target), _NONE_BAD)  # the zone of an Arrow type changes no value
    if array.type.unit == "ns":
        return _Part(_floor_divide(array, 1000).view(target), _NONE_BAD)
    factor = 1_000_000 if array.type.unit == "s" else 1000
    ticks = array.view(pa.int64())
    part = _cast_except(ticks, _outside(ticks, INTEGER_MAX // factor), pa.int64())
    return _view(_Part(pc.multiply(part.values, factor), part.bad), target)


def _floor_divide(array: pa.Array, divisor: int) -> pa.Array:
    """64-bit ticks to a coarser unit, towards minus infinity (Arrow's own cast goes towards zero)."""
    ticks = array.view(pa.int64())
    units = pc.divide(ticks, divisor)
    below = pc.less(ticks, pc.multiply(units, divisor))
    return pc.subtract(units, below.cast(pa.int64()))


def _outside(array: pa.Array, limit: int) -> pa.Array:
    return pc.or_(pc.greater(array, limit), pc.less(array, -limit))


def _view(part: _Part, target: pa.DataType) -> _Part:
    return _Part(part.values.view(target), part.bad)


def _is_valid(texts: pa.Array) -> bool:
    """Whether texts are UTF-8, within their buffers."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _convert_text(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> _Part:
    """Dates or timestamps, from texts."""
    if not _is_valid(array):
        return _convert_one_by_one(attribute, _read_text(array), zone)
    parsed = _parse_text(attribute.type, array.cast(pa.string()), target, zone)
    if parsed is not None:
        return _Part(parsed, _NONE_BAD)
    return _convert_one_by_one(attribute, array.to_pylist(), zone)


def _parse_text(kind: Type, array: pa.Array, target: pa.DataType, zone: Zone) -> pa.Array | None:
    """All texts at once, if all are valid and either all or none of them name a zone."""
    # Arrow reads more forms than the filter language does: look first.
    pattern = f"^{DATE_PATTERN if kind is Type.DATE else TIMESTAMP_PATTERN}$"
    if pc.all(pc.match_substring_regex(array, pattern)).as_py() is False:
        return None
    for data_type in (_NO_ZONE, target) if kind is Type.TIMESTAMP else (target,):
        try:
            parsed = array.cast(data_type)
        except pa.ArrowInvalid:
            continue
        part = _Part(parsed.view(target), _NONE_BAD)
        part = _in_zone(part, zone) if data_type == _NO_ZONE else part
        return part.values if _in_years(part.values) else None
    return None


def _in_years(array: pa.Array) -> bool:
    """Whether all dates or timestamps are in the years 1 to 9999."""
    low, high = _DAYS if types.is_date(array.type) else _MICROSECONDS
    ends = pc.min_max(array.view(pa.int32() if types.is_date(array.type) else pa.int64())).as_py()
    return ends["min"] is None or (low <= ends["min"] and ends["max"] <= high)


def _read_text(array: pa.Array) -> list[object]:
    """The texts of an array; what is not UTF-8 stays bytes, which fit no attribute."""
    binary = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(array.type, pa.binary_view())
    view = array.view(binary)
    view.validate(full=True)  # offsets out of bounds end here: nothing in such a column can be trusted
    texts: list[object] = []
    for raw in view.to_pylist():
        try:
            texts.append(None if raw is None else raw.decode())
        except UnicodeDecodeError:
            texts.append(raw)
    return texts


def _explain(attribute: Attribute, array: pa.Array, row: int) -> str:
    """What is wrong with a row of an array that has been refused."""
    one = array.slice(row, 1)
    if attribute.is_array and attribute.value is None and is_any_list(array.type):
        element, elements = element_of(attribute), _decode(one.flatten())
        unfit = _convert_scalars(element, elements, UTC).bad
        if attribute.size and not unfit.size:
            return _explain_value(attribute, one[0].as_py())
        position = int(unfit[0])
        return f"element {position}: {_explain(element, elements, position)}"
    if isinstance(array.type, pa.BaseExtensionType):
        return f"expected {attribute.type_name}, got {array.type}"
    try:
        value = one[0].as_py()
    except UnicodeDecodeError:
        return f"expected {attribute.type_name}, got invalid UTF-8 {describe(_read_text(one)[0])}"
    except (ValueError, OverflowError):
        return f"expected {attribute.type_name}, got a {array.type} that it cannot hold"
    return _explain_value(attribute, value)


def _too_large(attribute: Attribute, error: pa.ArrowInvalid) -> EventError:
    return EventError(
        f"the column cannot be read as {attribute.type_name}: {error}; "
        "publish smaller batches if it holds more than 2 GiB, else write it anew",
        attribute=attribute.name,
    )
