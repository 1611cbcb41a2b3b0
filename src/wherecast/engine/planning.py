"""Planning: matchers are built for the traffic that is seen.

An adaptive matcher is planned from a sample of events, and says how many candidates an event will meet. The first batch of
some size, and then one now and then, is compared with that estimate. If events meet more than twice the candidates, or fewer
than half, they become the sample, and the matcher is built again, aside, and swapped in. A segment that was built before any
event was seen rests on assumptions and expects none, so it is planned as soon as that is worth while; one that was planned
before it was saved stays as it is, mapped, when it is opened. What was compared last is in `Engine.stats` and in the log.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from wherecast.engine.segment import Segment
from wherecast.language.events.events import EventBatch
from wherecast.progress import progress

_log = logging.getLogger(__name__)

#: Events of a sample, and the fewest that make one.
SAMPLE, LEAST = 1_000, 200
#: Segments with fewer clauses are quick in any plan.
WORTH = 1_000
#: Events between two looks at whether the plan still fits: few after the first, as that batch may have been an odd one.
SOON, INTERVAL = 20_000, 1_000_000
#: Replan when the candidates of an event are off by this factor, and by SLACK.
WORSE, SLACK = 2.0, 16.0


class Observation(NamedTuple):
    """What a plan expected, and what a batch of events met: candidates per event."""

    expected: float
    observed: float

    @property
    def is_off(self) -> bool:
        """Whether the plan was made for other traffic."""
        low, high = sorted(self)
        return high > WORSE * low + SLACK


class Replanner:
    """Keeps a sample of events and the matchers of an engine planned for it."""

    def __init__(self) -> None:
        self.sample: EventBatch | None = None
        self._seen = 0
        self._interval = SOON
        self._busy = threading.Lock()
        self._observed: WeakKeyDictionary[Segment, Observation] = WeakKeyDictionary()
        self._plans: WeakKeyDictionary[Segment, int] = WeakKeyDictionary()

    def observe(self, events: EventBatch, segments: Sequence[Segment]) -> None:
        """Note a batch that is about to be matched; replan in the background if that is due."""
        if len(events) < LEAST or not segments:
            return
        self._seen += len(events)
        if (self.sample is None or self._seen >= self._interval) and self._busy.acquire(blocking=False):
            try:
                self._interval = SOON if self.sample is None else INTERVAL
                self._seen = 0
                sample = events.sample(SAMPLE)
                threading.Thread(
                    target=self._replan, args=(sample, tuple(segments)), name="wherecast-plan", daemon=True
                ).start()
            except Exception:  # noqa: BLE001 - events are matched all the same
                self._busy.release()
                _log.exception("planning could not start; the matcher in use stays")

    def learn(self, events: EventBatch, segments: Sequence[Segment]) -> None:
        """Plan for these events, now."""
        sample = events.sample(SAMPLE)
        with progress("planning", sum(s.boxes.n_clauses for s in segments)) as step:
            for segment in segments:
                self._plan(segment, sample)
                step.advance(segment.boxes.n_clauses)
        self.sample = sample  # last: segments to come are not to be built for what could not be planned

    def tell(self, segment: Segment) -> dict[str, float | int]:
        """How often a segment was planned for events, and what was compared last."""
        facts: dict[str, float | int] = {"plans": self._plans.get(segment, 0)}
        if segment in self._observed:
            expected, observed = self._observed[segment]
            facts |= {"planned_candidates_per_event": expected, "observed_candidates_per_event": observed}
        return facts

    def _plan(self, segment: Segment, sample: EventBatch) -> None:
        segment.replan(sample)
        self._plans[segment] = self._plans.get(segment, 0) + 1

    def _replan(self, sample: EventBatch, segments: Sequence[Segment]) -> None:
        try:
            for segment in segments:
                found = compare(segment, sample) if segment.boxes.n_clauses >= WORTH else None
                if found is None:
                    continue
                self._observed[segment] = found
                _log.info(
                    "plan subscriptions=%d expected_candidates=%.1f observed_candidates=%.1f replan=%s",
                    len(segment), *found, str(found.is_off).lower(),
                )  # fmt: skip
                if found.is_off:
                    self._plan(segment, sample)
                    self.sample = sample
            self.sample = self.sample or sample
        except Exception:  # noqa: BLE001  # a thread of its own: nobody else would hear of it
            _log.exception("planning failed; the matcher in use stays")
        finally:
            self._busy.release()


def compare(segment: Segment, sample: EventBatch) -> Observation | None:
    """The plan of a segment and what these events meet; None for a matcher that does not plan."""
    expected = segment.matcher.candidates(None)
    return None if expected is None else Observation(expected, count_candidates(segment, sample))


def count_candidates(segment: Segment, events: EventBatch) -> float:
    """Clauses that an event is compared with, on average; all of them by a matcher that does not say."""
    found = segment.matcher.candidates(segment.encode(events))
    return float(segment.boxes.n_clauses) if found is None else found
