"""Files in: what does not fit its column is set apart with its reason, and no field disappears."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType
from typer.testing import CliRunner

from wherecast.cli.app import app
from wherecast.errors import SchemaError
from wherecast.spark.config import read_config
from wherecast.spark.files import Folder
from wherecast.spark.pipeline import Pipeline, PipelineError, Running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

CONFIG = """
[pipeline]
index = "index"
checkpoint = "checkpoint"
trigger = "available-now"

[schema]
attributes = {symbol = "string", amount = "double"}

[subscriptions]
path = "subscriptions.json"
format = "json"

[plan]
strategy = "event-space"
servers = 2

[events]
source = "files"
path = "events"
format = "json"

[changes]
source = "files"
path = "changes"
format = "json"

[sink]
kind = "parquet"
path = "matches"

[dead_letters]
kind = "parquet"
path = "dead"

[refused_changes]
kind = "parquet"
path = "refused"
"""
EVENTS = [
    '{"symbol": "A", "amount": 184.38}',
    '{"symbol": "A", "amount": "184.38"}',
    "",
    '{"symbol": 7, "amount": 1}',
    '{"symbol": "B", "amount": 5, "note": {"from": "x", "n": 1.50}}',
    '{"symbol": "A", "amount": 1',
    '["A"]',
    '{"symbol": "nobody", "amount": null}',
]
REASONS = [
    "amount is 184.38, expected double",
    "symbol is 7, expected string",
    "not a JSON object",
    "not a JSON object",
]


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def folder(spark: SparkSession, path: Path, kind: str, **options: str) -> Folder:
    return Folder(spark, str(path), kind, options, stream=False)


def columns(text: str) -> StructType:
    return StructType.fromDDL(text)


def outcomes(frame: DataFrame) -> list[tuple[Any, ...]]:
    """The columns and, of an error, what follows the name of the file."""
    rows = frame.drop("__wherecast_message").collect()
    return [(*row[:-1], row[-1] and row[-1].partition("csv: ")[2]) for row in rows]


def test_json_files_in_a_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    """Good events match, bad ones are dead letters with reason and text, counted; fields without a column stay."""
    write(tmp_path / "subscriptions.json", '{"id": 1, "filter": "amount > 2"}')
    write(tmp_path / "events" / "day=01" / "a.json", *EVENTS)
    write(
        tmp_path / "changes" / "a.json",
        '{"sequence": 1, "op": "upsert", "id": 2, "filter": "symbol = \'B\'"}',
        '{"sequence": "2", "op": "upsert", "id": 3, "filter": "symbol = \'B\'"}',
    )
    write(tmp_path / "pipeline.toml", CONFIG)
    done = CliRunner().invoke(app, ["pipeline", "run", str(tmp_path / "pipeline.toml")])
    assert done.exit_code == 0, done.stderr
    found = spark.read.parquet(str(tmp_path / "matches")).collect()
    assert sorted((row.symbol, row.amount, row.subscription, row["_json"]) for row in found) == [
        ("A", 184.38, 1, None),
        ("B", 5.0, 1, EVENTS[4]),
        ("B", 5.0, 2, EVENTS[4]),
    ]
    assert {row.day for row in found} == {1}
    dead = spark.read.parquet(str(tmp_path / "dead")).collect()
    place = f"file:{tmp_path}/events/day=01/a.json: "
    expected = zip((EVENTS[1], EVENTS[3], EVENTS[5], EVENTS[6]), REASONS, strict=True)
    assert sorted((row.message, row.error) for row in dead) == sorted((text, place + why) for text, why in expected)
    [refused] = spark.read.parquet(str(tmp_path / "refused")).collect()
    assert refused.error.endswith("a.json: sequence is 2, expected bigint")
    status = CliRunner().invoke(app, ["pipeline", "status", str(tmp_path / "pipeline.toml"), "--json"])
    [batch] = json.loads(status.stdout)["batches"]
    assert (batch["events"], batch["errors"], batch["matches"]) == (7, 4, 3)


def test_csv(spark: SparkSession, tmp_path: Path) -> None:
    """A line needs one field of the right type per column, and a header the names of the columns."""
    declared = columns("symbol string, amount double")
    write(tmp_path / "plain" / "a.csv", "A,184.38", "B,dear", "C,1,2", "D", "E,", "", "5,6")
    assert sorted(outcomes(folder(spark, tmp_path / "plain", "csv").events(declared, declared=True).rows), key=str) == [
        ("5", 6.0, None),
        ("A", 184.38, None),
        ("B", None, "amount is dear, expected double"),
        ("C", 1.0, "not a line of 2 fields"),
        ("D", None, "not a line of 2 fields"),
        ("E", None, None),
    ]
    write(tmp_path / "header" / "a.csv", "symbol,amount", "A,1")
    with_header = folder(spark, tmp_path / "header", "csv", header="true")
    assert outcomes(with_header.events(declared, declared=True).rows) == [("A", 1.0, None)]
    with pytest.raises(Exception, match="CSV header does not conform"):
        with_header.events(columns("amount string, symbol string"), declared=True).rows.collect()


def test_changes_in_csv_have_rule_columns(spark: SparkSession, tmp_path: Path) -> None:
    """After the columns of every change, in the order of the index; what a line cannot carry is refused."""
    rules = columns("severity int, owner string")
    write(
        tmp_path / "a.csv",
        "1,upsert,7,a > 1,,3,ann",
        "2,delete,8,,,,",
        "3,upsert,9,a > 1,,high,bob",
        "4,upsert,9,a > 1,",
    )
    assert outcomes(folder(spark, tmp_path, "csv").changes("bigint", rules).rows.orderBy("sequence")) == [
        (1, "upsert", 7, "a > 1", None, 3, "ann", None),
        (2, "delete", 8, None, None, None, None, None),
        (3, "upsert", 9, "a > 1", None, None, "bob", "severity is high, expected int"),
        (4, "upsert", 9, "a > 1", None, None, None, "not a line of 7 fields"),
    ]
    with pytest.raises(SchemaError, match="rule column 'tags', which is array<string>; write changes as JSON"):
        folder(spark, tmp_path, "csv").changes("bigint", columns("tags array<string>"))


def test_numbers_of_csv(spark: SparkSession, tmp_path: Path) -> None:
    """A number that its column cannot hold is not rounded or made infinite."""
    declared = columns("n int, a decimal(5,2), b double, c float")
    good = ["1,1.25,0.1,3e38", "2,-999.990,Inf,-Infinity", "3,12E1,NaN,", '4,"1.5",1e308,-Inf']
    bad = {
        "11,1.255,1,1": "a is 1.255, expected decimal(5,2)",
        "12,1000,1,1": "a is 1000, expected decimal(5,2)",
        "13,1,1e400,1e39": "b is 1e400, expected double; c is 1e39, expected float",
        "14,x,-1e400,x": "a is x, expected decimal(5,2); b is -1e400, expected double; c is x, expected float",
        "1.5,1,1,1": "n is 1.5, expected int",
    }
    write(tmp_path / "a.csv", *good, *bad)
    rows = folder(spark, tmp_path, "csv").events(declared, declared=True).rows.collect()
    reasons = {row["__wherecast_message"]: (row["__wherecast_error"] or "").partition("csv: ")[2] for row in rows}
    assert reasons == {None: "", **bad}
    assert [tuple(map(repr, row[:4])) for row in rows if row["__wherecast_error"] is None] == [
        ("1", "Decimal('1.25')", "0.1", repr(float(np.float32(3e38)))),
        ("2", "Decimal('-999.99')", "inf", "-inf"),
        ("3", "Decimal('120.00')", "nan", "None"),
        ("4", "Decimal('1.50')", "1e+308", "-inf"),
    ]
    with pytest.raises(SchemaError, match="'locale' cannot be set for decimal columns"):
        folder(spark, tmp_path, "csv", locale="de").events(declared, declared=True)


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_files_with_types_of_their_own(
    spark: SparkSession, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All columns of all files are passed through; a declared one that is missing, or of another type, is not read as NULL."""
    place = tmp_path / "files"
    source = folder(spark, place, kind)
    place.mkdir()

    def add(name: str, text: str, declared: str) -> Path:
        """One file with one row."""
        frame = spark.sql(f"SELECT {text}").to(columns(declared)).coalesce(1)
        frame.write.mode("overwrite").format(kind).save(str(tmp_path / "new"))
        [file] = (tmp_path / "new").glob(f"part-*.{kind}")
        return file.rename(place / f"{name}.{kind}")

    def events(declared: str, own: bool = True) -> list[tuple[Any, ...]]:
        rows = source.events(columns(declared), declared=own).rows
        return sorted(tuple(row) for row in rows.select("a", "b", "c", "d").collect())

    assert source.events(columns("a string"), declared=False).rows.columns == ["a"]
    add("first [1]", f"'x' AS a, {2**40}L AS b", "a string, b bigint")
    add("second", "'y' AS a, 1.5D AS c, named_struct('f', 1) AS d", "a string, c double, d struct<f: int>")
    whole = [("x", 2**40, None, None), ("y", None, 1.5, (1,))]
    assert events("a string") == whole
    with caplog.at_level(logging.WARNING, "wherecast"):
        assert events("a string, e double", own=False) == whole
    assert "missing_columns=['e']" in caplog.text
    with pytest.raises(SchemaError, match="have no column 'e'; they have a, "):
        source.events(columns("a string, e double"), declared=True)
    with pytest.raises(
        SchemaError, match=rf"first \[1\].{kind} has the column 'b' as bigint, which is declared as int"
    ):
        source.events(columns("b int"), declared=True)

    add("third", "'z' AS a, 7 AS b, 0.5F AS c, named_struct('g', 2) AS d", "a string, b int, c float, d struct<g: int>")
    with pytest.raises(SchemaError, match=f"third.{kind} has the column 'b' as int, and other files have it as bigint"):
        source.events(columns("a string"), declared=False)
    wide = "b bigint, c double"
    assert source.events(columns(wide), declared=True).rows.columns[:2] == ["b", "c"]
    assert events(wide) == [("x", 2**40, None, None), ("y", None, 1.5, (1, None)), ("z", 7, 0.5, (None, 2))]


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_files_of_a_batch(spark: SparkSession, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """What a file has and the stream does not read is an error that names the file; what it does not have is logged once."""
    place = tmp_path / "files"

    def save(name: str, text: str) -> str:
        spark.sql(f"SELECT {text}").write.format(kind).save(str(place / name))
        return str(place / name)

    save("first", "1L AS a, CAST(1 AS decimal(5,2)) AS b, named_struct('f', 1) AS c, array(1) AS d")
    check = folder(spark, place / "first", kind).events(columns("a bigint"), declared=False).check
    assert check is not None

    def look(*names: str) -> None:
        check(spark, [str(file) for name in names for file in (place / name).glob(f"part-*.{kind}")])

    look("first")
    assert "missing_columns" not in caplog.text
    save("narrow", "1 AS A, CAST(1 AS decimal(4,1)) AS b")
    with caplog.at_level(logging.WARNING, "wherecast"):
        look("first", "narrow")  # together they have all columns
        look("narrow")
        look("narrow")
    assert caplog.text.count("missing_columns=['c', 'd']: NULL") == 1
    assert f"file={place}/narrow/part-" in caplog.text
    for name, text, message in (
        ("new", "1L AS a, 'x' AS e", r"has the column 'e' \(string\), which no file had.* Start it again"),
        (
            "inside",
            "named_struct('f', 1, 'g', 2) AS c",
            r"'c' as struct<f:int,g:int>, .* reads struct<f:int>. Start it again",
        ),
        ("digits", "CAST(1 AS decimal(7,2)) AS b", r"'b' as decimal\(7,2\), .* reads decimal\(5,2\). Start it again"),
        ("other", "'x' AS a", "'a' as string, and the stream reads bigint. If all files"),
        ("element", "array(1L) AS d", "'d' as array<bigint>, and the stream reads array<int>. If all files"),
    ):
        save(name, text)
        with pytest.raises(SchemaError, match=f"{place}/{name}/part-.* {message}.*Nothing is lost"):
            look("first", name, "narrow")


def test_columns_that_come_later(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They stop a pipeline; the next run reads them and loses nothing, also in a Parquet sink that has rows without them."""
    write(tmp_path / "subscriptions.json", '{"id": 1, "filter": "amount > 2"}')
    head, sources = CONFIG.split("[events]")
    config = f"{head}[events]{sources.replace('json', 'parquet')}".replace("available-now", "100 milliseconds")
    (tmp_path / "pipeline.toml").write_text(config)
    for name in ("events", "changes"):
        (tmp_path / name).mkdir()

    def add(name: str, **content: Any) -> None:
        pq.write_table(pa.table({key: [value] for key, value in content.items()}), tmp_path / "_new")
        (tmp_path / "_new").rename(tmp_path / f"{name}.parquet")

    @contextmanager
    def running() -> Iterator[Running]:
        pipeline = Pipeline(read_config(tmp_path / "pipeline.toml"), spark).run()
        try:
            yield pipeline
        finally:
            pipeline.stop()

    def stops(pipeline: Running, message: str) -> None:
        with pytest.raises(PipelineError, match=f"^file://{tmp_path}/{message}"):
            any(pipeline.wait(0.1) for _ in range(600))

    def matches() -> list[tuple[Any, ...]]:
        rows = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "matches")).collect()
        return sorted((row.symbol, row.amount, row.asDict().get("note")) for row in rows)

    add("events/1", symbol="A", amount=3.0)
    with running() as pipeline:
        pipeline.matches.processAllAvailable()
        assert matches() == [("A", 3.0, None)]
        add("events/2", symbol="B", amount=4.0, note="new")
        stops(pipeline, "events/2.parquet has the column 'note'")
    with running() as pipeline, caplog.at_level(logging.WARNING, "wherecast"):
        pipeline.matches.processAllAvailable()
        assert matches() == [("A", 3.0, None), ("B", 4.0, "new")]
        add("events/3", symbol="C", amount=5.0)
        pipeline.matches.processAllAvailable()
        assert "events/3.parquet missing_columns=['note']" in caplog.text
        add("events/4", symbol="D", amount="6")
        stops(pipeline, "events/4.parquet has the column 'amount' as string, and the stream reads double")
    with pytest.raises(
        SchemaError, match=r"4.parquet has the column 'amount' as string, and other files have it as double"
    ):
        Pipeline(read_config(tmp_path / "pipeline.toml"), spark).run()
    add("events/4", symbol="D", amount=6.0)
    with running() as pipeline:
        pipeline.matches.processAllAvailable()
        expected = [("A", 3.0, None), ("B", 4.0, "new"), ("C", 5.0, None), ("D", 6.0, None)]
        assert matches() == expected
        add("events/5", symbol="E", amount="7")
        stops(pipeline, "events/5.parquet has")
    (tmp_path / "events" / "5.parquet").unlink()
    (tmp_path / "pipeline.toml").write_text(
        config.replace("[changes]", "options = {ignoreMissingFiles = true}\n[changes]")
    )
    with running() as pipeline:
        add("events/6", symbol="F", amount=8.0)
        pipeline.matches.processAllAvailable()
        assert matches() == [*expected, ("F", 8.0, None)]
        add("changes/1", sequence=1, op="upsert", id="2", filter="amount > 1", by="somebody")
        stops(pipeline, "changes/1.parquet has the column 'id' as string, and the stream reads bigint")


@pytest.mark.parametrize(("kind", "option"), [("json", "multiLine"), ("json", "mode"), ("csv", "mode")])
def test_options_that_cannot_be_followed(spark: SparkSession, tmp_path: Path, kind: str, option: str) -> None:
    """They are refused, not ignored."""
    with pytest.raises(SchemaError, match=f"the option '{option}' cannot be set for files of {kind}"):
        folder(spark, tmp_path, kind, **{option: "true"}).events(columns("a string"), declared=True)
