"""Codes of a name of levels by the topic patterns that it matches (`topic MATCHES 'a/+/b/#'`).

A name has a set of codes, as a text has in a column of literals: FIRST_CODE if it is there, and one for each distinct pattern
that it matches; NULL_CODE alone if it is NULL. One walk down a trie finds them all (see `kernels.topics`).

Memory: the patterns, 24 bytes for each distinct beginning of a pattern that ends with a level, 16 to 32 more to find it, and
about 30 for each distinct level.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.errors import LimitError
from wherecast.index.bounds import StoredArrays
from wherecast.index.strings import ElementTexts, Texts, check_texts, join_texts
from wherecast.kernels.arrays import Bytes, Ints, Longs
from wherecast.kernels.automaton import FIRST_LITERAL
from wherecast.kernels.jit import direct, frozen
from wherecast.kernels.topics import (
    ANY_LEVEL,
    CHILDREN,
    END,
    LEVEL,
    NODE_FIELDS,
    PARENT,
    PLUS,
    REST,
    Trie,
    build_trie,
    search_topic,
    search_topics,
    widest_depth,
)

#: Bytes of all patterns of a column: nodes are numbered with 31 bits.
_MOST_BYTES = 1 << 30
#: Codes per name that are expected at most; more are found too, at the price of a second try.
_CODES_PER_NAME = 16
#: The arrays of a trie that are stored, in its order; the bytes of the patterns stand beside them.
_STORED = ("nodes", "slots", "level_at", "level_size", "places", "marks")


class TopicCodes(ElementTexts):
    """Pattern i has code i + 2. A name that is there has code 1, NULL is 0."""

    def __init__(self, offsets: Longs, data: Bytes, trie: Trie) -> None:
        self.offsets = offsets
        self.data = data  # the patterns in UTF-8, one after the other
        *arrays, seed = trie
        self._seed = int(seed)
        self._trie = *map(frozen, arrays), np.uint64(seed)  # what kernels are given
        self._spare: list[tuple[Ints, Ints]] = []  # a thread takes a pair and puts it back, which are atomic

    @classmethod
    def of(cls, patterns: Sequence[str]) -> TopicCodes:
        """Codes for distinct patterns."""
        offsets, data = join_texts([pattern.encode() for pattern in patterns])
        if data.size > _MOST_BYTES:
            raise LimitError(f"topics of {data.size} bytes on one attribute, at most {_MOST_BYTES}; use fewer patterns")
        return cls(offsets, data, build_trie(offsets, data, np.uint64(secrets.randbits(63))))

    @cached_property
    def _widest(self) -> int:
        return int(widest_depth(self._trie[0]))

    def _room(self) -> tuple[Ints, Ints]:
        try:
            return self._spare.pop()
        except IndexError:
            return np.empty(self._widest, np.int32), np.empty(self._widest, np.int32)

    def encode_texts(self, texts: Texts) -> tuple[Longs, Ints]:
        """Codes of a column: those of name r are codes[ptr[r]:ptr[r + 1]], ascending."""
        n, row = len(texts), 0
        ptr, codes = np.zeros(n + 1, np.int64), np.empty(_CODES_PER_NAME * (n + 1), np.int32)
        room = self._room()
        while (row := search_topics(self._trie, *texts, row, *room, ptr, codes)) < n:
            codes = np.concatenate((codes, np.empty_like(codes)))
        self._spare.append(room)
        return ptr, codes[: ptr[n]]

    @cached_property
    def _search(self) -> Callable[[bytes, Ints, Ints, Ints], int]:
        ints = np.zeros(0, np.int32)
        return partial(direct(search_topic, self._trie, b"", ints, ints, ints), self._trie)

    def encode_text(self, text: str) -> list[int]:
        """Codes of one name, ascending."""
        room, name, size = self._room(), text.encode(), 256
        while (n := self._search(name, *room, codes := np.empty(size, np.int32))) < 0:
            size *= 4
        self._spare.append(room)
        return codes[:n].tolist()  # type: ignore[no-any-return]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The whole state, by name."""
        own: dict[str, npt.NDArray[Any]] = {
            "offsets": self.offsets,
            "data": self.data,
            "seed": np.array([self._seed], np.uint64),
        }
        return own | dict(zip(_STORED, self._trie[: len(_STORED)], strict=True))

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> TopicCodes:
        """The codes whose `arrays()` these are, used in place. Raises SnapshotError if they cannot be."""
        seed = _check(StoredArrays(arrays, "codes of topics"))
        return cls(arrays["offsets"], arrays["data"], (*(arrays[name] for name in _STORED), arrays["data"], seed))


def _check(stored: StoredArrays) -> int:
    """A tree whose nodes come after their parents, tables with an empty slot, where searches end, and levels in the bytes."""
    n, data = len(check_texts(stored)), stored.column("data", np.uint8)
    level_at, level_size = stored.column("level_at", np.int64), stored.column("level_size", np.int32)
    stored.require(level_at.size == level_size.size, "level_size", "has another length than level_at")
    stored.within(level_at, 0, data.size + 1, "level_at")
    stored.within(level_size, 0, data.size + 1, "level_size")
    stored.require((level_at + level_size <= data.size).all(), "level_size", "leaves the bytes")
    nodes = stored.table("nodes", np.int32, NODE_FIELDS)
    numbers = np.arange(len(nodes))
    stored.require(len(nodes) > 0, "nodes", "has no root")
    parent, plus = nodes[:, PARENT], nodes[:, PLUS]
    stored.require(parent[0] == 0 and ((parent >= 0) & (parent < numbers))[1:].all(), "nodes", "is not a tree")
    stored.within(nodes[:, LEVEL], ANY_LEVEL, max(level_at.size, 1), "nodes")
    stored.within(nodes[:, [END, REST]].ravel(), 0, n + FIRST_LITERAL, "nodes")
    stored.within(nodes[:, CHILDREN], 0, len(nodes), "nodes")
    stored.within(plus, 0, len(nodes), "nodes")
    own = np.flatnonzero(plus)
    fits = (parent[plus[own]] == own) & (nodes[plus[own], LEVEL] == ANY_LEVEL)
    stored.require(fits.all(), "nodes", "has a child of two nodes")
    slots, places = stored.column("slots", np.uint64), stored.column("places", np.int32)
    for table, name, is_free in ((slots, "slots", slots == 0), (places, "places", places < 0)):
        is_power = table.size > 0 and table.size & (table.size - 1) == 0
        stored.require(is_power and is_free.any(), name, f"has {table.size} slots, and none that is free")
    stored.within((slots & np.uint64(0xFFFFFFFF)).astype(np.int64), 0, len(nodes), "slots")
    stored.within(places, -1, max(level_at.size, 1), "places")
    stored.column("marks", np.uint32, size=places.size)
    return int(stored.column("seed", np.uint64, size=1)[0])
