"""From SQL text to a checked expression.

sqlglot parses the shape of a filter (see `skeletons`) from tokens that hold nothing but the filter language (see `tokens`);
this module walks the tree it returns and resolves names and types against the schema.

`SlotKind` tells what the literal of a slot is; it is part of the shape's variant, because Spark types `1`, `1.5` and
`15e-1` differently and that shows in arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from wherecast.errors import FilterError
from wherecast.language.advice import EXPECTED, name_advice
from wherecast.language.expression import (
    And,
    Arith,
    Attr,
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
    arithmetic_type,
    digits_of,
    number_type,
)
from wherecast.language.functions.numbers import check_digits
from wherecast.language.functions.row import CallFaultError, retyped, type_call
from wherecast.language.functions.table import FUNCTIONS
from wherecast.language.limits import Limits
from wherecast.language.schema import Schema
from wherecast.language.skeletons import Shape
from wherecast.language.tokens import Operand, read_shape
from wherecast.language.types import MOMENTS, NUMBERS, Digits, Type, common_number

_DIALECT = Spark()


class SlotKind(NamedTuple):
    """What a slot's literal is: its type, and (precision, scale) where decimal arithmetic may need them."""

    type: Type
    digits: Digits = (0, 0)
    is_edge: bool = False  # one more than the greatest integer of a type: with a minus before it, the least


class Parsed(NamedTuple):
    """The tree of a shape; the name of a column is its number among the operands."""

    tree: exp.Expr
    operands: list[Operand]


def parse_shape(shape: Shape, limits: Limits, quoted_names: frozenset[str] = frozenset()) -> Parsed:
    """Parse a shape. Its words, their order, nesting and number are checked first (see `tokens`)."""
    tokens, operands = read_shape(shape, limits.depth, limits.terms, quoted_names)
    try:
        (tree,) = _DIALECT.parser().parse_into(exp.Condition, tokens, shape.text)
    except (SqlglotError, RecursionError, AttributeError, TypeError, ValueError, IndexError, KeyError):
        # The sentence is well formed; should the parser differ, the author can only write it another way.
        tree = None
    if tree is None:
        raise FilterError("syntax", f"not a condition that can be read; {EXPECTED}", text=shape.text)
    return Parsed(tree, operands)


_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
}
_LIKES: dict[type[exp.Expr], str] = {exp.Like: "like", exp.ILike: "ilike", exp.RegexpLike: "rlike"}
_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}


#: Nodes of a condition that BETWEEN or IN may repeat.
_MOST_REPEATED = 100


class Checker:
    """Turns sqlglot's tree into a typed expression, for one schema and one variant of slots."""

    def __init__(
        self,
        schema: Schema,
        slots: tuple[SlotKind, ...],
        operands: list[Operand],
        text: str,
        limits: Limits,
        *,
        case_sensitive: bool = False,
    ) -> None:
        self.schema = schema
        self.operands = operands
        self.slots = slots
        self.text = text
        self.limits = limits
        self.case_sensitive = case_sensitive
        self.regexes = 0
        self._handlers: dict[type[exp.Expr], Callable[[exp.Expr, int], Node]] = {
            exp.Column: self._leaf,
            exp.And: self._connective,
            exp.Or: self._connective,
            exp.Not: self._not,
            exp.Is: self._is,
            exp.NullSafeNEQ: self._comparison,
            exp.Between: self._between,
            exp.In: self._in,
            exp.Like: self._like,
            exp.ILike: self._like,
            exp.RegexpLike: self._like,
            exp.Neg: self._negative,
            exp.Anonymous: self._call,
            **dict.fromkeys(_COMPARISONS, self._comparison),
            **dict.fromkeys(_ARITHMETIC, self._arithmetic),
        }

    def condition(self, tree: exp.Expr, depth: int = 0) -> Node:
        """A node that must be boolean."""
        node = self.expression(tree, depth)
        if node.type not in (Type.BOOLEAN, Type.NULL):
            hint = " with an attribute: a = 'x' OR a = 'y', or a IN ('x', 'y')" if isinstance(node, Param) else ""
            message = f"expected a condition, found a value of type {node.type}; compare it{hint}"
            raise self._error("type", message, node.span)
        return node

    def expression(self, tree: exp.Expr, depth: int) -> Node:
        """A node of any type, `depth` levels down."""
        if depth > self.limits.depth:
            raise self._error(
                "limit", f"nested deeper than {self.limits.depth}; flatten the filter", self._first_leaf(tree)
            )
        tree = tree.unnest() if isinstance(tree, exp.Paren) else tree
        handler = self._handlers.get(type(tree))
        if handler is None:
            raise self._error("unsupported", f"{tree.key.upper()} is not supported; {EXPECTED}", self._first_leaf(tree))
        return handler(tree, depth)

    # -- leaves ---------------------------------------------------------------------------------------------------

    def _leaf(self, tree: exp.Expr, _depth: int) -> Node:
        operand = self.operands[int(tree.name)]
        if operand.name is not None:
            return self._attribute(operand.name, operand.span)
        if operand.slot is None:
            return Const(value=operand.value, type=operand.type or Type.NULL, span=operand.span)
        kind = self.slots[operand.slot]
        if operand.type is not None:  # DATE '...', TIMESTAMP '...'
            return Param(slot=operand.slot, type=operand.type, span=operand.span)
        return Param(slot=operand.slot, type=kind.type, digits=kind.digits, span=operand.span)

    def _attribute(self, name: str, span: Span) -> Node:
        index = self.schema.find(name)
        if index is not None and self.case_sensitive and self.schema.attributes[index].name != name:
            meant = self.schema.attributes[index].name
            message = f"unknown attribute {_shown(name)}; names are case-sensitive here: write {meant!r}"
            raise self._error("unknown-attribute", message, span)
        if index is None:
            why = self.schema.why_unusable(name)
            if why is not None:
                raise self._error("type", why, span)
            message = f"unknown attribute {_shown(name)}; {self._name_hint(name)}"
            raise self._error("unknown-attribute", message, span)
        attribute = self.schema.attributes[index]
        if attribute.is_array:
            return Attr(index=index, type=Type.ARRAY, element=attribute.type, digits=attribute.digits, span=span)
        return Attr(index=index, type=attribute.type, digits=attribute.digits, span=span)

    def _name_hint(self, name: str) -> str:
        inside = [a.name for a in self.schema.attributes if a.name.lower().startswith(name.lower() + ".")]
        if inside:
            return f"it is a struct: name a field, as {inside[0]!r}"
        known, near = name_advice(name), self.schema.suggest(name)
        if known:
            return known
        return f"did you mean {near!r}?" if near else f"known attributes: {_some_names(self.schema)}"

    # -- logic ----------------------------------------------------------------------------------------------------

    def _connective(self, tree: exp.Expr, depth: int) -> Node:
        # A chain of a thousand ORs is a left-deep tree of depth a thousand: flatten it without recursion.
        kind, items, stack = type(tree), [], [tree]
        while stack:
            node = stack.pop()
            if type(node) is kind:
                stack += [node.args["expression"], node.this]
            else:
                items.append(self.condition(node, depth + 1))
        return (And if kind is exp.And else Or)(items=tuple(items), span=_hull(items[0], items[-1]))

    def _not(self, tree: exp.Expr, depth: int) -> Node:
        item = self.condition(tree.this, depth + 1)
        return Not(item=item, span=item.span)

    def _is(self, tree: exp.Expr, depth: int) -> Node:
        against = tree.args["expression"]
        if isinstance(against, exp.Null):
            item = self.expression(tree.this, depth + 1)
            return IsNull(item=item, span=item.span)
        item = self.condition(tree.this, depth + 1)
        return IsTruth(item=item, truth=bool(against.this), span=item.span)

    # -- comparisons ----------------------------------------------------------------------------------------------

    def _comparison(self, tree: exp.Expr, depth: int) -> Node:
        left = self.expression(tree.this, depth + 1)
        right = self._compared_with(left, tree.args["expression"], depth)
        negated = isinstance(tree, exp.NullSafeNEQ)
        node = self.compare("<=>" if negated else _COMPARISONS[type(tree)], left, right, _hull(left, right))
        return Not(item=node, span=node.span) if negated else node

    def _compared_with(self, item: Node, tree: exp.Expr, depth: int) -> Node:
        """The other side of a comparison. A bare word beside a string is more likely a text without its quotes."""
        if item.type is Type.STRING and isinstance(tree, exp.Column):
            name, span = self.operands[int(tree.name)].name, self.operands[int(tree.name)].span
            if name is not None and self.schema.find(name) is None and not name_advice(name):
                near = self.schema.suggest(name)
                hint = f", or did you mean the attribute {near!r}?" if near else ""
                message = f"unknown attribute {_shown(name)}; write a text in quotes: '...'{hint}"
                raise self._error("unknown-attribute", message, span)
        return self.expression(tree, depth + 1)

    def compare(self, op: str, left: Node, right: Node, span: Span) -> Node:
        """A comparison with both sides brought to their common type."""
        common = self._common_type(left, right, span)
        return Compare(op=op, left=retyped(left, common), right=retyped(right, common), common=common, span=span)

    def _common_type(self, left: Node, right: Node, span: Span) -> Type:
        a, b = left.type, right.type
        if Type.NULL in (a, b):
            return a if b is Type.NULL else b
        if a is Type.ARRAY or b is Type.ARRAY:
            raise self._error("type", "an array cannot be compared; use array_contains or size", span)
        if a in NUMBERS and b in NUMBERS:
            return common_number(a, b)
        if a is b:
            return a
        if a in MOMENTS and b in MOMENTS:
            return max(a, b, key=MOMENTS.index)
        for this, other in ((left, right), (right, left)):
            if isinstance(this, Param) and this.type is Type.STRING and other.type in MOMENTS:
                return other.type
        raise self._error(
            "type",
            f"cannot compare {self._describe(left)} with {self._describe(right)}; "
            f"give both sides one type{_literal_hint(left, right)}",
            span,
        )

    def _between(self, tree: exp.Expr, depth: int) -> Node:
        item = self._repeatable(self.expression(tree.this, depth + 1), "BETWEEN")
        low, high = self.expression(tree.args["low"], depth + 1), self.expression(tree.args["high"], depth + 1)
        span = _hull(item, high)
        return And(items=(self.compare(">=", item, low, span), self.compare("<=", item, high, span)), span=span)

    def _repeatable(self, item: Node, what: str) -> Node:
        """An operand that stands more than once in the result: nested conditions would double with every level."""
        if item.type is Type.BOOLEAN and sum(1 for _ in islice(item.walk(), _MOST_REPEATED + 1)) > _MOST_REPEATED:
            raise self._error("limit", f"{what} on so large a condition; compare it with = instead", item.span)
        return item

    def _in(self, tree: exp.Expr, depth: int) -> Node:
        item = self.expression(tree.this, depth + 1)
        listed = [self._compared_with(item, v, depth) for v in tree.expressions]
        span = _hull(item, listed[-1])
        has_null = any(n.type is Type.NULL for n in listed)
        values = [n for n in listed if n.type is not Type.NULL]
        if not values:
            return Compare(op="=", left=item, right=Const(value=None, type=Type.NULL), common=item.type, span=span)
        common = item.type
        for value in values:
            common = self._common_type(Const(value=None, type=common) if common is not item.type else item, value, span)
        if not all(isinstance(v, Param) for v in values):
            item = self._repeatable(item, "IN with attributes in its list")
            tests = [
                Compare(op="=", left=retyped(item, common), right=retyped(v, common), common=common, span=span)
                for v in listed
            ]
            return Or(items=tuple(tests), span=span) if len(tests) > 1 else tests[0]
        params = tuple(p for p in (retyped(v, common) for v in values) if isinstance(p, Param))
        return InList(item=retyped(item, common), values=params, has_null=has_null, common=common, span=span)

    def _like(self, tree: exp.Expr, depth: int) -> Node:
        item, pattern = self.expression(tree.this, depth + 1), self.expression(tree.args["expression"], depth + 1)
        span = _hull(item, pattern)
        kind = _LIKES[type(tree)]
        if item.type not in (Type.STRING, Type.NULL):
            raise self._error("type", f"{kind.upper()} needs a string, found {self._describe(item)}", item.span)
        if not isinstance(pattern, Param) or pattern.type is not Type.STRING:
            example = "'^text'" if kind == "rlike" else "'text%'"
            message = f"{kind.upper()} needs a string literal as its pattern, such as {example}"
            raise self._error("type", message, pattern.span)
        node = Like(kind=kind, item=item, pattern=pattern, span=span)
        self._count_regex(node)
        return Not(item=node, span=span) if tree.args.get("negate") else node

    def _count_regex(self, node: Like) -> None:
        self.regexes += node.kind == "rlike"
        if self.regexes > self.limits.regexes:
            message = f"more than {self.limits.regexes} RLIKEs; join patterns as 'a|b', or split the filter"
            raise self._error("limit", message, node.pattern.span)

    # -- values ---------------------------------------------------------------------------------------------------

    def _arithmetic(self, tree: exp.Expr, depth: int) -> Node:
        op = _ARITHMETIC[type(tree)]
        left, right = self.expression(tree.this, depth + 1), self.expression(tree.args["expression"], depth + 1)
        for side in (left, right):
            if side.type not in (*NUMBERS, Type.NULL):
                raise self._error("type", f"{op} needs numbers, found {self._describe(side)}", side.span)
        try:
            check_digits(left)
            check_digits(right)
        except CallFaultError as fault:
            raise self._error(fault.reason, fault.message, fault.span) from None
        kind, digits = arithmetic_type(op, left, right)
        return Arith(op=op, left=left, right=right, type=kind, digits=digits, span=_hull(left, right))

    def _negative(self, tree: exp.Expr, depth: int) -> Node:
        item = self.expression(tree.this, depth + 1)
        if item.type not in (*NUMBERS, Type.NULL):
            raise self._error("type", f"- needs a number, found {self._describe(item)}", item.span)
        if isinstance(item, Param) and not item.negative and not isinstance(tree.this, exp.Paren):
            kind = NUMBERS[NUMBERS.index(item.type) - 1] if self.slots[item.slot].is_edge else item.type
            return Param(slot=item.slot, type=kind, digits=item.digits, negative=True, span=item.span)
        # A number with a sign is a literal to Spark; one in parentheses behind a sign is not, and has its type's digits.
        digits = digits_of(item) if item.type is Type.DECIMAL else (0, 0)
        return Negate(item=item, type=number_type(item.type), digits=digits, span=item.span)

    def _call(self, tree: exp.Expr, depth: int) -> Node:
        row, args = FUNCTIONS[str(tree.this)[1:]], tuple(self.expression(a, depth + 1) for a in tree.expressions)
        span = (tree.meta["start"], self.text.find(")", args[-1].span[1]) + 1)
        try:
            node = type_call(row, args, span, self._describe)
        except CallFaultError as fault:
            raise self._error(fault.reason, fault.message, fault.span) from None
        if isinstance(node, Like):
            self._count_regex(node)
        return node

    # -- errors ---------------------------------------------------------------------------------------------------

    def _error(self, reason: str, message: str, span: Span) -> FilterError:
        return FilterError(reason, message, text=self.text, start=span[0], end=span[1])

    def _first_leaf(self, tree: exp.Expr) -> Span:
        leaf = tree.find(exp.Identifier, bfs=False)
        return self.operands[int(leaf.name)].span if leaf else (0, 1)

    def _describe(self, node: Node) -> str:
        if isinstance(node, Attr):
            attribute = self.schema.attributes[node.index]
            return f"{attribute.type_name} attribute {attribute.name!r}"
        if isinstance(node, Param):
            return f"a {'number' if node.type in NUMBERS else node.type}"
        return f"a value of type {node.type}"


def _hull(*nodes: Node) -> Span:
    """Where a compound stands: from its first operand to its last."""
    return min(n.span[0] for n in nodes), max(n.span[1] for n in nodes)


def _shown(name: str) -> str:
    return repr(name if len(name) <= 60 else name[:57] + "...")


def _some_names(schema: Schema) -> str:
    names = [a.name for a in schema.attributes]
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")


def _literal_hint(left: Node, right: Node) -> str:
    if isinstance(left, Param) and isinstance(right, Param):
        return " (quotes make a text; write the name of an attribute without them, or in backticks)"
    for this, other in ((left, right), (right, left)):
        if not isinstance(this, Param):
            if other.type is Type.DATE and isinstance(this, Arith):  # 2024-01-31 without quotes is a subtraction
                return " (write DATE '2024-01-31')"
            continue
        if other.type is Type.STRING and this.type in NUMBERS:
            return " (quote the literal: '...')"
        if other.type in NUMBERS and this.type is Type.STRING:
            return " (write a number without quotes)"
        if other.type is Type.BOOLEAN:
            return " (write TRUE or FALSE)"
        if other.type is Type.DATE:
            return " (write DATE '2024-01-31')"
        if other.type is Type.BINARY:
            return " (write X'1A2B')"
        if other.type in MOMENTS:
            return f" (write {other.type.upper()} '2024-01-31 12:00:00')"
    return ""
