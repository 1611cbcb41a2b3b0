"""Several brokers on one PostgreSQL database."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.servers.postgresql import running_postgresql
from tests.unit.broker_app import SCHEMA, SPACE, ApiCaller, TestClient

from wherecast.broker.app.api import create_app
from wherecast.broker.broker import Broker
from wherecast.broker.delivery import queues
from wherecast.broker.settings import Settings
from wherecast.broker.store import presence
from wherecast.broker.store.presence import PresentFeed

IBM = {"symbol": "IBM", "price": 119.5}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two brokers that know of each other only through the database."""
    with ExitStack() as stack:
        url = stack.enter_context(running_postgresql()).url
        settings = Settings(database=url, file_folder=str(tmp_path_factory.mktemp("files")))
        brokers = [Broker(settings), Broker(settings)]
        clients = [stack.enter_context(TestClient(create_app(settings, b))) for b in brokers]
        token = brokers[0].first_token
        assert brokers[1].first_token is None
        one, two = (ApiCaller(client, broker, token) for client, broker in zip(clients, brokers, strict=True))
        one("POST", "/v1/spaces", 201, json={"name": "quotes", "schema": SCHEMA})
        who = {"Authorization": f"Bearer {token}"}
        while clients[1].post(f"{SPACE}/match", json={"event": {}}, headers=who).status_code == 503:
            time.sleep(0.05)  # it loads a space that another process made
        yield one, two


def test_what_one_broker_acknowledges_is_live_in_the_other(pair):
    """A subscription matches the next event of any broker, and a change or a deletion does, too."""
    one, two = pair
    for n in range(5):
        version = one(
            "PUT", f"{SPACE}/subscriptions/s", 201 if n == 0 else 200, json={"filter": f"price > {n}"}
        ).json()["version"]
        told = two("POST", f"{SPACE}/publish", 200, json={"price": n + 0.5}).json()
        assert (told["matches"], told["version"]) == (1, version)
        assert one("POST", f"{SPACE}/publish", 200, json={"price": n - 0.5}).json()["matches"] == 0
    two("DELETE", f"{SPACE}/subscriptions/s", 204)
    assert one("POST", f"{SPACE}/publish", 200, json=IBM).json()["matches"] == 0


def test_a_process_that_publishes_nothing_follows_by_itself(pair):
    """The dry run of one broker has the subscriptions of the other without a publish in between."""
    one, two = pair
    one("PUT", f"{SPACE}/subscriptions/f", 201, json={"filter": "symbol = 'F'"})
    for _ in range(100):
        if two("POST", f"{SPACE}/match", 200, json={"event": {"symbol": "F"}}).json()["subscriptions"] == ["f"]:
            break
        time.sleep(0.05)
    else:
        pytest.fail("the other broker does not follow")


def test_feeds_have_the_events_of_all_brokers_in_one_order(pair):
    """A feed of one broker has what both publish, and resumes at the other one."""
    one, two = pair
    start = one("GET", SPACE).json()["next_position"]
    one("PUT", f"{SPACE}/subscriptions/all", 201, json={"filter": "price > 0", "subscriber": "ann"})
    for n in range(6):
        (one, two)[n % 2]("POST", f"{SPACE}/publish", 200, json={"price": n + 1})
    first = one.messages(f"subscriber=ann&from={start - 1}", 3)
    rest = two.messages(f"subscriber=ann&from={first[-1]['position']}", 3)
    assert [m["data"]["price"] for m in first + rest] == [1, 2, 3, 4, 5, 6]


def test_an_idempotency_key_counts_in_all_brokers(pair):
    """A request that is repeated at another broker is answered the same, and done once."""
    one, two = pair
    before = one("GET", SPACE).json()["next_position"]
    told = [call("POST", f"{SPACE}/publish", 200, json=IBM, headers={"Idempotency-Key": "x"}).json() for call in pair]
    assert told[0] == told[1]
    assert two("GET", SPACE).json()["next_position"] == before + 1


def test_a_grown_schema_reaches_the_other_broker(pair):
    """An attribute that one broker adds can be used at the other within moments."""
    one, two = pair
    one("PATCH", SPACE, 200, json={"schema": {"volume": "bigint"}})
    for _ in range(100):
        if two("PUT", f"{SPACE}/subscriptions/v", json={"filter": "volume > 3"}).status_code == 201:
            break
        time.sleep(0.05)
    assert one("POST", f"{SPACE}/publish", 200, json={"volume": 4}).json()["matches"] == 1


def test_the_database_goes_and_comes_back(pair):
    """Broken connections are clear errors, and the next request finds a new connection."""
    one, _ = pair
    one.broker.database.engine.dispose()
    statuses = set()

    def kill(connection, _):
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )

    one.client.portal.call(one.broker.run, kill)
    for _ in range(20):
        statuses.add(one("POST", f"{SPACE}/publish", json={"price": 1}).status_code)
    assert statuses <= {200, 503}
    assert one("POST", f"{SPACE}/publish", 200, json={"price": 1}).json()["matches"] >= 1


def delivered(call, name, count):
    """Wait until so many deliveries of a subscriber are delivered; their routes."""
    for _ in range(400):
        found = call("GET", f"/v1/deliveries?subscriber={name}&state=delivered", 200).json()["deliveries"]
        if len(found) == count:
            return [one["route"] for one in found]
        time.sleep(0.05)
    pytest.fail(f"{found}")


def test_a_feed_at_another_broker_is_told_first(pair, monkeypatch):
    """A broker that delivers knows the feeds of the others; those of a broker that died, until their lease ends."""
    one, two = pair
    lease = queues.subscribers.lease_queues
    owner = two.client.app.state.delivery.owner

    def by_two_only(connection, tenant, now_ms, until_ms, asking, limit):
        return lease(connection, tenant, now_ms, until_ms, asking, limit) if asking == owner else []

    monkeypatch.setattr(queues.subscribers, "lease_queues", by_two_only)
    routes = [{"route": "file", "kind": "file", "target": "fee.ndjson"}, {"route": "feed", "kind": "feed"}]
    one("PUT", "/v1/subscribers/fee", 201, json={"routes": routes})
    one("PUT", f"{SPACE}/subscriptions/fee", 201, json={"filter": "symbol = 'fee'", "subscriber": "fee"})

    def rows(query="SELECT subscriber, sent > start FROM presence"):
        return two.client.portal.call(two.broker.read, lambda c: [tuple(r) for r in c.exec_driver_sql(query)])

    headers = {"Authorization": f"Bearer {one.token}"}
    with one.client.websocket_connect(f"{SPACE}/feed/ws?subscriber=fee", headers=headers) as socket:
        while not rows():
            time.sleep(0.01)
        two("POST", f"{SPACE}/publish", 200, json=[{"symbol": "fee"}] * 3)
        assert [socket.receive_json()["subscriptions"] for _ in range(3)] == [["fee"]] * 3
        assert delivered(two, "fee", 3) == ["feed"] * 3
        assert rows() == [("fee", True)]
    while rows():
        time.sleep(0.01)
    two("POST", f"{SPACE}/publish", 200, json={"symbol": "fee"})
    assert delivered(two, "fee", 4)[0] == "file"

    def leave(connection, now):
        head = two.broker.served()[0].tail.end
        feed = PresentFeed(1, "default", "fee", "quotes", head, head)
        presence.put_feeds(connection, "dead", [feed], now + 1_500)

    two.client.portal.call(two.broker.run, leave)
    two("POST", f"{SPACE}/publish", 200, json={"symbol": "fee"})
    assert delivered(two, "fee", 5)[0] == "file"
    assert rows("SELECT count(*) FROM presence WHERE until_ms > extract(epoch FROM now()) * 1000") == [(0,)]


def test_brokers_share_deliveries(pair):
    """What both publish is delivered once, by whichever broker has the lease."""
    one, two = pair
    one("PUT", "/v1/subscribers/ann", 201, json={"routes": [{"kind": "file", "target": "ann.ndjson"}]})
    one("PUT", f"{SPACE}/subscriptions/ann", 201, json={"filter": "symbol = 'ann'", "subscriber": "ann"})
    for call in (one, two) * 5:
        call("POST", f"{SPACE}/publish", 200, json=[{"symbol": "ann"}] * 5)
    assert delivered(two, "ann", 50) == ["r1"] * 50
    lines = (Path(one.broker.settings.file_folder) / "default" / "ann.ndjson").read_text().splitlines()
    assert len(lines) == len({json.loads(line)["id"] for line in lines}) == 50
