"""Days to dates and back, in the proleptic Gregorian calendar (Howard Hinnant, "chrono-compatible low-level date algorithms").

A day is counted from 1970-01-01. Years begin in March here, so that the leap day is the last one of a year; 400 years are an
era of 146,097 days, after which the calendar repeats.
"""

from __future__ import annotations

from wherecast.kernels.arrays import Longs
from wherecast.kernels.jit import hot


@hot
def civil_into(days: Longs, years: Longs, months: Longs, month_days: Longs) -> None:
    """Year, month and day of the month of each day."""
    for i in range(days.size):
        shifted = days[i] + 719_468
        era = shifted // 146_097
        of_era = shifted - era * 146_097
        year_of_era = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
        of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
        march = (5 * of_year + 2) // 153
        month = march + 3 if march < 10 else march - 9
        years[i] = year_of_era + era * 400 + (1 if month <= 2 else 0)
        months[i] = month
        month_days[i] = of_year - (153 * march + 2) // 5 + 1
