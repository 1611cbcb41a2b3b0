"""Topics, alone and mixed with other conditions under AND, OR and NOT, equal a naive evaluator."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.models import Condition, Event, below, joined, negated, topic

from wherecast import Engine

LEVELS = st.sampled_from(["a", "b", "", "é", "$x", "$", "ab"])
NAMES = st.lists(LEVELS, min_size=1, max_size=5).map("/".join)


@st.composite
def patterns(draw: st.DrawFn) -> str:
    levels = draw(st.lists(st.one_of(LEVELS, st.just("+")), max_size=4))
    levels += ["#"] if draw(st.booleans()) or not levels else []
    return "/".join(levels) or "+"  # one empty level is the empty pattern, which is refused


TOPICS = st.builds(topic, st.just("topic"), patterns())
PRICES = st.builds(below, st.just("price"), st.integers(0, 9))
#: Leaves of each model, and all of them.
LEAVES = {"topics": TOPICS, "topics and numbers": st.one_of(TOPICS, PRICES)}


def mixed(leaves: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    """Conditions under AND, OR and NOT."""

    def joins(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
        several = st.lists(inner, min_size=2, max_size=3)
        return st.one_of(
            st.builds(negated, inner),
            st.builds(lambda items, is_and: joined(items, is_and=is_and), several, st.booleans()),
        )

    return st.recursive(leaves, joins, max_leaves=5)


EVENTS = st.fixed_dictionaries(
    {}, optional={"topic": st.one_of(st.none(), NAMES), "price": st.one_of(st.none(), st.integers(0, 9))}
)
SCHEMA = {"topic": "string", "price": "int"}


def check(engine: Engine, conditions: Sequence[Condition], events: Sequence[Event], removed: frozenset[int]) -> None:
    """The engine finds what the evaluator says, in a batch and one by one."""
    expected = [
        [i for i, c in enumerate(conditions) if i not in removed and c.value(event) is True] for event in events
    ]
    texts = [c.text for c in conditions]
    assert [sorted(ids) for ids in engine.match_batch(events).to_lists()] == expected, texts
    assert [sorted(engine.match(event)) for event in events] == expected, texts


@pytest.mark.parametrize("leaves", LEAVES)
def test_models_equal_the_naive_evaluator(leaves: str) -> None:
    """In a batch and alone, after changes, after merging and after a snapshot; a filter's own text means the same."""

    @examples(60)
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
