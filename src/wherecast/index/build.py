"""Building an index: compiled filters to boxes, codebook and residuals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wherecast.index.boxes import Boxes
from wherecast.index.codes import Codebook, build_codes
from wherecast.index.residuals import Residuals
from wherecast.language.filters import Filters
from wherecast.language.schema import Schema


class Index(NamedTuple):
    """Filters in code space, with what it takes to bring events there and to finish what boxes cannot say."""

    codebook: Codebook
    boxes: Boxes
    residuals: Residuals


def build_index(filters: Filters, schema: Schema) -> Index:
    codebook, lo, hi = build_codes(filters, schema)
    owner = np.repeat(np.arange(filters.n_filters, dtype=np.int32), np.diff(filters.clause_ptr))
    with_rest = np.flatnonzero(filters.program >= 0)
    residual_of = np.full(owner.size, -1, np.int32)
    residual_of[with_rest] = np.arange(with_rest.size)
    # NULL rows were given code 0 for both ends; a NULL next to the lowest cell could join it, but a row is cheap.
    boxes = Boxes(owner, filters.row_ptr, filters.attr, lo, hi, residual_of, filters.n_filters, codebook.widths)
    return Index(
        codebook, boxes, Residuals(filters.programs, filters.program[with_rest], filters.program_row[with_rest])
    )
