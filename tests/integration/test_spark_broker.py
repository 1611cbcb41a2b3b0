"""Spark behind a broker: an index that follows its subscriptions, and matches that come back to its feeds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.servers.wherecast_broker import BrokerProcess, running_wherecast

from wherecast import spark as ws
from wherecast.errors import WherecastError
from wherecast.spark.brokers import BrokerSpace
from wherecast.spark.stream import Batch
from wherecast.spark.versions import spark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = {"symbol": "string", "price": "double"}
EVENTS = [("IBM", 100.0), ("IBM", 130.0), ("IBM", 100.0), ("A", 7.0), (None, float("nan"))]


class Space:
    """The space of a broker, and what its feed has."""

    def __init__(self, broker: BrokerProcess, name: str) -> None:
        self.url, self.headers = f"{broker.url}/v1/spaces/{name}", {"Authorization": f"Bearer {broker.token}"}
        self.call("POST", broker.url + "/v1/spaces", json={"name": name, "schema": SCHEMA})

    def call(self, method: str, path: str, **kwargs: Any) -> Any:
        url = path if path.startswith("http") else self.url + path
        answer = httpx.request(method, url, headers=self.headers, timeout=60, **kwargs).raise_for_status()
        return answer.json() if answer.content else None

    def subscribe(self, id: str, filter: str) -> None:
        self.call("PUT", f"/subscriptions/{id}", json={"filter": filter, "subscriber": f"who-{id}"})

    def log(self, count: int) -> list[tuple[Any, Any, tuple[str, ...]]]:
        """The events of the feed from its beginning, and the subscriptions that each reached, sorted."""
        found = []
        with httpx.stream("GET", f"{self.url}/feed?from=earliest", headers=self.headers, timeout=60) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    told = json.loads(line[6:])
                    data = told["data"]
                    found.append((data.get("symbol"), data.get("price"), tuple(sorted(told["subscriptions"]))))
                    if len(found) == count:
                        break
        return sorted(found, key=str)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_wherecast(tmp_path_factory.mktemp("broker"), settings=("heartbeat_s=0.5",)) as found:
        yield found


def write_events(folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    symbols, prices = zip(*EVENTS, strict=True)
    pq.write_table(pa.table({"symbol": symbols, "price": pa.array(prices, pa.float64())}), folder / name)


def test_files_go_through_spark_to_the_feed(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People subscribe at the broker, Spark follows and matches, and feeds have each match once, replays included."""
    monkeypatch.setenv("WHERECAST_TOKEN", broker.token)
    space = Space(broker, "market")
    space.subscribe("cheap", "symbol = 'IBM' AND price < 120")
    space.subscribe("ibm", "symbol = 'IBM'")
    rules = spark.createDataFrame([("none", "price < 0", "x")], "id string, filter string, subscriber string")
    index = ws.Index.build(rules, tmp_path / "index", schema=SCHEMA)
    query = index.follow(space.url, trigger={"processingTime": "1 hour"})
    query.processAllAvailable()
    space.subscribe("nan", "price > 1000")  # Spark orders NaN above all numbers
    space.subscribe("paused", "price > 0")
    space.call("POST", "/subscriptions/paused/pause")
    space.call("DELETE", "/subscriptions/ibm")
    query.processAllAvailable()
    query.stop()
    assert [report.added for report in query.reports] == [2, 1]
    write_events(tmp_path / "events", "1.parquet")
    events = spark.readStream.schema("symbol string, price double").parquet(str(tmp_path / "events"))
    once = {"availableNow": True}
    index.stream(events, ws.Broker(space.url), str(tmp_path / "c1"), trigger=once).awaitTermination()
    expected = [("IBM", 100.0, ("cheap",)), ("IBM", 100.0, ("cheap",)), (None, "NaN", ("nan",))]
    assert space.log(3) == sorted(expected, key=str)
    lists = ws.Broker(space.url, broker.token)
    index.stream(events, lists, str(tmp_path / "c2"), output="lists", trigger=once).awaitTermination()
    assert space.log(6) == sorted(expected * 2, key=str)
    matches = spark.createDataFrame(
        [("IBM", 1.0, "cheap"), ("IBM", 1.0, "gone")], "symbol string, price double, s string"
    )
    sink = lists.expect(["symbol", "price", "s"], "s")
    for _ in range(2):  # the second time is a replay
        sink.write(matches, Batch(3, "stream", "offsets"))
    sink.write(matches, Batch(4, "stream", "offsets"))
    again = [("IBM", 1.0, ("cheap",))] * 2
    assert space.log(8) == sorted([*expected, *expected, *again], key=str)
    assert space.call("GET", "")["next_position"] == 8


@pytest.mark.skipif(spark_version() < (4, 0), reason="Python data sources need Spark 4.0")
def test_subscriptions_are_a_data_source(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    """A read has the subscriptions that exist, with state and version; a stream has what changed between two versions."""
    ws.register_source(spark)
    space = Space(broker, "source")
    options = {"url": space.url, "token": broker.token}
    space.subscribe("a", "price > 1")
    space.subscribe("b", "price > 2")
    space.call("DELETE", "/subscriptions/a")
    rows = spark.read.format("wherecast").options(**options).load()
    assert [tuple(row) for row in rows.collect()] == [("b", "price > 2", "who-b", "active", 2)]

    stream = spark.readStream.format("wherecast").options(**options).load()

    def follow() -> list[tuple[Any, ...]]:
        """Ids, states and versions of one run, which goes on where the last one ended."""
        found: list[tuple[Any, ...]] = []
        keep = lambda batch, _: found.extend(map(tuple, batch.select("id", "state", "version").collect()))  # noqa: E731
        writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "source"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        (source,) = query.lastProgress["sources"]
        assert json.loads(source["endOffset"]) == {"version": space.call("GET", "")["version"]}
        return found

    assert follow() == [("b", "active", 2), ("a", "deleted", 3)]
    space.subscribe("c", "price > 3")
    space.call("POST", "/subscriptions/b/pause")
    space.call("POST", "/subscriptions/b/resume")
    assert follow() == [("c", "active", 4), ("b", "active", 6)]


def test_a_wrong_address_and_a_wrong_token_are_told(broker: BrokerProcess) -> None:
    """Before anything starts, and with what the broker says."""
    with pytest.raises(WherecastError, match="is not a space of a broker"):
        ws.Broker("http://127.0.0.1/quotes", "t")
    with pytest.raises(WherecastError, match="401, the token is unknown"):
        BrokerSpace(f"{broker.url}/v1/spaces/market", "wrong").version()
    with pytest.raises(WherecastError, match="output='lists' or 'pairs'"):
        ws.Broker(f"{broker.url}/v1/spaces/market", "t").expect(["a"], "")
