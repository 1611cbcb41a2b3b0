"""Events in, canonical Arrow columns out.

A batch of events is a table of Arrow, pandas, Polars or any library with Arrow's C stream, one mapping or a sequence of
mappings. Whatever it is, an index sees one Arrow array per attribute, of the attribute's canonical type, NULL where an event
lacks it.

- Names are matched exactly; columns that the schema does not know are ignored. What looks like a mistake is reported: a
  name that differs from an attribute only in case, and events without any known name (see `NameCheck`).
- The attribute `a.b` is the column (or key) `a.b`, else the field `b` of the struct (or nested mapping) `a`.
- NaN is a value and stays NaN, except in pandas: its float columns cannot tell NaN from missing, so NaN is NULL there.
  For the same reason pandas turns integers with gaps into floats. For an integer attribute they are read as the integers
  they were, up to 2^53: beyond it pandas has rounded them, and they are refused. The nullable dtype `Int64` keeps all integers.
- A value that does not fit its attribute is the publisher's error: it raises `EventError`, or with `on_error="skip"`
  takes its row out of the batch and is listed in `errors`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from pyarrow import types

from wherecast.errors import EventError
from wherecast.language.events.arrow import ArrowArray, ArrowStream, as_table, canonical_type
from wherecast.language.events.convert import (
    Converted,
    convert_array,
    convert_values,
    field_of,
    is_plain,
    null_column,
    refused_column,
    struct_of,
    valid_rows,
    whole_array,
)
from wherecast.language.events.types import INTEGERS, Type
from wherecast.language.events.values import Misplaced, Stored, UnfitValueError, describe

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import numpy.typing as npt

    from wherecast.language.events.schema import Attribute, Schema
    from wherecast.language.events.zone import Zone

    DataFrame: TypeAlias = Any
    Series: TypeAlias = Any

__all__ = ["EventBatch", "EventReader", "Events", "OnError", "canonical_type"]

Made = TypeVar("Made")
#: What is read as events. A pandas frame is an `ArrowStream`; it is read in pandas' own terms.
Events: TypeAlias = (
    pa.Table | pa.RecordBatch | ArrowStream | ArrowArray | Mapping[str, object] | Iterable[Mapping[str, object]]
)
#: What to do with an event that has a value that does not fit its attribute.
OnError = Literal["raise", "skip"]
#: Up to here a float holds every integer.
_EXACT = 2.0**53


class EventBatch:
    """Events as canonical Arrow columns; made by `read`."""

    __slots__ = ("_columns", "_derived", "_kept", "_source", "errors", "plain", "rows", "schema", "stored")

    schema: Schema
    #: the 0-based number that each row of the batch had in the input
    rows: npt.NDArray[np.int64]
    #: why rows were skipped, one error for each, in order
    errors: list[EventError]
    #: the record batch behind it, where that has columns that need no conversion
    plain: PlainBatch | None
    #: where the values are in memory, for those who look (`index.stored`)
    stored: Any

    def __init__(
        self,
        schema: Schema,
        source: _Source,
        columns: dict[int, Converted],
        skipped: dict[int, EventError],
        plain: PlainBatch | None = None,
    ) -> None:
        self.schema, self.stored = schema, None
        self.plain = None if skipped else plain
        self.errors = [error for _, error in sorted(skipped.items())] if skipped else []
        self.rows = np.arange(source.length, dtype=np.int64)
        self._source = source
        self._kept: npt.NDArray[np.bool_] | None = None
        if skipped:
            self._kept = np.ones(source.length, np.bool_)
            self._kept[list(skipped)] = False
            self.rows = self.rows[self._kept]
        self._columns = {index: self._keep(column.values) for index, column in columns.items()} if columns else {}
        self._derived: dict[tuple[int, int], Any] = {}

    @classmethod
    def read(
        cls,
        schema: Schema,
        events: Events,
        on_error: OnError = "raise",
        needed: Collection[int] | None = None,
        names: NameCheck | None = None,
    ) -> EventBatch:
        """Read events.

        Args:
            schema: The attributes to read.
            events: A table of any library that speaks Arrow, one mapping, or several mappings.
            on_error: `raise` raises the first error; `skip` leaves bad rows out and lists their errors.
            needed: The attributes (by position) to convert and check at once; None for all. Others are not touched
                until `array` asks for them, and then a value in them that does not fit raises.
            names: Looks at the names in the events; an objection is an error of the event.

        Raises:
            EventError: A value does not fit its attribute, or the events cannot be read at all.
        """
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
        if isinstance(events, pa.Table) and len(batches := events.to_batches()) == 1:
            events = batches[0]
        attributes, zone = schema.attributes, schema.zone
        plain = None
        if names is not None and needed is not None and isinstance(events, pa.RecordBatch):
            plain = names.find_plain(events, needed, attributes)
        source = _open_source(events)
        if plain is not None:
            if not plain.columns.others:  # nothing is left to read, and nothing can be wrong
                return cls(schema, source, {}, {}, plain)
            wanted: Iterable[int] = plain.columns.others
        else:
            wanted = range(len(schema)) if needed is None else sorted(needed)
        columns = {index: source.read_column(attributes[index], zone) for index in wanted}
        if names is not None and plain is None:
            source.check_names(names, complete=not any(column.values.null_count for column in columns.values()))
        # The first row that is bad and in it the first attribute; a row that is not an event at all comes before both.
        failed = [(schema.attributes[index].name, column) for index, column in columns.items() if len(column.bad)]
        if on_error == "raise":
            rows = [*source.broken, *(int(column.bad[0]) for _, column in failed)]
            if rows:
                raise _error_of(min(rows), source, failed)
            return cls(schema, source, columns, {}, plain)
        skipped = {row: EventError(reason, row=row) for row, reason in source.broken.items()}
        for name, column in failed:
            for row in column.bad.tolist():
                if row not in skipped:
                    skipped[row] = EventError(column.describe(row), row=row, attribute=name)
        return cls(schema, source, columns, skipped, plain)

    @property
    def length(self) -> int:
        """How many rows the batch has, skipped ones not counted."""
        return len(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"EventBatch({self.length} events, {len(self.errors)} skipped)"

    def array(self, attribute_index: int) -> pa.Array:
        """The values of an attribute, in its canonical type. A column that was not `needed` is converted now."""
        array = self._columns.get(attribute_index)
        if array is None and self._source.length != len(self.rows) and self._kept is None:
            raise LookupError(f"attribute {attribute_index} was not read before the batch was sliced")
        if array is None and self.plain is not None and attribute_index in self.plain.columns.places:
            array = self._columns[attribute_index] = self.plain.events.column(
                self.plain.columns.places[attribute_index]
            )
        if array is None:
            attribute = self.schema.attributes[attribute_index]
            column = self._source.read_column(attribute, self.schema.zone)
            bad = column.bad if self._kept is None else column.bad[self._kept[column.bad]]
            if len(bad):
                row = int(bad[0])
                raise EventError(column.describe(row), row=row, attribute=attribute.name)
            array = self._columns[attribute_index] = self._keep(column.values)
        return array

    def derive(self, attribute_index: int, key: int, make: Callable[[pa.Array], Made]) -> Made:
        """Something made of the values of an attribute; what was made before under the same key is not made again."""
        made: Made | None = self._derived.get((attribute_index, key))
        if made is None:
            made = self._derived[attribute_index, key] = make(self.array(attribute_index))
        return made

    def has_read(self, attributes: Iterable[int]) -> bool:
        """Whether these attributes have been converted already."""
        return all(index in self._read() for index in attributes)

    def _read(self) -> dict[int, pa.Array]:
        """The columns that have been read, with those that need no conversion."""
        if self.plain is not None:
            for index in self.plain.columns.places:
                self.array(index)
        return self._columns

    def sample(self, count: int) -> EventBatch:
        """At most `count` rows, evenly spread, copied so that they do not hold the batch in memory."""
        rows = np.unique(np.linspace(0, max(len(self) - 1, 0), min(count, len(self))).astype(np.int64))
        part = self.slice(0, len(self))
        part.rows = self.rows[rows]
        part._source = _NoSource()  # noqa: SLF001
        part._columns = {index: array.take(pa.array(rows)) for index, array in self._read().items()}  # noqa: SLF001
        return part

    def take(self, rows: npt.NDArray[np.int64], attributes: Iterable[int]) -> EventBatch:
        """Some rows as a batch of their own, with these attributes only."""
        part = self.slice(0, 0)
        part.rows = self.rows[rows]
        places = pa.array(rows)
        part._source = _NoSource()  # noqa: SLF001
        part._columns = {index: self.array(index).take(places) for index in attributes}  # noqa: SLF001
        return part

    def without(self, errors: list[EventError]) -> EventBatch:
        """The batch less the rows of some errors, which are listed with its own; only columns read so far are kept."""
        refused = [e.row for e in errors if e.row is not None]
        part = self.take(np.flatnonzero(~np.isin(self.rows, refused)), self._read())
        part.errors = sorted([*self.errors, *errors], key=lambda e: e.row or 0)
        return part

    def slice(self, start: int, stop: int) -> EventBatch:
        """Rows `start` .. `stop - 1` as a batch of their own; nothing is copied."""
        part = EventBatch.__new__(EventBatch)
        part.schema, part.errors, part.rows = self.schema, [], self.rows[start:stop]
        part._source, part._kept, part._derived = self._source, None, {}  # noqa: SLF001  # its own class
        part.plain = part.stored = None
        part._columns = {  # noqa: SLF001
            index: array.slice(start, stop - start) for index, array in self._read().items()
        }
        return part

    def _keep(self, array: pa.Array) -> pa.Array:
        return array if self._kept is None else array.filter(pa.array(self._kept))


def _error_of(row: int, source: _Source, failed: list[tuple[str, Converted]]) -> EventError:
    if row in source.broken:
        return EventError(source.broken[row], row=row)
    name, column = next((name, column) for name, column in failed if column.bad[0] == row)
    return EventError(column.describe(row), row=row, attribute=name)


class PlainColumns(NamedTuple):
    """Which columns of record batches of some types are canonical as they are: these are neither converted nor looked at."""

    types: pa.Schema
    needed: Collection[int]
    others: list[int]  # needed attributes that are read as usual
    places: dict[int, int]  # columns by attribute
    listed: npt.NDArray[np.int64]  # (2, columns) the same: attributes and columns
    chosen: list[int] | None  # the columns, if the batches have more than twice as many
    have_texts: bool

    def find_in(self, events: pa.RecordBatch) -> PlainBatch | None:
        """The columns in a record batch; None if all have to be read, as texts may be no texts."""
        if not self.places:
            return None
        chosen = events if self.chosen is None else events.select(self.chosen)
        if self.have_texts:
            try:
                chosen.validate(full=True)
            except pa.ArrowInvalid:
                return None
        return PlainBatch(chosen, self)


class PlainBatch(NamedTuple):
    """A record batch with such columns; it has the chosen ones only."""

    events: pa.RecordBatch
    columns: PlainColumns


class _Source(Protocol):
    """Events of one form, read column by column."""

    length: int
    #: rows that are not events at all, and why
    broken: dict[int, str]

    def read_column(self, attribute: Attribute, zone: Zone) -> Converted: ...

    def check_names(self, check: NameCheck, *, complete: bool) -> None:
        """Raises EventError, or adds to `broken`, where the check objects to a name.

        `complete`: nothing that a filter needs is NULL, so only names that are new need a look.
        """


def _open_source(events: Events) -> _Source:
    if isinstance(events, pa.RecordBatch):
        return _ArrowSource(events)
    if isinstance(events, Mapping):
        return _MappingSource([events])
    pandas = sys.modules.get("pandas")  # not loaded: then it is not a DataFrame
    if pandas is not None and isinstance(events, pandas.DataFrame):
        return _PandasSource(events)
    try:
        table = None if isinstance(events, list | tuple) else as_table(events)
    except pa.ArrowException as error:
        raise EventError(f"the events cannot be read as an Arrow table: {error}") from None
    if table is not None:
        return _ArrowSource(table)
    if isinstance(events, str | bytes) or not isinstance(events, Iterable):
        raise EventError(f"expected a table of Arrow, pandas or Polars, a mapping or mappings, got {describe(events)}")
    return _MappingSource(list(events))


class _NoSource:
    """What is behind a sample: nothing more to read."""

    length = -1
    broken: dict[int, str] = {}  # noqa: RUF012  # never written

    def read_column(self, attribute: Attribute, zone: Zone) -> Converted:  # noqa: ARG002
        raise LookupError(f"attribute {attribute.name!r} is not part of the sample")

    def check_names(self, check: NameCheck, *, complete: bool) -> None:
        pass


class _ArrowSource:
    """The columns of a record batch or table."""

    def __init__(self, events: pa.RecordBatch | pa.Table) -> None:
        self.events = events
        self.length: int = events.num_rows
        self.broken: dict[int, str] = {}

    @cached_property
    def _schema(self) -> pa.Schema:
        return self.events.schema

    def read_column(self, attribute: Attribute, zone: Zone) -> Converted:
        place = self._schema.get_field_index(attribute.column)
        if place >= 0:  # the usual case: there is one such column
            return convert_array(attribute, whole_array(self.events.column(place), attribute), zone)
        for name, fields in _ways_to(attribute):
            found = self._schema.get_all_field_indices(name)
            if found:
                _refuse_repeats(attribute, name, len(found))
                return _read_array(attribute, whole_array(self.events.column(found[0]), attribute), fields, zone)
        return null_column(attribute, self.length)

    def check_names(self, check: NameCheck, *, complete: bool) -> None:
        names = self._schema.names
        if not (check.passes(names) or (complete and check.knows(names))):
            _check_columns(check, {field.name: _fields_of(field.type) for field in self._schema})


class _PandasSource:
    """The columns of a DataFrame."""

    def __init__(self, events: DataFrame) -> None:
        self.events = events
        self.length: int = len(events)
        self.broken: dict[int, str] = {}
        self.names: list[object] = list(events.columns)

    def read_column(self, attribute: Attribute, zone: Zone) -> Converted:
        for name, fields in _ways_to(attribute):
            found = self.names.count(name)
            if found:
                _refuse_repeats(attribute, name, found)
                return self._read_series(attribute, self.events.iloc[:, self.names.index(name)], fields, zone)
        return null_column(attribute, self.length)

    def check_names(self, check: NameCheck, *, complete: bool) -> None:
        names = dict.fromkeys(map(str, self.names))
        if not (complete and check.knows(names)):
            _check_columns(check, names)

    def _read_series(self, attribute: Attribute, series: Series, fields: tuple[str, ...], zone: Zone) -> Converted:
        if series.dtype != object:
            try:
                if attribute.type in INTEGERS and not attribute.is_array and series.dtype.kind == "f" and not fields:
                    return convert_array(attribute, _whole_numbers(series), zone)
                array = pa.array(series, from_pandas=True)
            except (pa.ArrowException, TypeError, ValueError):
                pass  # a dtype that Arrow does not know: its values may still fit, or say why not
            else:
                return _read_array(attribute, whole_array(array, attribute), fields, zone)
        missing = series.isna().tolist()
        values = [None if gone else value for value, gone in zip(series.tolist(), missing, strict=True)]
        return convert_values(attribute, [_descend(value, fields, attribute) for value in values], zone)


def _whole_numbers(series: Series) -> pa.Array:
    """Floats of pandas as integers, where all of them are: integers with gaps come as floats."""
    array = pa.array(series, from_pandas=True)
    values = array.drop_null().to_numpy(zero_copy_only=False)
    is_whole = bool(np.all((np.abs(values) <= _EXACT) & (np.trunc(values) == values)))
    return array.cast(pa.int64()) if is_whole else array


class _MappingSource:
    """Events as mappings."""

    def __init__(self, events: list[object]) -> None:
        self.length = len(events)
        self.broken: dict[int, str] = {}
        self.events: list[Mapping[str, object]] = []
        for row, event in enumerate(events):
            if type(event) is dict or isinstance(event, Mapping):  # the first test is the fast one
                self.events.append(event)
            else:
                self.broken[row] = f"expected a mapping of attributes to values, got {describe(event)}"
                self.events.append({})

    def read_column(self, attribute: Attribute, zone: Zone) -> Converted:
        if len(attribute.path) == 1:  # without a call for each
            return convert_values(attribute, [event.get(attribute.column) for event in self.events], zone)
        return convert_values(attribute, [_look_up(event, attribute) for event in self.events], zone)

    def check_names(self, check: NameCheck, *, complete: bool) -> None:
        if complete and check.knows(set[object]().union(*self.events)):
            return
        for row, event in enumerate(self.events):
            reason = check.check(event)
            if reason is not None:
                self.broken.setdefault(row, reason)


def _check_columns(check: NameCheck, names: Mapping[str, object]) -> None:
    reason = check.check(names)
    if reason is not None:
        raise EventError(reason)


def _fields_of(kind: pa.DataType) -> dict[str, object] | None:
    return {field.name: _fields_of(field.type) for field in kind} if types.is_struct(kind) else None


def _ways_to(attribute: Attribute) -> list[tuple[str, tuple[str, ...]]]:
    """Where an attribute can be: in the column of its name, or in fields of the column its name begins with."""
    first, *fields = attribute.path
    whole: list[tuple[str, tuple[str, ...]]] = [(attribute.column, ())]
    return [*whole, (first, tuple(fields))] if fields else whole


def _look_up(event: Mapping[str, object], attribute: Attribute) -> object:
    """The value of an attribute: under its name, else in fields one inside the other."""
    name, path = attribute.column, attribute.path
    return event.get(name) if len(path) == 1 or name in event else _descend(event, path, attribute)


def _descend(value: object, fields: Sequence[str], attribute: Attribute) -> object:
    """A field of nested mappings; of an array of them, the array of their fields."""
    for depth, field in enumerate(fields):
        if value is None:
            return None
        if attribute.is_array and isinstance(value, list | tuple):
            return [_descend(element, fields[depth:], attribute) for element in value]
        if not isinstance(value, Mapping):
            return Misplaced(field, value)
        value = value.get(field)
    return value


def _read_array(attribute: Attribute, array: pa.Array, fields: Sequence[str], zone: Zone) -> Converted:
    """Convert a column, or a field of a struct column, or of a column of arrays of structs; a NULL struct has NULL fields."""
    length = len(array)
    for field in fields:
        if types.is_null(array.type):
            break
        struct = struct_of(array.type, in_lists=attribute.is_array)
        if struct is None:
            reason = f"expected a struct with field {field!r}, got {array.type}"
            return refused_column(attribute, valid_rows(array), length, reason)
        found = struct.get_all_field_indices(field)
        if not found:
            return null_column(attribute, length)
        _refuse_repeats(attribute, field, len(found))
        array = field_of(array, found[0])
    return convert_array(attribute, array, zone)


def _refuse_repeats(attribute: Attribute, name: str, count: int) -> None:
    if count > 1:
        raise EventError(f"there are {count} columns or fields {name!r}; leave one", attribute=attribute.name)


def _plain_columns(types: pa.Schema, needed: Collection[int], attributes: Sequence[Attribute]) -> PlainColumns:
    """The columns of such record batches that are in canonical form."""
    found = {index: types.get_field_index(attributes[index].column) for index in sorted(needed)}
    places = {i: place for i, place in found.items() if place >= 0 and is_plain(attributes[i], types.field(place).type)}
    have_texts = any(attributes[index].type is Type.STRING for index in places)
    others = [index for index in found if index not in places]
    chosen = list(places.values()) if 2 * len(places) < len(types) else None
    if chosen is not None:
        places = dict(zip(places, range(len(chosen)), strict=True))
    listed = np.array([list(places), list(places.values())], np.int64)
    return PlainColumns(types, needed, others, places, listed, chosen, have_texts)


class EventReader:
    """Reads single events: the values of some attributes as an index knows them, without Arrow.

    It accepts and refuses the same events as `EventBatch.read`, with the same errors.
    """

    def __init__(self, schema: Schema, needed: Collection[int], names: NameCheck) -> None:
        self.needed = needed
        self._zone, self._names = schema.zone, names
        self._attributes = [(index, schema.attributes[index]) for index in sorted(needed)]
        self._by_name: dict[str, tuple[int, Attribute, Callable[[Any], bool]]] = {}
        self._nested: list[tuple[int, Attribute]] = []
        for index, attribute in self._attributes:
            if len(attribute.path) > 1:
                self._nested.append((index, attribute))
            else:
                self._by_name[attribute.column] = index, attribute, _plain_test(attribute)

    def read(self, event: Mapping[str, object]) -> dict[int, Stored]:
        """The values that an event has, by attribute; those that are missing or NULL are left out. Raises EventError."""
        if type(event) is not dict and not isinstance(event, Mapping):
            raise EventError(f"expected a mapping of attributes to values, got {describe(event)}", row=0)
        values: dict[int, Stored] = {}
        by_name = self._by_name
        try:
            for name in event if len(event) < len(by_name) else by_name:
                found = by_name.get(name)
                value = event.get(name)
                if found is None or value is None:
                    continue
                index, attribute, is_plain = found
                if is_plain(value):
                    values[index] = value  # type: ignore[assignment]
                else:
                    self._fit(index, attribute, value, values)
            for index, attribute in self._nested:
                self._fit(index, attribute, _look_up(event, attribute), values)
        except UnfitValueError:
            self._raise_first_error(event)
        if len(values) < len(self.needed) or not self._names.knows(event):
            self._check_names(event)
        return values

    def _fit(self, index: int, attribute: Attribute, value: object, values: dict[int, Stored]) -> None:
        if attribute.value is not None:
            pairs, value_of = attribute.fit_map(value, self._zone), attribute.value.stored
            if pairs is not None:
                values[index] = {attribute.stored(key): value_of(item) for key, item in pairs}  # type: ignore[misc]
            return
        if attribute.is_array:
            elements = attribute.fit_array(value, self._zone)
            if elements is not None:
                values[index] = [attribute.stored(element) for element in elements]
            return
        fitted = attribute.stored(attribute.fit(value, self._zone))
        if fitted is not None:
            values[index] = fitted

    def _check_names(self, event: Mapping[str, object]) -> None:
        reason = self._names.check(event)
        if reason is not None:
            raise EventError(reason, row=0)

    def _raise_first_error(self, event: Mapping[str, object]) -> NoReturn:
        """A name before a value, and of the values that of the first attribute."""
        self._check_names(event)
        for index, attribute in self._attributes:
            try:
                self._fit(index, attribute, _look_up(event, attribute), {})
            except UnfitValueError as misfit:
                raise EventError(str(misfit), row=0, attribute=attribute.name) from None
        raise AssertionError("a value did not fit, and now all do")


def _plain_test(attribute: Attribute) -> Callable[[Any], bool]:
    return (lambda _: False) if attribute.is_array else attribute.form.is_plain


_log = logging.getLogger("wherecast.events")
#: Names that are remembered as looked at, and reports that are written at most: events may have any number of names.
_MOST_NAMES, _MOST_REPORTS = 10_000, 100
_SHOWN = 5


class NameCheck:
    """Finds mistakes in the names of events, which must not look like missing values.

    What an event lacks is NULL, so `Price` instead of `price` would be NULL without a word. Two cases are reported: a name
    that differs from an attribute only in case, and an event without any name of the schema. Other names are fine. An event
    that has everything filters need and brings no new name pays one look-up of its names, see `knows`.

    Each name is logged once; with `strict`, `check` returns the reason every time and nothing is logged.
    """

    def __init__(self, schema: Schema, *, strict: bool = False) -> None:
        self.strict = strict
        self._root = _Level()
        for attribute in schema.attributes:
            self._root.add(attribute.column, list(attribute.path))
        self._known = frozenset(self._root.fields)
        self._is_nested = any(level is not None for level in self._root.fields.values())
        self._fine: set[object] = set()  # names outside of structs that need no second look
        self._told: set[str] = set()
        self._plain: PlainColumns | None = None  # of the last record batch

    def find_plain(
        self, events: pa.RecordBatch, needed: Collection[int], attributes: Sequence[Attribute]
    ) -> PlainBatch | None:
        """The columns of a record batch that are in canonical form; None as long as its names need a look."""
        found, types = self._plain, events.schema
        if found is None or (found.needed is not needed and found.needed != needed) or not found.types.equals(types):
            if not self.passes(types.names):
                return None
            found = self._plain = _plain_columns(types, needed, attributes)
        return found.find_in(events)

    def knows(self, names: Iterable[object]) -> bool:
        """Whether all these names, outside of structs, were looked at before and are fine or reported."""
        return self._fine.issuperset(names)

    def passes(self, names: Iterable[str]) -> bool:
        """Whether these names need no further look, whatever is NULL: no struct is among the attributes, and all is fine."""
        return not self._is_nested and self._fine.issuperset(names) and not self._known.isdisjoint(names)

    def check(self, event: Mapping[str, object]) -> str | None:
        """What is wrong with the names of an event (or of the columns of a batch), if it has not been told before."""
        if self.passes(event):
            return None
        reasons = list(self._root.compare(event, ""))
        if not reasons and event and self._known.isdisjoint(event):
            reasons.append(_strangers(event, self._root.fields))
        if self.strict and reasons:
            return reasons[0]
        if len(self._fine) < _MOST_NAMES:
            self._fine.update(event)
        for reason in reasons:
            self._report(reason)
        return None

    def _report(self, reason: str) -> None:
        if reason in self._told or len(self._told) >= _MOST_REPORTS:
            return
        self._told.add(reason)
        _log.warning("%s", reason)
        if len(self._told) == _MOST_REPORTS:
            _log.warning("%d such reports; no more are written", _MOST_REPORTS)


class _Level:
    """The names that an event, or a struct in it, can have; those of structs have a level of their own."""

    __slots__ = ("_by_lower_name", "fields")

    def __init__(self) -> None:
        self.fields: dict[str, _Level | None] = {}
        self._by_lower_name: dict[str, str] = {}

    def add(self, name: str, path: list[str]) -> None:
        """An attribute: the key of its whole name, or fields one inside the other."""
        self._put(name, None)
        if len(path) > 1:
            inner = self.fields.get(path[0])
            inner = _Level() if inner is None else inner
            self._put(path[0], inner)
            inner.add(".".join(path[1:]), path[1:])

    def _put(self, name: str, level: _Level | None) -> None:
        self.fields[name] = level
        self._by_lower_name[name.lower()] = name

    def compare(self, names: Mapping[str, object], prefix: str) -> Iterator[str]:
        """Names that differ from known ones only in case."""
        for name, value in names.items():
            if name in self.fields:
                level = self.fields[name]
                if level is not None and isinstance(value, Mapping):
                    yield from level.compare(value, f"{prefix}{name}.")
            elif (meant := self._by_lower_name.get(str(name).lower())) is not None:
                yield (
                    f"events have {prefix + name!r}, but the attribute is {prefix + meant!r}, which is NULL where it is "
                    f"missing: upper and lower case must agree; rename one of them"
                )


def _strangers(event: Mapping[str, object], known: Iterable[str]) -> str:
    return f"an event has none of the attributes {_some(known)}, so all are NULL; its names are {_some(event)}"


def _some(names: Iterable[object]) -> str:
    shown = [repr(name)[:60] for name in names]
    return ", ".join(shown[:_SHOWN]) + (", ..." if len(shown) > _SHOWN else "")
