"""History: what one writer's subscriptions were, change by change, so that an answer can be dated.

Every writer has ids of its own, so that several may change one engine at the same time and each still knows what it has: a
reader's answer, cut down to the ids of one writer, must be that of one of the models between the beginning and the end of
the read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Model = dict[Any, int]  # by id, the mask of its filter; never changed once it is in a history


class History:
    """Models by number; the last one may be of a change that is under way."""

    def __init__(self, model: Model) -> None:
        self._lock = threading.Condition()
        self._models = {0: model}
        self._last = self._settled = 0
        self._readers: dict[object, int] = {}

    @property
    def model(self) -> Model:
        """What the writer has, while it changes nothing."""
        return self._models[self._settled]

    def begin(self, after: Model) -> None:
        """A change is about to be made: from now on readers may see it."""
        with self._lock:
            self._last += 1
            self._models[self._last] = after

    def settle(self, *, done: bool) -> None:
        """The change was made, or was not: then nobody may have seen it."""
        with self._lock:
            if not done:
                self._models[self._last] = self._models[self._settled]
            self._settled = self._last
            for number in range(min(self._models), min([self._settled, *self._readers.values()])):
                del self._models[number]
            self._lock.notify_all()

    @contextmanager
    def reading(self) -> Iterator[Window]:
        """Keep what may be read until the block ends."""
        with self._lock:
            window = Window(self, self._settled)
            self._readers[window] = self._settled
        try:
            yield window
        finally:
            with self._lock:
                del self._readers[window]


class Window:
    """The models that a read may have seen."""

    def __init__(self, history: History, first: int) -> None:
        self._history, self._first = history, first
        self._end: int | None = None

    def close(self) -> None:
        """The read is over."""
        self._end = self._history._last

    def models(self) -> list[Model]:
        """All of them; waits until it is known what became of the last one."""
        history = self._history
        assert self._end is not None
        with history._lock:
            if not history._lock.wait_for(lambda: history._settled >= self._end, timeout=300):
                raise AssertionError("a writer does not come to an end")
            return [history._models[number] for number in range(self._first, self._end + 1)]
