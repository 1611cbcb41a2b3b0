from __future__ import annotations

import pytest

from wherecast.errors import FilterError
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import Type
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.render import attribute_namer, render
from wherecast.language.syntax.limits import Limits

SCHEMA = Schema.of(
    {
        "a": "integer",
        "b": "integer",
        "c": "integer",
        "x": "boolean",
        "y": "boolean",
        "name": "string",
        "price": "double",
        "day": "date",
        "ts": "timestamp",
        "tags": "array<string>",
        "marks": "array<integer>",
        "days": "array<date>",
        "quote": {"type": "struct", "fields": {"bid": "double"}},
        "order": "integer",
        "interval": "integer",
        "any": "integer",
        "odd name": "integer",
    }
)
COMPILER = Compiler(SCHEMA)


def meaning(text: str) -> str:
    """A filter as it was read, with every compound operand in parentheses and literals by their number."""
    node, _ = COMPILER.check(text)
    return render(node, attribute_namer(SCHEMA), lambda p: f"{'-' if p.negative else ''}?{p.slot}")


def refused(text: str) -> FilterError:
    with pytest.raises(FilterError) as caught:
        COMPILER.compile(text)
    return caught.value


# -- Spark's precedence -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("NOT a = 1", "NOT (a = ?0)"),
        ("! a = 1", "NOT (a = ?0)"),
        ("!x", "NOT x"),
        ("NOT x AND y", "(NOT x) AND y"),
        ("NOT NOT x", "NOT (NOT x)"),
        ("x OR y AND NOT x", "x OR (y AND (NOT x))"),
        ("x AND y OR x", "(x AND y) OR x"),
        ("NOT a BETWEEN 1 AND 2", "NOT ((a >= ?0) AND (a <= ?1))"),
        ("a NOT BETWEEN 1 AND 2", "NOT ((a >= ?0) AND (a <= ?1))"),
        ("a BETWEEN 1 AND 2 AND x", "((a >= ?0) AND (a <= ?1)) AND x"),
        ("a BETWEEN b + 1 AND c AND x OR y", "(((a >= (b + ?0)) AND (a <= c)) AND x) OR y"),
        ("x AND a BETWEEN 1 AND 2", "x AND ((a >= ?0) AND (a <= ?1))"),
        ("NOT a IS NULL", "NOT (a IS NULL)"),
        ("a IS NOT NULL", "NOT (a IS NULL)"),
        ("a + 1 IS NULL", "(a + ?0) IS NULL"),
        ("x IS NOT TRUE", "NOT (x IS TRUE)"),
        ("(a = b) IS FALSE", "(a = b) IS FALSE"),
        ("-a % b = 1", "((-a) % b) = ?0"),
        ("-a * -b = c", "((-a) * (-b)) = c"),
        ("a - -b > 0", "(a - (-b)) > ?0"),
        ("-(a + b) * c = 1", "((-(a + b)) * c) = ?0"),
        ("a + b * c - a / b > -5", "((a + (b * c)) - (a / b)) > -?0"),
        ("a % b * c = 3", "((a % b) * c) = ?0"),
        ("a - b - c = 0", "((a - b) - c) = ?0"),
        ("a = +5", "a = ?0"),
        ("a == 1", "a = ?0"),
        ("a != 1", "a <> ?0"),
        ("(a < b) = x", "(a < b) = x"),
        ("a = b IS NULL", "(a = b) IS NULL"),
        ("a < b = x", "(a < b) = x"),
        ("a = b = x <=> y", "((a = b) = x) <=> y"),
        ("a = b IN (x, y)", "((a = b) = x) OR ((a = b) = y)"),
        ("x BETWEEN a = b AND a < b = y", "(x >= (a = b)) AND (x <= ((a < b) = y))"),
        ("NOT a = b IS NOT FALSE", "NOT (NOT ((a = b) IS FALSE))"),
        ("x AND (y AND x)", "x AND (y AND x)"),
        ("a | b & c ^ a = 1", "(a | ((b & c) ^ a)) = ?0"),
        ("a << 1 + 2 & 7 = b", "((a << (?0 + ?1)) & ?2) = b"),
        ("~a * -b DIV 2 = +c", "(((~a) * (-b)) DIV ?0) = c"),
        ("name || 'x' || name = 'y'", "concat(name, ?0, name) = ?1"),
        ("-5::string = name", "CAST(-?0 AS STRING) = name"),
        ("-marks[0]::int = 1", "(-CAST(marks[?0] AS INT)) = ?1"),
        ("price::decimal(10,2) > 1", "CAST(price AS DECIMAL(10, 2)) > ?0"),
        ("try_cast(name AS double) > 1", "CAST(name AS DOUBLE) > ?0"),
        ("CASE a WHEN 1 THEN x ELSE y END", "CASE WHEN a = ?0 THEN x ELSE y END"),
        ("if(x, a, b) = 1", "if(x, a, b) = ?0"),
        ("nvl(a, 1) = 1 OR ifnull(a, b) = 1", "(coalesce(a, ?0) = ?1) OR (coalesce(a, b) = ?2)"),
        ("name LIKE 'a!%' ESCAPE '!'", "name LIKE ?0"),
        ("name NOT LIKE ANY ('a', 'b')", "(NOT (name LIKE ?0)) OR (NOT (name LIKE ?1))"),
        ("name ILIKE ALL ('a', 'b') AND x", "((name ILIKE ?0) AND (name ILIKE ?1)) AND x"),
        ("name = r'x' OR name = R\"y\"", "(name = ?0) OR (name = ?1)"),
        ("ts + INTERVAL 1 DAY 2 HOURS > ts", "(ts + (INTERVAL ?0 DAY ?1 HOUR)) > ts"),
        ("interval - 3 > 1", "(interval - ?0) > ?1"),
        ("exists(marks, m -> m > a)", "exists(marks, `m` -> `m` > a)"),
        ("exists(marks, m -> m = 1)", "exists(marks, `m` -> `m` = ?0)"),
        ("name = 5 AND a = '5'", "(CAST(name AS BIGINT) = ?0) AND (a = ?1)"),
        ("name NOT LIKE 'a%'", "NOT (name LIKE ?0)"),
        ("NOT name RLIKE 'a'", "NOT (name RLIKE ?0)"),
        ("name NOT REGEXP 'a'", "NOT (name RLIKE ?0)"),
        ("name NOT ILIKE 'a'", "NOT (name ILIKE ?0)"),
        ("a NOT IN (1, 2)", "NOT (a IN (?0))"),
        ("a IN (1, NULL)", "a IN (?0, NULL)"),
        ("a IN (1, b)", "(a = ?0) OR (a = b)"),
        ("a IN (NULL)", "a = NULL"),
        ("a IS NOT DISTINCT FROM b", "a <=> b"),
        ("a IS DISTINCT FROM b", "NOT (a <=> b)"),
        ("a <=> NULL", "a <=> NULL"),
        ("x", "x"),
        ("((x))", "x"),
        ("NULL", "NULL"),
        ("order = 1 AND interval > 3 AND any = 2", "(order = ?0) AND (interval > ?1) AND (any = ?2)"),
        ("quote . bid > 3", "quote.bid > ?0"),
        ("`QUOTE`.`bid` > 3", "quote.bid > ?0"),
        ("`odd name` = 1", "`odd name` = ?0"),
        ("day >= date'2024-01-01'", "day >= ?0"),
        ("ts < TIMESTAMP_LTZ '2024-01-01 00:00:00'", "ts < ?0"),
        ("LOWER(name) = 'x'", "lower(name) = ?0"),
        ("array_contains(days, '2024-01-01')", "array_contains(days, ?0)"),
        ("abs(-a) = 3", "abs(-a) = ?0"),
    ],
)
def test_read_as_spark_does(text, read):
    """Operators bind as in Spark SQL."""
    assert meaning(text) == read


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("a IS NULL = x", "="),
        ("a IS NULL IS NULL", "IS"),
        ("a NOT IN (1) IS NULL", "IS"),
        ("a IS NOT NULL IS TRUE", "IS TRUE"),
        ("a BETWEEN 1 AND 2 BETWEEN 3 AND 4", "BETWEEN 3"),
        ("a IN (1) IN (2)", "IN (2)"),
        ("x = NOT y", "NOT"),
        ("a + NOT x", "NOT"),
        ("- NOT x", "NOT"),
        ("a IS NULL + 1", "+"),
        ("a IN (1) * 2", "*"),
        ("a ! IN (1)", "!"),
        ("a IS ! NULL", "!"),
    ],
)
def test_syntax_errors_of_spark(text, piece):
    """What Spark's grammar does not allow is refused, at the operator in question."""
    error = refused(text)
    assert error.reason == "syntax"
    assert text[error.start :].startswith(piece)


# -- nothing comes in by the back door --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("lower(DISTINCT name) = 'x'", "DISTINCT"),
        ("lower(ALL name) = 'x'", "ALL"),
        ("lower(name) IGNORE NULLS = 'x'", "IGNORE NULLS"),
        ("lower(name) RESPECT NULLS = 'x'", "RESPECT NULLS"),
        ("lower(name) OVER () = 'x'", "window"),
        ("lower(name) FILTER (WHERE x) = 'x'", "aggregate"),
        ("lower(name => 'x') = 'x'", "write >="),
        ("lower(x -> x) = 'x'", "lambda"),
        ("name LIKE 'a!b' ESCAPE '!'", "one character"),
        ("name LIKE 'a' ESCAPE 'ab'", "one character"),
        ("name RLIKE 'a!%' ESCAPE '!'", "ESCAPE"),
        ("name LIKE ANY ()", "at least one pattern"),
        ("name RLIKE ANY ('a', 'b')", "ANY is not supported"),
        ("name COLLATE UTF8_LCASE = 'x'", "COLLATE"),
        ("a BETWEEN SYMMETRIC 2 AND 1", "SYMMETRIC"),
        ("a /*+ BROADCAST(t) */ = 1", "hint"),
        ("name = X'00'", "cannot compare string attribute 'name' with a binary"),
        ("name = 'a' 'b'", "operator"),
        ("regexp_like(name, 'a', 'i')", "regexp_like takes 2 arguments"),
        ("ts AT TIME ZONE 'UTC' = ts", "operator"),
        ("a::array = '1'", "cannot cast to ARRAY"),
        ("a:: = 1", "expected a type"),
        ("a:b = 1", "':'"),
        ("a IN (SELECT 1)", "subquery"),
        ("a IN UNNEST(marks)", "parentheses"),
        ("(a, b) = (1, 2)", "','"),
        ("(a, b) IN ((1, 2))", "','"),
        ("name.lower() = 'x'", "unknown function 'name.lower'"),
        ("a.* = 1", "name must follow"),
        ("count(*) > 1", "aggregate COUNT"),
        ("+name = 'x'", "+ needs a number"),
        ("a = 1 AS b", "alias"),
        ("INTERVAL 3 DAY > a", "cannot compare"),
        ("INTERVAL 3 > a", "needs a unit"),
        ("INTERVAL 1 MONTH 2 DAYS = INTERVAL 1 DAY", "months and days"),
        ("day + INTERVAL '1x' DAY > day", "not a number of days"),
        ("day + a > day", "needs an interval"),
        ("CASE x THEN y END", "CASE without its WHEN"),
        ("CASE WHEN x y END", "operator"),
        ("CASE WHEN x THEN y", "CASE without its END"),
        ("CASE END", "CASE without its WHEN"),
        ("coalesce() = 1", "coalesce takes 1 arguments or more"),
        ("nullif(a) = 1", "nullif takes 2 arguments"),
        ("exists(SELECT 1)", "subquery"),
        ("exists(marks, 3)", "expected a lambda"),
        ("exists(name, x -> x = 1)", "needs an array"),
        ("exists(marks, x -> x)", "expected a condition"),
        ("exists(marks, x -> y1 > 1)", "unknown attribute 'y1'"),
        ("now() > ts", "may depend on nothing but its event"),
        ("rand() < 0.5", "a standing filter may depend on nothing but its event"),
        ("uuid() = name", "a standing filter may depend on nothing but its event"),
        ("day < current_date", "may depend on nothing but its event"),
        ("a := 3", "assignment"),
    ],
)
def test_smuggled(text, advice):
    """Other SQL that could stand beside an admitted construct is refused, with what to do."""
    assert advice in refused(text).message


# -- reasons and places -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason", "piece", "message"),
    [
        ("", "syntax", "", "the filter is empty; write TRUE to match every event"),
        ("  -- nothing\n", "syntax", " ", "the filter is empty"),
        ("price 3", "syntax", "3", "unexpected number literal; an operator such as"),
        ("a = ", "syntax", "=", "a value is missing at the end"),
        ("a = 1 AND", "syntax", "AND", "a value is missing at the end"),
        ("= 3", "syntax", "=", "expected a value, found '='"),
        ("a = AND", "syntax", "AND", "expected a value, found 'AND'"),
        ("a = )", "syntax", ")", "expected a value, found ')'"),
        ("(a = 1", "syntax", "(", "'(' is never closed"),
        ("lower(name", "syntax", "lower(", "'(' is never closed"),
        ("a = 1)", "syntax", ")", "')' closes nothing"),
        ("a = 1, b = 2", "syntax", ",", "join conditions with AND or OR"),
        ("price < 1,000", "syntax", ",", "write a number without it"),
        ("name = 'it's'", "syntax", "s", "double the quote"),
        ("name = 'abc", "syntax", "'", "add a closing '"),
        ('name = "abc', "syntax", '"', 'add a closing "'),
        ("`a = 1", "syntax", "`", "add a closing `"),
        ("a /* = 1", "syntax", "/*", "close it with */"),
        ("a = 1; x", "syntax", ";", "a filter is one condition"),
        ("a = 1 && x", "syntax", "&&", "write AND"),
        ("x || y", "type", "x || y", "write OR between conditions"),
        ("x | y", "type", "x", "write OR between conditions"),
        ("a & price = 1", "type", "price", "& needs integers"),
        ("a DIV price = 1", "type", "price", "DIV needs integers or decimals"),
        ("a << b = 1", "type", "b", "needs an int on its right"),
        ("a === 1", "syntax", "===", "write ="),
        ("a =< 1", "syntax", "=<", "write <="),
        ("a => 1", "syntax", "=>", "write >="),
        ("a !< 1", "syntax", "!<", "write >="),
        ("a eq 1", "syntax", "eq", "write ="),
        ("a = 12abc", "syntax", "12abc", "neither a number nor a name"),
        ("a = \u00a7", "syntax", "\u00a7", "unexpected character"),
        ("a IN ()", "syntax", ")", "IN needs at least one value"),
        ("a IN 1", "syntax", "IN", "values in parentheses"),
        ("a IN (1,,2)", "syntax", ",", "expected a value"),
        ("a BETWEEN 1", "syntax", "BETWEEN", "two bounds joined by AND"),
        ("(a BETWEEN 1) AND x", "syntax", "BETWEEN", "two bounds joined by AND"),
        ("a BETWEEN 1 OR 2", "syntax", "BETWEEN", "two bounds joined by AND"),
        ("a IS 3", "syntax", "3", "IS takes [NOT] NULL, TRUE, FALSE or UNKNOWN"),
        ("a IS", "syntax", "IS", "IS takes"),
        ("a IS NOT", "syntax", "NOT", "IS takes"),
        ("a NOT", "syntax", "NOT", "misplaced NOT"),
        ("quote.", "syntax", ".", "a name must follow the '.'"),
        ("a NOT NULL", "syntax", "NOT", "write IS NOT NULL"),
        ("a NOT 3", "syntax", "NOT", "write NOT before the condition"),
        ("a. = 3", "syntax", "=", "a name must follow the '.'"),
        ("WHERE a = 1", "syntax", "WHERE", "leave out WHERE"),
        ("xyzzy(a) = 1", "unsupported", "xyzzy", "unknown function 'xyzzy'; see docs/language.md"),
        ("lowr(name) = 'x'", "unsupported", "lowr", "did you mean lower?"),
        ("sum(a) > 1", "unsupported", "sum", "the aggregate SUM is not supported"),
        ("CAST(a AS FOO) = 1", "unsupported", "CAST(a AS FOO)", "cannot cast to FOO; write BOOLEAN, INT"),
        ("CAST(a AS DECIMAL(50, 2)) = 1", "unsupported", "CAST(a AS DECIMAL(50, 2))", "cannot cast to DECIMAL(50,2)"),
        ("CAST(day AS INT) = 1", "type", "CAST(day AS INT)", "cannot cast date attribute 'day' to int"),
        ("CAST(a) = 1", "syntax", "CAST", "needs a value and a type"),
        ("lower() = 'x'", "unsupported", ")", "lower takes 1 argument"),
        ("contains(name) OR x", "unsupported", "contains(name)", "contains takes 2 arguments"),
        ("a[0] = 1", "type", "a", "needs an array"),
        ("marks['x'] = 1", "type", "'x'", "needs an integer"),
        ("marks[0 = 1", "syntax", "[", "'[' is never closed"),
        ("marks] = 1", "syntax", "]", "unexpected"),
        ("prise < 3", "unknown-attribute", "prise", "unknown attribute 'prise'; did you mean 'price'?"),
        ("bid < 3", "unknown-attribute", "bid", "did you mean 'quote.bid'?"),
        ("quote < 3", "unknown-attribute", "quote", "it is a struct: name a field, as 'quote.bid'"),
        ("zzz < 3", "unknown-attribute", "zzz", "known attributes: a, b, c"),
        ("a", "type", "a", "expected a condition, found a value of type bigint; compare it"),
        ("x AND a", "type", "a", "expected a condition"),
        ("price < 'x3'", "literal", "'x3'", "write a number without quotes"),
        ("a = '3.5'", "literal", "'3.5'", "'3.5' is not an integer"),
        ("x = 'maybe'", "literal", "'maybe'", "write TRUE or FALSE"),
        ("day = DATE '2024-01-31' + 1.5", "type", "DATE '2024-01-31' + 1.5", "needs an interval"),
        ("x = 1", "type", "x = 1", "write TRUE or FALSE"),
        ("day > 5", "type", "day > 5", "write DATE '2024-01-31'"),
        ("ts > 5", "type", "ts > 5", "write TIMESTAMP"),
        ("a = x", "type", "a = x", "cannot compare integer attribute 'a' with boolean attribute 'x'"),
        ("1 < a < 3", "type", "1 < a < 3", "join two comparisons with AND, as 5 < price AND price < 10"),
        ("name LIKE 'a' = x", "type", "'a' = x", "LIKE needs a string literal"),
        ("x = name LIKE 'a'", "type", "x = name", "LIKE needs a string"),
        ("tags = 'x'", "type", "tags = 'x'", "use array_contains or size"),
        ("a LIKE '1%'", "type", "a", "LIKE needs a string, found integer attribute 'a'"),
        ("name LIKE 5", "type", "5", "LIKE needs a string literal"),
        ("name + 1 > 2", "type", "name", "+ needs numbers"),
        ("-name = 2", "type", "name", "- needs a number"),
        ("abs(name) > 1", "type", "name", "abs needs a number"),
        ("lower(a) = 'x'", "type", "a", "lower needs a string"),
        ("size(name) > 1", "type", "name", "size needs an array"),
        ("array_contains(name, 'x')", "type", "name", "array_contains needs an array, found string attribute 'name'"),
        ("array_contains(tags, 3)", "type", "3", "quote the literal"),
        ("array_contains(marks, 1.5)", "type", "1.5", "needs a value of type bigint"),
        ("array_contains(tags, NULL)", "type", "NULL", "is never true"),
        ("day = '2024-13-01'", "literal", "'2024-13-01'", "write an existing day"),
        ("ts > TIMESTAMP 'noon'", "literal", "'noon'", "write 'yyyy-mm-dd hh:mm:ss"),
        ("a = 1.2.3", "literal", "1.2.3", "is not a number; write"),
        ("a IN (1, 'x')", "literal", "1, 'x'", "give all values one type"),
        ("a IN (1, 1.2.3)", "literal", "1, 1.2.3", "is not a number"),
        ("name RLIKE '(a'", "literal", "'(a'", "missing )"),
        ("name RLIKE '.{1000}'", "literal", "'.{1000}'", "too large a pattern"),
    ],
)
def test_errors(text, reason, piece, message):
    """Every error has its reason, stands on the offending piece and says what to do."""
    error = refused(text)
    assert (error.reason, text[error.start : error.end]) == (reason, piece)
    assert message in error.message


PREFIXES = {
    "after a string": "name = 'a long literal, with commas' AND ",
    "after escapes": r"name = 'it\'s \u0041 \\' AND ",
    "after doubled quotes": "name = 'it''s' AND ",
    "after a list": "a IN (1000000, -2000000, 3000000) AND ",
    "after a list with a comment": "a IN (1, /* 2, */ 3) AND ",
    "after comments": "/* one 'two */ x -- three\n AND /* four\n five */ ",
    "on a later line": "x\n\nAND\n  ",
    "after other characters": "name = 'é😀' AND /* ü */ ",
    "after a carriage return": "x AND\r\n",
    "after a date": "day = DATE '2024-01-31' AND ",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize(
    ("bad", "piece"),
    [
        ("prise < 3", "prise"),
        ("price < 'three hundred'", "'three hundred'"),
        ("day = '2024-02-30' OR x", "'2024-02-30'"),
        ("a = = 1", "= 1"),
        ("price < 100 && x", "&&"),
        ("a IN (1, 2, 'x')", "1, 2, 'x'"),
    ],
)
def test_places(prefix, bad, piece):
    """The caret stands on the offending piece of the text as it was written, whatever comes before it."""
    text = prefix + bad
    error = refused(text)
    at = len(prefix) + bad.index(piece)
    assert error.start == at
    assert text[error.start :].startswith(text[at : error.end])
    assert error.line == prefix.count("\n") + 1
    line, caret = error.caret().split("\n")
    assert line == text.split("\n")[error.line - 1]
    assert line[caret.index("^") :].startswith(piece[: caret.count("^")])


@pytest.mark.parametrize(
    ("limits", "text", "message"),
    [
        (Limits(text=10), "a = 1 OR a = 2", "14 characters, at most 10"),
        (Limits(depth=2), "(((x)))", "nested deeper than 2"),
        (Limits(depth=2), "a + a + a + a > 1", "nested deeper than 2"),
        (Limits(depth=2), "NOT NOT NOT x", "more than 2 NOTs or signs"),
        (Limits(terms=6), "a = 1 AND x AND y", "more than 6 terms"),
        (Limits(terms=2), "1 = 2 = 3", "more than 2 terms"),
        (Limits(values=2), "a IN (1, 2, 3)", "3 values in one IN list, at most 2"),
        (Limits(pattern=3), "name LIKE 'abcd%'", "a pattern of 5 characters, at most 3"),
        (Limits(wildcards=3), "name LIKE '%a%b%c%'", "a pattern with 4 wildcards, at most 3"),
        (
            Limits(depth=3),
            "CASE WHEN CASE WHEN CASE WHEN CASE WHEN x THEN y END THEN x END THEN y END THEN x END",
            "nested deeper",
        ),
        (Limits(regexes=1), "name RLIKE 'a' OR name RLIKE 'b'", "more than 1 RLIKEs"),
    ],
)
def test_limits(limits, text, message):
    """Limits are settings; an error names the number."""
    with pytest.raises(FilterError, match=message) as caught:
        Compiler(SCHEMA, limits).compile(text)
    assert caught.value.reason == "limit"


def test_literals_have_sparks_types():
    """A literal is read as what it is compared with: a date in quotes is a date."""
    node, _ = COMPILER.check("day = '2024-01-31'")
    assert node.right.type is Type.DATE
    node, _ = COMPILER.check("price = 1")
    assert node.right.type is Type.DOUBLE
