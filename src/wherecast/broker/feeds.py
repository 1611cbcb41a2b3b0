"""Feeds: readers that follow the event log of a space.

Theory of operation. The naive way gives each reader a queue, and a slow reader's queue grows. Here a reader is a position in
the log. It takes the next entries from the tail in memory, or from the store where it is behind, finds the events that matched
its subscriptions, and sends them one by one; while it sends, nothing piles up. Live events and resumed ones take the same way,
so each event of the log comes exactly once per feed: after position n comes the next match above n, whatever was cut off in
between. A reader that does not take a message for `slow_reader_s` is cut off; its position is the last it has seen.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection

from wherecast.broker.broker import Broker, Space
from wherecast.broker.log_entries import LoggedEvents, Longs
from wherecast.broker.problems import Problem, not_found
from wherecast.broker.store import event_log, spaces, subscriptions

#: Entries that a reader takes from the store at a time.
_ENTRIES = 20


class FeedMessage(NamedTuple):
    """An event that matched, or, without a body, the position that an idle reader has reached."""

    position: int
    body: bytes | None


class Selection(NamedTuple):
    """Whose matches a feed has: those of one subscription, of one subscriber, or of all."""

    subscription: str | None = None
    subscriber: str | None = None

    @property
    def mark(self) -> tuple[str, str] | None:
        if self.subscription is not None:
            return ("id", self.subscription)
        return None if self.subscriber is None else ("subscriber", self.subscriber)


class Feed:
    """One reader: `messages` is what it is sent."""

    def __init__(self, broker: Broker, space: Space, selection: Selection, position: int) -> None:
        self.broker, self.space, self.selection = broker, space, selection
        self.position = position  # of the next event that was not looked at
        self.start = self.sent = position  # the reader has had every match between these
        self._ids: dict[int, str] = {}
        self._numbers: Longs | None = None  # ascending; None: all
        self._known = (-1, -1)  # version of the store and mark when these were read

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Count the feed against its tenant's quota while it is open."""
        broker, tenant = self.broker, self.space.tenant
        broker.feeds[tenant] = broker.feeds.get(tenant, 0) + 1
        broker.metrics.feeds.inc()
        if self.selection.mark is not None:
            self.space.engine.marks.setdefault(self.selection.mark, 0)
        readers = broker.readers.setdefault((tenant, self.selection.subscriber or ""), set())
        readers.add(self)
        broker.on_feed()
        try:
            yield
        finally:
            readers.discard(self)
            if not readers:
                broker.readers.pop((tenant, self.selection.subscriber or ""), None)
            broker.on_feed()
            broker.feeds[tenant] -= 1
            broker.metrics.feeds.dec()

    async def messages(self) -> AsyncIterator[FeedMessage]:
        """Events that match, in order, each once; now and then a position, where there are none."""
        while True:
            entries = self.space.tail.after(self.position)
            if entries is None:
                entries = await self._stored()
            for entry in entries:
                async for message in self._of(entry):
                    yield message
                self.sent = self.position = max(self.position, entry.end)
            if not entries and not await self.space.tail.wait(self.broker.settings.heartbeat_s):
                yield FeedMessage(self.position - 1, None)

    async def _of(self, entry: LoggedEvents) -> AsyncIterator[FeedMessage]:
        if self.selection.mark is not None and self._is_outdated(entry.version):
            await self._load_ids()
        found = entry.matches_of(self._numbers)
        if self.selection.mark is None and found:
            numbers = sorted({number for row in found.values() for number in row})
            space = self.space
            self._ids = await self.broker.read(
                lambda c: subscriptions.ids_of_numbers(c, space.tenant, space.space, numbers)
            )
        for row, numbers in found.items():
            position = entry.position + row
            if position >= self.position:
                names = [self._ids[number] for number in numbers if number in self._ids]
                head = f'{{"position":{position},"subscriptions":{json.dumps(names, ensure_ascii=False)},'.encode()
                self.position = position + 1
                yield FeedMessage(position, head + entry.lines[row][1:])
                self.sent = position + 1

    async def _stored(self) -> list[LoggedEvents]:
        space, position = self.space, self.position

        def query(connection: Connection) -> tuple[int, list[LoggedEvents]]:
            start, _ = event_log.bounds(connection, space.tenant, space.space)
            return start, event_log.read_from(connection, space.tenant, space.space, position, _ENTRIES)

        start, entries = await self.broker.read(query)
        if position < start:
            raise gone(position, start)
        return entries

    def _is_outdated(self, version: int) -> bool:
        """Whether there may be subscriptions up to a version that the feed has not heard of."""
        mark = self.selection.mark
        assert mark is not None
        engine = self.space.engine
        known, counted = self._known
        return known < 0 or counted != engine.marks.get(mark, 0) or (version > known and engine.version < version)

    async def _load_ids(self) -> None:
        space, mark = self.space, self.selection.mark
        assert mark is not None
        counted = space.engine.marks.get(mark, 0)

        def query(connection: Connection) -> tuple[int, dict[int, str]]:
            stored = spaces.find_space(connection, space.tenant, space.name)
            kind, name = mark
            find = subscriptions.numbers_of_id if kind == "id" else subscriptions.numbers_of_subscriber
            return stored.version if stored else 0, find(connection, space.tenant, space.space, name)

        version, self._ids = await self.broker.read(query)
        self._numbers = np.array(sorted(self._ids), np.int64)
        self._known = (version, counted)


async def open_feed(broker: Broker, space: Space, selection: Selection, start: str | None) -> Feed:
    """A feed that begins after the event with the position `start`, at the `earliest` kept, or else with the next event."""
    tenant = space.tenant
    quotas = await broker.read(lambda c: spaces.find_quotas(c, tenant))
    if quotas is not None and broker.feeds.get(tenant, 0) >= quotas.feeds:
        raise Problem(
            429, "quota", "the tenant has as many open feeds as its quota allows", headers={"Retry-After": "10"}
        )
    first, head = await broker.read(lambda c: event_log.bounds(c, tenant, space.space))
    if start is None:
        position = head
    elif start == "earliest":
        position = first
    elif start.lstrip("-").isdigit() and len(start) < 19 and -1 <= int(start) < head:
        position = int(start) + 1
    else:
        raise Problem(
            422, "position", f"{start[:40]!r} is not a position of this log; leave it out, or write 'earliest'"
        )
    if position < first:
        raise gone(position, first)
    id = selection.subscription
    if id is not None and not await broker.read(lambda c: subscriptions.numbers_of_id(c, tenant, space.space, id)):
        raise not_found("subscription", id)
    return Feed(broker, space, selection, position)


def gone(position: int, start: int) -> Problem:
    """Events that a reader asks for are not kept any more."""
    return Problem(
        410,
        "gone",
        f"the events from position {position} on are not kept any more, the oldest is {start}; begin with 'earliest'",
        {"earliest": start},
    )
