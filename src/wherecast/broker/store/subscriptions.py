"""Subscriptions: by id, by subscriber, by page, and what changed since a version."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select, delete, func, insert, select, update

from wherecast.broker.core import StoredSubscription, SubscriptionState
from wherecast.broker.store.tables import event_log, spaces, subscriptions

_FIELDS = tuple(StoredSubscription.__dataclass_fields__)
_COLUMNS = [subscriptions.c[name] for name in _FIELDS]
#: How many values one statement may have.
_AT_ONCE = 900
_DELETED = SubscriptionState.DELETED.value


def _read(row: Row[Any]) -> StoredSubscription:
    fields = row._asdict()
    fields["state"] = SubscriptionState(fields["state"])
    return StoredSubscription(**fields)


def _of(tenant: str, space: int, *columns: Any) -> Select[Any]:
    """Every query of this module begins here: rows of one space of one tenant."""
    return select(*(columns or _COLUMNS)).where(subscriptions.c.tenant == tenant, subscriptions.c.space == space)


def find_many(connection: Connection, tenant: str, space: int, ids: Sequence[str]) -> dict[str, StoredSubscription]:
    """Those of the ids that exist."""
    found = {}
    for some in _chunks(ids):
        query = _of(tenant, space).where(subscriptions.c.id.in_(some), subscriptions.c.state != _DELETED)
        found.update({row.id: _read(row) for row in connection.execute(query)})
    return found


def find_one(connection: Connection, tenant: str, space: int, id: str) -> StoredSubscription | None:
    return find_many(connection, tenant, space, [id]).get(id)


class Page(NamedTuple):
    """Which subscriptions to list: those after an id, with an subscriber, a label, a text in id or filter, in a state."""

    after: str = ""
    limit: int = 100
    subscriber: str | None = None
    label: tuple[str, str] | None = None
    text: str | None = None
    state: SubscriptionState | None = None


def list_page(connection: Connection, tenant: str, space: int, page: Page) -> list[StoredSubscription]:
    query = _of(tenant, space).where(subscriptions.c.state != _DELETED, subscriptions.c.id > page.after)
    if page.subscriber is not None:
        query = query.where(subscriptions.c.subscriber == page.subscriber)
    if page.state is not None:
        query = query.where(subscriptions.c.state == page.state.value)
    if page.label is not None:
        # Labels are JSON without spaces, and a quote inside a text is escaped there: only the label itself looks like this.
        name, value = (json.dumps(part, ensure_ascii=False) for part in page.label)
        query = query.where(subscriptions.c.labels.contains(f"{name}:{value}", autoescape=True))
    if page.text is not None:
        in_filter = subscriptions.c.filter.icontains(page.text, autoescape=True)
        query = query.where(in_filter | subscriptions.c.id.icontains(page.text, autoescape=True))
    return [_read(row) for row in connection.execute(query.order_by(subscriptions.c.id).limit(page.limit))]


def _ids(connection: Connection, query: Select[Any]) -> dict[int, str]:
    return {row.number: row.id for row in connection.execute(query)}


def numbers_of_id(connection: Connection, tenant: str, space: int, id: str) -> dict[int, str]:
    """Numbers of a subscription, and of deleted ones that had its id: old events may have matched them."""
    query = _of(tenant, space, subscriptions.c.number, subscriptions.c.id).where(subscriptions.c.id == id)
    return _ids(connection, query)


def numbers_of_subscriber(connection: Connection, tenant: str, space: int, subscriber: str) -> dict[int, str]:
    """Numbers and ids of all subscriptions that an subscriber has or had."""
    query = _of(tenant, space, subscriptions.c.number, subscriptions.c.id).where(
        subscriptions.c.subscriber == subscriber
    )
    return _ids(connection, query)


def ids_of_numbers(connection: Connection, tenant: str, space: int, numbers: Iterable[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    for some in _chunks(list(numbers)):
        query = _of(tenant, space, subscriptions.c.number, subscriptions.c.id).where(subscriptions.c.number.in_(some))
        found |= _ids(connection, query)
    return found


def owners_of_numbers(
    connection: Connection, tenant: str, space: int, numbers: Sequence[int]
) -> dict[int, tuple[str, str]]:
    """Ids and subscribers by number."""
    found: dict[int, tuple[str, str]] = {}
    columns = (subscriptions.c.number, subscriptions.c.id, subscriptions.c.subscriber)
    for some in _chunks(numbers):
        query = _of(tenant, space, *columns).where(subscriptions.c.number.in_(some))
        found.update({number: (id, subscriber) for number, id, subscriber in connection.execute(query)})
    return found


def changed_since(
    connection: Connection, tenant: str, space: int, version: int, limit: int | None = None
) -> list[StoredSubscription]:
    """The subscriptions that changed after a version, deleted ones included, in the order of their last change."""
    query = _of(tenant, space).where(subscriptions.c.version > version)
    query = query.order_by(subscriptions.c.version, subscriptions.c.number)
    return [_read(row) for row in connection.execute(query if limit is None else query.limit(limit))]


def of_version(connection: Connection, tenant: str, space: int, version: int) -> list[StoredSubscription]:
    """The subscriptions whose last change is this version."""
    query = _of(tenant, space).where(subscriptions.c.version == version).order_by(subscriptions.c.number)
    return [_read(row) for row in connection.execute(query)]


def purged_to(connection: Connection, tenant: str, space: int) -> int:
    """Up to this version `changed_since` may lack deletions."""
    query = select(spaces.c.purged).where(spaces.c.tenant == tenant, spaces.c.space == space)
    return int(connection.execute(query).scalar() or 0)


def active_filters(connection: Connection, tenant: str, space: int) -> Iterator[Sequence[Row[Any]]]:
    """(number, filter) of all active subscriptions, some at a time."""
    query = _of(tenant, space, subscriptions.c.number, subscriptions.c.filter)
    query = query.where(subscriptions.c.state == SubscriptionState.ACTIVE.value).order_by(subscriptions.c.number)
    result = connection.execution_options(stream_results=True, yield_per=50_000).execute(query)
    yield from result.partitions()


def every_live(connection: Connection, tenant: str, space: int) -> Iterator[StoredSubscription]:
    """All that exist, for an export."""
    query = _of(tenant, space).where(subscriptions.c.state != _DELETED).order_by(subscriptions.c.number)
    for rows in connection.execution_options(stream_results=True, yield_per=10_000).execute(query).partitions():
        yield from map(_read, rows)


def due(connection: Connection, now_ms: int, limit: int) -> list[tuple[str, int, str]]:
    """(tenant, space, id) of subscriptions of all tenants whose time is over."""
    query = select(subscriptions.c.tenant, subscriptions.c.space, subscriptions.c.id).where(
        subscriptions.c.expires_ms <= now_ms,
        subscriptions.c.state.in_([SubscriptionState.ACTIVE.value, SubscriptionState.PAUSED.value]),
    )
    return [(tenant, space, id) for tenant, space, id in connection.execute(query.limit(limit))]


def write_many(
    connection: Connection, tenant: str, space: int, rows: Iterable[StoredSubscription], new_from: int
) -> None:
    """Write rows; numbers from `new_from` on are new."""
    new: list[dict[str, Any]] = []
    old: list[dict[str, Any]] = []
    for row in rows:
        fields = {name: getattr(row, name) for name in _FIELDS}
        fields["state"] = row.state.value
        (new if row.number >= new_from else old).append(fields)
    if new:
        connection.execute(insert(subscriptions), [{"tenant": tenant, "space": space, **fields} for fields in new])
    for fields in old:
        number = fields.pop("number")
        where = (subscriptions.c.tenant == tenant, subscriptions.c.space == space, subscriptions.c.number == number)
        connection.execute(update(subscriptions).where(*where).values(fields))


def purge(connection: Connection, tenant: str, space: int, before_ms: int) -> int:
    """Remove tombstones that are older; who follows from before them has to begin anew.

    Those stay whose subscription may have matched an event of the log: its feed names it. Versions in the log do not go down.
    """
    oldest = (
        select(event_log.c.version)
        .where(event_log.c.tenant == tenant, event_log.c.space == space)
        .order_by(event_log.c.position)
        .limit(1)
    )
    kept_from = connection.execute(oldest).scalar()
    gone = (
        *(() if kept_from is None else (subscriptions.c.version <= kept_from,)),
        subscriptions.c.tenant == tenant,
        subscriptions.c.space == space,
        subscriptions.c.state == _DELETED,
        subscriptions.c.updated_ms < before_ms,
    )
    last = connection.execute(select(func.max(subscriptions.c.version)).where(*gone)).scalar()
    if last is None:
        return 0
    where = (spaces.c.tenant == tenant, spaces.c.space == space)
    connection.execute(update(spaces).where(*where).values(purged=last))
    return int(connection.execute(delete(subscriptions).where(*gone)).rowcount)


def _chunks(values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    return (tuple(values[n : n + _AT_ONCE]) for n in range(0, len(values), _AT_ONCE))
