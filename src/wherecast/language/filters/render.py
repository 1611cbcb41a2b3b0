"""Back to SQL that a person would write: expressions, and constraints from their rows of positions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from wherecast.language.events.keys import KEY_MAX, KEY_MIN
from wherecast.language.events.kinds import ROWS, quote
from wherecast.language.events.schema import Attribute, Schema
from wherecast.language.events.types import FLOATS, INTEGERS, MOMENTS, Type
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
from wherecast.language.filters.columns import ANYWHERE, AT_END, AT_START, WHOLE, Column, Reading
from wherecast.language.filters.filters import AFTER, AT, BEFORE, Filters
from wherecast.language.syntax.advice import KEYWORDS
from wherecast.language.syntax.skeletons import LiteralText


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
        case Call() if node.unit:
            return f"{node.name}({node.unit} FROM {show(node.args[0])})"
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
        return ".".join(map(quote_name, schema.attributes[index].path))

    return name


def quote_name(part: str) -> str:
    """A column or a field in SQL, in backticks where needed."""
    is_plain = part.isidentifier() and part.upper() not in KEYWORDS
    return part if is_plain else f"`{part.replace('`', '``')}`"


def written_literal(param: Param, text: LiteralText) -> str:
    """A literal as it was written (lists comma-separated, dates with their keyword)."""
    if isinstance(text, tuple):
        return ", ".join(written_literal(param, t) for t in text)
    if param.type is Type.VECTOR:
        return f"ARRAY({text[2:-2]})"
    keyword = f"{param.type.upper()} " if param.type in MOMENTS else "X" if param.type is Type.BINARY else ""
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
        is_marked = column.reading not in _SET_TEXTS
        if is_marked and len(literals) > 1 and all(literal[0] == WHOLE for literal in literals):
            return f"{_text_read(column, name)} IN ({_some([quote(literal[1:]) for literal in literals], most_values)})"
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
    if column.reading in _SET_TEXTS:
        return _SET_TEXTS[column.reading].format(name, "?")
    return name if column.reading is Reading.VALUE else f"contains({_text_read(column, name)}, ?)"


def _text_read(column: Column, name: str) -> str:
    return f"lower({name})" if column.reading is Reading.LOWER_LITERALS else name


def describe_literal(column: Column, name: str, literal: str) -> str:
    """SQL that asks for a literal, which has its mark, in the text of an attribute, or for an element of another set."""
    if column.reading in _SET_TEXTS:
        return _SET_TEXTS[column.reading].format(name, quote(literal))
    text, mark, quoted = _text_read(column, name), literal[0], quote(literal[1:])
    if mark == WHOLE:
        return f"{text} = {quoted}"
    return f"{_CALLS[mark]}({text}, {quoted})"


_CALLS = {ANYWHERE: "contains", AT_START: "startswith", AT_END: "endswith"}
#: How the sets whose elements have no mark are asked for.
_SET_TEXTS = {Reading.TOPICS: "{} MATCHES {}", Reading.WORDS: "keywords({}, {})"}


def _describe_spans(
    name: str, attribute: Attribute, spans: list[tuple[int, int]], strings: list[str], most: int | None
) -> str:
    if spans == [(KEY_MIN, KEY_MAX)]:
        return f"{name} IS NOT NULL"
    points = _points(attribute, spans)
    if points:
        texts = [_point(attribute, point, strings) for point in points]
        if attribute.is_array:
            has = "array_contains" if attribute.value is None else "map_contains_key"
            return " OR ".join(f"{has}({name}, {p})" for p in texts)
        return f"{name} = {texts[0]}" if len(texts) == 1 else f"{name} IN ({_some(texts, most)})"
    if attribute.is_array and spans[0] == (KEY_MIN, KEY_MIN) and spans[-1] == (KEY_MIN + 1, KEY_MAX):
        return f"exists({name}, x -> x IS NOT NULL)"
    if attribute.is_array:
        ranges = [_range("x", attribute, lo, hi, strings) for lo, hi in spans]
        return " OR ".join(f"exists({name}, x -> {each})" for each in ranges)
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
    is_keyed = attribute.is_array and not attribute.is_text
    is_listed = is_keyed or (attribute.type in (*INTEGERS, Type.DATE) and len(spans) > _MANY_SPANS)
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
    is_least = attribute.is_text and lo & 3 == AT and strings[lo >> 2] == "" and hi != KEY_MAX
    if lo != KEY_MIN and not is_least:
        text, inside = low_bound(attribute, lo, strings)
        parts.append(f"{name} {'>=' if inside else '>'} {text}")
    if hi != KEY_MAX:
        text, inside = high_bound(attribute, hi, strings)
        parts.append(f"{name} {'<=' if inside else '<'} {text}")
    return " AND ".join(parts)


def low_bound(attribute: Attribute, lo: int, strings: list[str]) -> Bound:
    """A lower end that is not open."""
    if attribute.is_text:
        return attribute.row.write(strings[lo >> 2], attribute), lo & 3 != AFTER
    return _shorter(attribute, lo, lo - 1)


def high_bound(attribute: Attribute, hi: int, strings: list[str]) -> Bound:
    """An upper end that is not open."""
    if attribute.is_text:
        return attribute.row.write(strings[hi >> 2], attribute), hi & 3 != BEFORE
    return _shorter(attribute, hi, hi + 1)


def _shorter(attribute: Attribute, inside: int, outside: int) -> Bound:
    """A bound by the neighbour that is shorter to write, `< 120.5`, not `<= 120.49999999999999`, or the one that can be."""
    row = attribute.row
    text, other = row.write(inside, attribute), row.write(outside, attribute)
    if not row.can_write(inside) and row.can_write(outside):
        return other, False
    if attribute.type in FLOATS and row.can_write(outside) and len(other) < len(text):
        return other, False
    return text, True


def _point(attribute: Attribute, position: int, strings: list[str]) -> str:
    if attribute.is_text:
        return attribute.row.write(strings[position >> 2], attribute) if position & 3 == AT else "?"
    return attribute.row.write(position, attribute)


#: Stand for the attributes whose values literals are.
_LIKE_LITERALS = {
    form.type: Attribute("literal", kind, bits=bits)
    for kind, row in ROWS.items()
    for bits, form in row.forms.items()
    if not row.has_digits
}


def literal_text(kind: Type, value: Any) -> str:
    """A literal as a program holds it (see `LiteralValues`), as SQL; of a number, `written` knows how its type is kept."""
    like = _LIKE_LITERALS[kind]
    return like.row.write(value if like.is_text else int(value), like)
