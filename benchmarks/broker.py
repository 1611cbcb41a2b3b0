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
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

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
    return {"events/s": round(len(times) * per_body / took), "p50 ms": round(p50, 1), "p99 ms": round(p99, 1)}


async def paced(
    broker: BrokerProcess, bodies: list[bytes], publishers: int, rate: float, seconds: float
) -> dict[str, float]:
    """Publishers that each send single events at a steady pace; raw sockets, so that the client costs little."""
    times: list[float] = []

    async def one(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        every = publishers / rate
        await asyncio.sleep(every * number / publishers)
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            body = bodies[number % len(bodies)]
            head = f"POST {SPACE}/publish HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {broker.token}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200"), answer
            size = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(size)
            times.append(time.perf_counter() - began)
            number += publishers
            await asyncio.sleep(max(0.0, began + every - time.perf_counter()))
        writer.close()

    await asyncio.gather(*(one(n) for n in range(publishers)))
    p50, p99 = np.percentile(times, [50, 99]) * 1000
    return {"events/s": round(len(times) / seconds), "p50 ms": round(p50, 1), "p99 ms": round(p99, 1)}


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
        print("single, 500 publishers, 500/s:", asyncio.run(paced(broker, single, 500, 500, options.seconds)))
        print("single, 500 publishers, 1,000/s:", asyncio.run(paced(broker, single, 500, 1_000, options.seconds)))
        print(
            "single, 500 publishers, as fast as they can:",
            asyncio.run(paced(broker, single, 500, 1e9, options.seconds)),
        )
    finally:
        broker.stop()


if __name__ == "__main__":
    main()
