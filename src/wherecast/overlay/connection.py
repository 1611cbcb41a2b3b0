"""Framed records over TCP: one connection, and the connections that a peer keeps to others."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from wherecast.overlay.door import Visit
from wherecast.overlay.frames import FrameError, Framing, Reason
from wherecast.overlay.ids import Address
from wherecast.overlay.messages import Copy, Entry, Handover, Message, Record, Synced
from wherecast.overlay.requests import Envelope, endpoint_of, parse_endpoint
from wherecast.overlay.wire import WIRE, WireError

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
        """Connect and shake hands. Raises OSError (also TimeoutError), or FrameError if the other side is no peer of ours."""
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
