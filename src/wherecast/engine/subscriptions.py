"""Reading subscriptions from whatever holds them, and checking what is in their rows besides the filter's text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.engine.checks import SubscriptionId, check_id, check_priority
from wherecast.engine.ids import IdColumn, arrow_values, id_at
from wherecast.engine.memory import give_back
from wherecast.engine.processes import compile_on
from wherecast.errors import FilterError, SubscriptionError
from wherecast.language.events.arrow import ArrowArray, ArrowStream, as_table
from wherecast.language.filters.compile import Compiled, Compiler, RowError
from wherecast.language.filters.numbered import AnyFilters, number_filters, plain_filters
from wherecast.language.syntax.sequence import is_sequence
from wherecast.progress import progress

#: What `subscribe_many` reads.
SubscriptionSource: TypeAlias = (
    pa.Table
    | pa.RecordBatch
    | ArrowStream
    | ArrowArray
    | Mapping[SubscriptionId, str]
    | Iterable[tuple[SubscriptionId, str]]
)


class Incoming(NamedTuple):
    """Subscriptions as columns. Texts that occur more than once are listed once."""

    ids: IdColumn  # as they are kept; those of bad rows as they came
    texts: Sequence[Any]  # distinct where the source makes that cheap; anything but a text may be None
    text_of: npt.NDArray[np.int64]  # (subscriptions,) index into texts
    priorities: npt.NDArray[np.float32]
    errors: dict[int, FilterError | SubscriptionError]
    """Rows that cannot be registered, whether or not their filter compiles."""

    def refused(self, errors: Iterable[RowError]) -> dict[int, FilterError | SubscriptionError]:
        """All rows that cannot be registered, and why, given the texts that do not compile."""
        why = dict(errors)
        rows = np.flatnonzero(np.isin(self.text_of, list(why))).tolist() if why else []
        return {**{row: why[int(self.text_of[row])] for row in rows}, **self.errors}


#: Texts that are compiled at a time. What compiling a text takes on the way is many times what it leaves behind.
PART = 1 << 17


class CompiledPart(NamedTuple):
    """Some of the texts of a batch, from `first` on, compiled; the rows of errors are those of the batch."""

    first: int
    filters: AnyFilters
    filter_of: npt.NDArray[np.int64]
    own_errors: list[RowError]  # by row of the part

    @property
    def errors(self) -> Iterator[RowError]:
        return (RowError(self.first + row, error) for row, error in self.own_errors)

    @property
    def compiled(self) -> Compiled:
        """The part as it was compiled."""
        return Compiled(plain_filters(self.filters), self.filter_of, self.own_errors)


class _TextParts(Sequence[list[Any]]):
    """Texts, a part at a time. A part is made when it is asked for, so that only those under way take memory."""

    def __init__(self, texts: Sequence[Any]) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return (len(self._texts) + PART - 1) // PART

    def __getitem__(self, number: Any) -> Any:
        return list(self._texts[number * PART : (number + 1) * PART])


def compile_parts(compiler: Compiler, texts: Sequence[Any], processes: int = 1) -> list[CompiledPart]:
    """All texts, compiled a part at a time: this bounds memory, and shows how far it is."""
    with progress("compiling", len(texts)) as step:
        found = compile_on(
            compiler,
            _TextParts(texts),
            processes,
            _shrunk,
            lambda number: step.advance(min(PART, len(texts) - number * PART)),
        )
    if len(texts) >= PART:
        give_back()
    return [CompiledPart(number * PART, *part) for number, part in enumerate(found)]


def _shrunk(compiled: Compiled) -> tuple[AnyFilters, npt.NDArray[np.int64], list[RowError]]:
    """What was compiled, with each constraint once if they repeat."""
    return number_filters(compiled.filters) or compiled.filters, compiled.filter_of, compiled.errors


def read_subscriptions(source: SubscriptionSource) -> Incoming:
    """Columns of a table with `id` and `filter`, of a mapping of ids to filters, or of (id, filter) pairs."""
    if isinstance(source, Mapping):
        return _from_lists(list(source.keys()), list(source.values()))
    if hasattr(source, "columns") and hasattr(source, "iloc"):  # a pandas frame, without importing pandas
        frame: Any = source
        return _from_columns({name: _pandas_values(frame[name]) for name in _known(list(frame.columns))}, len(frame))
    try:
        table = as_table(source)
    except pa.ArrowException as error:
        raise SubscriptionError(f"the subscriptions cannot be read as an Arrow table: {error}") from None
    if table is not None:
        return _from_columns({name: table.column(name) for name in _known(table.schema.names)}, table.num_rows)
    if not isinstance(source, Iterable):
        raise SubscriptionError(
            f"cannot read subscriptions from {type(source).__name__}; give a table or (id, filter) pairs"
        )
    pairs = list(source)
    for row, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise SubscriptionError(f"row {row}: expected an (id, filter) pair, found {pair!r:.80}")
    return _from_lists([p[0] for p in pairs], [p[1] for p in pairs])


#: What a pattern may begin with, in a form that Arrow's regular expressions know.
_MAY_BE_PATTERN = r"(?i)^\s*(--|/\*|pattern|count)"


def without_patterns(incoming: Incoming) -> tuple[Incoming, list[tuple[int, SubscriptionId, str]]]:
    """The patterns among subscriptions, with their rows, and the rest: a filter stands in their place, to be left out."""
    texts = incoming.texts
    numbers: Iterable[int] = range(len(texts))
    if isinstance(texts, ArrowTexts):
        numbers = texts.matching(_MAY_BE_PATTERN)
    found = {number: texts[number] for number in numbers if is_sequence(texts[number])}
    if not found:
        return incoming, []
    rows = np.flatnonzero(np.isin(incoming.text_of, list(found))).tolist()
    patterns = [(row, id_at(incoming.ids, row), found[int(incoming.text_of[row])]) for row in rows]
    rest = ["TRUE" if number in found else text for number, text in enumerate(texts)]
    return incoming._replace(texts=rest), [row for row in patterns if row[0] not in incoming.errors]


def _known(names: Sequence[Any]) -> list[str]:
    """The columns to read, of those there are."""
    for name in ("id", "filter"):
        if names.count(name) != 1:
            how = "need a" if name not in names else "have more than one"
            raise SubscriptionError(f"subscriptions {how} column {name!r}; found {', '.join(map(str, names))}")
    return [name for name in ("id", "filter", "priority") if name in names]


def _pandas_values(series: Any) -> pa.Array | list[Any]:
    """A column as Arrow; one that Arrow does not take, for example of integers and strings, as a list."""
    try:
        return pa.array(series, from_pandas=True)
    except (pa.ArrowException, UnicodeError, OverflowError, TypeError):
        return list(series)


def _from_columns(columns: dict[str, Any], n: int) -> Incoming:
    texts, text_of = _texts(columns["filter"])
    ids = columns["id"]
    return _checked(
        ids if isinstance(ids, list) else arrow_values(ids), texts, text_of, columns.get("priority", np.zeros(n))
    )


def _from_lists(ids: list[Any], texts: list[Any]) -> Incoming:
    return _checked(ids, texts, np.arange(len(ids)), np.zeros(len(ids)))


class ArrowTexts(Sequence[Any]):
    """A column of texts, of which Python's strings are made when they are asked for: some at a time, then they are gone."""

    def __init__(self, column: pa.Array | pa.ChunkedArray) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            first, end, _ = at.indices(len(self))
            return arrow_values(self._column.slice(first, max(end - first, 0)))
        return arrow_values(self._column.slice(range(len(self))[at], 1))[0]

    def matching(self, pattern: str) -> list[int]:
        """The numbers of the texts in which Arrow finds a regular expression."""
        try:
            found = pc.match_substring_regex(self._column, pattern).fill_null(False)
        except pa.ArrowException:  # not UTF-8: such a text is refused when it is compiled
            return list(range(len(self)))
        return np.flatnonzero(found.to_numpy(zero_copy_only=False)).tolist()

    def __iter__(self) -> Iterator[Any]:
        for first in range(0, len(self), PART):
            yield from self[first : first + PART]


#: Rows that tell whether texts repeat, and the share of distinct ones above which looking for the others is not worth it.
_LOOK, _MOST_DISTINCT = 10_000, 0.9


def _texts(column: Any) -> tuple[Sequence[Any], npt.NDArray[np.int64]]:
    """The filters of a column, distinct ones where that is cheap, and which of them each row has."""
    if isinstance(column, list):
        return column, np.arange(len(column))
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    if is_text and len(column) > _LOOK and len(column[:_LOOK].unique()) > _MOST_DISTINCT * _LOOK:
        return ArrowTexts(column), np.arange(len(column))  # in the chunks in which they came: the texts are large
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    coded = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    text_of = coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
    distinct = arrow_values(coded.dictionary)
    return [*(distinct if isinstance(distinct, list) else distinct.tolist()), None], text_of


def _checked(ids: IdColumn, texts: Sequence[Any], text_of: npt.NDArray[np.int64], priorities: Any) -> Incoming:
    """Columns with ids, texts and priorities checked row by row."""
    errors: dict[int, FilterError | SubscriptionError] = {}
    priorities = _check_priorities(priorities, errors)
    if not isinstance(texts, ArrowTexts):
        texts = _check_texts(texts, text_of, errors)
    return Incoming(_check_ids(ids, errors), texts, text_of, priorities, errors)


def _check_texts(texts: Sequence[Any], text_of: npt.NDArray[np.int64], errors: dict[int, Any]) -> Sequence[Any]:
    """The texts, None in place of anything else."""
    odd = [number for number, text in enumerate(texts) if not isinstance(text, str) and text is not None]
    if odd:
        for row in np.flatnonzero(np.isin(text_of, odd)).tolist():
            found = type(texts[text_of[row]]).__name__
            errors[row] = FilterError("syntax", f"a filter is a text, found {found}; pass a str")
        texts = [text if isinstance(text, str) else None for text in texts]
    return texts


def _check_ids(ids: IdColumn, errors: dict[int, Any]) -> IdColumn:
    if isinstance(ids, np.ndarray):
        return ids
    checked = []
    for row, id in enumerate(ids):
        try:
            checked.append(check_id(id))
        except SubscriptionError as error:
            checked.append(id)
            errors[row] = error
    return checked


def _check_priorities(column: Any, errors: dict[int, Any]) -> npt.NDArray[np.float32]:
    """Priorities as they are kept, 0 where there is none."""
    values = column
    if isinstance(column, pa.Array | pa.ChunkedArray):
        plain = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        values = column.fill_null(0).to_numpy(zero_copy_only=False) if plain else column.to_pylist()
    if isinstance(values, list):
        kept = np.zeros(len(values), np.float32)
        for row, value in enumerate(values):
            try:
                kept[row] = 0.0 if value is None else check_priority(value)
            except SubscriptionError as error:
                errors[row] = error
        return kept
    with np.errstate(over="ignore"):
        kept = np.asarray(values, np.float32)
    for row in np.flatnonzero(~np.isfinite(kept)).tolist():
        try:
            check_priority(float(values[row]))
        except SubscriptionError as error:
            errors[row] = error
    return kept
