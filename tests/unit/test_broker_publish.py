"""Publishes: the way around FastAPI, and what the log has of an event."""

from __future__ import annotations

import json
import math
import re

import pyarrow as pa
import pytest
from tests.unit.broker_app import SPACE, serving

from wherecast.broker.app import quick

ALL = {"id": "all", "filter": "symbol IS NOT NULL"}
IBM = b'{"symbol": "IBM", "price": 1}'
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("broker"), max_body_bytes=1_000, max_event_bytes=200) as found:
        found("POST", f"{SPACE}/subscriptions", 201, json=ALL)
        yield found


#: path, headers, body, status
REQUESTS = {
    "one": (f"{SPACE}/publish", JSON, IBM, 200),
    "batch": (f"{SPACE}/publish", JSON, b"[%b, 3]" % IBM, 200),
    "nothing": (f"{SPACE}/publish", JSON, b"[]", 200),
    "wrong value": (f"{SPACE}/publish", JSON, b'{"price": "x"}', 422),
    "not an event": (f"{SPACE}/publish", JSON, b"7", 422),
    "not JSON": (f"{SPACE}/publish", JSON, b"{", 400),
    "large event": (f"{SPACE}/publish", JSON, b'{"symbol": "%b"}' % (b"x" * 300), 422),
    "large body": (f"{SPACE}/publish", JSON, b" " * 2_000, 413),
    "unknown form": (f"{SPACE}/publish", {"Content-Type": "text/csv"}, b"a", 415),
    "unknown space": ("/v1/spaces/nobody/publish", JSON, IBM, 404),
    "no name of a space": ("/v1/spaces/-/publish", JSON, IBM, 422),
    "long key": (f"{SPACE}/publish", {**JSON, "Idempotency-Key": "k" * 201}, IBM, 422),
    "wrong token": (f"{SPACE}/publish", {**JSON, "Authorization": "Bearer x"}, IBM, 401),
    "no token": (f"{SPACE}/publish", {**JSON, "Authorization": ""}, IBM, 401),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", REQUESTS)
def test_a_publish_is_answered_alike_on_both_ways(call, monkeypatch, name):
    """The way around FastAPI gives the status, the headers and the body of the endpoint; only ids and positions differ."""
    path, headers, body, status = REQUESTS[name]

    def answer():
        found = call("POST", path, status, content=body, headers=headers)
        kept = {key: value for key, value in found.headers.items() if key != "content-length"}
        return kept, re.sub(r'"positions": \[.*?\], "ids": \[.*?\]', "", found.text)

    on_quick_way = answer()
    monkeypatch.setattr(quick, "_PATH", re.compile("nothing"))
    assert answer() == on_quick_way


def test_the_quick_way_needs_the_scope(call):
    """A token that may only read gets 403."""
    reader = call.token_of("default", "read")
    assert reader("POST", f"{SPACE}/publish", 403, content=IBM, headers=JSON).json()["type"].endswith("scope")


def test_a_key_is_good_for_one_publish(call):
    """The same request again has the first answer; another body with the same key is refused."""
    headers = {**JSON, "Idempotency-Key": "once"}
    first = call("POST", f"{SPACE}/publish", 200, content=IBM, headers=headers)
    again = call("POST", f"{SPACE}/publish", 200, content=IBM, headers=headers)
    assert first.json() == again.json()
    assert again.headers["idempotent-replayed"] == "true"
    call("POST", f"{SPACE}/publish", 422, content=IBM + b" ", headers=headers)


def test_doubles_that_json_lacks_are_kept_as_texts(call):
    """NaN and the infinities, which Arrow has, are in the feed as Spark's to_json writes them; NULL stays null."""
    values = [math.nan, math.inf, -math.inf, None, 1.5]
    table = pa.table({"symbol": ["x"] * 5, "price": pa.array(values, pa.float64(), from_pandas=False)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    kind = {"Content-Type": "application/vnd.apache.arrow.stream"}
    told = call("POST", f"{SPACE}/publish", 200, content=sink.getvalue().to_pybytes(), headers=kind).json()
    seen = call.messages(f"from={told['positions'][0] - 1}", 5)
    assert [m["data"]["price"] for m in seen] == ["NaN", "Infinity", "-Infinity", None, 1.5]


def test_ids_of_events_are_never_given_twice(call):
    """Neither in a request nor in another."""
    told = [call("POST", f"{SPACE}/publish", 200, content=b"[%b, %b]" % (IBM, IBM), headers=JSON) for _ in range(3)]
    ids = [id for answer in told for id in json.loads(answer.text)["ids"]]
    assert len(set(ids)) == 6


def matched(event: dict, *ids: str) -> dict:
    return {"event": event, "subscriptions": list(ids)}


def test_matches_found_elsewhere_get_into_the_log_once(call):
    """Each event reaches the named subscriptions that are active, the others are counted; the same key again changes nothing."""
    call("PUT", f"{SPACE}/subscriptions/other", 201, json={"filter": "price > 1000"})
    call("PUT", f"{SPACE}/subscriptions/paused", 201, json={"filter": "price > 1000"})
    call("POST", f"{SPACE}/subscriptions/paused/pause", 200)
    rows = [matched({"symbol": "A", "when": "now"}, "other", "all", "other"), matched({}, "gone", "paused", "other")]
    headers = {"Idempotency-Key": "batch-1"}
    told = call("POST", f"{SPACE}/matches", 200, json=rows, headers=headers)
    assert {k: v for k, v in told.json().items() if k in ("accepted", "matches", "unknown")} == {
        "accepted": 2,
        "matches": 3,
        "unknown": 2,
    }
    assert call("POST", f"{SPACE}/matches", 200, json=rows, headers=headers).json() == told.json()
    positions = told.json()["positions"]
    seen = call.messages(f"from={positions[0] - 1}", 2)
    assert [(m["position"], sorted(m["subscriptions"]), m["data"]) for m in seen] == [
        (positions[0], ["all", "other"], {"symbol": "A", "when": "now"}),
        (positions[1], ["other"], {}),
    ]
    call("DELETE", f"{SPACE}/subscriptions/other", 204)
    call("DELETE", f"{SPACE}/subscriptions/paused", 204)


def test_matches_come_as_lines(call):
    """NDJSON is taken, too, and nothing is fine."""
    lines = json.dumps(matched({"symbol": "A"}, "all")) + "\n"
    kind = {"Content-Type": "application/x-ndjson"}
    assert call("POST", f"{SPACE}/matches", 200, content=lines, headers=kind).json()["matches"] == 1
    assert call("POST", f"{SPACE}/matches", 200, json=[]).json()["accepted"] == 0


WRONG_MATCHES = {
    "an object": ({}, 422),
    "a number": ([3], 422),
    "no subscriptions": ([{"event": {}}], 422),
    "an event that is none": ([matched([], "all")], 422),
    "an id that is none": ([{"event": {}, "subscriptions": [3]}], 422),
}


@pytest.mark.parametrize("name", WRONG_MATCHES)
def test_wrong_matches_are_refused_whole(call, name):
    """The answer says which row is wrong, and none is taken."""
    body, status = WRONG_MATCHES[name]
    before = call("GET", SPACE).json()["next_position"]
    assert call("POST", f"{SPACE}/matches", status, json=body).json()["detail"]
    assert call("GET", SPACE).json()["next_position"] == before
