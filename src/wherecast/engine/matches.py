"""Matches: which subscriptions each event of a batch satisfies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.errors import EventError
from wherecast.language.concat import take_ranges

SubscriptionId = str | int


class Matches:
    """The outcome of matching a batch, held as filters per event and fanned out to subscriptions only when asked.

    `event_ptr` and `filter_ids` are CSR arrays over the kept events; `rows` gives the original row of each kept event
    (rows are skipped only with `on_error="skip"`, and then listed in `errors`).
    """

    def __init__(
        self,
        event_ptr: npt.NDArray[np.int64],
        filter_ids: npt.NDArray[np.int32],
        subscription_ptr: npt.NDArray[np.int64],
        subscription_ids: npt.NDArray[Any],
        rows: npt.NDArray[np.int64],
        errors: list[EventError],
    ) -> None:
        self.event_ptr = event_ptr
        self.filter_ids = filter_ids
        self._subscription_ptr = subscription_ptr
        self._subscription_ids = subscription_ids
        self.rows = rows
        self.errors = errors

    def __len__(self) -> int:
        """Number of events matched against."""
        return int(self.event_ptr.size - 1)

    def counts(self) -> npt.NDArray[np.int64]:
        """Subscriptions satisfied by each event, without listing them."""
        fan_out = np.diff(self._subscription_ptr)[self.filter_ids]
        total = np.concatenate(([0], np.cumsum(fan_out)))
        return total[self.event_ptr[1:]] - total[self.event_ptr[:-1]]

    def total(self) -> int:
        """Number of (event, subscription) pairs."""
        return int(np.diff(self._subscription_ptr)[self.filter_ids].sum())

    def subscription_ids(self) -> npt.NDArray[Any]:
        """Ids of all pairs, event by event, as they were given."""
        return self._subscription_ids[take_ranges(self._subscription_ptr, self.filter_ids.astype(np.int64))[0]]

    def pairs(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
        """(original event row, subscription id) as two arrays of equal length."""
        return np.repeat(self.rows, self.counts()), self.subscription_ids()

    def to_arrow(self) -> pa.Table:
        """Columns `event` and `subscription`."""
        events, ids = self.pairs()
        return pa.table({"event": events, "subscription": _id_column(ids)})

    def __iter__(self) -> Iterator[list[SubscriptionId]]:
        """The ids of each kept event."""
        ids = self.subscription_ids()
        ptr = np.concatenate(([0], np.cumsum(self.counts())))
        for start, end in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True):
            yield ids[start:end].tolist()

    def to_lists(self) -> list[list[SubscriptionId]]:
        return list(self)


def _id_column(ids: npt.NDArray[Any]) -> pa.Array:
    """Ids of one type as that type; a mixture as text."""
    if ids.dtype != object:
        return pa.array(ids)
    kinds = {type(i) for i in ids}
    return pa.array(ids.tolist() if len(kinds) == 1 else [str(i) for i in ids], pa.string() if len(kinds) != 1 else None)
