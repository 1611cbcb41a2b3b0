"""Random filters of every kind, each with its truth over a fixed pool of events, worked out in plain Python.

A filter becomes a text for the engine and a *mask*: bit n says whether event n of the pool satisfies it. SQL's third truth
value is None.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from typing import Any, NamedTuple

SCHEMA = {"a": "integer", "b": "integer", "x": "float", "s": "string", "tags": "array<string>", "t": "timestamp"}
#: Filters that no engine takes.
BAD = ["a >", "nothing = 1", "a LIKE 'x'", "", "array_contains(a, 1)", "s = 'open", None, 7]

_START = dt.datetime(2024, 6, 1, tzinfo=dt.UTC)
_WORDS = ["", "a", "ab", "abc", "b", "ba", "cab", "d"]
Event = dict[str, Any]
Truth = bool | None


class Filter(NamedTuple):
    """What a subscription asks for."""

    text: str
    mask: int


class _Node(NamedTuple):
    text: str
    holds: Callable[[Event], Truth]


def draw_event(rng: random.Random) -> Event:
    event = {
        "a": rng.randint(0, 9),
        "b": rng.randint(0, 9),
        "x": rng.choice([0.0, 0.5, 1.5, 3.0, 7.25]),
        "s": rng.choice(_WORDS),
        "tags": rng.sample(["a", "b", "c", None], rng.randint(0, 3)),
        "t": _START + dt.timedelta(hours=rng.randint(0, 9)),
    }
    return {name: value for name, value in event.items() if rng.random() < 0.9}


#: What everybody is asked about.
POOL = [draw_event(random.Random(f"event {number}")) for number in range(64)]


def draw_filter(rng: random.Random) -> Filter:
    clauses = [
        _junction("AND", [_term(rng) for _ in range(rng.randint(1, 3))]) for _ in range(rng.choice([1, 1, 2, 3]))
    ]
    node = _junction("OR", clauses)
    mask = sum(1 << number for number, event in enumerate(POOL) if node.holds(event) is True)
    return Filter(node.text, mask)


def _term(rng: random.Random) -> _Node:
    node = rng.choice(_KINDS)(rng)
    return _negation(node) if rng.random() < 0.15 else node


def _junction(word: str, nodes: list[_Node]) -> _Node:
    """AND and OR of SQL: one False, or one True, decides; else one NULL does."""
    decides = word == "OR"

    def holds(event: Event) -> Truth:
        truths = [node.holds(event) for node in nodes]
        return decides if decides in truths else None if None in truths else not decides

    return _Node(f" {word} ".join(f"({node.text})" for node in nodes), holds)


def _negation(node: _Node) -> _Node:
    def holds(event: Event) -> Truth:
        truth = node.holds(event)
        return None if truth is None else not truth

    return _Node(f"NOT ({node.text})", holds)


def _about(name: str, text: str, test: Callable[[Any], Truth]) -> _Node:
    """A predicate of one attribute, which is NULL where that is."""
    return _Node(text, lambda event: None if event.get(name) is None else test(event[name]))


def _comparison(rng: random.Random) -> _Node:
    name, n = rng.choice("ab"), rng.randint(0, 9)
    sign, test = rng.choice(
        [
            ("=", lambda v: v == n),
            ("<>", lambda v: v != n),
            ("<", lambda v: v < n),
            (">=", lambda v: v >= n),
        ]
    )
    return _about(name, f"{name} {sign} {n}", test)


def _range(rng: random.Random) -> _Node:
    low, high = rng.randint(0, 9), rng.randint(0, 9)
    return _about("a", f"a BETWEEN {low} AND {high}", lambda v: low <= v <= high)


def _members(rng: random.Random) -> _Node:
    chosen = rng.sample(range(10), rng.randint(1, 4))
    return _about("b", f"b IN ({', '.join(map(str, chosen))})", lambda v: v in chosen)


def _fraction(rng: random.Random) -> _Node:
    limit = rng.choice([0.25, 0.5, 2.5, 7.0])
    return _about("x", f"x < {limit}", lambda v: v < limit)


def _word(rng: random.Random) -> _Node:
    word = rng.choice(_WORDS)
    return _about("s", f"s = '{word}'", lambda v: v == word)


def _like(rng: random.Random) -> _Node:
    part = rng.choice(["a", "b", "ab", "c"])
    pattern, test = rng.choice(
        [
            (f"{part}%", lambda v: v.startswith(part)),
            (f"%{part}", lambda v: v.endswith(part)),
            (f"%{part}%", lambda v: part in v),
            (f"_{part}%", lambda v: v[1:].startswith(part) and len(v) > 0),
        ]
    )
    return _about("s", f"s LIKE '{pattern}'", test)


def _tag(rng: random.Random) -> _Node:
    tag = rng.choice("abcd")
    return _about(
        "tags", f"array_contains(tags, '{tag}')", lambda v: True if tag in v else None if None in v else False
    )


def _moment(rng: random.Random) -> _Node:
    moment = _START + dt.timedelta(hours=rng.randint(0, 9))
    return _about("t", f"t >= TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S}'", lambda v: v >= moment)


def _missing(rng: random.Random) -> _Node:
    name = rng.choice(["b", "s", "tags"])
    return _Node(f"{name} IS NULL", lambda event: event.get(name) is None)


def _of_two(rng: random.Random) -> _Node:
    n = rng.randint(0, 18)

    def test(event: Event, holds: Callable[[int, int], bool]) -> Truth:
        a, b = event.get("a"), event.get("b")
        return None if a is None or b is None else holds(a, b)

    return rng.choice(
        [
            _Node(f"a + b = {n}", lambda event: test(event, lambda a, b: a + b == n)),
            _Node("a > b", lambda event: test(event, lambda a, b: a > b)),
        ]
    )


_KINDS = [
    *(_comparison, _comparison, _comparison, _range, _members),
    *(_fraction, _word, _like, _tag, _moment, _missing, _of_two),
]
