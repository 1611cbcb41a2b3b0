"""Webhook deliveries to local receivers: how many a second, and what one endpoint that hangs does to the others.

    python benchmarks/delivery.py [--subscribers 50] [--events 400] [--only throughput|hanging]

The broker and the receiver are processes of their own. Throughput: events are published in batches, each matches one filter of every
subscriber; the clock runs from the first publish to the last message received. Hanging: events are published one by one at a
steady rate, and the time from publish to receipt is compared with and without a subscriber whose endpoint never answers.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import httpx
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.servers.wherecast_broker import BrokerProcess, running_wherecast

SPACE = "/v1/spaces/quotes"
_OK = b"HTTP/1.1 204 No Content\r\n\r\n"
_AGREE = b"HTTP/1.1 200 OK\r\nWebHook-Allowed-Origin: *\r\nContent-Length: 0\r\n\r\n"


def receive(pipe: Connection) -> None:
    """A receiver that does as little as it can: notes the time of each id, and hangs on paths that say so."""
    asyncio.run(_receive(pipe))


async def _receive(pipe: Connection) -> None:
    seen: dict[str, tuple[float, int]] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode("latin-1").split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                if lines[0].startswith("OPTIONS"):
                    writer.write(_AGREE)
                    continue
                if "/hang" in lines[0]:
                    await asyncio.sleep(3600)
                at = body.find(b'"sent_ns":')
                sent = int(body[at + 10 : body.index(b"}", at)]) if at > 0 else 0
                seen.setdefault(headers["webhook-id"], (time.time_ns(), sent))
                writer.write(_OK)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "0.0.0.0", 0, backlog=1024)
    pipe.send(server.sockets[0].getsockname()[1])
    while True:
        await asyncio.sleep(0.01)
        while pipe.poll():
            question = pipe.recv()
            if question == "count":
                pipe.send(len(seen))
            elif question == "times":
                pipe.send(list(seen.values()))
                seen.clear()
            else:
                return


def cpu_seconds(pid: int) -> float:
    """What a process has used, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bench:
    """A broker with subscribers whose webhooks go to one receiver."""

    def __init__(self, broker: BrokerProcess, pipe: Connection) -> None:
        headers = {"Authorization": f"Bearer {broker.token}"}
        self.http = httpx.Client(base_url=broker.url, headers=headers, timeout=120)
        self.pipe = pipe
        assert broker.process is not None
        self.pid = broker.process.pid
        self.port = pipe.recv()
        schema = {"kind": "string", "sent_ns": "bigint"}
        self.call("POST", "/v1/spaces", {"name": "quotes", "schema": schema})

    def call(self, method: str, path: str, body: object = None) -> dict:
        answer = self.http.request(method, path, json=body)
        answer.raise_for_status()
        return answer.json()

    def subscribe(self, name: str, path: str, filter: str, address: str = "127.0.0.1") -> None:
        target = f"http://{address}:{self.port}/{path}"
        self.call("PUT", f"/v1/subscribers/{name}", {"routes": [{"kind": "webhook", "target": target}]})
        assert self.call("POST", f"/v1/subscribers/{name}/routes/r1/verify")["state"] == "active"
        self.call("PUT", f"{SPACE}/subscriptions/{name}", {"filter": filter, "subscriber": name})

    def wait(self, count: int) -> list[tuple[float, int]]:
        while True:
            self.pipe.send("count")
            if self.pipe.recv() >= count:
                self.pipe.send("times")
                return self.pipe.recv()
            time.sleep(0.05)


def throughput(bench: Bench, subscribers: int, events: int) -> None:
    for n in range(subscribers):
        # Each a host of its own: the addresses of the loopback network all reach the receiver.
        bench.subscribe(f"u{n}", f"u{n}", "kind = 'all'", f"127.0.{n // 250}.{n % 250 + 1}")
    for round in range(3):
        began, used = time.time_ns(), cpu_seconds(bench.pid)
        for _ in range(0, events, 100):
            bench.call("POST", f"{SPACE}/publish", [{"kind": "all", "sent_ns": began}] * 100)
        published = time.time_ns()
        times = bench.wait(subscribers * events)
        seconds = (max(at for at, _ in times) - began) / 1e9
        used = cpu_seconds(bench.pid) - used
        print(
            f"throughput: {len(times):,} deliveries to {subscribers} subscribers in {seconds:.2f} s: "
            f"{len(times) / seconds:,.0f}/s (published in {(published - began) / 1e9:.2f} s; the broker used {used / len(times) * 1e6:.0f} us of a core "
            f"per delivery; round {round + 1})",
            flush=True,
        )


def hanging(bench: Bench, per_s: float, seconds: float) -> None:
    for n in range(20):
        bench.subscribe(f"h{n}", f"h{n}", f"kind = 'k{n}'", f"127.0.1.{n + 1}")
    bench.subscribe("hang", "hang", "kind = 'none'", "127.0.2.1")

    def measure(*, beside: bool) -> np.ndarray:
        count, began = 0, time.perf_counter()
        while time.perf_counter() < began + seconds:
            body = [{"kind": f"k{count % 20}", "sent_ns": time.time_ns()}]
            if beside:
                body.append({"kind": "none", "sent_ns": 0})
            bench.call("POST", f"{SPACE}/publish", body)
            count += 1
            time.sleep(max(0.0, began + count / per_s - time.perf_counter()))
        return np.array([at - sent for at, sent in bench.wait(count) if sent]) / 1e6

    measure(beside=False)  # warm
    for round in range(3):
        alone, beside = measure(beside=False), measure(beside=True)
        a, b = np.percentile(alone, [50, 99]), np.percentile(beside, [50, 99])
        print(
            f"hanging endpoint (round {round + 1}): others alone p50 {a[0]:.1f} p99 {a[1]:.1f} ms, "
            f"beside it p50 {b[0]:.1f} p99 {b[1]:.1f} ms: {b[1] / a[1]:.2f}x"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscribers", type=int, default=50)
    parser.add_argument("--events", type=int, default=400)
    parser.add_argument("--only", choices=["throughput", "hanging"])
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--set", action="append", default=[])
    asked = parser.parse_args()
    here, there = multiprocessing.Pipe()
    receiver = multiprocessing.Process(target=receive, args=(there,), daemon=True)
    receiver.start()
    with tempfile.TemporaryDirectory() as folder:
        settings = ("webhook_allow=127.0.0.0/8", *asked.set)
        with running_wherecast(Path(folder), settings=settings) as broker:
            bench = Bench(broker, here)
            if asked.only != "hanging":
                throughput(bench, asked.subscribers, asked.events)
            if asked.only != "throughput":
                hanging(bench, asked.rate, asked.seconds)
    here.send("end")


if __name__ == "__main__":
    main()
