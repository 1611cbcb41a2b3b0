"""Plausible mistakes and what their authors are told: a filter is accepted with a note, or refused with the way out."""

from __future__ import annotations

import pytest

from wherecast.cli.check import inspect_filter
from wherecast.engine.engine import Engine
from wherecast.errors import FilterError
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler

SCHEMA = Schema.of(
    {
        "symbol": "string",
        "price": "double",
        "volume": "bigint",
        "active": "boolean",
        "day": "date",
        "at": "timestamp",
        "tags": "array<string>",
        "quote": {"type": "struct", "fields": {"bid": "double"}},
    }
)
#: Attributes whose names are words of the language.
WORDS = Schema.of(dict.fromkeys(("case", "from", "end", "order", "and", "not", "null", "In", "when", "select"), "int"))

REFUSED = [
    # PostgreSQL and other dialects
    ("symbol ~ 'abc'", "'~' is PostgreSQL's match of a regular expression; write a RLIKE 'pattern'"),
    ("symbol !~ 'abc'", "write a NOT RLIKE 'pattern'"),
    ("symbol ~* 'abc'", "write a RLIKE '(?i)pattern'"),
    ("symbol !~* 'abc'", "write a NOT RLIKE '(?i)pattern'"),
    ("symbol ~~ 'abc'", "write a LIKE 'text%'"),
    ("symbol =~ 'abc'", "write a RLIKE 'pattern'"),
    ("symbol=~'abc'", "write a RLIKE 'pattern'"),
    ("[symbol] = 'A'", "write a name in backticks"),
    ("volume ** 2 = 4", "write a * a"),
    ("volume // 2 = 4", "divide with /"),
    ("price ISNULL", "write a IS NULL"),
    ("price NOTNULL", "write a IS NOT NULL"),
    ("price EXISTS", "write a IS NOT NULL"),
    ("exists(price)", "write a IS NOT NULL"),
    ("price gt 5", "write >"),
    ("price equals 5", "write = for equality"),
    ("symbol startswith 'A'", "write startswith(a, 'text')"),
    ("tags contains 'A'", "array_contains(a, value) for an array"),
    ("'A' = ANY(tags)", "array_contains(a, value)"),
    ("'A' IN tags", "write array_contains(a, value)"),
    ("quote->bid = 1", "write a nested attribute as a.b"),
    ("day > now()", "write a fixed DATE or TIMESTAMP"),
    ("day > CURRENT_DATE", "write a fixed DATE or TIMESTAMP"),
    ("iif(price > 1, TRUE, FALSE)", "write the cases with AND and OR"),
    ("soundex(symbol) = 'A100'", "SOUNDEX is not supported"),
    ("SELECT * FROM t WHERE price > 5", "leave out SELECT ... WHERE"),
    ("price > 5 # dear", "begin a comment with --"),
    ("price > 5 // dear", "begin a comment with --"),
    ("symbol = 'A'; price = 1", "a filter is one condition"),
    # values
    ("price = NaN", "there is no literal for it"),
    ("price = Infinity", "there is no literal for it"),
    ("symbol = None", "write a IS NULL"),
    ("symbol IS None", "IS takes [NOT] NULL, TRUE, FALSE or UNKNOWN"),
    ("active = yes", "write TRUE"),
    ("symbol = IBM", "unknown attribute 'IBM'; write a text in quotes: '...'"),
    ("symbol IN (IBM, 'A')", "write a text in quotes"),
    ("symbol = `IBM`", "write a text in quotes"),
    ("symbol = symbal", "did you mean the attribute 'symbol'?"),
    ("volume = 'many'", "write an integer without quotes"),
    ('"price" > 5', "write the name of an attribute without them, or in backticks"),
    ("day = 2024-01-31", "write DATE '2024-01-31'"),
    ("price = 1,5", "1.5 with a point"),
    ("price = 0x10", "write a number as 1000 or 1.5"),
    ("symbol = 'A', 'B'", "list several values with IN ('a', 'b')"),
    ("symbol = 'A' OR 'B'", "compare it with an attribute: a = 'x' OR a = 'y', or a IN ('x', 'y')"),
    ("symbol LIKE 5", "LIKE needs a string literal as its pattern, such as 'text%'"),
    ("symbol = \u2018A\u2019", "write a straight one: 'text'"),
    ("symbol = \u201cA\u201d", "write a straight one: 'text'"),
    ("price = \u22125", "write the minus sign -"),
    # order and punctuation
    ("price > = 5", "write >= without a space"),
    ("price < > 5", "write <> without a space"),
    ("price ! = 5", "write != without a space"),
    ("price > 5 AND < 10", "name the attribute again"),
    ("5 < price < 10", "join two comparisons with AND"),
    ("symbol IN ('A' 'B')", "a comma or an operator is missing"),
    ("contains(symbol 'A')", "a comma or an operator is missing"),
    ("price IS NOT", "IS takes [NOT] NULL, TRUE, FALSE or UNKNOWN"),
    ("price IS NOT 5", "compare values with = or <>"),
    ("price \u2265 5", "write >="),
    (";", "the filter is empty"),
]


@pytest.mark.parametrize(("text", "advice"), REFUSED)
def test_refused(text, advice):
    """The message says what the author should write instead."""
    with pytest.raises(FilterError) as caught:
        Compiler(SCHEMA).compile(text)
    assert advice in caught.value.message


NOTED = [
    ("price = NULL", "compares price with NULL, which is never true; write price IS NULL"),
    ("NULL = price", "write price IS NULL"),
    ("price <> NULL", "write price IS NOT NULL"),
    ("price < NULL", "compares price with NULL"),
    ("price IN (NULL)", "compares price with NULL"),
    ("price BETWEEN NULL AND 5", "compares price with NULL"),
    ("price BETWEEN 5 AND NULL", "compares price with NULL"),
    ("NOT price = NULL", "compares price with NULL"),
    ("price NOT IN (1, NULL)", "NOT IN with it is never true"),
    ("\"symbol\" = 'A'", '"symbol" is a text, not an attribute'),
]


@pytest.mark.parametrize(("text", "note"), NOTED)
def test_noted(text, note):
    """A filter that Spark takes but that never matches is accepted, and `check` says why it does not."""
    checked = inspect_filter(text, SCHEMA)
    assert checked.matches == "never"
    assert any(note in line for line in checked.notes)
    assert not any("contradict" in line for line in checked.notes)


@pytest.mark.parametrize("text", ["price <=> NULL", "price IS NULL", "price > 5", "symbol = 'A'"])
def test_nothing_to_note(text):
    """What means what it seems to mean has no note."""
    assert inspect_filter(text, SCHEMA).notes == []


@pytest.mark.parametrize("end", [";", "; ", " ;\n", ";;", "; -- done", ";/* done */"])
@pytest.mark.parametrize("text", ["symbol = 'A'", "price < 5", "symbol IN ('A', 'B')", "price IS NULL"])
def test_a_semicolon_at_the_end(text, end):
    """A semicolon ends a statement, as in Spark: it is no part of the filter."""
    assert inspect_filter(text + end, SCHEMA) == inspect_filter(text, SCHEMA)


def test_a_semicolon_in_a_large_batch():
    """Also where filters are compiled term by term."""
    texts = [f"volume > {n} AND price < {n} AND symbol = 'S{n}';" for n in range(100)]
    texts += [f"{'active AND ' * (n % 13)}volume = {n};" for n in range(100)]
    assert Compiler(SCHEMA).compile_many(texts).errors == []


@pytest.mark.parametrize("value", [None, "", "  ", ";"])
def test_an_empty_filter(value):
    """A filter that is not there is called empty, whatever form that has."""
    (bad,) = Engine(SCHEMA).subscribe_many([("a", value)]).quarantined
    assert "the filter is empty; write TRUE to match every event" in str(bad.error)


@pytest.mark.parametrize("name", [a.name for a in WORDS])
def test_a_word_of_the_language_as_a_name(name):
    """An attribute may be called like a word of the language; a filter has it in backticks, also when it is shown."""
    engine = Engine(WORDS)
    engine.subscribe("box", f"`{name}` = 3")
    engine.subscribe("residual", f"`{name}` + `end` = 6 AND `{name}` IS NOT NULL")
    assert sorted(engine.match({name: 3, "end": 3})) == ["box", "residual"]
    assert engine.match({"end": 3, name: 4}) == []
    shown = inspect_filter(f"`{name}` + `end` = 6", WORDS).sql
    assert inspect_filter(shown, WORDS).sql == shown


def test_a_word_of_the_language_survives_saving(tmp_path):
    """Residuals are stored as SQL and read again."""
    engine = Engine(WORDS)
    engine.subscribe(1, "`case` + `from` > `and`")
    engine.save(tmp_path / "snapshot")
    assert Engine.open(tmp_path / "snapshot").match({"case": 1, "from": 2, "and": 2}) == [1]


@pytest.mark.parametrize("name", ["case", "from", "and", "not", "In", "select"])
@pytest.mark.parametrize("text", ["{} = 1", "`end` = 1 AND {} = 1", "(`end` = 2) OR {} > 1"])
def test_a_word_of_the_language_without_backticks(name, text):
    """The error says that the attribute has to be quoted."""
    with pytest.raises(FilterError, match=f"write `{name}` in backticks"):
        Compiler(WORDS).compile(text.format(name))
