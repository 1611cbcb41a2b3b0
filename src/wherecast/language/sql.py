"""From SQL text to a checked expression.

sqlglot parses the shape of a filter (see `literals`) in Spark's dialect; this module walks the tree it returns, admits
what the filter language knows, resolves names and types against the schema and refuses everything else with a position.
Where sqlglot's precedence is not Spark's (a comparison or a predicate directly inside a comparison, without
parentheses), the text is refused rather than misread.

`SlotKind` tells what the literal of a slot is; it is part of the shape's variant, because Spark types `1`, `1.5` and
`15e-1` differently and that shows in arithmetic.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from wherecast.errors import FilterError
from wherecast.language.decimals import Digits, arithmetic_digits
from wherecast.language.expression import (
    INTEGERS,
    NUMBERS,
    TYPE_OF_KIND,
    And,
    Arith,
    Attr,
    Call,
    Compare,
    Const,
    InList,
    IsNull,
    IsTruth,
    Like,
    Negate,
    Node,
    Not,
    Or,
    Param,
    Span,
    Type,
)
from wherecast.language.literals import Shape
from wherecast.language.schema import Schema

# sqlglot warns about constructs it does not know; we refuse them ourselves, with a position.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a filter may be. Every bound is there so that one subscriber cannot stall the others."""

    text: int = 65_536  # characters
    depth: int = 100  # nesting
    terms: int = 2_000  # names, operators and literals (an IN list counts once)
    values: int = 10_000  # values of one IN list
    clauses: int = 64  # of the normal form; beyond it, covering boxes and a residual
    pattern: int = 1_000  # characters of a LIKE or RLIKE pattern


class SlotKind(NamedTuple):
    """What a slot's literal is: its type, and (precision, scale) where decimal arithmetic may need them."""

    type: Type
    digits: Digits = (0, 0)


_PREFIX_RUN = re.compile(r"(?:\bnot\b\s*|[-+!~]\s*){%d,}", re.IGNORECASE)
_TERM = re.compile(r"[^\W]+|[<>=!]+|[^\w\s]")


def parse_shape(shape: Shape, limits: Limits) -> exp.Expression:
    """Parse a shape's text, its nesting and size checked first so that the parser's recursion is bounded."""
    text = shape.text
    _check_size(text, limits)
    try:
        parsed: exp.Expression = sqlglot.parse_one(text, read="spark", into=exp.Condition)
    except SqlglotError as error:
        raise _syntax_error(text, error) from None
    except (RecursionError, AttributeError, TypeError, ValueError, IndexError, KeyError):
        # sqlglot's own slips on malformed text; the author can do no more than with a syntax error.
        raise FilterError("syntax", "not a SQL condition", text=text) from None
    return parsed


def _check_size(text: str, limits: Limits) -> None:
    if not text.strip():
        raise FilterError("syntax", "the filter is empty; write TRUE to match every event", text=text)
    depth = 0
    for match in re.finditer(r"'[^']*'|`[^`]*`|([(\[{])|([)\]}])|(;)", text):
        depth += 1 if match.group(1) else -1 if match.group(2) else 0
        if depth > limits.depth:
            raise FilterError(
                "limit", f"nested deeper than {limits.depth}; flatten the filter", text=text, start=match.start()
            )
        if match.group(3):
            raise FilterError("syntax", "unexpected ';'; a filter is one condition", text=text, start=match.start())
    run = re.search(_PREFIX_RUN.pattern % limits.depth, text, re.IGNORECASE)
    if run:
        raise FilterError(
            "limit", f"more than {limits.depth} NOTs or signs in a row; remove them", text=text, start=run.start()
        )
    terms = sum(1 for _ in _TERM.finditer(text))
    if terms > limits.terms:
        raise FilterError("limit", f"{terms} terms, at most {limits.terms}; split the filter or use IN", text=text)


def _syntax_error(text: str, error: SqlglotError) -> FilterError:
    found = getattr(error, "errors", None) or [{}]
    first = found[0]
    line, column = first.get("line"), first.get("col")
    highlight = first.get("highlight") or ""
    if line is None or column is None:
        at = re.search(r"line (\d+), col: (\d+)", str(error), re.IGNORECASE)
        line, column = (int(at.group(1)), int(at.group(2))) if at else (1, 1)
    begin = sum(len(row) + 1 for row in text.split("\n")[: line - 1])
    start = max(begin, begin + column - max(len(highlight), 1))  # sqlglot counts to the end of the token
    what = f"unexpected {highlight!r}" if highlight.strip() else "incomplete or misplaced expression"
    return FilterError("syntax", f"{what}; expected a SQL condition such as price < 120", text=text, start=start,
                       end=start + max(len(highlight), 1))


_COMPARISONS = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>",
}
_ARITHMETIC = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
#: node class -> (name, keys of its arguments)
_CALLS = {
    exp.Lower: ("lower", ("this",)),
    exp.Upper: ("upper", ("this",)),
    exp.Length: ("length", ("this",)),
    exp.Abs: ("abs", ("this",)),
    exp.StartsWith: ("startswith", ("this", "expression")),
    exp.EndsWith: ("endswith", ("this", "expression")),
    exp.Contains: ("contains", ("this", "expression")),
    exp.ArrayContains: ("array_contains", ("this", "expression")),
    exp.ArraySize: ("size", ("this",)),
}
#: Arguments that sqlglot sets on admitted nodes without changing what they mean.
_HARMLESS = {"typed", "safe", "negate", "ensure_variant", "check_null", "encoding", "binary", "_type"}
_PREDICATES = (*_COMPARISONS, exp.NullSafeNEQ, exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike,
               exp.Escape, exp.Not)


class Checker:
    """Turns sqlglot's tree into a typed expression, for one schema and one variant of slots."""

    def __init__(self, schema: Schema, slots: tuple[SlotKind, ...], text: str, limits: Limits) -> None:
        self.schema = schema
        self.slots = slots
        self.text = text
        self.limits = limits

    def condition(self, tree: exp.Expression, depth: int = 0) -> Node:
        """A node that must be boolean."""
        node = self.expression(tree, depth)
        if node.type not in (Type.BOOLEAN, Type.NULL):
            raise self._error(
                "type", f"expected a condition, found a value of type {self._type_name(node)}; compare it", node.span
            )
        return node

    def expression(self, tree: exp.Expression, depth: int) -> Node:
        if depth > self.limits.depth:
            raise self._error("limit", f"nested deeper than {self.limits.depth}; flatten the filter", _span(tree))
        tree = tree.unnest() if isinstance(tree, exp.Paren) else tree
        kind = type(tree)
        if kind in (exp.And, exp.Or):
            return self._connective(tree, depth)
        if kind in _COMPARISONS or kind is exp.NullSafeNEQ:
            return self._comparison(tree, depth)
        if kind in _ARITHMETIC:
            return self._arithmetic(tree, depth)
        if kind in _CALLS:
            return self._call(tree, depth)
        handler = self._HANDLERS.get(kind)
        if handler is None:
            raise self._unsupported(tree)
        return handler(self, tree, depth)

    # -- leaves ---------------------------------------------------------------------------------------------------

    def _column(self, tree: exp.Expression, depth: int) -> Node:
        parts = [p for p in tree.find_all(exp.Identifier)]
        if tree.find(exp.Star) or not parts:
            raise self._unsupported(tree)
        parts.sort(key=lambda p: p.meta.get("start", 0))
        name, span = ".".join(str(p.this) for p in parts), _span(tree)
        index = self.schema.find(name)
        if index is None:
            near = self.schema.suggest(name)
            hint = f"did you mean {near!r}?" if near else f"known attributes: {_some_names(self.schema)}"
            raise self._error("unknown-attribute", f"unknown attribute {name!r}; {hint}", span)
        attribute = self.schema.attributes[index]
        element = TYPE_OF_KIND[attribute.kind]
        if attribute.is_array:
            return Attr(index=index, type=Type.ARRAY, element=element, span=span)
        return Attr(index=index, type=element, span=span)

    def _literal(self, tree: exp.Expression, depth: int) -> Node:
        if not str(tree.this).isdigit() or int(tree.this) >= len(self.slots):
            raise self._error("syntax", "misplaced literal", _span(tree))
        slot = int(tree.this)
        kind = self.slots[slot]
        return Param(slot=slot, type=kind.type, digits=kind.digits, span=_span(tree))

    def _typed_literal(self, tree: exp.Expression, depth: int) -> Node:
        """DATE '...' and TIMESTAMP '...', which sqlglot turns into a strict cast."""
        target = {exp.DType.DATE: Type.DATE, exp.DType.TIMESTAMP: Type.TIMESTAMP, exp.DType.TIMESTAMPTZ: Type.TIMESTAMP}
        to = target.get(tree.args["to"].this)
        span = _span(tree)
        spelled = re.search(r"(date|timestamp|timestamp_ltz)\s*$", self.text[: span[0]], re.IGNORECASE)
        if to is None or spelled is None or not isinstance(tree.this, exp.Literal) or not tree.this.is_string:
            raise self._error("unsupported", "CAST is not supported; write DATE '2024-01-31' or a plain literal", span)
        param = self._literal(tree.this, depth)
        assert isinstance(param, Param)
        return Param(slot=param.slot, type=to, span=(spelled.start(), span[1]))

    def _boolean(self, tree: exp.Expression, depth: int) -> Node:
        return Const(value=bool(tree.this), span=_span(tree))

    def _null(self, tree: exp.Expression, depth: int) -> Node:
        return Const(value=None, type=Type.NULL, span=_span(tree))

    # -- logic ----------------------------------------------------------------------------------------------------

    def _connective(self, tree: exp.Expression, depth: int) -> Node:
        # A chain of a thousand ORs is a left-deep tree of depth a thousand: flatten it without recursion.
        kind, items, stack = type(tree), [], [tree]
        while stack:
            node = stack.pop()
            if type(node) is kind:
                stack += [node.args["expression"], node.this]
            else:
                items.append(self.condition(node, depth + 1))
        return (And if kind is exp.And else Or)(items=tuple(items), span=_span(tree))

    def _not(self, tree: exp.Expression, depth: int) -> Node:
        return Not(item=self.condition(tree.this, depth + 1), span=_span(tree))

    def _is(self, tree: exp.Expression, depth: int) -> Node:
        against, span = tree.args["expression"], _span(tree)
        if isinstance(against, exp.Null):
            return IsNull(item=self.expression(tree.this, depth + 1), span=span)
        if isinstance(against, exp.Boolean):
            return IsTruth(item=self.condition(tree.this, depth + 1), truth=bool(against.this), span=span)
        raise self._error("syntax", "IS takes NULL, TRUE or FALSE", span)

    # -- comparisons ----------------------------------------------------------------------------------------------

    def _operand(self, tree: exp.Expression, depth: int) -> Node:
        if isinstance(tree, _PREDICATES):
            raise self._error("syntax", "a condition inside a comparison needs parentheses around it", _span(tree))
        return self.expression(tree, depth + 1)

    def _comparison(self, tree: exp.Expression, depth: int) -> Node:
        left, right = self._operand(tree.this, depth), self._operand(tree.args["expression"], depth)
        negated = isinstance(tree, exp.NullSafeNEQ)
        node = self.compare("<=>" if negated else _COMPARISONS[type(tree)], left, right, _span(tree))
        return Not(item=node, span=node.span) if negated else node

    def compare(self, op: str, left: Node, right: Node, span: Span) -> Node:
        """A comparison with both sides brought to their common type."""
        common = self._common_type(left, right, span)
        return Compare(op=op, left=_retype(left, common), right=_retype(right, common), common=common, span=span)

    def _common_type(self, left: Node, right: Node, span: Span) -> Type:
        a, b = left.type, right.type
        if Type.NULL in (a, b):
            return a if b is Type.NULL else b
        if a is Type.ARRAY or b is Type.ARRAY:
            raise self._error("type", "an array cannot be compared; use array_contains or size", span)
        if a in NUMBERS and b in NUMBERS:
            return max(a, b, key=NUMBERS.index)
        if a is b:
            return a
        if {a, b} == {Type.DATE, Type.TIMESTAMP}:
            return Type.TIMESTAMP
        for this, other in ((left, right), (right, left)):
            if isinstance(this, Param) and this.type is Type.STRING and other.type in (Type.DATE, Type.TIMESTAMP):
                return other.type
        raise self._error(
            "type", f"cannot compare {self._describe(left)} with {self._describe(right)}; "
            f"give both sides one type{_literal_hint(left, right)}", span)

    def _between(self, tree: exp.Expression, depth: int) -> Node:
        if tree.args.get("symmetric"):
            raise self._error("unsupported", "BETWEEN SYMMETRIC is not supported; use two comparisons", _span(tree))
        item, span = self._operand(tree.this, depth), _span(tree)
        low, high = self._operand(tree.args["low"], depth), self._operand(tree.args["high"], depth)
        return And(items=(self.compare(">=", item, low, span), self.compare("<=", item, high, span)), span=span)

    def _in(self, tree: exp.Expression, depth: int) -> Node:
        span = _span(tree)
        if any(tree.args.get(k) for k in ("query", "unnest", "field", "is_global")):
            raise self._error("unsupported", "a subquery is not supported; list the values", span)
        item = self._operand(tree.this, depth)
        listed = [self._operand(v, depth) for v in tree.expressions]
        if not listed:
            raise self._error("syntax", "IN needs at least one value", span)
        has_null = any(n.type is Type.NULL for n in listed)
        values = [n for n in listed if n.type is not Type.NULL]
        if not values:
            return Compare(op="=", left=item, right=Const(value=None, type=Type.NULL), common=item.type, span=span)
        common = item.type
        for value in values:
            common = self._common_type(Const(value=None, type=common) if common is not item.type else item, value, span)
        if not all(isinstance(v, Param) for v in values):
            tests = [Compare(op="=", left=_retype(item, common), right=_retype(v, common), common=common, span=span)
                     for v in listed]
            return Or(items=tuple(tests), span=span)
        params = tuple(p for p in (_retype(v, common) for v in values) if isinstance(p, Param))
        return InList(item=_retype(item, common), values=params, has_null=has_null, common=common, span=span)

    def _like(self, tree: exp.Expression, depth: int, escape: str = "\\") -> Node:
        span = _span(tree)
        item, pattern = self._operand(tree.this, depth), self._operand(tree.args["expression"], depth)
        kind = {exp.Like: "like", exp.ILike: "ilike", exp.RegexpLike: "rlike"}[type(tree)]
        if item.type not in (Type.STRING, Type.NULL):
            raise self._error("type", f"{kind.upper()} needs a string, found {self._describe(item)}", item.span)
        if not isinstance(pattern, Param) or pattern.type is not Type.STRING:
            raise self._error("type", f"{kind.upper()} needs a string literal as its pattern", pattern.span)
        node: Node = Like(kind=kind, item=item, pattern=pattern, escape=escape, span=span)
        return Not(item=node, span=span) if tree.args.get("negate") else node

    def _escape(self, tree: exp.Expression, depth: int) -> Node:
        raise self._error("unsupported", "ESCAPE is not supported; escape with a backslash", _span(tree))

    # -- values ---------------------------------------------------------------------------------------------------

    def _arithmetic(self, tree: exp.Expression, depth: int) -> Node:
        op, span = _ARITHMETIC[type(tree)], _span(tree)
        left, right = self._operand(tree.this, depth), self._operand(tree.args["expression"], depth)
        for side in (left, right):
            if side.type not in (*NUMBERS, Type.NULL):
                raise self._error("type", f"{op} needs numbers, found {self._describe(side)}", side.span)
        kind, digits = arithmetic_type(op, left, right)
        return Arith(op=op, left=left, right=right, type=kind, digits=digits, span=span)

    def _negative(self, tree: exp.Expression, depth: int) -> Node:
        item = self._operand(tree.this, depth)
        if item.type not in (*NUMBERS, Type.NULL):
            raise self._error("type", f"- needs a number, found {self._describe(item)}", item.span)
        if isinstance(item, Param) and not item.negative:
            return Param(slot=item.slot, type=item.type, digits=item.digits, negative=True, span=item.span)
        return Negate(item=item, type=item.type, digits=digits_of(item), span=_span(tree))

    def _call(self, tree: exp.Expression, depth: int) -> Node:
        name, keys = _CALLS[type(tree)]
        span = _span(tree)
        extra = {k for k, v in tree.args.items() if v not in (None, False, [], True)} - set(keys) - _HARMLESS
        if extra:
            raise self._error("unsupported", f"{name} takes {len(keys)} argument(s)", span)
        args = tuple(self._operand(tree.args[k], depth) for k in keys)
        if name == "array_contains":
            return self._array_contains(args, span)
        if name == "size":
            if args[0].type is not Type.ARRAY:
                raise self._error("type", f"size needs an array, found {self._describe(args[0])}", args[0].span)
            return Call(name=name, args=args, type=Type.INT, span=span)
        wanted = (*NUMBERS, Type.NULL) if name == "abs" else (Type.STRING, Type.NULL)
        for arg in args:
            if arg.type not in wanted:
                need = "a number" if name == "abs" else "a string"
                raise self._error("type", f"{name} needs {need}, found {self._describe(arg)}", arg.span)
        result = {"lower": Type.STRING, "upper": Type.STRING, "length": Type.INT, "abs": args[0].type}
        return Call(name=name, args=args, type=result.get(name, Type.BOOLEAN), span=span)

    def _array_contains(self, args: tuple[Node, ...], span: Span) -> Node:
        array, value = args
        if not isinstance(array, Attr) or array.type is not Type.ARRAY:
            raise self._error("type", f"array_contains needs an array attribute, found {self._describe(array)}", span)
        if value.type is Type.NULL:
            raise self._error("type", "array_contains(..., NULL) is never true; test IS NULL instead", value.span)
        common = self._common_type(Const(value=None, type=array.element), value, span)
        if common is not array.element and not (array.element in INTEGERS and common in INTEGERS):
            raise self._error("type", f"array_contains needs a value of type {array.element}", value.span)
        return Call(name="array_contains", args=(array, _retype(value, array.element)), span=span)

    # -- errors ---------------------------------------------------------------------------------------------------

    def _error(self, reason: str, message: str, span: Span) -> FilterError:
        return FilterError(reason, message, text=self.text, start=span[0], end=span[1])

    def _unsupported(self, tree: exp.Expression) -> FilterError:
        if isinstance(tree, (exp.Select, exp.Subquery, exp.Exists)):
            what = "a subquery is not supported"
        elif isinstance(tree, exp.AggFunc):
            what = f"the aggregate {tree.key.upper()} is not supported"
        elif isinstance(tree, exp.Anonymous):
            what = f"unknown function {str(tree.this)!r}"
        elif isinstance(tree, exp.Func):
            what = f"the function {tree.key.upper()} is not supported"
        else:
            what = f"{tree.key.upper()} is not supported"
        return self._error("unsupported", f"{what}; see docs/language.md for what a filter may contain", _span(tree))

    def _type_name(self, node: Node) -> str:
        return str(node.type)

    def _describe(self, node: Node) -> str:
        if isinstance(node, Attr):
            attribute = self.schema.attributes[node.index]
            return f"{attribute.type_name} attribute {attribute.name!r}"
        if isinstance(node, Param):
            return f"a {'number' if node.type in NUMBERS else node.type}"
        return f"a value of type {node.type}"

    _HANDLERS: dict[type[exp.Expression], Callable[[Checker, exp.Expression, int], Node]] = {}


Checker._HANDLERS.update({
    exp.Column: Checker._column,
    exp.Dot: Checker._column,
    exp.Literal: Checker._literal,
    exp.Cast: Checker._typed_literal,
    exp.Boolean: Checker._boolean,
    exp.Null: Checker._null,
    exp.Not: Checker._not,
    exp.Is: Checker._is,
    exp.Between: Checker._between,
    exp.In: Checker._in,
    exp.Like: Checker._like,
    exp.ILike: Checker._like,
    exp.RegexpLike: Checker._like,
    exp.Escape: Checker._escape,
    exp.Neg: Checker._negative,
})


def arithmetic_type(op: str, left: Node, right: Node) -> tuple[Type, Digits]:
    """Result type of an arithmetic operator by Spark's rules."""
    a, b = left.type, right.type
    if Type.NULL in (a, b):
        a = b = Type.DOUBLE if Type.DOUBLE in (a, b) else b if a is Type.NULL else a
    if Type.DOUBLE in (a, b) or (op == "/" and Type.DECIMAL not in (a, b)):
        return Type.DOUBLE, (0, 0)
    if Type.DECIMAL in (a, b):
        return Type.DECIMAL, arithmetic_digits(op, digits_of(left), digits_of(right))
    return (Type.BIGINT if Type.BIGINT in (a, b) else a), (0, 0)


def digits_of(node: Node) -> Digits:
    """(precision, scale) of a number when it meets a decimal."""
    if isinstance(node, (Param, Arith, Negate)) and node.digits != (0, 0):
        return node.digits
    if isinstance(node, Call) and node.type is Type.DECIMAL:
        return digits_of(node.args[0])
    return {Type.INT: (10, 0), Type.BIGINT: (20, 0)}.get(node.type, (1, 0))


def _retype(node: Node, common: Type) -> Node:
    """Give a literal the type it is compared as, so that it is read once, in its final form."""
    if isinstance(node, Param) and node.type is not common and (node.type is Type.STRING or common is Type.DOUBLE):
        return Param(slot=node.slot, type=common, negative=node.negative, span=node.span)
    return node


def _span(tree: exp.Expression) -> Span:
    """Where a node stands: the hull of the positions below it (sqlglot marks names, literals and functions)."""
    start, end, stack, seen = 1 << 60, -1, [tree], 0
    while stack and seen < 2_000:
        node = stack.pop()
        seen += 1
        if "start" in node.meta:
            start, end = min(start, node.meta["start"]), max(end, node.meta["end"] + 1)
        for child in node.args.values():
            if isinstance(child, exp.Expression):
                stack.append(child)
            elif isinstance(child, list):
                stack.extend(c for c in child if isinstance(c, exp.Expression))
    return (start, end) if end >= 0 else (0, 1)


def _some_names(schema: Schema) -> str:
    names = [a.name for a in schema.attributes]
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")


def _literal_hint(left: Node, right: Node) -> str:
    for this, other in ((left, right), (right, left)):
        if isinstance(this, Param) and this.type in NUMBERS and other.type is Type.STRING:
            return " (quote the literal: '...')"
        if isinstance(this, Param) and this.type is Type.STRING and other.type in NUMBERS:
            return " (remove the quotes around the number)"
    return ""
