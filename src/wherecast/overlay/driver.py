"""Runs one node on an event loop: its timers, its messages, and the operations that somebody waits for."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from wherecast.overlay.frames import Reason
from wherecast.overlay.messages import Message, Outcome, Send, Start, Timer
from wherecast.overlay.positions import Address
from wherecast.overlay.pubsub import RingNode
from wherecast.overlay.requests import PeerError

_log = logging.getLogger(__name__)


class Driver:
    """Messages and timers in, effects carried out. After any call on `node` from elsewhere, call `settle`."""

    def __init__(self, node: RingNode, send: Callable[[Address, Message], None], counters: Counter[str]) -> None:
        self.node = node
        self._send = send
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._outcomes: dict[int, asyncio.Future[Outcome]] = {}
        self._is_running = True

    @property
    def address(self) -> Address:
        return self.node.ring.me.address

    def receive(self, message: Message) -> None:
        """Hand a message to the node."""
        self._call(lambda: self.node.receive(message), message)

    def _fire(self, timer: Timer) -> None:
        self._call(lambda: self.node.fire(timer), timer)

    def _call(self, call: Callable[[], None], cause: object) -> None:
        if not self._is_running:
            return
        try:
            call()
        except Exception:  # noqa: BLE001
            # Whatever a stranger may have found, the ring goes on without this one message.
            self._counters[Reason.FAILED] += 1
            _log.exception("the node could not handle %.200r", cause)
        self.settle()

    def settle(self) -> None:
        """Carry out what the node wants done."""
        for effect in self.node.take():
            if isinstance(effect, Send):
                if effect.to == self.address:
                    self._loop.call_soon(self.receive, effect.message)
                else:
                    self._send(effect.to, effect.message)
            elif isinstance(effect, Start):
                self._loop.call_later(effect.after_ms / 1000, self._fire, effect.timer)
            else:
                self._future(effect.operation).set_result(effect)

    async def ended(self, operation: int) -> Outcome:
        """Wait for an operation that the node has begun; PeerError if the node ends first."""
        self.settle()
        try:
            return await self._future(operation)
        finally:
            self._outcomes.pop(operation, None)

    def _future(self, operation: int) -> asyncio.Future[Outcome]:
        if operation not in self._outcomes:
            self._outcomes[operation] = self._loop.create_future()
        return self._outcomes[operation]

    def stop(self) -> None:
        """From here on the node is deaf and its operations are over."""
        self.settle()
        self._is_running = False
        for future in self._outcomes.values():
            if not future.done():
                future.set_exception(PeerError("the peer left its ring before this was done; try again"))
                future.exception()  # it may be that nobody waits
