"""Patterns: the subscriptions of an engine that take several events.

They are registered beside the filters of single events, under ids of the same space, and watched by `Sequences`, which is made with the
first pattern. Whoever changes them holds the writers' lock of the filters, so that an id is either a filter's or a pattern's.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wherecast.engine.checks import SubscriptionId
from wherecast.engine.explain import PatternExplanation
from wherecast.engine.ids import IdColumn, id_at
from wherecast.engine.log import NextState
from wherecast.engine.matches import DenseMatches, Matches, SegmentMatches
from wherecast.engine.matching import match_part, within_limits
from wherecast.engine.pattern_matches import PatternMatches
from wherecast.engine.segments import Segments
from wherecast.engine.sequence_tables import RegisteredPattern
from wherecast.engine.sequences import EventTime, Sequences
from wherecast.errors import FilterError, SubscriptionError
from wherecast.kernels.arrays import Longs
from wherecast.language.events.events import EventBatch, Events, OnError
from wherecast.language.events.names import NameCheck
from wherecast.language.filters.compile import Compiler

if TYPE_CHECKING:
    from wherecast.engine.engine import Engine


class Patterns:
    """The patterns of an engine, of which there may be none."""

    def __init__(
        self,
        segments: Segments,
        compiler: Compiler,
        names: NameCheck,
        event_time: EventTime,
        make_steps: Callable[[], tuple[Engine, Segments]],
    ) -> None:
        self.sequences: Sequences | None = None  # made with the first pattern
        self.event_time = event_time
        self._segments = segments
        self._compiler = compiler
        self._names = names
        self._make_steps = make_steps

    def __len__(self) -> int:
        return len(self.sequences) if self.sequences is not None else 0

    def __contains__(self, id: object) -> bool:
        return self.sequences is not None and id in self.sequences

    def __iter__(self) -> Iterator[RegisteredPattern]:
        return iter(self.sequences or ())

    def __getitem__(self, id: SubscriptionId) -> RegisteredPattern:
        return self._watched()[id]

    def open(self, sequences: Sequences) -> None:
        """Take over the patterns of a snapshot."""
        self.sequences, self.event_time = sequences, sequences.event_time

    def refuse(self, what: str) -> None:
        """Say that something cannot be done with patterns, if there are any."""
        if self:
            raise SubscriptionError(f"this engine has {len(self):,} patterns, {what}")

    # -- registering ----------------------------------------------------------------------------------------------

    def put(
        self, rows: Sequence[tuple[int, SubscriptionId, str]], replace: bool
    ) -> dict[int, FilterError | SubscriptionError]:
        """Register patterns in one step; the errors of those that cannot be, by row."""
        errors: dict[int, FilterError | SubscriptionError] = {}
        with self._segments.writing:
            sequences = self._watched()
            with sequences.turn:
                state, wanted = self._segments.settled(), {}
                for row, id, text in rows:
                    is_taken = id in wanted or id in sequences or state.find(id) is not None
                    if is_taken and not replace:
                        errors[row] = taken(id)
                    else:
                        wanted[id] = row, id, text
                errors |= sequences.put_many(list(wanted.values()))
                done = [id for id, (row, _, _) in wanted.items() if row not in errors]
                old = [found for found in map(state.find, done) if found is not None]
                new = state._replace(version=state.version + 1, size=state.size - len(old))
                self._segments.publish(NextState(new, old))
        return errors

    def remove(self, ids: Iterable[SubscriptionId]) -> None:
        """Remove those of some ids that are patterns."""
        sequences = self._watched()
        with self._segments.writing, sequences.turn:
            gone = [id for id in ids if id in sequences]
            for id in gone:
                sequences.remove(id)
            if gone:
                state = self._segments.settled()
                self._segments.publish(NextState(state._replace(version=state.version + 1)))

    def admit(self, ids: IdColumn, rows: Longs, errors: dict[int, Any]) -> Longs:
        """The rows whose ids no pattern has; errors get the others."""
        if not self:
            return rows
        found = [row for row in rows.tolist() if id_at(ids, row) in self]
        errors.update((row, taken(id_at(ids, row))) for row in found)
        return rows[~np.isin(rows, found)]

    def _watched(self) -> Sequences:
        """What watches the patterns."""
        if self.sequences is None:
            self.sequences = Sequences(self._compiler, self.event_time, *self._make_steps())
        return self.sequences

    # -- the stream -----------------------------------------------------------------------------------------------

    def advance(self, events: Events, until: dt.datetime | None, on_error: OnError, threads: int) -> PatternMatches:
        """Take in the next events: the patterns that they complete, and the matches of all other filters."""
        sequences, limits = self._watched(), self._compiler.limits
        with sequences.turn:
            own, steps = self._segments.readable(), sequences.step_segments.readable()
            wanted = own.attributes | steps.attributes | sequences.attributes
            batch = EventBatch.read(self._compiler.schema, events, on_error=on_error, needed=wanted, names=self._names)
            self._segments.planner.observe(batch, own.segments)
            sequences.step_segments.planner.observe(batch, steps.segments)

            def match_all(batch: EventBatch) -> list[list[SegmentMatches | DenseMatches]]:
                return [[match_part(s, batch, limits, threads) for s in part.segments] for part in (own, steps)]

            rows = len(batch) + len(batch.errors)
            (parts, step_parts), batch = within_limits(batch, on_error, match_all)
            hits = Matches(step_parts, batch.rows, [], steps.state.version)
            found = Matches(parts, batch.rows, batch.errors, own.state.version)
            return sequences.advance(batch, rows, hits, found, until)

    def explain(self, event: Mapping[str, object], id: SubscriptionId) -> PatternExplanation:
        """Which steps of a pattern an event satisfies, and why."""
        pattern, engine = self[id], self._watched().steps
        steps = zip(pattern.read.steps, pattern.filters, strict=True)
        return PatternExplanation((), tuple((step.text, engine.explain(event, n)) for step, n in steps))


def taken(id: SubscriptionId) -> SubscriptionError:
    """What to say of an id that is in use."""
    return SubscriptionError(f"subscription {id!r} exists already; pass replace=True to change its filter")
