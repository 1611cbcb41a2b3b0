"""Which clauses have which predicates, in the three forms of TOPSS, section 3.3: lists, a bit matrix, a byte matrix.

Theory of operation
-------------------
| form  | memory, n clauses, m predicates | entries read per event, s predicates hold | insert, delete |
|-------|---------------------------------|-------------------------------------------|----------------|
| lists | (predicate, clause) pairs, twice | pairs of the s predicates                | merge into, drop from the lists of the clause's predicates |
| bits  | n x m bits                      | s x n / 64 words                          | flip the bits of the clause's column |
| bytes | n x m bytes                     | s x n bytes                               | as bits        |

A matrix tells the predicates of a clause by its column. Lists do not: they keep a second set of lists, from clause to
predicates, which only deletion reads.

A matrix that would pass `MOST_MATRIX_BYTES` is refused, before anything is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np

from wherecast.errors import MatcherError
from wherecast.kernels.arrays import Ints, Longs, Numbers, Words
from wherecast.papers.topss.kernels.counting import (
    count_bits,
    count_bytes,
    count_lists,
    flip_bits,
    flip_bytes,
    read_bits,
    read_bytes,
)
from wherecast.papers.topss.kernels.lists import count_in, drop_clauses, merge_clauses
from wherecast.papers.topss.lists import GrowingLists, grown, offsets

#: A larger association matrix is refused. W4 of the paper with 5,000,000 subscriptions takes 250 MB of bits.
MOST_MATRIX_BYTES = 1 << 30


class Association(Protocol):
    """Predicates to clauses."""

    def reserve(self, n_predicates: int, n_clauses: int) -> None:
        """Have room for so many numbers of either. Raises MatcherError, and changes nothing, if that is too much."""

    def insert(self, clauses: Ints, ptr: Longs, predicates: Ints) -> None:
        """Add clauses, ascending and not there yet: clauses[i] has predicates[ptr[i]:ptr[i + 1]]."""

    def remove(self, clauses: Ints, ptr: Longs, predicates: Ints) -> None:
        """Take clauses, ascending, out; their predicates are those that `read` told."""

    def read(self, clauses: Ints, needed: Numbers) -> tuple[Longs, Ints]:
        """(ptr, predicates) of clauses, ascending; clause c has needed[c] of them."""

    def count(
        self, bits: Words, needed: Numbers, n_clauses: int, hits: Numbers, first: int, out: Ints, counts: Longs
    ) -> int:
        """List the clauses that hold for events from `first` on; see `kernels.counting`."""

    def entries_read(self, satisfied: Longs, updates: Longs, n_clauses: int) -> Longs:
        """Entries (ids, words or bytes) that counting reads when predicates are satisfied and clauses hit so often."""

    @property
    def nbytes(self) -> dict[str, int]:
        """Memory by part; `deletion` is what only deletion needs."""


class ListAssociation:
    """For each predicate the ascending list of its clauses, and for each clause the list of its predicates."""

    def __init__(self) -> None:
        self._clauses = GrowingLists()
        self._predicates = GrowingLists()
        self._added = np.zeros(0, np.int32)  # (predicates,) zero between calls

    def reserve(self, n_predicates: int, n_clauses: int) -> None:
        self._clauses.extend(n_predicates)
        self._predicates.extend(n_clauses)
        self._added = grown(self._added, n_predicates)

    def insert(self, clauses: Ints, ptr: Longs, predicates: Ints) -> None:
        touched = np.empty(min(predicates.size, self._added.size), np.int32)
        touched = touched[: count_in(predicates, self._added, touched)]
        lists = self._clauses
        lists.reserve(touched, self._added[touched])
        grouped = np.empty(predicates.size, np.int32)
        merge_clauses(lists.start, lists.size, lists.pool, clauses, ptr, predicates, self._added, touched, grouped)
        self._predicates.put(clauses, ptr, predicates)

    def remove(self, clauses: Ints, ptr: Longs, predicates: Ints) -> None:  # noqa: ARG002 - the lists know theirs
        gone = np.zeros(self._predicates.size.size, bool)
        gone[clauses] = True
        lists = self._clauses
        drop_clauses(lists.start, lists.size, lists.pool, np.unique(predicates), gone, clauses.min(initial=gone.size))
        self._predicates.size[clauses] = 0

    def read(self, clauses: Ints, needed: Numbers) -> tuple[Longs, Ints]:  # noqa: ARG002 - the lists know it
        return self._predicates.read(clauses)

    def count(
        self, bits: Words, needed: Numbers, n_clauses: int, hits: Numbers, first: int, out: Ints, counts: Longs
    ) -> int:
        lists = self._clauses
        return count_lists(  # type: ignore[no-any-return]
            bits, lists.start, lists.size, lists.pool, needed, n_clauses, hits, first, out, counts
        )

    def entries_read(self, satisfied: Longs, updates: Longs, n_clauses: int) -> Longs:  # noqa: ARG002
        return updates

    @property
    def nbytes(self) -> dict[str, int]:
        return {"association": self._clauses.nbytes, "deletion": self._predicates.nbytes}


class Matrix:
    """A row per predicate, a column per clause; `per_entry` clauses share an entry."""

    form: ClassVar[str]
    dtype: ClassVar[type[np.unsignedinteger[Any]]]
    per_entry: ClassVar[int]
    count_kernel: ClassVar[Callable[..., int]]
    flip_kernel: ClassVar[Callable[..., None]]
    read_kernel: ClassVar[Callable[..., None]]

    def __init__(self) -> None:
        self._matrix = np.zeros((0, 0), self.dtype)

    def reserve(self, n_predicates: int, n_clauses: int) -> None:
        rows, columns = self._matrix.shape
        entries = -(-n_clauses // self.per_entry)
        if n_predicates <= rows and entries <= columns:
            return
        nbytes = n_predicates * entries * self._matrix.itemsize
        if nbytes > MOST_MATRIX_BYTES:
            raise MatcherError(
                f"an association matrix of {n_predicates} predicates x {n_clauses} clauses takes {nbytes} bytes as "
                f"{self.form}, at most {MOST_MATRIX_BYTES}; use matcher 'counting', whose lists hold only what is there"
            )
        # The side that is too short gets half as much again, but not at the first load nor beyond the limit.
        most = MOST_MATRIX_BYTES // self._matrix.itemsize
        if n_predicates > rows:
            rows = max(n_predicates, min(rows * 3 // 2, most // max(entries, columns, 1)))
        if entries > columns:
            columns = max(entries, min(columns * 3 // 2, most // max(rows, 1)))
        larger = np.zeros((rows, columns), self.dtype)
        larger[: self._matrix.shape[0], : self._matrix.shape[1]] = self._matrix
        self._matrix = larger

    def insert(self, clauses: Ints, ptr: Longs, predicates: Ints) -> None:
        self.flip_kernel(self._matrix, clauses, ptr, predicates)

    def remove(self, clauses: Ints, ptr: Longs, predicates: Ints) -> None:
        self.flip_kernel(self._matrix, clauses, ptr, predicates)

    def read(self, clauses: Ints, needed: Numbers) -> tuple[Longs, Ints]:
        ptr = offsets(needed[clauses])
        predicates = np.empty(int(ptr[-1]), np.int32)
        self.read_kernel(self._matrix, clauses, ptr[:-1].copy(), predicates)
        return ptr, predicates

    def count(
        self, bits: Words, needed: Numbers, n_clauses: int, hits: Numbers, first: int, out: Ints, counts: Longs
    ) -> int:
        return self.count_kernel(bits, self._matrix, needed, n_clauses, hits, first, out, counts)

    def entries_read(self, satisfied: Longs, updates: Longs, n_clauses: int) -> Longs:  # noqa: ARG002
        return satisfied * -(-n_clauses // self.per_entry)

    @property
    def nbytes(self) -> dict[str, int]:
        return {"association": self._matrix.nbytes}


class BitMatrix(Matrix):
    """A bit for each predicate and clause."""

    form, dtype, per_entry = "bits", np.uint64, 64
    count_kernel, flip_kernel, read_kernel = staticmethod(count_bits), staticmethod(flip_bits), staticmethod(read_bits)


class ByteMatrix(Matrix):
    """A byte for each predicate and clause: the paper's "regular" form."""

    form, dtype, per_entry = "bytes", np.uint8, 1
    count_kernel, flip_kernel, read_kernel = (
        staticmethod(count_bytes),
        staticmethod(flip_bytes),
        staticmethod(read_bytes),
    )
