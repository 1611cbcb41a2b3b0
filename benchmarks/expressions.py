"""What an expression column costs an event, against the same expression by Arrow or NumPy alone.

    python benchmarks/expressions.py [--events N] [--rounds N] [--zone NAME]

Each line is one expression: the nanoseconds per event that an index takes to compute it and to find its codes, and those
that Arrow or NumPy takes for the bare expression.
Medians of several rounds, in processor time of one thread.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wherecast import Schema
from wherecast.index.build import code_filters
from wherecast.language.events.events import EventBatch
from wherecast.language.filters.compile import Compiler

_SCHEMA = {"a": "string", "b": "string", "x": "float", "n": "integer", "t": "timestamp", "day": "date"}

#: The expression, a filter that has it, and the same by Arrow or NumPy.
CASES: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "lower(a)": ("lower(a) > 'v{}'", lambda e: pc.utf8_lower(e["a"])),
    "upper(a)": ("upper(a) = 'V{}'", lambda e: pc.utf8_upper(e["a"])),
    "length(a)": ("length(a) = {}", lambda e: pc.utf8_length(e["a"])),
    "trim(a)": ("trim(a) = 'v{}'", lambda e: pc.utf8_trim(e["a"], " ")),
    "substring(a, 2, 3)": ("substring(a, 2, 3) = 'v{}'", lambda e: pc.utf8_slice_codeunits(e["a"], 1, 4)),
    "concat(a, b)": ("concat(a, b) = 'v{}'", lambda e: pc.binary_join_element_wise(e["a"], e["b"], "")),
    "coalesce(a, b)": ("coalesce(a, b) = 'v{}'", lambda e: pc.coalesce(e["a"], e["b"])),
    "replace(a, 'o', '0')": ("replace(a, 'o', '0') = 'v{}'", lambda e: pc.replace_substring(e["a"], "o", "0")),
    "instr(a, 'st')": ("instr(a, 'st') = {}", lambda e: pc.find_substring(e["a"], "st")),
    "cast(n AS string)": ("cast(n AS string) = '{}'", lambda e: e["n"].cast(pa.string())),
    "cast(b AS bigint)": ("cast(b AS bigint) = {}", lambda e: e["b"].cast(pa.int64())),
    "year(t)": ("year(t) + 1 = {}", lambda e: pc.year(e["t"])),
    "month(t)": ("month(t) = {}", lambda e: pc.month(e["t"])),
    "dayofweek(t)": ("dayofweek(t) = {}", lambda e: pc.day_of_week(e["t"])),
    "hour(t)": ("hour(t) = {}", lambda e: pc.hour(e["t"])),
    "minute(t)": ("minute(t) = {}", lambda e: pc.minute(e["t"])),
    "date_trunc('MONTH', t)": (
        "date_trunc('MONTH', t) = TIMESTAMP'2024-{:02d}-01 00:00:00'",
        lambda e: pc.floor_temporal(e["t"], 1, "month"),
    ),
    "date_trunc('HOUR', t)": (
        "date_trunc('HOUR', t) = TIMESTAMP'2024-01-{:02d} 00:00:00'",
        lambda e: pc.floor_temporal(e["t"], 1, "hour"),
    ),
    "datediff(t, day)": ("datediff(t, day) = {}", lambda e: pc.days_between(e["day"], e["t"].cast(pa.date32()))),
    "date_add(day, n)": ("date_add(day, 30) > DATE'2024-01-{:02d}'", lambda e: e["days"] + 30),
    "x * n": ("x * n > {}", lambda e: e["xs"] * e["ns"]),
    "coalesce(x, 0)": ("coalesce(x, 0) + 1 > {}", lambda e: pc.coalesce(e["x"], 0.0)),
    "CASE": ("CASE WHEN x > 50 THEN n ELSE 0 END = {}", lambda e: np.where(e["xs"] > 50, e["ns"], 0)),
    "cast(x AS int)": ("cast(x AS int) = {}", lambda e: e["x"].cast(pa.int64(), safe=False)),
    "round(x, 1)": ("round(x, 1) = {}", lambda e: np.round(e["xs"], 1)),
    "x > n": ("(x > n) AND n > -{}", lambda e: e["xs"] > e["ns"]),
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
        }
    )


def median(rounds: int, run: Callable[[], object]) -> float:
    run()
    taken = []
    for _ in range(rounds):
        start = time.thread_time()
        run()
        taken.append(time.thread_time() - start)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--zone", default="UTC")
    parser.add_argument("--beyond-ascii", type=float, default=0.0, help="share of texts with other letters")
    given = parser.parse_args()

    schema = Schema.of(_SCHEMA, time_zone=given.zone)
    table = make_events(given.events, given.beyond_ascii)
    plain: dict[str, Any] = {name: table[name].combine_chunks() for name in table.column_names}
    plain |= {
        "xs": plain["x"].to_numpy(),
        "ns": plain["n"].to_numpy(),
        "days": plain["day"].cast(pa.int32()).to_numpy(),
    }
    batch = EventBatch.read(schema, table)
    print(f"{'':24}{'column':>10}{'Arrow':>10}  ns per event")
    for name, (text, directly) in CASES.items():
        filters = [f"{text.format(i % 28 + 1)} AND n <> {i}" for i in range(64)]
        codebook = code_filters(Compiler(schema).compile_many(filters).filters, schema).codebook
        numbers = [n for n in codebook.used if codebook.expression(n) is not None]

        def encode(codebook: Any = codebook, numbers: list[int] = numbers) -> None:
            events = batch.slice(0, given.events)  # without what was derived of it
            for number in numbers:
                codebook.encode_column(events, number)

        column = median(given.rounds, encode) / given.events * 1e9
        arrow = median(given.rounds, lambda directly=directly: directly(plain)) / given.events * 1e9
        print(f"{name:24}{column:10,.1f}{arrow:10,.1f}" + ("" if numbers else "  (no column)"))


if __name__ == "__main__":
    main()
