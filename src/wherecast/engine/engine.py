"""Engine: the public object. Register filters, match events, ask why.

Reads never block on writes: a reader takes the current `EngineState` (one attribute read) and works on it to the end; writers
build aside and publish a new one in one step. See `log` for how changes are kept and merged, and what becomes of one
that fails.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.engine.checks import SubscriptionId, check_id, check_priority
from wherecast.engine.explain import Explanation, PatternExplanation, explain_filter
from wherecast.engine.ids import (
    IdColumn,
    IdList,
    id_array,
    id_at,
    join_ids,
    read_ids,
    take_ids,
    without_ids,
)
from wherecast.engine.lint import LintFindings, lint_members
from wherecast.engine.log import (
    LOG_LIMIT,
    LOOK_EVERY,
    EngineState,
    Log,
    LogEntry,
    LogReader,
    NextState,
    SegmentSlots,
    Traffic,
    admit,
    carry_deaths,
    count_places,
    first_to_merge,
)
from wherecast.engine.matches import DenseMatches, Matches, SegmentMatches
from wherecast.engine.parallel import in_pieces, match_threaded
from wherecast.engine.pattern_matches import PatternMatches
from wherecast.engine.persist import SEQUENCES, open_segments, open_sequences, open_steps, save_segments
from wherecast.engine.planning import Replanner, count_candidates
from wherecast.engine.segment import Members, OverworkError, Segment, build_segment, filters_of, members_of
from wherecast.engine.sequences import EventTime, Sequences
from wherecast.engine.subscriptions import (
    CompiledPart,
    Incoming,
    SubscriptionSource,
    compile_parts,
    read_subscriptions,
    without_patterns,
)
from wherecast.errors import EventError, FilterError, SubscriptionError, UnknownIdError
from wherecast.kernels.arrays import Longs
from wherecast.language.events.events import EventBatch, EventReader, Events, NameCheck, OnError
from wherecast.language.events.html import html_table
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

_log = logging.getLogger(__name__)

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
        self._matcher_class = find_matcher(matcher)
        self._compiler = Compiler(self.schema, limits)
        self._names = NameCheck(self.schema, strict=strict)
        self._writing = threading.Lock()
        self._merging = threading.Lock()
        self._state = EngineState(0, (), Log(), 0, 0)
        self._is_unsettled = False  # whether there may be marks of a change that was not published
        self._log_reader = LogReader(self._compiler)
        self._readable_state: tuple[EngineState, tuple[Segment, ...], frozenset[int]] = (self._state, (), frozenset())
        self._reader = EventReader(self.schema, (), self._names)
        self._planner = Replanner()
        self._traffic: Traffic | None = None  # where nothing is subscribed one by one, places stay as they are
        self._event_time = event_time if isinstance(event_time, EventTime) else EventTime(event_time)
        self._sequences: Sequences | None = None  # made with the first pattern
        if event_time is not None:
            self._event_time.index(self.schema)

    # -- registering ----------------------------------------------------------------------------------------------

    def subscribe(self, id: SubscriptionId, filter: str, *, priority: float = 0.0, replace: bool = False) -> None:
        """Register one filter or pattern. Raises FilterError or SubscriptionError, and then changes nothing.

        `priority` is what `Matches.top` sorts by, the highest first; patterns have none.
        """
        if is_sequence(filter):
            errors = self._subscribe_patterns([(0, check_id(id), filter)], replace)
            if errors:
                raise errors[0]
            return
        entry = LogEntry(check_id(id), filter, check_priority(priority))
        self._compiler.validate(filter)
        self._traffic = self._traffic or Traffic()

        def put(state: EngineState) -> NextState:
            old = state.find(entry.id)
            if (old is not None or self._is_pattern(entry.id)) and not replace:
                raise SubscriptionError(f"subscription {id!r} exists already; pass replace=True to change its filter")
            version, segments, log, log_size, size = state
            log.put(entry, log_size)
            new = EngineState(version + 1, segments, log, log_size + 1, size + (old is None))
            return NextState(new, () if old is None else (old,))

        self._change(put)
        if self._sequences is not None:  # else nothing is left to do, and nothing may fail any more
            self._remove_patterns([entry.id])

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
            state = self._sealed() if good.size else state
            rows, old = admit(
                state, incoming.ids, self._not_patterns(incoming.ids, good, replace, errors), replace, errors
            )
            outcome = Registration(int(rows.size), _quarantined(incoming.ids, errors))
            if not rows.size:
                return NextState(state)
            with shown(progress):
                segment = self._build(_members(incoming, parts, rows))
            size = state.size + int(rows.size) - count_places(old)
            return NextState(
                state._replace(version=state.version + 1, segments=(*state.segments, segment), size=size), old
            )

        self._change(add)
        if self._sequences is not None and replace:
            self._remove_patterns(id_at(incoming.ids, row) for row in good.tolist())
        if patterns:
            errors |= self._subscribe_patterns([row for row in patterns if row[0] not in errors], replace)
            done = outcome.registered + sum(row not in errors for row, _, _ in patterns)
            return Registration(done, _quarantined(incoming.ids, errors))
        return outcome

    def unsubscribe(self, id: SubscriptionId) -> None:
        """Remove a subscription; others with an equal filter stay."""
        id = check_id(id)
        if self._is_pattern(id):
            self._remove_patterns([id])
            return

        def remove(state: EngineState) -> NextState:
            old = state.find(id)
            if old is None:
                raise UnknownIdError(f"no subscription {id!r}")
            version, segments, log, log_size, size = state
            return NextState(EngineState(version + 1, segments, log, log_size, size - 1), (old,))

        self._change(remove)

    # -- patterns -------------------------------------------------------------------------------------------------

    def _is_pattern(self, id: SubscriptionId) -> bool:
        return self._sequences is not None and id in self._sequences

    def _not_patterns(self, ids: IdColumn, rows: Longs, replace: bool, errors: dict[int, Any]) -> Longs:
        """The rows whose ids no pattern has, or may be taken from one; errors get the others."""
        if self._sequences is None or replace:
            return rows
        taken = [row for row in rows.tolist() if id_at(ids, row) in self._sequences]
        for row in taken:
            errors[row] = SubscriptionError(f"subscription {id_at(ids, row)!r} exists already; pass replace=True")
        return rows[~np.isin(rows, taken)]

    def _subscribe_patterns(
        self, rows: Sequence[tuple[int, SubscriptionId, str]], replace: bool
    ) -> dict[int, FilterError | SubscriptionError]:
        """Register patterns in one step; the errors of those that cannot be, by row."""
        errors: dict[int, FilterError | SubscriptionError] = {}
        with self._writing:
            sequences = self._watched()
            with sequences.turn:
                state, wanted = self._settled(), {}
                for row, id, text in rows:
                    is_taken = id in wanted or id in sequences or state.find(id) is not None
                    if is_taken and not replace:
                        errors[row] = SubscriptionError(f"subscription {id!r} exists already; pass replace=True")
                    else:
                        wanted[id] = row, id, text
                errors |= sequences.put_many(list(wanted.values()))
                done = [id for id, (row, _, _) in wanted.items() if row not in errors]
                old = [found for found in map(state.find, done) if found is not None]
                self._publish(NextState(state._replace(version=state.version + 1, size=state.size - len(old)), old))
        return errors

    def _watched(self) -> Sequences:
        """The patterns, of which there may be none yet."""
        if self._sequences is None:
            steps = Engine(self.schema, matcher=self.matcher, limits=self._compiler.limits, strict=self._names.strict)
            self._sequences = Sequences(self.schema, self._compiler, self._event_time, steps)
        return self._sequences

    def _remove_patterns(self, ids: Iterable[SubscriptionId]) -> None:
        if self._sequences is None:
            return
        with self._writing, self._sequences.turn:
            gone = [id for id in ids if id in self._sequences]
            for id in gone:
                self._sequences.remove(id)
            if gone:
                state = self._settled()
                self._publish(NextState(state._replace(version=state.version + 1)))

    def _refuse_patterns(self, what: str) -> None:
        if self._sequences:
            raise SubscriptionError(f"this engine has {len(self._sequences):,} patterns, {what}")

    def _refuse_match(self) -> None:
        self._refuse_patterns(
            "which need the events in their order: call engine.advance(events); its `matches` are those of the other filters"
        )

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
        sequences = self._watched()
        with sequences.turn:
            state, segments, needed = self._readable()
            _, steps, step_needed = sequences.steps._readable()  # noqa: SLF001 - an engine of this one's own
            wanted = needed | step_needed | sequences.attributes
            batch = EventBatch.read(self.schema, events, on_error=on_error, needed=wanted, names=self._names)
            self._planner.observe(batch, segments)
            sequences.steps._planner.observe(batch, steps)  # noqa: SLF001

            def match_all(batch: EventBatch) -> list[list[SegmentMatches | DenseMatches]]:
                return [[self._match_part(s, batch, threads) for s in part] for part in (segments, steps)]

            rows = len(batch) + len(batch.errors)
            (parts, step_parts), batch = _within_limits(batch, on_error, match_all)
            hits = Matches(step_parts, batch.rows, [], sequences.steps.version)
            return sequences.advance(batch, rows, hits, Matches(parts, batch.rows, batch.errors, state.version), until)

    # -- other engines --------------------------------------------------------------------------------------------

    def apply(self, delta: Engine, removed: IdList = ()) -> None:
        """Remove some subscriptions and add those of another engine, in one step.

        Ids that are in both engines must be in `removed`; otherwise SubscriptionError is raised and nothing changes. `removed`
        may have ids that do not exist. Later changes to one engine do not affect the other.
        """
        if delta.schema != self.schema:
            raise SubscriptionError("the schemas differ; build the delta with the schema of this engine")
        for engine in (self, delta):
            engine._refuse_patterns("which `apply` does not take over; subscribe them one by one")  # noqa: SLF001
        gone = read_ids(removed)
        theirs, segments, _ = delta._readable()
        added = tuple(segment.detached(theirs.version) for segment in segments)
        with self._writing:
            state = self._sealed()
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
            self._publish(NextState(new, old))

    def subset(self, choose: Callable[[Filters], npt.NDArray[np.bool_]]) -> Engine:
        """A new engine with the subscriptions whose filters `choose` selects; it is called with some filters at a time."""
        self._refuse_patterns("which `subset` does not take over; leave them out")
        state, segments, _ = self._readable()
        parts = []
        for segment in segments:
            filters, filter_of, ids, priorities = members_of(segment, state.version)
            kept = np.flatnonzero(choose(filters)[filter_of])
            if kept.size:
                parts.append(Members(filters, filter_of[kept], np.asarray(ids)[kept], priorities[kept]))
        engine = Engine(self.schema, matcher=self.matcher, strict=self._names.strict)
        if parts:
            size = sum(p.filter_of.size for p in parts)
            engine._state = EngineState(1, (self._build(parts),), Log(), 0, size)
        return engine

    def _build(self, parts: list[Members]) -> Segment:
        return build_segment(parts, self.schema, self._matcher_class, self._planner.sample, self._compiler.limits)

    # -- publishing and merging -----------------------------------------------------------------------------------

    def _change(self, make: Callable[[EngineState], NextState]) -> None:
        """Make a change of the current state, and then keep the segments in order.

        Once it is published its caller must hear so: what fails after that is logged, and tried again after a later change.
        """
        with self._writing:
            before = self._settled()
            change = make(before)
            self._publish(change)
        try:
            if change.state.log_size >= LOG_LIMIT:
                self._seal_full_log()
            if self._state.segments is not before.segments or change.state.version % LOOK_EVERY == 0:
                self._merge_if_due()
        except Exception:  # noqa: BLE001 - whatever it is, the change is made
            _log.exception(
                "a change is made, but sealing the log or starting a merge failed; the next change tries again"
            )

    def _publish(self, change: NextState) -> None:
        """Make a change visible, in one assignment. Needs the writers' lock.

        Until then the marks on what dies mean nothing; if it does not come to that, `_settled` takes them back.
        """
        self._is_unsettled = True
        for subscription in change.old:
            subscription.die(change.state.version)
        self._state = change.state
        self._is_unsettled = False

    def _settled(self) -> EngineState:
        """The current state, rid of what failed changes have left. Needs the writers' lock."""
        state = self._state
        if self._is_unsettled:
            state.revive()
            self._is_unsettled = False
        return state

    def _sealed(self) -> EngineState:
        """The current state with its log turned into a segment: the same subscriptions. Needs the writers' lock."""
        state = self._settled()
        if state.log_size:
            state = self._state = state._replace(segments=self._with_log(state), log=Log(), log_size=0)
        return state

    def _with_log(self, state: EngineState) -> tuple[Segment, ...]:
        """The segments of a state, and one of what is alive in its log."""
        members = self._log_reader.members(state)
        return (*state.segments, self._build(members)) if members else state.segments

    def _seal_full_log(self) -> None:
        with self._writing:
            if self._state.log_size >= LOG_LIMIT:
                self._sealed()

    def _merge_if_due(self) -> None:
        """Start a merge in the background if one is due and none is under way."""
        segments = self._state.segments
        if first_to_merge(segments) < len(segments):
            self._merge_behind(self.merge)

    def _merge_behind(self, merge: Callable[[], None]) -> None:
        """Merge in the background, unless that is under way."""
        if not self._merging.locked():
            threading.Thread(target=self._run_merge, args=(merge,), name="wherecast-merge", daemon=True).start()

    def _run_merge(self, merge: Callable[[], None]) -> None:
        try:
            merge()
        except Exception:  # noqa: BLE001 - a thread of its own: nobody else would hear of it
            _log.exception("merging failed; the segments stay as they are")

    def merge(self, *, everything: bool = False, progress: bool = False) -> None:
        """Merge segments now: those that are due, or all of them into one. Subscriptions stay the same, even if it fails."""
        with shown(progress), self._merging:
            while True:
                state = self._state
                first = 0 if everything and len(state.segments) + state.log_size > 1 else first_to_merge(state.segments)
                if first == len(state.segments):
                    return
                if everything:
                    with self._writing:
                        state = self._sealed()
                self._merge_from(state, first)
                everything = False

    def _merge_tail(self, first: int) -> None:
        """Merge the segments from a number on, and the log."""
        with self._merging:
            with self._writing:
                state = self._sealed()
            if first < len(state.segments) - 1:
                self._merge_from(state, first)

    def _merge_from(self, state: EngineState, first: int) -> None:
        old = state.segments[first:]
        merged = self._build([members_of(s, state.version) for s in old])
        with self._writing:
            now = self._settled()
            for segment in old:
                carry_deaths(segment, merged, state.version)
            later = now.segments[len(state.segments) :]
            kept = (*now.segments[:first], merged) if len(merged) else now.segments[:first]
            self._state = now._replace(segments=(*kept, *later))

    def plan(self, events: Events, *, progress: bool = False) -> None:
        """Plan the index now, for traffic like these events. Otherwise the first large batch is the sample."""
        _, segments, needed = self._readable()
        with shown(progress):
            self._planner.learn(EventBatch.read(self.schema, events, on_error="skip", needed=needed), segments)

    # -- matching -------------------------------------------------------------------------------------------------

    def match(self, event: Mapping[str, object]) -> list[SubscriptionId]:
        """Ids of the subscriptions that one event satisfies."""
        if self._sequences:
            self._refuse_match()
        state, segments, needed = self._readable()
        reader = self._reader
        if reader.needed is not needed:
            reader = self._reader = EventReader(self.schema, needed, self._names)
        found = None if reader.reads_maps else self._match_one(event, reader, segments, state.version)
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
        self._refuse_match()
        state, segments, batch = self._read(events, on_error)
        parts, batch = _within_limits(batch, on_error, lambda b: [self._match_part(s, b, threads) for s in segments])
        return Matches(parts, batch.rows, batch.errors, state.version)

    def _match_part(self, segment: Segment, batch: EventBatch, threads: int) -> SegmentMatches | DenseMatches:
        matcher = segment.dense_matcher() if threads == 1 else None
        if matcher is not None:
            return DenseMatches(segment, matcher, segment.encode(batch))
        return SegmentMatches(segment, *match_threaded(segment, batch, self._compiler.limits, threads))

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

        return _within_limits(batch, on_error, count_all)[0]

    def candidates(self, events: Events) -> float:
        """Clauses that an event of a batch is compared with, on average: a measure of the cost of matching."""
        _, segments, needed = self._readable()  # not `_read`: the planner sees these events when they are matched
        batch = EventBatch.read(self.schema, events, on_error="skip", needed=needed)
        return sum(count_candidates(segment, batch) for segment in segments) if len(batch) else 0.0

    def _read(self, events: Events, on_error: OnError) -> tuple[EngineState, tuple[Segment, ...], EventBatch]:
        state, segments, needed = self._readable()
        batch = EventBatch.read(self.schema, events, on_error=on_error, needed=needed, names=self._names)
        self._planner.observe(batch, segments)
        if self._traffic is not None and len(segments) > 1:
            first = self._traffic.first_due(state, segments, len(batch))
            if first < len(segments):
                self._merge_behind(partial(self._merge_tail, first))
        return state, segments, batch

    def explain(self, event: Mapping[str, object], id: SubscriptionId) -> Explanation:
        """Why an event does or does not satisfy a subscription: each clause, each predicate."""
        id = check_id(id)
        if self._sequences is not None and id in self._sequences:
            pattern, engine = self._sequences[id], self._sequences.steps
            steps = zip(pattern.read.steps, pattern.filters, strict=True)
            return PatternExplanation((), tuple((step.text, engine.explain(event, n)) for step, n in steps))
        state, segments, _ = self._readable()
        for segment in segments:
            slot = segment.find(id, state.version)
            if slot >= 0:
                return explain_filter(
                    segment, segment.filter_of(slot), EventBatch.read(self.schema, [event], names=self._names)
                )
        raise UnknownIdError(f"no subscription {id!r}")

    def _readable(self) -> tuple[EngineState, tuple[Segment, ...], frozenset[int]]:
        """The current state, its segments with the log among them, and the attributes that they read."""
        readable, state = self._readable_state, self._state
        if readable[0] is not state:
            segments = self._with_log(state)
            readable = self._readable_state = state, segments, frozenset().union(*(s.attributes for s in segments))
        return readable

    def ids(self) -> pa.Array:
        """Ids of all subscriptions, in any order: int64, string or, if there are both, a dense union of the two."""
        state, segments, _ = self._readable()
        alive = [s.live(state.version) for s in segments]
        types = {kind for s in segments for kind in s.subscriptions.ids.types}
        if self._sequences:
            alive.append(np.array([None, *(pattern.id for pattern in self._sequences)], object)[1:])
            types |= {type(pattern.id) for pattern in self._sequences}
        return id_array(np.concatenate(alive) if alive else np.zeros(0, np.int64), types)

    def slots(self) -> int:
        """How many places there are for subscriptions, those of removed ones included: places are below it."""
        return sum(map(len, self._readable()[1]))

    def places(self, ids: IdList | None = None) -> npt.NDArray[np.int64]:
        """Where subscriptions are if the slots of all segments are laid end to end, as `Matches.places` counts them.

        By default of all subscriptions, in the order of `ids()`. Ids that do not exist have -1.
        """
        state, segments, _ = self._readable()
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
        tables = [s.subscriptions.ids for s in self._readable()[1] if len(s)]
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
        state, segments, _ = self._readable()
        return filters_of(segments, self.schema, state.version)

    def lint(self, *, progress: bool = False) -> LintFindings:
        """What is probably wrong with the filters, or needlessly dear.

        An engine keeps what filters mean, not how they were spelled: `wherecast.lint` looks at a table of texts and finds more.
        Places are those in the text that `engine[id]` gives.
        """
        state, segments, _ = self._readable()
        with shown(progress):
            patterns = [(pattern.id, pattern.text) for pattern in self._sequences or ()]
            return lint_members([members_of(s, state.version) for s in segments], self.schema, self._compiler, patterns)

    def attributes(self) -> list[str]:
        """Names of the attributes that filters use. Matching reads only these."""
        return [self.schema.attributes[a].name for a in sorted(self._readable()[2])]

    # -- saving and opening ---------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, progress: bool = False) -> None:
        """Write all subscriptions to a snapshot directory; an older snapshot there is replaced in one step."""
        state, segments, _ = self._readable()
        with shown(progress):
            save_segments(path, self.schema, self.matcher, segments, state.version, self._sequences)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, limits: Limits | None = None, strict: bool = False) -> Self:
        """Open a snapshot; its files are mapped, not loaded.

        Raises SnapshotError if it is damaged, not of Wherecast, or newer than this release.
        """
        schema, matcher, segments, version, snapshot = open_segments(path)
        engine = cls(schema, matcher=matcher, limits=limits, strict=strict)
        engine._state = EngineState(version, segments, Log(), 0, sum(len(s) - s.deaths for s in segments))
        if SEQUENCES in snapshot.facts:
            steps = cls(schema, matcher=matcher, limits=limits, strict=strict)
            step_version, step_segments = open_steps(snapshot, schema, matcher)
            size = sum(len(s) - s.deaths for s in step_segments)
            steps._state = EngineState(step_version, step_segments, Log(), 0, size)
            engine._sequences = open_sequences(snapshot, schema, engine._compiler, steps)
            engine._event_time = engine._sequences.event_time
        return engine

    # -- looking --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._state.size + (len(self._sequences) if self._sequences is not None else 0)

    def __contains__(self, id: object) -> bool:
        return self._find(id) is not None or (self._sequences is not None and id in self._sequences)

    def __iter__(self) -> Iterator[SubscriptionId]:
        """The ids, in no order."""
        state, segments, _ = self._readable()
        for segment in segments:
            yield from segment.live(state.version).tolist()
        yield from [pattern.id for pattern in self._sequences or ()]

    def __getitem__(self, id: SubscriptionId) -> str:
        """The filter of a subscription, as SQL. Raises UnknownIdError, which is a KeyError.

        It is a text of the same meaning, not the spelling that was given: an engine keeps compiled filters, and equal ones
        once. `engine.subscribe(id, engine[id], replace=True)` changes nothing. A pattern is given as it was written.
        """
        if self._sequences is not None and id in self._sequences:
            return self._sequences[id].text
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
        state, segments, _ = self._readable()
        for segment in segments:
            members = members_of(segment, state.version)
            known, text = -1, ""
            for id, number in zip(np.asarray(members.ids).tolist(), members.filter_of.tolist(), strict=True):
                if number != known:
                    known, text = number, write_filter(members.filters, self.schema, number)
                yield id, text
        yield from [(pattern.id, pattern.text) for pattern in self._sequences or ()]

    def _find(self, id: object) -> LogEntry | SegmentSlots | None:
        try:
            return self._state.find(check_id(id))
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
        state, segments, _ = self._readable()
        for segment in segments:
            slots = np.flatnonzero(segment.alive(state.version))[:_SHOWN]
            filters = segment.filters(np.array([segment.filter_of(slot) for slot in slots.tolist()], np.int64))
            for row, id in enumerate(segment.subscriptions.ids.take(slots).tolist()):
                yield repr(id), write_filter(filters, self.schema, row)
        yield from ((repr(pattern.id), pattern.text) for pattern in islice(self._sequences or (), _SHOWN))

    def __reduce__(self) -> NoReturn:
        raise TypeError("an Engine cannot be pickled or copied; use Engine.save(path) and Engine.open(path)")

    @property
    def version(self) -> int:
        """Grows by one with every change."""
        return self._state.version

    def explain_plan(self) -> str:
        """A description of what the matcher of each segment chose, and what it costs."""
        _, segments, _ = self._readable()
        plans = [f"segment {n}: {len(s):,} subscriptions\n{s.matcher.explain_plan()}" for n, s in enumerate(segments)]
        return "\n\n".join(plans) or "no subscriptions"

    def stats(self) -> dict[str, Any]:
        """Sizes, and figures of the matcher of each segment."""
        state, segments, _ = self._readable()
        watched = {"patterns": self._sequences.stats()} if self._sequences is not None else {}
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
                    **self._planner.tell(s),
                }
                for s in segments
            ],
        }


def _members(incoming: Incoming, parts: list[CompiledPart], rows: npt.NDArray[np.int64]) -> list[Members]:
    """The chosen rows, part by part. The list of parts is empty afterwards, so that the members are all there is of them."""
    found, text_of = [], incoming.text_of[rows]
    while parts:
        first, compiled = parts.pop(0)
        own = rows[(text_of >= first) & (text_of < first + compiled.filter_of.size)]
        filter_of, ids = compiled.filter_of[incoming.text_of[own] - first], take_ids(incoming.ids, own)
        found.append(Members(compiled.filters, filter_of, ids, incoming.priorities[own]))
    return found


def _quarantined(ids: IdColumn, errors: dict[int, Any]) -> list[Quarantined]:
    return [Quarantined(row, id_at(ids, row), errors[row]) for row in sorted(errors)]


def _within_limits(batch: EventBatch, on_error: OnError, work: Callable[[EventBatch], T]) -> tuple[T, EventBatch]:
    """What `work` makes of a batch, and the batch: less the events that would take too much, unless these raise."""
    while True:
        try:
            return work(batch), batch
        except OverworkError as over:
            errors = over.errors
        except GrownTextError as grown:
            advice = "shorten the text in the event, or the filter"
            errors = [EventError(f"{why}; {advice}", row=row) for row, why in sorted(grown.rows.items())]
        if on_error == "raise":
            raise errors[0]
        batch = batch.without(errors)
