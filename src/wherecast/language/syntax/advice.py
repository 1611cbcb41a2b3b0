"""What to write instead: advice for SQL, and habits of other languages, that a filter does not know."""

from __future__ import annotations

from wherecast.language.functions.refused import refusal

EXPECTED = "write a condition such as price < 120"
#: Words that the language reads as themselves: an attribute of such a name is written in backticks.
KEYWORDS = frozenset(
    "AND OR NOT IS IN LIKE ILIKE RLIKE BETWEEN TRUE FALSE NULL CASE EXISTS FROM SELECT WHERE".split()  # noqa: SIM905
)

#: A message and the reason of its FilterError.
Advice = tuple[str, str]

_FUNCTIONS = {
    "count": "the aggregate COUNT is not supported; a COUNT of events is a whole filter: COUNT(a) >= 3 WITHIN INTERVAL 5 MINUTES",
    "pattern": "PATTERN needs steps and a bound, and is a whole filter: PATTERN (a THEN b WITHIN INTERVAL 10 MINUTES)",
    "any": "ANY is not supported; use IN, several conditions with OR, or array_contains(a, value)",
    "some": "SOME is not supported; use IN, several conditions with OR, or array_contains(a, value)",
    "all": "ALL is not supported; use several conditions with AND",
    "iif": "IIF is not supported; write the cases with AND and OR",
    "starts_with": "STARTS_WITH is not supported; write startswith(a, 'text')",
    "ends_with": "ENDS_WITH is not supported; write endswith(a, 'text')",
    **{
        name: f"{name.upper()} is not supported: a standing filter may depend on nothing but its event; write a fixed DATE or TIMESTAMP"
        for name in (
            *("now", "today", "current_date", "current_timestamp", "curdate", "getdate", "sysdate", "localtimestamp"),
            *("current_time", "unix_now"),
        )
    },
    **{
        name: f"{name.upper()} is not supported: a standing filter may depend on nothing but its event"
        for name in (
            *("rand", "random", "randn", "randstr", "uniform", "shuffle", "uuid", "monotonically_increasing_id"),
            *("spark_partition_id", "input_file_name", "current_user", "session_user", "user", "current_database"),
            *("current_schema", "current_catalog", "current_timezone", "version"),
        )
    },
}
#: Names that are hardly meant as attributes. The advice is given only where the schema has no such attribute.
_NAMES = {
    **dict.fromkeys(("none", "nil", "undefined"), "the missing value is NULL; write a IS NULL"),
    **dict.fromkeys(("yes", "on"), "write TRUE"),
    **dict.fromkeys(("no", "off"), "write FALSE"),
    **dict.fromkeys(
        ("nan", "inf", "infinity"), "there is no literal for it; a > 1.7976931348623157e308 is true of NaN and infinity"
    ),
    **{name: _FUNCTIONS[name] for name in ("current_date", "current_timestamp", "sysdate")},
}
_PATTERN = (
    "a pattern is a whole filter, not a condition: register PATTERN (a THEN b WITHIN INTERVAL 10 MINUTES) or COUNT(a) >= 3 WITHIN "
    "INTERVAL 5 MINUTES by itself, with Engine.subscribe"
)
_SUBQUERY = ("a subquery is not supported; a filter sees one event", "unsupported")
#: Refused wherever a value could stand; an attribute of such a name is written in backticks.
_RESERVED = {
    "SELECT": _SUBQUERY,
    "EXISTS": _SUBQUERY,
    "FROM": ("FROM is not supported; a filter is the condition alone", "unsupported"),
    "WHERE": ("leave out WHERE; a filter is the condition alone", "syntax"),
}
#: Words that may be attributes; the advice is given only where they stand out of place.
_WORDS = {
    **_RESERVED,
    "ESCAPE": ("ESCAPE stands behind the pattern of LIKE or ILIKE: a LIKE '5!%' ESCAPE '!'", "syntax"),
    "COLLATE": ("COLLATE is not supported; remove it, or compare lower(a)", "unsupported"),
    "INTERVAL": ("write an interval as INTERVAL 10 MINUTES or INTERVAL '1' DAY", "syntax"),
    "DISTINCT": ("DISTINCT is not supported here; write a <=> b or IS [NOT] DISTINCT FROM", "unsupported"),
    "IGNORE": ("IGNORE NULLS is not supported; remove it", "unsupported"),
    "RESPECT": ("RESPECT NULLS is not supported; remove it", "unsupported"),
    "OVER": ("a window is not supported; a filter sees one event", "unsupported"),
    "FILTER": ("an aggregate is not supported; a filter sees one event", "unsupported"),
    "SYMMETRIC": ("BETWEEN SYMMETRIC is not supported; use two comparisons", "unsupported"),
    "ANY": (_FUNCTIONS["any"], "unsupported"),
    "ALL": (_FUNCTIONS["all"], "unsupported"),
    "MOD": ("MOD is not an operator; write a % 2 or mod(a, 2)", "unsupported"),
    "XOR": ("XOR is not supported; write (a) <> (b)", "unsupported"),
    "EQ": ("write = for equality", "syntax"),
    "EQUALS": ("write = for equality", "syntax"),
    "NE": ("write <>", "syntax"),
    "GT": ("write >", "syntax"),
    "GE": ("write >=", "syntax"),
    "GTE": ("write >=", "syntax"),
    "LT": ("write <", "syntax"),
    "LE": ("write <=", "syntax"),
    "LTE": ("write <=", "syntax"),
    "ISNULL": ("write a IS NULL", "syntax"),
    "NOTNULL": ("write a IS NOT NULL", "syntax"),
    "EXISTS": ("to ask whether a value is there, write a IS NOT NULL", "syntax"),
    "CONTAINS": ("write contains(a, 'text'), or array_contains(a, value) for an array", "syntax"),
    **dict.fromkeys(("STARTSWITH", "STARTS", "BEGINS"), ("write startswith(a, 'text')", "syntax")),
    **dict.fromkeys(("ENDSWITH", "ENDS"), ("write endswith(a, 'text')", "syntax")),
    **dict.fromkeys(("THEN", "WITHIN"), (_PATTERN, "unsupported")),
    "MATCHES": ("MATCHES stands between a topic and its pattern: topic MATCHES 'a/+/#'", "syntax"),
    "SIMILAR": ("SIMILAR TO is not supported; write a RLIKE 'pattern'", "unsupported"),
    "GLOB": ("GLOB is not supported; write a LIKE 'text%'", "unsupported"),
    "AS": ("an alias is not supported; a filter is the condition alone", "unsupported"),
    "ORDER": ("ORDER BY is not supported; a filter is the condition alone", "unsupported"),
    "GROUP": ("GROUP BY is not supported; a filter is the condition alone", "unsupported"),
    "LIMIT": ("LIMIT is not supported; a filter is the condition alone", "unsupported"),
    "UNION": _SUBQUERY,
}
_SYMBOLS = {
    "'": ("a string begins here and never ends; add a closing '", "syntax"),
    '"': ('a string begins here and never ends; add a closing "', "syntax"),
    "`": ("a quoted name begins here and never ends; add a closing `", "syntax"),
    "/*": ("a comment begins here and never ends, or is a hint; close it with */ or remove it", "syntax"),
    ";": ("unexpected ';'; a filter is one condition", "syntax"),
    "&&": ("unexpected '&&'; write AND", "syntax"),
    ":=": ("an assignment is not supported; compare with =", "unsupported"),
    "===": ("unexpected '==='; write =", "syntax"),
    "=>": ("unexpected '=>'; write >=", "syntax"),
    "=<": ("unexpected '=<'; write <=", "syntax"),
    "!<": ("unexpected '!<'; write >=", "syntax"),
    "!>": ("unexpected '!>'; write <=", "syntax"),
    "->": ("a lambda stands in exists(a, x -> ...) and forall only; write a nested attribute as a.b", "unsupported"),
    "::": ("a cast stands behind a value: a::int", "syntax"),
    "]": ("unexpected ']'; remove it or add '['", "syntax"),
    "**": ("'**' is not supported; write a * a", "unsupported"),
    "//": ("'//' is not supported; divide with /, begin a comment with --", "unsupported"),
    "#": ("'#' is not supported; begin a comment with --", "unsupported"),
    "{": ("'{' is not supported; write the value itself", "unsupported"),
    "?": ("a placeholder is not supported; write the value itself", "unsupported"),
    ":": ("':' is not supported; write a value itself, and a nested attribute as a.b", "unsupported"),
    "@": ("a variable is not supported; write the value itself", "unsupported"),
    "$": ("'$' is not supported; write a value itself, and an odd name in backticks", "unsupported"),
    **dict.fromkeys("\u2018\u2019\u201a\u2032", ("a typographic quote; write a straight one: 'text'", "syntax")),
    **dict.fromkeys(
        "\u201c\u201d\u201e\u2033\u00ab\u00bb", ("a typographic quote; write a straight one: 'text'", "syntax")
    ),
    **dict.fromkeys("\u2013\u2014\u2212", ("a typographic dash; write the minus sign -", "syntax")),
    "\u2264": ("write <=", "syntax"),
    "\u2265": ("write >=", "syntax"),
    "\u2260": ("write <>", "syntax"),
}
_REGEX = "is PostgreSQL's match of a regular expression; write"
#: Signs that mean something else between two values than before one.
_BETWEEN_VALUES = {
    "~": f"'~' {_REGEX} a RLIKE 'pattern'",
    "=~": "'=~' is Perl's match of a regular expression; write a RLIKE 'pattern'",
    "!~": f"'!~' {_REGEX} a NOT RLIKE 'pattern'",
    "~*": f"'~*' {_REGEX} a RLIKE '(?i)pattern'",
    "!~*": f"'!~*' {_REGEX} a NOT RLIKE '(?i)pattern'",
    "~~": "'~~' is PostgreSQL's LIKE; write a LIKE 'text%'",
    "~~*": "'~~*' is PostgreSQL's ILIKE; write a ILIKE 'text%'",
    "!~~": "'!~~' is PostgreSQL's NOT LIKE; write a NOT LIKE 'text%'",
    "!~~*": "'!~~*' is PostgreSQL's NOT ILIKE; write a NOT ILIKE 'text%'",
}


def function_advice(name: str, near: str | None) -> str:
    """Why there is no such function, and what to use."""
    known = _FUNCTIONS.get(name.lower())
    if known:
        return known
    refused = refusal(name)
    if refused:
        return refused
    shown = name if len(name) <= 40 else name[:37] + "..."
    hint = f"did you mean {near}?" if near else "see docs/language.md for the functions there are"
    return f"unknown function {shown!r}; {hint}"


def name_advice(name: str) -> str | None:
    """Advice on a name that the schema does not have, if it is hardly meant as an attribute."""
    return _NAMES.get(name.lower())


def word_advice(word: str, *, reserved: bool = False) -> Advice | None:
    """Advice on a word (in capitals) out of place; `reserved`: only if it must be quoted as a name."""
    return (_RESERVED if reserved else _WORDS).get(word)


def symbol_advice(text: str, *, after_value: bool = False) -> Advice:
    """Advice on a character or sign that no filter contains, where a value is wanted or after one."""
    if text in _BETWEEN_VALUES and (after_value or text not in _SYMBOLS):
        return _BETWEEN_VALUES[text], "unsupported"
    if text == "[" and not after_value:
        return "brackets are not supported; write a name in backticks: `a`", "unsupported"
    known = _SYMBOLS.get(text)
    if known:
        return known
    if text[0].isdigit():
        shown = text if len(text) <= 40 else text[:37] + "..."
        message = f"{shown!r} is neither a number nor a name; write a number as 1000 or 1.5, a text in quotes, "
        return f"{message}and a name that begins with a digit in backticks", "syntax"
    return f"unexpected character {text!r}; remove it or quote the text it belongs to", "syntax"
