"""Residuals in canonical words: the same for two residuals that differ in order, spelling or repetition only.

The words are those of the statement "node is truth" with its literals: NOT is pushed down to the leaves as in
`normalize`, the parts of AND and OR are sorted and stand once, comparisons have their sides in one order. They are for
comparing and for digests, not for people.

A program serves many clauses that differ in literals, so it is made into a writer once: a function from the row of the
literals to the words.
"""

from __future__ import annotations

from collections.abc import Callable

from wherecast.language.expression import (
    FLIPPED,
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
    Type,
)
from wherecast.language.filters import LiteralColumns, Program
from wherecast.language.normalize import Truth, plain_truth

Writer = Callable[[int], str]


def rest_writer(program: Program) -> Callable[[int], frozenset[str]]:
    """The residuals of a clause in words, by the row of its literals."""
    writers = [_statement(rest.node, rest.truth, program.columns) for rest in program.rests]
    return lambda row: frozenset(write(row) for write in writers)


def _statement(node: Node, truth: Truth, columns: LiteralColumns) -> Writer:
    if isinstance(node, Not):
        return _statement(node.item, truth.of_negation, columns)
    if isinstance(node, (And, Or)):
        is_all = isinstance(node, And) == (truth in (Truth.TRUE, Truth.NOT_FALSE))
        return _unordered("ALL" if is_all else "ANY", [_statement(item, truth, columns) for item in node.items])
    if isinstance(node, IsTruth):
        wanted = truth in (Truth.TRUE, Truth.NOT_FALSE)
        found = (
            (Truth.TRUE if wanted else Truth.NOT_TRUE) if node.truth else (Truth.FALSE if wanted else Truth.NOT_FALSE)
        )
        return _statement(node.item, found, columns)
    node, truth = plain_truth(node, truth)
    return _sequence(str(truth), [_value(node, columns)])


def _value(node: Node, columns: LiteralColumns) -> Writer:
    """The words of an expression, whatever its truth."""
    if isinstance(node, Attr):
        return _fixed(f"#{node.index}")
    if isinstance(node, Param):
        values = columns[node]
        kind = f"{node.type}{node.digits if node.type is Type.DECIMAL else ''}"
        return lambda row: f"{kind}:{values[row : row + 1].tolist()[0]!r}"
    if isinstance(node, Const):
        return _fixed(str(node.value))
    if isinstance(node, Compare):
        return _comparison(node, columns)
    if isinstance(node, InList):
        return _membership(node, columns)
    if isinstance(node, (And, Or)):
        return _unordered(type(node).__name__, [_value(item, columns) for item in node.items])
    if isinstance(node, Arith) and node.op in "+*":
        return _pair(node.op, [_value(node.left, columns), _value(node.right, columns)])
    parts = [_value(child, columns) for child in node.children()]
    return _sequence(_head(node), parts)


def _head(node: Node) -> str:
    """What an ordered node is, apart from its parts."""
    if isinstance(node, Call):
        return node.name
    if isinstance(node, Like):
        return f"{node.kind} {node.escape!r}"
    if isinstance(node, Arith):
        return node.op
    if isinstance(node, IsTruth):
        return f"is {node.truth}"
    assert isinstance(node, (IsNull, Not, Negate)), f"no canonical form for {type(node).__name__}"
    return type(node).__name__


def _comparison(node: Compare, columns: LiteralColumns) -> Writer:
    left, right, op = _value(node.left, columns), _value(node.right, columns), node.op
    if op in (">", ">="):
        left, right, op = right, left, FLIPPED[op]
    head = f"{op} {node.common}"
    return _sequence(head, [left, right]) if op in ("<", "<=") else _pair(head, [left, right])


def _membership(node: InList, columns: LiteralColumns) -> Writer:
    item, lists = _value(node.item, columns), [columns[value, node.common] for value in node.values]
    head = f"in {node.common} {node.has_null}"

    def write(row: int) -> str:
        members = sorted({repr(key) for keys in lists for key in keys[row]})
        return f"{head}({item(row)};{','.join(members)})"

    return write


def _fixed(words: str) -> Writer:
    return lambda _: words


def _sequence(head: str, parts: list[Writer]) -> Writer:
    return lambda row: f"{head}({','.join([write(row) for write in parts])})"


def _pair(head: str, parts: list[Writer]) -> Writer:
    return lambda row: f"{head}({','.join(sorted([write(row) for write in parts]))})"


def _unordered(head: str, parts: list[Writer]) -> Writer:
    """Order and repetition do not matter; one part alone stands for the whole."""

    def write(row: int) -> str:
        words = sorted({part(row) for part in parts})
        return words[0] if len(words) == 1 else f"{head}({','.join(words)})"

    return write
