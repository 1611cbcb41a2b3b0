"""Replanning: what a plan expects is compared with what events meet, and a plan that is off is made again."""

from __future__ import annotations

import logging
import threading

import pyarrow as pa
import pytest

from wherecast import Engine
from wherecast.engine import planning
from wherecast.engine.planning import Observation


def events(a: int, b: int) -> pa.Table:
    """300 events with these values."""
    return pa.table({"a": [a] * 300, "b": [b] * 300})


def match(engine: Engine, batch: pa.Table) -> dict[str, object]:
    """What the engine says of its only segment after a batch, when planning is done."""
    engine.match_batch(batch)
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
    """Half of the filters are filed under b = 7, as planned, when most events turn out to have it."""
    monkeypatch.setattr(planning, "SOON", 250)
    monkeypatch.setattr(planning, "INTERVAL", 250)
    caplog.set_level(logging.INFO, logger="wherecast.engine.planning")
    engine = Engine({"a": "long", "b": "long"})
    filters = [f"a = 5 AND b = {k}" for k in range(3000)] + [f"a > {-2 - k} AND b = 7" for k in range(3000)]
    engine.subscribe_many(enumerate(filters))
    assert engine.stats()["segments"][0]["plans"] == 0
    engine.plan(events(5, -1))

    settled = match(engine, events(5, -1))
    assert settled["plans"] == 1
    assert settled["observed_candidates_per_event"] == settled["planned_candidates_per_event"] < 16

    changed = match(engine, events(-1, 7))
    assert changed["observed_candidates_per_event"] > 2000
    assert changed["plans"] == 2
    again = match(engine, events(-1, 7))
    assert again["observed_candidates_per_event"] == again["planned_candidates_per_event"]
    assert [record.getMessage().rpartition("=")[2] for record in caplog.records] == ["false", "true", "false"]
