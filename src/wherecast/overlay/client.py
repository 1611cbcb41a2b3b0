"""What talks to a peer from outside: one connection, one request at a time, notices in between."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from types import TracebackType
from typing import Any, Self, TypeVar

from wherecast.overlay.connection import Connection
from wherecast.overlay.frames import FrameError
from wherecast.overlay.requests import (
    Done,
    Inspect,
    Notice,
    PeerError,
    Publish,
    Published,
    Refused,
    Request,
    Status,
    Subscribe,
    Taken,
    Told,
    Unsubscribe,
)
from wherecast.overlay.wire import WireError

_R = TypeVar("_R")


class PeerClient:
    """A client of the peer at `host:port`; to be used as an asynchronous context."""

    def __init__(self, endpoint: str, secret: bytes | None = None) -> None:
        self._endpoint = endpoint
        self._secret = secret
        self._connection: Connection | None = None
        self._notices: deque[Notice] = deque()

    async def __aenter__(self) -> Self:
        try:
            self._connection = await Connection.open(self._endpoint, self._secret)
        except (OSError, FrameError) as error:
            raise self._unreachable(error) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._connection is not None
        self._connection.close()

    def _unreachable(self, error: Exception) -> PeerError:
        return PeerError(f"no peer at {self._endpoint}: {str(error) or 'no answer'}; is it running, with this secret?")

    async def subscribe(self, subscription: int | str, filter: str, *, is_durable: bool = False) -> None:
        """Register a filter, and hear of its events through `notice`."""
        await self._ask(Subscribe(subscription, filter, is_durable), Done)

    async def unsubscribe(self, subscription: int | str) -> None:
        await self._ask(Unsubscribe(subscription), Done)

    async def publish(self, events: list[str], *, wait_s: float = 10.0) -> tuple[Told, ...]:
        """Publish events, JSON objects, and wait until their subscribers have answered, but no longer than this."""
        return (await self._ask(Publish(tuple(events), int(wait_s * 1000)), Published)).events

    async def status(self) -> dict[str, Any]:
        """See `Peer.status`."""
        found: dict[str, Any] = json.loads((await self._ask(Inspect(), Status)).text)
        return found

    async def notice(self) -> Notice:
        """The next event for a subscription of this connection. The peer keeps it until `taken`, if it is durable."""
        while not self._notices:
            record = await self._receive()
            if isinstance(record, Notice):
                self._notices.append(record)
        return self._notices.popleft()

    def taken(self, notice: Notice) -> None:
        """The notice has been dealt with."""
        assert self._connection is not None
        if notice.number:
            self._connection.send(Taken(notice.subscription, notice.number))

    async def _ask(self, request: Request, kind: type[_R]) -> _R:
        assert self._connection is not None
        try:
            self._connection.send(request)
        except (WireError, FrameError) as error:
            raise PeerError(f"the request cannot be sent: {error}") from None
        while True:
            reply = await self._receive()
            if isinstance(reply, Notice):
                self._notices.append(reply)
            elif isinstance(reply, Refused):
                raise PeerError(reply.text)
            elif isinstance(reply, kind):
                return reply
            else:
                raise PeerError(f"{self._endpoint} answered with {type(reply).__name__}")

    async def _receive(self) -> object:
        assert self._connection is not None
        try:
            return await self._connection.receive()
        except (OSError, FrameError, WireError, asyncio.IncompleteReadError) as error:
            raise self._unreachable(error) from None
