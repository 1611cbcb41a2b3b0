"""How likely several constraints hold for the same event.

Theory of operation
-------------------
The naive way multiplies their chances, as if they had nothing to do with each other. Where filters and events are about the same things (a city
has its longitudes and its latitudes), far more hold together: in a set whose attributes share a value nine times of ten, bitmaps leave 256 of 10,000 clauses to be
checked, and the product says less than one.

At the other end, whatever satisfies the rarest constraint satisfies all. What is between is one number, the correlation `c`: constraints with
the product `p` and the rarest chance `r` hold together with the chance p^(1 - c) r^c. An event that has come to a node satisfies what leads there, so for the
constraints that are left it is p^(1 - c). The number is measured: some clauses are compared with the events of a sample (`count_holding`), and it is
chosen so that their chances add up to what is found (`find_correlation`). It is 0 unless more than twice as many hold as the product says: plans are
not made by noise.
"""

from __future__ import annotations

import numpy as np

from wherecast.kernels.arrays import Ints, Longs, Singles
from wherecast.kernels.jit import Scalar, inlined, jit

#: Fewer clauses of the sample that hold say nothing.
LEAST_HOLDING = 16
#: How many times the expected number must hold.
FAR_OFF = 2.0


@inlined
def together(product: Scalar, rarest: Scalar, correlation: Scalar, is_here: Scalar) -> Scalar:
    """Chance that constraints hold together for an event; `is_here`: it satisfies another one of the clause already."""
    if correlation == 0 or product <= 0:
        return product
    return product ** (1 - correlation) * (1.0 if is_here else rarest**correlation)


@inlined
def product_and_rarest(clause: Scalar, ptr: Longs, number: Ints, chance: Singles) -> tuple[Scalar, Scalar]:
    """The product of the chances of a clause's constraints, and the least of them."""
    product, rarest = 1.0, 1.0
    for entry in range(ptr[clause], ptr[clause + 1]):
        one = max(np.float64(chance[number[entry]]), 1e-12)
        product, rarest = product * one, min(rarest, one)
    return product, rarest


@jit
def expect_matches(ptr: Longs, number: Ints, chance: Singles, correlation: Scalar) -> Scalar:
    """The number of clauses that are expected to hold for an event."""
    total = 0.0
    for clause in range(ptr.size - 1):
        product, rarest = product_and_rarest(clause, ptr, number, chance)
        total += together(product, rarest, correlation, False)
    return total


@inlined
def holds(
    k: Scalar, code: Scalar, lo: Ints, hi: Ints, list_at: Ints, list_end: Ints, list_lo: Ints, list_hi: Ints
) -> Scalar:
    """Whether a code satisfies a constraint."""
    if list_at[k] < 0 or code < lo[k] or code > hi[k]:
        return lo[k] <= code <= hi[k]
    for at in range(list_at[k], list_end[k]):
        if list_lo[at] <= code <= list_hi[at]:
            return True
    return False


@jit
def count_holding(
    clauses: Ints, ptr: Longs, number: Ints, column: Ints, lo: Ints, hi: Ints, list_at: Ints, list_end: Ints, list_lo: Ints, list_hi: Ints,
    codes: Ints,
) -> Scalar:  # fmt: skip
    """In how many pairs of a clause and an event all constraints hold; those on a column in which an event has a list do not."""
    count = 0
    for i in range(clauses.size):
        for event in range(codes.shape[0]):
            fits = True
            for entry in range(ptr[clauses[i]], ptr[clauses[i] + 1]):
                k = number[entry]
                if not holds(k, codes[event, column[k]], lo, hi, list_at, list_end, list_lo, list_hi):
                    fits = False
                    break
            count += fits
    return count


@jit
def find_correlation(
    clauses: Ints, ptr: Longs, number: Ints, chance: Singles, events: Scalar, holding: Scalar
) -> Scalar:
    """The correlation by which so many of the clauses hold for so many events."""
    product, rarest = np.empty(clauses.size), np.empty(clauses.size)
    for i in range(clauses.size):
        product[i], rarest[i] = product_and_rarest(clauses[i], ptr, number, chance)
    if holding < LEAST_HOLDING or holding <= FAR_OFF * events * product.sum():
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(10):
        middle = (low + high) / 2
        expected = events * (product ** (1 - middle) * rarest**middle).sum()
        if expected < holding:
            low = middle
        else:
            high = middle
    return low
