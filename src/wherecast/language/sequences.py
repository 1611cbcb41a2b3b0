"""Sequences of numbers, many in one array: sequence i is `values[ptr[i]:ptr[i + 1]]`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from wherecast.kernels.arrays import Longs


def distinct(values: Longs) -> Longs:
    """The values in order, each once. NumPy looks for them in a hash table first, which takes ten times as long if most differ."""
    ordered = np.sort(values)
    is_new = np.ones(ordered.size, bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_new]


def numbered(values: Longs) -> tuple[Longs, Longs]:
    """The values in order, each once, and the number of each value there. Searching for them takes several times as long."""
    order = np.argsort(values)
    ordered = values[order]
    is_new = np.ones(ordered.size, bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    numbers = np.empty(values.size, np.int64)
    numbers[order] = np.cumsum(is_new) - 1
    return ordered[is_new], numbers


def pointer(sizes: Iterable[int] | Longs, n: int) -> Longs:
    """Where each of `n` sequences of these sizes begins, and the end."""
    ptr = np.zeros(n + 1, np.int64)
    np.cumsum(sizes if isinstance(sizes, np.ndarray) else np.fromiter(sizes, np.int64, n), out=ptr[1:])
    return ptr


def take_ranges(ptr: Longs, chosen: Longs) -> tuple[Longs, Longs]:
    """The places of the values of the chosen sequences, one after the other, and the pointer of these."""
    sizes = ptr[chosen + 1] - ptr[chosen]
    out_ptr = np.zeros(chosen.size + 1, np.int64)
    np.cumsum(sizes, out=out_ptr[1:])
    return np.repeat(ptr[chosen] - out_ptr[:-1], sizes) + np.arange(out_ptr[-1]), out_ptr


def number_sequences(ptr: Longs, values: Longs) -> Longs:
    """A number for each sequence, equal for equal ones; numbers begin at 0."""
    if ptr.size <= 2:  # one at most: what a single filter costs
        return np.zeros(ptr.size - 1, np.int64)
    sizes = np.diff(ptr)
    out, most = np.zeros(sizes.size, np.int64), int(values.max(initial=0)) + 1
    place, longer = 0, np.flatnonzero(sizes)
    while longer.size:
        _, out[longer] = numbered(out[longer] * most + values[ptr[longer] + place])
        place += 1
        longer = longer[sizes[longer] > place]
    return numbered(out * (place + 1) + sizes)[1]
