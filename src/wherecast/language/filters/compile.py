"""Filter texts to compiled filters, one at a time or a million.

Theory of operation
-------------------
Texts are cut into skeleton and literals (`skeletons`), grouped by skeleton, and each skeleton is parsed, checked and
normalised once (`sql`, `normalize`); what the literals add is done for all texts of a group at once (`bind`). Spark types
`1` and `1.5` differently and a LIKE pattern may be an equality or a prefix, so a group is split into variants first.

Texts of skeletons that hardly repeat are taken apart at AND, OR and NOT instead, and their terms are compiled so (`terms`).

A single text takes the same path as a batch of one. A bad text never disturbs the others: it comes back with its
row and a positioned error.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from wherecast.errors import FilterError
from wherecast.kernels.arrays import Longs
from wherecast.language.events.schema import Schema
from wherecast.language.expression import (
    And,
    IsTruth,
    Like,
    Node,
    Not,
    Or,
)
from wherecast.language.filters.assemble import (
    Atom,
    FilterPart,
    Group,
    ShapeClauses,
    assemble,
    is_set,
    part_of_group,
    shape_of_clauses,
)
from wherecast.language.filters.bind import Ragged, StringPool, place, place_constant
from wherecast.language.filters.filters import Filters
from wherecast.language.filters.normalize import Clause, Predicate, Truth, literals_of, normalize, push_truth
from wherecast.language.filters.terms import (
    ENOUGH_TEXTS,
    FEW_TEXTS,
    Namer,
    Term,
    TermForm,
    compile_terms,
    form_of_logic,
)
from wherecast.language.sequences import number_alike, numbered
from wherecast.language.syntax.cutting import CutTexts, SlotTexts, cut_texts
from wherecast.language.syntax.java_regex import rlike_regex
from wherecast.language.syntax.limits import Limits
from wherecast.language.syntax.literals import (
    LiteralFault,
    Literals,
    SlotKinds,
    are_strings,
    check_literals,
    has_arithmetic,
    nodes_with_literals,
    slot_kind,
    slot_kinds,
    unquote,
)
from wherecast.language.syntax.parser import Tree, keyword_names, parse_shape, too_many_terms
from wherecast.language.syntax.patterns import find_form
from wherecast.language.syntax.skeletons import (
    Cut,
    LiteralText,
    Shape,
    Skeleton,
    TextNumbers,
    cut_text,
    find_surrogate,
    is_string,
    literal_spans,
    locate,
    shape_of,
)
from wherecast.language.syntax.sql import Checker, SlotKind

#: Trees of the parser can take a megabyte each: few of them are kept.
_KEPT_TREES = 64
#: Characters of all skeletons whose shapes are kept. A checked and normalised shape takes about 60 bytes for each.
_KEPT_CHARACTERS = 1 << 18

T = TypeVar("T")
_FIRST = np.zeros(1, np.int64)


class RowError(NamedTuple):
    """A text that did not compile."""

    row: int
    error: FilterError


class Compiled(NamedTuple):
    """What became of a batch of texts. Texts of equal spelling share a filter."""

    filters: Filters
    filter_of: npt.NDArray[np.int64]  # (texts,) index into filters, -1: see errors
    errors: list[RowError]


class ReadFilter(NamedTuple):
    """A filter for people: its checked expression and its clauses, with slots, and what stands in these."""

    node: Node
    clauses: list[Clause]
    shape: Shape  # the text that spans of nodes are places of; `locate` finds them in the filter's own
    literals: tuple[LiteralText, ...]


@dataclass(slots=True)
class _Batch:
    """The distinct texts of a call and what is found out about them."""

    texts: Sequence[str]
    errors: dict[int, FilterError] = field(default_factory=dict)
    pool: StringPool = field(default_factory=StringPool)


class _Slots(NamedTuple):
    """The texts of one skeleton: their rows in the batch and their literals, slot by slot."""

    rows: Longs
    slots: Sequence[SlotTexts]


class _TermTexts(Sequence[str]):
    """The occurrences of a term as texts, made when one is asked for: only its errors are."""

    def __init__(self, term: Term) -> None:
        self.term = term

    def __len__(self) -> int:
        return self.term.size

    def __getitem__(self, row: int) -> str:  # type: ignore[override]
        texts = [slot.text(row) for slot in self.term.slots]
        written = [t if isinstance(t, str) else ", ".join(t) for t in texts]
        after = self.term.skeleton[1:]
        return self.term.skeleton[0] + "".join(t + s for t, s in zip(written, after, strict=True))


@dataclass(slots=True)
class _Form:
    """A checked expression whose LIKE patterns are known for what they amount to, and what was made of it."""

    node: Node
    literal_nodes: tuple[Node, ...]
    clauses: list[Clause] | None = None  # its normal form
    shape: ShapeClauses | None = None  # the same for assembling
    terms: dict[bool, TermForm] = field(default_factory=dict)  # its truth and, with True, its falsity


@dataclass(frozen=True, slots=True)
class _Variant:
    """A shape with the kinds of its slots known: a checked expression."""

    shape: Shape
    node: Node
    like_slots: tuple[tuple[int, str], ...]
    forms: dict[tuple[str, ...], _Form] = field(default_factory=dict)


class Compiler:
    """Compiles filters for one schema and remembers the shapes it has seen."""

    def __init__(self, schema: Schema, limits: Limits | None = None, *, case_sensitive: bool = False) -> None:
        self.schema = schema
        self.case_sensitive = case_sensitive
        self.limits = limits or Limits()
        self._quoted_names = keyword_names(a.name for a in schema.attributes)
        self._parsed = lru_cache(_KEPT_TREES)(self._parse)
        self._variants: OrderedDict[tuple[Skeleton, SlotKinds], _Variant | FilterError] = OrderedDict()
        self._kept = 0  # characters of the skeletons of these
        self._keeping = threading.Lock()
        self._of_terms: Compiler | None = None  # compiles terms of filters
        self._namer = Namer(schema, case_sensitive=case_sensitive)

    def compile(self, text: str) -> Filters:
        """Compile one filter, or raise its FilterError."""
        result = self.compile_many([text])
        if result.errors:
            raise result.errors[0].error
        return result.filters

    def validate(self, text: str) -> None:
        """Raise the FilterError that `compile` would raise, in a third of its time."""
        batch = _Batch([text])
        if self._readable(batch).size:
            skeleton, literals = cut_text(text)
            found = _Slots(_FIRST, [SlotTexts([literal], _FIRST) for literal in literals])
            for form, shape, members in self._forms(skeleton, found, batch):
                for member in members.tolist():
                    self._is_readable(form, shape, found, member, batch)
        if batch.errors:
            raise batch.errors[0]

    def check(self, text: str) -> tuple[Node, list[Clause]]:
        """The checked expression and the clauses of one filter (for people; literals stay slots)."""
        self.compile(text)
        found = self.read(text)
        return found.node, found.clauses

    def read(self, text: str) -> ReadFilter:
        """As `check`, of a text that is known to compile. Texts of one shape get the same objects, while it is remembered."""
        skeleton, literals = cut_text(text)
        kinds = tuple(slot_kind(t, arithmetic=has_arithmetic(skeleton)) for t in literals)
        variant = self._variant(skeleton, kinds)
        assert isinstance(variant, _Variant)
        form = self._form(variant, tuple(_like_form(kind, literals[s]) for s, kind in variant.like_slots))
        return ReadFilter(form.node, self._clauses(form), variant.shape, literals)

    def compile_many(self, texts: Sequence[str]) -> Compiled:
        """Compile a batch; bad texts are reported with their row, the rest is compiled."""
        first: dict[str, int] = {}
        place_of = np.fromiter((first.setdefault(t, len(first)) for t in texts), np.int64, len(texts))
        batch = _Batch(list(first))
        filters, order = self._compile(batch)
        filter_of = np.full(len(batch.texts), -1, np.int64)
        filter_of[order] = np.arange(order.size)
        by_row = filter_of[place_of] if place_of.size else place_of
        bad = [RowError(int(r), batch.errors[int(place_of[r])]) for r in np.flatnonzero(by_row < 0)]
        return Compiled(filters, by_row, bad)

    def _compile(self, batch: _Batch) -> tuple[Filters, npt.NDArray[np.int64]]:
        """Texts of rare shapes term by term, if that is possible and worth it; the others shape by shape."""
        rows = self._readable(batch)
        texts = cut_texts([batch.texts[row] for row in rows.tolist()] if batch.errors else batch.texts)
        shape, _ = number_alike(texts.ptr, texts.numbers)
        left = np.ones(shape.size, bool)
        groups: list[Group] = []
        parts: list[FilterPart] = []
        rare = np.flatnonzero(np.bincount(shape)[shape] < FEW_TEXTS) if shape.size >= ENOUGH_TEXTS else shape[:0]
        if rare.size >= ENOUGH_TEXTS:
            found = compile_terms(texts.take(rare), lambda term: self._term(term, batch), self._namer, self.limits)
            if found is not None:
                part, groups = found
                left[rare[part.texts]] = False
                parts.append(part._replace(texts=rows[rare[part.texts]]))
        base = sum(group.size for group in groups)
        for skeleton, members, slots in _by_shape(texts, shape, left):
            for form, group in self._prepare(skeleton, _Slots(rows[members], slots), batch):
                groups.append(group)
                parts.append(part_of_group(group, self._shape(form), base))
                base += group.size
        return assemble(groups, parts, batch.pool, self.schema)

    def _readable(self, batch: _Batch) -> npt.NDArray[np.int64]:
        """The rows of the texts that can be cut; the others are reported."""
        limit = self.limits.text
        for row, text in enumerate(batch.texts):
            # A batch may hold anything, whatever its type says.
            if not isinstance(text, str) or len(text) > limit or not text.isascii():  # type: ignore[redundant-expr]
                error = self._refused(text)
                if error is not None:
                    batch.errors[row] = error
        rows = np.arange(len(batch.texts))
        return np.delete(rows, list(batch.errors)) if batch.errors else rows

    def _term(self, term: Term, batch: _Batch) -> Iterable[tuple[Group, TermForm]]:
        """A term for all texts that have it; those for which it does not compile are in no group.

        Half of the depth that a text may have is the structure's around its terms.
        """
        if self._of_terms is None:
            limits = replace(self.limits, depth=self.limits.depth // 2)
            self._of_terms = Compiler(self.schema, limits, case_sensitive=self.case_sensitive)
        own = _Batch(_TermTexts(term), pool=batch.pool)
        found = _Slots(np.arange(term.size), term.slots)
        for form, group in self._of_terms._prepare(  # noqa: SLF001 - of another Compiler
            term.skeleton, found, own, arithmetic=term.arithmetic, is_negated=term.is_negated
        ):
            if term.attributes is None:
                yield group, form.terms[term.is_negated]
            else:
                attributes, first = term.attributes[group.rows], int(term.attributes[0])
                yield group._replace(attributes=attributes, attribute=first), form.terms[term.is_negated]

    def _refused(self, text: object) -> FilterError | None:
        """Why a text is not even cut."""
        if text is None:
            return FilterError("syntax", "the filter is empty; write TRUE to match every event")
        if not isinstance(text, str):
            return FilterError("syntax", f"a filter is a text, found {type(text).__name__}; pass a str")
        if len(text) > self.limits.text:
            message = f"{len(text)} characters, at most {self.limits.text}; split the filter"
            return FilterError("limit", message, text=text, start=self.limits.text)
        lone = find_surrogate(text)
        if lone >= 0:
            return FilterError("syntax", "half a character (a lone surrogate); remove it", text=text, start=lone)
        return None

    def _too_many(self, text: str, cut: Cut) -> FilterError:
        start, end = next(islice(literal_spans(text, cut), self.limits.terms, None))
        return FilterError("limit", too_many_terms(self.limits.terms), text=text, start=start, end=end)

    def _prepare(
        self,
        skeleton: Skeleton,
        found: _Slots,
        batch: _Batch,
        *,
        arithmetic: bool | None = None,
        is_negated: bool | None = None,
    ) -> Iterable[tuple[_Form, Group]]:
        """Groups of one skeleton, checked, normalised and placed; texts that do not compile are reported.

        `is_negated` is told of terms: whether their falsity is wanted. `arithmetic`: see `has_arithmetic`.
        """
        for form, shape, members in self._forms(skeleton, found, batch, arithmetic):
            atoms = self._shape(form).atoms if is_negated is None else _term_form(form, is_negated).atoms
            group = self._group(form, atoms, shape, found, members, batch)
            if group is not None:
                yield form, group

    def _forms(
        self, skeleton: Skeleton, found: _Slots, batch: _Batch, arithmetic: bool | None = None
    ) -> Iterable[tuple[_Form, Shape, Longs]]:
        """The forms that the texts of one skeleton have, each with its members."""
        rows, slots = found
        if len(slots) > self.limits.terms:
            for member, row in enumerate(rows.tolist()):
                literals = tuple(slot.text(member) for slot in slots)
                batch.errors[row] = self._too_many(batch.texts[row], (skeleton, literals))
            return
        arithmetic = has_arithmetic(skeleton) if arithmetic is None else arithmetic
        of_slots = [(slot_kinds(slot.known, arithmetic=arithmetic), slot.numbers) for slot in slots]
        for kinds, members in _split(of_slots, np.arange(rows.size)):
            variant = self._variant(skeleton, kinds)
            if isinstance(variant, FilterError):
                for row in rows[members].tolist():
                    batch.errors[row] = self._relocated(variant, batch.texts[row], skeleton, kinds)
                continue
            forms = [(_like_forms(kind, slots[s].known), slots[s].numbers) for s, kind in variant.like_slots]
            for form, chosen in _split(forms, members):
                yield self._form(variant, form), variant.shape, chosen

    def _group(
        self,
        form: _Form,
        atoms: tuple[Atom, ...],
        shape: Shape,
        found: _Slots,
        members: Longs,
        batch: _Batch,
    ) -> Group | None:
        """The members whose literals can be read, placed; the others are reported."""
        rows, slots = found
        literals = self._literals(slots, members)
        try:
            self._check_literals(form, literals)
        except LiteralFault:
            members = np.array(
                [m for m in members.tolist() if self._is_readable(form, shape, found, m, batch)], np.int64
            )
            if not members.size:
                return None
            literals = self._literals(slots, members)
        placed = [self._place(atom, literals, batch.pool) for atom in atoms]
        return Group(rows[members], atoms, literals, placed)

    def _place(self, atom: Atom, literals: Literals, pool: StringPool) -> Ragged | None:
        if isinstance(atom, Predicate):
            return place(atom, literals, self.schema, pool)
        return place_constant(atom, literals) if is_set(atom) else None

    def _is_readable(self, form: _Form, shape: Shape, found: _Slots, member: int, batch: _Batch) -> bool:
        try:
            self._check_literals(form, self._literals(found.slots, np.array([member])))
        except LiteralFault as fault:
            row = int(found.rows[member])
            text = batch.texts[row]
            start, end = locate(text, shape, *shape.spans[fault.slot])
            batch.errors[row] = FilterError(fault.reason, str(fault), text=text, start=start, end=end)
            return False
        return True

    def _literals(self, slots: Sequence[SlotTexts], members: Longs) -> Literals:
        is_whole = not slots or members.size == slots[0].numbers.size
        return Literals(slots if is_whole else [slot.take(members) for slot in slots], members.size, self.schema.zone)

    def _check_literals(self, form: _Form, literals: Literals) -> None:
        check_literals(form.literal_nodes, literals, self.limits)

    # -- shapes ---------------------------------------------------------------------------------------------------

    def _variant(self, skeleton: Skeleton, kinds: SlotKinds) -> _Variant | FilterError:
        """A shape that was seen lately, or a new one, which is kept unless it is very large.

        The least recently used go when all together are too large.
        """
        key = skeleton, kinds
        with self._keeping:
            known = self._variants.get(key)
            if known is not None:
                self._variants.move_to_end(key)
                return known
        made = self._check(skeleton, kinds)
        size = _characters(skeleton)
        with self._keeping:
            if size <= _KEPT_CHARACTERS // 16 and key not in self._variants:
                self._variants[key] = made
                self._kept += size
            while self._kept > _KEPT_CHARACTERS:
                (oldest, _), _ = self._variants.popitem(last=False)
                self._kept -= _characters(oldest)
        return made

    def _parse(self, skeleton: Skeleton, strings: tuple[bool, ...]) -> tuple[Shape, Tree | FilterError]:
        shape = shape_of(skeleton, strings)
        try:
            return shape, parse_shape(shape, self.limits, self._quoted_names)
        except FilterError as error:
            return shape, error

    def _check(self, skeleton: Skeleton, kinds: SlotKinds) -> _Variant | FilterError:
        shape, parsed = self._parsed(skeleton, are_strings(kinds))
        if isinstance(parsed, FilterError):
            return parsed
        for slot, kind in enumerate(kinds):
            if isinstance(kind, str):
                start, end = shape.spans[slot]
                return FilterError("literal", kind, text=shape.text, start=start, end=end)
        slots = tuple(k for k in kinds if isinstance(k, SlotKind))
        checker = Checker(self.schema, slots, shape.text, self.limits, case_sensitive=self.case_sensitive)
        try:
            node = checker.condition(parsed)
        except FilterError as error:
            return error
        return _Variant(shape, node, _like_slots(node))

    def _form(self, variant: _Variant, form: tuple[str, ...]) -> _Form:
        known = variant.forms.get(form)
        if known is None:
            node = _replace_likes(
                variant.node, {slot: name for (slot, _), name in zip(variant.like_slots, form, strict=True)}
            )
            known = variant.forms[form] = _Form(node, nodes_with_literals(node))
        return known

    def _clauses(self, form: _Form) -> list[Clause]:
        if form.clauses is None:
            form.clauses = normalize(form.node, self.limits.clauses)
        return form.clauses

    def _shape(self, form: _Form) -> ShapeClauses:
        if form.shape is None:
            form.shape = shape_of_clauses(self._clauses(form), self.schema)
        return form.shape

    def _relocated(self, error: FilterError, text: str, skeleton: Skeleton, kinds: SlotKinds) -> FilterError:
        shape, _ = self._parsed(skeleton, are_strings(kinds))
        start, end = locate(text, shape, error.start, error.end)
        return FilterError(error.reason, error.message, text=text, start=start, end=end)


def _characters(skeleton: Skeleton) -> int:
    return sum(map(len, skeleton))


def _by_shape(
    texts: CutTexts, shape: npt.NDArray[np.int64], left: npt.NDArray[np.bool_]
) -> Iterable[tuple[Skeleton, Longs, list[SlotTexts]]]:
    """The texts that are left, those of one shape together: skeleton, members, and literals slot by slot."""
    if not left.any():
        return
    here = np.flatnonzero(left)
    if shape.size == 1:
        yield texts.skeleton(0), here, [SlotTexts([literal], _FIRST) for literal in texts.each_literal()]
        return
    order = here[np.argsort(shape[here], kind="stable")]
    literal_ptr = texts.literal_ptr
    for members in np.split(order, np.flatnonzero(np.diff(shape[order])) + 1):
        skeleton = texts.skeleton(int(members[0]))
        first = literal_ptr[members]
        yield skeleton, members, [texts.slot(first + slot) for slot in range(len(skeleton) - 1)]


def _term_form(form: _Form, is_negated: bool) -> TermForm:
    if is_negated not in form.terms:
        form.terms[is_negated] = form_of_logic(push_truth(form.node, Truth.FALSE if is_negated else Truth.TRUE))
    return form.terms[is_negated]


# -- rows and slots ---------------------------------------------------------------------------------------------------


def _split(slots: list[tuple[list[T], Longs]], rows: Longs) -> Iterable[tuple[tuple[T, ...], Longs]]:
    """Rows grouped by their tuple of values: each slot has values, and which of them a row has. One value is that of all rows."""
    several = [(values, numbers) for values, numbers in slots if values.count(values[0]) < len(values)]
    if not several:
        return [(tuple(values[0] for values, _ in slots), rows)]
    number = np.zeros(rows.size, np.int64)
    for values, numbers in several:
        known = TextNumbers[Any]()
        codes = np.fromiter(map(known.__getitem__, values), np.int64, len(values))
        number = numbered(number * len(known) + codes[numbers[rows]])[1]
    parts = np.split(np.argsort(number, kind="stable"), np.cumsum(np.bincount(number))[:-1])
    groups = []
    for part in sorted(parts, key=lambda part: part[0]):  # in the order in which they first occur
        row = rows[part[0]]
        groups.append((tuple(values[numbers[row] if len(values) > 1 else 0] for values, numbers in slots), rows[part]))
    return groups


# -- LIKE -------------------------------------------------------------------------------------------------------------


def _like_slots(node: Node) -> tuple[tuple[int, str], ...]:
    """Slots of patterns whose form matters to the index, and what kind of patterns they are."""
    likes = (n for n in node.walk() if isinstance(n, Like) and _has_form(n))
    return tuple(sorted({(n.pattern.slot, n.kind) for n in likes}))


def _has_form(node: Like) -> bool:
    return literals_of(node.item, in_lower_case=node.kind == "ilike") is not None


#: Patterns of one literal, all of one form, in one C call.
_PLAIN_FORMS = {
    form: re.compile(rf"{literal}(?:\n{literal})*+")
    for form, literal in (("infix", r"'%[^%_\\'\n]++%'"), ("prefix", r"'[^%_\\'\n]++%'"))
}


def _like_forms(kind: str, literals: Sequence[LiteralText]) -> list[str]:
    """The form of each of some distinct patterns, or one form for all of them."""
    if kind != "rlike":
        try:
            joined = "\n".join(literals)  # type: ignore[arg-type]
        except TypeError:  # IN lists
            joined = ""
        for form, pattern in _PLAIN_FORMS.items():
            if pattern.fullmatch(joined):
                return [form]
    return [_like_form(kind, literal) for literal in literals]


def _like_form(kind: str, literal: LiteralText) -> str:
    if not isinstance(literal, str) or not is_string(literal):
        return "general"
    try:
        if kind == "rlike":
            rlike_regex(unquote(literal))
        return find_form(kind, unquote(literal)).name
    except ValueError:
        return "general"  # the pattern is refused when the literals are checked


def _replace_likes(node: Node, forms: dict[int, str]) -> Node:
    if not forms:
        return node
    if isinstance(node, Like) and _has_form(node):
        return replace(node, form=forms[node.pattern.slot])
    if isinstance(node, (And, Or)):
        return replace(node, items=tuple(_replace_likes(i, forms) for i in node.items))
    if isinstance(node, (Not, IsTruth)):
        return replace(node, item=_replace_likes(node.item, forms))
    return node
