"""The beginning of the year, month, week, hour or other unit that a moment is in: `trunc` and `date_trunc`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from wherecast.kernels import step_kinds as kinds
from wherecast.kernels.arrays import Longs
from wherecast.language.events.keys import DAY_US, instants, walls
from wherecast.language.events.types import Type
from wherecast.language.events.zone import Zone
from wherecast.language.expression import Call
from wherecast.language.functions.calendar import (
    HOUR_US,
    MINUTE_US,
    SECOND_US,
    are_dates,
    civil,
    days_of,
    next_weekday,
    wrapped,
)
from wherecast.language.functions.row import all_valid, rows_by_text
from wherecast.language.nullable import Nullable

if TYPE_CHECKING:
    from wherecast.language.steps import Register, Steps

_DAY_UNITS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    "quarter": "quarter",
    **dict.fromkeys(("month", "mm", "mon"), "month"),
    "week": "week",
}
_CLOCK_UNITS = {
    **dict.fromkeys(("day", "dd"), DAY_US),
    "hour": HOUR_US,
    "minute": MINUTE_US,
    "second": SECOND_US,
    "millisecond": 1000,
    "microsecond": 1,
}


def _first_days(unit: str, days: Longs) -> Longs:
    """The first day of the year, quarter, month or week that a day is in."""
    if unit == "week":
        return next_weekday(wrapped(days - 7), 0)
    year, month, day = civil(days)
    if unit == "month":
        return wrapped(days - day + 1)
    first = days_of(year, 1 if unit == "year" else (month - 1) // 3 * 3 + 1)
    return wrapped(first) if unit == "year" else first


def truncate_days(_call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
    """Days at the beginning of units of days; NULL where the unit is another."""
    days, units = args
    out, valid = days.values.copy(), all_valid(args).copy()
    for text, rows in rows_by_text(units):
        unit = _DAY_UNITS.get(text.lower())
        if unit is None:
            valid[rows] = False
        else:
            out[rows] = _first_days(unit, days.values[rows])
            valid[rows] &= are_dates(out[rows])
    return Nullable(out, valid)


def truncate_moments(_call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    """Timestamps at the beginning of units of the wall clock."""
    units, moments = args
    out, valid = moments.values.copy(), all_valid(args).copy()
    for text, rows in rows_by_text(units):
        unit = text.lower()
        if unit in _DAY_UNITS:
            days = walls(zone, moments.values[rows]) // DAY_US
            out[rows] = instants(zone, _first_days(_DAY_UNITS[unit], days) * DAY_US)
        elif unit in _CLOCK_UNITS:
            out[rows] = _truncated(moments.values[rows], _CLOCK_UNITS[unit], zone)
        else:
            valid[rows] = False
    return Nullable(out, valid)


def _truncated(moments: Longs, unit: int, zone: Zone) -> Longs:
    if unit <= SECOND_US:
        return moments // unit * unit
    local = walls(zone, moments)
    short = local // unit * unit
    if zone.fixed_us is not None:
        return short - zone.fixed_us if zone.fixed_us else short
    # A wall clock that occurs twice keeps its offset, as in java.time, if that offset holds there.
    same_offset = moments - (local - short)
    return np.where(walls(zone, same_offset) == short, same_offset, instants(zone, short))


def truncation_steps(steps: Steps, call: Call) -> Register:
    """The same for units of the clock in a zone whose offset never changes."""
    text, moment = call.args
    unit, fixed = _CLOCK_UNITS.get(steps.literal(text).lower(), 0), steps.zone.fixed_us
    if moment.type is not Type.TIMESTAMP or unit < SECOND_US or fixed is None:
        return steps.refuse()
    wall = steps.wall(moment)
    short = steps.step(kinds.DIFFERENCE, wall, steps.rest(wall, unit))
    return steps.step(kinds.DIFFERENCE, short, steps.constant(fixed)) if fixed else short
