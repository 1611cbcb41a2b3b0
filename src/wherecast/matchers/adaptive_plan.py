"""The plan of the adaptive matcher: which clauses are filed where, decided by estimated cost.

Theory of operation
-------------------
Nodes are planned from the root down, each by one kernel call over its clauses (`kernels.choosing`): either tests are
worth their price, and the clauses go to the cells of those tests, or the clauses become leaves. Cells that are too
small to be split again become leaves in bulk; only the others are looked at one by one, so the Python loop runs once
per inner node and not once per leaf.

What no test of the root serves is met by every event. If bitmaps decide it completely it becomes the *dense* part,
matched leaf by leaf with the events inside, which keeps the bitmaps in the first-level cache; otherwise it stays with
the tree. A set of alike clauses therefore ends as one scan, 64 clauses at a time.

Costs are in cycles of one core and were fitted to the reference workloads; being wrong by half moves a leaf's size by
half, and time by a few per cent.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Ints, Longs, Singles
from wherecast.kernels.choosing import NARROW, choose_tests
from wherecast.kernels.descent import NO_NULL, PASSED_AT, LookupTree, Projected
from wherecast.kernels.filing import (
    THRIFT,
    count_cells,
    count_entries,
    fill_hash,
    fill_leaves,
    list_cells,
    plan_leaves,
    sign_clauses,
    weigh_blocks,
)
from wherecast.kernels.leaves import CHECKED, LEAF_WORDS, SIZE, SLOT, WORDS
from wherecast.kernels.leftover import EXACT_CODES
from wherecast.kernels.likelihood import expect_matches
from wherecast.matchers.adaptive_conditions import (
    STEP,
    Conditions,
    guard_buckets,
    measure_correlation,
    sample_codes,
    shares_below,
)
from wherecast.matchers.projection import Projection

#: Most clauses of a leaf.
LEAF_CLAUSES = 64 * LEAF_WORDS
#: Deeper nodes are not split: a clause is filed under at most this many constraints.
DEEPEST = 8
#: Slots per clause beyond which intervals are no longer filed in more than one cell.
MOST_SLOTS = 2.5
#: A level of cells with fewer clauses a cell than this is moved to larger cells.
CROWD = 16
#: Bitmap bytes allowed per byte of constraint rows in what may become the dense part, which has to decide every clause.
DENSE_THRIFT = 1 << 12
#: Most bits per clause of the dense part, and its words at least: fewer are in the cache anyway, and each event costs a pass more.
DENSE_BITS, DENSE_WORDS = 512, 4


class Costs(NamedTuple):
    """Cycles, see `kernels.choosing.choose_tests`."""

    test: float = 10.0
    visit: float = 60.0
    column: float = 5.0
    word: float = 1.0
    margin: float = 1.5  # what a test must save, in units of its cost
    spread: float = 1 / 3  # for the memory of a column in one more leaf: many small leaves are mostly padding
    absent: float = 2.0  # of a test in whose column the event has no value
    dense_word: float = 0.3  # of one column
    dense_list: float = 8.0  # of listing the matches of a word, however few they are
    report: float = 3.0  # of one match
    smallest: float = 64  # clauses of a node that is split


class Leaves:
    """Leaves in the making: their clauses and the way that leads to them."""

    def __init__(self) -> None:
        self.members: list[Ints] = []
        self.sizes: list[Longs] = []
        self.steps: list[Ints] = []
        self.parents: list[Ints] = []
        self.thrift: list[Ints] = []
        self.count = 0
        self.slots = 0

    def add(self, members: Ints, sizes: Longs, steps: Ints, parent: int, thrift: int = THRIFT) -> int:
        """Append leaves of the given sizes; return the number of the first."""
        first = self.count
        self.members.append(members)
        self.sizes.append(sizes)
        self.steps.append(steps)
        self.parents.append(np.full(sizes.size, parent, np.int32))
        self.thrift.append(np.full(sizes.size, thrift, np.int32))
        self.count += sizes.size
        self.slots += members.size
        return first


class TreeBuilder:
    """Grows nodes, tests and tables; `finish` lays out the leaves."""

    def __init__(
        self,
        columns: Projection,
        conditions: Conditions,
        sample: Projected | None,
        costs: Costs,
        weights: Ints | None = None,
    ) -> None:
        self.columns, self.conditions, self.costs, self.weights = columns, conditions, costs, weights
        self.leaves = Leaves()
        self.nodes: list[tuple[int, int, int, int]] = []
        self.tests: list[tuple[int, int, int, int, int]] = []
        self.table: list[Ints] = []
        self.table_size = 0
        self.path: list[tuple[int, int, int, int]] = []
        self.dense = (0, 0)
        self.depth = 0
        self.mass_ptr, self.mass = self._mass(sample)
        self.presence = _presence(columns, sample)
        self.buckets = guard_buckets(columns, sample)
        self.below = shares_below(columns, self.buckets[0], sample)
        self.correlation = measure_correlation(conditions, sample)

    def _mass(self, sample: Projected | None) -> tuple[Longs, npt.NDArray[np.float32]]:
        """Chance of each code of the narrow columns."""
        width = self.columns.width
        ptr = np.concatenate([[0], np.cumsum(np.where(width <= NARROW, width, 0))]).astype(np.int64)
        mass = np.repeat(1 / width, np.diff(ptr))
        if sample is not None:
            for c in np.flatnonzero(width <= NARROW).tolist():
                mass[ptr[c] : ptr[c + 1]] += np.bincount(sample_codes(sample, c), minlength=width[c])
            mass /= sample.codes.shape[0] + 1
        return ptr, mass.astype(np.float32)

    def grow(self) -> None:
        """Plan all nodes; a queue entry is (members, path, depth, place in the table to point here)."""
        queue: list[tuple[Ints, int, int, int]] = [(np.arange(self.conditions.ptr.size - 1, dtype=np.int32), -1, 0, -1)]
        pointers: list[tuple[int, int]] = []
        while queue:
            members, path, depth, place = queue.pop()
            chosen, order = self._choose(members, path, depth)
            if not order.size and place >= 0 and members.size <= LEAF_CLAUSES:
                pointers.append((place, self._add_rest(members, path)[0] + 1))
                continue
            self.depth = max(self.depth, depth)
            node = len(self.nodes)
            self.nodes.append((0, 0, 0, 0))
            if place >= 0:
                pointers.append((place, -node))
            rest = members[chosen < 0]
            first_rest, end_rest = self._add_rest(rest, path, dense=depth == 0)
            first_test = len(self.tests)
            if order.size:
                filed = chosen >= 0
                queue += self._add_tests(members[filed], chosen[filed], order, path, depth)
            self.nodes[node] = (first_test, len(self.tests), first_rest, end_rest)
        table = np.concatenate([np.zeros(0, np.int32), *self.table])
        for place, child in pointers:
            table[place] = child
        self.table = [table]

    def _choose(self, members: Ints, path: int, depth: int) -> tuple[Longs, Ints]:
        c = self.conditions
        used = np.zeros(self.columns.width.size, bool)
        while path >= 0:
            used[self.path[path][0]] = True
            path = self.path[path][3]
        chosen = np.full(members.size, -1, np.int64)
        order = np.zeros(used.size, np.int32)
        if members.size < self.costs.smallest or depth >= DEEPEST or (depth == 0 and self._report_dominates()):
            return chosen, order[:0]
        n = choose_tests(members, c.ptr, c.number, c.column, c.lo, c.hi, c.shift, c.filed, c.chance, c.passed, used,
                         self.columns.width, self.mass_ptr, self.mass, self.presence, self.correlation, np.array(self.costs, np.float32), order, chosen)  # fmt: skip
        if self.leaves.slots > MOST_SLOTS * (c.ptr.size - 1):
            narrow = chosen >= 0
            k = chosen[narrow]
            chosen[narrow] = np.where((c.lo[k] >> c.shift[k]) == (c.hi[k] >> c.shift[k]), k, -1)
        return chosen, order[: n if (chosen >= 0).any() else 0]

    def _report_dominates(self) -> bool:
        """Whether writing the expected matches costs as much as testing every clause with bitmaps, if these can decide all."""
        c, n = self.conditions, self.conditions.ptr.size - 1
        if not c.column.size or self.columns.width.max() > EXACT_CODES:
            return False
        report = float(expect_matches(c.ptr, c.number, c.chance, self.correlation)) * self.costs.report
        if report <= n / 64 * (self.costs.dense_list + self.costs.dense_word):
            return False
        bits, columns = self._weigh_blocks(*self._in_blocks(np.arange(n, dtype=np.int32)))
        return bits <= DENSE_BITS and report > n / 64 * (self.costs.dense_list + columns * self.costs.dense_word)

    def _in_blocks(self, members: Ints) -> tuple[Ints, Longs]:
        """Clauses with the same columns together, and where they are cut into leaves."""
        signature = self._signatures(members)
        weights = np.ones(members.size, np.int32) if self.weights is None else self.weights[members]
        # Clauses of weight 1 first: a word of 64 such clauses is weighed by counting its bits.
        order = np.lexsort((weights, signature, weights > 1))
        return members[order], block_cuts(signature[order])

    def _weigh_blocks(self, members: Ints, cuts: Longs) -> tuple[float, float]:
        """Bits and columns of a clause in the dense part, on average: its leaf has all columns of its neighbours."""
        c = self.conditions
        bits, columns = weigh_blocks(members, cuts, c.ptr, c.number, c.column, self.columns.width)
        return bits / members.size, columns / members.size

    def _add_rest(self, members: Ints, path: int, *, dense: bool = False) -> tuple[int, int]:
        """Leaves of the clauses that no test serves."""
        if not members.size:
            return self.leaves.count, self.leaves.count
        cuts = np.array([0, members.size])
        if dense or members.size > LEAF_CLAUSES:
            members, cuts = self._in_blocks(members)
        sizes = np.diff(cuts)
        steps = np.full((sizes.size, 3), -1, np.int32)
        dense = dense and self._weigh_blocks(members, cuts)[0] <= DENSE_BITS
        first = self.leaves.add(members, sizes, steps, path, DENSE_THRIFT if dense else THRIFT)
        return first, self.leaves.count

    def _signatures(self, members: Ints) -> npt.NDArray[np.uint64]:
        """Equal numbers for clauses over the same columns."""
        found = np.zeros(members.size, np.uint64)
        sign_clauses(members, self.conditions.ptr, self.conditions.number, self.conditions.column, found)
        return found

    def _add_tests(
        self, members: Ints, chosen: Longs, order: Ints, path: int, depth: int
    ) -> list[tuple[Ints, int, int, int]]:
        """File members under their chosen constraints; return the children that may be split further."""
        c = self.conditions
        rank = np.zeros(self.columns.width.size, np.int64)
        rank[order] = np.arange(order.size)
        shift = self._merge_levels(c.column[chosen], c.shift[chosen])
        cells = np.zeros(chosen.size, np.int64)
        given = chosen, shift, c.lo, c.hi, c.list_at, c.list_end, c.list_lo, c.list_hi
        count_cells(*given, cells)
        owner, key = np.empty(cells.sum(), np.int32), np.empty(cells.sum(), np.int32)
        list_cells(*given, owner, key)
        place = rank[c.column[chosen]][owner] << 40 | shift[owner].astype(np.int64) << 32 | key
        by_place = np.argsort(place, kind="stable")
        place, clauses = place[by_place], members[owner[by_place]]
        starts = np.concatenate([[0], np.flatnonzero(np.diff(place)) + 1, [place.size]])
        place, sizes = place[starts[:-1]], np.diff(starts)
        steps = np.stack([order[place >> 40], place >> 32 & 255, place & 0xFFFFFFFF], 1).astype(np.int32)
        large = sizes >= self.costs.smallest * 4
        children = np.zeros(sizes.size, np.int32)
        first = self.leaves.add(clauses[np.repeat(~large, sizes)], sizes[~large], steps[~large], path)
        children[~large] = np.arange(first + 1, self.leaves.count + 1)
        takes_null = np.unique(rank[c.column[chosen]][c.lo[chosen] == 0])
        places = self._add_tables(place >> 32, steps, children, frozenset(order[takes_null].tolist()))
        queue = []
        for i in np.flatnonzero(large).tolist():
            self.path.append((*steps[i].tolist(), path))
            queue.append((clauses[starts[i] : starts[i + 1]], len(self.path) - 1, depth + 1, int(places[i])))
        return queue

    def _merge_levels(self, column: Ints, shift: Ints) -> Ints:
        """Move thinly filled levels of cells to coarser ones: every level is a lookup and a visit."""
        loads = np.bincount(column.astype(np.int64) * 32 + shift, minlength=32 * self.columns.width.size).reshape(
            -1, 32
        )
        targets = np.tile(np.arange(32, dtype=np.int32), (self.columns.width.size, 1))
        for c in np.flatnonzero(loads[:, 1:].any(1)).tolist():  # single codes alone stay where they are
            width, load, target = int(self.columns.width[c]), loads[c].copy(), targets[c]
            for s in range(0, 31 - STEP, STEP):
                points = s == 0 and (load[0] >= CROWD or not load[1:].any())
                cells = (width >> s) + 1
                if load[s] and not points and cells > 4 and load[s] < CROWD * min(cells, load[s]):
                    load[s + STEP] += load[s]
                    load[s] = 0
                    target[target == s] = s + STEP
        moved: Ints = targets[column, shift]
        return moved

    def _add_tables(self, group: Longs, steps: Ints, children: Ints, null: frozenset[int]) -> Longs:
        """One test per (column, shift); returns the place of each child in the table, to be set when it is known.

        In the columns of `null` some clause takes NULL.
        """
        places = np.zeros(group.size, np.int64)
        bounds = np.concatenate([[0], np.flatnonzero(np.diff(group)) + 1, [group.size]]).tolist()
        rank = (group >> 8)[bounds[:-1]]
        for n, (a, b) in enumerate(pairwise(bounds)):
            keys, kids = steps[a:b, 2], children[a:b]
            low, span = int(keys[0]), int(keys[-1]) - int(keys[0]) + 1
            capacity = 1 << int(2 * (b - a) - 1).bit_length()
            if span <= 2 * capacity + 16:  # it takes no more memory than a hash, and less time
                table, at, size = np.zeros(span, np.int32), keys - low, span
                table[at] = kids
            else:
                table, size = np.zeros(2 * capacity, np.int32), -capacity
                fill_hash(keys, np.arange(1, b - a + 1, dtype=np.int32), table)
                entries = np.flatnonzero(table[1::2])
                at = np.empty(b - a, np.int64)
                at[table[1::2][entries] - 1] = 2 * entries + 1
                table[at] = kids
            places[a:b] = self.table_size + at
            column, shift = steps[a, :2].tolist()
            if column not in null:
                behind = int(np.searchsorted(rank, rank[n], "right")) - n - 1
                shift |= NO_NULL | behind << PASSED_AT
            self.tests.append((column, shift, low, size, self.table_size))
            self.table.append(table)
            self.table_size += table.size
        return places

    def finish(self) -> LookupTree:
        """Lay out the leaves and return the tree; `dense` becomes the range of leaves matched apart."""
        gathered, c = self.leaves, self.conditions
        sizes = np.concatenate([np.zeros(0, np.int64), *gathered.sizes])
        leaf_ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        members = np.concatenate([np.zeros(0, np.int32), *gathered.members])
        parent = np.concatenate([np.zeros(0, np.int32), *gathered.parents])
        step = np.concatenate([np.zeros((0, 3), np.int32), *gathered.steps])
        path = np.array(self.path, np.int32).reshape(-1, 4)
        thrift = np.concatenate([np.zeros(0, np.int32), *gathered.thrift])
        leaves = np.zeros((sizes.size, 8), np.int64)
        # A leaf has no more columns than there are, or constraints of its clauses; few of them are written.
        columns = np.empty(min(count_entries(members, c.ptr), sizes.size * self.columns.width.size), np.int64)
        n_columns, n_words, n_guards = plan_leaves(
            leaf_ptr, members, parent, step, path, thrift, c.ptr, c.number, c.column, c.lo, c.hi, c.list_at, c.list_end, c.list_lo, c.list_hi,
            c.filed, c.chance, c.passed,
            self.columns.width, self.presence, *self.buckets, *self.below, self.correlation, leaves, columns,
        )  # fmt: skip
        columns, maps, guards = columns[:n_columns].copy(), np.zeros(n_words, np.uint64), np.zeros(n_guards, np.int32)
        fill_leaves(
            members, parent, step, path, c.ptr, c.number, c.column, c.lo, c.hi, c.list_at, c.list_end, c.list_lo, c.list_hi, c.filed, c.chance,
            self.columns.width, *self.buckets, leaves, columns, maps, guards,
        )  # fmt: skip
        nodes = np.array(self.nodes, np.int32).reshape(-1, 4)
        self._set_dense_apart(nodes, leaves)
        return LookupTree(nodes, np.array(self.tests, np.int32).reshape(-1, 5), self.table[0], leaves, columns, maps,
                    np.concatenate([members, np.zeros(64, np.int32)]), guards, *self.buckets)  # fmt: skip

    def _set_dense_apart(self, nodes: Ints, leaves: Longs) -> None:
        """Take the root's rest leaves out of the tree if bitmaps decide all of them, and they are more than a few words."""
        first, end = int(nodes[0, 2]), int(nodes[0, 3])
        rest = leaves[first:end]
        if rest[:, WORDS].sum() >= DENSE_WORDS and (rest[:, WORDS] > 0).all() and not rest[:, CHECKED].any():
            self.dense = (first, end)
            nodes[0, 2:] = 0


def _presence(columns: Projection, sample: Projected | None) -> Singles:
    """Share of events that have a code other than 0 in each column: NULL, and what no clause asks for."""
    if sample is None:
        return np.ones(columns.width.size, np.float32)
    there = sample.codes > 0
    for event, c in np.argwhere(sample.codes < 0).tolist():
        at = ~sample.codes[event, c]
        there[event, c] = sample.list_codes[sample.list_ptr[at + 1] - 1] > 0
    share: Singles = ((there.sum(0) + 1) / (len(there) + 1)).astype(np.float32)
    return share


def weigh_words(tree: LookupTree, first: int, end: int, weights: Ints) -> Ints:
    """The weight of each word of leaves first:end where its clauses agree, 0 where they do not."""
    out = [np.zeros(0, np.int32)]
    for leaf in range(first, end):
        slot, size, words = (int(tree.leaves[leaf, k]) for k in (SLOT, SIZE, WORDS))
        own = np.zeros(64 * words, np.int32)
        own[:size] = weights[tree.slots[slot : slot + size]]
        own[size:] = own[size - 1] if size else 0
        least, most = own.reshape(-1, 64).min(axis=1), own.reshape(-1, 64).max(axis=1)
        out.append(np.where(least == most, least, 0).astype(np.int32))
    return np.concatenate(out)


def block_cuts(signature: npt.NDArray[np.uint64]) -> Longs:
    """Cut sorted signatures into blocks of at most LEAF_CLAUSES, at changes of signature where blocks stay large."""
    change = np.flatnonzero(signature[1:] != signature[:-1]) + 1
    ends = [0]
    for at in change.tolist():
        # What is left at the end must be large, too: a leaf of a few clauses has no bitmaps.
        if min(at - ends[-1], signature.size - at) >= LEAF_CLAUSES // 4:
            ends.append(at)
    ends.append(signature.size)
    cuts = [0]
    for a, b in pairwise(ends):
        pieces = -(-(b - a) // LEAF_CLAUSES)
        cuts += [a + (b - a) * (i + 1) // pieces for i in range(pieces)]
    return np.array(cuts, np.int64)
