"""Expressions over many events, which kernels compute, against the same events a few at a time."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from wherecast import Engine, Schema
from wherecast.index.operands import attribute_values
from wherecast.language.evaluate import evaluate
from wherecast.language.events.events import EventBatch
from wherecast.language.events.keys import DAY_US, whole_days
from wherecast.language.expression import Compare
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import Program
from wherecast.language.syntax.literals import ProgramScope

_N = 600
_DOUBLES = [
    *(0.0, -0.0, 1.5, -1.5, 127.9, 128.0, -128.9, -129.0, 32767.5, 2147483647.5, 2147483648.0, -2147483648.9, -2147483649.0),
    *(9223372036854774784.0, 2.0**63, 9223372036854777856.0, -(2.0**63), -9223372036854777856.0),
    *(float("nan"), float("inf"), float("-inf"), 1e300, None),
]  # fmt: skip
_INTEGERS = [
    0,
    1,
    -1,
    7,
    99,
    100,
    -100,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    *(s * 10**k for k in range(1, 19) for s in (1, -1)),
    None,
]
#: Midnights, and the moments before them; far from 1970 a double does not tell the two apart.
_MOMENTS = [
    dt.datetime(year, month, 1, tzinfo=dt.UTC) - dt.timedelta(microseconds=before)
    for year in (2, 1600, 1969, 1970, 2024, 9990, 9999)
    for month in range(1, 13)
    for before in (0, 1)
]
_SCHEMA = Schema.of(
    {"a": "string", "x": "double", "n": "bigint", "t": "timestamp", "day": "date", "tags": "array<string>"}
)
_EXPRESSIONS = [
    *(f"x {op} n" for op in "+-*/%"),
    *(f"n {op} x" for op in "+-*"),
    *(f"cast(x AS {kind})" for kind in ("tinyint", "smallint", "int", "bigint")),
    *("cast(n AS string)", "cast(n > 5 AS string)", "lower(a)", "upper(a)"),
    *("datediff(t, day)", "datediff(day, t)", "datediff(t, t)", "size(tags)", "tags[1]"),
    *("CASE WHEN x > 50 THEN n ELSE 0 END", "CASE WHEN x <= 50 THEN n END"),
]
#: What is the same in every row, but NULL in some.
_ALMOST_CONSTANT = [
    text.format(text="nullif('B', a)", number="nullif(1, cast(n AS int))", double="nullif(1.5D, x)")
    for text in (
        *("startswith(a, {text})", "endswith(a, {text})", "contains(a, {text})", "replace(a, {text}, 'x')", "replace(a, 'X', {text})"),
        *("instr(a, {text})", "locate({text}, a)", "locate('B', a, {number})", "position({text} IN a)"),
        *("concat({text}, a)", "concat_ws({text}, a, a)", "concat_ws('-', a, {text})", "a || {text}", "lpad(a, 12, {text})", "rpad(a, {number}, 'B')"),
        *("split_part(a, {text}, 1)", "split_part(a, 'B', {number})", "translate(a, {text}, 'x')", "trim({text} FROM a)", "ltrim({text}, a)"),
        *("substring(a, {number}, 2)", "left(a, {number})", "repeat(a, {number})", "a < {text}", "a = {text}", "a <=> {text}", "{text} IN ('B', a)"),
        *("tags[{number}]", "element_at(tags, {number})", "array_contains(tags, {text})", "array_position(tags, {text})"),
        *("x > {double}", "x <= {double}", "x * {double}", "{double} - n", "n + {number}", "x = {number}", "x <=> {double}", "nanvl({double}, x)"),
        *("greatest(x, {double})", "least(a, {text})", "coalesce({text}, a)", "if(x > 1, {double}, x)", "cast({number} AS string)", "date_add(day, {number})"),
        *("cast({text} AS binary)", "length({text})", "upper({text})", "round(x, 1) = {double}", "add_months(day, {number})", "pow(x, {number})"),
    )
]  # fmt: skip


def make_table(draw: random.Random, letters: str) -> pa.Table:
    """Events; every number occurs, and about a tenth of everything is NULL."""

    def text() -> str:
        return "".join(draw.choices(letters, k=draw.randrange(9)))

    def some(make: Any) -> list[Any]:
        return [None if draw.random() < 0.1 else make() for _ in range(_N)]

    def all_of(values: list[Any]) -> list[Any]:
        return list(itertools.islice(itertools.cycle(draw.sample(values, len(values))), _N))

    return pa.table(
        {
            "a": pa.array(some(text), pa.string()),
            "x": pa.array(all_of(_DOUBLES), pa.float64()),
            "n": pa.array(all_of(_INTEGERS), pa.int64()),
            "t": pa.array(some(lambda: draw.choice(_MOMENTS)), pa.timestamp("us", "UTC")),
            "day": pa.array(some(lambda: dt.date.fromordinal(draw.randrange(1, 3_000_000))), pa.date32()),
            "tags": pa.array(some(lambda: [text() for _ in range(draw.randrange(4))]), pa.list_(pa.string())),
        }
    )


@cache
def batch_of(letters: str) -> EventBatch:
    return EventBatch.read(_SCHEMA, make_table(random.Random(7), letters))


@cache
def program_of(text: str) -> Program:
    return Compiler(_SCHEMA).compile_many([f"({text}) IS NOT DISTINCT FROM ({text})"]).filters.programs[0]


def values_of(text: str, events: EventBatch) -> list[Any]:
    """The value of an expression for each event; NaN as a text, which equals itself."""
    program = program_of(text)
    node = program.residuals[0].node
    assert isinstance(node, Compare)
    scope = ProgramScope(program.literals, 0, lambda i: attribute_values(events, i), _SCHEMA.zone, len(events))
    values, valid = evaluate(node.left, scope)
    return [str(v) if is_there else None for v, is_there in zip(values.tolist(), valid.tolist(), strict=True)]


@pytest.mark.sampled
@pytest.mark.parametrize("letters", ["aBcXyZ[@`{ ", "aBcéÉßİ日😀"], ids=["ascii", "others"])
@pytest.mark.parametrize("text", _EXPRESSIONS)
def test_many_rows_have_the_values_of_few(text: str, letters: str) -> None:
    """Whole batches, and batches that are slices of others: their buffers begin before their rows."""
    batch = batch_of(letters)
    few = [v for start in range(0, _N, 5) for v in values_of(text, batch.slice(start, start + 5))]
    assert values_of(text, batch) == few
    assert values_of(text, batch.slice(13, _N - 9)) == few[13:-9]


@pytest.mark.sampled
@pytest.mark.parametrize("text", _ALMOST_CONSTANT)
def test_a_constant_that_is_null_in_some_rows(text: str) -> None:
    """It is not taken for one that is there in every row."""
    batch = batch_of("BX")
    one_by_one = [v for row in range(_N) for v in values_of(text, batch.slice(row, row + 1))]
    assert values_of(text, batch) == one_by_one


@pytest.mark.parametrize("count", [3, 400])
@pytest.mark.parametrize("empty", [None, []], ids=["NULL", "empty"])
def test_arrays_and_maps_without_elements(empty: list[Any] | None, count: int) -> None:
    """If no event of a batch has an element, one that is asked for is still of its type."""
    types = {
        "u": "string",
        "m": "map<string,string>",
        "a": "array<string>",
        "p": "map<string,decimal(30,5)>",
        "d": "array<date>",
    }
    filters = [
        *(
            "m['x'] < u",
            "least(m['x'], u) = 'x'",
            "a[0] < u",
            "greatest(a[0], u) = 'x'",
            "element_at(a, 1) >= u",
            "m['x'] || 'x' = u",
        ),
        *(
            "coalesce(m['x'], u) = 'b'",
            "least(element_at(m, 'x'), u) = 'b'",
            "greatest(p['x'], 2) > 1",
            "p['x'] + 1 > p['y']",
        ),
        *(
            "d[0] < DATE'2024-01-01'",
            "least(d[0], DATE'2024-01-01') = DATE'2024-01-01'",
            "exists(a, x -> x < u)",
            "array_max(a) < u",
        ),
    ]
    kinds = {
        "u": pa.string(),
        "m": pa.map_(pa.string(), pa.string()),
        "a": pa.list_(pa.string()),
        "d": pa.list_(pa.date32()),
    }
    kinds["p"] = pa.map_(pa.string(), pa.decimal128(30, 5))
    table = pa.table({name: pa.array(["b" if name == "u" else empty] * count, kinds[name]) for name in types})
    engine = Engine(types)
    engine.subscribe_many(enumerate(filters))
    assert len(engine) == len(filters)
    value = {"u": "b"} if empty is None else {"u": "b", "m": {}, "p": {}, "a": [], "d": []}
    assert engine.match_batch(table).to_list_array().to_pylist() == [engine.match(value)] * count


def test_every_digit() -> None:
    """Integers of every length as texts."""
    numbers = [n for k in range(19) for n in (10**k - 1, 10**k, -(10**k), 1 - 10**k)] + [2**63 - 1, -(2**63)]
    table = pa.table({"n": pa.array(numbers * 4, pa.int64())})
    assert values_of("cast(n AS string)", EventBatch.read(_SCHEMA, table)) == [str(n) for n in numbers * 4]


def test_days_of_every_moment() -> None:
    """The first and the last moment of 64 bits, and both sides of midnights."""
    draw = random.Random(5)
    midnights = [draw.randrange(-106_751_991, 106_751_992) * DAY_US for _ in range(_N)]
    around = [midnight + step for midnight in midnights for step in (-1, 0, 1)]
    moments = np.array([-(2**63), -(2**63) + 1, 2**63 - 1, *around], np.int64)
    with np.errstate(over="ignore"):  # without a compiler
        assert whole_days(moments).tolist() == [moment // DAY_US for moment in moments.tolist()]


@pytest.mark.parametrize("name", ["lower", "upper"])
@pytest.mark.parametrize("letters", ["aBcXyZ[@`{ ", "aBcéÉß日😀"], ids=["ascii", "others"])
def test_case_of_a_slice(name: str, letters: str) -> None:
    """As Python has it, also where the bytes of a batch begin before its first text."""
    batch = EventBatch.read(_SCHEMA, make_table(random.Random(3), letters)).slice(13, _N - 9)
    texts = batch.array(0).to_pylist()
    assert values_of(f"{name}(a)", batch) == [None if text is None else getattr(text, name)() for text in texts]
