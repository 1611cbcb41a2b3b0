"""Dates and times in texts by a format: `to_timestamp(s, 'dd.MM.yyyy HH:mm')` and `date_format`, with Spark's meaning.

Spark hands a format to Java's DateTimeFormatter, strictly: `dd` takes two digits, `d` one or more; the whole text must match, and
the day must exist. What a format leaves out is 1970-01-01 00:00:00. Moments are written by the same letters. Letters outside quotes that are not in `_FIELDS` are
refused: their names depend on a language, or on what else the format says. Where Spark would end the query, there is no value.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Longs
from wherecast.language.casts import day_number
from wherecast.language.events.keys import DAY_US, KEY_MAX, KEY_MIN, instants, walls
from wherecast.language.events.zone import Zone
from wherecast.language.functions.calendar import civil

#: The format of `unix_timestamp(s)`.
DEFAULT_FORMAT = "yyyy-MM-dd HH:mm:ss"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ONE_OR_MORE = "[0-9]{1,19}"
#: What a run of letters stands for, and what it takes. A year has four digits, or a sign.
_FIELDS = {
    "yyyy": ("year", r"-[0-9]{4,9}|\+[0-9]{5,9}|[0-9]{4}"),
    "yy": ("short_year", "[0-9]{2}"),
    "MMM": ("month_name", "|".join(_MONTHS)),
    "MM": ("month", "[0-9]{2}"),
    "M": ("month", _ONE_OR_MORE),
    "dd": ("day", "[0-9]{2}"),
    "d": ("day", _ONE_OR_MORE),
    "HH": ("hour", "[0-9]{2}"),
    "H": ("hour", _ONE_OR_MORE),
    "mm": ("minute", "[0-9]{2}"),
    "m": ("minute", _ONE_OR_MORE),
    "ss": ("second", "[0-9]{2}"),
    "s": ("second", _ONE_OR_MORE),
    "XXX": ("offset", "Z|[+-][0-9]{2}:[0-9]{2}"),
}
_PIECE = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z'\[\]{}#])", re.DOTALL)
_KINDS = {"short_year": "year", "month_name": "month"}
_MOST_FRACTION = 9


class MomentFormat(NamedTuple):
    """A format as a regular expression, whose groups are its fields, and as pieces: letters and, with "" before them, others."""

    regex: re.Pattern[str]
    fields: tuple[str, ...]
    pieces: tuple[tuple[str, str], ...]


@lru_cache(maxsize=1024)
def check_format(text: str) -> MomentFormat:
    """A format that can be read by. Raises ValueError with the reason where it is wrong or refused."""
    patterns, pieces, fields, at, before = list[str](), list[tuple[str, str]](), list[str](), 0, ""
    while at < len(text):
        found = _PIECE.match(text, at)
        if found is None:
            raise ValueError(f"the format has {text[at]!r}, which is not supported here")
        quoted, letter, plain = found.groups()
        run = found[0]
        if letter:
            name, pattern = _field(run, text[:at])
            _check_place(run, name, before, fields)
            fields.append(name)
            patterns.append(f"({pattern})")
            pieces.append((run, name))
        else:
            literal = plain if quoted is None else quoted.replace("''", "'") or "'"
            patterns.append(re.escape(literal))
            pieces.append(("", literal))
        before, at = (run if letter else ""), found.end()
    if not fields:
        raise ValueError("the format has no letters that stand for a date or time")
    regex = re.compile("".join(patterns), re.IGNORECASE | re.ASCII | re.DOTALL)
    return MomentFormat(regex, tuple(fields), tuple(pieces))


def _field(run: str, before: str) -> tuple[str, str]:
    if (
        run[0] == "S" and len(run) <= _MOST_FRACTION and re.search(r"ss[^sS]+$", before)
    ):  # next to ss, Java counts otherwise
        return "fraction", f"[0-9]{{1,{len(run)}}}"
    if run not in _FIELDS:
        known = "yyyy, yy, MM, M, MMM, dd, d, HH, H, mm, m, ss, s, S to SSSSSSSSS after ss and a sign, and XXX"
        raise ValueError(f"the letters {run} in a format are not supported; there are {known}")
    return _FIELDS[run]


def _check_place(run: str, name: str, before: str, fields: list[str]) -> None:
    kind = _KINDS.get(name, name)
    if kind in (_KINDS.get(field, field) for field in fields):
        raise ValueError(f"the format has the {kind} twice")
    # Java gives a number of any length all digits but those that numbers of fixed length right behind it need.
    if _is_variable(before) and run not in _NOT_NUMBERS and not (before == "yyyy" and not _is_variable(run)):
        raise ValueError(
            f"{before}{run} in a format: a number of any length before another one; put a sign between them"
        )


_NOT_NUMBERS = ("MMM", "XXX")


def _is_variable(run: str) -> bool:
    return len(run) == 1 or run[:1] == "S" or run == "yyyy"


def read_moment(text: str, form: str, zone: Zone) -> int | None:
    """The instant that a text names, in microseconds; None where it does not match or there is no such moment."""
    regex, fields, _ = check_format(form)
    match = regex.fullmatch(text)
    if match is None:
        return None
    parts = dict(zip(fields, match.groups(), strict=True))
    year = _year(parts)
    month = _MONTHS.index(parts["month_name"].lower()) + 1 if "month_name" in parts else int(parts.get("month", 1))
    day = None if year is None else day_number(year, month, int(parts.get("day", 1)))
    hour, minute, second = (int(parts.get(name, 0)) for name in ("hour", "minute", "second"))
    if day is None or hour > 23 or minute > 59 or second > 59:
        return None
    micros = int((parts.get("fraction", "") + "000000")[:6])
    wall = day * DAY_US + (hour * 3600 + minute * 60 + second) * 1_000_000 + micros
    if not KEY_MIN + DAY_US < wall < KEY_MAX - DAY_US:
        return None
    if "offset" in parts:
        offset = _offset(parts["offset"])
        return None if offset is None else wall - offset
    return int(instants(zone, np.array([wall], np.int64))[0])


def _year(parts: dict[str, str]) -> int | None:
    if "short_year" in parts:
        return 2000 + int(parts["short_year"])
    text = parts.get("year", "1970")
    return None if text[0] == "-" and int(text) == 0 else int(text)


def _offset(text: str) -> int | None:
    """Microseconds east of Greenwich, at most 18 hours."""
    if text in "Zz":
        return 0
    hours, minutes = int(text[1:3]), int(text[4:6])
    if minutes > 59 or hours * 60 + minutes > 18 * 60:
        return None
    return (hours * 60 + minutes) * 60_000_000 * (-1 if text[0] == "-" else 1)


# -- moments as texts -------------------------------------------------------------------------------------------------

#: The shortest time that a field tells apart, in microseconds.
_UNITS = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000, "fraction": 1, "offset": 1}


def write_moments(moments: Longs, form: str, zone: Zone) -> npt.NDArray[np.object_]:
    """Instants as texts; those that the format does not tell apart are written once."""
    _, fields, pieces = check_format(form)
    clocks = walls(zone, moments)
    unit = min((_UNITS.get(field, DAY_US) for field in fields), default=DAY_US)
    keys = clocks if "offset" not in fields else moments
    distinct, first, place = np.unique(keys // unit, return_index=True, return_inverse=True)
    clock = clocks[first]
    year, month, day = civil(clock // DAY_US)
    offset = clock - moments[first]
    columns = {
        "year": year,
        "short_year": np.abs(year) % 100,
        "month": month,
        "month_name": month,
        "day": day,
        **{name: clock // of % count for name, of, count in _CLOCK},
        "fraction": clock % 1_000_000,
        "offset": np.sign(offset) * (np.abs(offset) // 60_000_000),  # as Java: seconds of old offsets are left out
    }
    texts = [[other] * distinct.size if not run else _written(run, columns[other]) for run, other in pieces]
    made = np.fromiter(("".join(parts) for parts in zip(*texts, strict=True)), object, distinct.size)
    out: npt.NDArray[np.object_] = made[place]
    return out


_CLOCK = (("hour", 3_600_000_000, 24), ("minute", 60_000_000, 60), ("second", 1_000_000, 60))


def _written(run: str, values: Longs) -> list[str]:
    """The values of a field, as its letters say."""
    numbers: list[int] = values.tolist()
    if run == "yyyy":
        return [f"{'+' if n > 9999 else '-' if n < 0 else ''}{abs(n):04d}" for n in numbers]
    if run == "MMM":
        return [_MONTHS[n - 1].title() for n in numbers]
    if run[0] == "S":
        return [f"{n:06d}000"[: len(run)] for n in numbers]
    if run == "XXX":
        return [f"{'-' if n < 0 else '+'}{abs(n) // 60:02d}:{abs(n) % 60:02d}" if n else "Z" for n in numbers]
    return [f"{n:0{len(run)}d}" for n in numbers]
