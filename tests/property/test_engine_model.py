"""An engine through any sequence of changes equals a fresh scan over what is registered."""

from __future__ import annotations

import tempfile
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples

from wherecast import Engine, SubscriptionError
from wherecast.engine import log

SCHEMA = {"a": "integer", "b": "integer", "x": "float", "s": "string", "tags": "array<string>", "f": "boolean"}
TERMS = [
    "a = {i}", "a <> {i}", "a < {i}", "a >= {i}", "a IN ({i}, {j}, 7)", "a NOT IN ({i}, {j})", "a BETWEEN {i} AND {j}",
    "b = {i}", "b > {i}", "b IS NULL", "b IS NOT NULL", "b <=> {i}", "x < {i}.5", "x >= {i}", "x = {j}",
    "s = '{c}'", "s > '{c}'", "s LIKE '{c}%'", "s LIKE '%{c}%'", "s <> '{c}'", "s IN ('{c}', 'zz')",
    "array_contains(tags, '{c}')", "NOT array_contains(tags, '{c}')", "f", "NOT f", "a > b", "a + b = {i}", "TRUE",
]  # fmt: skip


SMALL = st.integers(0, 6)
TERM = st.builds(
    lambda term, i, j, c: term.format(i=i, j=j, c=c), st.sampled_from(TERMS), SMALL, SMALL, st.sampled_from("abcd")
)
FILTER = st.lists(st.lists(TERM, min_size=1, max_size=3).map(" AND ".join), min_size=1, max_size=3).map(" OR ".join)
ID = st.integers(0, 30) | st.integers(0, 30).map("id{}".format)
BATCH = st.dictionaries(ID, FILTER, min_size=1, max_size=20)
#: Any attribute may be missing.
EVENT = st.fixed_dictionaries(
    {},
    optional={
        "a": st.integers(0, 7),
        "b": st.integers(0, 7),
        "x": st.sampled_from([0.0, 1.5, 3.0, 4.25, 6.0, float("nan"), float("inf")]),
        "s": st.sampled_from(["", "a", "ab", "b", "cc", "d", "zz"]),
        "tags": st.lists(st.sampled_from(["a", "b", "c", None]), max_size=3, unique=True),
        "f": st.booleans(),
    },
)


def expected(texts: dict[Any, str], events: list[dict[str, Any]]) -> list[set[Any]]:
    reference = Engine(SCHEMA, matcher="scan")
    reference.subscribe_many(texts)
    return [set(ids) for ids in reference.match_batch(events)]


class EngineModel(RuleBasedStateMachine):
    """Random changes against a dictionary of texts."""

    matcher = "scan"

    @initialize()
    def start(self) -> None:
        self.texts: dict[Any, str] = {}
        self.engine = Engine(SCHEMA, matcher=self.matcher)

    @rule(id=ID, text=FILTER)
    def subscribe(self, id: Any, text: str) -> None:
        if id in self.texts:
            with pytest.raises(SubscriptionError):
                self.engine.subscribe(id, text)
        else:
            self.engine.subscribe(id, text)
            self.texts[id] = text

    @rule(id=ID, text=FILTER)
    def replace(self, id: Any, text: str) -> None:
        self.engine.subscribe(id, text, replace=True)
        self.texts[id] = text

    @rule(batch=BATCH)
    def subscribe_many(self, batch: dict[Any, str]) -> None:
        taken = [id for id in batch if id in self.texts]
        result = self.engine.subscribe_many(batch)
        assert sorted(map(str, (q.id for q in result.quarantined))) == sorted(map(str, taken))
        self.texts.update({id: text for id, text in batch.items() if id not in self.texts})

    @rule(batch=BATCH)
    def replace_many(self, batch: dict[Any, str]) -> None:
        assert not self.engine.subscribe_many(batch, replace=True).quarantined
        self.texts.update(batch)

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(list(self.texts)))
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

    @rule(events=st.lists(EVENT, min_size=1, max_size=30))
    def plan(self, events: list[dict[str, Any]]) -> None:
        self.engine.plan(events)

    @rule(events=st.lists(EVENT, min_size=1, max_size=8))
    def match(self, events: list[dict[str, Any]]) -> None:
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
    """A log of four entries makes segments, and so merges, frequent; small ones are put in order like large ones."""
    monkeypatch.setattr(log, "LOG_LIMIT", 4)
    monkeypatch.setattr("wherecast.engine.segments.LOG_LIMIT", 4)
    monkeypatch.setattr("wherecast.engine.segment._FAR_APART", 1)


@pytest.mark.parametrize("matcher", ["adaptive", "scan"])
def test_any_sequence_of_changes(matcher: str) -> None:
    """Matches, counts and sizes are those of the registered texts after any sequence of changes.

    An engine treats all matchers alike: it builds, stores and opens them. The others are compared with the naive oracle.
    """
    model = type(f"EngineModel_{matcher}", (EngineModel,), {"matcher": matcher})
    model.TestCase.settings = examples(15, stateful_step_count=25)
    model.TestCase("runTest").runTest()
