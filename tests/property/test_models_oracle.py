"""Topics, words and similarity, alone and mixed with other conditions under AND, OR and NOT, equal a naive evaluator."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence

import pytest
import snowballstemmer
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.models import (
    Condition,
    Event,
    below,
    cosine,
    joined,
    keywords,
    negated,
    phrase,
    similar,
    similar_text,
    topic,
)

from wherecast import Engine
from wherecast.index import expressions

LEVELS = st.sampled_from(["a", "b", "", "é", "$x", "$", "ab"])
NAMES = st.lists(LEVELS, min_size=1, max_size=5).map("/".join)


@st.composite
def patterns(draw: st.DrawFn) -> str:
    levels = draw(st.lists(st.one_of(LEVELS, st.just("+")), max_size=4))
    levels += ["#"] if draw(st.booleans()) or not levels else []
    return "/".join(levels) or "+"  # one empty level is the empty pattern, which is refused


#: Words that differ in case, in how an accent is written, in their stem or by a letter beyond the first eight; and what is between words.
WORDS = st.sampled_from(
    ["a", "A", "run", "Running", "runs", "é", "e\u0301", "É", "straße", "STRASSE", "internationally", "internationals", "x_1", "\u212a",
     "k", "日本", "हिन्दी", "l8tters9", "l8tters"]
)  # fmt: skip
BETWEEN = st.sampled_from([" ", "", "-", ", ", "\u2014", "\n", "\0", "\U0001f600"])
BODIES = st.lists(st.tuples(WORDS, BETWEEN), max_size=6).map(lambda pairs: "".join(a + b for a, b in pairs))
STEMS = {"body": str, "title": snowballstemmer.stemmer("english").stemWord}


@st.composite
def of_words(draw: st.DrawFn) -> Condition:
    name, wanted = draw(st.sampled_from(sorted(STEMS))), draw(st.lists(WORDS, min_size=1, max_size=3))
    if draw(st.booleans()):
        return phrase(name, wanted, STEMS[name])
    return keywords(name, wanted, is_any=draw(st.booleans()), stem=STEMS[name])


#: Numbers of 32 bits: small ones, of which many vectors are parallel or at right angles, and any.
NUMBERS = st.one_of(st.integers(-2, 2).map(float), st.floats(width=32, allow_nan=False, allow_infinity=False))
VECTORS = st.lists(NUMBERS, min_size=3, max_size=3)


@st.composite
def of_vectors(draw: st.DrawFn) -> Condition:
    """A limit that is often a similarity itself, or next to one."""
    vector = draw(VECTORS.filter(any))
    limit = draw(st.sampled_from([0.0, 0.5, 1.0, -1.0, 0.8, 1.5]))
    if draw(st.booleans()):
        limit = cosine(draw(VECTORS), vector) or limit
        limit = draw(st.sampled_from([limit, math.nextafter(limit, 2), math.nextafter(limit, -2)]))
    return similar("vector", vector, draw(st.sampled_from([">=", ">", "<", "<=", "="])), limit)


#: In 10 texts. Those of the other text are all equally rare.
FREQUENCIES = {"a": 10, "run": 7, "é": 1, "strasse": 0}


@st.composite
def of_texts(draw: st.DrawFn) -> Condition:
    name, wanted = draw(st.sampled_from(sorted(STEMS))), " ".join(draw(st.lists(WORDS, min_size=1, max_size=4)))
    op, limit = (
        draw(st.sampled_from([">=", ">", "<", "<="])),
        draw(st.sampled_from([0.0, 0.2, 0.5, 0.7071067811865475, 1.0, -0.5])),
    )
    texts, frequencies = (10, FREQUENCIES) if name == "body" else (0, {})
    return similar_text(name, wanted, op, limit, STEMS[name], texts, frequencies)


TOPICS = st.builds(topic, st.just("topic"), patterns())
PRICES = st.builds(below, st.just("price"), st.integers(0, 9))
#: Leaves of each model, and all of them.
LEAVES = {
    "topics": TOPICS,
    "words": of_words(),
    "vectors": of_vectors(),
    "texts": of_texts(),
    "all": st.one_of(TOPICS, of_words(), of_vectors(), of_texts(), PRICES),
}


def mixed(leaves: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    """Conditions under AND, OR and NOT."""

    def joins(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
        several = st.lists(inner, min_size=2, max_size=3)
        return st.one_of(
            st.builds(negated, inner),
            st.builds(lambda items, is_and: joined(items, is_and=is_and), several, st.booleans()),
        )

    return st.recursive(leaves, joins, max_leaves=5)


VALUES = {"topic": NAMES, "price": st.integers(0, 9), "body": BODIES, "title": BODIES, "vector": VECTORS}
EVENTS = st.fixed_dictionaries({}, optional={name: st.one_of(st.none(), values) for name, values in VALUES.items()})
SCHEMA = {
    "topic": "string",
    "price": "int",
    "body": {"type": "string", "frequencies": {"texts": 10, "words": FREQUENCIES}},
    "title": {"type": "string", "language": "english"},
    "vector": "vector(3)",
}


def check(engine: Engine, conditions: Sequence[Condition], events: Sequence[Event], removed: frozenset[int]) -> None:
    """The engine finds what the evaluator says, in a batch and one by one."""
    expected = [
        [i for i, c in enumerate(conditions) if i not in removed and c.value(event) is True] for event in events
    ]
    texts = [c.text for c in conditions]
    assert [sorted(ids) for ids in engine.match_batch(events).to_lists()] == expected, texts
    assert [sorted(engine.match(event)) for event in events] == expected, texts


@pytest.mark.sampled
@pytest.mark.parametrize("leaves", LEAVES)
def test_models_equal_the_naive_evaluator(leaves: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a batch and alone, after changes, after merging and after a snapshot; a filter's own text means the same.

    Two conditions are enough for a column, and two residuals for one that tests ask, so that columns and residuals both occur.
    """
    monkeypatch.setattr(expressions, "FEW_TEXT_USES", 2)
    monkeypatch.setattr("wherecast.index.build._ASKED_BY", 2.0)

    @examples(50)
    @given(st.lists(mixed(LEAVES[leaves]), min_size=1, max_size=8), st.lists(EVENTS, min_size=1, max_size=6), st.data())
    def run(conditions: list[Condition], events: list[Event], data: st.DataObject) -> None:
        engine = Engine(SCHEMA)
        half = len(conditions) // 2
        assert not engine.subscribe_many({i: c.text for i, c in enumerate(conditions[:half])}).quarantined
        check(engine, conditions[:half], events, frozenset())
        for i, condition in enumerate(conditions[half:], half):
            engine.subscribe(i, condition.text)
        check(engine, conditions, events, frozenset())
        removed = frozenset(data.draw(st.sets(st.sampled_from(range(len(conditions))))))
        for i in removed:
            engine.unsubscribe(i)
        check(engine, conditions, events, removed)
        engine.merge(everything=True)
        with tempfile.TemporaryDirectory() as folder:
            engine.save(folder)
            check(Engine.open(folder), conditions, events, removed)
        again = Engine(SCHEMA)
        again.subscribe_many({i: engine[i] for i in engine})
        check(again, conditions, events, removed)

    run()
