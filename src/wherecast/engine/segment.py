"""Segment: an immutable index with its matcher and its subscriptions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.engine.matches import Matches
from wherecast.index.build import Index
from wherecast.language.events import EventBatch
from wherecast.matchers.protocol import Matcher


class Segment:
    """Filters ready to match, and who subscribed to each: `ids[ptr[f]:ptr[f + 1]]` for filter f."""

    def __init__(self, index: Index, matcher: Matcher, ptr: npt.NDArray[np.int64], ids: npt.NDArray[Any]) -> None:
        self.index = index
        self.matcher = matcher
        self.ptr = ptr
        self.ids = ids
        owner = index.boxes.filter_ids
        self._one_clause_each = bool(np.array_equal(owner, np.arange(owner.size)))
        self._has_residuals = bool(np.any(index.boxes.residuals >= 0))

    def match(self, events: EventBatch) -> Matches:
        event_ptr, clause_ids = self.matcher.match(self.index.codebook.encode(events))
        if self._has_residuals:
            event_ptr, clause_ids = self._settle_residuals(events, event_ptr, clause_ids)
        if self._one_clause_each:
            filter_ids = clause_ids
        else:
            event_ptr, filter_ids = self._distinct_filters(event_ptr, clause_ids)
        return Matches(event_ptr, filter_ids, self.ptr, self.ids, events.rows, events.errors)

    def _settle_residuals(self, events: EventBatch, event_ptr: Any, clause_ids: Any) -> tuple[Any, Any]:
        """Keep the hits whose residual, if they have one, holds."""
        residual = self.index.boxes.residuals[clause_ids]
        event_ids = np.repeat(np.arange(event_ptr.size - 1), np.diff(event_ptr))
        keep = residual < 0
        open_ones = np.flatnonzero(~keep)
        keep[open_ones] = self.index.residuals.hold(events, event_ids[open_ones], residual[open_ones])
        return _pointer(event_ids[keep], event_ptr.size - 1), clause_ids[keep]

    def _distinct_filters(self, event_ptr: Any, clause_ids: Any) -> tuple[Any, Any]:
        """Clauses to filters, each filter once per event."""
        event_ids = np.repeat(np.arange(event_ptr.size - 1), np.diff(event_ptr))
        key = np.unique((event_ids << 32) | self.index.boxes.filter_ids[clause_ids])
        return _pointer(key >> 32, event_ptr.size - 1), (key & 0xFFFFFFFF).astype(np.int32)


def _pointer(event_ids: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int64]:
    return np.searchsorted(event_ids, np.arange(n + 1)).astype(np.int64)
