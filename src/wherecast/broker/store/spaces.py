"""Tenants and spaces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, Row, String, bindparam, delete, func, insert, select, update

from wherecast.broker.core import SpaceCounters
from wherecast.broker.store.delivery_tables import delivery_positions
from wherecast.broker.store.tables import event_log, spaces, subscriptions, tenants


class Quotas(NamedTuple):
    """What a tenant may have at most."""

    subscriptions: int = 10_000_000
    clauses: int = 40_000_000
    feeds: int = 10_000
    spaces: int = 1_000

    @classmethod
    def of(cls, text: str) -> Quotas:
        return cls(**json.loads(text))


class StoredSpace(NamedTuple):
    """A row of the table of spaces, without the counters that only the writer needs."""

    space: int
    tenant: str
    name: str
    schema: str
    schema_version: int
    version: int
    head: int
    log_start: int
    subscriptions: int
    retention_ms: int | None
    retention_bytes: int | None
    created_ms: int


_SPACE = [spaces.c[name] for name in StoredSpace._fields]


def _space(row: Row[Any]) -> StoredSpace:
    return StoredSpace._make(row)


def add_tenant(connection: Connection, tenant: str, quotas: Quotas, now_ms: int) -> bool:
    """False: it exists already."""
    if find_quotas(connection, tenant) is not None:
        return False
    connection.execute(insert(tenants).values(tenant=tenant, quotas=json.dumps(quotas._asdict()), created_ms=now_ms))
    return True


def find_quotas(connection: Connection, tenant: str) -> Quotas | None:
    text = connection.execute(select(tenants.c.quotas).where(tenants.c.tenant == tenant)).scalar()
    return None if text is None else Quotas.of(text)


def find_usage(connection: Connection, tenant: str) -> dict[str, int]:
    """What a tenant has of what it has quotas for; open feeds are not in the store."""
    total = [func.coalesce(func.sum(spaces.c[name]), 0) for name in ("subscriptions", "clauses")]
    row = connection.execute(select(*total, func.count()).where(spaces.c.tenant == tenant)).one()
    return {"subscriptions": int(row[0]), "clauses": int(row[1]), "spaces": int(row[2])}


def set_quotas(connection: Connection, tenant: str, quotas: Quotas) -> bool:
    values = {"quotas": json.dumps(quotas._asdict())}
    return bool(connection.execute(update(tenants).where(tenants.c.tenant == tenant).values(values)).rowcount)


def list_tenants(connection: Connection) -> list[tuple[str, Quotas]]:
    rows = connection.execute(select(tenants.c.tenant, tenants.c.quotas).order_by(tenants.c.tenant))
    return [(tenant, Quotas.of(text)) for tenant, text in rows]


def add_space(
    connection: Connection, tenant: str, name: str, schema: str, retention: Mapping[str, int | None], now_ms: int
) -> StoredSpace | None:
    """A new space; None if there is one of that name."""
    if find_space(connection, tenant, name) is not None:
        return None
    zero = dict.fromkeys(
        ("version", "purged", "head", "log_start", "last_ms", "numbers", "subscriptions", "clauses"), 0
    )
    connection.execute(
        insert(spaces).values(
            tenant=tenant, name=name, schema=schema, schema_version=1, created_ms=now_ms, **zero, **retention
        )
    )
    return find_space(connection, tenant, name)


def find_space(connection: Connection, tenant: str, name: str) -> StoredSpace | None:
    row = connection.execute(select(*_SPACE).where(spaces.c.tenant == tenant, spaces.c.name == name)).first()
    return None if row is None else _space(row)


def list_spaces(connection: Connection, tenant: str) -> list[StoredSpace]:
    return [
        _space(row)
        for row in connection.execute(select(*_SPACE).where(spaces.c.tenant == tenant).order_by(spaces.c.name))
    ]


def every_space(connection: Connection) -> list[StoredSpace]:
    """The spaces of all tenants: for the process that serves them, never for an answer."""
    return [_space(row) for row in connection.execute(select(*_SPACE).order_by(spaces.c.space))]


def remove_space(connection: Connection, tenant: str, space: int) -> None:
    for table in (delivery_positions, event_log, subscriptions, spaces):
        connection.execute(delete(table).where(table.c.tenant == tenant, table.c.space == space))


def set_schema(connection: Connection, tenant: str, space: int, schema: str) -> None:
    """A grown schema."""
    connection.execute(
        update(spaces)
        .where(spaces.c.tenant == tenant, spaces.c.space == space)
        .values(schema=schema, schema_version=spaces.c.schema_version + 1)
    )


def set_retention(connection: Connection, tenant: str, space: int, retention: Mapping[str, int | None]) -> None:
    where = (spaces.c.tenant == tenant, spaces.c.space == space)
    connection.execute(update(spaces).where(*where).values(**retention))


_COUNTERS = ("version", "head", "last_ms", "numbers", "subscriptions", "clauses")
_TENANT, _NUMBER = bindparam("of_tenant", type_=String), bindparam("of_space", type_=BigInteger)
#: Made once: to put these together takes longer than to run them, and each commit does.
_HOLD = (
    select(*(spaces.c[name] for name in _COUNTERS), spaces.c.name)
    .where(spaces.c.tenant == _TENANT, spaces.c.space == _NUMBER)
    .with_for_update()
)
_USED = select(
    select(tenants.c.quotas).where(tenants.c.tenant == _TENANT).scalar_subquery(),
    func.coalesce(func.sum(spaces.c.subscriptions), 0),
    func.coalesce(func.sum(spaces.c.clauses), 0),
).where(spaces.c.tenant == _TENANT)
_SET = (
    update(spaces)
    .where(spaces.c.tenant == _TENANT, spaces.c.space == _NUMBER)
    .values({name: bindparam(name) for name in _COUNTERS})
)


def hold_space(connection: Connection, tenant: str, space: int) -> SpaceCounters | None:
    """The counters of a space, which nobody else changes until this transaction ends."""
    row = connection.execute(_HOLD, {"of_tenant": tenant, "of_space": space}).first()
    if row is None:
        return None
    # A statement of its own: on PostgreSQL one that had to wait for the row sees the other rows as they were before.
    quotas, subscriptions_used, clauses_used = connection.execute(_USED, {"of_tenant": tenant}).one()
    allowed = Quotas() if quotas is None else Quotas.of(quotas)
    return SpaceCounters(
        **row._asdict(),
        subscriptions_left=allowed.subscriptions - int(subscriptions_used),
        clauses_left=allowed.clauses - int(clauses_used),
    )


def set_counters(connection: Connection, tenant: str, space: int, counters: SpaceCounters) -> None:
    values = {name: getattr(counters, name) for name in _COUNTERS}
    connection.execute(_SET, {"of_tenant": tenant, "of_space": space, **values})
