"""The dispatcher's loop: an event is hashed, finds its bucket, is tested by the summary of the bucket and sent on.

Theory of operation
-------------------
A *signature* is a 64-bit hash of the values that an event has in the routing attributes. A value is its bytes: those of a string, the eight of a key. A value hashes alike wherever it comes from, a filter or an
event, and no codebook is needed to know it. NULL is a value of its own. A signature folds the values of the routing
attributes in order; its upper half says the bucket, its lower half is left to the summaries.

A summary says whether a bucket may hold a signature. There are two:

*Bloom.* Bucket b owns the words `ptr[b] .. ptr[b + 1] - 1`, a power of two of them or none. The lower half of a signature
chooses one word of its bucket and, mixed, `BITS` bits in it: a test reads one word, whatever the size. A word filter lets
more through than a filter whose bits are spread, and pays for it with some bits more per signature.

*Dictionary.* An open-addressed table of signatures with the subscriptions behind each; 0 is a free slot, so no
signature is 0. A signature whose count has fallen to 0 keeps its slot until the table is made anew.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bools, Bytes, Ints, Longs, Words
from wherecast.kernels.codes import hash_bytes
from wherecast.kernels.jit import Scalar, hot, inlined

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
    return signature if signature != np.uint64(0) else np.uint64(1)  # 0 is a free slot of the dictionary


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


# -- summaries ---------------------------------------------------------------------------------------------------------


#: Bits that a signature sets in its word.
BITS = 5

_MIX = np.uint64(0xD6E8FEB86659FD93)
_ONE, _ZERO, _SIX = np.uint64(1), np.uint64(0), np.uint64(6)
_LAST_BIT = np.uint64(63)
_UPPER = np.uint64(64 - 6 * BITS)


@inlined
def word_of(signature: np.uint64, first: int, end: int) -> np.int64:
    """The word of a signature among those of its bucket, of which there is at least one."""
    return first + np.int64(signature & np.uint64(end - first - 1))


@inlined
def bits_of(signature: np.uint64) -> np.uint64:
    """The bits of a signature in its word: from the upper bits of a product, which depend on all bits of the signature."""
    mixed = (signature * _MIX) >> _UPPER
    bits = _ZERO
    for _ in range(BITS):
        bits |= _ONE << (mixed & _LAST_BIT)
        mixed >>= _SIX
    return bits


@inlined
def bloom_holds(ptr: Longs, words: Words, bucket: np.int64, signature: np.uint64) -> Scalar:
    """Whether the Bloom filter of a bucket may hold a signature."""
    first, end = ptr[bucket], ptr[bucket + 1]
    if first == end:
        return False
    bits = bits_of(signature)
    return words[word_of(signature, first, end)] & bits == bits


@hot
def set_bits(ptr: Longs, words: Words, signatures: Words) -> None:
    """Enter signatures, each into its bucket, which must own a word."""
    for signature in signatures:
        bucket = bucket_of(signature, ptr.size - 1)
        words[word_of(signature, ptr[bucket], ptr[bucket + 1])] |= bits_of(signature)


@hot
def test_bits(ptr: Longs, words: Words, signatures: Words, out: Bools) -> None:
    """Which signatures may be there."""
    for i in range(signatures.size):
        out[i] = bloom_holds(ptr, words, bucket_of(signatures[i], ptr.size - 1), signatures[i])


@inlined
def find_slot(keys: Words, signature: np.uint64) -> np.int64:
    """The slot of a signature, or the free one where it would go. Tables have a power of two slots, some of them free."""
    key = max(signature, _ONE)
    mask = np.uint64(keys.size - 1)
    slot = (key * _MIX) >> np.uint64(17) & mask
    while keys[np.int64(slot)] != key and keys[np.int64(slot)] != _ZERO:
        slot = (slot + _ONE) & mask
    return np.int64(slot)


@hot
def add_counts(keys: Words, counts: Longs, signatures: Words, weights: Longs, fresh: Bools) -> int:
    """Add to the counts of signatures; `fresh` are those that were not there. Returns the slots newly taken."""
    taken = 0
    for i in range(signatures.size):
        slot = find_slot(keys, signatures[i])
        if keys[slot] == _ZERO:
            keys[slot] = max(signatures[i], _ONE)
            taken += 1
        fresh[i] = counts[slot] == 0
        counts[slot] += weights[i]
    return taken


@hot
def take_counts(keys: Words, counts: Longs, signatures: Words, weights: Longs, gone: Bools) -> None:
    """Take from the counts of signatures, down to 0; `gone` are those of which nothing is left."""
    for i in range(signatures.size):
        slot = find_slot(keys, signatures[i])
        before = counts[slot]
        counts[slot] = max(before - weights[i], 0)
        gone[i] = before > 0 and counts[slot] == 0


@hot
def test_keys(keys: Words, counts: Longs, signatures: Words, out: Bools) -> None:
    """Which signatures are there."""
    for i in range(signatures.size):
        out[i] = counts[find_slot(keys, signatures[i])] > 0


# -- the loop ----------------------------------------------------------------------------------------------------------


#: How an event is tested: not at all, by Bloom filters, by the dictionary.
UNTESTED, BY_BLOOM, BY_DICTIONARY = 0, 1, 2


@hot
def dispatch_events(
    datas: tuple[Bytes, ...],
    offsets: tuple[Ints, ...],
    valids: tuple[Bools, ...],
    seed: np.uint64,
    table: Ints,
    test: int,
    ptr: Longs,
    words: Words,
    keys: Words,
    counts: Longs,
    residual: int,
    event_ids: Longs,
    servers: Ints,
) -> int:
    """Fill pairs of event and server, and return their number.

    `residual` is a server that sees all events, or negative. The pairs need room for one per event, two with a residual.
    """
    n = 0
    for row in range(valids[0].size):
        if residual >= 0:
            event_ids[n], servers[n] = row, residual
            n += 1
        signature = sign_row(datas, offsets, valids, row, seed)
        bucket = bucket_of(signature, table.size)
        if test == BY_BLOOM:
            if not bloom_holds(ptr, words, bucket, signature):
                continue
        elif test == BY_DICTIONARY:
            if counts[find_slot(keys, signature)] == 0:
                continue
        event_ids[n], servers[n] = row, table[bucket]
        n += 1
    return n
