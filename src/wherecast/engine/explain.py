"""Explanations: why an event does or does not satisfy a subscription."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from wherecast.engine.segment import Segment
from wherecast.index.boxes import walk_constraints
from wherecast.index.packed import unpack_clauses
from wherecast.language.events import EventBatch
from wherecast.language.html import html_table
from wherecast.language.render import describe_constraint
from wherecast.language.schema import Attribute
from wherecast.language.written import write_residual


class NoValue(enum.Enum):
    """Stands for the value where a predicate speaks of several attributes."""

    NO_VALUE = "no value"


NO_VALUE = NoValue.NO_VALUE


@dataclass(frozen=True, slots=True)
class PredicateOutcome:
    """One predicate of a clause, in SQL, the event's value where it speaks of one attribute, and whether it holds."""

    predicate: str
    value: object
    holds: bool


@dataclass(frozen=True, slots=True)
class ClauseOutcome:
    predicates: tuple[PredicateOutcome, ...]

    @property
    def holds(self) -> bool:
        return all(p.holds for p in self.predicates)


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """Why an event matches a filter or not. A filter matches if one of its clauses holds; one without clauses never matches."""

    clauses: tuple[ClauseOutcome, ...]

    @property
    def matches(self) -> bool:
        return any(c.holds for c in self.clauses)

    def __str__(self) -> str:
        if not self.clauses:
            return "does not match: the filter contradicts itself and can never match"
        lines = ["matches" if self.matches else "does not match"]
        for number, clause in enumerate(self.clauses, 1):
            lines.append(f"  clause {number}: {'holds' if clause.holds else 'fails'}")
            for p in clause.predicates:
                shown = f"   ({_shown(p.value)})" if _shown(p.value) else ""
                lines.append(f"    {'ok  ' if p.holds else 'FAIL'} {p.predicate}{shown}")
            if not clause.predicates:
                lines.append("    ok   TRUE")
        return "\n".join(lines)

    def __repr__(self) -> str:
        held = sum(c.holds for c in self.clauses)
        return f"Explanation({'matches' if self.matches else 'does not match'}: {held} of {len(self.clauses)} clauses hold)"

    def _repr_html_(self) -> str:
        title = "matches" if self.matches else "does not match"
        if not self.clauses:
            title = str(self)
        rows = [
            (number, "holds" if p.holds else "fails", p.predicate, _shown(p.value))
            for number, clause in enumerate(self.clauses, 1)
            for p in clause.predicates or (PredicateOutcome("TRUE", NO_VALUE, True),)
        ]
        return html_table(title, ("clause", "", "predicate", "event"), rows)


def _loaded(stored: object, attribute: Attribute) -> object:
    """The value that an index has in another form."""
    if isinstance(stored, list):
        return [_loaded(element, attribute) for element in stored]
    return None if stored is None else attribute.row.load(stored, attribute)


def _shown(value: object) -> str:
    """What an event has, in words; nothing where a predicate speaks of several attributes."""
    return "" if value is NO_VALUE else "is NULL" if value is None else f"is {value!r}"


def explain_filter(segment: Segment, number: int, events: EventBatch) -> Explanation:
    """Walk the clauses of one filter for the single event of a batch."""
    clauses = segment.boxes.clauses_of(number)
    boxes = unpack_clauses(segment.boxes, np.array(clauses, np.int64))
    codes, filters = segment.encode(events), segment.filters(np.array([number]))
    outcomes = []
    for clause in range(len(clauses)):
        found, row = [], int(filters.row_ptr[clause])
        for first, end, held in walk_constraints(boxes, clause, codes, 0):
            number = int(boxes.attr[end - 1])
            if segment.codebook.expression(number) is not None:
                continue  # its residual is shown
            attr = events.schema.columns[number].attr
            value = _loaded(events.array(attr)[0].as_py(), events.schema.attributes[attr])
            text = describe_constraint(filters, events.schema, row, row + end - first)
            found.append(PredicateOutcome(text, value, held))
            row += end - first
        if boxes.residuals[clause] >= 0:
            held = bool(segment.residuals.hold(events, np.zeros(1, np.int64), boxes.residuals[clause : clause + 1])[0])
            text = " AND ".join(write_residual(filters, events.schema, clause))
            found.append(PredicateOutcome(text, NO_VALUE, held))
        outcomes.append(ClauseOutcome(tuple(found)))
    return Explanation(tuple(outcomes))
