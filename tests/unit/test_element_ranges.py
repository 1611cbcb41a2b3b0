"""`exists(a, x -> x > 5)`: some element in a range, answered by the index."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from wherecast import Engine

FIELDS = {"a": "array<bigint>", "t": "array<string>", "d": "array<double>", "w": "array<decimal(30,2)>"}
VALUES: dict[str, list[Any]] = {
    "a": [-(2**63), -6, 0, 1, 3, 4, 5, 6, 9, 2**63 - 1],
    "t": ["", "a", "b", "bb", "c", "d", "é", "😀"],
    "d": [1.0, 2.0, -0.0, math.nan, math.inf],
    "w": [Decimal(v) for v in ("-9999999999999999999999999999.99", "-1", "1", "1.5", "2", "3")],
}
#: By filter: the array and the test of an element.
RANGES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "exists(a, x -> x > 5)": ("a", lambda x: x > 5),
    "exists(a, x -> 5 > x)": ("a", lambda x: x < 5),
    "exists(a, x -> x BETWEEN 3 AND 5)": ("a", lambda x: 3 <= x <= 5),
    "exists(a, x -> x BETWEEN 5 AND 3)": ("a", lambda _: False),
    "exists(a, x -> x < -9223372036854775807)": ("a", lambda x: x == -(2**63)),
    "exists(a, x -> x <= 9223372036854775807)": ("a", lambda _: True),
    "exists(a, x -> x < 5) OR exists(a, x -> x >= 5)": ("a", lambda _: True),
    "exists(a, x -> x >= -9223372036854775808 AND x <= 9223372036854775807)": ("a", lambda _: True),
    "exists(d, x -> x < 2) OR exists(d, x -> x >= 2)": ("d", lambda _: True),
    "exists(a, x -> x IS NOT NULL)": ("a", lambda _: True),
    "exists(t, x -> x IS NOT NULL)": ("t", lambda _: True),
    "exists(w, x -> x IS NOT NULL)": ("w", lambda _: True),
    "exists(t, x -> x < 'b')": ("t", lambda x: x < "b"),
    "exists(t, x -> 'b' <= x AND x < 'd')": ("t", lambda x: "b" <= x < "d"),
    "exists(t, x -> x BETWEEN 'd' AND 'b')": ("t", lambda _: False),
    "exists(t, x -> x > '')": ("t", lambda x: x > ""),
    "exists(t, x -> x >= '')": ("t", lambda _: True),
    "exists(t, x -> x < '')": ("t", lambda _: False),
    "exists(d, x -> x >= 2)": ("d", lambda x: x >= 2 or math.isnan(x)),
    "exists(d, x -> x < 0.5e0)": ("d", lambda x: x < 0.5),
    "exists(w, x -> x < 0)": ("w", lambda x: x < 0),
    "exists(w, x -> x BETWEEN 1 AND 2)": ("w", lambda x: 1 <= x <= 2),
}


@pytest.fixture
def engine() -> Engine:
    engine = Engine(FIELDS)
    engine.subscribe_many([(text, text) for text in RANGES])
    return engine


def test_element_ranges(engine: Engine) -> None:
    """As a loop over the elements has them, NULL elements and NULL arrays included; a written filter means the same."""
    rng = random.Random(5)

    def drawn(name: str) -> list[Any] | None:
        values = [rng.choice([*VALUES[name], None]) for _ in range(rng.randrange(4))]
        return None if rng.random() < 0.1 else values

    events = [{name: drawn(name) for name in FIELDS} for _ in range(300)]
    expected = [
        {text for text, (name, holds) in RANGES.items() if any(v is not None and holds(v) for v in event[name] or ())}
        for event in events
    ]
    assert [set(ids) for ids in engine.match_batch(events)] == expected
    again = Engine(FIELDS)
    again.subscribe_many([(text, engine[text]) for text in RANGES])
    assert [set(ids) for ids in again.match_batch(events)] == expected


def test_no_residual_is_left(engine: Engine) -> None:
    """The index answers all of them."""
    assert sum(segment["residuals"] for segment in engine.stats()["segments"]) == 0


def test_two_ranges_need_not_be_met_by_one_element() -> None:
    """Two conditions ask for an element each."""
    engine = Engine(FIELDS)
    engine.subscribe("x", "exists(a, x -> x > 5) AND exists(a, x -> x < 3)")
    assert engine.match({"a": [1, 9]}) == ["x"]
    assert engine.match({"a": [4, 9]}) == []
