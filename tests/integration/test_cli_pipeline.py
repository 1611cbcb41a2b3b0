"""`wherecast pipeline`: from a configuration to matches, and from mistakes to one clear line."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark_settings import SETTINGS
from typer.testing import CliRunner

from wherecast.cli.app import app
from wherecast.engine.engine import Engine
from wherecast.spark import pipeline as pipeline_module
from wherecast.spark.config import ConfigError, read_config
from wherecast.spark.pipeline import Pipeline, PipelineError, brief, check_brokers
from wherecast.spark.session import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PROGRAM = pipeline_module.__file__
SCHEMA = {"symbol": "string", "price": "double"}
SUBSCRIPTIONS = [(n, f"symbol = 'S{n % 7}' AND price < {n}", f"user-{n % 3}") for n in range(40)]
CHANGES = [(1, "upsert", 3, "symbol = 'S1'"), (2, "delete", 8, None), (3, "upsert", 99, "price > 35")]
CONFIG = """
[pipeline]
index = "index"
checkpoint = "checkpoint"
subscribers = true
trigger = "available-now"

[schema]
attributes = {symbol = "string", price = "double"}

[subscriptions]
path = "subscriptions.parquet"

[plan]
strategy = "event-space"
servers = 3

[events]
source = "files"
path = "events"
columns = "number BIGINT, symbol STRING, price DOUBLE"
per_trigger = 1

[changes]
source = "files"
path = "changes"

[sink]
kind = "parquet"
path = "matches"
"""


def events(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {"number": list(numbers), "symbol": [f"S{n % 9}" for n in numbers], "price": [float(n % 41) for n in numbers]}
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pipeline with 40 subscriptions and two files of events."""
    ids, filters, names = zip(*SUBSCRIPTIONS, strict=True)
    pq.write_table(pa.table({"id": ids, "filter": filters, "who": names}), tmp_path / "subscriptions.parquet")
    for name in ("events", "changes"):
        (tmp_path / name).mkdir()
    pq.write_table(events(0, 200), tmp_path / "events" / "0.parquet")
    pq.write_table(events(200, 100), tmp_path / "events" / "1.parquet")
    os.utime(tmp_path / "events" / "0.parquet", times=(1e9, 1e9))  # the older one comes first
    (tmp_path / "pipeline.toml").write_text(CONFIG)
    return tmp_path


def run(*args: Any) -> Any:
    done = CliRunner().invoke(app, ["pipeline", *map(str, args)])
    done.plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stderr)
    return done


def changed(folder: Path, old: str, new: str) -> Path:
    path = folder / "pipeline.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def expected(rows: list[tuple[Any, str]], found: pa.Table) -> Counter[tuple[int, Any]]:
    engine = Engine(SCHEMA)
    engine.subscribe_many(rows)
    numbers = found["number"].to_pylist()
    at, ids = engine.match_batch(found).pairs()
    return Counter((numbers[row], id) for row, id in zip(at.tolist(), ids.tolist(), strict=True))


def matches(folder: Path) -> pa.Table:
    files = sorted((folder / "matches").glob("batch_id=*/*.parquet"))
    return pa.concat_tables(pq.read_table(file, partitioning=None) for file in files)


def pairs(table: pa.Table) -> Counter[tuple[int, Any]]:
    return Counter(zip(table["number"].to_pylist(), table["subscription"].to_pylist(), strict=True))


def test_from_configuration_to_matches(spark: SparkSession, folder: Path) -> None:
    """Explain writes nothing; run builds, matches and stops; status tells; a second run adds what is new, no more."""
    config = folder / "pipeline.toml"
    done = run("explain", config)
    assert done.exit_code == 0, done.stderr
    assert "event-space over 3 servers, routed by symbol" in done.stdout
    assert "expected on the sample of events" in done.stdout
    assert json.loads(run("explain", config, "--json").stdout)["strategy"] == "event-space"
    assert not (folder / "index").exists()

    done = run("run", config, "--metrics", folder / "metrics.jsonl")
    assert done.exit_code == 0, done.stderr
    rows = [(id, filter) for id, filter, _ in SUBSCRIPTIONS]
    first = expected(rows, pa.concat_tables([events(0, 200), events(200, 100)]))
    table = matches(folder)
    assert pairs(table) == first
    names = {id: who for id, _, who in SUBSCRIPTIONS}
    assert table["who"].to_pylist() == [names[id] for id in table["subscription"].to_pylist()]
    assert f"300 events in 2 batches: {sum(first.values()):,} matches" in done.stderr
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["events"] for line in lines] == [200, 100]
    assert sum(line["report"]["matches"] for line in lines) == sum(first.values())
    assert all(line["durations_ms"]["addBatch"] > 0 for line in lines)

    sequence, op, ids, filters = zip(*CHANGES, strict=True)
    log = pa.table({"sequence": sequence, "op": op, "id": ids, "filter": filters})
    pq.write_table(log, folder / "changes" / "0.parquet")
    pq.write_table(events(300, 50), folder / "events" / "2.parquet")
    assert run("run", config).exit_code == 0
    later = [(id, filter) for id, filter in rows if id not in (3, 8)] + [(3, "symbol = 'S1'"), (99, "price > 35")]
    assert pairs(matches(folder)) == first + expected(later, events(300, 50))

    found = json.loads(run("status", config, "--json").stdout)
    assert [v["sequence"] for v in found["versions"]] == [0, 3]
    assert found["pins"] == {"0": 1, "1": 1, "2": 2}
    assert (found["events_batch"], found["changes_batch"]) == (2, 0)
    assert found["versions"][-1]["layers"] == 2
    assert found["total"] == len(later) < sum(found["subscriptions"]), "a subscription on several servers counts once"
    assert [batch["events"] for batch in found["batches"]] == [200, 100, 50]
    shown = run("status", config).stdout
    assert "event-space" in shown
    assert "events 0 to 2, changes 0 to 0" in shown

    done = run("build", config)
    assert done.exit_code == 1
    assert "the index has changes up to 3, the table of subscriptions up to 0" in done.plain
    changed(folder, 'path = "subscriptions.parquet"', 'path = "subscriptions.parquet"\nsequence = 3')
    done = run("build", config)
    assert done.exit_code == 0, done.stderr
    assert "version 3 of" in done.stderr
    assert json.loads(run("status", config, "--json").stdout)["versions"][-1]["sequence"] == 3


def test_from_samples_to_matches(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `init` writes runs as it is: nested JSON, rules in CSV under other names; a value that does not fit is a dead letter."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events").mkdir()
    lines = [
        {"user": {"name": name}, "price": price, "at": f"2026-01-0{day}T10:00:00Z"}
        for day, (name, price) in enumerate([("ann", 1.5), ("bob", 2.5), ("ann", 9.5)], 1)
    ]
    (tmp_path / "events" / "1.jsonl").write_text("\n".join(map(json.dumps, lines)))
    rules = "rule,condition,owner\n7,user.name = 'ann' AND price > 1,me\n8,at >= '2026-01-02',you\n9,prise > 1,you\n"
    (tmp_path / "rules.csv").write_text(rules)
    done = CliRunner().invoke(app, ["init", "events", "rules.csv", "--id", "rule"])
    assert done.exit_code == 0, done.output
    odd = {"user": {"name": "ann"}, "price": "184.38", "at": "2026-01-01T10:00:00Z"}
    (tmp_path / "events" / "2.jsonl").write_text(json.dumps(odd))
    done = run("run", changed(tmp_path, 'trigger = "1 second"', 'trigger = "available-now"'))
    assert done.exit_code == 0, done.stderr
    found = spark.read.parquet(str(tmp_path / "pipeline" / "matches")).collect()
    assert sorted((row.price, row.subscription, row.owner) for row in found) == [
        (1.5, "7", "me"),
        (2.5, "8", "you"),
        (9.5, "7", "me"),
        (9.5, "8", "you"),
    ]
    dead = spark.read.parquet(str(tmp_path / "pipeline" / "dead-letters")).collect()
    assert [json.loads(row.message) for row in dead] == [odd]
    assert "price" in dead[0].error
    changed(tmp_path, 'filter = "condition"', 'filter = "text"')
    done = run("build", tmp_path / "pipeline.toml")
    assert done.exit_code == 2
    assert "no column 'text'" in done.plain


@pytest.mark.parametrize("command", ["build", "run"])
def test_bad_subscriptions_are_named(spark: SparkSession, folder: Path, command: str) -> None:
    """A build reports what it leaves out, and keeps the rest; so does a run that builds."""
    pq.write_table(pa.table({"id": [1, 2], "filter": ["price < 3", "prise < 3"]}), folder / "subscriptions.parquet")
    done = run(command, changed(folder, 'strategy = "event-space"', 'strategy = "broadcast"'))
    assert done.exit_code == 0
    assert "id '2': unknown-attribute: unknown attribute 'prise'" in done.plain
    assert "1 subscriptions were refused" in done.plain
    assert command != "build" or "broadcast: every worker has all subscriptions" in done.stdout


def test_rate_source_and_select(spark: SparkSession, folder: Path) -> None:
    """The rate source becomes events by SQL; a timeout stops what has no end."""
    changed(folder, 'trigger = "available-now"', 'trigger = "500 milliseconds"')
    changed(folder, 'source = "files"\npath = "events"\ncolumns = "number BIGINT, symbol STRING, price DOUBLE"\nper_trigger = 1',
            'source = "rate"\nper_trigger = 100\n'
            """select = ["value AS number", "concat('S', value % 9) AS symbol", "double(value % 41) AS price"]""")  # fmt: skip
    # The first batch is empty, and a slow machine may not get beyond it; the next run goes on there.
    for seconds in (4, 8, 16, 32):
        done = run("run", folder / "pipeline.toml", "--timeout", seconds)
        assert done.exit_code == 0, done.stderr
        if len(list(folder.glob("matches/batch_id=*"))) > 1:
            break
    table = matches(folder)
    assert len(table)
    rows = [(id, filter) for id, filter, _ in SUBSCRIPTIONS]
    assert pairs(table) == expected(rows, events(0, max(table["number"].to_pylist()) + 1))


MISTAKES = [
    ('path = "subscriptions.parquet"', 'path = "missing.parquet"', 2, "[subscriptions]: there is no '"),
    ('path = "events"', 'path = "missing"', 2, "[events]: there is no '"),
    ("number BIGINT", "number BIGINTEGER", 2, "events.columns is not a list of columns with types"),
    ("subscribers = true", 'subscribers = true\noutput = "lists"', 2, "pipeline.subscribers needs pipeline.output"),
    ('columns = "number BIGINT, symbol STRING, price DOUBLE"', 'columns = "x BIGINT"', 2, "have no column 'x'; they have number, symbol, price"),
    ('path = "subscriptions.parquet"', 'path = "events/0.parquet"', 2, "the table of subscriptions has no column 'id'; it has number"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "code", "message"), MISTAKES, ids=[m[3][:40] for m in MISTAKES])
def test_mistakes_are_one_line(spark: SparkSession, folder: Path, old: str, new: str, code: int, message: str) -> None:
    """Wrong input gives a message without a traceback, and the exit code of the other commands."""
    done = run("run", changed(folder, old, new))
    assert message in done.plain
    assert done.exit_code == code
    assert "Traceback" not in done.plain
    (line,) = [line for line in done.plain.splitlines() if line.startswith("error:")]
    assert len(line) < 400


def kafka_config(folder: Path, listener: socket.socket) -> Path:
    """The configuration, with events from a broker."""
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    kafka = f'source = "kafka"\nservers = "{address}"\ntopic = "quotes"'
    return changed(folder, 'source = "files"\npath = "events"', kafka)


def test_kafka_that_is_not_there(spark: SparkSession, folder: Path) -> None:
    """A broker that does not answer is named; nobody waits for a minute."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        done = run("run", kafka_config(folder, listener))
        assert (done.exit_code, "[events]: no Kafka broker answers" in done.plain) == (1, True), done.stderr


def test_addresses_of_brokers() -> None:
    """An address without a port is a mistake in the configuration; of several brokers one suffices."""
    with pytest.raises(ConfigError, match=r"events.servers is 'nowhere'"):
        check_brokers("events", "nowhere")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        check_brokers("events", f"127.0.0.1:1, 127.0.0.1:{listener.getsockname()[1]}")
    with pytest.raises(PipelineError, match="no Kafka broker answers"):
        check_brokers("events", "127.0.0.1:1")


def test_damaged_index_stops_the_run(spark: SparkSession, folder: Path) -> None:
    """A run over a damaged index ends with our own message, not with Spark's page about it."""
    config = folder / "pipeline.toml"
    assert run("build", config).exit_code == 0
    for file in (folder / "index" / "layers").rglob("manifest.json"):
        file.write_bytes(file.read_bytes() + b" ")
    done = run("run", config)
    assert done.exit_code == 1
    assert "checksum does not fit" in done.plain
    assert "Traceback" not in done.plain


def test_brief_finds_our_error() -> None:
    """Of a page of Spark's the line that is ours is kept; of others the first."""
    page = "[STREAM_FAILED] Query failed\n  at x\nwherecast.spark.store.IndexStoreError: the layer is gone\n\tat y"
    assert brief(RuntimeError(page)) == "the layer is gone"
    page = "An exception was thrown from the Python worker:\nTraceback (most recent call last)\n  x\nKeyError: 'a'\n"
    assert brief(RuntimeError(page)) == "KeyError: 'a'"
    assert brief(RuntimeError("\n[X] first line\nsecond")) == "[X] first line"
    assert brief(RuntimeError()) == "RuntimeError"


def test_changes_that_fail_stop_the_run(spark: SparkSession, folder: Path) -> None:
    """A change log that cannot be read is not passed over in silence."""
    (folder / "changes" / "0.parquet").write_bytes(b"no Parquet")
    pipeline = Pipeline(read_config(folder / "pipeline.toml"), spark)
    with pytest.raises(PipelineError, match=r"0\.parquet"):
        pipeline.run()


def test_a_run_that_does_not_start_leaves_nothing_running(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the stream of events is refused, the one of changes is stopped as well."""
    config = changed(folder, 'trigger = "available-now"', 'trigger = "1 second"')
    monkeypatch.setattr(pipeline_module, "stream", lambda *_, **__: pytest.fail("refused"))
    with pytest.raises(pytest.fail.Exception):
        Pipeline(read_config(config), spark).run()
    assert not spark.streams.active


def test_two_pipelines_write_to_a_delta_table_as_two(spark: SparkSession, folder: Path) -> None:
    """The name by which a Delta table knows a writer is that of its checkpoint and of what it writes."""
    path = changed(folder, 'kind = "parquet"', 'kind = "delta"')
    path.write_text(path.read_text() + '\n[dead_letters]\nkind = "delta"\npath = "matches"\n')
    names = []
    for checkpoint in ("checkpoint", "checkpoint/", "another"):
        path.write_text(re.sub(r'checkpoint = ".*"', f'checkpoint = "{checkpoint}"', path.read_text()))
        pipeline = Pipeline(read_config(path), spark)
        names.append(tuple(pipeline._sink(table).application for table in ("sink", "dead_letters")))
    assert names[0] == names[1]
    assert len({name for both in names for name in both}) == 4


def test_refused_changes_are_kept(spark: SparkSession, folder: Path) -> None:
    """An upsert whose filter is refused goes to its sink with the reason; the others take effect."""
    log = pa.table({"sequence": [1, 2], "op": ["upsert"] * 2, "id": [1, 2], "filter": ["colour = 1", "price > 40"]})
    pq.write_table(log, folder / "changes" / "0.parquet")
    config = folder / "pipeline.toml"
    config.write_text(config.read_text() + '\n[refused_changes]\nkind = "parquet"\npath = "refused"\n')
    assert run("run", config).exit_code == 0
    files = (folder / "refused").glob("batch_id=*/*.parquet")
    refused = pa.concat_tables(pq.read_table(file, partitioning=None) for file in files).to_pylist()
    assert [(row["id"], row["filter"]) for row in refused] == [("1", "colour = 1")]
    assert "unknown attribute 'colour'" in refused[0]["error"]
    rows = [(id, filter) for id, filter, _ in SUBSCRIPTIONS if id != 2] + [(2, "price > 40")]
    assert pairs(matches(folder)) == expected(rows, pa.concat_tables([events(0, 200), events(200, 100)]))


@pytest.mark.slow
def test_spark_submit(folder: Path) -> None:
    """The same pipeline as a program of spark-submit, in the session that spark-submit configures."""
    program = Path(sys.executable).parent / "spark-submit"
    environment = {**os.environ, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}
    settings = [text for name, value in SETTINGS.items() for text in ("--conf", f"{name}={value}")]
    command = [program, "--master", "local[1]", *settings, PROGRAM, folder / "pipeline.toml"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [(id, filter) for id, filter, _ in SUBSCRIPTIONS]
    assert pairs(matches(folder)) == expected(rows, pa.concat_tables([events(0, 200), events(200, 100)]))
    # In this session a connector is missing, which is named; the one of the fixture may have it.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command[-1] = kafka_config(folder, listener)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 1
    assert "no Kafka connector; add org.apache.spark:spark-sql-kafka-0-10_2.13:" in done.stdout + done.stderr
    again = subprocess.run([program, PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "usage: " in again.stdout + again.stderr  # spark-submit passes it on as output
