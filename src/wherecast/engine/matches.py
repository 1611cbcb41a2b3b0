"""Matches: which subscriptions each event of a batch satisfies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.engine.checks import SubscriptionId
from wherecast.engine.ids import id_array
from wherecast.engine.segment import Segment
from wherecast.errors import EventError
from wherecast.kernels.arrays import Longs
from wherecast.kernels.events import write_values
from wherecast.kernels.jit import frozen
from wherecast.language.events.html import html_table
from wherecast.matchers.protocol import DenseHits

if TYPE_CHECKING:
    DataFrame: TypeAlias = Any  # pandas ships no types, and is needed only by those who have it

_NONE_DIED = np.zeros(0, np.int64)
#: Bytes from which on memory comes from Arrow's pool.
_LARGE = 1 << 20
#: Of so few events, what the fan-out reads last is still in the cache when it is wanted.
_FEW_EVENTS = 512
#: Ids that get room before they are counted, and filters that are few enough for that.
_ROOM, _FEW_FILTERS = 1_024, 4_096
#: Entries that the 32-bit offsets of a list array reach.
_MOST_IN_LIST = 2**31 - 1
#: Events that a notebook shows, and how many matches there may be for it to show their ids.
_SHOWN, _FEW = 10, 10_000


class SegmentMatches(NamedTuple):
    """Filters of one segment per event, as CSR arrays."""

    segment: Segment
    event_ptr: Longs
    filter_ids: npt.NDArray[np.int32]

    def add_counts(self, version: int, counts: Longs) -> None:
        """Add the subscriptions of each event that are alive at a version."""
        ids = self.segment.fan_out.ids
        self.segment.fan_out.count_live(*self._found(version), ids if counts.size < _FEW_EVENTS else ids[:0], counts)

    def list_ids(self, version: int) -> npt.NDArray[np.int64]:
        """The ids of those subscriptions, which must be numbers, event by event. As one event, because nothing asks where each ends."""
        n, fan_out = self.filter_ids.size, self.segment.fan_out
        if n == 0:
            return np.empty(0, np.int64)
        if n <= _FEW_FILTERS:
            out, died = np.empty(_ROOM + 4 * n, np.int64), self.segment.died
            died = _NONE_DIED if died is None else died
            total = fan_out.count_and_write(self.filter_ids, died, version, fan_out.ids, np.empty(5, np.int64), out)
            if total <= out.size:
                return out[:total]
        found, end = (np.array([0, n]), *self._found(version)[1:]), np.zeros(1, np.int64)
        fan_out.count_live(*found, fan_out.ids[:0], end)
        out = _allocate(end.item(), np.int64)
        fan_out.write_ids(*found, fan_out.ids, np.zeros(1, np.int64), end, out)
        return out

    def write(self, version: int, values: npt.NDArray[Any], cursor: Longs, ends: Longs, out: npt.NDArray[Any]) -> None:
        """Write the values, given by slot, of those subscriptions at each event's cursor, and move the cursors on."""
        fan_out = self.segment.fan_out
        if values is fan_out.ids:
            fan_out.write_ids(*self._found(version), frozen(values), cursor, ends, out)
        else:
            write_values(fan_out.ptr, fan_out.single, *self._found(version), frozen(values), cursor, ends, out)

    def _found(self, version: int) -> tuple[Longs, npt.NDArray[np.int32], Longs, int]:
        """What the fan-out kernels need to know of the events."""
        died = self.segment.died
        return self.event_ptr, self.filter_ids, _NONE_DIED if died is None else died, version


class DenseMatches(NamedTuple):
    """Filters of one segment, some of which are not listed: from these to subscriptions is one step, left to do when it is asked for.

    Nothing was dead when the events were matched, and what died since is alive at that version.
    """

    listed: SegmentMatches
    dense: DenseHits  # of the matcher of that moment: the segment may get another

    @property
    def segment(self) -> Segment:
        return self.listed.segment

    def add_counts(self, version: int, counts: Longs) -> None:
        """Add the subscriptions of each event."""
        self.listed.add_counts(version, counts)
        self.dense.add_weights(frozen(self.segment.subscriptions.ptr), counts)

    def write(self, version: int, values: npt.NDArray[Any], cursor: Longs, ends: Longs, out: npt.NDArray[Any]) -> None:
        """Write the values, given by slot, of those subscriptions at each event's cursor, and move the cursors on."""
        self.dense.expand(frozen(self.segment.subscriptions.ptr), frozen(values), cursor, ends, out)
        self.listed.write(version, values, cursor, ends, out)


class Matches:
    """The result of matching a batch. Subscription ids are produced on demand.

    `rows` gives the original row of each event matched (rows are missing only with `on_error="skip"`, and then listed
    in `errors`); `version` is the version of the subscriptions that were matched.
    """

    def __init__(
        self, parts: Sequence[SegmentMatches | DenseMatches], rows: Longs, errors: list[EventError], version: int
    ) -> None:
        self.parts = parts
        self.rows = rows
        self.errors = errors
        self.version = version
        self._counts: Longs | None = None

    def __len__(self) -> int:
        """Number of events matched."""
        return int(self.rows.size)

    def counts(self) -> Longs:
        """Number of subscriptions that each event satisfies, without listing them. Do not write to the array."""
        if self._counts is None:
            counts = np.zeros(len(self), np.int64)
            for part in self.parts:
                part.add_counts(self.version, counts)
            self._counts = frozen(counts)
        return self._counts

    def total(self) -> int:
        """Number of (event, subscription) pairs."""
        return int(self.counts().sum())

    def _gather(
        self, counts: Longs, values_of: Callable[[int, Segment], npt.NDArray[Any]], dtype: Any
    ) -> npt.NDArray[Any]:
        """A value per pair, event by event; `values_of` gives those of a part by slot."""
        ends = counts.cumsum()
        cursor = ends - counts
        out = _allocate(int(ends[-1]) if ends.size else 0, dtype)
        for number, part in enumerate(self.parts):
            part.write(self.version, values_of(number, part.segment), cursor, ends, out)
        return out

    def subscription_ids(self) -> npt.NDArray[Any]:
        """Ids of all pairs, event by event, as they were given: an int64 array, or objects where some are strings."""
        if self._counts is None and len(self.parts) == 1:
            part = self.parts[0]
            if isinstance(part, SegmentMatches) and not part.segment.subscriptions.ids.are_texts:
                return part.list_ids(self.version)
        return self._ids(self.counts())

    def _ids(self, counts: Longs) -> npt.NDArray[Any]:
        tables = [part.segment.subscriptions.ids for part in self.parts]
        if all(isinstance(ids.values, np.ndarray) for ids in tables):
            return self._gather(counts, lambda number, _: tables[number].values, np.int64)
        # Strings are taken by slot, part by part, from the merged order of (part, slot).
        places = self._gather(counts, lambda number, s: np.arange(len(s)) | (number << 40), np.int64)
        out = np.empty(places.size, object)
        for number, ids in enumerate(tables):
            mine = np.flatnonzero(places >> 40 == number)
            out[mine] = ids.take(places[mine] & ((1 << 40) - 1))
        return out

    def places(self) -> Longs:
        """The place of each pair's subscription, in the order of `subscription_ids`; see `Engine.places`."""
        starts = np.cumsum([0, *(len(part.segment) for part in self.parts)])
        return self._gather(self.counts(), lambda number, s: np.arange(len(s)) + starts[number], np.int64)

    def pairs(self) -> tuple[Longs, npt.NDArray[Any]]:
        """(original event row, subscription id) as two arrays of equal length."""
        counts = self.counts()
        return np.repeat(self.rows, counts), self._ids(counts)

    def to_arrow(self) -> pa.Table:
        """Columns `event` and `subscription`.

        Ids come back as given: the second column is int64 or string or, where the engine has ids of both types, a dense
        union of the two.
        """
        counts = self.counts()
        return pa.table({"event": np.repeat(self.rows, counts), "subscription": self._id_array(counts)})

    def to_pandas(self) -> DataFrame:
        """Columns `event` and `subscription`, as `to_arrow`; ids of both types stand in one column of objects, as given."""
        events, ids = self.pairs()
        frame = pa.table({"event": events}).to_pandas()  # by Arrow, so that pandas is imported only here
        frame["subscription"] = ids
        return frame

    def to_pylist(self) -> list[dict[str, Any]]:
        """A dict with `event` and `subscription` for every match."""
        events, ids = self.pairs()
        return [{"event": e, "subscription": i} for e, i in zip(events.tolist(), ids.tolist(), strict=True)]

    def to_list_array(self) -> pa.ListArray:
        """The ids of each event matched, as an Arrow list array; of ids as in `to_arrow`."""
        counts = self.counts()
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        kind = pa.LargeListArray if offsets[-1] > _MOST_IN_LIST else pa.ListArray
        offsets = offsets if kind is pa.LargeListArray else offsets.astype(np.int32)
        return kind.from_arrays(pa.array(offsets), self._id_array(counts))

    def _id_array(self, counts: Longs) -> pa.Array:
        """`_ids` as Arrow; strings do not become Python objects on the way."""
        tables = [part.segment.subscriptions.ids for part in self.parts]
        types = {kind for ids in tables for kind in ids.types}
        if types != {str}:
            return id_array(self._ids(counts), types)
        tables = [ids for ids in tables if len(ids)]
        starts = np.cumsum([0, *(len(ids) for ids in tables)])
        places = self._gather(counts, lambda number, s: np.arange(len(s)) + starts[number], np.int64)
        texts = pa.concat_arrays([ids.values for ids in tables]).take(pa.array(places))
        return pc.utf8_slice_codeunits(texts, 1)

    def __iter__(self) -> Iterator[list[SubscriptionId]]:
        """The ids of each event matched."""
        return iter(self.to_lists())

    def to_lists(self) -> list[list[SubscriptionId]]:
        """The ids of each event matched."""
        counts = self.counts()
        ids, ends = self._ids(counts).tolist(), np.cumsum(counts).tolist()
        return [ids[end - count : end] for end, count in zip(ends, counts.tolist(), strict=True)]

    def __repr__(self) -> str:
        return f"Matches({self._summary()})"

    def _repr_html_(self) -> str:
        ids = self.to_lists()[:_SHOWN] if self.total() <= _FEW else None
        rows = [
            (event, count, "..." if ids is None else ", ".join(map(repr, ids[n])))
            for n, (event, count) in enumerate(zip(self.rows[:_SHOWN].tolist(), self.counts().tolist(), strict=False))
        ]
        header = ("event", "subscriptions", "ids")
        return html_table(f"Matches: {self._summary()}", header, rows, more=len(self) - len(rows))

    def _summary(self) -> str:
        skipped = f", {len(self.errors):,} skipped" if self.errors else ""
        return f"{len(self):,} events{skipped}, {self.total():,} matches, version {self.version}"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Matches cannot be pickled or copied: they refer to the engine's index; send to_arrow(), to_pandas() or to_lists()"
        )

    def top(self, limit: int) -> list[list[SubscriptionId]]:
        """At most `limit` ids per event, those of highest priority first (see `Engine.subscribe`)."""
        counts = self.counts()
        ids = self._ids(counts)
        weights = self._gather(counts, lambda _, segment: _priorities(segment), np.float32)
        order = np.lexsort((-weights, np.repeat(np.arange(len(self)), counts)))
        ends = np.cumsum(counts)
        return [
            ids[order[end - count : min(end, end - count + limit)]].tolist()
            for end, count in zip(ends.tolist(), counts.tolist(), strict=True)
        ]


def _allocate(size: int, dtype: Any) -> npt.NDArray[Any]:
    """An array to be filled. Arrow's pool keeps the pages of large ones; NumPy would ask the system for new ones."""
    size_bytes = size * np.dtype(dtype).itemsize
    if size_bytes < _LARGE:
        return np.empty(size, dtype)
    return np.frombuffer(pa.allocate_buffer(size_bytes), dtype)


def _priorities(segment: Segment) -> npt.NDArray[np.float32]:
    priorities = segment.subscriptions.priorities
    return np.zeros(len(segment), np.float32) if priorities is None else priorities
