"""Compiled filters to boxes, codebook and residuals, and back.

Code space loses nothing but the spelling: every end of an interval is an end of a cell, and the codebook knows which key
or string that is. So an index keeps boxes only, packed, and the value-space form is made again when segments are merged or
a filter is explained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wherecast.index.boxes import FAR, FIRST_CODE, NULL_CODE, Boxes
from wherecast.index.codes import Codebook, build_codes
from wherecast.index.expressions import promote
from wherecast.index.keys import KeyCodes
from wherecast.index.literals import LiteralCodes
from wherecast.index.packed import PackedBoxes, pack_boxes, pack_numbered, unpack_clauses
from wherecast.index.residuals import Residuals
from wherecast.index.strings import StringCodes
from wherecast.index.text_tests import literals_of_tests
from wherecast.index.topics import TopicCodes
from wherecast.index.words import WordCodes
from wherecast.kernels.arrays import Bools, Floats, Ints, Longs
from wherecast.kernels.automaton import FIRST_LITERAL
from wherecast.language.events.keys import KEY_MAX, KEY_MIN
from wherecast.language.events.schema import Schema
from wherecast.language.filters.filters import AFTER, AT, BEFORE, Filters
from wherecast.language.filters.numbered import AnyFilters, NumberedFilters
from wherecast.language.sequences import distinct
from wherecast.language.syntax.limits import DEFAULT_LIMITS, Limits


class CodedFilters(NamedTuple):
    """Filters in code space, with what it takes to bring events there and to finish what boxes cannot say."""

    codebook: Codebook
    boxes: Boxes
    residuals: Residuals


class IndexedFilters(NamedTuple):
    """As `CodedFilters`, the boxes packed."""

    codebook: Codebook
    boxes: PackedBoxes
    residuals: Residuals


def index_filters(filters: AnyFilters, schema: Schema, limits: Limits = DEFAULT_LIMITS) -> IndexedFilters:
    """Filters in code space. Codes follow from the distinct constraints, so each is coded once where they are numbered."""
    if isinstance(filters, NumberedFilters):
        codebook, boxes, residuals = code_filters(filters.table, schema, limits)
        return IndexedFilters(codebook, pack_numbered(filters, boxes), residuals)
    codebook, boxes, residuals = code_filters(filters, schema, limits)
    return IndexedFilters(codebook, pack_boxes(boxes), residuals)


def code_filters(filters: Filters, schema: Schema, limits: Limits = DEFAULT_LIMITS) -> CodedFilters:
    filters, expressions, is_settled = promote(filters, schema)
    codebook, lo, hi = build_codes(
        filters, schema, expressions, limits.regex_bytes, _tested_literals(filters, schema, is_settled)
    )
    owner = np.repeat(np.arange(filters.n_filters, dtype=np.int32), np.diff(filters.clause_ptr))
    with_residual = np.flatnonzero(filters.program >= 0)
    residual_of = np.full(owner.size, -1, np.int32)
    residual_of[with_residual] = np.arange(with_residual.size)
    # NULL rows were given code 0 for both ends; a NULL next to the lowest cell could join it, but a row is cheap.
    boxes = Boxes(owner, filters.row_ptr, filters.attr, lo, hi, residual_of, filters.n_filters, codebook.widths)
    residuals = Residuals(
        filters.programs,
        filters.program[with_residual],
        filters.program_row[with_residual],
        is_settled[with_residual],
        codebook,
    )
    return CodedFilters(codebook, boxes, residuals)


#: A column of literals that only residuals ask for is worth its search if so many of them are expected to ask for each event.
_ASKED_BY = 4.0


def _tested_literals(filters: Filters, schema: Schema, is_settled: Bools) -> Mapping[int, set[str]]:
    """The literals of residuals that columns of literals are to find, too (see `text_tests`), by column."""
    chosen = np.flatnonzero((filters.program >= 0) & ~is_settled)
    found = literals_of_tests(filters, schema, chosen) if chosen.size else []
    if not found:
        return {}
    searched = set(np.flatnonzero(np.bincount(np.where(filters.attr < 0, ~filters.attr, filters.attr))).tolist())
    others = [(column, clauses) for column, clauses, _ in found if column not in searched]
    if others:
        asked: Counter[int] = Counter()
        share = _shares(filters)
        for column, clauses in others:
            asked[column] += float(share[clauses].sum())  # type: ignore[assignment]
        searched |= {column for column, expected in asked.items() if expected >= _ASKED_BY}
    wanted: dict[int, set[str]] = {}
    for column, _, literals in found:
        if column in searched:
            wanted.setdefault(column, set()).update(literals)
    return wanted


def _shares(filters: Filters) -> Floats:
    """A guess at the share of events that are in the box of each clause: if it asks for values, one in as many as its column's filters name."""
    column = np.where(filters.attr < 0, ~filters.attr, filters.attr)
    is_bounded = ~filters.null & ((filters.lo != KEY_MIN) | (filters.hi != KEY_MAX))
    mixed = (filters.lo[is_bounded] * 31 + filters.hi[is_bounded]) & 0xFFFF_FFFF_FFFF  # two alike do no harm
    asked = distinct(column[is_bounded].astype(np.int64) << 48 | mixed) >> 48
    named = np.maximum(np.bincount(asked, minlength=int(column.max(initial=0)) + 1), 1)
    by_row = np.concatenate((np.where(is_bounded, 1.0 / named[column], 1.0), [1.0]))
    share = np.minimum.reduceat(by_row, filters.row_ptr[:-1]) if filters.row_ptr.size > 1 else np.zeros(0)
    share[np.diff(filters.row_ptr) == 0] = 1.0
    return share


class _StringEnds(NamedTuple):
    """Rows of a column of texts and their ends, in terms of the column's own constants."""

    codes: StringCodes | LiteralCodes | TopicCodes | WordCodes
    rows: Longs
    lo: Longs
    hi: Longs


def restore_filters(
    codebook: Codebook, packed: PackedBoxes, residuals: Residuals, chosen: Longs | None = None
) -> Filters:
    """The filters of an index (or the chosen ones) as they were compiled, without digests.

    The cost follows what is chosen: one filter of a million is restored at once.
    """
    wanted = np.arange(packed.n_filters) if chosen is None else chosen
    clauses, clause_ptr = _clauses_of(packed, wanted)
    boxes = _without_expressions(unpack_clauses(packed, clauses), codebook.first_expression)
    null = (boxes.lo == NULL_CODE) & (boxes.hi == NULL_CODE)
    lo, hi = np.zeros(boxes.attr.size, np.int64), np.zeros(boxes.attr.size, np.int64)
    column = np.where(boxes.attr < 0, ~boxes.attr, boxes.attr)
    texts = []
    for a in [number for number in codebook.used if codebook.expression(number) is None]:
        here = np.flatnonzero((column == a) & ~null)
        codes, low, high = codebook.codes[a], boxes.lo[here], boxes.hi[here]
        if isinstance(codes, KeyCodes):
            lo[here], hi[here] = _key_ends(codes.starts, low, high)
        elif isinstance(codes, StringCodes):
            texts.append(_StringEnds(codes, here, *_string_ends(codes, low, high)))
        elif isinstance(codes, LiteralCodes | TopicCodes | WordCodes):
            at = 4 * (low.astype(np.int64) - FIRST_LITERAL) + AT
            texts.append(_StringEnds(codes, here, at, at))
    strings = _rank_strings(texts, lo, hi)
    program = np.where(boxes.residuals >= 0, _take(residuals.program, boxes.residuals), -1).astype(np.int32)
    program_row = np.where(boxes.residuals >= 0, _take(residuals.rows, boxes.residuals), 0).astype(np.int32)
    return Filters(
        clause_ptr, boxes.ptr, boxes.attr, null, lo, hi, program, program_row, strings, residuals.programs, b"",
    )  # fmt: skip


def _without_expressions(boxes: Boxes, columns: int) -> Boxes:
    """The boxes as filters have them: what expression columns say stands in the residuals too."""
    own = np.where(boxes.attr < 0, ~boxes.attr, boxes.attr) < columns
    if own.all():
        return boxes
    ptr = np.concatenate(([0], np.cumsum(own)))[boxes.ptr]
    return boxes._replace(ptr=ptr, attr=boxes.attr[own], lo=boxes.lo[own], hi=boxes.hi[own])


def _clauses_of(packed: PackedBoxes, wanted: Longs) -> tuple[Longs, Longs]:
    """The clauses of some filters, filter by filter, and where those of each begin."""
    if not packed.filter_ids.size and packed.n_clauses:
        return wanted, np.arange(wanted.size + 1)
    first = np.searchsorted(packed.filter_ids, wanted)
    sizes = np.searchsorted(packed.filter_ids, wanted, "right") - first
    ptr = np.concatenate(([0], np.cumsum(sizes)))
    return np.repeat(first - ptr[:-1], sizes) + np.arange(ptr[-1]), ptr


def _take(values: Ints, places: Ints) -> Ints:
    return values[np.maximum(places, 0)] if values.size else np.zeros(places.size, np.int32)


def _key_ends(starts: Longs, low: Ints, high: Ints) -> tuple[Longs, Longs]:
    """Cell c begins at starts[c - 2] and ends before starts[c - 1]."""
    if not starts.size:
        return np.full(low.size, KEY_MIN, np.int64), np.full(high.size, KEY_MAX, np.int64)
    lo = np.where(low == FIRST_CODE, KEY_MIN, starts[np.maximum(low - 2, 0)])
    hi = np.where(high == FAR, KEY_MAX, starts[np.minimum(high - 1, starts.size - 1)] - 1)
    return lo, hi


def _string_ends(codes: StringCodes, low: Ints, high: Ints) -> tuple[Longs, Longs]:
    """Positions in terms of the attribute's own constants.

    A gap as a lower end is "after" the string below it, as an upper end "before" the string above it.
    """
    last = int(codes.offsets.size) - 2
    low, high = low.astype(np.int64), high.astype(np.int64)
    point = low % 2 == 0
    below = np.clip(np.where(point, low // 2 - 1, (low - 3) // 2), 0, last)
    lo = np.where(low == FIRST_CODE, KEY_MIN, 4 * below + np.where(point, AT, AFTER))
    point = high % 2 == 0
    above = np.clip(np.where(point, high // 2 - 1, (high - 1) // 2), 0, last)
    hi = np.where(high == FAR, KEY_MAX, 4 * above + np.where(point, AT, BEFORE))
    return lo, hi


def _rank_strings(ends: Sequence[_StringEnds], lo: Longs, hi: Longs) -> list[str]:
    """The strings at which ends are, of all columns in one order. Writes the ends as positions in that order."""
    used = [distinct(np.concatenate((e.lo[e.lo != KEY_MIN], e.hi[e.hi != KEY_MAX])) >> 2) for e in ends]
    own = [e.codes.strings_at(places) for e, places in zip(ends, used, strict=True)]
    strings = own[0] if len(own) == 1 else sorted({s for found in own for s in found})
    number = {} if len(own) == 1 else {s: i for i, s in enumerate(strings)}
    for end, places, found in zip(ends, used, own, strict=True):
        ranks = np.zeros(end.codes.offsets.size, np.int64)
        ranks[places] = [number[s] for s in found] if number else np.arange(places.size)
        for out, at, is_open in ((lo, end.lo, end.lo == KEY_MIN), (hi, end.hi, end.hi == KEY_MAX)):
            out[end.rows] = np.where(is_open, at, 4 * ranks[np.where(is_open, 0, at >> 2)] + (at & 3))
    return strings
