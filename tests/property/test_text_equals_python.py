"""Text search through the index answers as Python's own string methods do, whatever surrounds it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from wherecast import Engine

NAMES = ("a", "b")
#: Few letters, so that literals overlap and occur; two that fold in a special way, one of several bytes.
LETTERS = st.text("abAB %_'ß日İ\n", max_size=6)
Event = dict[str, str | None]
#: True, False or None for unknown.
Truth = bool | None


class Condition(NamedTuple):
    """A filter and what it means."""

    text: str
    holds: Callable[[Event], Truth]


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def escaped(literal: str) -> str:
    """A literal as a part of a LIKE pattern."""
    return re.sub(r"([%_\\])", r"\\\1", literal)


def of_text(name: str, text: str, test: Callable[[str], bool]) -> Condition:
    def holds(event: Event) -> Truth:
        value = event[name]
        return None if value is None else test(value)

    return Condition(text, holds)


@st.composite
def likes(draw: st.DrawFn) -> Condition:
    """LIKE and ILIKE with any arrangement of literals and wildcards."""
    name, folds = draw(st.sampled_from(NAMES)), draw(st.booleans())
    parts = draw(st.lists(st.one_of(st.sampled_from(("%", "%", "_")), LETTERS.map(lambda t: (t,))), max_size=5))
    pattern = "".join(p if isinstance(p, str) else escaped(p[0]) for p in parts)
    pieces = [
        {"%": ".*", "_": "."}[p] if isinstance(p, str) else re.escape(p[0].lower() if folds else p[0]) for p in parts
    ]
    regex = re.compile("".join(pieces), re.DOTALL)
    word = "ILIKE" if folds else "LIKE"
    return of_text(
        name,
        f"{name} {word} {quoted(pattern)}",
        lambda v: regex.fullmatch(v.lower() if folds else v) is not None,
    )


@st.composite
def calls(draw: st.DrawFn) -> Condition:
    """contains, startswith, endswith, = and IN, of a text or of a text in lower case."""
    name, lower, literal = draw(st.sampled_from(NAMES)), draw(st.booleans()), draw(LETTERS)
    item = f"lower({name})" if lower else name
    kind = draw(st.sampled_from(("contains", "startswith", "endswith", "=", "IN")))

    def read(value: str) -> str:
        return value.lower() if lower else value

    if kind == "=":
        return of_text(name, f"{item} = {quoted(literal)}", lambda v: read(v) == literal)
    if kind == "IN":
        others = draw(st.lists(LETTERS, min_size=1, max_size=3))
        return of_text(name, f"{item} IN ({', '.join(map(quoted, others))})", lambda v: read(v) in others)
    test = {"contains": str.__contains__, "startswith": str.startswith, "endswith": str.endswith}[kind]
    return of_text(name, f"{kind}({item}, {quoted(literal)})", lambda v: test(read(v), literal))


REGEXES = ("a", "ab?", "a.*b", "(a|b)A", "[ab]+A", "^a", "b$", "a{2}b", "(ab)+", "(?:aA)b", "A|B", "a\\%b")


@st.composite
def regexes(draw: st.DrawFn) -> Condition:
    """RLIKE; these patterns mean the same in Java and in Python on texts without line ends."""
    name, pattern = draw(st.sampled_from(NAMES)), draw(st.sampled_from(REGEXES))
    folds = draw(st.booleans())
    written = f"(?i){pattern}" if folds else pattern
    regex = re.compile(pattern, re.ASCII | (re.IGNORECASE if folds else 0))
    return of_text(name, f"{name} RLIKE {quoted(written)}", lambda v: regex.search(v.replace("\n", " ")) is not None)


def negated(inner: Condition) -> Condition:
    def holds(event: Event) -> Truth:
        found = inner.holds(event)
        return None if found is None else not found

    return Condition(f"NOT ({inner.text})", holds)


def joined(word: str, inner: list[Condition]) -> Condition:
    """AND and OR of three-valued logic: one item may decide, else the unknown wins."""

    def holds(event: Event) -> Truth:
        found = [each.holds(event) for each in inner]
        decides = word == "OR"
        return decides if decides in found else None if None in found else not decides

    return Condition(f" {word} ".join(f"({each.text})" for each in inner), holds)


conditions = st.recursive(
    st.one_of(likes(), calls(), regexes()),
    lambda inner: st.one_of(
        inner.map(negated),
        st.builds(joined, st.sampled_from(("AND", "OR")), st.lists(inner, min_size=2, max_size=4)),
    ),
    max_leaves=6,
)
texts = st.one_of(
    st.none(),
    LETTERS.map(lambda t: t.replace("\n", " ")),
    st.lists(LETTERS).map("".join).map(lambda t: t.replace("\n", " ")),
)
events = st.fixed_dictionaries(dict.fromkeys(NAMES, texts))


@examples(60)
@given(st.lists(conditions, min_size=1, max_size=12), st.lists(events, min_size=1, max_size=12))
def test_text_search(filters: list[Condition], batch: list[Event]) -> None:
    """Every filter matches the events that it means, in a batch, alone, and after a merge."""
    engine = Engine(dict.fromkeys(NAMES, "string"))
    half = len(filters) // 2
    engine.subscribe_many({i: f.text for i, f in enumerate(filters[:half])})
    for i, each in enumerate(filters[half:], half):
        engine.subscribe(i, each.text)
    wanted = [[i for i, f in enumerate(filters) if f.holds(event) is True] for event in batch]
    assert [sorted(ids) for ids in engine.match_batch(batch).to_lists()] == wanted
    assert [sorted(engine.match(event)) for event in batch] == wanted
    engine.merge(everything=True)
    assert [sorted(ids) for ids in engine.match_batch(batch).to_lists()] == wanted
