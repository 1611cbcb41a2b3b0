r"""Assembling: the bound groups of a batch become one `Filters`.

Theory of operation
-------------------
The clauses of a filter are compared with each other once their constants are known (`simplify`): a clause inside another is
dropped, and clauses that differ in one attribute only are joined. That is not a minimal form (which is NP-hard), but
filters that differ in order, spelling or redundant predicates come out alike.

Conjunctions whose shapes do not repeat go term by term. With thirty attributes there are a billion ways to AND some of
them, and hardly two filters share a shape; but each term, `a7 = ?`, is shared by thousands. So texts whose skeleton is seen
only a few times and is a plain conjunction are cut at their ANDs (`split_terms`); every term is compiled as if it were a
filter (parsed once, bound for all its occurrences at once), and the terms of a text are then intersected, attribute by
attribute, for all texts together (`join_terms`). Only what is certain is treated so: no OR, BETWEEN or CASE anywhere, no
AND inside parentheses, nothing quoted but literals. A text with a term that does not compile, or needs a residual, or asks
for elements of an array, goes the ordinary way, which also finds the error's position.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from wherecast.kernels.arrays import Longs
from wherecast.language.events.keys import KEY_MAX, KEY_MIN
from wherecast.language.events.schema import Schema
from wherecast.language.expression import is_constant
from wherecast.language.filters.bind import (
    Bound,
    IntervalRows,
    Ragged,
    StringPool,
    everything,
    intersection,
    settle,
    take_rows,
)
from wherecast.language.filters.canonical import digest_filters, residual_writer
from wherecast.language.filters.filters import Filters, Program
from wherecast.language.filters.normalize import Clause, Predicate, Residual
from wherecast.language.syntax.literals import Literals
from wherecast.language.syntax.skeletons import Skeleton


class Group(NamedTuple):
    """Filters of one normalised shape, tests placed but not settled."""

    rows: Longs  # which texts they are
    clauses: list[Clause]
    literals: Literals
    placed: dict[Predicate, Ragged]


class Join(NamedTuple):
    """Filters that are conjunctions of terms, each term a group of its own (see `join_terms`)."""

    rows: Longs  # which texts they are
    terms: list[tuple[Group, Longs]]  # a group and, for each of its filters, the joint filter it is a term of


class _Part(NamedTuple):
    """A group's contribution: rows and clauses, both with filters numbered within the group."""

    rows: IntervalRows
    clause_filter: Longs  # (clauses,) sorted
    clause_number: Longs  # (clauses,) the `clause` value of its rows
    program: Longs  # (clauses,) -1 or index into programs


def assemble(groups: list[Group], pool: StringPool, schema: Schema, join: Join | None = None) -> tuple[Filters, Longs]:
    """One `Filters` of all groups, and the text that each of its filters came from."""
    strings, ranks = pool.ranked()
    programs: list[Program] = []
    parts = []
    for group in groups:
        residuals = [tuple(r for r in c.residuals if not is_constant(r.node)) for c in group.clauses]
        bound = settle(group.clauses, group.placed, ranks, group.literals, schema)
        parts.append(_part(bound, group.clauses, residuals, programs, group.literals))
    texts = [g.rows for g in groups]
    if join is not None:
        bounds = [(settle(g.clauses, g.placed, ranks, g.literals, schema), owner) for g, owner in join.terms]
        rows, alive = join_terms(bounds, join.rows.size)
        parts.append(_Part(rows, alive, np.zeros(alive.size, np.int64), np.full(alive.size, -1)))
        texts.append(join.rows)
    order = np.concatenate(texts) if texts else np.zeros(0, np.int64)
    bases = np.concatenate(([0], np.cumsum([t.size for t in texts]))).astype(np.int64)
    filters = _flatten(parts, bases, strings, programs)
    return filters._replace(digests=digest_filters(filters, schema)), order


def _part(
    bound: Bound,
    clauses: list[Clause],
    residuals: list[tuple[Residual, ...]],
    programs: list[Program],
    literals: Literals,
) -> _Part:
    index: dict[tuple[Residual, ...], int] = {}
    for of_clause in residuals:
        if of_clause and of_clause not in index:
            index[of_clause] = len(programs)
            programs.append(Program(of_clause, literals.take([r.node for r in of_clause]), literals.length))
    which = np.array([index.get(of_clause, -1) for of_clause in residuals] or [0], np.int64)
    if len(residuals) > 1:
        order = _fixed_order(clauses)
        if order is not None and not bound.rows.null.any():
            return _ordered(bound, which, order)
        return _simplified(bound, which, programs)
    alive = np.flatnonzero(bound.alive[0]) if residuals else np.zeros(0, np.int64)
    return _Part(bound.rows, alive, np.zeros(alive.size, np.int64), np.full(alive.size, which[0]))


def _fixed_order(clauses: list[Clause]) -> list[int] | None:
    """The canonical order of clauses that cannot interact whatever their constants, or None.

    One clause covers another only if it constrains a part of the other's columns, and two are joined only if they
    constrain the same. Where no set of columns holds another, neither can happen.
    """
    columns = [frozenset(v.column for v in c.values) for c in clauses]
    if any(a <= b for i, a in enumerate(columns) for j, b in enumerate(columns) if i != j):
        return None
    return sorted(range(len(clauses)), key=lambda i: sorted(columns[i]))


def _ordered(bound: Bound, which: Longs, order: list[int]) -> _Part:
    """Clauses that do not interact, put in order; those that cannot hold are left out."""
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    number, owner = np.nonzero(bound.alive)
    by_filter = np.lexsort((rank[number], owner))
    number, owner = number[by_filter], owner[by_filter]
    return _Part(bound.rows._replace(clause=rank[bound.rows.clause]), owner, rank[number], which[number])


def _simplified(bound: Bound, which: Longs, programs: list[Program]) -> _Part:
    """Clauses of each filter against each other, filter by filter: only shapes with an OR come here."""
    boxes: list[dict[int, Box]] = [{} for _ in range(bound.alive.shape[1])]
    for number, alive in enumerate(bound.alive):
        for f in np.flatnonzero(alive).tolist():
            boxes[f][number] = {}
    order = np.lexsort(
        (bound.rows.lo, ~bound.rows.null, bound.rows.part, bound.rows.attr, bound.rows.clause, bound.rows.filter)
    )
    for f, number, attr, part, null, lo, hi in zip(*(a[order].tolist() for a in bound.rows), strict=True):
        box = boxes[f][number]
        box[attr, part] = (*box.get((attr, part), ()), (null, lo, hi))
    writers = {number: residual_writer(programs[number]) for number in set(which.tolist()) - {-1}}
    rows: list[tuple[int, int, int, int, bool, int, int]] = []
    clauses: list[tuple[int, int, int]] = []
    for f, numbered in enumerate(boxes):
        found = []
        for n, box in numbered.items():
            program = int(which[n])
            rest = writers[program](f) if program >= 0 else frozenset[str]()
            found.append(BoxClause(_in_order(box), rest, program))
        for number, clause in enumerate(simplify(found)):
            clauses.append((f, number, clause.program))
            rows += [(f, number, a, p, *i) for (a, p), sets in sorted(clause.box.items()) for i in sets]
    columns = np.array(rows, np.int64).reshape(-1, 7).T
    of_filter, of_clause, attrs, parts, nulls, lows, highs = columns
    owner, number_of, chosen = np.array(clauses, np.int64).reshape(-1, 3).T
    flat = IntervalRows(of_filter, of_clause, attrs, parts, nulls.astype(bool), lows, highs)
    return _Part(flat, owner, number_of, chosen)


def _in_order(box: Box) -> Box:
    """The elements asked of each array numbered in their order, each once."""
    if not any(part for _, part in box):
        return box
    out = {key: sets for key, sets in box.items() if not key[1]}
    for attr in {attr for attr, part in box if part}:
        elements = sorted({sets for (a, part), sets in box.items() if a == attr and part})
        out.update({(attr, part): sets for part, sets in enumerate(elements, 1)})
    return out


def _flatten(parts: list[_Part], bases: Longs, strings: list[str], programs: list[Program]) -> Filters:
    n = int(bases[-1])
    none = np.zeros(0, np.int64)
    clause_filter = np.concatenate([p.clause_filter + b for p, b in zip(parts, bases, strict=False)] or [none])
    numbers = np.concatenate([p.clause_number for p in parts] or [none])
    program = np.concatenate([p.program for p in parts] or [none])
    program_row = np.concatenate([p.clause_filter for p in parts] or [none])
    clause_ptr = np.searchsorted(clause_filter, np.arange(n + 1))
    rows = IntervalRows(*(np.concatenate([getattr(p.rows, f) for p in parts] or [none]) for f in IntervalRows._fields))
    owner = rows.filter + np.repeat(bases[:-1], [p.rows.filter.size for p in parts])
    # Clause numbers are unique within a filter and below 2**16; columns are below 2**15.
    clause_key = (owner << 16) | rows.clause
    key = (clause_key << 15) | rows.attr
    order = _element_order(rows, key) if rows.part.any() else np.argsort(key, kind="stable")
    rows, key, clause_key = take_rows(rows, order), key[order], clause_key[order]
    row_ptr = np.searchsorted(clause_key, np.append((clause_filter << 16) | numbers, np.iinfo(np.int64).max))
    continued = np.zeros(key.size, bool)
    continued[:-1] = (key[1:] == key[:-1]) & (rows.part[1:] == rows.part[:-1])
    attr = rows.attr.astype(np.int16)
    return Filters(
        clause_ptr.astype(np.int64),
        row_ptr.astype(np.int64),
        np.where(continued, ~attr, attr),
        rows.null.astype(bool),
        rows.lo,
        rows.hi,
        program.astype(np.int32),
        program_row.astype(np.int32),
        strings,
        programs,
        [],
    )


def _element_order(rows: IntervalRows, key: Longs) -> Longs:
    """The rows in canonical order: of one column its own set first, then elements by the first of their intervals.

    An element that is asked for twice in one clause stands once.
    """
    order = np.lexsort((rows.lo, ~rows.null, rows.part, key))
    sorted_rows, sorted_key = take_rows(rows, order), key[order]
    starts = np.ones(key.size, bool)
    starts[1:] = (sorted_key[1:] != sorted_key[:-1]) | (sorted_rows.part[1:] != sorted_rows.part[:-1])
    group = np.cumsum(starts) - 1
    first_lo, size = sorted_rows.lo[starts], np.bincount(group)
    again = np.lexsort(
        (sorted_rows.lo, ~sorted_rows.null, sorted_rows.part, first_lo[group], sorted_rows.part > 0, sorted_key)
    )
    found, found_key, group = take_rows(sorted_rows, again), sorted_key[again], group[again]
    is_single = (found.part > 0) & (size[group] == 1)
    repeats = np.zeros(key.size, bool)
    repeats[1:] = is_single[1:] & is_single[:-1] & (found_key[1:] == found_key[:-1]) & (found.lo[1:] == found.lo[:-1])
    repeats[1:] &= found.hi[1:] == found.hi[:-1]
    return order[again][~repeats]


# -- conjunctions, term by term ----------------------------------------------------------------------------------------


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

    owner: Longs
    attr: Longs
    null: Longs  # whether NULL is allowed
    sets: Ragged  # `rows` are constraints


def join_terms(bounds: Sequence[tuple[Bound, Longs]], n: int) -> tuple[IntervalRows, Longs]:
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


def _sources(bounds: Sequence[tuple[Bound, Longs]]) -> Sources:
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


def _intersected(sources: Sources, number: Longs, count: Longs) -> Ragged:
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


def _rows(
    keys: Longs, sets: Ragged, allows_null: np.ndarray[tuple[int], np.dtype[np.bool_]], alive: object
) -> IntervalRows:
    """NULL rows first, then intervals; what is always true is left out."""
    living = np.asarray(alive)[keys >> 15]
    full = np.zeros(keys.size, bool)
    full[sets.rows[(sets.lo == KEY_MIN) & (sets.hi == KEY_MAX)]] = True
    full &= allows_null
    nulls = np.flatnonzero(allows_null & living & ~full)
    keep = living[sets.rows] & ~full[sets.rows]
    at = np.concatenate((nulls, sets.rows[keep]))
    zero = np.zeros(nulls.size, np.int64)
    return IntervalRows(
        keys[at] >> 15,
        np.zeros(at.size, np.int64),
        keys[at] & 0x7FFF,
        np.zeros(at.size, np.int64),
        np.arange(at.size) < nulls.size,
        np.concatenate((zero, sets.lo[keep])),
        np.concatenate((zero, sets.hi[keep])),
    )


#: (is NULL, lo, hi); NULL sorts last here, its place in a constraint does not matter for comparing sets
# -- the clauses of one filter -----------------------------------------------------------------------------------------


Interval = tuple[bool, int, int]
Intervals = tuple[Interval, ...]
#: (attribute, part) -> intervals; part tells the constraints of one array attribute apart
Box = dict[tuple[int, int], Intervals]


_EVERYTHING: list[Interval] = [(True, 0, 0), (False, KEY_MIN, KEY_MAX)]


class BoxClause(NamedTuple):
    """A box and what else must hold: statements in canonical words, and the program that evaluates them."""

    box: Box
    rest: frozenset[str]
    program: int  # -1: none


def simplify(clauses: list[BoxClause]) -> list[BoxClause]:
    """An equivalent, usually shorter list in canonical order."""
    while True:
        clauses = _absorb(_unique(clauses))
        joined = _join(clauses)
        if len(joined) == len(clauses):
            # Attributes first: clauses over different attributes have an order that no constant changes.
            return sorted(joined, key=lambda c: (sorted(c.box), sorted(c.box.items()), sorted(c.rest)))
        clauses = joined


def _unique(clauses: list[BoxClause]) -> list[BoxClause]:
    return list({(tuple(sorted(c.box.items())), c.rest): c for c in clauses}.values())


def _absorb(clauses: list[BoxClause]) -> list[BoxClause]:
    kept: list[BoxClause] = []
    for clause in sorted(clauses, key=lambda c: (len(c.box), len(c.rest))):
        if not any(_covers(wide, clause) for wide in kept):
            kept = [k for k in kept if not _covers(clause, k)]
            kept.append(clause)
    return kept


def _covers(wide: BoxClause, narrow: BoxClause) -> bool:
    if not wide.rest <= narrow.rest or len(wide.box) > len(narrow.box):
        return False
    return all(key in narrow.box and _contains(sets, narrow.box[key]) for key, sets in wide.box.items())


def _contains(wide: Intervals, narrow: Intervals) -> bool:
    if wide == narrow:
        return True
    at = 0
    for null, lo, hi in narrow:
        while at < len(wide) and (wide[at][0] != null or wide[at][2] < lo):
            at += 1
        if at == len(wide) or not (wide[at][1] <= lo and hi <= wide[at][2]):
            return False
    return True


def _join(clauses: list[BoxClause]) -> list[BoxClause]:
    """Unite clauses that differ in one scalar attribute."""
    keys = sorted({key for c in clauses for key in c.box})
    for key in keys:
        if key[1]:
            continue  # elements of an array: "has a and has b" is not a union of sets
        groups: dict[object, list[BoxClause]] = {}
        for clause in clauses:
            others = (tuple(sorted((k, v) for k, v in clause.box.items() if k != key)), clause.rest, key in clause.box)
            groups.setdefault(others, []).append(clause)
        clauses = [_united(group, key) for group in groups.values()]
    return clauses


def _united(group: list[BoxClause], key: tuple[int, int]) -> BoxClause:
    if len(group) == 1 or key not in group[0].box:
        return group[0]
    pile = sorted({i for c in group for i in c.box[key]}, key=lambda i: (not i[0], i[1]))
    joined: list[Interval] = []
    for null, lo, hi in pile:
        if joined and joined[-1][0] == null and lo <= joined[-1][2] + 1:
            joined[-1] = (null, joined[-1][1], max(hi, joined[-1][2]))
        else:
            joined.append((null, lo, hi))
    box = {**group[0].box, key: tuple(joined)}
    if joined == _EVERYTHING:
        del box[key]
    return BoxClause(box, group[0].rest, group[0].program)
