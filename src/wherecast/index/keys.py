"""Codes of an attribute with 64-bit keys: numbers, moments, booleans (see `codes`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.index.bounds import StoredArrays
from wherecast.kernels.arrays import Bytes, Ints, Longs
from wherecast.kernels.codes import (
    BY_KEY,
    BY_LOGARITHM,
    BY_VALUE,
    buckets_into,
    encode_column,
    encode_double,
    encode_key,
    encode_keys,
    float_keys_into,
)
from wherecast.kernels.jit import address_of, direct, frozen
from wherecast.language.events.keys import key_floats


class KeyCodes:
    """Codes of an attribute with 64-bit keys: one more than the number of cell starts not above the key."""

    def __init__(self, starts: Longs, table: Ints, facts: Longs) -> None:
        self.starts = starts  # sorted, distinct: where a new cell begins
        self._table = table  # see kernels.codes
        self._facts = facts  # scale, low and step of the buckets
        scale, low, step = facts.tolist()
        self._read_only = frozen(starts), frozen(table), scale, low, step  # what kernels are given
        self._widest = int((table[1:] - table[:-1]).max())  # starts of the largest bucket

    @classmethod
    def of(cls, starts: Longs) -> KeyCodes:
        return cls(starts, *_bucket_table(starts))

    @property
    def width(self) -> int:
        return int(self.starts.size) + 2

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays().values())

    def encode_keys(self, keys: Longs) -> Ints:
        out = np.empty(keys.size, np.int32)
        self._encode_into(keys, out)
        return out

    @cached_property
    def _encode_into(self) -> Callable[[Longs, Ints], None]:
        given = *self._read_only, self._widest
        example = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return partial(direct(encode_keys, *given, *example), *given)

    @cached_property
    def encode_key(self) -> Callable[[int], int]:
        """Gives the code of one key."""
        return partial(direct(encode_key, *self._read_only, 0), *self._read_only)

    @cached_property
    def encode_double(self) -> Callable[[float], int]:
        """Gives the code of one double."""
        return partial(direct(encode_double, *self._read_only, 0.0), *self._read_only)

    def encode(self, values: pa.Array) -> Ints:
        codes = np.zeros((len(values), 1), np.int32)
        self.encode_into(values, codes, 0)
        return codes.ravel()

    def encode_into(self, values: pa.Array, codes: Ints, column: int) -> None:
        """Codes of a canonical column to codes[:, column], which is 0."""
        size = len(values)
        if not size:
            return
        kind = values.type.id
        if kind not in _STORED:
            values = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
            values = values.cast(pa.float64() if pa.types.is_floating(values.type) else pa.int64())
            kind = values.type.id
        bitmap, stored = values.buffers()
        valid = np.frombuffer(bitmap, np.uint8) if values.null_count else _ALL_VALID
        bits = np.frombuffer(stored, np.int64, size, 8 * values.offset)
        self._encode_column(bits, kind == _DOUBLE, valid, values.offset, np.empty(128, np.int64), column, codes)

    @cached_property
    def _encode_column(self) -> Callable[[Longs, bool, Bytes, int, Longs, int, Ints], None]:
        given, none = (*self._read_only, self._widest), np.zeros(0, np.int64)
        example = none, 0, _ALL_VALID, 0, none, 0, np.zeros((1, 1), np.int32)
        return partial(direct(encode_column, *given, *example), *given)

    def job(self) -> tuple[int, ...]:
        """Sizes, facts and addresses of the arrays, as `kernels.stored_columns` wants them."""
        starts, table = self.starts, self._table
        return starts.size, table.size, *self._facts.tolist(), address_of(starts), address_of(table), self._widest

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The whole state, by name."""
        return {"starts": self.starts, "table": self._table, "facts": self._facts}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> KeyCodes:
        """The codes whose `arrays()` these are, used in place. Raises SnapshotError if they cannot be."""
        _check_keys(StoredArrays(arrays, "codes of keys"))
        return cls(arrays["starts"], arrays["table"], arrays["facts"])


#: What `encode_into` reads as it is: canonical types of 64 bits.
_DOUBLE = pa.float64().id
_STORED = frozenset({_DOUBLE, pa.int64().id, pa.timestamp("us").id})
_ALL_VALID = frozen(np.zeros(0, np.uint8))


def _check_keys(stored: StoredArrays) -> None:
    """Sorted starts, buckets that are ranges of them, and a scale whose shift is one."""
    starts, table = stored.column("starts", np.int64), stored.column("table", np.int32)
    stored.require((starts[1:] > starts[:-1]).all(), "starts", "is not sorted")
    stored.require(table.size >= 2, "table", "has no bucket")
    stored.offsets(table, starts.size, "table")
    scale, _, step = stored.column("facts", np.int64, size=3).tolist()
    known = scale == BY_VALUE or (scale in (BY_KEY, BY_LOGARITHM) and 0 <= step < 64)
    stored.require(known, "facts", f"has no scale {scale} with step {step}")


def _bucket_table(starts: Longs) -> tuple[Ints, Longs]:
    """A bucket table (see kernels.codes) on the scale that spreads the starts best."""
    if not starts.size:
        return np.zeros(2, np.int32), np.zeros(3, np.int64)
    best: tuple[float, Ints, Longs] | None = None
    for scale, low, step, last in _scales(starts):
        buckets = np.empty(starts.size, np.int64)
        buckets_into(starts, scale, low, step, last, buckets)
        sizes = np.bincount(buckets, minlength=last + 1)
        spread = float((sizes.astype(np.float64) ** 2).sum())
        if best is None or spread < best[0]:
            table = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
            best = spread, table, np.array([scale, low, step], np.int64)
    assert best is not None
    return best[1], best[2]


#: Up to so many buckets, there are four for each start, beyond one for two: then most have one start at most, and take 8 KB.
_MANY_BUCKETS = 2048


def _scales(starts: Longs) -> Iterator[tuple[int, np.int64, np.int64, int]]:
    """(scale, low, step, last bucket) of every scale that applies, for about so many buckets."""
    wanted = max(starts.size // 2, min(4 * starts.size, _MANY_BUCKETS))
    logs = np.empty(starts.size, np.int64)
    float_keys_into(starts.astype(np.float64), logs)
    for scale, places in ((BY_KEY, starts), (BY_LOGARITHM, logs)):
        span = int(places[-1]) - int(places[0])
        shift = max(0, span.bit_length() - wanted.bit_length())
        yield scale, np.int64(places[0]), np.int64(shift), span >> shift
    values = key_floats(starts)
    values = values[np.isfinite(values)]
    with np.errstate(over="ignore", divide="ignore"):
        per_unit = wanted / (values[-1] - values[0]) if values.size else np.inf
    if 0 < per_unit < np.inf:  # keys of integers are tiny numbers as doubles: then this scale spreads nothing
        low, step = np.array([values[0], per_unit]).view(np.int64)
        yield BY_VALUE, low, step, wanted
