"""The steps of a kernel (`language.steps`) give what `evaluate` gives, with the same NULLs, for every plain expression."""

from __future__ import annotations

import datetime as dt
import random
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle import texts as oracle

from wherecast import Schema
from wherecast.index.expressions import ExpressionColumn, column_at, statement_of
from wherecast.index.operands import attribute_values
from wherecast.index.stored import find_values
from wherecast.kernels.step_kinds import BLOCK, MANY
from wherecast.language.events.events import EventBatch
from wherecast.language.filters.columns import Reading
from wherecast.language.filters.compile import Compiler
from wherecast.language.steps import Recipe

_TYPES = {
    "x": "double", "y": "double", "f": "real", "n": "bigint", "m": "bigint", "i": "int", "j": "int", "s": "smallint",
    "t": "timestamp", "w": "timestamp_ntz", "d": "date", "e": "date", "tags": "array<string>", "attrs": "map<string,string>",
}  # fmt: skip

#: Each has steps.
PLAIN = (
    "x * n > 1", "n * x > 1", "x + n > 1", "n + x > 1", "x - n > 1", "n - x > 1", "x * y > 1", "x + y > 1", "x - y > 1",
    "x / y > 1", "n / m > 1", "x / 3 > 1", "x * 1.5 > 1", "f + i > 1", "f * f > 1", "-x > 1", "-n > 1", "-i > 1", "-s > 1",
    "n + m > 1", "n - m > 1", "n * m > 1", "i + j > 1", "i - j > 1", "i * j > 1", "cast(s AS smallint) + s > 1", "n * n * n > 1",
    "x > y", "x >= y", "x < y", "x <= y", "x = y", "x <> y", "n > m", "n <= m", "n = m", "n <> i", "n > x", "t > '2024-01-01' OR x > n",
    "d < e", "d = e AND n > m", "(x > y) = (n > m)", "x > y OR n > m", "x > y AND n > m", "NOT (x > y) OR n * 2 > m", "(x > y OR x < 3) IS NULL",
    "(x > y) IS TRUE", "(x > y) IS NOT FALSE", "x + n IS NULL",
    "CASE WHEN x > 50 THEN n ELSE 0 END = 1", "CASE WHEN x > n THEN y WHEN n > m THEN x END > 1", "CASE WHEN x > y THEN i ELSE m END > 1",
    "CASE WHEN x < 50 THEN n ELSE m END = 1", "CASE WHEN x >= 2.5 THEN x ELSE y END > 1", "CASE WHEN x <= 0 THEN n ELSE 0 END = 1",
    "CASE WHEN x = 1.5 THEN n ELSE m END = 1", "if(1.5 = x, n, m) = 1", "if(50 >= x, n, m) = 1", "if(2 < x, n, m) = 1",
    "CASE WHEN n > 1 THEN x ELSE y END > 1", "CASE WHEN n < 1 THEN x ELSE y END > 1", "if(1 >= n, x, y) > 1", "if(1 <= n, n, m) > 1", "if(3 = n, m, 0) > 1",
    "if(x > 2, 7, n) > 1", "if(x > 2, 7, 0) > 1", "if(2 < x, 7, n) > 1", "if(50 >= x, n, 7) > 1", "if(n >= 3, 2.5, x) > 1", "if(3 >= n, x, 2.5) > 1", "if(n = 3, 7, m) > 1",
    "CASE WHEN x > y THEN x > y ELSE n > m END", "if(n = m, n, if(n >= m, m, 3)) > 1", "CASE WHEN x >= y THEN x WHEN NOT x >= y THEN y END > 1",
    "if(x = y, n, m) > 1", "if(x < 2, n, m) + if(x < 2, 1, 2) > 3", "if(n > m, x, y) > 1", "if(x > y, d, e) > DATE'2024-01-01'", "coalesce(x, 0) + 1 > 1", "coalesce(n, m, i) + 1 > 1", "coalesce(x, y) > 1",
    "coalesce(t, t) IS NULL OR coalesce(n, m) > 1", "coalesce(CASE WHEN x > y THEN n END, m) * 2 > 1",
    "cast(x AS int) = 1", "cast(x AS bigint) = 1", "cast(x AS smallint) = 1", "cast(f AS tinyint) = 1", "cast(n AS int) = 1", "cast(n AS smallint) + 1 = 1",
    "cast(n AS double) > 1.5", "cast(x AS float) > 1.5", "cast(f AS double) * 2 > 1.5",
    "datediff(t, d) = 1", "datediff(d, e) = 1", "datediff(w, t) > 1", "hour(t) + 1 = 1", "minute(t) = 1", "second(w) = 1", "hour(t) * x > 1",
    "date_trunc('HOUR', t) > '2024-01-01'", "date_trunc('day', t) > '2024-01-01'", "date_trunc('second', t) > '2024-01-01'",
    "size(tags) = 1", "size(attrs) > 1", "size(tags) * n > 1",
)  # fmt: skip
#: Rounded moments and zones with summer time need more than steps.
NOT_PLAIN = ("date_trunc('MONTH', t) > '2024-01-01'", "date_trunc('millisecond', t) > '2024-01-01'", "length(k) > n")

_INFINITE = (float("nan"), float("inf"), float("-inf"))
_DOUBLES = (0.0, -0.0, 1.5, -1.0, 50.0, 2.0**31, -(2.0**31) - 1, 2.0**63, -(2.0**63), 1e300, *_INFINITE)
_LONGS = (0, 1, -1, 2, 2**31, -(2**31), 2**32, 3037000500, -3037000500, 2**62, 2**63 - 1, -(2**63))
_MICROS = (
    0,
    1,
    -1,
    3_600_000_000,
    86_400_000_000 - 1,
    -86_400_000_000,
    1_700_000_000_000_000,
    -62_135_596_800_000_000,
    253_402_300_799_999_999,
)


def _any(edges: tuple[Any, ...], others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | st.sampled_from(edges) | others


_VALUES = {
    "double": _any(_DOUBLES, st.floats()),
    "real": _any(tuple(float(np.float32(v)) for v in _DOUBLES if abs(v) < 1e30), st.floats(width=32)),
    "bigint": _any(_LONGS, st.integers(-(2**63), 2**63 - 1)),
    "int": _any((0, 1, -1, 2**31 - 1, -(2**31), 46341), st.integers(-(2**31), 2**31 - 1)),
    "smallint": _any((0, 1, -(2**15), 2**15 - 1), st.integers(-(2**15), 2**15 - 1)),
    "timestamp": _any(_MICROS, st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)),
    "date": _any((0, -1, 19_000), st.integers(-719_162, 2_932_896)),
    "array<string>": st.none() | st.lists(st.sampled_from(("a", None)), max_size=3),
    "map<string,string>": st.none()
    | st.dictionaries(st.sampled_from("ab"), st.just("v")).map(lambda d: list(d.items())),
}
_ARROW = {
    "double": pa.float64(), "real": pa.float32(), "bigint": pa.int64(), "int": pa.int32(), "smallint": pa.int16(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"), "date": pa.date32(),
    "array<string>": pa.list_(pa.string()), "map<string,string>": pa.map_(pa.string(), pa.string()),
}  # fmt: skip


@st.composite
def _events(draw: st.DrawFn) -> pa.Table:
    """A few rows, repeated until there are several blocks; columns with and without NULL."""
    count, times = draw(st.integers(1, 7)), draw(st.sampled_from((1, 2, BLOCK // 4)))
    columns = {}
    for name, kind in _TYPES.items():
        values = draw(
            st.lists(_VALUES["timestamp" if kind == "timestamp_ntz" else kind], min_size=count, max_size=count)
        )
        if draw(st.booleans()):
            known = next((value for value in values if value is not None), None)
            values = [known if value is None else value for value in values]
        columns[name] = pa.array(values * times, _ARROW[kind])
    return pa.table(columns)


def _column(filter_text: str, schema: Schema) -> ExpressionColumn:
    programs = Compiler(schema).compile_many([filter_text]).filters.programs
    assert statement_of(programs[0].residuals[0]) is not None
    return column_at(programs, 0, 0, 0)


_SCHEMA = Schema.of({**_TYPES, "k": "string"}, time_zone="UTC")
_FIXED = Schema.of({**_TYPES, "k": "string"}, time_zone="+05:30")


@pytest.mark.parametrize("filter_text", NOT_PLAIN)
def test_other_expressions_have_no_steps(filter_text: str) -> None:
    """What is not plain is left to `evaluate`."""
    assert _column(filter_text, _SCHEMA).recipe(_SCHEMA.zone) is None


@pytest.mark.parametrize(
    ("filter_text", "is_direct"),
    [("n - m > 1", True), ("cast(x AS int) = 1", True), ("size(tags) = 1", True), ("hour(w) = 1", False), ("x * 1.5 > 1", False),
     ("if(x > 2, n, 0) > 1", True), ("if(2 < x, 7, n) > 1", True), ("if(x > 2, n, m) > 1", True), ("if(x > y, n, m) > 1", True), ("if(x > y, n, 3) > 1", False), ("if(x > 2, 7, 0) > 1", False),
     ("x * n > 1", False), ("n * m + n > 1", False), ("n * i > 1", True), ("i * j > 1", False), ("datediff(t, d) = 1", False)],
)  # fmt: skip
def test_one_step_goes_over_all_rows_at_once(filter_text: str, is_direct: bool) -> None:
    """If all that is read row by row is in the batch, and all that is written is the result."""
    recipe = _column(filter_text, _SCHEMA).recipe(_SCHEMA.zone)
    assert recipe is not None
    assert recipe.is_direct == is_direct


def test_zones_with_summer_time_have_no_steps() -> None:
    """The day of a timestamp is a matter of the zone's table there."""
    schema = Schema.of(_TYPES, time_zone="Europe/Berlin")
    assert _column("datediff(t, d) = 1", schema).recipe(schema.zone) is None


@cache
def _recipes(schema: Schema) -> list[tuple[str, ExpressionColumn, Recipe]]:
    columns = [(text, _column(text, schema)) for text in PLAIN]
    recipes = [(text, column, column.recipe(schema.zone)) for text, column in columns]
    assert [text for text, _, recipe in recipes if recipe is None] == []
    return [(text, column, recipe) for text, column, recipe in recipes if recipe is not None]


@settings(max_examples=40, deadline=None)
@given(table=_events(), first=st.integers(0, 3), schema=st.sampled_from((_SCHEMA, _FIXED)))
def test_steps_equal_evaluation(table: pa.Table, first: int, schema: Schema) -> None:
    """A batch that begins anywhere in its memory has the same keys both ways."""
    whole = EventBatch.read(schema, table)
    events = whole.slice(min(first, len(whole) - 1), len(whole))
    for text, column, recipe in _recipes(schema):
        _check(column, recipe, events, schema, text)


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_expressions(seed: int) -> None:
    """What the conditions of the oracle compute, where it is plain, on more than one block of events."""
    rng = random.Random(seed)
    schema, maker = Schema.of(oracle.SCHEMA), oracle.TextMaker(rng)
    events = EventBatch.read(schema, oracle.make_events(rng, BLOCK + 76))
    programs = Compiler(schema).compile_many([maker.condition() for _ in range(100)]).filters.programs
    for number, program in enumerate(programs):
        for at, residual in enumerate(program.residuals):
            statement = statement_of(residual)
            if statement is None or statement.reading is not Reading.VALUE:
                continue
            column = column_at(programs, number, at, 0)
            recipe = column.recipe(schema.zone)
            if recipe is not None:
                _check(column, recipe, events, schema, str(column.of))


def test_large_batches_have_shorter_blocks() -> None:
    """The last block is not full, and NULLs begin in one of the others."""
    numbers = np.random.default_rng(1)
    n = MANY + 3
    days = pa.array(numbers.integers(0, 20_000, n).astype(np.int32), mask=np.arange(n) > n - BLOCK - 7)
    micros = pa.array(numbers.integers(-(2**52), 2**52, n), pa.timestamp("us", "UTC"))
    events = EventBatch.read(
        _SCHEMA, pa.table({"t": micros, "d": days.cast(pa.date32()), "x": numbers.random(n), "y": numbers.random(n)})
    )
    for text in ("datediff(t, d) = 1", "coalesce(x, y) + 1 > 1", "coalesce(x, y) > 1"):
        column = _column(text, _SCHEMA)
        recipe = column.recipe(_SCHEMA.zone)
        assert recipe is not None
        _check(column, recipe, events, _SCHEMA, text)


def _check(column: ExpressionColumn, recipe: Recipe, events: EventBatch, schema: Schema, what: str) -> None:
    found = recipe.run(find_values(events, column.attributes), len(events))
    expected = column.values(lambda attr: attribute_values(events, attr), len(events), schema.zone)
    assert found.valid.tolist() == expected.valid.tolist(), what
    assert found.values[found.valid].tolist() == expected.values[expected.valid].tolist(), what


def test_moments_before_1970_and_after() -> None:
    """The first and the last microsecond of a day belong to it, also far from 1970."""
    column, day = _column("datediff(t, d) = 1", _SCHEMA), 86_400_000_000
    days = np.array([-719_162, -1, 0, 1, 19_000, 2_932_896])
    micros = np.concatenate([days * day, days * day + day - 1])
    table = pa.table(
        {"t": pa.array(micros, pa.timestamp("us", "UTC")), "d": pa.array([dt.date(1970, 1, 1)] * 12, pa.date32())}
    )
    recipe = column.recipe(_SCHEMA.zone)
    assert recipe is not None
    found = recipe.run(find_values(EventBatch.read(_SCHEMA, table), column.attributes), 12)
    assert found.values.tolist() == [*days.tolist(), *days.tolist()]


@pytest.mark.parametrize("farthest", [2**49, 253_402_300_799_999_999])
@pytest.mark.parametrize(("call", "unit", "count"), [("hour", 3_600, 24), ("minute", 60, 60), ("second", 1, 60)])
def test_moments_around_units(call: str, unit: int, count: int, farthest: int) -> None:
    """The last microsecond of an hour, minute or second belongs to it; moments near 1970 are computed in another way than those far from it."""
    unit *= 1_000_000
    most = farthest // unit - 1
    units = np.concatenate(
        [np.random.default_rng(1).integers(-min(most, 62_135_596_800_000_000 // unit), most, 2000), [-1, 0, 1]]
    )
    micros = np.concatenate([units * unit - 1, units * unit, units * unit + 1])
    column = _column(f"{call}(w) = 1", _SCHEMA)
    recipe = column.recipe(_SCHEMA.zone)
    assert recipe is not None
    for size in (micros.size, BLOCK - 1, BLOCK, BLOCK + 1, 1, 0):
        events = EventBatch.read(_SCHEMA, pa.table({"w": pa.array(micros[:size], pa.timestamp("us"))}))
        found = recipe.run(find_values(events, column.attributes), size)
        assert found.values.tolist() == (micros[:size] // unit % count).tolist()


@pytest.mark.parametrize("kind", ["tinyint", "smallint", "int", "bigint"])
def test_whole_parts_around_limits(kind: str) -> None:
    """A double is cut off towards zero; it is NULL where its whole part does not fit, and NaN has none."""
    column = _column(f"cast(x AS {kind}) = 1", _SCHEMA)
    recipe = column.recipe(_SCHEMA.zone)
    assert recipe is not None
    limits = [float(2 ** (bits - 1)) for bits in (8, 16, 32, 51, 52, 53, 54, 64)]
    edges = [sign * limit for limit in limits for sign in (1, -1)]
    near = [
        value for edge in edges for value in (edge, edge - 1, edge + 1, edge - 0.5, edge + 0.5, np.nextafter(edge, 0))
    ]
    values = [*near, *_INFINITE, 0.0, -0.0, 0.9, -0.9, 5e-324]
    events = EventBatch.read(_SCHEMA, pa.table({"x": pa.array(values, pa.float64())}))
    _check(column, recipe, events, _SCHEMA, kind)
    most = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}[kind]
    found = recipe.run(find_values(events, column.attributes), len(values))
    # Spark casts by Java's rules, by which 2 ** 63 becomes the last 64-bit integer.
    exact = [int(v) if np.isfinite(v) else most + 1 for v in values]
    fits = [-most <= v < most or (kind == "bigint" and v == most) for v in exact]
    assert found.valid.tolist() == fits
    assert found.values[found.valid].tolist() == [
        min(v, most - 1) for v, is_fit in zip(exact, fits, strict=True) if is_fit
    ]
