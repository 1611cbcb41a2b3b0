"""The log becomes deliveries: for each event and subscriber with routes one, however many filters matched.

Theory of operation. The naive way queues notifications when an event is published; a crash between the two loses some. Here the
log has the matches already, and a position per space says how far it was turned into deliveries. The position moves in the
transaction that writes them, so each event is turned into deliveries exactly once, whatever is killed and whoever else follows.

Most matches are of subscribers without a record. Each space has a sorted array of the numbers of subscriptions whose subscribers
have one; an entry is compared with it by bisection. The position of entries without such a match is written down now and then.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection

from wherecast.broker import clock
from wherecast.broker.broker import Broker, Space
from wherecast.broker.delivery.policy import first_try_ms
from wherecast.broker.delivery.records import Delivery, DeliveryState, delivery_id
from wherecast.broker.log_entries import LoggedEvents, Longs
from wherecast.broker.store import deliveries, event_log, subscribers, subscriptions
from wherecast.broker.store.deliveries import NewDelivery
from wherecast.broker.store.subscribers import KnownNumbers

_log = logging.getLogger(__name__)

#: Entries that are read at a time, and deliveries of one transaction.
_ENTRIES, _AT_ONCE = 20, 1_000


class FollowedPart(NamedTuple):
    """What a part of the log gives: the deliveries of the events from one position up to another."""

    new: list[NewDelivery]
    end: int


class SpaceFollower:
    """Follows the log of one space."""

    def __init__(self, broker: Broker, space: Space) -> None:
        self.broker, self.space = broker, space
        self.stored: int | None = None  # the position in the store
        self.position = -1  # in memory: this far there is nothing to deliver; -1: not read yet
        self._numbers: Longs = np.empty(0, np.int64)
        self._known = KnownNumbers()

    async def follow(self) -> bool:
        """Turn the next part of the log into deliveries; False: there is none."""
        space = self.space
        if self.position < 0:
            await self._read_position()
        entries = space.tail.after(self.position)
        if entries is None:
            entries = await self.broker.read(self._read_entries)
        if not entries:
            return False
        part = await self.broker.read(lambda c: self._plan(c, entries))
        if part.new:
            await self._write(part)
        else:
            self.position = part.end
        return True

    async def save(self) -> None:
        """Write down a position up to which there was nothing to deliver."""
        if self.position > (self.stored or 0):
            await self._write(FollowedPart([], self.position))

    async def _read_position(self) -> None:
        tenant, number = self.space.tenant, self.space.space
        self.stored = await self.broker.read(lambda c: deliveries.find_position(c, tenant, number))
        self.position = self.stored or 0

    def _read_entries(self, connection: Connection) -> list[LoggedEvents]:
        space = self.space
        start, _ = event_log.bounds(connection, space.tenant, space.space)
        if self.position < start:
            _log.error(
                "space=%s/%s events=%d..%d were removed from the log before they were delivered; keep events for longer",
                space.tenant,
                space.name,
                self.position,
                start - 1,
            )
            self.broker.metrics.not_followed.inc(start - self.position)
            self.position = start
        return event_log.read_from(connection, space.tenant, space.space, self.position, _ENTRIES)

    def _plan(self, connection: Connection, entries: list[LoggedEvents]) -> FollowedPart:
        """The deliveries of the next entries, as many as fit into one transaction."""
        space = self.space
        found, self._known = subscribers.numbers_with_records(
            connection, space.tenant, space.space, self._known, entries[-1].version
        )
        if found:
            self._numbers = np.union1d(self._numbers, np.array(found, np.int64))
        new: list[NewDelivery] = []
        end = self.position
        for entry in entries:
            new_here, end = self._plan_entry(connection, entry, _AT_ONCE - len(new))
            new += new_here
            if end < entry.end or len(new) >= _AT_ONCE:
                break
        return FollowedPart(new, end)

    def _plan_entry(self, connection: Connection, entry: LoggedEvents, limit: int) -> tuple[list[NewDelivery], int]:
        space = self.space
        rows = {
            row: numbers
            for row, numbers in entry.matches_of(self._numbers).items()
            if entry.position + row >= self.position
        }
        if not rows:
            return [], entry.end
        wanted = sorted({number for numbers in rows.values() for number in numbers})
        owners = subscriptions.owners_of_numbers(connection, space.tenant, space.space, wanted)
        names = {subscriber for _, subscriber in owners.values()}
        records = subscribers.find_records(connection, space.tenant, names)
        now = clock.now_ms()
        new: list[NewDelivery] = []
        for row, numbers in rows.items():
            if len(new) >= limit:
                return new, entry.position + row
            position = entry.position + row
            event = delivery_id(space.tenant, space.space, space.stored.created_ms, position, "")
            told: dict[str, list[str]] = {}
            for number in numbers:
                id, subscriber = owners.get(number, ("", ""))
                if subscriber in records and records[subscriber].routes:
                    told.setdefault(subscriber, []).append(id)
            for subscriber, ids in told.items():
                one = Delivery(
                    delivery_id(space.tenant, space.space, space.stored.created_ms, position, subscriber),
                    space.tenant,
                    subscriber,
                    space.name,
                    position,
                    tuple(sorted(ids)),
                    entry.lines[row],
                    DeliveryState.PENDING,
                    now,
                    now,
                    first_try_ms(records[subscriber], now),
                )
                new.append(NewDelivery(one, event))
        return new, entry.end

    async def _write(self, part: FollowedPart) -> None:
        """Write deliveries and move the position, together. If somebody else was quicker, begin again where they are."""
        space, stored = self.space, self.stored

        def change(connection: Connection, _: int) -> bool:
            if not deliveries.move_position(connection, space.tenant, space.space, stored, part.end):
                return False
            if part.new:
                deliveries.add_deliveries(connection, space.tenant, part.new)
                times: dict[int, set[str]] = {}
                for one, _event in part.new:
                    times.setdefault(one.next_ms, set()).add(one.subscriber)
                for at, names in times.items():
                    subscribers.wake_queues(connection, space.tenant, names, at)
            return True

        if await self.broker.run(change):
            self.stored = self.position = part.end
            self.broker.metrics.deliveries.labels("made").inc(len(part.new))
        else:
            self.position = -1
