"""How a peer gets into a ring: it asks the peers it has heard of; without a ring, enough of them found one together.

Theory of operation
-------------------
The corrected protocol starts with r + 1 members that know each other (`ring`). One peer, the *gatherer*, is started with no peer
to join. It collects the addresses of those who ask to enter, and when there are enough of them it names all of them, and
itself, as founders. Whoever asks later, or comes back, is let in by any member in the ordinary way.

A gatherer that comes back first asks the peers it remembers: only if none of them is in a ring does it gather again. So a ring
is not founded twice.

Nobody holds a request open: who is told to wait asks again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from wherecast.overlay.connection import Connection
from wherecast.overlay.frames import FrameError
from wherecast.overlay.positions import Address, Contact, sha1_id
from wherecast.overlay.requests import Enter, Founders, PeerError, Rules, Waiting, Welcome, endpoint_of
from wherecast.overlay.wire import WireError

ASK_AGAIN_S = 0.25
#: Rounds in which a gatherer that has been in a ring looks for it.
_LOOK_FIRST = 8


@dataclass(frozen=True, slots=True)
class Way:
    """How to begin: as one of the founders, or through nodes that are there."""

    rules: Rules
    address: str
    founders: tuple[Address, ...]
    bootstraps: tuple[Address, ...]

    def contact(self, address: Address) -> Contact:
        """A node's id is the hash of its address, which no other node ever has."""
        return Contact(sha1_id(str(address).encode(), self.rules.settings.bits), address)


class Gathering:
    """The founders of a ring to be. It begins when the gatherer adds itself."""

    def __init__(self, endpoint: str, rules: Rules, wanted: int) -> None:
        self._endpoint = endpoint
        self._rules = rules
        self._wanted = wanted
        self.founders: tuple[Address, ...] = ()  # once there are enough
        self._known: dict[str, Address] = {}

    def add(self, address: Address) -> Founders | Waiting | None:
        """What somebody who asks to enter is told; None: he came too late to be a founder."""
        endpoint = endpoint_of(address)
        if not self.founders and (self._known or endpoint == self._endpoint):
            self._known[endpoint] = address  # who has started again counts once
            if len(self._known) >= self._wanted:
                self.founders = tuple(self._known.values())
        if address in self.founders:
            return Founders(self._rules.to_json(), self.founders)
        return None if self.founders else Waiting(len(self._known), self._wanted)


class Entrance:
    """Looks for a way into a ring for the peer at `endpoint`."""

    def __init__(self, endpoint: str, secret: bytes | None, rules: Rules | None, gathering: Gathering | None) -> None:
        self._endpoint = endpoint
        self._secret = secret
        self._rules = rules
        self._gathering = gathering
        self._problem = ""

    async def find(self, known: list[str], report: Callable[[str], None]) -> Way:
        """Ask until there is a way. `report` hears what is being waited for, when it changes."""
        address = f"{self._endpoint}/{secrets.token_hex(8)}"
        rounds, said = 0, ""
        while True:
            waiting = None
            for endpoint in known:
                answer = await self._ask(endpoint, address)
                if isinstance(answer, Welcome | Founders):
                    return self._way(answer, address)
                waiting = answer or waiting
            if self._gathering is not None and (not known or rounds >= _LOOK_FIRST):
                own = self._gathering.add(address)
                if isinstance(own, Founders):
                    return self._way(own, address)
                waiting = own or waiting
            now = self._say(waiting)
            if now != said:
                report(now)
                said = now
            rounds += 1
            await asyncio.sleep(ASK_AGAIN_S)

    async def _ask(self, endpoint: str, address: str) -> Welcome | Founders | Waiting | None:
        try:
            async with asyncio.timeout(2):
                connection = await Connection.open(endpoint, self._secret)
                try:
                    connection.send(Enter(address))
                    answer = await connection.receive()
                finally:
                    connection.close()
        except (OSError, FrameError, WireError) as error:
            self._problem = f"{endpoint}: {str(error) or 'no answer'}"
            return None
        return answer if isinstance(answer, Welcome | Founders | Waiting) else None

    def _say(self, waiting: Waiting | None) -> str:
        if waiting is None:
            return f"no peer of a ring answers yet ({self._problem})"
        if not waiting.wanted:
            return "the peer to join is not in a ring yet"
        return f"waiting for founders: {waiting.known} of {waiting.wanted} are here"

    def _way(self, answer: Welcome | Founders, address: str) -> Way:
        rules = Rules.from_json(answer.rules)
        if self._rules is not None and self._rules.schema != rules.schema:
            raise PeerError("the ring has another schema than --schema says; leave it out to take the ring's")
        founders = answer.addresses if isinstance(answer, Founders) else ()
        return Way(rules, address, founders, () if founders else answer.addresses)
