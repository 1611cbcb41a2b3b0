"""Delivery on the real thing: a webhook receiver with the reference library, a mail server, files, feeds, kill -9."""

from __future__ import annotations

import email
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice

import httpx
import psycopg
import pytest
from aiosmtpd.controller import Controller
from cloudevents.core.formats.json import JSONFormat
from tests.servers.ports import free_ports
from tests.servers.postgresql import running_postgresql
from tests.servers.webhooks import receiving_webhooks
from tests.servers.wherecast_broker import running_wherecast
from tests.unit.broker_app import SPACE, serving

from wherecast import Client


class MailBox:
    """Keeps what it gets; refuses the first tries of addresses that begin with `busy`."""

    def __init__(self):
        self.mails, self.refused = [], 0

    async def handle_RCPT(self, server, session, envelope, address, options):  # noqa: N802
        if address.startswith("busy") and self.refused < 1:
            self.refused += 1
            return "450 busy"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):  # noqa: N802
        self.mails.append(email.message_from_bytes(envelope.content, policy=email.policy.default))
        return "250 OK"


@contextmanager
def receiving_mail():
    box = MailBox()
    controller = Controller(box, hostname="127.0.0.1", port=free_ports(1)[0])
    controller.start()
    try:
        yield box, f"smtp://127.0.0.1:{controller.port}"
    finally:
        controller.stop()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A broker with a webhook receiver, a mail server and a folder for files."""
    folder = tmp_path_factory.mktemp("delivery")
    with receiving_webhooks() as hooks, receiving_mail() as (box, smtp):
        settings = {
            "webhook_allow": "127.0.0.0/8",
            "smtp": smtp,
            "mail_from": "broker@example.com",
            "file_folder": str(folder / "files"),
            "chat_services": "json",
        }
        with serving(folder, **settings) as call:
            yield call, hooks, box, folder


def put_webhook(call, hooks, name, **fields):
    """A subscriber with a verified webhook, and a filter of its own."""
    body = {"routes": [{"kind": "webhook", "target": f"{hooks.url}/{name}"}], **fields}
    made = call("PUT", f"/v1/subscribers/{name}", 201, json=body).json()
    hooks.secrets[f"/{name}"] = made["routes"][0]["secret"]
    route = call("POST", f"/v1/subscribers/{name}/routes/r1/verify", 200).json()
    assert (route["state"], route["secret"]) == ("active", None)
    call("PUT", f"{SPACE}/subscriptions/{name}", 201, json={"filter": f"symbol = '{name}'", "subscriber": name})


def settled(call, name, state, count=1):
    """Wait until so many deliveries of a subscriber are in a state."""
    for _ in range(600):
        found = call("GET", f"/v1/deliveries?subscriber={name}", 200).json()["deliveries"]
        if sum(one["state"] == state for one in found) >= count:
            return found
        time.sleep(0.05)
    pytest.fail(f"{found}")


def test_a_webhook_is_signed_and_says_what_matched(world):
    """The reference library accepts the signature, the CloudEvents SDK reads the body, several filters are one message."""
    call, hooks, _, _ = world
    put_webhook(call, hooks, "ann", title="{{ event.symbol }} at {{ event.price }}")
    call(
        "PUT", f"{SPACE}/subscriptions/ann2", 201, json={"filter": "symbol = 'ann' AND price > 1", "subscriber": "ann"}
    )
    position = call("POST", f"{SPACE}/publish", 200, json={"symbol": "ann", "price": 7.5}).json()["positions"][0]
    (one,) = settled(call, "ann", "delivered")
    (event,) = [found for found in hooks.events if found["subject"] == "ann"]
    assert event["id"] == one["id"]
    assert event["data"]["subscriptions"] == one["subscriptions"] == ["ann", "ann2"]
    assert event["data"]["event"]["data"] == {"symbol": "ann", "price": 7.5}
    assert (event["data"]["position"], event["data"]["title"]) == (position, "ann at 7.5")
    read = JSONFormat().read(None, json.dumps(event))
    assert (read.get_type(), read.get_id()) == ("wherecast.match", one["id"])
    details = call("GET", f"/v1/deliveries/{one['id']}", 200).json()
    assert [(a["outcome"], a["status"]) for a in details["attempts"]] == [("delivered", 204)]
    assert details["event_body"]["data"] == {"symbol": "ann", "price": 7.5}
    assert hooks.unsigned == 0


def test_secrets_overlap_after_a_rotation(world):
    """After a rotation messages verify with the old secret and with the new one; secrets are shown once."""
    call, hooks, _, _ = world
    put_webhook(call, hooks, "rot")
    old = hooks.secrets["/rot"]
    new = call("POST", "/v1/subscribers/rot/routes/r1/rotate", 200).json()["secret"]
    assert new != old
    shown = call("GET", "/v1/subscribers/rot", 200).json()
    assert shown["routes"][0]["secret"] is None
    assert new not in json.dumps(shown)
    for secret in (old, new):
        hooks.secrets["/rot"] = secret
        assert call("POST", "/v1/subscribers/rot/test", 200, json={}).json()["delivered"]
    hooks.secrets["/rot"] = new
    call("POST", "/v1/subscribers/rot/routes/r1/rotate?overlap_s=0", 200)
    assert not call("POST", "/v1/subscribers/rot/test", 200, json={}).json()["delivered"]
    hooks.unsigned = 0


def test_a_receiver_that_does_not_agree_gets_nothing(world):
    """Without the answer to the handshake a route stays unverified, and its deliveries wait; 410 disables a route."""
    call, hooks, _, _ = world
    body = {"routes": [{"kind": "webhook", "target": f"{hooks.url}/silent"}]}
    call("PUT", "/v1/subscribers/sil", 201, json=body)
    route = call("POST", "/v1/subscribers/sil/routes/r1/verify", 200).json()
    assert route["state"] == "unverified"
    assert "WebHook-Allowed-Origin" in route["reason"]
    call("PUT", f"{SPACE}/subscriptions/sil", 201, json={"filter": "symbol = 'sil'", "subscriber": "sil"})
    call("POST", f"{SPACE}/publish", 200, json={"symbol": "sil"})
    (one,) = settled(call, "sil", "pending")
    while (one := call("GET", f"/v1/deliveries/{one['id']}", 200).json())["reason"] is None:
        time.sleep(0.02)
    assert (one["reason"], one["next_try"]) == ("no route can be used: r1 is unverified", None)
    put_webhook(call, hooks, "gone")
    hooks.status = lambda path, count: 410 if path == "/gone" else 204
    call("POST", f"{SPACE}/publish", 200, json={"symbol": "gone"})
    settled(call, "gone", "pending")
    for _ in range(200):
        route = call("GET", "/v1/subscribers/gone", 200).json()["routes"][0]
        if route["state"] == "disabled":
            break
        time.sleep(0.05)
    assert "410" in route["reason"]
    assert call("GET", f"/v1/deliveries/{one['id']}", 200).json()["tries"] == 0
    assert call("DELETE", "/v1/subscribers/sil").status_code == 204
    dead = settled(call, "sil", "dead")
    assert dead[0]["reason"] == "the subscriber was deleted"
    hooks.status = lambda path, count: 204


def test_mail_arrives(world):
    """A mail server gets title and text, with a Message-ID made of the id; a refusal is tried again by the next route's turn."""
    call, _, box, _ = world
    body = {
        "routes": [{"kind": "email", "target": "mailto:bob@example.com"}],
        "title": "{{ event.symbol }}!\n",
        "text": "at {{ event.price }}",
    }
    call("PUT", "/v1/subscribers/bob", 201, json=body)
    call("PUT", f"{SPACE}/subscriptions/bob", 201, json={"filter": "symbol = 'bob'", "subscriber": "bob"})
    call("POST", f"{SPACE}/publish", 200, json={"symbol": "bob", "price": 3})
    (one,) = settled(call, "bob", "delivered")
    (mail,) = [mail for mail in box.mails if mail["To"] == "bob@example.com"]
    assert (mail["Subject"], mail.get_content().strip()) == ("bob!", "at 3")
    assert mail["Message-ID"] == f"<{one['id']}@example.com>"
    busy = {"routes": [{"kind": "email", "target": "busy@example.com"}]}
    call("PUT", "/v1/subscribers/busy", 201, json=busy)
    told = call("POST", "/v1/subscribers/busy/test", 200, json={"route": "r1"}).json()
    assert (told["delivered"], "busy" in told["reason"]) == (False, True)
    assert call("POST", "/v1/subscribers/busy/test", 200, json={"route": "r1"}).json()["delivered"]


def test_chat_by_apprise(world):
    """Apprise sends title and text to a service; the URL with its password is not shown."""
    call, _, _, _ = world
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        target = f"json://user:hidden@127.0.0.1:{server.server_port}/x"
        made = call("PUT", "/v1/subscribers/cat", 201, json={"routes": [{"kind": "chat", "target": target}]})
        assert "hidden" not in made.text
        shown = made.json()["routes"][0]
        again = call(
            "PUT", "/v1/subscribers/cat", 200, json={"routes": [{k: shown[k] for k in ("route", "kind", "target")}]}
        )
        assert again.json()["routes"][0]["target"] == shown["target"]
        assert call("POST", "/v1/subscribers/cat/test", 200, json={}).json()["delivered"]
        server.shutdown()
    assert got[0]["title"] == "test: test"


def test_files_get_lines(world):
    """A file route appends CloudEvents to a file of the tenant; a path is refused."""
    call, _, _, folder = world
    call("PUT", "/v1/subscribers/fil", 201, json={"routes": [{"kind": "file", "target": "alerts.ndjson"}]})
    call("PUT", f"{SPACE}/subscriptions/fil", 201, json={"filter": "symbol = 'fil'", "subscriber": "fil"})
    call("POST", f"{SPACE}/publish", 200, json=[{"symbol": "fil", "price": n} for n in range(5)])
    found = settled(call, "fil", "delivered", 5)
    lines = (folder / "files" / "default" / "alerts.ndjson").read_text().splitlines()
    assert {json.loads(line)["id"] for line in lines} == {one["id"] for one in found}
    for target in ("../x", "/etc/passwd", ".hidden", "a/b"):
        call("PUT", "/v1/subscribers/fil2", 422, json={"routes": [{"kind": "file", "target": target}]})


def test_an_open_feed_is_told_first(world):
    """With an open feed the feed route delivers and the webhook gets nothing; without one the webhook does."""
    call, hooks, _, _ = world
    put_webhook(call, hooks, "fee")
    routes = [{"route": "r1", "kind": "webhook", "target": f"{hooks.url}/fee"}, {"route": "f", "kind": "feed"}]
    call("PUT", "/v1/subscribers/fee", 200, json={"routes": routes})
    headers = {"Authorization": f"Bearer {call.token}"}
    with call.client.websocket_connect(f"{SPACE}/feed/ws?subscriber=fee", headers=headers) as socket:
        call("POST", f"{SPACE}/publish", 200, json={"symbol": "fee", "price": 1})
        assert socket.receive_json()["subscriptions"] == ["fee"]
        (one,) = settled(call, "fee", "delivered")
        assert one["route"] == "f"
    assert not [event for event in hooks.events if event["subject"] == "fee"]
    call("POST", f"{SPACE}/publish", 200, json={"symbol": "fee", "price": 2})
    assert settled(call, "fee", "delivered", 2)[0]["route"] == "r1"


def test_dead_letters_are_replayed(world):
    """A failed delivery that ends as a dead letter comes with its id when it is replayed, alone or in bulk."""
    call, hooks, _, _ = world
    put_webhook(call, hooks, "rep")
    hooks.status = lambda path, count: 500 if path == "/rep" else 204
    call("POST", f"{SPACE}/publish", 200, json=[{"symbol": "rep", "price": n} for n in range(3)])
    hooks.wait(lambda: len(hooks.tries) >= 3)
    rows = settled(call, "rep", "pending", 3)
    call("POST", f"/v1/deliveries/{rows[0]['id']}/replay", 409)
    call("DELETE", "/v1/subscribers/rep", 204)
    settled(call, "rep", "dead", 3)
    waiting = re.search(r'wherecast_deliveries_waiting\{state="dead"\} (\d+)', call("GET", "/metrics", 200).text)
    assert waiting is not None
    assert int(waiting[1]) >= 3
    call("POST", f"/v1/deliveries/{rows[0]['id']}/replay", 409)  # nobody would look at it
    assert call("POST", "/v1/deliveries/replay", 200, json={"subscriber": "rep"}).json() == {"replayed": 0}
    hooks.status = lambda path, count: 204
    body = {"routes": [{"kind": "webhook", "target": f"{hooks.url}/rep"}]}
    hooks.secrets["/rep"] = call("PUT", "/v1/subscribers/rep", 201, json=body).json()["routes"][0]["secret"]
    call("POST", "/v1/subscribers/rep/routes/r1/verify", 200)
    assert call("POST", f"/v1/deliveries/{rows[0]['id']}/replay", 200).json() == {"replayed": 1}
    settled(call, "rep", "delivered")
    assert call("POST", "/v1/deliveries/replay", 200, json={"subscriber": "rep"}).json() == {"replayed": 2}
    settled(call, "rep", "delivered", 3)
    assert {row["id"] for row in rows} <= set(hooks.taken)


class WebhookStory:
    """A broker whose subscribers a and b, the latter in order, are told of every event by webhook."""

    def __init__(self, broker, hooks):
        self.broker, self.hooks, self.wanted = broker, hooks, set()
        self.post("POST", "/v1/spaces", json={"name": "quotes", "schema": {"n": "bigint"}})
        for name in ("a", "b"):
            body = {"routes": [{"kind": "webhook", "target": f"{hooks.url}/{name}"}], "ordered": name == "b"}
            made = self.post("PUT", f"/v1/subscribers/{name}", json=body)
            hooks.secrets[f"/{name}"] = made["routes"][0]["secret"]
            self.post("POST", f"/v1/subscribers/{name}/routes/r1/verify")
            self.post("PUT", f"{SPACE}/subscriptions/{name}", json={"filter": "n >= 0", "subscriber": name})
        hooks.status = lambda path, count: 503 if count == 1 and len(hooks.tries) % 100 == 0 else 204

    def post(self, method, path, **kwargs):
        headers = {"Authorization": f"Bearer {self.broker.token}"}
        with httpx.Client(base_url=self.broker.url, headers=headers, timeout=60) as http:
            return http.request(method, path, **kwargs).raise_for_status().json()

    def publish_until_some_are_told(self, count):
        for n in range(2):
            self.wanted.update(self.post("POST", f"{SPACE}/publish", json=[{"n": n}] * 40)["positions"])
        before = len(self.hooks.taken)
        self.hooks.wait(lambda: len(self.hooks.taken) > before + count)

    def check(self):
        """Every match reaches the receiver under one id, and those of b in order."""
        self.hooks.wait(lambda: len(self.hooks.taken) == 2 * len(self.wanted), 90)
        seen = [(event["subject"], event["data"]["position"]) for event in self.hooks.events]
        assert sorted(seen) == sorted((name, position) for name in "ab" for position in self.wanted)
        assert self.hooks.unsigned == 0
        order = [position for name, position in seen if name == "b"]
        assert order == sorted(order)


@pytest.mark.slow
def test_kill_9_loses_no_delivery(tmp_path):
    """A broker is killed twice while it delivers: every match reaches the receiver, each under one id."""
    with (
        receiving_webhooks() as hooks,
        running_wherecast(tmp_path, settings=("webhook_allow=127.0.0.0/8",)) as broker,
    ):
        story = WebhookStory(broker, hooks)
        for kill in range(2):
            story.publish_until_some_are_told(20 * kill)
            broker.kill()
            broker.start(broker.port)
        story.check()
        with Client(broker.url, broker.token) as client:
            assert [one["name"] for one in client.subscribers()] == ["a", "b"]
            client.mute("a")
            assert client.subscriber("a")["muted"]
            assert len(list(client.deliveries(subscriber="a"))) == len(story.wanted)
            assert client.replay(subscriber="a") == 0


def told_by_the_feed_of(first, second, server):
    """A feed that is open at one process, and the routes of what another one publishes meanwhile; either may deliver."""
    with Client(first.url, first.token) as here, Client(second.url, first.token) as there, ThreadPoolExecutor() as pool:
        here.put_subscriber("c", routes=[{"kind": "file", "target": "c.ndjson"}, {"route": "feed", "kind": "feed"}])
        here.subscribe("quotes", "n = -1", subscriber="c")
        reading = pool.submit(lambda: list(islice(here.feed("quotes", subscriber="c"), 21)))
        with psycopg.connect(server.url, autocommit=True) as database:
            while not database.execute("SELECT 1 FROM presence").fetchall():
                time.sleep(0.02)
        for _ in range(20):
            there.publish("quotes", {"n": -1})
        while len(found := list(there.deliveries(subscriber="c", state="delivered"))) < 20:
            time.sleep(0.02)
        there.publish("quotes", {"n": -1})  # the feed was open until now
        assert len(reading.result(60)) == 21
        return {one["route"] for one in found}


@pytest.mark.slow
def test_two_processes_on_postgresql(tmp_path):
    """A feed at one process is told first, whichever delivers; what a process that was killed had to deliver, the other one does."""
    settings = ("webhook_allow=127.0.0.0/8", f"file_folder={tmp_path}")
    with (
        receiving_webhooks() as hooks,
        running_postgresql() as server,
        running_wherecast(tmp_path, database=server.url, settings=settings) as first,
        running_wherecast(tmp_path, database=server.url, settings=settings, token=first.token) as second,
    ):
        story = WebhookStory(first, hooks)
        assert told_by_the_feed_of(first, second, server) == {"feed"}
        second.stop()  # so that the first one has all leases
        story.publish_until_some_are_told(10)
        first.kill()
        assert len(hooks.taken) < 2 * len(story.wanted)
        second.start()
        story.broker = second
        story.publish_until_some_are_told(0)
        story.check()
