"""What an expression costs an event, in a column and in a residual, against the same expression by Arrow, NumPy or Numba.

    python benchmarks/expressions.py [--events N] [--rounds N] [--zone NAME] [--beyond-ascii SHARE]

Each line is one expression, in nanoseconds per event: `value` computes it, with NULLs and Spark's rules; `codes` finds the codes of
the values, which any column of an index needs; `residual` computes the whole condition, as candidates do; `bare` is the
quickest of Arrow, NumPy and Numba for the bare expression, and who that is. The ratio is that of `value` to `bare`.
Medians of several rounds, in processor time of one thread; `value` and `bare` take turns, so that both meet the same machine.

Both begin with the Arrow columns of a batch that nobody has looked at, and end with what an index can code: texts, or 64-bit
numbers, with the rows that are NULL. NumPy and Numba see the values of a column through `to_numpy`, and ask whether there are NULLs.

The bare expression must give what Spark gives for any legal value, not for these events only; how a text is told to be ASCII and a
number to fit is part of it. So `lower` and `instr` look for bytes beyond ASCII first (Arrow's `utf8_lower` takes 20 ns, and its
`find_substring` counts bytes), casts to integers tell what fits, where Arrow raises an error or gives any number, CASE takes NaN as the greatest
number, and `round` goes away from zero at a tie (Arrow's and NumPy's default goes to the even digit). Arrow's `round` is
still wrong near ties, where Spark rounds the shortest decimal.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wherecast import Schema
from wherecast.index.build import code_filters
from wherecast.index.expressions import ExpressionColumn
from wherecast.index.operands import attribute_values
from wherecast.index.stored import find_values
from wherecast.language.evaluate import evaluate, holds
from wherecast.language.events.events import EventBatch
from wherecast.language.filters.compile import Compiler
from wherecast.language.steps import value_recipe
from wherecast.language.syntax.literals import ProgramScope

_SCHEMA = {
    "a": "string", "b": "string", "x": "float", "n": "integer", "t": "timestamp", "day": "date", "p": "decimal(10,2)",
    "m": "map<string,string>", "tags": "array<string>", "xs": "array<double>",
}  # fmt: skip
Columns = dict[str, Any]


@numba.njit
def _product(x: Any, n: Any) -> Any:
    out = np.empty(x.size)
    for i in range(x.size):
        out[i] = x[i] * n[i]
    return out


@numba.njit
def _chosen(x: Any, n: Any) -> Any:
    out = np.empty(x.size, np.int64)
    for i in range(x.size):
        out[i] = 0 if x[i] <= 50 else n[i]
    return out


@numba.njit
def _days_between(micros: Any, days: Any) -> Any:
    out = np.empty(micros.size, np.int64)
    for i in range(micros.size):
        out[i] = micros[i] // 86_400_000_000 - days[i]
    return out


@numba.njit
def _sizes(offsets: Any) -> Any:
    out = np.empty(offsets.size - 1, np.int64)
    for i in range(out.size):
        out[i] = offsets[i + 1] - offsets[i]
    return out


@numba.njit
def _as_int(x: Any) -> Any:
    out, fits = np.empty(x.size, np.int64), np.empty(x.size, np.bool_)
    for i in range(x.size):
        fits[i] = -2147483649.0 < x[i] < 2147483648.0
        out[i] = np.int64(x[i]) if fits[i] else 0
    return out, fits


@numba.njit
def _as_bigint(offsets: Any, data: Any) -> Any:
    """Digits with a sign and blanks around; of more than 18 digits or anything else, what is read is not a number."""
    n = offsets.size - 1
    out, fits = np.empty(n, np.int64), np.empty(n, np.bool_)
    for i in range(n):
        at, end = offsets[i], offsets[i + 1]
        while at < end and data[at] <= 32:
            at += 1
        while at < end and data[end - 1] <= 32:
            end -= 1
        is_negative = at < end and data[at] == 45
        at += at < end and (data[at] == 45 or data[at] == 43)
        fits[i], value = 0 < end - at <= 18, np.int64(0)
        for k in range(at, end):
            digit = np.int64(data[k]) - 48
            fits[i] &= 0 <= digit <= 9
            value = value * 10 + digit
        out[i] = -value if is_negative else value
    return out, fits


def _numbers(column: pa.Array) -> Any:
    """The values of a column without NULLs, dates as days and moments as microseconds."""
    if column.null_count:
        raise NotImplementedError("these events have no NULL there")
    if not pa.types.is_floating(column.type):
        column = column.view(f"int{column.type.bit_width}")
    return column.to_numpy()


def _string_buffers(texts: pa.Array) -> tuple[Any, Any]:
    _, offsets, data = texts.buffers()
    return np.frombuffer(offsets, np.int32, len(texts) + 1), np.frombuffer(data, np.uint8)


def _offsets(lists: pa.Array) -> Any:
    if lists.null_count:
        raise NotImplementedError("these events have no NULL there")
    return lists.offsets.to_numpy()


def _is_ascii(texts: pa.Array) -> bool:
    return int(np.frombuffer(texts.buffers()[2], np.uint8).max(initial=0)) < 128


def _lower(texts: pa.Array) -> pa.Array:
    return (pc.ascii_lower if _is_ascii(texts) else pc.utf8_lower)(texts)


def _upper(texts: pa.Array) -> pa.Array:
    return (pc.ascii_upper if _is_ascii(texts) else pc.utf8_upper)(texts)


def _instr(texts: pa.Array, part: str) -> pa.Array:
    if not _is_ascii(texts):
        raise NotImplementedError("Arrow counts bytes")
    return pc.add(pc.find_substring(texts, part), 1)


class Case(NamedTuple):
    """An expression: filters that have it, and the bare expression by others."""

    filter: str
    arrow: Callable[[Columns], object] | None = None
    numpy: Callable[[Columns], object] | None = None
    numba: Callable[[Columns], object] | None = None


CASES: dict[str, Case] = {
    "lower(a)": Case("lower(a) > 'v{}'", lambda e: _lower(e["a"])),
    "upper(a)": Case("upper(a) = 'V{}'", lambda e: _upper(e["a"])),
    "length(a)": Case("length(a) = {}", lambda e: pc.utf8_length(e["a"])),
    "trim(a)": Case("trim(a) = 'v{}'", lambda e: pc.utf8_trim(e["a"], " ")),
    "substring(a, 2, 3)": Case("substring(a, 2, 3) = 'v{}'", lambda e: pc.utf8_slice_codeunits(e["a"], 1, 4)),
    "concat(a, b)": Case("concat(a, b) = 'v{}'", lambda e: pc.binary_join_element_wise(e["a"], e["b"], "")),
    "coalesce(a, b)": Case("coalesce(a, b) = 'v{}'", lambda e: pc.coalesce(e["a"], e["b"])),
    "replace(a, 'o', '0')": Case("replace(a, 'o', '0') = 'v{}'", lambda e: pc.replace_substring(e["a"], "o", "0")),
    "instr(a, 'st')": Case("instr(a, 'st') = {}", lambda e: _instr(e["a"], "st")),
    "lpad(a, 20, '.')": Case("lpad(a, 20, '.') = 'v{}'", lambda e: pc.utf8_lpad(e["a"], 20, ".")),
    "split_part(a, '.', 2)": Case(
        "split_part(a, '.', 2) = 'v{}'", lambda e: pc.list_element(pc.split_pattern(e["a"], "."), 0)
    ),
    "translate(a, 'os', '05')": Case(
        "translate(a, 'os', '05') = 'v{}'",
        lambda e: pc.replace_substring(pc.replace_substring(e["a"], "o", "0"), "s", "5"),
    ),
    "regexp_extract(a, ..)": Case(
        "regexp_extract(a, '([a-z]+)-([0-9]+)', 2) = '{}'",
        lambda e: pc.extract_regex(e["a"], "(?P<x>[a-z]+)-(?P<y>[0-9]+)"),
    ),
    "regexp_replace(a, ..)": Case(
        "regexp_replace(a, '[0-9]+', '#') = 'v{}'", lambda e: pc.replace_substring_regex(e["a"], "[0-9]+", "#")
    ),
    "cast(n AS string)": Case("cast(n AS string) = '{}'", lambda e: e["n"].cast(pa.string())),
    "cast(b AS bigint)": Case("cast(b AS bigint) = {}", None, None, lambda e: _as_bigint(*_string_buffers(e["b"]))),
    "year(t)": Case(
        "year(t) + 1 = {}",
        lambda e: pc.year(e["t"]),
        lambda e: _numbers(e["t"]).view("M8[us]").astype("M8[Y]").view(np.int64),
    ),
    "month(t)": Case("month(t) = {}", lambda e: pc.month(e["t"])),
    "dayofweek(t)": Case("dayofweek(t) = {}", lambda e: pc.day_of_week(e["t"])),
    "hour(t)": Case("hour(t) = {}", lambda e: pc.hour(e["t"]), lambda e: _numbers(e["t"]) // 3_600_000_000 % 24),
    "date_trunc('MONTH', t)": Case(
        "date_trunc('MONTH', t) = TIMESTAMP'2024-{:02d}-01 00:00:00'", lambda e: pc.floor_temporal(e["t"], 1, "month")
    ),
    "date_trunc('HOUR', t)": Case(
        "date_trunc('HOUR', t) = TIMESTAMP'2024-01-{:02d} 00:00:00'",
        lambda e: pc.floor_temporal(e["t"], 1, "hour"),
        lambda e: (micros := _numbers(e["t"])) - micros % 3_600_000_000,
    ),
    "datediff(t, day)": Case(
        "datediff(t, day) = {}",
        lambda e: pc.days_between(e["day"], e["t"].cast(pa.date32())),
        lambda e: _numbers(e["t"]) // 86_400_000_000 - _numbers(e["day"]),
        lambda e: _days_between(_numbers(e["t"]), _numbers(e["day"])),
    ),
    "date_format(t, 'yyyy-MM')": Case(
        "date_format(t, 'yyyy-MM') = '2024-{:02d}'", lambda e: pc.strftime(e["t"], "%Y-%m")
    ),
    "x * n": Case(
        "x * n > {}",
        None,
        lambda e: _numbers(e["x"]) * _numbers(e["n"]),
        lambda e: _product(_numbers(e["x"]), _numbers(e["n"])),
    ),
    "coalesce(x, 0)": Case(
        "coalesce(x, 0) + 1 > {}",
        lambda e: pc.add(pc.coalesce(e["x"], 0.0), 1.0),
        lambda e: e["x"].fill_null(0.0).to_numpy() + 1.0,
    ),
    "CASE": Case(
        "CASE WHEN x > 50 THEN n ELSE 0 END = {}",
        None,
        lambda e: np.where(_numbers(e["x"]) <= 50, 0, _numbers(e["n"])),
        lambda e: _chosen(_numbers(e["x"]), _numbers(e["n"])),
    ),
    "cast(x AS int)": Case("cast(x AS int) = {}", None, None, lambda e: _as_int(_numbers(e["x"]))),
    "round(x, 1)": Case("round(x, 1) = {}", lambda e: pc.round(e["x"], 1, round_mode="half_towards_infinity")),
    "p * 2": Case("p * 2 = {}", lambda e: pc.multiply(e["p"], pa.scalar(2, pa.decimal128(1, 0)))),
    "m['k']": Case("m['k'] LIKE 'v{}%'", lambda e: pc.map_lookup(e["m"], "k", "first")),
    "size(tags)": Case(
        "size(tags) = {}",
        lambda e: pc.list_value_length(e["tags"]).cast(pa.int64()),
        None,
        lambda e: _sizes(_offsets(e["tags"])),
    ),
    "tags[0]": Case("tags[0] = 'v{}'", lambda e: pc.list_slice(e["tags"], 0, 1)),
    "exists(xs, ..)": Case("exists(xs, v -> v * 2 > {})", lambda e: pc.multiply(pc.list_flatten(e["xs"]), 2)),
}


def make_events(n: int, share_beyond_ascii: float) -> pa.Table:
    draw, numbers = random.Random(1), np.random.default_rng(1)
    words = [f" Host{draw.randrange(5000)} " if i % 3 else f"host-{i}.example.com" for i in range(5000)]
    more = ["straße", "日本語 テスト", "😀 smile"]
    texts = [draw.choice(more) if draw.random() < share_beyond_ascii else draw.choice(words) for _ in range(n)]
    return pa.table(
        {
            "a": pa.array([None if i % 50 == 0 else t for i, t in enumerate(texts)]),
            "b": pa.array([str(draw.randrange(10**6)) for _ in range(n)]),
            "x": numbers.random(n) * 100,
            "n": numbers.integers(0, 1000, n),
            "t": pa.array(numbers.integers(int(1.6e15), int(1.7e15), n), pa.timestamp("us", "UTC")),
            "day": pa.array(numbers.integers(18_000, 20_000, n).astype(np.int32), pa.date32()),
            "p": pa.array([Decimal(draw.randrange(10**6)).scaleb(-2) for _ in range(n)], pa.decimal128(10, 2)),
            "m": pa.array([[("k", draw.choice(words)), ("j", "x")] for _ in range(n)], pa.map_(pa.string(), pa.string())),
            "tags": pa.array([draw.choices(words, k=i % 4) for i in range(n)], pa.list_(pa.string())),
            "xs": pa.array([[draw.random()] * (i % 4) for i in range(n)], pa.list_(pa.float64())),
        }
    )  # fmt: skip


def median(batches: Iterable[Batch], *runs: Callable[[Batch], object]) -> list[float]:
    """Seconds for each of several runs, which take turns. Nothing was derived from the batches yet; the first does not count.

    Who comes after another finds less of the batch in the caches, so each is the first in its turn.
    """
    taken: list[list[float]] = [[] for _ in runs]
    for number, batch in enumerate(batches):
        for turn in range(len(runs)):
            at = (number + turn) % len(runs)
            start = time.thread_time()
            runs[at](batch)
            taken[at].append(time.thread_time() - start)
    return [statistics.median(times[1:]) for times in taken]


class Batch(NamedTuple):
    """Events, for the index and for the bare expressions: the same Arrow columns."""

    events: EventBatch
    columns: Columns

    @classmethod
    def read(cls, schema: Schema, table: pa.Table) -> Batch:
        return cls(EventBatch.read(schema, table), {name: table[name].chunk(0) for name in table.column_names})

    def again(self) -> Batch:
        """The same events, without what was derived from them."""
        return Batch(self.events.slice(0, len(self.events)), self.columns)


def _serves(run: Callable[[Columns], object], columns: Columns) -> bool:
    """Whether a bare expression says of these events what Spark does."""
    try:
        run(columns)
    except NotImplementedError:
        return False
    return True


class Measured(NamedTuple):
    """Seconds for all events."""

    value: float
    codes: float
    residual: float
    bare: float
    by: str


def measure(case: Case, schema: Schema, batch: Batch, rounds: int) -> Measured | None:
    """An expression in an index; None if it is no column there, or nobody else computes it for these events."""
    compiled = Compiler(schema).compile_many([f"{case.filter.format(i % 28 + 1)} AND n <> {i}" for i in range(64)])
    filters = compiled.filters
    codebook = code_filters(filters, schema).codebook
    numbers = [number for number in codebook.used if codebook.expression(number) is not None]
    if not numbers:
        return None
    column = codebook.expression(numbers[0])
    assert isinstance(column, ExpressionColumn)
    program = filters.programs[0]
    residual = program.residuals[0]

    def scope(of: Batch, literals: Any) -> ProgramScope:
        return ProgramScope(literals, 0, lambda i: attribute_values(of.events, i), schema.zone, len(of.events))

    def encode(of: Batch) -> object:
        return (
            codebook.encode(of.events) if codebook.is_set(numbers[0]) else codebook.encode_column(of.events, numbers[0])
        )

    bare = {by: run for by, run in case._asdict().items() if by != "filter" and run is not None}
    bare = {by: run for by, run in bare.items() if _serves(run, batch.columns)}
    if not bare:
        return None

    def fresh() -> Iterator[Batch]:
        return (batch.again() for _ in range(1 + rounds))

    recipe = value_recipe(column.of, column.literals, column.row, schema.zone)

    def compute(of: Batch) -> object:
        if recipe is None:
            return evaluate(column.of, scope(of, column.literals))
        return recipe.run(find_values(of.events, column.attributes), len(of.events))

    value, *others = median(
        fresh(),
        compute,
        *(lambda of, run=run: run(of.columns) for run in bare.values()),
    )
    (whole,) = median(fresh(), encode)
    (held,) = median(
        fresh(),
        lambda of: holds(residual.node, residual.truth, scope(of, program.literals)),
    )
    quickest, by = min(zip(others, bare, strict=True))
    return Measured(value, max(whole - value, 0.0), held, quickest, by)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--zone", default="UTC")
    parser.add_argument("--beyond-ascii", type=float, default=0.0, help="share of texts with other letters")
    given = parser.parse_args()

    schema = Schema.of(_SCHEMA, time_zone=given.zone)
    batch = Batch.read(schema, make_events(given.events, given.beyond_ascii))
    unit = 1e9 / given.events
    print(f"{'ns per event':28}{'value':>8}{'codes':>8}{'residual':>10}{'bare':>8}  {'by':8}{'ratio':>6}")
    ratios = []
    for name, case in CASES.items():
        found = measure(case, schema, batch, given.rounds)
        if found is None:
            print(f"{name:28}  (no column, or nothing to compare with)")
            continue
        ratios.append(found.value / found.bare)
        print(
            f"{name:28}{found.value * unit:8,.1f}{found.codes * unit:8,.1f}{found.residual * unit:10,.1f}"
            f"{found.bare * unit:8,.1f}  {found.by:8}{ratios[-1]:6.2f}"
        )
    print(f"{sum(r <= 1.1 for r in ratios)} of {len(ratios)} take no longer than the bare expression (1.1)")


if __name__ == "__main__":
    main()
