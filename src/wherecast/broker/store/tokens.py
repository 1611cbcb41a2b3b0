"""Tokens: the store has their SHA-256 only."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, delete, insert, select, update

from wherecast.broker.store.tables import tokens


class StoredToken(NamedTuple):
    """A token, or a session of the console: a short-lived token of its own, named after the one that it was made with."""

    token_id: str
    tenant: str
    name: str
    scopes: frozenset[str]
    created_ms: int
    expires_ms: int | None

    @property
    def is_session(self) -> bool:
        return "." in self.token_id


_COLUMNS = [tokens.c[name] for name in StoredToken._fields]


def _token(row: Row[Any]) -> StoredToken:
    return StoredToken._make(row)._replace(scopes=frozenset(row.scopes.split()))


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def add_token(
    connection: Connection, tenant: str, name: str, scopes: frozenset[str], expires_ms: int | None, now_ms: int
) -> tuple[StoredToken, str]:
    """A token of 256 bits and its secret, which is told only here."""
    secret = f"wc_{secrets.token_urlsafe(32)}"
    token = StoredToken(secrets.token_hex(8), tenant, name, scopes, now_ms, expires_ms)
    values = {**token._asdict(), "scopes": " ".join(sorted(scopes)), "digest": digest_of(secret)}
    connection.execute(insert(tokens).values(values))
    return token, secret


def add_session(connection: Connection, of: StoredToken, expires_ms: int, now_ms: int) -> tuple[StoredToken, str]:
    """A session with the rights of a token, which ends with it; and its secret."""
    secret = secrets.token_urlsafe(32)
    end = expires_ms if of.expires_ms is None else min(expires_ms, of.expires_ms)
    id = f"{of.token_id}.{secrets.token_hex(7)}"
    session = of._replace(token_id=id, created_ms=now_ms, expires_ms=end)
    values = {**session._asdict(), "scopes": " ".join(sorted(of.scopes)), "digest": digest_of(secret)}
    connection.execute(insert(tokens).values(values))
    return session, secret


def forget_sessions(connection: Connection, now_ms: int) -> None:
    """Remove sessions that are over, of all tenants."""
    connection.execute(delete(tokens).where(tokens.c.expires_ms <= now_ms, tokens.c.token_id.contains(".")))


def find_secret(connection: Connection, secret: str) -> StoredToken | None:
    """The token that a request has. This is the one query that finds a tenant rather than being given one."""
    row = connection.execute(select(*_COLUMNS).where(tokens.c.digest == digest_of(secret))).first()
    return None if row is None else _token(row)


def list_tokens(connection: Connection, tenant: str) -> list[StoredToken]:
    query = select(*_COLUMNS).where(tokens.c.tenant == tenant).order_by(tokens.c.created_ms, tokens.c.token_id)
    return [_token(row) for row in connection.execute(query)]


def find_token(connection: Connection, tenant: str, token_id: str) -> StoredToken | None:
    row = connection.execute(select(*_COLUMNS).where(tokens.c.tenant == tenant, tokens.c.token_id == token_id)).first()
    return None if row is None else _token(row)


def replace_token(connection: Connection, tenant: str, token_id: str, by: str, expires_ms: int) -> None:
    """The old token of a rotation works until `expires_ms`, and so do its sessions."""
    where = (tokens.c.tenant == tenant, tokens.c.token_id == token_id)
    connection.execute(update(tokens).where(*where).values(expires_ms=expires_ms, replaced_by=by))
    sessions = (tokens.c.tenant == tenant, _of_session(token_id), tokens.c.expires_ms > expires_ms)
    connection.execute(update(tokens).where(*sessions).values(expires_ms=expires_ms))


def _of_session(token_id: str) -> ColumnElement[bool]:
    return tokens.c.token_id.startswith(f"{token_id}.", autoescape=True)


def remove_token(connection: Connection, tenant: str, token_id: str, *, keep_sessions: bool = False) -> bool:
    """Remove a token, and the sessions that were made with it."""
    if not keep_sessions:
        connection.execute(delete(tokens).where(tokens.c.tenant == tenant, _of_session(token_id)))
    where = (tokens.c.tenant == tenant, tokens.c.token_id == token_id)
    return bool(connection.execute(delete(tokens).where(*where)).rowcount)


def has_tokens(connection: Connection) -> bool:
    """Whether anybody can log in at all."""
    return connection.execute(select(tokens.c.token_id).limit(1)).first() is not None
