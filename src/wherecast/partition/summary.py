"""Summaries: what a dispatcher knows of the signatures that servers want.

A summary is a *cover*: it may let an event through that nobody wants, it never holds one back that somebody does. It takes
in new signatures at once; removed ones leave it when it is built anew from what is left. `Bloom` (in `bloom`) is small
and imprecise, by a dial; `Dictionary` is exact. The bounding boxes of filter-set partitioning are covers of another
kind: of points, not of signatures.
"""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bools, Longs, Words
from wherecast.kernels.dispatch import add_counts, take_counts, test_keys


class Summary(Protocol):
    """A cover of a set of signatures."""

    def insert(self, signatures: Words) -> None:
        """Cover these too."""

    def merge(self, other: Self) -> Self:
        """A cover of what either covers."""

    def may_hold(self, signatures: Words) -> Bools:
        """Which signatures pass: all that were inserted, and some others."""

    def false_positive_rate(self) -> float:
        """The expected share of others that pass."""

    @property
    def nbytes(self) -> int:
        """What a dispatcher keeps in memory."""

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The whole state as arrays, to be saved or sent."""

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> Self:
        """The summary whose `arrays()` these are."""


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
