"""A throw-away prototype for any set of filters: every clause is filed under its rarest constraint, and the rest is checked.

A constraint is one value or a range of whole numbers. A range is cut into dyadic cells, so what is found in a cell holds there; the
other constraints of a clause stand beside each entry. It starts from numbers, never deletes and counts matches. `search.py` compares
the engine with it.
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np

SAMPLE = 1000


class Clauses(NamedTuple):
    """Conjunctions of ranges over whole numbers from 0 on."""

    owner: np.ndarray  # (clauses,) filter
    attr: np.ndarray  # (clauses, terms) int32; -1: no term
    lo: np.ndarray
    hi: np.ndarray
    not_attr: np.ndarray  # (clauses,) attribute that must be there with another value than `not_value`; -1: none
    not_value: np.ndarray


def build_cells(clauses: Clauses, points: np.ndarray, values: int) -> tuple[np.ndarray, ...]:
    """The arguments of `search_cells` after the events; a negative point is NULL."""
    owner, attr, lo, hi, not_attr, not_value = clauses
    n, k, levels = owner.size, points.shape[1], int(values - 1).bit_length() + 1
    width = 1 << (levels - 1)
    below = np.zeros((k, width + 1))
    for a in range(k):
        seen = points[:SAMPLE, a]
        below[a, 1:] = np.cumsum(np.bincount(seen[seen >= 0], minlength=width)) + np.arange(1, width + 1) / width
    chance = np.where(attr >= 0, below[attr, hi + 1] - below[attr, lo], 1e9)
    best = chance.argmin(1)
    rows = np.arange(n)
    start = np.concatenate([[0], np.cumsum([width >> level for level in range(levels)])])
    used = np.zeros((k, levels), bool)
    cells, ids = [], []
    a, x, y = attr[rows, best], lo[rows, best].astype(np.int64), hi[rows, best].astype(np.int64) + 1
    for level in range(levels):
        for take, cell in ((x & 1, x), (y & 1, y - 1)):
            mine = (x < y) & (take == 1)
            used[a[mine], level] = True
            cells.append(a[mine] * start[-1] + start[level] + cell[mine])
            ids.append(rows[mine])
            if cell is x:
                x = x + mine
        x, y = np.where(x < y, (x + 1) >> 1, x), np.where(x < y, y >> 1, x)
    cell, row = np.concatenate(cells), np.concatenate(ids)
    order = np.argsort(cell, kind="stable")
    row = row[order]
    ptr = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=k * start[-1]))])
    return ptr, start, used, attr[row], lo[row], hi[row], not_attr[row], not_value[row], owner[row]


@nb.njit(cache=True)
def search_cells(points, ptr, start, used, attr, lo, hi, not_attr, not_value, owner, told):  # noqa: ANN001, ANN201
    """Number of (event, filter) pairs; `told` has an entry below 0 per filter."""
    found = 0
    for e in range(points.shape[0]):
        for a in range(points.shape[1]):
            value = points[e, a]
            if value < 0:
                continue
            for level in range(used.shape[1]):
                if not used[a, level]:
                    continue
                cell = a * start[-1] + start[level] + (value >> level)
                for j in range(ptr[cell], ptr[cell + 1]):
                    ok = True
                    if not_attr[j] >= 0:
                        x = points[e, not_attr[j]]
                        ok = x >= 0 and x != not_value[j]
                    for r in range(attr.shape[1]):
                        if not ok or attr[j, r] < 0:
                            break
                        x = points[e, attr[j, r]]
                        ok = lo[j, r] <= x <= hi[j, r]
                    if ok and told[owner[j]] != e:
                        told[owner[j]] = e
                        found += 1
    return found
