"""Residuals: what is left of a clause once its box holds, evaluated on candidates only, within limits.

Theory of operation
-------------------
A residual is evaluated once per candidate event, and each of its text conditions reads a whole value: 300 ILIKEs on a
text of 1 MB read 300 MB. Stopping such an evaluation by the clock would give another answer on another machine, and
another one when a stream replays the event. So the work is computed first: the bytes of each text, times how often
the residual reads it. An event beyond the limits is refused whole, before anything is evaluated for it.

A test that the codes of an event answer (see `text_tests`) reads nothing. Such tests come first, and what they refuse is not
counted.

Almost no batch comes near a limit, and the longest text of each attribute shows that at once. Only a batch that might
exceed one is computed pair by pair.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.index.bounds import StoredArrays
from wherecast.index.boxes import EventCodes
from wherecast.index.codes import Codebook
from wherecast.index.operands import attribute_values, numbering, one_value
from wherecast.index.points import EventPoint
from wherecast.index.similar import EventVectors, event_vectors, hold_similar
from wherecast.index.text_columns import laid_out
from wherecast.index.text_tests import TakenTests, take_tests
from wherecast.kernels.arrays import Bools, Ints, Longs
from wherecast.kernels.jit import direct, frozen, plain
from wherecast.kernels.patterns import ask_tests, hold_codes, settle_codes, settle_tests
from wherecast.language.evaluate import holds
from wherecast.language.events.arrow import is_text
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import Type
from wherecast.language.events.values import Stored
from wherecast.language.events.zone import Zone
from wherecast.language.expression import And, Attr, IsNull, IsTruth, Node, Not, Or, Param, attributes_of
from wherecast.language.filters.filters import Program
from wherecast.language.filters.normalize import Residual
from wherecast.language.filters.similarity import find_similarity
from wherecast.language.functions.row import GrownTextError
from wherecast.language.nullable import Nullable
from wherecast.language.syntax.limits import Limits
from wherecast.language.syntax.literals import ProgramScope


class Residuals:
    """The residuals of an index: number r is row `rows[r]` of program `program[r]`.

    Those that are settled need no evaluation: the boxes of their clauses say the same (see `expressions`).
    """

    def __init__(
        self,
        programs: list[Program],
        program: npt.NDArray[np.int32],
        rows: npt.NDArray[np.int32],
        is_settled: Bools,
        codebook: Codebook | None = None,  # whose codes answer tests; None: texts are searched
    ) -> None:
        self._codebook = codebook
        self.programs = programs
        self.program = program
        self.rows = rows
        self.is_settled = is_settled
        self.is_needed = not bool(is_settled.all())  # whether a candidate may need evaluation; asked for every event
        # Of dead clauses programs may be left.
        in_use = [programs[number] for number in np.unique(program[~is_settled]).tolist()]
        self.attributes = {a for p in in_use for r in p.residuals for a in attributes_of(r.node)}
        self._reads: dict[int, Reads] = {}  # by program, filled as programs are used

    @property
    def nbytes(self) -> int:
        """Memory of the programs: their expressions, about so many bytes per node, and their literals."""
        nodes = sum(1 for p in self.programs for r in p.residuals for _ in r.node.walk())
        literals = sum(_array_bytes(array) for p in self.programs for array in p.literals.values())
        return _NODE_BYTES * nodes + literals + self.program.nbytes + self.rows.nbytes + self.is_settled.nbytes

    def unsettled(self, residual_ids: npt.NDArray[np.int32]) -> Longs:
        """The places of the residuals (-1: none) that have to be evaluated."""
        there = np.flatnonzero(residual_ids >= 0)
        return there[~self.is_settled[residual_ids[there]]]

    def find_overwork(
        self,
        events: EventBatch,
        event_ids: npt.NDArray[Any],
        residual_ids: npt.NDArray[Any],
        filter_ids: npt.NDArray[Any],
        limits: Limits,
    ) -> list[Overwork]:
        """The events for which (event, residual) pairs would read more text than the limits allow."""
        program = self.program[residual_ids]
        reads = {number: self._reads_of(number) for number in np.unique(program).tolist()}
        return find_overwork(events, event_ids, filter_ids, program, reads, limits)

    def _reads_of(self, program: int) -> Reads:
        if program not in self._reads:
            self._reads[program] = count_reads(self._tests.left[program])
        return self._reads[program]

    @cached_property
    def _tests(self) -> TakenTests:
        chosen = np.flatnonzero(~self.is_settled)
        return take_tests(self.programs, self.program, self.rows, chosen, self._codebook)

    def hold_by_codes(
        self, codes: EventCodes, event_ids: npt.NDArray[Any], residual_ids: npt.NDArray[Any]
    ) -> tuple[Bools, Bools]:
        """Of which (event, residual) pairs the tests hold that codes answer, and which of these have something left to evaluate."""
        held = np.empty(event_ids.size, bool)
        given = frozen(codes.codes), frozen(codes.list_ptr), frozen(codes.list_codes)
        hold_codes(plain(self._tests.coded), *given, event_ids, residual_ids, held)
        return held, held & self._tests.is_left[residual_ids]

    def hold(self, events: EventBatch, event_ids: npt.NDArray[Any], residual_ids: npt.NDArray[Any]) -> Bools:
        """Which (event, residual) pairs hold, but for what codes answer: text tests of all programs, then one evaluation per program."""
        tests, rest = self._tests.tests, self._tests.rest
        out = tests.hold(events, event_ids, residual_ids)
        left = np.flatnonzero(out & self._has_rest[self.program[residual_ids]]) if residual_ids.size else residual_ids
        if left.size:
            read = lambda attr: attribute_values(events, attr)  # noqa: E731
            vectors = lambda attr: event_vectors(events, attr)  # noqa: E731
            with numbering(events):
                out[left] = self._hold(read, vectors, events.schema.zone, event_ids[left], residual_ids[left], rest)
        return out

    @cached_property
    def _has_rest(self) -> Bools:
        return np.array([bool(rest) for rest in self._tests.rest], bool)

    def of_clauses(self, residuals: Ints) -> ClauseResiduals:
        """The residuals of clauses (-1: none), for single events."""
        return ClauseResiduals(self, residuals, self._tests, self._has_rest)

    def most_reads(self) -> Longs:
        """By program, how often a residual reads text."""
        return np.array([sum(self._reads_of(n).values()) for n in range(len(self.programs))], np.int64)

    def evaluate_one(self, values: Mapping[int, Stored], schema: Schema, residual_ids: Ints) -> Bools:
        """Whether what text tests leave of some residuals holds for one event, from the values that it has."""

        def read(attr: int) -> Nullable:
            return one_value(values.get(attr), schema.attributes[attr])

        vectors = lambda attr: EventVectors.of(read(attr))  # noqa: E731
        nothing = np.zeros(residual_ids.size, np.int64)
        return self._hold(read, vectors, schema.zone, nothing, residual_ids, self._tests.rest)

    def _hold(
        self,
        read: Callable[[int], Nullable],
        vectors: Callable[[int], EventVectors],
        zone: Zone,
        event_ids: npt.NDArray[Any],
        residual_ids: npt.NDArray[Any],
        residuals: list[tuple[Residual, ...]],
    ) -> Bools:
        """Which pairs hold; of each program only these residuals."""
        out = np.zeros(event_ids.size, bool)
        which = self.program[residual_ids]
        known: dict[int, Nullable] = {}
        order = np.argsort(which, kind="stable")
        numbers, starts = np.unique(which[order], return_index=True)
        groups = zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)
        for number, pairs in ((n, part) for n, group in groups for part in self._parts(n, group)):
            rows = event_ids[pairs]

            def attribute(index: int, rows: npt.NDArray[Any] = rows) -> Nullable:
                if index not in known:
                    known[index] = read(index)
                return known[index].take(rows)

            program = self.programs[number]
            scope = ProgramScope(program.literals, self.rows[residual_ids[pairs]], attribute, zone)
            truth = np.ones(pairs.size, bool)
            try:
                for residual in residuals[number]:
                    similarity = find_similarity(residual)
                    if similarity is None or similarity.literal.type is not Type.VECTOR:
                        truth &= holds(residual.node, residual.truth, scope)
                    else:
                        found = vectors(similarity.attr.index)
                        truth &= hold_similar(similarity, found, rows, program.literals, self.rows[residual_ids[pairs]])
            except GrownTextError as grown:
                grown.renumber(rows)
                raise
            out[pairs] = truth
        return out

    def _parts(self, program: int, pairs: Longs) -> list[Longs]:
        """Pairs that are evaluated together: vectors are copied for it, of so many at most."""
        if pairs.size <= _MOST_VECTORS or not any(
            isinstance(key, Param) and key.type is Type.VECTOR for key in self.programs[program].literals
        ):
            return [pairs]
        return [pairs[at : at + _MOST_VECTORS] for at in range(0, pairs.size, _MOST_VECTORS)]


#: Pairs of vectors that are copied at once.
_MOST_VECTORS = 1 << 15


class ClauseResiduals:
    """The residuals of an index's clauses, as single events meet them: one kernel call, and an evaluation of what it leaves."""

    def __init__(self, residuals: Residuals, of_clause: Ints, taken: TakenTests, has_rest: Bools) -> None:
        self._residuals = residuals
        self._texts = taken.tests
        is_settled = residuals.is_settled | ~taken.is_left
        given = is_settled, residuals.program, residuals.most_reads(), has_rest, *taken.tests.arrays()
        self._given: tuple[Any, Any] = tuple(map(frozen, given)), frozen(of_clause)
        self._coded: tuple[Any, Any] = plain(taken.coded), frozen(of_clause)
        ints, longs = np.zeros(0, np.int32), np.zeros(0, np.int64)
        self._settle_codes = direct(settle_codes, *self._coded, ints, 0, ints, longs, ints)
        self._ask = direct(ask_tests, *self._given, ints, 0, ints, ints)
        self._settle = direct(settle_tests, *self._given, ints, 0, ints, ints, 0, longs, b"", ints)
        self._spare: list[tuple[Ints, Ints]] = []  # `place` and `wanted` of kernels; taking and putting back are atomic

    def settle(self, point: EventPoint, n: int, values: Mapping[int, Stored], schema: Schema, limits: Limits) -> int:
        """Keep those of a point's first n clauses whose residuals hold for its event, and return how many these are.

        -1 if residuals might read more text than the limits allow: then match it as a batch, which counts that exactly.
        """
        n = self._settle_codes(*self._coded, point.clauses, n, point.flat, point.list_ptr, point.list_codes)
        if not n:
            return 0
        try:
            place, wanted = self._spare.pop()
        except IndexError:
            size = self._texts.n_columns
            place, wanted = np.full(size, -1, np.int32), np.empty(size, np.int32)
        clauses = point.clauses
        reads, n_wanted = self._ask(*self._given, clauses, n, place, wanted)
        if reads >= 0:
            if 4 * _longest_text(values) * reads > limits.least_work:  # a character has at most four bytes
                return -1
            bounds, texts = self._texts.texts_of(values, wanted[:n_wanted].tolist())
            rest, ends = np.empty(n, np.int32), np.array(bounds, np.int64)
            n, n_rest = self._settle(*self._given, clauses, n, place, wanted, n_wanted, ends, texts, rest)
            if n_rest:
                rest = rest[:n_rest]
                held = rest[self._residuals.evaluate_one(values, schema, self._given[1][rest])]
                clauses[n : n + held.size] = held
                n += held.size
        self._spare.append((place, wanted))
        return n


def _longest_text(values: Mapping[int, Stored]) -> int:
    """Characters of the longest text of an event; of an array, of all elements together."""
    longest = 0
    for value in values.values():
        if type(value) is str:
            longest = max(longest, len(value))
        elif type(value) is list:
            longest = max(longest, sum(len(element) for element in value if isinstance(element, str)))
    return longest


#: Memory of a node of an expression with its fields, measured on comparisons and LIKEs.
_NODE_BYTES = 200


def _array_bytes(array: npt.NDArray[Any]) -> int:
    objects = sum(map(sys.getsizeof, set(array.tolist()))) if array.dtype == object else 0
    return array.nbytes + objects


def open_residuals(arrays: Mapping[str, Any], programs: list[Program], codebook: Codebook) -> Residuals:
    """Residuals out of a file; raises SnapshotError if one is not a row of a program."""
    stored = StoredArrays(arrays, "residuals")
    program = stored.column("program", np.int32)
    rows = stored.column("rows", np.int32, size=program.size)
    stored.within(program, 0, len(programs), "program")
    lengths = np.array([p.length for p in programs], np.int64)
    stored.require(((rows >= 0) & (rows < lengths[program])).all(), "rows", "has a row that its program does not have")
    # Snapshots of format 2 and older have none that is settled.
    is_settled = (
        stored.column("is_settled", np.bool_, size=rows.size) if "is_settled" in stored else np.zeros(rows.size, bool)
    )
    return Residuals(programs, program, rows, is_settled, codebook)


# -- work --------------------------------------------------------------------------------------------------------------


#: By attribute: how often a residual reads its value.
Reads = Mapping[int, int]


class Overwork(NamedTuple):
    """An event that is refused because of the text that filters would read of it."""

    row: int  # within the batch
    filter: int | None  # the one that would read too much, if one alone would
    reason: str
    limit: str  # the field of `Limits`

    def message(self, limits: Limits, subscription: object) -> str:
        whose = "" if self.filter is None else f" (the filter of subscription {subscription!r})"
        most = _mib(getattr(limits, self.limit))
        return f"{self.reason}{whose}, at most {most}; shorten the text or raise Limits.{self.limit}"


_LOGIC = (And, Or, Not, IsNull, IsTruth)


def count_reads(residuals: Iterable[Residual]) -> Reads:
    """How often evaluating some residuals reads each text attribute: once per operation above it, logic excepted."""
    reads: Counter[int] = Counter()
    stack: list[tuple[Node, int]] = [(residual.node, 0) for residual in residuals]
    while stack:
        node, above = stack.pop()
        if isinstance(node, Attr):
            if Type.STRING in (node.type, node.element):
                reads[node.index] += above
        else:
            depth = above + (not isinstance(node, _LOGIC))
            stack.extend((child, depth) for child in node.children())
    return reads


def text_bytes(events: EventBatch, attr: int) -> Longs:
    """Bytes of an attribute's text in each event; of an array, of all its elements together."""
    if events.schema.attributes[attr].is_array:
        array = events.array(attr)
        parts = array.flatten()
        texts = [parts] if events.schema.attributes[attr].value is None else parts.flatten()
        lengths = [pc.binary_length(t).fill_null(0).to_numpy(zero_copy_only=False) for t in texts if is_text(t.type)]
        sizes = np.add.reduce(lengths)
        totals = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        return np.diff(totals[_list_ends(array)])
    texts, _ = laid_out(events, attr)
    sizes = np.diff(texts.offsets).astype(np.int64)
    return np.where(texts.valid, sizes, 0) if texts.valid.size else sizes


def _list_ends(array: pa.ListArray) -> Longs:
    """Where each list begins and ends in `array.flatten()`, which leaves out what NULL lists and slices hide."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


def find_overwork(
    events: EventBatch,
    event_ids: npt.NDArray[Any],
    filter_ids: npt.NDArray[Any],
    program: npt.NDArray[Any],
    reads: Mapping[int, Reads],
    limits: Limits,
) -> list[Overwork]:
    """The events of which some filters would read more than the limits allow, in order.

    Pair i is event `event_ids[i]`, a residual of filter `filter_ids[i]`, and the program that evaluates it.
    """
    sizes = {attr: text_bytes(events, attr) for attr in {a for read in reads.values() for a in read}}
    longest = {attr: int(size.max(initial=0)) for attr, size in sizes.items()}
    dearest = max((sum(n * longest[attr] for attr, n in read.items()) for read in reads.values()), default=0)
    pairs_of_event = int(np.bincount(event_ids).max(initial=0))
    if dearest * pairs_of_event <= limits.filter_work_bytes and max(longest.values(), default=0) <= limits.value_bytes:
        return []
    found: dict[int, Overwork] = {}
    for attr, size in sizes.items():
        for row in np.intersect1d(np.flatnonzero(size > limits.value_bytes), event_ids).tolist():
            name = events.schema.attributes[attr].name
            found[row] = Overwork(row, None, f"{name!r} has {_mib(size[row])} of text", "value_bytes")
    work = np.zeros(event_ids.size, np.int64)
    for number, read in reads.items():
        pairs = np.flatnonzero(program == number)
        for attr, times in read.items():
            work[pairs] += times * sizes[attr][event_ids[pairs]]
    keys, owner = np.unique((event_ids.astype(np.int64) << 32) | filter_ids, return_inverse=True)
    by_filter = np.bincount(owner, work, keys.size)
    for key in np.flatnonzero(by_filter > limits.filter_work_bytes).tolist():
        row = int(keys[key] >> 32)
        reason = f"one filter would read {_mib(by_filter[key])} of text"
        found.setdefault(row, Overwork(row, int(keys[key] & 0xFFFFFFFF), reason, "filter_work_bytes"))
    by_event = np.bincount(event_ids, work)
    for row in np.flatnonzero(by_event > limits.event_work_bytes).tolist():
        reason = f"all filters together would read {_mib(by_event[row])} of text"
        found.setdefault(row, Overwork(row, None, reason, "event_work_bytes"))
    return [found[row] for row in sorted(found)]


def _mib(size: float) -> str:
    return f"{size / (1 << 20):,.1f} MiB"
