"""Patterns over several events: what is refused and where, what an engine with patterns does, and what bounds its memory."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import numpy as np
import pytest

from wherecast import Engine, EventTime, FilterError, SchemaError, SnapshotError, SubscriptionError, lint
from wherecast.cli.check import inspect_pattern
from wherecast.cli.failures import CommandError
from wherecast.cli.match import MatchJob, run_match
from wherecast.engine.persist import SEQUENCES
from wherecast.index import snapshot as snapshots
from wherecast.language.events.schema import Schema

SCHEMA = {"ts": "timestamp", "user": "string", "ok": "boolean", "n": "int", "x": "double", "tags": "array<string>"}
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
TWICE = "PATTERN (n = 1 THEN n = 2 WITHIN INTERVAL 10 MINUTES PARTITION BY user)"


def event(seconds: float | None, n: int, user: str | None = "u") -> dict:
    return {"ts": None if seconds is None else BEGIN + dt.timedelta(seconds=seconds), "n": n, "user": user}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("PATTERN (n = 1 THEN n = 2)", ")", "needs a bound"),
        ("COUNT(n = 1) >= 3", "", "needs a bound"),
        ("PATTERN (n = 1 WITHIN INTERVAL 1 DAY)", "n", "two steps"),
        ("PATTERN (n = 1 THEN NOT n = 2 THEN n = 3 WITHIN INTERVAL 1 DAY)", "NOT", "THEN NOT stands last"),
        ("PATTERN (n = 1 THEN WITHIN INTERVAL 1 DAY)", "WITHIN", "a step is missing"),
        ("PATTERN (n = 1 THEN m = 2 WITHIN INTERVAL 1 DAY)", "m", "unknown attribute 'm'"),
        ("PATTERN (n = 1 THEN n = 'a' WITHIN INTERVAL 1 DAY)", "'a'", "'a'"),
        ("PATTERN (n = 1 THEN n = 2 WITHIN INTERVAL 1 MONTH)", "MONTH", "months differ in length"),
        ("PATTERN (n = 1 THEN n = 2 WITHIN INTERVAL -1 DAY)", "-", "amount"),
        ("PATTERN (n = 1 THEN n = 2 WITHIN 10 MINUTES)", "10", "WITHIN INTERVAL"),
        ("PATTERN (n = 1 THEN n = 2 WITHIN INTERVAL 2000000 DAYS)", "INTERVAL", "1,000 years"),
        ("PATTERN (n = 1 THEN n = 2 WITHIN INTERVAL 1 DAY PARTITION BY usr)", "usr", "did you mean 'user'"),
        ("PATTERN (n = 1 THEN n = 2 WITHIN INTERVAL 1 DAY PARTITION BY x)", "x", "is a float"),
        ("PATTERN (n = 1 THEN n = 2 WITHIN INTERVAL 1 DAY PARTITION BY tags)", "tags", "PARTITION BY takes"),
        ("PATTERN (n = 1 THEN n = 2 WITHIN INTERVAL 1 DAY PARTITION BY user, n)", ",", "one attribute"),
        ("PATTERN (n = 1 THEN n = 2 WITHIN INTERVAL 1 DAY) AND ok", "AND", "whole filter"),
        ("ok AND PATTERN (n = 1 THEN n = 2 WITHIN INTERVAL 1 DAY)", "PATTERN", "whole filter"),
        ("ok AND COUNT(n = 1) >= 3", "COUNT", "whole filter"),
        ("COUNT(n = 1) > 3 WITHIN INTERVAL 1 DAY", ">", ">= only"),
        ("COUNT(n = 1) >= 0 WITHIN INTERVAL 1 DAY", "0", "1 to 10,000"),
        ("COUNT(n = 1) >= 10001 WITHIN INTERVAL 1 DAY", "10001", "1 to 10,000"),
        ("COUNT(DISTINCT n) >= 3 WITHIN INTERVAL 1 DAY", "DISTINCT", "not supported"),
        (f"PATTERN ({' THEN '.join(['ok'] * 9)} WITHIN INTERVAL 1 DAY)", "ok", "at most 8 steps"),
        ("PATTERN (n = 1 THEN n = 2", "", "expected THEN"),
    ],
)
def test_refused_with_a_place(text, place, words):
    """What is wrong in a pattern is said in words, with the place in the whole text, by `subscribe` and `subscribe_many` alike."""
    engine = Engine(SCHEMA)
    with pytest.raises(FilterError) as caught:
        engine.subscribe("a", text)
    assert words in caught.value.message
    assert text[caught.value.start :].startswith(place)
    outcome = engine.subscribe_many({"a": text, "b": "ok", "c": TWICE})
    assert [(q.row, str(q.error)) for q in outcome.quarantined] == [(0, str(caught.value))]
    assert sorted(engine) == ["b", "c"]
    assert engine.stats()["patterns"]["filters"] == 2


@pytest.mark.parametrize(
    "text",
    [
        "/* a comment */ pattern(n = 1 then n = 2 within interval '10' minutes)",
        "PATTERN (CASE WHEN ok THEN n ELSE 0 END = 1 THEN user = ') THEN (' WITHIN INTERVAL 1 HOUR 30 MINUTES PARTITION BY `user`)",
        "COUNT(*) >= 3 WITHIN INTERVAL 0 SECONDS",
    ],
)
def test_forms(text):
    """Comments, CASE, strings and quoted names in a pattern are read as in filters, and the text comes back as it was."""
    engine = Engine(SCHEMA)
    engine.subscribe(7, text)
    assert (engine[7], list(engine), len(engine), 7 in engine) == (text, [7], 1, True)
    assert engine.ids().to_pylist() == [7]


def test_an_attribute_called_pattern():
    """Filters on attributes called `pattern` and `count` are filters."""
    engine = Engine({"pattern": "string", "count": "int"})
    engine.subscribe("a", "pattern = 'x' AND count > 3")
    assert engine.match({"pattern": "x", "count": 4}) == ["a"]


def test_the_time_must_be_known():
    """A schema with no timestamp or with two needs to be told which attribute is the time."""
    for schema in ({"n": "int"}, {"n": "int", "a": "timestamp", "b": "timestamp"}):
        with pytest.raises(FilterError, match="event_time='ts'"):
            Engine(schema).subscribe("a", "COUNT(n = 1) >= 2 WITHIN INTERVAL 1 DAY")
    with pytest.raises(SchemaError, match="is a int"):
        Engine(SCHEMA, event_time="n")
    with pytest.raises(SchemaError, match="10 seconds"):
        EventTime("ts", "soon")


def test_filters_and_patterns_in_one_engine():
    """`advance` gives the matches of both; `match` says what to do; an id belongs to one of them."""
    engine = Engine(SCHEMA)
    engine.subscribe_many({"filter": "n = 1", "pattern": TWICE})
    found = engine.advance([event(0, 1), event(1, 2), event(None, 1)])
    assert [(m.id, m.key, m.events) for m in found] == [("pattern", "u", (0, 1))]
    assert found.matches.to_lists() == [["filter"], [], ["filter"]]
    assert (found.untimed, found.late) == (1, 0)
    assert found.to_arrow().to_pylist() == found.to_pylist()
    for ask in (engine.match, engine.match_batch, engine.count):
        with pytest.raises(SubscriptionError, match="advance"):
            ask([event(0, 1)] if ask is not engine.match else event(0, 1))
    for text in ("n = 2", TWICE):
        for id in ("filter", "pattern"):
            with pytest.raises(SubscriptionError, match="exists already"):
                engine.subscribe(id, text)
    engine.subscribe("filter", TWICE, replace=True)
    engine.subscribe("pattern", "n = 3", replace=True)
    assert {id: engine[id] for id in engine} == {"filter": TWICE, "pattern": "n = 3"}
    assert dict(engine.items()) == {"filter": TWICE, "pattern": "n = 3"}
    with pytest.raises(SubscriptionError, match="patterns"):
        engine.apply(Engine(SCHEMA))
    explained = engine.explain(event(0, 2), "filter")
    assert [found.matches for _, found in explained.steps] == [False, True]


def test_a_bad_event_changes_nothing():
    """An event that does not fit raises, and the stream is where it was; or it is skipped, and keeps its position."""
    engine = Engine(SCHEMA)
    engine.subscribe("a", TWICE)
    with pytest.raises(Exception, match="event 1"):
        engine.advance([event(0, 1), {**event(1, 2), "n": "x"}])
    found = engine.advance([event(0, 1), {**event(1, 2), "n": "x"}, event(2, 2)], on_error="skip")
    assert [m.events for m in found] == [(0, 2)]


def test_null_is_a_key():
    """Events without a key belong together, as in GROUP BY."""
    engine = Engine(SCHEMA)
    engine.subscribe("a", TWICE)
    found = engine.advance([event(0, 1, None), event(1, 2), event(2, 2, None)])
    assert [(m.key, m.events) for m in found] == [(None, (0, 2))]


@pytest.mark.slow
def test_a_key_space_that_grows_for_ever(tmp_path):
    """Keys and states end with their window, so that memory does not grow; what exceeds the bound is counted."""
    engine = Engine(SCHEMA, event_time=EventTime("ts", state_bytes=1 << 20))
    engine.subscribe("a", "PATTERN (n = 1 THEN n = 2 WITHIN INTERVAL 1 SECOND PARTITION BY user)")
    sizes = []
    for second in range(40):
        engine.advance([event(second + i / 1000, 1, f"user {second}.{i}") for i in range(1000)])
        counts = engine.stats()["patterns"]
        sizes.append((counts["bytes"], counts["keys"], counts["refused"]))
    assert max(sizes[20:])[0] <= max(sizes[:20])[0]
    assert max(keys for _, keys, _ in sizes) < 14_000
    assert sizes[-1][2] == 0
    engine.advance([event(100 + i / 1e6, 1, f"flood {i}") for i in range(30_000)])
    counts = engine.stats()["patterns"]
    assert counts["refused"] > 0
    assert counts["bytes"] < 3 << 20
    found = engine.advance([event(200, 1, "late"), event(200.5, 2, "late")])
    assert len(found) == 1  # the flood has left its window
    engine.save(tmp_path / "engine")
    assert engine.stats()["patterns"]["keys"] <= 1
    assert engine.stats()["patterns"]["states"] <= 1


def test_a_stream_whose_time_stands_still():
    """Events that wait for the watermark are bounded: the oldest are replayed early, and counted."""
    engine = Engine(SCHEMA, event_time=EventTime("ts", "1 hour", state_bytes=64_000))
    engine.subscribe("a", "COUNT(n = 1) >= 3 WITHIN INTERVAL 1 SECOND")
    engine.advance([event(i / 1e6, 1) for i in range(5_000)])
    counts = engine.stats()["patterns"]
    assert counts["waiting"] <= 1_000
    assert counts["hurried"] == 5_000 - counts["waiting"]


def test_forged_states_are_refused(tmp_path):
    """A snapshot whose states, keys or steps are not whole is refused when it is opened."""
    engine = Engine(SCHEMA, event_time=EventTime("ts", "1 minute"))
    engine.subscribe_many({"a": TWICE, "b": "COUNT(n = 1) >= 3 WITHIN INTERVAL 1 HOUR PARTITION BY user"})
    engine.advance([event(0, 1), event(100, 1), event(110, 1, "v")])
    engine.save(tmp_path / "good")
    assert len(Engine.open(tmp_path / "good").advance([event(170, 2)], until=BEGIN + dt.timedelta(seconds=200))) == 1
    opened = snapshots.open_snapshot(tmp_path / "good")
    forged = {
        "words": [lambda a: a + (1 << 32), lambda a: a[:-1]],
        "places": [lambda a: a[::-1].copy(), lambda a: a + 1],
        "filters": [lambda a: a + 5],
        "number": [lambda a: a + 7, lambda a: a * 0],
        "waiting_hits": [lambda a: a + 1000],
        "waiting_keys": [lambda a: a + 50],
        "waiting_hit_ptr": [lambda a: a + 1],
    }
    for name, edits in forged.items():
        for number, edit in enumerate(edits):
            path = f"{SEQUENCES}/{name}"
            arrays = {**opened.arrays, path: edit(np.array(opened.arrays[path]))}
            where = tmp_path / f"{name}-{number}"
            snapshots.write_snapshot(where, arrays, dict(opened.facts))
            with pytest.raises(SnapshotError):
                pytest.fail(f"{name} {number}: {Engine.open(where)!r}")


def test_lint():
    """Steps are looked at as filters are, at their place; what never happens makes the pattern never match, or THEN NOT needless."""
    never, absent = "n > 3 AND n < 2", "PATTERN (n = 1 THEN NOT n > 3 AND n < 2 WITHIN INTERVAL 1 DAY)"
    texts = {
        "a": f"PATTERN ({never} THEN n = 2 WITHIN INTERVAL 1 DAY)",
        "b": absent,
        "c": "COUNT(n = 1) >= 1 WITHIN INTERVAL 1 DAY",
        "d": "PATTERN (n > 5 AND n > 3 THEN n = NULL WITHIN INTERVAL 1 DAY)",
        "e": "PATTERN (n = 1 THEN m = 2 WITHIN INTERVAL 1 DAY)",
        "f": TWICE,
    }
    found = {(f.id, f.code, f.filter[f.start : f.end]) for f in lint(texts, SCHEMA)}
    assert {("a", "never", never), ("b", "redundant", never), ("d", "redundant", "n > 3")} <= found
    assert {("c", "redundant", texts["c"]), ("e", "refused", "m"), ("d", "null-comparison", "n = NULL")} <= found
    assert not any(id == "f" for id, _, _ in found)
    engine = Engine(SCHEMA)
    engine.subscribe("a", texts["a"])
    assert [(f.id, f.code) for f in engine.lint()] == [("a", "never")]


def test_commands(tmp_path):
    """`check` shows each step of a pattern; `match` says that patterns need `advance`."""
    page = inspect_pattern(TWICE, Schema.of(SCHEMA)).page()
    assert "2 steps in order, within 0:10:00, for each user" in page
    assert "step 2: n = 2" in page
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "subs.jsonl").write_text(json.dumps({"id": "a", "filter": TWICE}))
    (tmp_path / "events.jsonl").write_text(json.dumps({"n": 1}))
    job = MatchJob(*(tmp_path / name for name in ("schema.json", "subs.jsonl", "events.jsonl")))
    with pytest.raises(CommandError, match=r"Engine\.advance"):
        run_match(job)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("string", ["a", ""]),
        ("bigint", [5, -(2**63)]),
        ("tinyint", [5, -5]),
        ("boolean", [True, False]),
        ("decimal(20,3)", [Decimal("1.250"), Decimal(-7)]),
        ("date", [dt.date(2024, 2, 29), dt.date(1, 1, 1)]),
        ("timestamp", [dt.datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=dt.UTC), dt.datetime(9999, 1, 1, tzinfo=dt.UTC)]),
        ("timestamp_ntz", [dt.datetime.fromisoformat(day) for day in ("2024-02-29", "0001-01-01")]),
    ],
)
def test_keys_of_every_kind_are_saved(kind, keys, tmp_path):
    """An engine that is saved without a key, and with some, goes on where it was; NULL is a key."""
    engine = Engine({"at": "timestamp", "n": "int", "key": kind}, event_time="at")
    engine.subscribe("a", "PATTERN (n = 1 THEN n = 2 WITHIN INTERVAL 10 MINUTES PARTITION BY key)")
    engine.save(tmp_path / "new")
    engine = Engine.open(tmp_path / "new")
    begin = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert not list(engine.advance([{"at": begin, "n": 1, "key": key} for key in (*keys, None)]))
    engine.save(tmp_path / "begun")
    found = Engine.open(tmp_path / "begun").advance([{"at": begin, "n": 2, "key": key} for key in (*keys, None)])
    assert [match.key for match in found] == [*keys, None]
