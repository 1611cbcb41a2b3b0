"""The broker under load: durable publish, single publishes, many feeds, restart.

    python benchmarks/broker.py WORKLOAD [--subscriptions 1000000] [--folder DIR]

WORKLOAD is a folder with subscriptions.parquet, events.parquet and schema.json (workload `stock`). The broker runs in a process of
its own; with --folder its data are kept, and a second run does not load the subscriptions again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import cast

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.servers.wherecast_broker import BrokerProcess

SPACE = "/v1/spaces/quotes"


def load(broker: BrokerProcess, workload: Path, count: int) -> None:
    table = pq.read_table(workload / "subscriptions.parquet").slice(0, count)
    table = pa.table({"id": table["id"].cast(pa.string()), "filter": table["filter"]})
    schema = json.loads((workload / "schema.json").read_text())
    with httpx.Client(base_url=broker.url, headers=_headers(broker), timeout=600) as http:
        http.post("/v1/spaces", json={"name": "quotes", "schema": schema})
        start = time.perf_counter()
        there = http.get(SPACE).json()["subscriptions"]  # of a run that was interrupted
        for first in range(there, table.num_rows, 100_000):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table.slice(first, 100_000))
            kind = {"Content-Type": "application/vnd.apache.arrow.stream"}
            answer = http.post(f"{SPACE}/subscriptions/bulk", content=sink.getvalue().to_pybytes(), headers=kind)
            answer.raise_for_status()
            assert not answer.json()["quarantined"], answer.text[:500]
        print(f"load: {(table.num_rows - there) / (time.perf_counter() - start):,.0f} subscriptions/s")


def _headers(broker: BrokerProcess) -> dict[str, str]:
    return {"Authorization": f"Bearer {broker.token}"}


def batches(workload: Path, size: int) -> list[bytes]:
    events = pq.read_table(workload / "events.parquet").to_pylist()
    return [json.dumps(events[n : n + size]).encode() for n in range(0, len(events) - size + 1, size)]


async def publish(
    broker: BrokerProcess, bodies: list[bytes], per_body: int, publishers: int, seconds: float
) -> dict[str, float]:
    """Publishers in a closed loop; latencies in ms."""
    times: list[float] = []
    kind = {**_headers(broker), "Content-Type": "application/json"}
    limits = httpx.Limits(max_connections=publishers)
    async with httpx.AsyncClient(base_url=broker.url, headers=kind, timeout=120, limits=limits) as http:
        end = time.perf_counter() + seconds

        async def one(number: int) -> None:
            while time.perf_counter() < end:
                began = time.perf_counter()
                answer = await http.post(f"{SPACE}/publish", content=bodies[number % len(bodies)])
                assert answer.status_code == 200, answer.text[:300]
                times.append(time.perf_counter() - began)
                number += publishers

        began = time.perf_counter()
        await asyncio.gather(*(one(n) for n in range(publishers)))
        took = time.perf_counter() - began
    p50, p99 = np.percentile(times, [50, 99]) * 1000
    return {
        "events/s": round(len(times) * per_body / took),
        "p50 ms": round(float(p50), 1),
        "p99 ms": round(float(p99), 1),
    }


class Publisher(asyncio.Protocol):
    """One connection that publishes single events, one at a time.

    In an open loop each event is due at a time, whatever became of those before it, and its latency begins there: an answer that comes
    late makes the next event late as well and counts twice, as it does for whoever waits behind that publisher. In a closed loop
    the next event is due when the answer is there.
    """

    def __init__(self, head: str, bodies: list[bytes], first: int, step: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.head, self.bodies, self.number, self.step = head, bodies, first, step
        self.times: list[float] = []
        self.due: list[float] = []
        self.received = b""
        self.closed_until = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def publish(self, when: float) -> None:
        """An event is due."""
        self.due.append(when)
        if len(self.due) == 1:
            self._send()

    def _send(self) -> None:
        body = self.bodies[self.number % len(self.bodies)]
        self.number += self.step
        self.transport.write(f"{self.head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]):
            return
        assert head.startswith(b"HTTP/1.1 200"), self.received
        now, self.received = self.loop.time(), b""
        self.times.append(now - self.due.pop(0))
        if self.due:
            self._send()
        elif now < self.closed_until:
            self.publish(now)


async def singles(
    broker: BrokerProcess, bodies: list[bytes], publishers: int, rate: float | None, seconds: float
) -> dict[str, float]:
    """Single events from many connections: `rate` a second together, evenly spread (open loop), or as fast as answers come."""
    loop = asyncio.get_running_loop()
    head = f"POST {SPACE}/publish HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {broker.token}\r\nContent-Type: application/json\r\n"
    made: list[Publisher] = []
    for n in range(publishers):
        new = partial(Publisher, head, bodies, n, publishers)
        made.append((await loop.create_connection(new, "127.0.0.1", broker.port))[1])
    start = loop.time() + 0.5
    every = 1 / rate if rate is not None else 0.0
    for n in range(publishers if rate is None else round(seconds * rate)):
        one = made[n % publishers]
        one.closed_until = 0.0 if rate is not None else start + seconds
        loop.call_at(start + n * every, one.publish, start + n * every)
    await asyncio.sleep(0.5 + seconds)
    while any(one.due for one in made):  # noqa: ASYNC110 - polled, so that nothing is woken for it
        await asyncio.sleep(0.02)
    took = loop.time() - start
    for one in made:
        one.transport.close()
    times = [t for one in made for t in one.times]
    p50, p99, p999 = (np.percentile(times, [50, 99, 99.9]) * 1000).round(1).tolist()
    return {"events/s": round(len(times) / took), "p50 ms": p50, "p99 ms": p99, "p99.9 ms": p999}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", type=Path)
    parser.add_argument("--subscriptions", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--publishers", type=int, default=4)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only-load", action="store_true")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="broker-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    broker = BrokerProcess(folder)
    kept, loaded = folder / "token", folder / "loaded"
    if kept.exists():
        broker.token = kept.read_text()
    start = time.perf_counter()
    broker.start()
    print(f"start to ready: {time.perf_counter() - start:.2f} s")
    try:
        kept.write_text(broker.token)
        if not loaded.exists():
            load(broker, options.workload, options.subscriptions)
            loaded.touch()
            broker.stop()  # saves the engine
            start = time.perf_counter()
            broker.start()
            print(f"restart to ready: {time.perf_counter() - start:.2f} s")
        if options.only_load:
            return
        thousand, single = batches(options.workload, 1_000), batches(options.workload, 1)
        single = [body[1:-1] for body in single]
        asyncio.run(publish(broker, thousand, 1_000, 2, 3))  # compiles kernels, plans the index
        print("batches of 1,000:", asyncio.run(publish(broker, thousand, 1_000, options.publishers, options.seconds)))
        for rate in (500, 1_000, 2_000, None):
            told = "closed loop" if rate is None else f"open loop at {rate:,}/s"
            print(f"single, 500 publishers, {told}:", uvloop.run(singles(broker, single, 500, rate, options.seconds)))
    finally:
        broker.stop()


if __name__ == "__main__":
    main()
