"""Constraints as intervals of values, as a person writes them: `{'IBM'}`, `[10, 20)`, `{NULL}`."""

from __future__ import annotations

from typing import NamedTuple

from wherecast.language.filters import Filters
from wherecast.language.keys import KEY_MAX, KEY_MIN
from wherecast.language.render import high_bound, low_bound
from wherecast.language.schema import Attribute
from wherecast.language.types import Kind


class Interval(NamedTuple):
    """Ends as SQL literals; None: open, there is no bound. `closed`: the end itself is inside."""

    low: str | None
    low_closed: bool
    high: str | None
    high_closed: bool

    @property
    def is_everything(self) -> bool:
        """Whether every value is inside."""
        return self.low in (None, "-inf") and self.high in (None, "NaN")

    def __str__(self) -> str:
        if self.low is not None and self.low == self.high:
            return f"{{{self.low}}}"
        left = f"{'[' if self.low_closed else '('}{'-inf' if self.low is None else self.low}"
        return f"{left}, {'+inf' if self.high is None else self.high}{']' if self.high_closed else ')'}"


class Constraint(NamedTuple):
    """What a clause says of one attribute (of an array: of one element): the rows `first` .. `end - 1`."""

    attribute: Attribute
    first: int
    end: int
    null: bool
    intervals: list[Interval]

    def __str__(self) -> str:
        if not self.null and len(self.intervals) == 1 and self.intervals[0].is_everything:
            return "not NULL"
        return " | ".join(["{NULL}"] * self.null + [str(i) for i in self.intervals])


def constraints_of(filters: Filters, attributes: tuple[Attribute, ...], clause: int) -> list[Constraint]:
    """The constraints of one clause."""
    found = []
    first = int(filters.row_ptr[clause])
    for row in range(first, int(filters.row_ptr[clause + 1])):
        attr = int(filters.attr[row])
        if attr >= 0:  # the last row of its constraint
            attribute, null = attributes[attr], bool(filters.null[first])
            spans = [_interval(filters, attribute, r) for r in range(first + null, row + 1)]
            found.append(Constraint(attribute, first, row + 1, null, spans))
            first = row + 1
    return found


def _interval(filters: Filters, attribute: Attribute, row: int) -> Interval:
    kind, lo, hi = attribute.kind, int(filters.lo[row]), int(filters.hi[row])
    # The doubles have ends: -inf is below all others, and NaN, which an author may not think of, above all.
    ends = (("-inf", True), ("NaN", True)) if kind is Kind.FLOAT else ((None, False), (None, False))
    low = ends[0] if lo == KEY_MIN else low_bound(kind, lo, filters.strings)
    high = ends[1] if hi == KEY_MAX else high_bound(kind, hi, filters.strings)
    return Interval(*low, *high)
