"""Back to SQL that a person would write: expressions, and constraints from their rows of positions."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from wherecast.language.advice import KEYWORDS
from wherecast.language.columns import ANYWHERE, AT_END, AT_START, WHOLE, Column, Reading
from wherecast.language.expression import (
    And,
    Arith,
    Attr,
    Call,
    CaseWhen,
    Cast,
    Compare,
    Const,
    Elapsed,
    Element,
    InList,
    IntervalLiteral,
    Invert,
    IsNull,
    IsTruth,
    Like,
    Negate,
    Node,
    Not,
    Or,
    Param,
    Quantified,
    Shift,
    Subscript,
)
from wherecast.language.filters import AFTER, AT, BEFORE, Filters
from wherecast.language.keys import KEY_MAX, KEY_MIN, key_float
from wherecast.language.schema import Attribute, Schema
from wherecast.language.skeletons import LiteralText
from wherecast.language.types import MOMENTS, TYPE_OF_KIND, Kind, Type


def render(node: Node, name: Callable[[int], str], literal: Callable[[Param], str]) -> str:
    """SQL text of an expression; every compound operand stands in parentheses."""

    def show(n: Node) -> str:
        return render(n, name, literal)

    def operand(n: Node) -> str:
        return show(n) if isinstance(n, _CLOSED) else f"({show(n)})"

    match node:
        case Attr():
            return name(node.index)
        case Param():
            return literal(node)
        case Const():
            return {True: "TRUE", False: "FALSE", None: "NULL"}[node.value]
        case And() | Or():
            return f" {'AND' if isinstance(node, And) else 'OR'} ".join(map(operand, node.items))
        case Compare() | Arith():
            return f"{operand(node.left)} {node.op} {operand(node.right)}"
        case Call():
            return f"{node.name}({', '.join(map(show, node.args))})"
        case InList():
            values = [*map(literal, node.values), *(["NULL"] if node.has_null else [])]
            return f"{operand(node.item)} IN ({', '.join(values)})"
        case Like():
            return f"{operand(node.item)} {node.kind.upper()} {literal(node.pattern)}"
        case Not() | Negate() | IsNull() | IsTruth() | Invert():
            return _unary(node, operand(node.item))
        case _:
            return _form(node, show, operand, literal)


def _form(
    node: Node, show: Callable[[Node], str], operand: Callable[[Node], str], literal: Callable[[Param], str]
) -> str:
    """What has a syntax of its own: CASE, CAST, lambdas, subscripts, intervals."""
    match node:
        case Cast():
            digits = f"({node.digits[0]}, {node.digits[1]})" if node.type is Type.DECIMAL else ""
            return f"CAST({show(node.item)} AS {node.type.upper()}{digits})"
        case CaseWhen():
            pairs = zip(node.conditions, node.values, strict=False)
            cases = " ".join(f"WHEN {show(when)} THEN {show(then)}" for when, then in pairs)
            return f"CASE {cases} ELSE {show(node.values[-1])} END"
        case Subscript():
            return f"{show(node.array)}[{show(node.index)}]"
        case Element():
            return f"`{node.name.replace('`', '``')}`"
        case Quantified():
            body = f"`{node.variable.replace('`', '``')}` -> {show(node.body)}"
            return f"{'forall' if node.is_all else 'exists'}({show(node.array)}, {body})"
        case IntervalLiteral():
            parts = zip(node.amounts, node.units, strict=True)
            return f"INTERVAL {' '.join(f'{literal(amount)} {unit}' for amount, unit in parts)}"
        case Shift():
            return f"{operand(node.moment)} {node.op} {operand(node.amount)}"
        case Elapsed():
            return f"{operand(node.end)} - {operand(node.start)}"
    raise TypeError(f"no SQL for {type(node).__name__}")


#: What needs no parentheses around it.
_CLOSED = (Attr, Param, Const, Call, Cast, CaseWhen, Subscript, Element, Quantified)


def _unary(node: Not | Negate | IsNull | IsTruth | Invert, item: str) -> str:
    if isinstance(node, Invert):
        return f"~{item}"
    if isinstance(node, IsNull):
        return f"{item} IS NULL"
    if isinstance(node, IsTruth):
        return f"{item} IS {'TRUE' if node.truth else 'FALSE'}"
    return f"NOT {item}" if isinstance(node, Not) else f"-{item}"


def attribute_namer(schema: Schema) -> Callable[[int], str]:
    """Names as a filter would write them, in backticks where needed."""

    def name(index: int) -> str:
        text = schema.attributes[index].name
        is_plain = all(part.isidentifier() and part.upper() not in KEYWORDS for part in text.split("."))
        return text if is_plain else f"`{text.replace('`', '``')}`"

    return name


def written_literal(param: Param, text: LiteralText) -> str:
    """A literal as it was written (lists comma-separated, dates with their keyword)."""
    if isinstance(text, tuple):
        return ", ".join(written_literal(param, t) for t in text)
    keyword = f"{param.type.upper()} " if param.type in MOMENTS else ""
    escaped = text.replace("\\", "\\\\") if text.startswith("'") else text
    return f"{'-' if param.negative else ''}{keyword}{escaped}"


# -- constraints -------------------------------------------------------------------------------------------------------


#: More spans than this are written as a list of values, if the values are so many at most.
_MANY_SPANS, _MOST_LISTED = 8, 10_000
#: A bound: its text and whether the value itself is inside.
Bound = tuple[str, bool]


def describe_constraint(filters: Filters, schema: Schema, first: int, end: int, *, most_values: int | None = 12) -> str:
    """SQL of the constraint in rows `first` .. `end - 1`; of a list, at most so many values are shown (None: all)."""
    column = schema.columns[int(filters.attr[end - 1])]
    attribute, name = schema.attributes[column.attr], attribute_namer(schema)(column.attr)
    if column.reading is not Reading.VALUE:
        literals = [filters.strings[int(filters.lo[row]) >> 2] for row in range(first, end)]
        if len(literals) > 1 and all(literal[0] == WHOLE for literal in literals):
            return (
                f"{_text_read(column, name)} IN ({_some([_quote(literal[1:]) for literal in literals], most_values)})"
            )
        return " OR ".join(describe_literal(column, name, literal) for literal in literals)
    nulls = bool(filters.null[first])
    spans = [(int(filters.lo[r]), int(filters.hi[r])) for r in range(first + nulls, end)]
    texts = [f"{name} IS NULL"] if nulls else []
    if spans:
        texts.append(_describe_spans(name, attribute, spans, filters.strings, most_values))
    return " OR ".join(texts)


def column_text(schema: Schema, number: int) -> str:
    """A column in SQL: an attribute, or what is looked for in a text."""
    column = schema.columns[number]
    name = attribute_namer(schema)(column.attr)
    return name if column.reading is Reading.VALUE else f"contains({_text_read(column, name)}, ?)"


def _text_read(column: Column, name: str) -> str:
    return f"lower({name})" if column.reading is Reading.LOWER_LITERALS else name


def describe_literal(column: Column, name: str, literal: str) -> str:
    """SQL that asks for a literal, which has its mark, in the text of an attribute."""
    text, mark, quoted = _text_read(column, name), literal[0], _quote(literal[1:])
    if mark == WHOLE:
        return f"{text} = {quoted}"
    return f"{_CALLS[mark]}({text}, {quoted})"


_CALLS = {ANYWHERE: "contains", AT_START: "startswith", AT_END: "endswith"}


def _describe_spans(
    name: str, attribute: Attribute, spans: list[tuple[int, int]], strings: list[str], most: int | None
) -> str:
    if spans == [(KEY_MIN, KEY_MAX)]:
        return f"{name} IS NOT NULL"
    points = _points(attribute, spans)
    if points:
        texts = [_point(attribute, point, strings) for point in points]
        if attribute.is_array:
            return " OR ".join(f"array_contains({name}, {p})" for p in texts)
        return f"{name} = {texts[0]}" if len(texts) == 1 else f"{name} IN ({_some(texts, most)})"
    is_open = spans[0][0] == KEY_MIN and spans[-1][1] == KEY_MAX
    holes = _points(attribute, [(a[1] + 1, b[0] - 1) for a, b in pairwise(spans)]) if is_open else []
    if holes:
        texts = [_point(attribute, hole, strings) for hole in holes]
        return f"{name} <> {texts[0]}" if len(texts) == 1 else f"{name} NOT IN ({_some(texts, most)})"
    return " OR ".join(_range(name, attribute, lo, hi, strings) for lo, hi in spans)


def _points(attribute: Attribute, spans: list[tuple[int, int]]) -> list[int]:
    """The values of spans, if these are best listed; else none.

    Neighbouring integers are one span: a list of many spans has more ends than values, and an array has no order.
    """
    is_listed = attribute.is_array or (attribute.kind in (Kind.INTEGER, Kind.DATE) and len(spans) > _MANY_SPANS)
    size = sum(hi - lo + 1 for lo, hi in spans)
    if size == len(spans) or (is_listed and size <= max(_MOST_LISTED, 2 * len(spans))):
        return [key for lo, hi in spans for key in range(lo, hi + 1)]
    return []


def _some(values: list[str], most: int | None) -> str:
    most = len(values) if most is None else most
    return ", ".join(values[:most]) + (f", ... {len(values) - most} more" if len(values) > most else "")


def _range(name: str, attribute: Attribute, lo: int, hi: int, strings: list[str]) -> str:
    if lo == hi:
        return f"{name} = {_point(attribute, lo, strings)}"
    parts = []
    if lo != KEY_MIN:
        text, inside = low_bound(attribute.kind, lo, strings)
        parts.append(f"{name} {'>=' if inside else '>'} {text}")
    if hi != KEY_MAX:
        text, inside = high_bound(attribute.kind, hi, strings)
        parts.append(f"{name} {'<=' if inside else '<'} {text}")
    return " AND ".join(parts)


def low_bound(kind: Kind, lo: int, strings: list[str]) -> Bound:
    """A lower end that is not open."""
    return (_quote(strings[lo >> 2]), lo & 3 != AFTER) if kind is Kind.STRING else _shorter(kind, lo, lo - 1)


def high_bound(kind: Kind, hi: int, strings: list[str]) -> Bound:
    """An upper end that is not open."""
    return (_quote(strings[hi >> 2]), hi & 3 != BEFORE) if kind is Kind.STRING else _shorter(kind, hi, hi + 1)


def _shorter(kind: Kind, inside: int, outside: int) -> Bound:
    """A bound by the neighbour that is shorter to write, `< 120.5`, not `<= 120.49999999999999`, or the one that can be."""
    text, other = value_text(kind, inside), value_text(kind, outside)
    if not _has_literal(kind, inside) and _has_literal(kind, outside):
        return other, False
    if kind is Kind.FLOAT and _has_literal(kind, outside) and len(other) < len(text):
        return other, False
    return text, True


def _has_literal(kind: Kind, key: int) -> bool:
    """Whether SQL can write a key; not so infinity, and years beyond 1 to 9999."""
    if kind is Kind.FLOAT:
        return math.isfinite(key_float(key))
    first, last = _MOMENTS.get(kind, (key, key))
    return first <= key <= last


def _point(attribute: Attribute, position: int, strings: list[str]) -> str:
    if attribute.kind is Kind.STRING:
        return _quote(strings[position >> 2]) if position & 3 == AT else "?"
    return value_text(attribute.kind, position)


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def value_text(kind: Kind, key: int) -> str:
    """A key as a SQL literal."""
    if kind is Kind.BOOLEAN:
        return "TRUE" if key else "FALSE"
    if kind is Kind.FLOAT:
        return repr(key_float(key))
    if not _has_literal(kind, key):
        return f"day {key}" if kind is Kind.DATE else str(key)
    if kind is Kind.DATE:
        return f"DATE '{dt.date(1970, 1, 1) + dt.timedelta(days=key)}'"
    if kind is Kind.TIMESTAMP:
        # At the ends of time, a clock elsewhere still shows a year from 1 to 9999.
        hours = 18 if key < _WALLS[0] else -18 if key > _WALLS[1] else 0
        return f"TIMESTAMP '{_wall(key + hours * _HOUR)}{f'{hours:+03d}:00' if hours else 'Z'}'"
    return f"TIMESTAMP_NTZ '{_wall(key)}'" if kind is Kind.TIMESTAMP_NTZ else str(key)


def _wall(key: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=key)  # noqa: DTZ001 - a wall clock


_DAY = 86_400_000_000
_HOUR = _DAY // 24
_DAYS = (dt.date.min - dt.date(1970, 1, 1)).days, (dt.date.max - dt.date(1970, 1, 1)).days
_WALLS = _DAYS[0] * _DAY, (_DAYS[1] + 1) * _DAY - 1
#: The keys that SQL can write.
_MOMENTS = {
    Kind.DATE: _DAYS,
    Kind.TIMESTAMP_NTZ: _WALLS,
    Kind.TIMESTAMP: (_WALLS[0] - 18 * _HOUR, _WALLS[1] + 18 * _HOUR),
}


_KINDS = {type_: kind for kind, type_ in TYPE_OF_KIND.items() if kind not in (Kind.FLOAT, Kind.STRING)}


def literal_text(kind: Type, value: Any) -> str:
    """A literal as a program holds it (see `LiteralValues`), as SQL; of a number, `written` knows how its type is kept."""
    return _quote(value) if kind is Type.STRING else value_text(_KINDS.get(kind, Kind.INTEGER), int(value))
