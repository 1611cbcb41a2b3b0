"""Summaries: what a dispatcher knows of the signatures that servers want.

A summary is a *cover*: it may let an event through that nobody wants, it never holds one back that somebody does. It takes
in new signatures at once; removed ones leave it when it is built anew from what is left. `Bloom` is small and imprecise, by
a dial; `Dictionary` is exact. The bounding boxes of filter-set partitioning (`cover`) are covers of another kind: of points,
not of signatures.

Theory of operation of the Bloom filters
----------------------------------------
All are in one array, one per bucket (Event Distribution Network, section III.A). So a bucket can move to another server without
rebuilding anything: its words move along. Each bucket owns a power of two words of 64 bits; a signature sets a few bits in
one of them (`kernels.dispatch`), so a test costs one memory access. One Bloom filter per server would save at most the
rounding, 8 bytes per bucket and half of the words, and would have to be rebuilt with every move.

Sizes are powers of two so that a filter can be *folded*: the OR of its two halves is the filter of half the size that the
same signatures would have made. That is how covers of different sizes are merged, and how one is made coarser for the
next dispatcher up.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bools, Longs, Words
from wherecast.kernels.dispatch import BITS, add_counts, buckets_into, set_bits, take_counts, test_bits, test_keys


class Dictionary:
    """The signatures themselves, each with the subscriptions behind it: exact, and the ledger of a partition.

    A hash table at no more than half load. Being exact it needs no rebuilding: a signature is gone with its last
    subscription.
    """

    def __init__(self, keys: Words, counts: Longs) -> None:
        self.keys = keys  # a power of two slots; 0: free
        self.counts = counts
        self._taken = int(np.count_nonzero(keys))
        self._alive = int(np.count_nonzero(counts))

    @classmethod
    def empty(cls) -> Self:
        return cls(np.zeros(16, np.uint64), np.zeros(16, np.int64))

    @classmethod
    def build(cls, signatures: Words) -> Self:
        """A dictionary of these signatures, each as often as it is there."""
        new = cls.empty()
        new.insert(signatures)
        return new

    def __len__(self) -> int:
        """Distinct signatures."""
        return self._alive

    def insert(self, signatures: Words) -> None:
        """One more subscription behind each."""
        self.add(signatures, np.ones(signatures.size, np.int64))

    def add(self, signatures: Words, weights: Longs) -> Bools:
        """Add subscriptions, and say which signatures are new; one that comes twice is new once."""
        if 2 * (self._taken + signatures.size) > self.keys.size:
            self._resize(np.unique(signatures).size)
        fresh = np.empty(signatures.size, bool)
        self._taken += add_counts(self.keys, self.counts, signatures, weights, fresh)
        self._alive += int(fresh.sum())
        return fresh

    def take(self, signatures: Words, weights: Longs) -> Bools:
        """Take subscriptions away, and say which signatures are gone."""
        gone = np.empty(signatures.size, bool)
        take_counts(self.keys, self.counts, signatures, weights, gone)
        self._alive -= int(gone.sum())
        return gone

    def _resize(self, coming: int) -> None:
        """A table with room for more; signatures that are gone leave their slots."""
        signatures, counts = self.signatures(), self.counts[self.counts > 0]
        size = 1 << max(4, (2 * (signatures.size + coming)).bit_length())
        self.keys, self.counts = np.zeros(size, np.uint64), np.zeros(size, np.int64)
        fresh = np.empty(signatures.size, bool)
        self._taken = add_counts(self.keys, self.counts, signatures, counts, fresh)

    def signatures(self) -> Words:
        """The distinct signatures, in no particular order."""
        return self.keys[self.counts > 0]

    def merge(self, other: Self) -> Self:
        """A dictionary of both, counts added."""
        new = type(self)(self.keys.copy(), self.counts.copy())
        new.add(other.signatures(), other.counts[other.counts > 0])
        return new

    def may_hold(self, signatures: Words) -> Bools:
        """Which signatures are there."""
        out = np.empty(signatures.size, bool)
        test_keys(self.keys, self.counts, signatures, out)
        return out

    def false_positive_rate(self) -> float:
        """None pass that are not there."""
        return 0.0

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.counts.nbytes

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The signatures and their counts; the table is made again from them."""
        return {"signatures": self.signatures(), "counts": self.counts[self.counts > 0]}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> Self:
        new = cls.empty()
        new.add(arrays["signatures"], arrays["counts"])
        return new


#: Bits per signature at least; sizes are rounded up. At 14 bits 0.6 % of the others pass, at 28 bits 0.1 %.
BITS_PER_SIGNATURE = 14


class Bloom:
    """A Bloom filter for each bucket."""

    def __init__(self, ptr: Longs, words: Words) -> None:
        self.ptr = ptr  # (buckets + 1,) words of bucket b are ptr[b]:ptr[b + 1]: none, or a power of two
        self.words = words

    @classmethod
    def build(cls, signatures: Words, n_buckets: int = 1, bits: int = BITS_PER_SIGNATURE) -> Self:
        """Filters for distinct signatures, with at least this many bits for each."""
        found = np.bincount(buckets_of(signatures, n_buckets), minlength=n_buckets)
        wanted = np.maximum(-(-found * bits // 64), 1)
        sizes = 1 << np.ceil(np.log2(wanted)).astype(np.int64)
        ptr = np.concatenate(([0], np.cumsum(sizes)))
        new = cls(ptr, np.zeros(ptr[-1], np.uint64))
        new.insert(signatures)
        return new

    @property
    def n_buckets(self) -> int:
        return self.ptr.size - 1

    def insert(self, signatures: Words) -> None:
        """Cover these too. Filters do not grow, so the more are inserted the more others pass: build anew in time."""
        sizes = np.diff(self.ptr)
        homeless = np.unique(buckets_of(signatures, self.n_buckets))
        homeless = homeless[sizes[homeless] == 0]
        if homeless.size:
            self.words = np.insert(self.words, self.ptr[homeless], np.uint64(0))
            sizes[homeless] = 1
            self.ptr = np.concatenate(([0], np.cumsum(sizes)))
        set_bits(self.ptr, self.words, signatures)

    def may_hold(self, signatures: Words) -> Bools:
        """Which signatures pass."""
        out = np.empty(signatures.size, bool)
        test_bits(self.ptr, self.words, signatures, out)
        return out

    def false_positive_rate(self) -> float:
        """The share of signatures inserted nowhere that pass, if they fall evenly over the buckets: from the bits set."""
        sizes = np.diff(self.ptr)
        owned = np.flatnonzero(sizes)
        if not owned.size:
            return 0.0
        passing = (np.bitwise_count(self.words) / 64.0) ** BITS
        return float((np.add.reduceat(passing, self.ptr[owned]) / sizes[owned]).sum() / self.n_buckets)

    def take(self, buckets: npt.NDArray[np.integer[Any]]) -> Self:
        """The filters of some buckets; the others hold nothing. This is what a server reports to its dispatcher."""
        sizes = np.zeros(self.n_buckets, np.int64)
        sizes[buckets] = np.diff(self.ptr)[buckets]
        kept = np.repeat(sizes > 0, np.diff(self.ptr))
        return type(self)(np.concatenate(([0], np.cumsum(sizes))), self.words[kept])

    def fold(self, sizes: Longs) -> Self:
        """A coarser cover: bucket b with `sizes[b]` words, a power of two and no more than it has."""
        now = np.diff(self.ptr)
        ptr = np.concatenate(([0], np.cumsum(sizes)))
        within = np.arange(self.words.size) - np.repeat(self.ptr[:-1], now)
        place = np.repeat(ptr[:-1], now) + (within & np.repeat(sizes - 1, now))
        words = np.zeros(ptr[-1], np.uint64)
        np.bitwise_or.at(words, place, self.words)
        return type(self)(ptr, words)

    def coarser(self) -> Self:
        """A cover of about half the size."""
        sizes = np.diff(self.ptr)
        return self.fold(np.where(sizes > 1, sizes >> 1, sizes))

    def merge(self, other: Self) -> Self:
        """A cover of what either covers: filters of one bucket are folded to the smaller size and ORed."""
        if other.n_buckets != self.n_buckets:
            raise ValueError(f"Bloom filters of {self.n_buckets} and {other.n_buckets} buckets do not merge")
        mine, others = np.diff(self.ptr), np.diff(other.ptr)
        sizes = np.where((mine > 0) & (others > 0), np.minimum(mine, others), np.maximum(mine, others))
        words = np.zeros(sizes.sum(), np.uint64)
        ptr = np.concatenate(([0], np.cumsum(sizes)))
        for part, own in ((self, mine), (other, others)):
            folded = part.fold(np.where(own > 0, sizes, 0))
            kept = np.diff(folded.ptr)
            place = np.arange(folded.words.size) + np.repeat(ptr[:-1] - folded.ptr[:-1], kept)
            words[place] |= folded.words
        return type(self)(ptr, words)

    @property
    def nbytes(self) -> int:
        return self.words.nbytes + self.ptr.nbytes

    def bytes_per_bucket(self) -> Longs:
        """Bytes of the filter of each bucket."""
        return 8 * np.diff(self.ptr)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"ptr": self.ptr, "words": self.words}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> Self:
        """Checked, because a kernel follows the pointer, and copied, because filters change in place."""
        ptr, words = np.array(arrays["ptr"]), np.array(arrays["words"])
        sizes = np.diff(ptr)
        if ptr[0] != 0 or ptr[-1] != words.size or np.any(sizes < 0) or np.any(sizes & (sizes - 1)):
            raise ValueError("the words of the Bloom filters do not fit their pointer")
        return cls(ptr, words)


def buckets_of(signatures: Words, n_buckets: int) -> Longs:
    """The bucket of every signature."""
    out = np.empty(signatures.size, np.int64)
    buckets_into(signatures, n_buckets, out)
    return out
