"""Reports: what became of the last micro-batches of a stream, kept in the index where anybody can read them.

A batch may be run by another process than the one that started the stream: on Spark Connect it is the server's. So the
reports are a file, replaced as a whole after every batch, and not a list in memory.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, TypeVar

from wherecast.spark.index import Index
from wherecast.spark.pins import stream_name
from wherecast.spark.store import REPORTS

#: Batches whose reports are kept.
_KEPT = 100


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What became of one micro-batch."""

    batch: int
    version: int
    """Of the index, as pinned."""
    events: int
    sent: int
    """Pairs of event and server; as many as events where there is one server."""
    candidates: int
    """Clauses that events were compared with, estimated from some of the events."""
    matches: int
    dropped: int
    """Events that no summary admitted, which no server saw."""
    errors: int
    """Events that did not fit the schema."""
    replayed: bool
    """The sink had the batch already."""
    imbalance: float
    """Work of the busiest server by that of the idlest: as the plan expects it, or as a rebalancer saw it."""
    rebalanced: int | None
    """The version that was made because of this batch, if one was."""
    seconds: float
    overhead_ms: float
    """Spent on pinning and bookkeeping, apart from matching, writing and rebalancing."""


@dataclass(frozen=True, slots=True)
class ChangeReport:
    """What became of one micro-batch of changes. Every row of it is applied, refused, late or replayed."""

    batch: int
    version: int
    """Of the index, with these changes in it."""
    applied: int
    refused: int
    """Rows that cannot be applied: unreadable, incomplete, or with a filter or id that is refused."""
    late: int
    """Rows that came after later ones were applied; they are not applied."""
    replayed: int
    """Rows that the index had already."""
    seconds: float


Report = TypeVar("Report", bound=BatchReport | ChangeReport)


class Reports(Generic[Report]):
    """The reports of one stream, told from others by its checkpoint."""

    def __init__(self, index: Index, checkpoint: str, kind: type[Report]) -> None:
        self._store = index.store
        self._name = f"{REPORTS}/{stream_name(checkpoint)}.json"
        self._kind = kind
        self._known: list[Report] | None = None

    def add(self, report: Report) -> None:
        """Append the report of a batch; one that is run again replaces what was said of it.

        A replay has nothing to count, so it leaves the numbers as they were.
        """
        known = self.read() if self._known is None else self._known
        if report.replayed:
            flag: Any = report.replayed  # a count of changes
            report = next((replace(r, replayed=flag) for r in known if r.batch == report.batch), report)
        self._known = [*(r for r in known if r.batch < report.batch), report][-_KEPT:]
        self._store.replace(self._name, json.dumps([asdict(r) for r in self._known]).encode())

    def read(self) -> list[Report]:
        """The last batches, oldest first; also those of earlier runs from the same checkpoint.

        None where the file is damaged or of another release: numbers for people must not stop a stream.
        """
        try:
            return [self._kind(**fields) for fields in json.loads(self._store.read(self._name))]
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return []
