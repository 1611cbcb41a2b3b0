"""Where clauses are filed: the choice of tests for a node, and the cells of each clause.

Theory of operation
-------------------
A node gets its tests one after the other, each time for the column that saves most. What a column saves is the work
on the clauses that can be filed under it, times the chance that the event does not ask for them; what it costs is the
lookup, and the visit of a child as often as there is one. The work on a clause in a leaf is its bit in each bitmap and,
where bitmaps are coarse, the check of its box as often as it is left over.

A clause is filed under a column only if that constraint is about as rare as the rarest it has, so that `symbol = 'X'` is
never given up for `price > 10`, unless nobody else is filed under the rarer one; among equals the first
column chosen takes all, which keeps the number of children that an event meets small (on `gryphon` all constraints are
alike: spread over all columns, every node would have thirty lookups and as many children).

Every clause is assigned once, and its leaving is subtracted from the savings of the other columns it could have had:
the choice costs time linear in the number of constraints, plus columns squared.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.bits import popcount
from wherecast.kernels.jit import Scalar, jit
from wherecast.kernels.leaves import EXACT_CODES, ROW_LEAF
from wherecast.kernels.arrays import Bools, Ints, Longs, Singles


#: A constraint that holds more often than this is not worth a test.
RARE = 0.5
#: A clause may be filed under a constraint this much more likely than its rarest.
KIN = 1.5
#: Cycles of checking one clause by itself: a bitmap leaf with very many columns is no dearer than that.
CHECK_CYCLES = 8.0
#: Up to this many codes, the codes that a test answers are counted exactly.
NARROW = 256


@jit
def left_over(clause: Scalar, ptr: Longs, column: Ints, passed: Singles, used: Bools, width: Ints) -> Scalar:
    """Chance that the bitmaps of a leaf leave a clause to be checked."""
    product, coarse = 1.0, False
    for k in range(ptr[clause], ptr[clause + 1]):
        if not used[column[k]]:
            product *= passed[k]
            coarse |= width[column[k]] > EXACT_CODES
    return product if coarse else 0.0


@jit
def column_savings(
    members: Ints, ptr: Longs, column: Ints, filed: Singles, used: Bools, work: Singles, best: Singles, gain: Singles,
    spared: Singles,
) -> None:  # fmt: skip
    """Per member its rarest usable constraint; per column what filing under it would spare: work, and clauses."""
    for i in range(members.size):
        clause = members[i]
        rarest = np.float32(2.0)
        for k in range(ptr[clause], ptr[clause + 1]):
            if not used[column[k]]:
                rarest = min(rarest, filed[k])
        best[i] = rarest
        for k in range(ptr[clause], ptr[clause + 1]):
            if not used[column[k]] and filed[k] <= RARE and filed[k] <= KIN * rarest:
                gain[column[k]] += work[i] * (np.float32(1.0) - filed[k])
                spared[column[k]] += np.float32(1.0) - filed[k]


@jit
def column_traffic(
    members: Ints, ptr: Longs, column: Ints, lo: Ints, hi: Ints, shift: Ints, filed: Singles, used: Bools, best: Singles,
    mass_ptr: Longs, mass: Singles, visits: Singles, children: Ints, levels: npt.NDArray[np.uint64],
) -> None:  # fmt: skip
    """Per column the chance that an event meets a child, the children (of narrow columns), the shifts in use."""
    seen = np.zeros(mass.size, np.bool_)
    for i in range(members.size):
        clause = members[i]
        for k in range(ptr[clause], ptr[clause + 1]):
            c = column[k]
            if used[c] or filed[k] > RARE or filed[k] > KIN * best[i]:
                continue
            levels[c] |= np.uint64(1) << np.uint64(shift[k])
            if mass_ptr[c + 1] == mass_ptr[c]:
                visits[c] += filed[k]
            else:
                for code in range(mass_ptr[c] + lo[k], mass_ptr[c] + hi[k] + 1):
                    if not seen[code]:
                        seen[code] = True
                        children[c] += 1
                        visits[c] += mass[code]


@jit
def by_column(members: Ints, ptr: Longs, column: Ints, used: Bools, start: Longs) -> tuple[Ints, Longs]:
    """Members and constraints sorted by column (`start` becomes the offsets)."""
    for i in range(members.size):
        for k in range(ptr[members[i]], ptr[members[i] + 1]):
            if not used[column[k]]:
                start[column[k] + 1] += 1
    for c in range(start.size - 1):
        start[c + 1] += start[c]
    place = start.copy()
    who = np.empty(start[-1], np.int32)
    what = np.empty(start[-1], np.int64)
    for i in range(members.size):
        for k in range(ptr[members[i]], ptr[members[i] + 1]):
            c = column[k]
            if not used[c]:
                who[place[c]] = i
                what[place[c]] = k
                place[c] += 1
    return who, what


@jit
def file_rest(members: Ints, ptr: Longs, column: Ints, filed: Singles, tested: Bools, chosen: Longs) -> None:
    """File what has a rarer constraint, that no test serves, under its rarest that one does: the test is made anyway."""
    for i in range(members.size):
        if chosen[i] >= 0:
            continue
        rarest = np.float32(RARE)
        for k in range(ptr[members[i]], ptr[members[i] + 1]):
            if tested[column[k]] and filed[k] <= rarest:
                rarest = filed[k]
                chosen[i] = k


@jit
def choose_tests(
    members: Ints, ptr: Longs, column: Ints, lo: Ints, hi: Ints, shift: Ints, filed: Singles, passed: Singles,
    used: Bools, width: Ints, mass_ptr: Longs, mass: Singles, costs: Singles, order: Ints, chosen: Longs,
) -> Scalar:  # fmt: skip
    """Fill `order` with the columns to test and `chosen` with each member's constraint (-1: rest); return how many.

    `costs` are cycles: of a test, a visit, a leaf column, a bitmap word; the margin a test must earn; the price, in
    cycles, of the memory of a column in one more leaf.
    """
    n_columns = used.size
    start = np.zeros(n_columns + 1, np.int64)
    who, what = by_column(members, ptr, column, used, start)
    present = (np.diff(start) > 0).sum()
    work = np.empty(members.size, np.float32)
    for i in range(members.size):
        checks = CHECK_CYCLES * left_over(members[i], ptr, column, passed, used, width)
        work[i] = min(present * costs[3] / 64 + checks, CHECK_CYCLES)
    best = np.empty(members.size, np.float32)
    gain = np.zeros(n_columns, np.float32)
    spared = np.zeros(n_columns, np.float32)
    column_savings(members, ptr, column, filed, used, work, best, gain, spared)
    visits = np.zeros(n_columns, np.float32)
    children = np.zeros(n_columns, np.int32)
    levels = np.zeros(n_columns, np.uint64)
    column_traffic(members, ptr, column, lo, hi, shift, filed, used, best, mass_ptr, mass, visits, children, levels)
    price = np.empty(n_columns, np.float32)
    length = start[-1] / max(members.size, 1)
    for c in range(n_columns):
        # Columns, at most, of the child that is met.
        child = min(present, (start[c + 1] - start[c] - spared[c]) * length)
        visit = min(visits[c], np.float32(1.0)) * (costs[1] + child * costs[2])
        leaves = min(children[c], (start[c + 1] - start[c]) / ROW_LEAF)
        price[c] = popcount(levels[c]) * (costs[0] + visit) * costs[4] + leaves * present * costs[5]
    chosen[:] = -1
    tested = np.zeros(n_columns, np.bool_)
    n_tests = 0
    while True:
        pick = -1
        profit = 0.0
        for c in range(n_columns):
            if gain[c] - price[c] > profit:
                pick, profit = c, gain[c] - price[c]
        if pick < 0:
            file_rest(members, ptr, column, filed, tested, chosen)
            return n_tests
        order[n_tests] = pick
        tested[pick] = True
        n_tests += 1
        for at in range(start[pick], start[pick + 1]):
            i, k = who[at], what[at]
            if chosen[i] >= 0 or filed[k] > RARE or filed[k] > KIN * best[i]:
                continue
            chosen[i] = k
            for other in range(ptr[members[i]], ptr[members[i] + 1]):
                if not used[column[other]] and filed[other] <= RARE and filed[other] <= KIN * best[i]:
                    gain[column[other]] -= work[i] * (np.float32(1.0) - filed[other])
        gain[pick] = 0.0


@jit
def count_cells(chosen: Longs, shift: Ints, lo: Ints, hi: Ints, list_at: Ints, list_end: Ints, list_lo: Ints,
                list_hi: Ints, cells: Longs) -> None:  # fmt: skip
    """In how many cells each clause is filed: the codes of a short list one by one, otherwise the cells of its hull."""
    for i in range(chosen.size):
        k = chosen[i]
        if list_at[k] >= 0 and shift[i] == 0:
            cells[i] = 0
            for at in range(list_at[k], list_end[k]):
                cells[i] += list_hi[at] - list_lo[at] + 1
        else:
            cells[i] = (hi[k] >> shift[i]) - (lo[k] >> shift[i]) + 1


@jit
def list_cells(chosen: Longs, shift: Ints, lo: Ints, hi: Ints, list_at: Ints, list_end: Ints, list_lo: Ints,
               list_hi: Ints, owner: Ints, key: Ints) -> None:  # fmt: skip
    """The cells that `count_cells` counted: `owner` is the position in `chosen`, `key` the code without low bits."""
    n = 0
    for i in range(chosen.size):
        k = chosen[i]
        if list_at[k] >= 0 and shift[i] == 0:
            for at in range(list_at[k], list_end[k]):
                for code in range(list_lo[at], list_hi[at] + 1):
                    owner[n] = i
                    key[n] = code
                    n += 1
        else:
            for cell in range(lo[k] >> shift[i], (hi[k] >> shift[i]) + 1):
                owner[n] = i
                key[n] = cell
                n += 1


@jit
def fill_hash(keys: Ints, children: Ints, table: Ints) -> None:
    """Enter distinct keys into an empty table of pairs whose number is a power of two."""
    mask = table.size // 2 - 1
    for i in range(keys.size):
        at = (((np.int64(keys[i]) * 2654435769) & 0xFFFFFFFF) >> 7) & mask
        while table[2 * at + 1] != 0:
            at = (at + 1) & mask
        table[2 * at] = keys[i]
        table[2 * at + 1] = children[i]
