"""Identifiers: positions on the ring, contacts, and subscription ids as bit fields.

A ring position is an integer of `m` bits; the ring is read clockwise, and `2**m - 1` is followed by 0. The owner of a
position is its *successor*: the first node at or after it.

A subscription id is the concatenation c1 | c2 | c3 (section 3 of the paper): the node that took the subscription,
`m` bits; the number of the subscription there; and the number of attributes that it constrains.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from wherecast.errors import LimitError

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
