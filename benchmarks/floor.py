"""The floor: throw-away prototypes that the engine must beat, in the same run.

topss is matched by ANDing one bitmap per attribute; the rest by a tree that files each clause under its rarest
constraint (points by hash, ranges by dyadic cell), several levels deep, and then checks what is left. They start from
numbers and not from filter texts, code the events beforehand, never delete, and count matches without an id of use to
anyone: a floor, not a design. `wherecast bench run` loads this file; `build` is all it calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numba as nb
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

FAR = np.int32(2**31 - 1)
LEAF, RARE, STEP, DEEPEST, SAMPLE = 32, 0.5, 2, 6, 1000


class Prototype(NamedTuple):
    """`count(n)` finds the number of matches of the first n events."""

    count: Callable[[int], int]
    nbytes: int


def build(name: str, predicates: Any, events: np.ndarray) -> Prototype:
    """Index the predicates (ptr, attr, op, value) and code the events."""
    if name == "topss":
        maps, points = build_bitmaps(predicates, events.shape[1]), events.astype(np.int64)
        return Prototype(lambda n: count_bitmaps(maps, points[:n]), maps.nbytes)
    lo, hi, constrained, codes = make_boxes(predicates, events)
    tree, out = TreeBuilder(lo, hi, constrained, codes[:SAMPLE]).finish(), np.empty(1 << 20, np.int32)
    return Prototype(lambda n: search_tree(*tree, codes[:n], out), sum(a.nbytes for a in tree[1:]))


def make_boxes(predicates: Any, events: np.ndarray) -> tuple[np.ndarray, ...]:
    """Per attribute integer codes: 2 * rank + 1 for a cut point, even numbers for the gaps."""
    ptr, attr, op, value = predicates
    owner = np.repeat(np.arange(ptr.size - 1), np.diff(ptr))
    shape = ptr.size - 1, events.shape[1]
    lo, hi, constrained = np.zeros(shape, np.int32), np.full(shape, FAR, np.int32), np.zeros(shape, bool)
    codes = np.zeros(events.shape, np.int32)
    for j in range(shape[1]):
        mine = attr == j
        s, o, v, x = owner[mine], op[mine], value[mine], events[:, j]
        cuts = np.unique(v)
        c = (2 * np.searchsorted(cuts, v) + 1).astype(np.int32)
        constrained[s, j] = True
        np.maximum.at(lo, (s, j), np.where(o == 0, c, np.where(o == 3, c + 1, 0)).astype(np.int32))
        np.minimum.at(hi, (s, j), np.where(o == 0, c, np.where(o == 2, c - 1, FAR)).astype(np.int32))
        rank = np.searchsorted(cuts, x)
        exact = (rank < cuts.size) & (cuts[np.minimum(rank, max(cuts.size - 1, 0))] == x) if cuts.size else False
        codes[:, j] = np.where(exact, 2 * rank + 1, 2 * rank)
    return lo, hi, constrained, codes


class TreeBuilder:
    """Grows the tree from the root; a node is numbered from 1 up, a leaf from -1 down."""

    def __init__(self, lo: np.ndarray, hi: np.ndarray, constrained: np.ndarray, sample: np.ndarray) -> None:
        self.lo, self.hi, self.constrained = lo, hi, constrained
        self.nodes, self.levels, self.keys, self.kids, self.rows, self.leaves = [], [], [], [], [], []
        self.total = 0
        self.chance = np.ones(lo.shape, np.float32)
        for j in range(lo.shape[1]):
            m, s = constrained[:, j], np.sort(sample[:, j])
            inside = np.searchsorted(s, hi[m, j], "right") - np.searchsorted(s, lo[m, j], "left")
            self.chance[m, j] = (inside + 0.5) / s.size

    def add_leaf(self, clauses: np.ndarray) -> int:
        """Store clauses to be checked one by one."""
        self.rows.append(clauses)
        self.leaves.append((self.total, self.total + clauses.size))
        self.total += clauses.size
        return -len(self.leaves)

    def grow(self, clauses: np.ndarray, used: np.ndarray, depth: int) -> int:
        """File clauses under their rarest constraint that is not used yet."""
        if clauses.size <= LEAF or depth >= DEEPEST:
            return self.add_leaf(clauses)
        p = np.where(used[None, :], np.float32(2), self.chance[clauses])
        best = p.argmin(1)
        inside = p[np.arange(clauses.size), best] < RARE
        if inside.sum() < LEAF // 2:
            return self.add_leaf(clauses)
        me = len(self.nodes)
        self.nodes.append([0, 0, 0])
        mine = [
            level
            for j in np.unique(best[inside]).tolist()
            for level in self.split(clauses[inside & (best == j)], j, used, depth)
        ]
        self.nodes[me][:2] = len(self.levels), len(mine)
        self.levels.extend(mine)
        rest = clauses[~inside]
        self.nodes[me][2] = self.add_leaf(rest) if rest.size else 0
        return me + 1

    def split(self, clauses: np.ndarray, j: int, used: np.ndarray, depth: int) -> list[tuple[int, int, int, int]]:
        """The children of clauses by their dyadic cells on attribute j: one level per cell width."""
        used = used.copy()
        used[j] = True
        width = self.hi[clauses, j].astype(np.int64) - self.lo[clauses, j]
        shift = np.zeros(clauses.size, np.int64)
        shift[width > 0] = np.floor(np.log2(width[width > 0])).astype(np.int64) + 1
        shift = (shift + STEP - 1) // STEP * STEP
        first, last = self.lo[clauses, j].astype(np.int64) >> shift, self.hi[clauses, j].astype(np.int64) >> shift
        two = first != last
        cc, ss = np.concatenate([clauses, clauses[two]]), np.concatenate([shift, shift[two]])
        kk = np.concatenate([first, last[two]])
        order = np.lexsort((kk, ss))
        cc, ss, kk = cc[order], ss[order], kk[order]
        levels = []
        for s in np.unique(ss).tolist():
            b, e = np.searchsorted(ss, s, "left"), np.searchsorted(ss, s, "right")
            keys, at = np.unique(kk[b:e], return_index=True)
            at = np.append(at, e - b)
            children = [self.grow(cc[b + at[i] : b + at[i + 1]], used, depth + 1) for i in range(keys.size)]
            levels.append((j, s, len(self.keys), keys.size))
            self.keys.extend(keys.tolist())
            self.kids.extend(children)
        return levels

    def finish(self) -> tuple[Any, ...]:
        """All as arrays, the constraints of each clause rarest first."""
        n, k = self.lo.shape
        root = self.grow(np.arange(n), np.zeros(k, bool), 0)
        r = np.concatenate(self.rows)
        order = np.argsort(np.where(self.constrained[r], self.chance[r], 2), axis=1)
        size = self.constrained[r].sum(1)
        attr = order[np.arange(k)[None, :] < size[:, None]]
        owner = r[np.repeat(np.arange(r.size), size)]
        ptr = np.concatenate([[0], np.cumsum(size)]).astype(np.int32)
        nodes, levels = _table(self.nodes, 3), _table(self.levels, 4)
        keys, kids, leaves = np.array(self.keys, np.int32), np.array(self.kids, np.int32), _table(self.leaves, 2)
        lo, hi = self.lo[owner, attr], self.hi[owner, attr]
        return root, nodes, levels, keys, kids, leaves, r.astype(np.int32), ptr, attr.astype(np.int16), lo, hi


def _table(rows: list[Any], width: int) -> np.ndarray:
    return np.array(rows, np.int32).reshape(-1, width)


@nb.njit(boundscheck=False, nogil=True)
def search_tree(root, nodes, levels, keys, kids, leaves, rows, ptr, attr, lo, hi, events, out):  # noqa: ANN001, ANN201
    """Number of matches; the last million of them are left in `out`."""
    n = 0
    stack = np.empty(8192, np.int32)
    for e in range(events.shape[0]):
        x = events[e]
        stack[0] = root
        top = 1
        while top > 0:
            top -= 1
            v = stack[top]
            if v < 0:
                for r in range(leaves[-v - 1, 0], leaves[-v - 1, 1]):
                    ok = True
                    for j in range(ptr[r], ptr[r + 1]):
                        c = x[attr[j]]
                        if c < lo[j] or c > hi[j]:
                            ok = False
                            break
                    if ok:
                        out[n & 0xFFFFF] = rows[r]
                        n += 1
            else:
                if nodes[v - 1, 2] != 0:
                    stack[top] = nodes[v - 1, 2]
                    top += 1
                for q in range(nodes[v - 1, 0], nodes[v - 1, 0] + nodes[v - 1, 1]):
                    key = x[levels[q, 0]] >> levels[q, 1]
                    a = levels[q, 2]
                    end = a + levels[q, 3]
                    b = end
                    while a < b:
                        m = (a + b) >> 1
                        if keys[m] < key:
                            a = m + 1
                        else:
                            b = m
                    if a < end and keys[a] == key:
                        stack[top] = kids[a]
                        top += 1
    return n


def build_bitmaps(predicates: Any, n_attributes: int) -> np.ndarray:
    """Per attribute and value 1..10 the subscriptions that let it pass, one bit each."""
    ptr, attr, op, value = predicates
    n, owner = ptr.size - 1, np.repeat(np.arange(ptr.size - 1), np.diff(ptr))
    words = (n + 63) // 64
    maps = np.zeros((n_attributes, 11, words), np.uint64)
    for j in range(n_attributes):
        mine = attr == j
        s, o, v = owner[mine], op[mine], value[mine]
        for x in range(1, 11):
            ok = np.arange(words * 64) < n
            ok[s] = np.where(o == 0, x == v, np.where(o == 1, x != v, np.where(o == 2, x < v, x > v)))
            maps[j, x] = np.packbits(ok, bitorder="little").view(np.uint64)
    return maps


@nb.njit(boundscheck=False, nogil=True)
def count_bitmaps(maps, events):  # noqa: ANN001, ANN201
    """Number of matches: AND ten rows, count the bits."""
    n = 0
    for e in range(events.shape[0]):
        x = events[e]
        for w in range(maps.shape[2]):
            b = maps[0, x[0], w]
            for j in range(1, 10):
                b &= maps[j, x[j], w]
            b = b - ((b >> np.uint64(1)) & np.uint64(0x5555555555555555))
            b = (b & np.uint64(0x3333333333333333)) + ((b >> np.uint64(2)) & np.uint64(0x3333333333333333))
            b = (b + (b >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
            n += np.int64((b * np.uint64(0x0101010101010101)) >> np.uint64(56))
    return n
