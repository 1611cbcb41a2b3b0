"""Advance: the patterns of a saved engine over a stream of Spark, by `transformWithStateInPandas`.

What happens to a micro-batch:

1. `StepTask.match` matches events against the steps, in Arrow, as a batch of a library is. An event that satisfies some becomes one row for each
   PARTITION BY attribute that patterns of these steps have: the attribute's number, the key, the time, and the steps.
2. Spark compares times with its watermark and drops and counts late rows (`numRowsDroppedByWatermark`). A row without
   steps carries the latest time of a batch, so that the watermark follows all events.
3. Rows go to the task of their key. `PatternProcessor` holds one value per key: the states of all patterns, and events after the watermark.
   It runs the same kernel as `Engine.advance`.
4. A timer per key wakes it when the watermark reaches the first event that waits, the first deadline, or the end of the last window; then the
   state of the key is removed.

In a state, patterns and steps are named by digests of their texts. So patterns may change between two runs on one checkpoint: those that
stay keep their state, others begin anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from wherecast.engine.engine import Engine
from wherecast.engine.sequence_state import FoundPatterns, SequenceState, WaitingEvents
from wherecast.engine.sequences import Sequences
from wherecast.errors import SchemaError, SubscriptionError
from wherecast.kernels.arrays import Bools, Longs
from wherecast.kernels.sequences import NEVER, NONE, EventArrays, PatternArrays
from wherecast.spark.columns import NameRule, check_moments, check_session, quote, quoted, resolve

if TYPE_CHECKING:
    import os

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

#: Rows between steps and states.
_ROW = "part INT, key STRING, time TIMESTAMP, event BIGINT, arrival BIGINT, hits BINARY"
#: The part of a row that only moves the watermark.
_NOBODY = -1
_MS = 1_000
#: Spark drops what is at or before its watermark, we what is before it: one millisecond is the difference.
_TIE_MS = 1


def advance(events: DataFrame, engine: str | os.PathLike[str], *, event: str | None = None) -> DataFrame:
    """The patterns of a saved engine in a stream of events: `subscription`, `key`, `time` and `events`.

    Args:
        events: A stream. Its columns are found by name, as Spark compares names; its session has the time zone of the engine's schema.
        engine: Where `Engine.save` has put an engine with patterns; all workers must be able to read it. Its `EventTime` says which column is
            the time and how late events may come. What it remembers of a stream of its own is not used.
        event: A BIGINT column that names events, for example an offset; `events` has its values. Without it they are NULL.

    Raises:
        SubscriptionError: The engine has no patterns.
        SchemaError: The stream lacks the column of the time, or its session has another time zone.
    """
    from pyspark.sql import functions as F  # noqa: N812

    if "RocksDB" not in (events.sparkSession.conf.get(_PROVIDER, "") or ""):
        raise SchemaError(f"patterns keep state in RocksDB; start the session with {_PROVIDER}={_ROCKSDB}")
    path = str(Path(engine).absolute())
    watched = _open(path)
    schema = watched.engine.schema
    found = resolve(events.schema, schema, watched.attributes, NameRule.of(events.sparkSession))
    if watched.time not in found:
        raise SchemaError(
            f"the events have no column {watched.time!r}, which is their time; rename it or save the engine anew"
        )
    used = {name: path for name, path in found.items() if name in watched.attributes}
    check_session(events.sparkSession, schema)
    check_moments(events.schema, schema, used)
    position = quoted(event).cast("bigint") if event is not None else F.lit(None).cast("bigint")
    time = quote(*found[watched.time])
    sent = events.observe("wherecast_patterns", F.expr(f"count_if({time} IS NULL) AS untimed"))
    # Spark's Arrow functions take a dot in a name for a field, so columns are told by their order.
    sent = sent.select(*(F.col(quote(*p)).alias(f"c{i}") for i, p in enumerate(used.values())), position.alias(_EVENT))
    names = tuple(schema[name].column for name in used)
    rows = sent.mapInArrow(StepTask(path, names).match, _ROW)
    delay = watched.sequences.event_time.lateness_us // _MS + _TIE_MS
    # The condition names the time, so that Spark does not drop these rows before they have moved the watermark.
    timed = rows.withWatermark("time", f"{delay} milliseconds").where(f"part <> {_NOBODY} OR time IS NULL")
    ids = "BIGINT" if all(isinstance(id, int) for id in watched.ids if id is not None) else "STRING"
    return timed.groupBy("part", "key").transformWithStateInPandas(
        cast("StatefulProcessor", PatternProcessor(path)),
        f"subscription {ids}, key STRING, time TIMESTAMP, events ARRAY<BIGINT>",
        "Append",
        "EventTime",
    )


_EVENT = "__wherecast_event"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


# -- what a worker knows ------------------------------------------------------------------------------------------------


class WatchedPatterns(NamedTuple):
    """The patterns of a saved engine, and what their numbers are in other places."""

    engine: Engine
    sequences: Sequences
    time: str
    attributes: frozenset[str]  # that are read, by name
    parts: list[PatternArrays]  # for each part those of its patterns; all keys are number 0 there
    has_use: list[Bools]  # by part: whether a step is one of its patterns
    ids: list[Any]
    pattern_digests: Longs
    step_digests: Longs


@lru_cache(4)
def _open(path: str) -> WatchedPatterns:
    """An engine, once per process. It is not looked at again if somebody saves another there meanwhile."""
    engine = Engine.open(path)
    sequences = engine._patterns.sequences  # noqa: SLF001 - the part of an engine that a stream needs
    if not sequences:
        raise SubscriptionError(f"{path} has no patterns; subscribe some, save the engine, and start again")
    schema = engine.schema
    time = schema.attributes[sequences.event_time.index(schema)]
    wanted = sequences.attributes | sequences.step_segments.readable().attributes
    read = frozenset(schema.attributes[a].name for a in {*wanted, sequences.event_time.index(schema)})
    arrays = sequences.arrays()
    ids: list[Any] = [None] * arrays.steps.size
    digests = np.zeros(arrays.steps.size, np.int64)
    for number, found in sequences.numbered():
        ids[number] = found.id
        digests[number] = _digest(f"{found.id!r}\0{found.text}")
    parts: list[PatternArrays] = []
    has_use: list[Any] = []
    for part in range(len(sequences.keys)):
        chosen = arrays.part[arrays.uses] == part
        ptr = np.concatenate(([0], np.cumsum(chosen)))[arrays.use_ptr]
        born = np.where(arrays.born >= NEVER, arrays.born, np.int64(NONE))
        zero = np.zeros_like(arrays.part)
        parts.append(arrays._replace(part=zero, born=born, use_ptr=ptr, uses=arrays.uses[chosen]))
        has_use.append(np.any(np.diff(ptr, axis=1) > 0, axis=0))
    steps = np.array([_digest(text) for text in sequences.step_texts], np.int64)
    return WatchedPatterns(engine, sequences, time.name, read, parts, has_use, ids, digests, steps)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def _numbers_of(digests: Longs, known: Longs) -> Longs:
    """Where digests are among those that are known, -1 for others."""
    order = np.argsort(known)
    at = np.minimum(np.searchsorted(known[order], digests), max(known.size - 1, 0))
    return np.where(known[order[at]] == digests, order[at], -1) if known.size else np.full(digests.size, -1)


# -- steps --------------------------------------------------------------------------------------------------------------


class StepTask:
    """Finds the steps that events satisfy, in tasks; `names` are those of the columns, in order."""

    def __init__(self, path: str, names: tuple[str, ...]) -> None:
        self._path = path
        self._names = names

    def match(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of one partition of events, as `_ROW` has them."""
        from pyspark import TaskContext

        context = TaskContext.get()
        arrival = (context.partitionId() if context is not None else 0) << 40
        watched = _open(self._path)
        for batch in batches:
            if batch.num_rows:
                yield from self._rows(watched, batch.rename_columns([*self._names, _EVENT]), arrival)
                arrival += batch.num_rows

    def _rows(self, watched: WatchedPatterns, batch: pa.RecordBatch, arrival: int) -> Iterator[pa.RecordBatch]:
        sequences = watched.sequences
        hits = sequences.steps.match_batch(batch)
        counts, steps = hits.counts(), hits.subscription_ids()
        read = sequences.read_batch(batch)
        times = read.array(sequences.event_time.index(watched.engine.schema)).cast(pa.timestamp("us", "UTC"))
        owner = np.repeat(np.arange(counts.size), counts)
        for part, has_use in enumerate(watched.has_use):
            kept = has_use[steps]
            sizes = np.bincount(owner[kept], minlength=counts.size)
            rows = pa.array(np.flatnonzero((sizes > 0) & np.asarray(times.is_valid())))
            if not len(rows):
                continue
            # Hits of events without a time go with them.
            kept &= np.asarray(times.is_valid())[owner]
            chosen = sizes[rows.to_numpy()]
            offsets = np.concatenate(([0], np.cumsum(8 * chosen))).astype(np.int32)
            data = watched.step_digests[steps[kept]]
            packed = pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
            keys = sequences.key_texts(read, part).take(rows)
            yield _row_batch(
                np.full(len(rows), part),
                keys,
                times.take(rows),
                batch.column(_EVENT).take(rows),
                arrival + rows.to_numpy(),
                packed,
            )
        latest = times.filter(times.is_valid())
        if len(latest):
            at = int(np.argmax(latest.cast(pa.int64()).to_numpy()))
            nothing = pa.nulls(1, pa.string()), latest.slice(at, 1), pa.nulls(1, pa.int64())
            yield _row_batch([_NOBODY], *nothing, [0], pa.nulls(1, pa.binary()))


def _row_batch(part: Any, key: Any, time: Any, event: Any, arrival: Any, hits: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(part, pa.int32()), key, time, event, pa.array(arrival, pa.int64()), hits],
        ["part", "key", "time", "event", "arrival", "hits"],
    )


# -- states -------------------------------------------------------------------------------------------------------------


class KeyState(NamedTuple):
    """All that is known of one key."""

    waiting: WaitingEvents
    state: SequenceState
    timer_ms: int  # -1: none


_ONE_KEY = np.ones(1, np.int64)
_NO_EVENT = NONE


def pack_state(found: KeyState, watched: WatchedPatterns) -> bytes:
    """A state as bytes: the sizes of some arrays of 64-bit integers, and the arrays."""
    stored = found.state.arrays()
    patterns = stored["words"][stored["places"][:-1]] >> 32
    waiting = found.waiting
    arrays = (
        np.array([found.timer_ms], np.int64),
        *(stored["words"], stored["places"], stored["counters"], watched.pattern_digests[patterns]),
        *(waiting.times, waiting.positions, waiting.hit_ptr, watched.step_digests[waiting.hits]),
    )
    sizes = np.array([len(arrays), *(array.size for array in arrays)], np.int64)
    return b"".join(np.ascontiguousarray(array, np.int64).tobytes() for array in (sizes, *arrays))


def unpack_state(packed: bytes, patterns: PatternArrays, watched: WatchedPatterns) -> KeyState:
    """A state out of bytes, without what belongs to patterns and steps that are gone."""
    every = np.frombuffer(packed, np.int64)
    ends = 1 + every[0] + np.concatenate(([0], np.cumsum(every[1 : 1 + every[0]])))
    timer, words, places, counters, digests, times, positions, hit_ptr, hits = (every[a:b] for a, b in pairwise(ends))
    numbers = _numbers_of(digests, watched.pattern_digests)
    sizes = np.diff(places)
    kept = numbers >= 0
    words = words.copy()
    words[places[:-1]] = numbers << 32
    words = words[np.repeat(kept, sizes)]
    places = np.concatenate(([0], np.cumsum(sizes[kept])))
    state = SequenceState.from_arrays({"words": words, "places": places, "counters": counters}, patterns, _ONE_KEY)
    steps = _numbers_of(hits, watched.step_digests)
    counts = np.diff(np.concatenate(([0], np.cumsum(steps >= 0)))[hit_ptr])
    waiting = WaitingEvents(
        times.copy(), positions.copy(), np.zeros((1, times.size), np.int32), np.concatenate(([0], np.cumsum(counts))),
        steps[steps >= 0].astype(np.int32),
    )  # fmt: skip
    return KeyState(waiting, state, int(timer[0]))


class PatternProcessor:
    """The states of keys, in Spark's state store: a `StatefulProcessor` of PySpark, which is not imported for it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._value = handle.getValueState("patterns", "packed BINARY")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803 - Spark's names
        """The rows of a key in a micro-batch."""
        import pandas as pd  # type: ignore[import-untyped]

        yield from self._advance(key, read_rows(pd.concat(list(rows)), _open(self._path)), timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: ARG002, N802, N803
        """The watermark has reached what a key waits for."""
        yield from self._advance(key, WaitingEvents.none(1), timerValues, is_timer=True)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:  # noqa: N802, N803
        """There is none."""

    def close(self) -> None:
        """Nothing is open."""

    def _advance(self, key: Any, new: WaitingEvents, timers: Any, *, is_timer: bool = False) -> Iterator[Any]:
        watched = _open(self._path)
        patterns = watched.parts[int(key[0])]
        stored = self._value.get()
        before = KeyState(WaitingEvents.none(1), SequenceState(), -1)
        if stored is not None:
            before = unpack_state(bytes(stored[0]), patterns, watched)
        watermark = timers.getCurrentWatermarkInMs()
        found, after = advance_key(before, new, watermark, patterns)
        # Spark removes a timer after it has fired, and with it one that was registered meanwhile for the same time.
        due = -1 if after.timer_ms < 0 else max(after.timer_ms, watermark + 1)
        timer = -1 if is_timer else before.timer_ms
        if timer > due:  # too late, or for nothing
            self._handle.deleteTimer(timer)
            timer = -1
        if timer < 0 <= due:
            timer = due
            self._handle.registerTimer(timer)
        if due < 0:
            self._value.clear()
        else:
            self._value.update((pack_state(after._replace(timer_ms=timer), watched),))
        if found.pattern.size:
            yield _frame_of(found, key[1], watched)


def read_rows(frame: Any, watched: WatchedPatterns) -> WaitingEvents:
    """Rows of one key, in the order of arrival."""
    import pandas as pd

    frame = frame.sort_values("arrival", kind="stable")
    times = frame["time"].to_numpy("datetime64[us]").astype(np.int64)
    events = pd.array(frame["event"], "Int64").fillna(_NO_EVENT).to_numpy(np.int64)
    packed = frame["hits"].tolist()
    steps = _numbers_of(np.frombuffer(b"".join(packed), np.int64), watched.step_digests).astype(np.int32)
    ptr = np.concatenate(([0], np.cumsum([len(hits) // 8 for hits in packed])))
    return WaitingEvents(times, events, np.zeros((1, times.size), np.int32), ptr, steps)


def advance_key(
    before: KeyState, new: WaitingEvents, watermark_ms: int, patterns: PatternArrays
) -> tuple[FoundPatterns, KeyState]:
    """Replay what is at or before the watermark. The state says when to look again; with -1 nothing is left of it."""
    mark = watermark_ms * _MS
    events = before.waiting + new
    order = np.argsort(events.times, kind="stable")
    end = int(np.searchsorted(events.times[order], mark, "right"))
    found = before.state.replay(patterns, EventArrays(order, *events), end, mark + 1)
    waiting = events.take(np.sort(order[end:]))
    before.state.shrink(patterns, mark, _ONE_KEY)
    wake = min(before.state.horizon(patterns), int(waiting.times.min(initial=NEVER)))
    timer = -1 if wake >= NEVER else max(-(-wake // _MS) - 1, 0)
    return found, KeyState(waiting, before.state, timer)


def _frame_of(found: FoundPatterns, key: Any, watched: WatchedPatterns) -> Any:
    import pandas as pd

    events = [
        [None if event == _NO_EVENT else event for event in part.tolist()]
        for part in np.split(found.events, found.ptr[1:-1])
    ]
    return pd.DataFrame(
        {
            "subscription": [watched.ids[number] for number in found.pattern.tolist()],
            "key": [key] * found.pattern.size,
            "time": pd.to_datetime(found.time, unit="us", utc=True),
            "events": events,
        }
    )
