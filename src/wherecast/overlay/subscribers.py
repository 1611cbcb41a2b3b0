"""The subscribers of one peer: filters stored in the ring on their behalf, and events told to those who are attached.

Theory of operation
-------------------
A peer is the address of its subscribers: `host:port`, the same whatever node the peer is at the time. Where a filter is
stored in the ring is its *registration*, written down before the first message goes out. So whatever happens, nothing is
left in the ring that the peer does not know of and cannot take out again.

A peer that comes back, or has lost its ring, is a new node. It stores every filter again under its new id and,
when no event can be on its way by them any more, deletes the old registrations. In between an event finds both, and is
told once (`pubsub.deliver_once`).

A notice for a durable subscription is on disk before the publisher is answered, and stays until a client has taken it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections import Counter
from collections.abc import Callable
from weakref import WeakValueDictionary

from wherecast.engine.checks import check_id
from wherecast.errors import SubscriptionError
from wherecast.language.events.schema import Attribute, Schema
from wherecast.language.filters.compile import Compiler
from wherecast.language.filters.filters import Filters
from wherecast.overlay.connection import Connection
from wherecast.overlay.driver import Driver
from wherecast.overlay.frames import Reason
from wherecast.overlay.messages import Deliver, Entry, Item, Put, Send, Values
from wherecast.overlay.peer_state import PeerState, Subscription, SubscriptionId
from wherecast.overlay.pubsub import RingRegistration, deliver_once
from wherecast.overlay.requests import Notice, PeerError

#: A client that lets so much wait is cut off; a durable subscription loses nothing by it.
MAX_WAITING_BYTES = 1 << 24
#: Deliveries that are remembered to tell nobody twice: at least so many.
_REMEMBERED = 100_000
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Subscribers:
    """Subscriptions by id, and the connection that is attached to each."""

    def __init__(self, endpoint: str, state: PeerState, counters: Counter[str]) -> None:
        self._endpoint = endpoint
        self._state = state
        self._counters = counters
        self.is_restored = False  # whether the ring holds every filter there was when it was entered
        self._attached: dict[SubscriptionId, Connection] = {}
        self._locks: WeakValueDictionary[SubscriptionId, asyncio.Lock] = WeakValueDictionary()
        self._told: set[tuple[int | str, int, int | str]] = set()
        self._told_before: set[tuple[int | str, int, int | str]] = set()

    @property
    def count(self) -> int:
        return len(self._state.subscriptions())

    # -- filters in the ring ----------------------------------------------------------------------------------------

    async def subscribe(self, driver: Driver, wanted: Subscription, connection: Connection) -> None:
        """Store a filter and attach its subscriber. The same filter again only attaches."""
        check_id(wanted.id)
        async with self._lock(wanted.id):
            holder = self._attached.get(wanted.id)
            if holder is not None and holder is not connection and not holder.is_closing:
                raise SubscriptionError(f"a client is attached to subscription {wanted.id!r}; choose another id")
            known = self._state.find(wanted.id)
            is_new = known is None or known.filter != wanted.filter
            if is_new:
                _compiled(driver, wanted)  # refused before anything is written down
            self._state.keep(wanted)
            try:
                if is_new:
                    await self._change(driver, wanted)
            except PeerError:
                self._state.forget(wanted.id) if known is None else self._state.keep(known)
                raise
            for number, event in self._state.notices(wanted.id):
                connection.send(Notice(wanted.id, number, event))
            self._attached[wanted.id] = connection

    async def unsubscribe(self, driver: Driver, id: SubscriptionId) -> None:
        """Take a subscription out of the ring."""
        async with self._lock(id):
            if self._state.find(id) is None:
                raise SubscriptionError(f"no subscription {id!r} at this peer")
            self._state.forget(id)
            self._attached.pop(id, None)
            await self._withdraw(driver, self._state.registrations(id))

    async def _change(self, driver: Driver, wanted: Subscription) -> None:
        """Store a new filter, or the difference to the one before."""
        before = self._state.registrations(wanted.id)
        if len(before) == 1:
            ((number, old),) = before.items()
            operation, new = driver.node.update(old, _compiled(driver, wanted))
            self._state.add_registration(new)
            await _completed(driver, operation)
            self._state.drop_registration(number)
        else:
            await self._register(driver, wanted)
            await self._withdraw(driver, before)

    async def _register(self, driver: Driver, subscription: Subscription) -> None:
        """Store the filter under this node's id."""
        filters = _compiled(driver, subscription)
        operation, new = driver.node.subscribe(subscription.id, filters, self._endpoint)
        self._state.add_registration(new)
        await _completed(driver, operation)

    async def _withdraw(self, driver: Driver, registrations: dict[int, RingRegistration]) -> None:
        for number, registration in registrations.items():
            await _completed(driver, driver.node.unsubscribe(registration))
            self._state.drop_registration(number)

    async def restore(self, driver: Driver) -> None:
        """After entering a ring: offer the lists that are not too old, store every filter anew, clear up.

        Old registrations go last, and late: an event that has found one of them is on its way to its metadata.
        """
        settings, before, self.is_restored = driver.node.settings, self._state.registrations(), False
        _offer(driver, self._state.entries(settings.lease * settings.repair_ms / 1000))
        for id in [subscription.id for subscription in self._state.subscriptions()]:
            async with self._lock(id):
                subscription = self._state.find(id)  # a client may have changed or ended it by now
                if subscription is not None and (subscription.is_durable or id in self._attached):
                    await self._register(driver, subscription)
                else:
                    self._state.forget(id)
        self.is_restored = True
        await asyncio.sleep(settings.tries * settings.retry_ms / 1000 if before else 0)
        for number, registration in before.items():
            async with self._lock(registration.subscription):
                if number in self._state.registrations(registration.subscription):
                    await self._withdraw(driver, {number: registration})

    # -- events -----------------------------------------------------------------------------------------------------

    def deliver(self, message: Deliver, schema: Schema) -> Send:
        """Tell a subscriber of an event, once. The answer to the publisher."""
        event = json.dumps(event_of(schema, message.event))
        is_new, answer = deliver_once(self._told, message)
        is_new = is_new and (message.origin, message.operation, message.subscription) not in self._told_before
        if len(self._told) > _REMEMBERED:
            self._told_before, self._told = self._told, set()
        subscription = self._state.find(message.subscription)
        if is_new and subscription is not None:
            self._counters["notices"] += 1
            self._tell(subscription, event)
        return answer

    def _tell(self, subscription: Subscription, event: str) -> None:
        number = self._state.add_notice(subscription.id, event) if subscription.is_durable else 0
        connection = self._attached.get(subscription.id)
        if connection is None or connection.is_closing:
            return
        if connection.waiting_bytes > MAX_WAITING_BYTES:
            self._counters[Reason.OVERFLOW] += 1
            connection.close()
        else:
            connection.send(Notice(subscription.id, number, event))

    async def detach(self, connection: Connection, driver: Callable[[], Driver | None]) -> None:
        """A client has gone: what it asked for while connected ends; durable subscriptions stay."""
        for id in [id for id, held in self._attached.items() if held is connection]:
            del self._attached[id]
            subscription, now = self._state.find(id), driver()
            if subscription is not None and not subscription.is_durable:
                self._state.forget(id)
                if now is not None:
                    async with self._lock(id):
                        await self._withdraw(now, self._state.registrations(id))

    def _lock(self, id: SubscriptionId) -> asyncio.Lock:
        """Changes of one subscription come one after another."""
        return self._locks.setdefault(id, asyncio.Lock())


def _compiled(driver: Driver, subscription: Subscription) -> Filters:
    """A filter that the overlay can serve; FilterError for any other."""
    filters = Compiler(driver.node.placement.schema).compile(subscription.filter)
    driver.node.placement.clauses(filters)
    return filters


async def _completed(driver: Driver, operation: int) -> None:
    if not (await driver.ended(operation)).is_complete:
        raise PeerError("the ring did not answer; it may be healing, try again")


def _offer(driver: Driver, entries: tuple[Entry, ...]) -> None:
    """Send list entries to whoever owns their places now; nobody waits for the answers."""
    node = driver.node
    items = [
        Item(
            node.placement.position(list, p.first),
            0,
            Put(driver.address, 0, p.first, p.last, Entry(list, clause, (p,))),
        )
        for list, clause, pieces in entries
        for p in pieces
    ]
    node.router.route(items)
    driver.settle()


def event_of(schema: Schema, values: Values) -> dict[str, object]:
    """An event for people: its values by name, as JSON has them. Raises ValueError for a key that does not stand for a value."""
    return {schema.attributes[a].name: _value(schema.attributes[a], key) for a, key in values}


def _value(attribute: Attribute, key: int | bytes) -> object:
    try:
        return attribute.row.show(key.decode() if isinstance(key, bytes) else key, attribute)
    except OverflowError:
        raise ValueError(f"{key!r} is not a {attribute.kind}") from None
