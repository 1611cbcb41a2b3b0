"""RAPIDMatch in its own model: subscriptions in {0, 1, *}^k, events in {0, 1}^k.

Theory of operation
-------------------
(Kale, Hazan, Cao, Singh 2005, sections 2 and 4.) Naively, a search tree tests all k properties. But an event with few
ones, a *light* event, cannot match a subscription that asks for more ones, and somewhere it has a long run of zeros.

1. *Sets.* n1(s) is the number of ones of a subscription, n1*(s) of its ones and stars. An event with exactly t ones can
   only match subscriptions of S_t: n1 <= t and n1* >= t. Events with more than c ones share S_{c+1}: n1* >= c + 1.
2. *Blocks.* The properties are cut into t + 1 blocks of consecutive ones; block j of k properties is
   jk // (t + 1) .. (j + 1)k // (t + 1) - 1, so that lengths differ by at most one where t + 1 does not divide k. An event
   with t ones is all zeros in one of them.
3. *Trees.* T^j holds the subscriptions of S_t without a 1 in block j, and tests the other properties in cyclic order from
   the one after it: k/(t + 1) levels are skipped. The event is searched in the tree of its first block of zeros.

S_{c+1} is one tree that tests everything. With c = -1 it is all there is: the tree that the paper compares with.

A subscription is in many trees; its row of bits is stored once, and nodes are 16 bytes (`kernels.binary`).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from wherecast.errors import MatcherError
from wherecast.index.bounds import StoredArrays
from wherecast.kernels.arrays import Bools, Ints, Longs, Words
from wherecast.kernels.jit import frozen
from wherecast.matchers.protocol import Hits
from wherecast.papers.rapidmatch.kernels.binary import (
    BLOCK,
    BLOCK_END,
    FREE,
    MOST_ONES,
    NODE,
    USED,
    copy_tree,
    fill_tree,
    insert_rows,
    list_members,
    measure_rows,
    remove_rows,
)
from wherecast.papers.rapidmatch.kernels.search import choose_trees, search_trees, tally_search, walk_trees

#: "Does not matter" in an array of subscriptions.
STAR = 2
Values = npt.NDArray[np.int8]


class SearchTally(NamedTuple):
    """What searching some events took, in trees whose chains are stored node by node, as the paper has them."""

    events: int
    levels_skipped: int  # properties that the searched trees do not test
    nodes: int  # visited, each one test of a property
    edges: int  # followed
    stored_nodes: int  # visited in the collapsed trees
    rows_compared: int  # leaves of the collapsed trees: subscriptions compared as a whole
    matches: int


class Forest(NamedTuple):
    """Which trees there are."""

    k: int
    first_tree: Longs  # (c + 2,) the first of the t + 1 trees for events with t ones, or -1; last, the one for more
    trees: Longs  # (trees, 4) block begin and end, most n1, least n1*

    @classmethod
    def plan(cls, k: int, c: int, lightest: int = 0) -> Self:
        """The trees for events with `lightest` to c ones, and the one for those with more."""
        lightest = min(lightest, c + 1)
        trees = [(j * k // (t + 1), (j + 1) * k // (t + 1), t, t) for t in range(lightest, c + 1) for j in range(t + 1)]
        light = np.arange(lightest, c + 2)
        first = light * (light + 1) // 2 - lightest * (lightest + 1) // 2
        table = np.array([*trees, (0, 0, k, c + 1)], np.int64)
        return cls(k, frozen(np.concatenate([np.full(lightest, -1), first])), frozen(table))

    @property
    def c(self) -> int:
        return self.first_tree.size - 2


def pack_subscriptions(values: Values) -> Words:
    """Rows of bits: which properties are tested, then which of those are 1."""
    return np.concatenate([pack_events(values != STAR), pack_events(values == 1)], axis=1)


def pack_events(values: npt.NDArray[Any]) -> Words:
    """Events as bits. There is room for one more property, which is 0."""
    n, k = values.shape
    packed = np.zeros((n, 8 * (k // 64 + 1)), np.uint8)
    packed[:, : (k + 7) // 8] = np.packbits(values.astype(bool), axis=1, bitorder="little")
    return packed.view("<u8").astype(np.uint64, copy=False)


def naive_matches(subscriptions: Values, event: Values) -> Bools:
    """The definition: 0 and 1 match themselves, * matches both."""
    return np.asarray(((subscriptions == STAR) | (subscriptions == event)).all(axis=1))


class BinaryIndex:
    """Subscriptions over k binary properties, in RAPIDMatch's sets, blocks and trees."""

    def __init__(
        self, forest: Forest, nodes: Ints, state: Longs, rows: Words, sizes: Ints, live: Bools, free: list[int]
    ) -> None:
        self.forest, self._trees = forest, forest.trees
        self._nodes, self._state = nodes, state  # see `kernels.binary`
        self._rows, self._sizes, self._live = rows, sizes, live  # by id; n1 and n1* of each row; whether it is there
        self._free = free  # ids of removed subscriptions; the last is used first

    def __len__(self) -> int:
        """Number of subscriptions."""
        return int(self._live.sum())

    @classmethod
    def build(cls, rows: Words, k: int, c: int, lightest: int = 0, live: Bools | None = None) -> Self:
        """All subscriptions at once: tree by tree, each then laid out in the order of search.

        `c` is the number of ones up to which an event is light. No event has less than `lightest` ones: sets for those
        are left out. `live` leaves rows out, whose ids are given to subscriptions to come.
        """
        forest = Forest.plan(k, c, lightest)
        heads = NODE * (1 + len(forest.trees))
        nodes, state, sizes = np.zeros(heads, np.int32), np.array([heads, 0], np.int64), np.zeros((0, 2), np.int32)
        index = cls(forest, nodes, state, rows[:0], sizes, np.zeros(0, bool), [])
        ids = index._store(rows)
        if live is not None:
            ids, index._live, index._free = ids[live], live.copy(), np.flatnonzero(~live)[::-1].tolist()
        members, work = np.empty(ids.size, np.int32), np.empty(NODE * (k + 64), np.int32)
        stack = np.empty(4 * (k + 2), np.int64)
        for t, (block, end, *_) in enumerate(index._trees.tolist()):
            mine = members[: list_members(index._rows, index._sizes, ids, index._trees, t, members)]
            start, levels = end % k, k - end + block
            state, done = np.array([2 * NODE, 0], np.int64), 0
            work[: 2 * NODE] = 0  # node 0 and the head
            while done < mine.size:
                done = fill_tree(work, state, index._rows, mine, done, NODE, start, k, levels)
                if done < mine.size:
                    work = _grown(work, 2 * work.size)
            index._reserve(int(state[USED]))
            copy_tree(work, index._nodes, index._state, NODE * (1 + t), stack)
        index._nodes = index._nodes[: index._state[USED]].copy()
        return index

    def insert(self, rows: Words) -> Ints:
        """Add subscriptions; the ids they get, those of removed ones first."""
        self._own()
        ids, place = self._store(rows), np.zeros(2, np.int64)
        k = self.forest.k
        while not insert_rows(self._nodes, self._state, self._rows, self._sizes, self._trees, k, ids, place):
            self._reserve(NODE * (k + 1))
        return ids

    def remove(self, ids: Ints) -> None:
        """Take subscriptions out. Raises MatcherError, and changes nothing, if one of them is not there."""
        ids = np.asarray(ids, np.int32)
        known = (ids >= 0) & (ids < self._live.size)
        known[known] = self._live[ids[known]]
        if not known.all():
            raise MatcherError(f"clause {ids[~known][0]} is not there; {len(self)} are")
        if np.unique(ids).size < ids.size:
            raise MatcherError("a clause is to be removed twice; name each once")
        self._own()
        path = np.empty(self.forest.k + 4, np.int64)
        remove_rows(self._nodes, self._state, self._rows, self._sizes, self._trees, self.forest.k, ids, path)
        self._live[ids] = False
        self._free += ids.tolist()

    def match(self, events: Words) -> Hits:
        """The subscriptions that each event matches."""
        n = len(events)
        chosen, counts, stack = self._choose(events), np.zeros(n, np.int64), np.empty(self.forest.k + 2, np.int32)
        nodes, rows, events = frozen(self._nodes), frozen(self._rows), frozen(events)
        pieces, start, size = [], 0, 1024 + 16 * n
        while start < n:
            out = np.empty(size, np.int32)
            stop = search_trees(nodes, rows, events, chosen, start, stack, out, counts)
            pieces.append(out[: counts[start:stop].sum()])
            size = 4 * size if stop == start else size + int(2 * counts[:stop].sum() / stop * (n - stop))
            start = stop
        ptr = np.zeros(n + 1, np.int64)
        np.cumsum(counts, out=ptr[1:])
        return Hits(ptr, np.concatenate([np.zeros(0, np.int32), *pieces]))

    def tally(self, events: Words) -> SearchTally:
        """What searching these events takes."""
        totals, stack = np.zeros(6, np.int64), np.empty(2 * (self.forest.k + 2), np.int64)
        chosen = self._choose(events)
        tally_search(
            frozen(self._nodes), frozen(self._rows), frozen(events), chosen, self._trees, self.forest.k, stack, totals
        )
        return SearchTally(len(events), *totals.tolist())

    def _choose(self, events: Words) -> Ints:
        chosen = np.empty(len(events), np.int32)
        choose_trees(frozen(events), self.forest.k, self.forest.first_tree, chosen)
        return chosen

    def next_ids(self, n: int) -> Ints:
        """The ids that the next n subscriptions will get."""
        reused = self._free[::-1][:n]
        new = np.arange(self._live.size, self._live.size + n - len(reused))
        return np.concatenate([np.array(reused, np.int32), new]).astype(np.int32)

    @property
    def live(self) -> Bools:
        """By id, whether a subscription is there."""
        return self._live

    def _store(self, rows: Words) -> Ints:
        """Keep the rows of new subscriptions under ids of their own."""
        ids = self.next_ids(len(rows))
        del self._free[max(len(self._free) - len(rows), 0) :]
        needed = max(self._live.size, int(ids.max(initial=-1)) + 1)
        if needed > len(self._rows):
            capacity = max(needed, len(self._rows) * 5 // 4)
            self._rows, self._sizes = _grown(self._rows, capacity), _grown(self._sizes, capacity)
        self._live = _grown(self._live, needed)
        self._rows[ids], self._live[ids] = rows, True
        measure_rows(self._rows, self.forest.k, ids, self._sizes)
        return ids

    def _reserve(self, more: int) -> None:
        needed = int(self._state[USED]) + more
        if needed > np.iinfo(np.int32).max:
            raise MatcherError(f"the trees of {len(self)} subscriptions pass 2**29 nodes; build with a smaller c")
        if needed > self._nodes.size:
            self._nodes = _grown(self._nodes, max(needed, self._nodes.size * 3 // 2))

    def _own(self) -> None:
        """Arrays that belong to a file are copied before the first change."""
        for name in ("_nodes", "_state", "_rows", "_sizes", "_live"):
            array = getattr(self, name)
            if not array.flags.writeable:
                setattr(self, name, array.copy())

    def count_slots(self) -> int:
        """Subscriptions in all trees, each as often as it is there."""
        return int((self._nodes < 0).sum())

    def count_nodes(self) -> int:
        """StoredArrays nodes of all trees; those given back count until they are used again."""
        return int(self._state[USED]) // NODE - 1 - len(self._trees)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The whole state, by name."""
        n = self._live.size
        return {
            "nodes": self._nodes[: self._state[USED]],
            "state": self._state,
            "rows": self._rows[:n],
            "sizes": self._sizes[:n],
            "live": self._live,
            "free": np.array(self._free, np.int32),
            "trees": self._trees,
            "first_tree": self.forest.first_tree,
            "properties": np.array([self.forest.k]),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> Self:
        """The index whose `arrays()` these are; nothing is copied until something changes."""
        forest = Forest(int(arrays["properties"][0]), frozen(arrays["first_tree"]), frozen(arrays["trees"]))
        nodes, state, rows, sizes, live = (arrays[name] for name in ("nodes", "state", "rows", "sizes", "live"))
        return cls(forest, nodes, state, rows, sizes, live, arrays["free"].tolist())


def check_index(stored: StoredArrays, k: int, n_rows: int) -> None:
    """That a search of stored trees over k properties stays inside them, ends, and needs no longer stack than levels."""
    stored.require(stored.column("properties", np.int64, size=1)[0] == k, "properties", "is not that of the partition")
    trees = stored.table("trees", np.int64, 4)
    stored.within(trees, 0, k + 2, "trees")
    blocks = (trees[:, BLOCK] <= trees[:, BLOCK_END]) & (trees[:, BLOCK_END] <= k)
    stored.require(blocks.all(), "trees", "has a block that there is not")
    first_tree = stored.column("first_tree", np.int64)
    stored.require(first_tree.size and first_tree[-1] >= 0, "first_tree", "has no tree for the other events")
    stored.within(first_tree, -1, len(trees), "first_tree")
    ones = np.append(np.arange(first_tree.size - 1), 0)  # events with t ones have t + 1 trees
    stored.require(
        (first_tree[first_tree >= 0] + ones[first_tree >= 0] < len(trees)).all(),
        "first_tree",
        "has more trees than there are",
    )
    rows = stored.table("rows", np.uint64, 2 * (k // 64 + 1), n_rows)
    stored.table("sizes", np.int32, 2, n_rows)
    stored.column("live", np.bool_, size=n_rows)
    stored.within(stored.column("free", np.int32), 0, n_rows, "free")
    nodes, state = stored.column("nodes", np.int32), stored.column("state", np.int64, size=2)
    n = nodes.size
    stored.require(n % NODE == 0 and n >= NODE * (1 + len(trees)), "nodes", "has no head for each tree")
    stored.require(
        state[USED] == n and 0 <= state[FREE] < n and state[FREE] % NODE == 0, "state", "is not that of nodes"
    )
    seen = np.arange(n // NODE) <= len(trees)
    walked = walk_trees(frozen(nodes), frozen(trees), k, len(rows), seen, np.empty(n, np.int32))
    stored.require(not nodes[:NODE].any() and walked, "nodes", "has a link that leads out of its tree or back")


def count_copies(rows: Words, k: int, c: int, lightest: int) -> npt.NDArray[np.float64]:
    """For each number of ones up to c, how many of the trees for it a subscription is in, on average."""
    forest, sizes = Forest.plan(k, c, lightest), np.zeros((len(rows), 2), np.int32)
    ids, members, copies = np.arange(len(rows), dtype=np.int32), np.empty(len(rows), np.int32), np.zeros(c + 1)
    measure_rows(rows, k, ids, sizes)
    for t, ones in enumerate(forest.trees[:-1, MOST_ONES].tolist()):
        copies[ones] += list_members(rows, sizes, ids, forest.trees, t, members) / max(len(rows), 1)
    return copies


def _grown(array: Any, size: int) -> Any:
    """The same array with room for `size` entries, zero beyond what was there."""
    more = np.zeros((size, *array.shape[1:]), array.dtype)
    more[: len(array)] = array
    return more
