"""What requests and answers about subscribers and deliveries look like in JSON."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, Field

from wherecast.broker.app.access import NAME
from wherecast.broker.app.models import GivenModel, Id, Text, time_of, to_ms
from wherecast.broker.delivery.kinds.kind import RouteKind
from wherecast.broker.delivery.policy import minutes_of, time_text
from wherecast.broker.delivery.records import (
    NO_ROUTE,
    Delivery,
    DeliveryAttempt,
    DeliveryState,
    QuietHours,
    RouteState,
    SubscriberRecord,
    SubscriberRoute,
)
from wherecast.broker.delivery.templates import LONGEST_TEMPLATE

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name[:64]!r} is not a time zone; write Europe/Berlin or UTC") from None
    return name


def _clock(text: str) -> str:
    minutes_of(text)
    return text


Clock = Annotated[str, AfterValidator(_clock), Field(max_length=5, examples=["22:00"])]
Template = Annotated[
    Text | None, Field(max_length=LONGEST_TEMPLATE, examples=["{{ event.symbol }} at {{ event.price }}"])
]


class QuietHoursIn(GivenModel):
    """From a time of the day to another, which may be on the next day; on all days, or those on which it begins."""

    from_: Annotated[Clock, Field(alias="from")]
    to: Clock
    days: Annotated[tuple[Day, ...], Field(max_length=7, description="Left out or empty: every day.")] = ()

    def to_record(self) -> QuietHours:
        days = {_DAYS.index(day) for day in self.days or _DAYS}
        return QuietHours(minutes_of(self.from_), minutes_of(self.to), frozenset(days))


class RouteIn(GivenModel):
    """One way to tell a subscriber; a route that is there already keeps its state while its target does not change."""

    route: Annotated[
        str | None, Field(pattern=NAME, examples=["r1"], description="Left out: the broker makes an id.")
    ] = None
    kind: Literal["webhook", "email", "chat", "file", "feed"]
    target: Annotated[
        Text, Field(max_length=2_000, examples=["https://example.com/hook"], description="As it was shown: unchanged.")
    ] = ""


class SubscriberIn(GivenModel):
    """How a subscriber wants to be told."""

    name: Annotated[Id | None, Field(examples=["alice"], description="May be left out: it is in the path.")] = None
    time_zone: Annotated[Text, AfterValidator(_known_zone), Field(max_length=64, examples=["Europe/Berlin"])] = "UTC"
    quiet_hours: Annotated[tuple[QuietHoursIn, ...], Field(max_length=20)] = ()
    digest_minutes: Annotated[int | None, Field(ge=1, le=10_080)] = None
    ordered: bool = False
    muted: bool = False
    snoozed_until: datetime | None = None
    title: Template = None
    text: Template = None
    routes: Annotated[tuple[RouteIn, ...], Field(max_length=20, description="In the order of preference.")] = ()

    def to_record(
        self, tenant: str, name: str, routes: tuple[SubscriberRoute, ...], created_ms: int, now_ms: int
    ) -> SubscriberRecord:
        return SubscriberRecord(
            tenant,
            name,
            self.time_zone,
            tuple(quiet.to_record() for quiet in self.quiet_hours),
            self.digest_minutes,
            self.ordered,
            self.muted,
            None if self.snoozed_until is None else to_ms(self.snoozed_until),
            self.title,
            self.text,
            created_ms,
            now_ms,
            routes,
        )


class QuietHoursOut(BaseModel):
    from_: Annotated[str, Field(alias="from")]
    to: str
    days: list[str]


class RouteOut(BaseModel):
    """A route; passwords and tokens in its target are not shown."""

    route: str
    kind: str
    target: str
    state: Literal["active", "unverified", "disabled"]
    reason: str | None
    secret: Annotated[
        str | None, Field(description="Signs webhooks; told once, when the route is made and when it is rotated.")
    ] = None


class SubscriberOut(BaseModel):
    name: str
    time_zone: str
    quiet_hours: list[QuietHoursOut]
    digest_minutes: int | None
    ordered: bool
    muted: bool
    snoozed_until: str | None
    title: str | None
    text: str | None
    routes: list[RouteOut]
    created_at: str
    updated_at: str


class SubscriberPage(BaseModel):
    """Some subscribers; `next` is the `after` of the next page, null on the last one."""

    subscribers: list[SubscriberOut]
    next: str | None


class SnoozeIn(GivenModel):
    minutes: Annotated[int, Field(ge=0, le=525_600, description="0: no more.", examples=[60])]


class RouteTestIn(GivenModel):
    route: Annotated[str | None, Field(pattern=NAME, description="Null: the first one.", examples=[None])] = None


class RouteTestOut(BaseModel):
    delivered: bool
    route: str
    reason: str | None
    milliseconds: int


class ReplayIn(GivenModel):
    """Which dead letters: of a subscriber, of events that were made before a time; null: all."""

    subscriber: Id | None = None
    before: datetime | None = None


class ReplayOut(BaseModel):
    replayed: int


class DeliveryOut(BaseModel):
    id: str
    subscriber: str
    space: str
    event: int
    subscriptions: list[str]
    state: Literal["pending", "held", "delivered", "dead"]
    route: str | None
    tries: int
    next_try: str | None
    reason: str | None
    created: str
    finished: str | None


class AttemptOut(BaseModel):
    time: str
    route: str
    outcome: str
    status: int | None
    reason: str | None
    milliseconds: int


class DeliveryDetails(DeliveryOut):
    """A delivery with its latest tries and its event."""

    attempts: list[AttemptOut]
    event_body: dict[str, Any]


class DeliveryPage(BaseModel):
    """Deliveries, the newest first; `next` is the `after` of the next page, null on the last one."""

    deliveries: list[DeliveryOut]
    next: str | None


def subscriber_out(
    record: SubscriberRecord, kinds: dict[str, RouteKind], secrets: dict[str, str] | None = None
) -> dict[str, Any]:
    """A subscriber; `secrets` are those of routes that were made just now."""
    quiet = [
        {"from": time_text(q.start), "to": time_text(q.end), "days": [_DAYS[day] for day in sorted(q.days)]}
        for q in record.quiet_hours
    ]
    return {
        "name": record.name,
        "time_zone": record.time_zone,
        "quiet_hours": quiet,
        "digest_minutes": record.digest_minutes,
        "ordered": record.ordered,
        "muted": record.muted,
        "snoozed_until": None if record.snoozed_until_ms is None else time_of(record.snoozed_until_ms),
        "title": record.title,
        "text": record.text,
        "routes": [route_out(route, kinds, (secrets or {}).get(route.route)) for route in record.routes],
        "created_at": time_of(record.created_ms),
        "updated_at": time_of(record.updated_ms),
    }


def route_out(route: SubscriberRoute, kinds: dict[str, RouteKind], secret: str | None = None) -> dict[str, Any]:
    return {
        "route": route.route,
        "kind": route.kind,
        "target": kinds[route.kind].show(route.target),
        "state": route.state.value,
        "reason": route.reason or _why_unused(route),
        "secret": secret,
    }


def _why_unused(route: SubscriberRoute) -> str | None:
    return "its receiver has not agreed yet" if route.state is RouteState.UNVERIFIED else None


def delivery_out(one: Delivery) -> dict[str, Any]:
    waits_for_route = (one.reason or "").startswith(NO_ROUTE)
    return {
        "id": one.id,
        "subscriber": one.subscriber,
        "space": one.space,
        "event": one.position,
        "subscriptions": list(one.subscriptions),
        "state": one.state.value,
        "route": one.route,
        "tries": one.tries,
        "next_try": time_of(one.next_ms) if one.state is DeliveryState.PENDING and not waits_for_route else None,
        "reason": one.reason,
        "created": time_of(one.created_ms),
        "finished": None if one.finished_ms is None else time_of(one.finished_ms),
    }


def details_out(one: Delivery) -> dict[str, Any]:
    tries = [_attempt_out(attempt) for attempt in one.attempts]
    return {**delivery_out(one), "attempts": tries, "event_body": json.loads(one.body)}


def _attempt_out(attempt: DeliveryAttempt) -> dict[str, Any]:
    fields = attempt._asdict()
    return {"time": time_of(fields.pop("time_ms")), **fields}
