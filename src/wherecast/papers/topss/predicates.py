"""The predicates of a counting matcher: each stored once, its number used again when it is gone.

Theory of operation
-------------------
A predicate is one constraint of a clause: an attribute and the codes it allows. TOPSS (section 2) has attribute, operator
and value. In code space a constraint is read back as that where it can be:

| intervals of codes           | operator | constant v |
|------------------------------|----------|------------|
| lo .. last code, lo >= 1     | ABOVE    | lo - 1     |
| 1 .. hi                      | BELOW    | hi + 1     |
| lo .. lo                     | EQUAL    | lo         |
| 1 .. v - 1 and v + 1 .. last | UNEQUAL  | v          |
| everything else              | RANGE    |            |

`>=` and `<=` need no operators of their own: over codes they are ABOVE and BELOW of the neighbouring code. A two-sided
range, an IN list and a set with NULL in it are one predicate each. The paper would write a range as two predicates; for an
array attribute that is another question (one element above and another below), and boxes do not tell arrays from scalars.

A predicate belongs to the table as long as `users` says that some clause has it.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from wherecast.index.boxes import FAR, FIRST_CODE
from wherecast.kernels.arrays import Ints, Longs
from wherecast.papers.topss.kernels.lists import count_in, count_out
from wherecast.papers.topss.kernels.predicates import (
    ABOVE,
    BELOW,
    EQUAL,
    N_FREE,
    N_NUMBERS,
    RANGE,
    UNEQUAL,
    USED,
    Interned,
    drop_repeated,
    intern,
    place_numbers,
    release,
)
from wherecast.papers.topss.lists import GrowingLists, grown

_FEWEST = 64


class ConstraintRows(NamedTuple):
    """Constraints as rows of intervals: those of constraint c are rows ptr[c]:ptr[c + 1]."""

    ptr: Longs  # (constraints + 1,)
    attr: Ints  # (rows,) the attribute in the last row of a constraint, anything in the others
    lo: Ints  # (rows,)
    hi: Ints  # (rows,) FAR from the attribute's last code on


class Predicates:
    """Predicates by number and by content."""

    def __init__(self) -> None:
        self._slots = np.full(2 * _FEWEST, -1, np.int32)
        self._hashes = np.zeros(_FEWEST, np.int64)
        self._free = np.zeros(_FEWEST, np.int32)
        self._seen = np.zeros(_FEWEST, bool)  # False between calls
        self._facts = np.zeros(3, np.int64)
        self._bounds = GrowingLists()  # lo and hi by turns
        self._bounds.extend(_FEWEST)
        self.attr = np.zeros(_FEWEST, np.int32)  # (numbers,)
        self.users = np.zeros(_FEWEST, np.int32)  # (numbers,) clauses that have it; 0 where the number is free

    @property
    def n_numbers(self) -> int:
        """Numbers are 0 .. n_numbers - 1, some of them free."""
        return int(self._facts[N_NUMBERS])

    def __len__(self) -> int:
        """Predicates there are."""
        return int(self._facts[N_NUMBERS] - self._facts[N_FREE])

    def intern(self, constraints: ConstraintRows) -> Ints:
        """The number of each constraint, new or not; a new one stays free of users until `use`."""
        ptr, attr, lo, hi = constraints
        numbers = np.empty(ptr.size - 1, np.int32)
        done = intern(self._table(), attr, ptr, lo, hi, 0, numbers)
        while done < numbers.size:
            self._grow(2 * int(ptr[done + 1] - ptr[done]))
            done = intern(self._table(), attr, ptr, lo, hi, done, numbers)
        self._bounds.used = int(self._facts[USED])
        return numbers

    def keep_distinct(self, ptr: Longs, numbers: Ints) -> Ints:
        """The numbers of each clause without repeats; `ptr`, by clause, is changed to fit."""
        drop_repeated(ptr, numbers, self._seen)
        return numbers[: ptr[-1]]

    def use(self, numbers: Ints) -> Ints:
        """One user more for each, repeats counted; returns those that are new."""
        fresh = np.empty(min(numbers.size, self.n_numbers), np.int32)
        return fresh[: count_in(numbers, self.users, fresh)]

    def leave(self, numbers: Ints) -> Ints:
        """One user less for each, repeats counted; returns those that nobody uses, to be dropped."""
        unused = np.empty(min(numbers.size, self.n_numbers), np.int32)
        return unused[: count_out(numbers, self.users, unused)]

    def drop(self, numbers: Ints) -> None:
        """Free the numbers of predicates without users; the lowest will be the first to be used again."""
        release(self._table(), np.sort(numbers)[::-1].copy())

    def intervals(self, numbers: Ints) -> tuple[Longs, Ints, Ints]:
        """(ptr, lo, hi): the intervals of predicate numbers[i] are ptr[i]:ptr[i + 1]."""
        ptr, bounds = self._bounds.read(numbers)
        return ptr // 2, bounds[0::2], bounds[1::2]

    def operators(self, numbers: Ints) -> tuple[Ints, Ints]:
        """Operator and constant of each; a RANGE has none, its constant is its lowest code."""
        ptr, lo, hi = self.intervals(numbers)
        first, last = ptr[:-1], ptr[1:] - 1
        one, two = last == first, last == first + 1
        above = one & (hi[first] == FAR) & (lo[first] >= FIRST_CODE)
        below = one & (lo[first] == FIRST_CODE)
        equal = one & (lo[first] == hi[first])
        unequal = two & (lo[first] == FIRST_CODE) & (hi[last] == FAR) & (lo[last] == hi[first] + 2)
        cases = [above, below, equal, unequal]
        operator = np.select(cases, [ABOVE, BELOW, EQUAL, UNEQUAL], RANGE).astype(np.int32)
        # FAR + 1 would overflow, but BELOW never ends at FAR: that is ABOVE.
        constant = np.select(
            cases, [lo[first] - 1, hi[first].astype(np.int64) + 1, lo[first], hi[first] + 1], lo[first]
        )
        return operator, constant.astype(np.int32)

    def _table(self) -> Interned:
        b = self._bounds
        table = Interned(
            self._slots, self._hashes, self.attr, b.start, b.size, b.capacity, b.pool, self._free, self._facts
        )
        return cast("Interned", tuple(table))  # Numba recognises a plain tuple in half the time

    def _grow(self, bounds: int) -> None:
        """Room for twice as many numbers if they are used up, and for as many bounds again."""
        if len(self) == self._hashes.size:
            n = 2 * self._hashes.size
            self._hashes, self._free, self._seen = (grown(a, n) for a in (self._hashes, self._free, self._seen))
            self.attr, self.users = grown(self.attr, n), grown(self.users, n)
            self._bounds.extend(n)
            self._slots = np.full(2 * n, -1, np.int32)
            place_numbers(self._slots, self._hashes, self._bounds.size)
        self._bounds.used = int(self._facts[USED])
        self._bounds.make_room(max(bounds, self._bounds.used))
        self._facts[USED] = self._bounds.used

    @property
    def nbytes(self) -> int:
        parts = self._slots, self._hashes, self._free, self._seen, self.attr, self.users
        return sum(a.nbytes for a in parts) + self._bounds.nbytes
