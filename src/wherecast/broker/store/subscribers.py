"""Subscribers with their routes, and their queues: who looks at whose deliveries, and when."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, case, delete, exists, func, insert, or_, select, update

from wherecast.broker.delivery.records import QuietHours, RouteSecret, RouteState, SubscriberRecord, SubscriberRoute
from wherecast.broker.store.delivery_tables import deliveries, delivery_positions, routes, subscribers
from wherecast.broker.store.tables import spaces, subscriptions, tenants

_PLAIN = ("name", "time_zone", "digest_minutes", "snoozed_until_ms", "title", "text", "created_ms", "updated_ms")
_COLUMNS = [subscribers.c[name] for name in ("number", "tenant", "quiet_hours", "ordered", "muted", *_PLAIN)]
_ROUTE = [routes.c[name] for name in ("subscriber", "route", "kind", "target", "state", "reason", "secrets")]
#: How many values one statement may have.
_AT_ONCE = 900


class LeasedQueue(NamedTuple):
    """A subscriber whose deliveries this process looks at."""

    number: int
    record: SubscriberRecord


def _record(row: Row[Any], found: Sequence[SubscriberRoute]) -> SubscriberRecord:
    quiet = tuple(QuietHours(start, end, frozenset(days)) for start, end, days in json.loads(row.quiet_hours))
    plain = {name: getattr(row, name) for name in _PLAIN}
    return SubscriberRecord(
        row.tenant,
        **plain,
        quiet_hours=quiet,
        ordered=bool(row.ordered),
        muted=bool(row.muted),
        routes=tuple(found),
    )


def _route(row: Row[Any]) -> SubscriberRoute:
    kept = tuple(RouteSecret(*pair) for pair in json.loads(row.secrets))
    return SubscriberRoute(row.route, row.kind, row.target, RouteState(row.state), row.reason, kept)


def _with_routes(connection: Connection, tenant: str, rows: Sequence[Row[Any]]) -> list[LeasedQueue]:
    found: dict[int, list[SubscriberRoute]] = {row.number: [] for row in rows}
    if found:
        query = select(*_ROUTE).where(routes.c.tenant == tenant, routes.c.subscriber.in_(list(found)))
        for route in connection.execute(query.order_by(routes.c.place)):
            found[route.subscriber].append(_route(route))
    return [LeasedQueue(row.number, _record(row, found[row.number])) for row in rows]


# -- records ----------------------------------------------------------------------------------------------------------


def find_records(connection: Connection, tenant: str, names: Iterable[str]) -> dict[str, SubscriberRecord]:
    """Those of the names that have a record."""
    found = {}
    for some in _chunks(list(names)):
        where = (subscribers.c.tenant == tenant, subscribers.c.name.in_(some))
        rows = connection.execute(select(*_COLUMNS).where(*where)).all()
        found.update({queue.record.name: queue.record for queue in _with_routes(connection, tenant, rows)})
    return found


def find_record(connection: Connection, tenant: str, name: str) -> SubscriberRecord | None:
    return find_records(connection, tenant, [name]).get(name)


def list_records(
    connection: Connection, tenant: str, text: str | None, after: str, limit: int
) -> list[SubscriberRecord]:
    """Records in the order of their names; `text` is a part of the name."""
    query = select(*_COLUMNS).where(subscribers.c.tenant == tenant, subscribers.c.name > after)
    if text:
        query = query.where(func.lower(subscribers.c.name).contains(text.lower(), autoescape=True))
    rows = connection.execute(query.order_by(subscribers.c.name).limit(limit)).all()
    return [queue.record for queue in _with_routes(connection, tenant, rows)]


def tenants_with_records(connection: Connection) -> set[str]:
    """Whose matches may be delivered: for the process that delivers, never for an answer."""
    has = select(subscribers.c.number).where(subscribers.c.tenant == tenants.c.tenant).exists()
    return {
        str(tenant) for (tenant,) in connection.execute(select(tenants.c.tenant).where(has).order_by(tenants.c.tenant))
    }


class KnownNumbers(NamedTuple):
    """Up to which record and which version of a space the numbers of subscriptions are known."""

    record: int = 0
    version: int = -1


def numbers_with_records(
    connection: Connection, tenant: str, space: int, known: KnownNumbers, version: int
) -> tuple[list[int], KnownNumbers]:
    """Numbers of subscriptions whose subscribers have records, those that are known already left out.

    Whoever makes a record holds the tenant's row, so records become visible in the order of their numbers.
    """
    joined = subscriptions.join(
        subscribers,
        (subscribers.c.tenant == subscriptions.c.tenant) & (subscribers.c.name == subscriptions.c.subscriber),
    )
    query = select(subscriptions.c.number).select_from(joined)
    query = query.where(subscriptions.c.tenant == tenant, subscriptions.c.space == space)
    last = (
        connection.execute(select(func.max(subscribers.c.number)).where(subscribers.c.tenant == tenant)).scalar() or 0
    )
    found: list[int] = []
    if last > known.record:
        found += connection.execute(query.where(subscribers.c.number > known.record)).scalars()
    if known.record and version > known.version:
        found += connection.execute(query.where(subscriptions.c.version > known.version)).scalars()
    return found, KnownNumbers(last, max(version, known.version))


def put_record(connection: Connection, record: SubscriberRecord) -> None:
    """Write a record with its routes. The first of a tenant makes delivery begin at the next event of every space."""
    tenant, name = record.tenant, record.name
    connection.execute(select(tenants.c.tenant).where(tenants.c.tenant == tenant).with_for_update())
    values: dict[str, Any] = {name: getattr(record, name) for name in _PLAIN}
    values |= {"ordered": int(record.ordered), "muted": int(record.muted), "next_ms": record.updated_ms}
    values["quiet_hours"] = json.dumps([[q.start, q.end, sorted(q.days)] for q in record.quiet_hours])
    where = (subscribers.c.tenant == tenant, subscribers.c.name == name)
    if not connection.execute(update(subscribers).where(*where).values(values)).rowcount:
        if (
            connection.execute(select(subscribers.c.number).where(subscribers.c.tenant == tenant).limit(1)).first()
            is None
        ):
            _begin_at_head(connection, tenant)
        connection.execute(insert(subscribers).values(tenant=tenant, lease_ms=0, lease_owner="", **values))
    number = connection.execute(select(subscribers.c.number).where(*where)).scalar_one()
    connection.execute(delete(routes).where(routes.c.tenant == tenant, routes.c.subscriber == number))
    if record.routes:
        rows = [_route_values(route) | {"place": place} for place, route in enumerate(record.routes)]
        connection.execute(insert(routes), [{"tenant": tenant, "subscriber": number, **row} for row in rows])
    _look_again(connection, tenant, name, record.updated_ms)


def _begin_at_head(connection: Connection, tenant: str) -> None:
    where = delivery_positions.c.tenant == tenant
    connection.execute(delete(delivery_positions).where(where))
    heads = select(spaces.c.space, spaces.c.tenant, spaces.c.head).where(spaces.c.tenant == tenant)
    connection.execute(insert(delivery_positions).from_select(["space", "tenant", "position"], heads))


def _route_values(route: SubscriberRoute) -> dict[str, Any]:
    return {**route._asdict(), "state": route.state.value, "secrets": json.dumps(route.secrets)}


def remove_record(connection: Connection, tenant: str, name: str) -> bool:
    return bool(
        connection.execute(
            delete(subscribers).where(subscribers.c.tenant == tenant, subscribers.c.name == name)
        ).rowcount
    )


def change_record(connection: Connection, tenant: str, name: str, now_ms: int, **fields: Any) -> bool:
    """Change some columns, and have its deliveries looked at again; False: there is no such record."""
    where = (subscribers.c.tenant == tenant, subscribers.c.name == name)
    values = {**fields, "updated_ms": now_ms, "next_ms": now_ms}
    return bool(connection.execute(update(subscribers).where(*where).values(values)).rowcount)


def change_route(connection: Connection, tenant: str, name: str, route: SubscriberRoute, now_ms: int) -> None:
    """Write a route that is there already, and have the deliveries looked at again."""
    number = (
        select(subscribers.c.number).where(subscribers.c.tenant == tenant, subscribers.c.name == name).scalar_subquery()
    )
    where = (routes.c.tenant == tenant, routes.c.subscriber == number, routes.c.route == route.route)
    connection.execute(update(routes).where(*where).values(_route_values(route)))
    change_record(connection, tenant, name, now_ms)
    if route.state is RouteState.ACTIVE:
        _look_again(connection, tenant, name, now_ms)


def disable_route(
    connection: Connection, tenant: str, name: str, route: str, target: str, reason: str, now_ms: int
) -> bool:
    """Disable a route, unless it was pointed somewhere else meanwhile."""
    record = find_record(connection, tenant, name)
    found = record.find_route(route) if record else None
    if found is None or found.target != target or found.state is RouteState.DISABLED:
        return False
    change_route(connection, tenant, name, found._replace(state=RouteState.DISABLED, reason=reason), now_ms)
    return True


def _look_again(connection: Connection, tenant: str, name: str, now_ms: int) -> None:
    """What waited because no route was usable is due now."""
    where = (
        deliveries.c.tenant == tenant,
        deliveries.c.subscriber == name,
        deliveries.c.state == "pending",
        deliveries.c.route.is_(None),
    )
    connection.execute(update(deliveries).where(*where).values(next_ms=now_ms))


# -- queues -----------------------------------------------------------------------------------------------------------
#
# While a queue is leased, its `next_ms` is the end of the lease. Whoever has news for it sets `next_ms` to a time before that, so
# the one who gives it back sees that it has to be looked at again.


def wake_queues(connection: Connection, tenant: str, names: Iterable[str], at_ms: int) -> None:
    """Have the deliveries of subscribers looked at, at a time or before it."""
    for some in _chunks(list(names)):
        where = (
            subscribers.c.tenant == tenant,
            subscribers.c.name.in_(some),
            or_(subscribers.c.next_ms.is_(None), subscribers.c.next_ms > at_ms),
        )
        connection.execute(update(subscribers).where(*where).values(next_ms=at_ms))


def due_tenants(connection: Connection, now_ms: int) -> list[str]:
    """Tenants with queues that are due: for the process that delivers, never for an answer.

    It is asked several times a second, so it looks into the index once per tenant: a million queues that wait, or are due, are not read.
    """
    is_due = (
        subscribers.c.tenant == tenants.c.tenant,
        subscribers.c.next_ms <= now_ms,
        subscribers.c.lease_ms <= now_ms,
    )
    query = select(tenants.c.tenant).where(exists().where(*is_due)).order_by(tenants.c.tenant)
    return list(connection.execute(query).scalars())


def lease_queues(connection: Connection, tenant: str, now_ms: int, until_ms: int, owner: str, limit: int) -> list[int]:
    """Take queues that are due and that nobody holds. Another process does not wait for this one, and skips them."""
    due = (
        select(subscribers.c.number)
        .where(subscribers.c.tenant == tenant, subscribers.c.next_ms <= now_ms, subscribers.c.lease_ms <= now_ms)
        .order_by(subscribers.c.next_ms)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    numbers = [int(number) for (number,) in connection.execute(due)]
    values = {"lease_ms": until_ms, "next_ms": until_ms, "lease_owner": owner}
    for some in _chunks(numbers):
        where = (subscribers.c.tenant == tenant, subscribers.c.number.in_(some))
        connection.execute(update(subscribers).where(*where).values(values))
    return numbers


def read_queues(connection: Connection, tenant: str, numbers: Sequence[int]) -> list[LeasedQueue]:
    """The records of leased queues."""
    found: list[LeasedQueue] = []
    for some in _chunks(numbers):
        where = (subscribers.c.tenant == tenant, subscribers.c.number.in_(some))
        found += _with_routes(connection, tenant, connection.execute(select(*_COLUMNS).where(*where)).all())
    return found


def release_queues(
    connection: Connection, tenant: str, numbers: Sequence[int], owner: str, at_ms: int | None = None
) -> None:
    """Give queues back. Each is due at a time, or else with the first of its pending deliveries; at once, if it was woken."""
    first = (
        select(func.min(deliveries.c.next_ms))
        .where(
            deliveries.c.tenant == subscribers.c.tenant,
            deliveries.c.subscriber == subscribers.c.name,
            deliveries.c.state == "pending",
        )
        .correlate(subscribers)
        .scalar_subquery()
    )
    is_woken = subscribers.c.next_ms < subscribers.c.lease_ms
    due = case((is_woken, subscribers.c.next_ms), else_=first if at_ms is None else at_ms)
    for some in _chunks(numbers):
        mine = (subscribers.c.tenant == tenant, subscribers.c.number.in_(some), subscribers.c.lease_owner == owner)
        connection.execute(update(subscribers).where(*mine).values(lease_ms=0, lease_owner="", next_ms=due))


def renew_leases(connection: Connection, tenant: str, owner: str, until_ms: int) -> None:
    where = (subscribers.c.tenant == tenant, subscribers.c.lease_owner == owner)
    due = case((subscribers.c.next_ms < subscribers.c.lease_ms, subscribers.c.next_ms), else_=until_ms)
    connection.execute(update(subscribers).where(*where).values(lease_ms=until_ms, next_ms=due))


def free_leases(connection: Connection) -> None:
    """Nobody else works on this database: what is leased belongs to a process that has ended."""
    values = {"lease_ms": 0, "lease_owner": "", "next_ms": 0}
    connection.execute(update(subscribers).where(subscribers.c.lease_ms > 0).values(values))


def _chunks(values: Sequence[Any]) -> Iterator[list[Any]]:
    return (list(values[n : n + _AT_ONCE]) for n in range(0, len(values), _AT_ONCE))
