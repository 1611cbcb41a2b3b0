"""Compiled filters to boxes, codebook and residuals, and back.

Code space loses nothing but the spelling: every end of an interval is an end of a cell, and the codebook knows which key
or string that is. So an index keeps boxes only, packed, and the value-space form is made again when segments are merged or
a filter is explained.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.index.boxes import FAR, FIRST_CODE, NULL_CODE, Boxes
from wherecast.index.codes import Codebook, KeyCodes, build_codes
from wherecast.index.literals import FIRST_LITERAL, LiteralCodes
from wherecast.index.residuals import Residuals
from wherecast.index.strings import StringCodes
from wherecast.kernels.arrays import Longs
from wherecast.language.filters import AFTER, AT, BEFORE, Filters, take_ranges
from wherecast.language.keys import KEY_MAX, KEY_MIN
from wherecast.language.schema import Schema


class CodedFilters(NamedTuple):
    """Filters in code space, with what it takes to bring events there and to finish what boxes cannot say."""

    codebook: Codebook
    boxes: Boxes
    residuals: Residuals


def code_filters(filters: Filters, schema: Schema) -> CodedFilters:
    codebook, lo, hi = build_codes(filters, schema)
    owner = np.repeat(np.arange(filters.n_filters, dtype=np.int32), np.diff(filters.clause_ptr))
    with_residual = np.flatnonzero(filters.program >= 0)
    residual_of = np.full(owner.size, -1, np.int32)
    residual_of[with_residual] = np.arange(with_residual.size)
    # NULL rows were given code 0 for both ends; a NULL next to the lowest cell could join it, but a row is cheap.
    boxes = Boxes(owner, filters.row_ptr, filters.attr, lo, hi, residual_of, filters.n_filters, codebook.widths)
    return CodedFilters(
        codebook, boxes, Residuals(filters.programs, filters.program[with_residual], filters.program_row[with_residual])
    )


def restore_filters(codebook: Codebook, boxes: Boxes, residuals: Residuals, chosen: Longs | None = None) -> Filters:
    """The filters of an index (or the chosen ones) as they were compiled, without digests."""
    clause_ptr = np.searchsorted(boxes.filter_ids, np.arange(boxes.n_filters + 1)).astype(np.int64)
    wanted = np.arange(boxes.n_filters) if chosen is None else chosen
    clauses, clause_ptr = take_ranges(clause_ptr, wanted)
    rows, row_ptr = take_ranges(boxes.ptr, clauses)
    attr, low, high = boxes.attr[rows], boxes.lo[rows], boxes.hi[rows]
    null = (low == NULL_CODE) & (high == NULL_CODE)
    lo, hi = np.zeros(attr.size, np.int64), np.zeros(attr.size, np.int64)
    strings, ranks = _all_strings(codebook)
    column = np.where(attr < 0, ~attr, attr)
    for a in codebook.used:
        here = np.flatnonzero((column == a) & ~null)
        codes = codebook.codes[a]
        if isinstance(codes, KeyCodes):
            lo[here], hi[here] = _key_ends(codes.starts, low[here], high[here])
        elif isinstance(codes, LiteralCodes):
            lo[here] = hi[here] = 4 * ranks[a][low[here] - FIRST_LITERAL] + AT
        else:
            lo[here], hi[here] = _string_ends(ranks[a], low[here], high[here])
    residual = boxes.residuals[clauses]
    program = np.where(residual >= 0, _take(residuals.program, residual), -1).astype(np.int32)
    program_row = np.where(residual >= 0, _take(residuals.rows, residual), 0).astype(np.int32)
    return Filters(
        clause_ptr, row_ptr, attr, null, lo, hi, program, program_row, strings, residuals.programs, [],
    )  # fmt: skip


def _take(values: npt.NDArray[np.int32], places: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    return values[np.maximum(places, 0)] if values.size else np.zeros(places.size, np.int32)


def _key_ends(starts: Longs, low: npt.NDArray[np.int32], high: npt.NDArray[np.int32]) -> tuple[Longs, Longs]:
    """Cell c begins at starts[c - 2] and ends before starts[c - 1]."""
    if not starts.size:
        return np.full(low.size, KEY_MIN, np.int64), np.full(high.size, KEY_MAX, np.int64)
    lo = np.where(low == FIRST_CODE, KEY_MIN, starts[np.maximum(low - 2, 0)])
    hi = np.where(high == FAR, KEY_MAX, starts[np.minimum(high - 1, starts.size - 1)] - 1)
    return lo, hi


def _string_ends(ranks: Longs, low: npt.NDArray[np.int32], high: npt.NDArray[np.int32]) -> tuple[Longs, Longs]:
    """A gap as a lower end is "after" the string below it, as an upper end "before" the string above it."""
    if not ranks.size:
        return np.full(low.size, KEY_MIN, np.int64), np.full(high.size, KEY_MAX, np.int64)
    last = ranks.size - 1
    point = low % 2 == 0
    below = ranks[np.clip(np.where(point, low // 2 - 1, (low - 3) // 2), 0, last)]
    lo = np.where(low == FIRST_CODE, KEY_MIN, 4 * below + np.where(point, AT, AFTER))
    point = high % 2 == 0
    above = ranks[np.clip(np.where(point, high // 2 - 1, (high - 1) // 2), 0, last)]
    hi = np.where(high == FAR, KEY_MAX, 4 * above + np.where(point, AT, BEFORE))
    return lo, hi


def _all_strings(codebook: Codebook) -> tuple[list[str], dict[int, Longs]]:
    """The strings of all columns in one order, and the ranks of each column's own."""
    own = {a: c.strings() for a, c in enumerate(codebook.codes) if isinstance(c, (StringCodes, LiteralCodes))}
    if len(own) == 1:
        (attr, strings), *_ = own.items()
        return strings, {attr: np.arange(len(strings))}
    strings = sorted({s for texts in own.values() for s in texts})
    rank = {s: i for i, s in enumerate(strings)}
    return strings, {a: np.fromiter((rank[s] for s in texts), np.int64, len(texts)) for a, texts in own.items()}
