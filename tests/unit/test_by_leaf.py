"""Leaf by leaf, large batches find what the scan finds, in pieces of any size."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.stored_quotes import SCHEMA, draw_events, found, gated, mixed

from wherecast import Engine
from wherecast.errors import SnapshotError
from wherecast.matchers import adaptive

#: Leaves with guards, with bitmaps and with sure rows; boxes of a few rows and of many.
FORMS = {
    "gated": gated(),
    "mixed": mixed(),
    "wide ranges": [f"price BETWEEN {n % 50} AND {n % 50 + 40} AND volume BETWEEN {n % 400} AND {n % 400 + 500 + n % 7}" for n in range(3_000)],
    "unequal": [f"volume BETWEEN {n % 900} AND {n % 900 + 60} AND symbol <> 'S{n % 50}' AND price <> {n % 90}" for n in range(2_000)],
    "many constraints": [
        f"price > {n % 30} AND volume NOT IN ({n % 100}, {n % 77}, 5) AND symbol IN ('S{n % 9}', 'S{n % 11}', 'S{n % 13}') AND price <> 3"
        for n in range(2_000)
    ],
}  # fmt: skip


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Any matcher goes leaf by leaf, in small pieces; the first event of each call of the kernel."""
    calls: list[int] = []
    kernel = adaptive.match_by_leaf

    def spy(*given: Any) -> int:
        calls.append(given[4])
        return int(kernel(*given))

    for name, value in {
        "FAR_BYTES": 0,
        "REVISITS": 0,
        "PIECE_VISITS": 200,
        "LEAF_VISITS": 1,
        "PIECE_EVENTS": 90,
    }.items():
        monkeypatch.setattr(adaptive, name, value)
    monkeypatch.setattr(adaptive, "match_by_leaf", spy)
    return calls


def make(filters: list[str], matcher: str = "adaptive") -> Engine:
    engine = Engine(SCHEMA, matcher=matcher)
    engine.subscribe_many(list(enumerate(filters)))
    engine.plan(draw_events(1_000))
    return engine


@pytest.mark.parametrize("filters", FORMS.values(), ids=FORMS)
def test_finds_what_the_scan_finds(pieces: list[int], filters: list[str]) -> None:
    events = draw_events(700)
    expected = found(make(filters, "scan"), events, 700)
    assert sum(map(len, expected)) > 150
    engine = make(filters)
    assert found(engine, events, 700) == expected
    assert engine.count(events).tolist() == [len(ids) for ids in expected]
    assert pieces


def test_more_matches_than_room(pieces: list[int]) -> None:
    """What a plan did not expect makes room grow; events that were done are not matched again."""
    texts = [f"symbol = 'A' AND price < {1000 + n}" for n in range(9_000)]
    engine, scan = Engine(SCHEMA), Engine(SCHEMA, matcher="scan")
    for each in (engine, scan):
        each.subscribe_many(list(enumerate(texts)))
        each.plan([{"symbol": "C", "price": 1.0}] * 300)
    events = [{"symbol": "CA"[n % 5 == 4], "price": 5.0} for n in range(60)]
    assert engine.match_batch(events).counts().tolist() == scan.match_batch(events).counts().tolist()
    assert len(pieces) > 1
    assert pieces == sorted(pieces)


def test_lists_go_event_by_event(pieces: list[int]) -> None:
    """An event with a list of codes may meet a leaf twice, which a visit has no place for."""
    engine, scan = (
        Engine({"tags": "array<string>", "n": "long"}),
        Engine({"tags": "array<string>", "n": "long"}, matcher="scan"),
    )
    for each in (engine, scan):
        each.subscribe_many([(n, f"array_contains(tags, 't{n % 40}') AND n > {n}") for n in range(500)])
    events = [{"tags": [f"t{n % 40}", f"t{n % 7}"], "n": n * 9} for n in range(50)]
    assert [sorted(ids) for ids in engine.match_batch(events).to_lists()] == [
        sorted(ids) for ids in scan.match_batch(events).to_lists()
    ]
    assert not pieces


def test_pieces_follow_the_plan(pieces: list[int]) -> None:
    """An event with more leaves than a plan expects makes the piece shorter, and nothing is lost."""
    filters = FORMS["mixed"]
    engine = Engine(SCHEMA)
    engine.subscribe_many(list(enumerate(filters)))
    engine.plan([{"symbol": "nobody", "price": -5.0, "volume": -1}] * 300)
    events = draw_events(400)
    assert found(engine, events, 400) == found(make(filters, "scan"), events, 400)
    assert pieces


def test_a_tree_that_leads_to_a_leaf_again_and_again(pieces: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """No planner makes one, but a file may have it: an error, and no search without end."""
    monkeypatch.setattr(adaptive, "PIECE_VISITS", 1)
    monkeypatch.setattr(adaptive, "LEAF_VISITS", 0)
    with pytest.raises(SnapshotError, match="more leaves than the index has"):
        make(FORMS["mixed"]).match_batch(draw_events(300))


def test_a_plan_out_of_a_file_may_expect_anything(pieces: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    engine, events = make(FORMS["mixed"]), draw_events(300)
    expected = found(engine, events, 300)
    (segment,) = engine._segments.readable().segments
    monkeypatch.setattr(adaptive, "MOST_EXPECTED", 1 << 16)
    for visits in (0.0, 1e17):
        segment.matcher._visits[:] = visits
        segment.matcher._spare_leaf_rooms.clear()
        assert found(engine, events, 300) == expected
    assert pieces
