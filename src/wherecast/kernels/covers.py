"""Which boxes hold an event, for many boxes at once, and which box a new one fits best.

Theory of operation
-------------------
Box b is bit b. Per axis, every cell has the bitmap of the boxes that hold it; an event is in the boxes that remain when the
bitmaps of its cells are ANDed. 500 boxes are eight words, and neighbouring cells between which no box begins or
ends share a bitmap, so the maps stay in the second-level cache. An event's array is in the boxes of any of its elements: their bitmaps are ORed first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.bits import ONE, ZERO, trailing_zeros
from wherecast.kernels.boxtree import chance_of, joint_chance, widen
from wherecast.kernels.jit import Scalar, hot, inlined, jit
from wherecast.kernels.arrays import Floats, Ints, Longs, Words



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
