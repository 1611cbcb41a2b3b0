r"""Conjunctions term by term: for filters whose shapes do not repeat but whose terms do.

Theory of operation
-------------------
With thirty attributes there are a billion ways to AND some of them, and hardly two filters share a shape; but each term,
`a7 = ?`, is shared by thousands. So texts whose skeleton is seen only a few times and is a plain conjunction are cut
at their ANDs; every term is compiled as if it were a filter (parsed once, bound for all its occurrences at once), and
the terms of a text are then intersected, attribute by attribute, for all texts together.

Only what is certain is treated so: no OR, BETWEEN or CASE anywhere, no AND inside parentheses, nothing quoted but
literals. A text with a term that does not compile, or needs a residual, or asks for elements of an array, goes the
ordinary way, which also finds the error's position.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from wherecast.language.bind import Bound, Rows, take_rows
from wherecast.language.bind import Int64s, Ragged, everything, intersection
from wherecast.language.keys import KEY_MAX, KEY_MIN
from wherecast.language.literals import Skeleton

#: Skeletons with fewer texts than this are taken apart; the others are quicker whole.
FEW_TEXTS = 16
#: Batches with fewer such texts are not worth it.
ENOUGH_TEXTS = 64

_NOT_PLAIN = re.compile(r"\b(?:or|between|case|when|then|select)\b|[`'\"\\;\[\]{}]|/\*", re.IGNORECASE)
_AND = re.compile(r"\band\b", re.IGNORECASE)


class Term(NamedTuple):
    """A part of a conjunction: its own skeleton, and which literals of the whole it has."""

    skeleton: Skeleton
    first: int
    end: int


@lru_cache(65_536)
def _terms_of_piece(piece: str) -> tuple[str, ...] | None:
    """A stretch of skeleton between two literals, cut at its ANDs; None if it holds anything but plain terms."""
    return None if _NOT_PLAIN.search(piece) else tuple(_AND.split(piece))


def split_terms(skeleton: Skeleton) -> list[Term] | None:
    """The terms of a plain conjunction, or None."""
    terms: list[Term] = []
    pieces: list[str] = []
    first = 0
    for slot, piece in enumerate(skeleton):
        cut = _terms_of_piece(piece)
        if cut is None:
            return None
        for part in cut[:-1]:
            terms.append(Term((*pieces, part), first, slot))
            pieces, first = [], slot
        pieces.append(cut[-1])
    terms.append(Term(tuple(pieces), first, len(skeleton) - 1))
    return terms if all(_is_balanced(t.skeleton) for t in terms) else None


def _is_balanced(skeleton: Skeleton) -> bool:
    depth = 0
    for piece in skeleton:
        if "(" in piece or ")" in piece:
            for char in piece:
                depth += (char == "(") - (char == ")")
                if depth < 0:
                    return False
    return depth == 0


class Sources(NamedTuple):
    """Constraints of many terms: constraint i speaks of filter `owner[i]` and attribute `attr[i]`."""

    owner: Int64s
    attr: Int64s
    null: Int64s  # whether NULL is allowed
    sets: Ragged  # `rows` are constraints


def join_terms(bounds: Sequence[tuple[Bound, Int64s]], n: int) -> tuple[Rows, Int64s]:
    """Intersect terms. Each comes as a bound group and the joint filter of each of its filters (-1: of none).

    Returns the rows of the `n` joint filters and the filters that can match at all.
    """
    alive = np.ones(n, bool)
    for bound, owner in bounds:
        dead = owner[~bound.alive[0]]
        alive[dead[dead >= 0]] = False
    sources = _sources(bounds)
    key = (sources.owner << 15) | sources.attr
    keys, number, count = np.unique(key, return_inverse=True, return_counts=True)
    sets = _intersected(sources, number, count)
    null = np.zeros(keys.size, np.int64)
    np.add.at(null, number, sources.null)
    allows_null = null == count
    held = np.zeros(keys.size, bool)
    held[sets.rows] = True
    alive[(keys >> 15)[~held & ~allows_null]] = False
    return _rows(keys, sets, allows_null, alive), np.flatnonzero(alive)


def _sources(bounds: Sequence[tuple[Bound, Int64s]]) -> Sources:
    owners, attrs, nulls, piles, base = [], [], [], [], 0
    for bound, owner in bounds:
        rows = take_rows(bound.rows, owner[bound.rows.filter] >= 0)
        key, number = np.unique((rows.filter << 15) | rows.attr, return_inverse=True)
        null = np.zeros(key.size, np.int64)
        null[number[rows.null]] = 1
        owners.append(owner[key >> 15])
        attrs.append(key & 0x7FFF)
        nulls.append(null)
        real = ~rows.null
        piles.append(Ragged(base + number[real], rows.lo[real], rows.hi[real]))
        base += key.size
    pile = Ragged(*(np.concatenate(parts) for parts in zip(*piles, strict=True)))
    order = np.lexsort((pile.lo, pile.rows))
    return Sources(
        np.concatenate(owners), np.concatenate(attrs), np.concatenate(nulls), Ragged(*(a[order] for a in pile))
    )


def _intersected(sources: Sources, number: Int64s, count: Int64s) -> Ragged:
    """The values that all constraints with one number admit."""
    ordinal = np.empty(number.size, np.int64)  # 0, 1, ... among the constraints of one number
    order = np.argsort(number, kind="stable")
    ordinal[order] = np.arange(number.size) - np.concatenate(([0], np.cumsum(count)))[number[order]]
    rows, lo, hi = number[sources.sets.rows], sources.sets.lo, sources.sets.hi
    single = count[rows] == 1
    shared = np.flatnonzero(count > 1)
    place = np.full(count.size, -1, np.int64)
    place[shared] = np.arange(shared.size)
    layers = []
    for layer in range(int(count.max(initial=0)) if shared.size else 0):
        here = ~single & (ordinal[sources.sets.rows] == layer)
        free = everything(shared.size) if layer else None
        pile = [np.stack((place[rows[here]], lo[here], hi[here]))]
        if free is not None:  # constraints that have no such layer are not narrowed by it
            missing = count[shared] <= layer
            pile.append(np.stack([a[missing] for a in free]))
        joined = np.concatenate(pile, axis=1)
        joined = joined[:, np.lexsort((joined[1], joined[0]))]
        layers.append(Ragged(*joined))
    met = intersection(layers, shared.size) if layers else Ragged(*(np.zeros(0, np.int64) for _ in range(3)))
    both = Ragged(
        np.concatenate((rows[single], shared[met.rows])),
        np.concatenate((lo[single], met.lo)),
        np.concatenate((hi[single], met.hi)),
    )
    order = np.lexsort((both.lo, both.rows))
    return Ragged(*(a[order] for a in both))


def _rows(keys: Int64s, sets: Ragged, allows_null: np.ndarray[tuple[int], np.dtype[np.bool_]], alive: object) -> Rows:
    """NULL rows first, then intervals; what is always true is left out."""
    living = np.asarray(alive)[keys >> 15]
    full = np.zeros(keys.size, bool)
    full[sets.rows[(sets.lo == KEY_MIN) & (sets.hi == KEY_MAX)]] = True
    full &= allows_null
    nulls = np.flatnonzero(allows_null & living & ~full)
    keep = living[sets.rows] & ~full[sets.rows]
    at = np.concatenate((nulls, sets.rows[keep]))
    zero = np.zeros(nulls.size, np.int64)
    return Rows(
        keys[at] >> 15,
        np.zeros(at.size, np.int64),
        keys[at] & 0x7FFF,
        np.zeros(at.size, np.int64),
        np.arange(at.size) < nulls.size,
        np.concatenate((zero, sets.lo[keep])),
        np.concatenate((zero, sets.hi[keep])),
    )
