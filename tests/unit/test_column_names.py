"""Which column feeds which attribute, without a session."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from wherecast.errors import FilterError, SchemaError
from wherecast.language.events.schema import Schema
from wherecast.language.filters.compile import Compiler
from wherecast.spark.columns import NameRule, Names, conform, resolve
from wherecast.spark.sinks.parquet import Parquet

types = pytest.importorskip("pyspark.sql.types")

SCHEMA = Schema.of({"price": "double", "quote.bid": "double", "quote.deep.er": "int"})
ANY, EXACT = NameRule(case_sensitive=False), NameRule(case_sensitive=True)


def struct(names: str) -> types.StructType:
    """Columns of integers; `a(b c)` is a struct."""
    inside = [types.StructType()]
    for token in re.findall(r"[^\s()]+|[()]", names):
        if token == "(":
            inside.append(types.StructType())
        elif token == ")":
            closed = inside.pop()
            inside[-1].fields[-1].dataType = closed
        else:
            inside[-1].add(token, types.IntegerType())
    return inside[0]


def found(columns: str, rule: NameRule, needed: tuple[str, ...] = ("price", "quote.bid", "quote.deep.er")) -> object:
    return resolve(struct(columns), SCHEMA, needed, rule)


@pytest.mark.parametrize(
    ("columns", "regardless", "exactly"),
    [
        ("price", {"price": ("price",)}, {"price": ("price",)}),
        ("Price", {"price": ("Price",)}, {}),
        ("quote(bid)", {"quote.bid": ("quote", "bid")}, {"quote.bid": ("quote", "bid")}),
        ("QUOTE(Bid)", {"quote.bid": ("QUOTE", "Bid")}, {}),
        ("quote(Bid)", {"quote.bid": ("quote", "Bid")}, {}),
        ("q(bid) Quote.Bid", {"quote.bid": ("Quote.Bid",)}, {}),
        ("quote(Deep(er))", {"quote.deep.er": ("quote", "Deep", "er")}, {}),
        ("note", {}, {}),
    ],
)
def test_where_attributes_are(columns: str, regardless: object, exactly: object) -> None:
    """The path of a column or field, in the case it has there."""
    assert found(columns, ANY) == regardless
    assert found(columns, EXACT) == exactly


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("price PRICE", "columns 'price' and 'PRICE', which are one name"),
        ("price price", "'price' and 'price', which are one name; drop or rename one$"),
        ("quote(bid Bid)", "fields of quote 'bid' and 'Bid'"),
        ("quote", "'quote' is int, but filters ask for its field 'bid'"),
    ],
)
def test_unclear(columns: str, message: str) -> None:
    """Two places, or none, for an attribute that a filter needs are an error; for others they are not."""
    with pytest.raises(SchemaError, match=message):
        found(columns, ANY)
    assert found(columns, ANY, ()) == {}


def test_a_batch_takes_the_names_of_a_form() -> None:
    """Columns and fields, also where some are missing or NULL; others are left out."""
    quote = pa.array([{"BID": 1.0, "x": 3}, None], pa.struct([("BID", pa.float64()), ("x", pa.int64())]))
    batch = pa.record_batch({"Price": pa.array([1.0, 2.0]), "Quote": quote, "other": pa.array([1, 2])})
    form = pa.schema(
        [
            ("price", pa.float64()),
            ("quote", pa.struct([("bid", pa.float64()), ("ask", pa.int64())])),
            ("no", pa.int64()),
        ]
    )
    made = conform(batch, form, ANY)
    assert made.to_pylist() == [{"price": 1.0, "quote": {"bid": 1.0, "ask": None}}, {"price": 2.0, "quote": None}]
    with pytest.raises(SchemaError, match="none of the columns price, quote, no"):
        conform(batch, form, EXACT)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"eror": "x"}, "matching adds no column 'eror'"),
        ({"error": ""}, "error is ''"),
        ({"error": 3}, "error is 3"),
        ({"error": "__wherecast_error"}, "does not begin with __wherecast"),
        ({"error": "Message"}, "'message' is there twice"),
    ],
)
def test_names_that_cannot_be(given: dict[str, object], message: str) -> None:
    """A wrong name is told when it is given."""
    with pytest.raises(SchemaError, match=message):
        Names.of(given)


def test_names() -> None:
    """What is not given keeps its name."""
    assert Names.of({"error": "why"}) == Names(error="why")
    assert Names.of(None) == Names()


def test_folders_of_a_sink(tmp_path: object) -> None:
    """A column that Spark would replace by the number of the batch is refused, in any case."""
    with pytest.raises(SchemaError, match="'Batch_ID' would be replaced"):
        Parquet(str(tmp_path)).expect(["a", "Batch_ID"], "subscription")
    Parquet(str(tmp_path), batch_column="run", partition_by=["A"]).expect(["a", "Batch_ID"], "subscription")
    with pytest.raises(SchemaError, match="partition_by names the column 'day', and the rows have a, b"):
        Parquet(str(tmp_path), partition_by=["b", "day"]).expect(["a", "b"], "b")


def test_case_in_filters() -> None:
    """Where names are case-sensitive, a filter has to write them as the schema does."""
    Compiler(SCHEMA).compile("PRICE > 1")
    Compiler(SCHEMA, case_sensitive=True).compile("price > 1 AND `quote`.bid > 1")
    with pytest.raises(
        FilterError, match=r"unknown attribute 'Quote\.bid'; names are case-sensitive here: write 'quote\.bid'"
    ):
        Compiler(SCHEMA, case_sensitive=True).compile("price > 1 AND Quote.bid > 1")
