"""The default matcher: files every clause where the fewest events ask for it, by estimated cost.

Theory of operation
-------------------
Naively, an event is compared with every clause. This matcher departs from that in three ways, each where it pays:

1. *Filing.* A clause is looked at only by events that meet its rarest constraint: a shallow tree of lookups
   (`kernels.descent`), points by their code, ranges by dyadic cells.
2. *Bitmaps.* The clauses that remain are tested 64 at a time: per column and bucket of codes a row of bits, ANDed.
3. *Dense part.* Clauses that no lookup would spare (most of them match, or nothing in them is rare) are bitmaps
   without a tree, matched for all events of a batch while they are in the cache (`kernels.dense`).

Which clause goes where is decided in `adaptive_plan` from chances estimated in `adaptive_conditions`. All state is
flat arrays: `arrays()` and `from_arrays()` are the stored form, and an index opened from mapped files is used as is.
Matching writes nothing but its own results, so threads may share one matcher.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from wherecast.index.boxes import Boxes, EventCodes
from wherecast.kernels.dense import copy_events, count_dense, list_dense
from wherecast.kernels.descent import LEAF_WORDS, Batch, Scratch, Tree, count_descend, descend
from wherecast.kernels.events import drop_repeats
from wherecast.matchers.adaptive_conditions import Columns, describe, prepare
from wherecast.matchers.adaptive_plan import Costs, Planner

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


class AdaptiveMatcher:
    """Matches batches of events against boxes; built once, then read only."""

    name: ClassVar[str] = "adaptive"

    def __init__(self, columns: Columns, tree: Tree, facts: Longs) -> None:
        self._columns, self._tree, self._facts = columns, tree, facts
        self.n_clauses, first, end, self._stack, replicated = (int(x) for x in facts)
        self._dense = (first, end)
        self._replicated = bool(replicated)

    @classmethod
    def build(cls, boxes: Boxes, sample: EventCodes | None = None, costs: Costs | None = None) -> AdaptiveMatcher:
        """Plan and lay out an index; `sample` says what events look like (see `adaptive_conditions` without one)."""
        columns, conditions, batch = describe(boxes, sample)
        planner = Planner(columns, conditions, batch, costs or Costs())
        planner.grow()
        tree = planner.finish()
        tests = np.diff(tree.nodes[:, :2], axis=1).max() + np.diff(tree.nodes[:, 2:], axis=1).max()
        facts = boxes.n_clauses, *planner.dense, (planner.depth + 1) * tests + 8, planner.leaves.slots > boxes.n_clauses
        return cls(columns, tree, np.array(facts, np.int64))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The whole state, by name."""
        parts = {**self._columns._asdict(), **{f"tree_{k}": v for k, v in self._tree._asdict().items()}}
        return {**parts, "facts": self._facts}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> AdaptiveMatcher:
        """The matcher whose `arrays()` these are; nothing is copied."""
        columns = Columns(**{k: arrays[k] for k in Columns._fields})
        return cls(columns, Tree(**{k: arrays[f"tree_{k}"] for k in Tree._fields}), arrays["facts"])

    def match(self, events: EventCodes) -> tuple[Longs, Ints]:
        """Clauses that hold, each once per event: `ids[ptr[e]:ptr[e + 1]]` are those of event e."""
        batch = prepare(self._columns, events)
        ids, counts = self._descend(batch)
        if self._replicated and batch.list_codes.size:
            ids = ids[: drop_repeats(ids, counts, np.full(self.n_clauses, -1, np.int32))]
        if self._dense[0] == self._dense[1]:
            return _offsets(counts), ids
        dense_counts = np.zeros(events.n_events, np.int64)
        count_dense(self._tree, batch, *self._dense, self._scratch(batch), dense_counts)
        ptr = _offsets(counts + dense_counts)
        cursor = ptr[:-1].copy()
        out = np.empty(ptr[-1], np.int32)
        copy_events(ids, counts, cursor, out)
        list_dense(self._tree, batch, *self._dense, self._scratch(batch), cursor, ptr[1:], out)
        return ptr, out

    def count(self, events: EventCodes) -> Longs:
        """Number of clauses that hold, per event."""
        batch = prepare(self._columns, events)
        if self._replicated and batch.list_codes.size:
            return np.diff(self.match(events)[0])
        counts = np.zeros(events.n_events, np.int64)
        if self._tree.nodes[0].any():
            count_descend(self._tree, batch, self._scratch(batch), counts)
        count_dense(self._tree, batch, *self._dense, self._scratch(batch), counts)
        return counts

    def _scratch(self, batch: Batch) -> Scratch:
        longest = max(int(np.diff(batch.list_ptr).max(initial=1)), 1)
        stack, places = np.empty(self._stack * longest, np.int32), np.empty(batch.codes.shape[1] + 1, np.int64)
        return Scratch(stack, places, np.empty(LEAF_WORDS, np.uint64))

    def _descend(self, batch: Batch) -> tuple[Ints, Longs]:
        """Matches of the tree part, packed; the output grows when it is full."""
        n_events = batch.codes.shape[0]
        counts = np.zeros(n_events, np.int64)
        if not self._tree.nodes[0].any() or not n_events:
            return np.zeros(0, np.int32), counts
        pieces, start, size = [], 0, max(64 * LEAF_WORDS * 4, 32 * n_events)
        while start < n_events:
            out = np.empty(size, np.int32)
            stop = descend(self._tree, batch, start, self._scratch(batch), out, counts)
            pieces.append(out[: counts[start:stop].sum()])
            if stop == start:
                size *= 4
            elif stop < n_events:
                size = max(size, int(1.1 * counts[:stop].sum() / stop * (n_events - stop)) + 64 * LEAF_WORDS)
            start = stop
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces), counts

    def stats(self) -> dict[str, Any]:
        """Size and shape of the index."""
        tree, sizes = self._tree, self._tree.leaves[:, 1]
        dense = slice(*self._dense)
        parts = {k: int(v.nbytes) for k, v in self.arrays().items()}
        return {
            "clauses": self.n_clauses,
            "slots": int(sizes.sum()),
            "nodes": len(tree.nodes),
            "tests": len(tree.tests),
            "leaves": len(tree.leaves),
            "row_leaves": int((tree.leaves[:, 2] == 0).sum()),
            "dense_clauses": int(sizes[dense].sum()),
            "bytes": sum(parts.values()),
            "parts": parts,
        }


def _offsets(counts: Longs) -> Longs:
    ptr = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=ptr[1:])
    return ptr
