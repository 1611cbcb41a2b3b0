"""The predicates that subscriptions share: which number each has, and how many use it (TOPSS, section 3).

A predicate is known by its content, all its rows together, so `x IN (1, 2)` is one predicate and has nothing to do with
`x = 1`. The number of a predicate that nobody uses any more is given to the next new one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.kernels.arrays import Ints, Longs
from wherecast.language.sequences import take_ranges
from wherecast.papers.topss.database_relations import PredicateRows


class Uses(NamedTuple):
    """The relation subs_preds(sid, pid): each pair once, in order."""

    sid: Ints
    pid: Ints


class Preds(NamedTuple):
    """The relation preds(pid, attr, op, val, high); a predicate of several intervals has several rows."""

    pid: Ints
    attr: Ints
    op: Ints
    val: Ints
    high: Ints


class PredicateTable:
    """Numbers of predicates in use."""

    def __init__(self) -> None:
        self._pids: dict[bytes, int] = {}
        self._contents: list[bytes] = []  # by pid
        self._uses = np.zeros(0, np.int64)  # by pid
        self._free: list[int] = []

    def number(self, rows: PredicateRows) -> tuple[Uses, Preds]:
        """Number the predicates of new clauses, which from now on use them; with the rows of those that are new."""
        ptr = rows.constraint_ptr()
        contents, kind = _distinct_contents(rows, ptr)
        is_new = np.array([content not in self._pids for content in contents], bool)
        pid_of_kind = np.array([self._find(content) for content in contents], np.int32)
        pairs = np.sort(rows.sid[ptr[:-1]].astype(np.int64) << 32 | pid_of_kind[kind])
        pairs = pairs[np.diff(pairs, prepend=-1) != 0]  # a clause may ask the same twice
        uses = Uses((pairs >> 32).astype(np.int32), (pairs & 0xFFFFFFFF).astype(np.int32))
        self._uses = np.append(self._uses, np.zeros(len(self._contents) - self._uses.size, np.int64))
        self._uses += np.bincount(uses.pid, minlength=self._uses.size)

        constraint_of_kind = np.empty(len(contents), np.int64)
        constraint_of_kind[kind] = np.arange(kind.size)  # any of those alike
        new, new_ptr = take_ranges(ptr, constraint_of_kind[is_new])
        pids = np.repeat(pid_of_kind[is_new], np.diff(new_ptr))
        return uses, Preds(pids, rows.attr[new], rows.op[new], rows.val[new], rows.high[new])

    def unused_without(self, pids: Ints) -> Ints:
        """Which of these predicates, named once for each use that ends, nobody else uses."""
        ending = np.bincount(pids, minlength=self._uses.size)
        return np.flatnonzero((ending > 0) & (ending == self._uses)).astype(np.int32)

    def release(self, pids: Ints) -> None:
        """End uses of predicates; those that nobody uses any more are forgotten."""
        for pid in self.unused_without(pids).tolist():
            del self._pids[self._contents[pid]]
            self._free.append(pid)
        self._uses -= np.bincount(pids, minlength=self._uses.size)

    def _find(self, content: bytes) -> int:
        """The number of a predicate; a new one is given a free number."""
        pid = self._pids.get(content)
        if pid is None:
            if self._free:
                pid = self._free.pop()
                self._contents[pid] = content
            else:
                pid = len(self._contents)
                self._contents.append(content)
            self._pids[content] = pid
        return pid


def _distinct_contents(rows: PredicateRows, ptr: Longs) -> tuple[list[bytes], npt.NDArray[np.intp]]:
    """The contents of all constraints, each once, and which of them each constraint has."""
    content = np.stack([rows.attr, rows.op, rows.val, rows.high], axis=1)
    offsets = ptr * content.itemsize * content.shape[1]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    encoded = pa.Array.from_buffers(pa.large_binary(), ptr.size - 1, buffers).dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.intp)
