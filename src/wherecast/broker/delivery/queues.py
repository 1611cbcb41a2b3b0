"""Queues of subscribers between the store and the core: what a look at one finds, and what is written after tries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection

from wherecast.broker.delivery.core import DeliveryChanges
from wherecast.broker.delivery.policy import FOREVER, held_until_ms
from wherecast.broker.delivery.records import Delivery, DeliveryState, SubscriberRecord, digest_id
from wherecast.broker.store import deliveries, subscribers

K = TypeVar("K")
V = TypeVar("V")

#: How long a queue is leased. Its process renews the lease four times as often; when it has died, others go on after this time.
LEASE_MS = 20_000
#: Deliveries that a look takes, and deliveries of one digest.
_AT_ONCE, _DIGEST = 256, 200


class LookedAt(NamedTuple):
    """What a look at a leased queue has found; some of it has to be written before anything is sent."""

    number: int
    record: SubscriberRecord
    due: list[Delivery]
    not_before_ms: int | None = None  # when to look again; None: with the first pending delivery
    moved: tuple[DeliveryState, DeliveryState] | None = None  # its subscriber wants to be told no more, or again
    digest: list[str] | None = None  # deliveries that become one message

    @property
    def needs_write(self) -> bool:
        return self.moved is not None or self.digest is not None

    def write(self, connection: Connection, tenant: str) -> None:
        if self.moved is not None:
            deliveries.move_states(connection, tenant, self.record.name, *self.moved)
        if self.digest is not None:
            deliveries.set_messages(connection, tenant, self.digest, digest_id(self.digest))


def look_at(connection: Connection, tenant: str, numbers: Sequence[int], now_ms: int) -> list[LookedAt]:
    """The due deliveries of leased queues."""
    return [
        _look(connection, number, record, now_ms)
        for number, record in subscribers.read_queues(connection, tenant, numbers)
    ]


def _look(connection: Connection, number: int, record: SubscriberRecord, now_ms: int) -> LookedAt:
    tenant, name = record.tenant, record.name
    until = held_until_ms(record, now_ms)
    if until is not None:
        moved = (DeliveryState.PENDING, DeliveryState.HELD)
        return LookedAt(number, record, [], None if until == FOREVER else until, moved)
    if deliveries.has_held(connection, tenant, name):
        return LookedAt(number, record, [], now_ms, (DeliveryState.HELD, DeliveryState.PENDING))
    due, later = deliveries.take_due(connection, tenant, name, now_ms, _AT_ONCE, ordered=record.ordered)
    due = _with_all_members(connection, record, due)
    if record.digest_minutes is None:
        return LookedAt(number, record, due, later)
    new = [one for one in due if one.message is None][:_DIGEST]
    if not new:
        return LookedAt(number, record, due, later)
    ids = [one.id for one in new]
    message = digest_id(ids)
    tried = [one for one in due if one.message is not None]
    return LookedAt(number, record, tried + [one._replace(message=message) for one in new], later, None, ids)


def _with_all_members(connection: Connection, record: SubscriberRecord, due: list[Delivery]) -> list[Delivery]:
    """A digest that is tried again has the deliveries it had, also those that a look did not take."""
    found: list[Delivery] = []
    seen: set[str] = set()
    for one in due:
        if one.message is None:
            found.append(one)
        elif one.message not in seen:
            seen.add(one.message)
            found += deliveries.members_of(connection, record.tenant, record.name, one.message)
    return found


def settle_and_lease(
    connection: Connection, changes: DeliveryChanges, due: Sequence[str], now_ms: int, owner: str, room: int
) -> dict[str, list[int]]:
    """Write what became of tries, give queues back, and lease others that are due: numbers by tenant."""
    for tenant, rows in _by_tenant((one.tenant, one) for one in changes.changed).items():
        deliveries.settle(connection, tenant, rows)
    for route in changes.disabled:
        subscribers.disable_route(connection, *route, now_ms)
    for (tenant, at_ms), numbers in _by_tenant(
        ((one.tenant, one.not_before_ms), one.number) for one in changes.released
    ).items():
        subscribers.release_queues(connection, tenant, numbers, owner, at_ms)
    leased: dict[str, list[int]] = {}
    for tenant in due:
        limit = max(1, room // len(due))
        leased[tenant] = subscribers.lease_queues(connection, tenant, now_ms, now_ms + LEASE_MS, owner, limit)
    return leased


def _by_tenant(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
