"""Keys to codes: a bucket table, then a short binary search.

A plain binary search over 100,000 starts takes about 100 ns, more than matching does on many workloads. So the range of
the starts is cut into equal buckets, about one per two starts, and a table says where each bucket's starts begin: what is
left to search is a step or two (8 ns). Equal means equal in key space; or, for integers that crowd at one end (volumes,
prices in cents), in the bits of their double, which is about logarithmic; or, for doubles, in value, because the keys
of values around zero are far apart. `index.codes` tries what applies and keeps what spreads best.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.jit import hot, inlined
from wherecast.kernels.arrays import Ints, Longs

Scale = int

#: How buckets divide the range of the starts. By key and by logarithm: `low` is the lowest, `step` a shift. By value: both
#: are the bits of a double, the lowest value and the buckets per unit.
BY_KEY, BY_LOGARITHM, BY_VALUE = 0, 1, 2

_KEY_MAX = np.int64(2**63 - 1)
_KEY_MIN = np.int64(-(2**63))
_INFINITY_KEY = np.int64(0x7FF0000000000000)


@inlined
def float_key(value: float) -> np.int64:
    """Sortable key of a double: -0.0 equals 0.0, NaN is above everything."""
    if value != value:
        return _KEY_MAX
    bits = np.float64(value).view(np.int64)
    if bits == _KEY_MIN:  # -0.0
        return np.int64(0)
    return bits ^ _KEY_MAX if bits < 0 else bits


@hot
def float_keys_into(values: npt.NDArray[np.float64], keys: Longs) -> None:
    """Sortable keys of doubles."""
    for i in range(values.size):
        keys[i] = float_key(values[i])


@inlined
def as_float(bits: np.int64) -> np.float64:
    """The double with these bits."""
    return np.int64(bits).view(np.float64)


@inlined
def key_float(key: np.int64) -> np.float64:
    """The double with this key; a key of no double is some NaN."""
    if key < 0:
        return as_float(key ^ _KEY_MAX)
    return as_float(key)


@inlined
def bucket_of(key: np.int64, scale: Scale, low: np.int64, step: np.int64, last: int) -> np.int64:
    """Bucket of a key; `low` and `step` are in the space of the buckets, as `Scale` says."""
    if scale == BY_VALUE:
        if key > _INFINITY_KEY:  # NaN, and keys of integers that are no double's
            return np.int64(last)
        place = (key_float(key) - as_float(low)) * as_float(step)
        if not place > 0:
            return np.int64(0)
        return np.int64(last) if place >= last else np.int64(place)
    at = float_key(np.float64(key)) if scale == BY_LOGARITHM else key
    if at < low:
        return np.int64(0)
    bucket = np.uint64(at) - np.uint64(low) >> np.uint64(step)  # unsigned: the distance may pass 2**63
    return np.int64(last) if bucket > np.uint64(last) else np.int64(bucket)


@hot
def encode_keys(
    starts: Longs, table: Ints, scale: Scale, low: np.int64, step: np.int64, keys: Longs, out: Ints
) -> None:
    """out[i] = 1 + number of starts not above keys[i]. Bucket b's starts are table[b] .. table[b + 1] - 1."""
    last = table.size - 2
    for i in range(keys.size):
        key = keys[i]
        bucket = bucket_of(key, scale, low, step, last)
        first, end = table[bucket], table[bucket + 1]
        while first < end:
            middle = (first + end) >> 1
            if starts[middle] <= key:
                first = middle + 1
            else:
                end = middle
        out[i] = first + 1


@hot
def buckets_into(keys: Longs, scale: Scale, low: np.int64, step: np.int64, last: int, out: Longs) -> None:
    """The bucket of every key (for building a table)."""
    for i in range(keys.size):
        out[i] = bucket_of(keys[i], scale, low, step, last)
