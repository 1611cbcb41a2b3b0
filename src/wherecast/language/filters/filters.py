"""Compiled filters: clauses in value space, as flat arrays.

This is what registering produces and what an index is built from. A row is one interval of *positions* of an attribute:
the sortable key of a number, date or boolean (see `keys`), and `4 * rank + side` for a string, where `rank` is the
place of the string in `strings` and `side` says before it (0), at it (1) or after it (2). `null` rows stand for NULL
itself. As in `Boxes`, all rows of a constraint but the last carry `~attr`.

Each filter has a digest of its canonical form: equal digests mean equal filters, whatever their spelling.

`take_filters` chooses from a batch, `concat_filters` joins batches into one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bools, Longs
from wherecast.language.events.keys import KEY_MAX, KEY_MIN
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import Type
from wherecast.language.expression import Param
from wherecast.language.filters.normalize import Residual
from wherecast.language.sequences import take_ranges

BEFORE, AT, AFTER = 0, 1, 2

#: Literals of many clauses, one row each: scalars by their Param, IN lists (as sets of keys) by (Param, common type).
LiteralValues = dict[Param | tuple[Param, Type], npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Program:
    """The residuals of one clause shape, with the literals of every clause that has it, one row each."""

    residuals: tuple[Residual, ...]
    literals: LiteralValues = field(hash=False, compare=False)
    length: int = field(hash=False, compare=False)  # rows of the literals (there may be none)


class Filters(NamedTuple):
    """`n` compiled filters. Clause and row arrays are in filter order."""

    clause_ptr: npt.NDArray[np.int64]  # (n + 1,) clauses of filter f; none: it never matches
    row_ptr: npt.NDArray[np.int64]  # (clauses + 1,)
    attr: npt.NDArray[np.int16]  # (rows,)
    null: npt.NDArray[np.bool_]  # (rows,) the row is NULL, its lo and hi are 0
    lo: npt.NDArray[np.int64]  # (rows,) KEY_MIN: open to the left
    hi: npt.NDArray[np.int64]  # (rows,) KEY_MAX: open to the right
    program: npt.NDArray[np.int32]  # (clauses,) -1: no residual
    program_row: npt.NDArray[np.int32]  # (clauses,) row in the program's literals
    strings: list[str]  # sorted, distinct
    programs: list[Program]
    digests: bytes  # 16 for each filter; none: not computed

    @property
    def n_filters(self) -> int:
        return int(self.clause_ptr.size - 1)

    def clauses_of(self, number: int) -> range:
        """The clauses of one filter."""
        return range(int(self.clause_ptr[number]), int(self.clause_ptr[number + 1]))

    def digest(self, number: int) -> bytes:
        """The digest of one filter."""
        return self.digests[16 * number : 16 * number + 16]

    def each_digest(self) -> list[bytes]:
        """The digests of all filters, one by one."""
        return [self.digest(number) for number in range(len(self.digests) // 16)]


# -- choosing and joining ----------------------------------------------------------------------------------------------


def take_filters(filters: Filters, chosen: Longs) -> Filters:
    """Some filters of a batch; strings and programs stay as they are."""
    clauses, clause_ptr = take_ranges(filters.clause_ptr, chosen)
    rows, row_ptr = take_ranges(filters.row_ptr, clauses)
    return Filters(
        clause_ptr,
        row_ptr,
        filters.attr[rows],
        filters.null[rows],
        filters.lo[rows],
        filters.hi[rows],
        filters.program[clauses],
        filters.program_row[clauses],
        filters.strings,
        filters.programs,
        np.frombuffer(filters.digests, "V16")[chosen].tobytes() if filters.digests else b"",
    )


def concat_filters(parts: Sequence[Filters], schema: Schema) -> Filters:
    """All filters of several batches as one: strings ranked anew, equal programs united.

    Work is done on the concatenated arrays, not part by part, so that a thousand batches of one filter join quickly.
    """
    if len(parts) == 1 and len({p.residuals for p in parts[0].programs}) == len(parts[0].programs):
        return parts[0]
    attr = np.concatenate([np.zeros(0, np.int16), *(p.attr for p in parts)])
    null = np.concatenate([np.zeros(0, bool), *(p.null for p in parts)])
    lo = np.concatenate([np.zeros(0, np.int64), *(p.lo for p in parts)])
    hi = np.concatenate([np.zeros(0, np.int64), *(p.hi for p in parts)])
    strings, ranks = _rank_strings(parts)
    offsets = np.repeat(np.cumsum([0, *(len(p.strings) for p in parts)])[:-1], [p.attr.size for p in parts])
    text = np.array(schema.are_texts)[np.where(attr < 0, ~attr, attr)] & ~null
    _move_ranks(text, lo, hi, ranks, offsets)
    programs, program, program_row = _unite_programs(parts)
    return Filters(
        _join_ptrs([p.clause_ptr for p in parts]),
        _join_ptrs([p.row_ptr for p in parts]),
        attr, null, lo, hi,
        program, program_row,
        strings,
        programs,
        b"".join([p.digests for p in parts]),
    )  # fmt: skip


def rank_anew(filters: Filters, schema: Schema, strings: list[str], ranks: Longs) -> Filters:
    """The same filters with more strings: `ranks` has the place of each string of theirs among `strings`."""
    lo, hi = filters.lo.copy(), filters.hi.copy()
    text = np.array(schema.are_texts)[np.where(filters.attr < 0, ~filters.attr, filters.attr)] & ~filters.null
    _move_ranks(text, lo, hi, ranks, np.zeros(lo.size, np.int64))
    return filters._replace(strings=strings, lo=lo, hi=hi)


def _move_ranks(text: Bools, lo: Longs, hi: Longs, ranks: Longs, offsets: Longs) -> None:
    """Give the ends of text rows, in place, the ranks that their strings have now; those of a row begin at its offset."""
    for ends, open_end in ((lo, KEY_MIN), (hi, KEY_MAX)):
        bounded = text & (ends != open_end)
        ends[bounded] = 4 * ranks[offsets[bounded] + (ends[bounded] >> 2)] + (ends[bounded] & 3)


def _rank_strings(parts: Sequence[Filters]) -> tuple[list[str], Longs]:
    """All strings in order, and the rank of each string of each part, part after part."""
    if len(parts) == 1:
        return parts[0].strings, np.arange(len(parts[0].strings))
    strings = sorted({s for p in parts for s in p.strings})
    rank = {s: i for i, s in enumerate(strings)}
    return strings, np.fromiter((rank[s] for p in parts for s in p.strings), np.int64)


def _unite_programs(
    parts: Sequence[Filters],
) -> tuple[list[Program], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    literals: dict[tuple[Residual, ...], list[LiteralValues]] = {}
    lengths: dict[tuple[Residual, ...], int] = {}
    number: dict[tuple[Residual, ...], int] = {}
    program = [np.zeros(0, np.int32)]
    program_row = [np.zeros(0, np.int32)]
    for part in parts:
        row = part.program_row.copy()
        known = np.full(len(part.programs) + 1, -1, np.int32)  # the last entry serves -1, "no residual"
        for local, found in enumerate(part.programs):
            known[local] = number.setdefault(found.residuals, len(number))
            row[part.program == local] += lengths.get(found.residuals, 0)
            lengths[found.residuals] = lengths.get(found.residuals, 0) + found.length
            literals.setdefault(found.residuals, []).append(found.literals)
        program.append(known[part.program])
        program_row.append(row)
    united = [
        Program(residuals, {key: np.concatenate([c[key] for c in found]) for key in found[0]}, lengths[residuals])
        for residuals, found in literals.items()
    ]
    return united, np.concatenate(program), np.concatenate(program_row)


def _join_ptrs(ptrs: Sequence[Longs]) -> Longs:
    sizes = np.concatenate([np.zeros(1, np.int64), *(np.diff(p) for p in ptrs)])
    return np.cumsum(sizes)
