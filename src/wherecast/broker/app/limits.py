"""Bodies of all requests have a limit, also those that FastAPI reads by itself: refused while they arrive, not after."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Operations that read their bodies piece by piece, each with a limit of its own.
_OWN_LIMITS = ("/publish", "/subscriptions/bulk")


class LimitedBodies:
    """A layer around the application that counts the bytes of a body as they come."""

    def __init__(self, app: ASGIApp, limit: int, seconds: float) -> None:
        self.app, self.limit, self.seconds = app, limit, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on, with a `receive` that refuses too much and waits no longer than it may."""
        if scope["type"] != "http" or scope["path"].endswith(_OWN_LIMITS):
            await self.app(scope, receive, send)
            return
        size, is_whole = 0, False

        async def limited() -> Message:
            nonlocal size, is_whole
            if is_whole:  # what comes now is that the client leaves
                return await receive()
            try:
                async with asyncio.timeout(self.seconds):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(
                    408, f"the body took more than {self.seconds:g} s", {"Connection": "close"}
                ) from None
            size += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if size > self.limit:
                text = f"a body has at most {self.limit:,} bytes; send less at a time"
                raise HTTPException(413, text, {"Connection": "close"})
            return message

        await self.app(scope, limited, send)
