"""The examples do what they say, at small scale."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import duckdb
import nbformat
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples.content_feeds import feeds
from examples.detection_rules import data, job
from examples.geofences import geofences
from examples.stock_alerts import alerts
from nbclient import NotebookClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "code_space" / "code_space.ipynb"
MAP = ROOT / "docs" / "assets" / "geofences.html"


def holds(conditions: list[str], rows: pa.Table) -> list[list[int]]:
    """For each row the numbers of the conditions that DuckDB finds true."""
    with duckdb.connect() as database:
        database.register("given", rows)
        columns = ", ".join(f"({condition})" for condition in conditions)
        found = database.execute(f"SELECT {columns} FROM given").fetchall()
    return [[n for n, is_true in enumerate(row) if is_true] for row in found]


def test_stock_alerts(capsys: pytest.CaptureFixture[str]) -> None:
    """Everybody is told what DuckDB finds for their condition."""
    engine = alerts.main(alerts=400, batches=1)
    quotes = alerts.make_quotes(2_000, seed=9)
    people = dict(alerts.make_alerts(400))
    wanted = holds(list(people.values()), quotes)
    names = list(people)
    found = engine.match_batch(quotes).to_lists()
    assert [sorted(told) for told in found] == [sorted(names[n] for n in row) for row in wanted]
    assert sum(map(len, found)) > 50
    assert "FAIL price > 100000.0" in capsys.readouterr().out


def test_geofences(tmp_path: Path) -> None:
    """Positions match the zones that DuckDB finds, circles are round on the globe, and the map is one page that fetches nothing."""
    told = geofences.main(["--zones", "30", "--couriers", "20", "--steps", "20", str(tmp_path / "map.html")])
    zones, positions = geofences.make_zones(30), geofences.make_positions(20, 20)
    assert [sorted(found) for found in told] == holds([zone.condition for zone in zones], positions)
    middle, km = (52.53, 13.41), 2.0
    circle = geofences.circle("round", middle, km).condition
    rim = [
        {"lat": middle[0] + d / 111.2 * math.sin(t), "lon": middle[1] + d / 67.65 * math.cos(t)}
        for t in (k * math.pi / 12 for k in range(24))
        for d in (1.9, 1.98, 2.02, 2.1)
    ]
    inside = [bool(found) for found in holds([circle], pa.Table.from_pylist(rim))]
    assert inside == [distance_km(middle, (p["lat"], p["lon"])) <= km for p in rim]
    page = (tmp_path / "map.html").read_text()
    assert page.count("<circle") == sum(map(bool, told)) > 10
    ET.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    assert not re.findall(r"(?:src|href)=|url\(|@import|https?:", page)
    assert MAP.read_text() == geofences.draw_city(**geofences.SMALL)[1]  # else run `make docs`


def distance_km(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Along the globe, by the haversine formula."""
    (lat, lon), (lat2, lon2) = (tuple(map(math.radians, point)) for point in (a, b))
    half = math.sin((lat2 - lat) / 2) ** 2 + math.cos(lat) * math.cos(lat2) * math.sin((lon2 - lon) / 2) ** 2
    return 2 * 6371.0 * math.asin(math.sqrt(half))


def test_content_feeds() -> None:
    """Each feed has the articles that a reader would put there."""
    assert feeds.main() == {
        "chips": ["New rules for chip makers"],
        "chips, short": ["New rules for chip makers"],
        "energy": ["A windy night"],
        "central banks": ["Central bank waits"],
        "not about football": ["The race begins"],
        "tagged climate": ["A windy night"],
        "like a text": ["New rules for chip makers"],
        "like a vector": ["A windy night"],
    }


@pytest.mark.slow
def test_notebook() -> None:
    """The notebook runs from top to bottom and prints what is stored in it; what is stored is small."""
    stored, run = (nbformat.read(NOTEBOOK, as_version=4) for _ in range(2))
    NotebookClient(run, timeout=120).execute()
    assert printed(run) == printed(stored)
    assert "an event visits" in printed(run)
    assert NOTEBOOK.stat().st_size < 60_000


def printed(notebook: nbformat.NotebookNode) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")


def test_detection_rules(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alerts are those of Spark's own join, and an owner that is edited in the table shows in the next batch."""
    assert len(Path(job.__file__).read_text().splitlines()) < 40
    monkeypatch.setattr(data, "PROGRAMS", data.PROGRAMS[:4])  # so that few events meet many rules
    data.write(tmp_path, rules=120, events=60)
    everyone = {"rule_id": ["all"], "condition": ["host IS NOT NULL"], "severity": ["low"], "owner": ["ann"]}
    table = pa.concat_tables([pq.read_table(tmp_path / "rules"), pa.table(everyone)], promote_options="default")
    conditions = [f"count_if({condition})" for condition in table["condition"].to_pylist()]
    events = spark.read.schema(job.EVENTS).json(str(tmp_path / "events"))
    counts, wanted = events.selectExpr(*conditions).collect()[0], Counter[tuple[object, ...]]()
    follower = query = None
    try:
        for batch, owner in enumerate(("ann", "bob")):
            owners = [*table["owner"].to_pylist()[:-1], owner]
            table = table.set_column(3, "owner", [owners])
            pq.write_table(table, tmp_path / "rules" / "rules.parquet")
            if follower is None or query is None:
                follower, query = job.start(spark, str(tmp_path))
            else:
                follower.processAllAvailable()
                (tmp_path / "events" / "1.json").write_bytes((tmp_path / "events" / "0.json").read_bytes())
            query.processAllAvailable()
            rules = zip(*(table[name].to_pylist() for name in ("rule_id", "severity", "owner")), strict=True)
            wanted.update({(batch, *rule): count for rule, count in zip(rules, counts, strict=True)})
    finally:
        for running in (query, follower):
            if running is not None:
                running.stop()
    alerts = spark.read.parquet(str(tmp_path / "alerts")).select("batch_id", "rule_id", "severity", "owner")
    found = Counter(tuple(row) for row in alerts.collect())
    assert found == +wanted
    assert len(found) > 5
