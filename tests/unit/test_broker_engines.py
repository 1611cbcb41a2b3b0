"""The engine of a space: what it does with events that cannot be matched."""

from __future__ import annotations

from wherecast import Engine, Limits
from wherecast.broker.core import EventsIn
from wherecast.broker.engines import SpaceEngine


def test_an_event_that_takes_too_much_is_refused_alone():
    """One event by itself is refused as it is among others: with its row and the reason, and without failing the group."""
    engine = Engine({"s": "string", "n": "int"})
    engine.subscribe(1, "length(repeat(s, n)) > 0")
    space = SpaceEngine(engine, 1, 1, Limits())
    large, small = {"s": "abc", "n": 5_000_000}, {"s": "", "n": 1}
    for values in ([large], [large, small]):
        found = space.find([EventsIn([b"{}"] * len(values), values)])
        assert [error.row for error in found.errors] == [0]
        assert "would make a text" in found.errors[0].message
        assert found.rows.size == 0
