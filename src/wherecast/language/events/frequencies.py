"""Frequencies of words: in how many texts of a collection each word occurs, so that rare words count more than common ones.

They are part of an attribute, and so of the schema that every version of an index keeps: a filter means the same until the
schema changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from wherecast.errors import SchemaError

#: Weights are integers, so that sums of their products are the same in every order.
_UNIT = 1_000


class WordFrequencies:
    """How many texts there are, and how many of them have each word (folded and, with a language, its stem)."""

    def __init__(self, texts: int, words: Mapping[str, int]) -> None:
        self.texts = texts
        self.words = dict(words)

    @classmethod
    def read(cls, written: object, place: str) -> WordFrequencies:
        """Out of the written form of a schema: `{"texts": 1000, "words": {"the": 950}}`."""
        if not isinstance(written, Mapping) or set(written) != {"texts", "words"}:
            raise SchemaError(
                f"{place}: frequencies have texts and words: {{texts: 1000, words: {{the: 950}}}}; got {written!r:.60}"
            )
        texts, words = written["texts"], written["words"]
        if type(texts) is not int or not 0 <= texts < 2**31:
            raise SchemaError(f"{place}: texts of frequencies is their number, got {texts!r:.40}")
        if not isinstance(words, Mapping):
            raise SchemaError(
                f"{place}: words of frequencies are a mapping of words to numbers of texts, got {words!r:.60}"
            )
        for word, count in words.items():
            if not isinstance(word, str) or type(count) is not int or not 0 <= count <= texts:
                raise SchemaError(f"{place}: {word!r:.40} is in {count!r:.40} texts; use a number from 0 to {texts}")
        return cls(texts, words)

    def written(self) -> dict[str, object]:
        return {"texts": self.texts, "words": dict(sorted(self.words.items()))}

    def weight(self, word: str) -> int:
        """From 1, for a word that is in every text, to about 21,000; a word that is in none counts most."""
        return 1 + round(_UNIT * math.log((1 + self.texts) / (1 + self.words.get(word, 0))))

    @cached_property
    def _key(self) -> tuple[int, frozenset[tuple[str, int]]]:
        return self.texts, frozenset(self.words.items())

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, WordFrequencies) and self._key == other._key)

    def __hash__(self) -> int:
        return hash((self.texts, len(self.words)))

    def __repr__(self) -> str:
        return f"WordFrequencies({self.texts} texts, {len(self.words)} words)"

    def __reduce__(self) -> tuple[Any, ...]:
        return WordFrequencies, (self.texts, self.words)


#: What an attribute without frequencies has: every word counts the same.
NO_FREQUENCIES = WordFrequencies(0, {})
