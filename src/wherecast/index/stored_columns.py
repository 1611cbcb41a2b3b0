"""Columns that are made of an attribute's stored values, coded for a whole batch in one kernel call (see `kernels.stored_columns`).

These are columns of 64-bit numbers and moments and of texts. A text attribute has up to three: its value, the literals in it, and the literals in it in
lower case. Other columns are left to `Codebook`, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from wherecast.index.keys import KeyCodes
from wherecast.index.literals import LiteralCodes
from wherecast.index.stored import find_values
from wherecast.index.strings import StringCodes
from wherecast.index.text_columns import laid_out
from wherecast.kernels.arrays import Bools, Ints, Longs
from wherecast.kernels.codes import write_sets
from wherecast.kernels.jit import direct
from wherecast.kernels.stored_columns import DOUBLES, JOB_WORDS, LITERALS, LONGS, LOWER, ROOM_WORDS, VALUE, code_columns
from wherecast.language.events.arrow import canonical_type
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.columns import Reading

_OF_TEXTS = {Reading.VALUE: VALUE, Reading.LITERALS: LITERALS, Reading.LOWER_LITERALS: LOWER}
#: Lists per event, and codes in them, that are expected at most; more are found too, at the price of a copy.
_LISTS_PER_EVENT, _CODES_PER_EVENT = 8, 64
#: Canonical types of 64 bits, which have keys.
_OF_KEYS = {pa.float64().id: DOUBLES, pa.int64().id: LONGS, pa.timestamp("us").id: LONGS}
_ALL = np.zeros(0, np.bool_)
_NOTHING = np.zeros(0, np.uint8), _ALL
_FIRST, _NO_CODES = np.zeros(1, np.int64), np.zeros(0, np.int32)
_NO_LISTS = np.zeros(2, np.int64), _NO_CODES


class ListWriter:
    """Collects the lists of events (see `EventCodes`), column after column."""

    def __init__(self) -> None:
        self._ptr: list[Longs] = [_FIRST]
        self._codes: list[Ints] = []
        self.n_lists, self._n_codes = 0, 0

    def add(self, ptr: Longs, codes: Ints) -> None:
        """More lists: list i of them is codes[ptr[i]:ptr[i + 1]]."""
        if ptr.size > 1:
            self._codes.append(codes[: ptr[-1]])
            self._ptr.append(ptr[1:] + self._n_codes)
            self.n_lists, self._n_codes = self.n_lists + ptr.size - 1, self._n_codes + int(ptr[-1])

    def write(self, ptr: Longs, codes: Ints, out: Ints) -> None:
        """The sets of a column, set after set; what each event has there goes to `out`."""
        count = write_sets(ptr, codes, self.n_lists, out)
        self.add(ptr[: count + 1], codes)

    def joined(self) -> tuple[Longs, Ints]:
        """Where each list begins, and their codes."""
        if not self._codes:
            return _FIRST, _NO_CODES
        return np.concatenate(self._ptr), np.concatenate(self._codes)


class StoredColumns:
    """The columns of an index that are made of stored values."""

    def __init__(self, schema: Schema, codes: Sequence[object], first_expression: int) -> None:
        self._schema = schema
        self._codes = codes
        own = schema.columns[: min(len(codes), first_expression)]
        kinds = {n: _kind_of(schema, n, codes[n]) for n in range(len(own))}
        self._of_job = sorted((own[n].attr, n, kind) for n, kind in kinds.items() if kind is not None)
        self._attributes = sorted({attr for attr, _, _ in self._of_job})
        self.columns = frozenset(n for _, n, _ in self._of_job)
        self._jobs_behind: dict[int, Longs] = {}  # with that of a column first
        self._most_literals = max((c.width for c in codes if isinstance(c, LiteralCodes)), default=0)

    @cached_property
    def _jobs(self) -> Longs:
        """What the kernel has to do, in the order of attributes."""
        jobs = np.zeros((len(self._of_job), JOB_WORDS), np.int64)
        for job, (attr, number, kind) in zip(jobs, self._of_job, strict=True):
            own = self._codes[number]
            assert isinstance(own, LiteralCodes | StringCodes | KeyCodes)
            facts = own.job(fold=kind == LOWER) if isinstance(own, LiteralCodes) else own.job()
            job[: 3 + len(facts)] = attr, number, kind, *facts
        return jobs

    def encode(self, events: EventBatch, out: Ints, known: Collection[int], lists: ListWriter) -> None:
        """Write the codes of the columns to out[event, column], which is 0; not those of columns that are `known`."""
        jobs = self._jobs
        for number in known:
            jobs = jobs[jobs[:, 1] != number]
        self._run(events, jobs, _ALL, _ALL, out, lists)

    def encode_behind(self, events: EventBatch, gate: int, is_open: Bools, out: Ints, lists: ListWriter) -> Bools:
        """As `encode`, but events whose code in a column of values is not open have no codes in the others. Which events are open."""
        wanted = np.empty(len(events), np.bool_)
        self._run(events, self._behind(gate), is_open, wanted, out, lists)
        return wanted

    def _behind(self, gate: int) -> Longs:
        """The jobs, that of a column first."""
        jobs = self._jobs_behind.get(gate)
        if jobs is None:
            jobs = self._jobs_behind[gate] = self._jobs[np.argsort(self._jobs[:, 1] != gate, kind="stable")]
        return jobs

    def jobs_of_values(self, gate: int | None) -> tuple[list[int], Longs] | None:
        """The attributes that are read and the jobs, that of a gate first; None if some give sets of codes."""
        if self._most_literals:
            return None
        return self._attributes, self._jobs if gate is None else self._behind(gate)

    def _run(
        self, events: EventBatch, jobs: Longs, is_open: Bools, wanted: Bools, out: Ints, lists: ListWriter
    ) -> None:
        n, run = len(events), _code_columns()
        attributes = self._attributes if len(jobs) == len(self._jobs) else set(jobs[:, 0].tolist())
        given: tuple[Any, ...] = find_values(events, attributes), jobs, is_open, wanted
        rows, room = np.empty(n, np.int32), np.empty(ROOM_WORDS, np.uint64)
        if not self._most_literals:
            run(*given, np.zeros(3, np.int64), rows, room, *_NOTHING, out, 0, *_NO_LISTS)
            return
        done, given_up = np.array([0, 0, lists.n_lists]), np.zeros(len(jobs), bool)
        given = *given, done, rows, room, np.zeros(self._most_literals, np.uint8), given_up
        ptr, codes = np.zeros(_LISTS_PER_EVENT * n + 2, np.int64), np.empty(_CODES_PER_EVENT * n + 2, np.int32)
        while not run(*given, out, lists.n_lists, ptr, codes):
            ptr, codes = np.concatenate((ptr, np.zeros_like(ptr))), np.concatenate((codes, np.empty_like(codes)))
        lists.add(ptr[: done[2] - lists.n_lists + 1], codes)
        for number in jobs[given_up, 1].tolist():
            own = self._codes[number]
            assert isinstance(own, LiteralCodes)
            folded, fold = laid_out(events, self._schema.columns[number].attr, lower=True)
            column = np.empty(n, np.int32)
            lists.write(*own.encode_texts(folded, fold=fold), column)
            out[:, number] = column


def _kind_of(schema: Schema, number: int, codes: object) -> int | None:
    """How a column is coded from stored values; None if it is not."""
    column, attribute = schema.columns[number], schema.attributes[schema.columns[number].attr]
    if isinstance(codes, StringCodes | LiteralCodes):
        return None if attribute.is_array or attribute.value is not None else _OF_TEXTS.get(column.reading)
    if not isinstance(codes, KeyCodes) or schema.is_set(number) or column.reading is not Reading.VALUE:
        return None
    return _OF_KEYS.get(canonical_type(attribute).id)


@cache
def _code_columns() -> Callable[..., Any]:
    table, flags, codes = np.zeros((1, 1), np.int64), np.zeros(0, np.bool_), np.zeros((1, 1), np.int32)
    examples = (
        table,
        table,
        flags,
        flags,
        table[0],
        codes[0],
        np.zeros(0, np.uint64),
        np.zeros(0, np.uint8),
        flags,
        codes,
        0,
    )
    return direct(code_columns, *examples, table[0], codes[0])
