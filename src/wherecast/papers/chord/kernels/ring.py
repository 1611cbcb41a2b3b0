"""Look-ups on a static ring: node ids as one sorted array, fingers found by searching it.

Identifiers have 64 bits and wrap by themselves. The finger of a node for 2^e is the owner of its id + 2^e, so no finger table
is kept: at 2^20 nodes it would take 160 MB, and a search in a bucket table takes a step or two.
"""

from __future__ import annotations

import numpy as np

from wherecast.kernels.arrays import Longs, Words
from wherecast.kernels.jit import Scalar, hot, inlined


@inlined
def find_owner(ids: Words, starts: Longs, shift: Scalar, position: Scalar) -> Scalar:
    """The index of the first node at or after a position; `starts` has the first node of each bucket of ids."""
    node = starts[np.int64(position >> shift)]
    while node < ids.size and ids[node] < position:
        node += 1
    return node if node < ids.size else 0


@hot
def fill_buckets(ids: Words, shift: Scalar, starts: Longs) -> None:
    """For each bucket, the first node whose id is in it or after it."""
    node = 0
    for bucket in range(starts.size):
        while node < ids.size and np.int64(ids[node] >> shift) < bucket:
            node += 1
        starts[bucket] = node


@hot
def count_hops(ids: Words, starts: Longs, shift: Scalar, sources: Longs, positions: Words, hops: Longs) -> None:
    """Messages of each look-up, from node `sources[i]` to the owner of `positions[i]`, the last one counted."""
    one = np.uint64(1)
    for i in range(sources.size):
        position = positions[i]
        owner = find_owner(ids, starts, shift, position)
        node = sources[i]
        count = 0
        while node != owner:
            distance = position - ids[node]
            following = node + 1 if node + 1 < ids.size else 0
            count += 1
            if following == owner:
                break
            # The farthest finger that lies before the position: the first exponent to try is that of the distance.
            exponent = 63
            while exponent > 0 and (one << np.uint64(exponent)) >= distance:
                exponent -= 1
            finger = following
            while exponent >= 0:
                candidate = find_owner(ids, starts, shift, ids[node] + (one << np.uint64(exponent)))
                reached = ids[candidate] - ids[node]
                if reached != 0 and reached < distance:
                    finger = candidate
                    break
                exponent -= 1
            node = finger
        hops[i] = count


@hot
def count_owned(ids: Words, starts: Longs, shift: Scalar, positions: Words, load: Longs) -> None:
    """How many positions each node owns."""
    for i in range(positions.size):
        load[find_owner(ids, starts, shift, positions[i])] += 1


@hot
def count_spanned(
    ids: Words, starts: Longs, shift: Scalar, first: Words, values: Longs, gap: Scalar, nodes: Longs, owners: Longs
) -> None:
    """For ranges of `values[i]` cells from `first[i]` on, `gap` apart: nodes on the arc, and those that own a cell."""
    for i in range(first.size):
        length = np.uint64(values[i] - 1) * gap
        start = find_owner(ids, starts, shift, first[i])
        last = find_owner(ids, starts, shift, first[i] + length)
        nodes[i] = (last - start + ids.size) % ids.size + 1
        if nodes[i] == 1 and length > ids[start] - first[i]:
            nodes[i] += ids.size  # once round, back to the node that it began at
        previous = np.int64(-1)
        owners[i] = 0
        for step in range(values[i]):
            owner = find_owner(ids, starts, shift, first[i] + np.uint64(step) * gap)
            if owner != previous:
                owners[i] += 1
                previous = owner
