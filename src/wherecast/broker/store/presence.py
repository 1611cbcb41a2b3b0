"""Presence: what the open feeds of each process have sent to subscribers that may be told by feed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select, tuple_

from wherecast.broker.store.delivery_tables import presence, routes, subscribers

#: How many rows one statement names.
_AT_ONCE = 400


class PresentFeed(NamedTuple):
    """An open feed: it has sent every match from `start` up to `sent`."""

    feed: int
    tenant: str
    subscriber: str
    space: str
    start: int
    sent: int


def told_by_feed(connection: Connection, who: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of (tenant, subscriber) that have a route of kind feed."""
    joined = subscribers.join(routes, routes.c.subscriber == subscribers.c.number)
    query = select(subscribers.c.tenant, subscribers.c.name).select_from(joined).where(routes.c.kind == "feed")
    pairs, found = list(who), set()
    for n in range(0, len(pairs), _AT_ONCE):
        some = tuple_(subscribers.c.tenant, subscribers.c.name).in_(pairs[n : n + _AT_ONCE])
        found |= {(row.tenant, row.name) for row in connection.execute(query.where(some))}
    return found


def put_feeds(connection: Connection, owner: str, feeds: Sequence[PresentFeed], until_ms: int) -> None:
    """Write feeds of a process; they count until a time."""
    remove_feeds(connection, owner, [one.feed for one in feeds])
    rows = [{"owner": owner, "until_ms": until_ms, **one._asdict()} for one in feeds]
    if rows:
        connection.execute(insert(presence), rows)


def remove_feeds(connection: Connection, owner: str, feeds: Sequence[int]) -> None:
    for n in range(0, len(feeds), _AT_ONCE):
        some = presence.c.feed.in_(feeds[n : n + _AT_ONCE])
        connection.execute(delete(presence).where(presence.c.owner == owner, some))


def forget_feeds(connection: Connection, now_ms: int) -> None:
    """Remove the rows of processes that have ended."""
    connection.execute(delete(presence).where(presence.c.until_ms < now_ms))


def feeds_elsewhere(
    connection: Connection, tenant: str, subscriber: str, space: str, owner: str, now_ms: int
) -> list[tuple[int, int]]:
    """What open feeds of other processes have sent: positions from a start to an end."""
    where = (
        presence.c.tenant == tenant,
        presence.c.subscriber == subscriber,
        presence.c.space == space,
        presence.c.owner != owner,
        presence.c.until_ms >= now_ms,
    )
    return [(int(row.start), int(row.sent)) for row in connection.execute(select(presence).where(*where))]
