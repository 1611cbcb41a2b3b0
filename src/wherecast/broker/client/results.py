"""What calls of the clients give and take: the broker's JSON, with types.

What programs compute with is a dataclass. What they mostly show is the answer as it is, a dict whose keys are known to type checkers and editors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict


@dataclass(frozen=True, slots=True)
class BrokerSubscription:
    """A subscription as the broker has it. It is matched from `version` of its space on, while it is active."""

    id: str
    subscriber: str
    filter: str
    labels: dict[str, str]
    state: str
    expires_at: str | None
    version: int
    created_at: str
    updated_at: str


@dataclass(frozen=True, slots=True)
class PublishReceipt:
    """Events that are durable. `refused` has row and reason of those that were not taken."""

    accepted: int
    positions: list[int]
    ids: list[str]
    matches: int
    version: int
    refused: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What became of the rows of a load; `quarantined` names the first thousand of those that were refused."""

    created: int
    replaced: int
    version: int
    refused: int
    quarantined: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """An event that matched: `subscriptions` are those of the feed that it matched."""

    position: int
    id: str
    subscriptions: list[str]
    data: dict[str, Any]
    envelope: dict[str, Any]


class SpaceInfo(TypedDict):
    """A space; events are kept from `earliest_position` on."""

    name: str
    schema: dict[str, Any]
    schema_version: int
    version: int
    subscriptions: int
    earliest_position: int
    next_position: int
    retention_ms: int | None
    retention_bytes: int | None
    created_at: str


class DryRun(TypedDict):
    """Whom an event would reach; `explanations` has those that were asked for, by id."""

    matches: int
    subscriptions: list[str]
    version: int
    explanations: dict[str, Any]


class RouteInfo(TypedDict):
    """One way to tell a subscriber: active, unverified or disabled. `secret` is told once."""

    route: str
    kind: str
    target: str
    state: str
    reason: str | None
    secret: str | None


class SubscriberInfo(TypedDict):
    """How a subscriber wants to be told."""

    name: str
    time_zone: str
    quiet_hours: list[dict[str, Any]]
    digest_minutes: int | None
    ordered: bool
    muted: bool
    snoozed_until: str | None
    title: str | None
    text: str | None
    routes: list[RouteInfo]
    created_at: str
    updated_at: str


class SubscriberFields(TypedDict, total=False):
    """What may be said of a subscriber; what is left out has its default."""

    time_zone: str
    quiet_hours: list[dict[str, Any]]
    digest_minutes: int | None
    ordered: bool
    muted: bool
    snoozed_until: str | None
    title: str | None
    text: str | None
    routes: list[dict[str, Any]]


class RouteTest(TypedDict):
    """What became of a message that was sent to try a route."""

    delivered: bool
    route: str
    reason: str | None
    milliseconds: int


class DeliveryInfo(TypedDict):
    """One event for one subscriber: pending, held, delivered or dead."""

    id: str
    subscriber: str
    space: str
    event: int
    subscriptions: list[str]
    state: str
    route: str | None
    tries: int
    next_try: str | None
    reason: str | None
    created: str
    finished: str | None


class DeliveryHistory(DeliveryInfo):
    """A delivery with its latest tries and its event."""

    attempts: list[dict[str, Any]]
    event_body: dict[str, Any]
