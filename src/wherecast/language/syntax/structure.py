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
from typing import NamedTuple

from wherecast.kernels.normal_form import ALL, ANY, TERM
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


class Piece(NamedTuple):
    """A stretch of text between two literals, as tokens; neighbours that mean nothing to the structure are one."""

    text: str
    letters: str  # x: anything, #: what no text may have here
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    size: int  # at least the number of its lexemes
    has_arithmetic: bool
    regexes: int


def cut_piece(text: str) -> Piece:
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
    return Piece(text, "".join(letters), tuple(starts), tuple(ends), size, has_arithmetic((text,)), regexes)


class Segment(NamedTuple):
    """A part of a term between two of its literals, or before the first or after the last: tokens of one piece."""

    piece: int  # counted from the text's first
    first: int
    end: int
    after_literal: bool
    before_literal: bool


def segment_text(piece: Piece, first: int, end: int, after_literal: bool, before_literal: bool) -> str:
    """What a segment is in a text that has this piece there. Blanks beside a literal belong to it."""
    size = len(piece.text)
    start = 0 if after_literal else piece.starts[first] if first < len(piece.starts) else size
    stop = size if before_literal else piece.ends[end - 1] if end > 0 else start
    return piece.text[start : max(start, stop)]


class TermPlace(NamedTuple):
    """A term of a text: whether it stands under a NOT, its first literal, and its segments."""

    is_negated: bool
    first_literal: int
    segments: tuple[Segment, ...]


class Structure(NamedTuple):
    """A text as a postfix program over its terms (see `kernels.normal_form`)."""

    steps: tuple[tuple[int, int], ...]  # kind, and how many operands or which term
    terms: tuple[TermPlace, ...]


def read_structure(pattern: str, deepest: int) -> Structure | None:
    """The structure of all texts with this pattern; None if it is not understood, or has more than `deepest` levels."""
    if "#" in pattern or not pattern:
        return None
    reader = _Reader(pattern, deepest)
    try:
        reader.disjunction(negated=False, depth=0)
    except _Unreadable:
        return None
    return Structure(tuple(reader.steps), tuple(reader.terms)) if reader.at == len(pattern) else None


class _Unreadable(Exception):
    pass


class _Reader:
    def __init__(self, pattern: str, deepest: int) -> None:
        self.pattern = pattern
        self.deepest = deepest
        self.at = 0
        self.steps: list[tuple[int, int]] = []
        self.terms: list[TermPlace] = []

    @property
    def next(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def disjunction(self, *, negated: bool, depth: int) -> None:
        count = 1
        self.conjunction(negated=negated, depth=depth)
        while self.next == "|":
            self.at += 1
            self.conjunction(negated=negated, depth=depth)
            count += 1
        if count > 1:
            self.steps.append((ALL if negated else ANY, count))

    def conjunction(self, *, negated: bool, depth: int) -> None:
        count = 1
        self.operand(negated=negated, depth=depth)
        while self.next == "&":
            self.at += 1
            self.operand(negated=negated, depth=depth)
            count += 1
        if count > 1:
            self.steps.append((ANY if negated else ALL, count))

    def operand(self, *, negated: bool, depth: int) -> None:
        while self.next == "!":
            negated, depth = not negated, depth + 1
            self.at += 1
        if depth >= self.deepest:
            raise _Unreadable
        if self.next == "(" and self._is_group():
            self.at += 1
            self.disjunction(negated=negated, depth=depth + 1)
            if self.next != ")":
                raise _Unreadable
            self.at += 1
        else:
            self._term(negated=negated)

    def _is_group(self) -> bool:
        """Whether a connective, or nothing, follows the end of the parenthesis."""
        depth = 0
        for at in range(self.at, len(self.pattern)):
            depth += (self.pattern[at] == "(") - (self.pattern[at] == ")")
            if depth == 0:
                return self.pattern[at + 1 : at + 2] in ("", "&", "|", ")")
        raise _Unreadable

    def _term(self, *, negated: bool) -> None:
        start = self.at
        inside = cases = betweens = 0
        while self.at < len(self.pattern):
            letter = self.pattern[self.at]
            if letter == "e" and cases:
                inside, cases = inside - 1, cases - 1
            elif letter in "([c":
                inside, cases = inside + 1, cases + (letter == "c")
            elif inside:
                inside -= letter in ")]"
            elif letter == "&" and betweens:
                betweens -= 1
            elif letter in "&|)":
                break
            elif letter == "b":
                betweens += 1
            self.at += 1
        if self.at == start or inside or betweens:
            raise _Unreadable
        self.steps.append((TERM, len(self.terms)))
        self.terms.append(self._place(start, self.at, negated=negated))

    def _place(self, start: int, end: int, *, negated: bool) -> TermPlace:
        piece = self.pattern.count("v", 0, start)
        begin = self.pattern.rfind("v", 0, start) + 1  # of the piece
        segments = []
        first, after, first_literal = start - begin, False, piece
        for at in range(start, end):
            if self.pattern[at] == "v":
                segments.append(Segment(piece, first, at - begin, after, before_literal=True))
                piece, begin, first, after = piece + 1, at + 1, 0, True
        segments.append(Segment(piece, first, end - begin, after, before_literal=False))
        return TermPlace(negated, first_literal, tuple(segments))
