"""Engine: the public object. Register filters, match events, ask why.

Reads never block on writes (see `segments`). Filters of single events live in `Segments`, patterns over several events in `Patterns`;
this module speaks to people about both.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.engine.checks import SubscriptionId, check_id, check_priority
from wherecast.engine.explain import Explanation, explain_filter
from wherecast.engine.ids import IdColumn, IdList, id_array, id_at, join_ids, read_ids, take_ids, without_ids
from wherecast.engine.lint import LintFindings, lint_members
from wherecast.engine.log import EngineState, Log, LogEntry, NextState, SegmentSlots, admit, count_places
from wherecast.engine.matches import Matches, SegmentMatches
from wherecast.engine.matching import in_pieces, match_part, match_threaded, within_limits
from wherecast.engine.pattern_matches import PatternMatches
from wherecast.engine.patterns import Patterns, taken
from wherecast.engine.persist import SEQUENCES, open_segments, open_sequences, open_steps, save_segments
from wherecast.engine.planning import count_candidates
from wherecast.engine.segment import Members, Segment, filters_of, members_of
from wherecast.engine.segments import Segments
from wherecast.engine.sequences import EventTime
from wherecast.engine.subscriptions import (
    CompiledPart,
    Incoming,
    SubscriptionSource,
    compile_parts,
    read_subscriptions,
    without_patterns,
)
from wherecast.errors import FilterError, SubscriptionError, UnknownIdError
from wherecast.language.events.events import EventBatch, EventReader, Events, OnError
from wherecast.language.events.html import html_table
from wherecast.language.events.names import NameCheck
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import Filters
from wherecast.language.filters.written import write_filter
from wherecast.language.functions.row import GrownTextError
from wherecast.language.syntax.limits import Limits
from wherecast.language.syntax.sequence import is_sequence
from wherecast.matchers.registry import find_matcher
from wherecast.progress import shown

if TYPE_CHECKING:
    from wherecast.language.events.schema import SchemaSource

T = TypeVar("T")

#: Subscriptions that a notebook shows.
_SHOWN = 10


class Quarantined(NamedTuple):
    """A subscription that was not registered, and why."""

    row: int
    id: object
    error: FilterError | SubscriptionError


class Registration(NamedTuple):
    """Outcome of `subscribe_many`: how many are registered, and which rows are not."""

    registered: int
    quarantined: list[Quarantined]


class Engine:
    """Subscriptions over one schema, matched against events in this process."""

    def __init__(
        self,
        schema: SchemaSource,
        *,
        matcher: str = "adaptive",
        limits: Limits | None = None,
        strict: bool = False,
        event_time: EventTime | str | None = None,
    ) -> None:
        """An engine without subscriptions.

        `schema` is a schema or anything that `Schema.of` takes: a mapping, a file, a table, a Spark DataFrame.
        `event_time` is for patterns: the attribute that says when an event happened (by default the only timestamp of the
        schema), or an `EventTime` with how late events may come.
        `strict` refuses events that lack an attribute which a filter needs, and have instead a name that differs only in
        case, or no name of the schema at all. Without it such names are logged, once each, by `wherecast.events`.
        """
        self.schema = Schema.of(schema)
        self.matcher = matcher
        self._compiler = Compiler(self.schema, limits)
        self._names = NameCheck(self.schema, strict=strict)
        self._reader = EventReader(self.schema, (), self._names)
        self._segments = Segments(self._compiler, find_matcher(matcher))
        time = event_time if isinstance(event_time, EventTime) else EventTime(event_time)
        if event_time is not None:
            time.index(self.schema)
        self._patterns = Patterns(self._segments, self._compiler, self._names, time, self._make_steps)

    def _make_steps(self) -> tuple[Engine, Segments]:
        """What the steps of patterns are registered in: an engine of the same kind."""
        steps = Engine(self.schema, matcher=self.matcher, limits=self._compiler.limits, strict=self._names.strict)
        return steps, steps._segments

    # -- registering ----------------------------------------------------------------------------------------------

    def subscribe(self, id: SubscriptionId, filter: str, *, priority: float = 0.0, replace: bool = False) -> None:
        """Register one filter or pattern. Raises FilterError or SubscriptionError, and then changes nothing.

        `priority` is what `Matches.top` sorts by, the highest first; patterns have none.
        """
        if is_sequence(filter):
            errors = self._patterns.put([(0, check_id(id), filter)], replace)
            if errors:
                raise errors[0]
            return
        entry = LogEntry(check_id(id), filter, check_priority(priority))
        self._compiler.validate(filter)
        self._segments.watch_traffic()

        def put(state: EngineState) -> NextState:
            old = state.find(entry.id)
            if not replace and (old is not None or entry.id in self._patterns):
                raise taken(entry.id)
            version, segments, log, log_size, size = state
            log.put(entry, log_size)
            new = EngineState(version + 1, segments, log, log_size + 1, size + (old is None))
            return NextState(new, () if old is None else (old,))

        with self._segments.writing:
            self._segments.change(put)
            if self._patterns.sequences is not None:  # else nothing is left to do, and nothing may fail any more
                self._patterns.remove([entry.id])

    def subscribe_many(
        self,
        subscriptions: SubscriptionSource,
        *,
        replace: bool = False,
        processes: int = 1,
        progress: bool = False,
    ) -> Registration:
        """Register many subscriptions in one step.

        `subscriptions` is a table with columns `id` and `filter` (and optionally `priority`), a mapping of ids to filters,
        or (id, filter) pairs. A table is one of Arrow, pandas or Polars, a record batch, a `RecordBatchReader`, or anything
        else with Arrow's C stream. Bad rows are quarantined with their error, the others are registered. If the call raises an
        error, nothing has changed. With `progress` a terminal or a notebook shows how far it is; the log says it anyway.

        With `processes`, the filters are compiled on that many cores, in processes started for this call. It is worth it from some
        200,000 distinct texts on; the outcome is the same.
        """
        incoming, patterns = without_patterns(read_subscriptions(subscriptions))
        with shown(progress):  # not around all: what is published must not fail any more
            parts = compile_parts(self._compiler, incoming.texts, processes)
        errors = incoming.refused(chain.from_iterable(part.errors for part in parts))
        good = np.delete(np.arange(incoming.text_of.size), [*errors, *(row for row, _, _ in patterns)])
        outcome = Registration(0, [])

        def add(state: EngineState) -> NextState:
            nonlocal outcome
            state = self._segments.sealed() if good.size else state
            rows = good if replace else self._patterns.admit(incoming.ids, good, errors)
            rows, old = admit(state, incoming.ids, rows, replace, errors)
            outcome = Registration(int(rows.size), _quarantined(incoming.ids, errors))
            if not rows.size:
                return NextState(state)
            with shown(progress):
                segment = self._segments.build(_members(incoming, parts, rows))
            size = state.size + int(rows.size) - count_places(old)
            return NextState(
                state._replace(version=state.version + 1, segments=(*state.segments, segment), size=size), old
            )

        with self._segments.writing:
            self._segments.change(add)
            if replace and self._patterns.sequences is not None:
                self._patterns.remove(id_at(incoming.ids, row) for row in good.tolist())
            if not patterns:
                return outcome
            errors |= self._patterns.put([row for row in patterns if row[0] not in errors], replace)
        done = outcome.registered + sum(row not in errors for row, _, _ in patterns)
        return Registration(done, _quarantined(incoming.ids, errors))

    def unsubscribe(self, id: SubscriptionId) -> None:
        """Remove a subscription; others with an equal filter stay."""
        id = check_id(id)
        if id in self._patterns:
            self._patterns.remove([id])
            return

        def remove(state: EngineState) -> NextState:
            old = state.find(id)
            if old is None:
                raise UnknownIdError(f"no subscription {id!r}")
            version, segments, log, log_size, size = state
            return NextState(EngineState(version + 1, segments, log, log_size, size - 1), (old,))

        self._segments.change(remove)

    # -- other engines --------------------------------------------------------------------------------------------

    def apply(self, delta: Engine, removed: IdList = ()) -> None:
        """Remove some subscriptions and add those of another engine, in one step.

        Ids that are in both engines must be in `removed`; otherwise SubscriptionError is raised and nothing changes. `removed`
        may have ids that do not exist. Later changes to one engine do not affect the other.
        """
        if delta.schema != self.schema:
            raise SubscriptionError("the schemas differ; build the delta with the schema of this engine")
        for engine in (self, delta):
            engine._patterns.refuse("which `apply` does not take over; subscribe them one by one")  # noqa: SLF001
        gone = read_ids(removed)
        theirs, segments, _ = delta._segments.readable()
        added = tuple(segment.detached(theirs.version) for segment in segments)
        with self._segments.writing:
            state = self._segments.sealed()
            _, old = state.find_many(gone)
            rest = without_ids(join_ids([s.live(theirs.version) for s in segments]), gone)
            is_taken, _ = state.find_many(rest)
            if is_taken.any():
                id = id_at(rest, int(np.argmax(is_taken)))
                raise SubscriptionError(
                    f"{np.count_nonzero(is_taken):,} ids are in both engines, {id!r} is one; list them in `removed`"
                )
            size = state.size + theirs.size - count_places(old)
            new = state._replace(version=state.version + 1, segments=(*state.segments, *added), size=size)
            self._segments.publish(NextState(new, old))

    def subset(self, choose: Callable[[Filters], npt.NDArray[np.bool_]]) -> Engine:
        """A new engine with the subscriptions whose filters `choose` selects; it is called with some filters at a time."""
        self._patterns.refuse("which `subset` does not take over; leave them out")
        state, segments, _ = self._segments.readable()
        parts = []
        for segment in segments:
            members = members_of(segment, state.version)
            filters, filter_of, ids, priorities = members
            kept = np.flatnonzero(choose(members.plain)[filter_of])
            if kept.size:
                parts.append(Members(filters, filter_of[kept], np.asarray(ids)[kept], priorities[kept]))
        engine = Engine(self.schema, matcher=self.matcher, strict=self._names.strict)
        if parts:
            size = sum(p.filter_of.size for p in parts)
            engine._segments.state = EngineState(1, (self._segments.build(parts),), Log(), 0, size)
        return engine

    def merge(self, *, everything: bool = False, progress: bool = False) -> None:
        """Merge segments now: those that are due, or all of them into one. Subscriptions stay the same, even if it fails."""
        with shown(progress):
            self._segments.merge(everything=everything)

    def plan(self, events: Events, *, progress: bool = False) -> None:
        """Plan the index now, for traffic like these events. Otherwise the first large batch is the sample."""
        _, segments, needed = self._segments.readable()
        with shown(progress):
            self._segments.planner.learn(EventBatch.read(self.schema, events, on_error="skip", needed=needed), segments)

    # -- matching -------------------------------------------------------------------------------------------------

    def _refuse_match(self) -> None:
        self._patterns.refuse(
            "which need the events in their order: call engine.advance(events); its `matches` are those of the other filters"
        )

    def match(self, event: Mapping[str, object]) -> list[SubscriptionId]:
        """Ids of the subscriptions that one event satisfies."""
        if self._patterns.sequences:
            self._refuse_match()
        state, segments, needed = self._segments.readable()
        reader = self._reader
        if reader.needed is not needed:
            reader = self._reader = EventReader(self.schema, needed, self._names)
        found = self._match_one(event, reader, segments, state.version)
        # What single events cannot do is done as a batch, which also has the words for what is wrong.
        return found if found is not None else self.match_batch([event]).subscription_ids().tolist()

    def _match_one(
        self, event: Mapping[str, object], reader: EventReader, segments: Sequence[Segment], version: int
    ) -> list[SubscriptionId] | None:
        values = reader.read(event)
        found: list[SubscriptionId] = []
        try:
            for segment in segments:
                ids = segment.match_one(values, version, self._compiler.limits)
                if ids is None:
                    return None
                found += ids
        except GrownTextError:
            return None
        return found

    def match_batch(self, events: Events, *, on_error: OnError = "raise", threads: int = 1) -> Matches:
        """Match a batch: a table of Arrow, pandas or Polars, anything else with Arrow's C stream, or mappings.

        A `RecordBatchReader` is read to its end, as one batch.

        An event with a value of the wrong type raises EventError naming row and attribute, or, with
        `on_error="skip"`, is left out and listed in the result's `errors`. With `threads`, the batch is cut
        into pieces that are matched in parallel.
        """
        if self._patterns.sequences:
            self._refuse_match()
        state, segments, batch = self._read(events, on_error)
        parts, batch = within_limits(
            batch, on_error, lambda b: [match_part(s, b, self._compiler.limits, threads) for s in segments]
        )
        return Matches(parts, batch.rows, batch.errors, state.version)

    def count(self, events: Events, *, on_error: OnError = "raise", threads: int = 1) -> npt.NDArray[np.int64]:
        """Number of subscriptions that each event of a batch satisfies; faster than listing them."""
        self._refuse_match()
        state, segments, batch = self._read(events, on_error)

        def count_all(batch: EventBatch) -> npt.NDArray[np.int64]:
            total = np.zeros(len(batch), np.int64)
            for segment in segments:
                counts = in_pieces(segment.count, batch, threads)
                if counts is None:
                    part = SegmentMatches(segment, *match_threaded(segment, batch, self._compiler.limits, threads))
                    counts = [Matches([part], batch.rows, [], state.version).counts()]
                total += np.concatenate(counts)
            return total

        return within_limits(batch, on_error, count_all)[0]

    def candidates(self, events: Events) -> float:
        """Clauses that an event of a batch is compared with, on average: a measure of the cost of matching."""
        _, segments, needed = (
            self._segments.readable()
        )  # not `_read`: the planner sees these events when they are matched
        batch = EventBatch.read(self.schema, events, on_error="skip", needed=needed)
        return sum(count_candidates(segment, batch) for segment in segments) if len(batch) else 0.0

    def _read(self, events: Events, on_error: OnError) -> tuple[EngineState, tuple[Segment, ...], EventBatch]:
        readable = self._segments.readable()
        batch = EventBatch.read(self.schema, events, on_error=on_error, needed=readable.attributes, names=self._names)
        self._segments.planner.observe(batch, readable.segments)
        self._segments.note_events(readable, len(batch))
        return readable.state, readable.segments, batch

    def advance(
        self,
        events: Events,
        *,
        until: dt.datetime | None = None,
        on_error: OnError = "raise",
        threads: int = 1,
    ) -> PatternMatches:
        """Take in the next events of a stream: the patterns that they complete, and the matches of all other filters.

        Events are put in the order of their times; those that come too late (see `EventTime`) are left out of patterns and
        counted. `until` says that no event before this time will come any more; without events, it lets time pass.
        An EventError leaves everything as it was.
        """
        return self._patterns.advance(events, until, on_error, threads)

    def explain(self, event: Mapping[str, object], id: SubscriptionId) -> Explanation:
        """Why an event does or does not satisfy a subscription: each clause, each predicate."""
        id = check_id(id)
        if id in self._patterns:
            return self._patterns.explain(event, id)
        state, segments, _ = self._segments.readable()
        for segment in segments:
            slot = segment.find(id, state.version)
            if slot >= 0:
                return explain_filter(
                    segment, segment.filter_of(slot), EventBatch.read(self.schema, [event], names=self._names)
                )
        raise UnknownIdError(f"no subscription {id!r}")

    def ids(self) -> pa.Array:
        """Ids of all subscriptions, in any order: int64, string or, if there are both, a dense union of the two."""
        state, segments, _ = self._segments.readable()
        alive = [s.live(state.version) for s in segments]
        types = {kind for s in segments for kind in s.subscriptions.ids.types}
        if self._patterns:
            alive.append(np.array([None, *(pattern.id for pattern in self._patterns)], object)[1:])
            types |= {type(pattern.id) for pattern in self._patterns}
        return id_array(np.concatenate(alive) if alive else np.zeros(0, np.int64), types)

    def slots(self) -> int:
        """How many places there are for subscriptions, those of removed ones included: places are below it."""
        return sum(map(len, self._segments.readable()[1]))

    def places(self, ids: IdList | None = None) -> npt.NDArray[np.int64]:
        """Where subscriptions are if the slots of all segments are laid end to end, as `Matches.places` counts them.

        By default of all subscriptions, in the order of `ids()`. Ids that do not exist have -1.
        """
        state, segments, _ = self._segments.readable()
        starts = np.cumsum([0, *map(len, segments)])
        if ids is None:
            alive = [np.flatnonzero(s.alive(state.version)) + first for s, first in zip(segments, starts, strict=False)]
            return np.concatenate([np.zeros(0, np.int64), *alive])
        wanted = read_ids(ids)
        found = np.full(len(wanted), -1, np.int64)
        for segment, first in zip(segments, starts, strict=False):
            slots = segment.find_many(wanted, state.version)
            found = np.where(slots >= 0, slots + first, found)
        return found

    def ids_at(self, places: npt.NDArray[np.int64]) -> pa.Array:
        """Ids of the subscriptions at some places, in the types of `ids()`."""
        tables = [s.subscriptions.ids for s in self._segments.readable()[1] if len(s)]
        types = {kind for table in tables for kind in table.types}
        if types == {str}:
            texts = pa.concat_arrays([table.values for table in tables])
            return pc.utf8_slice_codeunits(texts.take(pa.array(places)), 1)
        every = [table.values if types == {int} else table.take(np.arange(len(table))) for table in tables]
        return id_array(np.concatenate(every)[places] if every else np.zeros(0, np.int64), types)

    def filters(self) -> tuple[Filters, npt.NDArray[np.int64]]:
        """The registered filters and the number of subscriptions of each.

        A filter that was registered again may occur twice until the next merge.
        """
        state, segments, _ = self._segments.readable()
        return filters_of(segments, self.schema, state.version)

    def lint(self, *, progress: bool = False) -> LintFindings:
        """Find filters that are probably wrong or cost more than they need to.

        An engine keeps what filters mean, not how they were spelled: `wherecast.lint` looks at a table of texts and finds more.
        Places are those in the text that `engine[id]` gives.
        """
        state, segments, _ = self._segments.readable()
        with shown(progress):
            patterns = [(pattern.id, pattern.text) for pattern in self._patterns]
            return lint_members([members_of(s, state.version) for s in segments], self.schema, self._compiler, patterns)

    def attributes(self) -> list[str]:
        """Names of the attributes that filters use. Matching reads only these."""
        return [self.schema.attributes[a].name for a in sorted(self._segments.readable()[2])]

    # -- saving and opening ---------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, progress: bool = False) -> None:
        """Write all subscriptions to a snapshot directory; an older snapshot there is replaced in one step."""
        state, segments, _ = self._segments.readable()
        with shown(progress):
            save_segments(path, self.schema, self.matcher, segments, state.version, self._patterns.sequences)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, limits: Limits | None = None, strict: bool = False) -> Self:
        """Open a snapshot; its files are mapped, not loaded.

        Raises SnapshotError if it is damaged, not of Wherecast, or newer than this release.
        """
        schema, matcher, segments, version, snapshot = open_segments(path)
        engine = cls(schema, matcher=matcher, limits=limits, strict=strict)
        engine._segments.state = EngineState(version, segments, Log(), 0, sum(len(s) - s.deaths for s in segments))
        if SEQUENCES in snapshot.facts:
            version, segments = open_steps(snapshot, schema, matcher)
            steps, step_segments = engine._make_steps()
            step_segments.state = EngineState(version, segments, Log(), 0, sum(len(s) - s.deaths for s in segments))
            engine._patterns.open(open_sequences(snapshot, engine._compiler, steps, step_segments))
        return engine

    # -- looking --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._segments.state.size + len(self._patterns)

    def __contains__(self, id: object) -> bool:
        return self._find(id) is not None or id in self._patterns

    def __iter__(self) -> Iterator[SubscriptionId]:
        """The ids, in no order."""
        state, segments, _ = self._segments.readable()
        for segment in segments:
            yield from segment.live(state.version).tolist()
        yield from [pattern.id for pattern in self._patterns]

    def __getitem__(self, id: SubscriptionId) -> str:
        """The filter of a subscription, as SQL. Raises UnknownIdError, which is a KeyError.

        It is a text of the same meaning, not the spelling that was given: an engine keeps compiled filters, and equal ones
        once. `engine.subscribe(id, engine[id], replace=True)` changes nothing. A pattern is given as it was written.
        """
        if id in self._patterns:
            return self._patterns[id].text
        found = self._find(id)
        if found is None:
            raise UnknownIdError(f"no subscription {id!r:.80}")
        if isinstance(found, LogEntry):
            filters = self._compiler.compile(found.text)
        else:
            filters = found.segment.filters(np.array([found.segment.filter_of(int(found.slots))]))
        return write_filter(filters, self.schema, 0)

    @overload
    def get(self, id: SubscriptionId) -> str | None: ...

    @overload
    def get(self, id: SubscriptionId, default: T) -> str | T: ...

    def get(self, id: SubscriptionId, default: T | None = None) -> str | T | None:
        """The filter of a subscription as `engine[id]` gives it, or `default` if there is none."""
        try:
            return self[id]
        except UnknownIdError:
            return default

    def items(self) -> Iterator[tuple[SubscriptionId, str]]:
        """All ids with their filters, in any order, in a form that `subscribe_many` takes."""
        state, segments, _ = self._segments.readable()
        for segment in segments:
            members = members_of(segment, state.version)
            filters, known, text = members.plain, -1, ""
            for id, number in zip(np.asarray(members.ids).tolist(), members.filter_of.tolist(), strict=True):
                if number != known:
                    known, text = number, write_filter(filters, self.schema, number)
                yield id, text
        yield from [(pattern.id, pattern.text) for pattern in self._patterns]

    def _find(self, id: object) -> LogEntry | SegmentSlots | None:
        try:
            return self._segments.state.find(check_id(id))
        except SubscriptionError:
            return None

    def __repr__(self) -> str:
        return f"Engine({self._summary()}, {self.schema!r})"

    def _repr_html_(self) -> str:
        shown = list(islice(self._first_items(), _SHOWN))
        return html_table(f"Engine: {self._summary()}", ("id", "filter"), shown, more=len(self) - len(shown))

    def _summary(self) -> str:
        return f"{len(self):,} subscription{'s' if len(self) != 1 else ''}, version {self.version}, {self.matcher}"

    def _first_items(self) -> Iterator[tuple[str, str]]:
        """Some subscriptions, without a look at all of them."""
        state, segments, _ = self._segments.readable()
        for segment in segments:
            slots = np.flatnonzero(segment.alive(state.version))[:_SHOWN]
            filters = segment.filters(np.array([segment.filter_of(slot) for slot in slots.tolist()], np.int64))
            for row, id in enumerate(segment.subscriptions.ids.take(slots).tolist()):
                yield repr(id), write_filter(filters, self.schema, row)
        yield from ((repr(pattern.id), pattern.text) for pattern in islice(self._patterns, _SHOWN))

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Engine cannot be pickled or copied; use Engine.save(path) and Engine.open(path)")

    @property
    def version(self) -> int:
        """Grows by one with every change."""
        return self._segments.state.version

    def explain_plan(self) -> str:
        """A description of what the matcher of each segment chose, and what it costs."""
        _, segments, _ = self._segments.readable()
        plans = [f"segment {n}: {len(s):,} subscriptions\n{s.matcher.explain_plan()}" for n, s in enumerate(segments)]
        return "\n\n".join(plans) or "no subscriptions"

    def stats(self) -> dict[str, Any]:
        """Sizes, and figures of the matcher of each segment."""
        state, segments, _ = self._segments.readable()
        sequences = self._patterns.sequences
        watched = {"patterns": sequences.stats()} if sequences is not None else {}
        return {
            "subscriptions": len(self),
            "version": state.version,
            "bytes": sum(s.nbytes for s in segments),
            **watched,
            "segments": [
                {
                    "subscriptions": len(s),
                    "removed": s.deaths,
                    "filters": s.boxes.n_filters,
                    "clauses": s.boxes.n_clauses,
                    "residuals": int((~s.residuals.is_settled).sum()),
                    "codes": {s.codebook.column_text(c): int(s.boxes.widths[c]) for c in s.codebook.used},
                    "matcher": s.matcher.name,
                    **s.matcher.stats(),
                    **self._segments.planner.tell(s),
                }
                for s in segments
            ],
        }


def _members(incoming: Incoming, parts: list[CompiledPart], rows: npt.NDArray[np.int64]) -> list[Members]:
    """The chosen rows, part by part. The list of parts is empty afterwards, so that the members are all there is of them."""
    found, text_of = [], incoming.text_of[rows]
    while parts:
        first, filters, filter_of, _ = parts.pop(0)
        own = rows[(text_of >= first) & (text_of < first + filter_of.size)]
        ids = take_ids(incoming.ids, own)
        found.append(Members(filters, filter_of[incoming.text_of[own] - first], ids, incoming.priorities[own]))
    return found


def _quarantined(ids: IdColumn, errors: dict[int, Any]) -> list[Quarantined]:
    return [Quarantined(row, id_at(ids, row), errors[row]) for row in sorted(errors)]
