"""Conditions of the other models with a naive evaluator: what the tests of topics, words and vectors compare with.

A `Condition` is a text of the language and a function of an event that says what it is: True, False or None for NULL. AND, OR
and NOT join conditions by the rules of SQL. Nothing here uses the package.
"""

from __future__ import annotations

import math
import operator
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Event = Mapping[str, Any]


class Condition(NamedTuple):
    """A condition: its text and its value."""

    text: str
    value: Callable[[Event], bool | None]


def negated(item: Condition) -> Condition:
    def value(event: Event) -> bool | None:
        known = item.value(event)
        return None if known is None else not known

    return Condition(f"NOT ({item.text})", value)


def joined(items: Sequence[Condition], *, is_and: bool) -> Condition:
    def value(event: Event) -> bool | None:
        known = [item.value(event) for item in items]
        if (not is_and) in known:
            return not is_and
        return None if None in known else is_and

    return Condition((" AND " if is_and else " OR ").join(f"({item.text})" for item in items), value)


def below(name: str, bound: float) -> Condition:
    """`name < bound`."""
    return Condition(f"{name} < {bound}", lambda event: None if event.get(name) is None else event[name] < bound)


def topic(name: str, pattern: str) -> Condition:
    """`name MATCHES pattern`, by trying all ways to put levels for wildcards."""

    def value(event: Event) -> bool | None:
        found = event.get(name)
        if found is None:
            return None
        if found.startswith("$") and pattern[0] in "+#":
            return False
        return _fits(found.split("/"), pattern.split("/"))

    return Condition(f"{name} MATCHES '{pattern}'", value)


def _fits(levels: list[str], pattern: list[str]) -> bool:
    if not pattern:
        return not levels
    if pattern == ["#"]:
        return True
    return bool(levels) and pattern[0] in ("+", levels[0]) and _fits(levels[1:], pattern[1:])


def _words(text: str) -> list[str]:
    """Runs of letters, marks, numbers and connectors, folded, character by character."""
    words, last = [], ""
    for character in [*text, " "]:
        kind = unicodedata.category(character)
        if kind[0] in "LMN" or kind == "Pc":
            last += character
        elif last:
            words.append(unicodedata.normalize("NFC", unicodedata.normalize("NFD", last).casefold()))
            last = ""
    return words


def cosine(own: Sequence[float], other: Sequence[float]) -> float | None:
    """As docs/language.md says; the numbers are floats of 32 bits."""
    dot = squares = others = 0.0
    for x, y in zip(own, other, strict=True):
        dot += x * y
        squares += x * x
        others += y * y
    return max(-1.0, min(1.0, dot / math.sqrt(squares * others))) if squares and others else None


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, ">": operator.gt, "<": operator.lt, "<=": operator.le, "=": operator.eq,
}  # fmt: skip


def similar(name: str, vector: Sequence[float], op: str, limit: float) -> Condition:
    """`SIMILAR(name, ARRAY(...)) op limit`."""

    def value(event: Event) -> bool | None:
        known = None if event.get(name) is None else cosine(event[name], vector)
        return None if known is None else _COMPARE[op](known, limit)

    return Condition(f"SIMILAR({name}, ARRAY({', '.join(map(repr, vector))})) {op} {limit!r}D", value)


def similar_text(
    name: str,
    wanted: str,
    op: str,
    limit: float,
    stem: Callable[[str], str],
    texts: int,
    frequencies: Mapping[str, int],
) -> Condition:
    """`SIMILAR(name, 'words') op limit`, as docs/language.md says."""

    def weigh(text: str) -> dict[str, int]:
        words = [stem(word) for word in _words(text)]
        rarity = {word: 1 + round(1000 * math.log((1 + texts) / (1 + frequencies.get(word, 0)))) for word in words}
        return {word: (1 + int(math.log2(words.count(word)))) * rarity[word] for word in words}

    def value(event: Event) -> bool | None:
        own, other = weigh(event.get(name) or ""), weigh(wanted)
        if not own:
            return None
        dot = sum(own[word] * other[word] for word in own.keys() & other.keys())
        squares, others = (sum(weight**2 for weight in words.values()) for words in (own, other))
        return _COMPARE[op](min(1.0, dot / math.sqrt(float(squares) * float(others))), limit)

    return Condition(f"SIMILAR({name}, '{wanted}') {op} {limit!r}D", value)


def keywords(name: str, wanted: Sequence[str], *, is_any: bool, stem: Callable[[str], str]) -> Condition:
    """`KEYWORDS(name, ...)`, or ANY_KEYWORD."""

    def value(event: Event) -> bool | None:
        if event.get(name) is None:
            return None
        there = {stem(word) for word in _words(event[name])}
        found = [stem(_words(word)[0]) in there for word in wanted]
        return any(found) if is_any else all(found)

    listed = ", ".join(f"'{word}'" for word in wanted)
    return Condition(f"{'ANY_KEYWORD' if is_any else 'KEYWORDS'}({name}, {listed})", value)


def phrase(name: str, wanted: Sequence[str], stem: Callable[[str], str]) -> Condition:
    """`PHRASE(name, 'x y')`."""

    def value(event: Event) -> bool | None:
        if event.get(name) is None:
            return None
        there = [stem(word) for word in _words(event[name])]
        sought = [stem(word) for word in _words(" ".join(wanted))]
        return any(there[i : i + len(sought)] == sought for i in range(len(there)))

    return Condition(f"PHRASE({name}, '{' '.join(wanted)}')", value)
