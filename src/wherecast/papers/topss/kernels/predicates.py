"""Predicates by content: the number of each, and which of them a code satisfies.

Theory of operation
-------------------
A predicate is an attribute and its sorted intervals. `intern` finds it in a table of numbers with open addressing (linear
probing, at most half full) or gives it a number, one of a removed predicate first. `release` takes it out again and moves
up what stood behind it, so that a search may stop at the first empty slot.

What a code satisfies is found in one of two ways (TOPSS, sections 3.1 and 3.2). *Lists*: per attribute and operator the
predicates ordered by constant; a binary search gives the place from which, or up to which, all hold. *Tables*: per
attribute and operator one slot for each code; the code is its own place. Both mark what holds in a bit vector per event,
so a predicate counts once however many elements of an array satisfy it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Ints, Longs, Words
from wherecast.kernels.jit import ONE, Scalar, hot, inlined

#: The paper's operators, and RANGE for every other set of codes. A predicate `BELOW v` holds for codes from 1 to v - 1.
EQUAL, UNEQUAL, BELOW, ABOVE, RANGE = range(5)
N_OPERATORS = 5
#: Places in the `facts` of a table: numbers ever given, numbers free, used part of the pool.
N_NUMBERS, N_FREE, USED = range(3)


class Interned(NamedTuple):
    """Predicates by content. The intervals of predicate p, lo and hi by turns, are a list of the pool."""

    slots: Ints  # (a power of two,) predicate or -1
    hashes: Longs  # (numbers,)
    attr: Ints  # (numbers,)
    start: Longs  # (numbers,)
    size: Ints  # (numbers,) 0 where the number is free
    capacity: Ints  # (numbers,)
    pool: Ints
    free: Ints  # (numbers,) the first `facts[N_FREE]` are free numbers
    facts: Longs  # (3,)


@inlined
def _hash(attr: Scalar, lo: Ints, hi: Ints, first: Scalar, end: Scalar) -> Scalar:
    """31 bits; no product exceeds 62, so that Python without the compiler gives the same."""
    h = np.int64(attr)
    for row in range(first, end):
        h = ((h ^ np.int64(lo[row])) * 0x2545F491) & 0x3FFFFFFFFFFFFFFF
        h = ((h >> 31) ^ h) & 0x7FFFFFFF
        h = ((h ^ np.int64(hi[row])) * 0x1B873593) & 0x3FFFFFFFFFFFFFFF
        h = ((h >> 29) ^ h) & 0x7FFFFFFF
    return h


@inlined
def _is_same(pool: Ints, at: Scalar, lo: Ints, hi: Ints, first: Scalar, end: Scalar) -> Scalar:
    for row in range(first, end):
        if pool[at] != lo[row] or pool[at + 1] != hi[row]:
            return False
        at += 2
    return True


@hot
def intern(table: Interned, attr: Ints, ptr: Longs, lo: Ints, hi: Ints, begin: Scalar, out: Ints) -> Scalar:
    """Number constraints from `begin` on; the first for which there is no room, or the end, is returned.

    Constraint c is rows ptr[c]:ptr[c + 1]; the last of them carries its attribute.
    """
    slots, hashes, attr_of, start, size, capacity, pool, free, facts = table
    for c in range(begin, ptr.size - 1):
        first, end = ptr[c], ptr[c + 1]
        attribute, need = attr[end - 1], 2 * (end - first)
        h = _hash(attribute, lo, hi, first, end)
        slot = h & (slots.size - 1)
        p = slots[slot]
        while p >= 0 and not (
            hashes[p] == h
            and attr_of[p] == attribute
            and size[p] == need
            and _is_same(pool, start[p], lo, hi, first, end)
        ):
            slot = (slot + 1) & (slots.size - 1)
            p = slots[slot]
        if p < 0:
            n_free = facts[N_FREE]
            p = free[n_free - 1] if n_free else facts[N_NUMBERS]
            if p == hashes.size or (capacity[p] < need and facts[USED] + need > pool.size):
                return c
            if capacity[p] < need:
                start[p], capacity[p] = facts[USED], need
                facts[USED] += need
            if n_free:
                facts[N_FREE] -= 1
            else:
                facts[N_NUMBERS] += 1
            slots[slot], hashes[p], attr_of[p], size[p] = p, h, attribute, need
            for row in range(first, end):
                pool[start[p] + 2 * (row - first)] = lo[row]
                pool[start[p] + 2 * (row - first) + 1] = hi[row]
        out[c] = p
    return ptr.size - 1


@hot
def place_numbers(slots: Ints, hashes: Longs, size: Ints) -> None:
    """Fill an empty table of slots with all numbers in use."""
    mask = slots.size - 1
    for p in range(size.size):
        if size[p] == 0:
            continue
        slot = hashes[p] & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = p


@hot
def release(table: Interned, predicates: Ints) -> None:
    """Take predicates out and free their numbers."""
    slots, hashes, _, _, size, _, _, free, facts = table
    mask = slots.size - 1
    for i in range(predicates.size):
        p = predicates[i]
        hole = hashes[p] & mask
        while slots[hole] != p:
            hole = (hole + 1) & mask
        slots[hole] = -1
        slot = (hole + 1) & mask
        while slots[slot] >= 0:
            # It may move up to the hole unless its own first place lies behind the hole.
            if (slot - (hashes[slots[slot]] & mask)) & mask >= (slot - hole) & mask:
                slots[hole] = slots[slot]
                slots[slot] = -1
                hole = slot
            slot = (slot + 1) & mask
        size[p] = 0
        free[facts[N_FREE]] = p
        facts[N_FREE] += 1


@hot
def drop_repeated(ptr: Longs, predicates: Ints, seen: npt.NDArray[np.bool_]) -> None:
    """Keep each predicate of a clause once; `ptr` and `predicates` are shortened in place.

    `seen` is False for every predicate before and after.
    """
    n, first = 0, 0
    for clause in range(ptr.size - 1):
        begin, end = n, ptr[clause + 1]
        for k in range(first, end):
            if not seen[predicates[k]]:
                seen[predicates[k]] = True
                predicates[n] = predicates[k]
                n += 1
        for k in range(begin, n):
            seen[predicates[k]] = False
        first = end
        ptr[clause + 1] = n


@inlined
def _mark(bits: Words, event: Scalar, predicate: Scalar) -> None:
    bits[event, predicate >> 6] |= ONE << np.uint64(predicate & 63)


@inlined
def _find(order: Longs, low: Scalar, high: Scalar, key: Scalar) -> Scalar:
    """First place in order[low:high] that is not below the key."""
    while low < high:
        middle = (low + high) >> 1
        if order[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _mark_lists(
    ptr: Longs, order: Longs, top: Ints, predicates: Ints, attribute: Scalar, code: Scalar, bits: Words, event: Scalar
) -> None:
    base = N_OPERATORS * attribute
    key = (np.int64(base) << 32) | code
    step = np.int64(1) << 32
    at = _find(order, ptr[base], ptr[base + 1], key)
    if at < ptr[base + 1] and order[at] == key:
        _mark(bits, event, predicates[at])
    if code > 0:  # NULL is neither unequal to a value nor below one
        for i in range(ptr[base + UNEQUAL], ptr[base + UNEQUAL + 1]):
            if order[i] != key + UNEQUAL * step:
                _mark(bits, event, predicates[i])
        end = ptr[base + BELOW + 1]
        for i in range(_find(order, ptr[base + BELOW], end, key + BELOW * step + 1), end):
            _mark(bits, event, predicates[i])
    first = ptr[base + ABOVE]
    for i in range(first, _find(order, first, ptr[base + ABOVE + 1], key + ABOVE * step)):
        _mark(bits, event, predicates[i])
    first = ptr[base + RANGE]
    for i in range(first, _find(order, first, ptr[base + RANGE + 1], key + RANGE * step + 1)):
        if top[i] >= code:
            _mark(bits, event, predicates[i])


@hot
def mark_lists(
    ptr: Longs, order: Longs, top: Ints, predicates: Ints, attributes: Ints, codes: Ints, list_ptr: Longs,
    list_codes: Ints, bits: Words,
) -> None:  # fmt: skip
    """Mark what holds for each event, by ordered lists; see `predicate_index.ListIndex` for the arrays."""
    for event in range(codes.shape[0]):
        for i in range(attributes.size):
            attribute = attributes[i]
            code = codes[event, attribute]
            if code >= 0:
                _mark_lists(ptr, order, top, predicates, attribute, code, bits, event)
            else:
                for k in range(list_ptr[~code], list_ptr[~code + 1]):
                    _mark_lists(ptr, order, top, predicates, attribute, list_codes[k], bits, event)


@inlined
def _mark_slots(table: Ints, first: Scalar, end: Scalar, bits: Words, event: Scalar) -> None:
    for slot in range(first, end):
        if table[slot] >= 0:
            _mark(bits, event, table[slot])


@inlined
def _mark_table(table: Ints, base: Scalar, width: Scalar, code: Scalar, bits: Words, event: Scalar) -> None:
    code = min(code, width - 1)  # a correct coder sends none beyond
    _mark_slots(table, base + code, base + code + 1, bits, event)
    if code > 0:
        first = base + UNEQUAL * width
        _mark_slots(table, first, first + code, bits, event)
        _mark_slots(table, first + code + 1, first + width, bits, event)
        first = base + BELOW * width
        _mark_slots(table, first + code + 1, first + width, bits, event)
    first = base + ABOVE * width
    _mark_slots(table, first, first + code, bits, event)


@hot
def mark_tables(
    table: Ints, base: Longs, width: Ints, attributes: Ints, codes: Ints, list_ptr: Longs, list_codes: Ints, bits: Words
) -> None:
    """Mark what holds for each event, by tables: operator o, constant v of attribute a is slot base[a] + o * width + v."""
    for event in range(codes.shape[0]):
        for i in range(attributes.size):
            attribute = attributes[i]
            code = codes[event, attribute]
            if code >= 0:
                _mark_table(table, base[attribute], width[attribute], code, bits, event)
            else:
                for k in range(list_ptr[~code], list_ptr[~code + 1]):
                    _mark_table(table, base[attribute], width[attribute], list_codes[k], bits, event)
