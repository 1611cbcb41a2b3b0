"""`wherecast check`: what a filter means, or where it is wrong.

Constraints are shown as intervals of values, as a person writes them: `{'IBM'}`, `[10, 20)`, `{NULL}`.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import typer

from wherecast.cli.failures import REFUSED
from wherecast.cli.report import printable, say_error
from wherecast.errors import FilterError
from wherecast.index.expressions import least_uses, statement_of
from wherecast.language.events.keys import KEY_MAX, KEY_MIN
from wherecast.language.events.schema import Attribute, Schema
from wherecast.language.events.types import FLOATS
from wherecast.language.filters.columns import Reading
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import Filters
from wherecast.language.filters.normalize import multiply_out
from wherecast.language.filters.render import (
    attribute_namer,
    describe_constraint,
    describe_literal,
    high_bound,
    low_bound,
    render,
    written_literal,
)
from wherecast.language.filters.spelling import Reader
from wherecast.language.syntax.sequence import SequencePattern, is_sequence, read_sequence
from wherecast.language.syntax.skeletons import cut_text


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
    literals: list[str]  # that are looked for in its text, as SQL; then there are no intervals
    first: int
    end: int
    null: bool
    intervals: list[Interval]

    def __str__(self) -> str:
        if self.literals:
            return " | ".join(self.literals)
        if not self.null and len(self.intervals) == 1 and self.intervals[0].is_everything:
            return "not NULL"
        return " | ".join(["{NULL}"] * self.null + [str(i) for i in self.intervals])


def constraints_of(filters: Filters, schema: Schema, clause: int) -> list[Constraint]:
    """The constraints of one clause."""
    found = []
    first = int(filters.row_ptr[clause])
    for row in range(first, int(filters.row_ptr[clause + 1])):
        attr = int(filters.attr[row])
        if attr >= 0:  # the last row of its constraint
            column, null = schema.columns[attr], bool(filters.null[first])
            attribute, rows = schema.attributes[column.attr], range(first + null, row + 1)
            literals, spans = [], []
            if column.reading is Reading.VALUE:
                spans = [_interval(filters, attribute, r) for r in rows]
            else:
                name = attribute_namer(schema)(column.attr)
                literals = [describe_literal(column, name, filters.strings[int(filters.lo[r]) >> 2]) for r in rows]
            found.append(Constraint(attribute, literals, first, row + 1, null, spans))
            first = row + 1
    return found


def _interval(filters: Filters, attribute: Attribute, row: int) -> Interval:
    lo, hi = int(filters.lo[row]), int(filters.hi[row])
    # The doubles have ends: -inf is below all others, and NaN, which an author may not think of, above all.
    ends = (("-inf", True), ("NaN", True)) if attribute.type in FLOATS else ((None, False), (None, False))
    low = ends[0] if lo == KEY_MIN else low_bound(attribute, lo, filters.strings)
    high = ends[1] if hi == KEY_MAX else high_bound(attribute, hi, filters.strings)
    return Interval(*low, *high)


class CheckedClause(NamedTuple):
    """One clause: its constraints, each in SQL, and what is evaluated once they hold."""

    constraints: list[tuple[str, Constraint]]
    residual: str | None

    @property
    def is_single(self) -> bool:
        """Whether it is one predicate, which then stands without parentheses."""
        return len(self.constraints) + (self.residual is not None) == 1

    @property
    def sql(self) -> str:
        """The clause as SQL."""
        parts = [sql for sql, _ in self.constraints] + ([self.residual] if self.residual else [])
        return " AND ".join(f"({p})" if " OR " in p and len(parts) > 1 else p for p in parts) or "TRUE"


class CheckedFilter(NamedTuple):
    """What a filter means."""

    clauses: list[CheckedClause]
    is_cover: bool  # the boxes are wider than the filter; the residual is all of it
    remarks: list[str]  # on comparisons that mean something else than they seem to
    shared: list[tuple[str, int]]  # expressions that an index makes columns of, once so many clauses have them

    @property
    def matches(self) -> str:
        """`never`, `always` or `sometimes`, as far as the normal form tells."""
        if not self.clauses:
            return "never"
        return "always" if any(not c.constraints and c.residual is None for c in self.clauses) else "sometimes"

    @property
    def sql(self) -> str:
        """The normal form as SQL."""
        several = len(self.clauses) > 1
        texts = [f"({c.sql})" if several and c.is_single and " OR " in c.sql else c.sql for c in self.clauses]
        return "\n  OR ".join(texts) or "FALSE"

    @property
    def notes(self) -> list[str]:
        """What the author may not expect."""
        notes = [*self.remarks]
        if self.matches == "never" and self.remarks:
            notes.append("never matches")
        elif self.matches == "never":
            notes.append("never matches: the conditions contradict each other, or no value can satisfy one of them")
        if self.matches == "always":
            notes.append("always matches: every event satisfies it")
        if self.is_cover:
            notes.append(
                "covering boxes: the normal form has too many clauses, so boxes find candidates and the whole filter decides"
            )
        elif any(c.residual for c in self.clauses):
            notes.append("residual: what the box does not say is evaluated on events that are inside the box")
        notes += [
            f"{sql} becomes a column of the index, and its conditions part of the box, once {count} clauses have it"
            for sql, count in self.shared
        ]
        if any(c.residual and not c.constraints for c in self.clauses):
            notes.append("a clause without a box is evaluated on every event")
        return notes


def check_filter(text: str, schema_path: Path, *, as_json: bool) -> None:
    """Print what a filter means; exit with 1 if it is wrong."""
    schema = Schema.from_file(schema_path)
    text = sys.stdin.read().rstrip("\r\n") if text == "-" else text
    try:
        if is_sequence(text):
            pattern = inspect_pattern(text, schema)
            typer.echo(json.dumps(pattern.fields(text), indent=2) if as_json else pattern.page())
            return
        checked = inspect_filter(text, schema)
    except FilterError as error:
        if as_json:
            typer.echo(json.dumps({"filter": text, "error": _error_fields(error)}, indent=2))
        else:
            say_error(error)
        raise typer.Exit(REFUSED) from None
    typer.echo(json.dumps(_fields(text, checked), indent=2) if as_json else _page(checked))


class CheckedPattern(NamedTuple):
    """What a pattern means: how its steps follow each other, and what each of them is."""

    read: SequencePattern
    steps: list[CheckedFilter]

    @property
    def summary(self) -> str:
        """One line."""
        read = self.read
        window = f"within {dt.timedelta(microseconds=read.window_us)}"
        by = f", for each {read.key.text}" if read.key is not None else ""
        if read.wanted:
            return f"{read.wanted:,} events {window}{by}"
        absent = ", then none of the last step" if read.has_not else ""
        return f"{read.found} step{'s' if read.found > 1 else ''} in order{absent}, {window}{by}"

    def page(self) -> str:
        """For people."""
        pages = [
            f"step {n}: {printable(step.text)}\n{textwrap.indent(_page(checked), '  ')}"
            for n, (step, checked) in enumerate(zip(self.read.steps, self.steps, strict=True), 1)
        ]
        return "\n\n".join([f"pattern\n  {self.summary}", *pages])

    def fields(self, text: str) -> dict[str, object]:
        """For programs."""
        read = self.read
        return {
            "filter": text,
            "pattern": {
                "window_us": read.window_us,
                "partition_by": None if read.key is None else read.key.text,
                "count": read.wanted or None,
                "then_not": read.has_not,
                "steps": [_fields(s.text, checked) for s, checked in zip(read.steps, self.steps, strict=True)],
            },
        }


def inspect_pattern(text: str, schema: Schema) -> CheckedPattern:
    """Read a pattern and compile its steps. Raises FilterError."""
    compiler = Compiler(schema)
    read, steps = read_sequence(text, compiler.limits.text), []
    if read.key is not None:
        from wherecast.engine.sequences import find_key

        find_key(read.key, text, compiler)
    for step in read.steps:
        try:
            steps.append(inspect_filter(step.text, schema))
        except FilterError as error:
            raise step.relocated(error, text) from None
    return CheckedPattern(read, steps)


def inspect_filter(text: str, schema: Schema) -> CheckedFilter:
    """Compile a filter and put what came out into words. Raises FilterError."""
    compiler = Compiler(schema)
    filters = compiler.compile(text)
    clauses = []
    for clause in range(int(filters.clause_ptr[1])):
        constraints = [
            (describe_constraint(filters, schema, c.first, c.end), c) for c in constraints_of(filters, schema, clause)
        ]
        clauses.append(CheckedClause(constraints, _residual_text(text, filters, schema, clause)))
    read = compiler.read(text)
    is_cover = bool(clauses) and not multiply_out(read.node, compiler.limits.clauses)[1]
    said = [remark for remark in Reader(schema).remarks(text, read) if remark.rule.code in _REMARKED]
    remarks = list(dict.fromkeys("; ".join(remark.words) for remark in said))
    shared = [] if is_cover else list(dict.fromkeys(_shared(text, filters, schema)))
    return CheckedFilter(clauses, is_cover, remarks, shared)


def _shared(text: str, filters: Filters, schema: Schema) -> Iterator[tuple[str, int]]:
    """The expressions of residuals that can be columns, and how many clauses must have one."""
    literals, namer = cut_text(text)[1], attribute_namer(schema)
    for residual in (r for program in filters.programs for r in program.residuals):
        statement = statement_of(residual)
        if statement is not None:
            sql = render(statement.of, namer, lambda param: written_literal(param, literals[param.slot]))
            sql = f"similar({sql}, ...)" if statement.reading is Reading.SIMILAR else sql
            yield sql, least_uses(statement.of)


#: Rules on comparisons that mean something else than they seem to. What a filter costs is said in notes on its clauses.
_REMARKED = ("null-comparison", "null-in-list", "quoted-name", "double-quotes")


def _residual_text(text: str, filters: Filters, schema: Schema, clause: int) -> str | None:
    program = int(filters.program[clause])
    if program < 0:
        return None
    literals = cut_text(text)[1]
    parts = []
    for residual in filters.programs[program].residuals:
        sql = render(residual.node, attribute_namer(schema), lambda param: written_literal(param, literals[param.slot]))
        parts.append(sql if residual.truth == "true" else f"({sql}) IS {residual.truth.upper()}")
    return " AND ".join(f"({p})" if len(parts) > 1 else p for p in parts)


def _page(checked: CheckedFilter) -> str:
    if checked.is_cover:  # the whole filter once per clause would only hide the boxes
        checked = checked._replace(clauses=[c._replace(residual="the whole filter") for c in checked.clauses])
    lines = ["normal form", f"  {printable(checked.sql)}"]
    names = [c.attribute.name for clause in checked.clauses for _, c in clause.constraints]
    width = max((len(n) for n in [*names, "residual"]), default=0)
    for number, clause in enumerate(checked.clauses, 1):
        lines += ["", f"box of clause {number}" if len(checked.clauses) > 1 else "box"]
        for _, constraint in clause.constraints:
            what = "element" if constraint.attribute.value is None else "key"
            element = f"some {what} in " if constraint.attribute.is_array and _is_element_test(constraint) else ""
            lines.append(printable(f"  {constraint.attribute.name:{width}}  {element}{constraint}"))
        if not clause.constraints:
            lines.append("  everything")
        if clause.residual:
            lines.append(printable(f"  {'residual':{width}}  {clause.residual}"))
    lines += ["", *(f"note: {note}" for note in checked.notes)] if checked.notes else []
    return "\n".join(lines)


def _is_element_test(constraint: Constraint) -> bool:
    is_asked = not constraint.attribute.size  # of a vector, filters only ask whether it is there
    return is_asked and any(i.low is not None or i.high is not None for i in constraint.intervals)


def _fields(text: str, checked: CheckedFilter) -> dict[str, object]:
    return {
        "filter": text,
        "matches": checked.matches,
        "clauses": [
            {
                "sql": clause.sql,
                "box": [
                    {
                        "attribute": c.attribute.name,
                        "type": c.attribute.type_name,
                        "sql": sql,
                        "null": c.null,
                        "intervals": [i._asdict() for i in c.intervals],
                    }
                    for sql, c in clause.constraints
                ],
                "residual": clause.residual,
            }
            for clause in checked.clauses
        ],
        "covering": checked.is_cover,
        "notes": checked.notes,
    }


def _error_fields(error: FilterError) -> dict[str, object]:
    return {
        "reason": error.reason,
        "message": error.message,
        "line": error.line,
        "column": error.column,
        "start": error.start,
        "end": error.end,
    }
