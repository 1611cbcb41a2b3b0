"""Subscription ids: integers or strings, kept compactly and given back as they came."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.errors import SubscriptionError
from wherecast.index.bounds import Stored

SubscriptionId = str | int

Int32s = npt.NDArray[np.int32]

#: An integer id as it is stored beside texts.
_INTEGER = r"^i-?[0-9]+\z"


def check_id(id: object) -> None:
    if not isinstance(id, (str, int)) or isinstance(id, bool):
        raise SubscriptionError(f"a subscription id is a string or an integer, found {type(id).__name__} {id!r:.40}")


class Ids:
    """Ids by slot, with a sorted order for finding them. Integers are one array, of 32 bits if these suffice; else texts.

    A text is the id behind a letter: `i` for an integer, `s` for a string, so that 7 and "7" stay apart.
    """

    def __init__(
        self, values: npt.NDArray[np.int32] | npt.NDArray[np.int64] | pa.Array, order: Int32s | None = None
    ) -> None:
        self.values = values
        self.order = _sorted_order(values) if order is None else order
        # Views yield plain integers; NumPy's own search would first convert the whole order.
        self._order_view = memoryview(self.order)  # type: ignore[arg-type]
        self._values_view = memoryview(values) if isinstance(values, np.ndarray) else None  # type: ignore[arg-type]

    @classmethod
    def of(cls, ids: Sequence[SubscriptionId] | npt.NDArray[np.int64]) -> Ids:
        if isinstance(ids, np.ndarray):
            return cls(_narrow(ids))
        if all(type(i) is int and -(2**63) <= i < 2**63 for i in ids):
            return cls(_narrow(np.array(ids, np.int64)))
        return cls(pa.array([_text(i) for i in ids], pa.string()))

    def __len__(self) -> int:
        return len(self.values)

    def find(self, id: SubscriptionId) -> int:
        """Slot of an id, -1 if there is none."""
        values, order = self._values_view, self._order_view
        if values is not None:
            if not isinstance(id, int) or not -(2**63) <= id < 2**63:
                return -1
            place = bisect_left(order, id, key=values.__getitem__)
            return order[place] if place < len(order) and values[order[place]] == id else -1
        text = _text(id)
        place = bisect_left(self.order, text, key=lambda slot: self.values[int(slot)].as_py())
        slot = int(self.order[place]) if place < len(self.order) else -1
        return slot if slot >= 0 and self.values[slot].as_py() == text else -1

    def take(self, slots: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Ids of slots: an int64 array, or an object array of strings and integers."""
        if isinstance(self.values, np.ndarray):
            return np.asarray(self.values[slots], np.int64)
        texts = self.values.take(pa.array(slots)).to_pylist()
        return np.fromiter((t[1:] if t[0] == "s" else int(t[1:]) for t in texts), object, len(texts))

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes + self.order.nbytes)


def open_ids(stored: Stored) -> Ids:
    """Ids out of a file; raises SnapshotError if one is no id, or the order names a slot that there is not."""
    values: Any = stored.array("values")
    if isinstance(values, pa.Array):
        stored.require(values.type == pa.string() and not values.null_count, "values", "does not hold ids")
        numbers = pc.filter(values, pc.invert(pc.starts_with(values, "s")))
        stored.require(pc.all(pc.match_substring_regex(numbers, _INTEGER)).as_py() is not False, "values", "has no ids")
        longest = pc.max(pc.binary_length(numbers)).as_py() or 0
        stored.require(longest <= sys.int_info.default_max_str_digits, "values", "has an id that is too long")
    else:
        values = stored.column("values", np.int32, np.int64)
    order = stored.column("order", np.int32, size=len(values))
    stored.within(order, 0, len(values), "order")
    return Ids(values, order)


def _text(id: SubscriptionId) -> str:
    return f"s{id}" if isinstance(id, str) else f"i{id}"


def _narrow(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int32] | npt.NDArray[np.int64]:
    fits = not values.size or (values.min() >= -(2**31) and values.max() < 2**31)
    return values.astype(np.int32) if fits else values


def _sorted_order(values: npt.NDArray[Any] | pa.Array) -> Int32s:
    if isinstance(values, np.ndarray):
        return np.argsort(values, kind="stable").astype(np.int32)
    texts = values.to_pylist()  # Arrow sorts by bytes, Python by code points: the same order
    return np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int32)


def join_ids(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any] | list[SubscriptionId]:
    """Ids of several parts; one int64 array where all are."""
    if all(p.dtype != object for p in parts):
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)
    return [i for p in parts for i in p.tolist()]


def take_ids(ids: npt.NDArray[np.int64] | list[Any], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | list[Any]:
    return ids[rows] if isinstance(ids, np.ndarray) else [ids[r] for r in rows.tolist()]
