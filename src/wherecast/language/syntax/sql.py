"""From the tree of a shape to a checked expression: names and types are resolved against the schema.

`SlotKind` tells what the literal of a slot is; it is part of the shape's variant, because Spark types `1`, `1.5` and
`15e-1` differently and that shows in arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import ClassVar, NamedTuple

from wherecast.errors import FilterError
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import (
    COLLECTIONS,
    INTEGERS,
    INTERVALS,
    MOMENTS,
    NUMBERS,
    Digits,
    Type,
    common_number,
)
from wherecast.language.expression import (
    And,
    Arith,
    Attr,
    Call,
    Compare,
    Const,
    InList,
    Invert,
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
from wherecast.language.filters.columns import SETS_OF_CALLS, Column
from wherecast.language.functions.numbers import check_digits
from wherecast.language.functions.row import CallFaultError, retyped, type_call
from wherecast.language.functions.table import FUNCTIONS
from wherecast.language.syntax.advice import name_advice
from wherecast.language.syntax.forms import HANDLERS, cast_to, moment_arithmetic
from wherecast.language.syntax.limits import Limits
from wherecast.language.syntax.parser import Branch, Leaf, Tree


class SlotKind(NamedTuple):
    """What a slot's literal is: its type, and (precision, scale) where decimal arithmetic may need them."""

    type: Type
    digits: Digits = (0, 0)
    is_edge: bool = False  # one more than the greatest integer of a type: with a minus before it, the least


#: Nodes of a condition that BETWEEN or IN may repeat.
_MOST_REPEATED = 100


class Checker:
    """Turns a tree into a typed expression, for one schema and one variant of slots."""

    def __init__(
        self, schema: Schema, slots: tuple[SlotKind, ...], text: str, limits: Limits, *, case_sensitive: bool = False
    ) -> None:
        self.schema = schema
        self.slots = slots
        self.text = text
        self.limits = limits
        self.case_sensitive = case_sensitive
        self.regexes = 0
        self.variables: dict[str, Node] = {}  # of the lambdas around

    def condition(self, tree: Tree, depth: int = 0) -> Node:
        """A node that must be boolean."""
        node = self.expression(tree, depth)
        if node.type not in (Type.BOOLEAN, Type.NULL):
            hint = " with an attribute: a = 'x' OR a = 'y', or a IN ('x', 'y')" if isinstance(node, Param) else ""
            if isinstance(node, Call) and node.name == "concat":
                hint = ", or write OR between conditions: || joins texts"
            message = f"expected a condition, found a value of type {node.type}; compare it{hint}"
            raise self.error("type", message, node.span)
        return node

    def expression(self, tree: Tree, depth: int) -> Node:
        """A node of any type, `depth` levels down."""
        if depth > self.limits.depth:
            message = f"nested deeper than {self.limits.depth}; flatten the filter"
            raise self.error("limit", message, _first_leaf(tree).span)
        return self.leaf(tree) if isinstance(tree, Leaf) else self._HANDLERS[tree.op](self, tree, depth)

    # -- leaves ---------------------------------------------------------------------------------------------------

    def leaf(self, leaf: Leaf) -> Node:
        if leaf.name is not None:
            variable = self.variables.get(leaf.name.lower())
            if variable is not None:
                return replace(variable, span=leaf.span)
            return self._attribute(leaf.name, leaf.span)
        if leaf.slot is None:
            return Const(value=leaf.value, type=leaf.type or Type.NULL, span=leaf.span)
        if leaf.type is not None:  # DATE '...', TIMESTAMP '...'
            return Param(slot=leaf.slot, type=leaf.type, span=leaf.span)
        slot = self.slots[leaf.slot]
        kind = NUMBERS[NUMBERS.index(slot.type) - 1] if leaf.negative and slot.is_edge else slot.type
        return Param(slot=leaf.slot, type=kind, digits=slot.digits, negative=leaf.negative, span=leaf.span)

    def _attribute(self, name: str, span: Span) -> Node:
        index = self.schema.find(name)
        if index is not None and self.case_sensitive and self.schema.attributes[index].name != name:
            meant = self.schema.attributes[index].name
            message = f"unknown attribute {_shown(name)}; names are case-sensitive here: write {meant!r}"
            raise self.error("unknown-attribute", message, span)
        if index is None:
            why = self.schema.why_unusable(name)
            if why is not None:
                raise self.error("type", why, span)
            message = f"unknown attribute {_shown(name)}; {self._name_hint(name)}"
            raise self.error("unknown-attribute", message, span)
        attribute = self.schema.attributes[index]
        if attribute.value is not None:
            value = attribute.value
            return Attr(
                index=index, type=Type.MAP, element=value.type, digits=value.digits, key=attribute.type, span=span
            )
        if attribute.is_array:
            element, digits, size = attribute.type, attribute.digits, attribute.size
            return Attr(index=index, type=Type.ARRAY, element=element, digits=digits, size=size, span=span)
        known = {"digits": attribute.digits, "language": attribute.language, "frequencies": attribute.frequencies}
        return Attr(index=index, type=attribute.type, span=span, **known)  # type: ignore[arg-type]

    def _name_hint(self, name: str) -> str:
        inside = [a for a in self.schema.attributes if a.name.lower().startswith(name.lower() + ".")]
        if inside and inside[0].is_array:
            return f"each field of its structs is an array: write exists({inside[0].name}, x -> ...)"
        if inside:
            return f"it is a struct: name a field, as {inside[0].name!r}"
        of, _, key = name.partition(".")
        if key and any(a.name.lower() == of.lower() and a.value is not None for a in self.schema.attributes):
            return f"{of} is a map: write {of}['{key}']"
        known, near = name_advice(name), self.schema.suggest(name)
        if known:
            return known
        return f"did you mean {near!r}?" if near else f"known attributes: {_some_names(self.schema)}"

    # -- logic ----------------------------------------------------------------------------------------------------

    def _connective(self, tree: Branch, depth: int) -> Node:
        items = tuple(self.condition(item, depth + 1) for item in tree.items)
        return (And if tree.op == "AND" else Or)(items=items, span=tree.span)

    def _not(self, tree: Branch, depth: int) -> Node:
        return Not(item=self.condition(tree.items[0], depth + 1), span=tree.span)

    def _is_null(self, tree: Branch, depth: int) -> Node:
        return IsNull(item=self.expression(tree.items[0], depth + 1), span=tree.span)

    def _is_unknown(self, tree: Branch, depth: int) -> Node:
        return IsNull(item=self.condition(tree.items[0], depth + 1), span=tree.span)

    def _is_truth(self, tree: Branch, depth: int) -> Node:
        return IsTruth(item=self.condition(tree.items[0], depth + 1), truth=tree.op == "IS TRUE", span=tree.span)

    # -- comparisons ----------------------------------------------------------------------------------------------

    def _comparison(self, tree: Branch, depth: int) -> Node:
        left = self.expression(tree.items[0], depth + 1)
        return self.compare(tree.op, left, self._compared_with(left, tree.items[1], depth), tree.span)

    def _compared_with(self, item: Node, tree: Tree, depth: int) -> Node:
        """The other side of a comparison. A bare word beside a string is more likely a text without its quotes."""
        if item.type is Type.STRING and isinstance(tree, Leaf) and tree.name is not None:
            name = tree.name
            is_known = self.schema.find(name) is not None or name.lower() in self.variables
            if not is_known and not name_advice(name):
                near = self.schema.suggest(name)
                hint = f", or did you mean the attribute {near!r}?" if near else ""
                message = f"unknown attribute {_shown(name)}; write a text in quotes: '...'{hint}"
                raise self.error("unknown-attribute", message, tree.span)
        return self.expression(tree, depth + 1)

    def compare(self, op: str, left: Node, right: Node, span: Span) -> Node:
        """A comparison with both sides brought to their common type."""
        common = self.common_type(left, right, span)
        return Compare(op=op, left=_as(left, common), right=_as(right, common), common=common, span=span)

    def common_type(self, left: Node, right: Node, span: Span) -> Type:
        a, b = left.type, right.type
        if Type.NULL in (a, b):
            return a if b is Type.NULL else b
        if Type.MAP in (a, b):
            raise self.error("type", "a map cannot be compared; write a value of it, as m['key'], or size(m)", span)
        if Type.ARRAY in (a, b):
            raise self.error("type", "an array cannot be compared; use array_contains or size", span)
        if a in NUMBERS and b in NUMBERS:
            return common_number(a, b)
        if a is b:
            return a
        if a in MOMENTS and b in MOMENTS:
            return max(a, b, key=MOMENTS.index)
        if Type.STRING in (a, b) and isinstance(left, Param) and isinstance(right, Param):
            raise self.error("type", f"compares two literals of different types{_literal_hint(left, right)}", span)
        for this, other in ((a, b), (b, a)):
            if this is Type.STRING and other in (*MOMENTS, Type.BOOLEAN):
                return other
            if this is Type.STRING and other in NUMBERS:
                return Type.BIGINT if other in INTEGERS else Type.DOUBLE
        raise self.error(
            "type",
            f"cannot compare {self.describe(left)} with {self.describe(right)}; "
            f"give both sides one type{_literal_hint(left, right)}",
            span,
        )

    def _between(self, tree: Branch, depth: int) -> Node:
        item, low, high = (self.expression(t, depth + 1) for t in tree.items)
        self.check_repeatable(item, "BETWEEN")
        span = tree.span
        return And(items=(self.compare(">=", item, low, span), self.compare("<=", item, high, span)), span=span)

    def check_repeatable(self, item: Node, what: str) -> None:
        """Of an operand that stands more than once in the result: nested conditions would double with every level."""
        if sum(1 for _ in islice(item.walk(), _MOST_REPEATED + 1)) > _MOST_REPEATED:
            raise self.error("limit", f"{what} on so large a condition; compare it with = instead", item.span)

    def _in(self, tree: Branch, depth: int) -> Node:
        item, span = self.expression(tree.items[0], depth + 1), tree.span
        listed = [self._compared_with(item, v, depth) for v in tree.items[1:]]
        has_null = any(n.type is Type.NULL for n in listed)
        values = [n for n in listed if n.type is not Type.NULL]
        if not values:
            return Compare(op="=", left=item, right=Const(value=None, type=Type.NULL), common=item.type, span=span)
        common = item.type
        for value in values:
            common = self.common_type(Const(value=None, type=common) if common is not item.type else item, value, span)
        if not all(isinstance(v, Param) for v in values):
            self.check_repeatable(item, "IN with attributes in its list")
            tests = [
                Compare(op="=", left=_as(item, common), right=_as(v, common), common=common, span=span) for v in listed
            ]
            return Or(items=tuple(tests), span=span) if len(tests) > 1 else tests[0]
        params = tuple(p for p in (retyped(v, common) for v in values) if isinstance(p, Param))
        return InList(item=_as(item, common), values=params, has_null=has_null, common=common, span=span)

    def _like(self, tree: Branch, depth: int) -> Node:
        item, pattern = (self.expression(t, depth + 1) for t in tree.items)
        return self.like(tree.op, item, pattern, tree.span)

    def like(self, kind: str, item: Node, pattern: Node, span: Span) -> Node:
        """LIKE, ILIKE or RLIKE with a literal pattern."""
        if item.type not in (Type.STRING, Type.NULL):
            raise self.error("type", f"{kind.upper()} needs a string, found {self.describe(item)}", item.span)
        if not isinstance(pattern, Param) or pattern.type is not Type.STRING:
            example = "'^text'" if kind == "rlike" else "'text%'"
            message = f"{kind.upper()} needs a string literal as its pattern, such as {example}"
            raise self.error("type", message, pattern.span)
        node = Like(kind=kind, item=item, pattern=pattern, span=span)
        self._count_regex(node)
        return node

    def _count_regex(self, node: Like) -> None:
        self.regexes += node.kind == "rlike"
        if self.regexes > self.limits.regexes:
            message = f"more than {self.limits.regexes} RLIKEs; join patterns as 'a|b', or split the filter"
            raise self.error("limit", message, node.pattern.span)

    def _matches(self, tree: Branch, depth: int) -> Node:
        """`topic MATCHES 'a/+/#'`."""
        item, pattern = (self.expression(t, depth + 1) for t in tree.items)
        if not isinstance(pattern, Param) or pattern.type is not Type.STRING:
            message = (
                "MATCHES needs a string literal as its pattern, such as 'a/+/#'; for a regular expression write RLIKE"
            )
            raise self.error("type", message, pattern.span)
        if item.type not in (Type.STRING, Type.NULL):
            raise self.error("type", f"MATCHES needs a string, found {self.describe(item)}", item.span)
        return self._checked_column(type_call(FUNCTIONS["topic_matches"], (item, pattern), tree.span, self.describe))

    def _checked_column(self, node: Node) -> Node:
        """A call for which the index has a column; the largest schemas have no room for it."""
        attribute = node.args[0] if isinstance(node, Call) and node.args else None
        reading = SETS_OF_CALLS.get(node.name) if isinstance(node, Call) else None
        if reading is None or not isinstance(attribute, Attr):
            return node
        if not self.schema.has_column(Column(attribute.index, reading)):
            message = "the schema has too many texts for topics to be searched in them; leave some attributes out"
            raise self.error("limit", message, node.span)
        return node

    # -- values ---------------------------------------------------------------------------------------------------

    def _arithmetic(self, tree: Branch, depth: int) -> Node:
        op = tree.op
        left, right = (self.expression(t, depth + 1) for t in tree.items)
        moved = moment_arithmetic(self, op, left, right, tree.span)
        if moved is not None:
            return moved
        for side in (left, right):
            if side.type not in (*NUMBERS, Type.NULL):
                raise self.error("type", f"{op} needs numbers, found {self.describe(side)}", side.span)
        try:
            check_digits(left)
            check_digits(right)
        except CallFaultError as fault:
            raise self.error(fault.reason, fault.message, fault.span) from None
        kind, digits = arithmetic_type(op, left, right)
        return Arith(op=op, left=left, right=right, type=kind, digits=digits, span=tree.span)

    def _bits(self, tree: Branch, depth: int) -> Node:
        left, right = (self.expression(t, depth + 1) for t in tree.items)
        for side in (left, right):
            if side.type not in (*INTEGERS, Type.NULL):
                hint = "; write OR between conditions" if tree.op == "|" and side.type is Type.BOOLEAN else ""
                hint = "; write AND between conditions" if tree.op == "&" and side.type is Type.BOOLEAN else hint
                hint = f"; write {tree.op[0]} to compare" if tree.op in ("<<", ">>", ">>>") else hint
                raise self.error("type", f"{tree.op} needs integers, found {self.describe(side)}{hint}", side.span)
        kind, _ = arithmetic_type(tree.op, left, right)
        if Type.NULL in (left.type, right.type):
            kind = Type.INT if kind is Type.DOUBLE else kind
        if tree.op in ("<<", ">>", ">>>"):
            if right.type is Type.BIGINT:
                raise self.error(
                    "type", f"{tree.op} needs an int on its right, found {self.describe(right)}", right.span
                )
            kind = Type.BIGINT if left.type is Type.BIGINT else Type.INT
        return Arith(op=tree.op, left=left, right=right, type=kind, span=tree.span)

    def _div(self, tree: Branch, depth: int) -> Node:
        left, right = (self.expression(t, depth + 1) for t in tree.items)
        for side in (left, right):
            if side.type not in (*INTEGERS, Type.DECIMAL, Type.NULL):
                raise self.error("type", f"DIV needs integers or decimals, found {self.describe(side)}", side.span)
        return Arith(op="DIV", left=left, right=right, type=Type.BIGINT, span=tree.span)

    def _joined(self, tree: Branch, depth: int) -> Node:
        """`a || b`: texts one after the other; other values as texts."""
        parts: list[Node] = []
        for item in tree.items:
            node = self.expression(item, depth + 1)
            if node.type in (*COLLECTIONS, *INTERVALS):
                raise self.error("type", f"|| joins texts, found {self.describe(node)}", node.span)
            parts += node.args if isinstance(node, Call) and node.name == "concat" else [cast_to(node, Type.STRING)]
        return Call(name="concat", args=tuple(parts), type=Type.STRING, span=tree.span)

    def _invert(self, tree: Branch, depth: int) -> Node:
        item = self.expression(tree.items[0], depth + 1)
        if item.type not in INTEGERS:
            raise self.error("type", f"~ needs an integer, found {self.describe(item)}", item.span)
        return Invert(item=item, type=item.type, span=tree.span)

    def _plus(self, tree: Branch, depth: int) -> Node:
        item = self.expression(tree.items[0], depth + 1)
        if item.type not in (*NUMBERS, *INTERVALS, Type.NULL):
            raise self.error("type", f"+ needs a number, found {self.describe(item)}", item.span)
        return item

    def _negative(self, tree: Branch, depth: int) -> Node:
        item = self.expression(tree.items[0], depth + 1)
        if item.type not in (*NUMBERS, *INTERVALS, Type.NULL):
            raise self.error("type", f"- needs a number, found {self.describe(item)}", item.span)
        # A number with a sign is a literal to Spark; one in parentheses behind a sign is not, and has its type's digits.
        digits = digits_of(item) if item.type is Type.DECIMAL else (0, 0)
        return Negate(item=item, type=number_type(item.type), digits=digits, span=tree.span)

    def _call(self, tree: Branch, depth: int) -> Node:
        args = tuple(self.expression(a, depth + 1) for a in tree.items)
        try:
            node = type_call(FUNCTIONS[tree.name], args, tree.span, self.describe)
        except CallFaultError as fault:
            raise self.error(fault.reason, fault.message, fault.span) from None
        if isinstance(node, Like):
            self._count_regex(node)
        return self._checked_column(node)

    # -- errors ---------------------------------------------------------------------------------------------------

    def error(self, reason: str, message: str, span: Span) -> FilterError:
        return FilterError(reason, message, text=self.text, start=span[0], end=span[1])

    def describe(self, node: Node) -> str:
        if isinstance(node, Attr):
            attribute = self.schema.attributes[node.index]
            return f"{attribute.type_name} attribute {attribute.name!r}"
        if isinstance(node, Param):
            return f"a {'number' if node.type in NUMBERS else node.type}"
        return f"a value of type {node.type}"

    #: What makes a node of each operator of the tree.
    _HANDLERS: ClassVar[dict[str, Callable[[Checker, Branch, int], Node]]] = {
        **dict.fromkeys(("AND", "OR"), _connective),
        "NOT": _not,
        "IS NULL": _is_null,
        "IS UNKNOWN": _is_unknown,
        **dict.fromkeys(("IS TRUE", "IS FALSE"), _is_truth),
        **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "<=>"), _comparison),
        "BETWEEN": _between,
        "IN": _in,
        **dict.fromkeys(("like", "ilike", "rlike"), _like),
        "matches": _matches,
        **dict.fromkeys("+-*/%", _arithmetic),
        **dict.fromkeys(("&", "|", "^", "<<", ">>", ">>>"), _bits),
        "DIV": _div,
        "||": _joined,
        "sign -": _negative,
        "sign +": _plus,
        "sign ~": _invert,
        **HANDLERS,
        "call": _call,
    }


def _first_leaf(tree: Tree) -> Leaf:
    while isinstance(tree, Branch):
        tree = tree.items[0]
    return tree


def _as(node: Node, common: Type) -> Node:
    """A side of a comparison in its common type: a literal is read as it, another text is cast to it."""
    if node.type is Type.STRING and common is not Type.STRING and not isinstance(node, Param):
        return cast_to(node, common)
    return retyped(node, common)


def _shown(name: str) -> str:
    return repr(name if len(name) <= 60 else name[:57] + "...")


def _some_names(schema: Schema) -> str:
    names = [a.name for a in schema.attributes]
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")


def _literal_hint(left: Node, right: Node) -> str:
    if isinstance(left, Compare) or isinstance(right, Compare):  # 1 < price < 3 is (1 < price) < 3
        return ", or join two comparisons with AND, as 5 < price AND price < 10"
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
