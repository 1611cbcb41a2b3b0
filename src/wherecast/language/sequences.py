"""Sequences of numbers, many in one array: sequence i is `values[ptr[i]:ptr[i + 1]]`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from wherecast.kernels.arrays import Ints, Longs

#: From so many values on, a kernel numbers them.
MANY = 64


def distinct(values: Longs) -> Longs:
    """The values in order, each once. NumPy looks for them in a hash table first, which takes ten times as long if most differ."""
    ordered = np.sort(values)
    is_new = np.ones(ordered.size, bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_new]


def numbered(values: Longs) -> tuple[Longs, Longs]:
    """The values in order, each once, and the number of each value there. Searching for them takes several times as long."""
    if values.size >= MANY:
        found, numbers = _number_values(values)
        order = np.argsort(found)
        return found[order], inverse(order)[numbers]
    order = np.argsort(values)
    ordered = values[order]
    is_new = np.ones(ordered.size, bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    numbers = np.empty(values.size, np.int64)
    numbers[order] = np.cumsum(is_new) - 1
    return ordered[is_new], numbers


def inverse(order: Longs) -> Longs:
    """The place of each number in an order of all of them."""
    places = np.empty(order.size, np.int64)
    places[order] = np.arange(order.size)
    return places


def _number_values(values: Longs) -> tuple[Longs, Longs]:
    """The values in the order in which they first occur, each once, and the number of each."""
    from wherecast.kernels.numbering import number_values  # noqa: PLC0415 - what compiles a few filters does not load Numba

    known, numbers = np.empty(values.size, np.int64), np.empty(values.size, np.int64)
    return known[: number_values(np.ascontiguousarray(values), hash_places(values.size), known, numbers)], numbers


def hash_places(n: int) -> Ints:
    """The empty table of the kernels that number so many values (see `kernels.numbering`)."""
    return np.full(1 << (2 * n).bit_length(), -1, np.int32)


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


def number_alike(ptr: Longs, values: Longs) -> tuple[Longs, Longs]:
    """A number for each sequence, equal for equal ones, in the order in which they first occur; and the first sequence of each number."""
    n = ptr.size - 1
    if n <= 1:  # what a single filter costs
        return np.zeros(n, np.int64), np.zeros(n, np.int64)
    if n < MANY:
        known: dict[tuple[int, ...], int] = {}
        first: list[int] = []
        numbers = np.empty(n, np.int64)
        flat, ends = values.tolist(), ptr.tolist()
        for i in range(n):
            numbers[i] = number = known.setdefault(tuple(flat[ends[i] : ends[i + 1]]), len(known))
            if number == len(first):
                first.append(i)
        return numbers, np.array(first, np.int64)
    from wherecast.kernels.numbering import number_slices  # noqa: PLC0415 - as above

    starts, numbers = np.empty(n, np.int64), np.empty(n, np.int64)
    return numbers, starts[: number_slices(ptr, values, hash_places(n), starts, numbers)]


def number_sequences(ptr: Longs, values: Longs) -> tuple[Longs, Longs]:
    """As `number_alike`, but sequences are numbered in their own order: by the first value, then the second."""
    numbers, first = number_alike(ptr, values)
    if first.size <= 1:
        return numbers, first
    places, own_ptr = take_ranges(ptr, first)
    rank = _order_sequences(own_ptr, values[places])
    return rank[numbers], first[inverse(rank)]


def _order_sequences(ptr: Longs, values: Longs) -> Longs:
    """The place of each of some different sequences in their order."""
    sizes = np.diff(ptr)
    out, most = np.zeros(sizes.size, np.int64), int(values.max(initial=0)) + 1
    place, longer = 0, np.flatnonzero(sizes)
    while longer.size:
        _, out[longer] = numbered(out[longer] * most + values[ptr[longer] + place])
        place += 1
        longer = longer[sizes[longer] > place]
    return numbered(out * (place + 1) + sizes)[1]
