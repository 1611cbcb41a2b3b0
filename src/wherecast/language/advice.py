"""What to write instead: advice for SQL, and habits of other languages, that a filter does not know."""

from __future__ import annotations

EXPECTED = "write a condition such as price < 120"

#: A message and the reason of its FilterError.
Advice = tuple[str, str]

_AGGREGATES = frozenset(
    [
        "count",
        "sum",
        "avg",
        "mean",
        "min",
        "max",
        "stddev",
        "variance",
        "collect_list",
        "collect_set",
        "first",
        "last",
        "median",
        "percentile",
        "any_value",
    ]
)
_FUNCTIONS = {
    "cast": "CAST is not supported; write DATE '2024-01-31', TIMESTAMP '2024-01-31 12:00:00' or a plain literal",
    "try_cast": "TRY_CAST is not supported; write the literal in the type of the attribute",
    "exists": "a subquery is not supported; a filter sees one event",
    "if": "IF is not supported; write the cases with AND and OR",
    "coalesce": "COALESCE is not supported; write a = 1 OR a IS NULL",
    "ifnull": "IFNULL is not supported; write a = 1 OR a IS NULL",
    "nvl": "NVL is not supported; write a = 1 OR a IS NULL",
    "isnull": "ISNULL is not supported; write a IS NULL",
    "isnotnull": "ISNOTNULL is not supported; write a IS NOT NULL",
    "mod": "MOD is not supported; write a % 2",
    "regexp_like": "REGEXP_LIKE is not supported; write a RLIKE 'pattern'",
    "lcase": "LCASE is not supported; write lower",
    "ucase": "UCASE is not supported; write upper",
    "len": "LEN is not supported; write length",
    "char_length": "CHAR_LENGTH is not supported; write length",
    "character_length": "CHARACTER_LENGTH is not supported; write length",
    "cardinality": "CARDINALITY is not supported; write size",
    "array_size": "ARRAY_SIZE is not supported; write size",
    "to_date": "TO_DATE is not supported; write DATE '2024-01-31'",
    "to_timestamp": "TO_TIMESTAMP is not supported; write TIMESTAMP '2024-01-31 12:00:00'",
    "any": "ANY is not supported; use IN, or several conditions with OR",
    "some": "SOME is not supported; use IN, or several conditions with OR",
    "all": "ALL is not supported; use several conditions with AND",
}
_SUBQUERY = ("a subquery is not supported; a filter sees one event", "unsupported")
#: No attribute can have these names (`attribute.py`): they are refused wherever a value could stand.
_RESERVED = {
    "SELECT": _SUBQUERY,
    "EXISTS": _SUBQUERY,
    "FROM": ("FROM is not supported; a filter is the condition alone", "unsupported"),
    "WHERE": ("leave out WHERE; a filter is the condition alone", "syntax"),
    "CASE": ("CASE is not supported; write the cases with AND and OR", "unsupported"),
}
#: Words that may be attributes; the advice is given only where they stand out of place.
_WORDS = {
    **_RESERVED,
    "ESCAPE": ("ESCAPE is not supported; escape with a backslash", "unsupported"),
    "COLLATE": ("COLLATE is not supported; remove it, or compare lower(a)", "unsupported"),
    "INTERVAL": ("INTERVAL is not supported; write the resulting DATE or TIMESTAMP", "unsupported"),
    "DISTINCT": ("DISTINCT is not supported here; write a <=> b or IS [NOT] DISTINCT FROM", "unsupported"),
    "IGNORE": ("IGNORE NULLS is not supported; remove it", "unsupported"),
    "RESPECT": ("RESPECT NULLS is not supported; remove it", "unsupported"),
    "OVER": ("a window is not supported; a filter sees one event", "unsupported"),
    "FILTER": ("an aggregate is not supported; a filter sees one event", "unsupported"),
    "SYMMETRIC": ("BETWEEN SYMMETRIC is not supported; use two comparisons", "unsupported"),
    "ANY": (_FUNCTIONS["any"], "unsupported"),
    "ALL": (_FUNCTIONS["all"], "unsupported"),
    "DIV": ("DIV is not supported; divide with /", "unsupported"),
    "MOD": (_FUNCTIONS["mod"], "unsupported"),
    "XOR": ("XOR is not supported; write (a) <> (b)", "unsupported"),
    "EQ": ("write = for equality", "syntax"),
    "CONTAINS": ("write contains(a, 'text')", "syntax"),
    "MATCHES": ("write a RLIKE 'pattern'", "syntax"),
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
    "||": ("unexpected '||'; write OR (texts cannot be joined)", "syntax"),
    ":=": ("an assignment is not supported; compare with =", "unsupported"),
    "===": ("unexpected '==='; write =", "syntax"),
    "=>": ("unexpected '=>'; write >=", "syntax"),
    "=<": ("unexpected '=<'; write <=", "syntax"),
    "!<": ("unexpected '!<'; write >=", "syntax"),
    "!>": ("unexpected '!>'; write <=", "syntax"),
    "::": (_FUNCTIONS["cast"].replace("CAST", "'::'"), "unsupported"),
    "->": ("a lambda is not supported; ask for an element with array_contains", "unsupported"),
    "[": ("an element cannot be taken out by position; use array_contains(a, value)", "unsupported"),
    "{": ("'{' is not supported; write the value itself", "unsupported"),
    "?": ("a placeholder is not supported; write the value itself", "unsupported"),
    ":": ("':' is not supported; write a value itself, and a nested attribute as a.b", "unsupported"),
    "@": ("a variable is not supported; write the value itself", "unsupported"),
    "$": ("'$' is not supported; write a value itself, and an odd name in back quotes", "unsupported"),
    "&": ("bitwise operators are not supported; write AND between conditions", "unsupported"),
    "|": ("bitwise operators are not supported; write OR between conditions", "unsupported"),
    "^": ("bitwise operators are not supported; compare the attribute itself", "unsupported"),
    "~": ("bitwise operators are not supported; write NOT before a condition", "unsupported"),
}


def function_advice(name: str, near: str | None) -> str:
    """Why there is no such function, and what to use."""
    known = _FUNCTIONS.get(name.lower())
    if known:
        return known
    if name.lower() in _AGGREGATES:
        return f"the aggregate {name.upper()} is not supported; a filter sees one event"
    shown = name if len(name) <= 40 else name[:37] + "..."
    hint = f"did you mean {near}?" if near else "see docs/language.md for the functions there are"
    return f"unknown function {shown!r}; {hint}"


def word_advice(word: str, *, reserved: bool = False) -> Advice | None:
    """Advice on a word (in capitals) out of place; `reserved`: only if it can be no attribute."""
    return (_RESERVED if reserved else _WORDS).get(word)


def symbol_advice(text: str) -> Advice:
    """Advice on a character or sign that no filter contains."""
    known = _SYMBOLS.get(text)
    if known:
        return known
    if text[0].isdigit():
        shown = text if len(text) <= 40 else text[:37] + "..."
        return f"{shown!r} is neither a number nor a name; quote a text '...', a name with back quotes", "syntax"
    return f"unexpected character {text!r}; remove it or quote the text it belongs to", "syntax"
