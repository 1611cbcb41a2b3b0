"""Similarity of texts in an index: `SIMILAR(body, 'chip export control') >= 0.3`, by the words that two texts have in common.

Theory of operation
-------------------
The naive way weighs the words of an event's text and of each filter's, and multiplies what they have in common. Most filters have no word in common with a
text: their similarity is 0. So each word has a list of the conditions that ask for it, with its weight there. The words of a text are looked up once,
and sums grow only for the conditions in their lists, as in SIFT (Yan and Garcia-Molina, 1999). Conditions that hold at similarity 0, `SIMILAR(...) < 0.5`, are
known beforehand; those that were not touched hold.

Weights are integers (`weigh_words`), so sums do not depend on their order. Texts are cut and weighed in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from wherecast.index.boxes import FIRST_CODE, NULL_CODE
from wherecast.index.similar import OPS, SimilarCodes
from wherecast.kernels.arrays import Bools, Floats, Ints, Longs
from wherecast.kernels.automaton import FIRST_LITERAL
from wherecast.kernels.jit import frozen
from wherecast.kernels.similar import add_products, keep_similar
from wherecast.language.events.frequencies import NO_FREQUENCIES
from wherecast.language.events.types import Type
from wherecast.language.filters.similarity import find_similarity
from wherecast.language.sequences import pointer
from wherecast.language.syntax.words import weigh_words


class _Lists(NamedTuple):
    """Which conditions ask for each word, with which weight; and what each of them compares."""

    numbers: dict[str, int]  # of words
    ptr: Longs
    conditions: Ints
    weights: Longs
    squares: Floats  # the sum of the squares of a condition's weights
    limits: Floats
    ops: Longs
    holds_at_zero: Bools


class SimilarTextCodes(SimilarCodes):
    """The conditions that hold for texts."""

    kind = Type.STRING

    @cached_property
    def _lists(self) -> _Lists:
        n = self.places.size // 3
        limits, ops, squares = np.empty(n), np.empty(n, np.int64), np.empty(n)
        asked: dict[str, list[tuple[int, int]]] = {}
        for first, program, statement, rows in self._groups():
            found = find_similarity(program.residuals[statement])
            assert found is not None
            limits[first : first + rows.size] = program.literals[found.limit][rows]
            ops[first : first + rows.size] = OPS[found.op]
            for number, text in enumerate(program.literals[found.literal][rows].tolist(), first):
                weights = self._weigh(text)
                squares[number] = sum(weight * weight for weight in weights.values())
                for word, weight in weights.items():
                    asked.setdefault(word, []).append((number, weight))
        flat = np.array([pair for pairs in asked.values() for pair in pairs], np.int64).reshape(-1, 2)
        zero = np.where(
            ops < 2, (limits <= 0) & ((ops == 0) | (limits < 0)), (limits >= 0) & ((ops == 3) | (limits > 0))
        )
        ptr = pointer(map(len, asked.values()), len(asked))
        return _Lists(
            {word: number for number, word in enumerate(asked)}, frozen(ptr), frozen(flat[:, 0].astype(np.int32)),
            frozen(flat[:, 1].copy()), frozen(squares), frozen(limits), frozen(ops), zero,
        )  # fmt: skip

    def _weigh(self, text: str) -> dict[str, int]:
        return weigh_words(text, self._attr.language, self._attr.frequencies or NO_FREQUENCIES)

    def encode(self, texts: Sequence[str | None]) -> tuple[Longs, Ints]:
        """Codes of texts: those of text r are codes[ptr[r]:ptr[r + 1]], ascending."""
        n = self.places.size // 3
        sums, touched, out = np.zeros(n, np.int64), np.empty(n, np.int32), np.empty(n, np.int32)
        found = [self._codes(text, sums, touched, out) for text in texts]
        return pointer(map(len, found), len(found)), np.concatenate([np.zeros(0, np.int32), *found])

    def _codes(self, text: str | None, sums: Longs, touched: Ints, out: Ints) -> Ints:
        if text is None:
            return np.array([NULL_CODE], np.int32)
        lists, weights = self._lists, self._weigh(text)
        own = float(sum(weight * weight for weight in weights.values()))
        if not own:
            return np.array([FIRST_CODE], np.int32)
        known = [(number, weight) for word, weight in weights.items() if (number := lists.numbers.get(word, -1)) >= 0]
        words, counts = np.array(known, np.int64).reshape(-1, 2).T.copy()
        given = lists.ptr, lists.conditions, lists.weights
        near = add_products(words, counts, *given, sums, touched)
        kept = out[: keep_similar(own, lists.squares, lists.limits, lists.ops, sums, touched, near, out)]
        if lists.holds_at_zero.any():
            is_held = lists.holds_at_zero.copy()
            is_held[touched[:near]] = False
            is_held[kept] = True
            kept = np.flatnonzero(is_held).astype(np.int32)
        return np.concatenate((np.array([FIRST_CODE], np.int32), np.sort(kept) + np.int32(FIRST_LITERAL)))
