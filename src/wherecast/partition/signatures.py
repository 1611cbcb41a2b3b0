"""Signatures of filters and events over the routing attributes.

Theory of operation
-------------------
Event-space partitioning (Event Distribution Network, section III.A) routes by the values of d attributes: the signature of
an event is the hash of its d values, and a filter that compares these attributes for equality has the signatures of
the events it can match. A filter whose clauses leave a routing attribute open, or allow too many values of it, has no
signatures: it is *unrouted*, and whoever places it must let it see every event.

- IN, OR and short ranges of integers and dates give several signatures: all combinations of the values of a clause.
- NULL is a value: `symbol IS NULL` is routed as `symbol = 'IBM'` is.
- A topic has one more value to route by, its first level: `topic MATCHES 'news/+/markets'` asks for `news`, as does `topic = 'news/asia'`. A pattern
  that begins with a wildcard leaves it open. Words are nothing to route by: an event has hundreds, and would go to nearly every server (decision 78).
- The value itself is hashed, the bytes of a string or the key of a number, never a code: codes belong to one index.

Which attributes to route by, where nobody says, is decided by entropy, as section III proposes (`choose_columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from wherecast.errors import PlanError
from wherecast.index.codes import keys_of
from wherecast.kernels.arrays import Bools, Longs, Words
from wherecast.kernels.dispatch import NULL_HASH, fold_values, hash_values, sign_rows
from wherecast.kernels.jit import frozen
from wherecast.language.arrow_texts import string_buffers
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import Type
from wherecast.language.filters.columns import Reading
from wherecast.language.filters.filters import AT, Filters, take_filters
from wherecast.language.sequences import take_ranges

#: Signatures of one filter at most; one that would have more is unrouted.
MOST_SIGNATURES = 1024
#: Routing attributes chosen at most.
MOST_ATTRIBUTES = 4
#: Filters that the choice looks at.
SAMPLED_FILTERS = 20_000


class Signatures(NamedTuple):
    """Signatures of filters: those of filter f are `hashes[ptr[f]:ptr[f + 1]]`, each once."""

    ptr: Longs  # (filters + 1,)
    hashes: Words
    unrouted: Bools  # (filters,) it has none, and may match events of any signature; others without match nothing

    def owners(self) -> Longs:
        """The filter of each signature."""
        return np.repeat(np.arange(self.ptr.size - 1), np.diff(self.ptr))


class Columns(NamedTuple):
    """Values of events as bytes, one entry per routing attribute; all arrays read-only, so that they are of one type."""

    datas: tuple[npt.NDArray[np.uint8], ...]
    offsets: tuple[npt.NDArray[np.int32], ...]
    valids: tuple[Bools, ...]


def event_columns(events: EventBatch, columns: Sequence[int]) -> Columns:
    """What kernels hash of a batch."""
    parts = [_event_column(events, number) for number in columns]
    datas, offsets, valids = zip(*parts, strict=True)
    return Columns(datas, offsets, valids)


def _event_column(
    events: EventBatch, number: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    attr, reading = events.schema.columns[number]
    values = events.array(attr)
    if reading is Reading.TOPICS:
        values = pc.list_element(pc.split_pattern(values, "/", max_splits=1), 0)
    if events.schema.attributes[attr].is_text:
        offsets, data = string_buffers(values)
    else:
        data, offsets = _key_bytes(keys_of(values))
    valid = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else np.ones(len(values), bool)
    return frozen(data), frozen(offsets), frozen(valid)


def _key_bytes(keys: Longs) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    return keys.view(np.uint8), np.arange(0, 8 * keys.size + 1, 8, dtype=np.int32)


def sign_events(events: EventBatch, columns: Sequence[int], seed: int) -> Words:
    """The signature of each event."""
    out = np.empty(len(events), np.uint64)
    sign_rows(*event_columns(events, columns), np.uint64(seed), out)
    return out


def sign_filters(filters: Filters, schema: Schema, columns: Sequence[int], seed: int) -> Signatures:
    """The signatures of every filter over some columns of the schema, or that it has none."""
    points = [_points(filters, schema, number, seed) for number in columns]
    clause_owner = np.repeat(np.arange(filters.n_filters), np.diff(filters.clause_ptr))
    combinations = np.ones(clause_owner.size)
    for ptr, _ in points:
        combinations *= np.diff(ptr)
    is_open = np.bincount(clause_owner, combinations == 0, filters.n_filters) > 0
    unrouted = is_open | (np.bincount(clause_owner, combinations, filters.n_filters) > MOST_SIGNATURES)
    clauses = np.flatnonzero(~unrouted[clause_owner])
    hashes = np.full(clauses.size, seed, np.uint64)
    for ptr, values in points:
        places, sizes = take_ranges(ptr, clauses)
        hashes = np.repeat(hashes, np.diff(sizes))
        fold_values(hashes, values[places])
        clauses = np.repeat(clauses, np.diff(sizes))
    hashes[hashes == 0] = 1  # as of events, see `sign_row`
    return _distinct(clause_owner[clauses], hashes, unrouted)


def _distinct(owner: Longs, hashes: Words, unrouted: Bools) -> Signatures:
    """Each signature of a filter once: its clauses may share some."""
    order = np.lexsort((hashes, owner))
    owner, hashes = owner[order], hashes[order]
    keep = np.ones(owner.size, bool)
    keep[1:] = (owner[1:] != owner[:-1]) | (hashes[1:] != hashes[:-1])
    return Signatures(np.searchsorted(owner[keep], np.arange(unrouted.size + 1)), hashes[keep], unrouted)


def _points(filters: Filters, schema: Schema, number: int, seed: int) -> tuple[Longs, Words]:
    """Hashes of the values that each clause allows, by clause; none where they are too many or the clause allows all."""
    attr, reading = schema.columns[number]
    if reading is not Reading.TOPICS:
        return _points_of_values(filters, schema, attr, seed)
    ptr, hashes = _points_of_topics(filters, number, seed)
    own_ptr, own_hashes = _points_of_values(filters, schema, attr, seed, _first_level)
    # A clause that asks for no pattern may ask for whole topics.
    begin = np.where(np.diff(ptr) > 0, ptr[:-1], ptr[-1] + own_ptr[:-1])
    sizes = np.where(np.diff(ptr) > 0, np.diff(ptr), np.diff(own_ptr))
    chosen = np.concatenate(([0], np.cumsum(sizes)))
    places = np.repeat(begin - chosen[:-1], sizes) + np.arange(chosen[-1])
    return chosen, np.concatenate((hashes, own_hashes))[places]


def _first_level(topic: str) -> str:
    return topic.partition("/")[0]


def _points_of_topics(filters: Filters, number: int, seed: int) -> tuple[Longs, Words]:
    """Hashes of the first levels of the patterns that each clause asks for; none where one of these is a wildcard.

    Of several constraints, each of which is alternatives, the first serves.
    """
    n_clauses = filters.row_ptr.size - 1
    rows = np.flatnonzero((filters.attr == number) | (filters.attr == ~number))
    ends = filters.attr[rows] >= 0
    constraint: Longs = np.cumsum(ends) - ends
    known = len(filters.strings)  # NULLs have any rank
    ranks, number_of = np.unique(filters.lo[rows] >> 2, return_inverse=True)
    is_wild = [rank >= known or _first_level(filters.strings[rank]) in ("+", "#") for rank in ranks.tolist()]
    wild = np.array([*is_wild, False], bool)[number_of]
    wild |= filters.null[rows]
    is_open = np.bincount(constraint, wild, int(ends.sum())) > 0
    clauses = np.searchsorted(filters.row_ptr, rows, "right") - 1
    kept = ~is_open[constraint]
    first = np.full(n_clauses, rows.size)
    np.minimum.at(first, clauses[kept], constraint[kept])
    kept &= constraint == first[clauses]
    hashes = _hash_strings(filters.strings, filters.lo[rows[kept]] >> 2, seed, _first_level)
    return np.searchsorted(clauses[kept], np.arange(n_clauses + 1)), hashes


def _points_of_values(
    filters: Filters, schema: Schema, attr: int, seed: int, cut: Callable[[str], str] = str
) -> tuple[Longs, Words]:
    """The same for the values of an attribute; `cut` says what of a text is hashed."""
    n_clauses = filters.row_ptr.size - 1
    rows = np.flatnonzero((filters.attr == attr) | (filters.attr == ~attr))
    clauses = np.searchsorted(filters.row_ptr, rows, "right") - 1
    lo, hi, null = filters.lo[rows], filters.hi[rows], filters.null[rows]
    is_text = schema.attributes[attr].is_text
    if schema.attributes[attr].type is Type.BOOLEAN:
        lo, hi = np.where(null, 0, np.maximum(lo, 0)), np.where(null, 0, np.minimum(hi, 1))
    steps = hi.view(np.uint64) - lo.view(np.uint64)  # unsigned: the distance may pass 2**63
    narrow = (steps == 0) & (lo & 3 == AT) if is_text else steps < MOST_SIGNATURES
    narrow |= null
    wide = np.bincount(clauses[~narrow], minlength=n_clauses) > 0
    kept = ~wide[clauses]
    lo, steps, null, clauses = lo[kept], steps[kept].astype(np.int64), null[kept], clauses[kept]
    each = steps + 1
    values = np.repeat(lo - np.cumsum(each) + each, each) + np.arange(each.sum())
    hashes = _hash_strings(filters.strings, values >> 2, seed, cut) if is_text else _hash_keys(values, seed)
    hashes[np.repeat(null, each)] = NULL_HASH
    return np.searchsorted(np.repeat(clauses, each), np.arange(n_clauses + 1)), hashes


def _hash_keys(keys: Longs, seed: int) -> Words:
    out = np.empty(keys.size, np.uint64)
    hash_values(*_key_bytes(keys), np.uint64(seed), out)
    return out


def _hash_strings(strings: list[str], ranks: Longs, seed: int, cut: Callable[[str], str]) -> Words:
    """Hashes of what is cut from strings, by rank; each string that is there is hashed once."""
    used, place = np.unique(ranks, return_inverse=True)
    encoded = [
        cut(strings[rank]).encode() if rank < len(strings) else b"" for rank in used.tolist()
    ]  # NULLs have any rank
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    out = np.empty(used.size, np.uint64)
    hash_values(np.frombuffer(b"".join(encoded), np.uint8), offsets, np.uint64(seed), out)
    return out[place]


# -- choosing columns --------------------------------------------------------------------------------------------------


def find_column(filters: Filters, weights: Longs, schema: Schema, name: str, n_buckets: int, seed: int) -> int:
    """The column of an attribute to route by: its value, or the first level of its topics if that tells more."""
    attr = schema.index(name)
    candidates = [attr, *(n for n in _topic_columns(filters, schema) if schema.columns[n].attr == attr)]
    return max(candidates, key=lambda n: _information(sign_filters(filters, schema, (n,), seed), weights, n_buckets))


def _topic_columns(filters: Filters, schema: Schema) -> list[int]:
    """Columns of topics that filters ask for."""
    used = np.unique(np.where(filters.attr < 0, ~filters.attr, filters.attr)).tolist()
    return [number for number in used if schema.columns[number].reading is Reading.TOPICS]


def choose_columns(
    filters: Filters, weights: Longs, schema: Schema, n_buckets: int, seed: int
) -> tuple[tuple[int, ...], float]:
    """The columns that tell subscriptions apart best, and by how many bits.

    A column is worth the entropy of the constants that filters compare it with, times the share of subscriptions that
    do; more than the logarithm of the buckets is of no use. Columns are added, the best first, while that is worth more.
    """
    scalars = [a for a, attribute in enumerate(schema.attributes) if not attribute.is_array]
    if not scalars:
        raise PlanError("the schema has only arrays, and none of them has one value to route by; use filter-set")
    if filters.n_filters > SAMPLED_FILTERS:
        some = np.linspace(0, filters.n_filters - 1, SAMPLED_FILTERS).astype(np.int64)
        filters, weights = take_filters(filters, some), weights[some]
    topics = _topic_columns(filters, schema)
    chosen: tuple[int, ...] = ()
    best = -1.0
    while len(chosen) < MOST_ATTRIBUTES:
        candidates = [(*chosen, n) for n in (*scalars, *topics) if n not in chosen]
        gains = [_information(sign_filters(filters, schema, c, seed), weights, n_buckets) for c in candidates]
        if not gains or max(gains) <= best:
            break
        best = max(gains)
        chosen = candidates[gains.index(best)]
    return chosen, best


def _information(signatures: Signatures, weights: Longs, n_buckets: int) -> float:
    """Bits that a signature says of a subscription, on average over all of them."""
    sizes = np.diff(signatures.ptr)
    shares = np.repeat(weights / np.maximum(sizes, 1), sizes)
    routed = shares.sum()
    if not routed:
        return 0.0
    _, number = np.unique(signatures.hashes, return_inverse=True)
    chances = np.bincount(number, shares) / routed
    entropy = float(-(chances * np.log2(chances)).sum())
    return float(routed / weights.sum()) * min(entropy, float(np.log2(n_buckets)))
