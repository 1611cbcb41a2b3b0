"""Webhook deliveries to local receivers: how many a second, and what one endpoint that hangs does to the others.

    python benchmarks/delivery.py [--subscribers 50] [--events 400] [--only throughput|hanging]

The broker and the receiver are processes of their own. Throughput: events are published in batches, each matches one filter of every
subscriber; the clock runs from the first publish to the last message received. Hanging: events are published one by one at a
steady rate, and the time from publish to receipt is compared without another subscriber, with one whose endpoint answers, and with one whose endpoint
never does, in turns. A p99 needs thousands of deliveries: with the defaults, 4,000 each in 260 s.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
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
            elif question == "measured":
                pipe.send(sum(sent > 0 for _, sent in seen.values()))
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
        return answer.json() if answer.content else {}

    def subscribe(self, name: str, path: str, filter: str, address: str = "127.0.0.1") -> None:
        target = f"http://{address}:{self.port}/{path}"
        self.call("PUT", f"/v1/subscribers/{name}", {"routes": [{"kind": "webhook", "target": target}]})
        assert self.call("POST", f"/v1/subscribers/{name}/routes/r1/verify")["state"] == "active"
        self.call("PUT", f"{SPACE}/subscriptions/{name}", {"filter": filter, "subscriber": name})

    def wait(self, count: int, *, measured: bool = False) -> list[tuple[float, int]]:
        """When each message came and was sent, as soon as so many came; `measured`: of those that say when they were sent."""
        while True:
            self.pipe.send("measured" if measured else "count")
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


#: The endpoint of one subscriber in a hanging turn, by its path; in the first there is no such subscriber.
_TURNS = ("absent", "answer", "hang")


def hanging(bench: Bench, per_s: float, seconds: float, rounds: int) -> None:
    """Publish at a steady rate to 20 subscribers, beside one whose endpoint hangs, in turns; each turn has a new one, so nothing is left of the last."""
    for n in range(20):
        bench.subscribe(f"h{n}", f"h{n}", f"kind = 'k{n}'", f"127.0.1.{n + 1}")
    turns = itertools.count(1)

    def measure(path: str) -> np.ndarray:
        turn = next(turns)
        odd = f"{path}{turn}"
        if path != "absent":
            bench.subscribe(odd, odd, f"kind = '{odd}'", f"127.0.2.{turn}")
        count, began = 0, time.perf_counter()
        while time.perf_counter() < began + seconds:
            body = [{"kind": f"k{count % 20}", "sent_ns": time.time_ns()}, {"kind": odd, "sent_ns": 0}]
            bench.call("POST", f"{SPACE}/publish", body)
            count += 1
            time.sleep(max(0.0, began + count / per_s - time.perf_counter()))
        if path != "absent":
            bench.call("DELETE", f"{SPACE}/subscriptions/{odd}")
            bench.call("DELETE", f"/v1/subscribers/{odd}")
        return np.array([at - sent for at, sent in bench.wait(count, measured=True) if sent]) / 1e6

    measure("answer")  # warm
    found: dict[str, list[np.ndarray]] = {path: [] for path in _TURNS}
    for round in range(rounds):
        for path in np.roll(_TURNS, round):
            found[path].append(measure(path))
        p99 = [np.percentile(found[path][-1], 99) for path in _TURNS]
        print(f"hanging endpoint, round {round + 1}: p99 {_told(p99)}", flush=True)
    everything = [np.concatenate(found[path]) for path in _TURNS]
    for share in (50, 90, 99):
        values = [np.percentile(one, share) for one in everything]
        print(f"hanging endpoint, {len(everything[0]):,} deliveries each: p{share} {_told(values)}", flush=True)


def _told(ms: list[float]) -> str:
    each = ", ".join(f"{path} {value:.1f} ms" for path, value in zip(_TURNS, ms, strict=True))
    return f"of the others: {each}: hang / absent {ms[2] / ms[0]:.2f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscribers", type=int, default=50)
    parser.add_argument("--events", type=int, default=400)
    parser.add_argument("--only", choices=["throughput", "hanging"])
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of one turn; a try to the endpoint that hangs ends after 15 s"
    )
    parser.add_argument("--rounds", type=int, default=4)
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
                hanging(bench, asked.rate, asked.seconds, asked.rounds)
    here.send("end")


if __name__ == "__main__":
    main()
