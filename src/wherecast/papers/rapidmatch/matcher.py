"""RAPIDMatch: Reordering And Partitioning Input Data - Match, on boxes.

Theory of operation
-------------------
(Kale, Hazan, Cao, Singh: Analysis and Algorithms for Content-based Event Matching, 2005.) The algorithm proper works on
binary properties: `binary` has its sets, blocks and trees. `partition` cuts the codes of each attribute into
cells that become properties, so that a clause is a row of {0, 1, *} and an event sets few properties to 1. This module
joins the two, and keeps the boxes (`clauses`): a clause that cuts a cell, added later, makes a finer partition
necessary, and everything is then built anew under it.

Two things decide whether RAPIDMatch fits. The number of properties is bounded (`MOST_PROPERTIES`): attributes with many
constants are refused when the matcher is built. And events must be light: c, the number of ones up to which an event has
trees of its own, is chosen from a sample of events so that `SHARE` of them have, as long as no subscription is stored
more than `COPIES` times on average. Without a sample nothing is known of the events, not even which attributes are arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from wherecast.errors import MatcherError
from wherecast.index.bounds import StoredArrays
from wherecast.index.boxes import Boxes, EventCodes
from wherecast.index.packed import PackedBoxes, check_rows
from wherecast.kernels.arrays import Ints, Words
from wherecast.kernels.jit import frozen
from wherecast.kernels.rows import Rows
from wherecast.matchers.protocol import Arrays, Hits, Matcher
from wherecast.papers.rapidmatch.binary import BinaryIndex, SearchTally, check_index, count_copies
from wherecast.papers.rapidmatch.clauses import ClauseStore, compose_boxes
from wherecast.papers.rapidmatch.partition import (
    CodePartition,
    DistinctConstraints,
    MisfitError,
    check_partition,
    cut_partition,
    make_partition,
)

#: Share of the sample's events that shall be light.
SHARE = 0.95
#: Trees that hold a subscription, on average, at most.
COPIES = 64
#: An event with more ones is never light: a thirty-third of the levels is all there is to skip.
MOST_ONES = 32
#: Ones up to which an event is light, where no events were shown.
ASSUMED_ONES = 5
#: Events of a sample that are kept, for the next partition.
SAMPLE = 1_000
#: Parts of boxes that are kept apart; single insertions stay cheap, and so does reading them all.
MOST_PARTS = 256


class BuildBasis(NamedTuple):
    """What a matcher was built for, and is built for again when the partition changes."""

    sample: EventCodes | None
    c: int | None  # as given
    is_fixed: bool  # the partition was given and stays


class RapidMatcher(Matcher):
    """RAPIDMatch over boxes; changes in place."""

    name: ClassVar[str] = "rapid"

    def __init__(self, plan: BuildBasis, partition: CodePartition, index: BinaryIndex, clauses: ClauseStore) -> None:
        self._plan, self._partition, self._index, self._clauses = plan, partition, index, clauses

    @classmethod
    def build(
        cls,
        boxes: Boxes,
        sample: EventCodes | None = None,
        weights: Ints | None = None,  # noqa: ARG003  # matches are listed and weighed
        *,
        c: int | None = None,
        partition: Sequence[npt.ArrayLike] | None = None,
    ) -> Self:
        """Partition the space and build the trees.

        `c` sets the number of ones up to which an event is light, -1 for a single tree. `partition` gives, for each
        attribute, the codes at which a cell begins; constraints must then be made of whole cells.
        """
        if c is not None and c < -1:
            raise MatcherError(f"c = {c} says how many ones a light event has; it is at least 0, or -1 for none")
        plan = BuildBasis(_shorten(sample), c, partition is not None)
        cells = None if partition is None else cut_partition(boxes, partition, sample)
        made, index = _compose(boxes, np.ones(boxes.n_clauses, bool), plan, cells)
        return cls(plan, made, index, ClauseStore(boxes))

    @property
    def n_clauses(self) -> int:
        """Number of clauses that are there."""
        return len(self._index)

    def insert(self, boxes: Boxes) -> Ints:
        """Add clauses over the same attributes and codes; the ids they get, those of removed clauses first.

        A constraint that cuts a cell makes a finer partition, and all trees are built anew; if the partition was given,
        it is refused with a MatcherError.
        """
        try:
            ids = self._index.insert(self._partition.convert_boxes(boxes, DistinctConstraints.of(boxes)))
        except MisfitError:
            if self._plan.is_fixed:
                raise
            ids = self._insert_anew(boxes)
        else:
            self._clauses.put(ids, boxes)
        if self._clauses.n_parts > MOST_PARTS:
            self._clauses.join(self._index.live.size)
        return ids

    def _insert_anew(self, boxes: Boxes) -> Ints:
        ids = self._index.next_ids(boxes.n_clauses)
        clauses = ClauseStore(self._clauses.join(self._index.live.size))
        live = np.zeros(max(self._index.live.size, int(ids.max(initial=-1)) + 1), bool)
        live[: self._index.live.size] = self._index.live
        live[ids] = True
        clauses.put(ids, boxes)
        self._partition, self._index = _compose(clauses.join(live.size), live, self._plan)
        self._clauses = clauses
        return ids

    def remove(self, clause_ids: Ints) -> None:
        """Take clauses out. Raises MatcherError, and changes nothing, if one of them is not there."""
        self._index.remove(clause_ids)

    def match(self, events: EventCodes) -> Hits:
        """Clauses that hold, each once per event."""
        return self._index.match(self._partition.convert_events(events))

    def tally(self, events: EventCodes) -> SearchTally:
        """What searching these events takes, in the operations of the paper."""
        return self._index.tally(self._partition.convert_events(events))

    def stats(self, events: EventCodes | None = None) -> dict[str, Any]:
        """Sizes, and what an event costs: measured on `events`, else on the sample of `build`."""
        shown = self._plan.sample if events is None else events
        parts = {name: int(array.nbytes) for name, array in self.arrays().items()}
        facts = {
            "clauses": self.n_clauses,
            "properties": self._partition.k,
            "c": self._index.forest.c,
            "trees": len(self._index.forest.trees),
            "slots": self._index.count_slots(),
            "nodes": self._index.count_nodes(),
            "bytes": sum(parts.values()),
            "parts": parts,
        }
        if shown is not None and shown.n_events:
            tally = self.tally(shown)
            facts |= {
                f"{name}_per_event": total / tally.events for name, total in tally._asdict().items() if name != "events"
            }
        return facts

    def explain_plan(self) -> str:
        """The partition and the trees in a few lines."""
        facts, forest = self.stats(), self._index.forest
        least, most = self._partition.count_ones()
        lines = [
            f"{facts['clauses']} clauses over {facts['properties']} binary properties; an event sets {least} to {most}",
            f"events with up to {forest.c} ones are light: {len(forest.trees) - 1} trees; one tree for the rest"
            if forest.c >= least
            else "no events are light: one tree that tests every property",
            f"{facts['slots']} slots, {facts['nodes']} nodes, {facts['bytes']} bytes",
        ]
        if "nodes_per_event" in facts:
            lines.append(
                "an event skips {levels_skipped_per_event:.1f} levels and visits {nodes_per_event:.1f} nodes, "
                "{stored_nodes_per_event:.1f} of them stored, and {rows_compared_per_event:.1f} leaves".format(**facts)
            )
        return "\n".join(lines)

    def arrays(self) -> Arrays:
        """The whole state, by name."""
        boxes, sample = self._clauses.join(self._index.live.size), self._plan.sample
        c = -2 if self._plan.c is None else self._plan.c
        shown = {} if sample is None else {f"sample_{name}": array for name, array in sample._asdict().items()}
        return {
            **self._index.arrays(),
            **{f"partition_{name}": array for name, array in self._partition._asdict().items()},
            **{f"boxes_{name}": getattr(boxes, name) for name in ("ptr", "attr", "lo", "hi")},
            **shown,
            "plan": np.array([c, self._plan.is_fixed], np.int64),
        }

    @classmethod
    def check(cls, arrays: Arrays, boxes: PackedBoxes, weights: Ints | None) -> None:  # noqa: ARG003
        stored = StoredArrays(arrays, f"matcher {cls.name!r}")
        c, is_fixed = stored.column("plan", np.int64, size=2).tolist()
        stored.require(c >= -2 and is_fixed in (0, 1), "plan", f"has no c = {c}")
        check_index(stored, check_partition(stored, boxes.widths), boxes.n_clauses)
        ptr, attr = (
            stored.column("boxes_ptr", np.int64, size=boxes.n_clauses + 1),
            stored.column("boxes_attr", np.int16),
        )
        lo, hi = stored.column("boxes_lo", np.int32), stored.column("boxes_hi", np.int32, size=attr.size)
        check_rows(stored, Rows(ptr, np.zeros(0, np.uint8), attr, lo, hi), boxes.widths)
        if "sample_codes" in stored:
            _check_sample(stored, boxes.widths.size)

    @classmethod
    def from_arrays(cls, arrays: Arrays, boxes: PackedBoxes | None = None) -> Self:  # noqa: ARG003 - it keeps its own
        """The matcher whose `arrays()` these are; nothing is copied until something changes."""
        c, is_fixed = arrays["plan"].tolist()
        sample = None
        if "sample_codes" in arrays:
            sample = EventCodes(*(arrays[f"sample_{name}"] for name in EventCodes._fields))
        partition = CodePartition(*(frozen(arrays[f"partition_{name}"]) for name in CodePartition._fields))
        ptr, attr, lo, hi = (arrays[f"boxes_{name}"] for name in ("ptr", "attr", "lo", "hi"))
        clauses = compose_boxes(ptr, attr, lo, hi, partition.widths)
        plan = BuildBasis(sample, None if c == -2 else c, bool(is_fixed))
        return cls(plan, partition, BinaryIndex.from_arrays(arrays), ClauseStore(clauses))


def _check_sample(stored: StoredArrays, n_attributes: int) -> None:
    codes = stored.table("sample_codes", np.int32, n_attributes)
    list_ptr, list_codes = stored.column("sample_list_ptr", np.int64), stored.column("sample_list_codes", np.int32)
    stored.offsets(list_ptr, list_codes.size, "sample_list_ptr")
    stored.within(codes, -(list_ptr.size - 1), 2**31, "sample_codes")  # a list r is ~r


def _compose(
    boxes: Boxes, live: npt.NDArray[np.bool_], plan: BuildBasis, partition: CodePartition | None = None
) -> tuple[CodePartition, BinaryIndex]:
    """The trees of live clauses, under the partition given or under the coarsest there is."""
    constraints = DistinctConstraints.of(boxes)
    cells = partition or make_partition(boxes, constraints, plan.sample)
    rows = cells.convert_boxes(boxes, constraints)
    least, most = cells.count_ones()
    c = _choose_c(rows, cells, plan.sample, least, most) if plan.c is None else min(plan.c, cells.k)
    return cells, BinaryIndex.build(rows, cells.k, c, least, live)


def _choose_c(rows: Words, cells: CodePartition, sample: EventCodes | None, least: int, most: int) -> int:
    """Ones of most of the events of a sample, but no more than memory allows; -1 if none are that light."""
    if sample is None or not sample.n_events:
        ones = np.arange(least, min(most, ASSUMED_ONES) + 1)
    else:
        counts = np.bitwise_count(cells.convert_events(sample)).sum(axis=1, dtype=np.int64)
        ones = np.unique(counts[counts <= min(np.quantile(counts, SHARE), MOST_ONES)])
    top = int(ones.max(initial=-1))
    copies = count_copies(rows[:: len(rows) // 10_000 + 1], cells.k, top, least)
    light = ones[np.cumsum(copies)[ones] <= COPIES]
    return int(light.max(initial=-1))


def _shorten(sample: EventCodes | None) -> EventCodes | None:
    return None if sample is None else sample._replace(codes=np.ascontiguousarray(sample.codes[:SAMPLE]))
