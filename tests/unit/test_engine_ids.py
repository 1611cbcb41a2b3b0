"""What an id, a priority and a filter may be, at every door; and ids come back as they were given, in every form."""

from __future__ import annotations

import enum
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from wherecast import Engine, FilterError, SubscriptionError
from wherecast.engine.checks import LONGEST_ID, check_id
from wherecast.engine.ids import Ids, id_array, without_ids

SCHEMA = {"price": "double"}
EVENTS = [{"price": 2.0}, {"price": 0.0}, {"price": 5.0}]
UNION = "dense_union<integer: int64=0, string: string=1>"


class Colour(str, enum.Enum):  # noqa: UP042 - this one formats itself as Colour.RED
    RED = "red"


class Number(enum.IntEnum):
    SEVEN = 7


def typed(ids: Any) -> list[tuple[type, Any]]:
    """Ids in an order, with their types: 7 is not "7"."""
    return sorted(((type(i), i) for i in ids), key=str)


# -- as given ---------------------------------------------------------------------------------------------------------


@pytest.mark.sampled
@pytest.mark.parametrize("matcher", ["adaptive", "scan"])
@pytest.mark.parametrize("parts", [1, 2, 3], ids=["one segment", "two segments", "a log"])
@pytest.mark.parametrize(
    ("ids", "kind"),
    [([7, 8, -(2**63), 2**63 - 1], "int64"), (["7", "bob", "", "ü\U0001f600"], "string"), ([7, "7", "bob", 8], UNION)],
    ids=["integers", "strings", "both"],
)
def test_every_form_gives_ids_as_given(matcher: str, parts: int, ids: list[Any], kind: str, tmp_path: Path) -> None:
    """Lists, arrays, Arrow tables and lists, the engine's own ids, and the same again from a saved engine."""
    engine = Engine(SCHEMA, matcher=matcher)
    for part in range(min(parts, 2)):
        engine.subscribe_many([(id, "price > 1") for id in ids[part :: min(parts, 2)]])
    if parts == 3:
        engine.unsubscribe(ids[0])
        engine.subscribe(ids[0], "price > 1", priority=1)
    engine.save(tmp_path)
    for subject in (engine, Engine.open(tmp_path)):
        matches = subject.match_batch(EVENTS)
        table, lists = matches.to_arrow(), matches.to_list_array()
        forms = {
            "match": subject.match(EVENTS[0]),
            "lists": matches.to_lists()[0],
            "array": matches.subscription_ids()[: len(ids)].tolist(),
            "pairs": matches.pairs()[1][: len(ids)].tolist(),
            "top": matches.top(9)[2],
            "arrow": [row["subscription"] for row in table.to_pylist() if row["event"] == 2],
            "arrow lists": lists.to_pylist()[0],
            "ids": subject.ids().to_pylist(),
            "iteration": list(subject),
        }
        assert {name: typed(found) for name, found in forms.items()} == dict.fromkeys(forms, typed(ids))
        kinds = table.schema.field("subscription").type, lists.type.value_type, subject.ids().type
        assert {str(found) for found in kinds} == {kind}
        assert all(id in subject for id in ids)


def test_the_type_of_a_column_does_not_depend_on_what_matches() -> None:
    """An engine with both types of ids says so also where only integers, or nothing, matched."""
    engine = Engine(SCHEMA)
    engine.subscribe_many({1: "price > 1", "a": "price > 4"})
    for event in ({"price": 2.0}, {"price": 0.0}, {"price": 5.0}):
        matches = engine.match_batch([event])
        assert str(matches.to_arrow().schema.field("subscription").type) == UNION
        assert matches.to_arrow().to_pylist() == [{"event": 0, "subscription": i} for i in matches.to_lists()[0]]


def test_ids_of_more_than_64_bits_from_older_versions() -> None:
    """They can be listed, and are refused where Arrow cannot hold them."""
    ids = Ids(pa.array(["i7", f"i{2**70}"]))
    assert ids.take(np.arange(2)).tolist() == [7, 2**70]
    with pytest.raises(SubscriptionError, match="64 bits"):
        id_array(ids.take(np.arange(2)), ids.types)


@pytest.mark.parametrize("ids", [list(range(0, 900, 3)), [f"k{i}" for i in range(0, 900, 3)], [1, "1", 4, "x"]])
def test_many_are_found_like_one(ids: list[Any]) -> None:
    """Few or many, of the same type or another: the slots are those of the search for one."""
    table = Ids.of(ids)
    for wanted in (
        [5, 3, 0, 897, -1],
        ["k3", "k4", "1"],
        ["k0", 3, "x", 1],
        list(range(400)),
        [f"k{i}" for i in range(400)],
    ):
        column = np.array(wanted, np.int64) if all(isinstance(w, int) for w in wanted) else wanted
        assert table.find_many(column).tolist() == [table.find(w) for w in wanted]
    assert table.find_many(np.zeros(0, np.int64)).tolist() == []


def test_ids_without_others() -> None:
    """Arrays and lists alike."""
    assert without_ids(np.array([1, 2, 3]), np.array([2, 9])).tolist() == [1, 3]
    assert without_ids([1, "1", "b"], ["1"]) == [1, "b"]
    assert without_ids(np.array([1, 2]), ["1", 2]).tolist() == [1]


# -- at the door ------------------------------------------------------------------------------------------------------

BAD_IDS = [
    pytest.param("\ud800", "half a character", id="surrogate"),
    pytest.param("a\udfffb", "half a character", id="surrogate inside"),
    pytest.param("x" * (LONGEST_ID + 1), "at most 1,000 characters, this one has 1,001", id="long"),
    pytest.param(10**5000, "at most 64 bits, this one needs 16,611; write it as a string", id="huge"),
    pytest.param(2**63, "at most 64 bits", id="65 bits"),
    pytest.param(-(2**63) - 1, "at most 64 bits", id="negative 65 bits"),
    pytest.param(np.uint64(2**63), "at most 64 bits", id="unsigned"),
    pytest.param(True, "an id is a string or an integer, found bool", id="bool"),
    pytest.param(np.True_, "found bool", id="numpy bool"),
    pytest.param(1.0, "found float 1.0; in pandas, the dtype Int64 keeps integers", id="float"),
    pytest.param(b"x", "found bytes", id="bytes"),
    pytest.param(None, "the id is missing", id="none"),
    pytest.param((1,), "found tuple", id="tuple"),
]
DOORS: dict[str, Callable[[Engine, Any], Any]] = {
    "subscribe": lambda engine, key: engine.subscribe(key, "price > 1"),
    "replace": lambda engine, key: engine.subscribe(key, "price > 1", replace=True),
    "unsubscribe": lambda engine, key: engine.unsubscribe(key),
    "explain": lambda engine, key: engine.explain({}, key),
    "apply": lambda engine, key: engine.apply(Engine(SCHEMA), [key]),
}


@pytest.mark.sampled
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("id", "message"), BAD_IDS)
def test_bad_ids_are_refused_at_every_door(door: str, id: Any, message: str) -> None:
    """With the same words; nothing has changed, and the engine goes on."""
    engine = Engine(SCHEMA)
    engine.subscribe("good", "price > 1")
    with pytest.raises(SubscriptionError, match=message):
        DOORS[door](engine, id)
    assert id not in engine
    assert (len(engine), engine.version, engine.match({"price": 2.0})) == (1, 1, ["good"])


SOURCES: dict[str, Callable[[list[Any], list[Any]], Any]] = {
    "pairs": lambda ids, filters: list(zip(ids, filters, strict=True)),
    "pandas": lambda ids, filters: pd.DataFrame({"id": pd.Series(ids, dtype=object), "filter": filters}),
}


@pytest.mark.sampled
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(("id", "message"), BAD_IDS)
def test_bad_ids_are_quarantined(source: str, replace: bool, id: Any, message: str, tmp_path: Path) -> None:
    """In a batch, with row and reason; the others are registered, and nobody else loses a subscription."""
    engine = Engine(SCHEMA)
    engine.subscribe("old", "price > 9")
    outcome = engine.subscribe_many(SOURCES[source](["old", id, 7], ["price > 1"] * 3), replace=replace)
    assert outcome.registered == 1 + replace
    [bad] = [q for q in outcome.quarantined if q.row == 1]
    assert isinstance(bad.error, SubscriptionError)
    assert message in str(bad.error)
    assert typed(engine) == typed(["old", 7])
    engine.save(tmp_path)
    assert len(Engine.open(tmp_path)) == len(engine) == 2


def test_arrow_columns_are_checked_too() -> None:
    """Large unsigned integers, missing ids and bytes that are not UTF-8 are quarantined, not raised."""
    engine = Engine(SCHEMA)
    unsigned = pa.table({"id": pa.array([1, 2**63, None], pa.uint64()), "filter": ["price > 1"] * 3})
    assert [q.row for q in engine.subscribe_many(unsigned).quarantined] == [1, 2]
    raw = pa.array([b"a", b"\xff\xfe", None], pa.binary()).cast(pa.string(), safe=False)
    texts = pa.table({"id": raw, "filter": ["price > 1"] * 3})
    assert [(q.row, "bytes" in str(q.error)) for q in engine.subscribe_many(texts).quarantined] == [
        (1, True),
        (2, False),
    ]
    filters = pa.table({"id": [5, 6], "filter": pa.array([b"price > 1", b"\xff"]).cast(pa.string(), safe=False)})
    [bad] = engine.subscribe_many(filters).quarantined
    assert (bad.row, isinstance(bad.error, FilterError)) == (1, True)
    assert typed(engine) == typed([1, "a", 5])


@pytest.mark.parametrize(
    ("given", "kept"),
    [(np.int8(7), 7), (np.uint64(7), 7), (Number.SEVEN, 7), (np.str_("x"), "x"), (Colour.RED, "red"), (-0, 0)],
)
def test_ids_of_other_types_become_plain(given: Any, kept: Any) -> None:
    """NumPy's integers and enumerations are the numbers and strings that they stand for, from every door."""
    assert typed([check_id(given)]) == typed([kept])
    engine = Engine(SCHEMA)
    engine.subscribe(given, "price > 1")
    assert (given in engine, kept in engine) == (True, True)
    assert engine.subscribe_many([(given, "price > 2")], replace=True).registered == 1
    assert typed(engine.match({"price": 3.0})) == typed([kept])
    engine.apply(Engine(SCHEMA), [given])
    assert len(engine) == 0


@pytest.mark.parametrize(
    "priority", ["high", float("nan"), float("inf"), 1e300, 10**400, True, None, Decimal("NaN"), 1j]
)
def test_priorities_are_finite_numbers(priority: Any) -> None:
    """Anything else is refused, alone and in a batch, where only its row suffers."""
    engine = Engine(SCHEMA)
    with pytest.raises(SubscriptionError, match="a priority is a number"):
        engine.subscribe("a", "price > 1", priority=priority)
    if priority is not None:  # a missing priority is 0
        frame = pd.DataFrame(
            {"id": ["b", "c"], "filter": ["price > 1"] * 2, "priority": pd.Series([priority, 2], dtype=object)}
        )
        is_missing = priority != priority  # pandas takes NaN for a missing value
        assert engine.subscribe_many(frame).registered == 1 + is_missing
    assert "a" not in engine
    assert engine.match_batch([{"price": 2.0}]).top(1) != [["b"]]


def test_priorities_of_arrow_columns() -> None:
    """Numbers of any type; NaN and infinity are quarantined, a missing one is 0."""
    engine = Engine(SCHEMA)
    table = {"id": [1, 2, 3, 4], "filter": ["price > 1"] * 4}
    floats = engine.subscribe_many(pa.table({**table, "priority": [1.0, float("nan"), None, 1e300]}))
    assert [q.row for q in floats.quarantined] == [1, 3]
    texts = engine.subscribe_many(pa.table({**table, "priority": ["1", "2", "3", None]}), replace=True)
    assert [q.row for q in texts.quarantined] == [0, 1, 2]
    decimals = pa.array([Decimal("1.5"), Decimal(2), None, Decimal(9)])
    assert engine.subscribe_many(pa.table({**table, "priority": decimals}), replace=True).registered == 4
    assert engine.match_batch([{"price": 2.0}]).top(9) == [[4, 2, 1, 3]]


@pytest.mark.parametrize("filter", [None, 7, b"price > 1", ["price > 1"], {"a": 1}, "price > '\ud800'"])
def test_filters_are_texts(filter: Any) -> None:
    """Whatever else is given is the error of its row, also what cannot be hashed."""
    engine = Engine(SCHEMA)
    with pytest.raises(FilterError):
        engine.subscribe("a", filter)
    outcome = engine.subscribe_many([("a", filter), ("b", "price > 1")])
    assert [(q.row, type(q.error)) for q in outcome.quarantined] == [(0, FilterError)]
    assert engine.subscribe_many({"a": filter}, replace=True).registered == 0
    assert list(engine) == ["b"]


@pytest.mark.parametrize("removed", ["abc", b"abc", 7, {"a": 1}.items()])
def test_removed_is_a_list_of_ids(removed: Any) -> None:
    """A text is not taken for the list of its characters."""
    engine = Engine(SCHEMA)
    engine.subscribe("a", "price > 1")
    with pytest.raises(SubscriptionError):
        engine.apply(Engine(SCHEMA), removed)
    assert list(engine) == ["a"]
