"""Functions that make long texts of short ones: computed as in Spark, or an error that names the event or the literal."""

from __future__ import annotations

import pytest

from wherecast import Engine
from wherecast.engine.segment import Segment
from wherecast.errors import EventError, FilterError

FIELDS = {"s": "string", "n": "int", "a": "array<string>"}


def test_long_texts_are_computed() -> None:
    """Far beyond what a filter's literal can hold."""
    engine = Engine(FIELDS)
    texts = [
        "length(repeat(s, n)) = 1000000",
        "length(lpad(s, n)) = 1000000",
        f"length(replace(s, 'a', '{'b' * 1000}')) = 1000000",
    ]
    engine.subscribe_many((i, text) for i, text in enumerate(texts))
    assert sorted(engine.match({"s": "a", "n": 1_000_000})) == [0, 1]
    assert engine.match({"s": "a" * 1000, "n": 1}) == [2]


@pytest.mark.parametrize("function", ["replace", "regexp_replace"])
def test_replacements_grow_too(function: str) -> None:
    """A text of many matches, each replaced by more."""
    engine = Engine(FIELDS)
    engine.subscribe("x", f"length({function}(s, 'a', '{'b' * 1000}')) = 1000000")
    assert engine.match({"s": "a" * 1_000}) == ["x"]
    with pytest.raises(EventError, match="would make a text"):
        engine.match({"s": "a" * 5_000})


@pytest.mark.parametrize("text", ["repeat(s, n) = 'x'", "rpad(s, n) = 'x'", "exists(a, x -> repeat(x, n) = 'y')"])
@pytest.mark.parametrize("copies", [1, 40])
def test_an_event_whose_text_grows_too_long_is_an_error(text: str, copies: int) -> None:
    """It is raised, or the event is left out and counted; a residual and an expression column alike."""
    engine = Engine(FIELDS)
    engine.subscribe_many((i, text if i == 0 else f"{text} OR n = {i}") for i in range(copies))
    bad = {"s": "ab", "n": 2_000_000_000, "a": ["", "ab"]}
    good = {"s": "x", "n": 1, "a": ["y"]}
    with pytest.raises(EventError, match=r"event 0: a function would make a text of [0-9,]+ characters, at most"):
        engine.match(bad)
    matches = engine.match_batch([good, bad, good], on_error="skip")
    assert [error.row for error in matches.errors] == [1]
    assert [0 in ids for ids in matches] == [True, True]
    with pytest.raises(EventError, match="event 1"):
        engine.match_batch([good, bad])


@pytest.mark.parametrize(
    "text",
    ["repeat('abc', 100000000) = s", "repeat(s, 100000000) = 'x'", "lpad(s, 100000000) = 'a'", "space(100000000) = s"],
)
def test_a_literal_that_is_too_large_is_an_error_of_the_filter(text: str) -> None:
    """It is refused at registration: no event could pass it."""
    with pytest.raises(FilterError, match="at most 4,194,304"):
        Engine(FIELDS).subscribe("x", text)


def test_a_computed_constant_is_refused() -> None:
    """Its length is not known before it is computed."""
    with pytest.raises(FilterError, match="a constant that is computed"):
        Engine(FIELDS).subscribe("x", "repeat(repeat('a', 4000), 4000) = s")


def test_many_events_whose_texts_grow_are_left_out_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are found in one pass: hostile events do not make a batch be matched once for each."""
    engine = Engine(FIELDS)
    engine.subscribe("x", "repeat(s, n) = 'x'")
    calls: list[int] = []
    match = Segment.match
    monkeypatch.setattr(Segment, "match", lambda *given: (calls.append(1), match(*given))[1])
    bad = [{"s": "ab", "n": 2_000_000_000 - i} for i in range(20)]
    matches = engine.match_batch([event for each in bad for event in ({"s": "x", "n": 1}, each)], on_error="skip")
    assert [error.row for error in matches.errors] == list(range(1, 40, 2))
    assert "3,999,999,962 characters" in str(matches.errors[-1])
    assert [list(ids) for ids in matches] == [["x"]] * 20
    assert len(calls) == 2


@pytest.mark.parametrize("text", ["length(repeat(s, 100)) = 1", f"length(regexp_replace(s, 'a', '{'b' * 100}')) = 1"])
def test_a_text_that_grows_too_long_is_an_error_among_many(text: str) -> None:
    """As it is alone: a column with room for all is computed at once, but no text in it may be longer than one alone."""
    engine = Engine(FIELDS)
    engine.subscribe_many((i, f"{text} OR n = {i}") for i in range(40))
    events = [{"s": "a" * 50_000, "n": 1}, *({"s": "x", "n": 2} for _ in range(60))]
    with pytest.raises(EventError, match=r"event 0: .* would make a text of"):
        engine.match_batch(events)


def test_many_texts_that_grow_are_computed_at_once() -> None:
    """They have more bytes than one text may have characters."""
    engine = Engine(FIELDS)
    engine.subscribe_many((i, f"replace(s, 'a', '{'b' * 100}') = '{'b' * 2000}' OR n = {i}") for i in range(40))
    events = [{"s": "a" * 20, "n": 50}] * 3000 + [{"s": "a", "n": 50}]
    matches = engine.match_batch(events)
    assert [len(ids) for ids in matches] == [40] * 3000 + [0]
