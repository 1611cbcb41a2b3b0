"""The checker's part for CASE, CAST, lambdas, subscripts and intervals: their types by Spark's rules.

All values of a CASE are cast to one type, found as for a comparison: of two numbers the wider type, of a string and a number
that of the number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from wherecast.language.casts import find_type, is_castable
from wherecast.language.events.types import FLOATS, INTEGERS, INTERVALS, MOMENTS, Digits, Type, wider_digits
from wherecast.language.expression import (
    And,
    Attr,
    Call,
    CaseWhen,
    Cast,
    Const,
    Elapsed,
    Element,
    IntervalLiteral,
    Negate,
    Node,
    Not,
    Or,
    Param,
    Quantified,
    Shift,
    Span,
    Subscript,
    digits_of,
)
from wherecast.language.functions.arrays import value_of_key
from wherecast.language.functions.row import CallFaultError, type_call
from wherecast.language.functions.table import FUNCTIONS
from wherecast.language.syntax.parser import Branch, Leaf

if TYPE_CHECKING:
    from wherecast.language.syntax.sql import Checker


# -- values of one type ------------------------------------------------------------------------------------------------


def unified(checker: Checker, values: Sequence[Node], span: Span) -> tuple[tuple[Node, ...], Type, Digits]:
    """Values cast to the type that they have in common, that type, and its digits if it is a decimal."""
    first = values[0]
    common = first.type
    for value in values[1:]:
        known = first if common is first.type else Const(value=None, type=common)
        common = checker.common_type(known, value, span)
    digits = (0, 0)
    for value in values if common is Type.DECIMAL else ():
        if value.type is not Type.NULL:  # of an integer those of its type, also of a literal
            own = Const(value=None, type=value.type) if value.type in INTEGERS else value
            digits = wider_digits(digits, digits_of(own))
    return tuple(cast_to(value, common, digits) for value in values), common, digits


def cast_to(node: Node, kind: Type, digits: Digits = (0, 0)) -> Node:
    """A node as another type; it stays as it is where its values have the same form there."""
    if node.type is kind and (kind is not Type.DECIMAL or getattr(node, "digits", ()) == digits):
        return node
    if node.type in INTEGERS and kind in INTEGERS and INTEGERS.index(node.type) <= INTEGERS.index(kind):
        return node
    if isinstance(node, Param) and kind in FLOATS and node.type is not Type.STRING:
        return Param(slot=node.slot, type=kind, negative=node.negative, span=node.span)
    return Cast(item=node, type=kind, digits=digits, span=node.span)


# -- CASE and its relatives --------------------------------------------------------------------------------------------


def _case(checker: Checker, tree: Branch, depth: int) -> Node:
    items = list(tree.items)
    operand = checker.expression(items.pop(0), depth + 1) if tree.op == "CASE of" else None
    whens, thens = items[:-1:2], [*items[1:-1:2], items[-1]]
    if operand is None:
        conditions = [checker.condition(when, depth + 1) for when in whens]
    else:
        checker.check_repeatable(operand, "CASE")
        tests = [checker.expression(when, depth + 1) for when in whens]
        conditions = [checker.compare("=", operand, test, tree.span) for test in tests]
    return _cases(checker, conditions, [checker.expression(then, depth + 1) for then in thens], tree.span)


def _cases(checker: Checker, conditions: list[Node], values: list[Node], span: Span) -> Node:
    unity, common, digits = unified(checker, values, span)
    return CaseWhen(conditions=tuple(conditions), values=unity, type=common, digits=digits, span=span)


def _cast(checker: Checker, tree: Branch, depth: int) -> Node:
    item = checker.expression(tree.items[0], depth + 1)
    found = find_type(tree.name)
    if found is None:
        names = "BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL(10, 2), STRING, DATE or TIMESTAMP"
        raise checker.error("unsupported", f"cannot cast to {tree.name.upper()[:40]}; write {names}", tree.span)
    kind, digits = found
    if not is_castable(item.type, kind):
        hint = "; write decode(v, 'UTF-8')" if item.type is Type.BINARY and kind is Type.STRING else ""
        raise checker.error("type", f"cannot cast {checker.describe(item)} to {kind}{hint}", tree.span)
    # A text in quotes is read by the cast, and so is a number whose digits count.
    if item.type is kind and (kind is not Type.DECIMAL or getattr(item, "digits", ()) == digits):
        return item
    return Cast(item=item, type=kind, digits=digits, span=tree.span)


def _like_any(checker: Checker, tree: Branch, depth: int) -> Node:
    item = checker.expression(tree.items[0], depth + 1)
    checker.check_repeatable(item, tree.op)
    is_negated, kind = tree.name.startswith("not "), tree.name.removeprefix("not ")
    likes: list[Node] = []
    for pattern in tree.items[1:]:
        like = checker.like(kind, item, checker.expression(pattern, depth + 1), tree.span)
        likes.append(Not(item=like, span=tree.span) if is_negated else like)
    if len(likes) == 1:
        return likes[0]
    return (And if tree.op == "LIKE ALL" else Or)(items=tuple(likes), span=tree.span)


# -- arrays ------------------------------------------------------------------------------------------------------------


def _item(checker: Checker, tree: Branch, depth: int) -> Node:
    array, index = (checker.expression(t, depth + 1) for t in tree.items)
    if array.type is Type.MAP:
        try:
            return value_of_key(array, index, tree.span, checker.describe)
        except CallFaultError as fault:
            raise checker.error(fault.reason, fault.message, fault.span) from None
    if not isinstance(array, (Attr, Call)) or array.type is not Type.ARRAY:
        message = f"[...] needs an array or a map, found {checker.describe(array)}"
        raise checker.error("type", message, array.span)
    if index.type not in (*INTEGERS, Type.NULL):
        raise checker.error("type", f"[...] needs an integer, found {checker.describe(index)}", index.span)
    return Subscript(array=array, index=index, type=array.element, digits=array.digits, span=tree.span)


def _quantified(checker: Checker, tree: Branch, depth: int) -> Node:
    array, function = checker.expression(tree.items[0], depth + 1), tree.items[1]
    if not isinstance(array, (Attr, Call)) or array.type is not Type.ARRAY:
        message = f"{tree.op} needs an array, found {checker.describe(array)}"
        raise checker.error("type", message, array.span)
    assert isinstance(function, Branch), "the parser reads a lambda here"
    variable = function.name
    outer = checker.variables
    checker.variables = {
        **outer,
        variable.lower(): Element(name=variable.lower(), type=array.element, digits=array.digits),
    }
    body = checker.condition(function.items[0], depth + 1)
    checker.variables = outer
    return Quantified(array=array, variable=variable.lower(), body=body, is_all=tree.op == "forall", span=tree.span)


# -- intervals ---------------------------------------------------------------------------------------------------------

_MONTH_UNITS = ("YEAR", "MONTH")
_DAY_UNITS = ("WEEK", "DAY")
_RANGES = (
    "YEAR TO MONTH",
    "DAY TO HOUR",
    "DAY TO MINUTE",
    "DAY TO SECOND",
    "HOUR TO MINUTE",
    "HOUR TO SECOND",
    "MINUTE TO SECOND",
)


def _interval(checker: Checker, tree: Branch, _depth: int) -> Node:
    amounts, units = [], []
    for part in tree.items:
        assert isinstance(part, Branch), "each part has a unit"
        amount = part.items[0]
        assert isinstance(amount, Leaf), "an amount is a literal"
        param = checker.leaf(amount)
        assert isinstance(param, Param), "an amount is a literal"
        is_range = " TO " in part.name
        if is_range and (part.name not in _RANGES or param.type is not Type.STRING or len(tree.items) > 1):
            message = "write an interval of several units as INTERVAL '1 12:30:00' DAY TO SECOND or '1-6' YEAR TO MONTH"
            raise checker.error("syntax", message, part.span)
        amounts.append(param)
        units.append(part.name)
    months = [unit.split()[0] in _MONTH_UNITS for unit in units]
    if any(months) and not all(months):
        message = "months and days cannot be in one interval: months differ in length; add one interval after the other"
        raise checker.error("type", message, tree.span)
    kind = Type.MONTHS if months[0] else Type.DURATION
    return IntervalLiteral(amounts=tuple(amounts), units=tuple(units), type=kind, span=tree.span)


def moment_arithmetic(checker: Checker, op: str, left: Node, right: Node, span: Span) -> Node | None:
    """`+` and `-` where a moment is on one side; None where none is."""
    if op == "+" and left.type not in MOMENTS:
        left, right = right, left
    if left.type not in MOMENTS or op not in "+-":
        return None
    if right.type in MOMENTS and op == "-":
        return Elapsed(end=left, start=right, type=Type.DURATION, span=span)
    if right.type in INTERVALS:
        kind = left.type
        if kind is Type.DATE and right.type is Type.DURATION and not _is_days(right):
            kind = Type.TIMESTAMP
        return Shift(op=op, moment=left, amount=right, type=kind, span=span)
    if left.type is Type.DATE and right.type in (Type.TINYINT, Type.SMALLINT, Type.INT):
        return Shift(op=op, moment=left, amount=right, type=Type.DATE, span=span)
    message = f"{op} needs an interval beside {checker.describe(left)}, found {checker.describe(right)}"
    raise checker.error("type", f"{message}; write INTERVAL 1 DAY", span)


def _is_days(node: Node) -> bool:
    """Whether an interval is in whole days by its type, so that a date plus it is a date."""
    if isinstance(node, Negate):
        return _is_days(node.item)
    if isinstance(node, IntervalLiteral):
        return all(unit in _DAY_UNITS for unit in node.units)
    return isinstance(node, Elapsed) and node.end.type is node.start.type is Type.DATE


def _extract(checker: Checker, tree: Branch, depth: int) -> Node:
    args = tuple(checker.expression(t, depth + 1) for t in tree.items)
    try:
        node = type_call(FUNCTIONS["extract"], args, tree.span, checker.describe)
    except CallFaultError as fault:
        raise checker.error(fault.reason, fault.message, fault.span) from None
    assert isinstance(node, Call), "it has no build"
    kind, digits = (Type.DECIMAL, (8, 6)) if tree.name == "SECOND" else (Type.INT, (0, 0))
    return replace(node, unit=tree.name, type=kind, digits=digits)


HANDLERS: dict[str, Callable[[Checker, Branch, int], Node]] = {
    **dict.fromkeys(("CASE", "CASE of"), _case),
    "cast": _cast,
    **dict.fromkeys(("LIKE ANY", "LIKE ALL"), _like_any),
    "[]": _item,
    **dict.fromkeys(("exists", "forall"), _quantified),
    "INTERVAL": _interval,
    "extract": _extract,
}
