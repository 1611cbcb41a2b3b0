"""The forms that events come in, each read column by column.

- The attribute `a.b` is the column (or key) `a.b`, else the field `b` of the struct (or nested mapping) `a`.
- NaN is a value and stays NaN, except in pandas: its float columns cannot tell NaN from missing, so NaN is NULL there.
  For the same reason pandas turns integers with gaps into floats. For an integer attribute they are read as the integers
  they were, up to 2^53: beyond it pandas has rounded them, and they are refused. The nullable dtype `Int64` keeps all integers.
- Columns of a record batch that are canonical as they are need no source: `PlainColumns` says which they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from pyarrow import types

from wherecast.errors import EventError
from wherecast.language.events.arrow import ArrowArray, ArrowStream, as_table
from wherecast.language.events.convert import (
    Converted,
    convert_array,
    convert_values,
    field_of,
    null_column,
    refused_column,
    struct_of,
    whole_array,
)
from wherecast.language.events.scalars import is_plain, valid_rows
from wherecast.language.events.types import INTEGERS, Type
from wherecast.language.events.values import Misplaced, describe

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

    from wherecast.language.events.names import NameCheck
    from wherecast.language.events.schema import Attribute
    from wherecast.language.events.zone import Zone

    DataFrame: TypeAlias = Any
    Series: TypeAlias = Any

#: What is read as events. A pandas frame is an `ArrowStream`; it is read in pandas' own terms.
Events: TypeAlias = (
    pa.Table | pa.RecordBatch | ArrowStream | ArrowArray | Mapping[str, object] | Iterable[Mapping[str, object]]
)
#: Up to here a float holds every integer.
_EXACT = 2.0**53


class EventSource(Protocol):
    """Events of one form, read column by column."""

    length: int
    #: rows that are not events at all, and why
    broken: dict[int, str]

    def read_column(self, attribute: Attribute, zone: Zone) -> Converted: ...

    def check_names(self, check: NameCheck, *, complete: bool) -> None:
        """Raises EventError, or adds to `broken`, where the check objects to a name.

        `complete`: nothing that a filter needs is NULL, so only names that are new need a look.
        """


def open_source(events: Events) -> EventSource:
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


class NoSource:
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
        return convert_values(attribute, [look_up(event, attribute) for event in self.events], zone)

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


def look_up(event: Mapping[str, object], attribute: Attribute) -> object:
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
        if self.have_texts and not (len(events) >= _MANY_ROWS and _are_ascii(chosen)):
            try:
                chosen.validate(full=True)
            except pa.ArrowInvalid:
                return None
        return PlainBatch(chosen, self)


_BEYOND_ASCII = 128
#: From so many rows on it pays to look at the bytes of all texts at once.
_MANY_ROWS = 1_000


def _are_ascii(events: pa.RecordBatch) -> bool:
    """Whether texts have nothing but ASCII, in order: then they are UTF-8, which Arrow finds out text by text in ten times the time."""
    events.validate()  # buffers are as large as they have to be
    for column in events.columns:
        if not types.is_string(column.type):
            if not types.is_primitive(column.type):
                return False
            continue
        _, offsets, data = column.buffers()
        letters = np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)
        ends = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset)
        if ends[0] < 0 or (ends[1:] < ends[:-1]).any() or ends[-1] > letters.size:
            return False
        if letters[ends[0] : ends[-1]].max(initial=0) >= _BEYOND_ASCII:
            return False
    return True


class PlainBatch(NamedTuple):
    """A record batch with such columns; it has the chosen ones only."""

    events: pa.RecordBatch
    columns: PlainColumns


def plain_columns(types: pa.Schema, needed: Collection[int], attributes: Sequence[Attribute]) -> PlainColumns:
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
