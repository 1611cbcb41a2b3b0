"""When something is sent: quiet hours, digests, rounds of routes and the time between them. Functions of a time that is given.

Theory of operation. A delivery is tried in rounds. A round asks the routes one after the other until one takes the message;
after a round in which none did, the next one comes later and later, with jitter, for days. The first rounds ask the first
route alone: a receiver that hiccups should not make its subscriber be told by a worse route. After `PATIENCE` rounds the
second route is asked, too, and so on. A route that was disabled or not verified is not asked at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from wherecast.broker.delivery.records import RouteState, SubscriberRecord, SubscriberRoute

#: Rounds before the next route is asked as well.
PATIENCE = 2
#: Times between rounds: the first, what it grows by, and the longest.
_FIRST_MS, _GROWTH, _LONGEST_MS = 5_000, 3.5, 24 * 3_600_000
FOREVER = 1 << 53

_DAY_MINUTES, _LONG_MS = 1_440, 14 * 86_400_000


def backoff_ms(round: int, fraction: float) -> int:
    """The wait after a round; `fraction` in [0, 1) chooses within the upper half of it."""
    longest = min(_FIRST_MS * _GROWTH ** min(round, 30), _LONGEST_MS)
    return int(longest * (0.5 + fraction / 2))


def routes_of_round(routes: Sequence[SubscriberRoute], round: int) -> list[SubscriberRoute]:
    """The routes that a round asks, in order. An open feed comes first and costs no patience."""
    usable = [route for route in routes if route.state is RouteState.ACTIVE]
    feeds = [route for route in usable if route.kind == "feed"]
    others = [route for route in usable if route.kind != "feed"]
    return feeds + others[: 1 + round // PATIENCE]


def held_until_ms(record: SubscriberRecord, now_ms: int) -> int | None:
    """Until when a subscriber does not want to be told; None: they do; FOREVER: until they say so."""
    if record.muted:
        return FOREVER
    ends = [record.snoozed_until_ms or 0, _quiet_until_ms(record, now_ms)]
    return max(ends) if max(ends) > now_ms else None


def _quiet_until_ms(record: SubscriberRecord, now_ms: int) -> int:
    """The end of the quiet hours that hold at a time, those that follow at once included; 0: none."""
    if not record.quiet_hours:
        return 0
    zone = ZoneInfo(record.time_zone)
    until = 0
    while until < now_ms + _LONG_MS:  # quiet all week long: look again after some time
        end = _quiet_end_ms(record, max(now_ms, until), zone)
        if end <= max(now_ms, until):
            break
        until = end
    return until


def _quiet_end_ms(record: SubscriberRecord, now_ms: int, zone: ZoneInfo) -> int:
    local = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(zone)
    end_ms = 0
    for days_ago in (0, 1):
        day = local.date() - timedelta(days=days_ago)
        for quiet in record.quiet_hours:
            if day.weekday() not in quiet.days:
                continue
            start = datetime(day.year, day.month, day.day, tzinfo=zone) + timedelta(minutes=quiet.start)
            last = day if quiet.end > quiet.start else day + timedelta(days=1)
            end = datetime(last.year, last.month, last.day, tzinfo=zone) + timedelta(minutes=quiet.end)
            # Compared as instants: two times of one zone would be compared by the clock on the wall.
            if start.timestamp() * 1000 <= now_ms < end.timestamp() * 1000:
                end_ms = max(end_ms, int(end.timestamp() * 1000))
    return end_ms


def first_try_ms(record: SubscriberRecord, now_ms: int) -> int:
    """When a new delivery is tried: at once, or with the next digest."""
    if record.digest_minutes is None:
        return now_ms
    window = record.digest_minutes * 60_000
    return (now_ms // window + 1) * window


def minutes_of(text: str) -> int:
    """`22:30` as minutes of the day. Raises ValueError."""
    hours, colon, minutes = text.partition(":")
    if not (colon and len(hours) == len(minutes) == 2 and (hours + minutes).isascii() and (hours + minutes).isdigit()):
        raise ValueError(f"{text!r} is not a time of the day; write HH:MM")
    found = int(hours) * 60 + int(minutes)
    if int(minutes) > 59 or found > _DAY_MINUTES:
        raise ValueError(f"{text!r} is not a time of the day; write HH:MM")
    return found


def time_text(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"
