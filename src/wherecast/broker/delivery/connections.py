"""HTTP requests of webhooks: one at a time on a connection, which is kept for the next one.

httpcore with a network backend of our own was tried first. It spent 1 to 1.6 ms of a core on a request, most of it on locks, cancel
scopes and its pool; h11 on asyncio's streams does the same in a fraction (docs/decisions/0063-delivery.md). h11 is what httpcore
parses with, so what is understood and what is refused is the same.
"""

from __future__ import annotations

import time
from asyncio import StreamReader, StreamWriter
from collections import OrderedDict
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

import h11

from wherecast.broker.delivery.addresses import PinnedConnector

#: Bytes of an answer that are read, its head included; seconds that an idle connection is kept.
_ANSWER_BYTES, _IDLE_S = 16_384, 20.0
#: Receivers whose connections are kept, and idle connections of one.
_RECEIVERS, _IDLE = 1_000, 16
_CHUNK = 16_384


class HookAnswer(NamedTuple):
    status: int
    headers: dict[str, str]


class HookUrl(NamedTuple):
    """A URL as a request needs it."""

    host: str
    port: int
    is_tls: bool
    authority: str
    path: str


@lru_cache(8_192)
def read_url(text: str) -> HookUrl:
    """Raises ValueError."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or not text.isascii():
        raise ValueError("not a URL of http or https")
    is_tls = parts.scheme == "https"
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    authority = host if parts.port is None else f"{host}:{parts.port}"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return HookUrl(parts.hostname, parts.port or (443 if is_tls else 80), is_tls, authority, path)


class _Connection:
    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_ANSWER_BYTES)
        self.used_at = time.monotonic()
        self.is_new = True
        self.has_heard = False

    def close(self) -> None:
        self.writer.close()


class HookConnections:
    """Connections to receivers, kept for a while."""

    def __init__(self, connector: PinnedConnector) -> None:
        self._connector = connector
        self._idle: OrderedDict[tuple[str, int, bool], list[_Connection]] = OrderedDict()

    async def request(self, method: str, target: str, headers: dict[str, str], body: bytes) -> HookAnswer:
        """Send a request and read the answer, a long one in part. Raises OSError, ValueError or h11.ProtocolError."""
        url = read_url(target)
        while True:
            connection = self._take(url) or _Connection(
                *await self._connector.open(url.host, url.port, is_tls=url.is_tls)
            )
            try:
                answer = await _exchange(connection, method, url, headers, body)
            except (OSError, h11.RemoteProtocolError):
                connection.close()
                if connection.is_new or connection.has_heard:
                    raise
                continue  # it was closed while it was idle; the id makes a second request harmless
            except BaseException:
                connection.close()
                raise
            self._keep(url, connection)
            return answer

    def _take(self, url: HookUrl) -> _Connection | None:
        kept = self._idle.get((url.host, url.port, url.is_tls), [])
        while kept:
            connection = kept.pop()
            if not connection.reader.at_eof() and connection.used_at > time.monotonic() - _IDLE_S:
                connection.is_new = connection.has_heard = False
                return connection
            connection.close()
        return None

    def _keep(self, url: HookUrl, connection: _Connection) -> None:
        protocol = connection.protocol
        key = (url.host, url.port, url.is_tls)
        kept = self._idle.setdefault(key, [])
        if protocol.our_state is not h11.DONE or protocol.their_state is not h11.DONE or len(kept) >= _IDLE:
            connection.close()
            return
        protocol.start_next_cycle()
        connection.used_at = time.monotonic()
        kept.append(connection)
        self._idle.move_to_end(key)
        if len(self._idle) > _RECEIVERS:
            for old in self._idle.popitem(last=False)[1]:
                old.close()

    def close(self) -> None:
        """Close what is idle."""
        for kept in self._idle.values():
            for connection in kept:
                connection.close()
        self._idle.clear()


async def _exchange(
    connection: _Connection, method: str, url: HookUrl, headers: dict[str, str], body: bytes
) -> HookAnswer:
    protocol, reader, writer = connection.protocol, connection.reader, connection.writer
    given = [("host", url.authority), *headers.items(), ("content-length", str(len(body)))]
    request = h11.Request(method=method, target=url.path, headers=given)
    parts = [protocol.send(request), protocol.send(h11.Data(data=body)), protocol.send(h11.EndOfMessage())]
    writer.write(b"".join(part for part in parts if part))
    await writer.drain()
    answer, size = None, 0
    while True:
        event = protocol.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(_CHUNK)
            connection.has_heard = connection.has_heard or bool(data)
            size += len(data)
            if size > 2 * _ANSWER_BYTES and answer is None:
                raise OSError("the header of the answer is too long")
            protocol.receive_data(data)
        elif isinstance(event, h11.Response):
            found = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
            answer = HookAnswer(event.status_code, found)
        elif isinstance(event, h11.EndOfMessage) or event is h11.PAUSED:
            break
        elif isinstance(event, h11.ConnectionClosed):
            raise OSError("the connection was closed before an answer came")
        if answer is not None and size > _ANSWER_BYTES:
            break  # enough: the connection is closed, because its answer was not read to the end
    if answer is None:
        raise OSError("no answer came")
    return answer
