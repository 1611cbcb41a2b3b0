"""What delivery knows: subscribers with their routes, and deliveries."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import NamedTuple


class RouteState(StrEnum):
    """Only active routes are used. A webhook is unverified until its receiver has agreed."""

    ACTIVE = "active"
    UNVERIFIED = "unverified"
    DISABLED = "disabled"


class DeliveryState(StrEnum):
    """Pending: it will be tried. Held: its subscriber does not want it now. Dead: given up, can be replayed."""

    PENDING = "pending"
    HELD = "held"
    DELIVERED = "delivered"
    DEAD = "dead"


class RouteSecret(NamedTuple):
    """A secret that signs; one that was rotated out signs as well until its end."""

    secret: str
    until_ms: int | None = None


class SubscriberRoute(NamedTuple):
    """One way to tell a subscriber something."""

    route: str
    kind: str
    target: str
    state: RouteState = RouteState.ACTIVE
    reason: str | None = None
    secrets: tuple[RouteSecret, ...] = ()


class QuietHours(NamedTuple):
    """Minutes of the day; `end` may be at or before `start`: then it ends on the next day. Monday is 0."""

    start: int
    end: int
    days: frozenset[int]


class SubscriberRecord(NamedTuple):
    """Whom matches are for, and how they want to be told. Routes are in the order of preference."""

    tenant: str
    name: str
    time_zone: str = "UTC"
    quiet_hours: tuple[QuietHours, ...] = ()
    digest_minutes: int | None = None
    ordered: bool = False
    muted: bool = False
    snoozed_until_ms: int | None = None
    title: str | None = None
    text: str | None = None
    created_ms: int = 0
    updated_ms: int = 0
    routes: tuple[SubscriberRoute, ...] = ()

    def find_route(self, route: str) -> SubscriberRoute | None:
        return next((one for one in self.routes if one.route == route), None)


class DeliveryAttempt(NamedTuple):
    """One try, as it is kept."""

    time_ms: int
    route: str
    outcome: str  # delivered, failed, skipped
    status: int | None
    reason: str | None
    milliseconds: int


class Delivery(NamedTuple):
    """One event for one subscriber. `id` never changes; `message` is the id that is sent: of a digest, or its own."""

    id: str
    tenant: str
    subscriber: str
    space: str  # its name
    position: int
    subscriptions: tuple[str, ...]
    body: bytes  # the line of the event log
    state: DeliveryState
    created_ms: int
    since_ms: int  # when it was made or replayed: it is given up so and so long after
    next_ms: int
    message: str | None = None
    route: str | None = None  # the last one tried
    tries: int = 0
    round: int = 0
    place: int = 0  # in the round: how many routes have failed
    reason: str | None = None
    finished_ms: int | None = None
    attempts: tuple[DeliveryAttempt, ...] = ()


#: How the reason begins of a delivery that waits for its subscriber to have a route; it has no time.
NO_ROUTE = "no route can be used"


def delivery_id(tenant: str, space: int, space_created_ms: int, position: int, subscriber: str) -> str:
    """The id of a delivery: the same whoever computes it, and however often."""
    text = "\x00".join((tenant, str(space), str(space_created_ms), str(position), subscriber))
    return "d" + hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def digest_id(members: list[str]) -> str:
    """The id of a message that has several deliveries."""
    return "g" + hashlib.blake2b("\n".join(sorted(members)).encode(), digest_size=16).hexdigest()
