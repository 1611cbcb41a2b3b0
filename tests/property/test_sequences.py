"""Patterns equal a naive replay, whatever the order of events, the batches, and where the engine is saved and opened."""

from __future__ import annotations

import datetime as dt
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.naive_sequences import Found, NaiveEvent, NaivePattern, NaiveReplay
from tests.property.sequence_streams import BEGIN, SCHEMA, moment, patterns, streams, text_of

from wherecast import Engine, EventTime
from wherecast.engine import sequence_state


def rows_of(batch: list[NaiveEvent]) -> list[dict]:
    return [{"ts": None if e.time is None else moment(e.time), "key": e.key, "letters": e.letters} for e in batch]


def found_by(engine: Engine, batch: list[NaiveEvent], until: int | None = None) -> list[Found]:
    matches = engine.advance(rows_of(batch), until=None if until is None else moment(until))
    return [Found(m.id, m.key, int((m.time - BEGIN).total_seconds()), m.events) for m in matches]


@examples(60)
@given(
    st.lists(patterns, min_size=1, max_size=4),
    streams(),
    st.integers(0, 12),
    st.sets(st.integers(0, 6)),
    st.one_of(st.none(), st.integers(0, 40)),
)
def test_patterns_equal_a_naive_replay(watched, batches, lateness, saves, until):
    """Matches, their events and what was left out are those of the naive replay, also if the engine is saved and opened between batches."""
    wanted = dict(enumerate(watched))
    engine = Engine(SCHEMA, event_time=EventTime("ts", dt.timedelta(seconds=lateness)))
    engine.subscribe_many({id: text_of(pattern) for id, pattern in wanted.items()})
    naive = NaiveReplay(wanted, lateness)
    for number, batch in enumerate(batches):
        assert sorted(found_by(engine, batch), key=repr) == sorted(naive.advance(batch), key=repr)
        if number in saves:
            with tempfile.TemporaryDirectory() as folder:
                engine.save(Path(folder) / "engine")
                engine = Engine.open(Path(folder) / "engine")
    if until is not None:
        assert sorted(found_by(engine, [], until), key=repr) == sorted(naive.advance([], until), key=repr)
    assert sorted(found_by(engine, [], 100), key=repr) == sorted(naive.advance([], 100), key=repr)
    counts = engine.stats()["patterns"]
    assert (counts["late"], counts["untimed"], counts["refused"]) == (naive.late, naive.untimed, 0)


@examples(20)
@given(st.lists(patterns, min_size=1, max_size=3), streams(), st.integers(0, 40))
def test_batches_do_not_matter(watched, batches, lateness):
    """A stream without late events gives the same matches in one batch as in several."""
    whole = [event for batch in batches for event in batch]
    wide = max(lateness, 30)
    found = []
    for parts in (batches, [whole]):
        engine = Engine(SCHEMA, event_time=EventTime("ts", dt.timedelta(seconds=wide)))
        engine.subscribe_many({id: text_of(pattern) for id, pattern in enumerate(watched)})
        found.append(sorted((m for part in [*parts, []] for m in found_by(engine, part)), key=repr))
        found[-1] = sorted([*found[-1], *found_by(engine, [], 1000)], key=repr)
    assert found[0] == found[1]


@pytest.mark.slow
def test_many_keys_grow_and_leave_memory(monkeypatch):
    """Thousands of states that come and go, with arrays that are far too small at first, give what the naive replay gives."""
    monkeypatch.setattr(sequence_state, "_FREE_WORDS", 64)
    monkeypatch.setattr(sequence_state, "_FIRST_MATCHES", 2)
    rng = np.random.default_rng(5)
    wanted: dict[object, NaivePattern] = {
        "ab": NaivePattern("AB", 20),
        "abc": NaivePattern("ABC", 30),
        "beat": NaivePattern("A", 25, "A"),
        "absent": NaivePattern("AB", 25, "C"),
        "count": NaivePattern("B", 60, count=7),
        "all": NaivePattern("C", 3, count=20, is_keyed=False),
    }
    engine = Engine(SCHEMA, event_time=EventTime("ts", "5 seconds"))
    for id, pattern in wanted.items():
        engine.subscribe(id, text_of(pattern))
    naive = NaiveReplay(wanted, 5)
    for batch in range(6):
        made = [
            NaiveEvent(int(t), f"k{k}", "ABC"[c])
            for t, k, c in zip(
                batch * 40 + rng.integers(0, 50, 300),
                batch * 10 + rng.integers(0, 60, 300),
                rng.integers(0, 3, 300),
                strict=True,
            )
        ]
        assert sorted(found_by(engine, made), key=repr) == sorted(naive.advance(made), key=repr)
    assert naive.late > 0
    assert engine.stats()["patterns"]["late"] == naive.late


@pytest.mark.parametrize("matcher", ["adaptive", "scan"])
def test_changes_between_batches(matcher):
    """A pattern sees the events after it was registered, a removed one none; one that is replaced begins anew, a filter they share stays."""
    engine = Engine(SCHEMA, matcher=matcher, event_time=EventTime("ts", "10 seconds"))
    engine.subscribe("first", text_of(NaivePattern("AB", 60)))
    assert found_by(engine, [NaiveEvent(0, "x", "A")]) == []
    engine.subscribe("second", text_of(NaivePattern("AB", 60)))  # its A waits, but came before
    engine.subscribe("third", text_of(NaivePattern("AC", 60)))
    engine.unsubscribe("third")
    assert found_by(engine, [NaiveEvent(1, "x", "B")], 2) == [Found("first", "x", 1, (0, 1))]
    found_by(engine, [NaiveEvent(3, "x", "A")])
    engine.subscribe("first", text_of(NaivePattern("AB", 60)), replace=True)
    assert found_by(engine, [NaiveEvent(4, "x", "B")], 5) == [Found("second", "x", 4, (2, 3))]
    engine.subscribe("second", "contains(letters, 'A')", replace=True)
    assert engine.stats()["patterns"]["filters"] == 2
    engine.unsubscribe("first")
    assert engine.match(rows_of([NaiveEvent(4, "x", "A")])[0]) == ["second"]
    assert engine.stats()["patterns"]["filters"] == 0
