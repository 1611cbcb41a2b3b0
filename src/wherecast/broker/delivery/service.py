"""Delivery in one process."""

from __future__ import annotations

import asyncio
import time
from secrets import token_hex

from wherecast.broker import clock
from wherecast.broker.broker import Broker
from wherecast.broker.delivery.kinds.kind import SendOutcome
from wherecast.broker.delivery.kinds.registry import make_kinds
from wherecast.broker.delivery.messages import write_message
from wherecast.broker.delivery.records import Delivery, DeliveryState, SubscriberRecord, SubscriberRoute


class DeliveryService:
    """Follows the logs of all spaces and tells subscribers."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.kinds = make_kinds(broker.settings, self._present)
        self._news = asyncio.Event()

    def now_ms(self) -> int:
        return clock.now_ms()

    def wake(self) -> None:
        """Something may be due."""
        self._news.set()

    async def start(self) -> None:
        """Begin to follow and to send."""

    async def stop(self) -> None:
        """Stop sending; what is under way is sent again later."""
        for kind in self.kinds.values():
            await kind.close()

    def _present(self, tenant: str, subscriber: str, space: str) -> list[tuple[int, int]]:  # noqa: ARG002
        return []

    async def test_route(self, record: SubscriberRecord, route: SubscriberRoute) -> tuple[SendOutcome, int]:
        """Send a message by one route, once; what became of it, and milliseconds."""
        now = self.now_ms()
        body = b'{"id":"test","data":{"test":true}}'
        id = "t" + token_hex(16)
        one = Delivery(id, record.tenant, record.name, "test", 0, ("test",), body, DeliveryState.PENDING, now, now, now)
        began = time.perf_counter()
        outcome = await self.kinds[route.kind].send(write_message(id, record, [one]), route, now)
        return outcome, round((time.perf_counter() - began) * 1000)
