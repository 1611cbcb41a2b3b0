from __future__ import annotations

import pytest

from wherecast.language.events.kinds import ROWS
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import Kind
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.render import describe_constraint

SCHEMA = Schema.of(
    {
        "a": "integer",
        "x": "boolean",
        "name": "string",
        "price": "double",
        "day": "date",
        "ts": "timestamp",
        "tags": "array<string>",
        "odd name": "integer",
    }
)
COMPILER = Compiler(SCHEMA)


def described(text: str) -> list[list[str]]:
    """The constraints of each clause of a filter, in words."""
    filters = COMPILER.compile(text)
    out = []
    for clause in range(filters.row_ptr.size - 1):
        first, words = int(filters.row_ptr[clause]), []
        for row in range(first, int(filters.row_ptr[clause + 1])):
            if filters.attr[row] >= 0:  # the last row of a constraint
                words.append(describe_constraint(filters, SCHEMA, first, row + 1))
                first = row + 1
        out.append(words)
    return out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = 5", "a = 5"),
        ("a <> 5", "a <> 5"),
        ("a > 5", "a >= 6"),
        ("a <= 5", "a <= 5"),
        ("a BETWEEN 1 AND 9", "a >= 1 AND a <= 9"),
        ("a IN (3, 1, 2, 9)", "a >= 1 AND a <= 3 OR a = 9"),
        ("a IN (3, 1)", "a IN (1, 3)"),
        ("a NOT IN (3, 1)", "a NOT IN (1, 3)"),
        ("a < 0 OR a = 5 OR a > 9", "a <= -1 OR a = 5 OR a >= 10"),
        ("a IS NULL", "a IS NULL"),
        ("a IS NOT NULL", "a IS NOT NULL"),
        ("a IS NULL OR a = 1", "a IS NULL OR a = 1"),
        ("x", "x = TRUE"),
        ("NOT x", "x = FALSE"),
        ("name = 'it''s'", "name = 'it''s'"),
        ("name < 'b'", "name < 'b'"),
        ("name >= 'b'", "name >= 'b'"),
        ("name > 'b' AND name <= 'c'", "name > 'b' AND name <= 'c'"),
        ("name <> 'b'", "name <> 'b'"),
        ("name IN ('x', 'y')", "name IN ('x', 'y')"),
        ("name LIKE 'ab%'", "name >= 'ab' AND name < 'ac'"),
        (r"name = 'a\\b'", r"name = 'a\\b'"),
        ("price < 120.5", "price < 120.5"),
        ("price >= 120.5", "price >= 120.5"),
        ("day = '2024-01-31'", "day = DATE '2024-01-31'"),
        ("ts = '2024-01-31 12:00:00'", "ts = TIMESTAMP '2024-01-31 12:00:00Z'"),
        ("array_contains(tags, 'red')", "array_contains(tags, 'red')"),
        ("`odd name` = 1", "`odd name` = 1"),
    ],
)
def test_constraints(text, words):
    """A constraint is described by the SQL that a person would write."""
    assert described(text) == [[words]]


def test_long_lists_are_cut():
    """Of many values a dozen is shown, and how many more there are."""
    ((words,),) = described("a IN (" + ",".join(str(2 * i) for i in range(20)) + ")")
    assert words == "a IN (0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, ... 8 more)"


def test_values_outside_the_calendar():
    """Keys that are no date of ours are shown as numbers."""
    assert ROWS[Kind.DATE].write(5_000_000, None) == "day 5000000"
    assert ROWS[Kind.TIMESTAMP].write(2**62, None) == str(2**62)
