"""Words: how a text is cut for KEYWORDS, ANY_KEYWORD and PHRASE.

A word is a longest run of letters, marks, digits and connectors such as `_` (Unicode's categories L, M, N and Pc, which is what
UTS #18 calls a word character, with all numbers). Words are compared by canonical caseless matching (Unicode, section 3.13, D145):
`STRASSE` is `straße`, and an accent counts the same whether it is a character of its own or not.

Where an attribute has a language, words are compared by their stems, as Snowball's algorithm for the language gives them.
"""

from __future__ import annotations

import math
import re
import unicodedata
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from wherecast.kernels.arrays import Bools
    from wherecast.language.events.frequencies import WordFrequencies

_ASCII_WORD = re.compile(r"[a-z0-9_]+")
_CODE_POINTS = 0x110000


@cache
def word_characters() -> Bools:
    """By code point, whether it is part of a word. Made when a text first has another character than ASCII's."""
    kinds = map(unicodedata.category, map(chr, range(_CODE_POINTS)))
    found = np.fromiter((kind[0] in "LMN" or kind == "Pc" for kind in kinds), np.bool_, _CODE_POINTS)
    found.flags.writeable = False
    return found


@cache
def _word() -> re.Pattern[str]:
    """The same as a regular expression."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], word_characters(), [False])).astype(np.int8))).tolist()
    ranges = (f"\\U{a:08x}-\\U{b - 1:08x}" for a, b in zip(edges[::2], edges[1::2], strict=True))
    return re.compile(f"[{''.join(ranges)}]+")


def fold_word(word: str) -> str:
    """A word in the form that words are compared in."""
    if word.isascii():
        return word.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", word).casefold())


def words_of(text: str) -> list[str]:
    """The words of a text, folded, in their order."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    return [fold_word(word) for word in _word().findall(text)]


# -- stems ------------------------------------------------------------------------------------------------------------


@cache
def find_stemmer(language: str) -> Callable[[str], str]:
    """What gives the stem of a folded word; the word itself without a language."""
    if not language:
        return str
    import snowballstemmer  # noqa: PLC0415 - optional, and needed only where a schema names a language

    stem: Callable[[str], str] = lru_cache(1 << 16)(snowballstemmer.stemmer(language).stemWord)
    return stem


def stems_of(text: str, language: str) -> list[str]:
    """The words of a text, folded and, with a language, as stems."""
    words = words_of(text)
    return list(map(find_stemmer(language), words)) if language else words


# -- literals -----------------------------------------------------------------------------------------------------------


def longest_word(literal: str) -> str:
    """The longest word of a literal, which is the rarest more often than not, folded."""
    return literal.lower() if literal.isalnum() and literal.isascii() else max(words_of(literal), key=len)


def check_keyword(literal: str) -> None:
    """Refuse with ValueError what is not one word."""
    if literal.isalnum() and literal.isascii():
        return
    words = words_of(literal)
    if not words:
        raise ValueError(f"{literal!r:.40} has no letter or digit, so no text has it as a word; write a word")
    if len(words) > 1:
        listed = ", ".join(f"'{word}'" for word in words[:4])
        raise ValueError(
            f"{literal!r:.40} is {len(words)} words; write PHRASE for words that follow each other, or list them: {listed}"
        )


def check_phrase(literal: str) -> None:
    """Refuse with ValueError what has no word."""
    if not words_of(literal):
        raise ValueError(f"{literal!r:.40} has no letter or digit, so no text has it; write words")


@lru_cache(256)
def _last_words(text: str, language: str) -> frozenset[str]:
    return frozenset(stems_of(text, language))


@lru_cache(4096)
def _sought(literal: str, language: str) -> tuple[str, ...]:
    return tuple(stems_of(literal, language))


def has_keyword(text: str, literal: str, language: str = "") -> bool:
    """Whether a text has a word; `literal` is one."""
    return _sought(literal, language)[0] in _last_words(text, language)


def has_phrase(text: str, literal: str, language: str = "") -> bool:
    """Whether the words of `literal` follow each other in a text."""
    sought = _sought(literal, language)
    if not _last_words(text, language).issuperset(sought):
        return False
    words = stems_of(text, language)
    return any(tuple(words[i : i + len(sought)]) == sought for i in range(len(words) - len(sought) + 1))


# -- similarity -----------------------------------------------------------------------------------------------------------


def weigh_words(text: str, language: str, frequencies: WordFrequencies) -> dict[str, int]:
    """The words of a text, or their stems, and how much each counts: more if it is rare elsewhere, and a little more if it comes often.

    A word that comes n times counts 1 + log2(n) times, rounded down, what its frequency says. All are integers, and so are the
    sums of their products.
    """
    counts: dict[str, int] = {}
    for word in stems_of(text, language):
        counts[word] = counts.get(word, 0) + 1
    weight = frequencies.weight
    return {word: count.bit_length() * weight(word) for word, count in counts.items()}


_last_weights = lru_cache(64)(weigh_words)


def text_similarity(text: str, literal: str, language: str, frequencies: WordFrequencies) -> float | None:
    """The cosine between the words of two texts; None if one has no words."""
    own, other = (_last_weights(each, language, frequencies) for each in (text, literal))
    if not own or not other:
        return None
    dot = sum(weight * own.get(word, 0) for word, weight in other.items())
    squares = (float(sum(weight * weight for weight in words.values())) for words in (own, other))
    return min(1.0, dot / math.sqrt(math.prod(squares)))
