"""Events in, canonical Arrow columns out.

A batch of events is a table of Arrow, pandas, Polars or any library with Arrow's C stream, one mapping or a sequence of
mappings (`sources`). Whatever it is, an index sees one Arrow array per attribute, of the attribute's canonical type, NULL where an event
lacks it.

- Names are matched exactly; columns that the schema does not know are ignored. What looks like a mistake is reported: a
  name that differs from an attribute only in case, and events without any known name (`names`).
- A value that does not fit its attribute is the publisher's error: it raises `EventError`, or with `on_error="skip"`
  takes its row out of the batch and is listed in `errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

import numpy as np
import pyarrow as pa

from wherecast.errors import EventError
from wherecast.language.events.arrow import canonical_type
from wherecast.language.events.names import NameCheck
from wherecast.language.events.sources import Events, EventSource, NoSource, PlainBatch, look_up, open_source
from wherecast.language.events.values import Stored, UnfitValueError, describe

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy.typing as npt

    from wherecast.language.events.convert import Converted
    from wherecast.language.events.schema import Attribute, Schema

__all__ = ["EventBatch", "EventReader", "Events", "OnError", "canonical_type"]

Made = TypeVar("Made")
#: What to do with an event that has a value that does not fit its attribute.
OnError = Literal["raise", "skip"]


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
        source: EventSource,
        columns: dict[int, Converted],
        skipped: dict[int, EventError],
        plain: PlainBatch | None = None,
    ) -> None:
        self.schema, self.stored = schema, None
        self.plain = None if skipped else plain
        self.errors = [error for _, error in sorted(skipped.items())] if skipped else []
        self.rows = _first_rows(source.length)
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
        source = open_source(events)
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
        if array is None:
            array = self._columns[attribute_index] = self._find(attribute_index)
        return array

    def _find(self, attribute_index: int) -> pa.Array:
        """The values of an attribute that nobody asked for yet."""
        if self._source.length != len(self.rows) and self._kept is None:
            raise LookupError(f"attribute {attribute_index} was not read before the batch was sliced")
        if self.plain is not None and attribute_index in self.plain.columns.places:
            return self.plain.events.column(self.plain.columns.places[attribute_index])
        attribute = self.schema.attributes[attribute_index]
        column = self._source.read_column(attribute, self.schema.zone)
        bad = column.bad if self._kept is None else column.bad[self._kept[column.bad]]
        if len(bad):
            row = int(bad[0])
            raise EventError(column.describe(row), row=row, attribute=attribute.name)
        return self._keep(column.values)

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
        part._source = NoSource()  # noqa: SLF001
        part._columns = {index: array.take(pa.array(rows)) for index, array in self._read().items()}  # noqa: SLF001
        return part

    def take(self, rows: npt.NDArray[np.int64], attributes: Iterable[int]) -> EventBatch:
        """Some rows as a batch of their own, with these attributes only."""
        part = self.slice(0, 0)
        part.rows = self.rows[rows]
        places = pa.array(rows)
        part._source = NoSource()  # noqa: SLF001
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


#: The rows of small batches, read-only: counting anew takes as long as matching a hundred events.
_FIRST_ROWS: npt.NDArray[np.int64] = np.arange(4_096, dtype=np.int64)
_FIRST_ROWS.flags.writeable = False


def _first_rows(n: int) -> npt.NDArray[np.int64]:
    return _FIRST_ROWS[:n] if n <= _FIRST_ROWS.size else np.arange(n, dtype=np.int64)


def _error_of(row: int, source: EventSource, failed: list[tuple[str, Converted]]) -> EventError:
    if row in source.broken:
        return EventError(source.broken[row], row=row)
    name, column = next((name, column) for name, column in failed if column.bad[0] == row)
    return EventError(column.describe(row), row=row, attribute=name)


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
                self._fit(index, attribute, look_up(event, attribute), values)
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
                self._fit(index, attribute, look_up(event, attribute), {})
            except UnfitValueError as misfit:
                raise EventError(str(misfit), row=0, attribute=attribute.name) from None
        raise AssertionError("a value did not fit, and now all do")


def _plain_test(attribute: Attribute) -> Callable[[Any], bool]:
    return (lambda _: False) if attribute.is_array else attribute.form.is_plain
