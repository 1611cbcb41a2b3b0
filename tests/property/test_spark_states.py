"""Patterns on Spark without Spark: its state store, watermark and timers are stood in for, all else is what runs in its tasks."""

# ruff: noqa: N802 - the names are those of Spark

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.naive_sequences import Found, NaiveEvent, NaiveReplay
from tests.property.sequence_streams import BEGIN, SCHEMA, moment, patterns, streams, text_of

from wherecast import Engine, EventTime
from wherecast.spark.advance import PatternProcessor, StepTask

ORIGIN = int(BEGIN.timestamp())


class Store:
    """State of all keys, and their timers."""

    def __init__(self) -> None:
        self.values: dict[Any, tuple] = {}
        self.timers: set[tuple[Any, int]] = set()
        self.key: Any = None

    def getValueState(self, name: str, schema: str) -> Store:
        return self

    def get(self) -> Any:
        return self.values.get(self.key)

    def update(self, value: tuple) -> None:
        self.values[self.key] = value

    def clear(self) -> None:
        self.values.pop(self.key, None)

    def registerTimer(self, at: int) -> None:
        self.timers.add((self.key, at))

    def deleteTimer(self, at: int) -> None:
        self.timers.remove((self.key, at))


class Stream:
    """A stateful stream as Spark runs it: late rows dropped, keys one by one, then timers; and a batch without data after each."""

    def __init__(self, path: str, lateness: int) -> None:
        self.path, self.delay = path, 1000 * lateness + 1
        self.store, self.latest, self.watermark = Store(), -(2**60), 0
        self.dropped = 0

    def getCurrentWatermarkInMs(self) -> int:
        return self.watermark

    def batch(self, batch: list[NaiveEvent], first: int) -> list[Found]:
        table = pa.RecordBatch.from_pydict(
            {
                "ts": pa.array([None if e.time is None else moment(e.time) for e in batch], pa.timestamp("us", "UTC")),
                "key": pa.array([e.key for e in batch], pa.string()),
                "letters": pa.array([e.letters for e in batch], pa.string()),
                "__wherecast_event": pa.array(np.arange(first, first + len(batch)), pa.int64()),
            }
        )
        rows = [part.to_pandas() for part in StepTask(self.path, ("ts", "key", "letters")).match(iter([table]))]
        found = self.run(rows)
        for frame in rows:
            latest = frame["time"].astype("datetime64[us, UTC]").astype("int64").max() // 1000
            self.latest = max(self.latest, int(latest))
        self.watermark = max(self.watermark, self.latest - self.delay)
        return found + self.run([])

    def run(self, frames: list[Any]) -> list[Found]:
        processor, out = PatternProcessor(self.path), []
        processor.init(self.store)
        for frame in frames:
            late = frame["time"].astype("datetime64[us, UTC]").astype("int64") <= self.watermark * 1000
            kept = frame[~late & (frame["part"] >= 0)]
            self.dropped += int((late & (frame["part"] >= 0)).sum())
            for (part, key), rows in kept.groupby(["part", "key"], dropna=False):
                self.store.key = part, None if key != key else key
                out += processor.handleInputRows(self.store.key, iter([rows]), self)
        for key, at in sorted(self.store.timers, key=repr):
            if at < self.watermark and (key, at) in self.store.timers:
                self.store.timers.remove((key, at))
                self.store.key = key
                out += processor.handleExpiredTimer(key, self, None)
        return [
            Found(row.subscription, row.key or None, int(row.time.timestamp()) - ORIGIN, tuple(row.events))
            for frame in out
            for row in frame.itertuples()
        ]


@examples(30)
@given(st.lists(patterns, min_size=1, max_size=4), streams(), st.integers(0, 12))
def test_states_of_keys_equal_a_naive_replay(watched, batches, lateness):
    """What is found key by key, with states packed and unpacked for each micro-batch, is what the naive replay finds; nothing stays behind."""
    wanted = dict(enumerate(watched))
    engine = Engine(SCHEMA, event_time=EventTime("ts", f"{lateness} seconds"))
    engine.subscribe_many({id: text_of(pattern) for id, pattern in wanted.items()})
    naive, first = NaiveReplay(wanted, lateness), 0
    with tempfile.TemporaryDirectory() as folder:
        engine.save(Path(folder) / "engine")
        stream = Stream(str(Path(folder) / "engine"), lateness)
        found: list[Found] = []
        expected: list[Found] = []
        for batch in [*batches, [NaiveEvent(2000, None, "")], [NaiveEvent(4000, None, "")]]:
            if batch:
                found += stream.batch(batch, first)
            expected += naive.advance(batch)
            first += len(batch)
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert not stream.store.values
    assert not stream.store.timers
    assert stream.dropped == 0 or naive.late
