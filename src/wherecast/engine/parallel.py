"""Matching a batch on several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from wherecast.engine.segment import Segment
from wherecast.language.events import EventBatch

#: Pieces smaller than this are not worth a thread.
_LEAST_EVENTS = 256


def match_threaded(
    segment: Segment, events: EventBatch, threads: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """`segment.match(events)`, in pieces on `threads` threads."""
    pieces = min(threads, len(events) // _LEAST_EVENTS)
    if pieces < 2:
        return segment.match(events)
    cuts = [len(events) * i // pieces for i in range(pieces + 1)]
    found = list(_pool(threads).map(lambda i: segment.match(events.slice(cuts[i], cuts[i + 1])), range(pieces)))
    counts = np.concatenate([np.diff(ptr) for ptr, _ in found])
    return np.concatenate(([0], np.cumsum(counts))), np.concatenate([ids for _, ids in found])


@lru_cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="wherecast-match")
