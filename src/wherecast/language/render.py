"""Expressions back to SQL, for people and for canonical digests."""

from __future__ import annotations

from collections.abc import Callable

from wherecast.language.expression import (
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
        case And():
            return " AND ".join(operand(i) for i in node.items)
        case Or():
            return " OR ".join(operand(i) for i in node.items)
        case Not():
            return f"NOT {operand(node.item)}"
        case Compare():
            return f"{operand(node.left)} {node.op} {operand(node.right)}"
        case IsNull():
            return f"{operand(node.item)} IS NULL"
        case IsTruth():
            return f"{operand(node.item)} IS {'TRUE' if node.truth else 'FALSE'}"
        case InList():
            values = [literal(v) for v in node.values] + (["NULL"] if node.has_null else [])
            return f"{operand(node.item)} IN ({', '.join(values)})"
        case Like():
            return f"{operand(node.item)} {node.kind.upper()} {literal(node.pattern)}"
        case Call():
            return f"{node.name}({', '.join(show(a) for a in node.args)})"
        case Arith():
            return f"{operand(node.left)} {node.op} {operand(node.right)}"
        case Negate():
            return f"-{operand(node.item)}"
    raise TypeError(f"no SQL for {type(node).__name__}")


def attribute_namer(schema: Schema) -> Callable[[int], str]:
    """Names as a filter would write them, back-quoted where needed."""

    def name(index: int) -> str:
        text = schema.attributes[index].name
        return text if text.replace(".", "_").isidentifier() else f"`{text.replace('`', '``')}`"

    return name


def literal_text(param: Param, text: LiteralText) -> str:
    """A literal as it was written (lists comma-separated, dates with their keyword)."""
    if isinstance(text, tuple):
        return ", ".join(literal_text(param, t) for t in text)
    keyword = {"date": "DATE ", "timestamp": "TIMESTAMP "}.get(param.type.value, "")
    escaped = text.replace("\\", "\\\\") if text.startswith("'") else text
    return f"{'-' if param.negative else ''}{keyword}{escaped}"
