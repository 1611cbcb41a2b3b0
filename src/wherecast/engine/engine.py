"""Engine: the public object. Register filters, match events, ask why.

Reads never block on writes: a reader takes the current `State` (one attribute read) and works on it to the end; writers
build aside and publish a new one. See `delta` for how changes are kept and merged.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.engine.delta import LOG_LIMIT, LOOK_EVERY, Entry, LogReader, State, first_to_merge
from wherecast.engine.explain import Explanation, explain_filter
from wherecast.engine.ids import SubscriptionId, check_id, take_ids
from wherecast.engine.matches import DenseMatches, Matches, SegmentMatches, id_column
from wherecast.engine.parallel import in_pieces, match_threaded
from wherecast.engine.persist import open_segments, save_segments
from wherecast.engine.planning import Planner, count_candidates
from wherecast.engine.segment import ALIVE, Members, Segment, build_segment, filters_of, members_of
from wherecast.engine.subscriptions import read_subscriptions
from wherecast.errors import FilterError, SubscriptionError
from wherecast.language.compile import Compiler
from wherecast.language.events import EventBatch, OnError, read_event
from wherecast.language.filters import Filters
from wherecast.language.names import NameCheck
from wherecast.language.schema import Schema
from wherecast.language.sql import Limits
from wherecast.matchers.registry import find_matcher


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
    """Standing filters over one schema."""

    def __init__(
        self,
        schema: Schema | Mapping[str, object],
        *,
        matcher: str = "adaptive",
        limits: Limits | None = None,
        strict: bool = False,
    ) -> None:
        """An engine without subscriptions.

        `strict`: an event is refused if it has none of the schema's names, or one that differs from an attribute only in
        case, where a filter needs what is missing; otherwise that is logged once per name as `wherecast.events`.
        """
        self.schema = schema if isinstance(schema, Schema) else Schema.of(schema)
        self.matcher = matcher
        self._matcher_class = find_matcher(matcher)
        self._compiler = Compiler(self.schema, limits)
        self._names = NameCheck(self.schema, strict=strict)
        self._writing = threading.Lock()
        self._merging = threading.Lock()
        self._state = State(0, (), [], 0)
        self._log_reader = LogReader(self._compiler)
        self._readable_state: tuple[State, tuple[Segment, ...], frozenset[int]] = (self._state, (), frozenset())
        self._entries: dict[SubscriptionId, Entry] = {}  # live entries of the current log
        self._size = 0
        self._planner = Planner()

    # -- registering ----------------------------------------------------------------------------------------------

    def subscribe(self, id: SubscriptionId, filter: str, *, priority: float = 0.0, replace: bool = False) -> None:
        """Register one filter. Raises FilterError or SubscriptionError; then nothing has changed."""
        check_id(id)
        self._compiler.validate(filter)
        with self._writing:
            version = self._state.version + 1
            if not self._remove(id, version, keep=not replace):
                raise SubscriptionError(f"subscription {id!r} exists already; pass replace=True to change its filter")
            entry = self._entries[id] = Entry(id, filter, priority)
            self._state.log.append(entry)
            self._size += 1
            self._publish(self._state._replace(version=version, log_size=len(self._state.log)))
        self._tidy()

    def subscribe_many(self, subscriptions: object, *, replace: bool = False) -> Registration:
        """Register many, all at once.

        `subscriptions` is an Arrow table or pandas frame with columns `id` and `filter` (and, if you like, `priority`),
        a mapping of ids to filters, or (id, filter) pairs. Bad rows are quarantined with their error, the others are registered.
        """
        incoming = read_subscriptions(subscriptions)
        compiled = self._compiler.compile_many(incoming.texts)
        filter_of = compiled.filter_of[incoming.text_of]
        errors = dict(compiled.errors)
        bad = [
            Quarantined(row, incoming.ids[row], errors[int(incoming.text_of[row])])
            for row in np.flatnonzero(filter_of < 0).tolist()
        ]
        with self._writing:
            version = self._state.version + 1
            rows = self._admit(incoming.ids, np.flatnonzero(filter_of >= 0), replace, version, bad)
            if rows.size:
                members = Members(
                    compiled.filters, filter_of[rows], take_ids(incoming.ids, rows), incoming.priorities[rows]
                )
                segment = self._build([members])
                self._size += rows.size
                self._publish(self._sealed()._replace(version=version), segment)
        self._merge_if_due()
        return Registration(int(rows.size), sorted(bad, key=lambda q: q.row))

    def _admit(
        self,
        ids: npt.NDArray[np.int64] | list[Any],
        rows: npt.NDArray[np.int64],
        replace: bool,
        version: int,
        bad: list[Quarantined],
    ) -> npt.NDArray[np.int64]:
        """Rows to register; older subscriptions of the same id are removed, or the row is quarantined."""
        if not self._size and isinstance(ids, np.ndarray) and np.unique(ids[rows]).size == rows.size:
            return rows  # the common first load: nothing to collide with
        admitted: dict[SubscriptionId, int] = {}
        for row in rows.tolist():
            id = ids[row] if isinstance(ids, list) else int(ids[row])
            try:
                check_id(id)
                if (id in admitted and not replace) or not self._remove(id, version, keep=not replace):
                    raise SubscriptionError(f"subscription {id!r} exists already; pass replace=True")
                admitted[id] = row
            except SubscriptionError as error:
                bad.append(Quarantined(row, id, error))
        return np.fromiter(admitted.values(), np.int64, len(admitted))

    def unsubscribe(self, id: SubscriptionId) -> None:
        """Remove a subscription; others with an equal filter stay."""
        check_id(id)
        with self._writing:
            size, version = self._size, self._state.version + 1
            self._remove(id, version, keep=False)
            if self._size == size:
                raise SubscriptionError(f"no subscription {id!r}")
            self._publish(self._state._replace(version=version))
        self._tidy()

    def apply(self, delta: Engine, removed: Iterable[SubscriptionId] = ()) -> None:
        """Lay the subscriptions of another engine over these, after removing some: one version later, in one step.

        Ids that are in both must be among `removed`; those that are in neither may be.
        """
        if delta.schema != self.schema:
            raise SubscriptionError("the schemas differ; build the delta with the schema of this engine")
        _, added, _ = delta._readable()
        with self._writing:
            version = self._state.version + 1
            for id in removed:
                self._remove(id, version, keep=False)
            sealed = self._sealed()
            self._size += len(delta)
            self._publish(sealed._replace(version=version, segments=(*sealed.segments, *added)))

    def subset(self, choose: Callable[[Filters], npt.NDArray[np.bool_]]) -> Engine:
        """An engine of the subscriptions whose filters are chosen: `choose` says so for each of some filters."""
        state, segments, _ = self._readable()
        parts = []
        for segment in segments:
            filters, filter_of, ids, priorities = members_of(segment, state.version)
            kept = np.flatnonzero(choose(filters)[filter_of])
            if kept.size:
                parts.append(Members(filters, filter_of[kept], np.asarray(ids)[kept], priorities[kept]))
        engine = Engine(self.schema, matcher=self.matcher, strict=self._names.strict)
        if parts:
            engine._size = sum(p.filter_of.size for p in parts)
            engine._publish(State(1, (self._build(parts),), [], 0))
        return engine

    def _remove(self, id: SubscriptionId, version: int, *, keep: bool) -> bool:
        """Mark a subscription dead as of `version`, if there is one. False: there is one and it is to be kept."""
        entry = self._entries.get(id)
        if entry is not None:
            if keep:
                return False
            entry.died = version
            del self._entries[id]
            self._size -= 1
            return True
        for segment in self._state.segments:
            slot = segment.find(id)
            if slot >= 0:
                if keep:
                    return False
                segment.kill(slot, version)
                self._size -= 1
                return True
        return True

    def _build(self, parts: list[Members]) -> Segment:
        return build_segment(parts, self.schema, self._matcher_class, self._planner.sample)

    # -- publishing and merging -----------------------------------------------------------------------------------

    def _publish(self, state: State, segment: Segment | None = None) -> None:
        self._state = state if segment is None else state._replace(segments=(*state.segments, segment))

    def _sealed(self) -> State:
        """The current state with its log turned into a segment. Needs the writers' lock."""
        state = self._state
        self._entries = {}
        # A change under way may have killed entries as of the version to come: they must not come back to life.
        return State(state.version, self._with_log(state, int(ALIVE) - 1), [], 0)

    def _with_log(self, state: State, version: int) -> tuple[Segment, ...]:
        """The segments of a state, and one of what is alive in its log at a version."""
        members = self._log_reader.members(state.log, state.log_size, version)
        return (*state.segments, self._build(members)) if members else state.segments

    def _tidy(self) -> None:
        """After a change: seal a full log, and now and then look for merges that are due."""
        full = self._state.log_size >= LOG_LIMIT
        if full:
            with self._writing:
                if self._state.log_size >= LOG_LIMIT:
                    self._state = self._sealed()
        if full or self._state.version % LOOK_EVERY == 0:
            self._merge_if_due()

    def _merge_if_due(self) -> None:
        """Start a merge in the background if one is due and none is under way."""
        if first_to_merge(self._state.segments) < len(self._state.segments) and not self._merging.locked():
            threading.Thread(target=self.merge, name="wherecast-merge", daemon=True).start()

    def merge(self, *, everything: bool = False) -> None:
        """Merge segments now: those that are due, or all of them into one."""
        with self._merging:
            while True:
                state = self._state
                first = 0 if everything and len(state.segments) + state.log_size > 1 else first_to_merge(state.segments)
                if first == len(state.segments):
                    return
                if everything:
                    with self._writing:
                        state = self._state = self._sealed()
                self._merge_from(state, first)
                everything = False

    def _merge_from(self, state: State, first: int) -> None:
        old = state.segments[first:]
        merged = self._build([members_of(s, state.version) for s in old])
        with self._writing:
            now = self._state
            for segment in old:
                self._carry_deaths(segment, merged, state.version)
            later = now.segments[len(state.segments) :]
            kept = (*now.segments[:first], merged) if len(merged) else now.segments[:first]
            self._state = now._replace(segments=(*kept, *later))

    def _carry_deaths(self, old: Segment, merged: Segment, version: int) -> None:
        """Subscriptions that died while the merge was built."""
        if old.died is None:
            return
        late = np.flatnonzero((old.died > version) & (old.died < ALIVE))
        for slot, id in zip(late.tolist(), old.subscriptions.ids.take(late).tolist(), strict=True):
            merged.kill(merged.subscriptions.ids.find(id), int(old.died[slot]))

    def plan(self, events: object) -> None:
        """Plan all segments for traffic like these events, now; without this the first large batch is the sample."""
        _, segments, needed = self._readable()
        self._planner.learn(EventBatch.read(self.schema, events, on_error="skip", needed=needed), segments)

    # -- matching -------------------------------------------------------------------------------------------------

    def match(self, event: Mapping[str, object]) -> list[SubscriptionId]:
        """Ids of the subscriptions that one event satisfies."""
        state, segments, needed = self._readable()
        if not all(s.is_plain for s in segments):
            return self.match_batch([event]).subscription_ids().tolist()  # type: ignore[no-any-return]
        # Without residuals and arrays an event need not become Arrow columns: a tenth of the time.
        values = read_event(self.schema, event, needed, self._names)
        return [i for s in segments for i in s.live_ids(s.match_values(values), state.version)]

    def match_batch(self, events: object, *, on_error: OnError = "raise", threads: int = 1) -> Matches:
        """Match a batch: an Arrow record batch or table, a pandas frame, or a sequence of mappings.

        An event with a value of the wrong type raises EventError naming row and attribute, or, with
        `on_error="skip"`, is left out and listed in the result's `errors`. With `threads`, the batch is cut and its
        pieces are matched at the same time; kernels hold no lock.
        """
        state, segments, batch = self._read(events, on_error)
        parts = [self._match_part(s, batch, threads) for s in segments]
        return Matches(parts, batch.rows, batch.errors, state.version)

    def _match_part(self, segment: Segment, batch: EventBatch, threads: int) -> SegmentMatches | DenseMatches:
        matcher = segment.dense_matcher() if threads == 1 else None
        if matcher is not None:
            return DenseMatches(segment, matcher, segment.encode(batch))
        return SegmentMatches(segment, *match_threaded(segment, batch, threads))

    def count(self, events: object, *, on_error: OnError = "raise", threads: int = 1) -> npt.NDArray[np.int64]:
        """Number of subscriptions that each event of a batch satisfies; quicker than listing them."""
        state, segments, batch = self._read(events, on_error)
        total = np.zeros(len(batch), np.int64)
        for segment in segments:
            counts = in_pieces(segment.count, batch, threads)
            if counts is None:
                part = SegmentMatches(segment, *match_threaded(segment, batch, threads))
                counts = [Matches([part], batch.rows, [], state.version).counts()]
            total += np.concatenate(counts)
        return total

    def candidates(self, events: object) -> float:
        """Clauses that an event of a batch is compared with, on average: what matching it costs, beside its matches."""
        _, segments, needed = self._readable()  # not `_read`: the planner sees these events when they are matched
        batch = EventBatch.read(self.schema, events, on_error="skip", needed=needed)
        return sum(count_candidates(segment, batch) for segment in segments) if len(batch) else 0.0

    def _read(self, events: object, on_error: OnError) -> tuple[State, tuple[Segment, ...], EventBatch]:
        state, segments, needed = self._readable()
        batch = EventBatch.read(self.schema, events, on_error=on_error, needed=needed, names=self._names)
        self._planner.observe(batch, segments)
        return state, segments, batch

    def explain(self, event: Mapping[str, object], id: SubscriptionId) -> Explanation:
        """Why an event does or does not satisfy a subscription: each clause, each predicate."""
        _, segments, _ = self._readable()
        for segment in segments:
            slot = segment.find(id)
            if slot >= 0:
                return explain_filter(
                    segment, segment.filter_of(slot), EventBatch.read(self.schema, [event], names=self._names)
                )
        raise SubscriptionError(f"no subscription {id!r}")

    def _readable(self) -> tuple[State, tuple[Segment, ...], frozenset[int]]:
        """The current state, its segments with the log among them, and the attributes that they read."""
        readable, state = self._readable_state, self._state
        if readable[0] is not state:
            segments = self._with_log(state, state.version)
            readable = self._readable_state = state, segments, frozenset().union(*(s.attributes for s in segments))
        return readable

    def ids(self) -> pa.Array:
        """Ids of all subscriptions, in no order."""
        state, segments, _ = self._readable()
        alive = [s.subscriptions.ids.take(np.flatnonzero(s.alive(state.version))) for s in segments]
        return id_column(np.concatenate(alive) if alive else np.zeros(0, np.int64))

    def filters(self) -> tuple[Filters, npt.NDArray[np.int64]]:
        """Filters that somebody has, and how many have each; one that is registered anew may occur twice until a merge."""
        state, segments, _ = self._readable()
        return filters_of(segments, self.schema, state.version)

    def attributes(self) -> list[str]:
        """Names of the attributes that some filter asks for: what matching reads of an event."""
        return [self.schema.attributes[a].name for a in sorted(self._readable()[2])]

    # -- saving and opening ---------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all subscriptions to a snapshot directory; an older snapshot there is replaced in one step."""
        state, segments, _ = self._readable()
        save_segments(path, self.schema, self.matcher, segments, state.version)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, limits: Limits | None = None, strict: bool = False) -> Self:
        """An engine over a snapshot, mapped, not copied. Raises SnapshotError if it is damaged, foreign or newer."""
        schema, matcher, segments, version, _ = open_segments(path)
        engine = cls(schema, matcher=matcher, limits=limits, strict=strict)
        engine._state = State(version, segments, [], 0)
        engine._size = sum(len(s) - s.deaths for s in segments)
        return engine

    # -- looking --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._size

    def __contains__(self, id: object) -> bool:
        if not isinstance(id, (str, int)) or isinstance(id, bool):
            return False
        return id in self._entries or any(s.find(id) >= 0 for s in self._state.segments)

    def __iter__(self) -> Iterator[SubscriptionId]:
        state, segments, _ = self._readable()
        for segment in segments:
            yield from segment.subscriptions.ids.take(np.flatnonzero(segment.alive(state.version))).tolist()

    @property
    def version(self) -> int:
        """Grows by one with every change."""
        return self._state.version

    def explain_plan(self) -> str:
        """What the matcher of each segment chose and what it costs, for people."""
        _, segments, _ = self._readable()
        plans = [f"segment {n}: {len(s):,} subscriptions\n{s.matcher.explain_plan()}" for n, s in enumerate(segments)]
        return "\n\n".join(plans) or "no subscriptions"

    def stats(self) -> dict[str, Any]:
        """Sizes, and what the matcher of each segment says of itself."""
        state, segments, _ = self._readable()
        return {
            "subscriptions": self._size,
            "version": state.version,
            "bytes": sum(s.nbytes for s in segments),
            "segments": [
                {
                    "subscriptions": len(s),
                    "removed": s.deaths,
                    "filters": s.boxes.n_filters,
                    "clauses": s.boxes.n_clauses,
                    "residuals": int(s.residuals.rows.size),
                    "codes": {self.schema.attributes[a].name: int(s.boxes.widths[a]) for a in s.codebook.used},
                    "matcher": s.matcher.name,
                    **s.matcher.stats(),
                }
                for s in segments
            ],
        }
