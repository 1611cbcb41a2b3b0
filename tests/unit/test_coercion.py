"""Coercion per attribute: texts that say a number or a boolean, and numbers where a text is expected."""

from __future__ import annotations

import pyarrow as pa
import pytest

from wherecast.engine.engine import Engine
from wherecast.errors import EventError, SchemaError
from wherecast.language.events.schema import Attribute, Kind, Schema

SCHEMA = Schema.of(
    {
        "status": {"type": "int", "coerce": True},
        "took": {"type": "float", "coerce": True, "min": 0, "max": 10},
        "ok": {"type": "boolean", "coerce": True},
        "code": {"type": "string", "coerce": True},
        "ids": {"type": "array<bigint>", "coerce": True},
        "plain": "int",
    }
)
FILTERS = ["status = 200", "took > 0.5", "ok", "code = '7'", "code = 'true'", "code = '1.5'", "array_contains(ids, 3)"]


def engine() -> Engine:
    made = Engine(SCHEMA)
    made.subscribe_many([(text, text) for text in FILTERS])
    return made


def test_values():
    """Event by event, in a batch of mixed types, and as a column of one type."""
    events = [
        {"status": "200", "took": "0.75", "ok": "true", "code": 7, "ids": ["3", 4]},
        {"status": 200, "took": 1, "ok": True, "code": True, "ids": [1]},
        {"status": " 404 ", "took": "1e0", "ok": "FALSE", "code": 1.5, "ids": None},
        {"status": None, "took": "0.25", "ok": None, "code": "7", "ids": []},
    ]
    wanted = [
        {"status = 200", "took > 0.5", "ok", "code = '7'", "array_contains(ids, 3)"},
        {"status = 200", "took > 0.5", "ok", "code = 'true'"},
        {"took > 0.5", "code = '1.5'"},
        {"code = '7'"},
    ]
    assert [set(engine().match(event)) for event in events] == wanted
    assert [set(found) for found in engine().match_batch(events)] == wanted
    columns = {
        "status": pa.array(["200", "200", "404", None]),
        "took": pa.array(["0.75", "1", "1e0", "0.25"]),
        "ok": pa.array(["true", "True", "false", None]),
        "code": pa.array([7, 8, None, 7]),
        "ids": pa.array([["3", "4"], ["1"], None, []]),
    }
    columns_wanted = [wanted[0], wanted[1] - {"code = 'true'"}, wanted[2] - {"code = '1.5'"}, wanted[3]]
    assert [set(found) for found in engine().match_batch(pa.table(columns))] == columns_wanted
    floats = engine().match_batch(pa.table({"code": [1.5, None], "ok": ["true", "false"]}))
    assert [set(found) for found in floats] == [{"code = '1.5'", "ok"}, set()]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"status": "two"}, "expected int, got string 'two'"),
        ({"status": "99999999999"}, "outside 32 bits"),
        ({"status": 1.0}, "expected int, got float 1.0"),
        ({"ok": "yes"}, "expected boolean, got string 'yes'"),
        ({"ok": 1}, "expected boolean, got integer 1"),
        ({"code": [1]}, "expected string, got array"),
        ({"ids": ["3", "x"]}, "element 1: expected integer, got string 'x'"),
        ({"plain": "1"}, "expected int, got string '1'"),
    ],
)
def test_what_cannot_be_coerced_is_an_error(event: dict[str, object], message: str):
    """As today, with the value as it came; an attribute without coercion stays strict."""
    made = engine()
    made.subscribe("plain", "plain = 1")
    (name,) = event
    for publish in (
        lambda: made.match(event),
        lambda: made.match_batch([{name: None}, event]),
        lambda: made.match_batch(pa.table({name: [None, event[name]]})),
    ):
        with pytest.raises(EventError, match=message):
            publish()


def test_schemas():
    """Coercion is a part of the written form and of equality."""
    assert SCHEMA.to_dict()["status"] == {"type": "int", "coerce": True}
    assert Schema.from_json(SCHEMA.to_json()) == SCHEMA == Schema.from_yaml(SCHEMA.to_yaml())
    assert Attribute("a", Kind.INTEGER, coerce=True) != Attribute("a", Kind.INTEGER)
    with pytest.raises(SchemaError, match="coerce is for numbers, booleans and strings"):
        Schema.of({"a": {"type": "date", "coerce": True}})
    with pytest.raises(SchemaError, match="coerce is true or false, got 'yes'"):
        Schema.of({"a": {"type": "int", "coerce": "yes"}})
