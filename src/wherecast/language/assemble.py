"""Assembling: the bound groups of a batch become one `Filters`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.language.bind import Bound, Rows, StringPool, settle, take_rows
from wherecast.language.canonical import rest_writer
from wherecast.language.columns import Literals
from wherecast.language.conjunctions import join_terms
from wherecast.language.canonical import digest_filters
from wherecast.language.expression import is_constant
from wherecast.language.filters import Filters, Program
from wherecast.language.bind import Int64s, Ragged
from wherecast.language.normalize import Clause, Rest, Test
from wherecast.language.schema import Schema
from wherecast.language.simplify import Box, BoxClause, simplify


class Group(NamedTuple):
    """Filters of one normalised shape, tests placed but not settled."""

    rows: Int64s  # which texts they are
    clauses: list[Clause]
    literals: Literals
    placed: dict[Test, Ragged]


class Join(NamedTuple):
    """Filters that are conjunctions of terms, each term a group of its own (see `conjunctions`)."""

    rows: Int64s  # which texts they are
    terms: list[tuple[Group, Int64s]]  # a group and, for each of its filters, the joint filter it is a term of


class _Part(NamedTuple):
    """A group's contribution: rows and clauses, both with filters numbered within the group."""

    rows: Rows
    clause_filter: Int64s  # (clauses,) sorted
    clause_number: Int64s  # (clauses,) the `clause` value of its rows
    program: Int64s  # (clauses,) -1 or index into programs


def assemble(groups: list[Group], pool: StringPool, schema: Schema, join: Join | None = None) -> tuple[Filters, Int64s]:
    """One `Filters` of all groups, and the text that each of its filters came from."""
    strings, ranks = pool.ranked()
    programs: list[Program] = []
    parts = []
    for group in groups:
        rests = [tuple(r for r in c.rests if not is_constant(r.node)) for c in group.clauses]
        bound = settle(group.clauses, group.placed, ranks, group.literals, schema)
        parts.append(_part(bound, group.clauses, rests, programs, group.literals))
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
    bound: Bound, clauses: list[Clause], rests: list[tuple[Rest, ...]], programs: list[Program], literals: Literals
) -> _Part:
    index: dict[tuple[Rest, ...], int] = {}
    for rest in rests:
        if rest and rest not in index:
            index[rest] = len(programs)
            programs.append(Program(rest, literals.take([r.node for r in rest]), literals.length))
    which = np.array([index.get(rest, -1) for rest in rests] or [0], np.int64)
    if len(rests) > 1:
        order = _fixed_order(clauses)
        if order is not None and not bound.rows.null.any():
            return _ordered(bound, which, order)
        return _simplified(bound, which, programs)
    alive = np.flatnonzero(bound.alive[0]) if rests else np.zeros(0, np.int64)
    return _Part(bound.rows, alive, np.zeros(alive.size, np.int64), np.full(alive.size, which[0]))


def _fixed_order(clauses: list[Clause]) -> list[int] | None:
    """The canonical order of clauses that cannot interact whatever their constants, or None.

    One clause covers another only if it constrains a part of the other's attributes, and two are joined only if they
    constrain the same. Where no set of attributes holds another, neither can happen.
    """
    attributes = [frozenset(v.attr for v in c.values) for c in clauses]
    if any(t.op == "contains" for c in clauses for v in c.values for t in v.tests):
        return None
    if any(a <= b for i, a in enumerate(attributes) for j, b in enumerate(attributes) if i != j):
        return None
    return sorted(range(len(clauses)), key=lambda i: sorted(attributes[i]))


def _ordered(bound: Bound, which: Int64s, order: list[int]) -> _Part:
    """Clauses that do not interact, put in order; those that cannot hold are left out."""
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    number, owner = np.nonzero(bound.alive)
    by_filter = np.lexsort((rank[number], owner))
    number, owner = number[by_filter], owner[by_filter]
    return _Part(bound.rows._replace(clause=rank[bound.rows.clause]), owner, rank[number], which[number])


def _simplified(bound: Bound, which: Int64s, programs: list[Program]) -> _Part:
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
    writers = {number: rest_writer(programs[number]) for number in set(which.tolist()) - {-1}}
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
    flat = Rows(of_filter, of_clause, attrs, parts, nulls.astype(bool), lows, highs)
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


def _flatten(parts: list[_Part], bases: Int64s, strings: list[str], programs: list[Program]) -> Filters:
    n = int(bases[-1])
    none = np.zeros(0, np.int64)
    clause_filter = np.concatenate([p.clause_filter + b for p, b in zip(parts, bases, strict=False)] or [none])
    numbers = np.concatenate([p.clause_number for p in parts] or [none])
    program = np.concatenate([p.program for p in parts] or [none])
    program_row = np.concatenate([p.clause_filter for p in parts] or [none])
    clause_ptr = np.searchsorted(clause_filter, np.arange(n + 1))
    rows = Rows(*(np.concatenate([getattr(p.rows, f) for p in parts] or [none]) for f in Rows._fields))
    owner = rows.filter + np.repeat(bases[:-1], [p.rows.filter.size for p in parts])
    # Clause numbers are unique within a filter and below 2**16; attributes are below 2**15.
    clause_key = (owner << 16) | rows.clause
    key = (clause_key << 15) | rows.attr
    repeated = rows.part > 0
    order = np.lexsort((rows.lo, ~rows.null, repeated, key)) if repeated.any() else np.argsort(key, kind="stable")
    rows, key, clause_key = take_rows(rows, order), key[order], clause_key[order]
    keep = ~_repeats(rows, key)
    rows, key, clause_key = take_rows(rows, keep), key[keep], clause_key[keep]
    row_ptr = np.searchsorted(clause_key, np.append((clause_filter << 16) | numbers, np.iinfo(np.int64).max))
    continued = np.zeros(key.size, bool)
    continued[:-1] = (key[1:] == key[:-1]) & (rows.part[1:] == 0) & (rows.part[:-1] == 0)
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


def _repeats(rows: Rows, key: Int64s) -> npt.NDArray[np.bool_]:
    """Elements of an array asked for twice in one clause."""
    out = np.zeros(key.size, bool)
    out[1:] = (key[1:] == key[:-1]) & (rows.part[1:] > 0) & (rows.part[:-1] > 0) & (rows.lo[1:] == rows.lo[:-1])
    return out
