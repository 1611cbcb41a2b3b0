"""An event matches the same filters alone, which takes a path without Arrow, and in a batch, where kernels compute."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle.texts import SCHEMA, TextMaker, make_events

from wherecast import Engine, EventError

_EVENTS, _TIMES, _FILTERS = 100, 3, 60


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_alone_as_in_a_batch(seed: int) -> None:
    """Filters with every function on events of every type; the batch has so many rows that kernels take over."""
    rng = random.Random(seed)
    table = make_events(rng, _EVENTS)
    engine, maker = Engine(SCHEMA), TextMaker(rng)
    texts = [maker.condition() for _ in range(_FILTERS)]
    engine.subscribe_many(enumerate(texts))
    matches = engine.match_batch(pa.concat_tables([table] * _TIMES).combine_chunks(), on_error="skip")
    together = {int(row): set(ids) for row, ids in zip(matches.rows, matches, strict=True)}
    for number, row in enumerate(table.to_pylist()):
        try:
            alone = set(engine.match({name: _plain(name, value) for name, value in row.items()}))
        except EventError:  # a text grows too long: the batch leaves the event out, too
            assert number not in together
            continue
        for copy in range(number, _EVENTS * _TIMES, _EVENTS):
            differing = together[copy] ^ alone
            assert not differing, [texts[n] for n in differing]


def _plain(name: str, value: Any) -> Any:
    """Arrow gives maps as lists of pairs."""
    is_map = str(SCHEMA[name]).startswith("map")
    return dict(value) if is_map and value is not None else value
