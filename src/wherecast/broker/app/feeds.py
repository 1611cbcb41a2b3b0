"""Live feeds: SSE and WebSocket, per subscription, per subscriber, or all matches of a space."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response, WebSocket
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope
from starlette.websockets import WebSocketDisconnect

from wherecast.broker.app.access import Reader, SpaceName, TheBroker, broker_of, find_space, principal
from wherecast.broker.feeds import Feed, Selection, open_feed
from wherecast.broker.problems import Problem
from wherecast.broker.security import TokenScope

router = APIRouter(prefix="/v1/spaces/{space}", tags=["feeds"])

#: Codes of WebSocket: what a client should not try again, what it should, and for a reader that does not read.
_REFUSED, _AGAIN, _SLOW = 4400, 1013, 4408


class SseResponse(Response):
    """A feed as server-sent events. Ends when the reader goes, or does not read for too long."""

    media_type = "text/event-stream"

    def __init__(self, feed: Feed) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.feed = feed

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send while the reader reads."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        with self.feed.opened():
            await _until_either(self._send_all(send), _left(receive))

    async def _send_all(self, send: Send) -> None:
        broker = self.feed.broker
        write = _in_time(send, broker.settings.slow_reader_s)
        try:
            await write({"type": "http.response.body", "body": b": hello\n\n", "more_body": True})
            async for position, body in self.feed.messages():
                text = b"id: %d\n\n" % position if body is None else b"id: %d\ndata: %b\n\n" % (position, body)
                await write({"type": "http.response.body", "body": text, "more_body": True})
                if body is not None:
                    broker.metrics.sent.inc()
        except TimeoutError:
            broker.metrics.cut_off.inc()
        except Problem as problem:
            text = f"event: problem\ndata: {json.dumps(problem.to_dict())}\n\n".encode()
            await send({"type": "http.response.body", "body": text, "more_body": False})


def _in_time(send: Send, seconds: float) -> Send:
    async def write(message: object) -> None:
        async with asyncio.timeout(seconds):
            await send(message)  # type: ignore[arg-type]  # what was given is handed on

    return write


async def _left(receive: Receive) -> None:
    """Returns when the reader has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


@router.get("/feed", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def feed(
    who: Reader,
    broker: TheBroker,
    name: SpaceName,
    subscription: Annotated[str | None, Query(max_length=200)] = None,
    subscriber: Annotated[str | None, Query(max_length=200)] = None,
    start: Annotated[
        str | None, Query(alias="from", max_length=20, description="'earliest', or a position to go on after.")
    ] = None,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=20)] = None,
) -> Response:
    """Matches as server-sent events, each event of the log once. Reconnect with Last-Event-ID to go on where it ended."""
    space = await find_space(broker, who, name)
    opened = await open_feed(broker, space, _selection(subscription, subscriber), last_event_id or start)
    return SseResponse(opened)


def _selection(subscription: str | None, subscriber: str | None) -> Selection:
    if subscription is not None and subscriber is not None:
        raise Problem(422, "feed", "name a subscription or a subscriber, not both")
    if "\x00" in (subscription or "") + (subscriber or ""):
        raise Problem(422, "text", "a text has no NUL characters")
    return Selection(subscription, subscriber)


@router.websocket("/feed/ws")
async def feed_by_websocket(socket: WebSocket) -> None:
    """The same by WebSocket: messages of JSON; `from` is the position of the last one."""
    broker, asked = broker_of(socket), socket.query_params
    try:
        who = await principal(socket)
        who.must(TokenScope.READ)
        space = await find_space(broker, who, socket.path_params["space"])
        selection = _selection(asked.get("subscription"), asked.get("subscriber"))
        opened = await open_feed(broker, space, selection, asked.get("from"))
    except Problem as problem:
        await socket.accept()
        await socket.send_text(json.dumps({"problem": problem.to_dict()}))
        await socket.close(_AGAIN if problem.status in (429, 503) else _REFUSED)
        return
    await socket.accept()
    with opened.opened():
        await _until_either(_send_messages(socket, opened), _until_closed(socket))


async def _send_messages(socket: WebSocket, opened: Feed) -> None:
    broker = opened.broker
    try:
        async for position, body in opened.messages():
            async with asyncio.timeout(broker.settings.slow_reader_s):
                await socket.send_text(f'{{"position":{position}}}' if body is None else body.decode())
            if body is not None:
                broker.metrics.sent.inc()
    except TimeoutError:
        broker.metrics.cut_off.inc()
        await socket.close(_SLOW)
    except Problem as problem:
        await socket.send_text(json.dumps({"problem": problem.to_dict()}))
        await socket.close(_REFUSED)
    except WebSocketDisconnect:
        pass


async def _until_closed(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


async def _until_either(sending: Coroutine[Any, Any, None], leaving: Coroutine[Any, Any, None]) -> None:
    """Send until the reader leaves or sending ends; an error of sending is raised."""
    tasks = asyncio.create_task(sending), asyncio.create_task(leaving)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
