"""Who has to leave when a peer is full."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter

import pytest

from wherecast.overlay.connection import ConnectionLimits, Door, PeerLinks
from wherecast.overlay.frames import Reason
from wherecast.overlay.lookup import MAX_ITEMS, Router
from wherecast.overlay.messages import Find, Item, Ping, Route, Send
from wherecast.overlay.positions import Contact
from wherecast.overlay.settings import RingSettings

LIMITS = ConnectionLimits(connections=6, links=2, backlog=1, strangers=4, strangers_per_address=2, unfinished_bytes=100)


class Hall:
    """A door, and the names of those who had to leave, in order."""

    def __init__(self):
        self.gone, self.reasons, self.now = [], [], 0
        self.door = Door(LIMITS, lambda address, reason: self.reasons.append((address, reason)))

    def enter(self, name, address="10.0.0.1", *, is_proven=False):
        self.now += 1
        visit = self.door.enter((address, 1), lambda: self.gone.append(name), self.now)
        if is_proven:
            visit.proved()
        return visit


def test_the_oldest_stranger_of_an_address_goes_first():
    """The third unfinished handshake from one address ends the first; other addresses are not touched."""
    hall = Hall()
    hall.enter("other", "10.0.0.2")
    for name in "abc":
        hall.enter(name)
    assert hall.gone == ["a"]
    assert hall.reasons == [("10.0.0.1", "too many unfinished handshakes from this address")]


def test_strangers_are_bounded_in_total():
    """However many addresses they come from."""
    hall = Hall()
    for number in range(7):
        hall.enter(number, f"10.0.1.{number}")
    assert hall.gone == [0, 1, 2]


def test_a_stranger_goes_before_anybody_known():
    """A full peer makes room at the cost of who has not shown anything yet."""
    hall = Hall()
    hall.enter("stranger", "10.0.0.9")
    for name in "abcde":
        hall.enter(name, is_proven=True)
    hall.enter("new")
    assert hall.gone == ["stranger"]


def test_the_quietest_of_the_largest_crowd_goes():
    """An address with many connections cannot push out those of others, however quiet they are."""
    hall = Hall()
    hall.enter("honest", "10.0.0.2", is_proven=True)
    crowd = [hall.enter(name, is_proven=True) for name in "abcde"]
    crowd[0].holds(0, 50)  # has just said something
    hall.enter("new", "10.0.0.3")
    hall.enter("next", "10.0.0.3", is_proven=True)
    assert hall.gone == ["b", "new"]
    crowd[1].proved()  # too late: it has left
    hall.door.leave(crowd[1])
    hall.enter("last", "10.0.0.3", is_proven=True)
    assert hall.gone == ["b", "new", "c"]


def test_unfinished_frames_are_bounded_in_total():
    """The one that was begun first goes; what has left is not counted any more."""
    hall = Hall()
    first, second, third = (hall.enter(name, is_proven=True) for name in "abc")
    first.holds(40, 1)
    second.holds(50, 2)
    first.holds(0, 3)  # complete
    first.holds(45, 4)
    third.holds(5, 5)
    assert hall.gone == []
    third.holds(6, 6)
    assert hall.gone == ["b"]
    hall.door.leave(first)
    second.holds(1000, 7)
    third.holds(100, 8)
    assert hall.gone == ["b"]
    third.holds(101, 9)
    assert hall.gone == ["b", "c"]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
    ],
)
def test_addresses_are_machines(one, other, is_same):
    """Of IPv6 the first 64 bits count."""
    hall = Hall()
    assert (hall.enter(1, one).address == hall.enter(2, other).address) == is_same


@pytest.mark.parametrize("soft", [16, 128, 1024, 1 << 20, resource.RLIM_INFINITY])
def test_limits_leave_descriptors_for_files(monkeypatch, soft):
    """Connections, links and those that are just being accepted or closed are fewer than the process may have."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    limits = ConnectionLimits.of_process()
    assert 0 < limits.strangers_per_address <= limits.strangers < limits.connections
    most = 1 << 30 if soft == resource.RLIM_INFINITY else soft
    assert limits.connections + limits.links + 2 * limits.backlog < most


def test_links_are_bounded():
    """The idle one that was used least recently ends; while none is idle, messages are dropped and counted."""

    async def run():
        async def serve(reader, writer):  # never an answer: whoever has connected waits
            await reader.read()
            writer.close()

        servers = [await asyncio.start_server(serve, "127.0.0.1", 0) for _ in range(3)]
        first, second, third = (f"127.0.0.1:{s.sockets[0].getsockname()[1]}" for s in servers)
        counters = Counter()
        links = PeerLinks(None, counters, 2)
        message = Ping(Contact(1, first))
        for endpoint in (first, second, third):
            links.send(endpoint, message)
        await asyncio.sleep(0)
        assert list(links._links) == [first, second]
        assert counters == {Reason.OVERFLOW: 1}
        links._links[second].is_quiet = True  # as it is once its message has gone
        links.send(third, message)
        assert list(links._links) == [first, third]
        await links.close(0.01)
        for server in servers:
            server.close()

    asyncio.run(run())


def test_a_hop_has_so_many_items():
    """More of them go in several frames."""

    class AlwaysOnward:
        is_member, me, first_successor = True, Contact(1 << 40, "h:1"), Contact(2 << 40, "h:2")
        settings = RingSettings()

        def owns(self, position):
            return False

        def precedes(self, position):
            return False

        def nearest(self, position, avoid):
            return Contact(3, "h:3")

    out = []
    items = [Item(n, 0, Find("h:1", n)) for n in range(2 * MAX_ITEMS + 1)]
    Router(AlwaysOnward(), print, out, is_batching=True).route(items)
    routes = [effect.message for effect in out if isinstance(effect, Send) and isinstance(effect.message, Route)]
    assert [len(route.items) for route in routes] == [MAX_ITEMS, MAX_ITEMS, 1]
    assert [i.payload.operation for route in routes for i in route.items] == list(range(len(items)))
