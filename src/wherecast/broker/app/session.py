"""Sessions of the console: a token is exchanged for a cookie that scripts cannot read.

A session is a token of its own (`store/tokens.py`): it has the tenant and the scopes of the token that it was made with, ends after
half a day and with that token, and is listed with the tokens. What protects it is in `app/access.py`.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection

from wherecast.broker.app.access import SESSION_COOKIE, TheBroker, find_token, needs_session
from wherecast.broker.app.models import time_of
from wherecast.broker.problems import Problem
from wherecast.broker.security import csrf_of, principal_of, unauthorized
from wherecast.broker.store import audit, tokens
from wherecast.broker.store.tokens import StoredToken

router = APIRouter(prefix="/v1/session", tags=["session"])

SessionSecret = Annotated[str, Depends(needs_session)]


class SessionIn(BaseModel):
    """A token; with `once` it is removed, so that a link with it works one time."""

    model_config = ConfigDict(extra="forbid")

    token: Annotated[str, Field(min_length=1, max_length=200, examples=["wc_..."])]
    once: bool = False


class SessionOut(BaseModel):
    """Who is signed in; `csrf` goes into the header X-CSRF-Token of every request but GET."""

    tenant: str
    scopes: list[str]
    name: str
    token_id: str
    expires_at: str
    csrf: str


def _out(session: StoredToken, secret: str) -> dict[str, Any]:
    assert session.expires_ms is not None
    return {
        "tenant": session.tenant,
        "scopes": sorted(session.scopes),
        "name": session.name,
        "token_id": session.token_id,
        "expires_at": time_of(session.expires_ms),
        "csrf": csrf_of(secret),
    }


@router.post("", response_model=SessionOut, status_code=201)
async def sign_in(request: Request, response: Response, broker: TheBroker, given: SessionIn) -> dict[str, Any]:
    """Begin a session with a token. The cookie is HttpOnly and SameSite=Strict, and Secure where TLS is used."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Problem(403, "origin", "only the console of this address can sign in")
    found = await find_token(broker, given.token)
    if found is None or found.is_session:
        raise unauthorized("the token is unknown")
    who, token = principal_of(found), found
    broker.request_rates.take(who.token_id)

    def change(connection: Connection, now: int) -> tuple[StoredToken, str]:
        if given.once and not tokens.remove_token(connection, who.tenant, who.token_id, keep_sessions=True):
            raise unauthorized("this link was used already")
        made = tokens.add_session(connection, token, now + broker.settings.session_ms, now)
        audit.write(connection, who.tenant, now, who.actor, "sign in", made[0].token_id, {})
        return made

    session, secret = await broker.run(change)
    if given.once:
        broker.tokens.clear()
    response.set_cookie(
        SESSION_COOKIE,
        secret,
        max_age=broker.settings.session_ms // 1000,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    response.headers["Cache-Control"] = "no-store"
    return _out(session, secret)


@router.get("", response_model=SessionOut)
async def get(response: Response, secret: SessionSecret, broker: TheBroker) -> dict[str, Any]:
    """The session of the cookie."""
    response.headers["Cache-Control"] = "no-store"
    return _out(await _session(broker, secret), secret)


@router.delete("", status_code=204)
async def sign_out(secret: SessionSecret, broker: TheBroker) -> Response:
    """End the session."""
    session = await _session(broker, secret)

    def change(connection: Connection, now: int) -> None:
        tokens.remove_token(connection, session.tenant, session.token_id)
        actor = f"{session.name} ({session.token_id})"
        audit.write(connection, session.tenant, now, actor, "sign out", session.token_id, {})

    await broker.run(change)
    broker.tokens.clear()
    response = Response(status_code=204)
    response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")
    return response


async def _session(broker: TheBroker, secret: str) -> StoredToken:
    session = await find_token(broker, secret)
    principal_of(session)
    if session is None or not session.is_session:
        raise unauthorized("the session is over; sign in again")
    return session
