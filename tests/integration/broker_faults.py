"""Faults that a broker has to live with, each as a function of a running broker and a size; returns figures.

    python -m tests.integration.broker_faults [NAME ...]     all of them, at full size
    bodies, sockets, readers, full-disk, database-gone, malformed

Tests run the same functions at a small size (test_broker_faults.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import resource
import socket
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
from tests.servers.postgresql import PostgreSQLServer, running_postgresql
from tests.servers.wherecast_broker import BrokerProcess, running_wherecast

SPACE = "/v1/spaces/faults"
#: Quick to lose patience, so that a run is short.
SETTINGS = ("slow_reader_s=2", "heartbeat_s=0.5", "body_timeout_s=2", "max_body_bytes=8000000")
MB = 1 << 20


def client(broker: BrokerProcess) -> httpx.Client:
    return httpx.Client(base_url=broker.url, headers={"Authorization": f"Bearer {broker.token}"}, timeout=120)


def prepare(broker: BrokerProcess) -> None:
    """A space with one subscription that gets everything."""
    with client(broker) as http:
        schema = {"n": "bigint", "text": "string"}
        http.post("/v1/spaces", json={"name": "faults", "schema": schema}).raise_for_status()
        http.put(f"{SPACE}/subscriptions/all", json={"filter": "n >= 0", "subscriber": "ann"}).raise_for_status()


def publish(broker: BrokerProcess, events: object) -> dict[str, Any]:
    with client(broker) as http:
        return http.post(f"{SPACE}/publish", json=events).raise_for_status().json()


def memory(broker: BrokerProcess, field: str = "VmHWM") -> int:
    """Megabytes that the broker has at most had (VmHWM) or has (VmRSS)."""
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    return int(re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)[1]) // 1024


def forget_peak(broker: BrokerProcess) -> None:
    """Let VmHWM begin anew."""
    Path(f"/proc/{broker.process.pid}/clear_refs").write_text("5")


def metric(broker: BrokerProcess, name: str) -> float:
    with urllib.request.urlopen(f"{broker.url}/metrics", timeout=60) as answer:
        return float(re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)[1])


# -- bodies ---------------------------------------------------------------------------------------------------------


def big_bodies(broker: BrokerProcess, megabytes: int) -> dict[str, Any]:
    """Bodies that are announced or streamed: refused while they come, and the broker keeps no more than the limit of one."""
    publish(broker, {"n": 1})
    forget_peak(broker)
    before, told = memory(broker, "VmRSS"), {}
    piece = b"100000\r\n" + b" " * MB + b"\r\n"
    for kind in ("Content-Length", "Transfer-Encoding"):
        value = str(megabytes * MB) if kind == "Content-Length" else "chunked"
        with socket.create_connection(("127.0.0.1", broker.port), timeout=60) as connection:
            connection.sendall(_head(broker, f"Content-Type: application/json\r\n{kind}: {value}"))
            sent = 0
            try:
                for _ in range(megabytes):
                    connection.sendall(piece)
                    sent += 1
            except OSError:
                pass  # answered and closed while we were writing
            told[kind] = {"sent MB": sent, "answer": _first_line(connection)}
            assert told[kind]["answer"] in (
                "HTTP/1.1 413 Content Too Large",
                "HTTP/1.1 413 Request Entity Too Large",
                "reset",
            )
            assert sent < megabytes
    grown = memory(broker) - before
    assert grown < 100, f"{grown} MB for bodies of at most 8"
    assert publish(broker, {"n": 1})["accepted"] == 1
    return {**told, "memory grew by MB": grown}


def slow_bodies(broker: BrokerProcess, count: int) -> dict[str, Any]:
    """Bodies of which one byte comes and no more: each is answered with 408."""
    connections = [socket.create_connection(("127.0.0.1", broker.port), timeout=60) for _ in range(count)]
    for one in connections:
        one.sendall(_head(broker, "Content-Type: application/json\r\nContent-Length: 100") + b"[")
    answers = [_first_line(one) for one in connections]
    for one in connections:
        one.close()
    assert set(answers) == {"HTTP/1.1 408 Request Timeout"}, set(answers)
    return {"slow bodies": count}


def _head(broker: BrokerProcess, more: str) -> bytes:
    return (
        f"POST {SPACE}/publish HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {broker.token}\r\n{more}\r\n\r\n".encode()
    )


def _first_line(connection: socket.socket) -> str:
    try:
        return connection.recv(4096).decode().partition("\r\n")[0] or "closed"
    except ConnectionResetError:
        return "reset"


# -- sockets and readers ----------------------------------------------------------------------------------------------


def many_sockets(broker: BrokerProcess, count: int) -> dict[str, Any]:
    """Connections that say nothing, or half a request: others are answered meanwhile, and it costs little memory."""
    before = memory(broker, "VmRSS")
    connections = []
    for n in range(count):
        one = socket.create_connection(("127.0.0.1", broker.port), timeout=60)
        if n % 2:
            one.sendall(b"POST /v1/spaces/faults/publish HTTP/1.1\r\nHost: x\r\nAuthor")
        connections.append(one)
    began = time.perf_counter()
    assert publish(broker, {"n": 1})["accepted"] == 1
    took, grown = time.perf_counter() - began, memory(broker, "VmRSS") - before
    for one in connections:
        one.close()
    assert publish(broker, {"n": 1})["accepted"] == 1
    assert grown < 50 + count * 0.05, f"{grown} MB for {count} sockets"
    return {"sockets": count, "memory grew by MB": grown, "publish meanwhile s": round(took, 2)}


def many_readers(broker: BrokerProcess, count: int) -> dict[str, Any]:
    """Readers of a feed get every event once; some do not read: they are cut off and get the rest when they come back."""
    start = publish(broker, {"n": 0})["positions"][0]
    cut, before = metric(broker, "wherecast_feeds_cut_off_total"), memory(broker, "VmRSS")
    forget_peak(broker)
    asleep = [_open_feed(broker, start) for _ in range(max(1, count // 20))]
    batches, text = 40, "x" * 20_000

    async def read(number: int, end: int, seen: list[int]) -> None:
        query = ["", "?subscriber=ann", "?subscription=all"][number % 3]
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, limit=1 << 20)
        writer.write(_feed_request(broker, query, start))
        while not seen or seen[-1] < end:
            line = await reader.readline()
            assert line, "the feed ended"
            if line.startswith(b"data: "):
                seen.append(int(re.match(rb'data: \{"position":(\d+)', line)[1]))
        writer.close()

    async def everybody() -> list[list[int]]:
        seen: list[list[int]] = [[] for _ in range(count)]
        end = start + 2 * batches
        tasks = [asyncio.create_task(read(n, end, seen[n])) for n in range(count)]
        for n in range(batches):
            await asyncio.to_thread(publish, broker, [{"n": n, "text": text if n % 4 == 0 else "x"}] * 2)
        await asyncio.gather(*tasks)
        return seen

    expected = list(range(start + 1, start + 1 + 2 * batches))
    assert all(one == expected for one in asyncio.run(everybody()))
    for n in range(60):  # more than the buffers of a connection hold
        publish(broker, [{"n": n, "text": text}] * 10)
    end = publish(broker, {"n": 1})["positions"][0]
    deadline = time.monotonic() + 120
    while metric(broker, "wherecast_feeds") > 0:
        assert time.monotonic() < deadline, "somebody who does not read is not cut off"
        time.sleep(0.1)
    # By the broker, or by the system where a reader slept longer than TCP_USER_TIMEOUT before enough had been sent.
    counted = metric(broker, "wherecast_feeds_cut_off_total") - cut
    grown = memory(broker) - before
    for one in asleep:
        one.close()
    _resume(broker, start, end)
    assert grown < 150 + count * 0.3, f"{grown} MB for {count} readers"
    return {
        "readers": count,
        "asleep and cut off": len(asleep),
        "of them by the broker": counted,
        "memory grew by MB": grown,
    }


def _feed_request(broker: BrokerProcess, query: str, last: int) -> bytes:
    return f"GET {SPACE}/feed{query} HTTP/1.1\r\nHost: x\r\nLast-Event-ID: {last}\r\nAuthorization: Bearer {broker.token}\r\n\r\n".encode()


def _open_feed(broker: BrokerProcess, last: int) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", broker.port))
    connection.sendall(_feed_request(broker, "", last))
    return connection


def _resume(broker: BrokerProcess, last: int, end: int) -> None:
    """All that came after a position, once each."""
    seen = []
    with client(broker) as http, http.stream("GET", f"{SPACE}/feed", headers={"Last-Event-ID": str(last)}) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                seen.append(json.loads(line[6:])["position"])
                if seen[-1] >= end:
                    break
    assert seen == list(range(last + 1, end + 1))


# -- the store --------------------------------------------------------------------------------------------------------


def full_disk(broker: BrokerProcess, kilobytes: int) -> dict[str, Any]:
    """The system refuses to make files larger: publishes and changes are refused, what was acknowledged stays, and all goes on when there is room."""
    acknowledged = [publish(broker, {"n": 0})["positions"][0]]
    log = Path(broker.database.removeprefix("sqlite:///") + "-wal")
    limit = log.stat().st_size + kilobytes * 1024
    resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    refused: list[httpx.Response] = []
    with client(broker) as http:
        rng = random.Random(1)
        while len(refused) < 5:
            text = "".join(rng.choices("abcdefghijklmnop", k=20_000))
            answer = http.post(f"{SPACE}/publish", json={"n": 1, "text": text})
            if answer.status_code == 200:
                acknowledged += answer.json()["positions"]
                assert len(acknowledged) < 20 + kilobytes, "the disk is never full"
            else:
                refused.append(answer)
        assert {answer.status_code for answer in refused} == {503}, [a.text for a in refused]
        # A checkpoint lets the log start over, where it has room; so from now on not even its first page can be written.
        resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        assert http.put(f"{SPACE}/subscriptions/more", json={"filter": "n > 5"}).status_code == 503
        assert http.get(f"{SPACE}/subscriptions/more").status_code == 404
        assert http.get("/healthz").status_code == 200
        resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for _ in range(100):  # nobody does anything
            if http.put(f"{SPACE}/subscriptions/more", json={"filter": "n > 5"}).status_code == 201:
                break
            time.sleep(0.1)
        acknowledged += http.post(f"{SPACE}/publish", json={"n": 7}).raise_for_status().json()["positions"]
    assert acknowledged == list(range(acknowledged[0], acknowledged[-1] + 1))
    _resume(broker, acknowledged[0] - 1, acknowledged[-1])
    port = broker.port
    broker.kill()
    broker.start(port)
    _resume(broker, acknowledged[0] - 1, acknowledged[-1])
    return {"acknowledged": len(acknowledged), "answer": refused[0].json()["detail"]}


def database_gone(broker: BrokerProcess, server: PostgreSQLServer, times: int) -> dict[str, Any]:
    """PostgreSQL stops and starts: requests are refused with 503 meanwhile, nothing acknowledged is lost, and all goes on by itself."""
    with client(broker) as http:
        acknowledged, refused = [], 0
        for n in range(times):
            acknowledged += publish(broker, {"n": n})["positions"]
            server.stop()
            for answer in (
                http.post(f"{SPACE}/publish", json={"n": n}),
                http.put(f"{SPACE}/subscriptions/s{n}", json={"filter": "n > 5"}),
                http.get("/readyz"),
            ):
                assert answer.status_code == 503, answer.text
                refused += 1
            assert http.get("/healthz").status_code == 200
            server.start()
            deadline = time.monotonic() + 60
            while http.get("/readyz").status_code != 200:
                assert time.monotonic() < deadline, "it does not come back"
                time.sleep(0.1)
            acknowledged += publish(broker, {"n": n})["positions"]
    assert acknowledged == list(range(acknowledged[0], acknowledged[0] + 2 * times))
    _resume(broker, acknowledged[0] - 1, acknowledged[-1])
    return {"times": times, "refused": refused}


# -- malformed bodies -------------------------------------------------------------------------------------------------


def malformed(broker: BrokerProcess, count: int, seed: int = 1) -> dict[str, Any]:
    """Arrow streams and CloudEvents with changed, cut and doubled bytes: each is answered, none with 5xx."""
    rng, answers = random.Random(seed), dict[str, int]()
    sink = pa.BufferOutputStream()
    table = pa.table({"n": [1, 2, 3], "text": ["a", None, "ccc"], "more": [[1], [], None]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    cloud = {"specversion": "1.0", "id": "e-1", "source": "/x", "type": "t", "data": {"n": 1, "text": "a"}}
    originals = [
        ("application/vnd.apache.arrow.stream", sink.getvalue().to_pybytes()),
        ("application/cloudevents+json", json.dumps(cloud).encode()),
        ("application/cloudevents-batch+json", json.dumps([cloud, cloud]).encode()),
    ]
    with client(broker) as http:
        for n in range(count):
            kind, body = originals[n % 3]
            answer = http.post(f"{SPACE}/publish", content=_spoil(body, rng), headers={"Content-Type": kind})
            assert answer.status_code < 500, (answer.status_code, answer.text, kind, n)
            answers[str(answer.status_code)] = answers.get(str(answer.status_code), 0) + 1
    assert publish(broker, {"n": 1})["accepted"] == 1
    return answers


def _spoil(body: bytes, rng: random.Random) -> bytes:
    spoiled = bytearray(body)
    for _ in range(rng.choice([1, 1, 2, 8])):
        place = rng.randrange(max(1, len(spoiled)))
        match rng.randrange(4):
            case 0:
                spoiled[place : place + 1] = bytes([rng.randrange(256)])
            case 1:
                del spoiled[place : place + rng.randint(1, 16)]
            case 2:
                spoiled[place:place] = spoiled[place : place + rng.randint(1, 16)]
            case _:
                spoiled[place : place + 4] = rng.choice([b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\xff\xff\xff\x7f"])
    return bytes(spoiled)


# -- the command ------------------------------------------------------------------------------------------------------

FAULTS: dict[str, Callable[[BrokerProcess], dict[str, Any]]] = {
    "bodies": lambda broker: {**big_bodies(broker, 1_000), **slow_bodies(broker, 500)},
    "sockets": lambda broker: many_sockets(broker, 10_000),
    "readers": lambda broker: many_readers(broker, 1_000),
    "full-disk": lambda broker: full_disk(broker, 4_000),
    "malformed": lambda broker: malformed(broker, 20_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*FAULTS, "database-gone"]
    parser.add_argument("names", nargs="*", choices=[*names, []], default=names)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for name in parser.parse_args().names:
        with ExitStack() as stack:
            server = stack.enter_context(running_postgresql()) if name == "database-gone" else None
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            database = None if server is None else server.url
            broker = stack.enter_context(running_wherecast(folder, database=database, settings=SETTINGS))
            prepare(broker)
            told = FAULTS[name](broker) if server is None else database_gone(broker, server, 10)
            print(f"{name}: {told}", flush=True)


if __name__ == "__main__":
    main()
