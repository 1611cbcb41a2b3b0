"""Texts of Arrow against Python's strings: every expression has the same values, whichever form its texts come in."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from tests.examples import examples

from wherecast import Schema
from wherecast.language.evaluate import evaluate
from wherecast.language.expression import Call, Compare, IsNull, Node
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import LiteralValues
from wherecast.language.nullable import Nullable
from wherecast.language.syntax.literals import ProgramScope

_SCHEMA = Schema.of({"a": "string", "b": "string", "n": "integer"})

EXPRESSIONS = [
    *(f"{name}(a)" for name in ("lower", "upper", "length", "octet_length", "bit_length", "trim", "ltrim", "rtrim")),
    *(f"{name}(a)" for name in ("reverse", "ascii")),
    *(f"substring(a, {at})" for at in (-3, -1, 0, 1, 2, 5)),
    *(f"substring(a, {at}, {count})" for at in (-4, -2, 0, 1, 3) for count in (-1, 0, 1, 2, 4, 2_147_483_647)),
    *(f"{side}(a, {count})" for side in ("left", "right") for count in (-1, 0, 1, 3)),
    "substring(a, cast(n AS int), 2)",
    "btrim(a, ' aß')",
    "btrim(a, '')",
    "btrim('aba', a)",
    "concat(a, b)",
    "concat(a, '-', b, lower(a))",
    "concat('x', a)",
    *(
        f"replace(a, '{old}', '{new}')"
        for old, new in (("a", ""), ("aa", "b"), ("", "x"), ("ß", "s"), ("a", "ß"), ("a", "bb"))
    ),
    "replace('aab', a, '')",
    *(
        f"{name}(a, '{part}')"
        for name in ("instr", "startswith", "endswith", "contains")
        for part in ("", "a", "ß", "😀")
    ),
    "instr('aab', a)",
    *(f"locate('{part}', a, {at})" for part in ("", "a", "ß", "aB") for at in (-1, 0, 1, 2, 4)),
    "locate('a', a)",
    "locate(a, 'aab', 2)",
    "locate('a', a, cast(n AS int))",
    *(f"split_part(a, '{mark}', {number})" for mark in ("a", "aa", "ß", "") for number in (-2, -1, 0, 1, 2, 3)),
    *(f"substring_index(a, '{mark}', {count})" for mark in ("a", "aa", "ß", "") for count in (-2, -1, 0, 1, 2)),
    *(
        f"{side}(a, {size}{fill})"
        for side in ("lpad", "rpad")
        for size in (-1, 0, 2, 5, 9)
        for fill in ("", ", 'ß-'", ", ''")
    ),
    "lpad('x', 4, a)",
    *(
        f"translate(a, '{old}', '{new}')"
        for old, new in (("ab", "x"), ("aab", "xyz"), ("ß", "s"), ("a", "ß"), ("", ""))
    ),
    *(f"repeat(a, {times})" for times in (-1, 0, 1, 3)),
    "initcap(a)",
    "ltrim('a ', a)",
    "rtrim('ß', a)",
    "concat_ws('-', a, b)",
    "concat_ws('', a, 'x', b)",
    "concat_ws(a, b, 'x')",
    *(f"regexp_count(a, '{p}')" for p in ("a", "[a-bß]+", "^a", "a$", "\\\\b[a-z]", "(?i)a|b", "\\\\d+")),
    *(f"regexp_instr(a, '{p}')" for p in ("a", "[1ß]", "^a", "a$", "\\\\.")),
    *(f"regexp_substr(a, '{p}')" for p in ("a+", "ß?", "^a.", "[(]|a")),
    *(
        f"regexp_extract(a, '{p}', {g})"
        for p in ("(a)(b)?", "([(]|a)|(ß)", "(?<n>[a-z])([0-9])?", "[^)(](a)", "(a)$")
        for g in (0, 1, 2)
    ),
    *(
        f"regexp_replace(a, '{p}', '{new}')"
        for p, new in (
            ("a", ""),
            ("(a)(b)?", "[$2$1]"),
            ("[a-z]+", "ß"),
            ("^a", "-"),
            ("a$", "-"),
            ("\\\\.", "\\\\$"),
            ("(.)a", "$1$1"),
        )
    ),
    "contains(a, b)",
    "coalesce(a, b)",
    "coalesce(a, 'x')",
    "nullif(a, b)",
    "nullif(a, '')",
    "if(n > 0, a, b)",
    "CASE WHEN n > 0 THEN a WHEN n = 0 THEN 'zero' END",
    "greatest(a, b)",
    "least(a, b, 'm')",
    "cast(n AS string)",
    "cast(n > 0 AS string)",
    *(
        f"cast(a AS {kind})"
        for kind in ("int", "bigint", "double", "boolean", "date", "tinyint", "smallint", "decimal(10,2)")
    ),
    "upper(lower(a))",
    "lower(concat(trim(a), b))",
]
CONDITIONS = [
    *(f"lower(a) {op} 'b'" for op in ("=", "<>", "<", "<=", ">", ">=", "<=>")),
    *(f"trim(a) {op} trim(b)" for op in ("=", "<", "<=>")),
    "trim(a) IN ('a', '', 'ß')",
    "trim(a) IN ('a', NULL)",
    *(f"trim(a) LIKE '{pattern}'" for pattern in ("%a%", "a%", "%a", "a", "%", "", "_", "%a%b%", "%ß%")),
    *(f"trim(a) ILIKE '{pattern}'" for pattern in ("%A%", "SS%", "%ς", "i̇%")),
]

_LETTERS = "aAbB ßςΣİſ1-.😀é́\u00a0\t%"
_TEXTS = st.one_of(
    st.none(),
    st.text(_LETTERS, max_size=6),
    st.text("aß ", min_size=30, max_size=70),
    st.sampled_from(["12", "-7", "+3", " 4 ", "1.5", "1e3", "999999999999", "9" * 18, "9" * 19, "2147483648", "true"]),
    st.sampled_from(
        [
            "-",
            ".",
            "1.",
            ".5",
            "0.1",
            "-0",
            "-0.0",
            "123456.789012345",
            "1234567.890123456",
            "127",
            "-129",
            "aaaa",
            "a\n",
        ]
    ),
)
Row = tuple[str | None, str | None, int]
_ROWS = st.lists(st.tuples(_TEXTS, _TEXTS, st.integers(-2, 3)), min_size=2, max_size=12)


@cache
def nodes() -> list[tuple[str, Node, LiteralValues]]:
    """Every expression as the compiler has it, with its literals."""
    found = []
    for text in EXPRESSIONS:
        is_condition = "cast(a AS boolean)" in text or text.startswith(("startswith", "endswith", "contains"))
        found.append((text, *node_of(text)) if not is_condition else (text, *condition_of(text)))
    return found + [(text, *condition_of(text)) for text in CONDITIONS]


def node_of(expression: str) -> tuple[Node, LiteralValues]:
    node, literals = residual_of(f"nullif({expression}, {expression}) IS NULL")
    assert isinstance(node, IsNull)
    assert isinstance(node.item, Call)
    return node.item.args[0], literals


def condition_of(condition: str) -> tuple[Node, LiteralValues]:
    node, literals = residual_of(f"if({condition}, 1, 2) = n")
    assert isinstance(node, Compare)
    assert isinstance(node.left, Call)
    return node.left.args[0], literals


def residual_of(text: str) -> tuple[Node, LiteralValues]:
    compiled = Compiler(_SCHEMA).compile_many([text])
    assert not compiled.errors, compiled.errors
    (program,) = compiled.filters.programs
    (residual,) = program.residuals
    return residual.node, program.literals


#: Types of two columns of texts: as events have them, and what functions make of them.
_KINDS = [(pa.string(), pa.string()), (pa.string(), pa.large_string()), (pa.large_string(), pa.large_string())]


@pytest.mark.slow
@examples(60)
@given(rows=_ROWS, kinds=st.sampled_from(_KINDS))
def test_every_expression(rows: list[Row], kinds: tuple[pa.DataType, pa.DataType]) -> None:
    for text, node, literals in nodes():
        note(text)
        check_both(node, literals, rows, kinds)


def check_both(node: Node, literals: LiteralValues, rows: list[Row], kinds: tuple[pa.DataType, pa.DataType]) -> None:
    a, b, n = zip(*rows, strict=True)

    def of_python(index: int) -> Nullable:
        values = (a, b, n)[index]
        known = np.array([v is not None for v in values])
        return (
            Nullable(np.array(n), known) if index == 2 else Nullable(np.array([v or "" for v in values], object), known)
        )

    def of_arrow(index: int) -> Nullable:
        if index == 2:
            return of_python(2)
        before = ["ß", None, "x"][: 1 + index]  # texts and masks need not begin where their memory does
        return Nullable.of_texts(pa.array([*before, *(a, b)[index]], kinds[index]).slice(len(before)))

    same_row = np.zeros(len(rows), np.int64)
    python, arrow = (
        evaluate(node, ProgramScope(literals, same_row, read, _SCHEMA.zone)) for read in (of_python, of_arrow)
    )
    assert arrow.valid.tolist() == python.valid.tolist()
    there = python.valid
    assert arrow.values[there].tolist() == python.values[there].tolist()
    assert arrow.values.dtype == python.values.dtype
