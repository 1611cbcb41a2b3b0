"""Values as sortable 64-bit keys, and wall clocks as instants.

Theory of operation
-------------------
Every fixed-width value has an order-preserving 64-bit key: integers, booleans, days and microseconds are their own;
a double's bits are rearranged so that integer order is Spark's order of doubles (-0.0 equals 0.0, NaN equals NaN and is
above everything). With keys, `<` is `<=` of the key below and every comparison with a constant is a closed interval.

The key of a timestamp is an instant, in microseconds since 1970 in UTC. A literal or an event without a zone is a wall
clock: also microseconds, counted as if it were UTC. `instants` goes from wall clocks to instants as Spark (java.time) does.
Where clocks are set forward, a wall clock that is skipped moves on by the length of the gap; where they are set back, a wall
clock that occurs twice means its first occurrence. Both say: the offset before the change holds. Python's `zoneinfo` gives
that offset for `fold=0`, but for one wall clock at a time. So many wall clocks are taken day by day: a day is cut where its
offset changes (very few days are), and all values of a piece take its offset at once.

Before 1900 or so a zone has its local mean time, with seconds; after its last rule, that rule holds for good. Both come
from `zoneinfo`. Outside the years 1 to 9999, which Python cannot express, the calendar repeats every 400 years.
"""

from __future__ import annotations

import datetime as dt
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Longs
from wherecast.language.events.zone import Zone

KEY_MIN = -(2**63)
KEY_MAX = 2**63 - 1
NAN_KEY = KEY_MAX


#: Up to so many doubles, NumPy is quick enough; a kernel takes a thirtieth.
_FEW_DOUBLES = 256


def float_keys(values: npt.NDArray[np.float64]) -> Longs:
    """Order-preserving keys of doubles."""
    if values.size > _FEW_DOUBLES:
        from wherecast.kernels.codes import float_keys_into  # noqa: PLC0415 - what only checks filters does not load Numba

        out = np.empty(values.size, np.int64)
        float_keys_into(np.ascontiguousarray(values), out)
        return out
    keys = np.ascontiguousarray(values + 0.0).view(np.int64)  # adding 0.0 makes -0.0 positive
    keys ^= (keys >> 63) & KEY_MAX  # of a negative number all bits but the sign
    keys[np.isnan(values)] = NAN_KEY
    return keys


def key_floats(keys: Longs) -> npt.NDArray[np.float64]:
    """The doubles of keys made by `float_keys`; keys of no double are NaN."""
    bits = np.where(keys < 0, keys ^ np.int64(KEY_MAX), keys)
    return np.ascontiguousarray(bits).view(np.float64)


# -- wall clocks -------------------------------------------------------------------------------------------------------


DAY_US = 86_400_000_000
_DAY_S, _HOUR_S, _SECOND_US = 86_400, 3600, 1_000_000
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock
_EPOCH_DAY = _EPOCH.toordinal()
_MICROSECOND = dt.timedelta(microseconds=1)
#: Days whose ends are in the years 1 to 9999 in every zone, and the number of days after which the Gregorian calendar repeats.
_FIRST_DAY, _LAST_DAY = dt.date.min.toordinal() - _EPOCH_DAY + 1, dt.date.max.toordinal() - _EPOCH_DAY - 2
_CYCLE = 146_097


#: Moments from which on a kernel is quicker than NumPy.
_MANY_MOMENTS = 256


def whole_days(walls: Longs) -> Longs:
    """The days of wall clocks, counted from 1970."""
    if walls.size < _MANY_MOMENTS:
        return walls // DAY_US
    from wherecast.kernels.calendar import days_into  # noqa: PLC0415 - what only checks filters does not load Numba
    from wherecast.kernels.jit import frozen  # noqa: PLC0415 - as above

    out = np.empty(walls.size, np.int64)
    days_into(frozen(np.ascontiguousarray(walls)), out)
    return out


def instants(zone: Zone, walls: Longs) -> Longs:
    """The instants that wall clocks mean."""
    fixed = zone.fixed_us
    if fixed == 0 or not walls.size:
        return walls
    walls = np.clip(walls, -(2**63) + DAY_US, 2**63 - 1 - DAY_US)  # an offset must not leave 64 bits
    if fixed is not None:
        return walls - fixed
    return walls - _offsets(zone, walls, of_instants=False)


def walls(zone: Zone, moments: Longs) -> Longs:
    """The wall clocks that a zone shows at instants."""
    fixed = zone.fixed_us
    if fixed == 0 or not moments.size:
        return moments
    if fixed is not None:
        return moments + fixed
    moments = np.clip(moments, -(2**63) + DAY_US, 2**63 - 1 - DAY_US)
    return moments + _offsets(zone, moments, of_instants=True)


def _offsets(zone: Zone, moments: Longs, *, of_instants: bool) -> Longs:
    """The offset of the zone at each wall clock, or instant."""
    first, last = int(moments.min()) // DAY_US, int(moments.max()) // DAY_US
    if moments.size > _MANY and last - first <= _FEW_DAYS:
        starts, offsets = _changes(zone, first // _FEW_DAYS, last // _FEW_DAYS, of_instants)
    else:
        starts, offsets = _pieces(zone, np.unique(moments // DAY_US).tolist(), of_instants=of_instants)
    found: Longs = offsets[np.searchsorted(starts, moments, side="right") - 1]
    return found


#: So many moments of so many days are looked up among all changes of the offset in those days, which are kept.
_MANY, _FEW_DAYS = 1024, 4096


@lru_cache(maxsize=64)
def _changes(zone: Zone, first: int, last: int, of_instants: bool) -> tuple[Longs, Longs]:
    """As `_pieces` for all days of some blocks, without the pieces that begin with the offset of the one before."""
    days = range(first * _FEW_DAYS, (last + 1) * _FEW_DAYS)
    starts, offsets = _pieces(zone, list(days), of_instants=of_instants)
    changes = np.flatnonzero(np.diff(offsets, prepend=offsets[0] - 1))
    return starts[changes], offsets[changes]


def offset_pieces(zone: Zone, day: int) -> list[tuple[int, int, int]]:
    """The instants around the midnight of a day in pieces of one offset: first instant, end and offset of each.

    The first piece begins, and the last one ends, about two days away.
    """
    starts, offsets = _pieces(zone, list(range(day - 2, day + 3)), of_instants=True)
    ends = [*starts.tolist()[1:], (day + 3) * DAY_US]
    return list(zip(starts.tolist(), ends, offsets.tolist(), strict=True))


def only_walls(zone: Zone, moments: Longs) -> tuple[Longs, npt.NDArray[np.bool_]]:
    """The wall clocks that mean instants, and where there is exactly one: where clocks change, there are none or two."""
    fixed = zone.fixed_us
    if fixed is not None or not moments.size:
        return moments + (fixed or 0), np.ones(moments.size, bool)
    days = np.unique(np.add.outer(np.unique(moments // DAY_US), np.arange(-1, 2)))
    found, walls = np.zeros(moments.size, np.int64), np.zeros(moments.size, np.int64)
    for offset in np.unique(_pieces(zone, days.tolist())[1]).tolist():
        is_meant = instants(zone, moments + offset) == moments
        found += is_meant
        walls[is_meant] = moments[is_meant] + offset
    return walls, found == 1


def days_around(zone: Zone, moments: Longs) -> tuple[Longs, Longs]:
    """The greatest days whose midnight is not after an instant, and the least whose midnight is not before it."""
    days = np.add.outer(moments // DAY_US, np.arange(-2, 3))
    midnights = instants(zone, (days * DAY_US).ravel()).reshape(days.shape)
    # Midnights never decrease from day to day, so counting finds both; the first is before, the last after the instant.
    rows = np.arange(moments.size)
    floor = days[rows, (midnights <= moments[:, None]).sum(1) - 1]
    return floor, days[rows, (midnights < moments[:, None]).sum(1)]


def _pieces(zone: Zone, days: list[int], *, of_instants: bool = False) -> tuple[Longs, Longs]:
    """Where pieces of one offset start, in wall clocks (or instants) of these ascending days, and their offsets."""
    found: list[tuple[int, int]] = []
    for day in days:
        known = _known_day(day)
        shift = (day - known) * DAY_US
        found += [(start + shift, offset) for start, offset in _day_pieces(zone.tzinfo, known, of_instants)]
    starts, offsets = np.array(found, np.int64).T
    return np.ascontiguousarray(starts), np.ascontiguousarray(offsets)


def _known_day(day: int) -> int:
    """A day that `zoneinfo` can speak of and that is like a given one."""
    if day > _LAST_DAY:
        return day - -((_LAST_DAY - day) // _CYCLE) * _CYCLE
    return day + -((day - _FIRST_DAY) // _CYCLE) * _CYCLE if day < _FIRST_DAY else day


@lru_cache(maxsize=2**16)
def _day_pieces(tzinfo: dt.tzinfo, day: int, of_instants: bool) -> list[tuple[int, int]]:
    """The pieces of a day, as (first wall clock or instant, offset). No zone changes its offset twice within three days."""

    def offset(second: int) -> int:
        moment = _EPOCH + dt.timedelta(seconds=second)
        if of_instants:
            return (tzinfo.fromutc(moment.replace(tzinfo=tzinfo)).replace(tzinfo=None) - moment) // _MICROSECOND
        delta = tzinfo.utcoffset(moment)
        assert delta is not None
        return delta // _MICROSECOND

    start, end = day * _DAY_S, (day + 1) * _DAY_S
    before, after = offset(start), offset(end)
    pieces = [(start, before)]
    if after != before:
        low, high = start, end
        while high - low > 1:  # invariant: the offset has not changed at `low`, it has at `high`
            middle = (low + high) // 2
            low, high = (low, middle) if offset(middle) == after else (middle, high)
        if high < end:
            pieces.append((high, after))
    return [(second * _SECOND_US, us) for second, us in pieces]
