"""A load on a broker that records what was acknowledged, and a check of what is there afterwards.

Writers subscribe, delete and publish while the broker is killed and started again; readers follow feeds through it all. Each event
has a number that all filters compare, so who must match follows from the versions in the answers.
"""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
from tests.servers.wherecast_broker import BrokerProcess

SPACE = "/v1/spaces/numbers"


class History:
    """What the broker acknowledged, and what was asked without an answer."""

    def __init__(self) -> None:
        self.subscriptions: dict[str, dict] = {}  # by id: the acknowledged answer
        self.deleted: dict[str, int] = {}  # by id: version, or -1 if there was no answer
        self.tried: set[str] = set()
        self.events: dict[int, dict] = {}  # by number: position, version
        self.sent: set[int] = set()
        self.acknowledged = 0  # roughly: for the pace only
        self.lock = threading.Lock()


#: Subscriptions that a writer keeps: more are deleted, so that a long run does not match thousands per event.
_KEPT = 40


class Load:
    """Writers and readers of one broker; a writer rests `pause_s` between two requests."""

    def __init__(self, broker: Callable[[], BrokerProcess], seed: int, pause_s: float = 0.0) -> None:
        self.broker, self.random, self.pause_s = broker, random.Random(seed), pause_s
        self.history = History()
        self.ended = threading.Event()
        self.pool = ThreadPoolExecutor(12)
        self.work: list[Future[None]] = []
        self.seen: dict[str, list[dict]] = {}

    def start(self, *, writers: int, readers: list[str]) -> None:
        for number in range(writers):
            self.work.append(self.pool.submit(self._write, number, random.Random(self.random.random())))
        for query in readers:
            self.seen[query] = []
            self.work.append(self.pool.submit(self._read, query, random.Random(self.random.random())))

    def wait(self, count: int) -> None:
        """Wait until so many more requests are acknowledged."""
        start = self.history.acknowledged
        while self.history.acknowledged < start + count:
            assert not any(work.done() for work in self.work), [w.exception() for w in self.work if w.done()]
            time.sleep(0.005)

    def stop(self) -> None:
        """Let everybody finish; a thread that died fails the test."""
        self.ended.set()
        for done in self.work:
            done.result(60)
        self.pool.shutdown()

    def _client(self) -> httpx.Client:
        broker = self.broker()
        return httpx.Client(
            base_url=broker.url, headers={"Authorization": f"Bearer {broker.token}"}, timeout=60, verify=False
        )

    def _write(self, writer: int, rng: random.Random) -> None:
        history, count = self.history, 0
        while not self.ended.is_set():
            try:
                with self._client() as http:
                    while not self.ended.is_set():
                        count += 1
                        self._one(http, history, f"w{writer}-{count}", writer * 1_000_000 + count, rng)
                        history.acknowledged += 1
                        time.sleep(self.pause_s)
            except (httpx.TransportError, httpx.HTTPStatusError):
                time.sleep(0.05)

    def _one(self, http: httpx.Client, history: History, id: str, number: int, rng: random.Random) -> None:
        what = rng.random()
        with history.lock:
            mine = [
                i
                for i in history.subscriptions
                if i.startswith(f"{id.partition('-')[0]}-") and i not in history.deleted
            ]
        if what < 0.3 and len(mine) < _KEPT:
            history.tried.add(id)
            filter = f"n % {rng.randint(1, 4)} = 0"
            subscriber = f"p{rng.randint(0, 1)}"
            answer = http.post(f"{SPACE}/subscriptions", json={"id": id, "filter": filter, "subscriber": subscriber})
            answer.raise_for_status()
            with history.lock:
                history.subscriptions[id] = answer.json()
        elif what < 0.4 and mine:
            gone = rng.choice(mine)
            with history.lock:
                history.deleted[gone] = -1
            answer = http.delete(f"{SPACE}/subscriptions/{gone}")
            answer.raise_for_status()
            with history.lock:
                history.deleted[gone] = -2  # acknowledged; its version is read at the end
        else:
            history.sent.add(number)
            answer = http.post(f"{SPACE}/publish", json={"n": number})
            answer.raise_for_status()
            told = answer.json()
            with history.lock:
                history.events[number] = {"position": told["positions"][0], "version": told["version"]}

    def _read(self, query: str, rng: random.Random) -> None:
        """Follow a feed, break the connection now and then, go on after the last event seen."""
        seen = self.seen[query]
        last: int | None = None
        while not self.ended.is_set():
            try:
                headers = {} if last is None else {"Last-Event-ID": str(last)}
                params = query + ("&from=earliest" if last is None else "")
                with (
                    self._client() as http,
                    http.stream("GET", f"{SPACE}/feed?{params}", headers=headers, timeout=10) as answer,
                ):
                    if answer.status_code != 200:
                        raise httpx.ReadError("not now")
                    until = rng.randint(1, 60)
                    for line in answer.iter_lines():
                        if line.startswith("data: "):
                            message = json.loads(line[6:])
                            seen.append(message)
                            last, until = message["position"], until - 1
                        if until <= 0 or self.ended.is_set():
                            break
            except httpx.TransportError:
                time.sleep(0.05)


def check(load: Load) -> dict[str, int]:
    """Compare what is there with what was acknowledged; returns counts."""
    history, broker = load.history, load.broker()
    with load._client() as http:
        rows = {}
        for line in http.get(f"{SPACE}/changes?limit=100000").json()["changes"]:
            rows[line["id"]] = line
        space = http.get(SPACE).json()
        log = _whole_log(http, space["next_position"])
    # Subscriptions: what was acknowledged is there, what was deleted is not, nothing came from nowhere.
    for id, made in history.subscriptions.items():
        assert id in rows, f"lost: {id}"
        if id not in history.deleted:
            assert rows[id]["state"] == "active"
            assert rows[id]["version"] == made["version"]
        elif history.deleted[id] == -2:
            assert rows[id]["state"] == "deleted", f"undeleted: {id}"
    assert set(rows) <= history.tried
    # Events: each that was acknowledged is at its position, each was sent, and none is there twice.
    numbers = [message["data"]["n"] for message in log.values()]
    assert len(set(numbers)) == len(numbers)
    assert set(numbers) <= history.sent
    # Who must match follows from the version of an event: who was made by then and not deleted yet, and no one else.
    by_number = {message["data"]["n"]: position for position, message in log.items()}
    lives = [(id, *_life(history, row), int(row["filter"].split()[2])) for id, row in rows.items()]
    for number, told in history.events.items():
        due = {id for id, first, end, part in lives if first <= told["version"] < end and number % part == 0}
        assert by_number.get(number) == (told["position"] if due else None), f"lost or from nowhere: event {number}"
        if due:
            assert set(log[told["position"]]["subscriptions"]) == due, f"event {number}"
    # Feeds: each has exactly the matches of its subscriptions, in order, each once, up to where it came.
    for query, seen in load.seen.items():
        subscriber = query.partition("subscriber=")[2]
        mine = {id for id, row in rows.items() if not subscriber or row["subscriber"] == subscriber}
        expected = []
        for position, message in sorted(log.items()):
            matched = sorted(set(message["subscriptions"]) & mine)
            if matched:
                expected.append((position, message["data"]["n"], matched))
        _read_on(load, query, len(expected))
        got = [(m["position"], m["data"]["n"], sorted(m["subscriptions"])) for m in seen]
        assert got == expected, query
    assert broker.process is not None
    return {
        "subscriptions": len(history.subscriptions),
        "events": len(history.events),
        "matched events": len(log),
        "seen": sum(map(len, load.seen.values())),
    }


def _life(history: History, row: dict) -> tuple[float, float]:
    """The versions at which a subscription is live: the first, and the first after them."""
    if row["state"] == "deleted":  # only what was acknowledged is ever deleted
        return history.subscriptions[row["id"]]["version"], row["version"]
    return row["version"], math.inf


def _read_on(load: Load, query: str, count: int) -> None:
    """Resume a feed once more, until it has as many messages as it should; what does not come is a timeout."""
    seen = load.seen[query]
    if len(seen) >= count:
        return
    headers = {"Last-Event-ID": str(seen[-1]["position"])} if seen else {}
    params = query if seen else f"{query}&from=earliest"
    with load._client() as http, http.stream("GET", f"{SPACE}/feed?{params}", headers=headers, timeout=30) as answer:
        idle = 0
        for line in answer.iter_lines():
            if line.startswith("data: "):
                seen.append(json.loads(line[6:]))
            idle = 0 if line.startswith("data: ") else idle + 1
            if len(seen) >= count:
                return
            assert idle < 100, f"{query}: {count - len(seen)} messages do not come"


def _whole_log(http: httpx.Client, head: int) -> dict[int, dict]:
    """All matched events, from a feed of the whole space that is read to the end in one go."""
    found: dict[int, dict] = {}
    # A subscription that matches everything marks the end.
    http.put(f"{SPACE}/subscriptions/end", json={"filter": "n = -1"}).raise_for_status()
    end = http.post(f"{SPACE}/publish", json={"n": -1}).raise_for_status().json()["positions"][0]
    assert end >= head
    with http.stream("GET", f"{SPACE}/feed?from=earliest", timeout=30) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                message = json.loads(line[6:])
                if message["position"] == end:
                    break
                assert message["position"] not in found
                found[message["position"]] = message
    return found


READERS = ["", "subscriber=p0", "subscriber=p1"]


def make_space(broker: BrokerProcess) -> None:
    headers = {"Authorization": f"Bearer {broker.token}"}
    body = {"name": "numbers", "schema": {"n": "bigint"}}
    httpx.post(f"{broker.url}/v1/spaces", json=body, headers=headers, timeout=30).raise_for_status()


def run_with_kills(broker: BrokerProcess, kills: int, seed: int) -> dict[str, int]:
    """Load a broker, kill it at random moments, start it again on the same port, check."""
    rng = random.Random(seed)

    def disturb(load: Load) -> None:
        for _ in range(kills):
            load.wait(rng.randint(20, 120))
            time.sleep(rng.uniform(0, 0.02))  # somewhere within a commit
            _again(broker, broker.kill)

    return _run(broker, disturb, seed)


def run_for(broker: BrokerProcess, seconds: float, seed: int) -> dict[str, int]:
    """Load a broker for so long; now and then it is killed or stopped in good order, and started again; check."""
    rng, ends = random.Random(seed), time.monotonic() + seconds
    restarts = 0

    def disturb(load: Load) -> None:
        nonlocal restarts
        while time.monotonic() < ends:
            load.wait(rng.randint(100, 2_000))
            _again(broker, rng.choice([broker.kill, broker.stop]))
            restarts += 1

    return {**_run(broker, disturb, seed, pause_s=0.005), "restarts": restarts}


def _again(broker: BrokerProcess, end: Callable[[], None]) -> None:
    port = broker.port
    end()
    broker.start(port)


def _run(broker: BrokerProcess, disturb: Callable[[Load], None], seed: int, *, pause_s: float = 0.0) -> dict[str, int]:
    make_space(broker)
    load = Load(lambda: broker, seed, pause_s)
    load.start(writers=4, readers=READERS)
    disturb(load)
    load.wait(50)
    load.stop()
    counts = check(load)
    assert counts["events"]
    assert counts["subscriptions"]
    assert counts["seen"]
    return counts
