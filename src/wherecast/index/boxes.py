"""Boxes: every clause as closed integer intervals, in one set of flat arrays.

Theory of operation
-------------------
In code space (see `codes`) a clause is a conjunction of constraints, at most one per scalar attribute, and a
constraint is a short sorted list of disjoint closed intervals: one for `=`, `<`, BETWEEN, a prefix or a null test,
a few for `<>`, IN and NOT IN. An event is a point. A clause holds when, for every constraint, the event's code lies
in one of its intervals.

The arrays are two levels deep (clause -> rows). A row is one interval; rows of one constraint stand together, and
all but the last of them carry `~attr` instead of `attr`, so that a loop over rows knows where a constraint ends
without a third level of offsets.

An array attribute has several codes per event and may carry several constraints in one clause (one per element asked
for); such a constraint holds when *any* of the event's codes lies in one of its intervals.

`naive_clause_holds` below is the definition; every matcher is a faster way to say the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

#: Upper end of an interval that is open to the right. No attribute has this many codes.
FAR = np.int32(2**31 - 1)
#: Code of NULL and of a missing attribute.
NULL_CODE = 0
#: Lowest code of a value that is there.
FIRST_CODE = 1


class Boxes(NamedTuple):
    """Clauses in code space. Rows of a clause are ordered by attribute, then by interval."""

    filter_ids: npt.NDArray[np.int32]  # (clauses,) ascending: the filter each clause belongs to
    ptr: npt.NDArray[np.int64]  # (clauses + 1,) rows of clause c are ptr[c]:ptr[c + 1]
    attr: npt.NDArray[np.int16]  # (rows,) attribute, or ~attribute when the next row belongs to the same constraint
    lo: npt.NDArray[np.int32]  # (rows,) closed interval, 0 <= lo <= hi
    hi: npt.NDArray[np.int32]  # (rows,) FAR when open to the right
    residuals: npt.NDArray[np.int32]  # (clauses,) residual to evaluate once the box holds, or -1
    n_filters: int  # filters are 0 .. n_filters - 1; one without a clause never matches
    widths: npt.NDArray[np.int32]  # (attributes,) number of codes of each attribute, NULL included

    @property
    def n_clauses(self) -> int:
        return int(self.filter_ids.size)

    @property
    def n_attributes(self) -> int:
        return int(self.widths.size)


class EventCodes(NamedTuple):
    """A batch of events in code space.

    `codes[e, a]` is the code of a scalar attribute. For an array attribute it is `~r` (negative), and the codes of
    the event's array are `list_codes[list_ptr[r]:list_ptr[r + 1]]`: `[NULL_CODE]` for a NULL array, otherwise
    `FIRST_CODE` (the array is there) followed by the codes of its distinct non-null elements, ascending.
    """

    codes: npt.NDArray[np.int32]  # (events, attributes), C order
    list_ptr: npt.NDArray[np.int64]  # (lists + 1,)
    list_codes: npt.NDArray[np.int32]

    @property
    def n_events(self) -> int:
        return int(self.codes.shape[0])


def naive_clause_holds(boxes: Boxes, clause: int, events: EventCodes, event: int) -> bool:
    """Whether one event satisfies one box: the definition that all matchers share."""
    return all(held for _, _, held in walk_constraints(boxes, clause, events, event))


def walk_constraints(boxes: Boxes, clause: int, events: EventCodes, event: int) -> Iterator[tuple[int, int, bool]]:
    """The constraints of a clause as (first row, row after the last, whether it holds)."""
    first, held = int(boxes.ptr[clause]), False
    for row in range(first, int(boxes.ptr[clause + 1])):
        attr = int(boxes.attr[row])
        codes = codes_of(events, event, attr if attr >= 0 else ~attr)
        held = held or any(boxes.lo[row] <= c <= boxes.hi[row] for c in codes)
        if attr >= 0:  # last row of its constraint
            yield first, row + 1, held
            first, held = row + 1, False


def codes_of(events: EventCodes, event: int, column: int) -> list[int]:
    """The codes that an event has in a column."""
    code = int(events.codes[event, column])
    if code >= 0:
        return [code]
    found: list[int] = events.list_codes[events.list_ptr[~code] : events.list_ptr[~code + 1]].tolist()
    return found
