"""Names in events that are not read: a mistake in a name must not look like a missing value.

Names are matched exactly, and what an event lacks is NULL. So `Price` instead of `price` would be NULL without a word. Two
cases are reported: a name that differs from an attribute only in case, and an event without any name of the schema. Other
names belong to somebody else and are fine.

Names are looked at only where an attribute that a filter needs was read as NULL: an event that has everything pays nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from wherecast.language.schema import Schema

_log = logging.getLogger("wherecast.events")
#: Names that are remembered as looked at, and reports that are written at most: events may have any number of names.
_MOST_NAMES, _MOST_REPORTS = 10_000, 100
_SHOWN = 5


class NameCheck:
    """Reports names once each; with `strict`, `check` returns the reason every time and nothing is logged."""

    def __init__(self, schema: Schema, *, strict: bool = False) -> None:
        self.strict = strict
        self._root = _Level()
        for attribute in schema.attributes:
            self._root.add(attribute.name, attribute.name.split("."))
        self._known = frozenset(self._root.fields)
        self._is_nested = any(level is not None for level in self._root.fields.values())
        self._fine: set[object] = set()  # names that need no second look, if nothing is nested
        self._told: set[str] = set()

    def check(self, event: Mapping[str, object]) -> str | None:
        """What is wrong with the names of an event (or of the columns of a batch), if it has not been told before."""
        if not self._is_nested and self._fine.issuperset(event) and not self._known.isdisjoint(event):
            return None
        reasons = list(self._root.compare(event, ""))
        if not reasons and event and self._known.isdisjoint(event):
            reasons.append(_strangers(event, self._root.fields))
        if self.strict:
            return reasons[0] if reasons else None
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
