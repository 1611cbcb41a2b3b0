"""Deliveries: the outbox. Added by the follower of the log, changed by whoever holds the subscriber's queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import (
    ColumnElement,
    Connection,
    FromClause,
    Label,
    Row,
    Select,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)

from wherecast.broker.delivery.records import Delivery, DeliveryAttempt, DeliveryState
from wherecast.broker.store.delivery_tables import deliveries, delivery_events, delivery_positions, subscribers
from wherecast.broker.store.tables import tenants

_PLAIN = (
    "id",
    "tenant",
    "subscriber",
    "space",
    "position",
    "message",
    "route",
    "tries",
    "round",
    "place",
    "created_ms",
    "since_ms",
    "next_ms",
    "finished_ms",
    "reason",
)
_COLUMNS = [deliveries.c[name] for name in ("number", "subscriptions", "state", "attempts", *_PLAIN)]
#: What changes after a try.
_CHANGING = ("message", "route", "tries", "round", "place", "next_ms", "finished_ms", "reason")
#: How many of the latest tries are kept.
_KEPT_ATTEMPTS = 20
_AT_ONCE = 900


class NewDelivery(NamedTuple):
    """A delivery to be stored, with the key of its event."""

    delivery: Delivery
    event: str


def _read(row: Row[Any], body: bytes = b"") -> Delivery:
    plain = {name: getattr(row, name) for name in _PLAIN}
    return Delivery(
        **plain,
        subscriptions=tuple(orjson.loads(row.subscriptions)),
        body=body,
        state=DeliveryState(row.state),
        attempts=tuple(DeliveryAttempt(*one) for one in orjson.loads(row.attempts)),
    )


def _with_bodies() -> Select[Any]:
    joined = deliveries.join(delivery_events, delivery_events.c.event == deliveries.c.event)
    return select(*_COLUMNS, delivery_events.c.line).select_from(joined)


# -- the log becomes deliveries ---------------------------------------------------------------------------------------


def find_position(connection: Connection, tenant: str, space: int) -> int | None:
    """Up to where the log of a space was turned into deliveries."""
    where = (delivery_positions.c.tenant == tenant, delivery_positions.c.space == space)
    found = connection.execute(select(delivery_positions.c.position).where(*where)).scalar()
    return None if found is None else int(found)


def move_position(connection: Connection, tenant: str, space: int, old: int | None, new: int) -> bool:
    """False: somebody else has moved it meanwhile."""
    if old is None:
        if find_position(connection, tenant, space) is not None:
            return False
        connection.execute(insert(delivery_positions).values(tenant=tenant, space=space, position=new))
        return True
    where = (
        delivery_positions.c.tenant == tenant,
        delivery_positions.c.space == space,
        delivery_positions.c.position == old,
    )
    return bool(connection.execute(update(delivery_positions).where(*where).values(position=new)).rowcount)


def add_deliveries(connection: Connection, tenant: str, new: Sequence[NewDelivery]) -> None:
    events = {one.event: one.delivery.body for one in new}
    connection.execute(
        insert(delivery_events), [{"event": key, "tenant": tenant, "line": line} for key, line in events.items()]
    )
    connection.execute(
        insert(deliveries),
        [
            {
                **{name: getattr(one.delivery, name) for name in _PLAIN},
                "event": one.event,
                "subscriptions": orjson.dumps(one.delivery.subscriptions).decode(),
                "state": one.delivery.state.value,
                "attempts": "[]",
            }
            for one in new
        ],
    )


# -- trying them ------------------------------------------------------------------------------------------------------


def take_due(
    connection: Connection, tenant: str, subscriber: str, now_ms: int, limit: int, *, ordered: bool
) -> tuple[list[Delivery], int | None]:
    """The deliveries of a subscriber that are due.

    Where order is asked for, they are the first ones; with them comes the time of the one that all others wait for.
    """
    query = _with_bodies().where(
        deliveries.c.tenant == tenant, deliveries.c.subscriber == subscriber, deliveries.c.state == "pending"
    )
    if ordered:
        query = query.order_by(deliveries.c.number)
    else:
        query = query.where(deliveries.c.next_ms <= now_ms).order_by(deliveries.c.next_ms)
    found: list[Delivery] = []
    for row in connection.execute(query.limit(limit)):
        if row.next_ms > now_ms:
            return found, int(row.next_ms)
        found.append(_read(row, row.line))
    return found, None


def settle(connection: Connection, tenant: str, changed: Iterable[Delivery]) -> None:
    """Write what became of tries. One that was replayed or removed meanwhile is left alone."""
    statement = (
        update(deliveries)
        .where(deliveries.c.tenant == tenant, deliveries.c.id == bindparam("key"), deliveries.c.state == "pending")
        .values({name: bindparam(f"new_{name}") for name in (*_CHANGING, "state", "attempts")})
    )
    rows = [
        {
            "key": one.id,
            **{f"new_{name}": getattr(one, name) for name in _CHANGING},
            "new_state": one.state.value,
            "new_attempts": orjson.dumps([tuple(tried) for tried in one.attempts[-_KEPT_ATTEMPTS:]]).decode(),
        }
        for one in changed
    ]
    if rows:
        connection.execute(statement, rows)


def members_of(connection: Connection, tenant: str, subscriber: str, message: str) -> list[Delivery]:
    """All deliveries of a digest that was tried before."""
    query = _with_bodies().where(
        deliveries.c.tenant == tenant,
        deliveries.c.subscriber == subscriber,
        deliveries.c.state == "pending",
        deliveries.c.message == message,
    )
    return [_read(row, row.line) for row in connection.execute(query.order_by(deliveries.c.number))]


def has_held(connection: Connection, tenant: str, subscriber: str) -> bool:
    query = select(deliveries.c.id).where(
        deliveries.c.tenant == tenant, deliveries.c.subscriber == subscriber, deliveries.c.state == "held"
    )
    return connection.execute(query.limit(1)).first() is not None


def move_states(connection: Connection, tenant: str, subscriber: str, old: DeliveryState, new: DeliveryState) -> int:
    """All deliveries of a subscriber in one state go to another."""
    where = (deliveries.c.tenant == tenant, deliveries.c.subscriber == subscriber, deliveries.c.state == old.value)
    return int(connection.execute(update(deliveries).where(*where).values(state=new.value)).rowcount)


def set_messages(connection: Connection, tenant: str, ids: Sequence[str], message: str) -> None:
    """Deliveries become one message, before it is sent."""
    for n in range(0, len(ids), _AT_ONCE):
        where = (deliveries.c.tenant == tenant, deliveries.c.id.in_(list(ids[n : n + _AT_ONCE])))
        connection.execute(update(deliveries).where(*where).values(message=message))


# -- looking at them --------------------------------------------------------------------------------------------------

#: When a delivery is tried: not before its queue is looked at, which may wait for an endpoint, or for a delivery that comes first.
_NEXT_MS = case(
    (and_(subscribers.c.lease_ms == 0, subscribers.c.next_ms > deliveries.c.next_ms), subscribers.c.next_ms),
    else_=deliveries.c.next_ms,
).label("next_ms")
_QUEUE = and_(subscribers.c.tenant == deliveries.c.tenant, subscribers.c.name == deliveries.c.subscriber)
_SHOWN = [_NEXT_MS, *(column for column in _COLUMNS if column.name != "next_ms")]


def _shown(source: FromClause, *more: ColumnElement[Any]) -> Select[Any]:
    return select(*_SHOWN, *more).select_from(source.outerjoin(subscribers, _QUEUE))


def list_deliveries(
    connection: Connection, tenant: str, subscriber: str | None, state: str | None, after: int | None, limit: int
) -> list[tuple[int, Delivery]]:
    """The newest first, with their numbers; `after` is the number of the last one seen."""
    query = _shown(deliveries).where(deliveries.c.tenant == tenant)
    if subscriber is not None:
        query = query.where(deliveries.c.subscriber == subscriber)
    if state is not None:
        query = query.where(deliveries.c.state == state)
    if after is not None:
        query = query.where(deliveries.c.number < after)
    return [
        (row.number, _read(row)) for row in connection.execute(query.order_by(deliveries.c.number.desc()).limit(limit))
    ]


#: Counting the deliveries of a tenant ends here: the figures are asked for every few seconds.
MOST_COUNTED = 10_000


def count_waiting(connection: Connection, tenant: str | None) -> dict[str, int]:
    """How many deliveries of a tenant are pending, held and dead, up to `MOST_COUNTED` each; without a tenant, the sums of all."""

    def count(state: DeliveryState) -> Label[int]:
        where = (deliveries.c.tenant == tenants.c.tenant, deliveries.c.state == state.value)
        some = select(deliveries.c.number).where(*where).limit(MOST_COUNTED).correlate(tenants).subquery()
        return select(func.count()).select_from(some).scalar_subquery().label(state.value)

    counts = select(*map(count, (DeliveryState.PENDING, DeliveryState.HELD, DeliveryState.DEAD))).select_from(tenants)
    if tenant is not None:
        counts = counts.where(tenants.c.tenant == tenant)
    each = counts.subquery()
    sums = select(*(func.coalesce(func.sum(column), 0).label(column.name) for column in each.c))
    return {name: int(number) for name, number in connection.execute(sums).mappings().one().items()}


def find_delivery(connection: Connection, tenant: str, id: str) -> Delivery | None:
    joined = deliveries.join(delivery_events, delivery_events.c.event == deliveries.c.event)
    query = _shown(joined, delivery_events.c.line)
    row = connection.execute(query.where(deliveries.c.tenant == tenant, deliveries.c.id == id)).first()
    return None if row is None else _read(row, row.line)


def replay(
    connection: Connection,
    tenant: str,
    now_ms: int,
    *,
    id: str | None = None,
    subscriber: str | None = None,
    before_ms: int | None = None,
) -> tuple[int, list[str]]:
    """Make dead letters pending again; how many, and whose they are. Those of subscribers that are gone stay: nobody would look at them."""
    known = select(subscribers.c.name).where(subscribers.c.tenant == tenant)
    where = [
        deliveries.c.tenant == tenant,
        deliveries.c.state == DeliveryState.DEAD.value,
        deliveries.c.subscriber.in_(known),
    ]
    if id is not None:
        where.append(deliveries.c.id == id)
    if subscriber is not None:
        where.append(deliveries.c.subscriber == subscriber)
    if before_ms is not None:
        where.append(deliveries.c.created_ms < before_ms)
    names = [str(name) for (name,) in connection.execute(select(deliveries.c.subscriber).distinct().where(*where))]
    values = {
        "state": DeliveryState.PENDING.value,
        "message": None,
        "round": 0,
        "place": 0,
        "since_ms": now_ms,
        "next_ms": now_ms,
        "finished_ms": None,
        "reason": None,
    }
    return int(connection.execute(update(deliveries).where(*where).values(values)).rowcount), names


def forget(connection: Connection, delivered_before_ms: int, dead_before_ms: int) -> tuple[int, int]:
    """Remove what ended long ago, of all tenants: how many were delivered, and how many dead letters."""
    gone = []
    for state, before in ((DeliveryState.DELIVERED, delivered_before_ms), (DeliveryState.DEAD, dead_before_ms)):
        where = and_(deliveries.c.state == state.value, deliveries.c.finished_ms < before)
        gone.append(int(connection.execute(delete(deliveries).where(where)).rowcount))
    if sum(gone):
        used = select(deliveries.c.id).where(deliveries.c.event == delivery_events.c.event).exists()
        connection.execute(delete(delivery_events).where(~used))
    return gone[0], gone[1]


def give_up_held(connection: Connection, since_before_ms: int, now_ms: int, reason: str) -> int:
    """What was held for too long becomes a dead letter, of all tenants."""
    where = and_(deliveries.c.state == DeliveryState.HELD.value, deliveries.c.since_ms < since_before_ms)
    values = {"state": DeliveryState.DEAD.value, "finished_ms": now_ms, "reason": reason}
    return int(connection.execute(update(deliveries).where(where).values(values)).rowcount)


def end_all(connection: Connection, tenant: str, subscriber: str, now_ms: int, reason: str) -> int:
    """Whatever has not ended becomes a dead letter: the subscriber is gone."""
    where = (
        deliveries.c.tenant == tenant,
        deliveries.c.subscriber == subscriber,
        deliveries.c.state.in_([DeliveryState.PENDING.value, DeliveryState.HELD.value]),
    )
    values = {"state": DeliveryState.DEAD.value, "finished_ms": now_ms, "reason": reason}
    return int(connection.execute(update(deliveries).where(*where).values(values)).rowcount)
