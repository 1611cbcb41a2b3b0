"""Residuals: what is left of a clause once its box holds, evaluated on candidates only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.index.bounds import Stored
from wherecast.language.literals import ProgramScope
from wherecast.language.evaluate import Column, holds
from wherecast.language.events import EventBatch
from wherecast.language.expression import attributes_of
from wherecast.language.filters import Program
from wherecast.language.schema import Kind
from wherecast.language.work import Overwork, Reads, count_reads, find_overwork

Bools = npt.NDArray[np.bool_]


class Residuals:
    """The residuals of an index: number r is row `program_rows[r]` of program `program[r]`."""

    def __init__(self, programs: list[Program], program: npt.NDArray[np.int32], rows: npt.NDArray[np.int32]) -> None:
        self.programs = programs
        self.program = program
        self.rows = rows
        in_use = [programs[number] for number in np.unique(program).tolist()]  # of dead clauses programs may be left
        self.attributes = {a for p in in_use for r in p.rests for a in attributes_of(r.node)}
        self._reads: dict[int, Reads] = {}  # by program, filled as programs are used

    def find_overwork(
        self,
        events: EventBatch,
        event_ids: npt.NDArray[Any],
        residual_ids: npt.NDArray[Any],
        filter_ids: npt.NDArray[Any],
    ) -> list[Overwork]:
        """The events for which (event, residual) pairs would read more text than the limits of the batch allow."""
        program = self.program[residual_ids]
        reads = {number: self._reads_of(number) for number in np.unique(program).tolist()}
        return find_overwork(events, event_ids, filter_ids, program, reads)

    def _reads_of(self, program: int) -> Reads:
        if program not in self._reads:
            self._reads[program] = count_reads(self.programs[program].rests)
        return self._reads[program]

    def hold(self, events: EventBatch, event_ids: npt.NDArray[Any], residual_ids: npt.NDArray[Any]) -> Bools:
        """Which (event, residual) pairs hold; one vectorised evaluation per program."""
        out = np.zeros(event_ids.size, bool)
        which = self.program[residual_ids]
        columns: dict[int, Column] = {}
        for number in np.unique(which).tolist():
            pairs = np.flatnonzero(which == number)
            rows = event_ids[pairs]

            def attribute(index: int, rows: npt.NDArray[Any] = rows) -> Column:
                if index not in columns:
                    columns[index] = value_column(events, index)
                values, valid = columns[index]
                return Column(values[rows], valid[rows])

            program = self.programs[number]
            scope = ProgramScope(program.columns, self.rows[residual_ids[pairs]], attribute, events.schema.zone)
            truth = np.ones(pairs.size, bool)
            for rest in program.rests:
                truth &= holds(rest.node, rest.truth, scope)
            out[pairs] = truth
        return out


def open_residuals(arrays: Mapping[str, Any], programs: list[Program]) -> Residuals:
    """Residuals out of a file; raises SnapshotError if one is no row of a program."""
    stored = Stored(arrays, "residuals")
    program = stored.column("program", np.int32)
    rows = stored.column("rows", np.int32, size=program.size)
    stored.within(program, 0, len(programs), "program")
    lengths = np.array([p.length for p in programs], np.int64)
    stored.require(((rows >= 0) & (rows < lengths[program])).all(), "rows", "has a row that its program does not have")
    return Residuals(programs, program, rows)


def value_column(events: EventBatch, attr: int) -> Column:
    """An attribute's values as the evaluator wants them."""
    array = events.array(attr)
    attribute = events.schema.attributes[attr]
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    if attribute.is_array:
        return Column(_objects(_plain_lists(array, attribute.kind)), valid)
    if attribute.kind is Kind.STRING:
        return Column(_objects("" if v is None else v for v in array.to_pylist()), valid)
    return Column(_plain_numbers(array, attribute.kind), valid)


def _objects(values: Any) -> npt.NDArray[np.object_]:
    return np.fromiter(values, object)


def _plain_numbers(array: pa.Array, kind: Kind) -> npt.NDArray[Any]:
    """Dates as days, timestamps as microseconds, the rest as it is; NULLs as zero."""
    if kind is Kind.DATE:
        array = array.cast(pa.int32()).cast(pa.int64())
    elif kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ):
        array = array.cast(pa.int64())
    if array.null_count:
        array = array.fill_null(False if kind is Kind.BOOLEAN else 0)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _plain_lists(array: pa.Array, kind: Kind) -> list[list[Any]]:
    if kind is Kind.DATE:
        array = array.cast(pa.list_(pa.int32()))
    elif kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ):
        array = array.cast(pa.list_(pa.int64()))
    return [[] if v is None else v for v in array.to_pylist()]
