"""A schema is read from whatever tells one, and an engine takes the same things."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.unit.arrow_forms import Batch, Stream

from wherecast import Engine, EventError, FilterError, Schema, SchemaError

WRITTEN = {"a": "integer", "s": "string", "t": "timestamp", "tags": "array<string>", "q.x": "float"}
TYPES = pa.schema(
    {
        "a": pa.int64(),
        "s": pa.string(),
        "t": pa.timestamp("us", "UTC"),
        "tags": pa.list_(pa.string()),
        "q": pa.struct({"x": pa.float64()}),
    }
)
TABLE = TYPES.empty_table()
WANTED = Schema.of(WRITTEN)


class Types:
    """A schema of a library that has nothing but Arrow's C schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()


class TypesByName(Types, dict):
    """As above, and a mapping of names to types of its own, as in Polars."""


class Struct:
    """What is used of a Spark StructType."""

    def __init__(self, schema: Schema) -> None:
        from pyspark.sql.types import StructType

        self._struct: StructType = schema.to_spark()

    def jsonValue(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._struct.jsonValue()


class Frame:
    """What is used of a Spark DataFrame."""

    def __init__(self, schema: Schema) -> None:
        self.schema = Struct(schema)


def _file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


SOURCES: dict[str, Callable[[Path], Any]] = {
    "schema": lambda _: WANTED,
    "mapping": lambda _: WRITTEN,
    "JSON file": lambda p: _file(p / "s.json", json.dumps(WRITTEN)),
    "YAML file, as text": lambda p: str(_file(p / "s.yaml", WANTED.to_yaml())),
    "Arrow schema": lambda _: TYPES,
    "table": lambda _: TABLE,
    "reader": lambda _: TABLE.to_reader(),
    "record batch": lambda _: pa.RecordBatch.from_pylist([], TYPES),
    "C schema": lambda _: Types(TYPES),
    "C schema and mapping": lambda _: TypesByName(TYPES),
    "C stream": lambda _: Stream(TABLE),
    "C array": lambda _: Batch(pa.RecordBatch.from_pylist([], TYPES)),
    "pandas of Arrow types": lambda _: TABLE.to_pandas(types_mapper=pd.ArrowDtype),
    "StructType": lambda _: Struct(WANTED),
    "DataFrame": lambda _: Frame(WANTED),
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_schema_is_read_from(source: str, tmp_path) -> None:
    """Every source tells the same schema, also to an engine, and takes a time zone."""
    make = SOURCES[source]
    assert Schema.of(make(tmp_path)) == WANTED
    assert Engine(make(tmp_path)).schema == WANTED
    assert Schema.of(make(tmp_path), time_zone="Europe/Berlin") == WANTED.in_time_zone("Europe/Berlin")


def test_a_zone_given_comes_before_the_one_written(tmp_path) -> None:
    """Domains of a file are read in the zone that counts."""
    text = '{"__wherecast_time_zone": "Asia/Tokyo", "t": {"type": "timestamp", "min": "2024-01-01 00:00:00"}}'
    path = _file(tmp_path / "s.json", text)
    assert Schema.of(path).time_zone == "Asia/Tokyo"
    assert Schema.of(path, time_zone="UTC") == Schema.of({"t": {"type": "timestamp", "min": "2024-01-01 00:00:00Z"}})


@pytest.mark.parametrize("thing", [5, None, ["a"], b"x", pa.array([1]), pa.int64(), object(), pa.chunked_array([[1]])])
def test_what_tells_no_schema_is_refused(thing: object) -> None:
    """The message names the type and what to give."""
    with pytest.raises(SchemaError, match=f"cannot read a schema from {type(thing).__name__}; give a mapping"):
        Schema.of(thing)


def test_a_frame_of_pandas() -> None:
    """Columns by their dtypes, columns of objects by their values."""
    frame = pd.DataFrame(
        {
            "i": np.array([1, 2], np.int16),
            "f": [1.5, None],
            "s": ["x", None],
            "c": pd.Categorical(["u", "v"]),
            "d": pd.to_datetime(["2024-01-01", "2024-01-02"]),
            "z": pd.to_datetime(["2024-01-01", "2024-01-02"], utc=True),
            "l": [["a"], []],
            "n": pd.array([1, None], "Int32"),
            "mixed": [1, "x"],
            "empty": [None, None],
            7: [1, 2],
        }
    )
    schema = Schema.of(frame)
    assert {a.name: a.type_name for a in schema} == {
        "i": "smallint",
        "f": "float",
        "s": "string",
        "c": "string",
        "d": "timestamp_ntz",
        "z": "timestamp",
        "l": "array<string>",
        "n": "int",
    }
    assert sorted(schema.unusable) == ["empty", "mixed"]
    engine = Engine(frame)
    engine.subscribe(1, "i = 1 AND c = 'u' AND array_contains(l, 'a') AND n = 1")
    assert engine.match_batch(frame).to_lists() == [[1], []]


UNUSABLE = pa.schema(
    {
        "a": pa.int64(),
        "price": pa.duration("s"),
        "raw": pa.list_(pa.list_(pa.int8())),
        "q": pa.struct({"x": pa.float64(), "m": pa.map_(pa.float64(), pa.string())}),
        "__wherecast_x": pa.int64(),
        "": pa.int64(),
    }
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("price > 1", r"'price': type duration\[s\] is not supported; use one of boolean"),
        ("a = 1 AND PRICE > 1", "duration"),
        ("q.m IS NULL", r"'q\.m': the keys of a map cannot be of type float"),
        ("q.m.key = 'x'", r"'q\.m': the keys of a map"),
        ("raw = 'x'", "type list"),
        ("`__wherecast_x` = 1", "choose another name"),
        ("prize > 1", "unknown attribute 'prize'"),
    ],
)
def test_a_column_that_cannot_be_used_is_an_error_of_the_filter_that_names_it(
    text: str, message: str, tmp_path
) -> None:
    """The error names the type and what to do; other filters work; a saved engine still knows."""
    engine = Engine(UNUSABLE)
    engine.subscribe("good", "a = 1 AND q.x > 0")
    engine.save(tmp_path)
    for each in (engine, Engine.open(tmp_path)):
        with pytest.raises(FilterError, match=message):
            each.subscribe("bad", text)
        assert each.match({"a": 1, "q": {"x": 1.0}}) == ["good"]
    copied = pickle.loads(pickle.dumps(engine.schema))
    assert copied.unusable == engine.schema.unusable
    assert Schema.from_yaml(engine.schema.to_yaml()).unusable == engine.schema.unusable
    assert engine.schema == Schema.of({"a": "integer", "q.x": "float"})


@pytest.mark.parametrize("forged", [5, ["x"], {"x": 5}, {"x": None}])
def test_forged_reasons_are_refused(forged: object) -> None:
    """What is unusable is a mapping of texts to texts."""
    with pytest.raises(SchemaError, match="__wherecast_unusable"):
        Schema.of({"__wherecast_unusable": forged, "a": "integer"})


def test_a_type_that_somebody_writes_is_still_refused() -> None:
    """Only tables may have columns that nobody can use."""
    with pytest.raises(SchemaError, match="interval"):
        Schema.of({"price": "interval"})


WORDS = [
    "select",
    "from",
    "where",
    "case",
    "and",
    "or",
    "not",
    "null",
    "true",
    "like",
    "in",
    "between",
    "end",
    "is",
    "date",
]


@pytest.mark.parametrize("word", WORDS)
def test_reserved_words_are_names_in_backticks(word: str) -> None:
    """In filters given, and given back."""
    engine = Engine({word: "integer"})
    engine.subscribe(1, f"`{word}` = 1")
    assert engine[1] in (f"`{word}` = 1", f"{word} = 1")
    engine.subscribe(1, engine[1], replace=True)
    assert engine.match({word: 1}) == [1]


@pytest.mark.parametrize("word", WORDS)
def test_reserved_words_in_structs(word: str) -> None:
    """A part of a dotted name may be a reserved word, too."""
    engine = Engine({f"s.{word}": "integer", f"{word}.x": "integer"})
    engine.subscribe(1, f"s.`{word}` = 1 AND `{word}`.x = 2")
    other = Engine(engine.schema)
    other.subscribe_many(engine.items())
    assert other.match({"s": {word: 1}, word: {"x": 2}}) == [1]


def test_a_missing_value_of_a_name_that_differs_in_case_is_reported() -> None:
    """Schemas of tables are as strict about the names of events as others."""
    engine = Engine(pa.schema({"Price": pa.float64()}), strict=True)
    engine.subscribe(1, "price > 1")
    with pytest.raises(EventError, match="price"):
        engine.match({"price": 2.0})
