from __future__ import annotations

import pytest

from wherecast.language.events.schema import Schema
from wherecast.language.expression import Node, Param
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.render import attribute_namer, render, written_literal
from wherecast.language.syntax.skeletons import cut_text

SCHEMA = Schema.of(
    {
        "a": "integer",
        "x": "boolean",
        "name": "string",
        "day": "date",
        "ts": "timestamp",
        "tags": "array<string>",
        "quote.bid": "double",
        "odd `name`": "integer",
    }
)
COMPILER = Compiler(SCHEMA)
TEXTS = [
    "a = 1",
    "(a >= -1) AND (a <> 5)",
    "(NOT x) OR (a IS NULL) OR (x IS FALSE)",
    "(NOT (x IS TRUE)) AND TRUE AND FALSE",
    "a <=> NULL",
    "name IN ('x', 'it''s')",
    "a IN (1, NULL)",
    "name LIKE 'a\\\\\\\\b%'",
    "name RLIKE '^a'",
    "name ILIKE 'a_'",
    "(lower(name) = 'x') AND array_contains(tags, 'red')",
    "((a + 1) * (-a)) > (a % 2)",
    "day >= DATE '2024-01-31'",
    "ts < TIMESTAMP '2024-01-31 12:00:00'",
    "`odd ``name``` = 1",
    "quote.bid > 0.5",
]


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip(text):
    """A rendered filter reads as it was written, and means the same when it is compiled again."""
    node, _ = COMPILER.check(text)
    literals = cut_text(text)[1]
    again = render(node, attribute_namer(SCHEMA), lambda p: written_literal(p, literals[p.slot]))
    assert again == text
    assert COMPILER.compile(again).digests == COMPILER.compile(text).digests


def test_lists_and_signs():
    """A list is comma-separated, a sign stands before its literal."""
    assert written_literal(Param(slot=0), ("1", "-2")) == "1, -2"
    assert written_literal(Param(slot=0, negative=True), "5") == "-5"


def test_unknown_node():
    """A node without a form in SQL is a mistake of ours and says so."""
    with pytest.raises(TypeError, match="no SQL for Node"):
        render(Node(), str, str)
