"""Filters whose shapes do not repeat, term by term.

Theory of operation
-------------------
With thirty attributes there are a billion ways to combine some of them with AND, OR and NOT, and hardly two filters share a
shape; but each term, `a7 = ?`, is shared by thousands. So texts whose skeleton is seen only a few times are taken apart at
their connectives (`syntax.structure`). Each distinct term is compiled as if it were a filter, once for its truth and once for
its falsity, and its literals are bound for all its occurrences at once. The normal forms of all texts are then made by one
kernel (`kernels.normal_form`), from the texts' structures and the terms' atoms.

Only what is certain goes this way. A text is left to the ordinary way, shape by shape, if its structure is not understood, if it comes near a
limit, if one of its terms does not compile (the ordinary way finds the error and its place), or if its normal form has too
many clauses and needs a cover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from wherecast.kernels.arrays import Bools, Longs
from wherecast.kernels.normal_form import ALL, ANY, RESIDUAL, SET, TERM, Forms, Programs, expand_filters
from wherecast.language.events.schema import Schema
from wherecast.language.expression import Param
from wherecast.language.filters.assemble import (
    Atom,
    Group,
    Part,
    column_of,
    is_set,
    number_sequences,
    programs_of_clauses,
)
from wherecast.language.filters.filters import take_ranges
from wherecast.language.filters.normalize import ALWAYS, All, Any_, Logic, Predicate, Values
from wherecast.language.syntax.limits import Limits
from wherecast.language.syntax.skeletons import LiteralText, Skeleton
from wherecast.language.syntax.structure import Piece, Structure, cut_piece, read_structure, segment_text

#: Skeletons with fewer texts than this are taken apart; the others are quicker whole.
FEW_TEXTS = 16
#: Batches with fewer such texts are not worth it.
ENOUGH_TEXTS = 64


class Texts(NamedTuple):
    """The texts of one skeleton: their rows in the batch, and the literals of each."""

    skeleton: Skeleton
    rows: list[int]
    literals: list[tuple[LiteralText, ...]]


class Term(NamedTuple):
    """A term of many texts."""

    skeleton: Skeleton
    is_negated: bool
    arithmetic: bool  # whether the types of literals may show, anywhere in those texts
    slots: list[Sequence[LiteralText]]
    size: int  # occurrences


class TermForm(NamedTuple):
    """The logic of a term as a postfix program over its atoms."""

    atoms: tuple[Atom, ...]
    steps: tuple[tuple[int, int], ...]


def form_of_logic(logic: Logic) -> TermForm:
    """The program of a statement."""
    number: dict[Atom, int] = {}
    steps: list[tuple[int, int]] = []

    def write(part: Logic) -> None:
        if isinstance(part, Values) and any(p.is_full for p in part.predicates):
            part = ALWAYS
        if isinstance(part, (All, Any_)):
            for item in part.items:
                write(item)
            steps.append((ALL if isinstance(part, All) else ANY, len(part.items)))
            return
        atoms: Sequence[Atom] = part.predicates if isinstance(part, Values) else (part,)
        for atom in atoms:
            steps.append((SET if is_set(atom) else RESIDUAL, number.setdefault(atom, len(number))))
        if len(atoms) > 1:
            steps.append((ANY, len(atoms)))

    write(logic)
    return TermForm(tuple(number), tuple(steps))


#: Compiles a term: groups of its occurrences, and the form of each.
CompileTerm = Callable[[Term], Iterable[tuple[Group, TermForm]]]


def compile_terms(
    rare: Sequence[Texts], compile_term: CompileTerm, schema: Schema, limits: Limits
) -> tuple[Part, list[Group]] | None:
    """What can be compiled of texts by their terms: the filters, and the groups of their atoms. None: nothing."""
    read = _read_texts(rare, limits.depth // 8)
    if read is None:
        return None
    terms = _find_terms(read)
    form_of, row_of = np.full(terms.is_negated.size, -1, np.int64), np.zeros(terms.is_negated.size, np.int64)
    groups: list[Group] = []
    forms: list[TermForm] = []
    for members, term in _distinct_terms(terms, read):
        for group, form in compile_term(term):
            mine = members[group.rows]
            form_of[mine], row_of[mine] = len(forms), np.arange(mine.size)
            groups.append(group)
            forms.append(form)
    programs = _programs([form.steps for form in forms])
    templates, is_left = expand_filters(
        terms.steps, form_of, row_of, programs, _tables(groups, forms, schema), limits.clauses
    )
    good = np.flatnonzero(~is_left & _is_within(read, limits))
    program, row, found = programs_of_clauses(templates, groups)
    return Part(read.rows[good], good, np.zeros(good.size, np.int64), templates, program, row, found), groups


# -- structures ---------------------------------------------------------------------------------------------------------


_cut_piece = lru_cache(65_536)(cut_piece)
_read_structure = lru_cache(8_192)(read_structure)


class _Read(NamedTuple):
    """Texts whose structures are understood."""

    rows: Longs  # in the batch
    pieces: list[Piece]
    numbers: Longs  # the pieces of all texts, by number
    piece_ptr: Longs  # (texts + 1,)
    literals: np.ndarray[tuple[int], np.dtype[np.object_]]  # of all texts
    literal_ptr: Longs  # (texts + 1,)
    pattern: Longs  # (texts,) which structure
    structures: list[Structure]


def _read_texts(rare: Sequence[Texts], deepest: int) -> _Read | None:
    number: dict[str, int] = {}
    pieces: list[Piece] = []
    patterns: dict[str, int] = {}
    structures: list[Structure] = []
    rows: list[int] = []
    of_text: list[int] = []
    numbers: list[list[int]] = []
    literals: list[tuple[LiteralText, ...]] = []
    for skeleton, its_rows, its_literals in rare:
        own = []
        for piece in skeleton:
            known = number.get(piece)
            if known is None:
                known = number[piece] = len(pieces)
                pieces.append(_cut_piece(piece))
            own.append(known)
        letters = "v".join([pieces[n].letters for n in own])
        pattern = patterns.get(letters)
        if pattern is None:
            structure = _read_structure(letters, deepest)
            pattern = patterns[letters] = -1 if structure is None else len(structures)
            if structure is not None:
                structures.append(structure)
        if pattern >= 0:
            rows += its_rows
            literals += its_literals
            of_text += [pattern] * len(its_rows)
            numbers += [own] * len(its_rows)
    if not rows:
        return None
    piece_ptr = _pointer(map(len, numbers), len(rows))
    flat = np.fromiter(chain.from_iterable(numbers), np.int64, int(piece_ptr[-1]))
    literal_ptr = piece_ptr - np.arange(piece_ptr.size)
    every = np.fromiter(chain.from_iterable(literals), object, int(literal_ptr[-1]))
    return _Read(np.array(rows), pieces, flat, piece_ptr, every, literal_ptr, np.array(of_text, np.int64), structures)


def _pointer(sizes: Iterable[int], n: int) -> Longs:
    ptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.fromiter(sizes, np.int64, n), out=ptr[1:])
    return ptr


def _sums(read: _Read, of_piece: Iterable[int]) -> Longs:
    """A number of each piece, summed up for each text."""
    values = np.fromiter(of_piece, np.int64, len(read.pieces))
    return np.add.reduceat(values[read.numbers], read.piece_ptr[:-1])


def _is_within(read: _Read, limits: Limits) -> Bools:
    """Which texts are certain to have no more words and patterns than they may."""
    sizes = _sums(read, (p.size for p in read.pieces)) + np.diff(read.literal_ptr)
    return (sizes <= limits.terms) & (_sums(read, (p.regexes for p in read.pieces)) <= limits.regexes)


# -- terms --------------------------------------------------------------------------------------------------------------


class _Terms(NamedTuple):
    """The terms of all texts, text after text."""

    ptr: Longs  # (texts + 1,)
    is_negated: Bools
    first_literal: Longs
    segment_ptr: Longs  # (terms + 1,)
    segments: Longs  # as numbers of `words`
    words: list[str]
    arithmetic: Bools
    steps: Programs


def _find_terms(read: _Read) -> _Terms:
    """Structures laid out over the texts that have them."""
    places = [term for structure in read.structures for term in structure.terms]
    term_ptr = _pointer((len(s.terms) for s in read.structures), len(read.structures))
    segment_ptr = _pointer((len(t.segments) for t in places), len(places))
    segments = np.array([s for t in places for s in t.segments], np.int64).reshape(-1, 5)
    chosen, ptr = take_ranges(term_ptr, read.pattern)
    text = np.repeat(np.arange(read.rows.size), np.diff(ptr))
    own, own_ptr = take_ranges(segment_ptr, chosen)
    first_piece = np.repeat(read.piece_ptr[text], np.diff(own_ptr))
    piece = read.numbers[first_piece + segments[own, 0]]
    codes, number = np.unique((piece << 32) | _low_bits(segments)[own], return_inverse=True)
    words: dict[str, int] = {}
    texts = [_segment_of(code, read.pieces) for code in codes.tolist()]
    word = np.fromiter((words.setdefault(t, len(words)) for t in texts), np.int64, len(texts))
    is_negated = np.fromiter((t.is_negated for t in places), bool, len(places))[chosen]
    first_literal = np.fromiter((t.first_literal for t in places), np.int64, len(places))[chosen]
    arithmetic = _sums(read, (p.has_arithmetic for p in read.pieces)) > 0
    return _Terms(
        ptr, is_negated, first_literal + read.literal_ptr[text], own_ptr, word[number], list(words), arithmetic[text],
        _steps_of_texts(read, ptr),
    )  # fmt: skip


def _low_bits(segments: Longs) -> Longs:
    return (segments[:, 1] << 17) | (segments[:, 2] << 2) | (segments[:, 3] << 1) | segments[:, 4]


def _segment_of(code: int, pieces: Sequence[Piece]) -> str:
    return segment_text(pieces[code >> 32], code >> 17 & 0x7FFF, code >> 2 & 0x7FFF, bool(code & 2), bool(code & 1))


def _steps_of_texts(read: _Read, term_ptr: Longs) -> Programs:
    """The programs of all texts; terms are numbered over all of them."""
    of_structures = _programs([s.steps for s in read.structures])
    chosen, ptr = take_ranges(of_structures.ptr, read.pattern)
    kind, arg = of_structures.kind[chosen], of_structures.arg[chosen]
    return Programs(ptr, kind, np.where(kind == TERM, arg + np.repeat(term_ptr[:-1], np.diff(ptr)), arg))


def _distinct_terms(terms: _Terms, read: _Read) -> Iterable[tuple[Longs, Term]]:
    """Each distinct term, and its occurrences."""
    key = number_sequences(terms.segment_ptr, terms.segments) * 4 + terms.is_negated * 2 + terms.arithmetic
    order = np.argsort(key, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        first = int(members[0])
        own = terms.segments[terms.segment_ptr[first] : terms.segment_ptr[first + 1]].tolist()
        literals = terms.first_literal[members]
        slots = [read.literals[literals + place].tolist() for place in range(len(own) - 1)]
        skeleton = tuple(terms.words[number] for number in own)
        yield members, Term(skeleton, bool(terms.is_negated[first]), bool(terms.arithmetic[first]), slots, members.size)


# -- tables for the kernel ----------------------------------------------------------------------------------------------


def _programs(steps: Sequence[Sequence[tuple[int, int]]]) -> Programs:
    ptr = _pointer(map(len, steps), len(steps))
    kind, arg = np.array([step for each in steps for step in each], np.int64).reshape(-1, 2).T
    return Programs(ptr, np.ascontiguousarray(kind), np.ascontiguousarray(arg))


def _tables(groups: Sequence[Group], forms: Sequence[TermForm], schema: Schema) -> Forms:
    """The atoms of all forms; group i has form i."""
    shared: dict[Atom, int] = {}
    facts: list[tuple[int, bool, int, int]] = []
    base = 0
    for group, form in zip(groups, forms, strict=True):
        for atom in form.atoms:
            is_element = isinstance(atom, Predicate) and atom.is_element
            alike = -1 if _has_literals(atom) else shared.setdefault(atom, len(shared))
            facts.append((column_of(atom, schema), is_element, alike, base))
            base += group.rows.size
    column, is_element, alike, first = np.array(facts, np.int64).reshape(-1, 4).T.copy()
    return Forms(_pointer((len(f.atoms) for f in forms), len(forms)), column, is_element.astype(bool), alike, first)


def _has_literals(atom: Atom) -> bool:
    if isinstance(atom, Predicate):
        return bool(atom.params)
    return any(isinstance(node, Param) for node in atom.node.walk())
