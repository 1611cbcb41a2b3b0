"""Scalars of an Arrow array in the canonical type of an attribute: one function per kind, in a table.

What Arrow can convert at once is converted at once. Where it cannot, or where some value may not fit, values are looked at one by one, with the
rules of `values`. Elements of arrays, and keys and values of maps, are scalars, too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from wherecast.language.events.arrow import (
    ARROW,
    canonical_type,
    declared_type,
    element_of,
    is_bytes,
    is_text,
    signed_width,
)
from wherecast.language.events.attributes import Attribute
from wherecast.language.events.keys import instants
from wherecast.language.events.types import FULL_WIDTH, Kind, Type, integer_range
from wherecast.language.events.values import DATE_PATTERN, INTEGER_MAX, TIMESTAMP_PATTERN, UnfitValueError
from wherecast.language.events.zone import UTC, Zone

if TYPE_CHECKING:
    import numpy.typing as npt

NONE_BAD: npt.NDArray[np.int64] = np.empty(0, np.int64)
NO_ZONE = pa.timestamp("us")
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
# The years 1 to 9999, which is what Python and SQL can write: in days and in microseconds since 1970.
_DAYS = (dt.date.min.toordinal() - dt.date(1970, 1, 1).toordinal(), dt.date.max.toordinal() - 719_163)
_MICROSECONDS = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)


class Fitted(NamedTuple):
    """Converted values and the rows that do not fit."""

    values: pa.Array
    bad: npt.NDArray[np.int64]


def is_plain(attribute: Attribute, data_type: pa.DataType) -> bool:
    """Whether a column of this type is converted by leaving it as it is; texts have to be valid."""
    if attribute.is_array or attribute.value is not None:
        return False
    return _has_canonical(attribute, data_type) or (attribute.kind is Kind.STRING and types.is_string(data_type))


def is_canonical(attribute: Attribute, array: pa.Array) -> bool:
    """Whether values, or elements, are as an index has them."""
    return _has_canonical(attribute, array.type)


def _has_canonical(attribute: Attribute, data_type: pa.DataType) -> bool:
    row = attribute.row
    is_whole = row.store is None and attribute.bits == FULL_WIDTH and not attribute.is_text
    return is_whole and bool(data_type == ARROW[attribute.kind].canonical)


def convert_scalars(attribute: Attribute, array: pa.Array, zone: Zone) -> Fitted:
    if is_canonical(attribute, array):
        return Fitted(array, NONE_BAD)
    target = canonical_type(attribute)
    if types.is_null(array.type):
        return Fitted(pa.nulls(len(array), target), NONE_BAD)
    if attribute.coerce:
        array = _coerced(attribute, array)
    part = _CONVERT[attribute.kind](attribute, array, target, zone)
    if part is None and attribute.coerce and (is_text(array.type) or types.is_floating(array.type)):
        return convert_one_by_one(attribute, array.to_pylist() if _is_valid(array) else read_text(array), zone)
    return Fitted(pa.nulls(len(array), target), valid_rows(array)) if part is None else part


def fitter(attribute: Attribute) -> Callable[..., Any]:
    if attribute.value is not None:
        return attribute.fit_map
    return attribute.fit_array if attribute.is_array else attribute.fit


def convert_one_by_one(attribute: Attribute, values: list[object], zone: Zone) -> Fitted:
    fit = fitter(attribute)
    out: list[object] = []
    bad = []
    for row, value in enumerate(values):
        try:
            out.append(_stored(attribute, fit(value, zone)))
        except UnfitValueError:
            out.append(None)
            bad.append(row)
    return Fitted(pa.array(out, canonical_type(attribute)), np.array(bad, np.int64))


def _stored(attribute: Attribute, fitted: Any) -> Any:
    if attribute.value is not None and fitted is not None:
        return [{"key": attribute.stored(key), "value": attribute.value.stored(value)} for key, value in fitted]
    if attribute.row.store is None or not attribute.is_array or fitted is None:
        return attribute.stored(fitted)
    return [attribute.stored(element) for element in fitted]


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


def _convert_booleans(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> Fitted | None:  # noqa: ARG001
    return Fitted(array, NONE_BAD) if array.type == target else None


def _convert_strings(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> Fitted | None:
    if not is_text(array.type):
        return None
    if not _is_valid(array):
        return convert_one_by_one(attribute, read_text(array), zone)
    return Fitted(array if array.type == target else array.cast(target), NONE_BAD)


def _convert_floats(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> Fitted | None:  # noqa: ARG001
    if types.is_decimal(array.type):
        # By way of text, which Arrow reads to the nearest double; its own cast may miss it.
        array = array.cast(pa.string()).cast(target)
    if not (types.is_integer(array.type) or types.is_floating(array.type)):
        return None
    doubles = array.cast(target, safe=False)  # unsafe: an integer goes to the nearest double
    is_narrow = types.is_floating(array.type) and array.type.bit_width <= attribute.bits
    return Fitted(doubles, NONE_BAD) if is_narrow or attribute.bits == FULL_WIDTH else _rounded(doubles)


def _convert_decimals(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> Fitted | None:  # noqa: ARG001
    declared = declared_type(attribute)
    if is_text(array.type):
        return convert_one_by_one(attribute, array.to_pylist() if _is_valid(array) else read_text(array), zone)
    if not (types.is_decimal(array.type) or types.is_integer(array.type) or types.is_floating(array.type)):
        return None
    try:
        if types.is_floating(array.type):  # the number that it is written as
            array = array.cast(pa.float64()).cast(pa.string())
        elif types.is_integer(array.type):
            array = array.cast(pa.decimal128(20, 0))
        return Fitted(_stored_decimals(array.cast(declared), is_text=attribute.is_text), NONE_BAD)
    except pa.ArrowInvalid:  # some value does not fit, or not without rounding
        return convert_one_by_one(attribute, array.to_pylist(), zone)


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


def _convert_bytes(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> Fitted | None:  # noqa: ARG001
    if not is_bytes(array.type):
        return None
    array = array.cast(pa.binary())
    n, (_, offsets, data) = len(array), array.buffers()
    if not n or data is None:
        return Fitted(pc.if_else(array.is_valid(), "", None).cast(target), NONE_BAD)
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + n + 1].astype(np.int64)
    raw = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    digits = np.empty(2 * raw.size, np.uint8)
    digits[0::2], digits[1::2] = _HEX[raw >> 4], _HEX[raw & 15]
    places = pa.array(2 * (ends - ends[0])).cast(pa.int32())  # raises ArrowInvalid beyond 2 GiB
    texts = pa.StringArray.from_buffers(n, places.buffers()[1], pa.py_buffer(digits))
    return Fitted(pc.if_else(array.is_valid(), texts, None) if array.null_count else texts, NONE_BAD)


def _convert_dates(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> Fitted | None:
    if is_text(array.type):
        return _convert_text(attribute, array, target, zone)
    if not types.is_date64(array.type):
        return None
    days = _floor_divide(array, 86_400_000)
    return _view(_cast_except(days, _outside(days, 2**31 - 1), pa.int32()), target)


def _convert_instants(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> Fitted | None:
    if is_text(array.type):
        return _convert_text(attribute, array, target, zone)
    times = _as_timestamps(array)
    if times is None:
        return None
    part = _convert_timestamps(times, target)
    return part if times.type.tz is not None else _in_zone(part, zone)


def _convert_walls(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> Fitted | None:
    if is_text(array.type):
        return _convert_text(attribute, array, target, zone)
    times = _as_timestamps(array)
    return None if times is None or times.type.tz is not None else _convert_timestamps(times, target)


def _convert_integers(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> Fitted | None:
    if not (types.is_integer(array.type) or types.is_decimal(array.type)):
        return None
    if types.is_decimal(array.type):
        try:
            array = array.cast(target)
        except pa.ArrowInvalid:  # a fraction, or outside 64 bits
            return convert_one_by_one(attribute, array.to_pylist(), zone)
    if signed_width(array.type) <= attribute.bits:
        return Fitted(array.cast(target), NONE_BAD)
    low, high = integer_range(attribute.bits)
    unfit = pc.greater(array, pa.scalar(high, array.type))
    if types.is_signed_integer(array.type):
        unfit = pc.or_(unfit, pc.less(array, pa.scalar(low, array.type)))
    return _cast_except(array, unfit, target)


_CONVERT: dict[Kind, Callable[[Attribute, pa.Array, pa.DataType, Zone], Fitted | None]] = {
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


def _rounded(doubles: pa.Array) -> Fitted:
    """The nearest floats of 32 bits; what is beyond their range does not fit."""
    floats = doubles.cast(pa.float32())
    return _cast_except(floats, pc.and_(pc.is_inf(floats), pc.is_finite(doubles)), doubles.type)


def valid_rows(array: pa.Array) -> npt.NDArray[np.int64]:
    """The rows of an array that are not NULL."""
    return np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))


def _cast_except(array: pa.Array, unfit: pa.Array | None, target: pa.DataType) -> Fitted:
    """Cast an array, NULL where `unfit` is true."""
    bad = NONE_BAD
    if unfit is not None and pc.any(unfit).as_py():
        bad = np.flatnonzero(pc.fill_null(unfit, False).to_numpy(zero_copy_only=False))
        array = pc.if_else(unfit, pa.scalar(None, array.type), array)
    return Fitted(array.cast(target), bad)


def _as_timestamps(array: pa.Array) -> pa.Array | None:
    """Timestamps, or dates as their midnights, of any unit; None for an array of another type."""
    if types.is_date32(array.type):
        return array.cast(pa.timestamp("s"))
    if types.is_date64(array.type):
        return array.view(pa.timestamp("ms"))
    return array if types.is_timestamp(array.type) else None


def _in_zone(part: Fitted, zone: Zone) -> Fitted:
    """Wall clocks that were given the type of instants, as the instants that they mean; others stay wall clocks."""
    if part.values.type.tz is None or zone is UTC:
        return part
    ticks = part.values.view(pa.int64())
    walls = np.asarray(pc.fill_null(ticks, 0).to_numpy(zero_copy_only=False))
    mask = ticks.is_null().to_numpy(zero_copy_only=False) if ticks.null_count else None
    return Fitted(pa.array(instants(zone, walls), pa.int64(), mask=mask).view(part.values.type), part.bad)


def _convert_timestamps(array: pa.Array, target: pa.DataType) -> Fitted:
    if array.type.unit == "us":
        return Fitted(array.view(target), NONE_BAD)  # the zone of an Arrow type changes no value
    if array.type.unit == "ns":
        return Fitted(_floor_divide(array, 1000).view(target), NONE_BAD)
    factor = 1_000_000 if array.type.unit == "s" else 1000
    ticks = array.view(pa.int64())
    part = _cast_except(ticks, _outside(ticks, INTEGER_MAX // factor), pa.int64())
    return _view(Fitted(pc.multiply(part.values, factor), part.bad), target)


def _floor_divide(array: pa.Array, divisor: int) -> pa.Array:
    """64-bit ticks to a coarser unit, towards minus infinity (Arrow's own cast goes towards zero)."""
    ticks = array.view(pa.int64())
    units = pc.divide(ticks, divisor)
    below = pc.less(ticks, pc.multiply(units, divisor))
    return pc.subtract(units, below.cast(pa.int64()))


def _outside(array: pa.Array, limit: int) -> pa.Array:
    return pc.or_(pc.greater(array, limit), pc.less(array, -limit))


def _view(part: Fitted, target: pa.DataType) -> Fitted:
    return Fitted(part.values.view(target), part.bad)


def _is_valid(texts: pa.Array) -> bool:
    """Whether texts are UTF-8, within their buffers."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _convert_text(attribute: Attribute, array: pa.Array, target: pa.DataType, zone: Zone) -> Fitted:
    """Dates or timestamps, from texts."""
    if not _is_valid(array):
        return convert_one_by_one(attribute, read_text(array), zone)
    parsed = _parse_text(attribute.type, array.cast(pa.string()), target, zone)
    if parsed is not None:
        return Fitted(parsed, NONE_BAD)
    return convert_one_by_one(attribute, array.to_pylist(), zone)


def _parse_text(kind: Type, array: pa.Array, target: pa.DataType, zone: Zone) -> pa.Array | None:
    """All texts at once, if all are valid and either all or none of them name a zone."""
    # Arrow reads more forms than the filter language does: look first.
    pattern = f"^{DATE_PATTERN if kind is Type.DATE else TIMESTAMP_PATTERN}$"
    if pc.all(pc.match_substring_regex(array, pattern)).as_py() is False:
        return None
    for data_type in (NO_ZONE, target) if kind is Type.TIMESTAMP else (target,):
        try:
            parsed = array.cast(data_type)
        except pa.ArrowInvalid:
            continue
        part = Fitted(parsed.view(target), NONE_BAD)
        part = _in_zone(part, zone) if data_type == NO_ZONE else part
        return part.values if _in_years(part.values) else None
    return None


def _in_years(array: pa.Array) -> bool:
    """Whether all dates or timestamps are in the years 1 to 9999."""
    low, high = _DAYS if types.is_date(array.type) else _MICROSECONDS
    ends = pc.min_max(array.view(pa.int32() if types.is_date(array.type) else pa.int64())).as_py()
    return ends["min"] is None or (low <= ends["min"] and ends["max"] <= high)


def read_text(array: pa.Array) -> list[object]:
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
