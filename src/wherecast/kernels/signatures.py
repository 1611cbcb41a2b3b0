"""Signatures: 64-bit hashes of the values that events have in the routing attributes.

A value is its bytes: those of a string, the eight of a key. A value hashes alike wherever it comes from, a filter or an
event, and no codebook is needed to know it. NULL is a value of its own. A signature folds the values of the routing
attributes in order; its upper half says the bucket, its lower half is left to the summaries.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.jit import hot, inlined
from wherecast.kernels.strings import hash_bytes
from wherecast.kernels.arrays import Bools, Bytes, Ints, Words


_MULTIPLIER = np.uint64(0x9FB21C651E98DF25)
#: The hash of NULL.
NULL_HASH = np.uint64(0x5851F42D4C957F2D)
_HALF = np.uint64(32)


@inlined
def fold_value(signature: np.uint64, value: np.uint64) -> np.uint64:
    """A signature with one value more."""
    h = (signature ^ value) * _MULTIPLIER
    return h ^ (h >> _HALF)


@inlined
def bucket_of(signature: np.uint64, n_buckets: int) -> np.int64:
    """The bucket of a signature."""
    return np.int64(((signature >> _HALF) * np.uint64(n_buckets)) >> _HALF)


@inlined
def sign_row(
    datas: tuple[Bytes, ...], offsets: tuple[Ints, ...], valids: tuple[Bools, ...], row: int, seed: np.uint64
) -> np.uint64:
    """The signature of one event; all columns are bytes and offsets, so that one loop reads them."""
    signature = seed
    for a in range(len(datas)):
        value = NULL_HASH
        if valids[a][row]:
            value = hash_bytes(datas[a], offsets[a][row], offsets[a][row + 1], seed)
        signature = fold_value(signature, value)
    return signature


@hot
def sign_rows(
    datas: tuple[Bytes, ...], offsets: tuple[Ints, ...], valids: tuple[Bools, ...], seed: np.uint64, out: Words
) -> None:
    """The signatures of a batch."""
    for row in range(out.size):
        out[row] = sign_row(datas, offsets, valids, row, seed)


@hot
def hash_values(data: Bytes, offsets: Ints, seed: np.uint64, out: Words) -> None:
    """The hashes of single values, to be folded."""
    for i in range(out.size):
        out[i] = hash_bytes(data, offsets[i], offsets[i + 1], seed)


@hot
def fold_values(signatures: Words, values: Words) -> None:
    """Fold a value into each signature, in place."""
    for i in range(signatures.size):
        signatures[i] = fold_value(signatures[i], values[i])


@hot
def buckets_into(signatures: Words, n_buckets: int, out: npt.NDArray[np.int64]) -> None:
    """The bucket of every signature."""
    for i in range(signatures.size):
        out[i] = bucket_of(signatures[i], n_buckets)
