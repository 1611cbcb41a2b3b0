"""Points: single events in code space, without Arrow and without arrays of one.

Theory of operation
-------------------
A batch is coded column by column (`Codebook.encode`). For one event, making the arrays of each column takes longer than
coding it. So every attribute gets a *writer*, made once: a function that takes the attribute's value and writes its codes
in all columns made of it into an `EventPoint`. A point is memory for one event on its way to subscription ids. Threads take one
from a list and put it back, so they never wait for each other.

The codes are those of the batch: the same kernels look them up, one value at a time. Only the attributes that an event has
are looked at; the others are NULL, whose code is 0 in every column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from wherecast.index.boxes import FIRST_CODE, EventCodes
from wherecast.index.codes import Codebook, ValueCodes
from wherecast.index.keys import KeyCodes
from wherecast.index.literals import LiteralCodes, TextSearch
from wherecast.index.strings import StringCodes
from wherecast.index.topics import TopicCodes
from wherecast.index.words import WordCodes
from wherecast.kernels.arrays import Ints
from wherecast.kernels.jit import frozen
from wherecast.language.events.schema import Attribute
from wherecast.language.events.types import FLOATS, INTEGERS
from wherecast.language.events.values import Stored, key_of
from wherecast.language.filters.columns import Reading

#: Room for codes of lists, for clauses and for subscriptions; each grows as needed.
_LIST_CODES, _CLAUSES, _IDS = 256, 1 << 13, 1 << 10


class EventPoint:
    """One event in code space (see `EventCodes`), and room for the clauses and subscriptions found for it."""

    __slots__ = ("clauses", "codes", "flat", "ids", "list_codes", "list_ptr", "n_lists", "seen", "view")

    def __init__(self, n_columns: int, n_literals: int) -> None:
        self.flat = np.zeros(n_columns, np.int32)  # one code, or list, per column
        self.codes = self.flat.reshape(1, n_columns)
        self.view = memoryview(self.flat)  # type: ignore[arg-type]  # written to in a third of the time
        self.list_ptr = np.zeros(n_columns + 1, np.int64)
        self.list_codes = np.empty(_LIST_CODES, np.int32)
        self.n_lists = 0
        self.seen = np.zeros(n_literals, np.uint8)  # for searches in texts
        self.clauses = np.empty(_CLAUSES, np.int32)
        self.ids = np.empty(_IDS, np.int64)

    def write_text(self, column: int, search: TextSearch, text: bytes) -> None:
        """The set of literals in a text."""
        n = -1
        while n < 0:
            n = search(text, self.seen, column, self.flat, self.list_ptr, self.list_codes, self.n_lists)
            if n < 0:
                self._grow_lists()
        self.n_lists = n

    def write_set(self, column: int, codes: Sequence[int]) -> None:
        """A set of codes, ascending."""
        if len(codes) == 1:
            self.view[column] = codes[0]
            return
        n = self.n_lists
        begin = int(self.list_ptr[n])
        while begin + len(codes) > self.list_codes.size:
            self._grow_lists()
        self.list_codes[begin : begin + len(codes)] = codes
        self.list_ptr[n + 1] = begin + len(codes)
        self.view[column] = ~n
        self.n_lists = n + 1

    def _grow_lists(self) -> None:
        self.list_codes = np.concatenate((self.list_codes, np.empty_like(self.list_codes)))

    def grow_clauses(self) -> None:
        self.clauses = np.empty(4 * self.clauses.size, np.int32)

    def put_clauses(self, clauses: Ints) -> int:
        """Take over the clauses that a matcher has listed; returns their number."""
        if clauses.size > self.clauses.size:
            self.clauses = np.empty(2 * clauses.size, np.int32)
        self.clauses[: clauses.size] = clauses
        return int(clauses.size)

    def events(self) -> EventCodes:
        """As a batch; the arrays are not copied."""
        ptr = self.list_ptr[: self.n_lists + 1]
        return EventCodes(frozen(self.codes), frozen(ptr), frozen(self.list_codes[: ptr[-1]]))


#: Writes what an attribute's value means for an event.
Writer = Callable[[Stored, EventPoint], None]


class PointCoder:
    """Codes single events in the codes of one index."""

    def __init__(self, codebook: Codebook) -> None:
        self._codebook = codebook
        self._writers = _make_writers(codebook)
        literals = [c.width for c in codebook.codes if isinstance(c, LiteralCodes)]
        self._sizes = len(codebook.codes), max(literals, default=0)
        self._spare: list[EventPoint] = []  # taking and putting back are atomic

    def encode(self, values: Mapping[int, Stored]) -> EventPoint:
        """The point of an event, from the values that it has; `put_back` it after use."""
        try:
            point = self._spare.pop()
        except IndexError:
            point = EventPoint(*self._sizes)
        point.flat.fill(0)
        point.n_lists = 0
        writers = self._writers
        for attr, value in values.items():
            write = writers.get(attr)
            if write is not None:
                write(value, point)
        for number in self._codebook.computed:
            point.view[number] = self._codebook.compute_one(number, values)
        for number in self._codebook.computed_sets:
            point.write_set(number, self._codebook.compute_one_set(number, values).tolist())
        return point

    def put_back(self, point: EventPoint) -> None:
        self._spare.append(point)


def _make_writers(codebook: Codebook) -> dict[int, Writer]:
    schema = codebook.schema
    by_attribute: dict[int, list[int]] = {}
    for number in codebook.used:
        if number < codebook.first_expression:
            by_attribute.setdefault(schema.columns[number].attr, []).append(number)
    return {attr: _make_writer(codebook, attr, numbers) for attr, numbers in by_attribute.items()}


def _make_writer(codebook: Codebook, attr: int, numbers: list[int]) -> Writer:
    """What writes the columns `numbers`, which are made of one attribute."""
    attribute, columns = codebook.schema.attributes[attr], codebook.schema.columns
    own: tuple[int, Callable[[Stored], int]] | None = None
    searches: dict[Reading, tuple[int, TextSearch]] = {}
    sets: list[tuple[int, Callable[[str], list[int]]]] = []
    for number in numbers:
        codes = codebook.codes[number]
        if isinstance(codes, LiteralCodes):
            searches[columns[number].reading] = number, codes.search
        elif isinstance(codes, ValueCodes):
            own = number, _coder(codes, attribute)
        elif isinstance(codes, TopicCodes | WordCodes):
            sets.append((number, codes.encode_text))
    if sets:
        return _write_sets(_write_text(own, searches.get(Reading.LITERALS), searches.get(Reading.LOWER_LITERALS)), sets)
    if searches:
        return _write_text(own, searches.get(Reading.LITERALS), searches.get(Reading.LOWER_LITERALS))
    assert own is not None
    codes = codebook.codes[own[0]]
    if attribute.size and isinstance(codes, KeyCodes) and codes.starts.size == 1:
        return _write_vector(own[0])
    return _write_elements(*own) if attribute.is_array else _write_value(*own)


def _coder(codes: ValueCodes, attribute: Attribute) -> Callable[[Any], int]:
    """Gives the code of a value, or of an element."""
    if isinstance(codes, StringCodes):
        encode_text = codes.encode_text
        return lambda text: encode_text(text.encode())
    if attribute.type in FLOATS:
        return codes.encode_double
    encode_key = codes.encode_key
    return encode_key if attribute.type in INTEGERS else lambda value: encode_key(key_of(value))


def _write_value(column: int, code_of: Callable[[Any], int]) -> Writer:
    def write(value: Stored, point: EventPoint) -> None:
        point.view[column] = code_of(value)

    return write


def _write_elements(column: int, code_of: Callable[[Any], int]) -> Writer:
    def write(value: Stored, point: EventPoint) -> None:
        assert isinstance(value, list | dict)  # of a map, the keys
        codes = {FIRST_CODE, *(code_of(element) for element in value if element is not None)}
        point.write_set(column, sorted(codes))

    return write


def _write_vector(column: int) -> Writer:
    """Of an array that is never empty, where no filter asks for an element."""
    return lambda _, point: point.write_set(column, (FIRST_CODE, FIRST_CODE + 1))


def _write_text(
    own: tuple[int, Callable[[Any], int]] | None,
    plain: tuple[int, TextSearch] | None,
    lower: tuple[int, TextSearch] | None,
) -> Writer:
    """Of a text: its own code, the literals in it, and those in it once it is in lower case."""

    def write(value: Stored, point: EventPoint) -> None:
        assert isinstance(value, str)
        if own is not None:
            column, code_of = own
            point.view[column] = code_of(value)
        if plain is not None:
            point.write_text(*plain, value.encode())
        if lower is not None:
            point.write_text(*lower, value.lower().encode())

    return write


def _write_sets(others: Writer, sets: list[tuple[int, Callable[[str], list[int]]]]) -> Writer:
    """Of a text: the sets that it has in some columns, and what `others` writes."""

    def write(value: Stored, point: EventPoint) -> None:
        assert isinstance(value, str)
        others(value, point)
        for column, codes_of in sets:
            point.write_set(column, codes_of(value))

    return write
