"""The audit log: who changed what. Secrets never get here."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, insert, select

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


def list_audit(connection: Connection, tenant: str, after: int, limit: int) -> list[dict[str, Any]]:
    """Entries after a number, in order."""
    query = select(audit).where(audit.c.tenant == tenant, audit.c.number > after).order_by(audit.c.number).limit(limit)
    return [
        {**{k: v for k, v in row._asdict().items() if k != "tenant"}, "details": json.loads(row.details)}
        for row in connection.execute(query)
    ]
