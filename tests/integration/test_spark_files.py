"""Files in: what does not fit its column is set apart with its reason, and no field disappears."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType
from typer.testing import CliRunner

from wherecast.cli.app import app
from wherecast.errors import SchemaError
from wherecast.spark.files import Folder

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
    assert sorted(outcomes(folder(spark, tmp_path / "plain", "csv").events(declared, declared=True)), key=str) == [
        ("5", 6.0, None),
        ("A", 184.38, None),
        ("B", None, "amount is dear, expected double"),
        ("C", 1.0, "not a line of 2 fields"),
        ("D", None, "not a line of 2 fields"),
        ("E", None, None),
    ]
    write(tmp_path / "header" / "a.csv", "symbol,amount", "A,1")
    with_header = folder(spark, tmp_path / "header", "csv", header="true")
    assert outcomes(with_header.events(declared, declared=True)) == [("A", 1.0, None)]
    with pytest.raises(Exception, match="CSV header does not conform"):
        with_header.events(columns("amount string, symbol string"), declared=True).collect()


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_files_with_types_of_their_own(
    spark: SparkSession, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All columns are passed through; a declared one that is missing, or of another type, is not read as NULL."""
    place = tmp_path / "files"
    source = folder(spark, place, kind)
    place.mkdir()
    assert source.events(columns("a string"), declared=False).columns == ["a"]
    spark.createDataFrame([("x", 2**40, 1.5)], "a string, b bigint, c double").write.mode("append").format(kind).save(
        str(place)
    )
    whole = [("x", 2**40, 1.5)]
    assert [tuple(row) for row in source.events(columns("a string"), declared=True).collect()] == whole
    with caplog.at_level(logging.WARNING, "wherecast"):
        assert [tuple(row) for row in source.events(columns("a string, d double"), declared=False).collect()] == whole
    assert "missing_columns=['d']" in caplog.text
    with pytest.raises(SchemaError, match="have no column 'd'; they have a, b, c"):
        source.events(columns("a string, d double"), declared=True)
    with pytest.raises(Exception, match=r"bigint|PARQUET_COLUMN_DATA_TYPE_MISMATCH"):
        source.events(columns("b int"), declared=True).collect()


@pytest.mark.parametrize(("kind", "option"), [("json", "multiLine"), ("json", "mode"), ("csv", "mode")])
def test_options_that_cannot_be_followed(spark: SparkSession, tmp_path: Path, kind: str, option: str) -> None:
    """They are refused, not ignored."""
    with pytest.raises(SchemaError, match=f"the option '{option}' cannot be set for files of {kind}"):
        folder(spark, tmp_path, kind, **{option: "true"}).events(columns("a string"), declared=True)
