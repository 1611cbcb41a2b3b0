"""The broker's API, request by request, in this process."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pytest
from tests.unit.broker_app import SCHEMA, SPACE, serving

from wherecast.broker import clock
from wherecast.broker.problems import Problem
from wherecast.broker.security import Rates

CHEAP = {"id": "cheap", "filter": "symbol = 'IBM' AND price < 120", "subscriber": "alice", "labels": {"team": 'a"b'}}
IBM = {"symbol": "IBM", "price": 119.5}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("broker")) as call:
        yield call


@pytest.fixture
def call(shared):
    """A space without subscriptions."""
    shared("DELETE", SPACE, 204)
    shared("POST", "/v1/spaces", 201, json={"name": "quotes", "schema": SCHEMA})
    return shared


def test_a_subscription_lives_its_life(call):
    """Created, read, replaced at its version only, paused, resumed, expired, deleted; matched while it is active."""
    made = call("POST", f"{SPACE}/subscriptions", 201, json=CHEAP)
    assert made.headers["etag"] == '"1"'
    assert made.json()["version"] == 1
    one = f"{SPACE}/subscriptions/cheap"
    assert call("GET", one, 200).json() == made.json()

    def matches():
        return call("POST", f"{SPACE}/publish", 200, json=IBM).json()["matches"]

    assert matches() == 1
    call("POST", f"{SPACE}/subscriptions", 409, json=CHEAP)
    call("PUT", one, 412, json={"filter": "price > 1"}, headers={"If-Match": '"7"'})
    call("PUT", one, 409, json={"filter": "price > 1", "subscriber": "bob"})
    assert call("PUT", one, 200, json={"filter": "price > 500"}, headers={"If-Match": '"1"'}).headers["etag"] == '"2"'
    assert matches() == 0
    call("PUT", one, 200, json={"filter": "price > 1"})
    assert call("POST", f"{one}/pause", 200).json()["state"] == "paused"
    assert matches() == 0
    assert call("POST", f"{one}/resume", 200).json()["state"] == "active"
    assert matches() == 1
    assert call("POST", f"{one}/expire", 200).json()["state"] == "expired"
    assert matches() == 0
    call("DELETE", one, 204)
    call("GET", one, 404)
    call("DELETE", one, 404)
    call("POST", f"{SPACE}/subscriptions", 201, json=CHEAP)
    assert matches() == 1


def test_a_wrong_filter_is_refused_with_its_place(call):
    """The problem has line, column and a caret, and nothing is registered."""
    problem = call("POST", f"{SPACE}/subscriptions", 422, json={"filter": "symbol = 'A' AND\nprise < 3"})
    assert problem.headers["content-type"] == "application/problem+json"
    told = problem.json()
    assert (told["line"], told["column"], told["reason"]) == (2, 1, "unknown-attribute")
    assert told["caret"] == "prise < 3\n^^^^^"
    checked = call("POST", f"{SPACE}/filters/check", 200, json={"filter": "prise < 3"}).json()
    assert (checked["ok"], checked["column"]) == (False, 1)
    assert call("POST", f"{SPACE}/filters/check", 200, json={"filter": "price < 3"}).json() == {
        "ok": True,
        "clauses": 1,
    }
    lint = call("POST", f"{SPACE}/filters/lint", 200, json={"filters": {"x": "price = NULL"}}).json()
    assert "null-comparison" in {finding["code"] for finding in lint["findings"]}
    assert call("GET", f"{SPACE}/subscriptions").json()["subscriptions"] == []


def test_lists_come_in_pages_and_by_subscriber_label_text_and_state(call):
    """Pages have every subscription once; a label is compared whole, with any characters in it."""
    rows = [
        {"id": f"s{n:03}", "filter": f"price > {n}", "subscriber": f"p{n % 3}", "labels": {"n": f"%{n % 5}_"}}
        for n in range(25)
    ]
    body = "".join(json.dumps(row) + "\n" for row in rows)
    kind = {"Content-Type": "application/x-ndjson"}
    assert call("POST", f"{SPACE}/subscriptions/bulk", 200, content=body, headers=kind).json()["created"] == 25
    found, after = [], ""
    while after is not None:
        page = call("GET", f"{SPACE}/subscriptions", 200, params={"limit": 7, "after": after}).json()
        found += [one["id"] for one in page["subscriptions"]]
        after = page["next"]
    assert found == [row["id"] for row in rows]

    def ids(**query):
        return [one["id"] for one in call("GET", f"{SPACE}/subscriptions", 200, params=query).json()["subscriptions"]]

    assert ids(subscriber="p1") == [f"s{n:03}" for n in range(25) if n % 3 == 1]
    assert ids(label="n:%3_") == [f"s{n:03}" for n in range(25) if n % 5 == 3]
    assert ids(label="n:%") == []
    assert ids(text="price > 24") == ["s024"]
    call("POST", f"{SPACE}/subscriptions/s003/pause", 200)
    assert ids(state="paused") == ["s003"]


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


CLOUD = {"specversion": "1.0", "id": "e-1", "source": "/market", "type": "quote", "data": IBM}
BODIES = {
    "one": ({"Content-Type": "application/json"}, json.dumps(IBM).encode(), 1),
    "batch": ({"Content-Type": "application/json"}, json.dumps([IBM, IBM]).encode(), 2),
    "ndjson": (
        {"Content-Type": "application/x-ndjson"},
        b'{"symbol":"IBM","price":1}\n\n{"symbol":"IBM","price":2}',
        2,
    ),
    "arrow": ({"Content-Type": "application/vnd.apache.arrow.stream"}, _arrow(pa.Table.from_pylist([IBM] * 3)), 3),
    "structured": ({"Content-Type": "application/cloudevents+json"}, json.dumps(CLOUD).encode(), 1),
    "batched": ({"Content-Type": "application/cloudevents-batch+json"}, json.dumps([CLOUD, CLOUD]).encode(), 2),
    "binary": (
        {"Content-Type": "application/json", "ce-specversion": "1.0", "ce-id": "e", "ce-source": "/m", "ce-type": "q"},
        json.dumps(IBM).encode(),
        1,
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", BODIES)
def test_events_come_in_every_form(call, name):
    """JSON, NDJSON, Arrow and CloudEvents give the same matches; the envelope of a CloudEvent is kept."""
    headers, body, count = BODIES[name]
    call("POST", f"{SPACE}/subscriptions", 201, json=CHEAP)
    told = call("POST", f"{SPACE}/publish", 200, content=body, headers=headers).json()
    assert (told["accepted"], told["matches"], told["refused"]) == (count, count, [])
    messages = call.messages("from=earliest", count)
    assert [m["position"] for m in messages] == told["positions"] == list(range(count))
    assert [m["id"] for m in messages] == told["ids"]
    assert messages[0]["subscriptions"] == ["cheap"]
    assert messages[0]["data"]["symbol"] == "IBM"
    if name in ("structured", "batched"):
        assert (messages[0]["id"], messages[0]["source"], messages[0]["type"]) == ("e-1", "/market", "quote")


WRONG = {
    "not JSON": ("application/json", b"{", 400),
    "empty": ("application/json", b"", 400),
    "a number": ("application/json", b"3", 422),
    "a list of numbers": ("application/json", b"[1, 2]", 422),
    "wrong type": ("application/json", b'{"price": "x"}', 422),
    "NaN": ("application/json", b'{"price": NaN}', 400),
    "half an NDJSON": ("application/x-ndjson", b'{"price": 1}\n{"pri', 400),
    "not Arrow": ("application/vnd.apache.arrow.stream", b"\xff\xff\xff\xff\x10\x00\x00\x00garbage", 400),
    "half an Arrow": ("application/vnd.apache.arrow.stream", BODIES["arrow"][1][:-60], 400),
    "an Arrow with a broken name": (
        "application/vnd.apache.arrow.stream",
        BODIES["arrow"][1].replace(b"symbol", b"sym\xff\xffl"),
        400,
    ),
    "no CloudEvent": ("application/cloudevents+json", b'{"id": 3}', 400),
    "a CloudEvent of nothing": ("application/cloudevents+json", b"null", 400),
    "CloudEvents that are none": ("application/cloudevents-batch+json", b"[3]", 400),
    "unknown version": ("application/cloudevents+json", json.dumps({**CLOUD, "specversion": "9"}).encode(), 400),
    "unknown form": ("text/csv", b"a,b", 415),
    "deep JSON": ("application/json", b"[" * 100_000, 400),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", WRONG)
def test_bad_bodies_are_refused(call, name):
    """Whatever is sent, the answer is a problem, and nothing gets into the log."""
    kind, body, status = WRONG[name]
    told = call("POST", f"{SPACE}/publish", status, content=body, headers={"Content-Type": kind}).json()
    assert told["detail"]
    assert call("GET", SPACE).json()["next_position"] == 0


def test_bad_events_of_a_batch_are_reported_and_the_others_taken(call):
    """Rows of the report are those of the request."""
    events = [IBM, {"price": "x"}, {"symbol": 3}, {}]
    told = call("POST", f"{SPACE}/publish", 200, json=events).json()
    assert (told["accepted"], told["positions"]) == (2, [0, 1])
    assert [one["row"] for one in told["refused"]] == [1, 2]
    assert "price" in told["refused"][0]["detail"]


def test_a_load_quarantines_bad_rows(call):
    """NDJSON and Arrow: good rows are live, bad ones are named with the reason."""
    kind = {"Content-Type": "application/x-ndjson"}
    body = b'{"id":"a","filter":"price > 1"}\n{"id":"b","filter":"prize > 1"}\nnope\n{"filter":"price > 1"}\n{"id":"a","filter":"price > 2"}'
    told = call("POST", f"{SPACE}/subscriptions/bulk", 200, content=body, headers=kind).json()
    assert (told["created"], told["replaced"], told["refused"]) == (1, 1, 3)
    assert [(one["row"], one["id"]) for one in told["quarantined"]] == [(1, "b"), (2, None), (3, None)]
    assert told["quarantined"][0]["problem"]["column"] == 1
    table = pa.table(
        {"id": ["c", "d", None], "filter": ["price > 3", "1 +", "price > 1"], "subscriber": [None, "x", "y"]}
    )
    kind = {"Content-Type": "application/vnd.apache.arrow.stream"}
    told = call("POST", f"{SPACE}/subscriptions/bulk", 200, content=_arrow(table), headers=kind).json()
    assert (told["created"], [one["row"] for one in told["quarantined"]]) == (1, [1, 2])
    assert call("POST", f"{SPACE}/publish", 200, json=IBM).json()["matches"] == 2
    changes = call("GET", f"{SPACE}/changes", 200).json()
    assert {c["id"]: c["filter"] for c in changes["changes"]} == {"a": "price > 2", "c": "price > 3"}
    exported = call("GET", f"{SPACE}/export", 200)
    assert [json.loads(line)["id"] for line in exported.text.splitlines()] == ["a", "c"]
    assert int(exported.headers["wherecast-version"]) == changes["version"] == told["version"]


def test_an_idempotency_key_makes_a_request_count_once(call):
    """The same request is answered the same, and another one with the key is refused."""
    key = {"Idempotency-Key": "k-1"}
    first = call("POST", f"{SPACE}/publish", 200, json=IBM, headers=key)
    again = call("POST", f"{SPACE}/publish", 200, json=IBM, headers=key)
    assert again.json() == first.json()
    assert again.headers["idempotent-replayed"] == "true"
    call("POST", f"{SPACE}/publish", 422, json={"price": 3}, headers=key)
    assert call("GET", SPACE).json()["next_position"] == 1
    key = {"Idempotency-Key": "k-2"}
    made = call("POST", f"{SPACE}/subscriptions", 201, json={"filter": "price > 1"}, headers=key)
    again = call("POST", f"{SPACE}/subscriptions", 201, json={"filter": "price > 1"}, headers=key)
    assert again.json() == made.json()
    assert call("GET", SPACE).json()["subscriptions"] == 1


def test_a_match_is_a_dry_run_with_reasons(call):
    """It says who would get an event and why others would not; nothing is published."""
    call("POST", f"{SPACE}/subscriptions", 201, json=CHEAP)
    call("PUT", f"{SPACE}/subscriptions/off", 201, json={"filter": "price > 1", "paused": True})
    asked = {"event": {"symbol": "IBM", "price": 130}, "explain": ["cheap", "off", "none"]}
    told = call("POST", f"{SPACE}/match", 200, json=asked).json()
    assert (told["matches"], told["subscriptions"]) == (0, [])
    failed = [p for p in told["explanations"]["cheap"]["clauses"][0]["predicates"] if not p["holds"]]
    assert [p["predicate"] for p in failed] == ["price < 120.0"]
    assert "paused" in told["explanations"]["off"]["text"]
    assert call("POST", f"{SPACE}/match", 200, json={"event": IBM}).json()["subscriptions"] == ["cheap"]
    assert call("GET", SPACE).json()["next_position"] == 0


def test_a_schema_grows_and_never_changes(call):
    """New attributes can be used at once; what is there keeps its type, and its subscriptions."""
    call("POST", f"{SPACE}/subscriptions", 201, json=CHEAP)
    call("POST", f"{SPACE}/subscriptions", 422, json={"filter": "volume > 3"})
    grown = call("PATCH", SPACE, 200, json={"schema": {"volume": "bigint"}}).json()
    assert (list(grown["schema"]), grown["schema_version"]) == (["symbol", "price", "volume"], 2)
    call("POST", f"{SPACE}/subscriptions", 201, json={"id": "big", "filter": "volume > 3"})
    assert call("POST", f"{SPACE}/publish", 200, json={**IBM, "volume": 5}).json()["matches"] == 2
    call("PATCH", SPACE, 409, json={"schema": {"price": "string"}})
    call("PATCH", SPACE, 422, json={"schema": {"x": "no such type"}})
    assert call("PATCH", SPACE, 200, json={"retention_ms": 5}).json()["retention_ms"] == 5


def test_feeds_have_each_match_once_and_resume(call):
    """By subscription, by subscriber and for all; after a position comes the next match, deleted subscriptions included."""
    call("PUT", f"{SPACE}/subscriptions/low", 201, json={"filter": "price < 10", "subscriber": "ann"})
    call("PUT", f"{SPACE}/subscriptions/ibm", 201, json={"filter": "symbol = 'IBM'", "subscriber": "bob"})
    call("POST", f"{SPACE}/publish", 200, json=[{"symbol": "IBM", "price": n} for n in (5, 50)])
    call("PUT", f"{SPACE}/subscriptions/high", 201, json={"filter": "price > 40", "subscriber": "ann"})
    call("POST", f"{SPACE}/publish", 200, json=[{"price": n} for n in (60, 20, 7)])
    call("DELETE", f"{SPACE}/subscriptions/low", 204)

    def seen(query, count):
        return [(m["position"], sorted(m["subscriptions"])) for m in call.messages(query, count)]

    assert seen("from=earliest", 4) == [(0, ["ibm", "low"]), (1, ["ibm"]), (2, ["high"]), (4, ["low"])]
    assert seen("from=earliest&subscriber=ann", 3) == [(0, ["low"]), (2, ["high"]), (4, ["low"])]
    assert seen("from=0&subscriber=ann", 2) == [(2, ["high"]), (4, ["low"])]
    assert seen("from=0&subscription=ibm", 1) == [(1, ["ibm"])]
    assert call.messages("subscription=none", 1)[0]["problem"]["status"] == 404
    assert call.messages("from=99", 1)[0]["problem"]["status"] == 422
    assert call.messages("from=x", 1)[0]["problem"]["status"] == 422


def test_a_feed_hears_of_subscriptions_that_come_while_it_is_open(call):
    """A subscriber's open feed has matches of a subscription that was made later."""
    headers = {"Authorization": f"Bearer {call.token}"}
    with call.client.websocket_connect(f"{SPACE}/feed/ws?subscriber=ann", headers=headers) as socket:
        call("PUT", f"{SPACE}/subscriptions/one", 201, json={"filter": "price > 1", "subscriber": "ann"})
        call("POST", f"{SPACE}/publish", 200, json=IBM)
        assert socket.receive_json()["subscriptions"] == ["one"]
        call("PUT", f"{SPACE}/subscriptions/two", 201, json={"filter": "price > 2", "subscriber": "ann"})
        call("POST", f"{SPACE}/publish", 200, json=IBM)
        assert socket.receive_json()["subscriptions"] == ["one", "two"]


def test_events_that_are_not_kept_are_gone_not_skipped(call):
    """A reader whose position is too old is told so, with the oldest that there is."""
    call("PUT", f"{SPACE}/subscriptions/a", 201, json={"filter": "price > 1"})
    for _ in range(3):
        call("POST", f"{SPACE}/publish", 200, json=IBM)
    call("PATCH", SPACE, 200, json={"retention_bytes": 1})
    space = next(s for s in call.broker.served() if s.name == "quotes")
    call.client.portal.call(call.broker.trim, space, clock.now_ms())
    assert call("GET", SPACE).json()["earliest_position"] == 3
    problem = call.messages("from=0", 1)[0]["problem"]
    assert (problem["status"], problem["earliest"]) == (410, 3)
    call("POST", f"{SPACE}/publish", 200, json=IBM)
    assert call.messages("from=earliest", 1)[0]["position"] == 3


def test_a_feed_names_a_subscription_that_is_long_deleted(call):
    """A tombstone stays while the log has an event that the subscription may have matched, and goes with the last of them."""
    call("PUT", f"{SPACE}/subscriptions/old", 201, json={"filter": "price > 1", "subscriber": "ann"})
    call("POST", f"{SPACE}/publish", 200, json=IBM)
    call("DELETE", f"{SPACE}/subscriptions/old", 204)
    space = next(s for s in call.broker.served() if s.name == "quotes")
    later = clock.now_ms() + call.broker.settings.tombstones_ms + 1
    call("PATCH", SPACE, 200, json={"retention_ms": 1 << 40})
    call.client.portal.call(call.broker.trim, space, later)
    for query in ("from=earliest", "subscriber=ann&from=earliest", "subscription=old&from=earliest"):
        assert call.messages(query, 1)[0]["subscriptions"] == ["old"]
    call("PATCH", SPACE, 200, json={"retention_bytes": 1})
    call.client.portal.call(call.broker.trim, space, later)
    assert call("GET", f"{SPACE}/changes").json()["changes"] == []


def test_tokens_have_scopes_expire_rotate_and_end(call):
    """A token does what its scopes say, until it expires, is replaced or is removed."""
    reader = call.token_of("default", "read")
    assert reader("GET", SPACE, 200)
    reader("POST", f"{SPACE}/publish", 403, json=IBM)
    reader("POST", f"{SPACE}/subscriptions", 403, json=CHEAP)
    reader("GET", "/v1/tokens", 403)
    publisher = call.token_of("default", "publish")
    publisher("POST", f"{SPACE}/publish", 200, json=IBM)
    publisher("GET", SPACE, 403)
    admin = call.token_of("default", "admin")
    admin("GET", "/v1/tenants", 403)
    admin("POST", "/v1/tokens", 403, json={"name": "x", "scopes": ["operator"]})
    admin("POST", "/v1/tokens", 422, json={"name": "x", "scopes": ["all"]})
    made = admin("POST", "/v1/tokens", 201, json={"name": "x", "scopes": ["read"]}).json()
    old = call.with_token(made["secret"])
    new = admin("POST", f"/v1/tokens/{made['token_id']}/rotate?overlap_s=0", 201).json()
    old("GET", SPACE, 401)
    call.with_token(new["secret"])("GET", SPACE, 200)
    admin("DELETE", f"/v1/tokens/{new['token_id']}", 204)
    call.with_token(new["secret"])("GET", SPACE, 401)
    past = {"name": "x", "scopes": ["read"], "expires_at": "2001-01-01T00:00:00Z"}
    call.with_token(admin("POST", "/v1/tokens", 201, json=past).json()["secret"])("GET", SPACE, 401)
    call.with_token("wc_wrong")("GET", SPACE, 401)
    assert call.client.get(SPACE).status_code == 401
    assert all(one["secret"] is None for one in admin("GET", "/v1/tokens", 200).json())
    told = admin("GET", "/v1/audit?limit=1000", 200).text
    assert "rotate token" in told
    assert made["secret"] not in told
    assert new["secret"] not in told


def test_quotas_hold(call):
    """Subscriptions, clauses and spaces of a tenant stay within its quotas; a deleted subscription makes room."""
    small = call.token_of("small", "admin")
    quotas = {"subscriptions": 2, "clauses": 3, "feeds": 0, "spaces": 1}
    call("PUT", "/v1/tenants/small/quotas", 200, json=quotas)
    small("POST", "/v1/spaces", 201, json={"name": "quotes", "schema": SCHEMA})
    small("POST", "/v1/spaces", 403, json={"name": "more", "schema": SCHEMA})
    small("PUT", f"{SPACE}/subscriptions/a", 201, json={"filter": "price > 1 OR symbol = 'A'"})
    small("PUT", f"{SPACE}/subscriptions/b", 403, json={"filter": "price > 1 OR symbol = 'A'"})
    small("PUT", f"{SPACE}/subscriptions/b", 201, json={"filter": "price > 1"})
    small("PUT", f"{SPACE}/subscriptions/c", 403, json={"filter": "price > 1"})
    small("DELETE", f"{SPACE}/subscriptions/a", 204)
    small("PUT", f"{SPACE}/subscriptions/c", 201, json={"filter": "price > 1"})
    small("GET", f"{SPACE}/feed", 429)
    small("DELETE", SPACE, 204)


def test_limits_hold_while_a_body_arrives(tmp_path):
    """A body is refused once it is too large, whoever reads it; an event by its size, a batch by its events."""
    with serving(
        tmp_path, max_body_bytes=2_000, max_event_bytes=200, max_batch_events=5, max_requests_per_s=40
    ) as call:

        def endless():
            for _ in range(100):
                yield b"x" * 500

        call("POST", f"{SPACE}/publish", 413, content=endless(), headers={"Content-Type": "application/json"})
        call("POST", f"{SPACE}/publish", 413, json=[{"symbol": "x" * 3_000}])
        call("POST", f"{SPACE}/publish", 413, json=[{}] * 6)
        call("POST", f"{SPACE}/subscriptions", 413, json={"filter": "x" * 3_000})
        call("POST", f"{SPACE}/subscriptions", 413, content=endless(), headers={"Content-Type": "application/json"})
        call("POST", f"{SPACE}/publish", 422, json={"symbol": "x" * 300})


def test_rates_hold():
    """A key may use so much a second; what it overdraws, it waits for; another key does not."""
    now = 100.0
    rates = Rates(10, lambda: now)
    rates.take("a", 25)
    with pytest.raises(Problem) as refused:
        rates.take("a")
    assert (refused.value.status, refused.value.headers["Retry-After"]) == (429, "2")
    rates.take("b", 10)
    now += 2
    rates.take("a")
    Rates(0).take("a", 10**9)


def test_a_subscription_expires_by_itself(call, monkeypatch):
    """Once its time is over it is not matched, and it cannot be resumed."""
    body = {"filter": "price > 1", "expires_at": "2100-01-01T00:00:00Z"}
    call("PUT", f"{SPACE}/subscriptions/short", 201, json=body)
    call("PUT", f"{SPACE}/subscriptions/past", 422, json={**body, "expires_at": "2001-01-01T00:00:00Z"})
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now + 100 * 366 * 86_400_000)
    call.client.portal.call(call.broker._expire)
    assert call("GET", f"{SPACE}/subscriptions/short").json()["state"] == "expired"
    assert call("POST", f"{SPACE}/publish", 200, json=IBM).json()["matches"] == 0
    call("POST", f"{SPACE}/subscriptions/short/resume", 409)
    # The clock is set back: times in the log do not follow it.
    monkeypatch.setattr(clock, "now_ms", lambda: now)
    call("POST", f"{SPACE}/publish", 200, json=IBM)


@pytest.mark.sampled
@pytest.mark.parametrize("damage", ["none", "pointer", "files", "missing"])
def test_a_restart_serves_what_was_there(tmp_path, damage):
    """Engines come from their snapshots, or from the store where those are damaged; subscriptions and events are all there."""
    with serving(tmp_path) as call:
        token = call.token
        for n in range(5):
            call("PUT", f"{SPACE}/subscriptions/s{n}", 201, json={"filter": f"price > {n}"})
        call("POST", f"{SPACE}/publish", 200, json={"price": 2.5})
    folder = tmp_path / "w.db.engines"
    pointer = next(folder.rglob("current.json"))
    if damage == "pointer":
        pointer.write_text("{")
    elif damage == "files":
        files = list(pointer.parent.rglob("*.arrow"))
        assert files
        for file in files:
            file.write_bytes(file.read_bytes()[:-50] + b"x" * 50)
    elif damage == "missing":
        shutil.rmtree(folder)
    with serving(tmp_path, token=token) as call:
        assert call("POST", f"{SPACE}/publish", 200, json={"price": 3.5}).json()["matches"] == 4
        call("DELETE", f"{SPACE}/subscriptions/s0", 204)
        assert call("POST", f"{SPACE}/publish", 200, json={"price": 3.5}).json()["matches"] == 3
        assert [m["position"] for m in call.messages("from=earliest", 3)] == [0, 1, 2]


def test_health_and_metrics(call):
    """Probes answer without a token, and figures name no tenant."""
    assert call.client.get("/healthz").json() == {"status": "ok"}
    assert call.client.get("/readyz").json() == {"status": "ready"}
    call("PUT", f"{SPACE}/subscriptions/secret-name", 201, json={"filter": "price > 1"})
    text = call.client.get("/metrics").text
    assert "wherecast_subscriptions" in text
    assert "secret-name" not in text
    assert "quotes" not in text
