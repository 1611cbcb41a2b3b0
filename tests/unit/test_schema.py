from __future__ import annotations

import copy
import datetime as dt
import json
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wherecast.errors
from wherecast.errors import SchemaError
from wherecast.language.events import arrow, kinds
from wherecast.language.events import scalars as scalar_columns
from wherecast.language.events.schema import MAX_ATTRIBUTES, Attribute, Domain, Schema
from wherecast.language.events.types import Kind, integer_range

STOCK = {
    "symbol": "string",
    "price": {"type": "double", "min": 0, "max": 1000, "precision": 0.01},
    "side": {"type": "string", "values": ["buy", "sell"]},
    "tags": "array<string>",
    "quote": {
        "type": "struct",
        "fields": {"bid": "double", "sizes": "array<int>", "by": {"type": "date", "min": "2024-01-31"}},
    },
}


@pytest.fixture
def stock() -> Schema:
    return Schema.of(STOCK)


# Strategies: names, domains, schemas

names = st.from_regex(r"[a-z_ÄßЖ日][a-z0-9_ $`'-]{0,6}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = {
    Kind.BOOLEAN: st.booleans(),
    Kind.INTEGER: st.integers(-(2**63), 2**63 - 1),
    Kind.FLOAT: st.floats(allow_nan=False, allow_infinity=False),
    Kind.DECIMAL: st.decimals(-999, 999, places=2),
    Kind.STRING: texts,
    Kind.BINARY: st.binary(max_size=5),
    Kind.DATE: st.dates(),
    Kind.TIMESTAMP: st.datetimes(timezones=st.just(dt.UTC)),
    Kind.TIMESTAMP_NTZ: st.datetimes(),
}


narrow_scalars = {
    **{(Kind.INTEGER, bits): st.integers(*integer_range(bits)) for bits in (8, 16, 32)},
    (Kind.FLOAT, 32): st.floats(allow_nan=False, allow_infinity=False, width=32),
}


@st.composite
def domains(draw, kind: Kind, bits: int) -> Domain:
    of_width = narrow_scalars.get((kind, bits), scalars[kind])
    if not kinds.ROWS[kind].has_range or draw(st.booleans()):
        return Domain(values=tuple(draw(st.lists(of_width, min_size=1, max_size=4, unique=True))))
    low, high = sorted([draw(of_width), draw(of_width)])
    step = None
    if kind in (Kind.INTEGER, Kind.FLOAT):
        step = draw(st.none() | scalars[kind].filter(lambda v: v > 0))
    drop = draw(st.sampled_from(["nothing", "minimum", "maximum"]))
    return Domain(
        minimum=None if drop == "minimum" else low, maximum=None if drop == "maximum" else high, precision=step
    )


@st.composite
def schemas(draw) -> Schema:
    attributes = []
    for top in draw(st.lists(names, max_size=5, unique_by=str.lower)):
        fields = draw(st.just([""]) | st.lists(names, min_size=1, max_size=3, unique_by=str.lower))
        for field in fields:
            kind = draw(st.sampled_from(Kind))
            bits = draw(st.sampled_from(list(kinds.ROWS[kind].forms)))
            domain = draw(st.none() | domains(kind, bits)) if kinds.ROWS[kind].has_domain else None
            digits = (bits // 8, draw(st.integers(2, 5))) if kinds.ROWS[kind].has_digits else (0, 0)
            name = f"{top}.{field}" if field else top
            attributes.append(Attribute(name, kind, draw(st.booleans()), domain, bits, digits))
    return Schema(tuple(attributes), draw(st.sampled_from(["UTC", "Europe/Berlin", "+05:30"])))


def without_domains(schema: Schema) -> Schema:
    return Schema(
        tuple(Attribute(a.name, a.kind, a.is_array, bits=a.bits, digits=a.digits) for a in schema), schema.time_zone
    )


# Round trips


@given(schemas())
def test_round_trip_written(schema: Schema):
    """A schema survives its dict, JSON and YAML forms whole, domains included, and so do its types and its hash."""
    assert Schema.of(schema.to_dict()) == schema
    assert Schema.from_json(schema.to_json()) == schema
    assert Schema.from_yaml(schema.to_yaml()) == schema
    assert hash(Schema.of(schema.to_dict())) == hash(schema)


@given(schemas())
def test_round_trip_arrow(schema: Schema):
    """A schema survives its Arrow form, but for domains."""
    assert Schema.from_arrow(schema.to_arrow(), time_zone=schema.time_zone) == without_domains(schema)


@given(schemas())
def test_round_trip_spark(schema: Schema):
    """A schema survives its Spark form, but for domains."""
    assert Schema.from_spark(schema.to_spark(), time_zone=schema.time_zone) == without_domains(schema)


def test_round_trip_file(tmp_path, stock: Schema):
    """A file is JSON or YAML by its suffix; a byte order mark does no harm."""
    for name, text in [("s.json", stock.to_json()), ("s.yaml", stock.to_yaml()), ("s.YML", "\ufeff" + stock.to_yaml())]:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        assert Schema.from_file(path) == stock
        assert Schema.from_file(str(path)) == stock


def test_unicode_in_yaml():
    """YAML keeps letters readable and line separators whole."""
    assert "größe: string" in Schema.of({"größe": "string"}).to_yaml()
    odd = Schema.of({"a": {"type": "string", "values": ["\x85", "\u2028", "\ufeff", "a\u2029 b"]}})
    assert Schema.from_yaml(odd.to_yaml()) == odd


def test_copies(stock: Schema):
    """A schema can be pickled and copied."""
    for other in (pickle.loads(pickle.dumps(stock)), copy.deepcopy(stock)):
        assert other == stock
        assert other.index("quote.bid") == stock.index("quote.bid")


# Forms


def test_of(stock: Schema):
    """The written form gives types, domains and, for nested fields, dotted names, in order."""
    assert [(a.name, a.type_name) for a in stock] == [
        ("symbol", "string"),
        ("price", "float"),
        ("side", "string"),
        ("tags", "array<string>"),
        ("quote.bid", "float"),
        ("quote.sizes", "array<int>"),
        ("quote.by", "date"),
    ]
    assert stock["price"].domain == Domain(minimum=0.0, maximum=1000.0, precision=0.01)
    assert type(stock["price"].domain.minimum) is float
    assert stock["side"].domain == Domain(values=("buy", "sell"))
    assert stock["quote.by"].domain == Domain(minimum=dt.date(2024, 1, 31))
    assert stock["symbol"].domain is None


@pytest.mark.parametrize(
    ("written", "kind", "bits"),
    [
        *((t, Kind.BOOLEAN, 64) for t in ("bool", "boolean", "BOOLEAN")),
        *((t, Kind.INTEGER, 8) for t in ("tinyint", "byte")),
        *((t, Kind.INTEGER, 16) for t in ("smallint", "short")),
        ("int", Kind.INTEGER, 32),
        *((t, Kind.INTEGER, 64) for t in ("integer", "long", "bigint")),
        ("real", Kind.FLOAT, 32),
        *((t, Kind.FLOAT, 64) for t in ("float", "double", " Double ")),
        *((t, Kind.STRING, 64) for t in ("string", "text", "varchar")),
        ("date", Kind.DATE, 64),
        ("timestamp", Kind.TIMESTAMP, 64),
    ],
)
def test_type_names(written: str, kind: Kind, bits: int):
    """Every synonym names its kind and width, alone and in an array."""
    assert Schema.of({"a": written})["a"] == Attribute("a", kind, bits=bits)
    assert Schema.of({"a": f"Array< {written} >"})["a"] == Attribute("a", kind, is_array=True, bits=bits)


def test_timestamp_domain():
    """Timestamps in a domain are written in ISO form and mean UTC where no zone is given."""
    schema = Schema.of({"t": {"type": "timestamp", "min": "2024-01-31 10:00:00+02:00", "max": dt.datetime(2024, 2, 1)}})  # noqa: DTZ001
    assert schema.to_dict() == {
        "t": {"type": "timestamp", "min": "2024-01-31T08:00:00Z", "max": "2024-02-01T00:00:00Z"}
    }
    assert Schema.from_yaml("t: {type: timestamp, min: 2024-01-31T08:00:00Z}")["t"].domain == Domain(
        minimum=dt.datetime(2024, 1, 31, 8, tzinfo=dt.UTC)
    )


def test_from_arrow():
    """Arrow types of every width and encoding become the type of their values; structs are flattened."""
    text = pa.string()
    arrow = pa.schema(
        {
            "b": pa.bool_(),
            **{f"i{k}": t for k, t in enumerate([pa.int64(), pa.uint32(), pa.uint64()])},
            **{f"f{k}": t for k, t in enumerate([pa.float64()])},
            **{f"s{k}": t for k, t in enumerate([text, pa.large_string(), pa.string_view()])},
            "s3": pa.dictionary(pa.int8(), text),
            "s4": pa.run_end_encoded(pa.int32(), text),
            "s5": pa.json_(),
            **{f"d{k}": t for k, t in enumerate([pa.date32(), pa.date64()])},
            **{f"t{k}": t for k, t in enumerate([pa.timestamp("s", "UTC"), pa.timestamp("ns", "Europe/Berlin")])},
            "n": pa.timestamp("ms"),
            **{
                f"l{k}": t
                for k, t in enumerate(
                    [
                        pa.list_(text),
                        pa.large_list(text),
                        pa.list_(text, 2),
                        pa.list_view(text),
                        pa.large_list_view(text),
                    ]
                )
            },
            "q": pa.struct({"x": pa.int8(), "y": pa.struct({"z": pa.list_(pa.date32())})}),
        }
    )
    kinds = {"b": "boolean", "i": "integer", "f": "float", "s": "string", "d": "date", "t": "timestamp"}
    kinds["n"] = "timestamp_ntz"
    schema = Schema.from_arrow(arrow)
    for attribute in schema.attributes[:-2]:
        assert attribute.type_name == kinds.get(attribute.name[0], "array<string>")
    assert [(a.name, a.type_name) for a in schema.attributes[-2:]] == [("q.x", "tinyint"), ("q.y.z", "array<date>")]


def test_widths_from_arrow_and_pandas():
    """A column keeps its width; an unsigned one gets the next signed width, which holds all its values."""
    arrow = {
        "tinyint": [pa.int8()],
        "smallint": [pa.int16(), pa.uint8()],
        "int": [pa.int32(), pa.uint16(), pa.dictionary(pa.int8(), pa.int32())],
        "integer": [pa.int64(), pa.uint32(), pa.uint64()],
        "real": [pa.float16(), pa.float32()],
        "float": [pa.float64()],
    }
    for name, data_types in arrow.items():
        for data_type in data_types:
            schema = Schema.from_arrow(pa.schema({"x": data_type, "y": pa.list_(data_type)}))
            assert [a.type_name for a in schema] == [name, f"array<{name}>"], data_type
    frame = pd.DataFrame({"a": np.array([1], np.int16), "b": np.array([1], np.float32), "c": [1], "d": [1.5]})
    schema = Schema.from_arrow(pa.Schema.from_pandas(frame))
    assert [a.type_name for a in schema] == ["smallint", "real", "integer", "float"]


def test_to_arrow_groups_structs():
    """The fields of a struct are rebuilt in one place even if others stand between them."""
    schema = Schema.of({"a.x": "int", "b": "date", "a.y": "timestamp"})
    expected = pa.schema(
        {"a": pa.struct({"x": pa.int32(), "y": pa.timestamp("us", "UTC")}), "b": pa.date32()},
    )
    assert schema.to_arrow() == expected
    assert [a.name for a in Schema.from_arrow(expected)] == ["a.x", "a.y", "b"]


class FakeSpark:
    def __init__(self, *fields: tuple[str, object]) -> None:
        self.fields = [{"name": name, "type": t, "nullable": True, "metadata": {}} for name, t in fields]

    def jsonValue(self):  # noqa: N802 - Spark's name
        return {"type": "struct", "fields": self.fields}


def test_from_spark():
    """Spark's types become kinds; PySpark itself is not needed to read them."""
    schema = Schema.from_spark(
        FakeSpark(
            ("a", "byte"),
            ("b", "varchar(20)"),
            ("c", "timestamp_ntz"),
            ("d", {"type": "array", "elementType": "long", "containsNull": True}),
            ("e", FakeSpark(("f", "boolean")).jsonValue()),
            *((t, t) for t in ("short", "integer", "float", "double")),
        )
    )
    assert {a.name: a.type_name for a in schema} == {
        "a": "tinyint",
        "b": "string",
        "c": "timestamp_ntz",
        "d": "array<integer>",
        "e.f": "boolean",
        "short": "smallint",
        "integer": "int",
        "float": "real",
        "double": "float",
    }


def test_to_spark_without_pyspark(monkeypatch, stock: Schema):
    """Without PySpark the error names the extra."""
    monkeypatch.setitem(sys.modules, "pyspark.sql.types", None)
    with pytest.raises(SchemaError, match=r"wherecast\[spark\]"):
        stock.to_spark()


def test_imports_nothing_slow():
    """Schemas need neither Arrow, NumPy, YAML nor Spark until asked: a filter is checked in a fraction of a second."""
    package = Path(wherecast.errors.__file__).parent
    code = (
        "import sys, types; bare = sys.modules['wherecast'] = types.ModuleType('wherecast'); "
        f"bare.__path__ = [{str(package)!r}]; from wherecast.language.events.schema import Schema; Schema.of({{'a': 'int'}}); "
        "print([m for m in ('pyarrow', 'numpy', 'yaml', 'pandas', 'pyspark', 'difflib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Looking up


def test_lookup(stock: Schema):
    """Names are found exactly first and regardless of case second, as Spark SQL resolves columns."""
    assert len(stock) == 7
    assert stock.find("price") == stock.index("PRICE") == 1
    assert stock.find("nothing") is None
    assert "Quote.Bid" in stock
    assert "quote" not in stock
    assert 3 not in stock
    assert stock["TAGS"].is_array


def test_suggest(stock: Schema):
    """A misspelt name leads to the right one; a field alone leads to its dotted name; noise leads nowhere."""
    assert stock.suggest("prise") == "price"
    assert stock.suggest("SYMBL") == "symbol"
    assert stock.suggest("bid") == "quote.bid"
    assert stock.suggest("xyzzy") is None
    assert stock.suggest("p" * 60_000) is None
    with pytest.raises(SchemaError, match="unknown attribute 'prise'; did you mean 'price'"):
        stock.index("prise")
    with pytest.raises(SchemaError, match="unknown attribute 'xyzzy'; add it"):
        stock["xyzzy"]


def test_repr(stock: Schema):
    """A schema shows itself in one short line."""
    assert repr(Schema.of({"a": "int", "b": "array<date>"})) == "Schema(a: int, b: array<date>)"
    assert repr(stock).endswith("... 1 more)")


def test_frozen(stock: Schema):
    """Nothing in a schema can be replaced."""
    with pytest.raises(AttributeError):
        stock.attributes = ()
    with pytest.raises(AttributeError):
        stock["price"].name = "x"


# Errors


def double(**domain):
    return {"x": {"type": "double", **domain}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"": "int"}, "must not be empty"),
        ({"a..b": "int"}, "must not be empty"),
        ({".a": "int"}, "must not be empty"),
        ({"a\nb": "int"}, "control characters"),
        ({"a\ud800": "int"}, "lone surrogates"),
        ({True: "int"}, "attribute True: a name must be text; put it in quotes"),
        ({"__Wherecast_row": "int"}, "begin with __wherecast"),
        ({"a": "int", "A": "int"}, "attribute 'A' differs from 'a' only in case"),
        ({"a.b": "int", "a": {"type": "struct", "fields": {"b": "int"}}}, "attribute 'a.b' is there twice"),
        ({"a": "int", "A.b": "int"}, "attribute 'a' is a value, but 'A.b' makes it a struct"),
        ({"a.b.c": "int", "a": "int"}, "attribute 'a' is a value, but 'a.b.c' makes it a struct"),
        ({"a.b": "int", "A.c": "int"}, "attribute 'A.c': its struct differs from that of 'a.b' only in case"),
        ({"a": "varchar2"}, "attribute 'a': type varchar2 is not supported; use one of boolean"),
        ({"a": "decimal(39,2)"}, r"attribute 'a': type decimal\(39,2\) does not exist"),
        ({"a": "smallint(5)"}, r"type smallint\(5\) is not supported"),
        ({"a": "array<array<int>>"}, "arrays and maps hold plain values only"),
        ({"a": "struct"}, "attribute 'a': a struct needs fields"),
        ({"a": {"type": "struct", "fields": {}}}, "a struct needs fields"),
        (
            {"a": {"type": "struct", "fields": {"b": "int"}, "min": 1}},
            "unknown key 'min'; known keys here: type, fields",
        ),
        ({"a": {"b": "int"}}, "attribute 'a': 'type' is missing"),
        ({"a": 5}, "attribute 'a': expected a type such as 'integer', got 5"),
        ({"a": {"type": "int", "maximum": 5}}, "unknown key 'maximum'; known keys here: type, values, min"),
        (["a"], "cannot read a schema from list; give a mapping"),
        (double(values=[]), "attribute 'x': values is empty"),
        (double(values=[1, 1.0]), "attribute 'x': 1.0 is there twice"),
        (double(values="ab"), "values must be a list"),
        (double(values=[1], min=0), "either values or min"),
        (double(values=[None]), "attribute 'x': values: NULL"),
        (double(values=["a"]), "attribute 'x': values: expected float, got string 'a'"),
        (double(values=[True]), "got boolean true"),
        (double(min=2, max=1), "attribute 'x': min 2.0 is greater than max 1.0"),
        (double(min=float("nan")), "attribute 'x': min: nan"),
        (double(max=float("inf")), "attribute 'x': max: inf"),
        (double(precision=0), "precision must be greater than 0"),
        (double(precision=float("nan")), "precision: nan"),
        ({"x": {"type": "integer", "max": 2**63}}, "outside 64 bits"),
        ({"x": {"type": "int", "max": 2**31}}, "expected int, got integer 2147483648, which is outside 32 bits"),
        ({"x": {"type": "real", "values": [1e39]}}, r"expected real, got float 1e\+39, which is outside 32 bits"),
        ({"x": {"type": "int", "min": 1.0}}, "attribute 'x': min: expected int, got float 1.0"),
        ({"x": {"type": "integer", "precision": 0.5}}, "precision: expected integer"),
        ({"x": {"type": "string", "min": "a"}}, "do not fit type string; list its values"),
        ({"x": {"type": "date", "min": "31.1.2024"}}, "write dates as 2024-01-31"),
        ({"x": {"type": "date", "min": "2024-01-01", "precision": 1}}, "precision is for integers and floats"),
        ({"x": {"type": "string", "values": ["\ud800"]}}, "lone surrogate"),
    ],
)
def test_refused(fields, message: str):
    """A schema that contradicts itself is refused; the message names the attribute and the way out."""
    with pytest.raises(SchemaError, match=message):
        Schema.of(fields)


def test_bad_attribute():
    """An attribute made by hand is checked as one that is read."""
    with pytest.raises(SchemaError, match="attribute 'a': the domain says nothing"):
        Attribute("a", Kind.FLOAT, domain=Domain())
    with pytest.raises(SchemaError, match="'integer' is not a kind"):
        Attribute("a", "integer")
    with pytest.raises(SchemaError, match="attribute 'a': type integer cannot have 12 bits; use 8 or 16 or 32 or 64"):
        Attribute("a", Kind.INTEGER, bits=12)
    with pytest.raises(SchemaError, match="attribute 'a': type date cannot have 32 bits; use 64"):
        Attribute("a", Kind.DATE, bits=32)


@pytest.mark.parametrize(
    ("reader", "text", "message"),
    [
        (Schema.from_json, '{"a": "int", "a": "int"}', "'a' is there twice"),
        (Schema.from_yaml, "a: int\na: date\n", "'a' is there twice"),
        (Schema.from_json, "{", "not readable JSON.*line 1 column 2"),
        (Schema.from_json, "[" * 100_000, "not readable JSON"),
        (Schema.from_json, "[1]", "a schema is a mapping"),
        (Schema.from_yaml, "a: [", "not readable YAML"),
        (Schema.from_yaml, "", "a schema is a mapping"),
        (Schema.from_yaml, "on: int", "attribute True: a name must be text"),
        (Schema.from_yaml, "a: &a {type: struct, fields: {b: *a}}", "nested more than 32 deep"),
    ],
)
def test_unreadable_text(reader, text: str, message: str):
    """Text that is no schema is refused, a key that is there twice too."""
    with pytest.raises(SchemaError, match=message):
        reader(text)


def test_unreadable_file(tmp_path):
    """The error of a file names the file."""
    with pytest.raises(SchemaError, match=r"unknown suffix '.txt'; name it .json"):
        Schema.from_file("schema.txt")
    with pytest.raises(SchemaError, match=r"missing.json' cannot be read: No such file"):
        Schema.from_file(tmp_path / "missing.json")
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xff")
    with pytest.raises(SchemaError, match="not UTF-8"):
        Schema.from_file(path)
    path.write_text("a: money")
    with pytest.raises(SchemaError, match=r"a.yaml': attribute 'a': type money"):
        Schema.from_file(path)


@pytest.mark.parametrize(
    ("data_type", "message"),
    [
        (pa.decimal256(50, 2), r"attribute 'x': type decimal\(50,2\) does not exist; use a precision of 1 to 38"),
        (pa.decimal128(5, -2), r"attribute 'x': type decimal\(5,-2\) does not exist"),
        (pa.bool8(), "bool8> is not supported"),
        (pa.null(), "type null is not supported"),
        (pa.list_(pa.list_(pa.int8())), "arrays and maps hold plain values only"),
        (pa.list_(pa.struct({"a": pa.list_(pa.int8())})), "arrays and maps hold plain values only"),
        (pa.struct([]), "a struct without fields"),
        (pa.struct({"y": pa.duration("s")}), r"attribute 'x\.y'"),
    ],
)
def test_unusable_arrow(data_type: pa.DataType, message: str):
    """A column of an Arrow type without a kind is no attribute, and the schema knows why."""
    schema = Schema.from_arrow(pa.schema({"x": data_type, "z": pa.int8()}))
    assert [a.name for a in schema] == ["z"]
    (why,) = schema.unusable.values()
    assert re.search(message, why)


def test_refused_arrow():
    """Two columns of one name are refused."""
    with pytest.raises(SchemaError, match="is there twice"):
        Schema.from_arrow(pa.schema([("a", pa.int8()), ("a", pa.int8())]))


@pytest.mark.parametrize(
    ("data_type", "message"),
    [
        ("interval", "type interval is not supported"),
        ("void", "type void is not supported"),
        ({"type": "map", "keyType": "double", "valueType": "string"}, "the keys of a map cannot be"),
        (
            {"type": "map", "keyType": "string", "valueType": {"type": "array"}},
            "arrays and maps hold plain values only",
        ),
        ({"type": "array", "elementType": {"type": "struct", "fields": []}}, "arrays and maps hold plain values only"),
        ({"type": "struct", "fields": []}, "a struct without fields"),
    ],
)
def test_unusable_spark(data_type, message: str):
    """A column of a Spark type without a kind is no attribute, and the schema knows why."""
    schema = Schema.from_spark(FakeSpark(("x", data_type), ("z", "long")))
    assert [a.name for a in schema] == ["z"]
    assert re.search(message, schema.unusable["x"])


def test_unusable_collation():
    """A collated string cannot be used: filters compare bytes."""
    fake = FakeSpark(("x", "string"))
    fake.fields[0]["metadata"] = {"__COLLATIONS": {"x": "icu.UNICODE_CI"}}
    assert "attribute 'x': collated strings" in Schema.from_spark(fake).unusable["x"]


@pytest.mark.slow
def test_size_limit():
    """A schema has at most 32,767 attributes, however it is made."""
    fields = {f"a{i}": "int" for i in range(MAX_ATTRIBUTES)}
    full = Schema.of(fields)
    assert len(full) == 32_767
    fields["last"] = "int"
    with pytest.raises(SchemaError, match="attribute 'last' is one too many: at most 32,767"):
        Schema.of(fields)
    with pytest.raises(SchemaError, match="attribute 'last' is one too many"):
        Schema((*full.attributes, Attribute("last", Kind.DATE)))


@pytest.mark.slow
def test_many_by_alias():
    """A small YAML text whose aliases stand for millions of fields is refused, not expanded."""
    lines = ["l0: &l0 {type: struct, fields: {a: int, b: int}}"]
    lines += [f"l{i}: &l{i} {{type: struct, fields: {{a: *l{i - 1}, b: *l{i - 1}}}}}" for i in range(1, 25)]
    with pytest.raises(SchemaError, match="one too many"):
        Schema.from_yaml("\n".join(lines))


def test_json_is_readable(stock: Schema):
    """The JSON form is plain JSON with one key per attribute."""
    assert list(json.loads(stock.to_json())) == [a.name for a in stock]


@pytest.mark.slow
def test_a_text_attribute_has_three_columns():
    """Columns have numbers of 15 bits; the value of a text and the literals in it are three of them."""
    assert len(Schema.of({f"a{i}": "string" for i in range(10_922)}).columns) == 32_766
    with pytest.raises(SchemaError, match="a text attribute has three"):
        Schema.of({f"a{i}": "string" for i in range(10_923)})


def test_every_kind_is_in_every_table():
    """A kind that is left out of one would be a KeyError at the first value."""
    assert set(kinds.ROWS) == set(arrow.ARROW) == set(scalar_columns._CONVERT) == set(Kind)


def test_names_of_types_are_unambiguous():
    """No two rows claim one name, in written schemas or in Spark's."""
    forms = [form for row in kinds.ROWS.values() for form in row.forms.values()]
    assert len(kinds.NAMES) == sum(len(form.names) for form in forms)
    assert len(kinds.SPARK_NAMES) == sum(len(form.spark) for form in forms)
