"""Bad input: whatever the text, it compiles or gives a positioned error, in bounded time and memory."""

from __future__ import annotations

import random
import time
import tracemalloc

import pytest

from wherecast.errors import FilterError
from wherecast.language.compile import Compiler
from wherecast.language.schema import Schema
from wherecast.language.sql import Limits

SCHEMA = Schema.of(
    {
        "a": "integer",
        "b": "integer",
        "x": "boolean",
        "name": "string",
        "price": "double",
        "day": "date",
        "ts": "timestamp",
        "tags": "array<string>",
        "quote": {"type": "struct", "fields": {"bid": "double", "ask": "double"}},
        "order": "integer",
    }
)
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
)
TOKENS = (
    *"a b x name price day ts tags quote.bid order nosuch `a` `a b` ( ) ( ) , , . [ ] { } ; + - * / % = == <> != < <= > >= <=> ! ~ & | ^ && || := :: : ? @ $ # \\ ' \" ` -- /* */ /*+".split(),
    *"AND OR NOT IN IS NULL TRUE FALSE LIKE ILIKE RLIKE BETWEEN DATE TIMESTAMP CASE WHEN THEN ELSE END SELECT FROM EXISTS CAST AS INTERVAL DISTINCT ANY ALL ESCAPE COLLATE OVER UNION".split(),
    *"lower( upper( length( abs( size( contains( startswith( array_contains( count( foo( 1 0 -1 1.5 .5 1e9 1e999 12L 5S 0x1F 1.2.3 00 'x' '' 'it''s' '%' '2024-01-31' \"q\" r'x' X'00'".split(),
    "\n",
    "\t",
    "\0",
    "\ud800",
    "é",
    "😀",
    "\u2028",
    "\u00a0",
)
MAX_SECONDS = 0.05
MAX_BYTES = 50_000_000


def random_texts(count: int, seed: int) -> list[str]:
    """Mutated valid texts, token soup, Unicode noise and bytes read as Latin-1; the same for the same seed."""
    draw = random.Random(seed)
    return [draw.choices(_MAKERS, _WEIGHTS)[0](draw) for _ in range(count)]


def _mutated(draw: random.Random) -> str:
    pieces = list(draw.choice(VALID)) if draw.random() < 0.5 else draw.choice(VALID).replace("(", " ( ").split(" ")
    joint = "" if all(len(p) == 1 for p in pieces) else " "
    for _ in range(draw.randint(1, 4)):
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
    return piece * (draw.choice((100, 2_000, 65_536)) // len(piece))


_MAKERS = (_mutated, _soup, _unicode, _latin, _long)
_WEIGHTS = (60, 25, 7, 7, 1)


def check(compiler: Compiler, text: str) -> None:
    """The text compiles, or its error has a reason, a message and a place inside the text."""
    try:
        filters = compiler.compile(text)
    except FilterError as error:
        lines = text.split("\n")
        assert error.reason in FilterError.REASONS
        assert error.message.strip()
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(lines[error.line - 1]) + 1
        assert 0 <= error.start <= len(text)
        assert error.start < error.end
        assert error.caret().count("\n") == 1
    else:
        assert filters.n_filters == 1


def seconds(compiler: Compiler, text: str) -> float:
    """How long a text takes: the best of three where the first try is slow, for the machine may be busy."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        check(compiler, text)
        best = min(best, time.perf_counter() - start)
        if best < MAX_SECONDS / 2:
            break
        compiler = Compiler(compiler.schema, compiler.limits)
    return best


def peak_bytes(compiler: Compiler, text: str) -> int:
    tracemalloc.start()
    try:
        check(compiler, text)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def run(count: int, seed: int) -> None:
    compiler = Compiler(SCHEMA)
    slowest, text_of_it, long_ones = 0.0, "", []
    compiled = 0
    for text in random_texts(count, seed):
        taken = seconds(compiler, text)
        if taken > slowest:
            slowest, text_of_it = taken, text
        if len(text) > 5_000:
            long_ones.append(text)
    compiled = count - len(compiler.compile_many(random_texts(1_000, seed)).errors)
    print(f"slowest: {slowest * 1e3:.1f} ms, {len(text_of_it)} characters: {text_of_it[:80]!r}")
    assert compiled > 0
    assert slowest < MAX_SECONDS, text_of_it[:200]
    for text in sorted(long_ones, key=len)[-20:]:
        assert peak_bytes(Compiler(SCHEMA), text) < MAX_BYTES, text[:200]


def test_twenty_thousand_texts():
    """Random and mutated texts compile or are refused in their place, each within 50 ms and 50 MB."""
    run(20_000, seed=1)


@pytest.mark.slow
def test_hundred_thousand_texts():
    """The same for a hundred thousand others."""
    run(100_000, seed=2)
