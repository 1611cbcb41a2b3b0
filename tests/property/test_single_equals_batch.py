"""One event alone gets what it gets in a batch: the same subscriptions, or the same error."""

from __future__ import annotations

import datetime as dt
import random
from collections import ChainMap
from collections.abc import Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples, randoms
from tests.property.strategies import STRINGS

from wherecast.engine.engine import Engine
from wherecast.errors import EventError
from wherecast.language.events.kinds import ROWS
from wherecast.language.events.schema import Attribute
from wherecast.matchers.registry import MATCHERS

SCALARS = [
    "boolean", "tinyint", "smallint", "int", "integer", "real", "float", "decimal(9,2)", "decimal(38,4)", "string", "binary", "date",
    "timestamp", "timestamp_ntz",
]  # fmt: skip
MAPS = ["map<string,int>", "map<string,string>", "map<int,decimal(9,2)>", "map<string,date>", "map<date,float>"]
COERCED = ["boolean", "int", "float", "decimal(9,2)", "string"]

CEST = dt.timezone(dt.timedelta(hours=2))


class Text(str):
    """A text of a type of its own."""

    __slots__ = ()


#: Values of any sort: what fits one attribute is an error in another.
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 7, 127, 128, -129, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 10**30,
    0.0, -0.0, 0.1, 2.5, 3.0, 1e39, float("nan"), float("inf"), -1e308, Decimal("1.50"), Decimal(2), Decimal("NaN"), Decimal("1e40"), Decimal("0.001"),
    "", "a", "AB", "ß", "É", "1", "-7", "2.5", "true", " 3 ", "nan", "2024-01-31", "2024-01-31T10:00:00Z", "2024-01-31 10:00:00.5", "\ud800", "a\0b", Text("a"),
    *STRINGS, b"", b"ab", bytearray(b"a"), memoryview(b"\xff"), dt.date(2024, 1, 31), dt.date(1, 1, 1), dt.datetime(2024, 1, 31, 10, tzinfo=dt.UTC),
    dt.datetime(2024, 1, 31, 12, tzinfo=CEST), dt.datetime(2024, 1, 31, 10), dt.datetime(1, 1, 1, tzinfo=CEST), dt.datetime(2024, 10, 27, 2, 30, fold=1),  # noqa: DTZ001
    dt.timedelta(1), dt.time(1), np.int8(7), np.int64(2**40), np.uint64(2**63), np.float32(0.1), np.float64("nan"), np.bool_(True), np.str_("a"), np.datetime64("2024-01-31"),
    np.datetime64("2024-01-31T10:00:00.123456789"), np.datetime64("NaT"), pd.NaT, pd.NA, pd.Timestamp("2024-01-31T10:00:00Z"), pd.Timestamp("2024-01-31 10:00:00"),
    [], ["a", None, "ß", "a"], ["a", 1], [1, 2, None], [True], [2.5, float("nan"), 1], ("a", "b"), [["a"]], np.array([1, 2]), np.array(["a"]), [dt.date(2024, 1, 31)],
    [dt.datetime(2024, 1, 31, 10), None], [Decimal("1.5")], [b"ab"], {"a"}, {}, {"v": 1}, {"v": "a", "w": None}, [{"v": 1}, {"v": None}], object,  # noqa: DTZ001
    {"a": 1, "b": None}, {"a": 7, "ß": -1}, {"a": "AB", "": "a"}, {1: Decimal("1.50"), 7: None}, {"a": dt.date(2024, 1, 31)}, {dt.date(2024, 1, 31): 2.5}, {None: 1}, [("a", 1), ("a", 2)], [("a", 1)],
]  # fmt: skip

LITERALS = {
    "boolean": ["TRUE", "FALSE"],
    "string": ["'a'", "'AB'", "'ß'", "''", "'1'", "'true'"],
    "binary": ["X'6162'", "X''", "X'FF'"],
    "date": ["DATE '2024-01-31'", "DATE '1970-01-01'"],
    "timestamp": ["TIMESTAMP '2024-01-31 10:00:00Z'", "TIMESTAMP '2024-01-31 08:00:00Z'"],
    "timestamp_ntz": ["TIMESTAMP_NTZ '2024-01-31 10:00:00'"],
}


def make_filters(rng: random.Random, name: str, kind: str, others: list[str]) -> list[str]:
    """Filters on one attribute, and on another one beside it: boxes, residuals, text tests, columns of expressions."""
    literals = LITERALS.get(kind.removeprefix("array<").removesuffix(">"), ["0", "1", "7", "-1"])
    found = [f"{name} IS NULL", f"{name} IS NOT NULL"]
    if kind.startswith("map<"):
        return found + _filters_on_map(name, *kind[4:-1].split(",", 1))
    if kind.startswith("array<"):
        found += [f"array_contains({name}, {literal})" for literal in literals]
        return [*found, f"size({name}) > 1", f"NOT array_contains({name}, {literals[0]}) AND size({name}) <> 2"]
    if kind == "boolean":
        return [*found, name, f"NOT {name}", f"{name} <=> NULL OR {name}"]
    found += [f"{name} {rng.choice(['=', '<>', '<', '>='])} {literal}" for literal in literals]
    found += [f"{name} IN ({', '.join(literals)})", f"{name} = {literals[0]} OR {rng.choice(others)} IS NULL"]
    if kind == "string":
        found += [f"{name} LIKE '%{part}%'" for part in ("a", "b", "ß", "SS")]
        found += [f"{name} ILIKE '{part}%'" for part in ("a", "é", "ab")]
        found += [f"NOT {name} LIKE '%a%' AND {rng.choice(others)} IS NOT NULL", f"{name} LIKE '%a%b%'"]
        found += [f"{name} RLIKE '^a|B$'", f"length({name}) = {rng.randint(0, 3)}"]
        found += [f"NOT {name} ILIKE '%s%' OR lower({name}) = 'ab'"]
        return found
    if kind not in LITERALS:  # numbers: enough of them to make a column of the expression
        found += [f"{name} {rng.choice(['=', '<', '>='])} {literal}" for literal in ("2.5", "2147483648", "0.1")]
        found += [f"{name} * 2 > {number}" for number in range(-4, 6)]
        found += [f"{name} + 1 < 3 AND {rng.choice(others)} IS NOT NULL"]
    return found


def _filters_on_map(name: str, key: str, value: str) -> list[str]:
    keys = LITERALS.get(key, ["1", "7"])[:2]
    literals = LITERALS.get(value, ["0", "1", "7", "-1", "1.5", "2", "3", "4", "5", "6"])
    found = [f"map_contains_key({name}, {each})" for each in keys] + [f"size({name}) > 1"]
    found += [f"{name}[{each}] IS NULL" for each in keys]
    return found + [f"{name}[{each}] >= {literal}" for each in keys for literal in literals]


def make_case(rng: random.Random) -> tuple[dict[str, Any], list[str]]:
    """A schema, and filters on its attributes."""
    schema: dict[str, Any] = {}
    for name in rng.sample(["a", "b", "c", "d", "s.v", "s.w", "`x.y`", "E"], rng.randint(1, 6)):
        if rng.random() < 0.2:
            schema[name] = {"type": rng.choice(COERCED), "coerce": True}
        else:
            kind = rng.choice(SCALARS)
            schema[name] = rng.choice(MAPS) if rng.random() < 0.1 else f"array<{kind}>" if rng.random() < 0.2 else kind
    names, filters = list(schema), []
    for name, form in schema.items():
        kind = form["type"] if isinstance(form, dict) else form
        made = make_filters(rng, name, kind, names)
        filters += rng.sample(made, rng.randint(1, len(made)))
    return schema, filters


def make_event(rng: random.Random, schema: dict[str, Any], fitting: dict[str, list[Any]]) -> Any:
    """An event: mostly values that fit, under all names by which attributes are known, and some that are not."""
    event: dict[Any, Any] = {}
    for name in schema:
        value = rng.choice(fitting[name]) if rng.random() < 0.9 else rng.choice(VALUES)
        first, _, rest = name.partition(".")
        if rng.random() < 0.15:
            continue
        if name.startswith("`"):
            event[name.strip("`")] = value
        elif rest and rng.random() < 0.7:
            if isinstance(event.setdefault(first, {}), dict):
                event[first][rest] = value
        elif rng.random() < 0.05:
            event[name.upper()] = value
        else:
            event[name] = value
    if rng.random() < 0.1:
        event |= {rng.choice(["zz", "s", 5, "x"]): rng.choice(VALUES)}
    if rng.random() < 0.3:
        event |= {f"more{i}": 1 for i in range(10)}
    return rng.choice([event, event, event, MappingProxyType(event), ChainMap({}, event)])


_FITTING: dict[str, list[Any]] = {}


def fits(form: Any) -> list[Any]:
    """The values that an attribute takes."""
    if str(form) not in _FITTING:
        engine = Engine({"a": form})
        engine.subscribe("all", "a IS NOT NULL")
        found = [v for v in VALUES if not isinstance(outcome(lambda v=v: alone(engine, {"a": v})), tuple)]
        _FITTING[str(form)] = found
    return _FITTING[str(form)]


def alone(engine: Engine, event: Mapping[str, Any]) -> list[Any]:
    return engine.match_batch([event]).subscription_ids().tolist()


def outcome(work: Any) -> Any:
    """Sorted ids without repetition, or the error."""
    try:
        found = work()
    except EventError as error:
        return str(error), error.row, error.attribute
    assert len(set(found)) == len(found)
    return sorted(found, key=repr)


@pytest.mark.sampled
@examples(40)
@given(randoms(), st.booleans(), st.booleans())
@pytest.mark.parametrize("matcher", ["adaptive", "scan", "counting"])
def test_an_event_alone_is_an_event_of_a_batch(matcher: str, rng: random.Random, strict: bool, has_texts: bool) -> None:
    """Any values, also those that do not fit, in any mapping: the same ids, or the same error at the same place."""
    schema, filters = make_case(rng)
    engine = Engine(schema, matcher=matcher, strict=strict)
    names = {number: f"s{number}" if has_texts else number for number in range(len(filters))}
    half = len(filters) // 2
    engine.subscribe_many((names[n], filters[n]) for n in range(half))
    for number in range(half, len(filters)):  # the log, and what is removed
        engine.subscribe(names[number], filters[number])
    for number in rng.sample(range(len(filters)), len(filters) // 5):
        engine.unsubscribe(names[number])
    fitting = {name: fits(form) for name, form in schema.items()}
    for _ in range(12):
        event = make_event(rng, schema, fitting)
        assert outcome(lambda e=event: engine.match(e)) == outcome(lambda e=event: alone(engine, e)), (schema, event)


@pytest.mark.parametrize("matcher", MATCHERS)
def test_every_matcher_matches_one_event(matcher: str) -> None:
    """Sets of codes and many matches, through the path of single events."""
    engine = Engine({"t": "string", "n": "int", "tags": "array<string>"}, matcher=matcher)
    filters = [f"t LIKE '%{chr(97 + i % 26)}{'b' * (i % 3)}%'" for i in range(60)]
    filters += [f"n > {i}" for i in range(60)] + [f"array_contains(tags, '{i % 7}') AND n < {i}" for i in range(60)]
    engine.subscribe_many(dict(enumerate(filters)))
    events = [{"t": "abbabbcdbe", "n": 30, "tags": ["1", "2", "x"]}, {"t": "", "n": -5, "tags": []}, {"n": 59}, {}]
    for event in events:
        assert outcome(lambda e=event: engine.match(e)) == outcome(lambda e=event: alone(engine, e))


@pytest.mark.parametrize("value", VALUES, ids=[f"{type(v).__name__}-{i}" for i, v in enumerate(VALUES)])
def test_plain_values_are_what_fitting_them_gives(value: Any) -> None:
    """The quick look at a value says yes only where fitting and storing it changes nothing."""
    for row in ROWS.values():
        if row.has_digits:
            continue
        for bits, form in row.forms.items():
            if form.is_plain(value):
                for coerce in {False, row.coerce is not None}:
                    attribute = Attribute("a", row.kind, bits=bits, coerce=coerce)
                    stored = attribute.stored(attribute.fit(value))
                    assert type(stored) is type(value)
                    assert stored == value or (stored != stored and value != value)
