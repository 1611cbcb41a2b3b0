"""What every operation needs: the broker, who asks, the space of the path, and how a problem is answered."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeAlias

from fastapi import Depends, Header, Path, Request
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse

from wherecast.broker.broker import Broker, Space
from wherecast.broker.problems import Problem
from wherecast.broker.security import Principal, TokenScope, bearer_of, csrf_of, principal_of, unauthorized
from wherecast.broker.store import tokens
from wherecast.broker.store.tokens import StoredToken
from wherecast.broker.writer import OnceKey

#: Names in paths: of spaces, tenants and tokens.
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
#: The console's cookie, and the header that proves that a change comes from its pages.
SESSION_COOKIE, CSRF_HEADER = "wherecast_session", "X-CSRF-Token"
#: Characters of an idempotency key.
MAX_KEY = 200


def broker_of(connection: HTTPConnection) -> Broker:
    broker: Broker = connection.app.state.broker
    return broker


async def _the_broker(connection: HTTPConnection) -> Broker:
    """A dependency. FastAPI would run a plain function in a thread."""
    return broker_of(connection)


async def principal(connection: HTTPConnection) -> Principal:
    """Who asks, by the token of the request, or else by the cookie of a session."""
    broker = broker_of(connection)
    cookie = None if "authorization" in connection.headers else session_secret(connection)
    secret = cookie or bearer_of(connection.headers.get("authorization"))
    token = await find_token(broker, secret)
    if token is not None and token.is_session != (cookie is not None):
        token = None  # each is good for its own way in
    found = principal_of(token)
    broker.request_rates.take(found.token_id)
    connection.state.tenant = found.tenant
    return found


async def find_token(broker: Broker, secret: str) -> StoredToken | None:
    """The token with this secret, also one that has expired."""
    token = broker.tokens.get(secret)
    if token is None:
        token = await broker.read(lambda c: tokens.find_secret(c, secret))
        if token is not None:
            broker.tokens.put(secret, token)
    return token


def session_secret(connection: HTTPConnection) -> str | None:
    """The secret in the console's cookie, if there is one and the request comes from the console.

    Browsers send the cookie by themselves, SameSite=Strict or not: also for a page at another port of this machine. So a change
    needs a header that only the console knows, and a WebSocket, which cannot have one, must come from a page of this address.
    """
    secret = connection.cookies.get(SESSION_COOKIE)
    if secret is None:
        return None
    if connection.scope["type"] == "websocket":
        origin, host = connection.headers.get("origin", ""), connection.headers.get("host", "")
        if origin.partition("://")[2] != host:
            raise Problem(403, "origin", "a page of another address cannot use the console's session")
    elif connection.scope["method"] not in ("GET", "HEAD"):
        sent = connection.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(sent.encode(), csrf_of(secret).encode()):
            raise Problem(
                403, "csrf", f"a change with a session needs the header {CSRF_HEADER}; load the console again"
            )
    return secret


async def needs_session(connection: HTTPConnection) -> str:
    """A dependency: the secret of a session. Not a plain function: FastAPI would run that in a thread."""
    secret = session_secret(connection)
    if secret is None:
        raise unauthorized("there is no session; sign in with a token")
    return secret


def needs(scope: TokenScope) -> Callable[[HTTPConnection], Awaitable[Principal]]:
    """A dependency: a token with a scope."""

    async def check(connection: HTTPConnection) -> Principal:
        found = await principal(connection)
        found.must(scope)
        return found

    return check


Reader: TypeAlias = Annotated[Principal, Depends(needs(TokenScope.READ))]
Subscriber: TypeAlias = Annotated[Principal, Depends(needs(TokenScope.SUBSCRIBE))]
Publisher: TypeAlias = Annotated[Principal, Depends(needs(TokenScope.PUBLISH))]
Admin: TypeAlias = Annotated[Principal, Depends(needs(TokenScope.ADMIN))]
Operator: TypeAlias = Annotated[Principal, Depends(needs(TokenScope.OPERATOR))]
TheBroker: TypeAlias = Annotated[Broker, Depends(_the_broker)]
SpaceName: TypeAlias = Annotated[str, Path(alias="space", pattern=NAME, examples=["quotes"])]
SubscriptionName: TypeAlias = Annotated[str, Path(alias="id", min_length=1, max_length=200, examples=["cheap-ibm"])]
IdempotencyKey: TypeAlias = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=MAX_KEY,
        description="The same request with the same key is done once, and answered the same for a day.",
    ),
]
IfMatch: TypeAlias = Annotated[
    str | None, Header(alias="If-Match", description="The ETag that the subscription must have.")
]


async def find_space(broker: Broker, who: Principal, name: str) -> Space:
    """The space of a path, among those of the token's tenant."""
    return await broker.space(who.tenant, name)


def once(key: str | None, request: Request, body: bytes, write: Callable[[Any], str]) -> OnceKey | None:
    """The idempotency key of a request; it stands for the method, the path and the body."""
    if key is None:
        return None
    asked = hashlib.sha256(f"{request.method} {request.url.path}\n{request.headers.get('content-type')}\n".encode())
    asked.update(body)
    return OnceKey(key, asked.hexdigest(), write)


def answer_problem(problem: Problem) -> JSONResponse:
    """The answer that says what is wrong (RFC 9457)."""
    return JSONResponse(problem.to_dict(), problem.status, problem.headers, "application/problem+json")


def etag_of(version: int) -> str:
    return f'"{version}"'


def versions_of(if_match: str | None) -> frozenset[int] | None:
    """The versions that an If-Match header allows; None: any."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = set()
    for part in if_match.split(","):
        text = part.strip().removeprefix("W/").strip('"')
        if not (text.isascii() and text.isdigit()) or len(text) > 18:
            raise Problem(412, "changed", f"no subscription has the ETag {part.strip()[:40]}")
        found.add(int(text))
    return frozenset(found)
