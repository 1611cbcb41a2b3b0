"""E-mail by an SMTP server. The Message-ID is made of the id of the message, so that a mailbox can tell repeats."""

from __future__ import annotations

import asyncio
from email.message import EmailMessage
from email.utils import formatdate, parseaddr
from urllib.parse import unquote, urlsplit

import aiosmtplib

from wherecast.broker.delivery.kinds.kind import OutgoingMessage, SendOutcome, SendResult
from wherecast.broker.delivery.records import SubscriberRoute
from wherecast.broker.problems import Problem
from wherecast.broker.settings import SettingsError

_TIMEOUT_S = 30.0


class EmailRoutes:
    """Routes of kind email; all go through one server."""

    needs_handshake = False

    def __init__(self, server: str, sender: str) -> None:
        """`server` is smtp://USER:PASSWORD@HOST:587 or smtps://...; empty: there is none."""
        parts = urlsplit(server)
        if server and (parts.scheme not in ("smtp", "smtps") or not parts.hostname or "@" not in sender):
            raise SettingsError("smtp: write smtp://HOST:587 or smtps://HOST:465, and mail_from: broker@example.com")
        self._server, self._sender = parts, sender

    def check(self, tenant: str, target: str) -> None:  # noqa: ARG002
        if not self._server.hostname:
            raise Problem(422, "target", "this broker sends no e-mail; its operator can set smtp and mail_from")
        address = _address(target)
        if parseaddr(address)[1] != address or address.count("@") != 1 or not address.isascii() or len(address) > 254:
            raise Problem(422, "target", "the target of an e-mail route is an address: ann@example.com")

    def show(self, target: str) -> str:
        return target

    def endpoint(self, tenant: str, target: str) -> str:  # noqa: ARG002
        return "smtp"

    async def send(self, message: OutgoingMessage, route: SubscriberRoute, now_ms: int) -> SendOutcome:
        """Hand a message to the server."""
        mail = EmailMessage()
        mail["From"], mail["To"] = self._sender, _address(route.target)
        mail["Subject"] = " ".join(message.title.split())[:200]
        mail["Date"] = formatdate(now_ms / 1000)
        mail["Message-ID"] = f"<{message.id}@{self._sender.rpartition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(message.text)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await aiosmtplib.send(
                    mail,
                    hostname=self._server.hostname,
                    port=self._server.port,
                    username=unquote(self._server.username) if self._server.username else None,
                    password=unquote(self._server.password) if self._server.password else None,
                    use_tls=self._server.scheme == "smtps",
                    timeout=_TIMEOUT_S,
                )
        except aiosmtplib.SMTPResponseException as error:
            return SendOutcome(SendResult.FAILED, f"the mail server says {error.message[:300]}", error.code)
        except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
            return SendOutcome(SendResult.FAILED, f"the mail server: {str(error)[:300] or type(error).__name__}")
        return SendOutcome(SendResult.DELIVERED)

    async def verify(self, target: str) -> SendOutcome:  # noqa: ARG002
        return SendOutcome(SendResult.DELIVERED)

    async def close(self) -> None:
        """Connections last for one message."""


def _address(target: str) -> str:
    return target.removeprefix("mailto:")
