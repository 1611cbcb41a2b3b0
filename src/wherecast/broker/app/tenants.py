"""Tenants (for operators), tokens and the audit log (for a tenant's admins)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from sqlalchemy import Connection

from wherecast.broker.app.access import NAME, Admin, Operator, Reader, TheBroker
from wherecast.broker.app.models import QuotasIn, TenantIn, TokenIn, TokenOut, time_of
from wherecast.broker.problems import Problem, not_found
from wherecast.broker.security import ALL_SCOPES, Principal, TokenScope
from wherecast.broker.store import audit, spaces, tokens
from wherecast.broker.store.spaces import Quotas
from wherecast.broker.store.tokens import StoredToken

router = APIRouter(prefix="/v1", tags=["tenants"])

#: How long the old token of a rotation still works, at most and by default.
_OVERLAP_S = 86_400
TenantName = Annotated[str, Path(pattern=NAME)]
TokenName = Annotated[str, Path(pattern=NAME)]


@router.get("/whoami")
async def whoami(who: Reader) -> dict[str, Any]:
    """The tenant and the scopes of the token."""
    return {"tenant": who.tenant, "scopes": sorted(who.scopes), "token_id": who.token_id, "name": who.name}


@router.post("/tenants", status_code=201)
async def add_tenant(who: Operator, broker: TheBroker, given: TenantIn) -> dict[str, Any]:
    """Make a tenant."""

    def change(connection: Connection, now: int) -> None:
        if not spaces.add_tenant(connection, given.tenant, Quotas(**given.quotas.model_dump()), now):
            raise Problem(409, "exists", f"the tenant {given.tenant!r} exists already")
        audit.write(connection, who.tenant, now, who.actor, "create tenant", given.tenant, given.quotas.model_dump())

    await broker.run(change)
    return {"tenant": given.tenant, "quotas": given.quotas.model_dump()}


@router.get("/tenants")
async def list_tenants(who: Operator, broker: TheBroker) -> list[dict[str, Any]]:  # noqa: ARG001
    """All tenants and their quotas."""
    found = await broker.read(spaces.list_tenants)
    return [{"tenant": tenant, "quotas": quotas._asdict()} for tenant, quotas in found]


@router.put("/tenants/{tenant}/quotas")
async def set_quotas(who: Operator, broker: TheBroker, tenant: TenantName, given: QuotasIn) -> dict[str, Any]:
    """Change what a tenant may have at most."""

    def change(connection: Connection, now: int) -> None:
        if not spaces.set_quotas(connection, tenant, Quotas(**given.model_dump())):
            raise not_found("tenant", tenant)
        audit.write(connection, who.tenant, now, who.actor, "set quotas", tenant, given.model_dump())

    await broker.run(change)
    return {"tenant": tenant, "quotas": given.model_dump()}


@router.post("/tenants/{tenant}/tokens", response_model=TokenOut, status_code=201)
async def add_tenant_token(who: Operator, broker: TheBroker, tenant: TenantName, given: TokenIn) -> dict[str, Any]:
    """Make a token for a tenant: its first admin."""

    def change(connection: Connection, now: int) -> tuple[StoredToken, str]:
        if spaces.find_quotas(connection, tenant) is None:
            raise not_found("tenant", tenant)
        return _add_token(connection, now, who, tenant, given)

    return _token_out(*await broker.run(change))


@router.get("/quotas")
async def own_quotas(who: Reader, broker: TheBroker) -> dict[str, Any]:
    """What the token's tenant may have at most, and what it has; `feeds` are those of the process that answers."""

    def query(connection: Connection) -> dict[str, Any]:
        used = {**spaces.find_usage(connection, who.tenant), "feeds": broker.feeds.get(who.tenant, 0)}
        return {"quotas": (spaces.find_quotas(connection, who.tenant) or Quotas())._asdict(), "used": used}

    return await broker.read(query)


@router.get("/tokens", response_model=list[TokenOut])
async def list_tokens(who: Admin, broker: TheBroker) -> list[dict[str, Any]]:
    """The tokens of the tenant, without their secrets."""
    return [_token_out(token) for token in await broker.read(lambda c: tokens.list_tokens(c, who.tenant))]


@router.post("/tokens", response_model=TokenOut, status_code=201)
async def add_token(who: Admin, broker: TheBroker, given: TokenIn) -> dict[str, Any]:
    """Make a token. Its secret is told once, in this answer."""
    if TokenScope.OPERATOR.value in given.scopes:
        who.must(TokenScope.OPERATOR)
    return _token_out(*await broker.run(lambda c, now: _add_token(c, now, who, who.tenant, given)))


@router.post("/tokens/{token_id}/rotate", response_model=TokenOut, status_code=201)
async def rotate(
    who: Admin,
    broker: TheBroker,
    token_id: TokenName,
    overlap_s: Annotated[
        int, Query(ge=0, le=7 * _OVERLAP_S, description="How long the old one still works.")
    ] = _OVERLAP_S,
) -> dict[str, Any]:
    """Make a token in place of another, with the same scopes."""

    def change(connection: Connection, now: int) -> tuple[StoredToken, str]:
        old = tokens.find_token(connection, who.tenant, token_id)
        if old is None:
            raise not_found("token", token_id)
        if TokenScope.OPERATOR.value in old.scopes:
            who.must(TokenScope.OPERATOR)
        new, secret = tokens.add_token(connection, who.tenant, old.name, old.scopes, None, now)
        end = now + overlap_s * 1000
        tokens.replace_token(connection, who.tenant, token_id, new.token_id, min(end, old.expires_ms or end))
        audit.write(connection, who.tenant, now, who.actor, "rotate token", token_id, {"new": new.token_id})
        return new, secret

    made = await broker.run(change)
    broker.tokens.clear()
    return _token_out(*made)


@router.delete("/tokens/{token_id}", status_code=204)
async def remove_token(who: Admin, broker: TheBroker, token_id: TokenName) -> Response:
    """Remove a token; it stops working at once, in other processes within two seconds."""

    def change(connection: Connection, now: int) -> None:
        if not tokens.remove_token(connection, who.tenant, token_id):
            raise not_found("token", token_id)
        audit.write(connection, who.tenant, now, who.actor, "remove token", token_id, {})

    await broker.run(change)
    broker.tokens.clear()
    return Response(status_code=204)


@router.get("/audit")
async def list_audit(
    who: Admin,
    broker: TheBroker,
    after: Annotated[int, Query(ge=0, lt=1 << 53)] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> list[dict[str, Any]]:
    """Who changed what, in order."""
    return await broker.read(lambda c: audit.list_audit(c, who.tenant, after, limit))


def _add_token(
    connection: Connection, now: int, who: Principal, tenant: str, given: TokenIn
) -> tuple[StoredToken, str]:
    scopes = frozenset(given.scopes)
    if not scopes <= ALL_SCOPES:
        raise Problem(
            422, "scope", f"unknown scope {min(scopes - ALL_SCOPES)!r:.40}; there are {', '.join(sorted(ALL_SCOPES))}"
        )
    token, secret = tokens.add_token(connection, tenant, given.name, scopes, given.expires_ms, now)
    details = {"scopes": sorted(scopes), "token_id": token.token_id}
    audit.write(connection, who.tenant, now, who.actor, "create token", f"{tenant}: {given.name}", details)
    return token, secret


def _token_out(token: StoredToken, secret: str | None = None) -> dict[str, Any]:
    return {
        "token_id": token.token_id,
        "name": token.name,
        "scopes": sorted(token.scopes),
        "created_at": time_of(token.created_ms),
        "expires_at": None if token.expires_ms is None else time_of(token.expires_ms),
        "secret": secret,
    }
