"""Many lists in one pool: moving them, and adding to and dropping from sorted ones.

List k is `pool[start[k]:start[k] + size[k]]`. The lists of clauses by predicate are kept ascending, so that counting
walks through the hits in one direction.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Ints, Longs
from wherecast.kernels.jit import Scalar, hot


@hot
def move_lists(start: Longs, size: Ints, pool: Ints, keys: Ints, places: Longs, target: Ints) -> None:
    """Copy list keys[i] to places[i] of the target, which may be the free end of the pool itself."""
    for i in range(keys.size):
        key = keys[i]
        for j in range(size[key]):
            target[places[i] + j] = pool[start[key] + j]
        start[key] = places[i]


@hot
def fill_lists(start: Longs, size: Ints, pool: Ints, keys: Ints, ptr: Longs, values: Ints) -> None:
    """List keys[i] becomes values[ptr[i]:ptr[i + 1]]; there is room for it."""
    for i in range(keys.size):
        key = keys[i]
        size[key] = ptr[i + 1] - ptr[i]
        for j in range(size[key]):
            pool[start[key] + j] = values[ptr[i] + j]


@hot
def read_lists(start: Longs, size: Ints, pool: Ints, keys: Ints, ptr: Longs, out: Ints) -> None:
    """out[ptr[i]:ptr[i + 1]] becomes list keys[i]."""
    for i in range(keys.size):
        for j in range(size[keys[i]]):
            out[ptr[i] + j] = pool[start[keys[i]] + j]


@hot
def count_in(values: Ints, counts: Ints, first: Ints) -> Scalar:
    """Add each value to `counts`; those whose count was 0 go to `first`, once, and their number is returned."""
    n = 0
    for k in range(values.size):
        if counts[values[k]] == 0:
            first[n] = values[k]
            n += 1
        counts[values[k]] += 1
    return n


@hot
def count_out(values: Ints, counts: Ints, last: Ints) -> Scalar:
    """Take each value from `counts`; those whose count is then 0 go to `last`, and their number is returned."""
    n = 0
    for k in range(values.size):
        counts[values[k]] -= 1
        if counts[values[k]] == 0:
            last[n] = values[k]
            n += 1
    return n


@hot
def merge_clauses(
    start: Longs, size: Ints, pool: Ints, clauses: Ints, ptr: Longs, predicates: Ints, added: Ints, touched: Ints,
    grouped: Ints,
) -> None:  # fmt: skip
    """Add each clause, ascending, to the lists of its predicates, in one pass over what moves; there is room.

    `added` and `touched` are what `count_in` left of a zeroed `added`; it is zero again afterwards. `grouped` is as long as
    `predicates`, and what it holds does not matter.
    """
    place = 0
    for t in range(touched.size):
        place += added[touched[t]]
        added[touched[t]] = place - added[touched[t]]
    for i in range(clauses.size):
        for k in range(ptr[i], ptr[i + 1]):
            grouped[added[predicates[k]]] = clauses[i]
            added[predicates[k]] += 1
    first = 0
    for t in range(touched.size):
        predicate = touched[t]
        begin, old, new = start[predicate], size[predicate] - 1, added[predicate] - 1
        size[predicate] += added[predicate] - first
        for at in range(begin + size[predicate] - 1, begin - 1, -1):
            if new < first:
                break  # what is left stands where it stood
            if old >= 0 and pool[begin + old] > grouped[new]:
                pool[at] = pool[begin + old]
                old -= 1
            else:
                pool[at] = grouped[new]
                new -= 1
        first = added[predicate]
        added[predicate] = 0


@hot
def drop_clauses(
    start: Longs, size: Ints, pool: Ints, predicates: Ints, gone: npt.NDArray[np.bool_], lowest: Scalar
) -> None:
    """Drop clauses marked in `gone`, none below `lowest`, from the lists of some predicates; repeats do no harm."""
    for t in range(predicates.size):
        predicate = predicates[t]
        first, end = start[predicate], start[predicate] + size[predicate]
        low, high = first, end
        while low < high:
            middle = (low + high) >> 1
            if pool[middle] < lowest:
                low = middle + 1
            else:
                high = middle
        write = low
        for read in range(low, end):
            if not gone[pool[read]]:
                pool[write] = pool[read]
                write += 1
        size[predicate] = write - first
