"""Webhooks: a CloudEvent by POST, signed as Standard Webhooks says, to public addresses only.

The receiver agrees first, as CloudEvents' "HTTP 1.1 Web Hooks" says: OPTIONS with `WebHook-Request-Origin` is answered with
`WebHook-Allowed-Origin`. Any answer below 300 means that a message was taken. 410 means that no more should come. A redirect is a
failure.
"""

from __future__ import annotations

import asyncio
import secrets
from base64 import b64encode
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from urllib.parse import urlsplit

import h11
from standardwebhooks.webhooks import Webhook

from wherecast.broker.delivery.addresses import (
    AddressRules,
    Connect,
    PinnedConnector,
    Resolver,
    ThreadResolver,
    connect_to,
)
from wherecast.broker.delivery.connections import HookConnections, read_url
from wherecast.broker.delivery.kinds.kind import OutgoingMessage, SendOutcome, SendResult
from wherecast.broker.delivery.records import SubscriberRoute
from wherecast.broker.problems import Problem

_LONGEST_URL = 2_000
#: The longest Retry-After that is believed.
_LONGEST_RETRY_MS = 24 * 3_600_000
_ORIGIN = "wherecast"


def new_secret() -> str:
    """A secret in the form of Standard Webhooks, 256 bits."""
    return "whsec_" + b64encode(secrets.token_bytes(32)).decode()


class WebhookRoutes:
    """Routes of kind webhook; connections to one receiver are shared."""

    needs_handshake = True

    def __init__(
        self, rules: AddressRules, timeout_s: float, resolve: Resolver | None = None, connect: Connect = connect_to
    ) -> None:
        self._rules, self._timeout_s = rules, timeout_s
        self._resolver = ThreadResolver()
        self._connections = HookConnections(PinnedConnector(rules, resolve or self._resolver, connect))

    def check(self, tenant: str, target: str) -> None:  # noqa: ARG002
        """Raise Problem if the target is not a URL that webhooks may have. Its address is checked when a connection is made."""
        try:
            parts = urlsplit(target)
            port = parts.port
        except ValueError as error:
            raise Problem(422, "target", f"the target is not a URL: {error}") from None
        if parts.scheme not in ("https", "http") or not parts.hostname or port == 0:
            raise Problem(422, "target", "the target of a webhook is a URL: https://example.com/hook")
        if parts.scheme == "http" and not self._rules.networks:
            raise Problem(422, "target", "write https: plain http is only for brokers with the setting webhook_allow")
        if parts.username is not None or parts.password is not None:
            raise Problem(422, "target", "a webhook has no user and password; messages are signed")
        if len(target) > _LONGEST_URL or not target.isascii() or any(c <= " " for c in target):
            raise Problem(422, "target", f"a URL has at most {_LONGEST_URL} characters, of ASCII, without spaces")

    def show(self, target: str) -> str:
        """A URL may have a token in its query."""
        path, mark, _ = target.partition("?")
        return path + "?***" if mark else path

    def endpoint(self, tenant: str, target: str) -> str:  # noqa: ARG002
        url = read_url(target)
        return f"{url.host}:{url.port}"

    async def send(self, message: OutgoingMessage, route: SubscriberRoute, now_ms: int) -> SendOutcome:
        """POST a message, signed with each secret that is valid."""
        now = datetime.fromtimestamp(now_ms / 1000, UTC)
        body = message.body.decode()
        valid = [one.secret for one in route.secrets if one.until_ms is None or one.until_ms > now_ms]
        headers = {
            "content-type": "application/cloudevents+json",
            "webhook-id": message.id,
            "webhook-timestamp": str(now_ms // 1000),
            "webhook-signature": " ".join(_signer(secret).sign(message.id, now, body) for secret in valid),
            "user-agent": _ORIGIN,
        }
        outcome, _ = await self._request("POST", route.target, headers, message.body, now_ms)
        return outcome

    async def verify(self, target: str) -> SendOutcome:
        """Ask the receiver whether it agrees to be sent to."""
        headers = {"webhook-request-origin": _ORIGIN, "webhook-request-rate": "*", "user-agent": _ORIGIN}
        outcome, answer = await self._request("OPTIONS", target, headers, b"", 0)
        allowed = answer.get("webhook-allowed-origin", "").strip()
        if outcome.result is SendResult.DELIVERED and allowed not in ("*", _ORIGIN):
            reason = f"the answer to OPTIONS must have the header WebHook-Allowed-Origin: {_ORIGIN} (or *)"
            return SendOutcome(SendResult.FAILED, reason, outcome.status)
        return outcome

    async def _request(
        self, method: str, target: str, headers: dict[str, str], body: bytes, now_ms: int
    ) -> tuple[SendOutcome, dict[str, str]]:
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._connections.request(method, target, headers, body)
        except TimeoutError:
            return SendOutcome(SendResult.FAILED, f"no answer within {self._timeout_s:g} s"), {}
        except (OSError, h11.ProtocolError) as error:
            return SendOutcome(SendResult.FAILED, str(error)[:300] or type(error).__name__), {}
        except ValueError as error:
            return SendOutcome(SendResult.FAILED, f"not a URL: {str(error)[:300]}"), {}
        return _outcome(answer.status, answer.headers, now_ms), answer.headers

    async def close(self) -> None:
        """Close connections."""
        self._resolver.close()
        self._connections.close()


def _outcome(status: int, headers: dict[str, str], now_ms: int) -> SendOutcome:
    if status < 300:
        return SendOutcome(SendResult.DELIVERED, None, status)
    if status == 410:
        return SendOutcome(SendResult.GONE, "the receiver wants no more messages (410 Gone)", status)
    if status < 400:
        return SendOutcome(SendResult.FAILED, f"the receiver answers {status}; redirects are not followed", status)
    wait = _retry_after_ms(headers.get("retry-after", ""), now_ms)
    return SendOutcome(SendResult.FAILED, f"the receiver answers {status}", status, wait)


def _retry_after_ms(text: str, now_ms: int) -> int | None:
    """Seconds or a date, as RFC 9110 says."""
    if text.isascii() and text.isdigit():
        return min(int(text[:9]) * 1000, _LONGEST_RETRY_MS)
    try:
        at = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return min(max(int(at.timestamp() * 1000) - now_ms, 0), _LONGEST_RETRY_MS)


@lru_cache(4_096)
def _signer(secret: str) -> Webhook:
    return Webhook(secret)
