"""Filter texts to compiled filters, one at a time or a million.

Theory of operation
-------------------
Texts are cut into skeleton and literals (`literals`), grouped by skeleton, and each skeleton is parsed, checked and
normalised once (`sql`, `normalize`); what the literals add is done for all texts of a group at once (`bind`). Spark types
`1` and `1.5` differently and a LIKE pattern may be an equality or a prefix, so a group is split into variants first.

A single text takes the same path as a batch of one. A bad text never disturbs the others: it comes back with its
row and a positioned error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.errors import FilterError
from wherecast.language.assemble import Group, assemble
from wherecast.language.bind import StringPool, place
from wherecast.language.columns import LiteralFault, Literals, check_literals
from wherecast.language.expression import (
    NUMBERS,
    And,
    Attr,
    IsTruth,
    Like,
    Node,
    Not,
    Or,
    Type,
)
from wherecast.language.filters import Filters
from wherecast.language.literals import LiteralText, Shape, cut_text, is_string, locate, shape_of
from wherecast.language.normalize import Clause, normalize
from wherecast.language.patterns import like_form
from wherecast.language.schema import Schema
from wherecast.language.sql import Checker, Limits, Parsed, SlotKind, parse_shape
from wherecast.language.reading import number_type, unquote

_KEPT_SHAPES = 4096


class RowError(NamedTuple):
    """A text that did not compile."""

    row: int
    error: FilterError


class Compiled(NamedTuple):
    """What became of a batch of texts. Texts of equal spelling share a filter."""

    filters: Filters
    filter_of: npt.NDArray[np.int64]  # (texts,) index into filters, -1: see errors
    errors: list[RowError]


@dataclass(frozen=True, slots=True)
class _Variant:
    """A shape with the kinds of its slots known: a checked expression."""

    shape: Shape
    node: Node


class Compiler:
    """Compiles filters for one schema and remembers the shapes it has seen."""

    def __init__(self, schema: Schema, limits: Limits | None = None) -> None:
        self.schema = schema
        self.limits = limits or Limits()
        self._parsed = lru_cache(_KEPT_SHAPES)(self._parse)
        self._variants = lru_cache(_KEPT_SHAPES)(self._check)
        self._normal = lru_cache(_KEPT_SHAPES)(normalize)

    def compile(self, text: str) -> Filters:
        """Compile one filter, or raise its FilterError."""
        result = self.compile_many([text])
        if result.errors:
            raise result.errors[0].error
        return result.filters

    def check(self, text: str) -> tuple[Node, list[Clause]]:
        """The checked expression and the clauses of one filter (for people; literals stay slots)."""
        self.compile(text)
        cut = cut_text(text)
        variant = self._variants(cut.skeleton, tuple(self._kind(t, _has_arithmetic(cut.skeleton)) for t in cut.literals))
        assert isinstance(variant, _Variant)
        node = _with_forms(variant.node, tuple(_form(cut.literals[s]) for s in _like_slots(variant.node)))
        return node, self._normal(node, self.limits.clauses)

    def compile_many(self, texts: Sequence[str]) -> Compiled:
        """Compile a batch; bad texts are reported with their row, the rest is compiled."""
        first: dict[str, int] = {}
        place_of = np.fromiter((first.setdefault(t, len(first)) for t in texts), np.int64, len(texts))
        distinct = list(first)
        errors: dict[int, FilterError] = {}
        pool = StringPool()
        groups = [g for skeleton in self._grouped(distinct, errors) for g in self._prepare(*skeleton, distinct, pool, errors)]
        filters, order = assemble(groups, pool, self.schema)
        filter_of = np.full(len(distinct), -1, np.int64)
        filter_of[order] = np.arange(order.size)
        by_row = filter_of[place_of] if place_of.size else place_of
        bad = [RowError(int(r), errors[int(place_of[r])]) for r in np.flatnonzero(by_row < 0)]
        return Compiled(filters, by_row, bad)

    # -- grouping -------------------------------------------------------------------------------------------------

    def _grouped(
        self, texts: list[str], errors: dict[int, FilterError]
    ) -> Iterable[tuple[tuple[str, ...], list[int], list[tuple[LiteralText, ...]]]]:
        groups: dict[tuple[str, ...], tuple[list[int], list[tuple[LiteralText, ...]]]] = {}
        limit = self.limits.text
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                errors[row] = FilterError("syntax", f"a filter is a text, found {type(text).__name__}")
            elif len(text) > limit:
                errors[row] = FilterError("limit", f"{len(text)} characters, at most {limit}; split the filter", text=text)
            else:
                skeleton, literals = cut_text(text)
                group = groups.get(skeleton)
                if group is None:
                    group = groups[skeleton] = ([], [])
                group[0].append(row)
                group[1].append(literals)
        return [(skeleton, rows, literals) for skeleton, (rows, literals) in groups.items()]

    def _prepare(
        self,
        skeleton: tuple[str, ...],
        rows: list[int],
        literals: list[tuple[LiteralText, ...]],
        texts: list[str],
        pool: StringPool,
        errors: dict[int, FilterError],
    ) -> Iterable[Group]:
        """Variants of one skeleton, checked, normalised and placed."""
        columns = list(zip(*literals, strict=True))
        arithmetic = _has_arithmetic(skeleton)
        kinds = [[self._kind(t, arithmetic) for t in column] for column in columns]
        for kind, members in _split(kinds, len(rows)):
            variant = self._variants(skeleton, kind)
            if isinstance(variant, FilterError):
                for m in members:
                    errors[rows[m]] = self._relocated(variant, texts[rows[m]], skeleton, kind)
                continue
            slots = _like_slots(variant.node)
            forms = [[_form(columns[s][m]) for m in members] for s in slots]
            for form, some in _split(forms, len(members)):
                node = _with_forms(variant.node, form)
                chosen = [members[m] for m in some]
                group = self._group(node, variant.shape, columns, chosen, rows, texts, errors)
                if group is not None:
                    for test in {t for c in group.clauses for v in c.values for t in v.tests}:
                        group.placed[test] = place(test, group.literals, self.schema, pool)
                    yield group

    def _group(
        self,
        node: Node,
        shape: Shape,
        columns: list[tuple[LiteralText, ...]],
        members: list[int],
        rows: list[int],
        texts: list[str],
        errors: dict[int, FilterError],
    ) -> Group | None:
        literals = _literals(columns, members)
        try:
            self._check_literals(node, literals)
        except LiteralFault:
            good = []
            for m in members:
                try:
                    self._check_literals(node, _literals(columns, [m]))
                    good.append(m)
                except LiteralFault as fault:
                    text, span = texts[rows[m]], shape.spans[fault.slot]
                    start, end = locate(text, shape, *span)
                    errors[rows[m]] = FilterError(fault.reason, str(fault), text=text, start=start, end=end)
            if not good:
                return None
            members, literals = good, _literals(columns, good)
        clauses = self._normal(node, self.limits.clauses)
        return Group(np.array([rows[m] for m in members], np.int64), clauses, literals, {})

    def _check_literals(self, node: Node, literals: Literals) -> None:
        check_literals(node, literals, self.limits.pattern, self.limits.values)

    # -- shapes ---------------------------------------------------------------------------------------------------

    def _kind(self, literal: LiteralText, arithmetic: bool) -> SlotKind | str:
        """Kind of a literal; a text is the reason why it has none."""
        if isinstance(literal, tuple):
            kinds = {self._kind(t, arithmetic) for t in literal}
            if len(kinds) == 1:
                return kinds.pop()
            wrong = [k for k in kinds if isinstance(k, str)]
            types = [k.type for k in kinds if isinstance(k, SlotKind)]
            if wrong or Type.STRING in types:
                return wrong[0] if wrong else "strings and numbers in one list; give all values one type"
            return SlotKind(max(types, key=NUMBERS.index))
        if literal[0] == "'":
            return _STRING_SLOT
        if not arithmetic and len(literal) < 19:  # the common cases, without a regular expression
            if literal.isdigit():
                return _BIGINT_SLOT
            if literal.replace(".", "", 1).isdigit():
                return _DECIMAL_SLOT
        try:
            kind, digits = number_type(literal)
        except ValueError as error:
            return str(error)
        if arithmetic:
            return SlotKind(kind, digits)
        return SlotKind(Type.BIGINT if kind is Type.INT else kind)

    def _parse(self, skeleton: tuple[str, ...], strings: tuple[bool, ...]) -> tuple[Shape, Parsed | FilterError]:
        shape = shape_of(skeleton, strings)
        try:
            return shape, parse_shape(shape, self.limits)
        except FilterError as error:
            return shape, error

    def _check(self, skeleton: tuple[str, ...], kinds: tuple[SlotKind | str, ...]) -> _Variant | FilterError:
        strings = tuple(k == _STRING_SLOT for k in kinds)
        shape, parsed = self._parsed(skeleton, strings)
        if isinstance(parsed, FilterError):
            return parsed
        for slot, kind in enumerate(kinds):
            if isinstance(kind, str):
                start, end = shape.spans[slot]
                return FilterError("literal", kind, text=shape.text, start=start, end=end)
        slots = tuple(k for k in kinds if isinstance(k, SlotKind))
        try:
            checker = Checker(self.schema, slots, parsed.operands, shape.text, self.limits)
            return _Variant(shape, checker.condition(parsed.tree))
        except FilterError as error:
            return error

    def _relocated(self, error: FilterError, text: str, skeleton: tuple[str, ...], kinds: tuple[object, ...]) -> FilterError:
        shape, _ = self._parsed(skeleton, tuple(k == _STRING_SLOT for k in kinds))
        start, end = locate(text, shape, error.start, error.end)
        return FilterError(error.reason, error.message, text=text, start=start, end=end)


_STRING_SLOT, _BIGINT_SLOT, _DECIMAL_SLOT = SlotKind(Type.STRING), SlotKind(Type.BIGINT), SlotKind(Type.DECIMAL)


def _has_arithmetic(skeleton: tuple[str, ...]) -> bool:
    return any(c in part for part in skeleton for c in "+-*/%") or any("abs" in part.lower() for part in skeleton)


def _split(columns: list[list[object]], n: int) -> Iterable[tuple[tuple[object, ...], list[int]]]:  # type: ignore[misc]
    """Rows grouped by their tuple of values; one group without a look at the rows when every column is constant."""
    first = tuple(column[0] for column in columns)
    if all(column.count(value) == n for column, value in zip(columns, first, strict=True)):
        return [(first, list(range(n)))]
    groups: dict[tuple[object, ...], list[int]] = {}
    for row, key in enumerate(zip(*columns, strict=True)):
        groups.setdefault(key, []).append(row)
    return groups.items()


def _literals(columns: list[tuple[LiteralText, ...]], members: list[int]) -> Literals:
    if columns and len(members) == len(columns[0]):
        return Literals(columns, len(members))
    return Literals([[column[m] for m in members] for column in columns], len(members))


def _like_slots(node: Node) -> list[int]:
    """Slots of plain LIKE patterns on an attribute: what they amount to depends on the literal."""
    return sorted({n.pattern.slot for n in node.walk() if isinstance(n, Like) and n.kind == "like" and isinstance(n.item, Attr)})


def _form(literal: LiteralText) -> str:
    try:
        return like_form(unquote(literal))[0] if isinstance(literal, str) and is_string(literal) else "general"
    except ValueError:
        return "general"  # the pattern is refused when the literals are checked


def _with_forms(node: Node, forms: tuple[object, ...]) -> Node:
    by_slot = dict(zip(_like_slots(node), forms, strict=True))
    return _replace_likes(node, by_slot) if by_slot else node


def _replace_likes(node: Node, forms: dict[int, object]) -> Node:
    if isinstance(node, Like) and node.kind == "like" and isinstance(node.item, Attr):
        return replace(node, form=str(forms[node.pattern.slot]))
    if isinstance(node, (And, Or)):
        return replace(node, items=tuple(_replace_likes(i, forms) for i in node.items))
    if isinstance(node, (Not, IsTruth)):
        return replace(node, item=_replace_likes(node.item, forms))
    return node
