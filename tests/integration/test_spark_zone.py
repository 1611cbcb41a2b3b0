"""Timestamps mean what they mean to Spark in the time zone of its session, also where clocks change."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from wherecast import spark as ws
from wherecast.engine.engine import Engine
from wherecast.errors import SchemaError
from wherecast.language.events.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("compiling_spark")]

SCHEMA = {"ts": "timestamp", "n": "timestamp_ntz", "d": "date"}
#: Around the changes of clocks in Berlin and New York, before 1900, after the last rule that is written down, and in between.
DAYS = ("1850-06-01", "2024-03-10", "2024-03-31", "2024-06-01", "2024-10-27", "2024-11-03", "2050-03-27")
HOURS = ("00:00:00", "00:53:28", "01:00:00", "01:30:00", "02:00:00", "02:30:00", "03:00:00", "03:30:00", "10:30:00")
LITERALS = [f"{day} {hour}" for day, hour in itertools.product(DAYS, ("00:00:00", "01:30:00", "02:30:00", "03:00:00"))]
FILTERS = [
    "ts >= '2024-06-01 10:00:00'",
    "ts >= TIMESTAMP '2024-06-01 10:00:00'",
    "ts < '2024-06-01 09:00:00'",
    *(f"ts {op} '{literal}'" for op, literal in zip(itertools.cycle((">=", "=", "<")), LITERALS, strict=False)),
    *(
        f"n {op} TIMESTAMP '{literal}'"
        for op, literal in zip(itertools.cycle(("=", "<", ">=")), LITERALS, strict=False)
    ),
    *(f"n = '{literal}'" for literal in LITERALS[::3]),
    *(
        f"d {op} TIMESTAMP '{day} 00:00:00'"
        for op, day in zip(("=", "<=", ">", "<", ">=", "=", "<>"), DAYS, strict=True)
    ),
    "ts = TIMESTAMP '2024-10-27 02:30:00+01:00'",
    "ts BETWEEN '2024-03-31' AND TIMESTAMP '2024-03-31 02:30:00'",
    "ts IN ('2024-03-31 02:30:00', '2024-10-27 02:30:00', DATE '2024-06-01')",
    "ts = TIMESTAMP_NTZ '2024-03-31 02:30:00'",
    "ts > DATE '2024-10-27'",
    "n = TIMESTAMP_NTZ '2024-03-31 02:30:00+05:00'",
    "n < '2024-03-31 02:30:00Z'",
    "n IN ('2024-03-31 02:30:00', TIMESTAMP_NTZ '2024-03-31 03:30:00', DATE '2024-06-01')",
    "n IN ('2024-06-01 10:30:00', TIMESTAMP '2024-06-01 00:00:00')",
    "n BETWEEN '2024-03-31 02:30:00' AND TIMESTAMP '2024-06-01 03:30:00'",
    "n < d OR n = d",
    "n = ts",
    "n < ts",
    "d < ts",
    "d = ts AND n >= TIMESTAMP '2024-01-01 00:00:00'",
    "NOT (n <=> ts) AND d <> DATE '2024-06-01'",
]
#: What Spark answers in two ways, depending on how it rewrites the query: refused.
TWO_ANSWERS = {
    "UTC": set(),
    "Europe/Berlin": {"2024-03-31 02:30:00", "2024-03-31 03:00:00", "2050-03-27 02:30:00", "2050-03-27 03:00:00"},
    "America/New_York": {"2024-03-10 02:30:00", "2024-03-10 03:00:00"},
}


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def set_zone(spark: SparkSession, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)


def events_of(spark: SparkSession, path: Path) -> DataFrame:
    """Each wall clock as an instant of UTC, as itself and as a day; read from a file, as Spark rewrites only such queries."""
    walls = ", ".join(f"('{day} {hour}')" for day, hour in itertools.product(DAYS, HOURS))
    columns = "CAST(col1 || 'Z' AS TIMESTAMP) ts, CAST(col1 AS TIMESTAMP_NTZ) n, CAST(col1 AS DATE) d, col1 wall"
    spark.sql(f"SELECT {columns} FROM VALUES {walls}").coalesce(1).write.parquet(str(path))
    return spark.read.parquet(str(path))


def rules(spark: SparkSession, filters: list[str]) -> DataFrame:
    return spark.createDataFrame(list(enumerate(filters)), "id bigint, filter string")


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_answers_are_sparks(session: SparkSession, tmp_path: Path, zone: str) -> None:
    """The library with the zone of the schema and Spark with that of the session match what WHERE keeps in that session."""
    set_zone(session, zone)
    events = events_of(session, tmp_path / "events")
    events.createOrReplaceTempView("moments")
    built = ws.build_index(rules(session, FILTERS), SCHEMA, str(tmp_path / "index"))
    assert built.index.schema().time_zone == zone
    refused = {row["id"] for row in built.quarantine.select("id").collect()}
    expected_refused = [f"n {op} TIMESTAMP '{x}'" for x in TWO_ANSWERS[zone] for op in ("=", "<", ">=")]
    assert {FILTERS[int(number)] for number in refused} == set(FILTERS) & set(expected_refused)

    kept = [number for number in range(len(FILTERS)) if str(number) not in set(map(str, refused))]
    query = " UNION ALL ".join(f"SELECT {number} id, wall FROM moments WHERE {FILTERS[number]}" for number in kept)
    wanted = Counter(map(tuple, session.sql(query).collect()))

    found = ws.match(events, built.index).select("subscription", "wall")
    assert Counter(map(tuple, found.collect())) == wanted

    engine = Engine(Schema.of(SCHEMA, time_zone=zone))
    engine.subscribe_many([(number, FILTERS[number]) for number in kept])
    table = events.toArrow()
    rows, ids = engine.match_batch(table).pairs()
    walls = table["wall"].to_pylist()
    assert Counter((int(i), walls[r]) for r, i in zip(rows.tolist(), ids.tolist(), strict=True)) == wanted


def test_an_index_has_one_zone(session: SparkSession, tmp_path: Path) -> None:
    """Another session is refused by match, stream and SQL; changes are read in the zone of the index."""
    set_zone(session, "Europe/Berlin")
    events = events_of(session, tmp_path / "events")
    index = str(tmp_path / "index")
    ws.build_index(rules(session, ["ts = '2024-06-01 12:30:00'"]), SCHEMA, index, strategy="event-space", servers=2)
    ws.register_table_function(session, index, "moments_match")
    events.createOrReplaceTempView("moments")
    from_sql = "SELECT n, subscription FROM moments_match(TABLE(SELECT ts, n, d FROM moments))"
    assert session.sql(from_sql).count() == 1

    set_zone(session, "America/New_York")
    for wrong in (lambda: ws.match(events, index), lambda: ws.register_table_function(session, index)):
        with pytest.raises(SchemaError, match="built in the time zone Europe/Berlin, the session has America/New_York"):
            wrong()
    with pytest.raises(Exception, match="built in the time zone Europe/Berlin"):
        session.sql(from_sql).collect()
    change = "sequence bigint, op string, id bigint, filter string"
    news = session.createDataFrame([(1, "upsert", 7, "ts = TIMESTAMP '2024-06-01 12:30:00'")], change)
    assert ws.apply_changes(news, index).changes == 1

    set_zone(session, "Europe/Berlin")
    stream = session.readStream.schema(events.schema).parquet(str(tmp_path / "events"))
    sink = ws.Parquet(str(tmp_path / "out"))
    query = ws.stream(stream, index, sink, str(tmp_path / "checkpoint"), trigger={"availableNow": True})
    assert query.awaitTermination(120)
    out = session.read.parquet(str(tmp_path / "out"))
    assert sorted(map(tuple, out.select("subscription", "wall").collect())) == [
        (0, "2024-06-01 10:30:00"),
        (7, "2024-06-01 10:30:00"),
    ]


def test_what_is_refused(session: SparkSession, tmp_path: Path) -> None:
    """A column of another kind than its attribute, a schema of another zone and a zone that Python does not know."""
    events, index = events_of(session, tmp_path / "events"), str(tmp_path / "index")
    few = rules(session, ["ts > '2024-06-01'"])
    ws.build_index(few, {"ts": "timestamp"}, index)
    with pytest.raises(SchemaError, match="'ts' is a timestamp_ntz, its attribute a timestamp; cast the column"):
        ws.match(events.selectExpr("n AS ts"), index)
    with pytest.raises(SchemaError, match=r"the schema has the time zone Europe/Berlin, the session UTC"):
        ws.build_index(few, Schema.of({"ts": "timestamp"}, time_zone="Europe/Berlin"), index)
    set_zone(session, "PST")
    with pytest.raises(SchemaError, match="short names mean different zones"):
        ws.build_index(few, {"ts": "timestamp"}, index)
    assert ws.build_index(rules(session, ["x > 1"]), {"x": "long"}, str(tmp_path / "other")).version == 1
