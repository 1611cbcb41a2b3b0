"""Sets of filters as people write them, for measuring how fast texts compile: their shapes hardly repeat.

- `wide`: three terms over 200 optional attributes, some much more usual than others
- `either`: an OR of four ANDs, with a term that excludes something around every third
- `mixed`: AND, OR, NOT, IN, LIKE and BETWEEN, nested; 10,000 of them have about 4,000 shapes
"""

# ruff: noqa: S311 - nothing here is a secret

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple


class TextSet(NamedTuple):
    """Filters and the schema that they are about."""

    schema: dict[str, str]
    texts: list[str]


def make_wide(n: int, seed: int = 12) -> TextSet:
    """Equalities and ranges, each on an attribute of its own."""
    draw, attributes = random.Random(seed), range(200)
    weights = list(accumulate((k + 1) ** -0.8 for k in attributes))

    def term(a: int) -> str:
        low = draw.randrange(100 if a % 2 == 0 else 1_000)
        return f"a{a} = {low}" if a % 2 == 0 else f"a{a} BETWEEN {low} AND {low + draw.randint(1, 59)}"

    texts = []
    for _ in range(n):
        chosen: dict[int, None] = {}
        while len(chosen) < 3:
            chosen[draw.choices(attributes, cum_weights=weights)[0]] = None
        texts.append(" AND ".join(map(term, chosen)))
    return TextSet({f"a{a}": "bigint" for a in attributes}, texts)


def make_either(n: int, seed: int = 13) -> TextSet:
    """Pairs of an equality and a bound."""
    draw = random.Random(seed)

    def pair() -> str:
        a, b = draw.sample(range(10), 2)
        return f"(b{a} = {draw.randrange(200)} AND b{b} > {draw.randint(150, 199)})"

    texts = [" OR ".join(pair() for _ in range(4)) for _ in range(n)]
    texts[::3] = [f"({t}) AND b{draw.randrange(10)} <> {draw.randrange(200)}" for t in texts[::3]]
    return TextSet({f"b{a}": "bigint" for a in range(10)}, texts)


def make_mixed(n: int, seed: int = 14) -> TextSet:
    """Rules of a desk, or of a market's supervision."""
    draw = random.Random(seed)
    schema = {
        "symbol": "string",
        "venue": "string",
        "country": "string",
        "note": "string",
        "price": "double",
        "volume": "bigint",
        "change": "double",
        "rating": "integer",
        "active": "boolean",
        "day": "date",
    }
    return TextSet(schema, [_rule(draw, 2) for _ in range(n)])


def _rule(draw: random.Random, depth: int) -> str:
    """A term, or rules under a connective."""
    chance = draw.random()
    if depth == 0 or chance < 0.5:
        return draw.choice(_TERMS)(draw)
    if chance > 0.95:
        return f"NOT ({_rule(draw, depth - 1)})"
    parts = [_rule(draw, depth - 1) for _ in range(draw.choice((2, 2, 3)))]
    word = " AND " if chance < 0.8 else " OR "
    return word.join(f"({part})" if " OR " in part or " AND " in part else part for part in parts)


def _listed(draw: random.Random, letter: str, of: int) -> str:
    return ", ".join(f"'{letter}{v}'" for v in sorted(draw.sample(range(of), draw.randint(2, 5))))


#: Kinds of terms of `mixed`.
_TERMS: tuple[Callable[[random.Random], str], ...] = (
    lambda draw: f"symbol = 'S{draw.randrange(5_000):05d}'",
    lambda draw: f"symbol LIKE 'S{draw.randrange(100):02d}%'",
    lambda draw: f"price {draw.choice(('<', '>='))} {draw.randint(1, 99_999) / 100}",
    lambda draw: f"volume > {draw.randrange(1_000_000)}",
    lambda draw: f"venue IN ({_listed(draw, 'V', 40)})",
    lambda draw: f"country NOT IN ({_listed(draw, 'C', 100)})",
    lambda draw: f"note LIKE '%w{draw.randrange(2_000):04d}%'",
    lambda draw: f"note NOT LIKE '%w{draw.randrange(2_000):04d}'",
    lambda draw: f"change BETWEEN {draw.randint(-50, -1) / 10} AND {draw.randint(1, 50) / 10}",
    lambda draw: f"rating <> {draw.randrange(10)}",
    lambda draw: draw.choice(("active", "venue IS NULL")),
    lambda draw: f"day >= DATE '2024-{draw.randint(1, 12):02d}-{draw.randint(1, 28):02d}'",
)


#: Sets by name.
TEXT_SETS: dict[str, Callable[[int], TextSet]] = {"wide": make_wide, "either": make_either, "mixed": make_mixed}
