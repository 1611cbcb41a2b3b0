"""Casts: arrays of values from one type to another, as Spark's CAST in ANSI mode.

Where Spark would end the query (a text that is no number, a number that does not fit), the value is NULL, as with
`try_cast`. Values are in the form of `Nullable`: decimals are unscaled integers, days and microseconds are counted from 1970.

Three things differ from Spark, because they cannot be the same for every event and machine: a text with a time of day
but no date is not a timestamp (Spark takes today's date); a number in a text has ASCII digits; and a double becomes the
shortest text that reads back as itself, which Java does from version 19 on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.errors import SchemaError
from wherecast.kernels.arrays import Bools
from wherecast.language.events.keys import DAY_US, KEY_MAX, KEY_MIN, instants, walls
from wherecast.language.events.types import (
    FLOATS,
    INTEGERS,
    MOMENTS,
    NUMBERS,
    WIDTH_OF,
    Digits,
    Type,
    fit,
    integer_range,
)
from wherecast.language.events.zone import Zone, find_zone
from wherecast.language.nullable import MANY_ROWS, Nullable, filler

_SECOND_US = 1_000_000
_DATES = (Type.STRING, *MOMENTS)
#: What can be cast to what; anything can be cast to its own type, and a bare NULL to all.
_TARGETS: dict[Type, tuple[Type, ...]] = {
    Type.BOOLEAN: (Type.BOOLEAN, *NUMBERS, Type.STRING),
    **dict.fromkeys(NUMBERS, (Type.BOOLEAN, *NUMBERS, Type.STRING, Type.TIMESTAMP)),
    Type.STRING: (Type.BOOLEAN, *NUMBERS, *_DATES, Type.BINARY),
    Type.BINARY: (Type.BINARY,),
    Type.DATE: _DATES,
    Type.TIMESTAMP_NTZ: _DATES,
    Type.TIMESTAMP: (*NUMBERS, *_DATES),
}
_TYPE_NAMES = {
    **{kind.value: kind for kind in (Type.BOOLEAN, *INTEGERS, *FLOATS, *_DATES, Type.BINARY)},
    "byte": Type.TINYINT,
    "short": Type.SMALLINT,
    "integer": Type.INT,
    "long": Type.BIGINT,
    "real": Type.FLOAT,
    "timestamp_ltz": Type.TIMESTAMP,
}
_DECIMAL_NAME = re.compile(r"(?:decimal|dec|numeric)(?:\(([0-9]{1,2})(?:,([0-9]{1,2}))?\))?")

Values = npt.NDArray[Any]


def find_type(name: str) -> tuple[Type, Digits] | None:
    """The type of a name in lower case, such as `bigint` or `decimal(10,2)`, with the digits of a decimal."""
    if name in _TYPE_NAMES:
        return _TYPE_NAMES[name], (0, 0)
    match = _DECIMAL_NAME.fullmatch(name)
    if match is None:
        return None
    precision, scale = int(match[1] or 10), int(match[2] or 0)
    return (Type.DECIMAL, (precision, scale)) if 1 <= precision <= 38 and scale <= precision else None


def is_castable(source: Type, target: Type) -> bool:
    return source is Type.NULL or target in _TARGETS.get(source, ())


#: Values up to which Arrow is not worth its call.
_FEW = 8


def cast(operand: Nullable, source: Type, scale: int, target: Type, digits: Digits, zone: Zone) -> Nullable:
    """Values as `target`; `scale` is that of decimal values, `digits` are those of a decimal target."""
    if source is target and source is not Type.DECIMAL:
        return operand
    if target in (*INTEGERS, Type.DOUBLE) and operand.is_arrow:
        from wherecast.language.arrow_texts import read_numbers  # noqa: PLC0415 - Arrow is loaded where there are events

        return read_numbers(operand.texts, target, _text_reader(target, digits, zone))
    if target is Type.STRING and source in (*INTEGERS, Type.BOOLEAN) and operand.valid.size > _FEW:
        from wherecast.language.arrow_texts import write_booleans, write_integers  # noqa: PLC0415 - as above

        return write_booleans(operand) if source is Type.BOOLEAN else write_integers(operand)
    return Nullable(*_cast(operand.values, operand.valid, source, scale, target, digits, zone))


def _cast(
    values: Values, valid: Bools, source: Type, scale: int, target: Type, digits: Digits, zone: Zone
) -> tuple[Values, Bools]:
    if source is Type.NULL:
        return filler(target, values.size), np.zeros(values.size, bool)
    if source is Type.STRING:
        return _each(values, valid, target, _text_reader(target, digits, zone))
    if target is Type.STRING:
        return _each(values, valid, target, _text_writer(source, scale, zone))
    if target is Type.DECIMAL:
        return _each(values, valid, target, _decimal_maker(source, scale, digits))
    if target is Type.BOOLEAN:
        return np.asarray(values != 0, bool), valid
    if target in FLOATS:
        return _to_floats(values, source, scale, target), valid
    if target in INTEGERS:
        return _to_integers(values, valid, source, scale, target)
    return _to_moments(values, valid, source, scale, target, zone)


def _each(values: Values, valid: Bools, target: Type, convert: Callable[[Any], Any]) -> tuple[Values, Bools]:
    """One value after the other; None is NULL."""
    out, known = filler(target, values.size), valid.copy()
    for i in np.flatnonzero(valid).tolist():
        value = convert(values[i])
        if value is None:
            known[i] = False
        else:
            out[i] = value
    return out, known


# -- numbers -----------------------------------------------------------------------------------------------------------


def _to_floats(values: Values, source: Type, scale: int, target: Type) -> Values:
    if source is Type.DECIMAL:
        unit = 10**scale
        values = np.array([int(v) / unit for v in values], np.float64)
    elif source is Type.TIMESTAMP:
        values = values / np.float64(_SECOND_US)
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float64) if target is Type.FLOAT else values.astype(np.float64)


def _to_integers(values: Values, valid: Bools, source: Type, scale: int, target: Type) -> tuple[Values, Bools]:
    low, high = integer_range(WIDTH_OF[target])
    if source in FLOATS and values.size > MANY_ROWS:
        return _truncated(values, valid, low, high)
    if source in FLOATS:
        whole = np.trunc(np.where(np.isnan(values), 0.0, values))
        fits = (
            ~np.isnan(values) & (whole >= float(low)) & (whole <= float(high))
        )  # 2 ** 63 is as good as the last bigint
        inside = np.where(fits & (whole < 2.0**63), whole, 0.0).astype(np.int64)
        return np.where(fits & (whole >= 2.0**63), KEY_MAX, inside), valid & fits
    if source is Type.DECIMAL:
        unit = 10**scale
        exact = np.fromiter(((abs(v) // unit) * (1 if v >= 0 else -1) for v in map(int, values)), object, values.size)
    else:
        exact = values // _SECOND_US if source is Type.TIMESTAMP else values.astype(np.int64)
    fits = np.asarray((exact >= low) & (exact <= high), bool)
    return np.where(fits, exact, 0).astype(np.int64), valid & fits


def _truncated(values: Values, valid: Bools, low: int, high: int) -> tuple[Values, Bools]:
    """The whole parts of many doubles."""
    from wherecast.kernels.arithmetic import truncate_doubles  # noqa: PLC0415 - what only checks filters does not load Numba
    from wherecast.kernels.jit import frozen  # noqa: PLC0415 - as above

    above, below = truncation_limits(low, high)
    out, fits = np.empty(values.size, np.int64), np.empty(values.size, bool)
    others = truncate_doubles(frozen(np.ascontiguousarray(values)), above, below, out, fits)
    return out, valid & fits if others else valid


def truncation_limits(low: int, high: int) -> tuple[float, float]:
    """The nearest doubles whose whole parts are too low or too high for integers from `low` to `high`."""
    return min(low - 1.0, math.nextafter(low, -math.inf)), max(high + 1.0, math.nextafter(high, math.inf))


def _decimal_maker(source: Type, scale: int, digits: Digits) -> Callable[[Any], int | None]:
    def from_double(value: float) -> int | None:
        if not np.isfinite(value):
            return None
        return _fit_decimal(Decimal(repr(float(value))), digits)

    if source in FLOATS:
        return from_double
    if source is Type.TIMESTAMP:
        return lambda value: from_double(int(value) / _SECOND_US)
    return lambda value: fit(int(value), scale, digits)


_MOST_FRACTION = 100


def _fit_decimal(value: Decimal, digits: Digits) -> int | None:
    sign, mantissa, exponent = value.as_tuple()
    assert isinstance(exponent, int), "it is finite"
    if len(mantissa) + exponent > 39:
        return None
    if exponent < -_MOST_FRACTION:  # digits that far behind the point do not show in a rounded decimal
        mantissa, exponent = mantissa[: exponent + _MOST_FRACTION] or (0,), -_MOST_FRACTION
    unscaled = int("".join(map(str, mantissa))) * (-1 if sign else 1)
    return fit(unscaled * 10 ** max(exponent, 0), max(-exponent, 0), digits)


# -- texts to values ---------------------------------------------------------------------------------------------------

_BLANKS = "".join(map(chr, range(0x21)))
_BLANKS_AND_CONTROLS = _BLANKS + "\x7f"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_HEX_DOUBLE = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_NAMED_DOUBLES = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), float("inf")),
    **dict.fromkeys(("-inf", "-infinity"), float("-inf")),
    "nan": float("nan"),
}
_TRUTHS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}


def _text_reader(target: Type, digits: Digits, zone: Zone) -> Callable[[str], Any]:
    if target is Type.BOOLEAN:
        return lambda text: _TRUTHS.get(text.strip(_BLANKS_AND_CONTROLS).lower())
    if target in INTEGERS:
        return lambda text: read_integer(text, target)
    if target in FLOATS:
        return lambda text: read_double(text, target)
    if target is Type.DECIMAL:
        return lambda text: _read_decimal(text, digits)
    if target is Type.DATE:
        return read_date
    if target is Type.BINARY:
        return lambda text: text.encode().hex().upper()
    return lambda text: _read_timestamp(text, target, zone)


def read_integer(text: str, target: Type) -> int | None:
    text = text.strip(_BLANKS_AND_CONTROLS)
    if not _INTEGER.fullmatch(text) or len(text) > 4_000:
        return None
    low, high = integer_range(WIDTH_OF[target])
    value = int(text)
    return value if low <= value <= high else None


def read_double(text: str, target: Type = Type.DOUBLE) -> float | None:
    text = text.strip(_BLANKS)
    if _DOUBLE.fullmatch(text):
        value = float(text.rstrip("fFdD") if text[-1] in "fFdD" and not text.endswith("inf") else text)
    elif _HEX_DOUBLE.fullmatch(text):
        value = _read_hex(text)
    else:
        found = _NAMED_DOUBLES.get(text.lower())
        if found is None:
            return None
        value = found
    with np.errstate(over="ignore"):
        return float(np.float32(value)) if target is Type.FLOAT else value


def _read_hex(text: str) -> float:
    try:
        return float.fromhex(text.rstrip("fFdD") if text[-1] in "fFdD" else text)
    except OverflowError:
        return float("-inf") if text.startswith("-") else float("inf")


def read_boolean(text: str) -> bool | None:
    return _TRUTHS.get(text.strip(_BLANKS_AND_CONTROLS).lower())


def _read_decimal(text: str, digits: Digits) -> int | None:
    text = text.strip(_BLANKS)
    return _fit_decimal(Decimal(text), digits) if _NUMBER.fullmatch(text) else None


_DAY = r"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
_DATE = re.compile(rf"{_DAY}(?:[ T].*)?)?)?", re.DOTALL)
_TIMESTAMP = re.compile(
    rf"{_DAY}(?:[ T]([0-9]{{1,2}})(?::([0-9]{{1,2}})(?::([0-9]{{1,2}})(?:\.([0-9]*))?)?)?\s*([A-Za-z+-][A-Za-z0-9_/+:~-]*)?)?)?)?"
)


def read_date(text: str) -> int | None:
    """The day that a text names, as Spark casts it."""
    match = _DATE.fullmatch(text.strip(_BLANKS_AND_CONTROLS))
    if match is None:
        return None
    day = day_number(*(int(g) if g else 1 for g in match.groups()))
    return day if day is not None and -(2**31) <= day < 2**31 else None


def day_number(year: int, month: int, day: int) -> int | None:
    """Days since 1970 in the Gregorian calendar, also before its time; None if there is no such day."""
    sizes = (
        31,
        29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28,
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    )
    if not 1 <= month <= 12 or not 1 <= day <= sizes[month - 1]:
        return None
    before = year - 1
    return before * 365 + before // 4 - before // 100 + before // 400 + sum(sizes[: month - 1]) + day - 1 - 719_162


def _read_timestamp(text: str, target: Type, zone: Zone) -> int | None:
    match = _TIMESTAMP.fullmatch(text.strip(_BLANKS_AND_CONTROLS))
    if match is None or len(match[1].lstrip("+-")) > 6:
        return None
    day = day_number(*(int(g) if g else 1 for g in match.groups()[:3]))
    hour, minute, second = (int(g or 0) for g in match.groups()[3:6])
    if day is None or hour > 23 or minute > 59 or second > 59:
        return None
    micros = int(((match[7] or "") + "000000")[:6])
    wall = day * DAY_US + (hour * 3600 + minute * 60 + second) * _SECOND_US + micros
    named = _named_zone(match[8]) if match[8] else zone
    if named is None or not KEY_MIN + DAY_US < wall < KEY_MAX - DAY_US:
        return None
    return wall if target is Type.TIMESTAMP_NTZ else int(instants(named, np.array([wall], np.int64))[0])


#: Names of zones that Java knows from before the time zone database.
_OLD_ZONES = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "-05:00",
    "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}


@lru_cache(maxsize=1024)
def _named_zone(name: str) -> Zone | None:
    try:
        return find_zone(_OLD_ZONES.get(name, name))
    except SchemaError:
        return None


# -- values to texts ---------------------------------------------------------------------------------------------------


def _text_writer(source: Type, scale: int, zone: Zone) -> Callable[[Any], str]:
    if source is Type.BOOLEAN:
        return lambda value: "true" if value else "false"
    if source in INTEGERS:
        return lambda value: str(int(value))
    if source in FLOATS:
        return lambda value: write_double(np.float32(value) if source is Type.FLOAT else float(value))
    if source is Type.DECIMAL:
        return lambda value: _write_decimal(int(value), scale)
    if source is Type.DATE:
        return lambda value: _write_moment(np.datetime64(int(value), "D"))
    if source is Type.TIMESTAMP:
        return lambda value: _write_wall(int(walls(zone, np.array([value], np.int64))[0]))
    return lambda value: _write_wall(int(value))


def write_double(value: Any) -> str:
    """A double as Java writes it: 0.5, 1.0E10, NaN."""
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    sign = "-" if np.signbit(value) else ""
    if value == 0:
        return f"{sign}0.0"
    mantissa, _, power = np.format_float_scientific(abs(value), trim="-").partition("e")
    exponent, digits = int(power), mantissa.replace(".", "")
    if -3 <= exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    if 0 <= exponent < 7:
        whole, fraction = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
        return f"{sign}{whole}.{fraction or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _write_decimal(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    point = len(digits) - scale
    text = f"{digits[:point]}.{digits[point:]}" if scale else digits
    return f"-{text}" if unscaled < 0 else text


def _write_moment(moment: np.datetime64) -> str:
    text = str(moment)
    return f"+{text}" if text[0] not in "-+" and text.index("-") > 4 else text


def _write_wall(wall: int) -> str:
    whole, micros = divmod(wall, _SECOND_US)
    text = _write_moment(np.datetime64(whole, "s")).replace("T", " ")
    return f"{text}.{micros:06d}".rstrip("0") if micros else text


# -- moments -----------------------------------------------------------------------------------------------------------


def _to_moments(
    values: Values, valid: Bools, source: Type, scale: int, target: Type, zone: Zone
) -> tuple[Values, Bools]:
    if source in NUMBERS:
        return _seconds_to_instants(values, valid, source, scale)
    clocks = values * DAY_US if source is Type.DATE else walls(zone, values) if source is Type.TIMESTAMP else values
    if target is Type.DATE:
        return clocks // DAY_US, valid
    return (instants(zone, clocks) if target is Type.TIMESTAMP else clocks), valid


def _seconds_to_instants(values: Values, valid: Bools, source: Type, scale: int) -> tuple[Values, Bools]:
    if source in FLOATS:
        return _to_integers(values * np.float64(_SECOND_US), valid, Type.DOUBLE, 0, Type.BIGINT)
    exact = [int(v) * _SECOND_US for v in values]
    if source is Type.DECIMAL:
        exact = [abs(v) // 10**scale * (1 if v >= 0 else -1) for v in exact]
    return np.array([min(max(v, KEY_MIN), KEY_MAX) for v in exact], np.int64), valid
