"""What checking boxes costs a leaf, by the form that it may have.

Theory of operation
-------------------
Bitmaps and guards leave some clauses over, and the box of each is checked. Exact bitmaps let as many events pass as satisfy the constraint. Coarse bitmaps let those pass, too,
that are in the same bucket as an end of its interval (`share_of`), and guards those in such a bucket if other codes have it, too (`is_shared`). `likelihood` says how the
chances of several constraints come together.
"""

from __future__ import annotations

import numpy as np

from wherecast.kernels.arrays import Ints, Longs, Singles
from wherecast.kernels.guards import (
    GUARD_BITS,
    SHIFT_MASK,
    SINGLE,
    Buckets,
    bucket_of,
    guard_chance,
    is_all_but_some,
    near_bucket,
)
from wherecast.kernels.jit import Scalar, inlined, jit
from wherecast.kernels.likelihood import together

#: A column of up to this many codes has one row per code.
EXACT_CODES = 64
#: Cycles of checking the box of a clause, which is somewhere else in memory; and for each constraint beyond the first few, as these are compared
#: at the same time (see `rows`).
STRAY_CYCLES, FURTHER_CYCLES, FEW_CONSTRAINTS = 32.0, 8.0, 4


@jit
def is_exact(c: Scalar, width: Ints, bits: Ints, shifts: Ints) -> Scalar:
    """Whether the bitmap of a column decides its constraint.

    Buckets of a cell never do, even one code wide: of an event's list, codes outside the cell fall into them too.
    """
    return bits[c] >= 0 and shifts[c] == 0 and width[c] <= EXACT_CODES


@jit
def share_of(
    code: Scalar, shift: Scalar, c: Scalar, width: Ints, near: Ints, below_ptr: Longs, below: Singles
) -> Scalar:
    """The share of the events that have one of the codes that are equal but for so many low bits; NULL is none of them.

    `below` says of each place of a column's buckets which share of the events is before it; of columns that are told code by code it says nothing.
    """
    if below_ptr[c] == below_ptr[c + 1]:
        return 0.0
    low = max(np.int64(code) >> shift << shift, 1)
    high = min(low + (np.int64(1) << shift), np.int64(width[c])) - 1
    own = near[c] & SHIFT_MASK
    first, last = below_ptr[c] + near_bucket(low, own), below_ptr[c] + near_bucket(max(high, low), own)
    share = below[last + 1] - below[first]
    return share if last > first else share * min(1.0, (high - low + 1) / (1 << own))


@jit
def is_shared(code: Scalar, c: Scalar, near: Ints, bucket_ptr: Longs, buckets: Buckets) -> Scalar:
    """1 if the bucket of a code has other codes too, else 0."""
    return np.int64(bucket_of(np.int64(code), c, near, bucket_ptr, buckets) & SINGLE == 0)


@inlined
def check_cycles(clause: Scalar, ptr: Longs) -> Scalar:
    """Cycles of checking the box of a clause."""
    return STRAY_CYCLES + FURTHER_CYCLES * max(ptr[clause + 1] - ptr[clause] - FEW_CONSTRAINTS, 0)


@jit
def price_checks(
    members: Ints, first: Scalar, end: Scalar, ptr: Longs, number: Ints, column: Ints, list_at: Ints, list_end: Ints, list_lo: Ints, list_hi: Ints,
    lo: Ints, hi: Ints, filed: Singles, chance: Singles, passed: Singles, width: Ints, near: Ints, bucket_ptr: Longs, buckets: Buckets,
    below_ptr: Longs, below: Singles, path_shift: Ints, correlation: Scalar, crowded: Scalar, bits: Ints, shifts: Ints,
) -> tuple[Scalar, Scalar, Scalar]:  # fmt: skip
    """Cycles of checking the boxes of a leaf that are left over: by its bitmaps, by guards, and by two guards for each clause.

    How many events are in the same bucket as an end of an interval follows from `below`, see `share_of`.
    """
    by_maps, by_guards, by_pairs = 0.0, 0.0, 0.0
    for i in range(first, end):
        may, loose, holds, rarest, next_rarest = 1.0, 1.0, 1.0, 1.0, 1.0
        least_may, least_loose, least_holds = 1.0, 1.0, 1.0
        mapped, exact, unsettled, undecided, is_here = True, True, 0, 0.0, False
        for entry in range(ptr[members[i]], ptr[members[i] + 1]):
            k = number[entry]
            c = column[k]
            is_here |= path_shift[c] >= 0
            if path_shift[c] == 0:
                continue
            unsettled += 1
            mapped &= bits[c] >= 0
            exact &= is_exact(c, width, bits, shifts)
            guarded = guard_chance(k, column, list_at, filed, chance, path_shift)
            here = filed[k] if path_shift[c] > 0 else 1.0
            if bits[c] >= 0:
                beside = share_of(lo[k], shifts[c], c, width, near, below_ptr, below) / here
                beside += share_of(hi[k], shifts[c], c, width, near, below_ptr, below) / here
                one_may = passed[k] if path_shift[c] < 0 else min(guarded + beside / 2, 1.0)
                one_loose = guarded + min(beside / 2, 1.0)
                one_holds = chance[k] if path_shift[c] < 0 else guarded
                may, least_may = may * one_may, min(least_may, one_may)
                loose, least_loose = loose * one_loose, min(least_loose, one_loose)
                holds, least_holds = holds * one_holds, min(least_holds, one_holds)
            ends = 0.0  # share of the events that are here and in a bucket with an end of the interval and other codes
            if width[c] > 1 << GUARD_BITS:
                shared = is_shared(lo[k], c, near, bucket_ptr, buckets) + is_shared(hi[k], c, near, bucket_ptr, buckets)
                ends = shared / (1 << GUARD_BITS) / here
            passes = min(guarded + ends / 2, 1.0)
            rarest, next_rarest = min(rarest, passes), max(rarest, min(next_rarest, passes))
            if list_at[k] >= 0 and not is_all_but_some(k, column, list_at, list_end, list_lo, list_hi, width):
                undecided = 1.0
            else:
                undecided = min(undecided + ends, 1.0)
        may = together(may, least_may, correlation, is_here)
        if crowded and mapped:
            loose = together(loose, least_loose, correlation, is_here)
            may = min(2 * (loose - together(holds, least_holds, correlation, is_here)), may)
        check = check_cycles(members[i], ptr)
        by_maps += 0.0 if exact else check * may
        both = together(rarest * next_rarest, rarest, correlation, is_here)
        rarest = together(rarest, rarest, correlation, is_here)
        by_guards += check * (rarest if unsettled > 1 else min(rarest, undecided))
        by_pairs += check * (both if unsettled > 2 else min(both, undecided))
    return by_maps, by_guards, by_pairs
