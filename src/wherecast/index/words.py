"""Codes of a text by the words in it (`KEYWORDS(body, 'chip', 'export')`).

A text has a set of codes, as in a column of literals: FIRST_CODE if it is there, and one for each distinct word that filters
look for and that it has; NULL_CODE alone if it is NULL. Plain ASCII words are found by a kernel (see `kernels.words`), others
here, one by one. Where the attribute has a language, words are compared by stems, and two words of one stem are both found.

Memory: the words, 8 bytes for the place of each and 32 to 64 to find it; a bit for each thread that encodes. Words that are
looked up here are remembered, 65,536 at most.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.errors import LimitError
from wherecast.index.bounds import StoredArrays
from wherecast.index.pages import side_by_side
from wherecast.index.strings import ElementTexts, Texts, check_texts, join_texts, lay_out
from wherecast.kernels.arrays import Bytes, Ints, Longs, Words
from wherecast.kernels.automaton import FIRST_LITERAL
from wherecast.kernels.jit import frozen
from wherecast.kernels.words import FOLDS, TOGETHER, SearchRoom, fill_slots, search_words
from wherecast.language.syntax.words import find_stemmer, fold_word, word_characters

#: Bytes of all words of a column; and words, whose numbers have 31 bits.
_MOST_BYTES = 1 << 30
#: Codes per text, and words left to Python, that are expected at most; more are found too, at the price of a second try.
_CODES_PER_TEXT, _OTHERS_PER_TEXT = 64, 4
#: Words that are remembered.
_MOST_REMEMBERED = 1 << 16
_NO_CHARACTERS = frozen(np.zeros(0x110000, np.bool_))


def _make_room(n_words: int) -> SearchRoom:
    """Memory of one thread."""
    keys, places = np.zeros(TOGETHER, np.uint64), np.zeros((2, TOGETHER), np.int64)
    n_bits = (n_words >> 6) + 1
    return keys, *places, np.zeros(n_bits, np.uint64), np.zeros((n_bits >> 6) + 1, np.uint64)


class WordCodes(ElementTexts):
    """Word i has code i + 2. A text that is there has code 1, NULL is 0."""

    def __init__(self, offsets: Longs, data: Bytes, slots: Words, seed: int, language: str) -> None:
        self.offsets = offsets
        self.data = data  # the words, folded, in UTF-8, one after the other
        self.language = language
        self._slots, self._seed = slots, seed
        self._vocabulary = frozen(offsets), frozen(data), frozen(slots), np.uint64(seed)  # what kernels are given
        self._remembered: dict[bytes, tuple[int, ...]] = {}
        self._spare: list[SearchRoom] = []  # a thread takes one and puts it back, which are atomic

    @classmethod
    def of(cls, words: Sequence[str], language: str = "") -> WordCodes:
        """Codes for distinct folded words."""
        offsets, data = join_texts([word.encode() for word in words])
        if data.size > _MOST_BYTES:
            raise LimitError(f"words of {data.size} bytes on one attribute, at most {_MOST_BYTES}; use fewer words")
        slots, seed = np.zeros(2 << max(2 * len(words), 2).bit_length(), np.uint64), secrets.randbits(63)
        fill_slots(offsets, data, np.uint64(seed), slots)
        return cls(offsets, data, side_by_side([slots])[0], seed, language)

    @cached_property
    def _by_stem(self) -> dict[str, tuple[int, ...]]:
        """Codes by word or, with a language, by stem."""
        stem, found = find_stemmer(self.language), dict[str, tuple[int, ...]]()
        for number, word in enumerate(self.strings()):
            key = stem(word)
            found[key] = (*found.get(key, ()), number + FIRST_LITERAL)
        return found

    def _look_up(self, word: bytes) -> tuple[int, ...]:
        """The codes of a word of a text."""
        codes = self._remembered.get(word)
        if codes is None:
            folded = fold_word(word.decode("utf-8", "replace"))
            codes = self._by_stem.get(find_stemmer(self.language)(folded), ())
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered = {}
            self._remembered[word] = codes
        return codes

    def encode(self, values: pa.Array) -> tuple[Longs, Ints]:
        """Codes of a column: those of text r are codes[ptr[r]:ptr[r + 1]], ascending."""
        return self.encode_texts(lay_out(values))

    def encode_texts(self, texts: Texts) -> tuple[Longs, Ints]:
        """As `encode`."""
        n, row = len(texts), 0
        ptr, codes = np.zeros(n + 1, np.int64), np.empty(_CODES_PER_TEXT * (n + 1), np.int32)
        others, state = np.empty(3 * _OTHERS_PER_TEXT * (n + 1), np.int64), np.zeros(1, np.int64)
        characters = _NO_CHARACTERS if texts.is_ascii else word_characters()
        try:
            room = self._spare.pop()
        except IndexError:
            room = _make_room(self.offsets.size - 1)
        given = self._vocabulary, FOLDS, characters, bool(self.language), *texts
        while (row := search_words(*given, row, room, ptr, codes, others, state)) < n:
            codes = np.concatenate((codes, np.empty_like(codes)))
            others = np.concatenate((others, np.empty_like(others)))
        self._spare.append(room)
        codes = codes[: ptr[n]]
        return (ptr, codes) if not state[0] else self._with_others(texts, ptr, codes, others[: 3 * state[0]])

    def _with_others(self, texts: Texts, ptr: Longs, codes: Ints, others: Longs) -> tuple[Longs, Ints]:
        """The same with the words that the kernel has left."""
        rows, more = [], []
        for row, start, end in others.reshape(-1, 3).tolist():
            for code in self._look_up(texts.data[start:end].tobytes()):
                rows.append(row)
                more.append(code)
        if not more:
            return ptr, codes
        owner = np.concatenate((np.repeat(np.arange(len(texts)), np.diff(ptr)), np.array(rows, np.int64)))
        codes = np.concatenate((codes, np.array(more, np.int32)))
        key = np.unique(owner << 32 | codes)
        return np.searchsorted(key >> 32, np.arange(len(texts) + 1)).astype(np.int64), key.astype(np.int32)

    def encode_text(self, text: str) -> list[int]:
        """Codes of one text, ascending."""
        data = text.encode()
        texts = Texts(np.array([0, len(data)], np.int64), np.frombuffer(data, np.uint8), np.zeros(0, np.bool_))
        return self.encode_texts(Texts(*map(frozen, texts)))[1].tolist()  # type: ignore[no-any-return]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The whole state, by name."""
        language = np.frombuffer(self.language.encode(), np.uint8)
        own: dict[str, npt.NDArray[Any]] = {
            "offsets": self.offsets,
            "data": self.data,
            "slots": self._slots,
            "language": language,
        }
        return own | {"seed": np.array([self._seed], np.uint64)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> WordCodes:
        """The codes whose `arrays()` these are, used in place. Raises SnapshotError if they cannot be."""
        stored = StoredArrays(arrays, "codes of words")
        n, slots = len(check_texts(stored)), stored.column("slots", np.uint64)
        is_power, numbers = slots.size > 1 and slots.size & (slots.size - 1) == 0, slots[1::2]
        stored.require(is_power and not numbers.all(), "slots", f"has {slots.size} words, and no slot that is free")
        stored.within((numbers & np.uint64(0x7FFFFFFF))[numbers > 0].astype(np.int64), 1, n + 1, "slots")
        seed = int(stored.column("seed", np.uint64, size=1)[0])
        language = stored.column("language", np.uint8).tobytes().decode("ascii", "replace")
        try:
            find_stemmer(language)
        except KeyError:
            stored.require(False, "language", f"names no stemmer but {language!r:.20}")
        return cls(arrays["offsets"], arrays["data"], slots, seed, language)
