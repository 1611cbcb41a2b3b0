"""Scan: test every box against every event.

Theory of operation
-------------------
For each event, gather its code for every row, compare with the row's interval, then OR the rows of each constraint and AND
the constraints of each clause by segmented reduction. No index, no state, no cleverness: the reference that every other
matcher is checked against, and the bound that none may exceed by much.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from wherecast.index.bounds import StoredArrays
from wherecast.index.boxes import Boxes, EventCodes
from wherecast.index.packed import PackedBoxes, check_rows
from wherecast.kernels.rows import Rows
from wherecast.matchers.protocol import Arrays, Hits, Matcher

_NO_NUMBERS = np.zeros(0, np.uint8)


class ScanMatcher(Matcher):
    """Vectorised test of all boxes, event by event."""

    name: ClassVar[str] = "scan"

    def __init__(self, boxes: Boxes) -> None:
        self.boxes = boxes
        self._column = np.where(boxes.attr < 0, ~boxes.attr, boxes.attr).astype(np.intp)
        last = boxes.attr >= 0
        self._constraint_starts = np.flatnonzero(np.concatenate(([True], last[:-1]))) if last.size else np.zeros(0, int)
        constraints_before = np.concatenate(([0], np.cumsum(last)))
        clause_ptr = constraints_before[boxes.ptr]
        self._constrained = np.flatnonzero(np.diff(clause_ptr) > 0)
        self._clause_starts = clause_ptr[:-1][self._constrained]

    @classmethod
    def build(
        cls,
        boxes: Boxes,
        sample: EventCodes | None = None,  # noqa: ARG003  # a scan plans nothing
        weights: npt.NDArray[np.int32] | None = None,  # noqa: ARG003
    ) -> Self:
        return cls(boxes)

    def match(self, events: EventCodes) -> Hits:
        found = [self._match_one(events, e) for e in range(events.n_events)]
        ptr = np.zeros(len(found) + 1, np.int64)
        ptr[1:] = np.cumsum([f.size for f in found])
        return Hits(ptr, np.concatenate(found).astype(np.int32) if found else np.zeros(0, np.int32))

    def _match_one(self, events: EventCodes, event: int) -> npt.NDArray[np.intp]:
        boxes, point = self.boxes, events.codes[event]
        holds = np.ones(boxes.n_clauses, bool)
        if self._column.size:
            codes = point[self._column]
            hit = (codes >= boxes.lo) & (codes <= boxes.hi)
            for attr in np.flatnonzero(point < 0):
                rows = np.flatnonzero(self._column == attr)
                hit[rows] = self._any_element(events, int(point[attr]), rows)
            held = np.logical_or.reduceat(hit, self._constraint_starts)
            holds[self._constrained] = np.logical_and.reduceat(held, self._clause_starts)
        return np.flatnonzero(holds)

    def _any_element(self, events: EventCodes, code: int, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        elements = events.list_codes[events.list_ptr[~code] : events.list_ptr[~code + 1], None]
        inside: npt.NDArray[np.bool_] = (elements >= self.boxes.lo[rows]) & (elements <= self.boxes.hi[rows])
        return np.asarray(inside.any(axis=0))

    def arrays(self) -> Arrays:
        arrays = {name: a for name, a in self.boxes._asdict().items() if name != "n_filters"}
        return {**arrays, "n_filters": np.array([self.boxes.n_filters])}

    @classmethod
    def check(
        cls,
        arrays: Arrays,
        boxes: PackedBoxes,
        weights: npt.NDArray[np.int32] | None,  # noqa: ARG003 - it lists clauses and weighs them
    ) -> None:
        stored = StoredArrays(arrays, f"matcher {cls.name!r}")
        n = boxes.n_clauses
        ptr, attr = stored.column("ptr", np.int64, size=n + 1), stored.column("attr", np.int16)
        lo, hi = stored.column("lo", np.int32), stored.column("hi", np.int32, size=attr.size)
        widths = stored.column("widths", np.int32)
        stored.require(np.array_equal(widths, boxes.widths), "widths", "is not that of the codes")
        check_rows(stored, Rows(ptr, _NO_NUMBERS, attr, lo, hi), widths)
        for name in ("filter_ids", "residuals"):
            stored.column(name, np.int32, size=n)
        stored.column("n_filters", np.int64, size=1)

    @classmethod
    def from_arrays(cls, arrays: Arrays, boxes: PackedBoxes | None = None) -> Self:  # noqa: ARG003 - it keeps its own
        fields: dict[str, Any] = {name: arrays[name] for name in Boxes._fields}
        fields["n_filters"] = int(arrays["n_filters"][0])
        return cls(Boxes(**fields))

    def explain_plan(self) -> str:
        return f"every event is compared with all {self.boxes.n_clauses} clauses"

    def stats(self) -> dict[str, Any]:
        return {"matcher": self.name, "clauses": self.boxes.n_clauses, "candidates_per_event": self.boxes.n_clauses}
