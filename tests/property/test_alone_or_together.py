"""An event matches the same filters alone, which takes a path without Arrow, in a few rows, and in many, where kernels compute."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle.texts import SCHEMA, TextMaker, make_events

from wherecast import Engine, EventError, Schema

_EVENTS, _TIMES, _FILTERS = 100, 3, 60


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32), zone=st.sampled_from(("UTC", "America/New_York", "Australia/Lord_Howe")))
def test_alone_as_in_batches_of_any_size(seed: int, zone: str) -> None:
    """Filters with every function on events of every type."""
    rng = random.Random(seed)
    table = make_events(rng, _EVENTS)
    engine, maker = Engine(Schema.of(SCHEMA, time_zone=zone)), TextMaker(rng)
    texts = [maker.condition() for _ in range(_FILTERS)]
    engine.subscribe_many(enumerate(texts))

    def check(found: dict[int, set[int]], expected: dict[int, set[int]], how: str) -> None:
        assert found.keys() == expected.keys(), how  # a text that grows too long leaves its event out
        for row, ids in found.items():
            differing = ids ^ expected[row]
            assert not differing, (how, row, [texts[n] for n in differing])

    many = _match(engine, pa.concat_tables([table] * _TIMES).combine_chunks(), 0)
    expected = {row: ids for row, ids in many.items() if row < _EVENTS}
    check({row % _EVENTS: ids for row, ids in many.items()}, expected, "in the same batch")
    alone = {}
    for number, row in enumerate(table.to_pylist()):
        with contextlib.suppress(EventError):
            alone[number] = set(engine.match({name: _plain(name, value) for name, value in row.items()}))
    check(alone, expected, "alone")
    for size in (1, 7, 60):
        parts = [_match(engine, table.slice(start, size), start) for start in range(0, _EVENTS, size)]
        check({row: ids for part in parts for row, ids in part.items()}, expected, f"{size} at a time")


def _match(engine: Engine, events: pa.Table, first: int) -> dict[int, set[int]]:
    """The ids by row, counted from `first`."""
    matches = engine.match_batch(events, on_error="skip")
    return {first + int(row): set(ids) for row, ids in zip(matches.rows, matches, strict=True)}


def _plain(name: str, value: Any) -> Any:
    """Arrow gives maps as lists of pairs."""
    is_map = str(SCHEMA[name]).startswith("map")
    return dict(value) if is_map and value is not None else value
