"""Open feeds: a subscriber who reads along is told there, and by no other route.

The feed sends its events by itself, from the log. This route only finds out whether it did: a feed of the subscriber in the space of
the event has sent everything from its start up to a position.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from wherecast.broker.delivery.kinds.kind import OutgoingMessage, SendOutcome, SendResult
from wherecast.broker.delivery.records import SubscriberRoute
from wherecast.broker.problems import Problem

#: (tenant, subscriber, space) to what its open feeds have sent: positions from a start to an end.
FindFeeds = Callable[[str, str, str], Awaitable[list[tuple[int, int]]]]


class FeedRoutes:
    """Routes of kind feed; their target is empty."""

    needs_handshake = False

    def __init__(self, find_feeds: FindFeeds) -> None:
        self._find_feeds = find_feeds

    def check(self, tenant: str, target: str) -> None:  # noqa: ARG002
        if target:
            raise Problem(422, "target", "a feed route has no target; leave it empty")

    def show(self, target: str) -> str:
        return target

    def endpoint(self, tenant: str, target: str) -> None:
        """A feed has no connection of ours."""

    async def send(self, message: OutgoingMessage, route: SubscriberRoute, now_ms: int) -> SendOutcome:  # noqa: ARG002
        """Delivered if some feed has sent each event of the message; soon, if one is about to."""
        is_soon = False
        for space, position in message.places:
            feeds = await self._find_feeds(message.tenant, message.subscriber, space)
            open_now = [(start, sent) for start, sent in feeds if start <= position]
            if not open_now:
                return SendOutcome(SendResult.SKIPPED, "no open feed")
            is_soon = is_soon or all(sent <= position for _, sent in open_now)
        return SendOutcome(SendResult.SOON if is_soon else SendResult.DELIVERED)

    async def verify(self, target: str) -> SendOutcome:  # noqa: ARG002
        return SendOutcome(SendResult.DELIVERED)

    async def close(self) -> None:
        """Feeds are closed by their readers."""
