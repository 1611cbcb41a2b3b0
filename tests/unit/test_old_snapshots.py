"""Snapshots of older builds open, answer as they did, and can be changed and saved."""

from __future__ import annotations

import datetime as dt
import random
import string
from pathlib import Path

import pytest

from wherecast import Engine
from wherecast.kernels.leaves import SIDE_BY_SIDE, SURE

#: 1 was saved by the build before columns of literals, 2 by the build before columns of expressions, each with `FILTERS`; 3 by
#: the build before columns of topics, with `COMPUTED` too.
FIXTURES = Path(__file__).parents[1] / "fixtures"
FILTERS = {
    1: "symbol = 'IBM' AND price < 120.5",
    3: "symbol LIKE '%BM%' AND volume > 5",
    4: "symbol ILIKE 'ib%'",
    5: "lower(symbol) IN ('ibm','sap') AND hot",
    6: "array_contains(tags,'x') AND NOT array_contains(tags,'y')",
    7: "symbol RLIKE 'I.M$'",
    8: "price * volume > 500",
    9: "day >= DATE '2024-01-01' AND ts < TIMESTAMP '2025-01-01 00:00:00Z'",
    10: "symbol NOT LIKE '%Z%' AND price IS NOT NULL",
    11: "symbol LIKE 'I%M'",
}
COMPUTED = {100 + i: f"price * volume > {10 * i}" for i in range(60)}
COMPUTED |= {200 + i: f"trim(symbol) LIKE '%{letter}%'" for i, letter in enumerate(2 * string.ascii_uppercase)}
#: Saved with format 5, by the build before sure rows stood beside the rows that they belong to.
WIDE = {}
draw = random.Random(5)
for number in range(300):
    begins = [draw.randrange(0, 500) / 10 for _ in range(3)]
    WIDE[1000 + number] = " AND ".join(
        f"{name} BETWEEN {begin} AND {begin + draw.randrange(300, 900) / 10}"
        for name, begin in zip("xyz", begins, strict=True)
    )
DAY, MOMENT = dt.date(2024, 5, 1), dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
EVENTS = [
    {"symbol": "IBM", "price": 100.0, "volume": 10, "day": DAY, "ts": MOMENT, "tags": ["x"], "hot": True},
    {"symbol": "ibm", "price": 1.0, "tags": ["x", "y"], "hot": True},
    {"symbol": "SAP", "price": 200.0, "volume": 3, "hot": True},
    {"symbol": "ZBMZ", "price": None, "volume": 6, "tags": []},
    {},
]


def answers(engine: Engine) -> list[list[object]]:
    return [sorted(ids) for ids in engine.match_batch(EVENTS).to_lists()]


@pytest.mark.sampled
@pytest.mark.parametrize("version", [1, 2, 3])
def test_older_format(version: int, tmp_path: Path) -> None:
    """It answers as an engine of the same filters does, after merging with new ones and after saving, too."""
    engine = Engine.open(FIXTURES / f"snapshot-{version}")
    fresh, filters = Engine(engine.schema), FILTERS | (COMPUTED if version >= 3 else {})
    assert fresh.subscribe_many(filters).registered == len(filters) == len(engine)
    assert answers(engine) == answers(fresh)
    assert [sorted(engine.match(event)) for event in EVENTS] == answers(fresh)
    for each in (engine, fresh):
        each.subscribe(12, "symbol LIKE '%B%' AND NOT symbol ILIKE '%z%'")
        each.subscribe(13, "symbol MATCHES '+' AND price * volume > 5")
        each.merge(everything=True)
    assert answers(engine) == answers(fresh)
    engine.save(tmp_path)
    assert answers(Engine.open(tmp_path)) == answers(fresh)


def test_sure_rows_behind_all_others(tmp_path: Path) -> None:
    engine = Engine.open(FIXTURES / "snapshot-5")
    fresh, draw = Engine(engine.schema), random.Random(6)
    fresh.subscribe_many(WIDE)
    events = [{name: draw.randrange(1_500) / 10 for name in "xyz"} for _ in range(300)] + [{"x": 30.0}, {}]
    found = [sorted(ids) for ids in engine.match_batch(events)]
    assert found == [sorted(ids) for ids in fresh.match_batch(events)]
    assert [sorted(engine.match(event)) for event in events] == found
    assert sum(map(len, found)) > 4_000
    old, new = (each._segments.readable().segments[0].matcher._tree.leaves[:, SURE] for each in (engine, fresh))
    assert (old > 0).any()
    assert (new == SIDE_BY_SIDE).any()
    engine.save(tmp_path)
    assert [sorted(ids) for ids in Engine.open(tmp_path).match_batch(events)] == found
