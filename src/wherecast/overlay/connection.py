"""Framed records over TCP: one connection, and the connections that a peer keeps to others."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from wherecast.overlay.frames import FrameError, Framing, Reason
from wherecast.overlay.ids import Address
from wherecast.overlay.messages import Copy, Handover, Message, Synced
from wherecast.overlay.requests import Envelope, endpoint_of, parse_endpoint
from wherecast.overlay.wire import WIRE, WireError

GREETING_S = 5.0
CONNECT_S = 3.0
#: A connection to a peer that has had nothing to say for so long is closed.
IDLE_S = 60.0
#: Records that wait for a connection; what comes on top is dropped, and asked for again by whoever needs it.
MAX_WAITING = 20_000
#: Entries in one message; a zone of more is sent in several.
MAX_ENTRIES = 2_000
_READ_BYTES = 1 << 16


class Connection:
    """Both ends speak first; then records go either way."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, framing: Framing) -> None:
        self._reader = reader
        self._writer = writer
        self._framing = framing
        self._bodies: deque[bytes] = deque()
        self._error: FrameError | None = None

    @classmethod
    async def open(cls, endpoint: str, secret: bytes | None) -> Connection:
        """Connect and greet. Raises OSError (a TimeoutError is one), or FrameError if the other side is no peer of ours."""
        host, port = parse_endpoint(endpoint)
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(host, port)
            return await cls._greet(reader, writer, Framing(secret, is_opener=True))

    @classmethod
    async def accept(
        cls, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes | None
    ) -> Connection:
        """Greet somebody who has connected. Raises TimeoutError, ConnectionError or FrameError."""
        async with asyncio.timeout(GREETING_S):
            return await cls._greet(reader, writer, Framing(secret, is_opener=False))

    @classmethod
    async def _greet(cls, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, framing: Framing) -> Connection:
        connection = cls(reader, writer, framing)
        try:
            writer.write(framing.greeting)
            while not framing.is_greeted:
                await connection._read()
        except BaseException:
            writer.close()
            raise
        return connection

    async def _read(self) -> None:
        data = await self._reader.read(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the other side has gone")
        try:
            self._bodies.extend(self._framing.feed(data))
        except FrameError as error:
            self._error = error
        if self._error is not None and not self._bodies:
            raise self._error

    async def receive(self) -> Any:
        """The next record. Raises ConnectionError at the end, FrameError for the last time, WireError for one record."""
        while not self._bodies:
            if self._error is not None:
                raise self._error
            await self._read()
        return WIRE.decode(self._bodies.popleft())

    def send(self, record: object) -> None:
        """Write a record; it may wait in memory, see `waiting_bytes`."""
        self._writer.write(self._framing.seal(WIRE.encode(record)))

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


class Links:
    """Messages to other peers: a connection for each that is spoken to, made when needed.

    Nothing is ever sent twice from here: a message that finds nobody is dropped and counted, as a network does; the protocol
    asks again for what it needs.
    """

    def __init__(self, secret: bytes | None, counters: Counter[str]) -> None:
        self._secret = secret
        self._counters = counters
        self._queues: dict[str, asyncio.Queue[Envelope]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def send(self, to: Address, message: Message) -> None:
        """Put a message on its way."""
        endpoint = endpoint_of(to)
        if endpoint not in self._tasks:
            self._queues[endpoint] = asyncio.Queue(MAX_WAITING)
            self._tasks[endpoint] = asyncio.create_task(self._run(endpoint, self._queues[endpoint]))
        for part in _parts(message):
            try:
                self._queues[endpoint].put_nowait(Envelope(to, part))
            except asyncio.QueueFull:
                self._counters[Reason.OVERFLOW] += 1

    async def _run(self, endpoint: str, queue: asyncio.Queue[Envelope]) -> None:
        connection: Connection | None = None
        try:
            while True:
                async with asyncio.timeout(IDLE_S):
                    envelope = await queue.get()
                try:
                    if connection is None or connection.is_closing:
                        connection = await Connection.open(endpoint, self._secret)
                    await self._write(connection, envelope)
                except (OSError, FrameError) as error:
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
            if self._queues.get(endpoint) is queue:
                del self._queues[endpoint], self._tasks[endpoint]

    async def _write(self, connection: Connection, envelope: Envelope) -> None:
        try:
            connection.send(envelope)
        except WireError:  # an id or an address that the protocol cannot carry
            self._counters[Reason.MALFORMED] += 1
            return
        self._counters["sent"] += 1
        await connection.drain()

    async def close(self, most_s: float) -> None:
        """Send what is waiting, then end all connections."""
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await asyncio.gather(*(queue.join() for queue in self._queues.values()))
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _parts(message: Message) -> Iterator[Message]:
    """A message that carries a whole zone, in parts that fit a frame: copies to lay down first, then the message itself."""
    if isinstance(message, Copy | Synced | Handover) and len(message.entries) > MAX_ENTRIES:
        entries = message.entries
        for start in range(0, len(entries) - MAX_ENTRIES, MAX_ENTRIES):
            yield Copy(message.sender, 0, entries[start : start + MAX_ENTRIES])
        rest = entries[(len(entries) - 1) // MAX_ENTRIES * MAX_ENTRIES :]
        if isinstance(message, Copy):
            yield Copy(message.sender, message.token, rest)
        elif isinstance(message, Synced):
            yield Synced(message.sender, message.start, message.end, message.is_same, rest)
        else:
            yield Handover(message.sender, message.start, message.end, rest)
    else:
        yield message
