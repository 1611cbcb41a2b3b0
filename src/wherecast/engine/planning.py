"""Planning: matchers are built for the traffic that is seen.

An adaptive matcher is planned from a sample of events. The first batch of some size, and then one now and then, is compared
with the plan: when events meet twice as many candidates as the plan expects, they become the sample, and the matcher is built
again, aside, and swapped in. A segment that was built before any event was seen rests on assumptions and expects none, so it
is planned as soon as that is worth while; one that was planned before it was saved stays as it is, mapped, when it is opened.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from wherecast.engine.segment import Segment
from wherecast.language.events.events import EventBatch
from wherecast.progress import progress

_log = logging.getLogger(__name__)

#: Events of a sample, and the fewest that make one.
SAMPLE, LEAST = 1_000, 200
#: Segments with fewer clauses are quick in any plan.
WORTH = 1_000
#: Events between two looks at whether the plan still fits.
INTERVAL = 1_000_000
#: Replan when an event meets more candidates than WORSE times the expected number, plus SLACK.
WORSE, SLACK = 2.0, 16.0


class Replanner:
    """Keeps a sample of events and the matchers of an engine planned for it."""

    def __init__(self) -> None:
        self.sample: EventBatch | None = None
        self._seen = 0
        self._busy = threading.Lock()

    def observe(self, events: EventBatch, segments: Sequence[Segment]) -> None:
        """Note a batch that is about to be matched; replan in the background if that is due."""
        if len(events) < LEAST or not segments:
            return
        self._seen += len(events)
        if (self.sample is None or self._seen >= INTERVAL) and self._busy.acquire(blocking=False):
            try:
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
                segment.replan(sample)
                step.advance(segment.boxes.n_clauses)
        self.sample = sample  # last: segments to come are not to be built for what could not be planned

    def _replan(self, sample: EventBatch, segments: Sequence[Segment]) -> None:
        try:
            for segment in segments:
                if segment.boxes.n_clauses >= WORTH and _is_worse(segment, sample):
                    segment.replan(sample)
                    self.sample = sample
            self.sample = self.sample or sample
        except Exception:  # noqa: BLE001  # a thread of its own: nobody else would hear of it
            _log.exception("planning failed; the matcher in use stays")
        finally:
            self._busy.release()


def _is_worse(segment: Segment, sample: EventBatch) -> bool:
    expected = segment.matcher.candidates(None)
    return expected is not None and count_candidates(segment, sample) > WORSE * expected + SLACK


def count_candidates(segment: Segment, events: EventBatch) -> float:
    """Clauses that an event is compared with, on average; all of them by a matcher that does not say."""
    found = segment.matcher.candidates(segment.encode(events))
    return float(segment.boxes.n_clauses) if found is None else found
