"""Tasks that write what they match: Spark reads the same as from files of its own, what cannot be so is refused, and batches stay exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from wherecast import spark as ws
from wherecast.errors import EventError, SchemaError
from wherecast.spark.versions import spark_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = {"symbol": "string", "price": "double"}
RULES = [(id, f"symbol = 'S{id % 5}' AND price < {id}", f"owner of {id}") for id in range(1, 60)]
#: Columns of every type that tasks write, from the number of an event; each is NULL in some rows.
TYPES = {
    "flag": "n % 2 = 0",
    "tiny": "CAST(n - 64 AS TINYINT)",
    "small": "CAST(n * 300 AS SMALLINT)",
    "whole": "CAST(n * 1000003 AS INT)",
    "big": "n * 9000000000000000",
    "single": "CAST(n / 7 AS FLOAT)",
    "double": "IF(n % 11 = 0, DOUBLE('NaN'), -n / 7)",
    "cents": "CAST(n / 100 AS DECIMAL(5, 2))",
    "nines": "CAST(999999999 - n AS DECIMAL(9, 0))",
    "money": "CAST(n / 3 AS DECIMAL(18, 4))",
    "wide": "CAST(-n AS DECIMAL(19, 1))",
    "widest": "CAST('12345678901234567890123456.0123456789' AS DECIMAL(38, 10)) + n",
    "text": "repeat('ä', CAST(n % 4 AS INT))",
    "odd": "IF(n % 2 = 0, CAST(X'41FF42' AS STRING), 'even')",
    "bytes": "encode(concat('b', n), 'UTF-8')",
    "day": "date_add(DATE '1581-03-01', CAST(n * 100 AS INT))",
    "moment": "TIMESTAMP '0900-06-01 12:00:00.000001' + make_dt_interval(CAST(n * 5000 AS INT), 0, 0, 1.234567)",
    "local": "TIMESTAMP_NTZ '1700-01-01 00:00:00.123456' + make_dt_interval(CAST(n * 1000 AS INT), 1)",
    "list": "IF(n % 3 = 0, array(), array(n, NULL, -n))",
    "nested": "array(array(named_struct('at', TIMESTAMP '1850-01-01 00:00:00', 'd', CAST(n AS DECIMAL(20, 2)))), NULL)",
    "struct": "named_struct('a', n, 'b', IF(n % 2 = 0, NULL, named_struct('c', concat('x', n), 'e', CAST(array() AS ARRAY<INT>))))",
    "map": "map('k', n, concat('l', n), NULL)",
    "deep": "map(n, array(map('m', DATE '2024-02-29')))",
    "`a dot.`": "n",
}


@pytest.fixture(scope="module")
def index(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ws.Index:
    rules = spark.createDataFrame(RULES, "id long, filter string, owner string")
    # A rule column of a type with a zone.
    rules = rules.selectExpr("*", "TIMESTAMP '1890-01-01 00:00:00' + make_dt_interval(CAST(id AS INT)) AS since")
    return ws.Index.build(rules, tmp_path_factory.mktemp("writing") / "index", schema=SCHEMA)


def quotes(spark: SparkSession, n: int = 100) -> DataFrame:
    """Numbered events, of which some match."""
    return spark.range(n, numPartitions=3).selectExpr(
        "id AS n", "concat('S', id % 9) AS symbol", "CAST(id % 50 AS DOUBLE) AS price"
    )


def python(path: Path, **options: Any) -> ws.Parquet:
    return ws.Parquet(str(path), written_by="python", **options)


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def compare(spark: SparkSession, one: Path, other: Path) -> int:
    """Both folders read alike, whatever the order of rows; their number."""
    ours, theirs = (spark.read.parquet(str(path)).drop("batch_id") for path in (one, other))
    assert ours.schema == theirs.schema
    rows = sorted(repr(row) for row in ours.collect())
    assert rows == sorted(repr(row) for row in theirs.collect())
    return len(rows)


@pytest.mark.parametrize("output", ["pairs", "lists", "counts"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_every_type_reads_back_as_from_spark(
    spark: SparkSession, index: ws.Index, tmp_path: Path, output: Any, zone: str
) -> None:
    """Columns, types and values are those of Spark's own files, NULLs, nested values and rule columns among them."""
    columns: Any = {} if output == "counts" else {"owner": "whose", "since": "since"}
    with (
        setting(spark, "spark.sql.session.timeZone", zone),
        # Spark 3 refuses to write the dates of long ago unless it is told how.
        setting(spark, "spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED"),
        setting(spark, "spark.sql.parquet.int96RebaseModeInWrite", "CORRECTED"),
    ):
        events = quotes(spark).selectExpr(
            "*", *(f"IF(n % 7 = {i % 7}, NULL, {sql}) AS {name}" for i, (name, sql) in enumerate(TYPES.items()))
        )
        numbers = index.write(events, python(tmp_path / "ours"), output=output, columns=columns)
        index.match(events, output=output, columns=columns).write.parquet(str(tmp_path / "theirs"))
        n = compare(spark, tmp_path / "ours", tmp_path / "theirs")
    assert n > 30
    assert numbers["events"] == 100
    assert output != "pairs" or numbers["matches"] == n


def test_nothing_matches(spark: SparkSession, index: ws.Index, tmp_path: Path) -> None:
    """There is one file, which tells the columns, even of no events."""
    for number, events in enumerate([quotes(spark).where("symbol = 'S8'"), quotes(spark).limit(0)]):
        sink, theirs = tmp_path / f"ours-{number}", tmp_path / f"theirs-{number}"
        index.write(events, python(sink), output="lists")
        index.match(events, output="lists").write.parquet(str(theirs))
        assert compare(spark, sink, theirs) == 0
        assert len(list(sink.rglob("*.parquet"))) == 1


@pytest.mark.parametrize(("codec", "found"), [("zstd", "ZSTD"), ("none", "UNCOMPRESSED"), ("gzip", "GZIP")])
def test_the_codec_of_the_session(spark: SparkSession, index: ws.Index, tmp_path: Path, codec: str, found: str) -> None:
    """Files are compressed as Spark would compress them."""
    with setting(spark, "spark.sql.parquet.compression.codec", codec):
        index.write(quotes(spark), python(tmp_path))
    for file in tmp_path.rglob("*.parquet"):
        assert pq.read_metadata(file).row_group(0).column(0).compression == found


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "spark.sql.parquet.compression.codec",
            "lz4",
            "codec is lz4, which only Spark's own writer has; leave out writ",
        ),
        ("spark.sql.parquet.writeLegacyFormat", "true", "writeLegacyFormat is true, which only Spark"),
        ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS", "outputTimestampType is TIMESTAMP_MILLIS, which"),
        ("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY", "datetimeRebaseModeInWrite is LEGACY, which"),
        (
            "parquet.crypto.factory.class",
            "some.Factory",
            r"parquet\.crypto\.\* is set, and only Spark's own writer encr",
        ),
        (
            "parquet.encryption.footer.key",
            "key",
            r"parquet\.encryption\.\* is set, and only Spark's own writer encrypts",
        ),
    ],
)
def test_settings_that_only_spark_follows(
    spark: SparkSession, index: ws.Index, tmp_path: Path, name: str, value: str, message: str
) -> None:
    """They are refused before anything is written, and leave Spark's way as it is."""
    with setting(spark, name, value), pytest.raises(ws.SinkError, match=message):
        index.write(quotes(spark), python(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_encryption_in_the_configuration_of_hadoop(spark: SparkSession, index: ws.Index, tmp_path: Path) -> None:
    """It is not a setting of the session, and Spark encrypts all the same."""
    hadoop: Any = spark.sparkContext._jsc  # type: ignore[attr-defined]
    hadoop.hadoopConfiguration().set("parquet.crypto.factory.class", "some.Factory")
    try:
        with pytest.raises(ws.SinkError, match="only Spark's own writer encrypts"):
            index.write(quotes(spark), python(tmp_path / "out"))
    finally:
        hadoop.hadoopConfiguration().unset("parquet.crypto.factory.class")
    assert not (tmp_path / "out").exists()


#: Columns of types that are left to Spark, and what the message calls them.
LEFT_TO_SPARK = {
    "make_dt_interval(1) AS i": "'i' (interval day to second)",
    "named_struct('a', array(make_ym_interval(1))) AS s": "'s' (struct<a:array<interval year to month>>)",
    **({"parse_json('1') AS v": "'v' (variant)"} if spark_version() >= (4, 0) else {}),
    **({"symbol COLLATE UTF8_LCASE AS c": "'c' (string collate UTF8_LCASE)"} if spark_version() >= (4, 0) else {}),
}


@pytest.mark.parametrize("column", LEFT_TO_SPARK)
def test_types_that_are_left_to_spark(spark: SparkSession, index: ws.Index, tmp_path: Path, column: str) -> None:
    """A column of another type is refused by name, wherever the type occurs in it."""
    with pytest.raises(SchemaError) as refused:
        index.write(quotes(spark).selectExpr("*", column), python(tmp_path / "out"))
    assert f"written_by='python' cannot write the column {LEFT_TO_SPARK[column]}; leave" in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_what_is_written_otherwise(spark: SparkSession, index: ws.Index, tmp_path: Path) -> None:
    """Folders of columns, numbers of fields, subscribers, and indexes over several servers are refused before anything is written."""
    out = tmp_path / "out"
    with pytest.raises(ws.SinkError, match="makes folders of columns; leave out written_by='python' or partition_by"):
        python(out, partition_by=["symbol"])
    with pytest.raises(ws.SinkError, match="written_by is 'java'; expected 'spark' or 'python'"):
        ws.Parquet(str(out), written_by="java")  # type: ignore[arg-type]
    numbered = quotes(spark).withMetadata("n", {"parquet.field.id": 7})
    with pytest.raises(SchemaError, match=r"cannot write columns with parquet\.field\.id"):
        index.write(numbered, python(out))
    streamed = spark.readStream.format("rate").load().selectExpr("'a' AS symbol", "1.0D AS price")
    people = spark.createDataFrame([(1, "a@b")], "id long, mail string")
    with pytest.raises(SchemaError, match="only Spark joins subscribers"):
        ws.stream(streamed, index, python(out), str(tmp_path / "checkpoint"), subscribers=people)
    rules = spark.createDataFrame(RULES, "id long, filter string, owner string")
    spread = ws.Index.build(rules, tmp_path / "spread", schema=SCHEMA, strategy="event-space", servers=2)
    with pytest.raises(SchemaError, match="the index is spread over 2 servers"):
        spread.stream(streamed, python(out), str(tmp_path / "checkpoint"))
    assert not out.exists()


def test_once(spark: SparkSession, index: ws.Index, tmp_path: Path) -> None:
    """A folder takes one call; an event that does not fit fails it, or is left out. Any sink can be given a batch."""
    poison = quotes(spark).selectExpr("*", "'bad' AS __wherecast_error")
    with pytest.raises(Exception, match=EventError.__name__):
        index.write(poison, python(tmp_path / "failed"))
    assert not list((tmp_path / "failed").glob("batch_id=*"))
    numbers = index.write(poison, python(tmp_path / "poison"), on_error="skip")
    assert (numbers["events"], numbers["errors"], numbers["matches"]) == (100, 100, 0)
    assert spark.read.parquet(str(tmp_path / "poison")).columns == ["n", "symbol", "price", "subscription", "batch_id"]

    assert index.write(quotes(spark), python(tmp_path / "ours")) == index.write(
        quotes(spark), ws.Parquet(str(tmp_path / "theirs"))
    )
    assert compare(spark, tmp_path / "ours", tmp_path / "theirs") > 30
    with pytest.raises(ws.SinkError, match="holds batches of another stream"):
        index.write(quotes(spark), python(tmp_path / "ours"))
    given: list[int] = []
    index.write(quotes(spark), ws.Foreach(lambda rows, _: given.append(rows.count())), output="lists")
    assert given == [index.match(quotes(spark), output="lists").count()]


def test_a_stream_reports_and_writes_as_with_spark(spark: SparkSession, index: ws.Index, tmp_path: Path) -> None:
    """The numbers of its batches, their matches and the dead letters are those of Spark's way; each batch is one job, with or without matches."""
    events = quotes(spark, 300).selectExpr("*", "IF(n % 17 = 0, concat('bad ', n), NULL) AS __wherecast_error")
    for part in range(3):
        events.where(f"n % 3 = {part}").coalesce(1).write.mode("append").parquet(str(tmp_path / "events"))
    found: dict[str, list[Any]] = {}
    for written_by in ("spark", "python"):
        place = tmp_path / written_by
        source = spark.readStream.schema(events.schema).option("maxFilesPerTrigger", 1)
        query = index.stream(
            source.parquet(str(tmp_path / "events")),
            ws.Parquet(str(place / "out"), written_by=written_by),  # type: ignore[arg-type]
            str(place / "checkpoint"),
            columns=["owner"],
            output="lists",
            dead_letters=ws.Parquet(str(place / "dead"), written_by=written_by),  # type: ignore[arg-type]
            trigger={"availableNow": True},
            names={"error": "why", "subscriptions": "alerts"},
        )
        query.awaitTermination()
        found[written_by] = [(r.events, r.errors, r.sent, r.dropped, r.matches) for r in query.reports]
        assert not list((place / "out" / "_attempts").iterdir())
    assert found["python"] == found["spark"]
    assert sum(errors for _, errors, *_ in found["python"]) == 18
    for name in ("out", "dead"):
        assert compare(spark, tmp_path / "python" / name, tmp_path / "spark" / name) > 10
    batches = {path.name for path in (tmp_path / "python" / "out").iterdir()}
    assert batches == {"_attempts", "_wherecast", "batch_id=0", "batch_id=1", "batch_id=2"}


def test_tasks_that_fail_leave_nothing_in_sight(spark: SparkSession, index: ws.Index, tmp_path: Path) -> None:
    """Files of a batch that failed half way are not read, and are gone when the stream has written that batch."""
    (tmp_path / "events").mkdir()
    for part in range(2):
        events = quotes(spark).where(f"n % 2 = {part}").coalesce(1)
        events.write.mode("append").parquet(str(tmp_path / "events"))
    source = spark.readStream.schema(quotes(spark).schema).parquet(str(tmp_path / "events"))
    broken = tmp_path / "broken"
    broken.touch()

    def run() -> None:
        def fail(rows: Iterator[Any]) -> Iterator[Any]:
            for batch in rows:
                yield batch
                if broken.exists() and 1 in batch.column(0).to_pylist():
                    raise ValueError("out of order")

        events = source.mapInArrow(fail, source.schema)
        index.stream(
            events, python(tmp_path / "out"), str(tmp_path / "checkpoint"), trigger={"availableNow": True}
        ).awaitTermination()

    with pytest.raises(Exception, match="out of order"):
        run()
    strays = list((tmp_path / "out" / "_attempts").rglob("*.parquet"))
    assert len(strays) <= 2
    assert not list((tmp_path / "out").glob("batch_id=*"))
    broken.unlink()
    run()
    index.match(quotes(spark)).write.parquet(str(tmp_path / "theirs"))
    assert compare(spark, tmp_path / "out", tmp_path / "theirs") > 30
    assert not list((tmp_path / "out" / "_attempts").iterdir())
