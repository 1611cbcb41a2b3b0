"""Work on a batch, cut in pieces, on several threads. Kernels hold no lock while they run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from wherecast.engine.segment import Segment
from wherecast.language.events.events import EventBatch
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


@lru_cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="wherecast-match")
