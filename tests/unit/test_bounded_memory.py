"""Building from parts: the memory it takes on the way is bounded, and the parts change nothing."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from tests.examples import is_fast

from wherecast.engine import subscriptions
from wherecast.engine.engine import Engine
from wherecast.engine.subscriptions import ArrowTexts, read_subscriptions
from wherecast.index.build import code_filters
from wherecast.index.packed import pack_boxes
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.matchers import adaptive_conditions
from wherecast.matchers.adaptive_conditions import describe

SCHEMA = Schema.of({**{f"a{n}": "int" for n in range(12)}, "s": "string", "tags": "array<int>"})


def texts(count: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)

    def term() -> str:
        name, value = f"a{rng.randrange(12)}", rng.randrange(30)
        return rng.choice(
            (
                f"{name} = {value}",
                f"{name} IN ({value}, {value + 3}, {value + 9})",
                f"{name} > {value}",
                f"s = 'x{rng.randrange(9_000)}'",
                f"array_contains(tags, {value}) AND array_contains(tags, {value + 1})",
                f"({name} IS NULL OR {name} < {value})",
            )
        )

    return [" AND ".join(term() for _ in range(rng.randrange(1, 5))) for _ in range(count)]


@pytest.mark.sampled
@pytest.mark.parametrize("rows", [1, 7, 100])
@pytest.mark.parametrize("with_sample", [False, True])
def test_blocks_change_nothing(monkeypatch, rows, with_sample):
    """Boxes that are described a few rows at a time are described as all at once."""
    filters = texts(60 if rows == 1 and is_fast() else 300)
    coded = code_filters(Compiler(SCHEMA).compile_many(filters).filters, SCHEMA)
    engine = Engine(SCHEMA)
    engine.subscribe_many(enumerate(filters))
    events = [{"a1": n % 30, "a2": 3, "s": f"x{n}", "tags": [n, n + 1]} for n in range(50)]
    sample = coded.codebook.encode(engine._read(events, "raise")[2]) if with_sample else None
    boxes = pack_boxes(coded.boxes)
    whole = describe(boxes, sample)
    monkeypatch.setattr(adaptive_conditions, "BLOCK_ROWS", rows)
    parted = describe(boxes, sample)
    for one, other in ((whole[0], parted[0]), (whole[1], parted[1])):
        for name, array in one._asdict().items():
            np.testing.assert_array_equal(array, getattr(other, name), name)
            assert array.dtype == getattr(other, name).dtype, name


def test_no_clauses_are_described():
    """A set that never matches has no rows."""
    coded = code_filters(Compiler(SCHEMA).compile_many(["FALSE"]).filters, SCHEMA)
    columns, conditions, _ = describe(pack_boxes(coded.boxes), None)
    assert columns.attribute.size == conditions.column.size == 0


@pytest.mark.slow
def test_describing_takes_little_more_than_it_gives(monkeypatch):
    """What is computed on the way does not grow with the number of clauses."""
    monkeypatch.setattr(adaptive_conditions, "BLOCK_ROWS", 1 << 12)
    boxes = pack_boxes(code_filters(Compiler(SCHEMA).compile_many(texts(20_000)).filters, SCHEMA).boxes)
    tracemalloc.start()
    try:
        _, conditions, _ = describe(boxes, None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.2 * sum(array.nbytes for array in conditions) + (1 << 21)


def test_texts_of_a_table_become_strings_some_at_a_time(monkeypatch):
    """A long column of different texts stays Arrow's; slices, items, NULLs and errors are as those of a list."""
    monkeypatch.setattr(subscriptions, "_LOOK", 20)
    monkeypatch.setattr(subscriptions, "PART", 16)
    rows: list[str | None] = [*texts(60), None, "prise > 1"]
    table = pa.table({"id": range(len(rows)), "filter": rows})
    incoming = read_subscriptions(table)
    assert isinstance(incoming.texts, ArrowTexts)
    assert list(incoming.texts) == rows
    assert incoming.texts[5:9] == rows[5:9]
    assert incoming.texts[-1] == rows[-1]
    engine, plain = Engine(SCHEMA), Engine(SCHEMA)
    found, expected = engine.subscribe_many(table), plain.subscribe_many(enumerate(rows))
    assert [(q.row, str(q.error)) for q in found.quarantined] == [(q.row, str(q.error)) for q in expected.quarantined]
    assert [q.row for q in found.quarantined] == [60, 61]
    assert dict(engine.items()) == dict(plain.items())


def test_repeated_texts_are_compiled_once(monkeypatch):
    """Where a column repeats its texts, each is listed once."""
    monkeypatch.setattr(subscriptions, "_LOOK", 20)
    incoming = read_subscriptions(pa.table({"id": range(100), "filter": ["a1 = 1", "a2 = 2"] * 50}))
    assert list(incoming.texts) == ["a1 = 1", "a2 = 2", None]
