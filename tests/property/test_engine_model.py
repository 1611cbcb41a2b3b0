"""An engine through any sequence of changes equals a fresh scan over what is registered."""

from __future__ import annotations

import random
import tempfile
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from wherecast import Engine, SubscriptionError
from wherecast.engine import log
from wherecast.matchers.registry import MATCHERS

SCHEMA = {"a": "integer", "b": "integer", "x": "float", "s": "string", "tags": "array<string>", "f": "boolean"}
TERMS = [
    "a = {i}", "a <> {i}", "a < {i}", "a >= {i}", "a IN ({i}, {j}, 7)", "a NOT IN ({i}, {j})", "a BETWEEN {i} AND {j}",
    "b = {i}", "b > {i}", "b IS NULL", "b IS NOT NULL", "b <=> {i}", "x < {i}.5", "x >= {i}", "x = {j}",
    "s = '{c}'", "s > '{c}'", "s LIKE '{c}%'", "s LIKE '%{c}%'", "s <> '{c}'", "s IN ('{c}', 'zz')",
    "array_contains(tags, '{c}')", "NOT array_contains(tags, '{c}')", "f", "NOT f", "a > b", "a + b = {i}", "TRUE",
]  # fmt: skip


def random_filter(rng: random.Random) -> str:
    def term() -> str:
        return rng.choice(TERMS).format(i=rng.randint(0, 6), j=rng.randint(0, 6), c=rng.choice("abcd"))

    parts = [" AND ".join(term() for _ in range(rng.randint(1, 3))) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    return " OR ".join(parts)


def random_event(rng: random.Random) -> dict[str, Any]:
    values = {
        "a": rng.randint(0, 7),
        "b": rng.randint(0, 7),
        "x": rng.choice([0.0, 1.5, 3.0, 4.25, 6.0, float("nan"), float("inf")]),
        "s": rng.choice(["", "a", "ab", "b", "cc", "d", "zz"]),
        "tags": rng.sample(["a", "b", "c", None], rng.randint(0, 3)),
        "f": rng.random() < 0.5,
    }
    return {name: value for name, value in values.items() if rng.random() < 0.85}


def expected(texts: dict[Any, str], events: list[dict[str, Any]]) -> list[set[Any]]:
    reference = Engine(SCHEMA, matcher="scan")
    reference.subscribe_many(texts)
    return [set(ids) for ids in reference.match_batch(events)]


class EngineModel(RuleBasedStateMachine):
    """Random changes against a dictionary of texts."""

    matcher = "scan"

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.texts: dict[Any, str] = {}
        self.engine = Engine(SCHEMA, matcher=self.matcher)

    def new_id(self) -> Any:
        return self.rng.choice([self.rng.randint(0, 30), f"id{self.rng.randint(0, 30)}"])

    @rule()
    def subscribe(self) -> None:
        id, text = self.new_id(), random_filter(self.rng)
        if id in self.texts:
            with pytest.raises(SubscriptionError):
                self.engine.subscribe(id, text)
        else:
            self.engine.subscribe(id, text)
            self.texts[id] = text

    @rule()
    def replace(self) -> None:
        id, text = self.new_id(), random_filter(self.rng)
        self.engine.subscribe(id, text, replace=True)
        self.texts[id] = text

    @rule(n=st.integers(1, 20))
    def subscribe_many(self, n: int) -> None:
        batch = {self.new_id(): random_filter(self.rng) for _ in range(n)}
        taken = [id for id in batch if id in self.texts]
        result = self.engine.subscribe_many(batch)
        assert sorted(map(str, (q.id for q in result.quarantined))) == sorted(map(str, taken))
        self.texts.update({id: text for id, text in batch.items() if id not in self.texts})

    @rule(n=st.integers(1, 20))
    def replace_many(self, n: int) -> None:
        batch = {self.new_id(): random_filter(self.rng) for _ in range(n)}
        assert not self.engine.subscribe_many(batch, replace=True).quarantined
        self.texts.update(batch)

    @precondition(lambda self: self.texts)
    @rule()
    def unsubscribe(self) -> None:
        id = self.rng.choice(list(self.texts))
        self.engine.unsubscribe(id)
        del self.texts[id]

    @rule()
    def unsubscribe_unknown(self) -> None:
        with pytest.raises(SubscriptionError):
            self.engine.unsubscribe("nobody")

    @rule()
    def merge(self) -> None:
        self.engine.merge(everything=True)

    @rule()
    def save_and_open(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.engine.save(folder)
            version = self.engine.version
            self.engine = Engine.open(folder)
            assert self.engine.version == version

    @rule(n=st.integers(1, 30))
    def plan(self, n: int) -> None:
        self.engine.plan([random_event(self.rng) for _ in range(n)])

    @rule(n=st.integers(1, 8))
    def match(self, n: int) -> None:
        events = [random_event(self.rng) for _ in range(n)]
        wanted = expected(self.texts, events)
        matches = self.engine.match_batch(events)
        assert [set(ids) for ids in matches] == wanted
        assert matches.counts().tolist() == [len(w) for w in wanted]
        assert self.engine.count(events).tolist() == [len(w) for w in wanted]
        one = self.engine.match(events[0])
        assert set(one) == wanted[0]
        assert len(one) == len(wanted[0])

    @invariant()
    def sizes_agree(self) -> None:
        if hasattr(self, "engine"):
            assert len(self.engine) == len(self.texts)
            assert set(self.engine) == set(self.texts)


@pytest.fixture(autouse=True)
def short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of four entries makes segments, and so merges, frequent."""
    monkeypatch.setattr(log, "LOG_LIMIT", 4)
    monkeypatch.setattr("wherecast.engine.engine.LOG_LIMIT", 4)


@pytest.mark.parametrize("matcher", sorted(MATCHERS))
def test_any_sequence_of_changes(matcher: str) -> None:
    """Matches, counts and sizes are those of the registered texts after any sequence of changes."""
    model = type(f"EngineModel_{matcher}", (EngineModel,), {"matcher": matcher})
    model.TestCase.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)
    model.TestCase("runTest").runTest()
