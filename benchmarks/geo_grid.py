"""The floor of `geo`: a throw-away grid of two levels over places, in the same run as the engine.

A filter is filed in the cells that its box meets: fine ones (1/64 of a degree) if it meets at most nine, else coarse ones
(1/8 of a degree). An event looks up one cell of each level by hash, and compares what is filed there with all bounds,
which stand beside each other. The grid starts from numbers, knows which attributes are places, never deletes, and counts
matches. `wherecast bench run` loads this file; `build` is all it calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numba as nb
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

#: Cells per degree, fine and coarse.
LEVELS = 64, 8
#: Most fine cells of a filter along one side.
MOST = 3


class Prototype(NamedTuple):
    """`count(n)` finds the number of matches of the first n events."""

    count: Callable[[int], int]
    nbytes: int


def build(_name: str, predicates: Any, events: np.ndarray) -> Prototype:
    """Index the predicates (ptr, attr, op, value): latitude and longitude are the first two attributes."""
    ptr, attr, op, value = predicates
    n, owner = ptr.size - 1, np.repeat(np.arange(ptr.size - 1), np.diff(ptr))
    low, high = (np.full((n, events.shape[1]), end, np.float64) for end in (-np.inf, np.inf))
    above, below = op != 2, op != 3  # "=" bounds both ends
    low[owner[above], attr[above]] = np.where(op == 0, value, np.nextafter(value, np.inf))[above]
    high[owner[below], attr[below]] = np.where(op == 0, value, np.nextafter(value, -np.inf))[below]
    sides = np.floor(high[:, :2] * LEVELS[0]) - np.floor(low[:, :2] * LEVELS[0])
    fine = (sides < MOST).all(1)
    tables = [make_level(low, high, np.flatnonzero(fine == (level == 0)), level) for level in (0, 1)]
    arrays = [a for table in tables for a in table]
    return Prototype(lambda k: search_grid(events[:k], *arrays), sum(a.nbytes for a in arrays))


def make_level(low: np.ndarray, high: np.ndarray, chosen: np.ndarray, level: int) -> tuple[np.ndarray, ...]:
    """A hash of cells, where the filters of each begin, and their bounds cell by cell."""
    first, last = (np.floor(end[chosen, :2] * LEVELS[level]).astype(np.int64) for end in (low, high))
    cells, rows = [], []
    for i in range(int((last - first)[:, 0].max()) + 1):
        for j in range(int((last - first)[:, 1].max()) + 1):
            meets = (first[:, 0] + i <= last[:, 0]) & (first[:, 1] + j <= last[:, 1])
            cells.append((first[meets, 0] + i) * 2**20 + first[meets, 1] + j)
            rows.append(chosen[meets])
    cell, row = np.concatenate(cells), np.concatenate(rows)
    order = np.argsort(cell, kind="stable")
    keys, starts = np.unique(cell[order], return_index=True)
    slots = np.full(1 << int(2 * keys.size).bit_length(), -1, np.int64)
    fill_slots(keys, slots)
    bounds = np.stack([low[row[order]], high[row[order]]], 2)
    return slots, keys, np.append(starts, cell.size), bounds


@nb.njit
def fill_slots(keys, slots):  # noqa: ANN001, ANN201
    """Enter the keys into an open-addressed table."""
    for i in range(keys.size):
        at = (keys[i] * 0x9E3779B97F4A7C15 >> 20) & (slots.size - 1)
        while slots[at] >= 0:
            at = (at + 1) & (slots.size - 1)
        slots[at] = i


@nb.njit(boundscheck=False, nogil=True)
def search_cell(event, cell, slots, keys, starts, bounds):  # noqa: ANN001, ANN201
    """Number of filters in a cell whose bounds an event is within."""
    at = (cell * 0x9E3779B97F4A7C15 >> 20) & (slots.size - 1)
    while slots[at] >= 0 and keys[slots[at]] != cell:
        at = (at + 1) & (slots.size - 1)
    if slots[at] < 0:
        return 0
    n = 0
    for row in range(starts[slots[at]], starts[slots[at] + 1]):
        holds = True
        for a in range(event.size):
            if event[a] < bounds[row, a, 0] or event[a] > bounds[row, a, 1]:
                holds = False
                break
        n += holds
    return n


@nb.njit(boundscheck=False, nogil=True)
def search_grid(events, slots, keys, starts, bounds, slots2, keys2, starts2, bounds2):  # noqa: ANN001, ANN201
    """Number of matches."""
    n = 0
    for e in range(events.shape[0]):
        lat, lon = events[e, 0], events[e, 1]
        fine = np.int64(np.floor(lat * 64)) * 2**20 + np.int64(np.floor(lon * 64))
        coarse = np.int64(np.floor(lat * 8)) * 2**20 + np.int64(np.floor(lon * 8))
        n += search_cell(events[e], fine, slots, keys, starts, bounds)
        n += search_cell(events[e], coarse, slots2, keys2, starts2, bounds2)
    return n
