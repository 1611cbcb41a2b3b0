"""Matches: which subscriptions each event of a batch satisfies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.engine.ids import SubscriptionId, join_ids
from wherecast.engine.segment import Segment
from wherecast.errors import EventError
from wherecast.kernels.fanout import count_subscriptions, write_slots, write_values

Int64s = npt.NDArray[np.int64]


class SegmentMatches(NamedTuple):
    """Filters of one segment per event, as CSR arrays."""

    segment: Segment
    event_ptr: Int64s
    filter_ids: npt.NDArray[np.int32]


class Matches:
    """The outcome of matching a batch, held as filters per event and fanned out to subscriptions only when asked.

    `rows` gives the original row of each event matched (rows are missing only with `on_error="skip"`, and then listed
    in `errors`); `version` is the version of the subscriptions that were matched.
    """

    def __init__(self, parts: list[SegmentMatches], rows: Int64s, errors: list[EventError], version: int) -> None:
        self.parts = parts
        self.rows = rows
        self.errors = errors
        self.version = version
        self._slots: list[tuple[Int64s, Int64s]] | None = None

    def __len__(self) -> int:
        """Number of events matched."""
        return int(self.rows.size)

    def counts(self) -> Int64s:
        """Subscriptions satisfied by each event, without listing them where nothing has been removed."""
        return (
            np.add.reduce([self._counts(part) for part in self.parts]) if self.parts else np.zeros(len(self), np.int64)
        )

    def _counts(self, part: SegmentMatches) -> Int64s:
        if part.segment.died is not None:
            return np.diff(self._fan_out(part)[0])
        counts = np.empty(len(self), np.int64)
        count_subscriptions(part.segment.subscriptions.ptr, part.event_ptr, part.filter_ids, counts)
        return counts

    def total(self) -> int:
        """Number of (event, subscription) pairs."""
        return int(self.counts().sum())

    def _fan_out(self, part: SegmentMatches) -> tuple[Int64s, Int64s]:
        """(event_ptr, slots) of one segment: every live subscription of every matched filter."""
        ptr, died = part.segment.subscriptions.ptr, part.segment.died
        counts = np.empty(len(self), np.int64)
        count_subscriptions(ptr, part.event_ptr, part.filter_ids, counts)
        event_ptr = np.concatenate(([0], np.cumsum(counts)))
        slots = np.empty(event_ptr[-1], np.int64)
        write_slots(ptr, part.filter_ids, slots)
        if died is None:
            return event_ptr, slots
        keep = died[slots] > self.version
        kept = np.concatenate(([0], np.cumsum(keep)))
        return kept[event_ptr], slots[keep]

    def _fanned(self) -> list[tuple[Int64s, Int64s]]:
        if self._slots is None:
            self._slots = [self._fan_out(part) for part in self.parts]
        return self._slots

    def _merge(self, columns: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Columns of all segments, interleaved event by event."""
        if len(columns) == 1:
            return columns[0]
        fanned = self._fanned()
        joined = join_ids(columns)
        values = joined if isinstance(joined, np.ndarray) else np.fromiter(joined, object, len(joined))
        none = np.zeros(0, np.int64)
        events = np.concatenate([none, *(np.repeat(np.arange(len(self)), np.diff(ptr)) for ptr, _ in fanned)])
        return values[np.argsort(events, kind="stable")]

    def subscription_ids(self) -> npt.NDArray[Any]:
        """Ids of all pairs, event by event, as they were given."""
        if len(self.parts) == 1 and self.parts[0].segment.died is None:
            return self._plain_ids(self.parts[0])
        fanned = self._fanned()
        return self._merge(
            [p.segment.subscriptions.ids.take(slots) for p, (_, slots) in zip(self.parts, fanned, strict=True)]
        )

    def _plain_ids(self, part: SegmentMatches) -> npt.NDArray[Any]:
        """Ids of the only segment, nothing removed: written straight from its table."""
        ptr, ids, _ = part.segment.subscriptions
        if not isinstance(ids.values, np.ndarray):
            return ids.take(self._fanned()[0][1])
        out = np.empty(int(self._counts(part).sum()), np.int64)
        write_values(ptr, part.filter_ids, ids.values, out)
        return out

    def pairs(self) -> tuple[Int64s, npt.NDArray[Any]]:
        """(original event row, subscription id) as two arrays of equal length."""
        ids = self.subscription_ids()
        return np.repeat(self.rows, self.counts()), ids

    def to_arrow(self) -> pa.Table:
        """Columns `event` and `subscription`."""
        events, ids = self.pairs()
        return pa.table({"event": events, "subscription": id_column(ids)})

    def __iter__(self) -> Iterator[list[SubscriptionId]]:
        """The ids of each event matched."""
        ids = self.subscription_ids()
        ptr = np.concatenate(([0], np.cumsum(self.counts())))
        for start, end in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True):
            yield ids[start:end].tolist()

    def to_lists(self) -> list[list[SubscriptionId]]:
        return list(self)

    def top(self, limit: int) -> list[list[SubscriptionId]]:
        """At most `limit` ids per event, those of highest priority first."""
        ids = self.subscription_ids()
        weights = self._merge([_priorities(p, slots) for p, (_, slots) in zip(self.parts, self._fanned(), strict=True)])
        counts = self.counts()
        events = np.repeat(np.arange(len(self)), counts)
        order = np.lexsort((-weights.astype(np.float64), events))
        starts = np.concatenate(([0], np.cumsum(counts)))
        return [
            ids[order[a : min(a + limit, b)]].tolist()
            for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        ]


def _priorities(part: SegmentMatches, slots: Int64s) -> npt.NDArray[np.float32]:
    priorities = part.segment.subscriptions.priorities
    return np.zeros(slots.size, np.float32) if priorities is None else priorities[slots]


def id_column(ids: npt.NDArray[Any]) -> pa.Array:
    """Ids of one type as that type; a mixture as text."""
    if ids.dtype != object:
        return pa.array(ids)
    if all(isinstance(i, str) for i in ids):
        return pa.array(ids.tolist(), pa.string())
    return pa.array([str(i) for i in ids], pa.string())
