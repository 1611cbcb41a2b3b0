"""Segments are merged when the traffic since the last change has paid for it."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pyarrow as pa
import pytest

from wherecast import Engine
from wherecast.engine.log import EVENTS_PER_BUILD, LEAST_EVENTS, EngineState, Log, Traffic


class _Sized(SimpleNamespace):
    """A segment as `Traffic` sees it."""

    def __len__(self) -> int:
        return self.size


def _segments(*sizes: int) -> list[_Sized]:
    return [_Sized(size=size, deaths=0) for size in sizes]


def _wait_for_merges() -> None:
    for thread in threading.enumerate():
        if thread.name == "wherecast-merge":
            thread.join()


def _loaded() -> Engine:
    """An engine of two segments, the first of which is too large to be merged for the sake of the second."""
    engine = Engine({"a": "integer"})
    engine.subscribe_many([(i, f"a = {i}") for i in range(50)])
    engine.subscribe_many([(100 + i, f"a = {i}") for i in range(5)])
    _wait_for_merges()
    assert len(engine.stats()["segments"]) == 2
    return engine


def _state() -> EngineState:
    return EngineState(0, (), Log(), 0, 0)


@pytest.mark.parametrize(
    ("sizes", "events", "first"),
    [
        ((1_000_000, 100), LEAST_EVENTS - 1, 2),
        ((1_000_000, 100), 63_000_000, 2),
        ((1_000_000, 100), 65_000_000, 0),
        ((1_000_000, 1_000, 100), LEAST_EVENTS, 3),
        ((1_000_000, 1_000, 100), EVENTS_PER_BUILD * 1_100, 1),
        ((100, 100, 100), LEAST_EVENTS, 0),
        ((100,), 10**9, 1),
    ],
)
def test_as_many_segments_are_merged_as_events_have_paid_for(sizes, events, first):
    """The longest run at the end is merged whose building costs no more than the events have lost by its segments."""
    assert Traffic().first_due(_state(), _segments(*sizes), events) == first


def test_events_count_from_the_last_change():
    """Events add up over batches as long as the state is the same; a change starts anew."""
    traffic, segments = Traffic(), _segments(100, 100)
    state, changed = _state(), _state()._replace(version=1)
    assert traffic.first_due(state, segments, LEAST_EVENTS - 1) == 2
    assert traffic.first_due(state, segments, 1) == 0
    assert traffic.first_due(changed, segments, 1) == 2


def test_traffic_leaves_one_segment_and_the_same_matches():
    """After changes one by one, enough events have the segments and the log merged into one, and match as before."""
    engine = _loaded()
    engine.subscribe(1_000, "a < 3")
    events = pa.table({"a": pa.array(range(LEAST_EVENTS), pa.int64())})
    before = sorted(engine.match_batch(events).subscription_ids().tolist())
    _wait_for_merges()
    assert len(engine.stats()["segments"]) == 1
    assert sorted(engine.match_batch(events).subscription_ids().tolist()) == before


def test_without_single_changes_places_stay():
    """An engine that is only loaded keeps its segments, however many events come: callers may keep places."""
    engine = _loaded()
    events = pa.table({"a": pa.array(range(2 * LEAST_EVENTS), pa.int64())})
    before = engine.places()
    engine.match_batch(events)
    assert not [thread for thread in threading.enumerate() if thread.name == "wherecast-merge"]
    assert engine.places().tolist() == before.tolist()
