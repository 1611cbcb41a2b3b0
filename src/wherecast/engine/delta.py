"""Delta: changes since the last segment, and how segments are merged.

Theory of operation
-------------------
The subscriptions of an engine are a short list of immutable segments, the oldest and largest first, and a log of the
latest changes. A change appends to the log and publishes a new `State`; it costs nothing of the base. The first reader
of a state with a log builds a small segment of it (the *tip*) and leaves it for the others. A full log becomes a
segment. Segments are merged, aside and in the background, while each one is less than `RATIO` times as large as all
that came after it, so their number stays logarithmic and every subscription is rebuilt a logarithmic number of times.

Removing a subscription marks it with the version of its death (see `segment`). A merge reads what is alive at one version
and is published under the writers' lock, where the deaths that happened meanwhile are carried over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wherecast.engine.ids import SubscriptionId
from wherecast.engine.segment import ALIVE, Members, Segment
from wherecast.language.compile import Compiler

#: A log this long becomes a segment.
LOG_LIMIT = 512
#: A segment is merged with its successors when it is less than this many times their size.
RATIO = 4
#: A segment is rebuilt when more than this share of it is dead.
WASTE = 0.2


class Entry:
    """A subscription in the log."""

    __slots__ = ("died", "id", "priority", "text")

    def __init__(self, id: SubscriptionId, text: str, priority: float) -> None:
        self.id = id
        self.text = text  # of a filter that is known to compile
        self.priority = priority
        self.died = int(ALIVE)


class State(NamedTuple):
    """What a reader sees: segments, and the first `log_size` entries of a log that only grows."""

    version: int
    segments: tuple[Segment, ...]
    log: list[Entry]
    log_size: int

    def live_entries(self) -> list[Entry]:
        return [e for e in self.log[: self.log_size] if e.died > self.version]


def members_of_entries(entries: Sequence[Entry], compiler: Compiler) -> Members:
    """Log entries as members of a segment. They were validated one by one and are compiled here, all at once."""
    compiled = compiler.compile_many([e.text for e in entries])
    priorities = np.array([e.priority for e in entries], np.float32)
    return Members(compiled.filters, compiled.filter_of, [e.id for e in entries], priorities)


def first_to_merge(segments: Sequence[Segment]) -> int:
    """Index of the first segment of the run at the end that should be merged; len(segments) if none."""
    first, behind = len(segments), 0
    for i in range(len(segments) - 1, -1, -1):
        size = len(segments[i]) - segments[i].deaths
        if behind and size < RATIO * behind:
            first = i
        if segments[i].deaths > WASTE * len(segments[i]):
            first = i
        behind += size
    return first
