"""Compiled filters: clauses in value space, as flat arrays.

This is what registering produces and what an index is built from. A row is one interval of *positions* of an attribute:
the sortable key of a number, date or boolean (see `values`), and `4 * rank + side` for a string, where `rank` is the
place of the string in `strings` and `side` says before it (0), at it (1) or after it (2). `null` rows stand for NULL
itself. As in `Boxes`, all rows of a constraint but the last carry `~attr`.

Each filter has a digest of its canonical form: equal digests mean equal filters, whatever their spelling.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.language.expression import Param, Type
from wherecast.language.normalize import Rest

BEFORE, AT, AFTER = 0, 1, 2

#: Columns of literals: scalars by their Param, IN lists (as sets of keys) by (Param, common type).
LiteralColumns = dict[Param | tuple[Param, Type], npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Program:
    """The residuals of one clause shape, with the literals of every clause that has it, as columns."""

    rests: tuple[Rest, ...]
    columns: LiteralColumns = field(hash=False, compare=False)
    length: int = field(hash=False, compare=False)  # rows of the columns (there may be no column)


class Filters(NamedTuple):
    """`n` compiled filters. Clause and row arrays are in filter order."""

    clause_ptr: npt.NDArray[np.int64]  # (n + 1,) clauses of filter f; none: it never matches
    row_ptr: npt.NDArray[np.int64]  # (clauses + 1,)
    attr: npt.NDArray[np.int16]  # (rows,)
    null: npt.NDArray[np.bool_]  # (rows,) the row is NULL, its lo and hi are 0
    lo: npt.NDArray[np.int64]  # (rows,) KEY_MIN: open to the left
    hi: npt.NDArray[np.int64]  # (rows,) KEY_MAX: open to the right
    program: npt.NDArray[np.int32]  # (clauses,) -1: no residual
    program_row: npt.NDArray[np.int32]  # (clauses,) row in the program's columns
    strings: list[str]  # sorted, distinct
    programs: list[Program]
    digests: list[bytes]  # 16 bytes each

    @property
    def n_filters(self) -> int:
        return int(self.clause_ptr.size - 1)
