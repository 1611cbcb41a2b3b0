"""The counting matcher in every combination of index and association."""

from __future__ import annotations

import numpy as np

from wherecast.index.boxes import EventCodes
from wherecast.matchers.protocol import Matcher
from wherecast.papers.topss.association import BitMatrix, ByteMatrix
from wherecast.papers.topss.matcher import (
    CountingBitMatcher,
    CountingByteMatcher,
    CountingMatcher,
    CountingTableMatcher,
)
from wherecast.papers.topss.predicate_index import TableIndex

Clause = list[tuple[int, list[tuple[int, int]]]]


class TableBitMatcher(CountingMatcher):
    index_type, association_type = TableIndex, BitMatrix


class TableByteMatcher(CountingMatcher):
    index_type, association_type = TableIndex, ByteMatrix


NAMED = [CountingMatcher, CountingTableMatcher, CountingBitMatcher, CountingByteMatcher]
COMBINATIONS = [*NAMED, TableBitMatcher, TableByteMatcher]


def found(matcher: Matcher, events: EventCodes) -> list[list[int]]:
    """Clauses per event; each once, in order."""
    ptr, ids = matcher.match(events)
    assert ptr.size == events.n_events + 1
    assert ids.dtype == np.int32
    return [ids[ptr[e] : ptr[e + 1]].tolist() for e in range(events.n_events)]
