"""A peer: a node of the ring over TCP, with subscribers and a memory.

Theory of operation
-------------------
Everything that decides is in `pubsub.Node`; a peer carries messages and timers to it and effects from it (`driver`), keeps what
must not be forgotten (`peer_state`), answers clients, and sees to it that it is in a ring (`entry`): a peer that has lost
its ring, because all whom it followed are gone, enters again as a new node. All runs on one event loop, so nothing
needs a lock against the node.

Who connects is let in, and others may have to go (`Door`). What arrives is looked at three times: as a frame (`frames`), as a record (`wire`), and as something that can be true
(`admission`). What fails is dropped, and counted by its reason.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wherecast.errors import WherecastError
from wherecast.overlay.admission import Admission
from wherecast.overlay.connection import Connection, ConnectionLimits, Door, PeerLinks
from wherecast.overlay.driver import Driver
from wherecast.overlay.entry import Entrance, Gathering, Way
from wherecast.overlay.frames import FrameError, Reason
from wherecast.overlay.messages import Deliver
from wherecast.overlay.peer_state import PeerState, Subscription
from wherecast.overlay.placement import RingPlacement
from wherecast.overlay.positions import Contact
from wherecast.overlay.pubsub import RingNode
from wherecast.overlay.requests import (
    Done,
    Enter,
    Envelope,
    Founders,
    Inspect,
    PeerError,
    Publish,
    Published,
    Refused,
    Reply,
    Request,
    Rules,
    Status,
    Subscribe,
    Taken,
    Told,
    Waiting,
    Welcome,
    endpoint_of,
    is_address,
    parse_endpoint,
)
from wherecast.overlay.subscribers import Subscribers
from wherecast.overlay.wire import WireError

MAX_WAIT_MS = 120_000
#: Events in one request, and characters in one event: read as JSON they take up to 25 times as much.
MAX_EVENTS = 10_000
MAX_EVENT_CHARS = 1 << 20
#: How often a refusal of one kind is logged; all are counted.
_LOG_S = 60.0
_GOODBYE_S = 2.0
_LOOK_S = 0.2
#: Entering that has led nowhere for so long is begun anew.
_ENTER_S = 30.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """How a peer is started."""

    listen: str
    join: tuple[str, ...] = ()
    rules: Rules | None = None  # None: the ring's
    founders: int = 0  # how many to gather; 0: this peer founds no ring
    secret: bytes | None = None
    state: Path | None = None


class Peer:
    """Start it with `run`; `report` hears, in words, what it is doing."""

    def __init__(self, options: PeerOptions, report: Callable[[str], None]) -> None:
        if not options.join and not (options.founders and options.rules):
            raise PeerError(
                "a peer that does not join a ring starts one, and needs a schema and the number of founders"
            )
        self._options = options
        self._report = report
        self.counters: Counter[str] = Counter()
        self._state = PeerState(options.state)
        self._limits = ConnectionLimits.of_process()
        self._links = PeerLinks(options.secret, self.counters, self._limits.links)
        self._door = Door(self._limits, lambda address, text: self._refuse(Reason.CROWDED, address, text))
        self._logged_s: dict[Reason, float] = {}
        self._subscribers = Subscribers(options.listen, self._state, self.counters)
        self._gathering: Gathering | None = None
        self._driver: Driver | None = None
        self._way: Way | None = None
        self._began_s = 0.0
        self._admission: Admission | None = None
        self._connections: set[Connection] = set()
        self._serving: set[asyncio.Task[Any]] = set()

    # -- life -------------------------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Listen, enter a ring, stay in one until told to stop, then leave."""
        host, port = parse_endpoint(self._options.listen)
        try:
            server = await asyncio.start_server(self._serve, host, port, backlog=self._limits.backlog)
        except OSError as error:
            self._state.close()
            raise PeerError(f"cannot listen on {self._options.listen}: {error.strerror or error}") from None
        stay, told = asyncio.create_task(self._stay()), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({stay, told}, return_when=asyncio.FIRST_COMPLETED)
            if stay.done():
                stay.result()
        finally:
            server.close()
            await self._end(stay, told)

    async def _end(self, *tasks: asyncio.Task[Any]) -> None:
        for task in tasks:
            task.cancel()
        for connection in self._connections:
            connection.close()
        if self._serving:  # clients that go take their subscriptions with them
            await asyncio.wait(self._serving, timeout=_GOODBYE_S)
        if self._driver is not None:
            self._save(self._driver)
            self._driver.node.leave()
            self._driver.stop()
        await self._links.close(_GOODBYE_S)
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*tasks, *self._serving, return_exceptions=True)
        self._state.close()

    async def _stay(self) -> None:
        """Be in a ring, again and again."""
        while True:
            options = self._options
            if options.founders and options.rules is not None:
                self._gathering = Gathering(options.listen, options.rules, options.founders)
            known = dict.fromkeys((*options.join, *self._state.neighbours()))
            known.pop(options.listen, None)
            entrance = Entrance(options.listen, options.secret, options.rules, self._gathering)
            driver = self._begin(await entrance.find(list(known), self._report))
            if await self._entered(driver):
                self._report(f"in the ring as {driver.node.ring.me.id:x}")
                restoring = asyncio.create_task(self._restore(driver))
                try:
                    await self._watch(driver)
                finally:
                    restoring.cancel()
                self._subscribers.is_restored = False
                self._report("the ring is lost; entering again as a new node")
            driver.stop()
            self._driver = None

    def _begin(self, way: Way) -> Driver:
        placement = RingPlacement(way.rules.schema, way.rules.settings)
        node = RingNode(way.contact(way.address), placement)
        driver = Driver(node, self._links.send, self.counters)
        self._driver, self._way, self._admission = driver, way, Admission(placement)
        self._began_s = asyncio.get_running_loop().time()
        if way.founders:
            node.found([way.contact(address) for address in way.founders])
        else:
            node.join(way.bootstraps)
        driver.settle()
        return driver

    async def _entered(self, driver: Driver) -> bool:
        for _ in range(int(_ENTER_S / _LOOK_S)):
            if driver.node.ring.is_member:
                return True
            await asyncio.sleep(_LOOK_S)
        return False

    async def _restore(self, driver: Driver) -> None:
        while True:
            try:
                await self._subscribers.restore(driver)
            except PeerError as error:
                self._report(f"subscriptions are not all stored yet: {error}")
            else:
                return

    async def _watch(self, driver: Driver) -> None:
        """Return when the ring is lost. Meanwhile, write down what it is."""
        loop, saved = asyncio.get_running_loop(), 0.0
        while driver.node.ring.is_member:
            if loop.time() - saved > driver.node.settings.repair_ms / 1000:
                self._save(driver)
                saved = loop.time()
            await asyncio.sleep(_LOOK_S)

    def _save(self, driver: Driver) -> None:
        ring = driver.node.ring
        if ring.is_member:
            contacts = [*ring.successors, *([ring.predecessor] if ring.predecessor else []), *ring.fingers.values()]
            endpoints = dict.fromkeys(endpoint_of(contact.address) for contact in contacts)
            endpoints.pop(self._options.listen, None)
            self._state.save_ring(list(endpoints), driver.node.lists.entries(0, 0))

    # -- who connects -----------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection, task = None, asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        peername = writer.get_extra_info("peername")
        visit = self._door.enter(peername, writer.transport.abort, asyncio.get_running_loop().time())
        try:
            connection = await Connection.accept(reader, writer, self._options.secret, visit)
            self._connections.add(connection)
            while True:
                await self._take(connection, visit.address)
        except FrameError as error:
            self._refuse(error.reason, visit.address, str(error))
        except TimeoutError:
            self._refuse(Reason.SILENT, visit.address, "no handshake, or not the rest of a frame, in time")
        except (OSError, asyncio.CancelledError):  # gone; or this peer is stopping, and nobody awaits a server's task
            pass
        except Exception:  # noqa: BLE001 - a defect of ours ends this connection, and nothing else
            self.counters[Reason.FAILED] += 1
            _log.exception("a connection ended by a defect")
        finally:
            writer.close()
            self._door.leave(visit)
            if connection is not None:
                with suppress(PeerError, asyncio.CancelledError):
                    await self._subscribers.detach(connection, lambda: self._driver)
                self._connections.discard(connection)
            self._serving.discard(task)

    def _refuse(self, reason: Reason, address: str, text: str) -> None:
        """Count what was dropped, and log it unless the same has just been logged: a stranger must not fill the disk."""
        self.counters[reason] += 1
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._logged_s.get(reason, now_s - _LOG_S) + _LOG_S:
            self._logged_s[reason] = now_s
            _log.warning("%s, from %s: %s (%d so far)", reason, address, text, self.counters[reason])

    async def _take(self, connection: Connection, address: str) -> None:
        """One record: a message for the node, or a request."""
        try:
            record = await connection.receive()
            if isinstance(record, Envelope):
                self._receive(record)
                return
            if not isinstance(record, Request) or (isinstance(record, Enter) and not is_address(record.address)):
                raise WireError(f"a {type(record).__name__} that nobody asked for")
        except WireError as error:
            self._refuse(Reason.MALFORMED, address, str(error))
            return
        reply = await self._answer(connection, record)
        if reply is not None:
            connection.send(reply)
            await connection.drain()

    def _receive(self, envelope: Envelope) -> None:
        """A message from another peer. Raises WireError if it cannot be."""
        driver, to, message = self._driver, envelope.to, envelope.message
        if driver is None or self._admission is None or to not in (driver.address, self._options.listen):
            self.counters[Reason.STALE] += 1
            return
        self._admission.check(message)
        self.counters["received"] += 1
        if isinstance(message, Deliver):
            try:
                answer = self._subscribers.deliver(message, driver.node.placement.schema)
            except ValueError as error:  # a key that does not stand for a value
                raise WireError(str(error)) from None
            if answer.to == driver.address:
                driver.receive(answer.message)
            else:
                self._links.send(answer.to, answer.message)
        elif to == driver.address:
            driver.receive(message)
        else:
            self.counters[Reason.STALE] += 1

    # -- requests ---------------------------------------------------------------------------------------------------

    async def _answer(self, connection: Connection, request: Request) -> Reply | None:
        if isinstance(request, Enter):
            return self._let_in(request)
        if isinstance(request, Inspect):
            return Status(json.dumps(self.status()))
        if isinstance(request, Taken):
            self._state.take_notices(request.subscription, request.number)
            return None
        driver = self._driver
        if driver is None or not driver.node.ring.is_member:
            return Refused("PeerError", "this peer is not in a ring yet; try again, or another peer")
        try:
            if isinstance(request, Publish):
                return await self._publish(driver, request)
            if isinstance(request, Subscribe):
                wanted = Subscription(request.subscription, request.filter, request.is_durable)
                await self._subscribers.subscribe(driver, wanted, connection)
            else:
                await self._subscribers.unsubscribe(driver, request.subscription)
        except WherecastError as error:
            return Refused(type(error).__name__, _printable(str(error)))
        except ValueError as error:  # a text that is not valid Unicode
            return Refused("ValueError", _printable(str(error)))
        return Done()

    def _let_in(self, enter: Enter) -> Reply:
        """The founders of a ring are told of each other, others of a member to join through."""
        driver, way = self._driver, self._way
        if driver is None or way is None:
            return (self._gathering and self._gathering.add(enter.address)) or Waiting(0, 0)
        ring = driver.node.ring
        if not ring.is_member:
            return Waiting(0, 0)
        # Later than this the others may have taken a founder for dead, and it must join like anybody else.
        patience_s = ring.settings.misses * ring.settings.stabilise_ms / 1000
        if enter.address in way.founders and asyncio.get_running_loop().time() < self._began_s + patience_s:
            return Founders(way.rules.to_json(), way.founders)
        contacts = dict.fromkeys((ring.me, *ring.successors))
        return Welcome(way.rules.to_json(), tuple(contact.address for contact in contacts))

    async def _publish(self, driver: Driver, request: Publish) -> Published:
        if len(request.events) > MAX_EVENTS:
            raise PeerError(f"{len(request.events)} events in one request; publish at most {MAX_EVENTS} at a time")
        # One after another, so that the JSON of one is gone before the next is read.
        operations = driver.node.publish_many(map(_read_event, request.events))
        waiting = [asyncio.ensure_future(driver.ended(operation)) for operation in operations]
        driver.settle()
        self.counters["published"] += len(operations)
        if waiting:
            await asyncio.wait(waiting, timeout=min(max(request.wait_ms, 0), MAX_WAIT_MS) / 1000)
        told = []
        for future in waiting:
            if future.done() and future.exception() is None:
                outcome = future.result()
                told.append(Told(len(outcome.subscriptions), outcome.hops, outcome.is_complete))
            else:  # the node goes on trying
                future.cancel()
                told.append(Told(0, 0, is_complete=False))
        return Published(tuple(told))

    def status(self) -> dict[str, object]:
        """What there is to know about this peer, as JSON has it."""
        found: dict[str, object] = {
            "peer": self._options.listen,
            "is_member": False,
            "subscriptions": self._subscribers.count,
            "is_restored": self._subscribers.is_restored,
            "clients": len(self._connections),
            "counters": dict(sorted(self.counters.items())),
        }
        if self._driver is None:
            return found
        ring = self._driver.node.ring
        return found | {
            "is_member": ring.is_member,
            "bits": ring.settings.bits,
            "id": f"{ring.me.id:x}",
            "predecessor": None if ring.predecessor is None else _shown(ring.predecessor),
            "successors": [_shown(contact) for contact in ring.successors],
            "fingers": len(set(ring.fingers.values())),
            "keys": len(self._driver.node.lists),
        }


def _printable(text: str) -> str:
    """Without halves of characters, which no record can carry."""
    return text.encode(errors="backslashreplace").decode()


def _shown(contact: Contact) -> dict[str, str]:
    return {"peer": endpoint_of(contact.address), "id": f"{contact.id:x}"}


def _read_event(text: str) -> dict[str, object]:
    if len(text) > MAX_EVENT_CHARS:
        raise PeerError(f"an event of {len(text)} characters; at most {MAX_EVENT_CHARS}")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PeerError(f"an event is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise PeerError("an event must be a JSON object")
    return found
