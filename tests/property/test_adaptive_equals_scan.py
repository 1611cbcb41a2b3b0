"""The default engine against one that tests every filter, on random schemas, through all that can happen to an engine.

A run of `make test` compares some ten thousand pairs of filter and event; `HYPOTHESIS_PROFILE=long` more than a million
(`-s` shows how many).
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.examples import examples
from tests.property.strategies import FilterMaker, make_event, make_space
from tests.property.terms import text

from wherecast import Engine
from wherecast.engine import log
from wherecast.matchers import adaptive

STEPS = ("add", "add many", "delete", "replace", "merge", "save and open", "plan", "match")


@pytest.fixture(scope="module")
def compared() -> Iterator[list[int]]:
    """Pairs of filter and event, test by test."""
    pairs: list[int] = []
    yield pairs
    print(f"\n{sum(pairs):,} pairs of filter and event compared")


@pytest.fixture(autouse=True)
def short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of eight entries makes segments, and so merges, frequent."""
    monkeypatch.setattr(log, "LOG_LIMIT", 8)
    monkeypatch.setattr("wherecast.engine.segments.LOG_LIMIT", 8)


@pytest.fixture(autouse=True, params=["event by event", "leaf by leaf"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of any size may go leaf by leaf, as large ones do."""
    if request.param == "leaf by leaf":
        for name in ("FAR_BYTES", "REVISITS"):
            monkeypatch.setattr(adaptive, name, 0)
        monkeypatch.setattr(adaptive, "PIECE_VISITS", 50)


class Life:
    """An engine, and the texts that it should hold."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.space = make_space(rng)
        self.maker = FilterMaker(rng, self.space)
        self.engine = Engine(self.space.schema)
        self.standing: dict[int, str] = {}

    def filters(self, n: int) -> dict[int, str]:
        """Filters under numbers that may be taken; some are equal."""
        pool = [text(self.maker.condition(self.rng.choice([0, 1, 1, 2]))) for _ in range(max(n * 3 // 4, 1))]
        return {self.rng.randint(0, 400): self.rng.choice(pool) for _ in range(n)}

    def events(self, n: int) -> list[dict[str, Any]]:
        return [make_event(self.rng, self.space) for _ in range(n)]

    def do(self, step: str) -> int:
        """One step; the pairs that it compared."""
        chosen = self.rng.sample(sorted(self.standing), min(len(self.standing), 5))
        if step in ("add many", "replace"):
            fresh = self.filters(60 if step == "add many" else 10)
            assert not self.engine.subscribe_many(fresh, replace=True).quarantined
            self.standing |= fresh
        elif step == "add":
            for number, condition in self.filters(5).items():
                self.engine.subscribe(number, condition, replace=True)
                self.standing[number] = condition
        elif step == "delete":
            for number in chosen:
                self.engine.unsubscribe(number)
                del self.standing[number]
        elif step == "merge":
            self.engine.merge(everything=self.rng.random() < 0.5)
        elif step == "plan":
            self.engine.plan(self.events(20))
        elif step == "save and open":
            with tempfile.TemporaryDirectory() as folder:
                self.engine.save(folder)
                self.engine = Engine.open(folder)
        else:
            return self.compare(self.events(40))
        return 0

    def compare(self, events: list[dict[str, Any]]) -> int:
        """Batch, counts and single events are those of a scan."""
        scan = Engine(self.space.schema, matcher="scan")
        scan.subscribe_many(self.standing)
        wanted = [sorted(ids) for ids in scan.match_batch(events).to_lists()]
        assert [sorted(ids) for ids in self.engine.match_batch(events).to_lists()] == wanted
        assert self.engine.count(events).tolist() == [len(ids) for ids in wanted]
        assert [sorted(self.engine.match(event)) for event in events[:3]] == wanted[:3]
        return len(events) * len(self.standing)


@examples(5, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.integers(0, 2**64), st.lists(st.sampled_from(STEPS), min_size=4, max_size=16))
def test_whatever_happens_to_it(compared: list[int], seed: int, steps: list[str]) -> None:
    """After any sequence of steps the engine finds what a scan over the standing filters finds."""
    life = Life(random.Random(seed))
    compared.extend(life.do(step) for step in ("add many", *steps, "match"))
