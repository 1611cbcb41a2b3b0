"""Framed records over TCP: one connection, those that a peer keeps to others, and who may connect to it (`Door`).

Theory of operation of the door
-------------------------------
Whoever reaches the port gets in: a peer that turned new connections away when it is full could be kept full by anybody.
Instead each new connection takes the place of another one when there are too many:

- Until it has ended its handshake a connection is a *stranger*. Strangers are few, in total and from one address. The oldest goes
  first: an honest handshake takes milliseconds.
- All connections together leave enough descriptors for links to other peers and for files. When they are too many, a stranger
  goes. Without strangers it is the one that has been quiet longest, among those of the address that has most: a single
  address cannot push the others out.
- What connections have sent of frames that are not complete is bounded in total. The frame that was begun first goes, with its
  connection.

An address is that of the machine; of IPv6 the first 64 bits, since one machine may have all that follow.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from wherecast.overlay.frames import FrameError, Framing, Reason
from wherecast.overlay.messages import Copy, Entry, Handover, Message, Record, Synced
from wherecast.overlay.positions import Address
from wherecast.overlay.requests import Envelope, endpoint_of, parse_endpoint
from wherecast.overlay.wire import WIRE, WireError

_MOST_DESCRIPTORS = 1 << 16


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a peer grants to all connections together."""

    connections: int  # that were accepted
    links: int  # that it has opened itself
    backlog: int  # that the system accepts at once
    strangers: int
    strangers_per_address: int
    unfinished_bytes: int = 1 << 26

    @classmethod
    def of_process(cls) -> ConnectionLimits:
        """ConnectionLimits that fit the descriptors of this process: a half to accept, a quarter to open, the rest in reserve."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, _MOST_DESCRIPTORS)
        connections = max(most // 2, 2)
        strangers = min(connections // 2, 256)
        return cls(connections, max(most // 4, 1), max(min(most // 16, 128), 1), strangers, max(strangers // 4, 1))


@dataclass(eq=False, slots=True)
class Visit:
    """A connection that was accepted. `used_s`: when something last came or went."""

    door: Door = field(repr=False)
    address: str
    cut: Callable[[], None]
    used_s: float
    held_bytes: int = 0
    begun_s: float = 0.0  # the frame whose bytes are held

    def proved(self) -> None:
        """The handshake is over."""
        self.door.prove(self)

    def holds(self, held_bytes: int, now_s: float) -> None:
        """So much of a frame that is not complete is in memory now."""
        self.door.hold(self, held_bytes, now_s)


class Door:
    """The visits of a peer. `refused` hears whom it had to cut off, and why."""

    def __init__(self, limits: ConnectionLimits, refused: Callable[[str, str], None]) -> None:
        self._limits = limits
        self._refused = refused
        self._strangers: dict[Visit, None] = {}  # in the order of their coming
        self._known: dict[Visit, None] = {}
        self._held_bytes = 0

    def enter(self, peername: Any, cut: Callable[[], None], now_s: float) -> Visit:
        """Let a connection in, at the cost of another one if need be."""
        visit = Visit(self, _address(peername), cut, now_s)
        neighbours = [stranger for stranger in self._strangers if stranger.address == visit.address]
        if len(neighbours) >= self._limits.strangers_per_address:
            self._drop(neighbours[0], "too many unfinished handshakes from this address")
        elif len(self._strangers) >= self._limits.strangers:
            self._drop(next(iter(self._strangers)), "too many unfinished handshakes")
        if len(self._strangers) + len(self._known) >= self._limits.connections:
            self._drop(self._most_dispensable(), "too many connections")
        self._strangers[visit] = None
        return visit

    def leave(self, visit: Visit) -> None:
        """The connection is over. One that was cut off has left already."""
        if visit in self._strangers or visit in self._known:
            self._strangers.pop(visit, None)
            self._known.pop(visit, None)
            self._held_bytes -= visit.held_bytes

    def prove(self, visit: Visit) -> None:
        """A stranger no more."""
        if visit in self._strangers:
            del self._strangers[visit]
            self._known[visit] = None

    def hold(self, visit: Visit, held_bytes: int, now_s: float) -> None:
        """Note what a connection holds; if all together hold too much, the one that has held it longest goes."""
        if visit not in self._strangers and visit not in self._known:
            return
        visit.used_s = now_s
        if not visit.held_bytes:
            visit.begun_s = now_s
        self._held_bytes += held_bytes - visit.held_bytes
        visit.held_bytes = held_bytes
        while self._held_bytes > self._limits.unfinished_bytes:
            holding = [each for each in (*self._strangers, *self._known) if each.held_bytes]
            self._drop(min(holding, key=lambda each: each.begun_s), "too much of unfinished frames")

    def _most_dispensable(self) -> Visit:
        if self._strangers:
            return next(iter(self._strangers))
        ((crowd, _),) = Counter(visit.address for visit in self._known).most_common(1)
        return min((visit for visit in self._known if visit.address == crowd), key=lambda visit: visit.used_s)

    def _drop(self, visit: Visit, reason: str) -> None:
        self.leave(visit)
        visit.cut()
        self._refused(visit.address, reason)


def _address(peername: Any) -> str:
    """The machine that a socket's other end is on; '' if the system does not say."""
    if not peername:
        return ""
    address = ipaddress.ip_address(peername[0].partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped or ipaddress.IPv6Network((address, 64), strict=False))
    return str(address)


HANDSHAKE_S = 5.0
CONNECT_S = 3.0
#: A frame that has begun must be there after so long.
FRAME_S = 60.0
#: A connection to a peer that has had nothing to say for so long is closed.
IDLE_S = 60.0
#: Records that wait for a connection; what comes on top is dropped, and asked for again by whoever needs it.
MAX_WAITING = 20_000
#: Entries in one message, and about their bytes; a zone of more is sent in several.
MAX_ENTRIES = 2_000
MAX_PART_BYTES = 1 << 20
_READ_BYTES = 1 << 16
_log = logging.getLogger(__name__)


class Connection:
    """Both ends speak first; then records go either way."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, framing: Framing, visit: Visit | None = None
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._framing = framing
        self._visit = visit
        self._bodies: deque[bytes] = deque()
        # Why nothing more can be read. Not the error itself: its traceback would keep this connection, and all it holds, alive.
        self._failure: tuple[Reason, str] | None = None
        self._begun_s: float | None = None  # when the frame began that is not complete

    @classmethod
    async def open(cls, endpoint: str, secret: bytes | None) -> Connection:
        """Connect and shake hands. Raises OSError (also TimeoutError), or FrameError if the other side does not speak as a peer of this ring."""
        host, port = parse_endpoint(endpoint)
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(host, port)
            connection = cls(reader, writer, Framing(secret, is_opener=True))
            await connection._shake_hands()
            return connection

    @classmethod
    async def accept(
        cls, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes | None, visit: Visit
    ) -> Connection:
        """Shake hands with somebody who has connected. Raises TimeoutError, ConnectionError or FrameError."""
        connection = cls(reader, writer, Framing(secret, is_opener=False), visit)
        async with asyncio.timeout(HANDSHAKE_S):
            await connection._shake_hands()
        visit.proved()
        return connection

    async def _shake_hands(self) -> None:
        framing = self._framing
        try:
            self._writer.write(framing.greeting)
            while not framing.is_greeted:
                await self._read()
            self._writer.write(framing.proof)
            while not framing.is_proven:
                await self._read()
        except BaseException:
            self._writer.close()
            raise

    async def _read(self) -> None:
        if self._failure is not None:
            raise FrameError(*self._failure)
        async with asyncio.timeout_at(None if self._begun_s is None else self._begun_s + FRAME_S):
            data = await self._reader.read(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the other side has gone")
        bodies_before = len(self._bodies)
        try:
            self._bodies.extend(self._framing.feed(data))
        except FrameError as error:
            self._failure = error.reason, str(error)
        self._note_rest(is_new=len(self._bodies) > bodies_before)
        if self._failure is not None and not self._bodies:
            raise FrameError(*self._failure)

    def _note_rest(self, *, is_new: bool) -> None:
        """What is in memory of the next frame, and since when."""
        now_s = asyncio.get_running_loop().time()
        if not self._framing.held_bytes:
            self._begun_s = None
        elif self._begun_s is None or is_new:
            self._begun_s = now_s
        if self._visit is not None:
            self._visit.holds(self._framing.held_bytes, now_s)

    async def receive(self) -> Any:
        """The next record. Raises ConnectionError at the end, FrameError for the last time, WireError for one record."""
        while not self._bodies:
            await self._read()
        return WIRE.decode(self._bodies.popleft())

    def send(self, record: object) -> None:
        """Write a record; it may wait in memory, see `waiting_bytes`."""
        self._writer.write(self._framing.seal(WIRE.encode(record)))
        if self._visit is not None:
            self._visit.used_s = asyncio.get_running_loop().time()

    async def drain(self) -> None:
        await self._writer.drain()

    @property
    def waiting_bytes(self) -> int:
        return self._writer.transport.get_write_buffer_size()

    @property
    def is_closing(self) -> bool:
        return self._writer.is_closing() or self._reader.at_eof()

    def close(self) -> None:
        self._writer.close()


@dataclass(slots=True)
class _Link:
    """What waits for one peer, and who sends it."""

    queue: asyncio.Queue[Envelope]
    task: asyncio.Task[None]
    is_quiet: bool = False  # nothing is being sent

    @property
    def is_idle(self) -> bool:
        return self.is_quiet and self.queue.empty()


class PeerLinks:
    """Messages to other peers: a connection for each that is spoken to, made when needed.

    Nothing is ever sent twice from here: a message that finds nobody is dropped and counted, as a network does; the protocol
    asks again for what it needs. When there are `most` links, the idle one that was used least recently ends.
    """

    def __init__(self, secret: bytes | None, counters: Counter[str], most: int) -> None:
        self._secret = secret
        self._counters = counters
        self._most = most
        self._links: dict[str, _Link] = {}  # used most recently: last

    def send(self, to: Address, message: Message) -> None:
        """Put a message on its way."""
        endpoint = endpoint_of(to)
        link = self._links.pop(endpoint, None) or self._new_link(endpoint)
        if link is None:
            self._counters[Reason.OVERFLOW] += 1
            return
        self._links[endpoint] = link
        for part in _parts(message):
            try:
                link.queue.put_nowait(Envelope(to, part))
            except asyncio.QueueFull:
                self._counters[Reason.OVERFLOW] += 1

    def _new_link(self, endpoint: str) -> _Link | None:
        if len(self._links) >= self._most:
            idle = next((other for other, link in self._links.items() if link.is_idle), None)
            if idle is None:
                return None
            self._links.pop(idle).task.cancel()
        queue: asyncio.Queue[Envelope] = asyncio.Queue(MAX_WAITING)
        return _Link(queue, asyncio.create_task(self._run(endpoint, queue)))

    async def _run(self, endpoint: str, queue: asyncio.Queue[Envelope]) -> None:
        connection: Connection | None = None
        link = self._links[endpoint]
        try:
            while True:
                link.is_quiet = True
                async with asyncio.timeout(IDLE_S):
                    envelope = await queue.get()
                link.is_quiet = False
                try:
                    if connection is None or connection.is_closing:
                        connection = await Connection.open(endpoint, self._secret)
                    await self._write(connection, envelope)
                except (OSError, FrameError) as error:
                    if connection is not None:
                        connection.close()
                    connection = None
                    self._counters[error.reason if isinstance(error, FrameError) else Reason.UNREACHABLE] += (
                        1 + queue.qsize()
                    )
                    while not queue.empty():
                        queue.get_nowait()
                        queue.task_done()
                queue.task_done()
        except TimeoutError:  # idle
            pass
        finally:
            if connection is not None:
                connection.close()
            if self._links.get(endpoint) is link:
                del self._links[endpoint]

    async def _write(self, connection: Connection, envelope: Envelope) -> None:
        try:
            connection.send(envelope)
        except (WireError, FrameError) as error:  # what the protocol cannot carry, or a frame cannot
            self._counters[error.reason if isinstance(error, FrameError) else Reason.MALFORMED] += 1
            _log.warning("a %s for %s cannot be sent: %s", type(envelope.message).__name__, envelope.to, error)
            return
        self._counters["sent"] += 1
        await connection.drain()

    async def close(self, most_s: float) -> None:
        """Send what is waiting, then end all connections."""
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await asyncio.gather(*(link.queue.join() for link in self._links.values()))
        tasks = [link.task for link in self._links.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _parts(message: Message) -> Iterator[Message]:
    """A message that carries a whole zone, in parts that fit a frame: copies to lay down first, then the message itself."""
    if not isinstance(message, Copy | Synced | Handover):
        yield message
        return
    *before, last = _groups(message.entries)
    for entries in before:
        yield Copy(message.sender, 0, entries)
    yield replace(message, entries=last)


def _groups(entries: Iterable[Entry]) -> Iterator[tuple[Entry, ...]]:
    """At least one; an entry that is too large for a part has one of its own."""
    group: list[Entry] = []
    group_bytes = 0
    for entry in entries:
        entry_bytes = _bytes_of(entry)
        if group and (len(group) == MAX_ENTRIES or group_bytes + entry_bytes > MAX_PART_BYTES):
            yield tuple(group)
            group, group_bytes = [], 0
        group.append(entry)
        group_bytes += entry_bytes
    yield tuple(group)


def _bytes_of(entry: Entry) -> int:
    """About as many as it takes in a frame, rather more: a position of the ring takes 24, a text up to 4 per character."""
    found = 64
    for piece in entry.pieces:
        found += 96
        if isinstance(piece.value, Record):
            found += 4 * (len(str(piece.value.subscription)) + len(str(piece.value.address)))
        elif piece.value is not None:
            found += sum(8 + (len(end) if isinstance(end, bytes) else 24) for span in piece.value for end in span)
    return found
