"""Compiled filters back to SQL: a text of the same meaning as the one that was registered.

An index keeps boxes and residuals, not texts: those would take more memory than everything else. So a text is written
when somebody asks for it, from the normal form: clauses joined by OR, in each the constraints of its box and the
residual. Compiling that text gives the same answers. It does not give back the spelling: `NOT (price >= 120)` comes back
as `price < 120.0`.

Literals are written with the type that they had, because Spark's arithmetic and comparisons depend on it: `5` is an INT,
`5L` a BIGINT, `0.5` a DECIMAL and `0.5D` a DOUBLE.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from wherecast.errors import FilterError
from wherecast.language.events.keys import KEY_MAX, KEY_MIN
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import FLOATS, INTEGERS, MAX_PRECISION, Type
from wherecast.language.events.values import key_float
from wherecast.language.events.zone import UTC
from wherecast.language.expression import Arith, Attr, Call, Compare, Negate, Node, Or, Param
from wherecast.language.filters.filters import Filters, LiteralValues
from wherecast.language.filters.normalize import All, Residual, Truth, Values, push_truth
from wherecast.language.filters.render import attribute_namer, describe_constraint, literal_text, render
from wherecast.language.nullable import decimal_scale
from wherecast.language.syntax.vectors import write_vector


def write_filter(filters: Filters, schema: Schema, number: int) -> str:
    """The SQL of one filter. Raises FilterError for the rare one that has no such text."""
    clauses = range(int(filters.clause_ptr[number]), int(filters.clause_ptr[number + 1]))
    for clause in clauses:
        residuals = _residuals(filters, clause)
        _check_moments(residuals, schema)
        if any(residual.is_whole for residual in residuals):  # the boxes are a cover: they add nothing
            text = " AND ".join(write_residual(filters, schema, clause))
            return text[1:-1] if len(residuals) == 1 and isinstance(residuals[0].node, Or) else text
    texts = [_write_clause(filters, schema, clause) for clause in clauses]
    several = len(texts) > 1
    return " OR ".join(f"({text})" if several and is_compound else text for text, is_compound in texts) or "FALSE"


def _write_clause(filters: Filters, schema: Schema, clause: int) -> tuple[str, bool]:
    """The SQL of a clause, and whether it has several parts."""
    residuals = _residuals(filters, clause)
    parts = [
        describe_constraint(filters, schema, first, end, most_values=None)
        for first, end in constraints_of(filters, clause)
        if not (_is_any_value(filters, first, end) and int(filters.attr[first]) in _implied(residuals))
    ]
    several = len(parts) + len(residuals) > 1
    parts = [f"({part})" if several and " OR " in part else part for part in parts]
    parts += write_residual(filters, schema, clause)
    return " AND ".join(parts) or "TRUE", several


def constraints_of(filters: Filters, clause: int) -> list[tuple[int, int]]:
    """The constraints of a clause, each as its first row and the row after its last."""
    found, first = [], int(filters.row_ptr[clause])
    for row in range(first, int(filters.row_ptr[clause + 1])):
        if filters.attr[row] >= 0:
            found.append((first, row + 1))
            first = row + 1
    return found


def _is_any_value(filters: Filters, first: int, end: int) -> bool:
    """Whether a constraint says IS NOT NULL."""
    return end - first == 1 and not filters.null[first] and (filters.lo[first], filters.hi[first]) == (KEY_MIN, KEY_MAX)


def _implied(residuals: tuple[Residual, ...]) -> set[int]:
    """The attributes that cannot be NULL where residuals hold; their boxes say so, and a text need not."""
    logics = [push_truth(residual.node, residual.truth) for residual in residuals]
    items = [item for logic in logics if isinstance(logic, All) for item in logic.items]
    return {item.column.attr for item in items if isinstance(item, Values)}


def write_residual(filters: Filters, schema: Schema, clause: int) -> list[str]:
    """The SQL of each part of a clause's residual, ready to be joined by AND."""
    if filters.program[clause] < 0:
        return []
    program = filters.programs[int(filters.program[clause])]
    row = int(filters.program_row[clause])
    return [write_statement(residual, schema, program.literals, row) for residual in program.residuals]


def _residuals(filters: Filters, clause: int) -> tuple[Residual, ...]:
    number = int(filters.program[clause])
    return filters.programs[number].residuals if number >= 0 else ()


def write_statement(residual: Residual, schema: Schema, literals: LiteralValues, row: int) -> str:
    """The SQL of one residual with the literals of a row."""
    text = write_value(residual.node, schema, literals, row)
    is_plain = isinstance(residual.node, (Attr, Call))
    if residual.truth is Truth.TRUE:
        return f"({text})" if isinstance(residual.node, Or) else text
    if residual.truth is Truth.FALSE:
        return f"NOT {text}" if is_plain else f"NOT ({text})"
    return f"({text}) IS {residual.truth.upper()}"


def write_value(node: Node, schema: Schema, literals: LiteralValues, row: int) -> str:
    """The SQL of an expression with the literals of a row."""
    lists = {key[0]: key for key in literals if isinstance(key, tuple)}
    # A sign right before a literal would become a part of it.
    apart = {n.item for n in node.walk() if isinstance(n, Negate) and isinstance(n.item, Param)}

    def literal(param: Param) -> str:
        if param is _ZERO:
            return "0D"
        if param in literals:
            text = _write_scalar(param, literals[param][row])
            return f"({text})" if param in apart else text
        key = lists[param]
        return ", ".join(_write_member(key[1], value) for value in sorted(literals[key][row]))

    return render(_with_types(node), attribute_namer(schema), literal)


def _write_scalar(param: Param, value: Any) -> str:
    """A literal with its type, from the form in which a program holds it."""
    if param.type is Type.DECIMAL:
        return _write_decimal(int(value), decimal_scale(param), keep_zeros=param.digits != (0, 0))
    if param.type is Type.DOUBLE:
        return f"{float(value)!r}D"
    if param.type is Type.FLOAT:  # an integer among the elements of an array of FLOATs
        return str(int(value))
    if param.type in INTEGERS:
        number = int(value)
        is_long = param.type is Type.BIGINT and param.digits != (0, 0) and -(2**31) <= number < 2**31
        return f"{number}L" if is_long else str(number)
    return write_vector(value) if param.type is Type.VECTOR else literal_text(param.type, value)


def _write_member(common: Type, key: Any) -> str:
    """A value of an IN list, from its key (see `evaluate.member_keys`)."""
    if common in FLOATS:
        return f"{key_float(key)!r}D"
    if common is Type.DECIMAL:
        return _write_decimal(int(key), MAX_PRECISION)
    return literal_text(common, key)


def _write_decimal(unscaled: int, scale: int, *, keep_zeros: bool = False) -> str:
    """A DECIMAL literal. In arithmetic its digits count, zeros at the end included."""
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    fraction = fraction if keep_zeros else fraction.rstrip("0")
    return ("-" if unscaled < 0 else "") + (f"{whole}.{fraction}" if fraction else f"{whole}BD")


#: Stands for the literal 0D.
_ZERO = Param(slot=-1, type=Type.DOUBLE)


def _with_types(node: Node) -> Node:
    """An expression whose comparisons have, when they are read again, the type that they have now.

    `a IN (b, 0.5D)` compares `a` with `b` as doubles, which `a = b` alone would not.
    """
    changes: dict[str, Any] = {}
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, Node):
            changes[field.name] = _with_types(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Node):
            changes[field.name] = tuple(_with_types(item) for item in value)
    node = replace(node, **changes) if changes else node
    if not isinstance(node, Compare):
        return node
    if node.common is Type.DOUBLE and {node.left.type, node.right.type} <= {Type.BIGINT, Type.DECIMAL}:
        return replace(node, left=Arith(op="+", left=node.left, right=_ZERO, type=Type.DOUBLE))
    return node


def _check_moments(residuals: tuple[Residual, ...], schema: Schema) -> None:
    """Refuse what no other text says: `a IN (b, TIMESTAMP '...')` on wall clocks, which compares all as instants."""
    for node in (n for residual in residuals for n in residual.node.walk() if isinstance(n, Compare)):
        sides = {node.left.type, node.right.type}
        is_wider = node.common is Type.TIMESTAMP and Type.TIMESTAMP not in sides
        if is_wider and Type.TIMESTAMP_NTZ in sides and schema.time_zone != UTC.name:
            raise FilterError(
                "unsupported",
                "the filter compares wall clocks as instants in an IN list, and cannot be written otherwise",
            )
