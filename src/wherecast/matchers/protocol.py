"""What every matcher is: built from boxes, asked with event codes, answering with clauses.

A matcher knows nothing of texts, subscriptions or residuals. It answers which clauses' boxes hold for which events; the
engine settles residuals and fans out to subscriptions, the same way for all of them.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from wherecast.index.boxes import Boxes, EventCodes
from wherecast.index.packed import PackedBoxes


class Hits(NamedTuple):
    """Clauses whose box holds, per event: those of event e are `clause_ids[event_ptr[e]:event_ptr[e + 1]]`."""

    event_ptr: npt.NDArray[np.int64]  # (events + 1,)
    clause_ids: npt.NDArray[np.int32]  # each clause at most once per event


class Matcher(Protocol):
    """A matching algorithm over boxes."""

    name: ClassVar[str]

    @classmethod
    def build(
        cls, boxes: Boxes, sample: EventCodes | None = None, weights: npt.NDArray[np.int32] | None = None
    ) -> Self:
        """Build from boxes.

        `sample` shows what events look like, `weights` what each clause counts for in `weigh`; a matcher may ignore
        both. Raises MatcherError, with the reason, if this algorithm cannot serve the boxes.
        """

    def match(self, events: EventCodes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """`Hits` of a batch."""

    def gate(self) -> tuple[int, npt.NDArray[np.bool_]] | None:
        """An attribute and, by code, whether an event with that code may match anything; None if all may."""

    def weigh(self, events: EventCodes, ptr: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Sum of the weights of the clauses that hold, per event; clause c weighs `ptr[c + 1] - ptr[c]`."""

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The whole state as arrays, for a snapshot."""

    @classmethod
    def check(
        cls, arrays: dict[str, npt.NDArray[Any]], boxes: PackedBoxes, weights: npt.NDArray[np.int32] | None
    ) -> None:
        """Raises SnapshotError unless a matcher of these arrays, out of a file, stays inside them (see `index.bounds`).

        `boxes` are those it was built from, checked already; `weights` what clauses count for in `weigh`, None if it will
        not be asked. What the engine does with a matcher must be safe then: answering, telling about itself, storing.
        """

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> Self:
        """The matcher whose `arrays()` these are; may use them in place. Out of a file, `check` comes first."""

    def explain_plan(self) -> str:
        """What it chose and what that costs, in a few lines."""

    def stats(self) -> dict[str, Any]:
        """What it built and what it costs."""


class DenseMatcher(Matcher, Protocol):
    """A matcher that can write the subscriptions of what holds without listing clauses first."""

    is_dense: bool  # whether it can do so now

    def expand(
        self,
        events: EventCodes,
        ptr: npt.NDArray[np.int32],
        values: npt.NDArray[Any],
        cursor: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        out: npt.NDArray[Any],
    ) -> None:
        """Write values[ptr[c]:ptr[c + 1]] of the clauses c that hold at each event's cursor, which is moved on.

        An event's part of `out` ends at `ends`.
        """

    def share_boxes(self, boxes: PackedBoxes) -> None:
        """Use these boxes, equal to those it was built from, in place of its own copy."""


def weigh_hits(hits: Hits, ptr: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """`Matcher.weigh` for a matcher that knows no shorter way than to list the clauses."""
    running = np.zeros(hits.clause_ids.size + 1, np.int64)
    np.cumsum(np.diff(ptr)[hits.clause_ids], out=running[1:])
    return np.diff(running[hits.event_ptr])
