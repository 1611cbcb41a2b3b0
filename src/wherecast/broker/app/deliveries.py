"""Deliveries and dead letters, and their replay."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from sqlalchemy import Connection

from wherecast.broker.app.access import Reader, Subscriber, TheBroker
from wherecast.broker.app.delivery_models import (
    DeliveryDetails,
    DeliveryPage,
    ReplayIn,
    ReplayOut,
    delivery_out,
    details_out,
)
from wherecast.broker.app.models import to_ms
from wherecast.broker.app.subscribers import TheDelivery
from wherecast.broker.delivery.records import DeliveryState
from wherecast.broker.problems import Problem, not_found
from wherecast.broker.store import audit, deliveries, subscribers

router = APIRouter(prefix="/v1/deliveries", tags=["deliveries"])

DeliveryName = Annotated[str, Path(alias="id", pattern=r"^[a-z0-9]{1,40}$", examples=["d0123456789abcdef"])]


@router.get("", response_model=DeliveryPage)
async def list_deliveries(
    who: Reader,
    broker: TheBroker,
    subscriber: Annotated[str | None, Query(max_length=200)] = None,
    state: Literal["pending", "held", "delivered", "dead"] | None = None,
    after: Annotated[str, Query(pattern=r"^[0-9]{0,18}$", description="`next` of the page before.")] = "",
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> dict[str, Any]:
    """Deliveries, the newest first, a page at a time."""
    if subscriber and "\x00" in subscriber:
        raise Problem(422, "text", "a text has no NUL characters")
    number = int(after) if after else None
    rows = await broker.read(lambda c: deliveries.list_deliveries(c, who.tenant, subscriber, state, number, limit + 1))
    following = str(rows[limit - 1][0]) if len(rows) > limit else None
    return {"deliveries": [delivery_out(row) for _, row in rows[:limit]], "next": following}


@router.get("/{id}", response_model=DeliveryDetails)
async def get(who: Reader, broker: TheBroker, id: DeliveryName) -> dict[str, Any]:
    """One delivery with its latest tries and its event."""
    found = await broker.read(lambda c: deliveries.find_delivery(c, who.tenant, id))
    if found is None:
        raise not_found("delivery", id)
    return details_out(found)


@router.post("/replay", response_model=ReplayOut)
async def replay_many(who: Subscriber, broker: TheBroker, delivery: TheDelivery, given: ReplayIn) -> dict[str, Any]:
    """Try dead letters again, with the ids they had."""

    def change(connection: Connection, now: int) -> int:
        before = None if given.before is None else to_ms(given.before)
        count, names = deliveries.replay(connection, who.tenant, now, subscriber=given.subscriber, before_ms=before)
        subscribers.wake_queues(connection, who.tenant, names, now)
        audit.write(connection, who.tenant, now, who.actor, "replay", given.subscriber or "all", {"replayed": count})
        return count

    count = await broker.run(change)
    delivery.wake()
    return {"replayed": count}


@router.post("/{id}/replay", response_model=ReplayOut)
async def replay_one(who: Subscriber, broker: TheBroker, delivery: TheDelivery, id: DeliveryName) -> dict[str, Any]:
    """Try one dead letter again, with the id it had."""

    def change(connection: Connection, now: int) -> int:
        found = deliveries.find_delivery(connection, who.tenant, id)
        if found is None:
            raise not_found("delivery", id)
        count, names = deliveries.replay(connection, who.tenant, now, id=id)
        if not count and found.state is DeliveryState.DEAD:
            raise Problem(409, "state", f"there is no subscriber {found.subscriber!r} any more; make it again first")
        if not count:
            raise Problem(409, "state", f"the delivery is {found.state.value}; only dead letters are replayed")
        subscribers.wake_queues(connection, who.tenant, names, now)
        audit.write(connection, who.tenant, now, who.actor, "replay", id, {})
        return count

    count = await broker.run(change)
    delivery.wake()
    return {"replayed": count}
