from __future__ import annotations

import datetime as dt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherecast.language.events.types import Type
from wherecast.language.syntax.literals import (
    number_type,
    parse_date,
    parse_timestamp,
    read_literals,
    read_number,
    unquote,
)


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("1970-01-01", 0),
        ("1970-01-02", 1),
        ("1969-12-31", -1),
        (" 2024-02-29 ", 19782),
        ("2024-2-9", 19762),
        ("2024-02", 19754),
        ("2024", 19723),
        ("2024-02-29T23:59", 19782),
        ("0001-01-01", -719162),
        ("9999-12-31", 2932896),
    ],
)
def test_dates(text, day):
    """A date may leave out day and month, and anything after a blank or T, as in Spark."""
    assert parse_date(text) == day


@pytest.mark.parametrize("text", ["", "yesterday", "2024-13-01", "2023-02-29", "24-01-01", "2024-01-01x", "2024/01/01"])
def test_no_dates(text):
    """What is no day is refused, with the form to write or the reason."""
    with pytest.raises(ValueError, match="write"):
        parse_date(text)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01 00:00:00", 0),
        ("1970-01-01T00:00:01.5", 1_500_000),
        ("1970-01-01 00:00:00.1234567", 123_456),
        ("1970-01-01 01:00:00+01:00", 0),
        ("1970-01-01 00:00:00Z", 0),
        ("1970-01-01 00:00:00 UTC", 0),
        ("1970-01-01 00:00:00 GMT-1", 3_600_000_000),
        ("1970-01-01 00:00:00-01:30:30", 5_430_000_000),
        ("1970-01-02", 86_400_000_000),
        ("1970", 0),
        ("1970-01-01 1:2", 3_720_000_000),
    ],
)
def test_timestamps(text, micros):
    """A timestamp is microseconds in UTC; fractions are cut at the sixth digit, zones are offsets."""
    wall, offset = parse_timestamp(text)
    assert wall - (offset or 0) == micros
    assert read_literals(Type.TIMESTAMP, [f"'{text}'"]).tolist() == [micros]
    assert read_literals(Type.TIMESTAMP_NTZ, [f"'{text}'"]).tolist() == [wall]


@pytest.mark.parametrize(
    "text", ["noon", "1970-01-01 24:00:00", "1970-01-01 00:60", "1970-01-01 00:00:00+19:00", "1970-02-30 00:00:00"]
)
def test_no_timestamps(text):
    """What is no moment is refused with what to write."""
    with pytest.raises(ValueError, match=r"write|run from"):
        parse_timestamp(text)


@given(st.dates())
def test_dates_round_trip(day):
    """Every date reads back as its day."""
    assert parse_date(day.isoformat()) == (day - dt.date(1970, 1, 1)).days


@pytest.mark.parametrize(
    ("literal", "kind", "digits"),
    [
        ("1", Type.INT, (1, 0)),
        ("2147483647", Type.INT, (10, 0)),
        ("2147483648", Type.BIGINT, (10, 0)),
        ("1L", Type.BIGINT, (1, 0)),
        ("9223372036854775807", Type.BIGINT, (19, 0)),
        ("-9223372036854775808", Type.BIGINT, (19, 0)),
        ("9223372036854775808", Type.DECIMAL, (19, 0)),
        ("1.50", Type.DECIMAL, (3, 2)),
        (".5", Type.DECIMAL, (1, 1)),
        ("5.", Type.DECIMAL, (1, 0)),
        ("0.001", Type.DECIMAL, (3, 3)),
        ("1e3", Type.DOUBLE, (0, 0)),
        ("1.5D", Type.DOUBLE, (0, 0)),
        ("12BD", Type.DECIMAL, (2, 0)),
        ("1e3BD", Type.DECIMAL, (4, 0)),
    ],
)
def test_number_types(literal, kind, digits):
    """Numbers have the type and digits that Spark gives them."""
    assert number_type(literal) == (kind, digits)


@pytest.mark.parametrize("literal", ["1.2.3", ".", "1e999", "9" * 39, "5S", "5Y", "1.5F", "9223372036854775808L", "1e"])
def test_no_numbers(literal):
    """What is no number of ours is refused with what to do."""
    with pytest.raises(ValueError, match=";"):
        number_type(literal)


def test_exact_numbers():
    """Decimals are read exactly: an unscaled integer and a scale, never negative."""
    assert read_number("-1.50") == (-150, 2)
    assert read_number("1e3BD") == (1000, 0)
    assert read_number("1.5e-2BD") == (15, 3)


def test_columns():
    """Literals of one type become a column; suffixes are dropped, quotes undone."""
    assert read_literals(Type.STRING, ["'a'", "'it''s'"]).tolist() == ["a", "it's"]
    assert read_literals(Type.BIGINT, ["1", "-2"]).tolist() == [1, -2]
    assert read_literals(Type.BIGINT, ["1", "2L"]).tolist() == [1, 2]
    assert read_literals(Type.DOUBLE, ["1.5", "2D", "-1e3"]).tolist() == [1.5, 2.0, -1000.0]
    assert read_literals(Type.DECIMAL, ["1.5"]).tolist() == [(15, 1)]
    assert read_literals(Type.DATE, ["'1970-01-02'"]).tolist() == [1]
    assert read_literals(Type.TIMESTAMP, ["'1970-01-01 00:00:01'"]).dtype == np.int64
    assert unquote("''''") == "'"


def test_one_bad_literal_refuses_a_column():
    """The caller finds the row."""
    with pytest.raises(ValueError, match="not a date"):
        read_literals(Type.DATE, ["'1970-01-02'", "'x'"])
