r"""The boolean structure of a text: the ANDs, ORs, NOTs and parentheses around its terms.

Theory of operation
-------------------
The stretches of text between literals (the *pieces* of a skeleton) recur from text to text, and so do structures, even where no two
texts are alike. So each distinct piece is cut into tokens once, one letter each, and the letters of a text's pieces, joined
by a letter for a literal, are its *pattern*:

    a = 1 AND (b < 2 OR c BETWEEN 3 AND 4)   ->   xv&(xv|xbv&v)

Each distinct pattern is read once. The reader needs to know little about what is inside a term: parentheses and brackets,
CASE ... END, and BETWEEN, whose AND is part of the term. A parenthesis that begins an operand is a group, unless something other
than a connective follows its end, as in `(a + b) * 2 > c`. NOT is pushed down while reading: below it, AND is written as OR, OR
as AND, and terms are marked.

The reader may take a text for correct that is not: each term still goes through the parser, and a text with a term that
fails is then read as a whole, which finds the error and its place. So the reader has no errors of its own: it returns None for
what it does not understand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from wherecast.kernels.arrays import Longs
from wherecast.kernels.normal_form import ALL, ANY, TERM
from wherecast.language.sequences import pointer
from wherecast.language.syntax.cutting import number_texts
from wherecast.language.syntax.literals import has_arithmetic

_TOKEN = re.compile(
    r"""(?P<name>\.\s*+\w++|`(?:[^`]|``)*+`)
    |(?P<word>[^\W\d]\w*+)
    |(?P<sign>[()\[\]])
    |(?P<bad>['"\\;{}`]|/\*|--|!(?!=))
    |(?P<other>[^\s])""",
    re.VERBOSE,
)
_LETTERS = {"AND": "&", "OR": "|", "NOT": "!", "BETWEEN": "b", "CASE": "c", "END": "e"}
_REGEX_WORDS = frozenset({"RLIKE", "REGEXP", "REGEXP_LIKE"})


class TextPiece(NamedTuple):
    """A stretch of text between two literals, as tokens; neighbours that mean nothing to the structure are one."""

    text: str
    letters: str  # x: anything, #: what no text may have here
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    size: int  # at least the number of its lexemes
    has_arithmetic: bool
    regexes: int


def cut_piece(text: str) -> TextPiece:
    """The tokens of a piece."""
    letters: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    size = regexes = 0
    for found in _TOKEN.finditer(text):
        kind, token = found.lastgroup, found.group()
        size += 2 if kind == "name" else 1
        letter = "x"
        if kind == "word":
            word = token.upper()
            letter = _LETTERS.get(word, "x")
            regexes += word in _REGEX_WORDS
        elif kind == "sign":
            letter = token
        elif kind == "bad":
            letter = "#"
        if letter == "x" and letters and letters[-1] == "x":
            ends[-1] = found.end()
            continue
        letters.append(letter)
        starts.append(found.start())
        ends.append(found.end())
    return TextPiece(text, "".join(letters), tuple(starts), tuple(ends), size, has_arithmetic((text,)), regexes)


class Structure(NamedTuple):
    """A text as a postfix program over its terms (see `kernels.normal_form`), all in flat lists of numbers.

    A term has segments: what it has of one piece each, with a literal between every two of them.
    """

    steps: list[int]  # kind, and how many operands or which term
    terms: list[int]  # whether it stands under a NOT, its first literal, how many segments it has
    segments: list[int]  # the piece, counted from the text's first, and its tokens (see `_tokens`)


_BITS, _MASK = 15, (1 << 15) - 1


def _tokens(first: int, end: int, after_literal: bool, before_literal: bool) -> int:
    """A range of a piece's tokens, and whether there is a literal before and after it, as a number of 32 bits."""
    return first << _BITS + 2 | end << 2 | after_literal << 1 | before_literal


def number_segments(pieces: Sequence[TextPiece], piece: Longs, tokens: Longs) -> tuple[list[str], Longs]:
    """The distinct texts of segments, and the number of each segment's: what it is of its piece. Blanks beside a literal belong to it."""
    sizes = np.fromiter((len(p.text) for p in pieces), np.int64, len(pieces))
    ptr = pointer((len(p.starts) for p in pieces), len(pieces))
    # One more: the end of a piece is looked up even where no token begins or ends there.
    starts = np.fromiter(chain(chain.from_iterable(p.starts for p in pieces), (0,)), np.int64, ptr[-1] + 1)
    ends = np.fromiter(chain((0,), chain.from_iterable(p.ends for p in pieces)), np.int64, ptr[-1] + 1)
    first, end, size = tokens >> _BITS + 2, tokens >> 2 & _MASK, sizes[piece]
    start = np.where(first < np.diff(ptr)[piece], starts[np.minimum(ptr[piece] + first, ptr[-1])], size)
    start[tokens & 2 > 0] = 0
    stop = np.where(end > 0, ends[ptr[piece] + end], start)
    stop = np.where(tokens & 1, size, stop)
    # In UTF-32 every character has four bytes.
    data, base = (
        "".join([p.text for p in pieces]).encode("utf-32-le", "surrogatepass"),
        pointer(sizes, len(pieces))[piece],
    )
    return number_texts(data, "utf-32-le", 4 * (base + start), 4 * (base + np.maximum(start, stop)))


def read_structure(pattern: str, deepest: int) -> Structure | None:
    """The structure of all texts with this pattern; None if it is not understood, or has more than `deepest` levels."""
    if "#" in pattern or len(pattern) > _MASK:
        return None
    reader = _Reader(pattern, deepest)
    try:
        reader.disjunction(negated=False, depth=0)
    except _UnreadableError:
        return None
    return reader.structure if reader.pattern[reader.at] == "$" else None


class _UnreadableError(Exception):
    pass


#: Most terms: no parentheses inside of parentheses, no brackets and no CASE.
_PLAIN_TERM = re.compile(r"(?:[xv!]|\([xv!]*+\)|b[xv]*+&)++(?=[&|)$])")


class _Reader:
    def __init__(self, pattern: str, deepest: int) -> None:
        self.pattern = pattern + "$"
        self.deepest = deepest
        self.at = 0
        self.structure = Structure([], [], [])

    def disjunction(self, *, negated: bool, depth: int) -> None:
        count = 1
        self.conjunction(negated=negated, depth=depth)
        while self.pattern[self.at] == "|":
            self.at += 1
            self.conjunction(negated=negated, depth=depth)
            count += 1
        if count > 1:
            self.structure.steps.extend((ALL if negated else ANY, count))

    def conjunction(self, *, negated: bool, depth: int) -> None:
        count = 1
        self.operand(negated=negated, depth=depth)
        while self.pattern[self.at] == "&":
            self.at += 1
            self.operand(negated=negated, depth=depth)
            count += 1
        if count > 1:
            self.structure.steps.extend((ANY if negated else ALL, count))

    def operand(self, *, negated: bool, depth: int) -> None:
        while self.pattern[self.at] == "!":
            negated, depth = not negated, depth + 1
            self.at += 1
        if depth >= self.deepest:
            raise _UnreadableError
        if self.pattern[self.at] == "(" and self._is_group():
            self.at += 1
            self.disjunction(negated=negated, depth=depth + 1)
            if self.pattern[self.at] != ")":
                raise _UnreadableError
            self.at += 1
            return
        start, plain = self.at, _PLAIN_TERM.match(self.pattern, self.at)
        self.at = plain.end() if plain else self._end_of_term()
        self._add_term(start, self.at, negated=negated)

    def _is_group(self) -> bool:
        """Whether a connective, or nothing, follows the end of the parenthesis."""
        depth = 0
        for at in range(self.at, len(self.pattern)):
            depth += (self.pattern[at] == "(") - (self.pattern[at] == ")")
            if depth == 0:
                return self.pattern[at + 1] in "&|)$"
        raise _UnreadableError

    def _end_of_term(self) -> int:
        inside = cases = betweens = 0
        for at in range(self.at, len(self.pattern)):
            letter = self.pattern[at]
            if letter == "e" and cases:
                inside, cases = inside - 1, cases - 1
            elif letter in "([c":
                inside, cases = inside + 1, cases + (letter == "c")
            elif inside:
                inside -= letter in ")]"
            elif letter == "&" and betweens:
                betweens -= 1
            elif letter in "&|)$":
                if at > self.at and not betweens:
                    return at
                break
            elif letter == "b":
                betweens += 1
        raise _UnreadableError

    def _add_term(self, start: int, end: int, *, negated: bool) -> None:
        pattern, (steps, terms, segments) = self.pattern, self.structure
        piece = pattern.count("v", 0, start)
        begin = pattern.rfind("v", 0, start) + 1  # of the piece
        first, after, size = start - begin, False, 1
        steps.extend((TERM, len(terms) // 3))
        literal = pattern.find("v", start, end)
        terms.extend((negated, piece, 0))
        while literal >= 0:
            segments.extend((piece, _tokens(first, literal - begin, after, True)))
            piece, begin, first, after, size = piece + 1, literal + 1, 0, True, size + 1
            literal = pattern.find("v", begin, end)
        segments.extend((piece, _tokens(first, end - begin, after, False)))
        terms[-1] = size
