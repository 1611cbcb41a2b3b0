"""CASE, CAST, lambdas, subscripts and intervals: what they give, and that they come back from text and from a snapshot."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest

from wherecast.engine.engine import Engine
from wherecast.language.casts import cast, write_double
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import Type
from wherecast.language.events.zone import UTC
from wherecast.language.filters.compile import Compiler
from wherecast.language.intervals import read_amount
from wherecast.language.nullable import Nullable

SCHEMA = {
    "i": "int",
    "l": "integer",
    "d": "double",
    "b": "boolean",
    "s": "string",
    "day": "date",
    "ts": "timestamp",
    "marks": "array<integer>",
    "tags": "array<string>",
}
EVENTS = [
    {
        "i": 5,
        "l": 7,
        "d": 2.5,
        "b": True,
        "s": "5",
        "day": dt.date(2024, 1, 31),
        "ts": dt.datetime(2024, 3, 30, 2, 30, tzinfo=dt.UTC),
        "marks": [1, None, 9],
        "tags": ["a", "b"],
    },
    {"i": -7, "l": 0, "d": float("nan"), "b": False, "s": "true", "marks": [], "tags": [None]},
    {"s": "2024-01-31", "d": 1e10},
    {},
]
#: A filter and the events that it matches.
CASES = [
    ("CASE WHEN i > 0 THEN 'p' WHEN i < 0 THEN 'n' ELSE 'none' END = 'none'", [2, 3]),
    ("CASE i WHEN 5 THEN l WHEN -7 THEN 1.5 END > 1", [0, 1]),
    ("CASE WHEN b THEN l > 5 ELSE s IS NULL END", [0, 3]),
    ("CASE WHEN b THEN FALSE END IS NULL", [1, 2, 3]),
    ("CAST(s AS INT) = 5 OR CAST(s AS BOOLEAN)", [0, 1]),
    ("CAST(s AS DATE) = DATE '2024-01-31'", [2]),
    ("CAST(d AS INT) = 2", [0]),
    ("CAST(d AS INT) IS NULL", [1, 2, 3]),
    ("d::string IN ('2.5', 'NaN', '1.0E10')", [0, 1, 2]),
    ("CAST(d AS DECIMAL(3, 1)) = 2.5", [0]),
    ("s = 5 OR l = '0'", [0, 1]),
    ("b = 'yes' OR s = b", [0]),
    ("day = s OR s > day", []),
    ("s IN (5, 6) OR i IN ('-7', '8')", [0, 1]),
    ("i & 4 = 4 AND i | 2 = 7 AND i ^ 1 = 4 AND ~i = -6 AND i << 1 = 10 AND i >> 1 = 2", [0]),
    ("i DIV 2 = -3 OR l DIV 0 = 1", [1]),
    ("s || '-' || i = '5-5' OR 'x' || b = 'xfalse'", [0, 1]),
    ("+i = 5", [0]),
    ("s LIKE ANY ('5%', 't%')", [0, 1]),
    ("s NOT LIKE ALL ('5%', 't%')", [2]),
    ("s LIKE '%!-01!-31' ESCAPE '?' OR s LIKE '2024-01-3_' ESCAPE '!'", [2]),
    ("day + INTERVAL 1 MONTH = DATE '2024-02-29' AND day + 1 = DATE '2024-02-01' AND day - INTERVAL 1 WEEK < day", [0]),
    ("ts + INTERVAL '1 01:00:00' DAY TO SECOND = TIMESTAMP '2024-03-31 03:30:00'", [0]),
    ("ts - day > INTERVAL 59 DAYS AND day - DATE '2024-01-01' = INTERVAL 30 DAYS", [0]),
    ("day + - INTERVAL 1 DAY = DATE '2024-01-30' AND ts - day > -INTERVAL 1 HOUR", [0]),
    ("marks[0] = 1 AND marks[1] IS NULL AND marks[i] IS NULL AND tags[1] = 'b'", [0]),
    ("exists(marks, m -> m > 8)", [0]),
    ("exists(marks, m -> m = 9) AND exists(tags, t -> t IN ('b', 'c') AND i > 1)", [0]),
    ("forall(marks, m -> m > 8)", [1]),
    ("forall(tags, t -> exists(marks, m -> length(t) = m))", [0]),
    ("exists(tags, t -> t LIKE 'x%') IS NULL", [1, 2, 3]),
    ("b IS UNKNOWN", [2, 3]),
]


@pytest.fixture(scope="module")
def engine() -> Engine:
    engine = Engine(Schema.of(SCHEMA), matcher="scan")
    assert not engine.subscribe_many([(number, text) for number, (text, _) in enumerate(CASES)]).quarantined
    return engine


def matched(engine: Engine) -> list[list[int]]:
    """The events that each filter matches."""
    rows = [set(ids) for ids in engine.match_batch(EVENTS)]
    return [[row for row, ids in enumerate(rows) if number in ids] for number in range(len(CASES))]


EXPECTED = [rows for _, rows in CASES]


def test_forms_give_what_they_say(engine: Engine) -> None:
    assert dict(zip([text for text, _ in CASES], matched(engine), strict=True)) == dict(CASES)


def test_forms_are_written_back(engine: Engine) -> None:
    """The text that `engine[id]` gives means the same."""
    again = Engine(Schema.of(SCHEMA), matcher="scan")
    assert not again.subscribe_many([(number, engine[number]) for number in range(len(CASES))]).quarantined
    assert matched(again) == EXPECTED


def test_forms_are_stored(engine: Engine, tmp_path) -> None:
    """A snapshot holds the forms as SQL, and reads them back through the parser."""
    engine.save(tmp_path / "engine")
    assert matched(Engine.open(tmp_path / "engine")) == EXPECTED


def test_equal_spellings_are_one_filter() -> None:
    """Other spellings of one expression have one digest."""
    spellings = ["CAST(s AS BIGINT) = 5", "s::bigint = 5", "5 = try_cast(s AS LONG)"]
    assert len(set(Compiler(Schema.of(SCHEMA)).compile_many(spellings).filters.each_digest())) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.5, "1.5"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.00012, "1.2E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-1.25e-10, "-1.25E-10"),
        (float("inf"), "Infinity"),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert write_double(value) == text


@pytest.mark.parametrize(
    ("unit", "text", "amount"),
    [
        ("DAY", "2", 172_800_000_000),
        ("SECOND", "-1.5", -1_500_000),
        ("YEAR", "2", 24),
        ("YEAR TO MONTH", "-1-6", -18),
        ("DAY TO SECOND", "1 02:03:04.5", 93_784_500_000),
        ("MINUTE TO SECOND", "90:30", 5_430_000_000),
    ],
)
def test_amounts_of_intervals(unit: str, text: str, amount: int) -> None:
    assert read_amount(unit, text) == amount


@pytest.mark.parametrize(
    ("unit", "text"), [("DAY", "1.5"), ("DAY TO HOUR", "1 24"), ("YEAR TO MONTH", "1-12"), ("DAY", "x")]
)
def test_amounts_that_are_none(unit: str, text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_amount(unit, text)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1." + "0" * 5_000 + "1", Type.DECIMAL, 100),
        ("0." + "0" * 5_000 + "1", Type.DECIMAL, 0),
        ("9" * 5_000, Type.DECIMAL, None),
        ("1e999999999", Type.DECIMAL, None),
        ("9" * 5_000, Type.BIGINT, None),
        ("0x1p99999", Type.DOUBLE, float("inf")),
        ("-0x1p99999", Type.DOUBLE, float("-inf")),
        ("9999999-01-01", Type.DATE, None),
        ("2024-01-01 00:00:00 ../../etc", Type.TIMESTAMP, None),
    ],
)
def test_hostile_texts_are_cast(text: str, kind: Type, value: object) -> None:
    """A text of an event is cast or NULL; it never raises."""
    found = cast(Nullable(np.array([text], object), np.ones(1, bool)), Type.STRING, 0, kind, (10, 2), UTC)
    assert (found.values[0] if found.valid[0] else None) == value


def test_a_cast_of_nothing() -> None:
    """A bare NULL can be cast to every type."""
    for kind in (Type.BIGINT, Type.STRING, Type.DECIMAL, Type.DATE):
        found = cast(Nullable(np.zeros(2, bool), np.zeros(2, bool)), Type.NULL, 0, kind, (10, 2), UTC)
        assert not found.valid.any()
