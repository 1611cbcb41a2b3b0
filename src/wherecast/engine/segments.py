"""Segments: the subscriptions of an engine as one state after another, and who may change it.

Readers take the current `EngineState` (one attribute read) and work on it to the end. Writers take turns (`writing`), build aside, and
publish the next state in one assignment. `log` says what a state is made of, when segments are merged, and what becomes of a
change that fails; this module does it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from wherecast.engine.log import (
    LOG_LIMIT,
    LOOK_EVERY,
    EngineState,
    Log,
    LogReader,
    NextState,
    Traffic,
    carry_deaths,
    first_to_merge,
)
from wherecast.engine.memory import give_back
from wherecast.engine.planning import Replanner
from wherecast.engine.segment import Members, Segment, build_segment, members_of
from wherecast.language.filters.compile import Compiler
from wherecast.matchers.protocol import Matcher

_log = logging.getLogger(__name__)


class Readable(NamedTuple):
    """A state with its log turned into a segment."""

    state: EngineState
    segments: tuple[Segment, ...]
    attributes: frozenset[int]
    """What the filters read of an event."""


_NOT_READ = Readable(EngineState(-1, (), Log(), 0, 0), (), frozenset())


class Segments:
    """The current state of an engine's subscriptions. Whoever publishes holds `writing`."""

    def __init__(self, compiler: Compiler, matcher: type[Matcher]) -> None:
        self.state = EngineState(0, (), Log(), 0, 0)
        self.planner = Replanner()
        self.writing = threading.RLock()
        self.log_reader = LogReader(compiler)
        self._compiler = compiler
        self._matcher = matcher
        self._merging = threading.Lock()
        self._is_unsettled = False  # whether there may be marks of a change that was not published
        self._readable = _NOT_READ
        self._traffic: Traffic | None = None  # where nothing is subscribed one by one, places stay as they are

    def readable(self) -> Readable:
        """The current state; the first who asks builds the segment of its log."""
        readable, state = self._readable, self.state
        if readable.state is not state:
            segments = self._with_log(state)
            attributes = frozenset().union(*(s.attributes for s in segments))
            readable = self._readable = Readable(state, segments, attributes)
        return readable

    def build(self, parts: list[Members]) -> Segment:
        """A segment of some subscriptions, planned for the traffic seen so far."""
        compiler = self._compiler
        return build_segment(parts, compiler.schema, self._matcher, self.planner.sample, compiler.limits)

    # -- publishing -----------------------------------------------------------------------------------------------

    def change(self, make: Callable[[EngineState], NextState]) -> None:
        """Make a change of the current state, and then keep the segments in order.

        Once it is published its caller must hear so: what fails after that is logged, and tried again after a later change.
        """
        with self.writing:
            before = self.settled()
            change = make(before)
            self.publish(change)
        try:
            if change.state.log_size >= LOG_LIMIT:
                self._seal_full_log()
            if self.state.segments is not before.segments or change.state.version % LOOK_EVERY == 0:
                self._merge_if_due()
        except Exception:  # noqa: BLE001 - whatever it is, the change is made
            _log.exception(
                "a change is made, but sealing the log or starting a merge failed; the next change tries again"
            )

    def publish(self, change: NextState) -> None:
        """Make a change visible, in one assignment. Needs the writers' lock.

        Until then the marks on what dies mean nothing; if it does not come to that, `settled` takes them back.
        """
        self._is_unsettled = True
        for subscription in change.old:
            subscription.die(change.state.version)
        self.state = change.state
        self._is_unsettled = False

    def settled(self) -> EngineState:
        """The current state, rid of what failed changes have left. Needs the writers' lock."""
        state = self.state
        if self._is_unsettled:
            state.revive()
            self._is_unsettled = False
        return state

    def sealed(self) -> EngineState:
        """The current state with its log turned into a segment: the same subscriptions. Needs the writers' lock."""
        state = self.settled()
        if state.log_size:
            state = self.state = state._replace(segments=self._with_log(state), log=Log(), log_size=0)
        return state

    def _with_log(self, state: EngineState) -> tuple[Segment, ...]:
        """The segments of a state, and one of what is alive in its log."""
        members = self.log_reader.members(state)
        return (*state.segments, self.build(members)) if members else state.segments

    def _seal_full_log(self) -> None:
        with self.writing:
            if self.state.log_size >= LOG_LIMIT:
                self.sealed()

    # -- merging --------------------------------------------------------------------------------------------------

    def merge(self, *, everything: bool = False) -> None:
        """Merge segments now: those that are due, or all of them into one."""
        with self._merging:
            while True:
                state = self.state
                first = 0 if everything and len(state.segments) + state.log_size > 1 else first_to_merge(state.segments)
                if first == len(state.segments):
                    return
                if everything:
                    with self.writing:
                        state = self.sealed()
                self._merge_from(state, first)
                everything = False

    def watch_traffic(self) -> None:
        """From now on, merge segments when events have paid enough for having several."""
        self._traffic = self._traffic or Traffic()

    def note_events(self, readable: Readable, events: int) -> None:
        """So many events are matched; merge in the background if that pays off for them."""
        segments = readable.segments
        if self._traffic is not None and len(segments) > 1:
            first = self._traffic.first_due(readable.state, segments, events)
            if first < len(segments):
                self._merge_behind(partial(self._merge_tail, first))

    def _merge_if_due(self) -> None:
        """Start a merge in the background if one is due and none is under way."""
        segments = self.state.segments
        if first_to_merge(segments) < len(segments):
            self._merge_behind(self.merge)

    def _merge_behind(self, merge: Callable[[], None]) -> None:
        """Merge in the background, unless that is under way."""
        if not self._merging.locked():
            threading.Thread(target=_run_merge, args=(merge,), name="wherecast-merge", daemon=True).start()

    def _merge_tail(self, first: int) -> None:
        """Merge the segments from a number on, and the log."""
        with self._merging:
            with self.writing:
                state = self.sealed()
            if first < len(state.segments) - 1:
                self._merge_from(state, first)

    def _merge_from(self, state: EngineState, first: int) -> None:
        old = state.segments[first:]
        merged = self.build([members_of(s, state.version) for s in old])
        with self.writing:
            now = self.settled()
            for segment in old:
                carry_deaths(segment, merged, state.version)
            later = now.segments[len(state.segments) :]
            kept = (*now.segments[:first], merged) if len(merged) else now.segments[:first]
            self.state = now._replace(segments=(*kept, *later))
            # The next reader would replace it anyway; until one comes, it would keep what was merged in memory.
            self._readable = _NOT_READ


def _run_merge(merge: Callable[[], None]) -> None:
    try:
        merge()
        give_back()  # what was merged is gone only now
    except Exception:  # noqa: BLE001 - a thread of its own: nobody else would hear of it
        _log.exception("merging failed; the segments stay as they are")
