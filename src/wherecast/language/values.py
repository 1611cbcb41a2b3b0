"""Which Python values fit the kind of an attribute.

One function per kind turns a Python value into the canonical one or raises `UnfitValueError`, whose message names what was
expected and what came. Domains in a schema and single values in events obey the same rules because both come here.

The rules are strict where a silent conversion would change what a filter means: 3.0 is not taken for an integer, TRUE
not for a number, a timestamp not for a date. They are lenient where nothing can be lost or mistaken: an integer is a float, a whole decimal
is an integer, a date is a timestamp at midnight, an ISO text is a date or a timestamp, a time without a zone is one of the
schema's zone.

Numbers also have a width. An integer outside its width is a misfit; it is never wrapped. A float of 32 bits is the nearest
one to the value, as Spark's cast to FLOAT has it, and stays a Python float; a number beyond its range is a misfit.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import reprlib
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import NamedTuple

from wherecast.language.types import FULL_WIDTH, Kind, integer_range, type_name
from wherecast.language.zone import UTC, Zone

#: A canonical value: timestamps are aware datetimes in UTC, those of kind TIMESTAMP_NTZ naive ones.
Scalar = bool | int | float | str | dt.date | dt.datetime

INTEGER_MAX = 2**63 - 1

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_WALL_EPOCH = _EPOCH.replace(tzinfo=None)
_MICROSECOND = dt.timedelta(microseconds=1)
#: The texts accepted for dates and timestamps; these two mean the same to Python's `re` and to Arrow's RE2.
DATE_PATTERN = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
TIMESTAMP_PATTERN = DATE_PATTERN + r"(?:[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?"
_DATE_TEXT = re.compile(DATE_PATTERN)
_TIMESTAMP_TEXT = re.compile(TIMESTAMP_PATTERN)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


class UnfitValueError(ValueError):
    """A value that does not fit its kind. Callers add the place and raise an error of their own."""


class Misplaced(NamedTuple):
    """Stands for the value of `a.b` where `a` is not a struct."""

    field: str
    value: object


def coerce(kind: Kind, value: object, bits: int = FULL_WIDTH, zone: Zone = UTC) -> Scalar | None:
    """The canonical value for `value`, or None for NULL; `UnfitValueError` if it does not fit.

    `zone` is that of a timestamp without one.
    """
    if type(value) not in _PLAIN:
        if type(value).__module__ == "numpy":
            value = _unwrap_numpy(value)
        if is_missing(value):
            return None
        _refuse_misplaced(value)
    if kind is Kind.TIMESTAMP:
        return _timestamp(value, zone)
    if bits == FULL_WIDTH:
        return _COERCE[kind](value)
    return _integer(value, bits) if kind is Kind.INTEGER else _single(value)


def coerce_array(kind: Kind, value: object, bits: int = FULL_WIDTH, zone: Zone = UTC) -> list[Scalar | None] | None:
    """The canonical elements of an array value, or None for NULL."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 0) == 1:
        value = list(value)  # type: ignore[call-overload]
    if is_missing(value):
        return None
    _refuse_misplaced(value)
    if not isinstance(value, list | tuple):
        raise UnfitValueError(f"expected array<{type_name(kind, bits)}>, got {describe(value)}")
    elements = []
    for position, element in enumerate(value):
        try:
            elements.append(coerce(kind, element, bits, zone))
        except UnfitValueError as misfit:
            raise UnfitValueError(f"element {position}: {misfit}") from None
    return elements


def is_missing(value: object) -> bool:
    """Whether a value stands for NULL: None, or pandas' NaT and NA (known by name, so pandas is not imported)."""
    return value is None or type(value).__name__ in ("NaTType", "NAType")


def describe(value: object) -> str:
    """A value as error messages show it: type and, where it is short enough to help, the value."""
    if isinstance(value, bool):
        return f"boolean {str(value).lower()}"
    if isinstance(value, int):
        # Python refuses to print integers of thousands of digits.
        return f"integer {int(value)}" if value.bit_length() <= 256 else f"integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return f"float {float(value)!r}"
    if isinstance(value, str):
        return f"string {_SHORT.repr(str(value))}"
    if isinstance(value, bytes):
        return f"bytes {_SHORT.repr(value)}"
    if isinstance(value, dt.datetime):
        return f"timestamp {value.isoformat(sep=' ')}"
    if isinstance(value, dt.date):
        return f"date {value.isoformat()}"
    if isinstance(value, list | tuple):
        return "array"
    if isinstance(value, Mapping):
        return "struct"
    if isinstance(value, Decimal):
        return f"decimal {_shown(str(value))}"
    return type(value).__name__


def _shown(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _unwrap_numpy(value: object) -> object:
    """The Python value in a NumPy scalar; other NumPy objects come back as they are."""
    if type(value).__name__ == "datetime64" and "[D]" not in str(value.dtype):  # type: ignore[attr-defined]
        value = value.astype("datetime64[us]")  # type: ignore[attr-defined]  # floors, as all conversions here do
    return value.item() if getattr(value, "ndim", 1) == 0 else value  # type: ignore[attr-defined]


def _refuse_misplaced(value: object) -> None:
    if isinstance(value, Misplaced):
        raise UnfitValueError(f"expected a struct with field {value.field!r}, got {describe(value.value)}")


def _expected(what: str, value: object, hint: str = "") -> UnfitValueError:
    return UnfitValueError(f"expected {what}, got {describe(value)}{hint}")


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _expected("boolean", value)


def _integer(value: object, bits: int = FULL_WIDTH) -> int:
    name = type_name(Kind.INTEGER, bits)
    number = _whole(value) if isinstance(value, Decimal) else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise _expected(name, value)
    low, high = integer_range(bits)
    if not low <= number <= high:
        raise _expected(name, value, f", which is outside {bits} bits")
    return int(number)


def _whole(value: Decimal) -> int | None:
    """The integer that a decimal is; None if it has a fraction. Spark's cast would cut the fraction off."""
    if not value.is_finite() or value != value.to_integral_value():
        return None
    # A short text can stand for millions of digits; whatever has more than twenty is outside every width.
    return (int(value) if value.adjusted() < 20 else 10**20) if value else 0


def _float(value: object, name: str = Kind.FLOAT) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _expected(name, value)
    try:
        number = float(value)
    except (OverflowError, ValueError):  # a long integer; a signalling NaN
        number = math.inf
    if not isinstance(value, float) and not math.isfinite(number):
        raise _expected(name, value, ", which is outside the range of a double")
    return number


def _single(value: object) -> float:
    name = type_name(Kind.FLOAT, 32)
    number = _float(value, name)
    try:
        rounded: float = _SINGLE.unpack(_SINGLE.pack(number))[0]
    except OverflowError:
        raise _expected(name, value, ", which is outside 32 bits") from None
    return rounded


_SINGLE = struct.Struct("<f")


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise _expected("string", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _expected("string", value, ", which has a lone surrogate and so is not valid Unicode") from None
    return str(value)


def _date(value: object) -> dt.date:
    if isinstance(value, str):
        try:
            if _DATE_TEXT.fullmatch(value):
                return dt.date.fromisoformat(value)
        except ValueError:
            pass
        raise _expected("date", value, "; write dates as 2024-01-31")
    if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
        raise _expected("date", value)
    return value


def _timestamp(value: object, zone: Zone) -> dt.datetime:
    moment = _moment(value, "timestamp", "2024-01-31T10:00:00Z")
    try:
        if moment.tzinfo is None:
            # Without `fold`: of two occurrences the first is meant, as in Spark and as in a column, which has no folds.
            moment = _to_microseconds(moment, _WALL_EPOCH).replace(tzinfo=zone.tzinfo)
        return _to_microseconds(moment, _EPOCH)
    except (ValueError, OverflowError):
        raise _expected("timestamp", value, "; timestamps lie in the years 1 to 9999") from None


def _timestamp_ntz(value: object) -> dt.datetime:
    moment = _moment(value, "timestamp_ntz", "2024-01-31T10:00:00")
    if moment.tzinfo is not None:
        raise _expected("timestamp_ntz", value, ", which has a time zone; leave the zone out, or use type timestamp")
    return _to_microseconds(moment, _WALL_EPOCH)


def _to_microseconds(moment: dt.datetime, epoch: dt.datetime) -> dt.datetime:
    """A plain datetime: a pandas Timestamp is one that also has nanoseconds."""
    return epoch + _MICROSECOND * ((moment - epoch) // _MICROSECOND)


def _moment(value: object, what: str, example: str) -> dt.datetime:
    """The datetime that a value is, with the zone that it has or with none."""
    if isinstance(value, str):
        try:
            if _TIMESTAMP_TEXT.fullmatch(value):
                return dt.datetime.fromisoformat(value)
        except ValueError:
            pass
        raise _expected(what, value, f"; write timestamps as {example}")
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001 - the caller gives it a zone
    if not isinstance(value, dt.datetime):
        raise _expected(what, value)
    return value


_COERCE: dict[Kind, Callable[[object], Scalar]] = {
    Kind.BOOLEAN: _boolean,
    Kind.INTEGER: _integer,
    Kind.FLOAT: _float,
    Kind.STRING: _string,
    Kind.DATE: _date,
    Kind.TIMESTAMP_NTZ: _timestamp_ntz,
}


#: Types of values that are neither NULL nor wrapped, which most are.
_PLAIN = frozenset((bool, int, float, str))


def is_finite(value: Scalar) -> bool:
    """False for NaN and the infinities, True for everything else."""
    return not isinstance(value, float) or math.isfinite(value)


def iso_text(value: Scalar) -> Scalar:
    """A date or timestamp as ISO text; any other value as it is."""
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, dt.date) else value
