"""Topics: which of many patterns with wildcards hold for a name of levels, `a/b/c`.

Theory of operation
-------------------
The naive way compares every pattern with the name, level by level. But patterns share their beginnings. So they are a trie
whose edges are levels: a node has a child for each level that continues some pattern, one more for `+`, and says which
pattern ends there and which ends there with `#`. A name walks down from the root through all children that fit, its own
level and `+`: the nodes that are reached after a level are *active*. Work follows the active nodes, of which each leads to
some pattern that fits so far. Where none is left the walk ends, however long the name is.

Levels are numbered once for the whole trie; a level of a name is hashed and found once, whatever the number of active nodes.
The children of all nodes are in one hash table, by node and number of the level: a slot holds 32 bits of the hash and the
child, so that a level that a node does not have is mostly one memory access. A node is one row of small integers, `+` has
a place in it and needs no search. Hashes are seeded: nobody can prepare names that collide.

A node is reached in one way only, from its parent, so there are never more active nodes than one depth of the trie has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bytes, Ints, Longs, Words
from wherecast.kernels.automaton import FIRST_LITERAL, sort_codes
from wherecast.kernels.codes import compare_bytes, hash_bytes
from wherecast.kernels.jit import Scalar, hot, inlined, jit

#: Columns of a node: its parent, the number of the level that leads to it (`ANY_LEVEL` for +), the code of the pattern that
#: ends there and of the one that ends there with # (0: none), its child for + and the number of its other children.
PARENT, LEVEL, END, REST, PLUS, CHILDREN = range(6)
NODE_FIELDS = 6
ANY_LEVEL = -1

_SLASH, _PLUS, _HASH, _DOLLAR = 47, 43, 35, 36
_ONE, _SHIFT = np.uint64(1), np.uint64(32)
_CHILD = np.uint64(0xFFFFFFFF)
_FACTOR, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)

#: The arrays of a trie: nodes, slots of children, where levels begin in the bytes of the patterns and how long they are, their
#: table (places and marks), the bytes, and the seed of all hashes.
Trie = tuple[Any, ...]


@inlined
def _edge_hash(node: Scalar, level: Scalar, seed: np.uint64) -> np.uint64:
    h = ((np.uint64(node) << _SHIFT) ^ np.uint64(level) ^ seed) * _FACTOR
    h = (h ^ (h >> _SHIFT)) * _MIX
    return h ^ (h >> _SHIFT)


@inlined
def _find_child(nodes: npt.NDArray[np.int32], slots: Words, node: Scalar, level: Scalar, seed: np.uint64) -> Scalar:
    """The child of a node for a level, or 0."""
    mask = np.uint64(slots.size - 1)
    h = _edge_hash(node, level, seed)
    slot = h & mask
    mark = h >> _SHIFT
    while slots[np.int64(slot)] != 0:
        entry = slots[np.int64(slot)]
        if entry >> _SHIFT == mark:
            child = np.int64(entry & _CHILD)
            if nodes[child, PARENT] == node and nodes[child, LEVEL] == level:
                return child
        slot = (slot + _ONE) & mask
    return np.int64(0)


@inlined
def _find_level(
    level_at: Longs, level_size: Ints, places: Ints, marks: npt.NDArray[np.uint32], data: Bytes,
    text: Bytes | bytes, start: Scalar, end: Scalar, h: np.uint64,
) -> Scalar:  # fmt: skip
    """The number of the level text[start:end], or -1."""
    mask = np.uint64(places.size - 1)
    slot = h & mask
    mark = np.uint32(h >> _SHIFT)
    while places[np.int64(slot)] >= 0:
        level = np.int64(places[np.int64(slot)])
        if marks[np.int64(slot)] == mark and level_size[level] == end - start:
            at = level_at[level]
            if compare_bytes(text, start, end, data, at, at + level_size[level]) == 0:
                return level
        slot = (slot + _ONE) & mask
    return np.int64(-1)


@inlined
def _end_of_level(text: Bytes | bytes, start: Scalar, end: Scalar) -> Scalar:
    while start < end and text[start] != _SLASH:
        start += 1
    return start


@inlined
def _search(
    trie: Trie, text: Bytes | bytes, start: Scalar, end: Scalar, active: Ints, found: Ints, out: Ints, n: Scalar
) -> Scalar:
    """Append the codes of the patterns that text[start:end] matches to out[:n]; where they end, or -1 if `out` is full."""
    nodes, slots, level_at, level_size, places, marks, data, seed = trie
    if n + 2 > out.size:
        return np.int64(-1)
    first = n
    out[n] = np.int32(1)  # the text is there
    n += 1
    is_system = start < end and text[start] == _DOLLAR
    if nodes[0, REST] != 0 and not is_system:
        out[n] = nodes[0, REST]
        n += 1
    active[0] = 0
    n_active, at = 1, start
    while n_active > 0:
        stop = _end_of_level(text, at, end)
        level = _find_level(level_at, level_size, places, marks, data, text, at, stop, hash_bytes(text, at, stop, seed))
        n_found = 0
        for i in range(n_active):
            node = np.int64(active[i])
            if level >= 0 and nodes[node, CHILDREN] > 0:
                child = _find_child(nodes, slots, node, level, seed)
                if child > 0:
                    found[n_found] = child
                    n_found += 1
            plus = nodes[node, PLUS]
            if plus > 0 and not (is_system and at == start):
                found[n_found] = plus
                n_found += 1
        if n + 2 * n_found > out.size:
            return np.int64(-1)
        for i in range(n_found):
            node = np.int64(found[i])
            if nodes[node, REST] != 0:
                out[n] = nodes[node, REST]
                n += 1
            if stop >= end and nodes[node, END] != 0:
                out[n] = nodes[node, END]
                n += 1
        if stop >= end:
            break
        active, found, n_active, at = found, active, n_found, stop + 1
    sort_codes(out, first, n)
    return n


@hot
def search_topics(
    trie: Trie, offsets: Longs | Ints, data: Bytes, valid: npt.NDArray[np.bool_], row: int, active: Ints, found: Ints,
    ptr: Longs, out: Ints,
) -> Scalar:  # fmt: skip
    """Codes of the names from `row` on: those of name r are out[ptr[r]:ptr[r + 1]], 0 alone where it is not valid.

    `valid` is empty where all are; `active` and `found` have room for the widest depth of the trie. Returns the number of
    names, or the one for which `out` is too small; ptr[row] is known then.
    """
    n = ptr[row]
    for r in range(row, offsets.size - 1):
        if valid.size > 0 and not valid[r]:
            if n == out.size:
                return r
            out[n] = 0
            n += 1
        else:
            end = _search(trie, data, offsets[r], offsets[r + 1], active, found, out, n)
            if end < 0:
                return r
            n = end
        ptr[r + 1] = n
    return offsets.size - 1


@hot
def search_topic(trie: Trie, text: bytes, active: Ints, found: Ints, out: Ints) -> Scalar:
    """Codes of one name; how many there are, or -1 if `out` is too small."""
    return _search(trie, text, 0, len(text), active, found, out, 0)


# Construction


@jit
def build_trie(offsets: Longs, data: Bytes, seed: np.uint64) -> Trie:
    """The trie of patterns that are valid and distinct; pattern i has code i + FIRST_LITERAL."""
    most = offsets.size  # levels and nodes there may be, the root included
    for byte in data:
        most += byte == _SLASH
    nodes = np.zeros((most, NODE_FIELDS), np.int32)
    level_at, level_size = np.empty(most, np.int64), np.empty(most, np.int32)
    slots = np.zeros(16, np.uint64)
    places, marks = np.full(16, -1, np.int32), np.zeros(16, np.uint32)
    n_nodes, n_levels, n_edges = 1, 0, 0
    for i in range(offsets.size - 1):
        node, at, end = np.int64(0), offsets[i], offsets[i + 1]
        while True:
            stop = _end_of_level(data, at, end)
            is_sign = stop - at == 1
            if is_sign and data[at] == _HASH:
                nodes[node, REST] = i + FIRST_LITERAL
                break
            if is_sign and data[at] == _PLUS:
                child = np.int64(nodes[node, PLUS])
                if child == 0:
                    child = np.int64(n_nodes)
                    nodes[node, PLUS] = child
                    nodes[child, PARENT], nodes[child, LEVEL] = node, ANY_LEVEL
                    n_nodes += 1
            else:
                h = hash_bytes(data, at, stop, seed)
                level = _find_level(level_at, level_size, places, marks, data, data, at, stop, h)
                if level < 0:
                    level = np.int64(n_levels)
                    level_at[level], level_size[level] = at, stop - at
                    n_levels += 1
                    if 2 * n_levels > places.size:
                        places, marks = _more_places(level_at, level_size, n_levels - 1, data, seed, places.size * 2)
                    _enter_level(places, marks, level, h)
                child = _find_child(nodes, slots, node, level, seed)
                if child == 0:
                    child = np.int64(n_nodes)
                    nodes[child, PARENT], nodes[child, LEVEL] = node, level
                    nodes[node, CHILDREN] += 1
                    n_nodes += 1
                    n_edges += 1
                    if 2 * n_edges > slots.size:
                        slots = _more_slots(nodes, n_nodes - 1, seed, slots.size * 2)
                    _enter_child(slots, node, level, child, seed)
            node = child
            if stop >= end:
                nodes[node, END] = i + FIRST_LITERAL
                break
            at = stop + 1
    return (
        nodes[:n_nodes].copy(), slots, level_at[:n_levels].copy(), level_size[:n_levels].copy(), places, marks, data, seed,
    )  # fmt: skip


@inlined
def _enter_level(places: Ints, marks: npt.NDArray[np.uint32], level: Scalar, h: np.uint64) -> None:
    mask = np.uint64(places.size - 1)
    slot = h & mask
    while places[np.int64(slot)] >= 0:
        slot = (slot + _ONE) & mask
    places[np.int64(slot)] = level
    marks[np.int64(slot)] = np.uint32(h >> _SHIFT)


@jit
def _more_places(
    level_at: Longs, level_size: Ints, n: int, data: Bytes, seed: np.uint64, size: int
) -> tuple[Ints, npt.NDArray[np.uint32]]:
    places, marks = np.full(size, -1, np.int32), np.zeros(size, np.uint32)
    for level in range(n):
        at = level_at[level]
        _enter_level(places, marks, level, hash_bytes(data, at, at + level_size[level], seed))
    return places, marks


@inlined
def _enter_child(slots: Words, node: Scalar, level: Scalar, child: Scalar, seed: np.uint64) -> None:
    mask = np.uint64(slots.size - 1)
    h = _edge_hash(node, level, seed)
    slot = h & mask
    while slots[np.int64(slot)] != 0:
        slot = (slot + _ONE) & mask
    slots[np.int64(slot)] = (h >> _SHIFT) << _SHIFT | np.uint64(child)


@jit
def _more_slots(nodes: npt.NDArray[np.int32], n: int, seed: np.uint64, size: int) -> Words:
    slots = np.zeros(size, np.uint64)
    for child in range(1, n):
        if nodes[child, LEVEL] != ANY_LEVEL:
            _enter_child(slots, np.int64(nodes[child, PARENT]), np.int64(nodes[child, LEVEL]), child, seed)
    return slots


@jit
def widest_depth(nodes: npt.NDArray[np.int32]) -> Scalar:
    """The most nodes of one depth, which bounds the active ones; parents must come before their children."""
    depth = np.zeros(nodes.shape[0], np.int32)
    for node in range(1, depth.size):
        depth[node] = depth[nodes[node, PARENT]] + 1
    return np.bincount(depth).max()
