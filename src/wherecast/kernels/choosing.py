"""Which tests a node of the tree of `descent` has, and under which constraint each clause is filed.

Theory of operation
-------------------
A node gets its tests one after the other, each time for the column that saves most. What a column saves is the work
on the clauses that can be filed under it, times the chance that the event does not ask for them. What it costs is the
lookup, as often as events have a value in the column, the visit of a child as often as there is one, and the memory of its leaves.

*Work.* All clauses of the node in one leaf are the alternative, so that leaf is priced, as `filing.plan_leaf` would make it: with bitmaps or with
guards, whichever costs less for all clauses together. The work on a clause is what it adds to that leaf: its bit in each bitmap and the check of its box as often as
bitmaps leave it over, or its guard and the check as often as it passes.

*Kin.* A clause is filed under a column only if that constraint is about as rare as the rarest it has, so that `symbol = 'X'` is
never given up for `price > 10`; among equals the first
column chosen takes all, which keeps the number of children that an event meets small (on `gryphon` all constraints are
alike: spread over all columns, every node would have thirty lookups and as many children).

Every clause is assigned once, and its leaving is subtracted from the savings of the other columns it could have had:
the choice costs time linear in the number of constraints, plus columns squared.

*The rest.* What is left makes a leaf that every event visits. As long as there is one clause in it, that visit has its price, so tests that are not
worth it one by one may be worth it together. Two ways are compared. Either clauses go under tests that there are, and under further ones
if these cost less than the leaf of what then remains; or each goes under its rarest constraint at once, with all the tests that this takes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bools, Ints, Longs, Singles
from wherecast.kernels.filing import (
    COARSE_BITS,
    CROWDED,
    GUARD,
    PER_COLUMN,
    PER_LEAF,
    ROW_BYTES,
    ROW_LEAF,
    THRIFT,
)
from wherecast.kernels.guards import GUARD_BITS
from wherecast.kernels.jit import Scalar, jit, popcount
from wherecast.kernels.leftover import EXACT_CODES, check_cycles
from wherecast.kernels.likelihood import together

#: Share of the events that are in the first or last bucket of a guard; if it is all that is left to check, the others need no check.
AT_THE_ENDS = 2.0 / (1 << GUARD_BITS)
#: A constraint that holds more often than this is not worth a test.
RARE = 0.5
#: A clause may be filed under a constraint this much more likely than its rarest.
KIN = 1.5
#: Up to this many codes, the codes that a test answers are counted exactly.
NARROW = 256


@jit
def left_over(
    clause: Scalar, ptr: Longs, number: Ints, column: Ints, chance: Singles, passed: Singles, used: Bools, mapped: Bools, width: Ints,
    crowded: Scalar, correlation: Scalar,
) -> Scalar:  # fmt: skip
    """Chance that the bitmaps of a leaf leave a clause to be checked; sure rows decide most of what a crowded one lets through."""
    may, holds, least, least_holds = 1.0, 1.0, 1.0, 1.0
    is_mapped, undecided, is_here = True, False, False
    for entry in range(ptr[clause], ptr[clause + 1]):
        k = number[entry]
        if used[column[k]]:
            is_here = True
            continue
        if mapped[column[k]]:
            may, least = may * passed[k], min(least, np.float64(passed[k]))
            holds, least_holds = holds * chance[k], min(least_holds, np.float64(chance[k]))
        is_mapped &= mapped[column[k]]
        undecided |= width[column[k]] > EXACT_CODES or not mapped[column[k]]
    if not undecided:
        return 0.0
    may = together(may, least, correlation, is_here)
    if not crowded or not is_mapped:
        return may
    return min(2 * (may - together(holds, least_holds, correlation, is_here)), may)


@jit
def is_crowd(
    members: Ints, ptr: Longs, number: Ints, column: Ints, chance: Singles, used: Bools, correlation: Scalar
) -> Scalar:
    """Whether many of the members are expected to hold for an event that is here: `is_crowded` of a leaf of all."""
    total = 0.0
    for i in range(members.size):
        product, rarest, is_here = 1.0, 1.0, False
        for entry in range(ptr[members[i]], ptr[members[i] + 1]):
            k = number[entry]
            if used[column[k]]:
                is_here = True
            else:
                product, rarest = product * chance[k], min(rarest, np.float64(chance[k]))
        total += together(product, rarest, correlation, is_here)
    return total > CROWDED * members.size


@jit
def rarest_left(
    clause: Scalar, ptr: Longs, number: Ints, column: Ints, passed: Singles, used: Bools, correlation: Scalar
) -> Scalar:
    """Chance that the guard of a clause leaves it to be checked."""
    rarest, unsettled, is_here = 1.0, 0, False
    for entry in range(ptr[clause], ptr[clause + 1]):
        k = number[entry]
        if used[column[k]]:
            is_here = True
        else:
            rarest = min(rarest, np.float64(passed[k]))
            unsettled += 1
    rarest = together(rarest, rarest, correlation, is_here)
    return rarest if unsettled > 1 else min(rarest, AT_THE_ENDS)


@jit
def find_mapped(start: Longs, n_members: Scalar, width: Ints) -> Bools:
    """Which columns a leaf of all members would have bitmaps of: those that enough of them constrain, see `plan_leaf`."""
    mapped = np.zeros(width.size, np.bool_)
    for c in range(width.size):
        rows = width[c] if width[c] <= EXACT_CODES else 1 << COARSE_BITS
        mapped[c] = rows * n_members / 8 <= THRIFT * ROW_BYTES * (start[c + 1] - start[c])
    return mapped


@jit
def column_savings(
    members: Ints, ptr: Longs, number: Ints, column: Ints, filed: Singles, used: Bools, work: Singles, best: Singles, gain: Singles,
    spared: Singles, loads: Ints,
) -> None:  # fmt: skip
    """Per member its rarest usable constraint; per column what filing under it would spare, work and clauses, and how many would be."""
    for i in range(members.size):
        clause = members[i]
        rarest = np.float32(2.0)
        for entry in range(ptr[clause], ptr[clause + 1]):
            k = number[entry]
            if not used[column[k]]:
                rarest = min(rarest, filed[k])
        best[i] = rarest
        for entry in range(ptr[clause], ptr[clause + 1]):
            k = number[entry]
            if not used[column[k]] and filed[k] <= RARE and filed[k] <= KIN * rarest:
                gain[column[k]] += work[i] * (np.float32(1.0) - filed[k])
                spared[column[k]] += np.float32(1.0) - filed[k]
                loads[column[k]] += 1


@jit
def column_traffic(
    members: Ints, ptr: Longs, number: Ints, column: Ints, lo: Ints, hi: Ints, shift: Ints, filed: Singles, used: Bools, best: Singles,
    mass_ptr: Longs, mass: Singles, visits: Singles, children: Ints, levels: npt.NDArray[np.uint64], takes_null: Bools,
) -> None:  # fmt: skip
    """Per column the chance that an event meets a child, the children (of narrow columns), the shifts in use, whether NULL is looked up."""
    seen = np.zeros(mass.size, np.bool_)
    for i in range(members.size):
        clause = members[i]
        for entry in range(ptr[clause], ptr[clause + 1]):
            k = number[entry]
            c = column[k]
            if used[c] or filed[k] > RARE or filed[k] > KIN * best[i]:
                continue
            levels[c] |= np.uint64(1) << np.uint64(shift[k])
            takes_null[c] |= lo[k] == 0
            if mass_ptr[c + 1] == mass_ptr[c]:
                visits[c] += filed[k]
            else:
                for code in range(mass_ptr[c] + lo[k], mass_ptr[c] + hi[k] + 1):
                    if not seen[code]:
                        seen[code] = True
                        children[c] += 1
                        visits[c] += mass[code]


@jit
def by_column(members: Ints, ptr: Longs, number: Ints, column: Ints, used: Bools, start: Longs) -> tuple[Ints, Ints]:
    """Members and constraints sorted by column (`start` becomes the offsets)."""
    for i in range(members.size):
        for entry in range(ptr[members[i]], ptr[members[i] + 1]):
            k = number[entry]
            if not used[column[k]]:
                start[column[k] + 1] += 1
    for c in range(start.size - 1):
        start[c + 1] += start[c]
    place = start.copy()
    who = np.empty(start[-1], np.int32)
    what = np.empty(start[-1], np.int32)
    for i in range(members.size):
        for entry in range(ptr[members[i]], ptr[members[i] + 1]):
            k = number[entry]
            c = column[k]
            if not used[c]:
                who[place[c]] = i
                what[place[c]] = k
                place[c] += 1
    return who, what


@jit
def file_rest(
    members: Ints, ptr: Longs, number: Ints, column: Ints, filed: Singles, work: Singles, tested: Bools, chosen: Longs
) -> Scalar:
    """File what is left under its rarest constraint that some test serves, as the test is made anyway; the work that stays."""
    stays = 0.0
    for i in range(members.size):
        if chosen[i] >= 0:
            continue
        rarest = np.float32(RARE)
        for entry in range(ptr[members[i]], ptr[members[i] + 1]):
            k = number[entry]
            if tested[column[k]] and filed[k] <= rarest:
                rarest = filed[k]
                chosen[i] = k
        if chosen[i] >= 0:
            stays += rarest * work[i]
    return stays


@jit
def price_leaf(
    members: Ints, ptr: Longs, number: Ints, column: Ints, chance: Singles, passed: Singles, used: Bools, width: Ints, start: Longs,
    correlation: Scalar, costs: Singles, work: Singles,
) -> Scalar:  # fmt: skip
    """The cost of a leaf of all members, and what each of them adds to it.

    A leaf has bitmaps for all of its clauses or guards for all, so the sums are compared, not clause by clause. Bitmaps of the popular
    columns refuse most clauses at once, but those that ask for none of them are checked one by one.
    """
    mapped = find_mapped(start, members.size, width)
    n_mapped = np.int64(0)
    for c in range(width.size):
        n_mapped += mapped[c]
    crowded = is_crowd(members, ptr, number, column, chance, used, correlation)
    bits = n_mapped * costs[3] / 64 * (1 + crowded)
    guarded = np.empty(members.size, np.float32)
    by_maps, by_guards = PER_LEAF + n_mapped * PER_COLUMN + 0.0, 0.0
    for i in range(members.size):
        left = left_over(members[i], ptr, number, column, chance, passed, used, mapped, width, crowded, correlation)
        check = check_cycles(members[i], ptr)
        work[i] = bits + check * left
        guarded[i] = GUARD + check * rarest_left(members[i], ptr, number, column, passed, used, correlation)
        by_maps += work[i]
        by_guards += guarded[i]
    if by_guards <= by_maps:
        work[:] = guarded
    return min(by_maps, by_guards) + costs[1] if members.size > 0 else 0.0


@jit
def expect_maps(size: Scalar, start: Longs, n_members: Scalar, width: Ints) -> Scalar:
    """Of how many columns a leaf of so many members would have bitmaps, see `plan_leaf`, if each is asked for as often as among all members."""
    if size <= ROW_LEAF:
        return 0
    words = (np.int64(size) + 63) // 64
    n_maps = 0
    for c in range(width.size):
        rows = width[c] if width[c] <= EXACT_CODES else 1 << COARSE_BITS
        n_maps += rows * words * 8 + 8 <= THRIFT * ROW_BYTES * size * (start[c + 1] - start[c]) / n_members
    return n_maps if PER_LEAF + n_maps * (PER_COLUMN + words) < size * GUARD else 0


@jit
def price_tests(
    start: Longs, n_members: Scalar, width: Ints, loads: Ints, spared: Singles, visits: Singles, children: Ints,
    levels: npt.NDArray[np.uint64], takes_null: Bools, presence: Singles, costs: Singles, price: Singles,
) -> None:  # fmt: skip
    """What a test of each column costs: looking up, visiting a child, and the memory of its leaves."""
    for c in range(price.size):
        if loads[c] == 0:
            continue
        lookups = popcount(levels[c])
        there = np.float32(1.0) if takes_null[c] else presence[c]
        lookup = there * lookups * costs[0] + (1 - there) * costs[6]
        met = min(visits[c], presence[c] * (lookups if children[c] == 0 else 1))
        size = (loads[c] - spared[c]) / max(met, np.float32(1e-6))  # of the child that is met
        visit = met * (costs[1] + expect_maps(size, start, n_members, width) * costs[2])
        memory = 0.0
        if children[c] > 0:
            memory = children[c] * expect_maps(loads[c] / children[c], start, n_members, width) * costs[5]
        price[c] = lookup + visit + memory


@jit
def price_some(
    members: Ints, is_in: Bools, ptr: Longs, number: Ints, column: Ints, chance: Singles, passed: Singles, used: Bools, width: Ints,
    correlation: Scalar, costs: Singles,
) -> Scalar:  # fmt: skip
    """The cost of a leaf of some members."""
    some = members[is_in]
    start = np.zeros(used.size + 1, np.int64)
    by_column(some, ptr, number, column, used, start)
    work = np.empty(some.size, np.float32)
    return price_leaf(some, ptr, number, column, chance, passed, used, width, start, correlation, costs, work)


@jit
def open_rest(
    members: Ints, ptr: Longs, number: Ints, column: Ints, filed: Singles, chance: Singles, passed: Singles, used: Bools, width: Ints,
    correlation: Scalar, costs: Singles, work: Singles, price: Singles, tested: Bools, chosen: Longs,
) -> Scalar:  # fmt: skip
    """File all that is left under its rarest constraints, if the tests that this takes cost less than a leaf of it; the cost of the better way.

    One by one these tests are not worth their price: as long as something is left, every event visits that leaf.
    """
    is_left, stays = chosen < 0, np.zeros(members.size, np.bool_)
    rarest = chosen.copy()
    opened = tested.copy()
    spent = 0.0
    for i in range(members.size):
        if not is_left[i]:
            continue
        least = np.float32(RARE)
        for entry in range(ptr[members[i]], ptr[members[i] + 1]):
            k = number[entry]
            if not used[column[k]] and filed[k] <= least:
                rarest[i], least = k, filed[k]
        stays[i] = rarest[i] < 0
        if stays[i]:
            continue
        c = column[rarest[i]]
        if not opened[c]:
            opened[c] = True
            spent += price[c]
        spent += least * work[i]
    given = ptr, number, column, chance, passed, used, width, correlation, costs
    whole = price_some(members, is_left, *given)
    spent += price_some(members, stays, *given)
    if spent < whole:
        chosen[:] = rarest
        tested[:] = opened
    return min(spent, whole)


@jit
def place_rest(
    members: Ints, ptr: Longs, number: Ints, column: Ints, filed: Singles, chance: Singles, passed: Singles, used: Bools, width: Ints,
    correlation: Scalar, costs: Singles, work: Singles, price: Singles, tested: Bools, chosen: Longs,
) -> None:  # fmt: skip
    """File what no test was worth by itself: under tests that there are, and with further tests; or with further tests at once."""
    given = members, ptr, number, column, filed, chance, passed, used, width, correlation, costs, work, price
    tested_at_once, chosen_at_once = tested.copy(), chosen.copy()
    at_once = open_rest(*given, tested_at_once, chosen_at_once)
    after = file_rest(members, ptr, number, column, filed, work, tested, chosen)
    after += open_rest(*given, tested, chosen)
    if at_once < after:
        tested[:], chosen[:] = tested_at_once, chosen_at_once


@jit
def pick_tests(
    members: Ints, ptr: Longs, number: Ints, column: Ints, filed: Singles, used: Bools, start: Longs, who: Ints, what: Ints, work: Singles,
    best: Singles, gain: Singles, price: Singles, costs: Singles, order: Ints, tested: Bools, chosen: Longs,
) -> Scalar:  # fmt: skip
    """Choose the tests that are worth their price, the most profitable first, and file members under them; return how many."""
    n_tests = 0
    while True:
        pick = -1
        profit = 0.0
        for c in range(used.size):
            if gain[c] - costs[4] * price[c] > profit:
                pick, profit = c, gain[c] - costs[4] * price[c]
        if pick < 0:
            return n_tests
        order[n_tests] = pick
        tested[pick] = True
        n_tests += 1
        for at in range(start[pick], start[pick + 1]):
            i, k = who[at], what[at]
            if chosen[i] >= 0 or filed[k] > RARE or filed[k] > KIN * best[i]:
                continue
            chosen[i] = k
            for entry in range(ptr[members[i]], ptr[members[i] + 1]):
                other = number[entry]
                if not used[column[other]] and filed[other] <= RARE and filed[other] <= KIN * best[i]:
                    gain[column[other]] -= work[i] * (np.float32(1.0) - filed[other])
        gain[pick] = 0.0


@jit
def choose_tests(
    members: Ints, ptr: Longs, number: Ints, column: Ints, lo: Ints, hi: Ints, shift: Ints, filed: Singles, chance: Singles,
    passed: Singles, used: Bools, width: Ints, mass_ptr: Longs, mass: Singles, presence: Singles, correlation: Scalar, costs: Singles, order: Ints, chosen: Longs,
) -> Scalar:  # fmt: skip
    """Fill `order` with the columns to test and `chosen` with each member's constraint (-1: rest); return how many.

    `presence` is the share of events that have a value in a column: no more of them meet a child there, or look anything up.
    `costs` are cycles: of a test, a visit, a leaf column, a bitmap word; the margin a test must earn; the price, in
    cycles, of the memory of a column in one more leaf; passing over a column without a value.
    """
    n_columns = used.size
    start = np.zeros(n_columns + 1, np.int64)
    who, what = by_column(members, ptr, number, column, used, start)
    work = np.empty(members.size, np.float32)
    price_leaf(members, ptr, number, column, chance, passed, used, width, start, correlation, costs, work)
    best = np.empty(members.size, np.float32)
    gain, spared, visits, price = (
        np.zeros(n_columns, np.float32), np.zeros(n_columns, np.float32), np.zeros(n_columns, np.float32), np.zeros(n_columns, np.float32)
    )  # fmt: skip
    loads, children = np.zeros(n_columns, np.int32), np.zeros(n_columns, np.int32)
    column_savings(members, ptr, number, column, filed, used, work, best, gain, spared, loads)
    levels, takes_null = np.zeros(n_columns, np.uint64), np.zeros(n_columns, np.bool_)
    column_traffic(members, ptr, number, column, lo, hi, shift, filed, used, best, mass_ptr, mass, visits, children, levels,
                   takes_null)  # fmt: skip
    price_tests(start, members.size, width, loads, spared, visits, children, levels, takes_null, presence, costs, price)
    chosen[:] = -1
    tested = np.zeros(n_columns, np.bool_)
    n_tests = pick_tests(members, ptr, number, column, filed, used, start, who, what, work, best, gain, price, costs, order, tested,
                         chosen)  # fmt: skip
    place_rest(members, ptr, number, column, filed, chance, passed, used, width, correlation, costs, work, price, tested,
               chosen)  # fmt: skip
    n_all = np.int64(n_tests)
    for c in order[:n_tests]:
        tested[c] = False
    for c in range(n_columns):
        if tested[c]:
            order[n_all] = c
            n_all += 1
    return n_all
