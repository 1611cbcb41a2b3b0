"""Stored values are matched in one kernel call, a few events at a time; batches of any size find what the scan finds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.examples import is_fast
from tests.unit.stored_quotes import SCHEMA, draw_events, found, gated, mixed

from wherecast import Engine
from wherecast.matchers.adaptive import AdaptiveMatcher


def make(filters: list[str], matcher: str = "adaptive", texts: bool = False) -> Engine:
    engine = Engine(SCHEMA, matcher=matcher)
    engine.subscribe_many([(f"id{n}" if texts else n, text) for n, text in enumerate(filters)])
    engine.plan(draw_events(1_000))
    return engine


@pytest.mark.sampled
@pytest.mark.parametrize("filters", [gated(), mixed(), [*gated(), *mixed()]], ids=["gated", "mixed", "both"])
@pytest.mark.parametrize("texts", [False, True])
def test_any_size_of_batch_finds_the_same(filters: list[str], texts: bool) -> None:
    engine, scan = make(filters, texts=texts), make(filters, "scan", texts=texts)
    events = draw_events(1_300)
    expected = found(scan, events, 1_300)
    assert sum(map(len, expected)) > 300
    for size in (1, 7, 100, 511, 700, 1_300):
        few = 100 if is_fast() and size < 100 else 1_300  # a batch takes as long as its call
        assert found(engine, events[:few], size) == expected[:few]


@pytest.mark.slow
def test_after_changes() -> None:
    """Dead subscriptions are left out, and several segments are put together."""
    engine = make(gated())
    scan = make(gated(), "scan")
    for each in (engine, scan):
        for id in range(0, 900, 3):
            each.unsubscribe(id)
        each.subscribe_many([(10_000 + n, text) for n, text in enumerate(mixed(500))])
    events = draw_events(300)
    for size in (1, 64, 300):
        assert found(engine, events, size) == found(scan, events, 300)


@pytest.mark.slow
def test_more_matches_than_room() -> None:
    """Many more matches than the plan expects are found, too, and many subscriptions of one filter."""
    texts = [f"symbol = 'A' AND price < {1000 + n}" for n in range(9_000)]
    engine, scan = Engine(SCHEMA), Engine(SCHEMA, matcher="scan")
    for each in (engine, scan):
        each.subscribe_many([*enumerate(texts), *((20_000 + n, "symbol = 'B'") for n in range(3_000))])
        each.plan([{"symbol": "C", "price": 1.0}] * 300)
    events = pa.RecordBatch.from_pylist(
        [{"symbol": s, "price": 5.0, "volume": 1} for s in ("A", "B", "C", "A", "B")],
        pa.schema([("symbol", pa.string()), ("price", pa.float64()), ("volume", pa.int64())]),
    )
    assert found(engine, events, 5) == found(scan, events, 5)
    assert [len(ids) for ids in found(engine, events, 2)] == [9_000, 3_000, 0, 9_000, 3_000]


def test_a_large_batch_in_several_pieces() -> None:
    """Where room runs out amid a batch, matching goes on from the event that did not fit."""
    engine, scan = Engine(SCHEMA), Engine(SCHEMA, matcher="scan")
    for each in (engine, scan):
        each.subscribe_many([(n, f"symbol = 'S{n % 3}' AND price < {1000 + n}") for n in range(900)])
        each.plan([{"symbol": "C", "price": 1.0}] * 300)
    events = draw_events(1_200)
    expected = found(scan, events, 1_200)
    assert sum(map(len, expected)) > 4_000
    assert found(engine, events, 1_200) == expected


@pytest.mark.parametrize("takes_null", [False, True])
def test_events_without_any_value(takes_null: bool) -> None:
    """Events of which all is NULL are left out early, unless a filter takes them."""
    filters = [text for text in mixed() if takes_null or "NULL" not in text]
    filters += ["symbol IS NULL AND price IS NULL", "volume IS NULL"] if takes_null else []
    drawn = draw_events(600)
    events = drawn.to_pylist()
    for event in events[::3] + events[1::3]:
        event.update(dict.fromkeys(SCHEMA))
    batch = pa.RecordBatch.from_pylist(events, drawn.schema)
    engine, scan = make(filters), make(filters, "scan")
    for each in (engine, scan):
        each.plan(batch)
    expected = found(scan, batch, 600)
    assert bool(expected[0]) == takes_null
    assert any(expected)
    assert found(engine, batch, 600) == expected


def test_it_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes are not made for the whole batch first."""
    engine = make(gated())
    expected = found(engine, draw_events(1_300), 1_300)

    def refuse(*_: object) -> None:
        raise AssertionError("codes were made first")

    monkeypatch.setattr(AdaptiveMatcher, "match", refuse)
    assert found(engine, draw_events(1_300), 1_300) == expected


def test_many_optional_attributes_find_the_same() -> None:
    """An event goes by the attributes that it has; what filters ask of those that it has not still counts."""
    rng, names = np.random.default_rng(6), [f"a{i}" for i in range(40)]

    def draw_filter() -> str:
        (a, b), (v, w) = rng.choice(40, 2, replace=False).tolist(), (3 * rng.integers(0, 8, 2)).tolist()
        others = f"a{b} = {w}", f"a{35 + b % 5} IS NULL", f"a{b % 5} <> {w}", f"a{b % 5} >= {w}"
        return f"a{a} = {v} AND {others[rng.choice(4, p=[0.6, 0.2, 0.1, 0.1])]}"

    values, is_null = rng.integers(0, 24, (700, 40)), rng.random((700, 40)) > 0.1
    is_null[:3] = [[True], [False], [True]]
    events = pa.RecordBatch.from_arrays(
        [pa.array(values[:, i], mask=is_null[:, i]) for i in range(40)], names=names
    )  # fmt: skip
    filters = [(n, draw_filter()) for n in range(3_000)]
    engine, scan = (Engine(dict.fromkeys(names, "long"), matcher=matcher) for matcher in ("adaptive", "scan"))
    for each in (engine, scan):
        each.subscribe_many(filters)
        each.plan(events)
    expected = found(scan, events, 700)
    assert sum(map(len, expected)) > 300
    for size in (1, 100, 700):
        assert found(engine, events[:100] if size == 1 else events, size) == expected[: 100 if size == 1 else 700]


FEW_VALUES = {
    2: ["a{a} = {v} AND a{b} > {w}", "a{a} <> {v} AND a{b} = {w}", "a{a} = {v} AND a{b} < {w} AND a{c} IS NULL"],
    3: ["a{a} < {v} AND a{b} > {w} AND a{c} <> {v}", "a{a} = {v} AND a{b} >= {w} AND a{c} IS NOT NULL"],
    1: ["a{a} = {v} AND a{b} > {w}", "a{a} = {v}"],
    0: ["a{a} = {v} AND a{b} > {w}", "a{a} IS NULL AND a{b} IS NULL"],
    -1: ["a{a} = {v}", "a{a} IS NULL"],  # one, and only then none
}


@pytest.mark.parametrize("fewest", sorted(FEW_VALUES))
def test_events_with_fewer_values_than_any_filter_needs(fewest: int) -> None:
    """They are left out by bits that say which events have a value; a slice may begin in the middle of a byte."""
    rng, names = np.random.default_rng(fewest + 1), ["a0", "a1", "a2", "a3"]
    filters = []
    for n in range(600):
        (a, b, c), (v, w) = rng.choice(4, 3, replace=False).tolist(), rng.integers(0, 9, 2).tolist()
        filters.append((n, FEW_VALUES[fewest][n % len(FEW_VALUES[fewest])].format(a=a, b=b, c=c, v=v, w=w)))
    is_null = rng.random((700, 4)) > 0.25
    is_null[:, 3] &= rng.random(700) < 0.5
    events = pa.RecordBatch.from_arrays(
        [pa.array(rng.integers(0, 9, 700), mask=is_null[:, i]) for i in range(4)], names=names
    )
    engine, scan = (Engine(dict.fromkeys(names, "long"), matcher=matcher) for matcher in ("adaptive", "scan"))
    for each in (engine, scan):
        each.subscribe_many(filters)
        each.plan(events)
    expected = found(scan, events, 700)
    assert any(expected)
    for begin, size in ((0, 700), (0, 64), (5, 100), (67, 633)):
        assert found(engine, events[begin:], size) == expected[begin:]


@pytest.mark.parametrize("most", [3, 40])
def test_a_filter_with_several_clauses_is_found_once(most: int) -> None:
    """Whether an event meets a few clauses of a filter or many."""
    filters = [" OR ".join(f"(price < {10 + n + i} AND volume > {i})" for i in range(most)) for n in range(30)]
    engine, scan = make(filters), make(filters, "scan")
    events = draw_events(400)
    expected = found(scan, events, 400)
    assert sum(map(len, expected)) > 100
    for size in (1, 400):
        assert found(engine, events, size) == expected
