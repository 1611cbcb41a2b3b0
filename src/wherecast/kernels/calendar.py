"""Days to dates, in the proleptic Gregorian calendar.

The way is that of Neri and Schneider ("Euclidean affine functions and their application to calendar algorithms", 2022). A day is counted from 1970-01-01. Years begin in March here, so that the leap day is the last one of a year; 400 years are an
era of 146,097 days, after which the calendar repeats. Divisions are by constants and of numbers that are not negative, so they
are multiplications: 3 ns a day, where a floor division for each step took 25.
"""

from __future__ import annotations

import numpy as np

from wherecast.kernels.arrays import Longs
from wherecast.kernels.jit import Scalar, hot, inlined

#: Eras before 1970 that days are counted from, so that all days of 32 bits are positive, and the first of them.
_ERAS = 14_699
_FIRST = -(_ERAS * 146_097 + 719_468)


@inlined
def _civil(day: Scalar) -> Scalar:
    """Year, month and day of the month."""
    n = np.uint64(4) * np.uint64(day - _FIRST) + np.uint64(3)
    century = n // np.uint64(146_097)
    of_century = np.uint64(4) * (n % np.uint64(146_097) // np.uint64(4)) + np.uint64(3)
    product = np.uint64(2_939_745) * of_century
    year_of_century = product >> np.uint64(32)
    of_year = (product & np.uint64(0xFFFFFFFF)) // np.uint64(2_939_745) // np.uint64(4)
    line = np.uint64(2141) * of_year + np.uint64(197_913)
    is_later = np.int64(of_year >= np.uint64(306))  # January and February belong to the next year
    year = np.int64(century) * 100 + np.int64(year_of_century) - _ERAS * 400 + is_later
    month = np.int64(line >> np.uint64(16)) - 12 * is_later
    return year, month, np.int64((line & np.uint64(0xFFFF)) // np.uint64(2141)) + 1


_DAY_US = 86_400_000_000


@hot
def days_into(micros: Longs, days: Longs) -> None:
    """The days of moments, by products of doubles: a division takes three times as long.

    Far from 1970 a double rounds the last moments of a day up to the next day; that is taken back. It never rounds down to
    the day before: every midnight of 64 bits was tried.
    """
    for i in range(micros.size):
        day = np.int64(np.floor(np.float64(micros[i]) * (1.0 / _DAY_US)))
        rest = micros[i] - day * _DAY_US  # of the lowest day, which begins before 64 bits do, both wrap around
        days[i] = day - np.int64(rest < 0)


@hot
def civil_into(days: Longs, years: Longs, months: Longs, month_days: Longs) -> None:
    """Year, month and day of the month of each day, which 32 bits hold; others (those of NULLs) become anything."""
    for i in range(days.size):
        years[i], months[i], month_days[i] = _civil(days[i])
