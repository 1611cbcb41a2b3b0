"""Expressions back to SQL, for people and for canonical digests."""

from __future__ import annotations

from collections.abc import Callable

from wherecast.language.advice import KEYWORDS
from wherecast.language.expression import (
    MOMENTS,
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
)
from wherecast.language.literals import LiteralText
from wherecast.language.schema import Schema


def render(node: Node, name: Callable[[int], str], literal: Callable[[Param], str]) -> str:
    """SQL text of an expression; every compound operand stands in parentheses."""

    def show(n: Node) -> str:
        return render(n, name, literal)

    def operand(n: Node) -> str:
        return show(n) if isinstance(n, (Attr, Param, Const, Call)) else f"({show(n)})"

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
        case Not() | Negate() | IsNull() | IsTruth():
            return _unary(node, operand(node.item))
    raise TypeError(f"no SQL for {type(node).__name__}")


def _unary(node: Not | Negate | IsNull | IsTruth, item: str) -> str:
    if isinstance(node, IsNull):
        return f"{item} IS NULL"
    if isinstance(node, IsTruth):
        return f"{item} IS {'TRUE' if node.truth else 'FALSE'}"
    return f"NOT {item}" if isinstance(node, Not) else f"-{item}"


def attribute_namer(schema: Schema) -> Callable[[int], str]:
    """Names as a filter would write them, in backticks where needed."""

    def name(index: int) -> str:
        text = schema.attributes[index].name
        is_plain = text.replace(".", "_").isidentifier() and text.upper() not in KEYWORDS
        return text if is_plain else f"`{text.replace('`', '``')}`"

    return name


def written_literal(param: Param, text: LiteralText) -> str:
    """A literal as it was written (lists comma-separated, dates with their keyword)."""
    if isinstance(text, tuple):
        return ", ".join(written_literal(param, t) for t in text)
    keyword = f"{param.type.upper()} " if param.type in MOMENTS else ""
    escaped = text.replace("\\", "\\\\") if text.startswith("'") else text
    return f"{'-' if param.negative else ''}{keyword}{escaped}"
