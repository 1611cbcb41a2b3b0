"""Chats, pushes and SMS through Apprise: `slack://...`, `tgram://...`, `twilio://...`.

Some of Apprise's services go to a host that the URL names, or do something on this machine. Those could reach a private network
or this one, so only services with a host of their own are let in, and others that the operator names (`chat_services`).
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import apprise

from wherecast.broker.delivery.kinds.kind import OutgoingMessage, SendOutcome, SendResult
from wherecast.broker.delivery.records import SubscriberRoute
from wherecast.broker.problems import Problem

#: Services whose host is fixed in Apprise.
SERVICES = frozenset(
    [
        "bulksms",
        "bulkvs",
        "burstsms",
        "clicksend",
        "d7sms",
        "discord",
        "gchat",
        "kavenegar",
        "line",
        "mailgun",
        "msg91",
        "msgbird",
        "nexmo",
        "opsgenie",
        "pagerduty",
        "pbul",
        "plivo",
        "pover",
        "sendgrid",
        "ses",
        "signl4",
        "sinch",
        "slack",
        "sns",
        "tgram",
        "threema",
        "twilio",
        "vonage",
        "webex",
        "wxteams",
    ]
)
_TIMEOUT_S = 30.0
_LONGEST_URL = 2_000


class ChatRoutes:
    """Routes of kind chat. Apprise works in threads."""

    needs_handshake = False

    def __init__(self, services: str = "") -> None:
        """`services` are more schemas that may be used, separated by commas."""
        self._services = SERVICES | {part.strip().lower() for part in services.split(",") if part.strip()}
        self._threads = ThreadPoolExecutor(16, "wherecast-chat")

    def check(self, tenant: str, target: str) -> None:  # noqa: ARG002
        schema = target.partition("://")[0].lower()
        if schema not in self._services:
            raise Problem(
                422,
                "target",
                f"{schema[:30]!r} is not a service of this broker; there are {', '.join(sorted(self._services))}",
            )
        if len(target) > _LONGEST_URL or apprise.Apprise.instantiate(target) is None:
            raise Problem(422, "target", f"Apprise does not understand this URL of {schema}; see its documentation")

    def show(self, target: str) -> str:
        """Apprise URLs are made of secrets."""
        found = apprise.Apprise.instantiate(target)
        if found is None:
            return target.partition("://")[0] + "://***"
        return str(found.url(privacy=True))  # type: ignore[no-untyped-call]  # Apprise has types in part

    def endpoint(self, tenant: str, target: str) -> str:
        """A token that is wrong fails for its owner alone."""
        return f"{tenant} {self.show(target).partition('?')[0]}"

    async def send(self, message: OutgoingMessage, route: SubscriberRoute, now_ms: int) -> SendOutcome:  # noqa: ARG002
        """Have Apprise send it."""

        def notify() -> bool:
            service = apprise.Apprise()
            return service.add(route.target) and bool(service.notify(body=message.text, title=message.title))

        try:
            async with asyncio.timeout(_TIMEOUT_S):
                told = await asyncio.get_running_loop().run_in_executor(self._threads, notify)
        except TimeoutError:
            return SendOutcome(SendResult.FAILED, f"no answer within {_TIMEOUT_S:g} s")
        except Exception as error:  # noqa: BLE001 - a plugin of Apprise may raise anything
            return SendOutcome(SendResult.FAILED, f"{type(error).__name__}: {str(error)[:200]}")
        if not told:
            return SendOutcome(SendResult.FAILED, "the service did not take it; the log of the broker says more")
        return SendOutcome(SendResult.DELIVERED)

    async def verify(self, target: str) -> SendOutcome:  # noqa: ARG002
        return SendOutcome(SendResult.DELIVERED)

    async def close(self) -> None:
        """Do not wait for services."""
        self._threads.shutdown(wait=False, cancel_futures=True)
