"""Explanations: why an event does or does not satisfy a subscription."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from wherecast.engine.segment import Segment
from wherecast.index.boxes import EventCodes, codes_of, walk_constraints
from wherecast.index.operands import attribute_values
from wherecast.index.packed import unpack_clauses
from wherecast.language.evaluate import evaluate, holds
from wherecast.language.events.arrow import element_of
from wherecast.language.events.events import EventBatch
from wherecast.language.events.html import html_table
from wherecast.language.events.schema import Attribute, Schema
from wherecast.language.events.types import COLLECTIONS
from wherecast.language.expression import And, Const, Node, Not, Or, Param
from wherecast.language.filters.columns import Reading
from wherecast.language.filters.filters import Filters
from wherecast.language.filters.render import attribute_namer, describe_constraint, describe_literal
from wherecast.language.filters.written import write_statement, write_value
from wherecast.language.nullable import python_value
from wherecast.language.syntax.literals import ProgramScope


class NoValue(enum.Enum):
    """Stands for the value where a predicate speaks of several attributes."""

    NO_VALUE = "no value"


NO_VALUE = NoValue.NO_VALUE


@dataclass(frozen=True, slots=True)
class PredicateOutcome:
    """One predicate of a clause, in SQL, the event's value where it speaks of one, and whether it holds.

    `parts` are the predicates that it is made of, where they are several: the literals that are looked for in one text, or
    the conditions under AND, OR and NOT of a filter that is evaluated as a whole. Of such a part `holds` is None where it is
    unknown, because a value is NULL.
    """

    predicate: str
    value: object
    holds: bool | None
    parts: tuple[PredicateOutcome, ...] = ()


@dataclass(frozen=True, slots=True)
class ClauseOutcome:
    predicates: tuple[PredicateOutcome, ...]

    @property
    def holds(self) -> bool:
        return all(p.holds is True for p in self.predicates)


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
            for depth, p in _with_parts(clause.predicates):
                shown = f"   ({_shown(p.value)})" if _shown(p.value) else ""
                lines.append(f"    {'  ' * depth}{_WORDS[p.holds]} {_cut(p.predicate)}{shown}")
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
            (number, "unknown" if p.holds is None else "holds" if p.holds else "fails", p.predicate, _shown(p.value))
            for number, clause in enumerate(self.clauses, 1)
            for _, p in _with_parts(clause.predicates or (PredicateOutcome("TRUE", NO_VALUE, True),))
        ]
        return html_table(title, ("clause", "", "predicate", "event"), rows)


def _loaded(stored: object, attribute: Attribute) -> object:
    """The value that an index has in another form."""
    if isinstance(stored, list) and attribute.value is not None:
        value = attribute.value
        return {_loaded(pair["key"], element_of(attribute)): _loaded(pair["value"], value) for pair in stored}
    if isinstance(stored, list):
        return [_loaded(element, attribute) for element in stored]
    return None if stored is None else attribute.row.load(stored, attribute)


def _shown(value: object) -> str:
    """What an event has, in words; nothing where a predicate speaks of several attributes."""
    return "" if value is NO_VALUE else "is NULL" if value is None else f"is {_cut(repr(value))}"


#: Characters of a predicate or value that are shown at its beginning and at its end, if it has more; vectors have thousands.
_SHOWN = 120


def _cut(text: str) -> str:
    return text if len(text) <= 2 * _SHOWN + 60 else f"{text[:_SHOWN]} ... {text[-_SHOWN:]}"


_WORDS = {True: "ok  ", False: "FAIL", None: "NULL"}


def _with_parts(predicates: Iterable[PredicateOutcome], depth: int = 0) -> Iterator[tuple[int, PredicateOutcome]]:
    """Predicates, each followed by its parts, and how deep they are."""
    for predicate in predicates:
        yield depth, predicate
        yield from _with_parts(predicate.parts, depth + 1)


@dataclass(frozen=True, slots=True, repr=False)
class PatternExplanation(Explanation):
    """Which steps of a pattern an event satisfies; `clauses` is empty. It `matches` if it satisfies one of them."""

    steps: tuple[tuple[str, Explanation], ...] = ()

    @property
    def matches(self) -> bool:
        return any(explanation.matches for _, explanation in self.steps)

    def __str__(self) -> str:
        return "\n".join(f"step {n}, {text}: {found}" for n, (text, found) in enumerate(self.steps, 1))

    def __repr__(self) -> str:
        held = sum(found.matches for _, found in self.steps)
        return f"PatternExplanation({held} of {len(self.steps)} steps hold)"

    def _repr_html_(self) -> str:
        rows = [(n, "holds" if found.matches else "fails", text) for n, (text, found) in enumerate(self.steps, 1)]
        return html_table(repr(self), ("step", "", "filter"), rows)


def explain_filter(segment: Segment, number: int, events: EventBatch) -> Explanation:
    """Walk the clauses of one filter for the single event of a batch."""
    clauses = segment.boxes.clauses_of(number)
    boxes = unpack_clauses(segment.boxes, np.array(clauses, np.int64))
    codes, filters = segment.encode(events), segment.filters(np.array([number]))
    outcomes = []
    for clause in range(len(clauses)):
        found, row = [], int(filters.row_ptr[clause])
        for first, end, held in walk_constraints(boxes, clause, codes, 0):
            column = int(boxes.attr[end - 1])
            if segment.codebook.expression(column) is not None:
                continue  # its residual is shown
            attr = events.schema.columns[column].attr
            value = _loaded(events.array(attr)[0].as_py(), events.schema.attributes[attr])
            text = describe_constraint(filters, events.schema, row, row + end - first)
            parts = _literals(filters, events.schema, row, boxes.lo[first:end].tolist(), codes, column)
            found.append(PredicateOutcome(text, value, held, parts))
            row += end - first
        if filters.program[clause] >= 0:
            found += _residuals(filters, clause, events)
        outcomes.append(ClauseOutcome(tuple(found)))
    return Explanation(tuple(outcomes))


def _literals(
    filters: Filters, schema: Schema, row: int, wanted: list[int], codes: EventCodes, number: int
) -> tuple[PredicateOutcome, ...]:
    """Which literals of a constraint are in the text, if it looks for several."""
    column = schema.columns[number]
    if column.reading is Reading.VALUE or len(wanted) == 1:
        return ()
    there = set(codes_of(codes, 0, number))
    name = attribute_namer(schema)(column.attr)
    literals = [filters.strings[int(filters.lo[row + i]) >> 2] for i in range(len(wanted))]
    return tuple(
        PredicateOutcome(describe_literal(column, name, literal), NO_VALUE, code in there)
        for literal, code in zip(literals, wanted, strict=True)
    )


def _residuals(filters: Filters, clause: int, events: EventBatch) -> Iterator[PredicateOutcome]:
    """What a clause asks beside its box, one predicate for each residual."""
    program = filters.programs[int(filters.program[clause])]
    row = int(filters.program_row[clause])
    scope = ProgramScope(
        program.literals, np.array([row]), lambda attr: attribute_values(events, attr), events.schema.zone
    )
    write = partial(write_value, schema=events.schema, literals=program.literals, row=row)
    for residual in program.residuals:
        held = bool(holds(residual.node, residual.truth, scope)[0])
        text = write_statement(residual, events.schema, program.literals, row)
        parts = tuple(_part(item, scope, write) for item in _items(residual.node))
        yield PredicateOutcome(text, _subject(residual.node, scope), held, parts)


def _part(node: Node, scope: ProgramScope, write: Callable[[Node], str]) -> PredicateOutcome:
    truth = evaluate(node, scope)
    held = bool(truth.values[0]) if truth.valid[0] else None
    return PredicateOutcome(
        write(node), _subject(node, scope), held, tuple(_part(item, scope, write) for item in _items(node))
    )


def _items(node: Node) -> tuple[Node, ...]:
    """The conditions that a condition is made of."""
    if isinstance(node, Not):
        return _items(node.item)
    return node.items if isinstance(node, (And, Or)) else ()


def _subject(node: Node, scope: ProgramScope) -> object:
    """The value that a condition compares with literals, if it is of that kind."""
    if isinstance(node, Not):
        return _subject(node.item, scope)
    values = [child for child in node.children() if not isinstance(child, (Param, Const))]
    if isinstance(node, (And, Or)) or len(values) != 1 or values[0].type in COLLECTIONS:
        return NO_VALUE
    found = evaluate(values[0], scope)
    return python_value(values[0], found.values[0]) if found.valid[0] else None
