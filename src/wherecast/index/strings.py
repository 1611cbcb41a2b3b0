"""Codes of a string attribute: sorted constants in Arrow's layout, found by hashing."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.index.bounds import StoredArrays
from wherecast.kernels.arrays import Bools, Bytes, Ints, Longs, Words
from wherecast.kernels.automaton import FIRST_LITERAL
from wherecast.kernels.codes import encode_string, encode_strings, fill_table, hash_strings
from wherecast.kernels.jit import address_of, direct, frozen
from wherecast.language.arrow_texts import string_buffers
from wherecast.language.nullable import arrow_valid
from wherecast.language.sequences import take_ranges

#: Of all tables that this process makes: a column is hashed once for all of them.
_SEED = secrets.randbits(63)

#: The hash of stored tables, which name it; the first one, byte by byte, had no number, and 1 left the last letters of texts out of the slot.
_HASH = 2

#: Codes have 32 bits and a string takes two.
_MOST_STRINGS = 2**30 - 1

_ALL_VALID = frozen(np.zeros(0, np.bool_))


class Texts(NamedTuple):
    """A column of texts as kernels read it: text i is data[offsets[i]:offsets[i + 1]]."""

    offsets: npt.NDArray[Any]  # of 32 or 64 bits
    data: Bytes
    valid: npt.NDArray[np.bool_]  # empty where no text is NULL

    def __len__(self) -> int:
        return self.offsets.size - 1

    @property
    def is_ascii(self) -> bool:
        """Whether there are no other letters; what NULLs hide counts too."""
        return int(self.data[self.offsets[0] : self.offsets[-1]].max(initial=0)) < 128


def lay_out(values: pa.Array) -> Texts:
    """A column of strings or large strings, in place."""
    valid = frozen(arrow_valid(values)) if values.null_count else _ALL_VALID
    return Texts(*string_buffers(values), valid)


class PackedTexts:
    """Texts that columns have codes for, in UTF-8 one after the other: text i is data[offsets[i]:offsets[i + 1]].

    By default each has one code, after those of NULL and of a text that is there.
    """

    offsets: Longs
    data: Bytes

    @property
    def width(self) -> int:
        return int(self.offsets.size) + 1

    @property
    def nbytes(self) -> int:
        return int(sum(a.nbytes for a in self.arrays().values()))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The whole state, by name."""
        raise NotImplementedError

    def strings(self) -> list[str]:
        text, ends = self.data.tobytes(), self.offsets.tolist()
        return [text[a:b].decode() for a, b in pairwise(ends)]

    def strings_at(self, places: Longs) -> list[str]:
        """Some of the texts, by their number."""
        starts, ends = self.offsets[places].tolist(), self.offsets[places + 1].tolist()
        return [self.data[a:b].tobytes().decode() for a, b in zip(starts, ends, strict=True)]


class ElementTexts(PackedTexts):
    """Texts that are the elements of sets: each has one code, in their order."""

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Codes by text."""
        return {text: code for code, text in enumerate(self.strings(), FIRST_LITERAL)}


class StringCodes(PackedTexts):
    """Constant j of an attribute has code 2j + 2, the gap below it 2j + 1. NULL is 0.

    `ordered` tells whether some constraint holds in a part of the gaps only; if none does, an unknown string is given the
    lowest gap without looking for its place.
    """

    def __init__(
        self,
        offsets: npt.NDArray[np.int64],
        data: npt.NDArray[np.uint8],
        ordered: bool,
        table: tuple[int, Ints, npt.NDArray[np.uint32]] | None = None,
    ) -> None:
        self.offsets = offsets
        self.data = data
        self.ordered = ordered
        self.seed, self._places, self._marks = table or _hash_table(offsets, data)
        # What kernels are given. `frozen`, because they are compiled anew for arrays that differ in this.
        self._read_only = frozen(offsets), frozen(data), frozen(self._places), frozen(self._marks), ordered

    @classmethod
    def of(cls, strings: list[str], ordered: bool) -> StringCodes:
        """Codes for sorted, distinct strings."""
        return cls(*join_texts([s.encode() for s in strings]), ordered)

    @property
    def width(self) -> int:
        return 2 * int(self.offsets.size - 1) + 2

    @cached_property
    def encode_text(self) -> Callable[[bytes], int]:
        """Gives the code of one string, in UTF-8."""
        given = *self._read_only, np.uint64(self.seed)
        return partial(direct(encode_string, *given, b""), *given[:-1], self.seed)

    def hash(self, texts: Texts) -> Words:
        """Hashes of a column; equal for codes of equal `seed`."""
        out = np.empty(len(texts), np.uint64)
        hash_strings(texts.offsets, texts.data, np.uint64(self.seed), out)
        return out

    def encode(self, values: pa.Array) -> Ints:
        """Codes of a column."""
        texts = lay_out(values)
        return self.encode_texts(texts, lambda: self.hash(texts))

    def encode_texts(self, texts: Texts, hashes: Callable[[], Words]) -> Ints:
        """Codes of a column whose hashes may be known already."""
        offsets, data, valid = texts
        if self.offsets.size == 1:  # filters ask only whether there is a value
            return valid.astype(np.int32) if valid.size else np.ones(len(texts), np.int32)
        out = np.empty(len(texts), np.int32)
        encode_strings(*self._read_only, offsets, data, valid, hashes(), out)
        return out

    def job(self) -> tuple[int, ...]:
        """Sizes and addresses of the arrays, as `kernels.stored_columns` wants them."""
        seed = self.seed - ((self.seed >> 63) << 64)  # as a signed number
        arrays = self.offsets, self.data, self._places, self._marks
        return self.offsets.size - 1, self._places.size, int(self.ordered), seed, *map(address_of, arrays)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The whole state, by name."""
        facts = np.array([int(self.ordered), self.seed, _HASH], np.uint64)
        return {
            "offsets": self.offsets,
            "data": self.data,
            "facts": facts,
            "places": self._places,
            "marks": self._marks,
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> StringCodes:
        """The codes whose `arrays()` these are, used in place. Raises SnapshotError if they cannot be."""
        _check(StoredArrays(arrays, "codes of strings"))
        ordered, seed, *known = (int(f) for f in arrays["facts"])
        table = (seed, arrays["places"], arrays["marks"]) if known == [_HASH] else None  # an older one is made anew
        return cls(arrays["offsets"], arrays["data"], bool(ordered), table)


def string_columns(strings: Sequence[str], chosen: Longs, ptr: Longs, ordered: Bools) -> list[StringCodes]:
    """The codes of many columns: the constants of column c are those of `chosen[ptr[c]:ptr[c + 1]]`, sorted and distinct."""
    used, place = np.unique(chosen, return_inverse=True)
    ends, data = gather_texts([strings[i].encode() for i in used.tolist()], place)
    parts = zip(pairwise(ptr.tolist()), ordered.tolist(), strict=True)
    return [StringCodes(ends[a : b + 1] - ends[a], data[ends[a] : ends[b]], is_ordered) for (a, b), is_ordered in parts]


def gather_texts(texts: list[bytes], places: Longs) -> tuple[Longs, Bytes]:
    """Some of the texts, one after the other: offsets and bytes."""
    ends, data = join_texts(texts)
    where, ptr = take_ranges(ends, places)
    return ptr, data[where]


def _check(stored: StoredArrays) -> None:
    """Sorted texts; a table that names them and has an empty slot, where every search ends."""
    texts = check_texts(stored)
    n = len(texts)
    stored.require(n < _MOST_STRINGS, "offsets", f"has {n} strings, at most {_MOST_STRINGS}")
    stored.require(n < 2 or pc.all(pc.less(texts[:-1], texts[1:])).as_py(), "data", "is not sorted")
    facts = stored.column("facts", np.uint64)
    stored.require(
        facts.size == 2 or (facts.size == 3 and 0 < facts[2] <= _HASH), "facts", "names no hash that is known"
    )
    stored.require(facts[0] <= 1, "facts", f"has no truth value but {facts[0]}")
    places = stored.column("places", np.int32)
    is_power = places.size & (places.size - 1) == 0
    stored.require(is_power and places.size > n, "places", f"has {places.size} slots for {n} strings")
    stored.within(places, -1, n, "places")
    stored.require(places.min() < 0, "places", "has no empty slot")
    stored.column("marks", np.uint32, size=places.size)


def join_texts(texts: list[bytes]) -> tuple[Longs, Bytes]:
    """Texts in Arrow's layout: offsets and bytes."""
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(texts), np.uint8)


def check_texts(stored: StoredArrays) -> pa.Array:
    """The texts whose offsets and bytes are stored; SnapshotError if they are not texts."""
    offsets, data = stored.column("offsets", np.int64), stored.column("data", np.uint8)
    stored.offsets(offsets, data.size, "offsets")
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    texts = pa.Array.from_buffers(pa.large_string(), offsets.size - 1, buffers)
    try:
        texts.validate(full=True)
    except pa.ArrowException:
        stored.require(False, "data", "holds no texts")
    return texts


def _hash_table(
    offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]
) -> tuple[int, Ints, npt.NDArray[np.uint32]]:
    size = 1 << max(2 * (offsets.size - 1), 2).bit_length()
    places, marks = np.full(size, -1, np.int32), np.zeros(size, np.uint32)
    fill_table(offsets, data, np.uint64(_SEED), places, marks)
    return _SEED, places, marks
