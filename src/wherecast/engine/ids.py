"""Subscription ids: integers or strings, kept compactly and given back as they came."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.engine.checks import END_INTEGER, LEAST_INTEGER, SubscriptionId, check_id
from wherecast.errors import SubscriptionError
from wherecast.index.bounds import StoredArrays
from wherecast.kernels.arrays import Ints, Longs
from wherecast.kernels.codes import find_places, find_texts
from wherecast.kernels.jit import frozen

#: Ids on their way: an int64 array, or a list where some are strings.
IdColumn = npt.NDArray[np.int64] | list[Any]

#: Ids that somebody lists.
IdList: TypeAlias = pa.Array | pa.ChunkedArray | npt.NDArray[Any] | Iterable[SubscriptionId]

#: An integer id as it is stored beside texts.
_INTEGER = r"^i-?[0-9]+\z"


def read_ids(source: IdList) -> IdColumn:
    """Ids that somebody lists: an Arrow or NumPy array, or anything to iterate over. Raises SubscriptionError."""
    if isinstance(source, pa.Array | pa.ChunkedArray):
        source = arrow_values(source)
    if isinstance(source, np.ndarray):
        if source.dtype.kind == "i":
            return np.asarray(source, np.int64)
        source = source.tolist()
    if isinstance(source, str | bytes) or not isinstance(source, Iterable):
        raise SubscriptionError(f"expected ids in a list or an array, found {type(source).__name__}")
    ids = []
    for row, id in enumerate(source):
        try:
            ids.append(check_id(id))
        except SubscriptionError as error:
            raise SubscriptionError(f"row {row}: {error}") from None
    return _compact(ids)


def arrow_values(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64] | list[Any]:
    """Values of an Arrow column: an int64 array if they fit, else Python's; text that is not UTF-8 stays bytes."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_integer(values.type) and not values.null_count and not pa.types.is_uint64(values.type):
        return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)
    try:
        listed: list[Any] = values.to_pylist()
    except UnicodeDecodeError:
        listed = [_decoded(v) for v in values.cast(pa.large_binary(), safe=False).to_pylist()]
    return listed


def _decoded(value: bytes | None) -> str | bytes | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


# -- columns of ids ---------------------------------------------------------------------------------------------------


def _compact(ids: list[SubscriptionId]) -> IdColumn:
    """Ids as one array if all of them are integers of 64 bits."""
    if all(type(i) is int and LEAST_INTEGER <= i < END_INTEGER for i in ids):
        return np.array(ids, np.int64)
    return ids


def join_ids(parts: Sequence[npt.NDArray[Any]]) -> IdColumn:
    """Ids of several parts; one int64 array where all are."""
    if all(p.dtype != object for p in parts):
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)
    return [i for p in parts for i in p.tolist()]


def take_ids(ids: IdColumn, rows: Longs) -> IdColumn:
    return ids[rows] if isinstance(ids, np.ndarray) else [ids[r] for r in rows.tolist()]


def id_at(ids: IdColumn, row: int) -> Any:
    return ids[row] if isinstance(ids, list) else int(ids[row])


def number_ids(ids: IdColumn) -> Longs:
    """A number for each id, equal for equal ones."""
    if isinstance(ids, np.ndarray):
        return ids
    known: dict[SubscriptionId, int] = {}
    return np.fromiter((known.setdefault(id, len(known)) for id in ids), np.int64, len(ids))


def without_ids(ids: IdColumn, others: IdColumn) -> IdColumn:
    """The ids that are not among the others."""
    if isinstance(ids, np.ndarray) and isinstance(others, np.ndarray):
        return ids[np.isin(ids, others, invert=True)]
    gone = set(others if isinstance(others, list) else others.tolist())
    return _compact([i for i in (ids if isinstance(ids, list) else ids.tolist()) if i not in gone])


def id_array(ids: npt.NDArray[Any], types: Collection[type]) -> pa.Array:
    """Ids as Arrow: int64, string or, where an engine has ids of both types, a dense union of the two."""
    try:
        if str not in types:
            return pa.array(ids.tolist() if ids.dtype == object else ids, pa.int64())
        listed = ids.tolist()
        if int not in types:
            return pa.array(listed, pa.string())
        is_text = np.fromiter((isinstance(i, str) for i in listed), np.bool_, len(listed))
        within = np.where(is_text, np.cumsum(is_text), np.cumsum(~is_text)) - 1
        values = [pa.array(ids[~is_text].tolist(), pa.int64()), pa.array(ids[is_text].tolist(), pa.string())]
    except OverflowError:
        raise SubscriptionError(
            "an id of an older version has more than 64 bits and does not fit in Arrow; register it again as a string"
        ) from None
    kinds = pa.array(is_text.astype(np.int8))
    return pa.UnionArray.from_dense(kinds, pa.array(within.astype(np.int32)), values, ["integer", "string"])


# -- tables -----------------------------------------------------------------------------------------------------------


class Ids:
    """Ids by slot, with a sorted order for finding them. Integers are one array, of 32 bits if these suffice; else texts.

    A text is the id behind a letter: `i` for an integer, `s` for a string, so that 7 and "7" stay apart.
    """

    def __init__(
        self, values: npt.NDArray[np.int32] | npt.NDArray[np.int64] | pa.Array, order: Ints | None = None
    ) -> None:
        self.values = values
        self.order = _sorted_order(values) if order is None else order
        # Views yield plain integers; NumPy's own search would first convert the whole order.
        self._order_view = memoryview(self.order)  # type: ignore[arg-type]
        self._values_view = memoryview(values) if isinstance(values, np.ndarray) else None  # type: ignore[arg-type]

    @classmethod
    def of(cls, ids: Sequence[SubscriptionId] | npt.NDArray[np.int64]) -> Ids:
        column = ids if isinstance(ids, np.ndarray) else _compact(list(ids))
        if isinstance(column, np.ndarray):
            return cls(_narrow(column))
        return cls(pa.array([id_text(i) for i in column], pa.string()))

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def types(self) -> frozenset[type]:
        """Which of `int` and `str` there are."""
        if not len(self.values):
            return frozenset()
        if isinstance(self.values, np.ndarray):
            return frozenset({int})
        ends = (self.values[int(self.order[place])].as_py() for place in (0, -1))  # an i comes before an s
        return frozenset(str if text[0] == "s" else int for text in ends)

    @cached_property
    def _letters(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
        return _letters(self.values)

    @cached_property
    def _letter_views(self) -> tuple[memoryview, memoryview]:
        ptr, letters = self._letters
        return memoryview(ptr), memoryview(letters)  # type: ignore[arg-type]

    def find(self, id: SubscriptionId) -> int:
        """Slot of an id, -1 if there is none."""
        values, order = self._values_view, self._order_view
        if values is not None:
            if not isinstance(id, int) or not LEAST_INTEGER <= id < END_INTEGER:
                return -1
            place = bisect_left(order, id, key=values.__getitem__)
            return order[place] if place < len(order) and values[order[place]] == id else -1
        return int(self.find_many([id])[0])

    def find_many(self, ids: IdColumn) -> Longs:
        """Slots of ids, -1 where there is none."""
        slots, order = np.empty(len(ids), np.int64), frozen(self.order)
        if isinstance(self.values, pa.Array):
            listed = ids.tolist() if isinstance(ids, np.ndarray) else ids
            wanted = pa.array([id_text(i) for i in listed], pa.string())
            find_texts(*self._letters, order, *_letters(wanted), slots)
        elif isinstance(ids, np.ndarray):
            find_places(frozen(self.values), order, frozen(np.ascontiguousarray(ids)), slots)
        else:
            slots[:] = [self.find(id) for id in ids]
        return slots

    def take(self, slots: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Ids of slots: an int64 array, or an object array of strings and integers."""
        if isinstance(self.values, np.ndarray):
            return np.asarray(self.values[slots], np.int64)
        texts = self.values.take(pa.array(slots)).to_pylist()
        return np.fromiter(map(id_of, texts), object, len(texts))

    @property
    def are_texts(self) -> bool:
        """Whether not all ids are integers of 64 bits."""
        return self._values_view is None

    def listed(self, slots: Iterable[Any]) -> list[SubscriptionId]:
        """Ids of a few slots, where `are_texts`: `take` without Arrow."""
        ptr, letters = self._letter_views
        texts = (str(letters[ptr[slot] : ptr[slot + 1]], "utf-8") for slot in slots)
        return [id_of(text) for text in texts]

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes + self.order.nbytes)


def open_ids(stored: StoredArrays) -> Ids:
    """Ids out of a file; raises SnapshotError if one is not an id, or the order names a slot that does not exist."""
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


def id_text(id: SubscriptionId) -> str:
    """An id as it is stored beside others that are not all integers."""
    return f"s{id}" if isinstance(id, str) else f"i{id}"


def id_of(text: str) -> SubscriptionId:
    """The id that such a text is."""
    return text[1:] if text[0] == "s" else int(text[1:])


def _letters(texts: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """Where each text begins in the bytes of all, and these."""
    _, ptr, letters = texts.buffers()
    wide = pa.types.is_large_string(texts.type)
    every = np.frombuffer(ptr or bytes(8), np.int64 if wide else np.int32)
    offsets = every[texts.offset : texts.offset + len(texts) + 1]
    return frozen(offsets), frozen(np.frombuffer(letters or b"", np.uint8))


def _narrow(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int32] | npt.NDArray[np.int64]:
    fits = not values.size or (values.min() >= -(2**31) and values.max() < 2**31)
    return values.astype(np.int32) if fits else values


def _sorted_order(values: npt.NDArray[Any] | pa.Array) -> Ints:
    if isinstance(values, np.ndarray):
        return np.argsort(values, kind="stable").astype(np.int32)
    texts = values.to_pylist()  # Arrow sorts by bytes, Python by code points: the same order
    return np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int32)
