"""PatternMatches: which patterns a batch of events completed, and with which events."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from wherecast.engine.checks import SubscriptionId
from wherecast.engine.ids import id_array
from wherecast.engine.matches import Matches
from wherecast.engine.sequence_state import FoundPatterns
from wherecast.language.events.html import html_table

#: Matches that a notebook shows.
_SHOWN = 10


class PatternMatch(NamedTuple):
    """A pattern that was found.

    `time` is that of its last event or, with THEN NOT, the end of its window. `events` are positions: how many events the engine had been given
    before, in all calls of `advance`.
    """

    id: SubscriptionId
    key: Any
    time: dt.datetime
    events: tuple[int, ...]


class PatternMatches:
    """What `Engine.advance` found, by time.

    `matches` has what the filters that are not patterns found in the same batch; `late` and `untimed` count events of this
    batch that patterns did not see.
    """

    def __init__(
        self,
        found: FoundPatterns,
        ids: list[SubscriptionId],
        keys: list[Any],
        matches: Matches,
        moment: Callable[[int], dt.datetime | None],
        watermark: dt.datetime | None,
        late: int,
        untimed: int,
    ) -> None:
        self.matches = matches
        self.errors = matches.errors
        self.watermark = watermark
        self.late = late
        self.untimed = untimed
        self._found = found
        self._ids = ids
        self._keys = keys
        self._moment = moment

    def __len__(self) -> int:
        """How many patterns were found."""
        return int(self._found.pattern.size)

    def __iter__(self) -> Iterator[PatternMatch]:
        ptr, events = self._found.ptr.tolist(), self._found.events.tolist()
        for n, (id, key, us) in enumerate(zip(self._ids, self._keys, self._found.time.tolist(), strict=True)):
            time = self._moment(us)
            assert time is not None, "a match has a time"
            yield PatternMatch(id, key, time, tuple(events[ptr[n] : ptr[n + 1]]))

    def to_pylist(self) -> list[dict[str, Any]]:
        """A dict with `subscription`, `key`, `time` and `events` for each match."""
        return [{"subscription": m.id, "key": m.key, "time": m.time, "events": list(m.events)} for m in self]

    def to_arrow(self) -> pa.Table:
        """Columns `subscription`, `key` (as text), `time` and `events`."""
        moments = [match.time for match in self]
        zone = moments[0].tzinfo if moments else dt.UTC
        return pa.table(
            {
                "subscription": id_array(np.array([None, *self._ids], object)[1:], {type(id) for id in self._ids}),
                "key": pa.array([None if key is None else str(key) for key in self._keys], pa.string()),
                "time": pa.array(moments, pa.timestamp("us", "UTC" if zone is not None else None)),
                "events": pa.ListArray.from_arrays(self._found.ptr.astype(np.int32), self._found.events),
            }
        )

    def __repr__(self) -> str:
        return f"PatternMatches({self._summary()})"

    def _summary(self) -> str:
        left = f", {self.late:,} late" if self.late else ""
        left += f", {self.untimed:,} without a time" if self.untimed else ""
        return f"{len(self):,} found in {len(self.matches):,} events{left}, watermark {self.watermark}"

    def _repr_html_(self) -> str:
        rows = [(repr(m.id), m.key, m.time, m.events) for m, _ in zip(self, range(_SHOWN), strict=False)]
        return html_table(
            f"Patterns: {self._summary()}", ("id", "key", "time", "events"), rows, more=len(self) - len(rows)
        )
