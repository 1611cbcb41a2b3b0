"""The event log: append, read from a position, retention by age and size."""

from __future__ import annotations

from sqlalchemy import Connection, delete, func, insert, select, update

from wherecast.broker.log_entries import LoggedEvents, pack_lines, pack_matches, unpack_entry
from wherecast.broker.store.tables import event_log, spaces

_ENTRY = (event_log.c.position, event_log.c.version, event_log.c.time_ms, event_log.c.lines, event_log.c.matches)

_APPEND = insert(event_log)  # made once


def append(connection: Connection, tenant: str, space: int, entry: LoggedEvents) -> None:
    lines, matches = pack_lines(entry), pack_matches(entry)
    values = {
        "tenant": tenant,
        "space": space,
        "position": entry.position,
        "events": len(entry.lines),
        "version": entry.version,
        "time_ms": entry.time_ms,
        "lines": lines,
        "matches": matches,
        "bytes": len(lines) + len(matches),
    }
    connection.execute(_APPEND, values)


def read_from(connection: Connection, tenant: str, space: int, position: int, limit: int) -> list[LoggedEvents]:
    """Entries with events at a position and after it, in order."""
    of_space = (event_log.c.tenant == tenant, event_log.c.space == space)
    first = select(func.max(event_log.c.position)).where(*of_space, event_log.c.position <= position).scalar_subquery()
    query = select(*_ENTRY).where(*of_space, event_log.c.position >= func.coalesce(first, position))
    found = [unpack_entry(*row) for row in connection.execute(query.order_by(event_log.c.position).limit(limit + 1))]
    return [entry for entry in found if entry.end > position][:limit]


def bounds(connection: Connection, tenant: str, space: int) -> tuple[int, int]:
    """The position of the oldest event that is kept, and of the next one."""
    query = select(spaces.c.log_start, spaces.c.head).where(spaces.c.tenant == tenant, spaces.c.space == space)
    row = connection.execute(query).first()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def trim(connection: Connection, tenant: str, space: int, before_ms: int | None, keep_bytes: int | None) -> int:
    """Remove entries that are too old, and the oldest of too many bytes; returns how many are gone."""
    of_space = (event_log.c.tenant == tenant, event_log.c.space == space)
    keep_from = 0
    if before_ms is not None:
        newest = select(func.max(event_log.c.position + event_log.c.events)).where(
            *of_space, event_log.c.time_ms < before_ms
        )
        keep_from = int(connection.execute(newest).scalar() or 0)
    if keep_bytes is not None:
        total = func.sum(event_log.c.bytes).over(order_by=event_log.c.position.desc())
        sizes = select((event_log.c.position + event_log.c.events).label("end"), total.label("total")).where(*of_space)
        inner = sizes.subquery()
        over = select(func.max(inner.c.end)).where(inner.c.total > keep_bytes)
        keep_from = max(keep_from, int(connection.execute(over).scalar() or 0))
    if not keep_from:
        return 0
    gone = connection.execute(delete(event_log).where(*of_space, event_log.c.position < keep_from)).rowcount
    where = (spaces.c.tenant == tenant, spaces.c.space == space, spaces.c.log_start < keep_from)
    connection.execute(update(spaces).where(*where).values(log_start=keep_from))
    return int(gone)
