"""Sequences: the patterns of an engine, and the stream that they watch.

A pattern (`language.syntax.sequence`) is made of filters. Each distinct filter is registered once, by number, in an index of the
steps. A batch is matched against that index, as against any other; then the kernel (`kernels.sequences`) replays the hits in the order of
their times.

Time is that of the events. The watermark follows the latest time seen, `lateness` behind it, and moves when a batch has been taken in. Events at
or before it are replayed; later ones wait, so that events out of order come into order. An event before it is late: it is left out of
patterns and counted. So is an event without a time.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from wherecast.engine.checks import SubscriptionId
from wherecast.engine.ids import id_of, id_text
from wherecast.engine.matches import Matches
from wherecast.engine.pattern_matches import PatternMatches
from wherecast.engine.segments import Segments
from wherecast.engine.sequence_state import BEGINNING, STATE_BYTES, FoundPatterns, SequenceState, WaitingEvents
from wherecast.engine.sequence_tables import KeyTable, PatternColumns, RegisteredPattern
from wherecast.errors import EventError, FilterError, SchemaError, SubscriptionError, UnknownIdError
from wherecast.index.bounds import StoredArrays
from wherecast.kernels.arrays import Ints, Longs
from wherecast.kernels.sequences import EventArrays, PatternArrays
from wherecast.language.events.convert import convert_values
from wherecast.language.events.events import EventBatch, Events
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import Kind
from wherecast.language.expression import attributes_of
from wherecast.language.filters.compile import Compiler
from wherecast.language.syntax.sequence import SequencePattern, StepText, read_duration, read_sequence

if TYPE_CHECKING:
    from wherecast.engine.engine import Engine

_log = logging.getLogger(__name__)

_TIMES = (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)
_KEYS = (Kind.BOOLEAN, Kind.INTEGER, Kind.DECIMAL, Kind.STRING, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)
#: Keys and removed patterns that are not worth a clean-up.
_FEW = 10_000
#: What is stored of a stream as plain numbers.
_STREAM = ("position", "latest", "watermark", "late", "untimed", "hurried")
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock where the attribute is one


@dataclass(frozen=True, slots=True)
class EventTime:
    """Which attribute says when an event happened, how late events may come, and how much patterns may remember.

    `lateness` is a timedelta or a text such as '10 seconds'. With 0, matches are found at once, and an event earlier than one of a batch
    before is late. `state_bytes` bounds what is kept of the stream.
    """

    attribute: str | None = None
    lateness: dt.timedelta | str = "0 seconds"
    state_bytes: int = STATE_BYTES

    def __post_init__(self) -> None:
        _ = self.lateness_us
        if self.state_bytes < 1:
            raise SchemaError(f"state_bytes is a number of bytes, found {self.state_bytes!r:.40}")

    @property
    def lateness_us(self) -> int:
        """The lateness in microseconds. Raises SchemaError."""
        try:
            return read_duration(self.lateness, "lateness")
        except ValueError as error:
            raise SchemaError(str(error)) from None

    def index(self, schema: Schema) -> int:
        """The position of the attribute; by default the only timestamp of the schema. Raises SchemaError."""
        if self.attribute is not None:
            found = schema.index(self.attribute)
            attribute = schema.attributes[found]
            if attribute.kind not in _TIMES or attribute.is_array or attribute.value is not None:
                raise SchemaError(f"the time of events is a timestamp; {attribute.name!r} is a {attribute.type_name}")
            return found
        plain = [
            number
            for number, a in enumerate(schema.attributes)
            if a.kind in _TIMES and not a.is_array and a.value is None
        ]
        if len(plain) == 1:
            return plain[0]
        found_text = "has none" if not plain else f"has {len(plain)}"
        raise SchemaError(
            f"a pattern needs the time of events: a timestamp, and the schema {found_text}; "
            "say which with Engine(schema, event_time='ts')"
        )


class PatternCounts(NamedTuple):
    """What patterns left out of a stream, and what they keep of it."""

    late: int  # events before the watermark
    untimed: int  # events without a time
    refused: int  # hits for which there was no room
    hurried: int  # events that were replayed before the watermark, because too many waited
    waiting: int  # events after the watermark
    states: int
    keys: int


class Sequences:
    """All patterns of an engine. Whoever calls holds `turn`."""

    def __init__(self, compiler: Compiler, event_time: EventTime, steps: Engine, step_segments: Segments) -> None:
        self.schema = compiler.schema
        self.event_time = event_time
        self.steps = steps  # the filters of all steps, by number
        self.step_segments = step_segments  # of that engine
        self.turn = threading.RLock()
        self._compiler = compiler
        self._numbers: dict[SubscriptionId, int] = {}
        self._patterns: list[RegisteredPattern | None] = []
        self._free: list[int] = []
        self._freed: list[int] = []  # their states are still there
        self._columns = PatternColumns()
        self._step_of: dict[str, int] = {}
        self._step_texts: list[str] = []  # by number, also of those that are free
        self._step_uses: Counter[int] = Counter()
        self._free_steps: list[int] = []
        self._key_of: dict[str, int] = {}  # what is written behind PARTITION BY, to attribute
        self._parts: dict[int, int] = {}  # attribute to part
        self.keys: list[KeyTable] = [KeyTable(None, event_time.state_bytes)]
        self._arrays: PatternArrays | None = None
        self.state = SequenceState(event_time.state_bytes)
        self.waiting = WaitingEvents.none(1)
        self.position = 0
        self.latest = self.watermark = BEGINNING
        self.late = self.untimed = self.hurried = 0
        self._kept_keys = 0

    # -- registering ----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, id: object) -> bool:
        return id in self._numbers

    def __iter__(self) -> Iterator[RegisteredPattern]:
        return (found for found in self._patterns if found is not None)

    def __getitem__(self, id: SubscriptionId) -> RegisteredPattern:
        number = self._numbers.get(id)
        found = None if number is None else self._patterns[number]
        if found is None:
            raise UnknownIdError(f"no subscription {id!r:.80}")
        return found

    def read(self, text: str) -> tuple[SequencePattern, int]:
        """A pattern and the attribute of its key, -1 if it has none. Raises FilterError."""
        try:
            self.event_time.index(self.schema)
        except SchemaError as error:
            raise FilterError("unsupported", str(error), text=text) from None
        read = read_sequence(text, self._compiler.limits.text)
        if read.key is None:
            return read, -1
        if read.key.text not in self._key_of:
            self._key_of[read.key.text] = find_key(read.key, text, self._compiler)
        return read, self._key_of[read.key.text]

    def put_many(self, rows: Sequence[tuple[int, SubscriptionId, str]]) -> dict[int, FilterError | SubscriptionError]:
        """Register patterns, in place of those that have their ids; the errors of those that cannot be, by row."""
        errors: dict[int, FilterError | SubscriptionError] = {}
        good: list[tuple[int, SubscriptionId, str, SequencePattern, int]] = []
        fresh: dict[str, int] = {}
        for row, id, text in rows:
            try:
                read, key = self.read(text)
            except FilterError as error:
                errors[row] = error
                continue
            good.append((row, id, text, read, key))
            for step in read.steps:
                if step.text not in self._step_of and step.text not in fresh:
                    fresh[step.text] = self._new_step(step.text)
        bad = self._add_steps(fresh)
        for row, id, text, read, key in good:
            wrong = next((step for step in read.steps if step.text in bad), None)
            if wrong is not None:
                errors[row] = wrong.relocated(bad[wrong.text], text)
            else:
                self._add(id, text, read, key)
        self._drop_steps(number for text, number in fresh.items() if text not in bad)
        return errors

    def _new_step(self, text: str) -> int:
        if self._free_steps:
            number = self._free_steps.pop()
            self._step_texts[number] = text
            return number
        self._step_texts.append(text)
        return len(self._step_texts) - 1

    def _add_steps(self, fresh: dict[str, int]) -> dict[str, FilterError]:
        """Register filters by number; those that do not compile."""
        if not fresh:
            return {}
        texts = list(fresh)
        found = self.steps.subscribe_many((fresh[text], text) for text in texts)
        bad = {
            texts[q.row]: cast("FilterError", q.error) for q in found.quarantined
        }  # nothing is wrong with numbers as ids
        self._step_of.update((text, number) for text, number in fresh.items() if text not in bad)
        self._free_steps += [fresh[text] for text in bad]
        return bad

    def _drop_steps(self, numbers: Iterable[int]) -> None:
        """Remove filters that no pattern uses."""
        gone = [number for number in numbers if not self._step_uses[number]]
        for number in gone:
            self.steps.unsubscribe(number)
            del self._step_of[self._step_texts[number]], self._step_uses[number]
        self._free_steps += gone

    def _add(self, id: SubscriptionId, text: str, read: SequencePattern, key: int) -> None:
        filters = tuple(self._step_of[step.text] for step in read.steps)
        self._step_uses.update(filters)
        if id in self._numbers:
            self.remove(id)
        number = self._free.pop() if self._free else len(self._patterns)
        if number == len(self._patterns):
            self._patterns.append(None)
        found = RegisteredPattern(id, text, read, filters, self._part_of(key), self.position)
        self._patterns[number] = found
        self._columns.put(number, found)
        self._numbers[id] = number
        self._arrays = None

    def _part_of(self, attribute: int) -> int:
        if attribute < 0:
            return 0
        if attribute not in self._parts:
            self._parts[attribute] = len(self.keys)
            self.keys.append(KeyTable(self.schema.attributes[attribute], self.event_time.state_bytes))
        return self._parts[attribute]

    def remove(self, id: SubscriptionId) -> None:
        """Remove a pattern, with what it remembers."""
        found = self[id]
        number = self._numbers.pop(id)
        self._patterns[number] = None
        self._columns.remove(number)
        self._freed.append(number)
        self._step_uses.subtract(found.filters)
        self._drop_steps(set(found.filters))
        self._arrays = None

    # -- storing --------------------------------------------------------------------------------------------------

    def packed(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Arrays and facts of a snapshot."""
        self._clean_up()
        live = list(self.numbered())
        sizes = [len(found.filters) for _, found in live]
        arrays = {
            "number": np.array([number for number, _ in live], np.int64),
            "ids": pa.array([id_text(found.id) for _, found in live], pa.string()),
            "texts": pa.array([found.text for _, found in live], pa.string()),
            "born": np.array([found.born for _, found in live], np.int64),
            "filter_ptr": np.cumsum([0, *sizes]).astype(np.int64),
            "filters": np.array([n for _, found in live for n in found.filters], np.int64),
            **{f"waiting_{name}": array for name, array in self.waiting._asdict().items()},
            **{f"keys{part}": table.array() for part, table in enumerate(self.keys) if part},
            **self.state.arrays(),
        }
        names = [self.schema.attributes[attribute].name for attribute in self._parts]
        time = self.schema.attributes[self.event_time.index(self.schema)].name
        stream = {name: getattr(self, name) for name in _STREAM}
        settings = {"lateness_us": self.event_time.lateness_us, "state_bytes": self.event_time.state_bytes}
        return arrays, {"time": time, "parts": names, "patterns": len(self._patterns), **settings, **stream}

    @classmethod
    def unpacked(
        cls,
        arrays: Mapping[str, Any],
        facts: Mapping[str, Any],
        compiler: Compiler,
        steps: Engine,
        step_segments: Segments,
    ) -> Sequences:
        """Patterns out of a snapshot, with what they know of their stream. Raises SnapshotError and others."""
        stored, schema = StoredArrays(arrays, "patterns"), compiler.schema
        lateness = dt.timedelta(microseconds=int(facts["lateness_us"]))
        event_time = EventTime(str(facts["time"]), lateness, int(facts["state_bytes"]))
        made = cls(compiler, event_time, steps, step_segments)
        for name in facts["parts"]:
            made._part_of(schema.index(str(name)))
        for name in _STREAM:
            stored.require(-(2**63) < int(facts[name]) < 2**62, name, "is not a number of 64 bits")
            setattr(made, name, int(facts[name]))
        made._open_patterns(stored, int(facts["patterns"]))
        for attribute, part in made._parts.items():
            values = stored.array(f"keys{part}")
            stored.require(isinstance(values, pa.Array) and values.type == pa.string(), f"keys{part}", "has no keys")
            try:
                made.keys[part] = KeyTable.of(schema.attributes[attribute], values, made.event_time.state_bytes)
            except pa.ArrowInvalid as error:
                stored.require(False, f"keys{part}", f"has a key that is not one: {error}")
        made._open_waiting(stored)
        counts = np.array([len(table) for table in made.keys], np.int64)
        made.state = SequenceState.from_arrays(arrays, made.arrays(), counts, made.event_time.state_bytes)
        return made

    def _open_patterns(self, stored: StoredArrays, size: int) -> None:
        numbers = stored.column("number", np.int64)
        stored.require(0 <= size <= numbers.size + 2 * _FEW + 2 * numbers.size, "number", "has too many gaps")
        stored.within(numbers, 0, size, "number")
        stored.require(np.unique(numbers).size == numbers.size, "number", "has a number twice")
        ids, texts = (stored.array(name).to_pylist() for name in ("ids", "texts"))
        born = stored.column("born", np.int64, size=numbers.size)
        filters = stored.column("filters", np.int64)
        stored.require((self.steps.places(filters) >= 0).all(), "filters", "names a filter that is not there")
        stored.within(filters, 0, 1 << 31, "filters")
        ptr = stored.column("filter_ptr", np.int64, size=numbers.size + 1)
        stored.offsets(ptr, filters.size, "filter_ptr")
        stored.require(len(ids) == len(texts) == numbers.size, "texts", "has another length")
        self._patterns = [None] * size
        self._step_texts = [""] * (int(filters.max(initial=-1)) + 1)
        for row, number in enumerate(numbers.tolist()):
            read, key = self.read(texts[row])
            own = tuple(filters[ptr[row] : ptr[row + 1]].tolist())
            stored.require(len(own) == len(read.steps), "filters", "does not fit the texts")
            found = RegisteredPattern(id_of(ids[row]), texts[row], read, own, self._part_of(key), int(born[row]))
            self._patterns[number] = found
            self._columns.put(number, found)
            self._numbers[found.id] = number
            self._step_uses.update(own)
            for step, filter_number in zip(read.steps, own, strict=True):
                self._step_of[step.text] = filter_number
                self._step_texts[filter_number] = step.text
        self._free = sorted(set(range(size)).difference(numbers.tolist()), reverse=True)
        self._free_steps = [n for n in range(len(self._step_texts)) if not self._step_uses[n]]

    def _open_waiting(self, stored: StoredArrays) -> None:
        times = stored.column("waiting_times", np.int64)
        keys = stored.table("waiting_keys", np.int32, times.size)
        hits = stored.column("waiting_hits", np.int32)
        ptr = stored.column("waiting_hit_ptr", np.int64, size=times.size + 1)
        stored.offsets(ptr, hits.size, "waiting_hit_ptr")
        stored.within(hits, 0, max(len(self._step_texts), 1), "waiting_hits")
        stored.require(1 <= len(keys) <= len(self.keys), "waiting_keys", "has keys of other parts")
        for part, row in enumerate(keys):
            stored.within(row, -1, len(self.keys[part]), "waiting_keys")
        positions = stored.column("waiting_positions", np.int64, size=times.size)
        self.waiting = WaitingEvents(*(np.array(array) for array in (times, positions, keys, ptr, hits)))

    # -- the stream -----------------------------------------------------------------------------------------------

    def advance(
        self, batch: EventBatch, rows: int, hits: Matches, matches: Matches, until: dt.datetime | None
    ) -> PatternMatches:
        """Take in a batch, `rows` with those that were skipped, given the steps and the other filters that it satisfies."""
        counts, before = hits.counts(), (self.late, self.untimed)
        ptr = np.concatenate(([0], np.cumsum(counts)))
        numbers = hits.subscription_ids().astype(np.int32)
        found = self._take_in(batch, rows, ptr, numbers, None if until is None else self._us(until))
        ids, keys = self._ids_of(found.pattern), self._keys_of(found)
        late, untimed = self.late - before[0], self.untimed - before[1]
        return PatternMatches(found, ids, keys, matches, self.moment, self.moment(self.watermark), late, untimed)

    @property
    def attributes(self) -> frozenset[int]:
        """What is read of events beside what the steps read."""
        return frozenset((self.event_time.index(self.schema), *self._parts))

    def arrays(self) -> PatternArrays:
        """All patterns for the kernel."""
        if self._arrays is None:
            self._arrays = self._columns.arrays(len(self._step_texts))
            if len(self._freed) > max(_FEW, len(self._numbers)):
                self._clean_up()
                self._free, self._freed = self._free + self._freed, []
        return self._arrays

    def _take_in(self, batch: EventBatch, rows: int, hit_ptr: Longs, hits: Ints, until: int | None) -> FoundPatterns:
        used = sum(table.in_use for table in self.keys)
        if used > 2 * self._kept_keys + _FEW or (any(t.is_tight for t in self.keys) and used > 1.25 * self._kept_keys):
            self._clean_up()
        column = batch.array(self.event_time.index(self.schema))
        is_timed = np.asarray(column.is_valid())
        times = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        is_late = is_timed & (times < self.watermark)
        self.late += int(np.count_nonzero(is_late))
        self.untimed += int(np.count_nonzero(~is_timed))
        chosen = np.flatnonzero(is_timed & ~is_late & (np.diff(hit_ptr) > 0))
        new = WaitingEvents(times, self.position + batch.rows, np.zeros((0, times.size), np.int32), hit_ptr, hits).take(
            chosen
        )
        events = self.waiting + new._replace(keys=self._number_keys(batch, chosen))
        self.position += rows
        self.latest = max(self.latest, int(times[is_timed].max(initial=BEGINNING)))
        mark = self.latest - self.event_time.lateness_us if self.latest > BEGINNING else BEGINNING
        mark = max(self.watermark, mark, BEGINNING if until is None else until)
        order = np.argsort(events.times, kind="stable")
        end = int(np.searchsorted(events.times[order], mark, "right"))
        most = self.event_time.state_bytes // 64
        if order.size - end > most:  # a stream whose time stands still must not fill the memory
            mark = int(events.times[order[order.size - most - 1]])
            self.hurried += int(np.searchsorted(events.times[order], mark, "right")) - end
            end = int(np.searchsorted(events.times[order], mark, "right"))
        found = self.state.replay(self.arrays(), EventArrays(order, *events), end, mark)
        self.waiting = events.take(np.sort(order[end:])) if end < order.size else WaitingEvents.none(len(self.keys))
        self.watermark = mark
        return found

    def numbered(self) -> Iterator[tuple[int, RegisteredPattern]]:
        """All patterns with their numbers."""
        return ((number, found) for number, found in enumerate(self._patterns) if found is not None)

    @property
    def step_texts(self) -> Sequence[str]:
        """The filters of steps, by number."""
        return self._step_texts

    def read_batch(self, events: Events) -> EventBatch:
        """Times and keys of events. Raises EventError."""
        return EventBatch.read(self.schema, events, needed=self.attributes)

    def key_texts(self, batch: EventBatch, part: int) -> pa.Array:
        """The keys of events by one attribute, as texts; for patterns without PARTITION BY the empty text."""
        for attribute, number in self._parts.items():
            if number == part:
                coded = batch.array(attribute).dictionary_encode()
                row, known = self.schema.attributes[attribute].row, self.schema.attributes[attribute]
                texts = pa.array([str(row.load(value, known)) for value in coded.dictionary.to_pylist()], pa.string())
                return texts.take(coded.indices)
        return pa.array([""] * len(batch), pa.string())

    def _number_keys(self, batch: EventBatch, chosen: Longs) -> Ints:
        keys = np.zeros((len(self.keys), chosen.size), np.int32)
        places = pa.array(chosen)
        for attribute, part in self._parts.items():
            keys[part] = self.keys[part].number(batch.array(attribute).take(places))
        return keys

    def _clean_up(self) -> None:
        """Forget states that have left their window, and keys that nothing speaks of."""
        counts = np.array([len(table) for table in self.keys], np.int64)
        is_used = np.split(self.state.shrink(self.arrays(), self.watermark, counts), np.cumsum(counts)[:-1])
        for part, table in enumerate(self.keys):
            if part < len(self.waiting.keys):
                waiting = self.waiting.keys[part]
                is_used[part][waiting[waiting >= 0]] = True
            table.keep(is_used[part])
        self._kept_keys = sum(table.in_use for table in self.keys)

    def _ids_of(self, numbers: Ints) -> list[SubscriptionId]:
        """The ids of patterns by number."""
        found = (self._patterns[number] for number in numbers.tolist())
        return [one.id for one in found if one is not None]

    def _keys_of(self, found: FoundPatterns) -> list[Any]:
        """The keys of matches, as they came in events."""
        parts = self.arrays().part[found.pattern].tolist()
        return [self.keys[part].shown(key) for part, key in zip(parts, found.key.tolist(), strict=True)]

    def counts(self) -> PatternCounts:
        keys = sum(table.in_use - 1 for table in self.keys)
        refused, states = self.state.refused, self.state.states
        return PatternCounts(self.late, self.untimed, refused, self.hurried, self.waiting.times.size, states, keys)

    def stats(self) -> dict[str, int]:
        """Sizes and counts, for people."""
        return {
            "patterns": len(self),
            "filters": len(self._step_of),
            "bytes": self.state.nbytes,
            **self.counts()._asdict(),
        }

    def _us(self, moment: dt.datetime) -> int:
        """A time that a caller gives; one without a zone is read as those of events are."""
        attribute = self.schema.attributes[self.event_time.index(self.schema)]
        value = convert_values(attribute, [moment], self.schema.zone).values.cast(pa.int64())[0].as_py()
        if value is None:
            raise EventError(f"until={moment!r:.40} is not a time", attribute=attribute.name)
        return int(value)

    def moment(self, us: int) -> dt.datetime | None:
        """A time as events have it."""
        if us <= BEGINNING:
            return None
        is_instant = self.schema.attributes[self.event_time.index(self.schema)].kind is Kind.TIMESTAMP
        try:
            moment = _EPOCH + dt.timedelta(microseconds=us)
        except OverflowError:
            moment = _EPOCH.replace(year=9999 if us > 0 else 1)
        return moment.replace(tzinfo=dt.UTC) if is_instant else moment


def find_key(key: StepText, text: str, compiler: Compiler) -> int:
    """The attribute of PARTITION BY in the text of a pattern. Raises FilterError."""
    try:
        node, _ = compiler.check(f"{key.text} IS NULL")
    except FilterError as error:
        raise key.relocated(error, text) from None
    (found,) = attributes_of(node)
    attribute = compiler.schema.attributes[found]
    if attribute.kind not in _KEYS or attribute.is_array or attribute.value is not None:
        message = (
            "PARTITION BY takes a text, an integer, a decimal, a boolean, a date or a timestamp; "
            f"{attribute.name!r} is a {attribute.type_name}"
        )
        raise FilterError("type", message, text=text, start=key.start, end=key.start + len(key.text))
    return found
