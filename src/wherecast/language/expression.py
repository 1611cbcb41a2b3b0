"""Typed expressions: what a filter means, independent of how it was spelled.

Nodes are frozen and hashable, attributes are schema positions and constants are slots (`Param`): one tree serves all
filters of a shape, and its evaluation takes the constants as columns. `span` is the node's place in the shape's text and
takes no part in equality.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TypeVar, get_args, get_type_hints

from wherecast.language.events.frequencies import WordFrequencies
from wherecast.language.events.types import Digits, Type, arithmetic_digits, common_number

Span = tuple[int, int]


_PARTS: dict[type[Node], tuple[str, ...]] = {}
Kind = TypeVar("Kind", bound="Node")


def parts_of(kind: type[Node]) -> tuple[str, ...]:
    """The fields that hold nodes, by their declared types: a walk that looks at all fields takes twice as long."""
    if kind not in _PARTS:
        _PARTS[kind] = tuple(
            name
            for name, declared in get_type_hints(kind).items()
            if any(isinstance(part, type) and issubclass(part, Node) for part in (declared, *get_args(declared)))
        )
    return _PARTS[kind]


def with_parts(node: Kind, parts: Mapping[str, object]) -> Kind:
    """A node with other values in some of its fields. `dataclasses.replace` takes four times as long."""
    other = object.__new__(type(node))
    for name in _fields_of(type(node)):
        object.__setattr__(other, name, parts[name] if name in parts else getattr(node, name))
    return other


_FIELDS: dict[type[Node], tuple[str, ...]] = {}


def _fields_of(kind: type[Node]) -> tuple[str, ...]:
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(field.name for field in fields(kind))
    return _FIELDS[kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An expression. `type` is what it evaluates to."""

    type: Type = Type.BOOLEAN
    span: Span = field(default=(0, 0), compare=False, repr=False)

    def children(self) -> list[Node]:
        found: list[Node] = []
        for name in parts_of(type(self)):
            part = getattr(self, name)
            if isinstance(part, tuple):
                found += part
            else:
                found.append(part)
        return found

    def walk(self) -> Iterator[Node]:
        """This node and all below it, without recursion."""
        stack: list[Node] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children())


@dataclass(frozen=True, slots=True, kw_only=True)
class Attr(Node):
    """An attribute, by its position in the schema. `element` is the type inside an array, or of the values of a map.

    `digits` is (precision, scale) where that, or the type, is DECIMAL. `key` is the type of the keys of a map.
    """

    index: int
    element: Type = Type.NULL
    key: Type = Type.NULL
    digits: tuple[int, int] = (0, 0)
    language: str = ""  # whose stems words are compared by
    size: int = 0  # of a vector
    frequencies: WordFrequencies | None = None  # of the words of a text

    def __hash__(self) -> int:
        return self.index  # the rest follows from it


@dataclass(frozen=True, slots=True, kw_only=True)
class Param(Node):
    """A literal, by its slot. `digits` is (precision, scale) where the type is DECIMAL; of a VECTOR, its size and 0."""

    slot: int
    negative: bool = False
    digits: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Const(Node):
    """TRUE, FALSE or NULL."""

    value: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class And(Node):
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Or(Node):
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Not(Node):
    item: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare(Node):
    """`op` is one of = <> < <= > >= <=>; both sides are compared as `common`."""

    op: str
    left: Node
    right: Node
    common: Type


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNull(Node):
    item: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class IsTruth(Node):
    """`item IS TRUE` or `item IS FALSE`: never NULL."""

    item: Node
    truth: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InList(Node):
    """`item IN (values)`; each value may be a list slot. A NULL among the values makes "no" unknown."""

    item: Node
    values: tuple[Param, ...]
    has_null: bool
    common: Type


@dataclass(frozen=True, slots=True, kw_only=True)
class Like(Node):
    """LIKE, ILIKE with an escape character, or RLIKE, against a literal pattern. `kind`: like, ilike, rlike.

    `form` is what the pattern amounts to: "general", or for a plain LIKE also "exact" (no wildcard), "prefix"
    (one `%`, at the end) and "any" (`%` alone).
    """

    kind: str
    item: Node
    pattern: Param
    escape: str = "\\"
    form: str = "general"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Node):
    """A function of the table (see `functions`). `digits` are those of a DECIMAL, `element` is the type in an ARRAY.

    `unit` is the word in `extract(SECOND FROM t)`.
    """

    name: str
    args: tuple[Node, ...]
    digits: tuple[int, int] = (0, 0)
    element: Type = Type.NULL
    unit: str = ""

    def __hash__(self) -> int:
        return hash((self.name, self.args))  # most batches look for a call twice; all fields take twice as long


@dataclass(frozen=True, slots=True, kw_only=True)
class Arith(Node):
    """`op` is one of + - * / % DIV & | ^ << >> >>>. Where Spark's ANSI mode would stop the query, the value is NULL (as `try_add`)."""

    op: str
    left: Node
    right: Node
    digits: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Negate(Node):
    item: Node
    digits: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invert(Node):
    """`~item`: all bits of an integer inverted."""

    item: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseWhen(Node):
    """The value behind the first condition that is true, else the last value, which has no condition."""

    conditions: tuple[Node, ...]
    values: tuple[Node, ...]
    digits: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast(Node):
    """`item` as another type. Where Spark's ANSI mode would stop the query, the value is NULL (as `try_cast`)."""

    item: Node
    digits: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscript(Node):
    """`array[index]`, counted from 0, or `map[key]`; NULL where there is none."""

    array: Node
    index: Node
    digits: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Element(Node):
    """The variable of a lambda."""

    name: str
    digits: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantified(Node):
    """`exists(array, variable -> body)`, or `forall`: an OR, or an AND, over the elements."""

    array: Node
    variable: str
    body: Node
    is_all: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalLiteral(Node):
    """A length of time: amounts with their units, such as DAY or `HOUR TO SECOND`, added up."""

    amounts: tuple[Param, ...]
    units: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift(Node):
    """A moment plus or minus (`op`) an interval, or a date and a number of days."""

    op: str
    moment: Node
    amount: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Elapsed(Node):
    """`end - start`, two moments: a DURATION."""

    end: Node
    start: Node


FLIPPED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}


def attributes_of(node: Node) -> frozenset[int]:
    """Schema positions that an expression reads."""
    return frozenset(n.index for n in node.walk() if isinstance(n, Attr))


def is_constant(node: Node) -> bool:
    """Whether an expression reads no attribute."""
    return not any(isinstance(n, Attr) for n in node.walk())


def digits_of(node: Node) -> Digits:
    """(precision, scale) of a number when it meets a decimal. A node that can be a DECIMAL has a field `digits`."""
    digits: Digits = getattr(node, "digits", (0, 0))
    if digits != (0, 0):
        return digits
    if node.type is Type.DECIMAL and not isinstance(node, Param):  # a literal that is only compared has any digits
        raise TypeError(f"{type(node).__name__} is a DECIMAL without digits: whoever makes the node has to set them")
    return _INTEGER_DIGITS.get(node.type, (1, 0))


_INTEGER_DIGITS = {Type.TINYINT: (3, 0), Type.SMALLINT: (5, 0), Type.INT: (10, 0), Type.BIGINT: (20, 0)}


def number_type(kind: Type) -> Type:
    """The type of arithmetic on one operand: a bare NULL counts as a double."""
    return Type.DOUBLE if kind is Type.NULL else kind


def arithmetic_type(op: str, left: Node, right: Node) -> tuple[Type, Digits]:
    """Result type of an arithmetic operator by Spark's rules."""
    a, b = left.type, right.type
    if Type.NULL in (a, b):
        a = b = number_type(b if a is Type.NULL else a)
    common = common_number(a, b)
    if common is Type.DECIMAL:
        return common, arithmetic_digits(op, digits_of(left), digits_of(right))
    return (Type.DOUBLE if op == "/" else common), (0, 0)
