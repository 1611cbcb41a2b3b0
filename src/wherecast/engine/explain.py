"""Explanations: why an event does or does not satisfy a subscription."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wherecast.engine.segment import Segment
from wherecast.index.boxes import walk_constraints
from wherecast.index.packed import unpack_boxes
from wherecast.language.evaluate import decimal_scale
from wherecast.language.events import EventBatch
from wherecast.language.expression import Param
from wherecast.language.filters import Filters
from wherecast.language.render import attribute_namer, describe_constraint, literal_text, member_text, render


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


@dataclass(frozen=True, slots=True)
class Explanation:
    """A filter matches when one of its clauses holds; a filter without clauses contradicts itself."""

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
            lines += [f"    {'ok  ' if p.holds else 'FAIL'} {p.predicate}{_shown(p.value)}" for p in clause.predicates]
            if not clause.predicates:
                lines.append("    ok   TRUE")
        return "\n".join(lines)


_NO_VALUE = object()


def _shown(value: object) -> str:
    return "" if value is _NO_VALUE else f"   (is {'NULL' if value is None else repr(value)})"


def explain_filter(segment: Segment, number: int, events: EventBatch) -> Explanation:
    """Walk the clauses of one filter for the single event of a batch."""
    schema, boxes = events.schema, unpack_boxes(segment.boxes)
    codes, filters = segment.encode(events), segment.filters(np.array([number]))
    clauses = segment.boxes.clauses_of(number)
    first_row = int(boxes.ptr[clauses.start])
    outcomes = []
    for clause in clauses:
        found = []
        for first, end, held in walk_constraints(boxes, clause, codes, 0):
            value = events.array(schema.columns[int(boxes.attr[end - 1])].attr)[0].as_py()
            text = describe_constraint(filters, schema, first - first_row, end - first_row)
            found.append(PredicateOutcome(text, value, held))
        if boxes.residuals[clause] >= 0:
            held = bool(segment.residuals.hold(events, np.zeros(1, np.int64), boxes.residuals[clause : clause + 1])[0])
            found.append(PredicateOutcome(describe_residual(filters, clause - clauses.start, events), _NO_VALUE, held))
        outcomes.append(ClauseOutcome(tuple(found)))
    return Explanation(tuple(outcomes))


def describe_residual(filters: Filters, clause: int, events: EventBatch) -> str:
    program = filters.programs[int(filters.program[clause])]
    row = int(filters.program_row[clause])

    def literal(param: Param) -> str:
        if param in program.literals:
            return literal_text(param.type, program.literals[param][row], decimal_scale(param))
        key = next(k for k in program.literals if isinstance(k, tuple) and k[0] == param)
        return ", ".join(member_text(key[1], value) for value in sorted(program.literals[key][row]))

    parts = []
    for residual in program.residuals:
        text = render(residual.node, attribute_namer(events.schema), literal)
        parts.append(text if residual.truth == "true" else f"({text}) IS {residual.truth.upper()}")
    return " AND ".join(parts)
