"""Sets of closed integer intervals, one set per row, for many rows at once.

`Ragged` holds the intervals of all rows in three arrays. Two primitives are enough: `merged` brings any pile of
intervals to canonical form (sorted, disjoint, not adjacent), `complement` takes the gaps. Union is a merge of piles and
intersection follows by De Morgan. Rows without an interval are empty sets.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.language.keys import KEY_MAX, KEY_MIN

Int64s = npt.NDArray[np.int64]


class Ragged(NamedTuple):
    """Intervals `lo[i]..hi[i]`, both ends included, of the sets of rows `rows[i]`."""

    rows: Int64s
    lo: Int64s
    hi: Int64s


def single(lo: Int64s, hi: Int64s) -> Ragged:
    """One interval per row; rows with lo > hi are empty."""
    rows = np.flatnonzero(lo <= hi)
    return Ragged(rows, lo[rows], hi[rows])


def everything(n: int) -> Ragged:
    return Ragged(np.arange(n), np.full(n, KEY_MIN, np.int64), np.full(n, KEY_MAX, np.int64))


def merged(pile: Ragged) -> Ragged:
    """Canonical form: sorted by row and start, overlapping and adjacent intervals joined."""
    keep = pile.lo <= pile.hi
    rows, lo, hi = (a[keep] for a in pile)
    order = np.lexsort((lo, rows))
    rows, lo, hi = rows[order], lo[order], hi[order]
    if rows.size < 2:
        return Ragged(rows, lo, hi)
    reach = _running_max(rows, hi)
    new_row = rows[1:] != rows[:-1]
    # lo - 1 cannot wrap where it matters: lo == KEY_MIN is always the first of its row or joined.
    apart = new_row | ((lo[1:] > reach[:-1]) & (lo[1:] - 1 > reach[:-1]))
    starts = np.concatenate(([True], apart))
    ends = np.concatenate((apart, [True]))
    return Ragged(rows[starts], lo[starts], reach[ends])


def _running_max(rows: Int64s, hi: Int64s) -> Int64s:
    """Greatest end so far within each row."""
    if np.all((rows[1:] != rows[:-1]) | (hi[1:] >= hi[:-1])):
        return hi
    out, best, row = hi.copy(), KEY_MIN, -1
    for i, (r, h) in enumerate(zip(rows.tolist(), hi.tolist(), strict=True)):
        best = h if r != row else max(best, h)
        row, out[i] = r, best
    return out


def complement(sets: Ragged, n: int) -> Ragged:
    """The gaps of canonical sets, for rows 0 .. n - 1."""
    rows, lo, hi = sets
    first = np.ones(rows.size, bool)
    first[1:] = rows[1:] != rows[:-1]
    last = np.ones(rows.size, bool)
    last[:-1] = first[1:]
    before = first & (lo > KEY_MIN)
    after = last & (hi < KEY_MAX)
    inner = ~last[:-1] if rows.size else np.zeros(0, bool)
    whole = np.ones(n, bool)
    whole[rows] = False
    empty = np.flatnonzero(whole)
    pile = Ragged(
        np.concatenate((rows[before], rows[:-1][inner], rows[after], empty)),
        np.concatenate(
            (np.full(before.sum(), KEY_MIN), hi[:-1][inner] + 1, hi[after] + 1, np.full(empty.size, KEY_MIN))
        ),
        np.concatenate(
            (lo[before] - 1, lo[1:][inner] - 1, np.full(after.sum(), KEY_MAX), np.full(empty.size, KEY_MAX))
        ),
    )
    order = np.lexsort((pile.lo, pile.rows))
    return Ragged(pile.rows[order], pile.lo[order], pile.hi[order])


def union(sets: list[Ragged]) -> Ragged:
    if len(sets) == 1:
        return sets[0]
    return merged(Ragged(*(np.concatenate(parts) for parts in zip(*sets, strict=True))))


def intersection(sets: list[Ragged], n: int) -> Ragged:
    if len(sets) == 1:
        return sets[0]
    each = np.arange(n)
    if all(s.rows.size == n and np.array_equal(s.rows, each) for s in sets):  # one interval per row: the common case
        return single(np.maximum.reduce([s.lo for s in sets]), np.minimum.reduce([s.hi for s in sets]))
    return complement(union([complement(s, n) for s in sets]), n)
