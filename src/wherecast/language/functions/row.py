"""What a row of the table of functions says, and what follows from it for every function alike.

A row is all that the language knows about a function. `type_call` makes a checked node of a call, `evaluate_call` computes
its values, `page` writes its line of the documentation. Nothing outside the table knows a function by its name, except
where the index has a column for it (`normalize`).

An argument is read as its `Takes` says: a date parameter takes a timestamp and gets its day, a parameter of doubles takes
every number. Unless a row says otherwise, a function is strict: it is NULL where one of its arguments is. Where Spark's
ANSI mode would end the query, the value is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bools, Longs
from wherecast.language.casts import is_castable
from wherecast.language.events.keys import walls, whole_days
from wherecast.language.events.types import (
    COLLECTIONS,
    FLOATS,
    INTEGERS,
    MOMENTS,
    NUMBERS,
    TEXTS,
    Digits,
    Type,
    common_number,
    fit,
    wider_digits,
)
from wherecast.language.events.zone import Zone
from wherecast.language.expression import Arith, Attr, Call, Cast, Const, Element, Node, Param, Span, digits_of
from wherecast.language.nullable import Nullable, as_moments, both_valid, decimal_scale, filler, to_double

if TYPE_CHECKING:
    from wherecast.language.steps import Register, Steps

# -- what an argument may be ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Takes:
    """The types that a parameter takes, and how their values are read."""

    what: str  # for messages
    types: tuple[Type, ...]
    read: Callable[[Node, Nullable, Zone], Nullable] = lambda _node, operand, _zone: operand
    text_as: Type | None = None  # a string literal is read as this type
    casts_text: bool = True  # and so is any other string
    is_written: bool = False  # other scalars become texts, as CAST writes them
    literal: bool = False  # it must be a literal
    is_typed: bool = True  # Spark's type of a number literal matters


def _read_doubles(node: Node, operand: Nullable, _zone: Zone) -> Nullable:
    return Nullable(to_double(node, operand), operand.valid)


def _read_days(node: Node, operand: Nullable, zone: Zone) -> Nullable:
    return Nullable(as_days(operand.values, node.type, zone), operand.valid)


def as_days(values: Longs, kind: Type, zone: Zone) -> Longs:
    """The days of moments, counted from 1970."""
    if kind is Type.DATE:
        return values
    return whole_days(walls(zone, values) if kind is Type.TIMESTAMP else values)


def _read_instants(node: Node, operand: Nullable, zone: Zone) -> Nullable:
    return Nullable(as_moments(operand.values, node.type, Type.TIMESTAMP, zone), operand.valid)


def _read_bytes(node: Node, operand: Nullable, _zone: Zone) -> Nullable:
    read = bytes.fromhex if node.type is Type.BINARY else str.encode
    return Nullable(objects(read(v) for v in operand.values.tolist()), operand.valid)


TEXT = Takes("a string", (Type.STRING,))
NUMBER = Takes("a number", NUMBERS)
DOUBLES = Takes("a number", NUMBERS, _read_doubles)
#: Spark does not narrow a BIGINT to the INT that it wants here.
INT = Takes("an int", (Type.TINYINT, Type.SMALLINT, Type.INT))
BIGINT = Takes("an integer", INTEGERS)
BINARY = Takes("binary", (Type.BINARY,), _read_bytes)
#: A text counts as its UTF-8 bytes.
BYTES = Takes("a string or binary", (Type.STRING, Type.BINARY), _read_bytes)
DAY = Takes("a date or timestamp", MOMENTS, _read_days, Type.DATE)
INSTANT = Takes("a timestamp", MOMENTS, _read_instants, Type.TIMESTAMP)
ARRAY = Takes("an array", (Type.ARRAY,))
MAP = Takes("a map attribute", (Type.MAP,))
COLLECTION = Takes("an array or a map", COLLECTIONS)
CONDITION = Takes("a condition", (Type.BOOLEAN,))
ANY = Takes("a value", tuple(Type), is_typed=False)
SCALAR = Takes("a value", tuple(kind for kind in Type if kind not in COLLECTIONS))

#: A value that is looked for among elements, which have a type.
ELEMENT = replace(SCALAR, is_typed=False)


def literal(takes: Takes) -> Takes:
    """The same, as a literal only."""
    return replace(takes, what=f"{takes.what} literal", literal=True)


# -- rows -------------------------------------------------------------------------------------------------------------

#: The type of a call and, for a DECIMAL, its digits.
Typed = tuple[Type, Digits]
Rule = Callable[[tuple[Node, ...]], Typed]
Evaluate = Callable[[Call, Sequence[Nullable], Zone], Nullable]
Describe = Callable[[Node], str]
#: Closed intervals of an argument's keys, per literal; several where the set has gaps.
Intervals = list[tuple[Longs, Longs]]
#: For which arguments (as keys of their type) `function(argument) op literal` holds, for many literals.
Preimage = Callable[[str, Longs, Type, Zone], Intervals]


class CallFaultError(Exception):
    """A call that is refused; becomes a FilterError where the text is known."""

    def __init__(self, reason: str, message: str, span: Span) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.span = span


class GrownTextError(ValueError):
    """Texts that would become too long: why, by row of the evaluation, and later of the events."""

    def __init__(self, message: str, rows: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.rows = {0: message} if rows is None else dict(rows)

    def renumber(self, places: npt.NDArray[Any]) -> None:
        """Row r is `places[r]` to the caller; of several that are the same there, the first counts."""
        found = [(int(places[row]), message) for row, message in self.rows.items()]
        self.rows = dict(reversed(found))


def fault(message: str, span: Span, reason: str = "type") -> CallFaultError:
    return CallFaultError(reason, message, span)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A row of the table.

    `signature` names the arguments: optional ones in brackets at the end, `...` where the last may be repeated. `takes` has
    an entry for each. `build` makes another node of a call that is only another way of writing it, or adapts the arguments.
    """

    name: str
    signature: str
    takes: tuple[Takes, ...]
    result: Type | Rule = Type.BOOLEAN
    evaluate: Evaluate | None = None
    steps: Callable[[Steps, Call], Register] | None = None  # how a kernel computes it, where that is quicker
    build: Callable[[tuple[Node, ...], Span, Describe], Node] | None = None
    aliases: tuple[str, ...] = ()
    is_strict: bool = True
    preimage: Preimage | None = None
    is_total: bool = True  # with a preimage: whether it has a value for every argument
    check: Callable[..., object] | None = None  # of the values of its literals, at registration; raises ValueError
    nearest: Callable[[Any], Any] | None = None  # a value itself if a call can give it, else one that it can, or None
    grows: bool = False  # makes long texts of short ones; its check gets all arguments, None for what is not a literal
    says: str  # its line in docs/language.md
    example: str  # a filter over the schema of docs/language.md
    least: int = 0  # how many arguments it takes; these two follow from the signature
    most: int = 0

    @property
    def has_numbers(self) -> bool:
        """Whether the type of a number literal among its arguments matters."""
        return any(takes.is_typed and set(takes.types) & set(NUMBERS) for takes in self.takes)


#: More arguments than the limits of a filter allow.
_MANY = 10_000


def function(name: str, signature: str, *takes: Takes, **more: Any) -> Function:
    """A row; how many arguments it takes follows from its signature."""
    least = len(re.findall(r"\w+", re.sub(r"\[.*\]", "", signature)))
    most = _MANY if "..." in signature else len(re.findall(r"\w+", signature))
    return Function(name=name, signature=signature, takes=takes, least=least, most=most, **more)


def among(values: range) -> Callable[[Any], Any]:
    """The `nearest` of a function that gives only these."""
    return lambda value: value if value in values else None


def check_count(name: str, row: Function, count: int) -> str | None:
    """What to say of a call by that name with so many arguments, if it cannot be."""
    if row.least <= count <= row.most:
        return None
    if row.least == row.most:
        return f"{name} takes {row.least} argument{'s' if row.least != 1 else ''}"
    if row.most == _MANY:
        return f"{name} takes {row.least} arguments or more"
    return f"{name} takes {row.least} to {row.most} arguments"


def type_call(row: Function, args: tuple[Node, ...], span: Span, describe: Describe) -> Node:
    """The checked node of a call. Raises CallFaultError; `describe` puts a node in words for its message."""
    wrong = check_count(row.name, row, len(args))
    if wrong:
        raise fault(wrong, span, "unsupported")
    if row.grows and any(_is_computed_constant(arg) for arg in args):
        raise fault(f"{row.name} of a constant that is computed; write its value", span, "unsupported")
    args = tuple(_checked(row, i, arg, describe) for i, arg in enumerate(args))
    if row.build is not None:
        return row.build(args, span, describe)
    kind, digits = (row.result, (0, 0)) if isinstance(row.result, Type) else row.result(args)
    return Call(name=row.name, args=args, type=kind, digits=digits, span=span)


def _is_computed_constant(node: Node) -> bool:
    return not isinstance(node, (Param, Const)) and not any(isinstance(n, (Attr, Element)) for n in node.walk())


def takes_of(row: Function, position: int) -> Takes:
    takes = row.takes
    return takes[position] if position < len(takes) else takes[-1]


def _checked(row: Function, position: int, arg: Node, describe: Describe) -> Node:
    takes = takes_of(row, position)
    is_text = isinstance(arg, Param) and arg.type is Type.STRING
    if takes.is_written and arg.type not in (*takes.types, Type.NULL) and is_castable(arg.type, Type.STRING):
        return Cast(item=arg, type=Type.STRING, span=arg.span)
    if arg.type is Type.STRING and takes.text_as is not None and Type.STRING not in takes.types:
        if is_text:
            arg = retyped(arg, takes.text_as)
        elif takes.casts_text:
            arg = Cast(item=arg, type=takes.text_as, span=arg.span)
    if arg.type not in (*takes.types, Type.NULL) or (takes.literal and not isinstance(arg, Param)):
        raise fault(f"{row.name} needs {takes.what}, found {describe(arg)}", arg.span)
    return arg


def retyped(node: Node, kind: Type) -> Node:
    """A literal with the type that it is used as, so that it is read once, in its final form."""
    if isinstance(node, Param) and node.type is not kind and (node.type is Type.STRING or kind in FLOATS):
        return Param(slot=node.slot, type=kind, negative=node.negative, span=node.span)
    return node


# -- common types -----------------------------------------------------------------------------------------------------


def common_type(nodes: Iterable[Node], describe: Describe) -> Typed:
    """The type that several values are brought to, as in coalesce. Raises CallFaultError if there is none."""
    kind, digits = Type.NULL, (0, 0)
    nodes = list(nodes)
    moments = [n.type for n in nodes if n.type in MOMENTS]
    for node in nodes:
        own = node.type
        if isinstance(node, Param) and own is Type.STRING and moments:
            continue  # a text beside a date is a date
        if own is Type.NULL or own is kind is not Type.DECIMAL:
            continue
        if kind is Type.NULL:
            kind, digits = own, digits_of(node) if own in NUMBERS else (0, 0)
        elif kind in NUMBERS and own in NUMBERS:
            digits = wider_digits(digits, digits_of(node))
            kind = common_number(kind, own)
        elif kind in MOMENTS and own in MOMENTS:
            kind = max(kind, own, key=MOMENTS.index)
        else:
            message = f"the values must have one type, found {describe(nodes[0])} and {describe(node)}"
            raise fault(message, node.span)
    return kind, digits if kind is Type.DECIMAL else (0, 0)


def converted(node: Node, operand: Nullable, kind: Type, digits: Digits, zone: Zone) -> Nullable:
    """Values as what `common_type` found."""
    if node.type is Type.NULL:
        return nothing(kind, operand.valid.size)
    if kind in MOMENTS:
        return Nullable(as_moments(operand.values, node.type, kind, zone), operand.valid)
    if kind in FLOATS:
        return Nullable(to_double(node, operand), operand.valid)
    if kind is Type.DECIMAL:
        scale = decimal_scale(node)
        fits = [fit(int(v), scale, digits) for v in operand.values]
        known = np.array([v is not None for v in fits], bool)
        return Nullable(objects(v or 0 for v in fits), operand.valid & known)
    return operand


def has_known_digits(node: Node) -> bool:
    """Whether the precision and scale of a DECIMAL are those of Spark; of round(x, n) they depend on the value of n."""
    return not any(isinstance(n, Call) and n.name in ("round", "bround") and len(n.args) > 1 for n in _computed(node))


def _computed(node: Node) -> Iterable[Node]:
    return (n for n in node.walk() if n.type is Type.DECIMAL and isinstance(n, (Call, Arith)))


def element_of(node: Node) -> Type:
    """The type of the elements of an array, or of the values of a map."""
    return node.element if isinstance(node, (Attr, Call)) else Type.NULL


# -- evaluation -------------------------------------------------------------------------------------------------------


def evaluate_call(row: Function, call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
    """The values of a call from those of its arguments."""
    assert row.evaluate is not None
    read = list(args)
    for i, node in enumerate(call.args):  # `zip`, told to be strict, takes as long as five calls
        if node.type is not Type.NULL:
            read[i] = takes_of(row, i).read(node, args[i], zone)
        elif row.is_strict:
            return nothing(call.type, args[0].length)
    if call.type in TEXTS:  # without numbers that NumPy could warn of
        return row.evaluate(call, read, zone)
    with np.errstate(all="ignore"):
        return row.evaluate(call, read, zone)


def nothing(kind: Type, length: int) -> Nullable:
    """NULL in every row."""
    return Nullable(filler(kind, length), np.zeros(length, bool))


def all_valid(args: Sequence[Nullable]) -> Bools:
    return reduce(both_valid, (arg.valid for arg in args))


def rows_by_text(texts: Nullable) -> Iterator[tuple[str, Any]]:
    """Each text with the rows that have it."""
    if texts.is_constant:
        yield texts.values[0], slice(None)
        return
    for text in set(texts.values.tolist()):
        yield text, np.flatnonzero(texts.values == text)


def objects(values: Iterable[Any]) -> npt.NDArray[np.object_]:
    return np.fromiter(values, object)


def vectorised(compute: Callable[..., npt.NDArray[Any]]) -> Evaluate:
    """A strict function of arrays that has a value wherever it has arguments."""
    return lambda _call, args, _zone: Nullable(compute(*(a.values for a in args)), all_valid(args))


def row_by_row(compute: Callable[..., Any]) -> Evaluate:
    """A strict function of single values; None is NULL."""

    def evaluate(call: Call, args: Sequence[Nullable], _zone: Zone) -> Nullable:
        valid = all_valid(args).copy()
        out = filler(call.type, valid.size)
        rows = np.flatnonzero(valid)
        columns = [arg.values[rows].tolist() for arg in args]
        grown: dict[int, str] = {}  # all of them, so that the batch is matched once more and not once for each
        for i, values in zip(rows.tolist(), zip(*columns, strict=True), strict=True):
            try:
                value = compute(*values)
            except GrownTextError as error:
                grown[i] = str(error)
                continue
            if value is None:
                valid[i] = False
            else:
                out[i] = value
        if grown:
            raise GrownTextError(next(iter(grown.values())), grown)
        return Nullable(out, valid)

    return evaluate


def by_arrow(compute: Callable[..., Any], name: str) -> Evaluate:
    """A strict function of texts: by Arrow where they are in its form and the rest is constant, else row by row.

    `name` is that of the function in `arrow_texts`. It is given texts as arrays of Arrow, and what is the same in every row as
    that one value. It returns None where Arrow does not know what Spark says.
    """
    one_by_one = row_by_row(compute)

    def evaluate(call: Call, args: Sequence[Nullable], zone: Zone) -> Nullable:
        given = _given_to_arrow(call, args)
        if given is not None:
            of_texts, from_arrow = _of_arrow(name)
            found = of_texts(*given)
            if found is not None:
                return from_arrow(found)
        return one_by_one(call, args, zone)

    return evaluate


@cache
def _of_arrow(name: str) -> tuple[Callable[..., Any], Callable[[Any], Nullable]]:
    from wherecast.language import arrow_texts  # noqa: PLC0415 - Arrow is loaded where there are events

    return getattr(arrow_texts, name), arrow_texts.from_arrow


def _given_to_arrow(call: Call, args: Sequence[Nullable]) -> list[Any] | None:
    """Texts and constants; None if an argument is neither, or no text is in Arrow's form."""
    given: list[Any] = []
    is_arrow = False
    for i, arg in enumerate(args):
        if arg.is_constant:
            value = arg.values[0]
            if value is None:
                return None
            given.append(value.item() if isinstance(value, np.generic) else value)
        elif call.args[i].type in TEXTS:
            is_arrow = is_arrow or arg.is_arrow
            given.append(arg)
        else:
            return None
    return [value.texts if isinstance(value, Nullable) else value for value in given] if is_arrow else None
