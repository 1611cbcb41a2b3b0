"""Maps: an attribute whose keys an index knows, and whose values are read by key."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from tests.examples import some

from wherecast import Engine, Schema
from wherecast.errors import EventError, FilterError, SchemaError

FIELDS = {
    "labels": "map<string,string>",
    "sizes": "map<string, double>",
    "by_day": "map<date,decimal(10, 2)>",
    "by_number": "map<int,bigint>",
    "n": "int",
}
EVENTS = [
    {"labels": {"team": "core", "env": "prod"}, "sizes": {"a": 2.0, "b": 3.5}, "by_number": {1: 10}, "n": 1},
    {"labels": {"team": None}, "sizes": {"a": float("nan")}, "by_day": {dt.date(2024, 1, 31): Decimal("1.50")}},
    {"labels": {}, "sizes": None, "by_number": {-1: None, 2: 5}},
    {"sizes": {"b": -0.0}, "labels": {"env": "", "team": "Core"}},
]
#: The numbers of the events that match.
FILTERS: dict[str, list[int]] = {
    "labels['team'] = 'core'": [0],
    "lower(labels['team']) = 'core'": [0, 3],
    "labels['team'] IS NULL": [1, 2],
    "labels['team'] IS NOT NULL": [0, 3],
    "NOT (labels['team'] = 'core')": [3],
    "labels['team'] <=> NULL": [1, 2],
    "labels['env'] LIKE 'pr%'": [0],
    "labels['env'] IN ('', 'x')": [3],
    "element_at(labels, 'team') = 'Core'": [3],
    "try_element_at(labels, 'none') = 'x'": [],
    "map_contains_key(labels, 'team')": [0, 1, 3],
    "NOT map_contains_key(labels, 'team')": [2],
    "array_contains(map_keys(labels), 'env')": [0, 3],
    "array_contains(map_values(labels), 'core')": [0],
    "exists(map_keys(labels), k -> k LIKE 'te%')": [0, 1, 3],
    "map_values(labels)[0] = 'core'": [0],
    "size(labels) = 2": [0, 3],
    "cardinality(sizes) = 1": [1, 3],
    "sizes IS NULL": [2],
    "sizes IS NOT NULL AND labels IS NOT NULL": [0, 1, 3],
    "sizes['a'] > 1": [0, 1],
    "sizes['b'] = 0": [3],
    "sizes['a'] + sizes['b'] > 5": [0],
    "by_day[DATE '2024-01-31'] = 1.5": [1],
    "by_day['2024-01-31'] >= 1": [1],
    "by_number[1] = 10": [0],
    "by_number[n] = 10": [0],
    "element_at(by_number, -1) IS NULL AND by_number IS NOT NULL": [0, 2],
}


def found(engine: Engine, events: object) -> dict[str, list[int]]:
    rows = [set(ids) for ids in engine.match_batch(events)]  # type: ignore[arg-type]
    return {text: [i for i, ids in enumerate(rows) if text in ids] for text in FILTERS}


@pytest.fixture
def engine() -> Engine:
    engine = Engine(FIELDS)
    engine.subscribe_many([(text, text) for text in FILTERS])
    return engine


def test_filters_on_maps(engine: Engine, tmp_path: Path) -> None:
    """From dictionaries, an Arrow table, pandas and single events, in an engine and in its snapshot."""
    table = pa.Table.from_pylist(EVENTS, schema=engine.schema.to_arrow())
    assert found(engine, EVENTS) == FILTERS
    assert found(engine, table) == FILTERS
    assert found(engine, table.slice(1).to_batches()[0]) == {f: [i - 1 for i in v if i] for f, v in FILTERS.items()}
    shown = found(engine, table.drop_columns("by_number").to_pandas())  # pandas makes floats of integers beside NULL
    assert all(shown[text] == rows for text, rows in FILTERS.items() if "by_number" not in text)
    assert found(engine, pd.DataFrame(EVENTS, dtype=object)) == FILTERS
    for row, event in enumerate(EVENTS):
        assert set(engine.match(event)) == {text for text, rows in FILTERS.items() if row in rows}
    engine.save(tmp_path / "maps")
    assert found(Engine.open(tmp_path / "maps"), EVENTS) == FILTERS


def test_a_shared_key_is_a_column() -> None:
    """Many filters on one key read it once per event, and no residual is left; the key itself narrows down one alone."""
    engine = Engine(FIELDS)
    engine.subscribe_many((i, f"labels['team'] = 'team{i}' AND n = {i % 3}") for i in range(200))
    engine.subscribe("alone", "labels['rare'] = 'x'")
    assert "labels['team']" in str(engine.stats())
    assert engine.match({"labels": {"team": "team4"}, "n": 1}) == [4]
    assert engine.match({"labels": {"rare": "x", "team": "team5"}, "n": 0}) == ["alone"]
    assert engine[4] == "map_contains_key(labels, 'team') AND n = 1 AND labels['team'] = 'team4'"


@pytest.mark.sampled
@pytest.mark.parametrize(
    "kind", ["string", "double", "real", "bigint", "boolean", "date", "timestamp", "binary", "decimal(9,2)"]
)
def test_the_column_of_a_key_is_the_value_of_the_key(kind: str) -> None:
    """Of every type, in a batch with NULLs and gaps, and in slices of it, as evaluated one by one."""
    texts = {
        "boolean": ["m['a']", "m['a'] = FALSE", "m['a'] IS NULL"],
        "date": ["m['a'] > DATE '2024-01-01'", "m['a'] = '2024-02-29'", "m['a'] IS NULL"],
        "timestamp": ["m['a'] > '2024-01-01 00:00:00'", "m['a'] IS NULL"],
        "binary": ["m['a'] = X'6162'", "m['a'] > X'61'"],
        "string": ["m['a'] = 'ab'", "m['a'] > 'a'", "m['a'] <> 'ab'"],
    }.get(kind, ["m['a'] > 1", "m['a'] = 2.5D", "m['a'] <> 1", "m['a'] <= 1.5"])
    values: dict[str, list[object]] = {
        "boolean": [True, False],
        "date": [dt.date(2024, 2, 29), dt.date(2023, 1, 1)],
        "timestamp": [dt.datetime(2024, 2, 29, tzinfo=dt.UTC), dt.datetime(2023, 1, 1, tzinfo=dt.UTC)],
        "binary": [b"", b"ab", b"b"],
        "string": ["", "ab", "b", "é"],
        "bigint": [1, 2, -5],
    }
    drawn = [*values.get(kind, [1.0, 2.5, -0.5]), None]
    events = [
        {"m": None},
        {},
        {"m": {}},
        *({"m": {"b": v, "a": w}} for v in drawn for w in drawn),
        {"m": {"b": drawn[0]}},
    ]
    alone, shared = Engine({"m": f"map<string,{kind}>"}), Engine({"m": f"map<string,{kind}>"})
    alone.subscribe_many(enumerate(texts))
    shared.subscribe_many(
        (i + len(texts) * copy, f"{t} OR m['c'] IS NULL AND size(m) = -{copy + 1}")
        for copy in range(40)
        for i, t in enumerate(texts)
    )
    assert "m['a']" in str(shared.stats()["segments"][0]["codes"])
    assert "m['a']" not in str(alone.stats()["segments"][0]["codes"])
    for batch in (events, events[3:]):
        expected = [sorted(ids) for ids in alone.match_batch(batch)]
        assert [sorted(i for i in ids if i < len(texts)) for ids in shared.match_batch(batch)] == expected


def test_explain_shows_the_value_of_a_key(engine: Engine) -> None:
    """The map where a key is missing, else the value of the key."""
    shown = str(engine.explain(EVENTS[3], "labels['team'] = 'core'"))
    assert "FAIL labels['team'] = 'core'   (is 'Core')" in shown
    assert "map_contains_key(labels, 'team')   (is {'env': '', 'team': 'Core'})" in shown


def test_schemas_with_maps() -> None:
    """Every form of a schema keeps a map as it is, also in a struct."""
    schema = Schema.of({**FIELDS, "q": {"type": "struct", "fields": {"m": "map<string,boolean>", "x": "int"}}})
    assert schema["labels"].type_name == "map<string,string>"
    assert Schema.of(schema.to_dict()) == Schema.from_json(schema.to_json()) == Schema.from_yaml(schema.to_yaml())
    assert Schema.from_arrow(schema.to_arrow()) == schema == Schema.of(schema.to_dict())
    engine = Engine(schema)
    engine.subscribe("x", "q.m['a']")
    assert engine.match({"q": {"m": {"a": True}}}) == ["x"]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("map<double,string>", "the keys of a map cannot be of type float"),
        ("map<decimal(4,1),string>", "cannot be of type decimal"),
        ("map<string,array<int>>", "arrays and maps hold plain values only"),
        ("map<string,map<string,int>>", "arrays and maps hold plain values only"),
        ("array<map<string,int>>", "arrays and maps hold plain values only"),
        ("map<string>", "is not supported"),
        ({"type": "map<string,int>", "min": 0}, "neither a domain nor coerce"),
    ],
)
def test_maps_that_cannot_be(written: object, message: str) -> None:
    """Keys that have no order, nested maps and domains are refused."""
    with pytest.raises(SchemaError, match=message):
        Schema.of({"m": written})


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"sizes": {"a": "x"}}, "value of key 'a': expected float, got string 'x'"),
        ({"sizes": 5}, "expected map<string,float>, got integer 5"),
        ({"labels": {None: "x"}}, "key None: it is NULL"),
        ({"labels": [("a", "x"), ("a", "y")]}, "key 'a': it is there twice"),
        ({"labels": {1: "x"}}, "key 1: expected string"),
    ],
)
def test_values_that_do_not_fit(engine: Engine, event: dict[str, object], message: str) -> None:
    """The error names the key; the event is skipped where the caller says so."""
    with pytest.raises(EventError, match=message):
        engine.match_batch([event])
    assert len(engine.match_batch([event, *EVENTS], on_error="skip").errors) == 1


def test_keys_that_are_there_twice_in_arrow(engine: Engine) -> None:
    """Arrow allows what a dictionary does not; the bad row alone is refused."""
    maps = pa.array([[("a", "x"), ("a", "y")], [("a", "x")], None], pa.map_(pa.string(), pa.string()))
    matches = engine.match_batch(pa.table({"labels": maps}), on_error="skip")
    assert [str(e) for e in matches.errors] == ["event 0, attribute 'labels': key 'a': it is there twice"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("labels = 'x'", "a map cannot be compared"),
        ("labels[1] = 'x'", "needs a key of type string"),
        ("by_number['a'] = 1", "needs a key of type int"),
        ("map_contains_key(labels, NULL)", "no NULL key"),
        ("n['x'] = 1", "needs an array or a map"),
        ("coalesce(labels, labels) IS NULL", "coalesce needs a value"),
        ("labels.team = 'x'", "unknown attribute"),
        ("array_contains(labels, 'x')", "needs an array"),
    ],
)
def test_filters_that_are_refused(text: str, message: str) -> None:
    """A key has the type of the keys; a map is not a value."""
    with pytest.raises(FilterError, match=message):
        Engine(FIELDS).subscribe("x", text)


def test_timestamps_in_maps_are_those_of_the_attribute() -> None:
    """On Spark a column of wall clocks is not taken for one of instants, also where they are the values of a map."""
    types = pytest.importorskip("pyspark.sql.types")
    columns = pytest.importorskip("wherecast.spark.columns")
    schema = Schema.of({"m": "map<string,timestamp>"})
    fine = types.StructType().add("m", types.MapType(types.StringType(), types.TimestampType()))
    columns.check_moments(fine, schema, {"m": ("m",)})
    other = types.StructType().add("m", types.MapType(types.StringType(), types.TimestampNTZType()))
    with pytest.raises(SchemaError, match="the column 'm' is a timestamp_ntz, its attribute a timestamp"):
        columns.check_moments(other, schema, {"m": ("m",)})


def test_maps_of_different_types_in_one_batch():
    """Filters that differ in the map they begin with are compiled each with its own types."""
    schema = {"m": "map<string,string>", "f": "map<string,double>", "k": "map<int,bigint>"}
    event = {"m": {"a": "1", "b": "x"}, "f": {"a": 1.0, "b": float("nan")}, "k": {1: 1}}
    terms = [
        f"{name}['{key}'] {op} 1" for op in ("=", "<>", "<", "<=", ">", ">=", "<=>") for name in "mf" for key in "ab"
    ]
    forms = ("{}", "NOT {}", "{} OR m IS NULL", "{} AND f IS NOT NULL", "{} AND NOT k IS NULL", "NOT ({} OR k IS NULL)")
    filters = [form.format(text) for form in forms for text in terms]  # many shapes: they are compiled by their terms
    together, alone = Engine(schema), []
    together.subscribe_many(enumerate(filters))
    chosen = some(range(len(filters)))
    for number in chosen:
        engine = Engine(schema)
        engine.subscribe(number, filters[number])
        alone += engine.match(event)
    found = together.match(event)
    assert sorted(set(found) & set(chosen)) == alone
    assert 0 < len(found) < len(filters)
