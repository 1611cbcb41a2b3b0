"""Which Python values fit the kind of an attribute.

One function per kind turns a Python value into the canonical one or raises `UnfitValueError`, whose message names what was
expected and what came. Rows of `kinds` name the function. Domains in a schema and single values in events obey the same
rules because both come here, by way of `Attribute.fit`.

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
from collections.abc import Mapping
from decimal import Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, NamedTuple

from wherecast.language.events.types import integer_range

if TYPE_CHECKING:
    from wherecast.language.events.zone import Zone

#: A canonical value: timestamps are aware datetimes in UTC, those of kind TIMESTAMP_NTZ naive ones.
Scalar = bool | int | float | str | Decimal | dt.date | dt.datetime

#: What an event has in an attribute, as an index knows it (see `Attribute.stored`); of an array, its elements; of a map, its values by key.
Stored = Scalar | list[Scalar | None] | dict[Scalar, Scalar | None]

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


def unwrap_numpy(value: object) -> object:
    """The Python value in a NumPy scalar; other NumPy objects come back as they are."""
    if type(value).__name__ == "datetime64" and "[D]" not in str(value.dtype):  # type: ignore[attr-defined]
        value = value.astype("datetime64[us]")  # type: ignore[attr-defined]  # floors, as all conversions here do
    return value.item() if getattr(value, "ndim", 1) == 0 else value  # type: ignore[attr-defined]


def refuse_misplaced(value: object) -> None:
    if isinstance(value, Misplaced):
        raise UnfitValueError(f"expected a struct with field {value.field!r}, got {describe(value.value)}")


def expected(what: str, value: object, hint: str = "") -> UnfitValueError:
    return UnfitValueError(f"expected {what}, got {describe(value)}{hint}")


def boolean(value: object, name: str) -> bool:
    if isinstance(value, bool):
        return value
    raise expected(name, value)


def integer(value: object, name: str, bits: int) -> int:
    number = _whole(value) if isinstance(value, Decimal) else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise expected(name, value)
    low, high = integer_range(bits)
    if not low <= number <= high:
        raise expected(name, value, f", which is outside {bits} bits")
    return int(number)


def _whole(value: Decimal) -> int | None:
    """The integer that a decimal is; None if it has a fraction. Spark's cast would cut the fraction off."""
    if not value.is_finite() or value != value.to_integral_value():
        return None
    # A short text can stand for millions of digits; whatever has more than twenty is outside every width.
    return (int(value) if value.adjusted() < 20 else 10**20) if value else 0


def double(value: object, name: str, bits: int) -> float:
    """A float of 64 bits, or the nearest one of 32 bits."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise expected(name, value)
    try:
        number = float(value)
    except (OverflowError, ValueError):  # a long integer; a signalling NaN
        number = math.inf
    if not isinstance(value, float) and not math.isfinite(number):
        raise expected(name, value, ", which is outside the range of a double")
    return number if bits == 64 else _single(number, name, value)


def _single(number: float, name: str, value: object) -> float:
    try:
        rounded: float = _SINGLE.unpack(_SINGLE.pack(number))[0]
    except OverflowError:
        raise expected(name, value, ", which is outside 32 bits") from None
    return rounded


_SINGLE = struct.Struct("<f")


def decimal(value: object, name: str, digits: tuple[int, int]) -> Decimal:
    """A decimal of so many digits. Nothing is rounded: what has more fraction digits than the type does not fit.

    A float stands for the number that it is written as, 0.1, as in Spark's cast. A text may say what a float cannot.
    """
    number = _as_decimal(value)
    if number is None:
        raise expected(name, value)
    precision, scale = digits
    try:
        fitted = number.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    except InvalidOperation:  # more digits than any type has
        raise expected(name, value, ", which has too many digits") from None
    if fitted != number or fitted.adjusted() >= precision - scale:
        what = "fraction digits" if fitted != number else "digits"
        raise expected(name, value, f", which has too many {what}")
    return fitted


def _as_decimal(value: object) -> Decimal | None:
    if isinstance(value, str) and _DECIMAL_TEXT.fullmatch(value):
        value = Decimal(value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = Decimal(value)
    if isinstance(value, float):
        value = Decimal(repr(float(value)))
    return value if isinstance(value, Decimal) and value.is_finite() else None


#: Long enough for every type; what needs more is refused, not computed.
_EXACT = Context(prec=100, traps=[InvalidOperation])
_DECIMAL_TEXT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")


def string(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise expected(name, value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise expected(name, value, ", which has a lone surrogate and so is not valid Unicode") from None
    return str(value)


def binary(value: object, name: str) -> bytes:
    if isinstance(value, str):
        raise expected(name, value, "; give bytes")
    if not isinstance(value, bytes | bytearray | memoryview):
        raise expected(name, value)
    return bytes(value)


def date(value: object, name: str) -> dt.date:
    if isinstance(value, str):
        try:
            if _DATE_TEXT.fullmatch(value):
                return dt.date.fromisoformat(value)
        except ValueError:
            pass
        raise expected(name, value, "; write dates as 2024-01-31")
    if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
        raise expected(name, value)
    return value


def timestamp(value: object, name: str, zone: Zone) -> dt.datetime:
    moment = _moment(value, name, "2024-01-31T10:00:00Z")
    try:
        if moment.tzinfo is None:
            # Without `fold`: of two occurrences the first is meant, as in Spark and as in a column, which has no folds.
            moment = _to_microseconds(moment, _WALL_EPOCH).replace(tzinfo=zone.tzinfo)
        return _to_microseconds(moment, _EPOCH)
    except (ValueError, OverflowError):
        raise expected(name, value, "; timestamps lie in the years 1 to 9999") from None


def timestamp_ntz(value: object, name: str) -> dt.datetime:
    moment = _moment(value, name, "2024-01-31T10:00:00")
    if moment.tzinfo is not None:
        raise expected(name, value, ", which has a time zone; leave the zone out, or use type timestamp")
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
        raise expected(what, value, f"; write timestamps as {example}")
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001 - the caller gives it a zone
    if not isinstance(value, dt.datetime):
        raise expected(what, value)
    return value


def is_finite(value: Scalar) -> bool:
    """False for NaN and the infinities, True for everything else."""
    return not isinstance(value, float) or math.isfinite(value)


def iso_text(value: Scalar) -> Scalar:
    """A date or timestamp as ISO text, a decimal as text; any other value as it is."""
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value.isoformat() if isinstance(value, dt.date) else value


# -- keys (see `keys`, which has them for arrays) -----------------------------------------------------------------------

_DOUBLE, _LONG = struct.Struct("<d"), struct.Struct("<q")


def float_key(value: float) -> int:
    """Order-preserving key of one double that is not NaN."""
    bits: int = _LONG.unpack(_DOUBLE.pack(value + 0.0))[0]
    return bits ^ INTEGER_MAX if bits < 0 else bits


def key_of(value: Scalar) -> int:
    """Sortable key of one canonical value that is ordered by a key."""
    if type(value) is int:
        return value
    if isinstance(value, float):
        return INTEGER_MAX if math.isnan(value) else float_key(value)
    if isinstance(value, dt.datetime):
        return (value - (_EPOCH if value.tzinfo else _WALL_EPOCH)) // _MICROSECOND
    if isinstance(value, dt.date):
        return value.toordinal() - _WALL_EPOCH.toordinal()
    return int(value)


def key_float(key: int) -> float:
    """The double of one key made by `float_key`; a key of no double is NaN."""
    value: float = _DOUBLE.unpack(_LONG.pack(key ^ INTEGER_MAX if key < 0 else key))[0]
    return value
