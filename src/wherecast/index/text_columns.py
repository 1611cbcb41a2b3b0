"""The text columns of an index, coded for a whole batch in one kernel call (see `kernels.text_columns`).

A text attribute has up to three columns: its value, the literals in it, and the literals in it in lower case. Attributes in
which no filter looks for a literal are left to `Codebook`, column by column: hashing all texts of a column first is quicker where there is
nothing else to do with them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.index.literals import LiteralCodes
from wherecast.index.strings import StringCodes, Texts, lay_out
from wherecast.kernels.arrays import Ints, Longs
from wherecast.kernels.codes import write_sets
from wherecast.kernels.text_columns import JOB_WORDS, LITERALS, LOWER, TEXT_WORDS, VALUE, code_texts
from wherecast.language.events.events import EventBatch
from wherecast.language.events.schema import Schema
from wherecast.language.filters.columns import Reading

_KINDS = {Reading.VALUE: VALUE, Reading.LITERALS: LITERALS, Reading.LOWER_LITERALS: LOWER}
#: Lists per event, and codes in them, that are expected at most; more are found too, at the price of a copy.
_LISTS_PER_EVENT, _CODES_PER_EVENT = 8, 64

#: The keys under which a batch keeps its texts, and its texts in lower case, as kernels read them.
_LAID_OUT, _IN_LOWER_CASE = -1, -2


def laid_out(events: EventBatch, attr: int, *, lower: bool = False) -> tuple[Texts, bool]:
    """The texts of an attribute, or those in lower case: then the caller has to take capital letters for small ones if told so.

    Only ASCII letters are left to the caller, whose kernel does it on the way.
    """
    texts = events.derive(attr, _LAID_OUT, lay_out)
    if not lower or texts.is_ascii:
        return texts, lower
    return events.derive(attr, _IN_LOWER_CASE, lambda values: lay_out(lower_texts(values))), False


def lower_texts(values: pa.Array) -> pa.Array:
    """Texts in lower case, as Spark's `lower` has them; Arrow's own differs for some letters, so it does ASCII only."""
    lower = pc.ascii_lower(values)
    others = pc.invert(pc.string_is_ascii(values)).fill_null(False)
    if not pc.any(others).as_py():
        return lower
    return pc.replace_with_mask(
        lower, others, pa.array([v.lower() for v in values.filter(others).to_pylist()], values.type)
    )


class ListWriter:
    """Collects the lists of events (see `EventCodes`), column after column."""

    def __init__(self) -> None:
        self._ptr: list[Longs] = [np.zeros(1, np.int64)]
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
            return self._ptr[0], np.zeros(0, np.int32)
        return np.concatenate(self._ptr), np.concatenate(self._codes)


class TextColumns:
    """The columns of the attributes in which filters look for literals."""

    def __init__(self, schema: Schema, codes: Sequence[object]) -> None:
        self._schema = schema
        self._codes = codes
        own = schema.columns[: len(codes)]
        searched = {c.attr for c, found in zip(own, codes, strict=False) if isinstance(found, LiteralCodes)}
        self._attributes = sorted(searched)
        found = [(c.attr, n) for n, c in enumerate(own) if c.attr in searched and codes[n] is not None]
        self._of_job = sorted(found)
        self.columns = frozenset(n for _, n in found)

    @cached_property
    def _jobs(self) -> Longs:
        """What the kernel has to do, in the order of attributes."""
        place = {attr: number for number, attr in enumerate(self._attributes)}
        jobs = np.zeros((len(self._of_job), JOB_WORDS), np.int64)
        for job, (attr, number) in zip(jobs, self._of_job, strict=True):
            own, reading = self._codes[number], self._schema.columns[number].reading
            assert isinstance(own, LiteralCodes | StringCodes)
            facts = own.job() if isinstance(own, StringCodes) else own.job(fold=reading is Reading.LOWER_LITERALS)
            job[:] = place[attr], number, _KINDS[reading], *facts
        return jobs

    @cached_property
    def _most_literals(self) -> int:
        return max(own.width for own in self._codes if isinstance(own, LiteralCodes))

    def encode(self, events: EventBatch, out: Ints, known: Collection[int], lists: ListWriter) -> None:
        """Write the codes of the columns to out[event, column], which is 0; not those of columns that are `known`."""
        n = len(events)
        texts = _texts_of([events.array(attr) for attr in self._attributes])
        jobs = self._jobs[texts[self._jobs[:, 0], 0] != 0]
        for number in known:
            jobs = jobs[jobs[:, 1] != number]
        done, rows = np.array([0, 0, lists.n_lists]), np.empty(n, np.int32)
        seen, given_up = np.zeros(self._most_literals, np.uint8), np.zeros(len(jobs), bool)
        ptr, codes = np.zeros(_LISTS_PER_EVENT * n + 2, np.int64), np.empty(_CODES_PER_EVENT * n + 2, np.int32)
        while not code_texts(texts, jobs, done, rows, seen, given_up, out, lists.n_lists, ptr, codes):
            ptr, codes = np.concatenate((ptr, np.zeros_like(ptr))), np.concatenate((codes, np.empty_like(codes)))
        lists.add(ptr[: done[2] - lists.n_lists + 1], codes)
        for number in jobs[given_up, 1].tolist():
            own = self._codes[number]
            assert isinstance(own, LiteralCodes)
            folded, fold = laid_out(events, self._schema.columns[number].attr, lower=True)
            column = np.empty(n, np.int32)
            lists.write(*own.encode_texts(folded, fold=fold), column)
            out[:, number] = column


def _texts_of(arrays: Sequence[pa.Array]) -> Longs:
    """Where the texts of attributes are, as the kernel wants it; 0 where all are NULL."""
    texts = np.zeros((len(arrays), TEXT_WORDS), np.int64)
    for row, array in enumerate(arrays):
        nulls = array.null_count
        if nulls < len(array):
            valid, ends, data = array.buffers()
            bitmap = valid.address if nulls else 0
            texts[row] = ends.address, data.address if data is not None else 0, bitmap, array.offset
    return texts
