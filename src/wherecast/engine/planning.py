"""Planning: matchers are built for the traffic that is seen.

An adaptive matcher is planned from a sample of events. Segments built before any event was seen rest on assumptions; the
first batch of some size becomes the sample, and their matchers are built again, aside, and swapped in. From then on
a batch is compared with the plan now and then: when events meet twice as many candidates as the plan expects, the latest
events become the sample and the plan is made again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from wherecast.engine.segment import Segment
from wherecast.language.events import EventBatch

_log = logging.getLogger(__name__)

#: Events of a sample, and the fewest that make one.
SAMPLE, LEAST = 1_000, 200
#: Segments with fewer clauses are quick in any plan.
WORTH = 1_000
#: Events between two looks at whether the plan still fits.
INTERVAL = 1_000_000
#: How many times the expected candidates are too many; a few more than expected are nobody's concern.
WORSE, SLACK = 2.0, 16.0


class Planner:
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
            first, self._seen = self.sample is None, 0
            sample = events.sample(SAMPLE)
            threading.Thread(
                target=self._replan, args=(sample, tuple(segments), first), name="wherecast-plan", daemon=True
            ).start()

    def learn(self, events: EventBatch, segments: Sequence[Segment]) -> None:
        """Plan for these events, now."""
        self.sample = events.sample(SAMPLE)
        for segment in segments:
            segment.replan(self.sample)

    def _replan(self, sample: EventBatch, segments: Sequence[Segment], first: bool) -> None:
        try:
            for segment in segments:
                if segment.boxes.n_clauses >= WORTH and (first or _is_worse(segment, sample)):
                    segment.replan(sample)
                    self.sample = sample
            self.sample = self.sample or sample
        except Exception:  # noqa: BLE001  # a thread of its own: nobody else would hear of it
            _log.exception("planning failed; the matcher in use stays")
        finally:
            self._busy.release()


def _is_worse(segment: Segment, sample: EventBatch) -> bool:
    measure = getattr(segment.matcher, "candidates", None)
    if measure is None:
        return False
    expected, found = measure(None), measure(segment.encode(sample))
    return bool(found > WORSE * expected + SLACK)
