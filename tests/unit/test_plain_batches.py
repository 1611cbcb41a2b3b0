"""Record batches whose columns are canonical already are neither converted nor looked at, and matched all the same."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherecast import Engine
from wherecast.errors import EventError
from wherecast.language.events.events import EventBatch

SCHEMA = {"name": "string", "price": "double", "size": "long", "day": "date", "on": "boolean", "tags": "array<string>"}
TYPES = pa.schema(
    [
        ("other", pa.string()),
        ("size", pa.int64()),
        ("name", pa.string()),
        ("on", pa.bool_()),
        ("price", pa.float64()),
        ("day", pa.date32()),
        ("tags", pa.list_(pa.string())),
    ]
)
FILTERS = [
    "name = 'ab' AND price > 1",
    "name = 'b' AND size BETWEEN -1 AND 1",
    "name IN ('a', 'é') AND name LIKE '%a%'",
    "name = 'a' AND day < DATE '2020-01-02'",
    "name = 'é' AND on",
    "name = 'c' AND array_contains(tags, 'x')",
    "name = 'c' AND price IS NULL",
]
EVENT = st.fixed_dictionaries(
    {
        "other": st.none() | st.text(max_size=2),
        "name": st.none() | st.sampled_from(["a", "ab", "b", "c", "é", "zz"]),
        "price": st.none() | st.sampled_from([-0.0, 1.0, 2.5, float("nan")]),
        "size": st.none() | st.integers(-2, 2),
        "day": st.none() | st.sampled_from([dt.date(2020, 1, 1), dt.date(2020, 1, 2)]),
        "on": st.none() | st.booleans(),
        "tags": st.none() | st.lists(st.sampled_from("xy"), max_size=2),
    }
)


def make_engine(filters: list[str]) -> Engine:
    """An engine that knows the names of the events, as one does after the first batch."""
    engine = Engine(SCHEMA)
    engine.subscribe_many(enumerate(filters))
    engine.match_batch(pa.RecordBatch.from_pylist([], TYPES))
    return engine


#: All filters have a column by which the matcher looks first; with few columns, others are left out of the batch.
ENGINES = [make_engine(FILTERS), make_engine(FILTERS[:2])]


@given(st.lists(EVENT, min_size=1, max_size=20), st.integers(0, 9), st.sampled_from(ENGINES))
def test_they_are_matched_like_their_events(events, skipped, engine):
    batch = pa.RecordBatch.from_pylist(events, TYPES).slice(skipped)
    expected = [sorted(engine.match(event)) for event in events[skipped:]]
    assert (
        EventBatch.read(engine.schema, batch, needed=engine._segments.readable().attributes, names=engine._names).plain
        is not None
    )
    for times in range(2):  # many events, of which some are left out once the first column is coded
        many = pa.Table.from_batches([batch] * (1 if times == 0 else 600)).combine_chunks().to_batches()
        for each in many:
            found = [sorted(ids) for ids in engine.match_batch(each)]
            assert found == expected * (len(found) // max(len(expected), 1))
            assert engine.count(each).tolist() == [len(ids) for ids in found]


def test_texts_that_are_none_are_refused_with_their_place():
    good, bad = pa.array(["a", "b"]), pa.Array.from_buffers(
        pa.string(), 2, [None, *pa.array([b"a", b"\xff"], pa.binary()).buffers()[1:]]
    )  # fmt: skip
    engine, types = ENGINES[1], pa.schema([("name", pa.string())])
    assert len(engine.match_batch(pa.record_batch([good], types))) == 2
    with pytest.raises(EventError, match="event 1"):
        engine.match_batch(pa.record_batch([bad], types))
    assert [error.row for error in engine.match_batch(pa.record_batch([bad], types), on_error="skip").errors] == [1]


def text_batch(texts: list[bytes], *, swapped: bool = False) -> pa.RecordBatch:
    """Bytes as a column of strings, whatever they are; `swapped` exchanges the ends of the last two."""
    _, offsets, data = pa.array(texts, pa.binary()).buffers()
    ends = np.frombuffer(offsets, np.int32)[: len(texts) + 1].copy()
    if swapped:
        ends[-3:-1] = ends[-2], ends[-3]
    column = pa.Array.from_buffers(pa.string(), len(texts), [None, pa.py_buffer(ends), data])
    return pa.record_batch([column], pa.schema([("name", pa.string())]))


def test_texts_of_many_events_are_looked_at_all_at_once():
    engine, n = ENGINES[1], 3_000
    assert len(engine.match_batch(text_batch([b"ab"] * n))) == n
    assert len(engine.match_batch(text_batch([b"ab"] * n).slice(7, 2_000))) == 2_000
    assert len(engine.match_batch(text_batch([b""] * n))) == n
    accented = text_batch([b"ab"] * (n - 1) + ["é".encode()])
    assert len(engine.match_batch(accented)) == n
    # One letter in two texts: all bytes together are UTF-8, but the texts are not.
    for bad in ([b"a"] * (n - 1) + [b"\xff"], [b"a"] * (n - 2) + [b"\xc3", b"\xa9"]):
        with pytest.raises(EventError, match="UTF-8"):
            engine.match_batch(text_batch(bad))
    with pytest.raises((EventError, pa.ArrowInvalid)):
        engine.match_batch(text_batch([b"abc"] * n, swapped=True))


def test_pieces_and_samples_have_all_columns():
    engine = ENGINES[0]
    batch = pa.RecordBatch.from_pylist([{"name": "ab", "price": 2.0, "other": "x"}] * 600, TYPES)
    assert engine.match_batch(batch, threads=2).to_lists() == [[0]] * 600
    needed = engine._segments.readable().attributes
    read = EventBatch.read(engine.schema, batch, needed=needed, names=engine._names)
    assert read.has_read(needed)
    assert read.sample(3).array(1).to_pylist() == [2.0] * 3
    assert read.slice(1, 3).array(0).to_pylist() == ["ab"] * 2
