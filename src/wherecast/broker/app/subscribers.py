"""Subscribers: how they want to be told, their routes, mute and snooze."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from sqlalchemy import Connection

from wherecast.broker.app.access import NAME, Reader, Subscriber, TheBroker
from wherecast.broker.app.delivery_models import (
    RouteIn,
    RouteOut,
    RouteTestIn,
    RouteTestOut,
    SnoozeIn,
    SubscriberIn,
    SubscriberOut,
    SubscriberPage,
    route_out,
    subscriber_out,
)
from wherecast.broker.delivery.kinds.kind import RouteKind, SendResult
from wherecast.broker.delivery.kinds.webhook import new_secret
from wherecast.broker.delivery.records import RouteSecret, RouteState, SubscriberRecord, SubscriberRoute
from wherecast.broker.delivery.service import DeliveryService
from wherecast.broker.delivery.templates import check_template
from wherecast.broker.problems import Problem, not_found
from wherecast.broker.store import audit, deliveries, subscribers

router = APIRouter(prefix="/v1/subscribers", tags=["subscribers"])

#: How long the old secret of a rotation signs as well, by default and at most.
_OVERLAP_S = 86_400


def delivery_of(request: Request) -> DeliveryService:
    service: DeliveryService = request.app.state.delivery
    return service


TheDelivery = Annotated[DeliveryService, Depends(delivery_of)]
SubscriberName = Annotated[str, Path(alias="name", min_length=1, max_length=200, examples=["alice"])]
RouteName = Annotated[str, Path(alias="route", pattern=NAME, examples=["r1"])]


def _storable(*names: str | None) -> None:
    if any("\x00" in name for name in names if name):
        raise Problem(422, "text", "a text has no NUL characters")


@router.get("", response_model=SubscriberPage)
async def list_subscribers(
    who: Reader,
    broker: TheBroker,
    delivery: TheDelivery,
    text: Annotated[str | None, Query(max_length=200, description="Part of the name.")] = None,
    after: Annotated[str, Query(max_length=200, description="`next` of the page before.")] = "",
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> dict[str, Any]:
    """Subscribers in the order of their names, a page at a time."""
    _storable(text, after)
    rows = await broker.read(lambda c: subscribers.list_records(c, who.tenant, text, after, limit + 1))
    following = rows[limit - 1].name if len(rows) > limit else None
    return {"subscribers": [subscriber_out(row, delivery.kinds) for row in rows[:limit]], "next": following}


async def _find(broker: TheBroker, who: Reader, name: str) -> SubscriberRecord:
    _storable(name)
    record = await broker.read(lambda c: subscribers.find_record(c, who.tenant, name))
    if record is None:
        raise not_found("subscriber", name)
    return record


@router.get("/{name}", response_model=SubscriberOut)
async def get(who: Reader, broker: TheBroker, delivery: TheDelivery, name: SubscriberName) -> dict[str, Any]:
    """One subscriber."""
    return subscriber_out(await _find(broker, who, name), delivery.kinds)


@router.put("/{name}", response_model=SubscriberOut)
async def put(
    who: Subscriber,
    broker: TheBroker,
    delivery: TheDelivery,
    name: SubscriberName,
    given: SubscriberIn,
    response: Response,
) -> dict[str, Any]:
    """Create or replace a subscriber. Events from the next one on are delivered by its routes.

    A new webhook route has a secret, which is told once, in this answer; it is used after `verify`.
    """
    _storable(name)
    if given.name not in (None, name):
        raise Problem(422, "name", f"the path names {name!r:.100}, the body another subscriber")
    for template in (given.title, given.text):
        if template:
            check_template(template)

    def change(connection: Connection, now: int) -> tuple[SubscriberRecord, dict[str, str], bool]:
        old = subscribers.find_record(connection, who.tenant, name)
        routes, secrets = _routes(who.tenant, given.routes, old, delivery.kinds)
        record = given.to_record(who.tenant, name, routes, old.created_ms if old else now, now)
        subscribers.put_record(connection, record)
        details = {"routes": [[route.route, route.kind] for route in routes]}
        audit.write(connection, who.tenant, now, who.actor, "put subscriber", name, details)
        return record, secrets, old is None

    record, secrets, is_new = await broker.run(change)
    delivery.wake()
    response.status_code = 201 if is_new else 200
    return subscriber_out(record, delivery.kinds, secrets)


def _routes(
    tenant: str, given: Sequence[RouteIn], old: SubscriberRecord | None, kinds: dict[str, RouteKind]
) -> tuple[tuple[SubscriberRoute, ...], dict[str, str]]:
    """Routes as they are stored, and the secrets of new ones."""
    found: list[SubscriberRoute] = []
    secrets: dict[str, str] = {}
    names = {one.route for one in given if one.route is not None}
    for place, one in enumerate(given):
        route = one.route or next(f"r{n}" for n in range(1, 100) if f"r{n}" not in names)
        names.add(route)
        if any(route == other.route for other in found):
            raise Problem(422, "route", f"two routes have the id {route!r}")
        kind = kinds[one.kind]
        before = old.find_route(route) if old and one.route else None
        if before is not None and before.kind == one.kind and one.target in (before.target, kind.show(before.target)):
            found.append(before)
            continue
        try:
            kind.check(tenant, one.target)
        except Problem as problem:
            problem.fields["at"] = f"routes.{place}.target"
            raise
        state = RouteState.UNVERIFIED if kind.needs_handshake else RouteState.ACTIVE
        keys: tuple[RouteSecret, ...] = ()
        if kind.needs_handshake:
            secrets[route] = new_secret()
            keys = (RouteSecret(secrets[route]),)
        found.append(SubscriberRoute(route, one.kind, one.target, state, None, keys))
    return tuple(found), secrets


@router.delete("/{name}", status_code=204)
async def delete(who: Subscriber, broker: TheBroker, name: SubscriberName) -> Response:
    """Delete a subscriber with its routes. Subscriptions stay; what was not delivered becomes dead letters."""
    _storable(name)

    def change(connection: Connection, now: int) -> None:
        if not subscribers.remove_record(connection, who.tenant, name):
            raise not_found("subscriber", name)
        ended = deliveries.end_all(connection, who.tenant, name, now, "the subscriber was deleted")
        audit.write(connection, who.tenant, now, who.actor, "delete subscriber", name, {"dead": ended})

    await broker.run(change)
    return Response(status_code=204)


# -- mute and snooze --------------------------------------------------------------------------------------------------


async def _change(
    who: Subscriber, broker: TheBroker, delivery: TheDelivery, name: str, action: str, **fields: Any
) -> dict[str, Any]:
    _storable(name)

    def change(connection: Connection, now: int) -> None:
        values = dict(fields)
        if "minutes" in values:
            minutes = values.pop("minutes")
            values["snoozed_until_ms"] = now + minutes * 60_000 if minutes else None
        if not subscribers.change_record(connection, who.tenant, name, now, **values):
            raise not_found("subscriber", name)
        audit.write(connection, who.tenant, now, who.actor, f"{action} subscriber", name, fields)

    await broker.run(change)
    delivery.wake()
    return subscriber_out(await _find(broker, who, name), delivery.kinds)


@router.post("/{name}/mute", response_model=SubscriberOut)
async def mute(who: Subscriber, broker: TheBroker, delivery: TheDelivery, name: SubscriberName) -> dict[str, Any]:
    """Hold everything for a subscriber until `unmute`; what is held for too long becomes a dead letter."""
    return await _change(who, broker, delivery, name, "mute", muted=1)


@router.post("/{name}/unmute", response_model=SubscriberOut)
async def unmute(who: Subscriber, broker: TheBroker, delivery: TheDelivery, name: SubscriberName) -> dict[str, Any]:
    """Deliver again, what was held included."""
    return await _change(who, broker, delivery, name, "unmute", muted=0)


@router.post("/{name}/snooze", response_model=SubscriberOut)
async def snooze(
    who: Subscriber, broker: TheBroker, delivery: TheDelivery, name: SubscriberName, given: SnoozeIn
) -> dict[str, Any]:
    """Hold everything for some minutes."""
    return await _change(who, broker, delivery, name, "snooze", minutes=given.minutes)


# -- routes -----------------------------------------------------------------------------------------------------------


async def _find_route(
    broker: TheBroker, who: Reader, name: str, route: str | None
) -> tuple[SubscriberRecord, SubscriberRoute]:
    record = await _find(broker, who, name)
    found = record.find_route(route) if route is not None else next(iter(record.routes), None)
    if found is None:
        raise not_found("route", route or "r1")
    return record, found


@router.post("/{name}/test", response_model=RouteTestOut)
async def test(
    who: Subscriber, broker: TheBroker, delivery: TheDelivery, name: SubscriberName, given: RouteTestIn
) -> dict[str, Any]:
    """Send a message by a route now, once, whatever the hours and the state of the route."""
    record, route = await _find_route(broker, who, name, given.route)
    outcome, milliseconds = await delivery.test_route(record, route)
    delivered = outcome.result is SendResult.DELIVERED
    return {"delivered": delivered, "route": route.route, "reason": outcome.reason, "milliseconds": milliseconds}


async def _write_route(
    who: Subscriber, broker: TheBroker, delivery: TheDelivery, name: str, new: SubscriberRoute, action: str
) -> None:
    def change(connection: Connection, now: int) -> None:
        record = subscribers.find_record(connection, who.tenant, name)
        old = record.find_route(new.route) if record else None
        if old is None or old.target != new.target:
            raise Problem(409, "changed", "the route was changed meanwhile")
        subscribers.change_route(connection, who.tenant, name, new, now)
        details = {"route": new.route, "state": new.state.value}
        audit.write(connection, who.tenant, now, who.actor, f"{action} route", name, details)

    await broker.run(change)
    delivery.wake()


@router.post("/{name}/routes/{route}/verify", response_model=RouteOut)
async def verify(
    who: Subscriber, broker: TheBroker, delivery: TheDelivery, name: SubscriberName, route: RouteName
) -> dict[str, Any]:
    """Ask the receiver of a webhook whether it agrees: OPTIONS with WebHook-Request-Origin. The route is active if it does."""
    _, found = await _find_route(broker, who, name, route)
    outcome = await delivery.kinds[found.kind].verify(found.target)
    if outcome.result is SendResult.DELIVERED:
        new = found._replace(state=RouteState.ACTIVE, reason=None)
    elif found.state is RouteState.ACTIVE:
        raise Problem(409, "handshake", f"the route stays active, but its receiver does not agree: {outcome.reason}")
    else:
        new = found._replace(reason=outcome.reason)
    await _write_route(who, broker, delivery, name, new, "verify")
    return route_out(new, delivery.kinds)


@router.post("/{name}/routes/{route}/rotate", response_model=RouteOut)
async def rotate(
    who: Subscriber,
    broker: TheBroker,
    delivery: TheDelivery,
    name: SubscriberName,
    route: RouteName,
    overlap_s: Annotated[
        int, Query(ge=0, le=7 * _OVERLAP_S, description="How long the old secret signs as well.")
    ] = _OVERLAP_S,
) -> dict[str, Any]:
    """Give a webhook a new secret, told once. For a while messages have both signatures."""
    _, found = await _find_route(broker, who, name, route)
    if not delivery.kinds[found.kind].needs_handshake:
        raise Problem(422, "route", f"a route of kind {found.kind} has no secret")
    secret = new_secret()
    until = delivery.now_ms() + overlap_s * 1000
    kept = [
        one._replace(until_ms=min(until, one.until_ms or until))
        for one in found.secrets
        if one.until_ms is None or one.until_ms > delivery.now_ms()
    ]
    new = found._replace(secrets=(RouteSecret(secret), *kept[:3]))
    await _write_route(who, broker, delivery, name, new, "rotate")
    return route_out(new, delivery.kinds, secret)


@router.post("/{name}/routes/{route}/enable", response_model=RouteOut)
async def enable(
    who: Subscriber, broker: TheBroker, delivery: TheDelivery, name: SubscriberName, route: RouteName
) -> dict[str, Any]:
    """Use a route again that was disabled. A webhook has to be verified again."""
    _, found = await _find_route(broker, who, name, route)
    if found.state is not RouteState.DISABLED:
        return route_out(found, delivery.kinds)
    state = RouteState.UNVERIFIED if delivery.kinds[found.kind].needs_handshake else RouteState.ACTIVE
    new = found._replace(state=state, reason=None)
    await _write_route(who, broker, delivery, name, new, "enable")
    return route_out(new, delivery.kinds)
