"""Presence: who reads a feed just now, in this process or in another one on the same database.

Theory of operation. The naive way asks the feeds of this process. With several processes, a subscriber who reads a feed at another one is taken
for absent and told by the next route. To write down every message of every feed would be exact, at the price of a commit per message. Here a
process writes down a feed when it opens and, several times a second, what it has sent since; only for subscribers with a route of kind feed,
because nobody else is asked for. A row counts for `LEASE_MS`, and its process renews it. So the feeds of a process that died are forgotten soon, and
until then deliveries wait for them, as they do for a reader that is slow.

SQLite has one process, which knows all its feeds: nothing is written.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress

from sqlalchemy import Connection

from wherecast.broker import clock
from wherecast.broker.broker import Broker, FeedPlace
from wherecast.broker.store import presence
from wherecast.broker.store.presence import PresentFeed

#: How long a row counts, how often it is renewed, and how often positions are written, if they moved.
LEASE_MS, _RENEW_MS, _WRITE_S = 10_000, 2_500, 0.25


class Presence:
    """The open feeds of one process, told to the others; and theirs."""

    def __init__(self, broker: Broker, owner: str) -> None:
        self.broker, self.owner = broker, owner
        self._is_alone = broker.database.is_sqlite
        self._opened = asyncio.Event()
        self._count = itertools.count()
        self._known: dict[FeedPlace, tuple[int, int]] = {}  # its number, and what it had sent at the last look
        self._written: set[FeedPlace] = set()
        self._renewed_ms = 0
        broker.on_feed = self._opened.set

    async def of(self, tenant: str, subscriber: str, space: str) -> list[tuple[int, int]]:
        """What the open feeds of a subscriber in a space have sent: positions from a start to an end."""
        readers = self.broker.readers.get((tenant, subscriber), ())
        found = [(feed.start, feed.sent) for feed in readers if feed.space.name == space]
        if not self._is_alone:
            now, me = clock.now_ms(), self.owner
            found += await self.broker.read(lambda c: presence.feeds_elsewhere(c, tenant, subscriber, space, me, now))
        return found

    async def share_once(self) -> None:
        """Wait for a moment or for a new feed; then write down what is new."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._opened.wait(), _WRITE_S)
        self._opened.clear()
        now = clock.now_ms()
        is_due = not self._renewed_ms <= now < self._renewed_ms + _RENEW_MS
        feeds = self._feeds()
        news = {feed: one for feed, one in feeds.items() if is_due or self._known.get(feed) != (one.feed, one.sent)}
        closed = [self._known[feed][0] for feed in self._written - feeds.keys()]
        if news:
            wanted = await self.broker.read(
                lambda c: presence.told_by_feed(c, {(one.tenant, one.subscriber) for one in news.values()})
            )
            news = {feed: one for feed, one in news.items() if (one.tenant, one.subscriber) in wanted}
        if news or closed:
            await self.broker.run(lambda c, _: self._write(c, list(news.values()), closed, now + LEASE_MS))
        self._written = (self._written & feeds.keys()) | news.keys()
        self._known = {feed: (one.feed, one.sent) for feed, one in feeds.items()}
        if is_due:
            self._renewed_ms = now

    def _feeds(self) -> dict[FeedPlace, PresentFeed]:
        """The open feeds of subscribers."""
        return {
            feed: PresentFeed(
                self._known[feed][0] if feed in self._known else next(self._count),
                tenant,
                subscriber,
                feed.space.name,
                feed.start,
                feed.sent,
            )
            for (tenant, subscriber), readers in self.broker.readers.items()
            if subscriber
            for feed in readers
        }

    def _write(self, connection: Connection, news: list[PresentFeed], closed: list[int], until_ms: int) -> None:
        presence.remove_feeds(connection, self.owner, closed)
        presence.put_feeds(connection, self.owner, news, until_ms)

    async def end(self) -> None:
        """No feed of this process is open any more."""
        if self._written:
            numbers = [self._known[feed][0] for feed in self._written]
            await self.broker.run(lambda c, _: presence.remove_feeds(c, self.owner, numbers))
