"""Boxes of cells: which of them hold an event, how a set of them is cut into parts, and which part a new one fits best.

Theory of operation
-------------------
Box b is bit b. Per axis, every cell has the bitmap of the boxes that hold it; an event is in the boxes that remain when the
bitmaps of its cells are ANDed. 500 boxes are eight words, and neighbouring cells between which no box begins or
ends share a bitmap, so the maps stay in the second-level cache. An event's array is in the boxes of any of its elements: their bitmaps are ORed first.

`cut_boxes` is the greedy top-down bulk load of an R-tree (Garcia, Lopez and Leutenegger; EDN, section III.C). To make k
parts of a set of boxes, order them by the lower or the upper end on some axis, lay k - 1 marks at equal weight, and
look at every mark of every order: what is left of it becomes i parts, what is right of it k - i. The cost of a cut is
the traffic that its parts would see if nothing were cut further, i * chance(left) + (k - i) * chance(right), with the
chances of the bounding boxes; the cheapest is made, and both sides are cut in the same way. Ordering is a counting sort
over the cells, so a level of the tree takes time linear in the boxes.

Marks stand at equal weight and a box goes left of a mark if its middle does. So a cut is off by at most half the heaviest weight, an
error that the parts on its side share, and as the number of parts falls from cut to cut a part weighs at most
(1/1 + 1/2 + ... + 1/k) / 2 of the heaviest box more than its share.

`join_boxes` goes the other way: of all pairs it joins the one whose joint bounding box lets through the fewest events that
neither did, until few enough are left. (The sum of the chances would be simpler and is wrong: it joins whatever
overlaps, however much the bounding box adds.) Chances are products over the axes of the share of events in lo..hi, looked up in `shares` (see
`partition.axes`); an empty box has lo above hi and chance zero.
"""

from __future__ import annotations

import numpy as np

from wherecast.kernels.arrays import Floats, Ints, Longs, Words
from wherecast.kernels.jit import ONE, ZERO, Scalar, hot, inlined, jit, trailing_zeros

#: Growth by less than this is none: sums of shares are rounded.
NO_GROWTH = 1e-12


@inlined
def chance_of(lo: Ints, hi: Ints, shares: Floats, share_ptr: Longs) -> Scalar:
    """Share of the events in one box."""
    chance = 1.0
    for a in range(lo.size):
        if hi[a] < lo[a]:
            return 0.0
        chance *= min(shares[share_ptr[a] + hi[a] + 1] - shares[share_ptr[a] + lo[a]], 1.0)
    return chance


@inlined
def joint_chance(lo: Ints, hi: Ints, lo2: Ints, hi2: Ints, shares: Floats, share_ptr: Longs) -> Scalar:
    """Share of the events in the bounding box of two boxes."""
    chance = 1.0
    for a in range(lo.size):
        low, high = min(lo[a], lo2[a]), max(hi[a], hi2[a])
        chance *= min(shares[share_ptr[a] + high + 1] - shares[share_ptr[a] + low], 1.0)
    return chance


@inlined
def joint_growth(lo: Ints, hi: Ints, lo2: Ints, hi2: Ints, shares: Floats, share_ptr: Longs) -> Scalar:
    """Share of the events in the bounding box of two boxes and in neither of them."""
    joint, one, two, both = 1.0, 1.0, 1.0, 1.0
    for a in range(lo.size):
        at = share_ptr[a]
        low, high, low2, high2 = (
            shares[at + lo[a]],
            shares[at + hi[a] + 1],
            shares[at + lo2[a]],
            shares[at + hi2[a] + 1],
        )
        one *= min(high - low, 1.0)
        two *= min(high2 - low2, 1.0)
        joint *= min(max(high, high2) - min(low, low2), 1.0)
        both *= max(min(high, high2) - max(low, low2), 0.0)
    return joint - one - two + both


@inlined
def widen(lo: Ints, hi: Ints, lo2: Ints, hi2: Ints) -> None:
    """Let the first box hold the second."""
    for a in range(lo.size):
        lo[a] = min(lo[a], lo2[a])
        hi[a] = max(hi[a], hi2[a])


@inlined
def move_box(lo: Ints, hi: Ints, kinds: Longs, source: Scalar, target: Scalar) -> None:
    """Copy a box with its kind, number by number: Numba takes 2 s to compile what it needs to assign to a slice."""
    for a in range(lo.shape[1]):
        lo[target, a] = lo[source, a]
        hi[target, a] = hi[source, a]
    kinds[target] = kinds[source]


@inlined
def push(stack: Longs, depth: Scalar, first: Scalar, end: Scalar, parts: Scalar, part: Scalar) -> None:
    """Write an entry number by number, likewise."""
    stack[depth, 0] = first
    stack[depth, 1] = end
    stack[depth, 2] = parts
    stack[depth, 3] = part


@jit
def sort_by_end(ends: Ints, axis: Scalar, items: Ints, counts: Longs, out: Ints) -> None:
    """Items in the order of their end on an axis, from -1 to the axis's width; equal ends keep their order."""
    counts[:] = 0
    for i in range(items.size):
        counts[ends[items[i], axis] + 2] += 1
    for c in range(1, counts.size):
        counts[c] += counts[c - 1]
    for i in range(items.size):
        cell = ends[items[i], axis] + 1
        out[counts[cell]] = items[i]
        counts[cell] += 1


@jit
def slice_of(before: Scalar, weight: Scalar, total: Scalar, n_slices: Scalar) -> Scalar:
    """Which of n slices of equal weight the middle of a box lies in."""
    return min(int((before + weight / 2) * n_slices / total), n_slices - 1)


@jit
def weigh_cuts(
    lo: Ints, hi: Ints, weights: Floats, total: Scalar, items: Ints, box_lo: Ints, box_hi: Ints, chances: Floats,
    shares: Floats, share_ptr: Longs,
) -> tuple[Scalar, Scalar]:  # fmt: skip
    """The cheapest mark of one order, and its cost. Scratch: boxes of the slices, and chances of the sides left of marks."""
    n_slices = box_lo.shape[0]
    box_lo[:] = 2**30
    box_hi[:] = -1
    before = 0.0
    for i in range(items.size):
        item = items[i]
        s = slice_of(before, weights[item], total, n_slices)
        widen(box_lo[s], box_hi[s], lo[item], hi[item])
        before += weights[item]
    last_lo, last_hi = box_lo[n_slices - 1].copy(), box_hi[n_slices - 1].copy()
    for s in range(n_slices - 1, 0, -1):  # suffixes: chances[s] is that of slices s and up
        widen(last_lo, last_hi, box_lo[s], box_hi[s])
        chances[s] = chance_of(last_lo, last_hi, shares, share_ptr)
    best, best_cost = 1, np.inf
    for s in range(1, n_slices):  # prefixes, gathered in slice 0
        left = chance_of(box_lo[0], box_hi[0], shares, share_ptr)
        cost = s * left + (n_slices - s) * chances[s]
        if cost < best_cost:
            best, best_cost = s, cost
        widen(box_lo[0], box_hi[0], box_lo[s], box_hi[s])
    return best, best_cost


@jit
def cut_boxes(
    lo: Ints, hi: Ints, weights: Floats, n_parts: Scalar, shares: Floats, share_ptr: Longs, part_of: Ints
) -> None:
    """Cut boxes into parts of equal weight and little traffic; part_of[i] is the part of box i."""
    n, n_axes = lo.shape
    items, scratch = np.arange(n).astype(np.int32), np.empty(n, np.int32)
    box_lo, box_hi = np.empty((n_parts, n_axes), np.int32), np.empty((n_parts, n_axes), np.int32)
    chances = np.empty(n_parts)
    widest = 0
    for a in range(n_axes):
        widest = max(widest, share_ptr[a + 1] - share_ptr[a])
    counts = np.empty(widest + 3, np.int64)
    stack = np.empty((n_parts + 1, 4), np.int64)  # first item, end, parts, first part
    push(stack, 0, 0, n, n_parts, 0)
    depth = 1
    while depth:
        depth -= 1
        first, end, k, part = stack[depth]
        mine, order = items[first:end], scratch[first:end]
        if k == 1 or first == end:
            for i in range(mine.size):
                part_of[mine[i]] = part
            continue
        total = 0.0
        for i in range(mine.size):
            total += weights[mine[i]]
        best_cost, best_axis, best_end, mark = np.inf, -1, 0, k // 2
        for axis in range(n_axes):
            width = share_ptr[axis + 1] - share_ptr[axis]
            for which in range(2):
                sort_by_end(hi if which else lo, axis, mine, counts[: width + 3], order)
                s, cost = weigh_cuts(
                    lo, hi, weights, total, order, box_lo[:k], box_hi[:k], chances[:k], shares, share_ptr
                )
                if cost < best_cost:
                    best_cost, best_axis, best_end, mark = cost, axis, which, s
        if best_axis >= 0:
            width = share_ptr[best_axis + 1] - share_ptr[best_axis]
            sort_by_end(hi if best_end else lo, best_axis, mine, counts[: width + 3], order)
            for i in range(mine.size):
                mine[i] = order[i]
        before, middle = 0.0, first
        while middle < end and slice_of(before, weights[items[middle]], total, k) < mark:
            before += weights[items[middle]]
            middle += 1
        push(stack, depth, first, middle, mark, part)
        push(stack, depth + 1, middle, end, k - mark, part + mark)
        depth += 2


@jit
def join_boxes(
    lo: Ints, hi: Ints, kinds: Longs, wanted: Scalar, mixed: Scalar, shares: Floats, share_ptr: Longs
) -> Scalar:
    """Join boxes in place until at most `wanted` are left, in front; returns how many.

    Boxes of different kinds are joined only if `mixed`. Empty boxes vanish, and so does what lies within another.
    """
    n = 0
    for i in range(lo.shape[0]):
        if lo.shape[1] == 0 or lo[i, 0] <= hi[i, 0]:
            move_box(lo, hi, kinds, i, n)
            n += 1
    partner, growth = np.full(n, -1), np.full(n, np.inf)  # the best j < i to join i with
    stale = np.zeros(n, np.bool_)  # the partner is gone or has grown: the growth is a lower bound, to be looked up anew
    for i in range(1, n):
        find_partner(lo, hi, kinds, i, mixed, shares, share_ptr, partner, growth)
    while n > 1:
        i = int(np.argmin(growth[:n]))
        if stale[i]:
            find_partner(lo, hi, kinds, i, mixed, shares, share_ptr, partner, growth)
            stale[i] = False
            continue
        if growth[i] == np.inf or (n <= wanted and growth[i] > NO_GROWTH):
            break
        j = partner[i]
        widen(lo[j], hi[j], lo[i], hi[i])
        for k in range(n):
            stale[k] |= partner[k] in (i, j)
        n -= 1
        move_box(lo, hi, kinds, n, i)  # the last takes the place of i
        growth[i], stale[i] = growth[n], True
        find_partner(lo, hi, kinds, j, mixed, shares, share_ptr, partner, growth)
        stale[j] = False
        for m in (i, j):
            for k in range(m + 1, n):
                if mixed or kinds[m] == kinds[k]:
                    grown = joint_growth(lo[m], hi[m], lo[k], hi[k], shares, share_ptr)
                    if grown < growth[k]:
                        growth[k], partner[k], stale[k] = grown, m, False
    return n


@jit
def find_partner(
    lo: Ints, hi: Ints, kinds: Longs, i: Scalar, mixed: Scalar, shares: Floats, share_ptr: Longs, partner: Longs,
    growth: Floats,
) -> None:  # fmt: skip
    """The box before box i whose joining with it lets through the fewest events more."""
    growth[i], partner[i] = np.inf, -1
    for j in range(i):
        if mixed or kinds[j] == kinds[i]:
            grown = joint_growth(lo[j], hi[j], lo[i], hi[i], shares, share_ptr)
            if grown < growth[i]:
                growth[i], partner[i] = grown, j


# -- which boxes hold an event -----------------------------------------------------------------------------------------


@hot
def fill_maps(lo: Ints, hi: Ints, rows: Ints, n_words: int, maps: Words) -> None:
    """Set the bits of every box in the rows of its cells on one axis; rows[cell] is a row's first word."""
    for b in range(lo.size):
        word, bit = b >> 6, ONE << np.uint64(b & 63)
        for at in range(rows[lo[b]], rows[hi[b]] + 1, n_words):
            maps[at + word] |= bit


@inlined
def map_word(
    code: Scalar, rows: Ints, first: Scalar, word: Scalar, maps: Words, list_ptr: Longs, list_codes: Ints
) -> Scalar:
    """One word of the bitmap of a cell, or of the cells of an array."""
    if code >= 0:
        return maps[rows[first + code] + word]
    found = ZERO
    for k in range(list_ptr[~code], list_ptr[~code + 1]):
        found |= maps[rows[first + list_codes[k]] + word]
    return found


@hot
def route_events(
    codes: Ints,
    list_ptr: Longs,
    list_codes: Ints,
    attributes: Ints,
    row_ptr: Longs,
    rows: Ints,
    maps: Words,
    live: Words,
    servers: Ints,
    event_ids: Longs,
    out: Ints,
) -> Scalar:
    """Pairs of event and server of every event that lies in a box; returns their number.

    `servers` has the server of each box, ascending; `live` has a bit for each. Axis a tests `attributes[a]`, and the row of
    its cell c begins at maps[rows[row_ptr[a] + c]].
    """
    n = 0
    for event in range(codes.shape[0]):
        last = np.int32(-1)
        for word in range(live.size):
            found = live[word]
            for a in range(attributes.size):
                found &= map_word(codes[event, attributes[a]], rows, row_ptr[a], word, maps, list_ptr, list_codes)
                if found == ZERO:
                    break
            while found != ZERO:
                server = servers[(word << 6) + trailing_zeros(found)]
                found &= found - ONE
                if server != last:
                    event_ids[n] = event
                    out[n] = server
                    n += 1
                    last = server
    return n


@jit
def settle_filters(
    item_ptr: Longs,
    item_lo: Ints,
    item_hi: Ints,
    weights: Floats,
    box_lo: Ints,
    box_hi: Ints,
    counts: Longs,
    loads: Floats,
    slack: float,
    shares: Floats,
    share_ptr: Longs,
    servers: Ints,
) -> None:
    """Place filters one by one on the server whose boxes grow least, let the boxes hold them, count their load.

    No filter goes to a server that it would bring above 1 + slack of the mean load; where none is left, the least loaded
    takes it. Boxes are (servers, slots, axes), of which the first counts[s] are in use.
    """
    n_servers, total = loads.size, loads.sum()
    for f in range(weights.size):
        total += weights[f]
        limit = (1 + slack) * total / n_servers
        best, best_growth = int(np.argmin(loads)), np.inf
        for s in range(n_servers):
            if loads[s] + weights[f] > limit:
                continue
            growth = 0.0
            for i in range(item_ptr[f], item_ptr[f + 1]):
                _, grown = best_slot(item_lo[i], item_hi[i], box_lo[s], box_hi[s], counts[s], shares, share_ptr)
                growth += grown
            if growth < best_growth or (growth == best_growth and loads[s] < loads[best]):
                best, best_growth = s, growth
        for i in range(item_ptr[f], item_ptr[f + 1]):
            slot, _ = best_slot(item_lo[i], item_hi[i], box_lo[best], box_hi[best], counts[best], shares, share_ptr)
            widen(box_lo[best, slot], box_hi[best, slot], item_lo[i], item_hi[i])
            counts[best] = max(counts[best], slot + 1)
        servers[f] = best
        loads[best] += weights[f]


@jit
def best_slot(
    lo: Ints, hi: Ints, box_lo: Ints, box_hi: Ints, count: Scalar, shares: Floats, share_ptr: Longs
) -> tuple[Scalar, Scalar]:
    """The box that grows least to hold one more, and by how much; an unused slot takes the new box as it is."""
    best, least = 0, np.inf
    if count < box_lo.shape[0]:
        best, least = count, chance_of(lo, hi, shares, share_ptr)
    for b in range(count):
        growth = joint_chance(lo, hi, box_lo[b], box_hi[b], shares, share_ptr) - chance_of(
            box_lo[b], box_hi[b], shares, share_ptr
        )
        if growth < least:
            best, least = b, growth
    return best, least
