"""`wherecast demo` on Spark: what it writes is what a single engine finds, and its page stands alone."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from wherecast.cli.app import app
from wherecast.cli.demo_market import SCHEMA
from wherecast.engine.engine import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SUBSCRIPTIONS, EVENTS, BATCHES = 3_000, 2_000, 10
PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.fixture(scope="module")
def demo(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A small run of the demo in the session of the tests, whose settings are put back."""
    out = tmp_path_factory.mktemp("demo") / "new folder"
    before = spark.conf.get(PARTITIONS)
    sizes = ["--subscriptions", str(SUBSCRIPTIONS), "--events", str(EVENTS)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wherecast.cli.demo_stream.BATCHES", BATCHES)
        done = CliRunner().invoke(app, ["demo", "--out", str(out), *sizes])
    spark.conf.set(PARTITIONS, before)
    assert done.exit_code == 0, done.stderr
    return out, done


def live_at(out: Path, sequence: int) -> Engine:
    """An engine with the subscriptions as they were after a change."""
    engine = Engine(SCHEMA)
    engine.subscribe_many(pq.read_table(out / "subscriptions.parquet").select(["id", "filter"]))
    for file in sorted((out / "changes").glob("*.parquet")):
        for change in pq.read_table(file).to_pylist():
            if change["sequence"] > sequence:
                return engine
            if change["op"] == "upsert":
                engine.subscribe(change["id"], change["filter"], replace=True)
            elif change["id"] in engine:
                engine.unsubscribe(change["id"])
    return engine


def events_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Events to compare; Spark writes timestamps in another form than Arrow."""
    moments = table["time"].cast(pa.timestamp("us")).cast(pa.int64())
    return list(zip(*(c.to_pylist() for c in (table["symbol"], table["price"], table["volume"], moments)), strict=True))


def pairs_of(out: Path, batch: int) -> Counter[tuple[Any, ...]]:
    files = (out / "matches" / f"batch_id={batch}").glob("*.parquet")
    table = pa.concat_tables(pq.read_table(file, partitioning=None) for file in files)
    return Counter(zip(events_of(table), table["subscription"].to_pylist(), strict=True))


def test_batches_equal_the_engine(demo: tuple[Path, Any]) -> None:
    """Each batch holds what a single engine finds with the subscriptions of the version it is pinned to."""
    out, _ = demo
    done = CliRunner().invoke(app, ["pipeline", "status", "--json", str(out / "pipeline.toml")])
    status = json.loads(done.stdout)
    sequences = {version["version"]: version["sequence"] for version in status["versions"]}
    seen = {sequences[version] for version in status["pins"].values()}
    assert len(status["pins"]) == BATCHES
    assert len(seen) > 1, "subscriptions must change while it runs"
    engines = {sequence: live_at(out, sequence) for sequence in seen}
    for batch, version in status["pins"].items():
        events = pq.read_table(out / "events" / f"{int(batch):03d}.parquet")
        rows, ids = engines[sequences[version]].match_batch(events).pairs()
        taken = events_of(events.take(pa.array(rows)))
        assert pairs_of(out, int(batch)) == Counter(zip(taken, ids.tolist(), strict=True))


def test_every_batch_is_there(demo: tuple[Path, Any]) -> None:
    """All events were streamed, one file a micro-batch, and the summary counts what the sink has."""
    out, done = demo
    assert {p.name for p in (out / "matches").glob("batch_id=*")} == {f"batch_id={n}" for n in range(BATCHES)}
    total = sum(sum(pairs_of(out, batch).values()) for batch in range(BATCHES))
    assert f"{EVENTS:,} in {BATCHES} micro-batches" in done.stdout
    assert f"{total:,}, {total / EVENTS:.1f} an event" in done.stdout
    assert done.stderr.count("\nbatch ") == BATCHES, "off a terminal, one line a batch"


def test_page_stands_alone(demo: tuple[Path, Any]) -> None:
    """The page has four plots with labelled axes, and loads nothing from elsewhere."""
    page = (demo[0] / "report.html").read_text()
    assert page.count("<svg") == page.count("</svg>") == 4
    for label in ("micro-batch", "thousand per second", "seconds", "share of all servers, %", "thousands"):
        assert f"<!-- {label}" in page or label in page
    for part in (
        "alerts they fired",
        "A rule edited live",
        "plain Spark SQL",
        "Second act: 8 servers",
    ):
        assert part in page
    assert page.index("fired the alert") < page.index("The run in figures")
    assert not re.search(r"""(?:src|href)=["'](?!#)""", page)
    assert "<script" not in page
