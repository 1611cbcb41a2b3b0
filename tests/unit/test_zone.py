"""Time zones: which instant a wall clock means, in literals, events, domains and files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import all_below

from wherecast import Engine
from wherecast.errors import EventError, FilterError, SchemaError
from wherecast.kernels.arrays import Longs
from wherecast.language.events.events import EventBatch
from wherecast.language.events.keys import DAY_US, days_around, instants, only_walls, walls
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import Type
from wherecast.language.events.zone import Zone, find_zone
from wherecast.language.filters.compile import Compiler
from wherecast.language.syntax.literals import read_literals

BERLIN = "Europe/Berlin"
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock
MICROSECOND = dt.timedelta(microseconds=1)


def ticks(text: str) -> int:
    return (dt.datetime.fromisoformat(text) - EPOCH) // MICROSECOND


#: As Spark 4.3 answers, with the zone as its session's.
CASES = [
    ("UTC", "2024-06-01 10:00:00", "2024-06-01 10:00:00"),
    (BERLIN, "2024-06-01 10:00:00", "2024-06-01 08:00:00"),
    (BERLIN, "2024-01-31 10:00:00", "2024-01-31 09:00:00"),
    (BERLIN, "2024-01-31", "2024-01-30 23:00:00"),
    (BERLIN, "2024-06-01 10:00:00Z", "2024-06-01 10:00:00"),
    (BERLIN, "2024-06-01 10:00:00-03:00", "2024-06-01 13:00:00"),
    (BERLIN, "2024-03-31 01:59:59.999999", "2024-03-31 00:59:59.999999"),
    (BERLIN, "2024-03-31 02:00:00", "2024-03-31 01:00:00"),  # skipped: it moves on by an hour
    (BERLIN, "2024-03-31 02:30:00", "2024-03-31 01:30:00"),
    (BERLIN, "2024-03-31 03:00:00", "2024-03-31 01:00:00"),
    (BERLIN, "2024-10-27 02:30:00", "2024-10-27 00:30:00"),  # occurs twice: the first
    (BERLIN, "2024-10-27 03:00:00", "2024-10-27 02:00:00"),
    (BERLIN, "1850-06-01 10:00:00", "1850-06-01 09:06:32"),  # local mean time
    (BERLIN, "2999-07-01 12:00:00", "2999-07-01 10:00:00"),
    ("America/New_York", "2024-03-10 02:30:00", "2024-03-10 07:30:00"),
    ("America/New_York", "2024-11-03 01:30:00", "2024-11-03 05:30:00"),
    ("America/Sao_Paulo", "2018-11-04", "2018-11-04 03:00:00"),  # midnight is skipped
    ("Pacific/Apia", "2011-12-30", "2011-12-30 10:00:00"),  # the day is skipped
    ("+02:00", "2024-06-01 10:00:00", "2024-06-01 08:00:00"),
    ("UTC+2", "2024-06-01 10:00:00", "2024-06-01 08:00:00"),
    ("+2:00", "1850-06-01 10:00:00", "1850-06-01 08:00:00"),
    ("GMT-3", "2024-06-01 10:00:00", "2024-06-01 13:00:00"),
    ("GMT+0530", "2024-06-01 10:00:00", "2024-06-01 04:30:00"),
    ("UTC-12:59:30", "2024-06-01 10:00:00", "2024-06-01 22:59:30"),
    ("Etc/GMT+5", "2024-06-01 10:00:00", "2024-06-01 15:00:00"),
]


@pytest.mark.parametrize(("zone", "literal", "utc"), CASES)
def test_instants(zone: str, literal: str, utc: str) -> None:
    """A wall clock means the same instant as a literal, in a text and as a datetime, alone and in a column."""
    assert read_literals(Type.TIMESTAMP, [f"'{literal}'"], find_zone(zone)).tolist() == [ticks(utc)]
    schema = Schema.of({"t": "timestamp"}, time_zone=zone)
    wall: Any = dt.datetime.fromisoformat(literal)
    forms: list[Any] = [
        [{"t": literal}],
        [{"t": literal}, {"t": "2000-01-01T00:00:00Z"}],  # text by text, as not all name a zone
        [{"t": wall}],
        [{"t": wall}, {"t": dt.datetime(2000, 1, 1, tzinfo=dt.UTC)}],
        [{"t": pd.Timestamp(wall)}],
        pa.table({"t": [literal, None]}),
    ]
    if wall.tzinfo is None:
        forms += [
            pa.table({"t": pa.array([wall, None], pa.timestamp(unit))}) for unit in ("us", "ns") if wall.year < 2200
        ]
        forms += [[{"t": wall.replace(fold=1)}]]
    for events in forms:
        assert EventBatch.read(schema, events).array(0).view(pa.int64())[0].as_py() == ticks(utc)


@given(
    st.lists(st.datetimes(), min_size=1),
    st.sampled_from([BERLIN, "America/New_York", "Pacific/Apia", "Africa/Casablanca", "Australia/Lord_Howe", "+05:30"]),
)
def test_columns_equal_single_values(walls: list[dt.datetime], name: str) -> None:
    """A column has the instants that Python gives one by one; an instant that one wall clock means leads back to it."""
    zone, epoch = find_zone(name), EPOCH.replace(tzinfo=dt.UTC)
    column = np.array([(wall - EPOCH) // MICROSECOND for wall in walls])
    found = instants(zone, column)
    assert found.tolist() == [(wall.replace(tzinfo=zone.tzinfo) - epoch) // MICROSECOND for wall in walls]
    back, is_only = only_walls(zone, found)
    assert (back[is_only] == column[is_only]).all()
    floor, ceil = days_around(zone, found)
    assert (instants(zone, floor * DAY_US) <= found).all()
    assert (found < instants(zone, (floor + 1) * DAY_US)).all()
    assert (instants(zone, ceil * DAY_US) >= found).all()
    assert (found > instants(zone, (ceil - 1) * DAY_US)).all()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("Africa/Freetown", "1939-09-05 00:00:00"),
        ("Asia/Gaza", "2040-10-20 00:00:00"),
        ("Pacific/Apia", "2011-12-30 00:00:00"),
    ],
)
def test_changes_that_follow_each_other(name: str, change: str) -> None:
    """Hour by hour around changes that are a few days apart, or skip a day: as Python says."""
    zone, epoch = find_zone(name), EPOCH.replace(tzinfo=dt.UTC)
    clocks = [dt.datetime.fromisoformat(change) + dt.timedelta(hours=hour) for hour in range(-240, 240)]
    column = np.array([(clock - EPOCH) // MICROSECOND for clock in clocks])
    meant = [(clock.replace(tzinfo=zone.tzinfo) - epoch) // MICROSECOND for clock in clocks]
    shown = [
        (clock.replace(tzinfo=dt.UTC).astimezone(zone.tzinfo).replace(tzinfo=None) - EPOCH) // MICROSECOND
        for clock in clocks
    ]
    assert instants(zone, column).tolist() == meant
    assert walls(zone, column).tolist() == shown


def test_far_away() -> None:
    """Beyond the years that Python knows, the calendar repeats; the ends of 64 bits do not wrap around."""
    zone = find_zone(BERLIN)
    summer = ticks("9999-07-01 12:00:00") + 146_097 * DAY_US * 3
    assert instants(zone, np.array([summer])).tolist() == [summer - 7_200_000_000]
    assert instants(zone, np.array([2**63 - 1]))[0] > 2**62
    assert instants(zone, np.array([-(2**63)]))[0] < -(2**62)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("PST", "short names mean different zones"),
        ("EST", "short names mean different zones"),
        ("Europe/Berlim", "is not in the time zone database"),
        ("europe/../Europe/Berlin", "is not in the time zone database"),
        ("right/UTC", "is not in the time zone database"),
        ("SystemV/PST8", "is not in the time zone database"),
        ("", "is not in the time zone database"),
        ("+19:00", "write one up to 18 hours"),
    ],
)
def test_unknown_zones(name: str, reason: str) -> None:
    """A name that Python does not know, or may take for another zone than Spark, is refused with what to write."""
    with pytest.raises(SchemaError, match=reason):
        Schema.of({"t": "timestamp"}, time_zone=name)


def test_schemas_carry_their_zone() -> None:
    """The zone is part of a schema and of its written form; equal offsets are one zone; without one it is UTC."""
    schema = Schema.of({"t": "timestamp"}, time_zone=BERLIN)
    assert schema.to_dict() == {"__wherecast_time_zone": BERLIN, "t": "timestamp"}
    assert Schema.from_json(schema.to_json()) == schema == Schema.from_yaml(schema.to_yaml())
    assert schema != Schema.of({"t": "timestamp"})
    assert Schema.of({"t": "timestamp"}).time_zone == Schema.of({"t": "timestamp"}, time_zone="Z").time_zone == "UTC"
    assert Schema.of({"a": "int"}, time_zone="UTC+2") == Schema.of({"__wherecast_time_zone": "+02:00", "a": "int"})
    with pytest.raises(SchemaError, match="is the name of a time zone"):
        Schema.of({"__wherecast_time_zone": ["x"], "a": "int"})


def test_domains() -> None:
    """A bound without a zone is read in that of the schema, and survives being written."""
    spec = {"type": "timestamp", "min": "2024-06-01T10:00:00", "max": "2024-06-01T10:00:00Z"}
    schema = Schema.of({"t": spec, "n": {**spec, "type": "timestamp_ntz", "max": "2024-06-02"}}, time_zone=BERLIN)
    domain = schema["t"].domain
    assert domain is not None
    assert domain.minimum == dt.datetime(2024, 6, 1, 8, tzinfo=dt.UTC)
    assert schema["n"].domain.minimum == dt.datetime(2024, 6, 1, 10)  # type: ignore[union-attr]  # noqa: DTZ001
    assert Schema.from_json(schema.to_json()) == schema


FILTERS = [
    "ts >= '2024-06-01 10:00:00'",
    "ts >= TIMESTAMP '2024-06-01 10:00:00'",
    "ts < '2024-06-01 09:00:00'",
    "n >= '2024-06-01 10:00:00' AND n <= '2024-06-01 10:30:00Z'",
    "n >= TIMESTAMP '2024-06-01 10:30:00' AND n <= TIMESTAMP '2024-06-01 08:30:00Z'",
    "n IN (TIMESTAMP '2024-06-01 10:30:00', DATE '2024-01-01')",
    "d = TIMESTAMP '2024-05-31 22:00:00Z'",
    "d < TIMESTAMP '2024-06-01 00:00:00'",
    "d < ts AND n = ts",
    "ts = TIMESTAMP_NTZ '2024-06-01 10:30:00' AND array_contains(all, '2024-06-01 10:30:00')",
    "(n = ts) = (ts BETWEEN DATE '2024-06-01' AND '2024-06-01 10:30:00')",
]
EXPECTED = [0, 1, 3, 4, 5, 6, 8, 9, 10]
EVENT = {
    "ts": dt.datetime(2024, 6, 1, 8, 30, tzinfo=dt.UTC),
    "n": dt.datetime(2024, 6, 1, 10, 30),  # noqa: DTZ001
    "d": dt.date(2024, 6, 1),
    "all": ["2024-06-01T10:30:00"],
}


@pytest.mark.parametrize("matcher", ["adaptive", "scan"])
def test_matching_and_saving(tmp_path, matcher: str) -> None:
    """Filters follow the zone of the schema in boxes and residuals, also after saving and opening."""
    schema = Schema.of(
        {"ts": "timestamp", "n": "timestamp_ntz", "d": "date", "all": "array<timestamp>"}, time_zone=BERLIN
    )
    engine = Engine(schema, matcher=matcher)
    engine.subscribe_many(list(enumerate(FILTERS)))
    engine.save(tmp_path / "saved")
    again = Engine.open(tmp_path / "saved")
    assert again.schema == schema
    for one in (engine, again):
        assert sorted(one.match(EVENT)) == EXPECTED
        assert sorted(one.match_batch([EVENT, {}]).to_list_array()[0].as_py()) == EXPECTED
    assert "ts >= TIMESTAMP '2024-06-01 08:00:00Z'" in str(again.explain(EVENT, 0))
    assert "TIMESTAMP_NTZ '2024-06-01 10:30:00'" in str(again.explain(EVENT, 5))


def test_equal_filters() -> None:
    """Texts that mean the same instant are one filter; the same text is another filter in another zone."""
    texts = [
        "t = '2024-06-01 10:00:00'",
        "t = TIMESTAMP '2024-06-01 08:00:00Z'",
        "t IN (TIMESTAMP_NTZ '2024-06-01 10:00')",
    ]
    found = [Compiler(Schema.of({"t": "timestamp"}, time_zone=z)).compile_many(texts).filters for z in (BERLIN, "UTC")]
    assert [len(set(filters.each_digest())) for filters in found] == [1, 2]


@pytest.mark.parametrize(
    "text",
    [
        "n = TIMESTAMP '2024-03-31 02:30:00'",
        "n < TIMESTAMP '2024-10-27 02:30:00+01:00'",
        "n IN (DATE '2024-01-01', '2024-03-31 03:00:00', TIMESTAMP '2024-01-01 00:00:00')",
    ],
)
def test_two_answers(text: str) -> None:
    """Spark compares a wall clock with an instant in two ways; where they differ, the filter is refused."""
    engine = Engine(Schema.of({"n": "timestamp_ntz"}, time_zone=BERLIN))
    with pytest.raises(FilterError, match="the clocks of Europe/Berlin change at this time"):
        engine.subscribe(1, text)
    engine.subscribe(1, "n = TIMESTAMP_NTZ '2024-03-31 02:30:00' OR n < '2024-10-27 02:30:00'")


def test_wall_clocks_have_no_zone() -> None:
    """A value with a time zone does not fit an attribute that has none, in whatever form it comes."""
    schema = Schema.of({"n": "timestamp_ntz", "l": "array<timestamp_ntz>"}, time_zone=BERLIN)
    moment = dt.datetime(2024, 6, 1, tzinfo=dt.UTC)
    for value in (moment, "2024-06-01T00:00:00Z", pd.Timestamp(moment)):
        for events in ([{"n": value}], pa.table({"n": [value]}), [{"l": [value]}], [{"n": "2024-06-01"}, {"n": value}]):
            with pytest.raises(EventError, match=r"expected timestamp_ntz.*has a time zone; leave the zone out"):
                EventBatch.read(schema, events)
    good = EventBatch.read(schema, [{"n": "2024-03-31 02:30:00"}, {"n": dt.date(2024, 6, 1)}, {"n": None}])
    assert good.array(0).to_pylist() == [dt.datetime(2024, 3, 31, 2, 30), dt.datetime(2024, 6, 1), None]  # noqa: DTZ001


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Monrovia"])
@pytest.mark.parametrize("convert", [walls, instants])
def test_many_moments_as_few(name: str, convert: Callable[[Zone, Longs], Longs]) -> None:
    """Moments of many events are looked up among all changes of some years, those of few day by day."""
    zone, years = find_zone(name), (1972, 2010, 2037, 2100)
    for year in (years[i] for i in all_below(len(years))):
        begin = (year - 1970) * 31_556_952_000_000
        moments = np.random.default_rng(year).integers(begin, begin + 10**14, 3_000)
        together, parts = np.array_split(convert(zone, moments), 30), np.array_split(moments, 30)
        for part in all_below(30):
            assert np.array_equal(together[part], convert(zone, parts[part]))
