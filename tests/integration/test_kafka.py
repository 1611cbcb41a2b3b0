"""Events, changes, matches and dead letters through a real broker and Spark's own connector."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from tests.integration.kafka_driver import start
from tests.jars.artifacts import connector_jars
from tests.servers.broker import running_broker
from typer.testing import CliRunner

from wherecast import spark as ws
from wherecast.cli.app import app
from wherecast.engine.engine import Engine
from wherecast.language.events.schema import Schema
from wherecast.spark import kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SCHEMA = Schema.of({"row": "long", "symbol": "string", "price": "double"})
SUBSCRIPTIONS = [
    (0, "price > 0"),
    (1, "symbol = 'A' AND price < 50"),
    (2, "symbol IN ('B', 'C')"),
    (3, "price BETWEEN 20 AND 60"),
    (4, "symbol IS NULL"),
]
POISON = {
    "not JSON": "not a JSON object",
    '{"row": 1, "symbol": "A", "price": "dear"}': "price is dear, expected double",
    '{"row": 1.5}': "row is 1.5, expected bigint",
    '[{"row": 1}]': "not a JSON object",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker."""
    with running_broker(tmp_path_factory.mktemp("kafka")) as address:
        yield address


@pytest.fixture(scope="module")
def jars() -> str:
    """The connector, as `spark.jars` wants it."""
    return ",".join(map(str, connector_jars(pyspark.__version__)))


@pytest.fixture(scope="module")
def session(spark: SparkSession, jars: str) -> SparkSession:
    """The session of the run, which has the connector."""
    assert spark.conf.get("spark.jars", None) == jars
    return spark


def create_topic(session: SparkSession, broker: str, name: str, partitions: int) -> None:
    jvm: Any = session.sparkContext._jvm
    admin_package = jvm.org.apache.kafka.clients.admin
    properties = jvm.java.util.Properties()
    properties.setProperty("bootstrap.servers", broker)
    admin = admin_package.AdminClient.create(properties)
    try:
        topic = admin_package.NewTopic(name, partitions, 1)
        admin.createTopics(jvm.java.util.Collections.singleton(topic)).all().get()
    finally:
        admin.close()


def send(session: SparkSession, broker: str, topic: str, messages: Iterable[str]) -> None:
    frame = session.createDataFrame([(message,) for message in messages], "value string").coalesce(1)
    frame.write.format("kafka").option("kafka.bootstrap.servers", broker).option("topic", topic).save()


def receive(session: SparkSession, broker: str, topic: str) -> list[tuple[str, dict[str, Any]]]:
    """Keys and contents of all messages of a topic."""
    reader = session.read.format("kafka").option("kafka.bootstrap.servers", broker).option("subscribe", topic)
    rows = reader.load().selectExpr("string(key) AS key", "string(value) AS value").collect()
    return [(row.key, json.loads(row.value)) for row in rows]


def make_events(n: int, first: int = 0) -> list[dict[str, Any]]:
    rows = range(first, first + n)
    return [{"row": row, "symbol": "ABCD"[row % 4] if row % 7 else None, "price": float(row % 90)} for row in rows]


def expected(subscriptions: Iterable[tuple[int, str]], events: list[dict[str, Any]]) -> Counter[tuple[int, int]]:
    engine = Engine(SCHEMA)
    engine.subscribe_many(list(subscriptions))
    rows, ids = engine.match_batch(pa.Table.from_pylist(events, SCHEMA.to_arrow())).pairs()
    return Counter((events[row]["row"], id) for row, id in zip(rows.tolist(), ids.tolist(), strict=True))


def build(session: SparkSession, path: Path, strategy: Any) -> ws.Index:
    rows = pa.table({"id": [r[0] for r in SUBSCRIPTIONS], "filter": [r[1] for r in SUBSCRIPTIONS]})
    return ws.build_index(session.createDataFrame(rows), SCHEMA, str(path), strategy=strategy, servers=2).index


def pairs(messages: Iterable[dict[str, Any]]) -> Counter[tuple[int, int]]:
    return Counter((message["row"], message["subscription"]) for message in messages)


def test_topics_in_topics_out(session: SparkSession, broker: str, tmp_path: Path) -> None:
    """One running pipeline: matches are the engine's, changes hold from the next batch on, poison is set apart."""
    for topic, partitions in {"events": 3, "changes": 1, "matches": 2, "dead": 1, "refused": 1}.items():
        create_topic(session, broker, topic, partitions)
    index = build(session, tmp_path / "index", "event-space")
    before, after = make_events(30), make_events(20, 100)
    send(session, broker, "events", [*map(json.dumps, before), *POISON])
    query = ws.stream(
        kafka.read_events(session, broker, "events", SCHEMA, maxOffsetsPerTrigger=12),
        index,
        ws.Kafka("matches", broker),
        str(tmp_path / "checkpoint-events"),
        dead_letters=ws.Kafka("dead", broker),
    )
    followed = ws.follow_changes(
        kafka.read_changes(session, broker, "changes", "bigint"),
        index,
        str(tmp_path / "checkpoint-changes"),
        dead_letters=ws.Kafka("refused", broker),
    )
    try:
        query.processAllAvailable()
        # Back-pressure: no batch is larger than was allowed, and all together hold everything.
        sizes = [report.events for report in query.reports]
        assert sum(sizes) == len(before) + len(POISON)
        assert max(sizes) <= 12
        changes = [
            {"sequence": 1, "op": "upsert", "id": 5, "filter": "symbol = 'D'"},
            {"sequence": 2, "op": "delete", "id": 0},
            {"sequence": 3, "op": "upsert", "id": 6, "filter": "prise < 1"},
            {"sequence": 4, "op": "replace", "id": 6},
        ]
        send(session, broker, "changes", ["not JSON", *map(json.dumps, changes)])
        followed.processAllAvailable()
        assert index.read().sequence == 2  # what is refused leaves no trace
        told = followed.reports
        assert [sum(column) for column in zip(*((r.applied, r.refused, r.late) for r in told), strict=True)] == [
            2,
            3,
            0,
        ]
        send(session, broker, "events", map(json.dumps, after))
        query.processAllAvailable()
    finally:
        query.stop()
        followed.stop()

    found = receive(session, broker, "matches")
    assert len({key for key, _ in found}) == len(found)
    changed = [*SUBSCRIPTIONS[1:], (5, "symbol = 'D'")]
    assert pairs(content for _, content in found) == expected(SUBSCRIPTIONS, before) + expected(changed, after)
    assert sum(report.matches for report in query.reports) == len(found)
    assert sum(report.errors for report in query.reports) == len(POISON)
    dead = {content["message"]: content["error"] for _, content in receive(session, broker, "dead")}
    assert dead.keys() == POISON.keys()
    assert all(reason in dead[message] and dead[message].startswith("events/") for message, reason in POISON.items())
    refused = sorted(content["error"] for _, content in receive(session, broker, "refused"))
    assert len(refused) == 3
    assert refused[0].startswith("changes/0@0: not a JSON object")
    assert "op is replace" in refused[1]
    assert "did you mean" in refused[2]


def test_killed_between_write_and_commit(session: SparkSession, broker: str, jars: str, tmp_path: Path) -> None:
    """The batch is in the topic twice, with equal keys; who drops equal keys sees every match exactly once."""
    for topic in ("trades", "alerts"):
        create_topic(session, broker, topic, 2)
    build(session, tmp_path / "index", "broadcast")
    events = make_events(25)
    events += events[:25]  # events that are equal are events all the same
    send(session, broker, "trades", map(json.dumps, events))

    command = [sys.executable, "-m", "tests.integration.kafka_driver", broker, str(tmp_path), jars, "1"]
    with (tmp_path / "log").open("ab") as log:
        killed = subprocess.run(command, stdout=log, stderr=log, cwd=ROOT, timeout=300, check=False)
    assert killed.returncode == -signal.SIGKILL, (tmp_path / "log").read_text()[-3000:]
    written = {key for key, _ in receive(session, broker, "alerts")}
    start(session, broker, tmp_path).awaitTermination()
    found = receive(session, broker, "alerts")
    times = Counter(key for key, _ in found)
    assert {key for key, n in times.items() if n == 2} == {key for key in written if key.split("/")[1] == "1"} != set()
    assert max(times.values()) == 2
    assert pairs(dict(found).values()) == expected(SUBSCRIPTIONS, events)


CONFIG = """
[pipeline]
index = "index"
checkpoint = "checkpoint"
trigger = "available-now"

[schema]
attributes = {{row = "long", symbol = "string", price = "double"}}

[subscriptions]
path = "subscriptions.parquet"

[plan]
strategy = "event-space"
servers = 2

[events]
source = "kafka"
servers = "{broker}"
topic = "configured-events"
per_trigger = 20

[changes]
source = "kafka"
servers = "{broker}"
topic = "configured-changes"

[sink]
kind = "kafka"
servers = "{broker}"
topic = "configured-matches"

[dead_letters]
kind = "kafka"
servers = "{broker}"
topic = "configured-dead"

[spark]
"spark.jars" = "{jars}"
"spark.sql.shuffle.partitions" = 2
"""


def test_all_of_it_from_a_configuration(session: SparkSession, broker: str, jars: str, tmp_path: Path) -> None:
    """`wherecast pipeline run` four times: empty topics, events, then changes alone, then events that meet the changed set.

    The second time in a process of its own, which gets the connector from the configuration.
    """
    for topic in ("events", "changes", "matches", "dead"):
        create_topic(session, broker, f"configured-{topic}", 2 if topic == "events" else 1)
    (tmp_path / "pipeline.toml").write_text(CONFIG.format(broker=broker, jars=jars))
    ids, filters = zip(*SUBSCRIPTIONS, strict=True)
    pq.write_table(pa.table({"id": ids, "filter": filters}), tmp_path / "subscriptions.parquet")

    command = ["pipeline", "run", str(tmp_path / "pipeline.toml")]
    empty = CliRunner().invoke(app, command)
    assert empty.exit_code == 0, empty.output
    assert "0 events in 1 batches: 0 matches" in empty.stderr  # Spark plans one batch of nothing
    before, after = make_events(30), make_events(20, 100)
    send(session, broker, "configured-events", [*map(json.dumps, before), "not JSON"])
    program = [sys.executable, "-m", "wherecast", *command, "--master", "local[2]"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    changes = [
        {"sequence": 1, "op": "upsert", "id": 5, "filter": "symbol = 'D'"},
        {"sequence": 2, "op": "delete", "id": 0},
    ]
    send(session, broker, "configured-changes", map(json.dumps, changes))
    assert CliRunner().invoke(app, command).exit_code == 0
    send(session, broker, "configured-events", map(json.dumps, after))
    assert CliRunner().invoke(app, command).exit_code == 0
    found = receive(session, broker, "configured-matches")
    assert len({key for key, _ in found}) == len(found)
    changed = [*SUBSCRIPTIONS[1:], (5, "symbol = 'D'")]
    assert pairs(content for _, content in found) == expected(SUBSCRIPTIONS, before) + expected(changed, after)
    assert [content["message"] for _, content in receive(session, broker, "configured-dead")] == ["not JSON"]
