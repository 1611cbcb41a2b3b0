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

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from wherecast.kernels.arrays import Bools, Longs
from wherecast.kernels.normal_form import ALL, ANY, RESIDUAL, SET, TERM, Forms, Programs, TermTable, expand_filters
from wherecast.language.events.schema import Schema
from wherecast.language.expression import Param
from wherecast.language.filters.assemble import (
    Atom,
    FilterPart,
    Group,
    column_of,
    is_set,
    programs_of_clauses,
)
from wherecast.language.filters.columns import Reading
from wherecast.language.filters.normalize import ALWAYS, All, Any_, Logic, Predicate, Values
from wherecast.language.sequences import number_alike, number_sequences, pointer, take_ranges
from wherecast.language.syntax.advice import KEYWORDS
from wherecast.language.syntax.cutting import CutTexts, SlotTexts
from wherecast.language.syntax.limits import Limits
from wherecast.language.syntax.skeletons import Skeleton, TextNumbers
from wherecast.language.syntax.structure import Structure, TextPiece, cut_piece, number_segments, read_structure

#: Skeletons with fewer texts than this are taken apart; the others are quicker whole.
FEW_TEXTS = 16
#: Batches with fewer such texts are not worth it.
ENOUGH_TEXTS = 64


class Term(NamedTuple):
    """A term of many texts. They may name different attributes of one type; the skeleton has that of the first."""

    skeleton: Skeleton
    is_negated: bool
    arithmetic: bool  # whether the types of literals may show, anywhere in those texts
    slots: list[SlotTexts]
    size: int  # occurrences
    attributes: Longs | None  # by occurrence; None: the same for all


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
        steps.extend((SET if is_set(atom) else RESIDUAL, number.setdefault(atom, len(number))) for atom in atoms)
        if len(atoms) > 1:
            steps.append((ANY, len(atoms)))

    write(logic)
    return TermForm(tuple(number), tuple(steps))


#: Compiles a term: groups of its occurrences, and the form of each.
CompileTerm = Callable[[Term], Iterable[tuple[Group, TermForm]]]


def compile_terms(
    texts: CutTexts, compile_term: CompileTerm, namer: Namer, limits: Limits
) -> tuple[FilterPart, list[Group]] | None:
    """What can be compiled of texts by their terms: the filters, and the groups of their atoms. None: nothing."""
    read = _read_texts(texts, limits.depth // 8)
    if read is None:
        return None
    terms = _find_terms(read, namer)
    form_of, row_of = np.full(terms.is_negated.size, -1, np.int64), np.zeros(terms.is_negated.size, np.int64)
    groups: list[Group] = []
    forms: list[TermForm] = []
    for members, term in _distinct_terms(terms, read):
        for group, form in compile_term(term):
            mine = members[group.rows]
            form_of[mine], row_of[mine] = len(forms), np.arange(mine.size)
            groups.append(group)
            forms.append(form)
    templates, is_left = expand_filters(
        terms.steps,
        TermTable(form_of, row_of, terms.attribute),
        _programs([form.steps for form in forms]),
        _tables(groups, forms, namer.schema),
        limits.clauses,
    )
    good = np.flatnonzero(~is_left & _is_within(read, limits))
    program, row, found = programs_of_clauses(templates, groups)
    return FilterPart(read.chosen[good], good, np.zeros(good.size, np.int64), templates, program, row, found), groups


# -- structures ---------------------------------------------------------------------------------------------------------


_cut_piece = lru_cache(65_536)(cut_piece)
_read_structure = lru_cache(16_384)(read_structure)


class _Read(NamedTuple):
    """Texts whose structures are understood."""

    chosen: Longs  # which they are
    texts: CutTexts
    pieces: list[TextPiece]
    pattern: Longs  # (texts,) which structure
    structures: list[Structure]


def _read_texts(texts: CutTexts, deepest: int) -> _Read | None:
    known = TextNumbers[str]()
    pieces = [_cut_piece(text) for text in texts.pieces]
    letters = np.fromiter((known[piece.letters] for piece in pieces), np.int64, len(pieces))
    pattern, first = number_alike(texts.ptr, letters[texts.numbers])
    found = []
    for text in first.tolist():
        own = texts.numbers[texts.ptr[text] : texts.ptr[text + 1]].tolist()
        found.append(_read_structure("v".join([pieces[n].letters for n in own]), deepest))
    is_read = np.fromiter((structure is not None for structure in found), bool, len(found))
    chosen = np.flatnonzero(is_read[pattern])
    if not chosen.size:
        return None
    place = np.cumsum(is_read) - 1
    structures = [structure for structure in found if structure is not None]
    return _Read(chosen, texts.take(chosen), pieces, place[pattern[chosen]], structures)


def _rows(lists: Iterable[Sequence[int]], width: int) -> Longs:
    """Lists of numbers, one after the other, as rows of `width` numbers."""
    return np.fromiter(chain.from_iterable(lists), np.int64).reshape(-1, width)


def _sums(read: _Read, of_piece: Iterable[int]) -> Longs:
    """A number of each piece, summed up for each text."""
    values = np.fromiter(of_piece, np.int64, len(read.pieces))
    return np.add.reduceat(values[read.texts.numbers], read.texts.ptr[:-1])


def _is_within(read: _Read, limits: Limits) -> Bools:
    """Which texts are certain to have no more words and patterns than they may."""
    sizes = _sums(read, (p.size for p in read.pieces)) + np.diff(read.texts.literal_ptr)
    return (sizes <= limits.terms) & (_sums(read, (p.regexes for p in read.pieces)) <= limits.regexes)


# -- terms --------------------------------------------------------------------------------------------------------------


_LEADING_NAME = re.compile(r"[^\W\d]\w*+(?:\.[^\W\d]\w*+)*+(?!\s*+[(.`])")
_WORD = re.compile(r"[^\W\d]\w*+")


class Namer:
    """Finds the attribute with which a term begins, so that terms over attributes of one type are compiled as one."""

    def __init__(self, schema: Schema, *, case_sensitive: bool) -> None:
        self.schema = schema
        self.case_sensitive = case_sensitive

    def mentions_attribute(self, text: str) -> bool:
        """Whether a text may name an attribute."""
        return "`" in text or "." in text or any(self.schema.find(w) is not None for w in _WORD.findall(text))

    def split(self, text: str) -> tuple[int, str]:
        """The attribute with which the text begins, and a text that is the same for all attributes of its type; or -1."""
        found = _LEADING_NAME.match(text)
        attr = self.schema.find(found.group()) if found else None
        if found is None or attr is None or found.group().upper() in KEYWORDS:
            return -1, text
        attribute, after = self.schema.attributes[attr], text[found.end() :]
        if not after.strip() or self.mentions_attribute(after):
            return -1, text
        if self.case_sensitive and attribute.name != found.group():
            return -1, text
        return attr, f"\0{attribute.type_name}\0{after}"


class _Terms(NamedTuple):
    """The terms of all texts, text after text."""

    ptr: Longs  # (texts + 1,)
    is_negated: Bools
    first_literal: Longs
    segment_ptr: Longs  # (terms + 1,)
    segments: Longs  # numbers of `words`
    words: list[str]
    kind: Longs  # equal for terms that are compiled as one
    attribute: Longs  # with which a term begins, if those of a kind may have different ones; or -1
    arithmetic: Bools
    steps: Programs


def _find_terms(read: _Read, namer: Namer) -> _Terms:
    """Structures laid out over the texts that have them."""
    facts = _rows((s.terms for s in read.structures), 3)
    places = _rows((s.segments for s in read.structures), 2)
    term_ptr = pointer((len(s.terms) // 3 for s in read.structures), len(read.structures))
    chosen, ptr = take_ranges(term_ptr, read.pattern)
    text = np.repeat(np.arange(read.chosen.size), np.diff(ptr))
    own, own_ptr = take_ranges(pointer(facts[:, 2].tolist(), facts.shape[0]), chosen)
    piece = read.texts.numbers[np.repeat(read.texts.ptr[text], np.diff(own_ptr)) + places[own, 0]]
    words, segments = number_segments(read.pieces, piece, places[own, 1])
    kind, attribute = _kinds(own_ptr, segments, words, namer)
    arithmetic = _sums(read, (p.has_arithmetic for p in read.pieces)) > 0
    first_literal = facts[chosen, 1] + read.texts.literal_ptr[text]
    return _Terms(
        ptr, facts[chosen, 0] > 0, first_literal, own_ptr, segments, words, kind, attribute, arithmetic[text],
        _steps_of_texts(read, ptr),
    )  # fmt: skip


def _kinds(ptr: Longs, segments: Longs, words: list[str], namer: Namer) -> tuple[Longs, Longs]:
    """Numbers, equal for terms that are compiled as one, and the attribute with which each term begins."""
    split = [namer.split(word) for word in words]
    attr = np.fromiter((a for a, _ in split), np.int64, len(words))
    mentions = np.fromiter((namer.mentions_attribute(word) for word in words), bool, len(words))
    later = mentions[segments]
    later[ptr[:-1]] = False
    is_named = np.add.reduceat(later, ptr[:-1]) > 0
    attribute = np.where(is_named, -1, attr[segments[ptr[:-1]]])
    alike = TextNumbers[str]()
    first = np.fromiter((alike[text] for _, text in split), np.int64, len(words)) + len(words)
    seen = segments.copy()
    seen[ptr[:-1]] = np.where(attribute < 0, segments[ptr[:-1]], first[segments[ptr[:-1]]])
    return number_sequences(ptr, seen)[0], attribute


def _steps_of_texts(read: _Read, term_ptr: Longs) -> Programs:
    """The programs of all texts; terms are numbered over all of them."""
    steps = _rows((s.steps for s in read.structures), 2)
    step_ptr = pointer((len(s.steps) // 2 for s in read.structures), len(read.structures))
    chosen, ptr = take_ranges(step_ptr, read.pattern)
    kind, arg = steps[chosen, 0], steps[chosen, 1]
    return Programs(ptr, kind, np.where(kind == TERM, arg + np.repeat(term_ptr[:-1], np.diff(ptr)), arg))


def _distinct_terms(terms: _Terms, read: _Read) -> Iterable[tuple[Longs, Term]]:
    """Each distinct term, and its occurrences."""
    key = terms.kind * 4 + terms.is_negated * 2 + terms.arithmetic
    order = np.argsort(key, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        first = int(members[0])
        own = terms.segments[terms.segment_ptr[first] : terms.segment_ptr[first + 1]].tolist()
        literals = terms.first_literal[members]
        yield (
            members,
            Term(
                tuple(terms.words[number] for number in own),
                bool(terms.is_negated[first]),
                bool(terms.arithmetic[first]),
                [read.texts.slot(literals + place) for place in range(len(own) - 1)],
                members.size,
                terms.attribute[members] if terms.attribute[first] >= 0 else None,
            ),
        )


# -- tables for the kernel ----------------------------------------------------------------------------------------------


def _programs(steps: Sequence[Sequence[tuple[int, int]]]) -> Programs:
    kind, arg = _rows(chain.from_iterable(steps), 2).T.copy()
    return Programs(pointer(map(len, steps), len(steps)), kind, arg)


def _tables(groups: Sequence[Group], forms: Sequence[TermForm], schema: Schema) -> Forms:
    """The atoms of all forms; group i has form i."""
    shared: dict[Atom, int] = {}
    facts: list[tuple[int, int, bool, int, int]] = []
    base = 0
    for group, form in zip(groups, forms, strict=True):
        for atom in form.atoms:
            is_element = isinstance(atom, Predicate) and atom.is_element
            alike = -1 if _has_literals(atom) else shared.setdefault(atom, len(shared))
            reading = atom.column.reading if isinstance(atom, Predicate) else Reading.VALUE
            facts.append(
                (column_of(atom, schema), reading if group.attributes is not None else -1, is_element, alike, base)
            )
            base += group.rows.size
    column, reading, is_element, alike, first = _rows(facts, 5).T.copy()
    numbers = np.full((len(Reading), len(schema.attributes)), -1, np.int64)
    for number, each in enumerate(schema.columns):
        numbers[each.reading, each.attr] = number
    ptr = pointer((len(f.atoms) for f in forms), len(forms))
    return Forms(ptr, column, reading, is_element > 0, alike, first, numbers)


def _has_literals(atom: Atom) -> bool:
    if isinstance(atom, Predicate):
        return bool(atom.params)
    return any(isinstance(node, Param) for node in atom.node.walk())
