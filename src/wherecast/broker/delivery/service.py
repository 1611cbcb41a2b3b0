"""Delivery in one process: follows the logs, leases queues of subscribers, sends, and writes down what became of it.

The core decides; here is what it needs: the store, the clock, and tasks that send. One loop does all writing: while a
transaction is under way, sends go on and end, and the next transaction has all that ended meanwhile, together with the leases of
the next queues. So a busy process makes large transactions, as the writer does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random
from secrets import token_hex

from sqlalchemy import Connection

from wherecast.broker import clock
from wherecast.broker.broker import Broker, Space
from wherecast.broker.delivery.core import DeliveryChanges, DeliveryCore, DeliveryLimits, PlannedSend
from wherecast.broker.delivery.follower import SpaceFollower
from wherecast.broker.delivery.kinds.kind import SendOutcome, SendResult
from wherecast.broker.delivery.kinds.registry import make_kinds
from wherecast.broker.delivery.messages import write_message
from wherecast.broker.delivery.presence import Presence
from wherecast.broker.delivery.queues import LEASE_MS, LookedAt, look_at, settle_and_lease
from wherecast.broker.delivery.records import Delivery, DeliveryState, SubscriberRecord, SubscriberRoute
from wherecast.broker.problems import Problem
from wherecast.broker.store import deliveries, presence, subscribers
from wherecast.errors import WherecastError

_log = logging.getLogger(__name__)

#: How often to look for queues that are due and for the records of other processes; to save positions; to tidy up.
_LOOK_S, _SAVE_S, _TIDY_S = 0.25, 5.0, 60.0
#: How long to wait after something failed.
_PAUSE_S = 1.0


class DeliveryService:
    """Follows the logs of all spaces and tells subscribers."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.owner = token_hex(8)
        self.presence = Presence(broker, self.owner)
        self.kinds = make_kinds(broker.settings, self.presence.of)
        limits = DeliveryLimits(
            broker.settings.endpoint_concurrency, broker.settings.delivery_concurrency, broker.settings.delivery_ms
        )
        self.core = DeliveryCore(limits, self._endpoint, Random())  # noqa: S311 - jitter
        self._followers: dict[int, SpaceFollower] = {}
        self._tenants: set[str] = set()  # those with records
        self._entries = asyncio.Event()  # there is something to follow
        self._news = asyncio.Event()  # a send has ended, or a queue may be due
        self._renewed_ms = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._sends: set[asyncio.Task[None]] = set()

    def now_ms(self) -> int:
        return clock.now_ms()

    def wake(self) -> None:
        """Records or deliveries were changed."""
        self._entries.set()
        self._news.set()

    # -- life -----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to follow and to send."""
        if self.broker.database.is_sqlite:
            await self.broker.run(lambda c, _: subscribers.free_leases(c))
        self.broker.on_entry = self._on_entry
        loops = [self._follow_once, self._send_once, self._save_once, self._tidy_once]
        if not self.broker.database.is_sqlite:
            loops.append(self.presence.share_once)
        self._tasks = [asyncio.create_task(self._for_ever(work), name=work.__name__) for work in loops]

    async def stop(self) -> None:
        """Stop sending; what is under way is sent again later."""
        for task in [*self._tasks, *self._sends]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._sends, return_exceptions=True)
        with suppress(WherecastError, Problem):  # else the others wait for the end of the lease
            await self.presence.end()
        for kind in self.kinds.values():
            await kind.close()

    async def _for_ever(self, work: Callable[[], Awaitable[None]]) -> None:
        name = getattr(work, "__name__", "")
        while True:
            try:
                await work()
            except (WherecastError, Problem) as error:
                _log.warning("delivery=%s failed=%s; trying again", name, error)
                await asyncio.sleep(_PAUSE_S)
            except Exception:  # noqa: BLE001 - it must go on, whatever it is
                _log.exception("delivery=%s failed", name)
                await asyncio.sleep(_PAUSE_S)

    # -- the log becomes deliveries ---------------------------------------------------------------------------------------

    def _on_entry(self, space: Space) -> None:
        if space.tenant in self._tenants:
            self._entries.set()

    async def _follow_once(self) -> None:
        await _news_or_pause(self._entries, _LOOK_S)
        self._tenants = await self.broker.read(subscribers.tenants_with_records)
        served = {space.space: space for space in self.broker.served() if space.tenant in self._tenants}
        for number in self._followers.keys() - served.keys():
            del self._followers[number]
        has_more = True
        while has_more:
            has_more = False
            for number, space in served.items():
                follower = self._followers.get(number)
                if follower is None or follower.space is not space:
                    follower = self._followers[number] = SpaceFollower(self.broker, space)
                if await follower.follow():
                    has_more = True
                    self._news.set()

    async def _save_once(self) -> None:
        await asyncio.sleep(_SAVE_S)
        for follower in list(self._followers.values()):
            await follower.save()

    # -- deliveries are sent ----------------------------------------------------------------------------------------------

    async def _send_once(self) -> None:
        """Write what ended, take queues that are due, begin what may begin; then wait for news."""
        now = self.now_ms()
        if not self._renewed_ms <= now <= self._renewed_ms + LEASE_MS // 4:  # the clock may be set back
            await self._renew(now)
        due = await self.broker.read(lambda c: subscribers.due_tenants(c, now)) if self.core.room > 0 else []
        changes = self.core.drain()  # from here on, whatever fails puts them back
        if due or changes.changed or changes.released or changes.disabled:
            await self._write(changes, due, now)
        self._begin()
        if not self.core.has_changes:
            await _news_or_pause(self._news, _LOOK_S)

    def _begin(self) -> None:
        """Begin what may begin. Each try that ends calls it, so that tries go on while a transaction is under way."""
        for planned in self.core.step(self.now_ms()):
            task = asyncio.create_task(self._send(planned))
            self._sends.add(task)
            task.add_done_callback(self._sends.discard)
        self.broker.metrics.in_flight.set(self.core.in_flight)

    async def _write(self, changes: DeliveryChanges, due: list[str], now: int) -> None:
        room, owner = self.core.room, self.owner

        def change(connection: Connection, _: int) -> dict[str, list[int]]:
            return settle_and_lease(connection, changes, due, now, owner, room)

        try:
            leased = await self.broker.run(change)
        except BaseException:
            self.core.undo(changes)  # written with the next transaction
            raise
        self._count(changes)
        for tenant, numbers in leased.items():
            found = await self.broker.read(partial(look_at, tenant=tenant, numbers=numbers, now_ms=now))
            if any(one.needs_write for one in found):
                await self.broker.run(partial(_write_looks, tenant=tenant, found=found))
            for one in found:
                self.core.take(one.number, one.record, one.due, one.not_before_ms)

    async def _renew(self, now: int) -> None:
        self._renewed_ms, owner, tenants = now, self.owner, self.core.tenants()

        def change(connection: Connection, _: int) -> None:
            for tenant in tenants:
                subscribers.renew_leases(connection, tenant, owner, now + LEASE_MS)

        if tenants:
            await self.broker.run(change)

    async def _send(self, planned: PlannedSend) -> None:
        began = time.perf_counter()
        kind = self.kinds[planned.route.kind]
        try:
            message = write_message(planned.message_id, planned.queue.record, planned.members)
            outcome = await kind.send(message, planned.route, self.now_ms())
        except Exception as error:  # noqa: BLE001 - a mistake of ours is a failed try: the delivery must not be forgotten
            _log.exception("delivery=%s failed", planned.message_id)
            outcome = SendOutcome(SendResult.FAILED, f"internal error: {type(error).__name__}")
        seconds = time.perf_counter() - began
        self.core.finish(planned, outcome, round(seconds * 1000), self.now_ms())
        self.broker.metrics.tries.labels(planned.route.kind, outcome.result.value).inc()
        self.broker.metrics.try_seconds.labels(planned.route.kind).observe(seconds)
        self._begin()
        self._news.set()

    def _count(self, changes: DeliveryChanges) -> None:
        for one in changes.changed:
            if one.state is not DeliveryState.PENDING:
                self.broker.metrics.deliveries.labels(one.state.value).inc()
                if one.state is not DeliveryState.HELD:
                    self.broker.statistics.end_delivery(one.tenant, one.space, dead=one.state is DeliveryState.DEAD)
            if one.state is DeliveryState.DEAD:
                _log.warning(
                    "delivery=%s subscriber=%s/%s dead reason=%s", one.id, one.tenant, one.subscriber, one.reason
                )
        for route in changes.disabled:
            _log.warning(
                "route=%s subscriber=%s/%s disabled reason=%s",
                route.route,
                route.tenant,
                route.subscriber,
                route.reason,
            )

    # -- what else ----------------------------------------------------------------------------------------------------------

    async def _tidy_once(self) -> None:
        settings, now = self.broker.settings, self.now_ms()
        reason = "the subscriber was muted, snoozed or quiet for too long"

        def change(connection: Connection, _: int) -> tuple[int, int, int]:
            presence.forget_feeds(connection, now)
            gone = deliveries.forget(connection, now - settings.delivered_ms, now - settings.dead_letters_ms)
            return (*gone, deliveries.give_up_held(connection, now - settings.delivery_ms, now, reason))

        _, dead, held = await self.broker.run(change)
        if dead:
            _log.warning(
                "dead letters removed=%d; they were older than %d days", dead, settings.dead_letters_ms // 86_400_000
            )
        if held:
            self.broker.metrics.deliveries.labels("dead").inc(held)
            _log.warning("deliveries dead=%d reason=%s", held, reason)
        await asyncio.sleep(_TIDY_S)

    def _endpoint(self, tenant: str, route: SubscriberRoute) -> str | None:
        found = self.kinds[route.kind].endpoint(tenant, route.target)
        return None if found is None else f"{tenant} {found}"

    async def test_route(self, record: SubscriberRecord, route: SubscriberRoute) -> tuple[SendOutcome, int]:
        """Send a message by one route, once; what became of it, and milliseconds."""
        now = self.now_ms()
        body = b'{"id":"test","data":{"test":true}}'
        id = "t" + token_hex(16)
        one = Delivery(id, record.tenant, record.name, "test", 0, ("test",), body, DeliveryState.PENDING, now, now, now)
        began = time.perf_counter()
        outcome = await self.kinds[route.kind].send(write_message(id, record, [one]), route, now)
        return outcome, round((time.perf_counter() - began) * 1000)


async def _news_or_pause(news: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(news.wait(), seconds)
    news.clear()


def _write_looks(connection: Connection, _: int, tenant: str, found: list[LookedAt]) -> None:
    for one in found:
        one.write(connection, tenant)
