"""Filters as small trees of their own, printed as SQL for Wherecast, Spark and DuckDB.

A `Term` knows nothing of `wherecast.language`: the oracles share no code with what they check. One tree is printed once
per dialect. The texts differ in one thing: where Spark's ANSI mode would stop the query (overflow, division by zero),
Wherecast says NULL, so Spark is given `try_add` and its like.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

INTEGRAL = ("tinyint", "smallint", "int", "bigint")
FLOATING = ("float", "double")
NUMERIC = (*INTEGRAL, "decimal", *FLOATING)

#: How tightly an operator binds; an operand that binds less tightly stands in parentheses.
_OR, _AND, _NOT, _PREDICATE, _SUM, _PRODUCT, _SIGN, _ATOM = range(8)
_LEVEL = {"or": _OR, "and": _AND, "not": _NOT, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT}
_TRY = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide", "%": "try_mod"}
_ZERO = {"tinyint": "0Y", "smallint": "0S", "int": "0", "bigint": "0"}
COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=", "<=>")


@dataclass(frozen=True)
class Term:
    """An expression: `op` with arguments, or a leaf with a value.

    Leaves: `column` (value: its name), `literal` (value: a Python value; for numbers the text), `constant` (TRUE, FALSE,
    NULL). Others: an arithmetic operator or a comparison, `neg`, `call` (value: the function), `between`, `in`,
    `like` `ilike` `rlike`, `item` (of a map, by its key), `is` (value: NULL, TRUE or FALSE), `and`, `or`, `not`; `negated` puts the NOT inside.
    """

    op: str
    type: str
    args: tuple[Term, ...] = ()
    value: object = None
    negated: bool = False

    def walk(self) -> Iterator[Term]:
        yield self
        for arg in self.args:
            yield from arg.walk()

    @property
    def size(self) -> int:
        return sum(1 for _ in self.walk())


def column(name: str, kind: str) -> Term:
    return Term("column", kind, value=name)


def literal(value: object, kind: str) -> Term:
    return Term("literal", kind, value=value)


def constant(value: bool | None) -> Term:
    return Term("constant", "null" if value is None else "boolean", value=value)


NULL = constant(None)


def text(term: Term, dialect: str = "wherecast") -> str:
    """The SQL of a term in a dialect: wherecast, spark or duckdb."""
    return _Printer(dialect).show(term)


class _Printer:
    def __init__(self, dialect: str) -> None:
        self.dialect = dialect

    def show(self, term: Term, least: int = _OR) -> str:
        written = self._write(term)
        return written if self._level(term) >= least else f"({written})"

    def _level(self, term: Term) -> int:
        if term.op in _TRY and self.dialect == "spark":
            return _ATOM
        if term.op in ("column", "constant", "call", "item"):
            return _ATOM
        if term.op == "literal":
            return _SIGN if term.type in (*NUMERIC, "money", "wide") and str(term.value).startswith("-") else _ATOM
        return _SIGN if term.op == "neg" else _LEVEL.get(term.op, _PREDICATE)

    def _write(self, term: Term) -> str:
        op, args = term.op, term.args
        if op == "column" and self.dialect == "duckdb":
            return ".".join(f'"{p}"' for p in str(term.value).split("."))
        if op == "column":
            return ".".join(
                f"`{p}`" if not (p.isascii() and p.isidentifier()) else p for p in str(term.value).split(".")
            )
        if op == "literal":
            return self._literal(term)
        if op == "constant":
            return {True: "TRUE", False: "FALSE", None: "NULL"}[term.value]  # type: ignore[index]
        if op in ("and", "or"):
            level = _AND if op == "and" else _OR
            return f" {op.upper()} ".join(self.show(a, level + 1) for a in args)
        if op == "not":
            return f"NOT {self.show(args[0], _NOT)}"
        if op in _TRY:
            return self._arithmetic(term)
        if op == "neg":
            return self._negation(term)
        if op == "call":
            return self._call(term)
        if op == "item":
            return f"{self.show(args[0], _ATOM)}[{self.show(args[1])}]"
        return self._predicate(term)

    def _predicate(self, term: Term) -> str:
        op = term.op
        item, *others = (self.show(a, _SUM) for a in term.args)
        no = "NOT " if term.negated else ""
        if op in COMPARISONS:
            if self.dialect == "duckdb" and op == "<=>":
                op = "IS NOT DISTINCT FROM"
            return f"{item} {op} {others[0]}"
        if op == "between":
            return f"{item} {no}BETWEEN {others[0]} AND {others[1]}"
        if op == "in":
            return f"{item} {no}IN ({', '.join(others)})"
        if op == "is":
            return f"{item} IS {no}{term.value}"
        return f"{item} {no}{op.upper()} {others[0]}"

    def _arithmetic(self, term: Term) -> str:
        left, right = term.args
        if self.dialect == "spark":
            return f"{_TRY[term.op]}({self.show(left)}, {self.show(right)})"
        level = _LEVEL[term.op]
        return f"{self.show(left, level)} {term.op} {self.show(right, level + 1)}"

    def _negation(self, term: Term) -> str:
        item = term.args[0]
        if self.dialect == "spark" and item.type in INTEGRAL:
            return f"(try_subtract({_ZERO[item.type]}, {self.show(item)}))"
        # A sign in front of a bare number would become part of it, and two signs are a comment.
        return f"-{self.show(item, _ATOM)}" if item.op not in ("literal", "neg") else f"-({self.show(item)})"

    def _call(self, term: Term) -> str:
        shown = [self.show(a) for a in term.args]
        if term.value == "abs" and self.dialect == "spark" and term.type in INTEGRAL:
            return f"IF({shown[0]} < 0, try_subtract({_ZERO[term.type]}, {shown[0]}), {shown[0]})"
        return f"{term.value}({', '.join(shown)})"

    def _literal(self, term: Term) -> str:
        value = term.value
        if term.type in NUMERIC:
            shown = str(value)
            return f"{shown.rstrip('D')}::DOUBLE" if self.dialect == "duckdb" and term.type == "double" else shown
        if isinstance(value, Decimal):
            return f"{value:f}"
        if isinstance(value, bytes):
            escaped = "".join(f"\\x{byte:02X}" for byte in value)
            return f"'{escaped}'::BLOB" if self.dialect == "duckdb" else f"X'{value.hex()}'"
        if term.type == "wall":
            return f"TIMESTAMP{'' if self.dialect == 'duckdb' else '_NTZ'} '{value}'"
        if isinstance(value, dt.datetime):
            keyword = "TIMESTAMPTZ" if self.dialect == "duckdb" else "TIMESTAMP"
            return f"{keyword} '{value.replace(tzinfo=None).isoformat(sep=' ')}'"
        if isinstance(value, dt.date):
            return f"DATE '{value.isoformat()}'"
        if self.dialect == "duckdb":
            return "'" + str(value).replace("'", "''") + "'"
        return quote(str(value))


def quote(value: str) -> str:
    r"""A string literal of Spark's: `\` doubled, except that `\%` and `\_` stand for themselves and must be spelled out."""
    escapes = {"\\": "\\\\", "'": "\\'" if len(value) % 2 else "''", "\n": "\\n", "\0": "\\0"}
    return "'" + "".join(escapes.get(c, c) for c in value) + "'"
