"""Segment: an immutable index with its matcher, its subscriptions and their tombstones.

A segment never changes but for `died`: the version at which a subscription was removed. To a reader at version v only what
died at v or before is gone. So a change marks what it removes with the version to come, and the marks count when that
version is published. If it never is, they are taken back before the next change (`revive`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.engine.checks import SubscriptionId
from wherecast.engine.ids import IdColumn, Ids, join_ids, take_ids
from wherecast.engine.memory import give_back
from wherecast.errors import EventError
from wherecast.index.boxes import EventCodes
from wherecast.index.build import index_filters, restore_filters
from wherecast.index.codes import Codebook
from wherecast.index.packed import PackedBoxes, order_filters
from wherecast.index.points import EventPoint, PointCoder
from wherecast.index.residuals import ClauseResiduals, Residuals
from wherecast.index.stored import find_values
from wherecast.kernels.arrays import Longs
from wherecast.kernels.events import count_single, count_subscriptions, expand_filters, write_values
from wherecast.kernels.jit import direct, frozen
from wherecast.kernels.single import expand_point
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.events.values import Stored
from wherecast.language.filters.canonical import digest_filters
from wherecast.language.filters.filters import Filters, concat_filters, take_filters
from wherecast.language.filters.numbered import (
    AnyFilters,
    NumberedFilters,
    concat_numbered,
    number_filters,
    plain_filters,
    take_numbered,
)
from wherecast.language.sequences import inverse
from wherecast.language.syntax.limits import DEFAULT_LIMITS, Limits
from wherecast.matchers.protocol import Hits, Matcher, each_once
from wherecast.progress import ProgressStep, progress

ALIVE = np.int64(2**62)
#: Died before any version: what was dead already when a segment came into an engine.
DEAD = np.int64(-1)
#: Leaving events out is worth while when at most this share is left.
_MOST_ADMITTED = 0.75
#: Of fewer events none is left out: taking the others takes longer.
_FEW_EVENTS = 512
#: Memory of the objects around the arrays of a column's codes, measured on columns of literals.
_COLUMN_BYTES = 2_400
_NONE_DIED = np.zeros(0, np.int64)
_ALL = np.zeros(0, np.bool_)


class Subscriptions(NamedTuple):
    """Who subscribed to each filter: slots `ptr[f]` .. `ptr[f + 1] - 1` for filter f."""

    ptr: npt.NDArray[Any]
    ids: Ids
    priorities: npt.NDArray[np.float32] | None  # by slot; None: all zero


class FanOut(NamedTuple):
    """From the filters of a segment that events satisfy to subscriptions: kernels, called without a look at types."""

    ptr: npt.NDArray[Any]  # of the subscriptions
    single: int  # so many filters, the first ones, have one subscription each
    ids: npt.NDArray[Any]  # by slot, as `write_ids` takes them; nothing where they are texts
    count_live: Callable[..., None]
    write_ids: Callable[..., None]
    count_and_write: Callable[..., int]


class OverworkError(Exception):
    """Events whose texts would take filters too long to read; `errors` has one for each, with its original row."""

    def __init__(self, errors: list[EventError]) -> None:
        super().__init__(f"{len(errors)} events")
        self.errors = errors


class Segment:
    """Filters ready to match."""

    def __init__(
        self,
        codebook: Codebook,
        boxes: PackedBoxes,
        residuals: Residuals,
        matcher: Matcher,
        subscriptions: Subscriptions,
    ) -> None:
        self.codebook = codebook
        self.boxes = boxes
        self.residuals = residuals
        self.subscriptions = subscriptions
        self.attributes = codebook.attributes | residuals.attributes  # that matching reads
        self._install(matcher)
        self.died: Longs | None = None  # by slot; made when the first subscription dies
        self.deaths = 0

    def __len__(self) -> int:
        """Subscriptions, dead ones included."""
        return len(self.subscriptions.ids)

    # -- matching -------------------------------------------------------------------------------------------------

    def match(self, events: EventBatch, limits: Limits = DEFAULT_LIMITS) -> tuple[Longs, npt.NDArray[np.int32]]:
        """(event_ptr, filter_ids): each filter that an event satisfies, once.

        Raises OverworkError if residuals would read more text of some events than the limits allow.
        """
        found = self._match_stored(events)
        if found is not None:
            return self._distinct_filters(Hits(*found)) if self.boxes.filter_ids.size else found
        rows, admitted, codes = self._admit(events)
        hits = Hits(*self.matcher.match(codes))
        if self.residuals.is_needed:
            hits = self._settle_residuals(admitted, codes, hits, limits)
        event_ptr, filter_ids = self._distinct_filters(hits) if self.boxes.filter_ids.size else hits
        if rows is None:
            return event_ptr, filter_ids
        counts = np.zeros(len(events), np.int64)
        counts[rows] = np.diff(event_ptr)
        return np.concatenate(([0], np.cumsum(counts))), filter_ids

    @cached_property
    def _stored(self) -> tuple[list[int], Longs, npt.NDArray[np.bool_]] | None:
        """What events are matched by in one call: attributes that are read, jobs, and the codes that are open; None if residuals or sets are in the way."""
        gate, is_open = self._gate or (None, _ALL)
        jobs = None if self.residuals.is_needed else self.codebook.jobs_of_values(gate)
        return None if jobs is None else (*jobs, is_open)

    def _match_stored(self, events: EventBatch) -> tuple[Longs, npt.NDArray[np.int32]] | None:
        """The clauses that events satisfy, in one call; None if that takes more than their stored values."""
        if self._stored is None:
            return None
        attributes, jobs, is_open = self._stored
        values = find_values(events, attributes)
        return self.matcher.match_stored(values, jobs, is_open, len(events), len(self.codebook.codes))

    def _admit(self, events: EventBatch) -> tuple[Longs | None, EventBatch, EventCodes]:
        """The events that may match anything (None: all of them), coded.

        Where the matcher looks everything up by one attribute first, that attribute is coded first, and events whose
        code leads nowhere are spared the rest.
        """
        if self._gate is None or (len(events) < _FEW_EVENTS and not self.codebook.is_stored):
            return None, events, self.encode(events)
        attr, open_codes = self._gate
        if self.codebook.is_stored:
            codes, is_open = self.codebook.encode_behind(events, attr, open_codes)
            rows = None if len(events) < _FEW_EVENTS else np.flatnonzero(is_open)
            if rows is None or rows.size > _MOST_ADMITTED * len(events):
                return None, events, codes
            admitted = events.take(rows, self.residuals.attributes) if self.residuals.is_needed else events
            return rows, admitted, codes._replace(codes=codes.codes[rows])
        gate = self.codebook.encode_column(events, attr)
        rows = np.flatnonzero(open_codes[gate])
        if rows.size > _MOST_ADMITTED * len(events):
            return None, events, self.codebook.encode(events, {attr: gate})
        events = events.take(rows, self._read_after_gate)
        return rows, events, self.codebook.encode(events, {attr: gate[rows]})

    def match_one(self, values: Mapping[int, Stored], version: int, limits: Limits) -> list[SubscriptionId] | None:
        """Ids of the subscriptions, alive at a version, that one event satisfies, from the values that it has.

        None if residuals might read more text than the limits allow: then match it as a batch, which counts that exactly.
        """
        point = self._points.encode(values)
        n = self.matcher.match_one(point)
        if n and self.residuals.is_needed:
            n = self._clause_residuals.settle(point, n, values, self.codebook.schema, limits)
            if n < 0:
                return None
        found = self._expand(point, n, version) if n else []
        self._points.put_back(point)
        return found

    @cached_property
    def _points(self) -> PointCoder:
        return PointCoder(self.codebook)

    @cached_property
    def _clause_residuals(self) -> ClauseResiduals:
        return self.residuals.of_clauses(self.boxes.residuals)

    def _expand(self, point: EventPoint, n: int, version: int) -> list[SubscriptionId]:
        """Ids of the subscriptions, alive at a version, to the filters of a point's first n clauses."""
        call, given = self._expand_point
        died = _NONE_DIED if self.died is None else self.died
        while (size := call(*given, died, version, point.clauses, n, point.ids)) < 0:
            point.ids = np.empty(-2 * size, np.int64)
        found: list[SubscriptionId] = point.ids[:size].tolist()
        ids = self.subscriptions.ids
        return ids.listed(found) if ids.are_texts else found

    @cached_property
    def _expand_point(self) -> tuple[Any, tuple[Any, ...]]:
        """The kernel for the fan-out of one event, and its arguments that are always the same."""
        ptr, ids, _ = self.subscriptions
        values = np.zeros(0, np.int64) if ids.are_texts else ids.values
        given = frozen(ptr), frozen(self.boxes.filter_ids), frozen(values)
        return direct(expand_point, *given, _NONE_DIED, 0, np.zeros(0, np.int32), 0, _NONE_DIED), given

    @cached_property
    def fan_out(self) -> FanOut:
        """The kernels for the fan-out of a batch."""
        ptr, ids, _ = self.subscriptions
        ptr, values = frozen(ptr), np.zeros(0, np.int64) if ids.are_texts else ids.values
        single = count_single(ptr)
        found = _NONE_DIED, np.zeros(0, np.int32), _NONE_DIED, 0
        count = direct(count_subscriptions, ptr, single, *found, frozen(values[:0]), _NONE_DIED)
        write = direct(write_values, ptr, single, *found, frozen(values), _NONE_DIED, _NONE_DIED, _NONE_DIED)
        both = direct(expand_filters, ptr, single, *found[1:], frozen(values), _NONE_DIED, _NONE_DIED)
        calls = (partial(call, ptr, single) for call in (count, write, both))
        return FanOut(ptr, single, values, *calls)

    def count(self, events: EventBatch) -> Longs | None:
        """Subscriptions per event without listing filters; None where that takes more than the matcher knows."""
        if not self._clauses_say_all():
            return None
        rows, _, codes = self._admit(events)
        weights = self.matcher.weigh(codes, self.subscriptions.ptr)
        if rows is None:
            return weights
        counts = np.zeros(len(events), np.int64)
        counts[rows] = weights
        return counts

    def _clauses_say_all(self) -> bool:
        """Whether the subscriptions of the clauses that hold are the answer, each of them once."""
        return self.died is None and not self.residuals.is_needed and not self.boxes.filter_ids.size

    def dense_matcher(self) -> Matcher | None:
        """The matcher, if it has a dense part and nothing stands in the way of going from there to subscriptions in one step."""
        matcher = self.matcher
        return matcher if matcher.has_dense and self._clauses_say_all() else None

    def encode(self, events: EventBatch) -> EventCodes:
        return self.codebook.encode(events)

    def _settle_residuals(self, events: EventBatch, codes: EventCodes, hits: Hits, limits: Limits) -> Hits:
        """Keep the hits whose residual, if they have one, holds."""
        residual = self.boxes.residuals[hits.clause_ids]
        event_ids = _event_ids(hits.event_ptr)
        keep = np.ones(residual.size, bool)
        unsettled = self.residuals.unsettled(residual)
        keep[unsettled], is_left = self.residuals.hold_by_codes(codes, event_ids[unsettled], residual[unsettled])
        left = unsettled[is_left]
        if left.size:
            self._check_work(events, event_ids[left], residual[left], hits.clause_ids[left], limits)
            keep[left] = self.residuals.hold(events, event_ids[left], residual[left])
        return Hits(_pointer(event_ids[keep], hits.event_ptr.size - 1), hits.clause_ids[keep])

    def _check_work(
        self,
        events: EventBatch,
        event_ids: npt.NDArray[Any],
        residual_ids: npt.NDArray[Any],
        clause_ids: npt.NDArray[np.int32],
        limits: Limits,
    ) -> None:
        """Raises OverworkError if residuals would read too much text of some events."""
        filter_ids = self.boxes.filter_ids[clause_ids] if self.boxes.filter_ids.size else clause_ids
        over = self.residuals.find_overwork(events, event_ids, residual_ids, filter_ids, limits)
        if over:
            ptr, ids, _ = self.subscriptions
            errors = []
            for each in over:
                owner = None if each.filter is None else ids.take(ptr[each.filter : each.filter + 1])[0]
                errors.append(EventError(each.message(limits, owner), row=int(events.rows[each.row])))
            raise OverworkError(errors)

    def _distinct_filters(self, hits: Hits) -> Hits:
        """Clauses to filters, each filter once per event."""
        return each_once(hits, self.boxes.n_filters, self.boxes.filter_ids)

    def replan(self, sample: EventBatch) -> None:
        """Build the matcher again for other traffic; readers use the old one until the new one is there."""
        weights = _weights(self.boxes, np.diff(self.subscriptions.ptr))
        self._install(type(self.matcher).build_sharing(self.boxes, self.encode(sample), weights))

    def _install(self, matcher: Matcher) -> None:
        gate = matcher.gate()
        self.matcher = matcher
        others = [c for c in self.codebook.used if gate is None or c != gate[0]]
        self._read_after_gate = {a for c in others for a in self.codebook.read_by(c)} | self.residuals.attributes
        if gate is not None and gate[1].size < self.codebook.widths[gate[0]]:
            gate = None  # kernels look codes up in it without a check, and a matcher may come out of a file
        # Any two matchers of a segment agree on what may match, so either order of the two stores will do.
        self._gate = gate if gate is not None and not self.codebook.is_set(gate[0]) else None
        self.__dict__.pop("_stored", None)

    # -- subscriptions --------------------------------------------------------------------------------------------

    def find(self, id: SubscriptionId, version: int) -> int:
        """Slot of a subscription that is alive at a version, or -1."""
        slot = self.subscriptions.ids.find(id)
        return slot if slot >= 0 and (self.died is None or self.died[slot] > version) else -1

    def find_many(self, ids: IdColumn, version: int) -> Longs:
        """Slots of subscriptions that are alive at a version, -1 for ids that have none."""
        slots = self.subscriptions.ids.find_many(ids)
        died = self.died
        return slots if died is None or not died.size else np.where((slots >= 0) & (died[slots] > version), slots, -1)

    def kill(self, slots: int | Longs, version: int | Longs) -> None:
        """Mark subscriptions, each given once, as dead from a version on."""
        if self.died is None:
            self.died = np.full(len(self), ALIVE, np.int64)
        self.died[slots] = version
        self.deaths += 1 if isinstance(slots, int) else slots.size

    def revive(self, version: int) -> None:
        """Take back the marks of a change that was never published: those later than `version`, which is."""
        if self.died is not None:
            self.died[self.died > version] = ALIVE
            self.deaths = int(np.count_nonzero(self.died != ALIVE))

    def detached(self, version: int) -> Segment:
        """The same subscriptions, as they are alive at a version, for another engine; the two share nothing that changes."""
        other = copy.copy(self)
        if other.died is not None:
            other.died = np.where(other.died > version, ALIVE, DEAD)
            other.deaths = int(np.count_nonzero(other.died != ALIVE))
        return other

    def alive(self, version: int) -> npt.NDArray[np.bool_]:
        died = self.died
        return np.ones(len(self), bool) if died is None else died > version

    def live(self, version: int) -> npt.NDArray[Any]:
        """Ids of the subscriptions that are alive at a version, by slot."""
        return self.subscriptions.ids.take(np.flatnonzero(self.alive(version)))

    def filter_of(self, slot: int) -> int:
        return int(np.searchsorted(self.subscriptions.ptr, slot, "right")) - 1

    def filters(self, chosen: Longs | None = None) -> Filters:
        """The compiled filters, made again from the boxes."""
        return restore_filters(self.codebook, self.boxes, self.residuals, chosen)

    @property
    def nbytes(self) -> int:
        """Memory of index, residuals, matcher and subscriptions."""
        codes = sum(c.nbytes + _COLUMN_BYTES for c in self.codebook.codes if c is not None)
        ptr, ids, priorities = self.subscriptions
        subscriptions = ptr.nbytes + ids.nbytes + (0 if priorities is None else priorities.nbytes)
        matcher = int(self.matcher.stats().get("bytes", 0))
        return self.boxes.nbytes + codes + self.residuals.nbytes + matcher + subscriptions


class Members(NamedTuple):
    """Subscriptions on their way into a segment: member i has filter `filter_of[i]` of `filters`."""

    filters: AnyFilters
    filter_of: Longs
    ids: Sequence[SubscriptionId] | npt.NDArray[Any]
    priorities: npt.NDArray[np.float32]

    @property
    def plain(self) -> Filters:
        """The filters with all rows of their own."""
        return plain_filters(self.filters)


def build_segment(
    parts: list[Members],
    schema: Schema,
    matcher: type[Matcher],
    sample: EventBatch | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Segment:
    """One segment of several groups of members; equal filters are stored once, unused ones not at all.

    The list of parts is empty afterwards: what was compiled is several times as large as the index, and is let go as soon as it
    has been used (see decision 47).
    """
    with progress("indexing", 4) as step:
        segment = _build_segment(parts, schema, matcher, sample, limits, step)
    if segment.boxes.n_filters >= _LARGE:
        give_back()
    return segment


def _build_segment(
    parts: list[Members],
    schema: Schema,
    matcher: type[Matcher],
    sample: EventBatch | None,
    limits: Limits,
    step: ProgressStep,
) -> Segment:
    ids, priorities = [part.ids for part in parts], [part.priorities for part in parts]
    owner, chosen, filters = _united(parts, schema)
    order = _alike_together(filters, chosen, np.bincount(owner, minlength=chosen.size))
    place = inverse(order)
    filters = _take(filters, chosen[order])
    step.advance()
    index = index_filters(filters, schema, limits)
    del filters
    owner = place[owner]
    del chosen, place, order
    # A sample taken before anybody asked for an attribute does not have it; such a segment is planned later.
    known = sample is not None and sample.has_read(index.codebook.attributes)
    codes = index.codebook.encode(sample) if sample is not None and known else None
    step.advance()
    if index.boxes.n_filters >= _BLOCK:
        give_back()
    step.advance()
    counts = np.bincount(owner, minlength=index.boxes.n_filters)
    built = matcher.build_sharing(index.boxes, codes, _weights(index.boxes, counts))
    boxes = index.boxes
    if boxes.n_filters >= _FAR_APART:
        boxes, built, owner = _met_together(boxes, built, owner, counts)
    subscriptions = _subscriptions(owner, ids, priorities, boxes.n_filters)
    step.advance()
    return Segment(index.codebook, boxes, index.residuals, built, subscriptions)


def _met_together(
    boxes: PackedBoxes, matcher: Matcher, owner: Longs, counts: Longs
) -> tuple[PackedBoxes, Matcher, Longs]:
    """Filters in the order in which the matcher has them: boxes, matcher, and the filter of each member.

    What an event looks at, the boxes and the subscriptions of its filters, is then in one place, and not all over the memory.
    """
    met = matcher.order()
    if met is None or not boxes.n_clauses:
        return boxes, matcher, owner
    first = np.full(boxes.n_clauses, met.size)
    np.minimum.at(first, met, np.arange(met.size))
    if boxes.filter_ids.size:
        of_clause, first = first, np.full(boxes.n_filters, met.size)
        np.minimum.at(first, boxes.filter_ids, of_clause)
    order = np.lexsort((first, counts > 1))
    boxes, clauses = order_filters(boxes, order)
    return boxes, matcher.renumbered(inverse(clauses).astype(np.int32), boxes), inverse(order)[owner]


def _united(parts: list[Members], schema: Schema) -> tuple[Longs, Longs, AnyFilters]:
    """The number of each member's filter, part after part; where the filter of each number is; and the filters.

    The list of parts is empty afterwards.
    """
    filter_of, piles, start = [np.zeros(0, np.int64)], list[AnyFilters](), 0
    parts.reverse()
    while parts:
        filters, owner, _, _ = parts.pop()
        used = np.flatnonzero(np.bincount(owner, minlength=filters.n_filters))
        if used.size < filters.n_filters:  # else they are not copied
            filters, owner = _take(filters, used), np.searchsorted(used, owner)
        filter_of.append(start + owner)
        piles.append(filters if filters.digests else digested(plain_filters(filters), schema))
        start += used.size
    pile = _concat(piles, schema)
    number, chosen = _distinct(pile.digests)
    return number[np.concatenate(filter_of)], chosen, pile


def _concat(parts: list[AnyFilters], schema: Schema) -> AnyFilters:
    """Parts as one, with numbered constraints if most of them repeat. The list is empty afterwards."""
    for i, part in enumerate(parts):
        if isinstance(part, Filters):
            parts[i] = number_filters(part) or part
    sizes = [(part.number if isinstance(part, NumberedFilters) else part.attr).size for part in parts]
    repeated = sum(size for part, size in zip(parts, sizes, strict=True) if isinstance(part, NumberedFilters))
    if 2 * repeated > sum(sizes):
        found = [part if isinstance(part, NumberedFilters) else number_filters(part, anyway=True) for part in parts]
        numbered = [part for part in found if part is not None]
        if len(numbered) == len(parts):
            parts.clear()
            del found, part
            return concat_numbered(numbered, schema)
    plain = [plain_filters(part) for part in parts]
    parts.clear()
    return concat_filters(plain, schema)


def _take(filters: AnyFilters, chosen: Longs) -> AnyFilters:
    return take_numbered(filters, chosen) if isinstance(filters, NumberedFilters) else take_filters(filters, chosen)


#: Filters whose attributes are looked at at a time.
_BLOCK = 1 << 17
#: A segment of so many filters leaves megabytes of free memory behind when it is built. Building it takes some 100 ms, giving them back a few.
_LARGE = 1 << 13
#: So many filters are not in the cache in any order; putting them in one takes up to 4 % of the time in which they are built.
_FAR_APART = 1 << 13


def _alike_together(filters: AnyFilters, chosen: Longs, weights: Longs) -> Longs:
    """An order of the chosen filters: one subscriber first, then over the same attributes, then by the number of subscribers.

    Matchers keep such filters in one place too, so that the subscriptions of what an event satisfies are read in order.
    """
    signature = np.zeros(filters.n_filters, np.uint64)
    ptr = filters.ptr if isinstance(filters, NumberedFilters) else filters.row_ptr
    for begin in range(0, filters.n_filters, _BLOCK):
        end = min(begin + _BLOCK, filters.n_filters)
        first = ptr[filters.clause_ptr[begin : end + 1]]
        attr = _attributes(filters, slice(first[0], first[-1]))
        bits = np.uint64(1) << (np.where(attr < 0, ~attr, attr) & 63).astype(np.uint64)
        some = np.flatnonzero(np.diff(first))
        if some.size:
            signature[begin + some] = np.bitwise_or.reduceat(bits, first[some] - first[0])
    return np.lexsort((weights, signature[chosen], weights > 1))


def _attributes(filters: AnyFilters, here: slice) -> npt.NDArray[np.int16]:
    """The attributes, or their complements, of some rows or constraints."""
    if isinstance(filters, NumberedFilters):
        rows: Longs = filters.table.row_ptr[:-1][filters.number[here]]
        return filters.table.attr[rows]
    return filters.attr[here]


def _weights(boxes: PackedBoxes, counts: npt.NDArray[Any]) -> npt.NDArray[np.int32] | None:
    """Subscriptions per clause, where a clause is a filter; `counts` has those of each filter."""
    return counts.astype(np.int32) if boxes.n_clauses == boxes.n_filters else None


def digested(filters: Filters, schema: Schema) -> Filters:
    """Filters with their digests; those restored from a segment have none."""
    return filters if filters.digests else filters._replace(digests=digest_filters(filters, schema))


def _distinct(digests: bytes) -> tuple[Longs, Longs]:
    """A number for each digest, equal for equal ones, and one place of each number, in order."""
    words = np.frombuffer(digests, np.uint64).reshape(-1, 2)
    order = np.lexsort((words[:, 1], words[:, 0]))
    fresh = np.ones(order.size, bool)
    fresh[1:] = (words[order[1:]] != words[order[:-1]]).any(axis=1)
    number = np.empty(order.size, np.int64)
    number[order] = np.cumsum(fresh) - 1
    return number, order[fresh]


def _subscriptions(
    filter_of: Longs,
    ids: Sequence[Sequence[SubscriptionId] | npt.NDArray[Any]],
    priorities: Sequence[npt.NDArray[np.float32]],
    n_filters: int,
) -> Subscriptions:
    order = np.argsort(filter_of, kind="stable")
    ptr = np.searchsorted(filter_of[order], np.arange(n_filters + 1)).astype(np.int32)
    joined = join_ids([i if isinstance(i, np.ndarray) else np.fromiter(i, object, len(i)) for i in ids])
    ranks = np.concatenate([np.zeros(0, np.float32), *priorities])[order]
    return Subscriptions(ptr, Ids.of(take_ids(joined, order)), ranks if ranks.any() else None)


def members_of(segment: Segment, version: int) -> Members:
    """What is alive in a segment, ready to be built into another."""
    slots = np.flatnonzero(segment.alive(version))
    ptr, ids, priorities = segment.subscriptions
    owner = np.searchsorted(ptr, slots, "right") - 1
    used, filter_of = np.unique(owner, return_inverse=True)
    weights = np.zeros(slots.size, np.float32) if priorities is None else priorities[slots]
    return Members(segment.filters(used), filter_of, ids.take(slots), weights)


def filters_of(segments: Sequence[Segment], schema: Schema, version: int) -> tuple[Filters, Longs]:
    """Filters that somebody has, with their digests, and how many have them; equal ones of several segments are not united."""
    parts = [members_of(segment, version) for segment in segments]
    filters = concat_filters([digested(part.plain, schema) for part in parts], schema)
    weights = [np.bincount(part.filter_of, minlength=part.filters.n_filters) for part in parts]
    return filters, np.concatenate([np.zeros(0, np.int64), *weights])


def _event_ids(event_ptr: Longs) -> Longs:
    return np.repeat(np.arange(event_ptr.size - 1), np.diff(event_ptr))


def _pointer(event_ids: Longs, n: int) -> Longs:
    return np.searchsorted(event_ids, np.arange(n + 1)).astype(np.int64)
