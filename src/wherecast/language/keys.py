"""Values as sortable 64-bit keys.

Every fixed-width value has an order-preserving 64-bit key: integers, booleans, days and microseconds are their own;
a double's bits are rearranged so that integer order is Spark's order of doubles (-0.0 equals 0.0, NaN equals NaN and is
above everything). With keys, `<` is `<=` of the key below and every comparison with a constant is a closed interval.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

KEY_MIN = -(2**63)
KEY_MAX = 2**63 - 1
NAN_KEY = KEY_MAX

Int64s = npt.NDArray[np.int64]


def float_keys(values: npt.NDArray[np.float64]) -> Int64s:
    """Order-preserving keys of doubles."""
    bits = np.ascontiguousarray(values + 0.0).view(np.int64)  # adding 0.0 makes -0.0 positive
    keys = np.where(bits < 0, bits ^ np.int64(KEY_MAX), bits)
    return np.where(np.isnan(values), np.int64(NAN_KEY), keys)


def float_key(value: float) -> int:
    """Order-preserving key of one double that is not NaN."""
    bits: int = _LONG.unpack(_DOUBLE.pack(value + 0.0))[0]
    return bits ^ KEY_MAX if bits < 0 else bits


_DOUBLE, _LONG = struct.Struct("<d"), struct.Struct("<q")


def key_floats(keys: Int64s) -> npt.NDArray[np.float64]:
    """The doubles of keys made by `float_keys`; keys of no double are NaN."""
    bits = np.where(keys < 0, keys ^ np.int64(KEY_MAX), keys)
    return np.ascontiguousarray(bits).view(np.float64)
