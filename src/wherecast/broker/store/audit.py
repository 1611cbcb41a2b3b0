"""The audit log: who changed what. Secrets never get here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, insert, select

from wherecast.broker.store.tables import audit


def write(
    connection: Connection, tenant: str, time_ms: int, actor: str, action: str, subject: str, details: dict[str, Any]
) -> None:
    connection.execute(
        insert(audit).values(
            tenant=tenant,
            time_ms=time_ms,
            actor=actor,
            action=action,
            subject=subject[:500],
            details=json.dumps(details, ensure_ascii=False),
        )
    )


def list_of_subject(
    connection: Connection, tenant: str, subject: str, actions: Sequence[str], limit: int
) -> list[dict[str, Any]]:
    """The latest entries about something, the newest first."""
    where = (audit.c.tenant == tenant, audit.c.subject == subject[:500], audit.c.action.in_(actions))
    return _entries(connection, select(audit).where(*where).order_by(audit.c.number.desc()).limit(limit))


def list_audit(connection: Connection, tenant: str, after: int, limit: int) -> list[dict[str, Any]]:
    """Entries after a number, in order."""
    query = select(audit).where(audit.c.tenant == tenant, audit.c.number > after).order_by(audit.c.number).limit(limit)
    return _entries(connection, query)


def _entries(connection: Connection, query: Select[Any]) -> list[dict[str, Any]]:
    return [
        {**{k: v for k, v in row._asdict().items() if k != "tenant"}, "details": json.loads(row.details)}
        for row in connection.execute(query)
    ]
