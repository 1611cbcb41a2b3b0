"""What a kind of route has to do."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol

from wherecast.broker.delivery.records import SubscriberRoute


class SendResult(StrEnum):
    """What became of one try."""

    DELIVERED = "delivered"
    FAILED = "failed"
    GONE = "gone"  # the receiver wants no more: the route is disabled
    SKIPPED = "skipped"  # this route has nobody to tell now; it is no failure
    SOON = "soon"  # it is on its way there: look again in a moment


class SendOutcome(NamedTuple):
    """What became of one try, and what the receiver said."""

    result: SendResult
    reason: str | None = None
    status: int | None = None
    retry_after_ms: int | None = None


class OutgoingMessage(NamedTuple):
    """What is sent: the same on every try and on every route."""

    id: str
    tenant: str
    subscriber: str
    places: tuple[tuple[str, int], ...]  # space and position of its events
    time_ms: int
    title: str
    text: str
    body: bytes  # a CloudEvent as JSON


class RouteKind(Protocol):
    """A way to tell somebody. Failures are outcomes, not exceptions."""

    #: A route is used only after its receiver has agreed (`verify`).
    needs_handshake: bool

    def check(self, tenant: str, target: str) -> None:
        """Raise Problem if the target is not one."""

    def show(self, target: str) -> str:
        """The target without its secrets."""

    def endpoint(self, tenant: str, target: str) -> str | None:
        """What shares connections, limits and failures with other routes; None: nothing."""

    async def send(self, message: OutgoingMessage, route: SubscriberRoute, now_ms: int) -> SendOutcome:
        """Try once."""

    async def verify(self, target: str) -> SendOutcome:
        """Ask the receiver whether it agrees."""

    async def close(self) -> None:
        """Close connections."""
