"""The dispatcher's loop: an event is hashed, finds its bucket, is tested by the summary of the bucket and sent on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wherecast.kernels.jit import hot
from wherecast.kernels.signatures import bucket_of, sign_row
from wherecast.kernels.summaries import bloom_holds, find_slot
from wherecast.kernels.arrays import Bools, Bytes, Ints, Longs, Words


#: How an event is tested: not at all, by Bloom filters, by the dictionary.
UNTESTED, BY_BLOOM, BY_DICTIONARY = 0, 1, 2


@hot
def dispatch_events(
    datas: tuple[Bytes, ...],
    offsets: tuple[Ints, ...],
    valids: tuple[Bools, ...],
    seed: np.uint64,
    table: Ints,
    test: int,
    ptr: Longs,
    words: Words,
    keys: Words,
    counts: Longs,
    residual: int,
    event_ids: Longs,
    servers: Ints,
) -> int:
    """Fill pairs of event and server, and return their number.

    `residual` is a server that sees all events, or negative. The pairs need room for one per event, two with a residual.
    """
    n = 0
    for row in range(valids[0].size):
        if residual >= 0:
            event_ids[n], servers[n] = row, residual
            n += 1
        signature = sign_row(datas, offsets, valids, row, seed)
        bucket = bucket_of(signature, table.size)
        if test == BY_BLOOM:
            if not bloom_holds(ptr, words, bucket, signature):
                continue
        elif test == BY_DICTIONARY:
            if counts[find_slot(keys, signature)] == 0:
                continue
        event_ids[n], servers[n] = row, table[bucket]
        n += 1
    return n
