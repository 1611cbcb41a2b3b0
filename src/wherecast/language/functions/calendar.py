"""Days as years, months and days, and back, in the proleptic Gregorian calendar, for many days at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Longs

#: Microseconds of a second, a minute and an hour.
SECOND_US, MINUTE_US, HOUR_US = 1_000_000, 60_000_000, 3_600_000_000


def civil(days: Longs) -> tuple[Longs, Longs, Longs]:
    """Year, month and day."""
    from wherecast.kernels.calendar import civil_into  # noqa: PLC0415 - what only checks filters does not load Numba
    from wherecast.kernels.jit import frozen  # noqa: PLC0415

    year, month, day = (np.empty(days.size, np.int64) for _ in range(3))
    civil_into(frozen(np.ascontiguousarray(days)), year, month, day)
    return year, month, day


def days_of(year: Longs, month: Longs | int, day: Longs | int = 1) -> Longs:
    """The days of dates; a month beyond December is one of a later year."""
    months = np.asarray(month, np.int64) - 1
    year, month = year + months // 12, months % 12 + 1
    year = year - (month <= 2)
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * np.where(month > 2, month - 3, month + 9) + 2) // 5 + day - 1
    days: Longs = era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468
    return days


def wrapped(days: Longs) -> Longs:
    """As 32 bits hold them: Spark adds days without a check."""
    return (days + 2**31) % 2**32 - 2**31


def are_dates(days: Longs) -> npt.NDArray[np.bool_]:
    """Which days 32 bits hold: where Spark makes a date of a year, month and day, it checks."""
    return (days >= -(2**31)) & (days < 2**31)


def next_weekday(days: Longs, weekday: Longs | int) -> Longs:
    """The first day after each that has this number, which is 0 for Monday. Day 0 is a Thursday."""
    return wrapped(days + 1 + wrapped((weekday + 4) % 7 - 1 - days) % 7)
