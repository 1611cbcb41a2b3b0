"""Codes of a text by the regular expressions that it matches.

A regular expression without a literal that every match contains has nothing that an automaton could look for. Evaluating a
thousand of them one by one takes a thousand searches per event. RE2 runs them together: one pass over the text tells which of
them match. So an event's text has a set of codes, as in a column of literals: FIRST_CODE if it is there, and one for each
expression that matches; NULL_CODE alone if it is NULL.

Two things need care. Java's `$` also holds before a line terminator at the end (see `java_regex`), so a text that ends with one
is searched without it once more, for the expressions that have a `$`. And RE2 bounds its memory: a set that does not compile
within the limit is cut in halves, and a search that runs out of memory reports no match at all. Every set therefore has one
more expression that always matches: if it does not, the expressions are tried one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import re2

from wherecast.index.bounds import StoredArrays
from wherecast.index.boxes import FIRST_CODE, NULL_CODE
from wherecast.index.strings import PackedTexts, check_texts, join_texts
from wherecast.kernels.arrays import Bytes, Ints, Longs
from wherecast.kernels.automaton import FIRST_LITERAL
from wherecast.language.sequences import take_ranges
from wherecast.language.syntax.java_regex import LINE_END, re2_options, rlike_regex, translate

#: Memory that a stored set may ask for at most.
_MOST_MEMORY = 1 << 32
_LINE_ENDS = ("\n", "\r", "\x85", "\u2028", "\u2029")


class _Set(NamedTuple):
    """Expressions that run together: those from number `first` on, so many."""

    first: int
    size: int
    regexes: Any  # of RE2; None: they run one by one

    def find(self, text: str, patterns: Sequence[str]) -> list[int]:
        """The numbers of the expressions that match."""
        found = None if self.regexes is None else self.regexes.Match(text)
        if found and self.size in found:
            return [self.first + number for number in found if number < self.size]
        numbers = range(self.first, self.first + self.size)
        return [number for number in numbers if rlike_regex(patterns[number]).compiled.search(text) is not None]


class RegexCodes(PackedTexts):
    """Expression i has code i + 2. A text that is there has code 1, NULL is 0."""

    def __init__(self, offsets: Longs, data: Bytes, memory_bytes: int) -> None:
        self.offsets = offsets
        self.data = data  # the expressions as filters have them, in UTF-8, one after the other
        self.memory_bytes = memory_bytes  # that RE2 may use for all of them

    @classmethod
    def of(cls, patterns: Sequence[str], memory_bytes: int) -> RegexCodes:
        return cls(*join_texts([pattern.encode() for pattern in patterns]), memory_bytes)

    @property
    def nbytes(self) -> int:
        """Of the expressions; what RE2 makes of them is bounded by `memory_bytes`."""
        return int(self.offsets.nbytes + self.data.nbytes)

    @cached_property
    def _patterns(self) -> list[str]:
        return self.strings()

    @cached_property
    def _sets(self) -> list[_Set]:
        """Compiled when first used, not when a snapshot is opened."""
        return list(_compiled([translate(p).text for p in self._patterns], 0, self.memory_bytes))

    @cached_property
    def _before_line_end(self) -> frozenset[int]:
        return frozenset(number for number, p in enumerate(self._patterns) if translate(p).has_dollar)

    def find(self, text: str) -> list[int]:
        """The numbers of the expressions that match a text, ascending."""
        found = [number for each in self._sets for number in each.find(text, self._patterns)]
        if text.endswith(_LINE_ENDS) and self._before_line_end:
            end = LINE_END.search(text)
            assert end is not None
            without = text[: end.start()]
            found += [
                n for each in self._sets for n in each.find(without, self._patterns) if n in self._before_line_end
            ]
        return sorted(set(found))

    def encode(self, texts: pa.Array) -> tuple[Longs, Ints]:
        """Codes of a column: those of text r are codes[ptr[r]:ptr[r + 1]], ascending."""
        distinct = texts.dictionary_encode()  # equal texts share a search
        found = map(self.find, distinct.dictionary.to_pylist())
        sets = [[NULL_CODE], *([FIRST_CODE, *(n + FIRST_LITERAL for n in numbers)] for numbers in found)]
        ends = np.concatenate(([0], np.cumsum([len(each) for each in sets])))
        places, ptr = take_ranges(ends, distinct.indices.fill_null(-1).to_numpy().astype(np.int64) + 1)
        return ptr, np.fromiter(chain.from_iterable(sets), np.int32)[places]

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The whole state, by name."""
        return {"offsets": self.offsets, "data": self.data, "memory": np.array([self.memory_bytes], np.int64)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> RegexCodes:
        """The codes whose `arrays()` these are, used in place. Raises SnapshotError if they cannot be."""
        stored = StoredArrays(arrays, "codes of regular expressions")
        for pattern in check_texts(stored).to_pylist():
            try:
                rlike_regex(pattern)
            except ValueError as error:
                stored.require(False, "data", f"has the pattern {pattern!r:.40}, which is wrong ({error})")
        memory = stored.column("memory", np.int64, size=1)
        stored.within(memory, 1, _MOST_MEMORY + 1, "memory")
        return cls(arrays["offsets"], arrays["data"], int(memory[0]))


def _compiled(texts: Sequence[str], first: int, memory_bytes: int) -> Iterable[_Set]:
    """Expressions of RE2 in as few sets as the memory allows."""
    if not texts:
        return
    options = re2_options()
    options.max_mem = memory_bytes
    regexes = re2.Set.SearchSet(options)
    try:
        for text in [*texts, ""]:
            regexes.Add(text)
        regexes.Compile()
    except re2.error:
        if len(texts) == 1:
            yield _Set(first, 1, None)
            return
        half = len(texts) // 2
        yield from _compiled(texts[:half], first, memory_bytes)
        yield from _compiled(texts[half:], first + half, memory_bytes)
        return
    yield _Set(first, len(texts), regexes)
