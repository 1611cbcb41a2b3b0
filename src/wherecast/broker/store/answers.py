"""Answers that were given to requests with an idempotency key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select

from wherecast.broker.store.tables import answers


class StoredAnswer(NamedTuple):
    request: str  # SHA-256 of what was asked
    answer: str  # JSON


def find_answers(connection: Connection, tenant: str, keys: Iterable[str]) -> dict[str, StoredAnswer]:
    query = select(answers.c.key, answers.c.request, answers.c.answer)
    query = query.where(answers.c.tenant == tenant, answers.c.key.in_(list(keys)))
    return {key: StoredAnswer(request, answer) for key, request, answer in connection.execute(query)}


def keep_answer(connection: Connection, tenant: str, key: str, stored: StoredAnswer, now_ms: int) -> None:
    connection.execute(insert(answers).values(tenant=tenant, key=key, created_ms=now_ms, **stored._asdict()))


def forget_answers(connection: Connection, before_ms: int) -> int:
    """Remove the answers of all tenants that are older."""
    return int(connection.execute(delete(answers).where(answers.c.created_ms < before_ms)).rowcount)
