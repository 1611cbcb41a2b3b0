"""One engine laid over another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from wherecast import Engine, SubscriptionError

SCHEMA = {"price": "double"}
EVENT = {"price": 5.0}


def make_engine(*ids: Any, matcher: str = "adaptive") -> Engine:
    engine = Engine(SCHEMA, matcher=matcher)
    engine.subscribe_many(dict.fromkeys(ids, "price > 1"))
    return engine


def check(engine: Engine, *ids: Any) -> None:
    """An engine has these ids and no others, says so in every way, and can be changed."""
    assert sorted(engine.match(EVENT), key=str) == sorted(ids, key=str)
    assert sorted(engine.match_batch([EVENT]).to_lists()[0], key=str) == sorted(ids, key=str)
    assert engine.count([EVENT]).tolist() == [len(engine)] == [len(ids)]
    assert sorted(engine, key=str) == sorted(ids, key=str)
    assert all(id in engine for id in ids)


@pytest.fixture(params=["adaptive", "scan"])
def matcher(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("ids", [range(1, 20), [f"s{i}" for i in range(1, 20)]], ids=["integers", "strings"])
@pytest.mark.parametrize("from_log", [False, True])
def test_removed_ids_stay_removed(matcher: str, ids: Any, from_log: bool) -> None:
    """Whatever the versions of the two engines are: tombstones of the delta count in the base, too."""
    ids = list(ids)
    base, delta = make_engine("base", matcher=matcher), Engine(SCHEMA, matcher=matcher)
    if from_log:
        for id in ids:
            delta.subscribe(id, "price > 1")
    else:
        delta.subscribe_many(dict.fromkeys(ids, "price > 1"))
    for id in ids[3:]:
        delta.unsubscribe(id)
    base.apply(delta)
    check(base, "base", *ids[:3])
    base.merge(everything=True)
    check(base, "base", *ids[:3])
    base.subscribe(ids[5], "price > 1")  # its id is free
    check(base, "base", *ids[:3], ids[5])


def test_the_engines_are_independent_afterwards(matcher: str) -> None:
    """Removing, replacing, planning and merging in one of them is not seen in the other."""
    base, delta = make_engine(1, 2, 3, matcher=matcher), make_engine(4, 5, 6, matcher=matcher)
    base.apply(delta, [3])
    check(base, 1, 2, 4, 5, 6)
    base.unsubscribe(4)
    delta.unsubscribe(5)
    check(base, 1, 2, 5, 6)
    check(delta, 4, 6)
    for _ in range(5):
        delta.subscribe(7, "price > 1", replace=True)  # its versions run ahead
    delta.unsubscribe(6)
    base.subscribe(6, "price > 100", replace=True)
    base.plan([EVENT] * 10)
    check(delta, 4, 7)
    assert sorted(base.match(EVENT)) == [1, 2, 5]
    assert len(base) == 4
    delta.merge(everything=True)
    base.merge(everything=True)
    check(delta, 4, 7)
    assert sorted(base.match({"price": 200.0})) == [1, 2, 5, 6]


def test_an_engine_is_laid_over_several(matcher: str) -> None:
    """A delta is not used up."""
    delta = make_engine(4, 5, matcher=matcher)
    bases = [make_engine(i, matcher=matcher) for i in range(3)]
    for base in bases:
        base.apply(delta)
        base.unsubscribe(5)
    for i, base in enumerate(bases):
        check(base, i, 4)
    check(delta, 4, 5)


@pytest.mark.sampled
@pytest.mark.parametrize("ids", [[1, 2, 3], ["a", "b", "c"], [1, "1", "b"]], ids=["integers", "strings", "both"])
@pytest.mark.parametrize("kept_in", ["segment", "log"])
def test_an_id_in_both_is_refused(matcher: str, ids: list[Any], kept_in: str) -> None:
    """Unless it is removed; then nothing has changed, in either engine."""
    base, delta = Engine(SCHEMA, matcher=matcher), make_engine(*ids[1:], matcher=matcher)
    if kept_in == "segment":
        base.subscribe_many(dict.fromkeys(ids[:2], "price > 1"))
    else:
        for id in ids[:2]:
            base.subscribe(id, "price > 1")
    version = base.version
    with pytest.raises(SubscriptionError, match=f"1 ids are in both engines, {ids[1]!r} is one"):
        base.apply(delta)
    with pytest.raises(SubscriptionError, match="in both"):
        base.apply(delta, [ids[0]])
    check(base, *ids[:2])
    check(delta, *ids[1:])
    assert base.version == version
    base.apply(delta, [ids[1]])
    check(base, *ids)


@pytest.mark.parametrize("removed", [pa.array([1, 3, 3, 99]), np.array([1, 3, 3, 99]), [1, 3, 3, 99], {1, 3, 99}])
def test_removed_ids_come_in_any_form(removed: Any) -> None:
    """Twice or not at all there: each subscription is removed once."""
    base = make_engine(1, 2, 3, 4)
    base.subscribe(5, "price > 1")
    base.apply(make_engine(1, 6), removed)
    check(base, 1, 2, 4, 5, 6)


def test_an_engine_over_itself() -> None:
    """With all its ids removed, it is what it was."""
    engine = make_engine(1, 2)
    engine.subscribe("c", "price > 1")
    engine.apply(engine, list(engine))
    check(engine, 1, 2, "c")


def test_a_snapshot_of_both(tmp_path: Path) -> None:
    """Saved after applying, and opened: the same."""
    base = make_engine(*range(50))
    delta = make_engine(*range(40, 60))
    delta.unsubscribe(55)
    base.apply(delta, range(40, 50))
    base.save(tmp_path)
    check(Engine.open(tmp_path), *(i for i in range(60) if i != 55))
