"""Columns of events: found by Spark's rule for upper and lower case, and never mixed up with those that matching adds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from wherecast import spark as ws
from wherecast.errors import SchemaError
from wherecast.spark.match import match
from wherecast.spark.sinks.parquet import Parquet
from wherecast.spark.stream import stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = {"price": "double", "quote.bid": "double", "Note": "string"}
FILTERS = {1: "price > 5", 2: "PRICE > 5 AND note = 'a'", 3: "Quote.Bid > 5", 4: "quote.bid > price"}
EVENTS = "Price double, Quote struct<Bid: double, Ask: double>, NOTE string, Key int"
ROWS = [(9.0, (1.0, 2.0), "a", 1), (1.0, (9.0, 2.0), "b", 2), (6.0, None, "b", 3), (None, (7.0, None), None, 4)]
STRATEGIES = ("broadcast", "event-space", "filter-set")


@contextmanager
def setting(spark: SparkSession, value: str) -> Iterator[None]:
    before = spark.conf.get("spark.sql.caseSensitive")
    spark.conf.set("spark.sql.caseSensitive", value)
    try:
        yield
    finally:
        spark.conf.set("spark.sql.caseSensitive", before)


def build(
    spark: SparkSession, path: Path, strategy: str = "broadcast", filters: Any = FILTERS, **more: Any
) -> ws.Built:
    rows = spark.createDataFrame(list(filters.items()), "id bigint, filter string")
    return ws.build_index(rows, SCHEMA, str(path), strategy=strategy, servers=2, **more)


def sparks_answer(events: DataFrame, filters: Any = FILTERS) -> set[tuple[int, int]]:
    return {(row.Key, id) for id, text in filters.items() for row in events.where(text).collect()}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_case_does_not_matter(spark: SparkSession, tmp_path: Path, strategy: str) -> None:
    """As in Spark by default: columns, fields of structs, in batch, in SQL and in what a plan is made from."""
    events = spark.createDataFrame(ROWS, EVENTS)
    build(spark, tmp_path, strategy, events=events)
    found = match(events, str(tmp_path))
    assert found.columns == ["Price", "Quote", "NOTE", "Key", "subscription"]
    assert found.schema["Quote"].dataType == events.schema["Quote"].dataType
    wanted = sparks_answer(events)
    assert len(wanted) > 4
    assert {(row.Key, row.subscription) for row in found.collect()} == wanted
    lists = match(events, str(tmp_path), output="lists")
    assert {(row.Key, id) for row in lists.collect() for id in row.subscriptions} == wanted
    explained = match(events, str(tmp_path), explain=True).collect()
    assert {(row.Key, row.subscription) for row in explained} == wanted
    ws.register_table_function(
        spark, str(tmp_path), columns="price double, quote struct<bid: double>, note string, key int"
    )
    events.createOrReplaceTempView("events_in_capitals")
    table = spark.sql("SELECT * FROM wherecast_match(TABLE(events_in_capitals))")
    assert table.columns == ["price", "quote", "note", "key", "subscription"]
    assert {(row.key, row.subscription) for row in table.collect()} == wanted


def test_case_matters_where_the_session_says_so(spark: SparkSession, tmp_path: Path) -> None:
    """Then a filter has to write a name as the schema does, and a column of another case is another column."""
    with setting(spark, "true"):
        built = build(spark, tmp_path)
        reasons = {row.id: row.reason for row in built.quarantine.collect()}
        assert sorted(reasons) == ["2", "3"]
        assert "names are case-sensitive here: write 'price'" in reasons["2"]
        exact = spark.createDataFrame(
            ROWS, "price double, quote struct<bid: double, Ask: double>, Price string, Key int"
        )
        kept = {id: FILTERS[id] for id in (1, 4)}
        found = {(row.Key, row.subscription) for row in match(exact, str(tmp_path)).collect()}
        assert found == sparks_answer(exact, kept)
        with pytest.raises(SchemaError, match="none of the attributes"):
            match(spark.createDataFrame(ROWS, EVENTS), str(tmp_path))


@pytest.fixture(scope="module")
def index(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An index that is only read."""
    folder = tmp_path_factory.mktemp("index")
    build(spark, folder)
    return str(folder)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            "Price double, price double, Key int",
            "columns 'Price' and 'price', which are one name; drop or rename one, or set",
        ),
        ("Note string, note string, price double", "columns 'Note' and 'note'"),
        ("quote struct<bid: double, BID: double>, price double", "fields of quote 'bid' and 'BID'"),
        ("quote double, price double", "'quote' is double, but filters ask for its field 'bid'"),
        ("__wherecast_ids int, price double", "names that begin with __wherecast are reserved"),
        ("__Wherecast_x int, price double", "names that begin with __wherecast are reserved"),
        (
            "price double, Subscription int",
            r"column 'Subscription', and matching adds .* names=\{'subscription': '...'\}",
        ),
    ],
)
def test_refused_before_anything_is_matched(
    spark: SparkSession, tmp_path: Path, index: str, columns: str, message: str
) -> None:
    """By `match` and, before it starts, by `stream`."""
    with pytest.raises(SchemaError, match=message):
        match(spark.createDataFrame([], columns), index)
    (tmp_path / "events").mkdir()
    with pytest.raises(SchemaError, match=message):
        stream(
            spark.readStream.schema(columns).parquet(str(tmp_path / "events")),
            index,
            Parquet(str(tmp_path / "matches")),
            str(tmp_path / "checkpoint"),
        )


CLASHING = (
    "price double, error string, Batch_ID int, message string, subscriptions string, matches int, explanation string, "
    "__error string, __event int, __message string, Key int"
)
CLASHING_ROWS = [
    (9.0, "own", 7, "m", "s", 1, "x", "bad?", 3, "n", 1),
    (1.0, "own", 7, "m", "s", 1, "x", "", 3, "n", 2),
]


def test_columns_that_look_like_ours(spark: SparkSession, tmp_path: Path) -> None:
    """A column of the events stays as it was; what would meet it is refused until ours has another name."""
    build(spark, tmp_path / "index", filters={1: "price > 5"})
    events = spark.createDataFrame(CLASHING_ROWS, CLASHING)
    for output, key in (("pairs", "subscription"), ("lists", "subscriptions"), ("counts", "matches")):
        given = {"error": "why", "subscriptions": "rules", "matches": "count"}
        found = match(events, str(tmp_path / "index"), output=output, on_error="keep", names=given)  # type: ignore[arg-type]
        assert found.columns == [*events.columns, given.get(key, key), "why"]
        (row,) = found.collect()
        assert tuple(row)[: len(CLASHING_ROWS[0])] == CLASHING_ROWS[0]
    for options, key in (
        ({"on_error": "keep"}, "error"),
        ({"output": "lists"}, "subscriptions"),
        ({"explain": True}, "explanation"),
    ):
        with pytest.raises(SchemaError, match=rf"column '{key}', and matching adds .* names=\{{'{key}': '...'\}}"):
            match(events, str(tmp_path / "index"), **options)
    subscribers = spark.createDataFrame([(1, 2.0)], "id bigint, Price double")
    with pytest.raises(SchemaError, match="both the events and the subscribers have a column 'price'"):
        match(events, str(tmp_path / "index"), subscribers=subscribers)


def test_a_stream_of_such_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Dead letters with a column `error` of the event's own, and a column that Parquet's folders would hide."""
    build(spark, tmp_path / "index", filters={1: "price > 5"})
    columns = "PRICE string, error string, Batch_ID int, __error string"
    rows = [("9.0", "own", 7, "x"), ("bad", "own", 8, "y")]
    spark.createDataFrame(rows, columns).write.parquet(str(tmp_path / "events"))
    events = spark.readStream.schema(columns).parquet(str(tmp_path / "events"))
    # What cannot be read carries its reason, as a message from Kafka does.
    events = events.selectExpr(
        "try_cast(PRICE AS double) AS Price", "error", "Batch_ID", "__error",
        "if(PRICE = 'bad', 'no number', NULL) AS __wherecast_error", "if(PRICE = 'bad', PRICE, NULL) AS __wherecast_message",
    )  # fmt: skip
    index, checkpoint = str(tmp_path / "index"), str(tmp_path / "checkpoint")
    given = {"error": "why", "subscription": "rule"}
    matches = Parquet(str(tmp_path / "m"), batch_column="run", partition_by=["rule"])
    dead = Parquet(str(tmp_path / "d"), batch_column="run")
    with pytest.raises(SchemaError, match=r"'Batch_ID' would be replaced .* Parquet\(path, batch_column='...'\)"):
        stream(events, index, Parquet(str(tmp_path / "m")), checkpoint)
    with pytest.raises(SchemaError, match=r"'Batch_ID' would be replaced"):
        stream(events, index, matches, checkpoint, dead_letters=Parquet(str(tmp_path / "d")), names=given)
    with pytest.raises(SchemaError, match=r"names=\{'error': '...'\}"):
        stream(events, index, matches, checkpoint, dead_letters=dead, names={"subscription": "rule"})
    with pytest.raises(SchemaError, match="matching adds no column 'eror'"):
        stream(events, index, matches, checkpoint, names={"eror": "why"})
    query = stream(events, index, matches, checkpoint, dead_letters=dead, names=given, trigger={"availableNow": True})
    query.awaitTermination()
    assert query.reports[-1].matches == 1
    assert list((tmp_path / "m" / "run=0" / "rule=1").glob("*.parquet"))
    (good,) = spark.read.parquet(matches.path).collect()
    assert good.asDict() == {"Price": 9.0, "error": "own", "Batch_ID": 7, "__error": "x", "rule": 1, "run": 0}
    (bad,) = spark.read.parquet(dead.path).collect()
    assert bad.asDict() == {
        "Price": None, "error": "own", "Batch_ID": 8, "__error": "y", "message": "bad", "why": "no number", "run": 0,
    }  # fmt: skip
