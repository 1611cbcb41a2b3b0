"""Files on the broker's machine: one CloudEvent per line, in a folder that the operator gives (`file_folder`)."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

from wherecast.broker.delivery.kinds.kind import OutgoingMessage, SendOutcome, SendResult
from wherecast.broker.delivery.records import SubscriberRoute
from wherecast.broker.problems import Problem

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class FileRoutes:
    """Routes of kind file. Each tenant has a folder of its own, and a target is a name in it."""

    needs_handshake = False

    def __init__(self, folder: str) -> None:
        """`folder` empty: there are no such routes."""
        self._folder = Path(folder) if folder else None

    def check(self, tenant: str, target: str) -> None:  # noqa: ARG002
        if self._folder is None:
            raise Problem(422, "target", "this broker writes no files; its operator can set file_folder")
        if not _NAME.fullmatch(target):
            raise Problem(422, "target", "the target of a file route is a plain name: alerts.ndjson")

    def show(self, target: str) -> str:
        return target

    def endpoint(self, tenant: str, target: str) -> str:
        return f"file {tenant} {target}"

    async def send(self, message: OutgoingMessage, route: SubscriberRoute, now_ms: int) -> SendOutcome:  # noqa: ARG002
        """Append a line; it is on disk when this returns."""
        if self._folder is None or not _NAME.fullmatch(route.target):
            return SendOutcome(SendResult.FAILED, "this broker writes no such file")
        path = self._folder / message.tenant / route.target
        try:
            await asyncio.to_thread(_append, path, message.body + b"\n")
        except OSError as error:
            return SendOutcome(SendResult.FAILED, f"the file cannot be written: {error.strerror}")
        return SendOutcome(SendResult.DELIVERED)

    async def verify(self, target: str) -> SendOutcome:  # noqa: ARG002
        return SendOutcome(SendResult.DELIVERED)

    async def close(self) -> None:
        """Files are open for one line."""


def _append(path: Path, line: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o640)
    try:
        if os.write(file, line) != len(line):  # the disk is full: the line is cut, and comes again whole
            os.write(file, b"\n")
            raise OSError(0, "a line was cut")
        os.fsync(file)
    finally:
        os.close(file)
