"""Feeds over real sockets: a reader that does not read. `test_broker_faults.py` has many of them, and hostile requests."""

from __future__ import annotations

import json
import re
import socket
import urllib.request

import httpx
import pytest
from tests.servers.wherecast_broker import running_wherecast

SPACE = "/v1/spaces/numbers"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = ("slow_reader_s=1", "heartbeat_s=0.5", "max_body_bytes=1000000", "body_timeout_s=1")
    with running_wherecast(tmp_path_factory.mktemp("feeds"), settings=settings) as found:
        with httpx.Client(base_url=found.url, headers=headers(found), timeout=60) as http:
            schema = {"n": "bigint", "text": "string"}
            http.post("/v1/spaces", json={"name": "numbers", "schema": schema}).raise_for_status()
            http.put(f"{SPACE}/subscriptions/all", json={"filter": "n >= 0", "subscriber": "ann"}).raise_for_status()
        yield found


def headers(broker) -> dict[str, str]:
    return {"Authorization": f"Bearer {broker.token}"}


def publish(broker, events) -> dict:
    answer = httpx.post(f"{broker.url}{SPACE}/publish", json=events, headers=headers(broker), timeout=60)
    return answer.raise_for_status().json()


def open_feed(broker, last: int) -> socket.socket:
    """A connection that has asked for a feed and not read anything; its buffer is small."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", broker.port))
    head = (
        f"GET {SPACE}/feed HTTP/1.1\r\nHost: x\r\nLast-Event-ID: {last}\r\nAuthorization: Bearer {broker.token}\r\n\r\n"
    )
    connection.sendall(head.encode())
    return connection


def metric(broker, name: str) -> float:
    with urllib.request.urlopen(f"{broker.url}/metrics", timeout=10) as answer:
        return float(re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)[1])


def test_a_reader_that_does_not_read_is_cut_off_and_resumes(broker):
    """It holds no more than what is in flight, is cut off, and gets the rest after its last position."""
    first = publish(broker, [{"n": 0}])["positions"][0]
    cut = metric(broker, "wherecast_feeds_cut_off_total")
    connection = open_feed(broker, first)
    for n in range(40):
        publish(broker, [{"n": n, "text": "x" * 20_000} for _ in range(10)])
    end = publish(broker, [{"n": 1}])["positions"][0]
    while metric(broker, "wherecast_feeds_cut_off_total") == cut:
        pass
    received = b""
    connection.settimeout(20)
    try:
        while part := connection.recv(65_536):
            received += part
    except OSError:
        pass  # reset: that is what being cut off looks like
    connection.close()
    seen = [int(p) for p in re.findall(rb"\nid: (\d+)\r?\ndata: [^\n]*\n\n", received)]
    assert seen == list(range(first + 1, first + 1 + len(seen)))
    assert len(seen) < 400
    last = seen[-1] if seen else first
    with httpx.stream(
        "GET", f"{broker.url}{SPACE}/feed", headers={**headers(broker), "Last-Event-ID": str(last)}, timeout=30
    ) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                seen.append(json.loads(line[6:])["position"])
                if seen[-1] == end:
                    break
    assert seen == list(range(first + 1, end + 1))
