"""Filters whose constraints are numbered: they are the same filters, and the index that is made of them is the same, byte by byte."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from wherecast.engine import subscriptions
from wherecast.engine.engine import Engine
from wherecast.engine.segment import build_segment
from wherecast.language.events.schema import Schema
from wherecast.language.filters import numbered
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import Filters
from wherecast.language.filters.numbered import (
    NumberedFilters,
    concat_numbered,
    number_filters,
    plain_filters,
    take_numbered,
)
from wherecast.matchers import adaptive_conditions
from wherecast.matchers.registry import find_matcher

SCHEMA = Schema.of({**{f"a{n}": "int" for n in range(6)}, "x": "double", "s": "string", "tags": "array<int>"})

Draw = Callable[[random.Random], str]

TERMS: dict[str, Draw] = {
    "points": lambda rng: f"a{rng.randrange(6)} = {rng.randrange(5)}",
    "lists and NULL": lambda rng: rng.choice(
        (f"a{rng.randrange(6)} IN (1, {3 + rng.randrange(4)}, 9)", f"(a{rng.randrange(6)} IS NULL OR x < 3)", "a1 <> 4")
    ),
    "texts": lambda rng: rng.choice(
        (f"s <> 'k{rng.randrange(4)}'", f"s = 'k{rng.randrange(9)}'", "s > 'k3'", "a1 = 2")
    ),
    "elements": lambda rng: rng.choice((f"array_contains(tags, {rng.randrange(6)})", f"a{rng.randrange(6)} > 2")),
    "literals": lambda rng: rng.choice((f"s LIKE '%k{rng.randrange(6)}%'", f"a{rng.randrange(6)} > 2")),
    "always": lambda rng: rng.choice(("(a1 IS NULL OR a1 IS NOT NULL)", f"a{rng.randrange(3)} = {rng.randrange(9)}")),
}


def texts(term: Draw, count: int, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    both = (" AND ", " AND ", " OR ")
    return [rng.choice(both).join(term(rng) for _ in range(rng.randrange(1, 5))) for _ in range(count)]


def compiled(lines: list[str]) -> Filters:
    return Compiler(SCHEMA).compile_many(lines).filters


def assert_same(one: Filters, other: Filters) -> None:
    for name in ("clause_ptr", "row_ptr", "attr", "null", "lo", "hi", "program", "digests", "strings"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)


def stored(engine: Engine) -> Iterator[tuple[str, Any]]:
    """All arrays of an engine's index."""
    for segment in engine._segments.readable().segments:
        yield from segment.boxes._asdict().items()
        yield from segment.matcher.arrays().items()
        yield from (("ptr", segment.subscriptions.ptr), ("ids", segment.live(engine.version)))


@pytest.fixture
def small(monkeypatch):
    """Few rows are enough for numbers, and blocks are small."""
    monkeypatch.setattr(numbered, "FEW_ROWS", 16)
    monkeypatch.setattr(numbered, "BLOCK", 64)
    monkeypatch.setattr(adaptive_conditions, "FEW_ROWS", 16)


@pytest.mark.parametrize("name", TERMS)
def test_numbered_filters_are_the_same_filters(small, name):
    """Rows are made again as they were; so are those of filters that are chosen."""
    filters = compiled(texts(TERMS[name], 400))
    found = number_filters(filters, anyway=True)
    assert found is not None
    assert_same(plain_filters(found), filters)
    chosen = np.random.default_rng(2).permutation(filters.n_filters)[:50]
    taken = take_numbered(found, chosen)
    assert_same(plain_filters(taken), numbered.take_filters(filters, chosen))
    assert set(taken.number.tolist()) == set(range(taken.table.n_filters))  # nothing is kept that nobody has


@pytest.mark.parametrize("name", TERMS)
def test_joined_parts_are_the_same_filters(small, name):
    """Parts that are numbered apart are joined as parts with all their rows are."""
    parts = [compiled(texts(TERMS[name], size, seed)) for seed, size in enumerate((200, 3, 90))]
    found = [number_filters(part, anyway=True) for part in parts]
    given = [part for part in found if part is not None]
    assert len(given) == len(parts)
    joined = concat_numbered(given, SCHEMA)
    assert not given  # let go of
    assert_same(plain_filters(joined), numbered.concat_filters(parts, SCHEMA))
    plain = joined.table
    rows = list(zip(*(a.tolist() for a in (plain.attr, plain.null, plain.lo, plain.hi)), strict=True))
    keys = [tuple(rows[a:b]) for a, b in zip(plain.row_ptr[:-1], plain.row_ptr[1:], strict=True)]
    assert len(set(keys)) == len(keys)


@pytest.mark.sampled
@pytest.mark.parametrize("with_sample", [False, True])
@pytest.mark.parametrize("name", TERMS)
def test_numbers_change_no_index(monkeypatch, name, with_sample):
    """An index of filters whose constraints were numbered has the bytes of one of filters that kept all their rows."""
    lines = texts(TERMS[name], 700)
    events = [{"a1": n % 9, "a2": 3, "x": n / 7, "s": f"k{n}", "tags": [n % 6, 2]} for n in range(60)]
    monkeypatch.setattr(subscriptions, "PART", 256)
    engines = []
    for few in (1 << 60, 16):
        monkeypatch.setattr(numbered, "FEW_ROWS", few)
        monkeypatch.setattr(adaptive_conditions, "FEW_ROWS", few)
        engine = Engine(SCHEMA)
        engine.subscribe_many(list(enumerate(lines)))
        if with_sample:
            engine.plan(events)
        engines.append(engine)
    for (key, one), (_, other) in zip(*map(stored, engines), strict=True):
        np.testing.assert_array_equal(one, other, key)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None), key
    plain, small_ = (engine.match_batch(events).subscription_ids() for engine in engines)
    assert plain.tolist() == small_.tolist()


def test_residuals_and_rare_constraints_stay_as_they_are(small):
    """Numbers are for filters without residuals whose constraints repeat."""
    assert number_filters(compiled([f"a1 = {n}" for n in range(200)])) is None
    assert number_filters(compiled(["a1 > a2", *texts(TERMS["points"], 200)]), anyway=True) is None
    assert number_filters(compiled(texts(TERMS["points"], 200))) is not None


def test_what_is_compiled_takes_little_memory(small):
    """Ten conditions a filter take less than the pointers and digests of the filters do."""
    rng = random.Random(3)
    lines = [" AND ".join(f"a{n} = {rng.randrange(9)}" for n in range(6)) for _ in range(3_000)]
    [part] = subscriptions.compile_parts(Compiler(SCHEMA), lines)
    assert isinstance(part.filters, NumberedFilters)
    assert part.filters.number.nbytes == 6 * part.filters.n_filters
    assert part.filters.table.attr.size == 54


def test_segments_with_and_without_numbers_are_joined(small):
    """A build takes parts in either form."""
    lines = texts(TERMS["points"], 300)
    [part] = subscriptions.compile_parts(Compiler(SCHEMA), lines)
    engine = Engine(SCHEMA)
    engine.subscribe_many(list(enumerate(lines)))
    engine.subscribe(1_000, "a1 = 3 AND x > 2.5")
    engine.merge(everything=True)
    assert len(engine) == 301
    assert build_segment([], SCHEMA, find_matcher("adaptive")).boxes.n_filters == 0
    assert isinstance(part.filters, NumberedFilters)
