"""Random patterns and streams of events for them, for the library and for Spark."""

from __future__ import annotations

import datetime as dt

from hypothesis import strategies as st
from tests.property.naive_sequences import NaiveEvent, NaivePattern

BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SCHEMA = {"ts": "timestamp", "key": "string", "letters": "string", "note": "string"}


def moment(seconds: float) -> dt.datetime:
    return BEGIN + dt.timedelta(seconds=seconds)


def text_of(pattern: NaivePattern) -> str:
    def step(letter: str) -> str:
        return f"contains(letters, '{letter}')"

    by = " PARTITION BY key" if pattern.is_keyed else ""
    within = f"WITHIN INTERVAL {pattern.window} SECONDS{by}"
    if pattern.count:
        return f"COUNT({step(pattern.steps)}) >= {pattern.count} {within}"
    absent = f" THEN NOT {step(pattern.absent)}" if pattern.absent else ""
    return f"PATTERN ({' THEN '.join(map(step, pattern.steps))}{absent} {within})"


windows = st.integers(0, 12)
letters = st.sampled_from("ABC")
patterns = st.one_of(
    st.builds(NaivePattern, st.text("ABC", min_size=2, max_size=4), windows, st.just(""), st.just(0), st.booleans()),
    st.builds(NaivePattern, st.text("ABC", min_size=1, max_size=3), windows, letters, st.just(0), st.booleans()),
    st.builds(NaivePattern, letters, windows, st.just(""), st.integers(1, 6), st.booleans()),
)
times = st.one_of(st.none(), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
events = st.builds(NaiveEvent, times, st.sampled_from(["x", "y", None]), st.text("ABC", max_size=2))


@st.composite
def streams(draw: st.DrawFn) -> list[list[NaiveEvent]]:
    """Batches of events: about in order, with ties, repeated events and late ones."""
    found = draw(st.lists(events, max_size=40))
    if draw(st.booleans()):
        found.sort(key=lambda e: -1 if e.time is None else e.time)
    if found and draw(st.booleans()):
        found += draw(st.lists(st.sampled_from(found), max_size=5))
    cuts = sorted(draw(st.lists(st.integers(0, len(found)), max_size=5)))
    return [found[a:b] for a, b in zip([0, *cuts], [*cuts, len(found)], strict=True)]
