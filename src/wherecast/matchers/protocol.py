"""What every matcher is: built from boxes, asked with event codes, answering with clauses.

A matcher knows nothing of texts, subscriptions or residuals. It answers which clauses' boxes hold for which events; the
engine settles residuals and fans out to subscriptions, the same way for all of them. What a matcher cannot do better than
anybody has a default here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from wherecast.index.boxes import Boxes, EventCodes
from wherecast.index.packed import PackedBoxes, unpack_boxes
from wherecast.index.points import EventPoint
from wherecast.kernels.arrays import Bools, Ints, Longs, Numbers
from wherecast.kernels.events import drop_repeats
from wherecast.kernels.jit import direct, frozen

#: The state of a matcher, by name.
Arrays = dict[str, Numbers]
_NO_OWNERS = np.zeros(0, np.int32)


class Hits(NamedTuple):
    """Clauses whose box holds, per event: those of event e are `clause_ids[event_ptr[e]:event_ptr[e + 1]]`."""

    event_ptr: Longs  # (events + 1,)
    clause_ids: Ints  # each clause at most once per event


def each_once(hits: Hits, n_ids: int, owner: Ints = _NO_OWNERS) -> Hits:
    """Each id, of so many, once per event; with `owner`, each owner of an id once: the filters of clauses, say. `hits` may be written over."""
    if not hits.clause_ids.size:
        return hits
    # Nothing looks at the types behind `direct`, so they are made sure of here.
    ptr, ids = np.ascontiguousarray(hits.event_ptr, np.int64), np.ascontiguousarray(hits.clause_ids, np.int32)
    size = _drop_repeats()(ids, ptr, np.ascontiguousarray(owner, np.int32), np.zeros((n_ids >> 6) + 1, np.uint64))
    return Hits(ptr, ids[:size])


@cache
def _drop_repeats() -> Callable[..., int]:
    ids = np.zeros(0, np.int32)
    return direct(drop_repeats, ids, np.zeros(1, np.int64), frozen(ids), np.zeros(0, np.uint64))


class DenseHits(ABC):
    """Clauses of a dense part that hold for the events of a batch, not listed.

    Most of them hold for most events, and going from bits to subscriptions takes less time than listing them.
    """

    @abstractmethod
    def add_weights(self, ptr: Ints, totals: Longs) -> None:
        """Add the weights of the clauses that hold for each event to `totals`, as `Matcher.weigh`."""

    @abstractmethod
    def expand(self, ptr: Ints, values: Numbers, cursor: Longs, ends: Longs, out: Numbers) -> None:
        """Write values[ptr[c]:ptr[c + 1]] of the clauses c that hold at each event's cursor, which is moved on.

        An event's part of `out` ends at `ends`. The weights that the matcher was built with must be those of `ptr`.
        """


class Matcher(ABC):
    """A matching algorithm over boxes."""

    name: ClassVar[str]

    # -- building -------------------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def build(cls, boxes: Boxes, sample: EventCodes | None = None, weights: Ints | None = None) -> Self:
        """Build from boxes.

        `sample` shows what events look like, `weights` what each clause counts for in `weigh`; a matcher may ignore
        both. Raises MatcherError, with the reason, if this algorithm cannot serve the boxes.
        """

    @classmethod
    def build_sharing(cls, packed: PackedBoxes, sample: EventCodes | None = None, weights: Ints | None = None) -> Self:
        """Build from boxes that the caller also keeps: a matcher that needs them later may share these."""
        return cls.build(unpack_boxes(packed), sample, weights)

    def order(self) -> Longs | None:
        """The clauses in the order in which they stand in memory, each at least once; None if all are as far apart in any order."""
        return None

    def renumbered(self, place: Ints, boxes: PackedBoxes) -> Self:
        """The same matcher where clause c is clause `place[c]` of these boxes. Only where there is an `order`."""
        raise NotImplementedError(f"matcher {self.name!r} has no order; see `order`")

    # -- matching -------------------------------------------------------------------------------------------------

    @abstractmethod
    def match(self, events: EventCodes) -> tuple[Longs, Ints]:
        """`Hits` of a batch."""

    def match_stored(
        self,
        values: Longs,
        jobs: Longs,
        is_open: Bools,
        n_events: int,
        n_columns: int,
    ) -> tuple[Longs, Ints] | None:
        """`Hits` of a batch from its stored values (see `kernels.stored_columns`); None: code them and call `match`."""
        del values, jobs, is_open, n_events, n_columns
        return None

    def match_one(self, point: EventPoint) -> int:
        """The clauses that hold for one event, each once, to `point.clauses`; returns their number."""
        return point.put_clauses(self.match(point.events())[1])

    def gate(self) -> tuple[int, Bools] | None:
        """An attribute and, by code, whether an event with that code may match anything; None if all may."""
        return None

    def weigh(self, events: EventCodes, ptr: Ints) -> Longs:
        """Sum of the weights of the clauses that hold, per event; clause c weighs `ptr[c + 1] - ptr[c]`."""
        event_ptr, clause_ids = self.match(events)
        running = np.zeros(clause_ids.size + 1, np.int64)
        np.cumsum(np.diff(ptr)[clause_ids], out=running[1:])
        return np.diff(running[event_ptr])

    @property
    def has_dense(self) -> bool:
        """Whether there is a dense part, and so `match_apart`."""
        return False

    def match_apart(self, events: EventCodes) -> tuple[Hits, DenseHits]:
        """`match` without listing the clauses of the dense part. Only where `has_dense`."""
        raise NotImplementedError(f"matcher {self.name!r} lists clauses; see `match`")

    # -- storing --------------------------------------------------------------------------------------------------

    @abstractmethod
    def arrays(self) -> Arrays:
        """The whole state as arrays, for a snapshot; boxes that are shared (`build_sharing`) are left out."""

    @classmethod
    @abstractmethod
    def check(cls, arrays: Arrays, boxes: PackedBoxes, weights: Ints | None) -> None:
        """Raises SnapshotError unless a matcher of these arrays, out of a file, stays inside them (see `index.bounds`).

        `boxes` are those it was built from, checked already; `weights` what clauses count for in `weigh`, None if it will
        not be asked. What the engine does with a matcher must be safe then: answering, telling about itself, storing.
        """

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Arrays, boxes: PackedBoxes) -> Self:
        """The matcher of these boxes whose `arrays()` these are; may use both in place. Out of a file, `check` comes first."""

    # -- telling --------------------------------------------------------------------------------------------------

    def candidates(self, events: EventCodes | None) -> float | None:
        """Clauses an event is compared with, on average: of these events, or as planned; None if it does not say."""
        del events
        return None

    @abstractmethod
    def explain_plan(self) -> str:
        """What it chose and what that costs, in a few lines."""

    @abstractmethod
    def stats(self) -> dict[str, Any]:
        """What it built and what it costs."""
