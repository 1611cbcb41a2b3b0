"""Arrays of structs, and columns with dots in their names."""

from __future__ import annotations

import pyarrow as pa
import pytest

from wherecast.engine.engine import Engine
from wherecast.errors import EventError, FilterError, SchemaError
from wherecast.language.events.attributes import join_name, split_name
from wherecast.language.events.schema import Schema

ITEMS = Schema.of(
    {
        "id": "int",
        "items": {
            "type": "array<struct>",
            "fields": {"price": "double", "by": {"type": "struct", "fields": {"name": "string"}}},
        },
    }
)
ORDERS = [
    {"id": 1, "items": [{"price": 1.5, "by": {"name": "a"}}, {"price": 2.5, "by": None}]},
    {"id": 2, "items": [None, {"price": None}]},
    {"id": 3, "items": []},
    {"id": 4, "items": None},
    {"id": 5},
]
ARROW = pa.schema(
    {"id": pa.int32(), "items": pa.list_(pa.struct({"price": pa.float64(), "by": pa.struct({"name": pa.string()})}))}
)


def test_arrays_of_structs():
    """A field of an array of structs is an array, as in Spark: NULL structs have NULL fields, a NULL array is NULL."""
    assert [(a.name, a.type_name) for a in ITEMS] == [
        ("id", "int"),
        ("items.price", "array<float>"),
        ("items.by.name", "array<string>"),
    ]
    assert Schema.of(ARROW) == ITEMS == Schema.of(ITEMS.to_dict())
    filters = [
        "array_contains(items.price, 2.5e0)",
        "size(items.price) = 2",
        "items.price IS NULL",
        "array_contains(items.by.name, 'a')",
    ]
    engine = Engine(ITEMS)
    engine.subscribe_many([(text, text) for text in filters])
    wanted = [{filters[0], filters[1], filters[3]}, {filters[1]}, set(), {filters[2]}, {filters[2]}]
    assert [set(found) for found in engine.match_batch(ORDERS)] == wanted
    assert [set(engine.match(event)) for event in ORDERS] == wanted
    table = pa.Table.from_pylist(ORDERS, ARROW)
    assert [set(found) for found in engine.match_batch(table)] == wanted
    assert [set(found) for found in engine.match_batch(table.slice(1))] == wanted[1:]
    apart = pa.table({"items": [{"price": [2.5]}]})  # a struct of arrays says the same
    assert engine.match_batch(apart).to_lists() == [[filters[0]]]


def test_what_does_not_fit():
    """The error names the element; arrays in arrays of structs cannot be used."""
    engine = Engine(ITEMS)
    engine.subscribe(1, "array_contains(items.price, 1)")
    with pytest.raises(EventError, match=r"attribute 'items.price': element 1: expected float, got string 'x'"):
        engine.match_batch([{"items": [{"price": 1.0}, {"price": "x"}]}])
    with pytest.raises(EventError, match="element 0: expected a struct with field 'price', got integer 1"):
        engine.match_batch([{"items": [1]}])
    schema = Schema.of(pa.schema({"items": pa.list_(pa.struct({"tags": pa.list_(pa.string()), "n": pa.int8()}))}))
    assert [a.name for a in schema] == ["items.n"]
    assert "arrays and maps hold plain values only" in schema.unusable["items.tags"]


HOSTS = Schema.of({"host": "string", "`host.name`": "string", "a.b": "int", "`x.y`": "int"})


def test_flat_names():
    """A column called host.name beside host is written in backticks, in schemas and in filters."""
    engine = Engine(HOSTS)
    filters = ["host = 'h'", "`host.name` = 'n'", "a.b = 1", "`x.y` = 2", "`a.b` = 1", "`X.y` = 2 AND a . `b` = 1"]
    engine.subscribe_many([(text, text) for text in filters])
    events = [
        {"host": "h", "host.name": "n", "a": {"b": 1}, "x.y": 2},
        {"host": "h", "host.name": None, "a.b": 1, "x": {"y": 2}},
    ]
    wanted = [set(filters), {"host = 'h'", "a.b = 1", "`a.b` = 1"}]
    assert [set(found) for found in engine.match_batch(events)] == wanted
    assert [set(engine.match(event)) for event in events] == wanted
    assert engine["`X.y` = 2 AND a . `b` = 1"] == "a.b = 1 AND `x.y` = 2"
    with pytest.raises(FilterError, match=r"unknown attribute 'x\.y'; did you mean '`x\.y`'"):
        engine.subscribe("field", "x.y = 2")
    with pytest.raises(SchemaError, match=r"both in the column 'a\.b'"):
        Schema.of({"a.b": "int", "`a.b`": "int"})


def test_flat_names_of_tables(tmp_path):
    """A table with both has both; a saved engine finds them again."""
    table = pa.table({"host": ["h"], "host.name": ["n"], "q.r": [1]})
    schema = Schema.of(table)
    assert [a.name for a in schema] == ["host", "`host.name`", "q.r"]
    assert Schema.from_json(schema.to_json()) == schema == Schema.of(schema.to_arrow())
    engine = Engine(schema)
    engine.subscribe(1, "`host.name` = 'n' AND upper(`host.name`) <> host AND q.r * 2 > 1")
    engine.save(tmp_path)
    assert Engine.open(tmp_path).match_batch(table).to_lists() == engine.match_batch(table).to_lists() == [[1]]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a", ["a"]),
        ("a.b", ["a", "b"]),
        ("`a.b`", ["a.b"]),
        ("x.`a.b`.y", ["x", "a.b", "y"]),
        ("o`dd", ["o`dd"]),
        ("`q`", ["`q`"]),
    ],
)
def test_split_and_join(name: str, parts: list[str]):
    """Only a part with dots needs its backticks; other names are as they always were."""
    assert split_name(name) == tuple(parts)
    assert join_name(parts) == name
