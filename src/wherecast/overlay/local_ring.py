"""A ring of processes on this machine."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from wherecast.overlay.client import PeerClient
from wherecast.overlay.requests import PeerError

_COMMAND = "from wherecast.cli.app import main; main()"
_STOP_S = 6.0


class LocalRing:
    """Peers as processes, each by its endpoint. As a context it stops them all when it ends, whatever happens."""

    def __init__(self, schema: Path, *, successors: int, copies: int, secret: Path | None, state: Path | None) -> None:
        self._schema = schema
        self._successors = successors
        self._copies = copies
        self._secret = secret
        self._state = state
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, endpoint: str, join: Iterable[str] = (), found: int | None = None) -> subprocess.Popen[bytes]:
        """Start a peer; one that was there before is forgotten."""
        command = ["peer", "--listen", endpoint, "--schema", str(self._schema)]
        for other in join:
            command += ["--join", other]
        if found is not None:
            command += ["--found", str(found), "--successors", str(self._successors), "--copies", str(self._copies)]
        if self._secret is not None:
            command += ["--secret-file", str(self._secret)]
        if self._state is not None:
            command += ["--state", str(self._state / endpoint.replace(":", "-"))]
        # A group of its own: an interrupt from the terminal reaches the parent, which then stops all in good order.
        self.processes[endpoint] = subprocess.Popen(  # noqa: S603 - this very program
            [sys.executable, "-c", _COMMAND, *command], stdin=subprocess.DEVNULL, start_new_session=True
        )
        return self.processes[endpoint]

    def start_all(self, endpoints: list[str]) -> None:
        """The first gathers, the others join it; all of them are founders."""
        self.start(endpoints[0], found=len(endpoints))
        for endpoint in endpoints[1:]:
            self.start(endpoint, endpoints[:1])

    async def wait_until_whole(self, secret: bytes | None, most_s: float) -> list[dict[str, Any]]:
        """The status of every running peer, once all are members and each knows its neighbours."""
        from wherecast.overlay.picture import places  # noqa: PLC0415

        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                while True:
                    self._check_running()
                    found = await asyncio.gather(*(_status(e, secret) for e in self.processes), return_exceptions=True)
                    statuses = [s for s in found if isinstance(s, dict)]
                    ring = places(statuses)
                    if len(ring) == len(self.processes) and all(place.is_consistent for place in ring):
                        return statuses
                    await asyncio.sleep(0.2)
        raise PeerError(f"the ring is not whole after {most_s:.0f} seconds; `peer status` of each peer says more")

    def _check_running(self) -> None:
        for endpoint, process in self.processes.items():
            if process.poll() is not None:
                raise PeerError(f"the peer at {endpoint} ended with code {process.returncode}; is the port taken?")

    def stop(self) -> None:
        """End every process: with good manners first, then without."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def _status(endpoint: str, secret: bytes | None) -> dict[str, Any]:
    async with PeerClient(endpoint, secret) as client:
        return await client.status()
