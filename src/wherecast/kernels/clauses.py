"""The clauses of filters, once their constants are known: sets are united and intersected, clauses are compared.

Theory of operation
-------------------
A filter is a *template* and a shift. A template has clauses, a clause has sets, and a set is the union of *atoms*: sets of
values of one column, given as sorted intervals. An atom of a filter is the template's atom plus the filter's shift, so
one template serves all filters of a shape; a filter whose shape is its own has a template of its own.

For each filter the sets are united, and those of one clause and column are intersected. A clause with an empty set is dropped,
and a set that admits everything is. Then the clauses are simplified: a clause inside another is dropped, and clauses that
differ in one column only are joined. That is not a minimal form (which is NP-hard), but filters that differ in order,
spelling or redundant predicates come out alike.

Sets of elements (of an array, of the literals in a text) are not intersected: "has a and has b" is two constraints. Those of one
column are numbered in order, each once. Their numbers are *parts*; a set of plain values is part 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wherecast.kernels.arrays import Bools, Longs, Shorts
from wherecast.kernels.late import apart, late, late_hot

_LEAST, _MOST = -(2**63), 2**63 - 1
#: Parts of one column: constraint keys are column * _PARTS + part.
_PARTS = 1 << 20
#: Where a count begins that helpers are given. Numba compiles a helper for the literal 0, and once more for other integers.
NONE = np.int64(0)


class Templates(NamedTuple):
    """Clauses of sets of atoms, see above."""

    clause_ptr: Longs  # (templates + 1,)
    set_ptr: Longs  # (templates + 1,) its sets, which its clauses refer to
    clause_set_ptr: Longs  # (clauses + 1,)
    clause_sets: Longs  # numbers of sets
    rest_ptr: Longs  # (clauses + 1,)
    rest: Longs  # residuals of clauses, as atoms
    atom_ptr: Longs  # (sets + 1,)
    atoms: Longs
    column: Longs  # (sets,)
    is_element: Bools  # (sets,)


class Atoms(NamedTuple):
    """Sets of values: sorted intervals that do not touch. Residuals have none."""

    ptr: Longs  # (atoms + 1,)
    lo: Longs
    hi: Longs
    null: Bools  # (atoms,) whether NULL is in the set
    words: Longs  # (atoms,) of a residual: the rank of its words among those of all residuals


class Settled(NamedTuple):
    """The clauses of filters in canonical order."""

    clause_ptr: Longs  # (filters + 1,)
    row_ptr: Longs  # (clauses + 1,)
    attr: Shorts  # (rows,) column, ~column if the next row belongs to the same constraint
    null: Bools
    lo: Longs
    hi: Longs
    source: Longs  # (clauses,) the template's clause


def settle_clauses(template: Longs, shift: Longs, templates: Templates, atoms: Atoms, is_boolean: Bools) -> Settled:
    """The clauses of filters; `is_boolean` tells which columns have two values only."""
    run = _settle.for_size(template.size)
    n, rows, ptr, row_ptr, *columns, source = run(template, shift, tuple(templates), tuple(atoms), is_boolean)
    attr, null, lo, hi = (column[:rows].copy() for column in columns)
    return Settled(ptr, row_ptr[: n + 1].copy(), attr, null, lo, hi, source[:n].copy())


# -- sets ---------------------------------------------------------------------------------------------------------------


@late
def grown(array: Any, size: Any) -> Any:
    """The array, or a longer copy if it has fewer than `size` places."""
    apart()
    if size <= array.size:
        return array
    out = np.empty(2 * size, array.dtype)
    for i in range(array.size):
        out[i] = array[i]
    return out


@late
def wider(table: Any, rows: Any) -> Any:
    """As `grown` for the rows of a table."""
    apart()
    if rows <= table.shape[0]:
        return table
    out = np.empty((2 * rows, table.shape[1]), table.dtype)
    for i in range(table.shape[0]):
        for field in range(table.shape[1]):
            out[i, field] = table[i, field]
    return out


@late_hot
def _copy_row(table: Any, to: Any, source: Any) -> Any:
    for field in range(table.shape[1]):
        table[to, field] = table[source, field]


@late_hot
def _merged(lo: Any, hi: Any, first: Any, end: Any) -> Any:
    """Sort intervals in place and join those that overlap or touch; returns the new end."""
    apart()
    gap = 1
    while gap < (end - first) // 3:
        gap = 3 * gap + 1
    while gap > 0:  # Shell's sort
        for i in range(first + gap, end):
            low, high, j = lo[i], hi[i], i
            while j >= first + gap and lo[j - gap] > low:
                lo[j], hi[j] = lo[j - gap], hi[j - gap]
                j -= gap
            lo[j], hi[j] = low, high
        gap //= 3
    last = first
    for i in range(first + 1, end):
        if hi[last] == _MOST or lo[i] <= hi[last] + 1:
            hi[last] = max(hi[last], hi[i])
        else:
            last += 1
            lo[last], hi[last] = lo[i], hi[i]
    return last + 1 if end > first else end


@late_hot
def _met(lo: Any, hi: Any, a: Any, a_end: Any, b: Any, b_end: Any, at: Any) -> Any:
    """Intersect two sets; the result is put at `at`, its end is returned."""
    while a < a_end and b < b_end:
        low, high = max(lo[a], lo[b]), min(hi[a], hi[b])
        if low <= high:
            lo[at], hi[at] = low, high
            at += 1
        if hi[a] < hi[b]:
            a += 1
        else:
            b += 1
    return at


@late_hot
def _order_sets(lo: Any, hi: Any, sets: Any, a: Any, b: Any) -> Any:
    """-1, 0 or 1: constraints in the order of their intervals; NULL is an interval that comes after others."""
    apart()
    a_first, a_end, b_first, b_end = sets[a, 1], sets[a, 2], sets[b, 1], sets[b, 2]
    if sets[a, 3] != sets[b, 3]:
        return 1 if sets[a, 3] else -1
    for i in range(min(a_end - a_first, b_end - b_first)):
        if lo[a_first + i] != lo[b_first + i]:
            return -1 if lo[a_first + i] < lo[b_first + i] else 1
        if hi[a_first + i] != hi[b_first + i]:
            return -1 if hi[a_first + i] < hi[b_first + i] else 1
    more = (a_end - a_first) - (b_end - b_first)
    return 0 if more == 0 else (-1 if more < 0 else 1)


@late_hot
def _contains(lo: Any, hi: Any, sets: Any, wide: Any, narrow: Any) -> Any:
    if sets[narrow, 3] and not sets[wide, 3]:
        return False
    at, end = sets[wide, 1], sets[wide, 2]
    for i in range(sets[narrow, 1], sets[narrow, 2]):
        while at < end and hi[at] < lo[i]:
            at += 1
        if at == end or lo[at] > lo[i] or hi[i] > hi[at]:
            return False
    return True


# -- clauses ------------------------------------------------------------------------------------------------------------
#
# The constraints of all clauses of a filter are rows of `sets`: key, first and end of its intervals, whether NULL is in it.
# Clauses are rows of `clauses`: first and end of its constraints, first and end of its residuals in `rest`, the template's
# clause, and a mask of its keys.


@late_hot
def _has_rest(rest: Any, clauses: Any, wide: Any, narrow: Any) -> Any:
    """Whether each residual of one clause is one of the other's."""
    at, end = clauses[narrow, 2], clauses[narrow, 3]
    for i in range(clauses[wide, 2], clauses[wide, 3]):
        while at < end and rest[at] < rest[i]:
            at += 1
        if at == end or rest[at] != rest[i]:
            return False
    return True


@late_hot
def _covers(lo: Any, hi: Any, sets: Any, rest: Any, clauses: Any, wide: Any, narrow: Any) -> Any:
    """Whether one clause holds wherever another does, as far as their sets tell."""
    if clauses[wide, 5] & ~clauses[narrow, 5]:
        return False
    at, end = clauses[narrow, 0], clauses[narrow, 1]
    if clauses[wide, 1] - clauses[wide, 0] > end - at:
        return False
    if clauses[wide, 3] > clauses[wide, 2] and not _has_rest(rest, clauses, wide, narrow):
        return False
    for i in range(clauses[wide, 0], clauses[wide, 1]):
        while at < end and sets[at, 0] < sets[i, 0]:
            at += 1
        if at == end or sets[at, 0] != sets[i, 0] or not _contains(lo, hi, sets, i, at):
            return False
    return True


@late_hot
def _absorbed(lo: Any, hi: Any, sets: Any, rest: Any, clauses: Any, n: Any) -> Any:
    """Drop clauses inside others; of equal ones the first stays. Returns how many are left."""
    apart()
    kept = 0
    for i in range(n):
        is_inside = False
        for j in range(kept):
            if _covers(lo, hi, sets, rest, clauses, j, i):
                is_inside = True
                break
        if is_inside:
            continue
        left = 0
        for j in range(kept):
            if not _covers(lo, hi, sets, rest, clauses, i, j):
                if left != j:
                    _copy_row(clauses, left, j)
                left += 1
        if left != i:
            _copy_row(clauses, left, i)
        kept = left + 1
    return kept


@late_hot
def _differ_in(lo: Any, hi: Any, sets: Any, rest: Any, clauses: Any, a: Any, b: Any, key: Any) -> Any:
    """Whether two clauses differ in one constraint only, that of this key; returns how far it is from the first, or -1."""
    apart()
    size = clauses[a, 1] - clauses[a, 0]
    if clauses[a, 5] != clauses[b, 5] or clauses[b, 1] - clauses[b, 0] != size:
        return -1
    if clauses[a, 3] - clauses[a, 2] != clauses[b, 3] - clauses[b, 2]:
        return -1
    found = -1
    for i in range(size):
        x, y = clauses[a, 0] + i, clauses[b, 0] + i
        if sets[x, 0] != sets[y, 0]:
            return -1
        if sets[x, 0] == key:
            found = i
        elif _order_sets(lo, hi, sets, x, y) != 0:
            return -1
    return found if found >= 0 and _has_rest(rest, clauses, a, b) else -1


@late_hot
def _order_clauses(lo: Any, hi: Any, sets: Any, rest: Any, clauses: Any, a: Any, b: Any) -> Any:
    """-1, 0 or 1. Columns first: clauses over different columns have an order that no constant changes."""
    apart()
    a_size, b_size = clauses[a, 1] - clauses[a, 0], clauses[b, 1] - clauses[b, 0]
    x, y = clauses[a, 0], clauses[b, 0]
    for i in range(min(a_size, b_size)):
        if sets[x + i, 0] != sets[y + i, 0]:
            return -1 if sets[x + i, 0] < sets[y + i, 0] else 1
    if a_size != b_size:
        return -1 if a_size < b_size else 1
    for i in range(a_size):
        found = _order_sets(lo, hi, sets, x + i, y + i)
        if found != 0:
            return found
    a_size, b_size = clauses[a, 3] - clauses[a, 2], clauses[b, 3] - clauses[b, 2]
    x, y = clauses[a, 2], clauses[b, 2]
    for i in range(min(a_size, b_size)):
        if rest[x + i] != rest[y + i]:
            return -1 if rest[x + i] < rest[y + i] else 1
    return 0 if a_size == b_size else (-1 if a_size < b_size else 1)


@late_hot
def _mask(sets: Any, first: Any, end: Any) -> Any:
    found = 0
    for i in range(first, end):
        found |= 1 << (sets[i, 0] // _PARTS * 7 + sets[i, 0] % _PARTS) % 62
    return found


@late
def _plain_keys(sets: Any, clauses: Any, n: Any) -> Any:
    """The keys of all sets of plain values, in order, each once; and how many they are."""
    apart()
    most, n_keys = 0, 0
    for c in range(n):
        most += clauses[c, 1] - clauses[c, 0]
    keys = np.empty(most, np.int64)
    for c in range(n):
        for i in range(clauses[c, 0], clauses[c, 1]):
            key, at = sets[i, 0], n_keys
            while at > 0 and keys[at - 1] > key:
                at -= 1
            if key % _PARTS or (at > 0 and keys[at - 1] == key):
                continue
            for k in range(n_keys, at, -1):
                keys[k] = keys[k - 1]
            keys[at] = key
            n_keys += 1
    return keys, n_keys


@late_hot
def _next_pair(lo: Any, hi: Any, sets: Any, rest: Any, clauses: Any, n: Any, key: Any, c: Any) -> Any:
    """The next clause from `c` on that differs from a later one in the set of this key only, and that one; or n."""
    apart()
    while c < n:
        for other in range(c + 1, n):
            if _differ_in(lo, hi, sets, rest, clauses, c, other, key) >= 0:
                return c, other
        c += 1
    return n, n


@late
def _joined(lo: Any, hi: Any, used: Any, sets: Any, n_sets: Any, rest: Any, clauses: Any, n: Any) -> Any:
    """Unite clauses that differ in one set of plain values. Returns the grown arrays and how much of them is used."""
    apart()
    keys, n_keys = _plain_keys(sets, clauses, n)
    for k in range(n_keys):
        key = keys[k]
        c, other = _next_pair(lo, hi, sets, rest, clauses, n, key, NONE)
        while c < n:
            first, place = used, -1
            while other < n:
                at = _differ_in(lo, hi, sets, rest, clauses, c, other, key)
                if at < 0:
                    other += 1
                    continue
                own, size = clauses[c, 0] + at, sets[clauses[other, 0] + at, 2] - sets[clauses[other, 0] + at, 1]
                if place < 0:  # a copy of the clause, with room for the union
                    size += sets[own, 2] - sets[own, 1]
                lo, hi = grown(lo, used + size), grown(hi, used + size)
                if place < 0:
                    length = clauses[c, 1] - clauses[c, 0]
                    sets = wider(sets, n_sets + length)
                    for i in range(length):
                        _copy_row(sets, n_sets + i, clauses[c, 0] + i)
                    clauses[c, 0], clauses[c, 1] = n_sets, n_sets + length
                    n_sets += length
                    for i in range(sets[own, 1], sets[own, 2]):
                        lo[used], hi[used] = lo[i], hi[i]
                        used += 1
                    place = clauses[c, 0] + at
                theirs = clauses[other, 0] + at
                for i in range(sets[theirs, 1], sets[theirs, 2]):
                    lo[used], hi[used] = lo[i], hi[i]
                    used += 1
                sets[place, 3] = sets[place, 3] | sets[theirs, 3]
                for i in range(other, n - 1):
                    _copy_row(clauses, i, i + 1)
                n -= 1
            if place >= 0:
                used = _merged(lo, hi, first, used)
                sets[place, 1], sets[place, 2] = first, used
                if sets[place, 3] and used - first == 1 and lo[first] == _LEAST and hi[first] == _MOST:
                    for i in range(place, clauses[c, 1] - 1):  # NULL and every value: no constraint
                        _copy_row(sets, i, i + 1)
                    clauses[c, 1] -= 1
                clauses[c, 5] = _mask(sets, clauses[c, 0], clauses[c, 1])
            c, other = _next_pair(lo, hi, sets, rest, clauses, n, key, c + 1)
    return lo, hi, used, sets, n_sets, n


# -- filters ------------------------------------------------------------------------------------------------------------


@late_hot
def _united(t_atom_ptr: Any, t_atoms: Any, number: Any, shift: Any, atoms: Any, lo: Any, hi: Any, at: Any) -> Any:
    """The union of a set's atoms, put at `at`: its end, and whether NULL is in it."""
    apart()
    ptr, from_lo, from_hi, from_null, _ = atoms
    first, null = at, 0
    for a in range(t_atom_ptr[number], t_atom_ptr[number + 1]):
        atom = t_atoms[a] + shift
        null |= from_null[atom]
        for i in range(ptr[atom], ptr[atom + 1]):
            lo[at], hi[at] = from_lo[i], from_hi[i]
            at += 1
    if t_atom_ptr[number + 1] - t_atom_ptr[number] > 1:
        at = _merged(lo, hi, first, at)
    return at, null


@late_hot
def _work(t: Any, shift: Any, templates: Any, atoms: Any, found: Any) -> Any:
    """Bounds for a template with a shift: intervals, constraints and residuals of its clauses before they are simplified.

    The sizes of its sets are left in `found`.
    """
    apart()
    clause_ptr, set_ptr, c_set_ptr, c_sets, rest_ptr, _, atom_ptr, t_atoms, _, _ = templates
    total = 0
    for s in range(set_ptr[t], set_ptr[t + 1]):
        size = 0
        for a in range(atom_ptr[s], atom_ptr[s + 1]):
            size += atoms[0][t_atoms[a] + shift + 1] - atoms[0][t_atoms[a] + shift]
        found[s - set_ptr[t], 0] = size
        total += size
    first, end = clause_ptr[t], clause_ptr[t + 1]
    for c in range(first, end):
        for i in range(c_set_ptr[c], c_set_ptr[c + 1]):  # the sets of one column are intersected one after the other
            total += found[c_sets[i] - set_ptr[t], 0] * (c_set_ptr[c + 1] - c_set_ptr[c])
    return total, c_set_ptr[end] - c_set_ptr[first], rest_ptr[end] - rest_ptr[first]


@late_hot
def _clause_sets(
    c: Any, s0: Any, templates: Any, found: Any, lo: Any, hi: Any, used: Any, sets: Any, n_sets: Any, is_boolean: Any
) -> Any:
    """The constraints of a clause, in order: how much of the arrays is used then, or -1: it cannot hold."""
    apart()
    c_set_ptr, c_sets, column, is_element = templates[2], templates[3], templates[8], templates[9]
    start = n_sets
    for i in range(c_set_ptr[c], c_set_ptr[c + 1]):
        s = c_sets[i]
        first, end, null = found[s - s0, 0], found[s - s0, 1], found[s - s0, 2]
        key = column[s] * _PARTS + is_element[s]
        if is_element[s]:
            null = 0
        else:  # one set of plain values for each column
            j = start
            while j < n_sets and sets[j, 0] != key:
                j += 1
            if j < n_sets:
                end_met = _met(lo, hi, sets[j, 1], sets[j, 2], first, end, used)
                sets[j, 1], sets[j, 2], sets[j, 3] = used, end_met, sets[j, 3] & null
                used = end_met
                continue
        sets[n_sets, 0], sets[n_sets, 1], sets[n_sets, 2], sets[n_sets, 3] = key, first, end, null
        j = n_sets
        n_sets += 1
        while j > start and (
            sets[j, 0] < sets[j - 1, 0]
            or (is_element[s] and sets[j, 0] == sets[j - 1, 0] and _order_sets(lo, hi, sets, j, j - 1) < 0)
        ):
            for field in range(4):
                sets[j, field], sets[j - 1, field] = sets[j - 1, field], sets[j, field]
            j -= 1
    out = start
    for j in range(start, n_sets):
        key, first, end, null = sets[j, 0], sets[j, 1], sets[j, 2], sets[j, 3]
        own = key // _PARTS
        if key % _PARTS == 0:
            if is_boolean[own]:
                for i in range(first, end):  # both booleans are every value
                    if lo[i] <= 0 and hi[i] >= 1:
                        lo[used], hi[used] = _LEAST, _MOST
                        first, end, used = used, used + 1, used + 1
                        break
            is_full = end - first == 1 and lo[first] == _LEAST and hi[first] == _MOST
            has_elements = j + 1 < n_sets and sets[j + 1, 0] // _PARTS == own
            if has_elements:  # "the array is there" follows from any element that is asked for
                null = 0
            if is_full and (null or has_elements):
                continue
        if first == end and not null:
            return -1, used
        if key % _PARTS:
            if out > start and sets[out - 1, 0] // _PARTS == own and sets[out - 1, 0] % _PARTS:
                if _order_sets(lo, hi, sets, out - 1, j) == 0:
                    continue  # asked for twice
                key = sets[out - 1, 0] + 1
        sets[out, 0], sets[out, 1], sets[out, 2], sets[out, 3] = key, first, end, null
        out += 1
    return out, used


@late_hot
def _is_any_element(lo: Any, hi: Any, sets: Any, i: Any) -> Any:
    """Whether a set is that of all elements. It is written as two intervals, because one stands for "the array is there"."""
    first = sets[i, 1]
    return sets[i, 0] % _PARTS != 0 and sets[i, 2] - first == 1 and lo[first] == _LEAST and hi[first] == _MOST


@late_hot
def _residuals(c: Any, by: Any, templates: Any, words: Any, rest: Any, n_rest: Any) -> Any:
    """Add the residuals of a clause to `rest`, sorted, each once; returns how many there are then."""
    apart()
    rest_ptr, t_rest = templates[4], templates[5]
    first = n_rest
    for i in range(rest_ptr[c], rest_ptr[c + 1]):
        word = words[t_rest[i] + by]
        j = n_rest
        while j > first and rest[j - 1] > word:
            j -= 1
        if j > first and rest[j - 1] == word:
            continue
        for k in range(n_rest, j, -1):
            rest[k] = rest[k - 1]
        rest[j] = word
        n_rest += 1
    return n_rest


@late_hot
def _begun(
    t: Any,
    by: Any,
    templates: Any,
    atoms: Any,
    is_boolean: Any,
    lo: Any,
    hi: Any,
    sets: Any,
    rest: Any,
    clauses: Any,
    found: Any,
) -> Any:
    """The clauses of a template with a shift, but for those that cannot hold: how many, and the used intervals and constraints."""
    apart()
    clause_ptr, set_ptr = templates[0], templates[1]
    s0, s1 = set_ptr[t], set_ptr[t + 1]
    used, n_sets, n, n_rest = NONE, NONE, NONE, NONE
    for s in range(s0, s1):
        end, has_null = _united(templates[6], templates[7], s, by, atoms, lo, hi, used)
        found[s - s0, 0], found[s - s0, 1], found[s - s0, 2] = used, end, has_null
        used = end
    for c in range(clause_ptr[t], clause_ptr[t + 1]):
        end, used = _clause_sets(c, s0, templates, found, lo, hi, used, sets, n_sets, is_boolean)
        if end < 0:
            continue
        clauses[n, 0], clauses[n, 1], clauses[n, 2], clauses[n, 4] = n_sets, end, n_rest, c
        n_rest = _residuals(c, by, templates, atoms[4], rest, n_rest)
        clauses[n, 3], clauses[n, 5] = n_rest, _mask(sets, n_sets, end)
        n_sets = end
        n += 1
    return n, used, n_sets


@late
def _simplified(lo: Any, hi: Any, used: Any, sets: Any, n_sets: Any, rest: Any, clauses: Any, n: Any) -> Any:
    """Drop and join clauses while that is possible, and sort them. Returns the grown arrays, and how many are left."""
    apart()
    before = n + 1
    while 1 < n < before:
        before = _absorbed(lo, hi, sets, rest, clauses, n)
        lo, hi, used, sets, n_sets, n = _joined(lo, hi, used, sets, n_sets, rest, clauses, before)
    for i in range(1, n):
        j = i
        while j > 0 and _order_clauses(lo, hi, sets, rest, clauses, j, j - 1) < 0:
            for field in range(6):
                clauses[j, field], clauses[j - 1, field] = clauses[j - 1, field], clauses[j, field]
            j -= 1
    return lo, hi, sets, n


@late_hot
def _sizes(lo: Any, hi: Any, sets: Any, clauses: Any, n: Any) -> Any:
    """Rows of all clauses."""
    size = 0
    for c in range(n):
        for i in range(clauses[c, 0], clauses[c, 1]):
            size += sets[i, 2] - sets[i, 1] + sets[i, 3] + _is_any_element(lo, hi, sets, i)
    return size


@late_hot
def _write(
    lo: Any, hi: Any, sets: Any, first: Any, end: Any, attr: Any, null: Any, out_lo: Any, out_hi: Any, at: Any
) -> Any:
    """Write the rows of a clause with these constraints from `at` on; returns their end."""
    apart()
    for i in range(first, end):
        column = sets[i, 0] // _PARTS
        if sets[i, 3]:
            attr[at], null[at], out_lo[at], out_hi[at] = ~column, True, 0, 0
            at += 1
        for k in range(sets[i, 1], sets[i, 2]):
            attr[at], null[at], out_lo[at], out_hi[at] = ~column, False, lo[k], hi[k]
            at += 1
        if _is_any_element(lo, hi, sets, i):
            attr[at], null[at], out_lo[at], out_hi[at] = ~column, False, _LEAST + 1, _MOST
            out_hi[at - 1] = _LEAST
            at += 1
        attr[at - 1] = column
    return at


@late
def _settle(template: Any, shift: Any, templates: Any, atoms: Any, is_boolean: Any) -> Any:
    n = template.size
    clause_ptr, set_ptr = templates[0], templates[1]
    out_ptr = np.zeros(n + 1, np.int64)
    row_ptr, source = np.zeros(n + 1, np.int64), np.empty(n + 1, np.int64)
    attr, null = np.empty(4 * n + 16, np.int16), np.empty(4 * n + 16, np.bool_)
    out_lo, out_hi = np.empty(4 * n + 16, np.int64), np.empty(4 * n + 16, np.int64)
    lo, hi = np.empty(256, np.int64), np.empty(256, np.int64)
    sets, rest = np.empty((256, 4), np.int64), np.empty(256, np.int64)
    clauses, found = np.empty((128, 6), np.int64), np.empty((256, 3), np.int64)
    n_out, n_rows = NONE, NONE
    for f in range(n):
        t = template[f]
        if set_ptr[t + 1] - set_ptr[t] > found.shape[0]:
            found = wider(found, set_ptr[t + 1] - set_ptr[t])
        most, most_sets, most_rest = _work(t, shift[f], templates, atoms, found)
        n_clauses = clause_ptr[t + 1] - clause_ptr[t]
        is_short = most + most_sets > lo.size or most_rest > rest.size
        # Asked here: the calls of `grown` take longer than most filters do.
        if is_short or most_sets > sets.shape[0] or n_clauses > clauses.shape[0]:
            lo, hi, rest = grown(lo, most + most_sets), grown(hi, most + most_sets), grown(rest, most_rest)
            sets, clauses = wider(sets, most_sets), wider(clauses, n_clauses)
        left, used, n_sets = _begun(t, shift[f], templates, atoms, is_boolean, lo, hi, sets, rest, clauses, found)
        if left > 1:
            lo, hi, sets, left = _simplified(lo, hi, used, sets, n_sets, rest, clauses, left)
        size = n_rows + _sizes(lo, hi, sets, clauses, left)
        if size > attr.size or n_out + left + 1 > row_ptr.size:
            row_ptr, source = grown(row_ptr, n_out + left + 1), grown(source, n_out + left + 1)
            attr, null, out_lo, out_hi = grown(attr, size), grown(null, size), grown(out_lo, size), grown(out_hi, size)
        for c in range(left):
            n_rows = _write(lo, hi, sets, clauses[c, 0], clauses[c, 1], attr, null, out_lo, out_hi, n_rows)
            source[n_out] = clauses[c, 4]
            n_out += 1
            row_ptr[n_out] = n_rows
        out_ptr[f + 1] = n_out
    return n_out, n_rows, out_ptr, row_ptr, attr, null, out_lo, out_hi, source
