"""The engines that are forged: every matcher over several shapes of filters, and what is asked of an opened one."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wherecast.engine.engine import Engine
from wherecast.errors import MatcherError, WherecastError
from wherecast.index.packed import unpack_boxes
from wherecast.language.events.events import EventBatch
from wherecast.matchers.adaptive import AdaptiveMatcher
from wherecast.matchers.adaptive_plan import Costs
from wherecast.matchers.registry import MATCHERS

#: Events of a batch; fewer than make the engine plan in a thread of its own.
N_EVENTS = 60

_DAY = dt.date(2024, 1, 1)
_TIME = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


class Shape(NamedTuple):
    """A kind of filters: a schema, texts and events to draw, and what happens to the engine before it is saved."""

    schema: dict[str, object]
    filter: Callable[[random.Random], str]
    event: Callable[[random.Random], dict[str, Any]]
    size: int
    id: Callable[[int], int | str]
    is_changed: bool  # several segments, priorities and removed subscriptions
    matchers: Collection[str] = MATCHERS


def _plain_filter(rng: random.Random) -> str:
    tests = [
        f"symbol = 'S{rng.randrange(40)}'",
        f"price {rng.choice(('<', '>', '>=', '<='))} {rng.randrange(100)}.5",
        f"volume BETWEEN {rng.randrange(50)} AND {50 + rng.randrange(50)}",
        f"volume IN ({rng.randrange(9)}, {20 + rng.randrange(9)}, {40 + rng.randrange(9)})",
        f"symbol <> 'S{rng.randrange(40)}'",
        f"symbol > 'S{rng.randrange(40)}'",
    ]
    return " AND ".join(rng.sample(tests, rng.choice((1, 2, 3))))


def _plain_event(rng: random.Random) -> dict[str, Any]:
    return {
        "symbol": rng.choice((None, f"S{rng.randrange(45)}")),
        "price": rng.choice((None, float("nan"), 1.0 * rng.randrange(110))),
        "volume": rng.randrange(110),
    }


def _deep_filter(rng: random.Random) -> str:
    tests = [f"symbol = 'S{rng.randrange(25)}'", f"price = {100 * rng.randrange(25)}", f"volume = {rng.randrange(25)}"]
    low = rng.randrange(2_000)
    tests += [f"price BETWEEN {low} AND {low + 90}", f"array_contains(marks, {rng.randrange(40)})", "kind <> 2"]
    return " AND ".join(tests[:3] if rng.random() < 0.8 else rng.sample(tests, 3))


def _deep_event(rng: random.Random) -> dict[str, Any]:
    return {
        "symbol": f"S{rng.randrange(26)}",
        "price": rng.choice((100 * rng.randrange(26), rng.randrange(2_500))),
        "marks": [rng.randrange(40) for _ in range(rng.randrange(5))],
        "volume": rng.randrange(26),
        "kind": rng.randrange(4),
    }


def _dense_filter(rng: random.Random) -> str:
    return " AND ".join(f"a{i} <> {rng.randrange(4)}" for i in rng.sample(range(5), rng.choice((1, 2, 3, 4))))


def _dense_event(rng: random.Random) -> dict[str, Any]:
    return {f"a{i}": rng.randrange(5) for i in range(5)}


def _mixed_filter(rng: random.Random) -> str:
    word = rng.choice("abcdef")
    tests = [
        f"name LIKE '%{word}%'",
        f"lower(name) = '{word}b'",
        f"name MATCHES '{word}a/#' OR name MATCHES '+/{word}'",
        f"ANY_KEYWORD(name, '{word}', '{word}b', 'internationally')",
        f"high > low + {rng.randrange(5)}",
        f"SIMILAR(vector, ARRAY({rng.randrange(1, 5)}, {rng.randrange(5)})) >= 0.{rng.randrange(10)}",
        f"name IN ('{word}', '{word}a') OR low < {rng.randrange(9)}",
        f"array_contains(tags, '{word}')",
        f"array_contains(tags, '{word}') AND array_contains(tags, 'z')",
        f"array_contains(marks, {rng.randrange(9)})",
        f"day >= DATE '2024-01-{1 + rng.randrange(28):02}'",
        f"seen < TIMESTAMP '2024-01-{1 + rng.randrange(28):02} 10:00:00'",
        f"low * 2 IN ({rng.randrange(20)}, {rng.randrange(20)})",
        "flag",
        "name IS NULL",
    ]
    return " AND ".join(f"({test})" for test in rng.sample(tests, rng.choice((1, 2))))


def _mixed_event(rng: random.Random) -> dict[str, Any]:
    return {
        "name": rng.choice((None, rng.choice("abcdef") + rng.choice(("", "a", "b")))),
        "low": rng.randrange(10),
        "high": 1.5 * rng.randrange(10),
        "vector": rng.choice((None, [rng.randrange(4), rng.randrange(4)])),
        "tags": rng.choice((None, [], rng.sample("abcdefz", 3))),
        "marks": [rng.randrange(9) for _ in range(rng.randrange(4))],
        "day": _DAY + dt.timedelta(rng.randrange(40)),
        "seen": _TIME + dt.timedelta(hours=rng.randrange(900)),
        "flag": rng.choice((None, True, False)),
    }


SHAPES = {
    "plain": Shape(
        {"symbol": "string", "price": "double", "volume": "long"}, _plain_filter, _plain_event, 240, int, is_changed=False
    ),
    "deep": Shape(
        {"symbol": "string", "price": "long", "marks": "array<long>", "volume": "long", "kind": "long"},
        _deep_filter, _deep_event, 1_200, int, is_changed=False, matchers=("adaptive",),
    ),
    "dense": Shape({f"a{i}": "long" for i in range(5)}, _dense_filter, _dense_event, 900, int, is_changed=False),
    "mixed": Shape(
        {
            "name": "string", "low": "long", "high": "double", "tags": "array<string>", "marks": "array<long>",
            "day": "date", "seen": "timestamp", "flag": "boolean", "vector": "vector(2)",
        },
        _mixed_filter, _mixed_event, 120, lambda i: f"id-{i}" if i % 3 else i, is_changed=True,
    ),
}  # fmt: skip


def draw_events(shape: Shape, seed: int = 7) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    return [shape.event(rng) for _ in range(N_EVENTS)]


def save_engines(folder: Path) -> Iterator[str]:
    """Save an engine of every matcher and shape; yields the names of their folders, `matcher+shape`."""
    for matcher in MATCHERS:
        for name in (name for name, shape in SHAPES.items() if matcher in shape.matchers):
            try:
                make_engine(matcher, SHAPES[name]).save(folder / f"{matcher}+{name}")
            except MatcherError:
                continue  # a matcher of the papers that cannot serve this shape
            yield f"{matcher}+{name}"


def make_engine(matcher: str, shape: Shape) -> Engine:
    """An engine of a shape, always the same."""
    rng = random.Random(1)
    engine = Engine(shape.schema, matcher=matcher)
    engine.plan(draw_events(shape, 5))
    pairs = [(shape.id(i), shape.filter(rng)) for i in range(shape.size)]
    parts = 3 if shape.is_changed else 1
    for part in range(parts):
        engine.subscribe_many(pairs[part::parts])
    engine.plan(draw_events(shape, 6))
    if shape is SHAPES["deep"]:
        _deepen(engine, draw_events(shape, 6))
    if shape.is_changed:
        for number in range(0, shape.size, 11):
            engine.unsubscribe(shape.id(number))
        for i in range(5):
            engine.subscribe(f"late-{i}", shape.filter(rng), priority=float(i))
    return engine


def _deepen(engine: Engine, events: list[dict[str, Any]]) -> None:
    """Plan as for millions of filters, with several levels of lookups; so few would be one leaf."""
    costs = Costs(test=0.1, visit=0.1, column=50, word=50, smallest=8)
    for segment in engine._segments.readable().segments:
        codes = segment.encode(EventBatch.read(engine.schema, events))
        boxes, weights = unpack_boxes(segment.boxes), np.diff(segment.subscriptions.ptr)
        segment._install(AdaptiveMatcher.build(boxes, codes, weights, costs))


class Outcome(NamedTuple):
    """What became of a forged snapshot."""

    kind: str  # "refused" when opened, "harmless", or "failed": an error that is none of ours
    detail: str


def try_snapshot(path: Path, shape: Shape, scratch: Path) -> Outcome:
    """Open a snapshot and ask everything of it. Errors of ours are fine, at any step; a crash is the caller's to see."""
    try:
        engine = Engine.open(path)
    except WherecastError as error:
        return Outcome("refused", str(error))
    for step in _steps(engine, shape, scratch):
        try:
            step()
        except WherecastError:
            continue
    return Outcome("harmless", "")


def _steps(engine: Engine, shape: Shape, scratch: Path) -> Iterator[Callable[[], object]]:
    events = draw_events(shape)
    yield lambda: engine.count(events)
    yield lambda: engine.match_batch(events).to_lists()
    yield lambda: engine.match_batch(events).top(2)
    yield lambda: engine.match_batch(events).to_list_array()
    yield lambda: engine.match_batch(events, threads=2).to_arrow()
    yield lambda: engine.candidates(events)
    for event in events[:3]:
        yield lambda event=event: engine.match(event)
        for key in islice(_all_ids(engine), 0, None, 1 + len(engine) // 15):
            yield lambda event=event, key=key: str(engine.explain(event, key))
    yield engine.explain_plan
    yield engine.stats
    yield lambda: engine.save(scratch)
    for number in (1, 4, 7):
        yield lambda number=number: engine.unsubscribe(shape.id(number))
    yield lambda: engine.subscribe("new", shape.filter(random.Random(3)))
    yield lambda: engine.match_batch(events).counts()
    yield lambda: engine.merge(everything=True)
    yield lambda: engine.match_batch(events).to_lists()
    yield lambda: engine.plan(events)
    yield lambda: engine.count(events)
    yield lambda: engine.save(scratch)


def _all_ids(engine: Engine) -> list[Any]:
    try:
        return list(engine)
    except WherecastError:
        return []
