"""Readers beside writers that fail: every answer is that of the version it names."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.examples import scaled
from tests.faults import Fault, faulty

from wherecast import Engine

#: A fault may also strike where a generator is closed, and there Python only warns.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SCHEMA = {"price": "integer", "volume": "integer"}
EVENTS = [{"price": p, "volume": 1} for p in range(8)]
Model = dict[Any, int]  # by id, the price that its filter is above


def text(above: int) -> str:
    return f"price > {above} AND volume < 9"


def answers(model: Model) -> list[list[Any]]:
    return [sorted((i for i, above in model.items() if e["price"] > above), key=str) for e in EVENTS]


class Writer:
    """Makes changes, one after the other, and lets most of them fail; knows what every version holds."""

    def __init__(self, engine: Engine, rng: random.Random) -> None:
        self.engine, self.rng = engine, rng
        self.model: Model = {}
        self.wanted = {0: answers({})}
        self.failures = 0

    def change(self) -> None:
        rng, engine, model = self.rng, self.engine, self.model
        ids = [rng.choice([rng.randint(0, 30), f"s{rng.randint(0, 9)}"]) for _ in range(rng.randint(1, 8))]
        more = {id: rng.randint(0, 7) for id in ids}
        texts = {id: text(above) for id, above in more.items()}
        kind = rng.choice(["put", "many", "remove", "merge", "apply"])
        gone = rng.choice(list(model)) if model else None
        if kind == "put":
            self.run(lambda: engine.subscribe(ids[0], text(more[ids[0]]), replace=True), model | {ids[0]: more[ids[0]]})
        elif kind == "many":
            self.run(lambda: engine.subscribe_many(texts, replace=True), model | more)
        elif kind == "apply":
            other = Engine(SCHEMA, matcher=engine.matcher)
            other.subscribe_many(texts)
            self.run(lambda: engine.apply(other, ids), model | more)
        elif kind == "merge" or gone is None:
            self.run(lambda: engine.merge(everything=rng.random() < 0.5), model)
        else:
            self.run(lambda: engine.unsubscribe(gone), {id: above for id, above in model.items() if id != gone})

    def run(self, work: Callable[[], object], after: Model) -> None:
        version = self.engine.version
        if after is not self.model:
            self.wanted[version + 1] = answers(after)  # before anybody can read it
        error = self.rng.choice([MemoryError, KeyboardInterrupt])
        step = "call" if error is MemoryError else "line"
        try:
            with faulty(Fault(step, self.rng.randint(1, 120), error)):
                work()
        except (MemoryError, KeyboardInterrupt):
            self.failures += 1
            assert error is KeyboardInterrupt or self.engine.version == version
        if self.engine.version > version:
            self.model = after


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("matcher", "turns", "n_readers"),
    [
        ("adaptive", 25, 4),
        ("scan", 25, 4),
        pytest.param("scan", 25, 12, marks=pytest.mark.slow),
        pytest.param("adaptive", scaled(600), 12, marks=pytest.mark.slow),
    ],
)
def test_readers_beside_failing_writers(
    matcher: str, turns: int, n_readers: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Several readers, each with the expected answer at hand: no difference."""
    monkeypatch.setattr("wherecast.engine.segments.LOG_LIMIT", 6)
    caplog.set_level(logging.CRITICAL, "wherecast")
    engine = Engine(SCHEMA, matcher=matcher)
    writer = Writer(engine, random.Random())
    stop, differences, looks = threading.Event(), [], [0] * n_readers

    def read(number: int) -> None:
        try:
            while not (looks[number] and stop.is_set()):
                matches = engine.match_batch(EVENTS, threads=1 + number % 2)
                found = [sorted(ids, key=str) for ids in matches.to_lists()]
                wanted = writer.wanted[matches.version]
                if found != wanted or matches.counts().tolist() != [len(ids) for ids in wanted]:
                    differences.append((matches.version, found, wanted))
                looks[number] += 1
        except BaseException as error:  # noqa: BLE001 - told where the threads are joined
            differences.append(error)

    readers = [threading.Thread(target=read, args=(number,)) for number in range(n_readers)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(turns):
            writer.change()
    finally:
        stop.set()
        for reader in readers:
            reader.join()
    assert differences == []
    assert min(looks) > 0
    assert writer.failures > 0
    assert [sorted(ids, key=str) for ids in engine.match_batch(EVENTS)] == answers(writer.model)
    assert sorted(engine, key=str) == sorted(writer.model, key=str)
    assert len(engine) == len(writer.model)
    for id in list(engine):
        engine.unsubscribe(id)
    assert (len(engine), engine.count(EVENTS).sum()) == (0, 0)
