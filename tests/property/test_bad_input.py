"""Bad input: whatever the text, it compiles or gives a positioned error, with bounded work and memory."""

from __future__ import annotations

import cProfile
import random
import tracemalloc

import pytest
import re2
from tests.examples import scaled
from tests.property.monsters import MONSTERS, SCHEMA

from wherecast.errors import FilterError
from wherecast.language.filters.compile import Compiler
from wherecast.language.syntax.java_regex import rlike_regex
from wherecast.language.syntax.limits import Limits

VALID = (
    "name = 'IBM' AND price < 120.5 AND a > 3000",
    "a IN (1, -2, 3) OR name NOT IN ('x', 'it''s', \"y\")",
    "NOT (a BETWEEN 1 AND 10) AND x IS NOT TRUE",
    "name LIKE 'ab%' AND name NOT ILIKE '%c_d' OR name RLIKE '^(a+)+$'",
    "day >= DATE '2024-01-31' AND ts < TIMESTAMP '2024-01-31 12:00:00.5+02:00'",
    "lower(name) = 'x' AND length(upper(name)) % 2 = 1 AND abs(-price) >= 1e3",
    "array_contains(tags, 'red') AND size(tags) > 2 AND contains(name, 'q')",
    "quote.bid + 0.5 * (quote.ask - quote.bid) / 2 <= price",
    "`order` <=> 5 OR a IS DISTINCT FROM b OR name <=> NULL",
    "startswith(name, 'a\\u00e9') AND endswith(name, '\\'') -- comment\n AND x /* more */ OR TRUE",
    "(a = 1 OR b = 2) AND (a <> 3 OR price > -1.5) AND ((x))",
    "a = 9223372036854775807 OR price = 1.7976931348623157e308 OR a = 12L",
    "CASE WHEN x THEN a WHEN b > 1 THEN 2 ELSE CASE a WHEN 1 THEN b END END = 3",
    "CAST(name AS DECIMAL(10, 2)) > 1.5 AND price::int = 3 OR try_cast(a AS string) = '5'",
    "day + INTERVAL '1' MONTH > ts - INTERVAL 1 DAY 2 HOURS AND ts - ts < INTERVAL '1 02:03:04' DAY TO SECOND",
    "exists(tags, t -> t LIKE 'a%' AND t <> name) OR forall(tags, t -> length(t) > a) OR tags[0] = 'x'",
    "name LIKE ANY ('a%', '%b') AND name NOT ILIKE ALL ('c') OR name LIKE 'a!%' ESCAPE '!' OR name = r'\\d'",
    "a & 3 | b ^ ~a = 1 AND a DIV 2 > b << 1 AND name || 'x' = 'yx' AND x IS NOT UNKNOWN",
    "name RLIKE '(?is)a.b\\\\p{L}' AND name = 5 AND a = '7'",
)
TOKENS = (
    *[
        "a",
        "b",
        "x",
        "name",
        "price",
        "day",
        "ts",
        "tags",
        "quote.bid",
        "order",
        "nosuch",
        "`a`",
        "`a",
        "b`",
        "(",
        ")",
        "(",
        ")",
        ",",
        ",",
        ".",
        "[",
        "]",
        "{",
        "}",
        ";",
        "+",
        "-",
        "*",
        "/",
        "%",
        "=",
        "==",
        "<>",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "<=>",
        "!",
        "~",
        "&",
        "|",
        "^",
        "&&",
        "||",
        ":=",
        "::",
        ":",
        "?",
        "@",
        "$",
        "#",
        "\\",
        "'",
        '"',
        "`",
        "--",
        "/*",
        "*/",
        "/*+",
    ],
    *[
        "AND",
        "OR",
        "NOT",
        "IN",
        "IS",
        "NULL",
        "TRUE",
        "FALSE",
        "LIKE",
        "ILIKE",
        "RLIKE",
        "BETWEEN",
        "DATE",
        "TIMESTAMP",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "END",
        "SELECT",
        "FROM",
        "EXISTS",
        "CAST",
        "AS",
        "INTERVAL",
        "DISTINCT",
        "ANY",
        "ALL",
        "ESCAPE",
        "COLLATE",
        "OVER",
        "UNION",
        "DIV",
        "SOME",
        "UNKNOWN",
        "DAY",
        "TO",
        "SECOND",
        "r'a'",
        "->",
        "::int",
        "<<",
        ">>>",
        "decimal(10, 2)",
    ],
    *[
        "lower(",
        "upper(",
        "length(",
        "abs(",
        "size(",
        "contains(",
        "startswith(",
        "array_contains(",
        "exists(",
        "forall(",
        "CAST(",
        "t ->",
        "count(",
        "foo(",
        "1",
        "0",
        "-1",
        "1.5",
        ".5",
        "1e9",
        "1e999",
        "12L",
        "5S",
        "0x1F",
        "1.2.3",
        "00",
        "'x'",
        "''",
        "'it''s'",
        "'%'",
        "'2024-01-31'",
        '"q"',
        "r'x'",
        "X'00'",
    ],
    "\n",
    "\t",
    "\0",
    "\ud800",
    "é",
    "😀",
    "\u2028",
    "\u00a0",
)
#: Calls of functions, Python's and C's, that a text may cost: some for any text, and some per character. The largest texts that are legal
#: cost ten times as much, for each of their conditions meets all clauses, and never more than MAX_CALLS. What loops without calls is not
#: seen here; `python -m benchmarks.bad_input` measures seconds.
BASE_CALLS, CALLS_PER_CHARACTER, MAX_CALLS = 11_000, 40, 2_500_000
MAX_BYTES = 50_000_000


def random_texts(count: int, seed: int) -> list[str]:
    """Mutated valid texts, token soup, Unicode noise and bytes read as Latin-1; the same for the same seed."""
    draw = random.Random(seed)
    return [draw.choices(_MAKERS, _WEIGHTS)[0](draw) for _ in range(count)]


def _mutated(draw: random.Random) -> str:
    pieces = list(draw.choice(VALID)) if draw.random() < 0.5 else draw.choice(VALID).replace("(", " ( ").split(" ")
    joint = "" if all(len(p) == 1 for p in pieces) else " "
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        at, other = draw.randrange(len(pieces)), draw.randrange(len(pieces))
        change = draw.randrange(6)
        if change == 0 and len(pieces) > 1:
            del pieces[at]
        elif change == 1:
            pieces[at], pieces[other] = pieces[other], pieces[at]
        elif change == 2:
            pieces.insert(at, pieces[other])
        elif change == 3:
            pieces.insert(at, draw.choice(TOKENS))
        elif change == 4:
            pieces[at] = draw.choice(TOKENS)
        else:
            pieces[at:at] = pieces[min(at, other) : max(at, other)]
    return joint.join(pieces)


def _soup(draw: random.Random) -> str:
    return draw.choice(("", " ", " ")).join(draw.choices(TOKENS, k=draw.randint(1, 30)))


def _unicode(draw: random.Random) -> str:
    return "".join(chr(draw.randrange(draw.choice((128, 0x300, 0x110000)))) for _ in range(draw.randint(0, 60)))


def _latin(draw: random.Random) -> str:
    return draw.randbytes(draw.randint(0, 80)).decode("latin-1")


def _long(draw: random.Random) -> str:
    """A few pieces, many times: up to the length that is allowed."""
    piece = draw.choice(("", " ")).join(draw.choices(TOKENS, k=draw.randint(1, 6)))
    return piece * (draw.choice((100, 500, 2_000, 20_000, 65_536)) // len(piece))


_MAKERS = (_mutated, _soup, _unicode, _latin, _long)
_WEIGHTS = (60, 25, 7, 7, 0.5)


def check(compiler: Compiler, text: str, reason: str | None = None) -> None:
    """The text compiles, or its error has a reason, a message and a place inside the text.

    `reason` is the one that is expected, empty for a text that compiles.
    """
    compiled = compiler.compile_many([text])
    if reason is not None:
        assert [error.reason for _, error in compiled.errors] == ([reason] if reason else [])
    if not compiled.errors:
        assert compiled.filters.n_filters == 1
        return
    ((row, error),) = compiled.errors
    lines = text.split("\n")
    assert row == 0
    assert error.reason in FilterError.REASONS
    assert error.message.strip()
    assert 1 <= error.line <= len(lines)
    assert 1 <= error.column <= len(lines[error.line - 1]) + 1
    assert 0 <= error.start <= len(text)
    assert error.start < error.end
    assert error.caret().count("\n") == 1


@pytest.fixture(scope="module", autouse=True)
def _letters_are_known() -> None:
    """The table of letters with more than one case is made once per process, and is no work of a text."""
    rlike_regex("(?iu)[a-b]")


def count_calls(text: str, compiler: Compiler, reason: str | None = None) -> int:
    """How many functions are called to compile or refuse a text; the same number on every machine."""
    profile = cProfile.Profile()
    profile.runcall(check, compiler, text, reason)
    return sum(entry.callcount for entry in profile.getstats())


def peak_bytes(compiler: Compiler, text: str) -> int:
    tracemalloc.start()
    try:
        check(compiler, text)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def run(count: int, seed: int) -> None:
    compiler = Compiler(SCHEMA)
    dearest, text_of_it, long_ones = 0.0, "", []
    for text in random_texts(count, seed):
        share = count_calls(text, compiler) / (BASE_CALLS + CALLS_PER_CHARACTER * len(text))
        if share > dearest:
            dearest, text_of_it = share, text
        if len(text) > 5_000:
            long_ones.append(text)
    compiled = 1_000 - len(compiler.compile_many(random_texts(1_000, seed)).errors)
    print(f"dearest: {dearest:.2f} of what is allowed, {len(text_of_it)} characters: {text_of_it[:80]!r}")
    assert compiled > 10  # else the generator makes nothing but nonsense
    assert dearest < 1, text_of_it[:200]
    for text in sorted(long_ones, key=len)[-20:]:
        assert peak_bytes(Compiler(SCHEMA), text) < MAX_BYTES, text[:200]


@pytest.mark.slow
def test_random_texts():
    """Random and mutated texts compile or are refused in their place, with bounded work and within 50 MB."""
    run(scaled(3_000), seed=1)


@pytest.mark.slow
def test_many_other_texts():
    """The same for others."""
    run(scaled(5_000), seed=2)


# -- named monsters ---------------------------------------------------------------------------------------------------


#: Those that take longer than all others together.
LARGE = {
    *("240 ORed ANDs", "500 ORs", "400 LIKEs", "150 ANDed ORs", "LIKE ANY of 500", "commas", "literals"),
    *("as many values as allowed", "large repetitions", "nothing but comments", "300 residuals"),
}


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in MONSTERS]
)
def test_monsters(name: str):
    """A text made to hurt is compiled or refused for the reason it deserves, with bounded work and memory."""
    text, reason = MONSTERS[name]
    calls = count_calls(text, Compiler(SCHEMA), reason)
    print(f"{name}: {len(text):,} characters, {calls:,} calls")
    assert calls < min(BASE_CALLS + 10 * CALLS_PER_CHARACTER * len(text), MAX_CALLS)
    if len(text) > 10_000 and len(text) <= Limits().text:
        assert peak_bytes(Compiler(SCHEMA), text) < MAX_BYTES


def test_hostile_pattern_matches_without_backtracking():
    """RE2 runs `(a+)+$`: a matcher that backtracks would need 2 ** 100,000 steps for this text."""
    regex = rlike_regex("(a+)+$")
    assert type(regex._regex) is type(re2.compile("a"))
    assert not regex.is_found("a" * 100_000 + "b")
    assert regex.is_found("b" + "a" * 100_000)


@pytest.mark.parametrize("text", [None, 5, b"a = 1", ("a", "=")])
def test_no_text(text: object):
    """What is no text is refused like a bad text."""
    with pytest.raises(FilterError, match="the filter is empty" if text is None else "a filter is a text"):
        Compiler(SCHEMA).compile(text)  # type: ignore[arg-type]
