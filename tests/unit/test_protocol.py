"""What the engine relies on in every matcher."""

from __future__ import annotations

import numpy as np
import pytest

import wherecast.engine.segment
import wherecast.index.build
import wherecast.matchers.adaptive
from wherecast import Engine
from wherecast.matchers.protocol import Matcher
from wherecast.matchers.registry import MATCHERS, find_matcher

FILTERS = {n: f"price > {n} AND symbol = 'S{n % 7}'" for n in range(50)}


def loaded(matcher: str = "adaptive") -> Engine:
    engine = Engine({"symbol": "string", "price": "double"}, matcher=matcher)
    engine.subscribe_many(FILTERS)
    return engine


@pytest.mark.parametrize("name", MATCHERS)
def test_every_matcher_has_the_defaults_of_the_base(name):
    """So the engine asks for nothing that a matcher may lack."""
    assert issubclass(find_matcher(name), Matcher)
    assert find_matcher(name).name == name


def test_boxes_are_packed_once(monkeypatch):
    """A segment packs its boxes and the matcher checks candidates against the same arrays, also after planning."""
    calls = []
    for module in (wherecast.index.build, wherecast.matchers.adaptive):
        pack = module.pack_boxes
        monkeypatch.setattr(module, "pack_boxes", lambda boxes, pack=pack: calls.append(boxes) or pack(boxes))
    engine = loaded()
    (segment,) = engine._segments.state.segments
    assert len(calls) == 1
    for _ in range(2):
        assert segment.matcher._rows[2] is segment.boxes.attr or np.shares_memory(
            segment.matcher._rows[2], segment.boxes.attr
        )
        engine.plan([{"symbol": "S1", "price": 3.0}] * 10)
    assert len(calls) == 1


def test_filters_are_copied_once(monkeypatch):
    """Of the filters of a batch, those that are stored are taken once, in their order."""
    taken = []
    take = wherecast.engine.segment.take_filters
    monkeypatch.setattr(wherecast.engine.segment, "take_filters", lambda f, c: taken.append(c.size) or take(f, c))
    loaded()
    assert taken == [50]


def test_an_opened_matcher_shares_the_boxes(tmp_path):
    """Boxes are stored once, and a matcher that was opened uses those of its segment."""
    loaded().save(tmp_path / "saved")
    engine = Engine.open(tmp_path / "saved")
    (segment,) = engine._segments.state.segments
    assert np.shares_memory(segment.matcher._rows[2], segment.boxes.attr)
    assert sorted(engine.match({"symbol": "S1", "price": 9.5})) == [1, 8]
