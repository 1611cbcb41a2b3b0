"""Whether a message can be true: the second look, after the codec has seen to its types.

A node believes what it is told: an entry in a list that the schema does not have would be stored, copied and stumbled over
ever after. So every id, place, list and key in a message is held against the rules of the ring before a node sees it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from wherecast.overlay import messages as m
from wherecast.overlay.placement import METADATA, RingPlacement
from wherecast.overlay.positions import Contact
from wherecast.overlay.requests import is_address
from wherecast.overlay.wire import WireError


class Admission:
    """The rules of one ring, by the type of record that they are about."""

    def __init__(self, placement: RingPlacement) -> None:
        self._schema = placement.schema
        self._lines = placement.lines
        self._placement = placement
        self._size = 1 << placement.settings.bits
        self._rules: dict[type, Callable[[Any], bool]] = {
            Contact: lambda c: self._is_position(c.id) and is_address(c.address),
            m.Record: lambda r: is_address(r.address),
            m.Entry: self._is_entry,
            m.Item: lambda i: self._is_position(i.position) and i.hops >= 0,
            m.Step: lambda s: self._is_position(s.position),
            m.Sync: lambda s: self._is_position(s.start) and self._is_position(s.end),
            m.Synced: lambda s: self._is_position(s.start) and self._is_position(s.end),
            m.Handover: lambda h: self._is_position(h.start) and self._is_position(h.end),
            m.Find: lambda p: is_address(p.origin),
            m.Put: lambda p: is_address(p.origin) and self._is_run(p.entry.list, p.first, p.last),
            m.Query: lambda p: is_address(p.origin) and self._is_key_of_list(p.list, p.key),
            m.Notify: lambda p: is_address(p.origin) and self._are_values(p.event),
            m.Deliver: lambda p: is_address(p.origin) and self._are_values(p.event),
        }

    def check(self, message: object) -> None:
        """Raises WireError if the message, or anything in it, cannot be."""
        rule = self._rules.get(type(message))
        if rule is not None and not rule(message):
            raise WireError(f"a {type(message).__name__} that no peer of this ring would send")
        if isinstance(message, tuple):
            for part in message:
                self.check(part)
        elif is_dataclass(message):
            for field in fields(message):
                self.check(getattr(message, field.name))

    def _is_position(self, position: int) -> bool:
        return 0 <= position < self._size

    def _is_list(self, list: int) -> bool:
        """An ordered list is there only for attributes that have an order here."""
        if list == METADATA:
            return True
        attribute = list >> 1
        if not 0 <= attribute < len(self._schema) or self._schema.attributes[attribute].is_array:
            return False
        return bool(list & 1) or self._lines[attribute] is not None

    def _is_run(self, list: int, first: int, last: int) -> bool:
        return self._is_list(list) and 0 <= first <= last < self._size << self._placement.shift(list)

    def _is_entry(self, entry: m.Entry) -> bool:
        return (
            self._is_list(entry.list)
            and entry.subscription >= 0
            and all(self._is_piece(entry.list, piece) for piece in entry.pieces)
        )

    def _is_piece(self, list: int, piece: m.Piece) -> bool:
        if not self._is_run(list, piece.first, piece.last) or piece.version < 0:
            return False
        if piece.value is None or list == METADATA:
            return piece.value is None or isinstance(piece.value, m.Record)
        if isinstance(piece.value, m.Record):
            return False
        return all(end is None or self._is_key(list >> 1, end, slack=1) for span in piece.value for end in span)

    def _is_key_of_list(self, list: int, key: int | bytes) -> bool:
        return list != METADATA and self._is_list(list) and self._is_key(list >> 1, key)

    def _is_key(self, attribute: int, key: int | bytes, slack: int = 0) -> bool:
        """Strings are bytes, all else is 64 bits; the end of a span may lie one beyond."""
        if isinstance(key, bytes):
            return self._schema.attributes[attribute].is_text
        return not self._schema.attributes[attribute].is_text and -(2**63) <= key < 2**63 + slack

    def _are_values(self, values: m.Values) -> bool:
        return all(
            0 <= attribute < len(self._schema)
            and not self._schema.attributes[attribute].is_array
            and self._is_key(attribute, key)
            for attribute, key in values
        )
