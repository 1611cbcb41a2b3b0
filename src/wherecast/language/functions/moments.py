"""Functions of dates and timestamps, on arrays of days and microseconds.

The calendar is the proleptic Gregorian one, computed for all days at once (`functions.calendar`). A year, month or week is a range of days, so a comparison of `year(t)` or
`to_date(t)` with a constant is an interval of `t`: see the functions whose names end in `_preimage`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from wherecast.kernels import step_kinds as kinds
from wherecast.kernels.arrays import Longs
from wherecast.language.events.keys import DAY_US, KEY_MAX, KEY_MIN, offset_pieces, walls
from wherecast.language.events.types import MOMENTS, Type
from wherecast.language.events.zone import Zone
from wherecast.language.expression import Call, Cast, Node, Param, Span
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
from wherecast.language.functions.formats import DEFAULT_FORMAT, check_format, read_moment, write_moments
from wherecast.language.functions.row import (
    BIGINT,
    DAY,
    INSTANT,
    INT,
    SCALAR,
    TEXT,
    Describe,
    Function,
    Intervals,
    Takes,
    all_valid,
    among,
    as_days,
    fault,
    function,
    literal,
    objects,
    retyped,
    rows_by_text,
    vectorised,
)
from wherecast.language.functions.truncation import truncate_days, truncate_moments, truncation_steps
from wherecast.language.nullable import Nullable, as_moments, filler, repeated

if TYPE_CHECKING:
    from wherecast.language.steps import Register, Steps

_INT, _BIGINT, _DATE, _TIMESTAMP = Type.INT, Type.BIGINT, Type.DATE, Type.TIMESTAMP


def _month_size(year: Longs, month: Longs) -> Longs:
    return days_of(year, month + 1) - days_of(year, month)


def _year(days: Longs) -> Longs:
    return civil(days)[0]


def _day_of_year(days: Longs) -> Longs:
    return days - days_of(civil(days)[0], 1) + 1


def _week(days: Longs) -> Longs:
    """The week of ISO 8601: that of its Thursday."""
    thursday = days - (days + 3) % 7 + 3
    return (_day_of_year(thursday) - 1) // 7 + 1


def _of_clock(unit: int, count: int) -> Any:
    """Hours, minutes or seconds of the wall clock; the midnight of a date may be skipped by the zone."""

    def evaluate(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
        (values, valid), kind = args[0], call.args[0].type
        if kind is not Type.TIMESTAMP_NTZ:
            values = walls(zone, as_moments(values, kind, Type.TIMESTAMP, zone))
        whole = values // unit
        return Nullable(whole - whole // count * count, valid)  # NumPy's `%` takes twice as long

    return evaluate


def _of_clock_steps(unit: int, count: int) -> Callable[[Steps, Call], Register]:
    def write(steps: Steps, call: Call) -> Register:
        return steps.units(steps.rest(steps.wall(call.args[0]), unit * count), unit)

    return write


def _days_between_steps(steps: Steps, call: Call) -> Register:
    return steps.step(kinds.DIFFERENCE, *map(steps.days, call.args))


# -- arithmetic -------------------------------------------------------------------------------------------------------


def _add_months(_call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
    year, month, day = civil(args[0].values)
    total = month + args[1].values
    out = days_of(year, total, np.minimum(day, _month_size(year, total)))
    return Nullable(out, all_valid(args) & are_dates(out))


def _last_day(days: Longs) -> Longs:
    year, month, _ = civil(days)
    return wrapped(days_of(year, month + 1) - 1)


def _make_date(_call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
    year, month, day = (a.values for a in args)
    exists = (month >= 1) & (month <= 12) & (day >= 1) & (np.abs(year) <= 999_999_999)
    exists &= day <= _month_size(year, np.clip(month, 1, 12))
    out = days_of(year, np.clip(month, 1, 12), day)
    fits = exists & are_dates(out)
    return Nullable(np.where(fits, out, 0), all_valid(args) & fits)


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY_NAMES = {
    name: i
    for i, names in enumerate(
        (
            ("mo", "mon", "monday"),
            ("tu", "tue", "tuesday"),
            ("we", "wed", "wednesday"),
            ("th", "thu", "thursday"),
            ("fr", "fri", "friday"),
            ("sa", "sat", "saturday"),
            ("su", "sun", "sunday"),
        )
    )
    for name in names
}


def _next_day(_call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
    days, names = args
    wanted = np.array([_DAY_NAMES.get(name.lower(), -1) for name in names.values.tolist()], np.int64)
    return Nullable(next_weekday(days.values, wanted), all_valid(args) & (wanted >= 0))


def _names(names: tuple[str, ...], number: Callable[[Longs], Longs]) -> Any:
    return vectorised(lambda days: objects(names[i] for i in number(days).tolist()))


# -- texts by a format ------------------------------------------------------------------------------------------------

_READABLE = Takes("a date, timestamp or string", (Type.STRING, *MOMENTS))


def _read_as(convert: Callable[[Longs, Type, Zone], Longs]) -> Callable[[Node, Nullable, Zone], Nullable]:
    """Moments in one form; texts as they are, to be read by a format."""
    return lambda n, v, zone: v if n.type is Type.STRING else Nullable(convert(v.values, n.type, zone), v.valid)


def _as_instants(values: Longs, kind: Type, zone: Zone) -> Longs:
    return as_moments(values, kind, _TIMESTAMP, zone)


def _build_read(name: str, kind: Type) -> Callable[[tuple[Node, ...], Span, Describe], Node]:
    """A text without a format is cast where Spark does, so that a literal is read once."""

    def build(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
        item = args[0]
        if len(args) > 1 and item.type not in (Type.STRING, Type.NULL):
            raise fault(
                f"{name} by a format needs a string, found {describe(item)}; leave the format out", args[1].span
            )
        if len(args) == 1 and item.type is Type.STRING and kind in MOMENTS:
            item = retyped(item, kind) if isinstance(item, Param) else Cast(item=item, type=kind, span=item.span)
        return Call(name=name, args=(item, *args[1:]), type=kind, span=span)

    return build


def _by_format(args: Sequence[Nullable], zone: Zone) -> Nullable:
    """Texts as instants, each distinct one read once."""
    texts = args[0]
    forms = args[1] if len(args) > 1 else repeated(DEFAULT_FORMAT, object, texts.valid.size)
    known: dict[tuple[str, str], int | None] = {}
    out, valid = np.zeros(texts.valid.size, np.int64), texts.valid & forms.valid
    rows = np.flatnonzero(valid)
    for row, *pair in zip(rows.tolist(), texts.values[rows].tolist(), forms.values[rows].tolist(), strict=True):
        key = (pair[0], pair[1])
        if key not in known:
            known[key] = read_moment(*key, zone)
        micros = known[key]
        valid[row] = micros is not None
        out[row] = micros or 0
    return Nullable(out, valid)


def _to_date(_call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    if len(args) == 1:
        return args[0]
    moments = _by_format(args, zone)
    return Nullable(as_days(moments.values, _TIMESTAMP, zone), moments.valid)


def _to_timestamp(_call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    return args[0] if len(args) == 1 else _by_format(args, zone)


def _unix_timestamp(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    """Java divides toward zero, and Spark takes a wall clock as it is."""
    kind = call.args[0].type
    if kind is Type.STRING:
        args, kind = [_by_format(args, zone)], _TIMESTAMP
    values, valid = args[0]
    if kind is not Type.TIMESTAMP_NTZ:
        values = as_moments(values, kind, Type.TIMESTAMP, zone)
    return Nullable(values // SECOND_US + ((values < 0) & (values % SECOND_US != 0)), valid)


def _moment(unit: int) -> Any:
    """A number of units as an instant; NULL where 64 bits do not hold it."""

    def evaluate(_call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
        values = args[0].values
        fits = (values <= (2**63 - 1) // unit) & (values >= -(2**63 // unit))
        return Nullable(np.where(fits, values, 0) * unit, args[0].valid & fits)

    return evaluate


def _date_format(_call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    moments, forms = args
    out, valid = filler(Type.STRING, moments.valid.size), all_valid(args)
    for form, rows in rows_by_text(forms):
        out[rows] = write_moments(moments.values[rows], form, zone)
    return Nullable(out, valid)


def _from_unixtime(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    seconds, *forms = args
    with np.errstate(over="ignore"):
        moments = Nullable(seconds.values * np.int64(SECOND_US), seconds.valid)  # Java does not check it, either
    return _date_format(call, [moments, *(forms or [repeated(DEFAULT_FORMAT, object, moments.valid.size)])], zone)


# -- what a comparison says about the argument ------------------------------------------------------------------------

#: Years and days beyond what events hold, with room to compute.
_FAR_YEAR, _FAR_DAY = 10**6, 10**8


def _day_intervals(op: str, first: Longs, after: Longs, kind: Type, zone: Zone) -> Intervals:
    """The moments whose day d satisfies `start(d) op value`, where `start(d)` is value from `first` to before `after`."""
    low, high = np.full_like(first, KEY_MIN), np.full_like(first, KEY_MAX)
    begin, back, again = _before(first, kind, zone)
    next_begin, next_back, next_again = _before(after, kind, zone)
    if op == "=":
        return [(begin, back - 1), (again, next_begin - 1), (next_back, next_again - 1)]
    if op in ("<", "<="):
        begin, back, again = (begin, back, again) if op == "<" else (next_begin, next_back, next_again)
        return [(low, begin - 1), (back, again - 1)]
    begin, back, again = (begin, back, again) if op == ">=" else (next_begin, next_back, next_again)
    return [(begin, back - 1), (again, high)]


def _before(days: Longs, kind: Type, zone: Zone) -> tuple[Longs, Longs, Longs]:
    """The moments before days: those before the first result, and those from the second to before the third.

    The latter are none, except where clocks are set back shortly after midnight, and it is the day before once more.
    """
    if kind is Type.DATE:
        return days, days, days
    days = np.clip(days, -_FAR_DAY, _FAR_DAY)
    if kind is Type.TIMESTAMP_NTZ or zone.fixed_us is not None:
        begin = days * DAY_US - (zone.fixed_us or 0 if kind is Type.TIMESTAMP else 0)
        return begin, begin, begin
    begin, back, again = (np.empty_like(days) for _ in range(3))
    for i, day in enumerate(days.tolist()):
        # Within a piece of one offset, wall clocks go forward.
        pieces = offset_pieces(zone, day)
        ends = [(start, min(day * DAY_US - offset, end)) for start, end, offset in pieces]
        before = [(start, end) for start, end in ends if start < end]
        joined = [before[0]]
        for start, end in before[1:]:
            joined[-1:] = [(joined[-1][0], end)] if start == joined[-1][1] else [joined[-1], (start, end)]
        begin[i] = joined[0][1]
        back[i], again[i] = joined[1] if len(joined) > 1 else (begin[i], begin[i])
    return begin, back, again


def _year_preimage(op: str, years: Longs, kind: Type, zone: Zone) -> Intervals:
    years = np.clip(years, -_FAR_YEAR, _FAR_YEAR)
    return _day_intervals(op, days_of(years, 1), days_of(years + 1, 1), kind, zone)


def _day_preimage(op: str, days: Longs, kind: Type, zone: Zone) -> Intervals:
    days = np.clip(days, -_FAR_DAY, _FAR_DAY)
    return _day_intervals(op, days, days + 1, kind, zone)


# -- rows -------------------------------------------------------------------------------------------------------------


def _part(
    name: str, compute: Callable[[Longs], Longs], says: str, example: str, *aliases: str, **more: Any
) -> Function:
    return function(
        name, "t", DAY, result=_INT, evaluate=vectorised(compute), says=says, example=example, aliases=aliases, **more
    )


def _clock(name: str, unit: int, count: int, says: str, example: str) -> Function:
    more = {"evaluate": _of_clock(unit, count), "steps": _of_clock_steps(unit, count), "nearest": among(range(count))}
    return function(name, "t", _ANY_MOMENT, result=_INT, says=says, example=example, **more)


def _build_wall(args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    (item,) = args
    if item.type not in (Type.STRING, Type.NULL, *MOMENTS):
        raise fault(f"to_timestamp_ntz needs a moment or a string, found {describe(item)}", item.span)
    return item if item.type is Type.TIMESTAMP_NTZ else Cast(item=item, type=Type.TIMESTAMP_NTZ, span=span)


#: The units of extract, and the functions that they stand for; those that are not functions are units of `_extract`.
EXTRACTED = {
    **dict.fromkeys(("YEAR", "Y", "YEARS", "YR", "YRS"), "year"),
    **dict.fromkeys(("QUARTER", "QTR"), "quarter"),
    **dict.fromkeys(("MONTH", "MON", "MONS", "MONTHS"), "month"),
    **dict.fromkeys(("WEEK", "W", "WEEKS"), "weekofyear"),
    **dict.fromkeys(("DAY", "D", "DAYS"), "day"),
    **dict.fromkeys(("DAYOFWEEK", "DOW"), "dayofweek"),
    "DOY": "dayofyear",
    **dict.fromkeys(("HOUR", "H", "HOURS", "HR", "HRS"), "hour"),
    **dict.fromkeys(("MINUTE", "M", "MIN", "MINS", "MINUTES"), "minute"),
    **dict.fromkeys(("SECOND", "S", "SEC", "SECONDS", "SECS"), "SECOND"),
    **dict.fromkeys(("DAYOFWEEK_ISO", "DOW_ISO"), "DAYOFWEEK_ISO"),
    "YEAROFWEEK": "YEAROFWEEK",
}


def _extract(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    (values, valid), kind = args[0], call.args[0].type
    if call.unit == "SECOND":
        if kind is not Type.TIMESTAMP_NTZ:
            values = walls(zone, as_moments(values, kind, Type.TIMESTAMP, zone))
        return Nullable(objects((values % MINUTE_US).tolist()), valid)
    days = as_days(values, kind, zone)
    return Nullable((days + 3) % 7 + 1 if call.unit == "DAYOFWEEK_ISO" else _year(days - (days + 3) % 7 + 3), valid)


_ANY_MOMENT = Takes("a timestamp", MOMENTS, text_as=_TIMESTAMP)
#: Spark does not take a date here.
_ONLY_INSTANT = Takes("a timestamp with a time zone", (_TIMESTAMP,), text_as=_TIMESTAMP)
#: Nor a timestamp here.
_ONLY_DAY = Takes("a date", (_DATE,), text_as=_DATE)
_UNIT = literal(TEXT)

MOMENT_FUNCTIONS = (
    _part("year", _year, "the year", "year(day) = 2024", preimage=_year_preimage),
    _part(
        "quarter",
        lambda d: (civil(d)[1] + 2) // 3,
        "the quarter, 1 to 4",
        "quarter(day) = 1",
        nearest=among(range(1, 5)),
    ),
    _part(
        "month", lambda d: civil(d)[1], "the month, 1 to 12", "month(time) IN (6, 7, 8)", nearest=among(range(1, 13))
    ),
    _part(
        "day",
        lambda d: civil(d)[2],
        "the day of the month, 1 to 31",
        "day(day) = 1",
        "dayofmonth",
        nearest=among(range(1, 32)),
    ),
    _part(
        "dayofweek",
        lambda d: (d + 4) % 7 + 1,
        "1 is Sunday, 7 is Saturday",
        "dayofweek(time) BETWEEN 2 AND 6",
        nearest=among(range(1, 8)),
    ),
    _part("weekday", lambda d: (d + 3) % 7, "0 is Monday, 6 is Sunday", "weekday(time) < 5", nearest=among(range(7))),
    _part(
        "dayofyear", _day_of_year, "the day of the year, 1 to 366", "dayofyear(day) > 180", nearest=among(range(1, 367))
    ),
    _part("weekofyear", _week, "the week of ISO 8601, 1 to 53", "weekofyear(day) = 1", nearest=among(range(1, 54))),
    _clock("hour", HOUR_US, 24, "0 to 23, of the wall clock in the schema's time zone", "hour(time) BETWEEN 9 AND 17"),
    _clock("minute", MINUTE_US, 60, "0 to 59", "minute(time) = 0"),
    _clock("second", SECOND_US, 60, "0 to 59", "second(time) = 0"),
    replace(
        function(
            "extract",
            "t",
            _ANY_MOMENT,
            result=_INT,
            evaluate=_extract,
            says="`YEAR`, `QUARTER`, `MONTH`, `WEEK`, `DAY`, `DOW`, `DOY`, `HOUR`, `MINUTE`: the function of that name; "
            "`SECOND` with its fraction, `DOW_ISO` (1 is Monday) and `YEAROFWEEK`",
            example="extract(HOUR FROM time) = 9",
        ),
        signature="unit FROM t",
    ),
    function(
        "monthname",
        "t",
        DAY,
        result=Type.STRING,
        evaluate=_names(_MONTHS, lambda d: civil(d)[1] - 1),
        says="`Jan` to `Dec`",
        example="monthname(day) = 'Jan'",
    ),
    function(
        "dayname",
        "t",
        DAY,
        result=Type.STRING,
        evaluate=_names(_DAYS, lambda d: (d + 3) % 7),
        says="`Mon` to `Sun`",
        example="dayname(day) = 'Mon'",
    ),
    function(
        "to_date",
        "t[, format]",
        replace(_READABLE, read=_read_as(as_days)),
        literal(TEXT),
        result=_DATE,
        build=_build_read("to_date", _DATE),
        evaluate=_to_date,
        preimage=_day_preimage,
        check=check_format,
        aliases=("try_to_date",),
        says="the day of a timestamp, or that a text names, as `CAST` reads it or by a [format](#formats)",
        example="to_date(time) = '2024-01-31' OR to_date(symbol, 'dd.MM.yyyy') = day",
    ),
    function(
        "to_timestamp",
        "t[, format]",
        replace(_READABLE, read=_read_as(_as_instants)),
        literal(TEXT),
        result=_TIMESTAMP,
        build=_build_read("to_timestamp", _TIMESTAMP),
        evaluate=_to_timestamp,
        check=check_format,
        aliases=("to_timestamp_ltz", "try_to_timestamp"),
        says="the midnight of a date, or the instant that a text names, as `CAST` reads it or by a [format](#formats)",
        example="to_timestamp(day) <= time AND to_timestamp(symbol, 'yyyyMMddHHmmss') <= time",
    ),
    function(
        "date_format",
        "t, format",
        INSTANT,
        literal(TEXT),
        result=Type.STRING,
        evaluate=_date_format,
        check=check_format,
        says="a moment as a text by a [format](#formats)",
        example="date_format(time, 'yyyy-MM') = '2024-01'",
    ),
    function(
        "from_unixtime",
        "n[, format]",
        BIGINT,
        literal(TEXT),
        result=Type.STRING,
        evaluate=_from_unixtime,
        check=check_format,
        says="the instant so many seconds after 1970 as a text, by `'yyyy-MM-dd HH:mm:ss'` unless given",
        example="from_unixtime(volume, 'HH') = '09'",
    ),
    function(
        "to_timestamp_ntz",
        "t",
        SCALAR,
        build=_build_wall,
        says="the wall clock of a moment, or that a text names",
        example="to_timestamp_ntz(time) > '2024-01-31 10:00:00'",
    ),
    function(
        "trunc",
        "t, unit",
        DAY,
        _UNIT,
        result=_DATE,
        evaluate=truncate_days,
        says="the first day of the `'year'`, `'quarter'`, `'month'` or `'week'`; NULL for other units",
        example="trunc(day, 'month') = '2024-01-01'",
    ),
    function(
        "date_trunc",
        "unit, t",
        _UNIT,
        INSTANT,
        result=_TIMESTAMP,
        evaluate=truncate_moments,
        steps=truncation_steps,
        says="the same for timestamps, also to the `'day'`, `'hour'`, `'minute'`, `'second'`, `'millisecond'`, `'microsecond'`",
        example="date_trunc('hour', time) = '2024-01-31 10:00:00'",
    ),
    function(
        "datediff",
        "end, start",
        DAY,
        DAY,
        result=_INT,
        evaluate=vectorised(lambda a, b: wrapped(a - b)),
        steps=_days_between_steps,
        aliases=("date_diff",),
        says="days between two dates",
        example="datediff(time, day) > 2",
    ),
    function(
        "date_add",
        "t, days",
        DAY,
        INT,
        result=_DATE,
        evaluate=vectorised(lambda d, n: wrapped(d + n)),
        aliases=("dateadd",),
        says="so many days later",
        example="date_add(day, 7) > time",
    ),
    function(
        "date_sub",
        "t, days",
        DAY,
        INT,
        result=_DATE,
        evaluate=vectorised(lambda d, n: wrapped(d - n)),
        says="so many days earlier",
        example="date_sub(time, 7) < day",
    ),
    function(
        "add_months",
        "t, months",
        DAY,
        INT,
        result=_DATE,
        evaluate=_add_months,
        says="so many months later; at most the last day of the month",
        example="add_months(day, 1) > time",
    ),
    function(
        "last_day",
        "t",
        DAY,
        result=_DATE,
        evaluate=vectorised(_last_day),
        says="the last day of the month",
        example="last_day(day) = day",
    ),
    function(
        "next_day",
        "t, name",
        DAY,
        literal(TEXT),
        result=_DATE,
        evaluate=_next_day,
        says="the first day after `t` of that name, such as `'Mon'`",
        example="next_day(day, 'Mon') = '2024-02-05'",
    ),
    function(
        "make_date",
        "year, month, day",
        INT,
        INT,
        INT,
        result=_DATE,
        evaluate=_make_date,
        says="NULL if there is no such day",
        example="make_date(2024, 2, 29) = day",
    ),
    function(
        "unix_timestamp",
        "t[, format]",
        _READABLE,
        literal(TEXT),
        result=_BIGINT,
        build=_build_read("unix_timestamp", _BIGINT),
        evaluate=_unix_timestamp,
        check=check_format,
        aliases=("to_unix_timestamp",),
        says="seconds since 1970 in UTC, rounded toward zero; a wall clock counts as UTC, and a text is read by a "
        "[format](#formats), `'yyyy-MM-dd HH:mm:ss'` unless given",
        example="unix_timestamp(time) % 60 = 0",
    ),
    function(
        "unix_seconds",
        "t",
        _ONLY_INSTANT,
        result=_BIGINT,
        evaluate=vectorised(lambda t: t // SECOND_US),
        says="the same of an instant, rounded down",
        example="unix_seconds(time) % 60 = 0",
    ),
    function(
        "unix_millis",
        "t",
        _ONLY_INSTANT,
        result=_BIGINT,
        evaluate=vectorised(lambda t: t // 1000),
        says="milliseconds since 1970 in UTC",
        example="unix_millis(time) % 1000 = 0",
    ),
    function(
        "unix_micros",
        "t",
        _ONLY_INSTANT,
        result=_BIGINT,
        evaluate=vectorised(lambda t: t),
        says="microseconds since 1970 in UTC",
        example="unix_micros(time) % 1000 = 0",
    ),
    function(
        "unix_date",
        "t",
        _ONLY_DAY,
        result=_INT,
        evaluate=vectorised(lambda d: d),
        says="days since 1970",
        example="unix_date(day) % 2 = 0",
    ),
    function(
        "date_from_unix_date",
        "n",
        INT,
        result=_DATE,
        evaluate=vectorised(lambda n: n),
        says="the day of that number",
        example="date_from_unix_date(19753) = day",
    ),
    function(
        "timestamp_seconds",
        "n",
        BIGINT,
        result=_TIMESTAMP,
        evaluate=_moment(SECOND_US),
        says="the instant so many seconds after 1970",
        example="timestamp_seconds(volume) > time",
    ),
    function(
        "timestamp_millis",
        "n",
        BIGINT,
        result=_TIMESTAMP,
        evaluate=_moment(1000),
        says="",
        example="timestamp_millis(volume) > time",
    ),
    function(
        "timestamp_micros",
        "n",
        BIGINT,
        result=_TIMESTAMP,
        evaluate=_moment(1),
        says="",
        example="timestamp_micros(volume) > time",
    ),
)
