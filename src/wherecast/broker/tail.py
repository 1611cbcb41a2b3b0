"""The newest entries of a space's log in memory, shared by all readers, and their wake-up.

A reader has a position and nothing else. It asks the tail for what comes next, and the store where the tail does not reach
back far enough. So a thousand readers cost one copy of the newest entries, and a slow one costs no more than a quick one. All
of this runs in the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque

from wherecast.broker.log_entries import LoggedEvents


class Tail:
    """The newest entries, without a gap, up to about `limit_bytes`."""

    def __init__(self, head: int, limit_bytes: int = 32 << 20) -> None:
        self.start = self.end = head
        self._entries: deque[LoggedEvents] = deque()
        self._bytes = 0
        self._limit_bytes = limit_bytes
        self._news = asyncio.Event()

    def append(self, entry: LoggedEvents) -> None:
        """Add an entry. One that is there already is ignored; one that leaves a gap makes the tail begin with it."""
        if entry.position < self.end:
            return
        if entry.position > self.end:
            self._entries.clear()
            self._bytes, self.start = 0, entry.position
        self._entries.append(entry)
        self._bytes += entry.nbytes
        self.end = entry.end
        while self._bytes > self._limit_bytes and len(self._entries) > 1:
            self._bytes -= self._entries.popleft().nbytes
            self.start = self._entries[0].position
        self.wake()

    def wake(self) -> None:
        """Let all readers look again."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    def after(self, position: int) -> list[LoggedEvents] | None:
        """Entries with events from a position on; None if the tail does not reach back to it."""
        if position < self.start:
            return None
        found: list[LoggedEvents] = []
        for entry in reversed(self._entries):
            if entry.end <= position:
                break
            found.append(entry)
        return found[::-1]

    async def wait(self, seconds: float) -> bool:
        """Wait for news; False if there was none for so long."""
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except TimeoutError:
            return False
        return True
