"""Text columns of a batch: one call codes them as single events are coded, whatever the batch is made of."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherecast import Engine
from wherecast.index import stored_columns as module
from wherecast.index.boxes import codes_of
from wherecast.language.events.events import EventBatch

ATTRIBUTES = ("a", "b", "c")
FILTERS = [
    "a LIKE '%ab%'",
    "a LIKE 'ab%' AND a > 'ab'",
    "a ILIKE '%É%' OR a ILIKE '%ab'",
    "b ILIKE '%ab%' AND NOT b LIKE '%abc%'",
    "b = 'ab' OR b IN ('', 'É')",
    "c LIKE '%b%' AND NOT c ILIKE '%É%'",
    "NOT a LIKE '%x%' AND NOT c LIKE '%ab'",
    "NOT (a LIKE '%b%' OR b ILIKE 'a%') IS TRUE",
    "NOT startswith(c, 'a') OR NOT endswith(lower(c), 'b')",
    "a LIKE '%a%b%' AND NOT a LIKE '%b_a%'",
    "a RLIKE '.*a.*bc' OR lower(b) RLIKE 'ab.*x' OR NOT c RLIKE 'a.*b'",
]
TEXTS = st.one_of(st.none(), st.text("abcABxÉéİ", max_size=6))
EVENTS = st.lists(st.fixed_dictionaries(dict.fromkeys(ATTRIBUTES, TEXTS)), min_size=1, max_size=12)


def make_engine(filters: list[str] = FILTERS) -> Engine:
    engine = Engine(dict.fromkeys(ATTRIBUTES, "string"))
    engine.subscribe_many(enumerate(filters))
    return engine


ENGINE = make_engine()
#: The same filters one by one, evaluated on one event after the other: nothing is shared, nothing has codes of other filters.
ALONE = [make_engine([text]) for text in FILTERS]


@given(EVENTS, st.integers(0, 3), st.booleans())
def test_a_batch_is_matched_like_its_events(events, skipped, is_narrow):
    """Also if it is a slice of a larger table, if columns are all NULL, or if some have letters beyond ASCII."""
    if is_narrow:
        events = [{**event, "b": None} for event in events]
    table = pa.Table.from_pylist(events, pa.schema([(name, pa.string()) for name in ATTRIBUTES]))
    expected = [[i for i, alone in enumerate(ALONE) if alone.match(event)] for event in events]
    assert [sorted(ids) for ids in ENGINE.match_batch(table.slice(skipped))] == expected[skipped:]
    assert [sorted(ENGINE.match(event)) for event in events] == expected


@given(EVENTS)
def test_codes_are_those_of_single_events(events):
    """Value, literals, and literals in lower case."""
    (segment,) = ENGINE._segments.readable().segments
    batch = EventBatch.read(ENGINE.schema, events)
    coded = segment.codebook.encode(batch)
    for row, event in enumerate(events):
        values = {i: event[name] for i, name in enumerate(ATTRIBUTES) if event[name] is not None}
        point = segment._points.encode(values)
        for column in segment.codebook.used:
            assert codes_of(coded, row, column) == codes_of(point.events(), 0, column)
        segment._points.put_back(point)


def test_room_for_lists_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch with more literals than expected is coded, too."""
    monkeypatch.setattr(module, "_LISTS_PER_EVENT", 0)
    monkeypatch.setattr(module, "_CODES_PER_EVENT", 0)
    words = [f"{chr(97 + i)}{chr(97 + k)}" for i in range(5) for k in range(5)]
    engine = make_engine([f"{name} LIKE '%{word}%'" for name in ATTRIBUTES for word in words])
    event = dict.fromkeys(ATTRIBUTES, " ".join(words))
    assert [sorted(ids) for ids in engine.match_batch([event, {}, event])] == [list(range(75)), [], list(range(75))]


def test_negated_literals_are_answered_by_codes() -> None:
    """The text is not read again: no work is counted, and a column that only residuals ask for is made if they are many."""
    engine = make_engine([f"NOT a LIKE '%word{i}%'" for i in range(10)])
    (segment,) = engine._segments.readable().segments
    taken = segment.residuals._tests
    assert np.diff(taken.coded.ptr).tolist() == [1] * 10
    assert taken.left == [()]
    assert sorted(engine.match({"a": "word3 word7"})) == [0, 1, 2, 4, 5, 6, 8, 9]
    assert engine.match({}) == []
    few = make_engine([f"b = 'k{i}' AND NOT a LIKE '%word{i}%'" for i in range(10)])
    (segment,) = few._segments.readable().segments
    assert "contains(a, ?)" not in few.stats()["segments"][0]["codes"]
    assert few.match({"a": "word3", "b": "k3"}) == []
    assert few.match({"a": "word4", "b": "k3"}) == [3]


def test_tests_by_codes_survive_a_snapshot(tmp_path) -> None:
    """Literals of residuals are stored with the others."""
    engine = make_engine()
    engine.save(tmp_path / "saved")
    opened = Engine.open(tmp_path / "saved")
    (segment,) = opened._segments.readable().segments
    assert (
        segment.residuals._tests.coded.code.size
        == ENGINE._segments.readable().segments[0].residuals._tests.coded.code.size
        > 0
    )
    event = {"a": "abx", "b": "éab", "c": "É"}
    assert opened.match(event) == ENGINE.match(event)
