"""Who may do what: bearer tokens, scopes, rates.

A token belongs to one tenant, and a request has the tenant of its token: there is no other way to name one, so a token of
another tenant cannot reach anything. Tokens are 256 random bits; the store has their SHA-256.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from wherecast.broker import clock
from wherecast.broker.problems import Problem
from wherecast.broker.store.tokens import StoredToken, digest_of

#: How long a token that was found is believed. A token that is removed works for so long in other processes.
_BELIEVED_S = 2.0
_KEPT = 10_000


class TokenScope(StrEnum):
    """What a token may do. `operator` is for those who run the broker: tenants and their quotas."""

    OPERATOR = "operator"
    ADMIN = "admin"
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    READ = "read"


ALL_SCOPES = frozenset(scope.value for scope in TokenScope)


class Principal(NamedTuple):
    """Who makes a request."""

    tenant: str
    scopes: frozenset[str]
    token_id: str
    name: str

    @property
    def actor(self) -> str:
        """The name in the audit log."""
        return f"{self.name} ({self.token_id})"

    def must(self, scope: TokenScope) -> None:
        """Raise a problem unless the token has a scope; `admin` includes publish, subscribe and read."""
        if scope in self.scopes or (TokenScope.ADMIN in self.scopes and scope is not TokenScope.OPERATOR):
            return
        raise Problem(403, "scope", f"this needs a token with the scope {scope.value!r}")


class KnownTokens:
    """Tokens that were found lately, so that a request costs no query."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, tuple[float, StoredToken]] = OrderedDict()

    def get(self, secret: str) -> StoredToken | None:
        found = self._found.get(digest_of(secret))
        return found[1] if found is not None and found[0] > time.monotonic() else None

    def put(self, secret: str, token: StoredToken) -> None:
        self._found[digest_of(secret)] = (time.monotonic() + _BELIEVED_S, token)
        while len(self._found) > _KEPT:
            self._found.popitem(last=False)

    def clear(self) -> None:
        """Forget all: a token was removed or replaced."""
        self._found.clear()


def principal_of(token: StoredToken | None) -> Principal:
    """The principal of a token that is known and has not expired."""
    if token is None:
        raise unauthorized("the token is unknown")
    if token.expires_ms is not None and token.expires_ms <= clock.now_ms():
        raise unauthorized("the token has expired; ask for a new one")
    return Principal(token.tenant, token.scopes, token.token_id, token.name)


def bearer_of(header: str | None) -> str:
    """The secret in an Authorization header."""
    kind, _, secret = (header or "").partition(" ")
    if kind.lower() != "bearer" or not secret.strip():
        raise unauthorized("send a token: Authorization: Bearer wc_...")
    return secret.strip()


def csrf_of(secret: str) -> str:
    """What a page must send with each change beside the cookie: only who reads an answer of ours knows it.

    It follows from the secret of the session, so nothing is stored, and it tells nothing about the secret.
    """
    return hmac.new(secret.encode(), b"wherecast csrf", hashlib.sha256).hexdigest()


def unauthorized(detail: str) -> Problem:
    """Who asks is not known."""
    return Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})


class Rates:
    """Token buckets: each key may use `per_s` units a second, and a second's worth at once."""

    def __init__(self, per_s: float, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.per_s = per_s
        self._clock_s = clock_s
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # units left, at this time

    def take(self, key: str, units: float = 1.0) -> None:
        """Use some units, or raise a problem that says when to come again. A large request may overdraw once."""
        if not self.per_s:
            return
        now = self._clock_s()
        left, since = self._buckets.pop(key, (self.per_s, now))
        left = min(self.per_s, left + (now - since) * self.per_s)
        if left <= 0:
            self._buckets[key] = (left, now)
            wait = max(1, round(-left / self.per_s + 0.5))
            raise Problem(429, "rate", f"too many requests; try again in {wait} s", headers={"Retry-After": str(wait)})
        self._buckets[key] = (left - units, now)
        while len(self._buckets) > _KEPT:
            self._buckets.popitem(last=False)
