"""Peers as processes over TCP: what a killed peer does to the others, and what strangers can do to a peer."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import struct
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from typing import get_args, get_origin, get_type_hints

import pytest
from tests.servers.ports import free_ports

from wherecast.engine.engine import Engine
from wherecast.language.events.schema import Schema
from wherecast.overlay.client import PeerClient
from wherecast.overlay.connection import Connection
from wherecast.overlay.frames import MAX_BODY, VERSION, Framing, Reason
from wherecast.overlay.local_ring import LocalRing
from wherecast.overlay.messages import Ask, Copy, Entry, Nearer, Piece, Sync
from wherecast.overlay.peer import Peer, PeerOptions
from wherecast.overlay.picture import draw_text, places
from wherecast.overlay.positions import Contact
from wherecast.overlay.requests import Envelope, Inspect, PeerError, Rules
from wherecast.overlay.settings import RingSettings
from wherecast.overlay.wire import WIRE, WireError

pytestmark = pytest.mark.slow

FIELDS = {
    "symbol": "string",
    "price": {"type": "double", "min": 0, "max": 1000, "precision": 0.01},
    "volume": {"type": "bigint", "min": 0, "max": 100_000},
}
SCHEMA = Schema.of(FIELDS)
SECRET = b"a secret of the whole ring"
#: Quick to notice things, for peers in one process.
QUICK = RingSettings(
    successors=2, copies=2, stabilise_ms=200, fix_fingers_ms=200, repair_ms=400, retry_ms=300, tries=10, misses=3
)


def free_endpoints(count):
    """Addresses that nobody listens on."""
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


async def eventually(check, most_s=20.0):
    """The first true answer of a check that is asked again and again."""
    async with asyncio.timeout(most_s):
        while not (found := check()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        return found


class Running:
    """A peer on this test's event loop."""

    def __init__(self, options):
        self.said = []
        self.peer = Peer(options, self.said.append)
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(self.peer.run(self.stop))

    async def end(self):
        self.stop.set()
        await self.task


@asynccontextmanager
async def small_ring(size=3, secret=None, state=None):
    """Peers in this process, all founders."""
    endpoints = free_endpoints(size)
    running = {}
    for number, endpoint in enumerate(endpoints):
        options = PeerOptions(
            endpoint,
            () if not number else (endpoints[0],),
            Rules(QUICK, SCHEMA),
            0 if number else size,
            secret,
            None if state is None else state / str(number),
        )
        running[endpoint] = Running(options)
    try:
        await eventually(lambda: all(r.peer.status()["is_member"] for r in running.values()))
        yield running
    finally:
        for each in running.values():
            each.stop.set()
        await asyncio.gather(*(each.task for each in running.values()), return_exceptions=True)


async def told(client, count, most_s=20.0):
    """The events of the next notices, each taken."""
    found = []
    async with asyncio.timeout(most_s):
        for _ in range(count):
            notice = await client.notice()
            client.taken(notice)
            found.append(json.loads(notice.event))
    return found


def event(price, symbol="IBM"):
    return json.dumps({"symbol": symbol, "price": price})


class TestInOneProcess:
    def test_events_reach_subscribers_of_other_peers(self):
        """A subscription at one peer hears what is published at another; the other filter does not."""

        async def run():
            async with small_ring() as ring:
                first, second, third = ring
                async with PeerClient(first) as low, PeerClient(second) as high, PeerClient(third) as publisher:
                    await low.subscribe("s", "price < 100 AND symbol = 'IBM'")
                    await high.subscribe("s", "price >= 100")
                    result = await publisher.publish([event(99.5), event(100.0), event(5, "X")])
                    assert [t.is_complete for t in result] == [True] * 3
                    assert [t.clauses for t in result] == [1, 1, 0]
                    assert await told(low, 1) == [{"symbol": "IBM", "price": 99.5}]
                    assert await told(high, 1) == [{"symbol": "IBM", "price": 100.0}]
                # Both were bound to their connections.
                await eventually(lambda: not any(r.peer.status()["subscriptions"] for r in ring.values()))
                async with PeerClient(third) as publisher:
                    (after,) = await publisher.publish([event(99.5)])
                    assert after == (0, after.hops, True)

        asyncio.run(run())

    def test_matches_are_the_engines(self):
        """Random filters and events: told is exactly who the engine names."""

        async def run():
            rng, engine = random.Random(3), Engine(SCHEMA)
            async with (
                small_ring() as ring,
                PeerClient(next(iter(ring))) as subscriber,
                PeerClient(list(ring)[-1]) as publisher,
            ):
                for number in range(25):
                    low = rng.randrange(900)
                    filter = rng.choice(
                        [
                            f"price BETWEEN {low} AND {low + 100}",
                            f"symbol = 'S{rng.randrange(4)}' AND volume > {rng.randrange(100_000)}",
                            f"symbol IN ('S1', 'S{rng.randrange(4)}') OR price < {low / 2}",
                            f"symbol LIKE 'S{rng.randrange(4)}%' AND price <> {low}",
                        ]
                    )
                    engine.subscribe(number, filter)
                    await subscriber.subscribe(number, filter)
                due, events = [], []
                for number in range(40):
                    made = {"symbol": f"S{rng.randrange(5)}", "price": rng.randrange(1000), "volume": number * 2500}
                    events.append(json.dumps(made))
                    due += [(number * 2500, subscription) for subscription in engine.match(made)]
                assert all(t.is_complete for t in await publisher.publish(events))
                heard = []
                async with asyncio.timeout(20):
                    for _ in due:
                        notice = await subscriber.notice()
                        heard.append((json.loads(notice.event)["volume"], notice.subscription))
                assert sorted(heard) == sorted(due)
                assert len(due) > 50

        asyncio.run(run())

    def test_filters_are_changed_and_refused(self):
        """The same id with another filter is an update; what the overlay cannot serve leaves nothing behind."""

        async def run():
            async with (
                small_ring() as ring,
                PeerClient(next(iter(ring))) as client,
                PeerClient(next(iter(ring))) as other,
            ):
                await client.subscribe("s", "price < 100")
                await client.subscribe("s", "price > 500")
                with pytest.raises(PeerError, match="a client is attached"):
                    await other.subscribe("s", "price > 1")
                for filter, reason in [
                    ("price >", "(?i)syntax|expect|end"),
                    ("prize > 1", "prize"),
                    ("symbol IS NULL", "cannot store"),
                ]:
                    with pytest.raises(PeerError, match=reason):
                        await client.subscribe("bad", filter)
                with pytest.raises(PeerError, match="at most 1,000 characters"):
                    await client.subscribe("x" * 1001, "price > 1")
                with pytest.raises(PeerError, match="no subscription 'bad'"):
                    await client.unsubscribe("bad")
                with pytest.raises(PeerError, match="price"):
                    await client.publish(['{"price": "much"}'])
                for no_event in ("[1]", "{", '"\\ud800"', '{"symbol": "\\ud800"}'):
                    with pytest.raises(PeerError):
                        await client.publish([no_event])
                low, high = await client.publish([event(50), event(600)])
                assert (low.clauses, high.clauses) == (0, 1)
                assert await told(client, 1) == [{"symbol": "IBM", "price": 600.0}]
                await client.unsubscribe("s")
                assert (await client.publish([event(600)]))[0].clauses == 0

        asyncio.run(run())

    def test_durable_subscriptions_outlive_client_and_peer(self, tmp_path):
        """Notices wait for the client; a peer that comes back is a new node, and its subscriptions are served again."""

        async def run():
            async with small_ring(4, state=tmp_path) as ring:
                endpoints = list(ring)
                home = endpoints[2]
                async with PeerClient(home) as client:
                    await client.subscribe("kept", "price < 100", is_durable=True)
                async with PeerClient(endpoints[0]) as publisher:
                    assert (await publisher.publish([event(1), event(2)]))[1].is_complete
                before = ring[home].peer.status()["id"]
                await ring[home].end()
                ring[home] = Running(
                    PeerOptions(home, (endpoints[0],), None, 0, None, tmp_path / "2")  # rules are the ring's
                )
                await eventually(lambda: ring[home].peer.status()["is_member"])
                assert ring[home].peer.status()["id"] != before
                state = ring[home].peer._state
                async with PeerClient(endpoints[1]) as publisher, PeerClient(home) as client:
                    # The old registration is still there, or the new one is not yet: told once all the same.
                    (third,) = await publisher.publish([event(3)], wait_s=20)
                    assert (third.clauses in (1, 2), third.is_complete) == (True, True)
                    await client.subscribe("kept", "price < 100", is_durable=True)
                    assert [e["price"] for e in await told(client, 3)] == [1.0, 2.0, 3.0]
                    await client.status()  # what was taken has arrived
                    assert state.notices("kept") == []
                    await eventually(lambda: ring[home].peer.status()["is_restored"])
                    await eventually(lambda: len(state.registrations("kept")) == 1)  # the old one has gone
                    assert (await publisher.publish([event(3.5)]))[0][::2] == (1, True)
                    assert await told(client, 1) == [{"symbol": "IBM", "price": 3.5}]
                    await client.unsubscribe("kept")
                    assert state.registrations() == {}
                    assert (await publisher.publish([event(4)]))[0].clauses == 0

        asyncio.run(run())

    def test_a_ring_that_is_gone_is_founded_again_from_what_peers_remember(self, tmp_path):
        """All peers stop and start; filters come back with the peers that keep them."""

        async def run():
            async with small_ring(state=tmp_path) as ring:
                endpoints = list(ring)
                async with PeerClient(endpoints[1]) as client:
                    await client.subscribe("kept", "price < 100", is_durable=True)
                for each in ring.values():
                    await each.end()
                for number, endpoint in enumerate(endpoints):
                    join = (endpoints[0],) if number else ()
                    rules = Rules(QUICK, SCHEMA)
                    options = PeerOptions(endpoint, join, rules, 0 if number else 3, None, tmp_path / str(number))
                    ring[endpoint] = Running(options)
                await eventually(lambda: all(r.peer.status()["is_restored"] for r in ring.values()))
                async with PeerClient(endpoints[2]) as publisher, PeerClient(endpoints[1]) as client:
                    await client.subscribe("kept", "price < 100", is_durable=True)
                    assert (await publisher.publish([event(7)], wait_s=20))[0].is_complete
                    assert await told(client, 1) == [{"symbol": "IBM", "price": 7.0}]

        asyncio.run(run())

    def test_a_peer_that_lost_its_ring_enters_the_next_as_a_new_node(self):
        """All others go; when they are back, the one that stayed has another id, and its client is served as before."""

        async def run():
            async with small_ring() as ring:
                first, second, third = ring
                async with PeerClient(third) as client:
                    await client.subscribe("s", "price < 100")
                    before = ring[third].peer.status()["id"]
                    for endpoint in (first, second):
                        await ring[endpoint].end()
                    await eventually(lambda: "the ring is lost; entering again as a new node" in ring[third].said)
                    with pytest.raises(PeerError, match="not in a ring"):
                        await client.publish([event(1)])
                    ring[first] = Running(PeerOptions(first, (), Rules(QUICK, SCHEMA), 3))
                    ring[second] = Running(PeerOptions(second, (first,)))
                    await eventually(lambda: all(r.peer.status()["is_restored"] for r in ring.values()))
                    assert ring[third].peer.status()["id"] != before
                    async with PeerClient(second) as publisher:
                        await publisher.publish([event(2)], wait_s=20)
                    assert await told(client, 1) == [{"symbol": "IBM", "price": 2.0}]

        asyncio.run(run())

    def test_a_peer_with_another_schema_is_not_let_in(self):
        """It says so, and the ring does not notice."""

        async def run():
            async with small_ring() as ring:
                (endpoint,) = free_endpoints(1)
                rules = Rules(QUICK, Schema.of({"other": "string"}))
                with pytest.raises(PeerError, match="another schema"):
                    await Running(PeerOptions(endpoint, tuple(ring), rules)).task

        asyncio.run(run())

    def test_a_state_directory_has_one_peer(self, tmp_path):
        """The second is refused, as is a file that is no state."""
        options = PeerOptions("127.0.0.1:1", (), Rules(QUICK, SCHEMA), 1, None, tmp_path)
        first = Peer(options, print)
        with pytest.raises(PeerError, match="does another peer use it"):
            Peer(options, print)
        first._state.close()
        (tmp_path / "peer.sqlite").write_bytes(b"no database at all, but long enough to look like one" * 50)
        with pytest.raises(PeerError, match="damaged"):
            Peer(options, print)


def random_value(rng, hint):
    """A value of an annotated type; small numbers and good addresses are frequent."""
    if hint in WIRE._numbers:
        return hint(*[random_value(rng, h) for h in get_type_hints(hint).values()])
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple and arguments[-1] is Ellipsis:
        return tuple(random_value(rng, arguments[0]) for _ in range(rng.randrange(3)))
    if origin is tuple:
        return tuple(random_value(rng, argument) for argument in arguments)
    if arguments:
        return random_value(rng, rng.choice(arguments))
    makers = {
        int: lambda: rng.choice(
            (rng.randrange(-2, 8), rng.getrandbits(160), rng.getrandbits(62), -rng.getrandbits(180))
        ),
        bool: lambda: rng.random() < 0.5,
        str: lambda: rng.choice(
            ("127.0.0.1:9/0123456789abcdef", "127.0.0.1:9", "price < 10", "é", "{}", '{"price": 1e999}')
        ),
        bytes: lambda: rng.randbytes(rng.randrange(4)),
    }
    return makers.get(hint, lambda: None)()


def raw(endpoint):
    host, _, port = endpoint.partition(":")
    return asyncio.open_connection(host, int(port))


class TestStrangers:
    """Whatever arrives, the peer counts it by reason, stays in its ring and serves others."""

    async def healthy(self, ring, secret=None):
        assert all(r.peer.status()["is_member"] and not r.task.done() for r in ring.values())
        async with PeerClient(next(iter(ring)), secret) as client:
            await client.subscribe("s", "price < 10")
            assert (await client.publish([event(1)]))[0].is_complete
            assert len(await told(client, 1)) == 1

    def test_bytes_that_are_no_frames(self):
        """Noise, another version, a length beyond the limit, half a frame."""

        async def run():
            async with small_ring() as ring:
                endpoint, running = next(iter(ring.items()))
                counted = running.peer.counters
                rng = random.Random(1)
                head = struct.Struct(">BQI")
                good = Framing(None, is_opener=True).greeting
                proven = good + head.pack(VERSION, 0, 0)
                cases = [
                    (b"GET / HTTP/1.1\r\n\r\n", Reason.MALFORMED),
                    (good[:3] + bytes([VERSION + 1]) + good[4:], Reason.VERSION),
                    (good[:4] + b"\1" + good[5:], Reason.UNAUTHENTICATED),
                    (good + head.pack(VERSION + 1, 0, 1) + b"x", Reason.VERSION),
                    (good + head.pack(VERSION, 0, 1) + b"x", Reason.OVERSIZED),
                    (good + head.pack(VERSION, 1, 0), Reason.REPLAYED),
                    (proven + head.pack(VERSION, 1, MAX_BODY + 1), Reason.OVERSIZED),
                    (proven + head.pack(VERSION, 2, 1) + b"x", Reason.REPLAYED),
                    (proven + head.pack(VERSION, 1, 3) + b"\xc1\xc1\xc1", Reason.MALFORMED),
                    (proven + head.pack(VERSION, 1, 1000) + b"\x91" * 1000, Reason.MALFORMED),
                ]
                for data, reason in cases:
                    before = counted[reason]
                    _, writer = await raw(endpoint)
                    writer.write(data)
                    await eventually(lambda b=before, r=reason: counted[r] == b + 1)
                    writer.close()
                for _ in range(50):
                    _, writer = await raw(endpoint)
                    writer.write(rng.choice((b"", good, proven)) + rng.randbytes(rng.randrange(200)))
                    writer.close()
                await self.healthy(ring)
                assert counted[Reason.FAILED] == 0

        asyncio.run(run())

    def test_records_that_cannot_be_true(self):
        """Lists, ids and keys that the ring does not have are counted and never reach the node."""

        async def run():
            async with small_ring() as ring:
                endpoint, running = next(iter(ring.items()))
                me = running.peer._driver.address
                stranger = Contact(5, "127.0.0.1:9/0123456789abcdef")
                lies = [
                    Ask(Contact(-1, stranger.address), True),
                    Ask(Contact(1 << 160, stranger.address), True),
                    Ask(Contact(5, "nowhere"), True),
                    Ask(Contact(5, 7), True),
                    Copy(stranger, 0, (Entry(999, 1, (Piece(0, 0, 1, None),)),)),
                    Copy(stranger, 0, (Entry(0, 1, (Piece(5, 4, 1, None),)),)),
                    Copy(stranger, 0, (Entry(2, 1, (Piece(0, 1 << 170, 1, None),)),)),
                    Nearer(Contact(5, "x:99999999"), 0, stranger, True),
                    Sync(stranger, 0, 1 << 200, 0),
                ]
                counted, before = running.peer.counters, running.peer._driver.node.lists.entries(0, 0)
                connection = await Connection.open(endpoint, None)
                for lie in lies:
                    connection.send(Envelope(me, lie))
                connection.send(Envelope("127.0.0.1:1/0000000000000000", Ask(stranger, True)))
                connection.send(Ask(stranger, True))  # in no envelope
                await eventually(lambda: counted[Reason.MALFORMED] == len(lies) + 1)
                assert counted[Reason.STALE] >= 1
                connection.send(Inspect())  # the connection is still good
                assert WIRE.encode(await connection.receive())
                connection.close()
                assert running.peer._driver.node.lists.entries(0, 0) == before
                assert counted[Reason.FAILED] == 0
                await self.healthy(ring)

        asyncio.run(run())

    def test_random_records_do_no_harm(self):
        """A thousand records of every class with random fields, in good frames: the peer goes on, without a defect."""

        async def run():
            async with small_ring() as ring:
                endpoint, running = next(iter(ring.items()))
                rng, counted = random.Random(9), running.peer.counters
                connection = await Connection.open(endpoint, None)
                for number in range(1000):
                    record = random_value(rng, rng.choice(list(WIRE._numbers)))
                    if type(record).__module__.endswith("messages") and number % 2:
                        record = Envelope(running.peer._driver.address, record)
                    with suppress(WireError):  # a message that belongs in another
                        connection.send(record)
                    if number % 50 == 0:
                        await asyncio.sleep(0)
                await eventually(lambda: counted[Reason.MALFORMED] > 400)
                connection.close()
                assert counted[Reason.FAILED] == 0
                await asyncio.sleep(2)  # strangers that were believed to be neighbours are found out
                await self.healthy(ring)

        asyncio.run(run())

    def test_a_secret_keeps_strangers_out(self):
        """No secret, another secret, a frame recorded on one connection and sent on another or again: all refused."""

        async def run():
            async with small_ring(secret=SECRET) as ring:
                endpoint, running = next(iter(ring.items()))
                counted = running.peer.counters
                for wrong in (None, b"another secret, as long"):
                    before = counted[Reason.UNAUTHENTICATED]
                    with pytest.raises(PeerError):
                        async with PeerClient(endpoint, wrong) as client:
                            await client.status()
                    await eventually(lambda b=before: counted[Reason.UNAUTHENTICATED] == b + 1)
                recorded = []
                for replays in ("elsewhere", "again"):
                    reader, writer = await raw(endpoint)
                    framing = Framing(SECRET, is_opener=True)
                    writer.write(framing.greeting)
                    list(framing.feed(await reader.readexactly(len(framing.greeting))))
                    writer.write(framing.proof)
                    frame = framing.seal(WIRE.encode(Inspect()))
                    reason = Reason.UNAUTHENTICATED if replays == "elsewhere" else Reason.REPLAYED
                    before = counted[reason]
                    writer.write(frame + frame if replays == "again" else b"".join(recorded) or frame[:-1] + b"?")
                    recorded.append(frame)
                    await eventually(lambda b=before, r=reason: counted[r] == b + 1)
                    writer.close()
                await self.healthy(ring, SECRET)

        asyncio.run(run())

    def test_who_says_nothing_is_let_go(self, monkeypatch):
        """A connection without a handshake ends after a while, and so does one that does not end its frame."""
        monkeypatch.setattr("wherecast.overlay.connection.HANDSHAKE_S", 0.2)
        monkeypatch.setattr("wherecast.overlay.connection.FRAME_S", 0.2)
        head = struct.Struct(">BQI")
        greeting = Framing(None, is_opener=True).greeting
        began = [b"", greeting, greeting + head.pack(VERSION, 0, 0) + head.pack(VERSION, 1, 1000) + b"x"]

        async def run():
            async with small_ring() as ring:
                endpoint, running = next(iter(ring.items()))
                for number, data in enumerate(began, 1):
                    reader, writer = await raw(endpoint)
                    writer.write(data)
                    await eventually(lambda n=number: running.peer.counters[Reason.SILENT] == n)
                    with suppress(ConnectionError):
                        while await reader.read(100):
                            pass
                    writer.close()

        asyncio.run(run())


@pytest.fixture
def processes(tmp_path):
    """A ring of eight processes with a secret and a memory; all are surely stopped."""
    (tmp_path / "schema.json").write_text(json.dumps(FIELDS))
    (tmp_path / "secret").write_bytes(SECRET)
    ring = LocalRing(
        tmp_path / "schema.json", successors=3, copies=3, secret=tmp_path / "secret", state=tmp_path / "state"
    )
    try:
        yield ring
    finally:
        for process in ring.processes.values():
            process.kill()
        for process in ring.processes.values():
            process.wait()


@pytest.mark.slow
def test_eight_processes_of_which_two_are_killed(processes):
    """Every subscription of a live peer is served through every live peer; one that starts again comes as a new node."""

    async def run():
        endpoints = free_endpoints(8)
        processes.start_all(endpoints)
        ring = places(await processes.wait_until_whole(SECRET, 60))
        order = [place.peer for place in ring]
        killed = {order[1], order[2]}  # neighbours, but fewer than r = 3 in a row
        live = [endpoint for endpoint in endpoints if endpoint not in killed]
        clients = {}
        for endpoint in endpoints:
            clients[endpoint] = await PeerClient(endpoint, SECRET).__aenter__()
            await clients[endpoint].subscribe(f"at {endpoint}", "price BETWEEN 100 AND 800", is_durable=True)
        for endpoint in killed:
            processes.processes[endpoint].send_signal(signal.SIGKILL)
            processes.processes[endpoint].wait()
        published = []
        for number, endpoint in enumerate(live):  # at once, and while the ring heals
            async with PeerClient(endpoint, SECRET) as publisher:
                await publisher.publish([event(200 + number)], wait_s=1)
            published.append(200.0 + number)
        for endpoint in live:
            heard = [e["price"] for e in await told(clients[endpoint], len(published), most_s=40)]
            assert sorted(heard) == published
        for endpoint in killed:
            processes.start(endpoint, live[:2])
        again = places(await processes.wait_until_whole(SECRET, 60))
        assert {p.peer for p in again} == set(endpoints)
        before = {p.peer: p.id for p in ring}
        assert {p.peer for p in again if p.id != before[p.peer]} == killed
        # What the restarted peers had registered is served again, what was published meanwhile included.
        for endpoint in killed:
            clients[endpoint] = await PeerClient(endpoint, SECRET).__aenter__()
            await clients[endpoint].subscribe(f"at {endpoint}", "price BETWEEN 100 AND 800", is_durable=True)
            while not (await clients[endpoint].status())["is_restored"]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        async with PeerClient(live[0], SECRET) as publisher:
            (last,) = await publisher.publish([event(300)], wait_s=40)
            assert last.is_complete
        for endpoint in endpoints:
            heard = set()
            async with asyncio.timeout(20):
                while 300.0 not in heard:
                    heard |= {e["price"] for e in await told(clients[endpoint], 1)}
        return len(draw_text(again, 160).splitlines())

    assert asyncio.run(run()) > 10


@pytest.mark.slow
def test_the_commands_talk_to_each_other(tmp_path):
    """`peer ring`, `subscribe`, `publish`, `status`: a ring from one command, gone with it."""
    schema, events, picture = tmp_path / "schema.json", tmp_path / "events.jsonl", tmp_path / "ring.svg"
    schema.write_text(json.dumps(FIELDS))
    events.write_text(event(5) + "\n\n" + event(50) + "\n{bad\n")
    port, *_ = free_ports(3)
    command = [sys.executable, "-c", "from wherecast.cli.app import main; main()", "peer"]
    ring = subprocess.Popen(
        [*command, "ring", "--size", "3", "-s", str(schema), "--port", str(port), "--picture", str(picture)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        shown = []
        for line in ring.stdout:
            shown.append(line)
            if len(shown) == 4 + 17:
                break
        assert {line.split()[1] for line in shown[1:4]} == {f"127.0.0.1:{port + n}" for n in range(3)}
        heard = subprocess.Popen(
            [*command, "subscribe", "low", "price < 10", "-p", f"127.0.0.1:{port}", "--count", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert "subscribed" in heard.stderr.readline()
        peer = ["-p", f"127.0.0.1:{port + 1}"]
        done = subprocess.run(
            [*command, "publish", str(events), *peer, "--json"], check=False, capture_output=True, text=True
        )
        assert json.loads(done.stdout) | {"hops": 0} == {
            "events": 2,
            "clauses": 1,
            "hops": 0,
            "unconfirmed": 0,
            "refused": 1,
        }
        assert (done.returncode, "line 4: an event is not valid JSON" in done.stderr) == (1, True)
        out, _ = heard.communicate(timeout=20)
        assert json.loads(out) == {"subscription": "low", "event": {"symbol": "IBM", "price": 5.0}}
        status = subprocess.run([*command, "status", *peer, "--json"], capture_output=True, text=True, check=True)
        assert len(json.loads(status.stdout)["successors"]) == 2
    finally:
        ring.send_signal(signal.SIGINT)
        ring.wait(20)
    assert picture.read_bytes().startswith(b"<?xml")
    gone = subprocess.run([*command, "status", *peer], check=False, capture_output=True, text=True)
    assert gone.returncode == 1
    assert "no peer at" in gone.stderr
