"""Match a batch against a segment: in pieces on several threads, and within limits. Kernels hold no lock while they run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from wherecast.engine.matches import DenseMatches, SegmentMatches
from wherecast.engine.segment import OverworkError, Segment
from wherecast.errors import EventError
from wherecast.language.events.events import EventBatch, OnError
from wherecast.language.functions.row import GrownTextError
from wherecast.language.syntax.limits import Limits

T = TypeVar("T")

#: Pieces smaller than this are not worth a thread.
_LEAST_EVENTS = 256


def in_pieces(work: Callable[[EventBatch], T | None], events: EventBatch, threads: int) -> list[T] | None:
    """Results of `work` for each piece of a batch, in order; None if it has none for the first."""
    pieces = max(1, min(threads, len(events) // _LEAST_EVENTS))
    if pieces == 1:
        result = work(events)
        return None if result is None else [result]
    cuts = [len(events) * i // pieces for i in range(pieces + 1)]
    results = list(_pool(threads).map(lambda i: work(events.slice(cuts[i], cuts[i + 1])), range(pieces)))
    return None if results[0] is None else [r for r in results if r is not None]


def match_threaded(
    segment: Segment, events: EventBatch, limits: Limits, threads: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """`segment.match(events, limits)`, in pieces on `threads` threads."""
    found = in_pieces(lambda piece: segment.match(piece, limits), events, threads)
    assert found is not None
    if len(found) == 1:
        return found[0]
    counts = np.concatenate([np.diff(ptr) for ptr, _ in found])
    return np.concatenate(([0], np.cumsum(counts))), np.concatenate([ids for _, ids in found])


def match_part(segment: Segment, batch: EventBatch, limits: Limits, threads: int) -> SegmentMatches | DenseMatches:
    """The matches of a batch in one segment."""
    if threads != 1:
        return SegmentMatches(segment, *match_threaded(segment, batch, limits, threads))
    matcher = segment.dense_matcher()
    if matcher is not None:
        listed, dense = matcher.match_apart(segment.encode(batch))
        return DenseMatches(SegmentMatches(segment, *listed), dense)
    return SegmentMatches(segment, *segment.match(batch, limits))


def within_limits(batch: EventBatch, on_error: OnError, work: Callable[[EventBatch], T]) -> tuple[T, EventBatch]:
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


@lru_cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="wherecast-match")
