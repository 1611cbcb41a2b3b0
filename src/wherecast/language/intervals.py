"""Lengths of time, and moments moved by them, as Spark computes them.

An interval is a number of months or a number of microseconds; the two do not mix, because months differ in length. Whole
days and months of an instant are counted on the wall clock of the time zone, the rest in elapsed time; the difference of
two instants is that of their wall clocks. A day of the month that is not there becomes the last one: a month after
January 31 is February 29, or 28.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from wherecast.kernels.arrays import Bools, Longs
from wherecast.language.events.keys import DAY_US, instants, walls
from wherecast.language.events.types import Type
from wherecast.language.events.zone import Zone
from wherecast.language.functions.calendar import are_dates, wrapped

_MONTHS = {"YEAR": 12, "MONTH": 1}
_MICROS = {
    "WEEK": 7 * DAY_US,
    "DAY": DAY_US,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1_000,
    "MICROSECOND": 1,
}
_INTEGER = re.compile(r"\s*([+-]?)([0-9]{1,18})\s*")
_SECONDS = re.compile(r"\s*([+-]?)([0-9]{1,18})(?:\.([0-9]{1,9}))?\s*")
#: Text of several units, from the first to the last.
_RANGES = {
    "YEAR TO MONTH": r"(?P<YEAR>[0-9]{1,9})-(?P<MONTH>[0-9]{1,2})",
    "DAY TO HOUR": r"(?P<DAY>[0-9]{1,9})\s+(?P<HOUR>[0-9]{1,2})",
    "DAY TO MINUTE": r"(?P<DAY>[0-9]{1,9})\s+(?P<HOUR>[0-9]{1,2}):(?P<MINUTE>[0-9]{1,2})",
    "DAY TO SECOND": r"(?P<DAY>[0-9]{1,9})\s+(?P<HOUR>[0-9]{1,2}):(?P<MINUTE>[0-9]{1,2}):(?P<SECOND>[0-9]{1,2})(?:\.(?P<f>[0-9]{1,9}))?",
    "HOUR TO MINUTE": r"(?P<HOUR>[0-9]{1,10}):(?P<MINUTE>[0-9]{1,2})",
    "HOUR TO SECOND": r"(?P<HOUR>[0-9]{1,10}):(?P<MINUTE>[0-9]{1,2}):(?P<SECOND>[0-9]{1,2})(?:\.(?P<f>[0-9]{1,9}))?",
    "MINUTE TO SECOND": r"(?P<MINUTE>[0-9]{1,12}):(?P<SECOND>[0-9]{1,2})(?:\.(?P<f>[0-9]{1,9}))?",
}
_MOST = {"MONTH": 11, "HOUR": 23, "MINUTE": 59, "SECOND": 59}


@lru_cache(maxsize=4096)
def read_amount(unit: str, text: str) -> int:
    """Months or microseconds of a text that is so many units. Raises ValueError."""
    if unit in _RANGES:
        return _read_range(unit, text)
    match = (_SECONDS if unit == "SECOND" else _INTEGER).fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r:.40} is not a number of {unit.lower()}s")
    size = _MONTHS.get(unit) or _MICROS[unit]
    amount = int(match[2]) * size + (int(match[3].ljust(6, "0")[:6]) if unit == "SECOND" and match[3] else 0)
    return _checked(-amount if match[1] == "-" else amount, unit in _MONTHS, text)


def _read_range(unit: str, text: str) -> int:
    match = re.fullmatch(rf"\s*(?P<sign>[+-]?){_RANGES[unit]}\s*", text)
    if match is None:
        raise ValueError(f"{text!r:.40} is not an interval {unit}; write it as '1-6' or '1 12:30:00'")
    parts = {name: int(value) for name, value in match.groupdict().items() if name not in ("sign", "f")}
    first = unit.split(maxsplit=1)[0]
    for name, value in parts.items():
        if name != first and value > _MOST[name]:
            raise ValueError(f"{value} {name.lower()}s in {text!r:.40}; at most {_MOST[name]}")
    sizes = {**_MONTHS, **_MICROS}
    amount = sum(value * sizes[name] for name, value in parts.items())
    amount += int((match.groupdict().get("f") or "").ljust(6, "0")[:6])
    return _checked(-amount if match["sign"] == "-" else amount, unit == "YEAR TO MONTH", text)


def _checked(amount: int, is_months: bool, text: str) -> int:
    if abs(amount) >= 2 ** (31 if is_months else 63):
        raise ValueError(f"{text!r:.40} is too long an interval")
    return amount


def shift(
    values: Longs, valid: Bools, kind: Type, amount: Longs, amount_kind: Type, target: Type, zone: Zone
) -> tuple[Longs, Bools]:
    """Moments of a kind moved by months, microseconds, or (a number) days."""
    if kind is Type.DATE and target is Type.DATE:
        if amount_kind is Type.MONTHS:
            days = _add_months(values, amount)
            return days, valid & are_dates(days)
        return wrapped(values + (amount // DAY_US if amount_kind is Type.DURATION else amount)), valid
    if kind is Type.DATE:
        values = instants(zone, values * DAY_US)
    clocks = values if kind is Type.TIMESTAMP_NTZ else walls(zone, values)
    if amount_kind is Type.MONTHS:
        days = clocks // DAY_US
        moved, rest = _add_months(days, amount) * DAY_US + clocks % DAY_US, np.zeros_like(clocks)
    else:
        days = np.where(amount < 0, -(-amount // DAY_US), amount // DAY_US)
        moved, rest = clocks + days * DAY_US, amount - days * DAY_US
    fits = np.abs(clocks.astype(np.float64) + amount.astype(np.float64)) < 9.2e18
    if kind is Type.TIMESTAMP_NTZ:
        return moved + rest, valid & fits
    # The offset stays as it was, if that is one of the offsets of the new wall clock.
    kept = moved - (clocks - values)
    found = np.where(walls(zone, kept) == moved, kept, instants(zone, moved))
    return found + rest, valid & fits


def _add_months(days: Longs, months: Longs) -> Longs:
    """Days so many months later."""
    month = days.astype("M8[D]").astype("M8[M]")
    first = month.astype("M8[D]").astype(np.int64)
    target = month + months.astype("m8[M]")
    start = target.astype("M8[D]").astype(np.int64)
    last = (target + np.timedelta64(1, "M")).astype("M8[D]").astype(np.int64) - 1
    moved: Longs = np.minimum(start + (days - first), last)
    return moved


def elapsed(end: Longs, end_kind: Type, start: Longs, start_kind: Type, zone: Zone) -> Longs:
    """Microseconds from start to end, on wall clocks."""
    sides = []
    for values, kind in ((end, end_kind), (start, start_kind)):
        if kind is Type.DATE:
            sides.append(values * DAY_US)
        else:
            sides.append(walls(zone, values) if kind is Type.TIMESTAMP else values)
    return sides[0] - sides[1]
