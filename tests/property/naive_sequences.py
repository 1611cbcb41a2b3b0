"""A slow, obvious replay of patterns: it keeps every event, and looks for a match from scratch.

An event is (time, key, position, what it satisfies), a pattern the letters of its steps. The order is that of time, then of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import NamedTuple


class NaiveEvent(NamedTuple):
    time: int | None
    key: str | None
    letters: str


class NaivePattern(NamedTuple):
    """Steps by letter; `absent`: what THEN NOT names; `count`: how many events of the only step a COUNT asks for."""

    steps: str
    window: int
    absent: str = ""
    count: int = 0
    is_keyed: bool = True


class Found(NamedTuple):
    id: object
    key: str | None
    time: int
    events: tuple[int, ...]


@dataclass
class _Watch:
    """One pattern and one key: the events since the last match, and the match that waits for its window to end."""

    history: list[tuple[int, int, str]] = field(default_factory=list)
    armed: tuple[int, tuple[int, ...]] | None = None

    def fire(self, before: float) -> tuple[int, tuple[int, ...]] | None:
        if self.armed is None or self.armed[0] >= before:
            return None
        found, self.armed, self.history = self.armed, None, []
        return found

    def see(self, pattern: NaivePattern, event: tuple[int, int, str]) -> tuple[int, tuple[int, ...]] | None:
        time, _, letters = event
        if self.armed is not None and pattern.absent in letters:
            self.armed = None
        self.history.append(event)
        chain = self.longest(pattern)
        if chain is None:
            return None
        self.history = []
        if not pattern.absent:
            return time, tuple(position for _, position, _ in chain)
        if self.armed is None:
            self.armed = chain[0][0] + pattern.window, tuple(position for _, position, _ in chain)
        return None

    def longest(self, pattern: NaivePattern) -> list[tuple[int, int, str]] | None:
        """The events of a match that ends with the last event; of several, the one whose events are the latest, from the last on."""
        now = self.history[-1][0]
        if pattern.count:
            inside = [e for e in self.history if pattern.steps in e[2] and now - e[0] <= pattern.window]
            return inside if len(inside) >= pattern.count and inside[-1] is self.history[-1] else None
        places = [[n for n, e in enumerate(self.history) if letter in e[2]] for letter in pattern.steps]
        last = len(self.history) - 1
        chains = [
            chain[::-1]
            for chain in product(*places)
            if chain[-1] == last
            and all(a < b for a, b in pairwise(chain))
            and now - self.history[chain[0]][0] <= pattern.window
        ]
        return [self.history[n] for n in max(chains)[::-1]] if chains else None


class NaiveReplay:
    """A stream, batch by batch; the watermark is that of all batches before."""

    def __init__(self, patterns: dict[object, NaivePattern], lateness: int) -> None:
        self.patterns = patterns
        self.lateness = lateness
        self.watches: dict[tuple[object, str | None], _Watch] = {}
        self.waiting: list[tuple[int, int, NaiveEvent]] = []
        self.mark = self.latest = float("-inf")
        self.position = self.late = self.untimed = 0

    def advance(self, batch: list[NaiveEvent], until: float = float("-inf")) -> list[Found]:
        for event in batch:
            if event.time is None:
                self.untimed += 1
            elif event.time < self.mark:
                self.late += 1
            else:
                self.waiting.append((event.time, self.position, event))
            self.latest = max(self.latest, self.latest if event.time is None else event.time)
            self.position += 1
        self.mark = max(self.mark, self.latest - self.lateness, until)
        found: list[Found] = []
        for time, position, event in sorted(w for w in self.waiting if w[0] <= self.mark):
            found += self._fire(time)
            for id, pattern in self.patterns.items():
                key = event.key if pattern.is_keyed else None
                watch = self.watches.setdefault((id, key), _Watch())
                match = watch.see(pattern, (time, position, event.letters))
                found += [] if match is None else [Found(id, key, *match)]
        self.waiting = [w for w in self.waiting if w[0] > self.mark]
        return found + self._fire(self.mark)

    def _fire(self, before: float) -> list[Found]:
        fired = [(id, key, watch.fire(before)) for (id, key), watch in self.watches.items()]
        return [Found(id, key, *match) for id, key, match in fired if match is not None]
