"""Codes: the integers that stand for attribute values inside an index.

Theory of operation
-------------------
Filters compare an attribute with finitely many constants, and between two neighbouring constants all values behave alike.
So the values of an attribute fall into finitely many *cells*, numbered in order; 0 is NULL. A constraint is then a
closed interval of cell numbers and an event's value is one cell.

For keys (numbers, dates, booleans) the cells are minimal: every interval `lo..hi` starts a cell at `lo` and another just
after `hi`, and the code of a key is 1 + the number of starts not above it, found by a bucket table and a short search. For strings each constant is a
cell of its own between two gaps: constant j is 2j + 2, the gap below it 2j + 1. A known string is found by hashing; an
unknown one falls in a gap, and which gap matters only if some filter orders strings (`<`, a prefix): only then is it
searched for.

Codes belong to one index. New constants mean a new index (or a delta with codes of its own).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.index.boxes import FAR, FIRST_CODE, NULL_CODE, EventCodes
from wherecast.index.expressions import ExpressionColumn
from wherecast.index.keys import KeyCodes
from wherecast.index.literals import LiteralCodes, literal_columns
from wherecast.index.operands import attribute_values, map_value, numbering, one_value
from wherecast.index.regexes import RegexCodes
from wherecast.index.similar import EventVectors, VectorCodes, event_vectors
from wherecast.index.similar_texts import SimilarTextCodes
from wherecast.index.stored import find_values
from wherecast.index.stored_columns import ListWriter, StoredColumns
from wherecast.index.strings import StringCodes, string_columns
from wherecast.index.text_columns import laid_out
from wherecast.index.topics import TopicCodes
from wherecast.index.words import WordCodes
from wherecast.kernels.arrays import Bools, Ints, Longs
from wherecast.kernels.automaton import FIRST_LITERAL
from wherecast.kernels.codes import (
    float_keys_into,
)
from wherecast.language.events.convert import map_keys
from wherecast.language.events.events import EventBatch
from wherecast.language.events.keys import KEY_MAX, KEY_MIN
from wherecast.language.events.schema import Schema
from wherecast.language.events.types import Type
from wherecast.language.events.values import Stored
from wherecast.language.filters.columns import Reading
from wherecast.language.filters.filters import AT, Filters
from wherecast.language.filters.render import column_text
from wherecast.language.filters.written import write_value
from wherecast.language.nullable import MANY_ROWS, Nullable, is_valid_everywhere
from wherecast.language.sequences import distinct, numbered
from wherecast.language.steps import Recipe
from wherecast.language.syntax.limits import DEFAULT_LIMITS

#: Codes of a column of values, or of elements.
ValueCodes = KeyCodes | StringCodes
#: Codes of what a text has of all that filters look for: element i has code i + FIRST_LITERAL.
TextSetCodes = LiteralCodes | RegexCodes | TopicCodes | WordCodes
ColumnCodes = ValueCodes | TextSetCodes | VectorCodes | SimilarTextCodes


def keys_of(values: pa.Array) -> Longs:
    """Sortable keys of a canonical Arrow column; NULLs get any key."""
    if not len(values):
        return np.zeros(0, np.int64)
    if pa.types.is_floating(values.type):
        keys = np.empty(len(values), np.int64)
        doubles = values if pa.types.is_float64(values.type) else values.cast(pa.float64())
        float_keys_into(_stored(doubles, np.float64), keys)
        return keys
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    return _stored(values if pa.types.is_int64(values.type) else values.cast(pa.int64()), np.int64)


def _stored(values: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Values of 64 bits as they are stored, whatever is there where they are NULL.

    With 200 columns, filling the NULLs and casting took longer than coding.
    """
    return np.frombuffer(values.buffers()[1], dtype, len(values), 8 * values.offset)


class Codebook:
    """The codes of every column that filters of one index constrain."""

    def __init__(
        self,
        schema: Schema,
        codes: list[ColumnCodes | None],
        expressions: Sequence[ExpressionColumn] = (),
        first_expression: int | None = None,
    ) -> None:
        self.schema = schema
        #: where the columns of expressions begin; in older snapshots, schemas had fewer columns
        self.first_expression = len(schema.columns) if first_expression is None else first_expression
        self.codes = codes  # by column, as far as they go; None: no filter constrains it
        self.expressions = expressions  # the columns from `first_expression` on
        self.used = [n for n, c in enumerate(codes) if c is not None]
        self.attributes = {attr for n in self.used for attr in self.read_by(n)}
        computed = [n for n in self.used if n >= self.first_expression]
        self.computed = [n for n in computed if not self.is_set(n)]  # the values of expressions
        self.computed_sets = [n for n in computed if self.is_set(n)]  # what their texts contain
        self._sets = frozenset(n for n in self.used if self.is_set(n))
        self._stored = StoredColumns(schema, codes, self.first_expression)
        self._others = [n for n in self.used if n not in self._stored.columns]
        self._recipes: dict[int, Recipe | None] = {}  # of expressions, as they are needed

    def expression(self, number: int) -> ExpressionColumn | None:
        """The expression whose value a column has, if it is not one of the schema's."""
        return self.expressions[number - self.first_expression] if number >= self.first_expression else None

    def read_by(self, number: int) -> frozenset[int]:
        """The attributes that a column is made of."""
        expression = self.expression(number)
        return frozenset({self.schema.columns[number].attr}) if expression is None else expression.attributes

    def column_text(self, number: int) -> str:
        """A column in SQL."""
        expression = self.expression(number)
        if expression is None:
            return column_text(self.schema, number)
        text = write_value(expression.of, self.schema, expression.literals, expression.row)
        return _SET_TEXTS.get(expression.reading, "{}").format(text)

    def is_set(self, number: int) -> bool:
        """Whether an event has a set of codes in a column, not one."""
        expression = self.expression(number)
        return self.schema.is_set(number) if expression is None else expression.reading is not Reading.VALUE

    def literals(self, number: int) -> Mapping[str, int] | None:
        """The codes of the elements of a column of literals (with their marks), topics or words; None if it is no such column."""
        codes = self.codes[number] if number < len(self.codes) else None
        return codes.numbers if isinstance(codes, LiteralCodes | TopicCodes | WordCodes) else None

    @property
    def widths(self) -> Ints:
        return np.array([1 if c is None else c.width for c in self.codes], np.int32)

    def encode_column(self, events: EventBatch, number: int) -> Ints:
        """Codes of a column of values that filters constrain."""
        if number >= self.first_expression:
            expression, own = self.expression(number), self.codes[number]
            found = None if expression is None else expression.find_key(self.schema)
            if found is not None:
                assert isinstance(own, ValueCodes)
                return own.encode(map_value(events, *found))
            return self._encode_expression(events, number)
        codes = self.codes[number]
        assert isinstance(codes, ValueCodes)
        if isinstance(codes, StringCodes):
            texts, _ = laid_out(events, number)
            return codes.encode_texts(texts, lambda: events.derive(number, codes.seed, lambda _: codes.hash(texts)))
        return codes.encode(events.array(number))

    def _encode_expression(self, events: EventBatch, number: int) -> Ints:
        recipe, codes = self._recipe(number) if len(events) >= MANY_ROWS else None, self.codes[number]
        if recipe is None:
            with numbering(events):
                return self._compute(number, lambda attr: attribute_values(events, attr), len(events))
        assert isinstance(codes, KeyCodes)
        return _code_keys(codes, recipe.run(find_values(events, self.read_by(number)), len(events)))

    def _recipe(self, number: int) -> Recipe | None:
        """How the keys of an expression are computed, if it is plain."""
        if number not in self._recipes:
            expression = self.expression(number)
            assert expression is not None
            self._recipes[number] = expression.recipe(self.schema.zone)
        return self._recipes[number]

    def compute_one(self, number: int, values: Mapping[int, Stored]) -> int:
        """Code of an expression for one event, from the values that it has."""
        attributes = self.schema.attributes
        return int(self._compute(number, lambda attr: one_value(values.get(attr), attributes[attr]), 1)[0])

    def compute_one_set(self, number: int, values: Mapping[int, Stored]) -> Ints:
        """Codes of what the text of an expression contains, for one event."""
        expression, codes, attributes = self.expression(number), self.codes[number], self.schema.attributes
        assert expression is not None
        if isinstance(codes, VectorCodes):
            (attr,) = expression.attributes
            return codes.encode(EventVectors.of(one_value(values.get(attr), attributes[attr])))[1]
        if isinstance(codes, SimilarTextCodes):
            (attr,) = expression.attributes
            return codes.encode([values.get(attr)])[1]  # type: ignore[list-item]  # a text, or nothing
        assert isinstance(codes, LiteralCodes | RegexCodes)
        found = expression.values(lambda attr: one_value(values.get(attr), attributes[attr]), 1, self.schema.zone)
        return codes.encode(found.texts)[1]

    def _compute(self, number: int, read: Callable[[int], Nullable], length: int) -> Ints:
        """Codes of an expression, for so many events whose attributes `read` gives."""
        expression, codes = self.expression(number), self.codes[number]
        assert expression is not None
        found = expression.values(read, length, self.schema.zone)
        if isinstance(codes, StringCodes):
            return codes.encode(found.texts)
        assert isinstance(codes, KeyCodes)
        return _code_keys(codes, found)

    def encode(self, events: EventBatch, known: Mapping[int, Ints] | None = None) -> EventCodes:
        """A batch of events as points of the code space; `known` has codes of attributes coded already."""
        known = {} if known is None else known
        codes = np.zeros((len(events), len(self.codes)), np.int32)
        lists = ListWriter()
        for number in self._others:
            if number in known:
                codes[:, number] = known[number]
            elif number in self._sets:
                own = np.zeros(len(events), np.int32)
                lists.write(*self._encode_sets(events, number), own)
                codes[:, number] = own
            else:
                codes[:, number] = self.encode_column(events, number)
        for number in self._stored.columns.intersection(known) if known else ():
            codes[:, number] = known[number]
        if self._stored.columns:
            self._stored.encode(events, codes, known, lists)
        return EventCodes(codes, *lists.joined())

    @cached_property
    def is_stored(self) -> bool:
        """Whether all columns are made of stored values: `encode_behind` serves."""
        return not self._others

    def jobs_of_values(self, gate: int | None) -> tuple[list[int], Longs] | None:
        """What `Matcher.match_stored` is given: attributes and jobs; None if events may have other codes than those of stored values."""
        return self._stored.jobs_of_values(gate) if self.is_stored else None

    def encode_behind(self, events: EventBatch, gate: int, is_open: Bools) -> tuple[EventCodes, Bools]:
        """As `encode`, but events whose code in a column of values is not open have no codes in the others; and which events are open."""
        codes, lists = np.zeros((len(events), len(self.codes)), np.int32), ListWriter()
        wanted = self._stored.encode_behind(events, gate, is_open, codes, lists)
        return EventCodes(codes, *lists.joined()), wanted

    def _encode_sets(self, events: EventBatch, number: int) -> tuple[Longs, Ints]:
        """The sets of codes that events have in a column, one after the other."""
        codes, expression = self.codes[number], self.expression(number)
        if isinstance(codes, VectorCodes):
            (attr,) = self.read_by(number)
            return codes.encode(event_vectors(events, attr))
        if isinstance(codes, SimilarTextCodes):
            (attr,) = self.read_by(number)
            return codes.encode(events.array(attr).to_pylist())
        if expression is not None:
            assert isinstance(codes, LiteralCodes | RegexCodes)
            read = lambda attr: attribute_values(events, attr)  # noqa: E731
            return codes.encode(expression.values(read, len(events), self.schema.zone).texts)
        attr = self.schema.columns[number].attr
        if isinstance(codes, TopicCodes | WordCodes):
            return codes.encode_texts(laid_out(events, attr)[0])
        assert isinstance(codes, ValueCodes)
        values = events.array(attr)
        return _encode_lists(codes, values if self.schema.attributes[attr].value is None else map_keys(values))


def _code_keys(codes: KeyCodes, found: Nullable) -> Ints:
    out = codes.encode_keys(found.values)
    if not is_valid_everywhere(found.valid):
        out[~found.valid] = NULL_CODE
    return out


#: A column of a set in SQL, by what is taken from the text.
_SET_TEXTS = {Reading.LITERALS: "contains({}, ?)", Reading.REGEXES: "{} RLIKE ?", Reading.SIMILAR: "similar({}, ?)"}


def _encode_lists(codes: ValueCodes, values: pa.Array) -> tuple[Longs, Ints]:
    """Per array: NULL_CODE alone if it is NULL, else FIRST_CODE and the codes of its distinct non-null elements."""
    n = len(values)
    there = values.is_valid().to_numpy(zero_copy_only=False)
    if isinstance(codes, KeyCodes) and codes.starts.size == 1 and not pc.list_flatten(values).null_count:
        return _have_elements(values, there)  # filters only ask whether there is an array, or an element in it
    owner = pc.list_parent_indices(values).to_numpy(zero_copy_only=False).astype(np.int64)
    elements = codes.encode(pc.list_flatten(values))
    real = elements != NULL_CODE
    rows = np.concatenate((np.arange(n), owner[real]))
    flat = np.concatenate((np.where(there, FIRST_CODE, NULL_CODE).astype(np.int32), elements[real]))
    order = np.lexsort((flat, rows))
    rows, flat = rows[order], flat[order]
    keep = np.ones(rows.size, bool)
    keep[1:] = (rows[1:] != rows[:-1]) | (flat[1:] != flat[:-1])
    return np.searchsorted(rows[keep], np.arange(n + 1)).astype(np.int64), flat[keep]


def _have_elements(values: pa.Array, there: Bools) -> tuple[Longs, Ints]:
    """The same where all elements have one code, the first after that of the array."""
    has_some = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False) > 0
    ptr = np.concatenate(([0], np.cumsum(1 + has_some)))
    flat = np.full(ptr[-1], FIRST_CODE + 1, np.int32)
    flat[ptr[:-1]] = np.where(there, FIRST_CODE, NULL_CODE)
    return ptr, flat


#: Makes the codes of a column, and the intervals of its rows that are not NULL.
_Maker = Callable[[Filters, Longs], tuple[ColumnCodes, Ints, Ints]]


def build_codes(
    filters: Filters,
    schema: Schema,
    expressions: Sequence[ExpressionColumn] = (),
    regex_bytes: int = DEFAULT_LIMITS.regex_bytes,
    tested: Mapping[int, Collection[str]] | None = None,
) -> tuple[Codebook, Ints, Ints]:
    """The codebook of a set of filters, and the rows' intervals in its codes.

    `tested` are elements of columns of literals, topics and words that no row asks for, but residuals do.
    """
    tested = {} if tested is None else tested
    column = np.where(filters.attr < 0, ~filters.attr, filters.attr)
    lo = np.full(column.size, NULL_CODE, np.int32)
    hi = np.full(column.size, NULL_CODE, np.int32)
    # Columns of literals that nobody asks for are left out, so that events have no codes for them.
    codes: list[ColumnCodes | None] = [None] * (max(len(schema) - 1, int(column.max(initial=-1)), *tested, -1) + 1)
    order = np.argsort(column, kind="stable")
    bounds = np.searchsorted(column[order], np.arange(len(codes) + 1))
    by_kind: dict[type[ColumnCodes], list[int]] = {}
    for number in sorted({*np.flatnonzero(np.diff(bounds)).tolist(), *tested}):
        by_kind.setdefault(codes_of_column(schema, expressions, number, len(schema.columns)), []).append(number)
    ends = filters, column, codes, lo, hi
    of_literals = by_kind.pop(LiteralCodes, [])
    _build_literals(of_literals, {n: tested[n] for n in of_literals if n in tested}, *ends)
    _build_strings(by_kind.pop(StringCodes, []), *ends)
    for kind, numbers in by_kind.items():
        for number in numbers:
            rows = order[bounds[number] : bounds[number + 1]]
            real = rows[~filters.null[rows]]
            make = _maker(kind, schema, number, regex_bytes, tested.get(number, ()))
            codes[number], lo[real], hi[real] = make(filters, real)
    return Codebook(schema, codes, expressions), lo, hi


def codes_of_column(
    schema: Schema, expressions: Sequence[ExpressionColumn], number: int, first_expression: int
) -> type[ColumnCodes]:
    """What kind of codes a column has."""
    if number >= first_expression:
        expression = expressions[number - first_expression]
        if expression.reading is Reading.SIMILAR and expression.of.type is Type.STRING:
            return SimilarTextCodes
        return _CODES_OF_SETS.get(expression.reading) or (StringCodes if expression.is_text else KeyCodes)
    found = _CODES_OF_SETS.get(schema.columns[number].reading)
    return found or (StringCodes if schema.are_texts[number] else KeyCodes)


def _key_codes(has_elements: bool, filters: Filters, real: Longs) -> tuple[KeyCodes, Ints, Ints]:
    low, high = filters.lo[real], filters.hi[real]
    # The first code of an array says that it is there, so none of its elements may have it, the least key neither.
    first = [KEY_MIN] if has_elements else []
    starts = distinct(np.concatenate((low[low > KEY_MIN], high[high < KEY_MAX] + 1, np.array(first, np.int64))))
    codes = KeyCodes.of(starts)
    lo = codes.encode_keys(low)
    lo[(low == KEY_MIN) & (high == KEY_MAX)] = FIRST_CODE
    return codes, lo, np.where(high == KEY_MAX, FAR, codes.encode_keys(high))


def _build_strings(
    numbers: list[int], filters: Filters, column: Longs, codes: list[ColumnCodes | None], lo: Ints, hi: Ints
) -> None:
    """The codes of all columns of strings, and the intervals of their rows."""
    place_of = np.full(len(codes), -1, np.int64)
    place_of[numbers] = np.arange(len(numbers))
    rows = np.flatnonzero((place_of[column] >= 0) & ~filters.null)
    n_strings, place, low, high = len(filters.strings), place_of[column[rows]], filters.lo[rows], filters.hi[rows]
    left, right = low != KEY_MIN, high != KEY_MAX
    keys = [place[some] * n_strings + (ends[some] >> 2) for some, ends in ((left, low), (right, high))]
    used, place_of_end = numbered(np.concatenate(keys))
    ptr = np.searchsorted(used, np.arange(len(numbers) + 1) * n_strings)
    lo[rows], hi[rows] = FIRST_CODE, FAR
    of_ends = np.split(place_of_end, [keys[0].size])
    for out, ends, some, own in ((lo, low, left, of_ends[0]), (hi, high, right, of_ends[1])):
        out[rows[some]] = 2 * (own - ptr[place[some]]) + 2 + (ends[some] & 3) - AT
    ordered = _tell_gaps_apart(filters, place_of[column], np.diff(ptr), lo, hi)
    made = string_columns(filters.strings, used % max(n_strings, 1), ptr, ordered)
    for number, each in zip(numbers, made, strict=True):
        codes[number] = each


def _tell_gaps_apart(filters: Filters, place: Longs, n_strings: Longs, lo: Ints, hi: Ints) -> Bools:
    """In which columns (by place) some constraint holds for a part of the gaps only."""
    rows = np.flatnonzero(place >= 0)
    most = n_strings[place[rows]]
    top = np.minimum(hi[rows], 2 * most + 1)
    gaps = np.where(filters.null[rows], 0, (top + 1) // 2 - lo[rows] // 2)  # odd codes in lo..hi
    last = np.flatnonzero(filters.attr[rows] >= 0)  # of each constraint; its rows stand together
    ordered = np.zeros(n_strings.size, bool)
    if last.size:
        per_constraint = np.add.reduceat(gaps, np.concatenate(([0], last[:-1] + 1)))
        ordered[place[rows[last]][(per_constraint > 0) & (per_constraint < most[last] + 1)]] = True
    return ordered


def _build_literals(
    numbers: list[int],
    tested: Mapping[int, Collection[str]],
    filters: Filters,
    column: Longs,
    codes: list[ColumnCodes | None],
    lo: Ints,
    hi: Ints,
) -> None:
    """The codes of all columns of literals, and the intervals of their rows: every row asks for one literal."""
    place_of = np.full(len(codes), -1, np.int64)
    place_of[numbers] = np.arange(len(numbers))
    rows = np.flatnonzero((place_of[column] >= 0) & ~filters.null)
    strings, rank, more = _with_tested(filters.strings, tested)
    n_strings, place = len(strings), place_of[column[rows]]
    keys = place * n_strings + rank[filters.lo[rows] >> 2]
    others = [place_of[number] * n_strings + ranks for number, ranks in more.items()]
    used, place_of_key = numbered(np.concatenate((keys, *others)))
    ptr = np.searchsorted(used, np.arange(len(numbers) + 1) * n_strings)
    lo[rows] = hi[rows] = place_of_key[: keys.size] - ptr[place] + FIRST_LITERAL
    made = literal_columns(strings, used % max(n_strings, 1), ptr)
    for number, each in zip(numbers, made, strict=True):
        codes[number] = each


def _with_tested(
    strings: list[str], tested: Mapping[int, Collection[str]]
) -> tuple[list[str], Longs, dict[int, Longs]]:
    """Strings with those that residuals test, in order; the rank of each string there, and those of the tested ones by column."""
    if not tested:
        return strings, np.arange(len(strings)), {}
    joined = sorted(set(strings).union(*tested.values()))
    number = {string: rank for rank, string in enumerate(joined)}
    ranks = np.fromiter(map(number.__getitem__, strings), np.int64, len(strings))
    return (
        joined,
        ranks,
        {n: np.fromiter(map(number.__getitem__, each), np.int64, len(each)) for n, each in tested.items()},
    )


def _maker(kind: type[ColumnCodes], schema: Schema, number: int, regex_bytes: int, tested: Collection[str]) -> _Maker:
    """What makes the codes of a column that is made on its own."""
    own = number < len(schema.columns)
    if kind is KeyCodes:
        return partial(_key_codes, own and schema.is_set(number))
    if kind is VectorCodes or kind is SimilarTextCodes:
        return partial(_similar_codes, kind)
    if kind is TopicCodes:
        return partial(_set_codes, TopicCodes.of, tested)
    if kind is WordCodes:
        language = schema.attributes[schema.columns[number].attr].language
        return partial(_set_codes, partial(WordCodes.of, language=language), tested)
    return partial(_set_codes, partial(RegexCodes.of, memory_bytes=regex_bytes), ())


def _set_codes(
    make: Callable[[list[str]], TextSetCodes], tested: Collection[str], filters: Filters, real: Longs
) -> tuple[TextSetCodes, Ints, Ints]:
    """Every row asks for one element: a regular expression, a pattern of topics, a word. Those that only residuals test come behind."""
    used, place = np.unique(filters.lo[real] >> 2, return_inverse=True)
    code = (place + FIRST_LITERAL).astype(np.int32)
    elements = [filters.strings[i] for i in used.tolist()]
    return make([*elements, *sorted(set(tested).difference(elements))]), code, code


def _similar_codes(
    kind: type[VectorCodes | SimilarTextCodes], filters: Filters, real: Longs
) -> tuple[VectorCodes | SimilarTextCodes, Ints, Ints]:
    used, place = np.unique(filters.lo[real] >> 2, return_inverse=True)
    code = (place + FIRST_LITERAL).astype(np.int32)
    return kind.of([filters.strings[i] for i in used.tolist()], filters.programs), code, code


#: The codes of what is taken from a text, or from a vector.
_CODES_OF_SETS: dict[Reading, type[ColumnCodes]] = {
    Reading.LITERALS: LiteralCodes,
    Reading.LOWER_LITERALS: LiteralCodes,
    Reading.REGEXES: RegexCodes,
    Reading.TOPICS: TopicCodes,
    Reading.WORDS: WordCodes,
    Reading.SIMILAR: VectorCodes,
}
