"""Filters stand in the order in which the matcher meets them, and nothing else changes by that."""

from __future__ import annotations

import random

import numpy as np
import pytest

from wherecast import Engine

SCHEMA = {"symbol": "string", "price": "float", "n": "integer", "tags": "array<string>", "text": "string"}


def make_filters(n: int) -> list[str]:
    """Equalities of a rare and of a frequent kind, ORs, residuals, and filters that nothing satisfies."""
    draw = random.Random(5)
    kinds = [
        "symbol = 's{a}' AND price > {b}",
        "symbol = 's{a}' AND price < {b} AND n = {c}",
        "(symbol = 's{a}' AND n > {c}) OR (n = {c} AND price BETWEEN {b} AND {b} + 2) OR array_contains(tags, 't{c}')",
        "symbol = 's{a}' AND price * n > {b} AND length(text) + n > {c}",
        "n = {c} AND n <> {c}",
        "symbol IN ('s{a}', 's{c}') AND NOT (n = {c})",
    ]
    return [
        draw.choice(kinds).format(a=draw.randrange(60), b=draw.randrange(20), c=draw.randrange(9)) for _ in range(n)
    ]


def make_events(n: int) -> list[dict[str, object]]:
    draw = random.Random(6)
    return [
        {
            "symbol": draw.choice([None, *(f"s{i}" for i in range(70))]),
            "price": draw.choice([None, *map(float, range(22))]),
            "n": draw.choice([None, *range(10)]),
            "tags": [f"t{draw.randrange(12)}" for _ in range(draw.randrange(3))],
            "text": "x" * draw.randrange(9),
        }
        for _ in range(n)
    ]


@pytest.fixture(params=[1, 1 << 30], ids=["in order", "as they came"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Engine:
    monkeypatch.setattr("wherecast.engine.segment._FAR_APART", request.param)
    engine = Engine(SCHEMA)
    engine.subscribe_many(enumerate(FILTERS + FILTERS[:500]))
    return engine


FILTERS, EVENTS = make_filters(3_000), make_events(400)


def test_matches_stay_the_same(engine, tmp_path):
    scan = Engine(SCHEMA, matcher="scan")
    scan.subscribe_many(enumerate(FILTERS + FILTERS[:500]))
    expected = [sorted(ids) for ids in scan.match_batch(EVENTS)]
    assert sum(map(len, expected)) > 1_000
    assert [sorted(ids) for ids in engine.match_batch(EVENTS)] == expected
    assert [sorted(engine.match(event)) for event in EVENTS[:50]] == expected[:50]
    engine.save(tmp_path / "index")
    opened = Engine.open(tmp_path / "index")
    assert [sorted(ids) for ids in opened.match_batch(EVENTS)] == expected
    opened.plan(EVENTS)
    assert [sorted(ids) for ids in opened.match_batch(EVENTS)] == expected
    for number in range(3_500):
        if number % 3:
            opened.unsubscribe(number)
    opened.merge(everything=True)
    assert [sorted(ids) for ids in opened.match_batch(EVENTS)] == [[i for i in ids if i % 3 == 0] for ids in expected]


def test_filters_of_one_symbol_stand_together(monkeypatch):
    distances = {}
    for least in (1, 1 << 30):
        monkeypatch.setattr("wherecast.engine.segment._FAR_APART", least)
        engine = Engine(SCHEMA)
        draw = random.Random(7)
        engine.subscribe_many(
            (i, f"symbol = 's{draw.randrange(200)}' AND price {draw.choice('<>')} {draw.random()}")
            for i in range(6_000)
        )
        segment = engine._segments.readable().segments[0]
        matches = segment.match(engine._read([{"symbol": f"s{i}", "price": 0.5} for i in range(200)], "raise")[2])
        spans = [np.ptp(matches[1][a:b]) for a, b in zip(matches[0], matches[0][1:], strict=False)]
        distances[least] = float(np.mean(spans))
    assert distances[1] < 100 < 1_000 < distances[1 << 30]


def test_filters_that_nothing_satisfies(monkeypatch):
    """They have no clauses, so there is nothing to put in order."""
    monkeypatch.setattr("wherecast.engine.segment._FAR_APART", 1)
    engine = Engine({"n": "integer"})
    engine.subscribe_many([(0, "n = 0 AND n = 1"), (1, "n > 3 AND n < 2")])
    assert engine.match_batch([{"n": 1}, {"n": 3}]).to_lists() == [[], []]
