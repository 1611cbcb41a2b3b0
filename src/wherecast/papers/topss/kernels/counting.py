"""Counting satisfied predicates per clause, for the three forms in which predicates know their clauses.

Theory of operation
-------------------
Second and third stage of the counting algorithm (TOPSS, section 3.3). The first stage left a bit vector per event: which
predicates hold. For each of them, every clause that has it gets one hit; a clause holds when its hits are as many as it
has predicates (`needed`). Comparing also clears the hits for the next event.

- *Lists* name the clauses: one update per (predicate, clause) pair, nothing else is read.
- *Bits*: a row of the matrix per predicate, a word for 64 clauses.
- *Bytes*: a row of bytes, added to the hits as it is: eight times the memory of bits.

Each matching kernel goes on from event `first` until `out` might overflow, and returns the event it did not begin. Hits
are as wide as `needed`. Clauses are taken in blocks whose hits stay in the second-level cache: with five million clauses of
W4 lists take 12 ms an event instead of 25, bits 24 instead of 46.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Ints, Longs, Numbers, Words
from wherecast.kernels.jit import ONE, ZERO, Scalar, add_word, hot, inlined, popcount, trailing_zeros

#: Unsigned integers, wide enough for the largest number of predicates of a clause.


#: Hits of a block of clauses, in bytes; a multiple of 64 counters of any width.
BLOCK_BYTES = 1 << 20


@inlined
def _list_full(needed: Numbers, begin: Scalar, end: Scalar, hits: Numbers, out: Ints, n: Scalar) -> Scalar:
    """Write the clauses begin:end that have all hits to out[n:] and clear the hits; the number of ids in `out` after."""
    wanted, part = needed[begin:end], hits[begin:end]
    for i in range(part.size):  # from 0 on, or the compiler does not see that no place is negative
        out[n] = begin + i  # without a branch: which clauses match cannot be predicted
        n += part[i] == wanted[i]
        part[i] = 0
    return n


@inlined
def _find(pool: Ints, low: Scalar, high: Scalar, clause: Scalar) -> Scalar:
    """First place in the ascending pool[low:high] that is not below the clause."""
    while low < high:
        middle = (low + high) >> 1
        if pool[middle] < clause:
            low = middle + 1
        else:
            high = middle
    return low


@hot
def count_lists(
    bits: Words, start: Longs, size: Ints, pool: Ints, needed: Numbers, n_clauses: Scalar, hits: Numbers,
    first: Scalar, out: Ints, counts: Longs,
) -> Scalar:  # fmt: skip
    """Match by lists: the clauses of predicate p are pool[start[p]:start[p] + size[p]], ascending."""
    n, block = 0, BLOCK_BYTES // hits.itemsize
    for event in range(first, bits.shape[0]):
        if out.size - n <= n_clauses:
            return event
        before = n
        for begin in range(0, n_clauses, block):
            end = min(begin + block, n_clauses)
            for w in range(bits.shape[1]):
                word = bits[event, w]
                while word != ZERO:
                    predicate = 64 * w + trailing_zeros(word)
                    word &= word - ONE
                    low, high = start[predicate], start[predicate] + size[predicate]
                    if end < n_clauses:
                        high = _find(pool, low, high, end)
                    if begin > 0:
                        low = _find(pool, low, high, begin)
                    for i in range(low, high):
                        hits[pool[i]] += 1
            n = _list_full(needed, begin, end, hits, out, n)
        counts[event] = n - before
    return bits.shape[0]


@hot
def count_bits(
    bits: Words, matrix: Words, needed: Numbers, n_clauses: Scalar, hits: Numbers, first: Scalar, out: Ints,
    counts: Longs,
) -> Scalar:  # fmt: skip
    """Match by a matrix of bits: bit c % 64 of matrix[p, c // 64] says that clause c has predicate p."""
    n, block = 0, BLOCK_BYTES // hits.itemsize
    for event in range(first, bits.shape[0]):
        if out.size - n <= n_clauses:
            return event
        before = n
        for begin in range(0, n_clauses, block):
            end = min(begin + block, n_clauses)
            for w in range(bits.shape[1]):
                word = bits[event, w]
                while word != ZERO:
                    predicate = 64 * w + trailing_zeros(word)
                    word &= word - ONE
                    for i in range(begin >> 6, (end + 63) >> 6):
                        add_word(matrix[predicate, i], hits, 64 * i)
            n = _list_full(needed, begin, end, hits, out, n)
        counts[event] = n - before
    return bits.shape[0]


@hot
def count_bytes(
    bits: Words, matrix: npt.NDArray[np.uint8], needed: Numbers, n_clauses: Scalar, hits: Numbers, first: Scalar,
    out: Ints, counts: Longs,
) -> Scalar:  # fmt: skip
    """Match by a matrix of bytes: matrix[p, c] is 1 if clause c has predicate p, else 0."""
    n, block = 0, BLOCK_BYTES // hits.itemsize
    for event in range(first, bits.shape[0]):
        if out.size - n <= n_clauses:
            return event
        before = n
        for begin in range(0, n_clauses, block):
            end = min(begin + block, n_clauses)
            part = hits[begin:end]
            for w in range(bits.shape[1]):
                word = bits[event, w]
                while word != ZERO:
                    row = matrix[64 * w + trailing_zeros(word), begin:end]
                    word &= word - ONE
                    for i in range(part.size):
                        part[i] += row[i]
            n = _list_full(needed, begin, end, hits, out, n)
        counts[event] = n - before
    return bits.shape[0]


@hot
def tally_predicates(bits: Words, users: Ints, satisfied: Longs, updates: Longs) -> None:
    """Per event, how many predicates hold and how many hits that makes; users[p] clauses have predicate p."""
    for event in range(bits.shape[0]):
        for w in range(bits.shape[1]):
            word = bits[event, w]
            satisfied[event] += popcount(word)
            while word != ZERO:
                updates[event] += users[64 * w + trailing_zeros(word)]
                word &= word - ONE


@hot
def read_bits(matrix: Words, clauses: Ints, cursor: Longs, out: Ints) -> None:
    """Write the predicates of clauses[i] to out[cursor[i]:], ascending. Row by row, as the matrix lies in memory."""
    for predicate in range(matrix.shape[0]):
        for i in range(clauses.size):
            clause = clauses[i]
            if matrix[predicate, clause >> 6] >> np.uint64(clause & 63) & ONE:
                out[cursor[i]] = predicate
                cursor[i] += 1


@hot
def read_bytes(matrix: npt.NDArray[np.uint8], clauses: Ints, cursor: Longs, out: Ints) -> None:
    """As `read_bits`."""
    for predicate in range(matrix.shape[0]):
        for i in range(clauses.size):
            if matrix[predicate, clauses[i]]:
                out[cursor[i]] = predicate
                cursor[i] += 1


@hot
def flip_bits(matrix: Words, clauses: Ints, ptr: Longs, predicates: Ints) -> None:
    """Set or clear, for each clause, the bits of its predicates."""
    for i in range(clauses.size):
        bit = ONE << np.uint64(clauses[i] & 63)
        for k in range(ptr[i], ptr[i + 1]):
            matrix[predicates[k], clauses[i] >> 6] ^= bit


@hot
def flip_bytes(matrix: npt.NDArray[np.uint8], clauses: Ints, ptr: Longs, predicates: Ints) -> None:
    """As `flip_bits`."""
    for i in range(clauses.size):
        for k in range(ptr[i], ptr[i + 1]):
            matrix[predicates[k], clauses[i]] ^= 1
