"""Replanning: what a plan expects is compared with what events meet, and a plan that is off is made again."""

from __future__ import annotations

import logging
import threading

import pyarrow as pa
import pytest

from wherecast import Engine
from wherecast.engine import planning
from wherecast.engine.planning import Observation


def match(engine: Engine, a: int, b: int) -> dict[str, object]:
    """What the engine says of its only segment after 300 events with these values, when planning is done."""
    engine.match_batch(pa.table({"a": [a] * 300, "b": [b] * 300}))
    for thread in threading.enumerate():
        if thread.name == "wherecast-plan":
            thread.join()
    return engine.stats()["segments"][0]


@pytest.mark.parametrize(
    ("expected", "observed", "is_off"),
    [(0, 16, False), (0, 17, True), (100, 216, False), (100, 217, True), (217, 100, True), (216, 100, False)],
)
def test_off_is_a_factor_of_two_and_some_slack(expected: float, observed: float, is_off: bool) -> None:
    """In either direction."""
    assert Observation(expected, observed).is_off is is_off


def test_a_plan_that_is_off_is_made_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Every pair of values has a filter: which of the two is rare depends on the events."""
    monkeypatch.setattr(planning, "SOON", 250)
    monkeypatch.setattr(planning, "INTERVAL", 250)
    caplog.set_level(logging.INFO, logger="wherecast.engine.planning")
    engine = Engine({"a": "long", "b": "long"})
    engine.subscribe_many({i: f"a = {i % 60} AND b = {i // 60}" for i in range(3600)})
    assert engine.stats()["segments"][0]["plans"] == 0

    first = match(engine, 5, 7)
    assert first["plans"] == 1
    assert first["planned_candidates_per_event"] == 0  # nothing was known
    settled = match(engine, 5, 7)
    assert settled["plans"] == 1
    assert settled["observed_candidates_per_event"] == settled["planned_candidates_per_event"]

    changed = match(engine, 6, 8)
    assert changed["observed_candidates_per_event"] > 2 * changed["planned_candidates_per_event"] + 16
    assert changed["plans"] == 2
    assert [record.getMessage().rpartition("=")[2] for record in caplog.records] == ["true", "false", "true"]
