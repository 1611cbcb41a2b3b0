"""Records as bytes and back, in msgpack.

Theory of operation
-------------------
A record (a frozen dataclass or a NamedTuple) is an array: the number of its class in a table, then its fields in order. What
is read is built by following the annotations of that class: each field must be exactly of its type, in number and kind, or
the whole is refused. Nothing that arrives chooses what code runs.

msgpack has integers of 64 bits; longer ones, as ring positions are, travel as extension 1, big-endian two's complement, and
only they do: every record has one form.

What comes from outside is counted before it is built (`count_values`): a frame cannot become many times its size. A byte can announce an array, and an empty array takes 64 bytes once it is built; five bytes can announce millions of elements,
whose list is laid out before the first is read. So a body is walked over first. Nothing that the walk refuses is a record:
records have no maps and no floats.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgpack

from wherecast.overlay import messages as m
from wherecast.overlay import requests as r
from wherecast.overlay.positions import Contact

#: Bytes of a value by its first byte, for those of a fixed length; 0: see below, or not allowed.
_FIXED = [0] * 256
_FIXED[0x00:0x80] = [1] * 0x80  # small integers
_FIXED[0xE0:0x100] = [1] * 0x20
_FIXED[0xA0:0xC0] = [1 + length for length in range(0x20)]  # short texts
_FIXED[0xC0], _FIXED[0xC2], _FIXED[0xC3] = 1, 1, 1  # None, False, True
_FIXED[0xCC:0xD4] = [2, 3, 5, 9] * 2  # integers
_FIXED[0xD4:0xD9] = [2 + length for length in (1, 2, 4, 8, 16)]  # extensions
#: Bytes before what is measured by the byte after the first: bytes, extensions, texts.
_SHORT = {0xC4: 2, 0xC7: 3, 0xD9: 2}
#: Bytes of the length that follows the first byte: bytes and texts; arrays.
_SIZED = {0xC5: 2, 0xC6: 4, 0xDA: 2, 0xDB: 4}
_ARRAYS = {0xDC: 2, 0xDD: 4}


def count_values(body: bytes, most: int) -> int:
    """The values of a body, those inside of arrays included. Raises ValueError if there are more, or if it is not a record."""
    try:
        return _walk(body, most)
    except IndexError:
        raise ValueError("the end is missing") from None


def _walk(body: bytes, most: int) -> int:
    fixed, place, found, due = _FIXED, 0, 1, 1
    while due:
        due -= 1
        head = body[place]
        if step := fixed[head]:
            place += step
        elif 0x90 <= head < 0xA0 or head in _ARRAYS:
            width = _ARRAYS.get(head, 0)
            length = int.from_bytes(body[place + 1 : place + 1 + width], "big") if width else head & 0x0F
            place += 1 + width
            due += length
            found += length
            if found > most:
                raise ValueError(f"more than {most} values")
        elif head in _SHORT:
            place += _SHORT[head] + body[place + 1]
        elif head in _SIZED:
            width = _SIZED[head]
            place += 1 + width + int.from_bytes(body[place + 1 : place + 1 + width], "big")
        else:
            raise ValueError(f"a value that begins with byte {head:#04x}, which no record has")
    return found


_LONG = 1
_LONGEST_BYTES = 64
#: Values in one record that travels: built, they take 75 MB at most, and their texts four times the frame.
MAX_VALUES = 1 << 20
_Reader = Callable[[Any], Any]


class WireError(ValueError):
    """Bytes that are not a record, or a record that cannot be written."""


class Codec:
    """Reads and writes the records of a table. The place of a class in the table is its number: append, never reorder.

    A record of more than `max_values` values is neither read nor written; None: what is read is our own, of any size.
    """

    def __init__(self, records: Sequence[type], max_values: int | None = None) -> None:
        self._max_values = max_values
        self._numbers = {record: number for number, record in enumerate(records)}
        self._readers: dict[type, _Reader] = {}
        self._any = self._union(records)

    def encode(self, record: object) -> bytes:
        """The bytes of a record."""
        if type(record) not in self._numbers:
            raise WireError(f"a {type(record).__name__} is not a record of this protocol")
        try:
            found: bytes = msgpack.packb(record, default=self._plain, strict_types=True)
            if self._max_values is not None and len(found) > self._max_values:  # else it cannot hold as many
                count_values(found, self._max_values)
        except (ValueError, TypeError, OverflowError) as error:
            raise WireError(f"{type(record).__name__} cannot be written: {error}") from None
        return found

    def decode(self, body: bytes) -> Any:
        """The record that the bytes stand for."""
        try:
            if self._max_values is not None:
                count_values(body, self._max_values)
            value = msgpack.unpackb(body, ext_hook=_long, strict_map_key=True)
            return self._any(value)
        except WireError:
            raise
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
            raise WireError(f"no msgpack: {error or type(error).__name__}") from None

    # -- writing ----------------------------------------------------------------------------------------------------

    def _plain(self, value: object) -> object:
        """What msgpack does not know, in terms that it does."""
        number = self._numbers.get(type(value))
        if number is not None:
            return [number, *(value if isinstance(value, tuple) else [getattr(value, f.name) for f in fields(value)])]  # type: ignore[arg-type]
        if type(value) is tuple:
            return list(value)
        if type(value) is int:
            length = value.bit_length() // 8 + 1
            if length <= _LONGEST_BYTES:
                return msgpack.ExtType(_LONG, value.to_bytes(length, "big", signed=True))
        raise WireError(f"a {type(value).__name__} that the protocol does not know")

    # -- reading ----------------------------------------------------------------------------------------------------

    def _reader(self, hint: Any) -> _Reader:
        """How a value of an annotated type is read."""
        if hint in self._numbers:
            return self._record(hint)
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is tuple:
            if len(arguments) == 2 and arguments[1] is Ellipsis:
                return _many(self._reader(arguments[0]))
            return _few([self._reader(argument) for argument in arguments])
        if origin in (Union, types.UnionType):
            return self._union(arguments)
        assert hint in (int, bool, str, bytes, types.NoneType), f"no reader for {hint}"
        return _exactly(hint)

    def _record(self, record: type) -> _Reader:
        if record not in self._readers:
            hints, number = get_type_hints(record), self._numbers[record]
            self._readers[record] = _fields(record, number, [self._reader(hint) for hint in hints.values()])
        return self._readers[record]

    def _union(self, hints: Sequence[Any]) -> _Reader:
        """Records are told apart by their numbers, all else by its kind."""
        records = {self._numbers[hint]: self._reader(hint) for hint in hints if hint in self._numbers}
        others = {get_origin(hint) or hint: self._reader(hint) for hint in hints if hint not in self._numbers}
        plain = {list if kind is tuple else kind: reader for kind, reader in others.items()}

        def read(value: Any) -> Any:
            if type(value) is list and value and type(value[0]) is int and value[0] in records:
                return records[value[0]](value)
            reader = plain.get(type(value))
            if reader is None:
                raise WireError(f"a {type(value).__name__} where none is allowed")
            return reader(value)

        return read


def _fields(record: type, number: int, readers: list[_Reader]) -> _Reader:
    def read(value: Any) -> Any:
        if type(value) is not list or len(value) != len(readers) + 1 or type(value[0]) is not int or value[0] != number:
            raise WireError(f"not the fields of {record.__name__}")
        return record(*[reader(field) for reader, field in zip(readers, value[1:], strict=True)])

    return read


def _exactly(kind: type) -> _Reader:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise WireError(f"a {type(value).__name__} where {kind.__name__} belongs")
        return value

    return read


def _many(reader: _Reader) -> _Reader:
    def read(value: Any) -> Any:
        if type(value) is not list:
            raise WireError(f"a {type(value).__name__} where an array belongs")
        return tuple([reader(element) for element in value])

    return read


def _few(readers: list[_Reader]) -> _Reader:
    def read(value: Any) -> Any:
        if type(value) is not list or len(value) != len(readers):
            raise WireError(f"no array of {len(readers)}")
        return tuple([reader(element) for reader, element in zip(readers, value, strict=True)])

    return read


def _long(code: int, data: bytes) -> int:
    value = int.from_bytes(data, "big", signed=True)
    is_shortest = len(data) == value.bit_length() // 8 + 1 <= _LONGEST_BYTES
    if code != _LONG or not is_shortest or -(2**63) <= value < 2**64:
        raise WireError(f"no long integer in extension {code}")
    return value


#: What travels between peers.
WIRE = Codec(
    (
        Contact, m.Span, m.Record, m.Piece, m.Entry, m.Item,
        m.Ask, m.State, m.Ping, m.Pong, m.Leaving, m.Step, m.Nearer,
        m.Find, m.Put, m.Query, m.Notify, m.Route, m.Took,
        m.Found, m.Stored, m.Listed, m.Deliver, m.Delivered,
        m.Copy, m.Copied, m.Sync, m.Synced, m.Handover,
        r.Envelope, r.Enter, r.Welcome, r.Founders, r.Waiting,
        r.Subscribe, r.Unsubscribe, r.Publish, r.Inspect, r.Taken,
        r.Done, r.Refused, r.Told, r.Published, r.Status, r.Notice,
    ),
    MAX_VALUES,
)  # fmt: skip
