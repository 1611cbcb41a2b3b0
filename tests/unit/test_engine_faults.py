"""Whatever fails inside a change, the engine is as before it or as after it, and nothing in between."""

from __future__ import annotations

import logging
import random
import tempfile
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tests.examples import is_fast, scaled
from tests.faults import Fault, Step, faulty

from wherecast import Engine, SubscriptionError
from wherecast.engine.log import LogReader
from wherecast.engine.segments import Segments

#: A fault may also strike where a generator is closed, and there Python only warns.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SCHEMA = {"price": "integer", "volume": "integer"}
EVENTS = [{"price": p, "volume": v} for p in (0, 3, 9) for v in (0, 5)]
Model = dict[Any, int]  # by id, the price that its filter is above

#: Ids 0 to 5 are in a segment with others that are dead, 6 and 7 in a second one, 8 to 10 in the log, 11 is dead in it.
SEGMENTS: tuple[Model, ...] = (dict.fromkeys(range(6), 2) | {20: 1, 21: 1}, {6: 1, 7: 4})
LOG: Model = {8: 1, 9: 2, 10: 7}
BEFORE: Model = SEGMENTS[0] | SEGMENTS[1] | LOG


def text(above: int) -> str:
    return f"price > {above} AND volume < 9"


def filters(model: Model) -> dict[Any, str]:
    return {id: text(above) for id, above in model.items()}


class Write(NamedTuple):
    """A change, and what it makes of the model."""

    run: Callable[[Engine], object]
    after: Model
    log_limit: int = 512


def _other() -> Engine:
    other = Engine(SCHEMA)
    other.subscribe_many(filters({2: 6, 30: 1, 31: 1}))
    other.unsubscribe(31)
    return other


def _save(engine: Engine) -> None:
    with tempfile.TemporaryDirectory() as folder:
        engine.save(folder)


OTHER = _other()
MANY = {50: 1, 51: 8, 3: 3, 9: 3}
WRITES = {
    "subscribe": Write(lambda e: e.subscribe(40, text(2)), BEFORE | {40: 2}),
    "subscribe and seal": Write(lambda e: e.subscribe(40, text(2)), BEFORE | {40: 2}, log_limit=5),
    "replace in a segment": Write(lambda e: e.subscribe(3, text(5), replace=True), BEFORE | {3: 5}, log_limit=5),
    "replace in the log": Write(lambda e: e.subscribe(9, text(5), replace=True), BEFORE | {9: 5}),
    "unsubscribe in a segment": Write(lambda e: e.unsubscribe(7), {i: a for i, a in BEFORE.items() if i != 7}),
    "unsubscribe in the log": Write(lambda e: e.unsubscribe(8), {i: a for i, a in BEFORE.items() if i != 8}),
    "subscribe many": Write(lambda e: e.subscribe_many(filters(MANY)), MANY | BEFORE),
    "replace many": Write(lambda e: e.subscribe_many(filters(MANY), replace=True), BEFORE | MANY),
    "apply": Write(lambda e: e.apply(OTHER, [2, 8, 99]), {i: a for i, a in BEFORE.items() if i != 8} | {2: 6, 30: 1}),
    "merge": Write(lambda e: e.merge(everything=True), BEFORE),
    "plan": Write(lambda e: e.plan(EVENTS * 40), BEFORE),
    "save": Write(_save, BEFORE),
}


def make_fresh(matcher: str) -> Callable[[], Engine]:
    """Makes engines, all alike, quickly: what takes time is done once."""
    parts = [Engine(SCHEMA, matcher=matcher) for _ in SEGMENTS]
    for part, model in zip(parts, SEGMENTS, strict=True):
        part.subscribe_many(filters(model | {100 + i: 1 for i in model}))
        for id in model:
            part.unsubscribe(100 + id)

    def make() -> Engine:
        engine = Engine(SCHEMA, matcher=matcher)
        engine._compiler = parts[0]._compiler
        engine._segments.log_reader = LogReader(engine._compiler)
        for part in parts:
            engine.apply(part)
        for id, above in (LOG | {11: 1}).items():
            engine.subscribe(id, text(above))
        engine.unsubscribe(11)
        return engine

    return make


def check(engine: Engine, model: Model) -> None:
    """An engine has what the model has, whichever way it is asked."""
    wanted = [sorted(i for i, above in model.items() if event["price"] > above) for event in EVENTS]
    assert sorted(engine) == sorted(model)
    assert len(engine) == len(model)
    assert [sorted(ids) for ids in engine.match_batch(EVENTS)] == wanted
    assert sorted(engine.match(EVENTS[-1])) == wanted[-1]
    assert engine.count(EVENTS).tolist() == [len(ids) for ids in wanted]


def check_goes_on(engine: Engine, model: Model) -> None:
    """It can be changed like any other: what a failed change left behind does not come out later."""
    model = dict(model)
    for id in (5, 9, 40, 50):
        assert (id in engine) == (id in model)
        if id in model:
            with pytest.raises(SubscriptionError, match="exists"):
                engine.subscribe(id, text(0))
            engine.unsubscribe(id)
            del model[id]
        else:
            with pytest.raises(SubscriptionError, match="no subscription"):
                engine.unsubscribe(id)
            engine.subscribe(id, text(0))
            model[id] = 0
    check(engine, model)
    batch = {3: 1, 10: 1, 60: 1}
    assert engine.subscribe_many(filters(batch), replace=True).registered == 3
    check(engine, model | batch)
    engine.merge(everything=True)
    check(engine, model | batch)
    for id in model | batch:
        engine.unsubscribe(id)
    check(engine, {})


def strike(fresh: Callable[[], Engine], write: Write, fault: Fault, *, thorough: bool) -> None:
    """Let one fault strike, and look what it has done."""
    engine, raised = fresh(), None
    version = engine.version
    with faulty(fault):
        try:
            write.run(engine)
        except (MemoryError, KeyboardInterrupt) as error:
            raised = error
    is_done = raised is None or (write.after != BEFORE and engine.version > version)
    # Who is told of an error was not served. Only Ctrl-C may come when all is done.
    assert not (is_done and isinstance(raised, MemoryError))
    model = write.after if is_done else BEFORE
    check(engine, model)
    if thorough:
        check_goes_on(engine, model)
    else:
        engine.unsubscribe(5)
        engine.subscribe(70, text(3))
        check(engine, {i: above for i, above in model.items() if i != 5} | {70: 3})


def count_steps(fresh: Callable[[], Engine], write: Write, step: Step) -> int:
    engine = fresh()
    with faulty(Fault(step)) as fault:
        write.run(engine)
    return fault.steps


@pytest.fixture(params=WRITES)
def write(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Write:
    found = WRITES[request.param]
    monkeypatch.setattr("wherecast.engine.segments.LOG_LIMIT", found.log_limit)
    caplog.set_level(logging.CRITICAL, "wherecast")  # thousands of errors are logged as they should be
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("matcher", ["adaptive", pytest.param("scan", marks=pytest.mark.slow)])
def test_faults_here_and_there(write: Write, matcher: str) -> None:
    """Some steps of each write, chosen at random, and the last ones, where it is published."""
    fresh = make_fresh(matcher)
    for step, error in (("call", MemoryError), ("line", KeyboardInterrupt)):
        n = count_steps(fresh, write, step)
        last = {random.choice((n - 1, n))} if is_fast() else {n - 1, n}
        for at in {*random.sample(range(1, n + 1), scaled(2)), *last}:
            strike(fresh, write, Fault(step, at, error), thorough=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("matcher", "step", "error", "share"),
    [
        ("adaptive", "call", MemoryError, 6),
        ("scan", "call", KeyboardInterrupt, 16),
        ("scan", "line", KeyboardInterrupt, 8),
        ("scan", "opcode", KeyboardInterrupt, 99),
    ],
)
def test_faults_everywhere(write: Write, matcher: str, step: Step, error: type[BaseException], share: int) -> None:
    """One step in so many of each write, others in every run; all steps with HYPOTHESIS_PROFILE=long."""
    share = max(1, share // scaled(1))
    fresh = make_fresh(matcher)
    n = count_steps(fresh, write, step)
    assert n > 10
    for at in range(random.randint(1, share), n + 1, share):
        strike(fresh, write, Fault(step, at, error), thorough=at % 16 == 0)


def test_a_log_that_cannot_be_sealed_is_kept(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The subscription stands, the failure is logged, and the log is sealed when that works again."""
    monkeypatch.setattr("wherecast.engine.segments.LOG_LIMIT", 4)
    engine, model = Engine(SCHEMA), {}
    with monkeypatch.context() as broken:
        broken.setattr(Segments, "build", lambda *_: (_ for _ in ()).throw(MemoryError("no memory")))
        for id in range(6):
            engine.subscribe(id, text(id))
            model[id] = id
        with pytest.raises(MemoryError):
            engine.match(EVENTS[0])
        with pytest.raises(MemoryError):
            engine.subscribe_many({7: text(1)})
    assert "sealing the log" in caplog.text
    assert "no memory" in caplog.text
    check(engine, model)
    engine.subscribe(6, text(6))
    check(engine, model | {6: 6})
    check_goes_on(engine, model | {6: 6})


def test_a_merge_in_the_background_that_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, nothing is lost, and the next one does the work."""
    engine = Engine(SCHEMA)
    engine.subscribe_many(filters(BEFORE))
    with monkeypatch.context() as broken:
        broken.setattr(Segments, "_merge_from", lambda *_: (_ for _ in ()).throw(MemoryError("no memory")))
        engine.subscribe_many({id: text(1) for id in range(200, 210)})
        _join_merges()
    assert "merging failed" in caplog.text
    model = BEFORE | dict.fromkeys(range(200, 210), 1)
    check(engine, model)
    assert len(engine.stats()["segments"]) == 2
    engine.merge()
    assert len(engine.stats()["segments"]) == 1
    check_goes_on(engine, model)


@pytest.mark.parametrize("what", ["merge", "plan"])
def test_no_thread_to_be_had(what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Changes are made and events are matched all the same; later there are merges and plans again."""
    engine = Engine(SCHEMA)
    engine.subscribe_many({id: text(id % 7) for id in range(1000)})
    events = EVENTS * 100
    with monkeypatch.context() as broken:
        broken.setattr(
            threading.Thread, "start", lambda _: (_ for _ in ()).throw(RuntimeError("can't start new thread"))
        )
        if what == "merge":
            engine.subscribe_many({1000 + id: text(1) for id in range(1000)})
        else:
            engine.match_batch(events)
    assert "can't start new thread" in caplog.text
    if what == "merge":
        engine.subscribe_many({2000: text(1)})
        _join_merges()
        assert len(engine.stats()["segments"]) == 1
    else:
        engine.match_batch(events)
        for thread in threading.enumerate():
            if thread.name == "wherecast-plan":
                thread.join()
        assert engine._segments.planner.sample is not None


def test_a_plan_that_fails_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments to come are not built for a sample that could not be planned with."""
    engine = Engine(SCHEMA)
    engine.subscribe_many(filters(BEFORE))
    with monkeypatch.context() as broken:
        broken.setattr("wherecast.engine.segment.Segment.replan", lambda *_: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            engine.plan(EVENTS)
    assert engine._segments.planner.sample is None
    check_goes_on(engine, BEFORE)


def _join_merges() -> None:
    for thread in threading.enumerate():
        if thread.name == "wherecast-merge":
            thread.join()
