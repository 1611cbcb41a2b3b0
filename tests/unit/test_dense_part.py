"""Filters that most events satisfy go from bits to subscriptions, the others from clauses: together they are the matches."""

from __future__ import annotations

import random

import numpy as np
import pytest

from wherecast import Engine
from wherecast.engine.matches import DenseMatches, Matches

SCHEMA = {"symbol": "string", "price": "integer", "n": "integer"}


def make_filters() -> list[str]:
    """Some that hold for most events, of one subscriber and of several; others for few."""
    draw = random.Random(3)
    common = [f"price > {i % 9} AND n < {120 + i // 9}" for i in range(200)]
    shared = [f"price > {i % 7} AND n < {90 + i}" for i in range(12) for _ in range(3 * i + 2)]
    rare = [f"symbol = 's{draw.randrange(150)}' AND price > {draw.randrange(9)}" for _ in range(1_500)]
    filters = [*common, *shared, *rare, *rare[:60]]
    draw.shuffle(filters)
    return filters


def make_events(n: int) -> list[dict[str, object]]:
    draw = random.Random(4)
    return [
        {"symbol": f"s{draw.randrange(150)}", "price": draw.choice([None, *range(4, 99)]), "n": draw.randrange(130)}
        for _ in range(n)
    ]


FILTERS, EVENTS = make_filters(), make_events(300)


IDS = {"short": int, "long": lambda i: i + 2**40, "text": str, "both": lambda i: str(i) if i % 2 else i}


@pytest.fixture(params=IDS.values(), ids=IDS)
def engines(request):
    """An engine that is planned for the events, and one that looks at every filter."""
    made = []
    for matcher in ("adaptive", "scan"):
        engine = Engine(SCHEMA, matcher=matcher)
        engine.subscribe_many((request.param(i), text) for i, text in enumerate(FILTERS))
        made.append(engine)
    made[0].plan(EVENTS)
    plan = made[0].explain_plan()
    assert "dense part: 212 clauses" in plan
    assert "1126 clauses" in plan
    return made


def by_event(matches: Matches) -> list[list[str]]:
    return [sorted(map(repr, ids)) for ids in matches.to_lists()]


@pytest.mark.parametrize("n_events", [1, 3, 300])
def test_matches_are_those_of_a_scan(engines, n_events):
    """Ids, counts and places, for so few events that values are looked up one by one, and for more."""
    found, wanted = (engine.match_batch(EVENTS[:n_events]) for engine in engines)
    assert isinstance(found.parts[0], DenseMatches)
    assert found.counts().tolist() == wanted.counts().tolist() == engines[0].count(EVENTS[:n_events]).tolist()
    assert by_event(found) == by_event(wanted)
    ids = engines[0].match_batch(EVENTS[:n_events]).subscription_ids()
    assert sorted(map(repr, ids.tolist())) == sorted(map(repr, wanted.subscription_ids().tolist()))
    assert engines[0].places(found.subscription_ids().tolist()).tolist() == found.places().tolist()


def test_what_dies_later_stays_in_the_matches(engines):
    """Matches are those of their version; those that come after do without the dead."""
    engine, scan = engines
    before, wanted = engine.match_batch(EVENTS[:50]), by_event(scan.match_batch(EVENTS[:50]))
    gone = scan.match_batch(EVENTS[:50]).subscription_ids()[:40].tolist()
    for each in engines:
        for id in dict.fromkeys(gone):
            each.unsubscribe(id)
    assert by_event(before) == wanted
    assert by_event(engine.match_batch(EVENTS[:50])) == by_event(scan.match_batch(EVENTS[:50])) != wanted


def test_another_plan_does_not_change_matches(engines):
    """A matcher that is replaced goes on to answer for its matches."""
    engine, scan = engines
    before = engine.match_batch(EVENTS[:50])
    engine.plan(EVENTS[:1] * 300)
    assert by_event(before) == by_event(engine.match_batch(EVENTS[:50])) == by_event(scan.match_batch(EVENTS[:50]))


def test_a_second_segment_writes_behind_the_first(engines):
    """Parts of an event follow each other, and none is written over."""
    for engine in engines:
        for i in range(40):
            engine.subscribe(f"more {i}", f"price > {i % 5}")
    found, wanted = (engine.match_batch(EVENTS) for engine in engines)
    assert len(found.parts) == 2
    assert by_event(found) == by_event(wanted)
    assert np.array_equal(found.counts(), wanted.counts())
