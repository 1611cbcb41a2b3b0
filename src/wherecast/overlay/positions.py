"""Positions on the ring: of nodes, of subscription ids, and of values.

A ring position is an integer of `m` bits; the ring is read clockwise, and `2**m - 1` is followed by 0. The owner of a
position is its *successor*: the first node at or after it.

A subscription id is the concatenation c1 | c2 | c3 (section 3 of the paper): the node that took the subscription,
`m` bits; the number of the subscription there; and the number of attributes that it constrains.

Theory of operation of the hashes
---------------------------------
Chord (section 3.1): a value is at SHA-1 of attribute and value. Neighbouring values are strangers, so a range is stored
value by value, stepping by the precision.

OPChord (section 4.1): h(v) = (s0 + (v - min) / (max - min) * 2^m) mod 2^m, where s0 = SHA-1 of the attribute's name.
Neighbouring values are neighbours on the ring, so a range is one arc. Departures from the formula:

- It sends max to s0 + 2^m = s0, the place of min. Here the divisor is the number of *cells*, (max - min) / precision + 1.
- A value is rounded to its cell first, and a value outside the domain is taken for the nearest end. So the hash never
  decreases, and any value inside a range hashes into the range's arc, on the grid or off it.
- A domain with fewer cells than the ring has nodes would leave nodes without a value between any two values, and a range
  would have to pass them all (the "small domain problem" of section 4.3). So the divisor is not less than the number of
  nodes that the ring is laid out for: such a domain takes an arc of about one node per cell, from s0 on. It could not have
  used more nodes than it has cells anyway.
- The line from cells to the ring may be bent (`knots`), so that each node gets an equal share of a skewed load; see
  `papers.chord.balance`.

Strings have no domain: equality is by SHA-1, order by the first seven bytes read as a fraction. An attribute without min
and max is served for equality only.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from wherecast.errors import LimitError
from wherecast.language.events.keys import key_floats
from wherecast.language.events.schema import Attribute
from wherecast.language.events.types import FLOATS, Type
from wherecast.language.events.values import Scalar, key_of

#: Where a node or a subscriber is reached. The core never looks inside: a number in the simulator, `host:port` outside.
Address = int | str


class Contact(NamedTuple):
    """A node as others know it."""

    id: int
    address: Address


def between(start: int, position: int, end: int) -> bool:
    """Whether `position` lies strictly between, clockwise. From a node all the way to itself, all others do."""
    return start < position < end if start < end else position > start or position < end


def within(start: int, position: int, end: int) -> bool:
    """Whether `position` lies in (start, end], clockwise; the whole ring if they are equal."""
    return start < position <= end if start < end else position > start or position <= end


def sha1_id(text: bytes, bits: int) -> int:
    """The first `bits` bits of SHA-1, the base hash function of Chord."""
    digest = hashlib.sha1(text, usedforsecurity=False).digest()
    return int.from_bytes(digest, "big") >> (160 - bits)


@dataclass(frozen=True, slots=True)
class SubIdLayout:
    """Sizes of the three fields of a subscription id, in bits."""

    node_bits: int  # c1
    number_bits: int  # c2: the rounded-up logarithm of the subscriptions that one node can have
    count_bits: int  # c3: the same of the attributes of the schema

    @classmethod
    def of(cls, ring_bits: int, subscriptions: int, attributes: int) -> SubIdLayout:
        """The layout for this many subscriptions per node (numbered from 0) and this many attributes (counted)."""
        return cls(ring_bits, max(subscriptions - 1, 1).bit_length(), max(attributes, 1).bit_length())

    def pack(self, node: int, number: int, count: int) -> int:
        if number >> self.number_bits:
            raise LimitError(
                f"node {node:x} has numbered {number} subscription clauses, at most {1 << self.number_bits}; "
                "subscribe through another node or give `subscriptions` a larger value"
            )
        assert not node >> self.node_bits
        assert not count >> self.count_bits
        return (node << self.number_bits | number) << self.count_bits | count

    def unpack(self, subscription: int) -> tuple[int, int, int]:
        """The fields c1, c2 and c3."""
        rest, count = subscription >> self.count_bits, subscription & ((1 << self.count_bits) - 1)
        return rest >> self.number_bits, rest & ((1 << self.number_bits) - 1), count

    def node_of(self, subscription: int) -> int:
        """The field c1: where the metadata is."""
        return subscription >> (self.count_bits + self.number_bits)

    def count_of(self, subscription: int) -> int:
        """The field c3: in how many lists a match appears."""
        return subscription & ((1 << self.count_bits) - 1)


#: A value as lists hold it: a sortable key (see `language.events.keys`), or the UTF-8 bytes of a string.
Key = int | bytes
#: How values with an order are placed.
Mode = Literal["chord", "opchord"]

HASH_BITS = 160

_STRING_BYTES = 7
_STRING_CELLS = 256**_STRING_BYTES
#: Cells of a float attribute that states no precision.
_FINE_CELLS = 2**40


def ring_key(value: Scalar | None) -> Key:
    """The key of a value as an index has it (see `Attribute.stored`)."""
    assert value is not None
    return value.encode() if isinstance(value, str) else key_of(value)


@dataclass(frozen=True, slots=True)
class Line:
    """The order-preserving hash of one attribute: keys to cells, cells to offsets from `base` on the ring.

    Offsets never decrease with the cell. Where `is_exact`, a cell is one key and has an offset of its own.
    """

    is_float: bool
    is_text: bool
    bits: int
    base: int  # s0
    low: float | int
    step: float | int
    cells: int
    width: int  # of the arc that the cells lie on
    knots: tuple[tuple[int, int], ...] = ()  # (cell, offset), both increasing; empty: a straight line

    @property
    def is_exact(self) -> bool:
        is_whole = not self.is_float and not self.is_text and self.step == 1
        return is_whole and not self.knots and self.is_sparse

    @property
    def is_sparse(self) -> bool:
        """Whether every cell has an offset of its own."""
        return self.cells <= self.width

    def cell(self, key: Key) -> int:
        """The cell of a key; keys outside the domain are taken for its ends."""
        if isinstance(key, bytes):
            return int.from_bytes(key[:_STRING_BYTES].ljust(_STRING_BYTES, b"\0"), "big")
        if not self.is_float:
            return min(max((key - int(self.low)) // int(self.step), 0), self.cells - 1)
        value = float(key_floats(np.array([key], np.int64))[0])
        if math.isnan(value):  # above everything; so are the keys between infinity and NaN
            return self.cells - 1
        # Rounded, not floored: the double next to 8.31 must not fall into the cell of 8.30.
        place = (value - self.low) / self.step + 0.5
        return int(min(max(place, 0), self.cells - 1))

    def offset(self, cell: int) -> int:
        """Where a cell is, counted from `base`."""
        if not self.knots:
            return cell * self.width // self.cells
        knot = bisect_right(self.knots, cell, key=_cell_of) - 1
        (cell0, offset0), (cell1, offset1) = self.knots[knot : knot + 2]
        return offset0 + (cell - cell0) * (offset1 - offset0) // (cell1 - cell0)

    def place(self, key: Key) -> int:
        """The offset of a key."""
        return self.offset(self.cell(key))

    def next_offset(self, offset: int) -> int:
        """The first offset, at or after this one, that some cell has; the offset itself if none follows."""
        # Not `bisect` over a range: a domain may have more cells than a range may have places.
        low, high = 0, self.cells
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.offset(middle) < offset else (low, middle)
        return self.offset(low) if low < self.cells else offset


def _cell_of(knot: tuple[int, int]) -> int:
    return knot[0]


def line_of(attribute: Attribute, bits: int, nodes: int, knots: Iterable[tuple[int, int]] = ()) -> Line | None:
    """The order-preserving hash of an attribute, on a ring laid out for so many nodes; None: its domain has no two ends."""
    grid = _grid(attribute)
    if grid is None:
        return None
    low, step, cells = grid
    width = (cells << bits) // max(cells, nodes)
    base, is_float = sha1_id(attribute.name.encode(), bits), attribute.type in FLOATS
    return Line(is_float, attribute.is_text, bits, base, low, step, cells, width, tuple(knots))


def _grid(attribute: Attribute) -> tuple[float | int, float | int, int] | None:
    """The least value, the step between values, and how many there are."""
    if attribute.is_text:
        return 0, 1, _STRING_CELLS
    if attribute.type is Type.BOOLEAN:
        return 0, 1, 2
    domain = attribute.domain
    if domain is None:
        return None
    values = domain.values or tuple(v for v in (domain.minimum, domain.maximum) if v is not None)
    if not domain.values and len(values) < 2:
        return None
    keys = [key for key in (ring_key(attribute.stored(value)) for value in values) if isinstance(key, int)]
    first, last = min(keys), max(keys)
    if attribute.type in FLOATS:
        low, high = key_floats(np.array([first, last], np.int64)).tolist()
        fine = float(domain.precision or 0) or (high - low) / (_FINE_CELLS - 1) or 1.0
        return low, fine, round((high - low) / fine) + 1
    step = int(domain.precision or 1)
    return first, step, (last - first) // step + 1


def hashed_value(attribute: Attribute, key: Key) -> int:
    """All 160 bits of SHA-1 of attribute and value; its first m bits are the place on the ring."""
    value = key if isinstance(key, bytes) else str(key).encode()
    return sha1_id(attribute.name.encode() + b"\0" + value, HASH_BITS)
