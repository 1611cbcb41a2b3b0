"""Matching leaf by leaf: what `descent` does event by event, for large batches against a large index.

Theory of operation
-------------------
Event by event, each leaf that an event meets is somewhere else in memory: its rows of bits, its slots, the boxes to be checked. On `range` an event
meets 66 leaves and 190 boxes of an index of 66 MB. But a batch of 5,000 events meets each of the 6,700 leaves 50 times. So events are searched leaf by leaf:

1. Walk down the tree with each event and note the leaves that it meets: its *visits*. Only nodes are looked at, and these are in the cache.
2. Sort the visits by leaf, by counting.
3. Search leaf after leaf for all of its events. The first one brings the leaf and its boxes into the cache, which stand together in memory.
   What a visit finds is noted with the visit.
4. Write what the visits of each event have found.

Listing, sorting and writing take 10 to 13 ns for each visit, so it serves where leaves are met again and again (`REVISITS`) and the index is not in the
cache anyway. A batch goes in pieces of as many visits as there is room for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wherecast.kernels.arrays import Ints, Longs
from wherecast.kernels.descent import WAITING, LookupTree, Projected, Scratch, fetch_boxes, push_children
from wherecast.kernels.guards import load_buckets
from wherecast.kernels.jit import Scalar, copy_8, hot, hot_helper, inlined
from wherecast.kernels.leaves import SIZE, UNASKED, is_needless, search_leaf
from wherecast.kernels.rows import Points, Rows, box_holds

#: How often the leaves of a tree must be met by a batch, on average.
REVISITS = 5


class LeafRoom(NamedTuple):
    """Memory for a piece of a batch."""

    leaf_of: Ints  # (visits,) leaf of each visit, those of an event one after the other; then its place among the sorted ones
    visit_ptr: Longs  # (events + 1,) visits of the events of the piece
    event_of: Ints  # (visits,) event of each visit, by leaf
    leaf_ptr: Longs  # (leaves + 1,) where the visits of a leaf begin among the sorted ones
    spans: Ints  # (visits, 4) matches of a sorted visit in `found`: first and end of those that bits and guards decided, of those that boxes did
    found: Ints  # matches of the piece, leaf by leaf
    own: Ints  # (events, columns, but LEAST_OWN at least) buckets of each event


@inlined
def list_visits(
    tree: LookupTree, batch: Projected, first: Scalar, most: Scalar, scratch: Scratch, room: LeafRoom
) -> Scalar:
    """The leaves that the events from `first` on meet, `most` events at most and as many as there is room for; how many events that are."""
    nodes, tests, table, leaves, _, _, _, guards, near, bucket_ptr, buckets, _ = tree
    codes, list_ptr, list_codes = batch
    stack, met = scratch[0], scratch[7]
    leaf_of, visit_ptr, _, _, _, _, own = room
    n = np.int64(0)
    visit_ptr[0] = 0
    for event in range(first, first + most):
        stack[0] = 0
        top = 1
        while top > 0:
            top -= 1
            item = np.int64(stack[top])
            if item <= 0:
                top = push_children(nodes, tests, table, leaves, codes, list_ptr, list_codes, event, -item, stack, top)
            elif not is_needless(leaves, item - 1, codes, event):
                if n == leaf_of.size:
                    return event - first
                leaf_of[n] = item - 1
                n += 1
        visit_ptr[event - first + 1] = n
        if guards.size > 0:
            load_buckets(codes, list_ptr, list_codes, event, near, bucket_ptr, buckets, own[event - first], met)
    return most


@inlined
def sort_visits(n_events: Scalar, room: LeafRoom) -> None:
    """Sort the visits of so many events by leaf; those of a leaf remain in the order of the events."""
    leaf_of, visit_ptr, event_of, leaf_ptr, _, _, _ = room
    leaf_ptr[:] = 0
    for visit in range(visit_ptr[n_events]):
        leaf_ptr[leaf_of[visit] + 1] += 1
    end = np.int64(0)
    for leaf in range(leaf_ptr.size):
        end += leaf_ptr[leaf]
        leaf_ptr[leaf] = end
    for event in range(n_events):
        for visit in range(visit_ptr[event], visit_ptr[event + 1]):
            leaf = leaf_of[visit]
            place = leaf_ptr[leaf]
            leaf_ptr[leaf] = place + 1
            event_of[place] = event
            leaf_of[visit] = place
    for i in range(leaf_ptr.size - 1):
        leaf = leaf_ptr.size - 1 - i
        leaf_ptr[leaf] = leaf_ptr[leaf - 1]
    leaf_ptr[0] = 0


@hot_helper
def search_leaves(tree: LookupTree, rows: Rows, batch: Projected, points: Points, first: Scalar, scratch: Scratch,
                  room: LeafRoom) -> Scalar:  # fmt: skip
    """Search each leaf for the events that meet it, numbered from `first` on; whether there is room for what they find."""
    _, _, _, leaves, columns, maps, slots, guards, _, _, _, _ = tree
    codes, list_ptr, list_codes = batch
    _, places, bits, waiting, _, _, _, _, _, _ = scratch
    _, _, event_of, leaf_ptr, spans, found, own = room
    n, count, done = np.int64(0), np.int64(0), np.int64(0)
    for leaf in range(leaf_ptr.size - 1):
        size = leaves[leaf, SIZE]
        for at in range(leaf_ptr[leaf], leaf_ptr[leaf + 1]):
            if n + count + size + 64 > found.size:
                return False
            event = np.int64(event_of[at])
            spans[at, 0], spans[at, 2] = n, count
            count, n = search_leaf(leaves, columns, maps, slots, guards, codes, list_ptr, list_codes, first + event, leaf, own[event],
                                   rows[0], places, bits, waiting, count, found, n)  # fmt: skip
            spans[at, 1], spans[at, 3] = n, count
            if count > WAITING or count + size + UNASKED > waiting.size:
                n = check_waiting(rows, points, first, event_of, done, at + 1, waiting, count, spans, found, n)
                done, count = np.int64(at + 1), np.int64(0)
    check_waiting(rows, points, first, event_of, done, leaf_ptr[leaf_ptr.size - 1], waiting, count, spans, found, n)
    return True


@hot_helper
def check_waiting(rows: Rows, points: Points, first: Scalar, event_of: Ints, done: Scalar, end: Scalar, waiting: Ints, count: Scalar,
                  spans: Ints, found: Ints, n: Scalar) -> Scalar:  # fmt: skip
    """Append those of waiting[:count], of the sorted visits done:end, whose boxes hold; all boxes are asked for before the first is looked at."""
    row_ptr, number, attr, lo, hi = rows
    codes, list_ptr, list_codes = points
    fetch_boxes(row_ptr, number, attr, lo, hi, waiting, 0, count)
    for at in range(done, end):
        event, begin = first + np.int64(event_of[at]), n
        for i in range(spans[at, 2], spans[at, 3]):
            clause = np.int64(waiting[np.uint64(i)])
            found[np.uint64(n)] = clause
            n += box_holds(row_ptr, number, attr, lo, hi, codes, list_ptr, list_codes, event, clause)
        spans[at, 2], spans[at, 3] = begin, n
    return n


@inlined
def write_found(n_events: Scalar, first: Scalar, room: LeafRoom, out: Ints, begin: Scalar, ptr: Longs) -> Scalar:
    """Write what was found, event by event. How many events had room."""
    places, visit_ptr, _, _, spans, found, _ = room
    n: Scalar = ptr[first] - begin
    for event in range(n_events):
        size = np.int64(0)
        for visit in range(visit_ptr[event], visit_ptr[event + 1]):
            place = places[visit]
            size += spans[place, 1] - spans[place, 0] + spans[place, 3] - spans[place, 2]
        if n + size + 8 > out.size:
            return event
        for visit in range(visit_ptr[event], visit_ptr[event + 1]):
            for part in range(0, 4, 2):
                at: Scalar = np.int64(spans[places[visit], part])
                end = np.int64(spans[places[visit], part + 1])
                # Most spans are short, and how short cannot be predicted: they are copied whole without asking.
                copy_8(found, at, out, n)
                n += min(end - at, np.int64(8))
                while at + 8 < end:
                    at += 8
                    copy_8(found, at, out, n)
                    n += min(end - at, np.int64(8))
        ptr[first + event + 1] = begin + n
    return n_events


@hot
def match_by_leaf(
    tree: LookupTree,
    rows: Rows,
    batch: Projected,
    points: Points,
    start: int,
    scratch: Scratch,
    room: LeafRoom,
    out: Ints,
    ptr: Longs,
) -> Scalar:
    """`descend` leaf by leaf, for events without lists: `out` and `ptr` are as there, and so is what it returns.

    If no event is done, `out` or `room.found` is too small. -1: an event meets more leaves than there is room for.
    """
    begin, end = ptr[start], batch[0].shape[0]
    first: Scalar = np.int64(start)
    most: Scalar = room[6].shape[0]
    while first < end:
        n_events = list_visits(tree, batch, first, min(most, end - first), scratch, room)
        if n_events == 0:
            return np.int64(-1)
        sort_visits(n_events, room)
        fits = search_leaves(tree, rows, batch, points, first, scratch, room)
        if not fits and n_events > 1:
            most = n_events >> 1
            continue
        if not fits:
            return first
        n_written = write_found(n_events, first, room, out, begin, ptr)
        first += n_written
        if n_written < n_events:
            return first
    return first
