"""Time zones, by the names that Spark knows them by.

Regions come from the time zone database, by way of Python's `zoneinfo`; offsets are read as Java reads them. A name that
Python and Spark may read differently is refused. What a zone does to a wall clock is in `keys`.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from dataclasses import dataclass
from functools import lru_cache

from wherecast.errors import SchemaError

_HOUR_S = 3600
_MOST_S = 18 * _HOUR_S
_MICROSECOND = dt.timedelta(microseconds=1)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?")
#: Names that Spark reads by a table of its own, not by the time zone database.
_SHORT = frozenset(
    (
        *(
            "ACT",
            "AET",
            "AGT",
            "ART",
            "AST",
            "BET",
            "BST",
            "CAT",
            "CNT",
            "CST",
            "CTT",
            "EAT",
            "ECT",
            "EST",
            "HST",
            "IET",
        ),
        *("IST", "JST", "MIT", "MST", "NET", "NST", "PLT", "PNT", "PRT", "PST", "SST", "VST"),
    )
)


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone; made by `find_zone`."""

    name: str
    tzinfo: dt.tzinfo

    @property
    def fixed_us(self) -> int | None:
        """The offset in microseconds, if it never changes."""
        offset = self.tzinfo.utcoffset(None)
        return None if offset is None else offset // _MICROSECOND


UTC = Zone("UTC", dt.UTC)


@lru_cache(maxsize=256)
def find_zone(name: str) -> Zone:
    """A zone by its name: a region such as Europe/Berlin, or an offset such as +02:00 or UTC+2.

    Raises:
        SchemaError: there is no such zone, or Python and Spark may read its name differently.
    """
    if name in ("UTC", "GMT", "UT", "Z", "Etc/UTC", "Etc/GMT", "Zulu"):
        return UTC
    if (offset := _OFFSET.fullmatch(name)) is not None:
        return _fixed_zone(name, offset)
    if name in _SHORT:
        raise SchemaError(
            f"time zone {name!r}: short names mean different zones; write a region such as America/New_York"
        )
    try:
        if name.startswith(("posix/", "right/")):  # right/ counts leap seconds, which Spark does not
            raise ValueError
        return Zone(name, zoneinfo.ZoneInfo(name))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise SchemaError(
            f"time zone {name!r:.60} is not in the time zone database; write a region such as 'Europe/Berlin', "
            "an offset such as '+02:00', or install the package tzdata"
        ) from None


def _fixed_zone(name: str, offset: re.Match[str]) -> Zone:
    hours, minutes, seconds = (int(part or 0) for part in offset.groups()[1:])
    total = hours * _HOUR_S + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or total > _MOST_S:
        raise SchemaError(f"time zone {name!r} is not an offset; write one up to 18 hours, such as '+02:00'")
    if not total:
        return UTC
    tzinfo = dt.timezone(dt.timedelta(seconds=-total if offset[1] == "-" else total))
    return Zone(str(tzinfo).removeprefix("UTC"), tzinfo)
