"""Reading literals: numbers with Spark's types, dates, timestamps, strings - as columns."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from wherecast.language.decimals import MAX_PRECISION, Digits
from wherecast.language.expression import INTEGERS, Type
from wherecast.language.keys import instants
from wherecast.language.zone import UTC, Zone

_DATE = re.compile(r"\s*([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?\s*", re.DOTALL)
_TIMESTAMP = re.compile(
    r"\s*([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{0,9}))?)?\s*"
    r"(Z|UTC|GMT|(?:UTC|GMT)?[+-][0-9]{1,2}(?::[0-9]{1,2}(?::[0-9]{1,2})?)?)?)?)?)?\s*"
)
_EPOCH = dt.date(1970, 1, 1)


def parse_date(text: str) -> int:
    """Days since 1970-01-01 of a date literal. Raises ValueError."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a date; write 'yyyy-mm-dd'")
    year, month, day = (int(g) if g else 1 for g in match.groups())
    return (_civil(text, year, month, day) - _EPOCH).days


def parse_timestamp(text: str) -> tuple[int, int | None]:
    """What a timestamp literal says: the wall clock and, if it names one, the offset, in microseconds. Raises ValueError."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a timestamp; write 'yyyy-mm-dd hh:mm:ss[.ffffff][+hh:mm]'")
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    days = (_civil(text, int(year), int(month or 1), int(day or 1)) - _EPOCH).days
    h, m, s = int(hour or 0), int(minute or 0), int(second or 0)
    if h > 23 or m > 59 or s > 59:
        raise ValueError(f"{text!r} has no such time of day; times run from 00:00:00 to 23:59:59")
    micros = int(((fraction or "") + "000000")[:6])
    return ((days * 24 + h) * 60 + m) * 60_000_000 + s * 1_000_000 + micros, _offset_us(zone) if zone else None


def _civil(text: str, year: int, month: int, day: int) -> dt.date:
    try:
        return dt.date(year, month, day)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}; write an existing day of the years 0001 to 9999") from None


def _offset_us(zone: str) -> int:
    if zone in ("Z", "UTC", "GMT"):
        return 0
    zone = zone.removeprefix("UTC").removeprefix("GMT")
    hours, minutes, seconds = (int(p) for p in (*zone[1:].split(":"), "0", "0")[:3])
    if hours > 18 or minutes > 59 or seconds > 59:
        raise ValueError(f"{zone!r} is no time zone offset; write Z or +hh:mm up to 18:00")
    offset = (hours * 3600 + minutes * 60 + seconds) * 1_000_000
    return -offset if zone[0] == "-" else offset


def unquote(literal: str) -> str:
    """The content of a string literal in the plain form of `literals`."""
    return literal[1:-1].replace("''", "'")


_NUMBER = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,6})?(BD|bd|[LlDdFfSsYy])?")


def number_type(literal: str) -> tuple[Type, Digits]:
    """Spark's type of a numeric literal, and its (precision, scale). Raises ValueError for what is no number."""
    match = _NUMBER.fullmatch(literal)
    if match is None:
        raise ValueError(f"{literal} is not a number; write it as 12, 1.5 or 1.5e3")
    digits, exponent, suffix = match.groups()
    suffix = (suffix or "").upper()
    if suffix in ("F", "S", "Y"):
        raise ValueError(f"the suffix {suffix} is not supported; write the number without it, or with D")
    if suffix == "D" or (exponent and suffix != "BD"):
        if np.isinf(float(digits + (exponent or ""))):
            raise ValueError(f"{literal} is outside the range of a double; use a number up to 1.7e308")
        return Type.DOUBLE, (0, 0)
    whole, _, fraction = digits.partition(".")
    scale = len(fraction) - (int(exponent[1:]) if exponent else 0)
    significant = len((whole + fraction).lstrip("0")) or 1
    precision = max(significant, scale) + max(-scale, 0)
    if precision > MAX_PRECISION or scale > MAX_PRECISION:
        raise ValueError(f"a number of more than {MAX_PRECISION} digits; round it or write it with an exponent")
    if "." in digits or suffix == "BD":
        return Type.DECIMAL, (precision, max(scale, 0))
    return _integer_type(literal, int(whole), suffix, precision)


def _integer_type(literal: str, value: int, suffix: str, precision: int) -> tuple[Type, Digits]:
    if suffix != "L" and value < 2**31:
        return Type.INT, (precision, 0)
    if value < 2**63 or (value == 2**63 and literal.startswith("-")):
        return Type.BIGINT, (precision, 0)
    if suffix == "L":
        raise ValueError(f"{literal} is outside the range of bigint; leave out the L")
    return Type.DECIMAL, (precision, 0)


def number_body(literal: str) -> str:
    """A numeric literal without its suffix."""
    return literal.rstrip("LlDdBb") if literal[-1:].isalpha() else literal


def read_number(literal: str) -> tuple[int, int]:
    """A numeric literal as an exact (unscaled integer, scale)."""
    body = number_body(literal).lower()
    negative, body = body.startswith("-"), body.lstrip("-")
    mantissa, _, exponent = body.partition("e")
    whole, _, fraction = mantissa.partition(".")
    unscaled, scale = int(whole + fraction), len(fraction) - int(exponent or 0)
    if scale < 0:
        unscaled, scale = unscaled * 10**-scale, 0
    return (-unscaled if negative else unscaled), scale


def read_column(kind: Type, texts: Sequence[str], zone: Zone = UTC) -> npt.NDArray[np.generic]:
    """Literals of one type as a column: int64, float64, or objects (strings; exact `(unscaled, scale)` decimals).

    `zone` is that of timestamps that name none.

    Raises ValueError if any of them cannot be read; the caller finds the row.
    """
    if kind is Type.STRING:
        return np.fromiter(map(unquote, texts), object, len(texts))
    if kind is Type.FLOAT:  # an integer among the elements of an array of FLOATs
        return read_column(Type.BIGINT, texts).astype(np.float32).astype(np.float64)
    if kind is Type.DOUBLE or kind in INTEGERS:
        read_one: Callable[[str], float] = float if kind is Type.DOUBLE else int
        try:
            values = list(map(read_one, texts))
        except ValueError:  # a suffix, as in 12L
            values = [read_one(number_body(t)) for t in texts]
        return np.array(values, np.float64 if kind is Type.DOUBLE else np.int64)
    if kind is Type.DECIMAL:
        return np.fromiter((read_number(t) for t in texts), object, len(texts))
    known = list(dict.fromkeys(texts))
    moments = dict(zip(known, _read_moments(kind, [unquote(t) for t in known], zone).tolist(), strict=True))
    return np.fromiter((moments[t] for t in texts), np.int64, len(texts))


def _read_moments(kind: Type, texts: list[str], zone: Zone) -> npt.NDArray[np.int64]:
    if kind is Type.DATE:
        return np.array([parse_date(t) for t in texts], np.int64)
    parsed = [parse_timestamp(t) for t in texts]
    walls = np.array([wall for wall, _ in parsed], np.int64)
    if kind is Type.TIMESTAMP_NTZ:  # Spark does not look at the zone of such a literal
        return walls
    named = np.array([offset is not None for _, offset in parsed], bool)
    out = walls - np.array([offset or 0 for _, offset in parsed], np.int64)
    out[~named] = instants(zone, walls[~named])
    return out
