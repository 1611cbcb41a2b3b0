"""Names of events that look like mistakes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from wherecast.language.events.sources import PlainBatch, PlainColumns, plain_columns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pyarrow as pa

    from wherecast.language.events.schema import Attribute, Schema

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
            found = self._plain = plain_columns(types, needed, attributes)
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
