"""Many texts cut at their literals, with each literal, and each piece of text between two, known by a number.

Theory of operation
-------------------
The naive way cuts text after text with `cut_text`, and hands the literals on as they come. But literals and pieces repeat: 3,000 rules have 48,000
literals, and 4,200 different ones. So texts are joined, and a kernel cuts all plain ones (`kernels.cutting`); `cut_text` cuts the others. Each
distinct literal or piece becomes a Python string once. Whatever is done with the literals of a slot later (finding kinds, reading, checking,
placing) is done for the distinct ones, and spread over the texts by number.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from wherecast.kernels.arrays import Bools, Longs
from wherecast.language.sequences import MANY, hash_places, numbered, pointer, take_ranges
from wherecast.language.syntax.skeletons import LiteralText, Skeleton, TextNumbers, cut_text, has_static_literal

#: What joins texts; none of them may have it.
_END = "\0"
#: Of the hash by which texts are numbered: nobody can prepare texts that collide.
_SEED = np.uint64(int.from_bytes(os.urandom(8), "little"))
_FIRST = np.zeros(1, np.int64)


class SlotTexts(NamedTuple):
    """The literals of one slot of many texts."""

    known: list[LiteralText]  # each once
    numbers: Longs  # (texts,) which of them each text has

    @classmethod
    def of(cls, literals: Sequence[LiteralText]) -> SlotTexts:
        known = TextNumbers[LiteralText]()
        numbers = np.fromiter(map(known.__getitem__, literals), np.int64, len(literals))
        return cls(list(known), numbers)

    def take(self, rows: Longs) -> SlotTexts:
        """The literals of some of the texts."""
        return _named_ones(self.known, self.numbers[rows])

    def text(self, row: int) -> LiteralText:
        return self.known[int(self.numbers[row])]


def _named_ones(known: list[LiteralText], numbers: Longs) -> SlotTexts:
    """Literals by number; those that no number names are left out."""
    if numbers.size == 1:
        return SlotTexts([known[int(numbers[0])]], _FIRST)
    if len(known) > 4 * numbers.size:
        used, own = numbered(numbers)
    else:
        is_used = np.zeros(len(known), bool)
        is_used[numbers] = True
        used, own = np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[numbers]
    return SlotTexts([known[i] for i in used.tolist()], own)


class CutTexts(NamedTuple):
    """Many texts, cut: the pieces of their skeletons by number, and a literal between every two of a text's pieces."""

    pieces: list[str]  # each once, but for those of a single text
    numbers: Longs
    ptr: Longs  # (texts + 1,)
    known: list[LiteralText]  # as pieces
    literals: Longs  # numbers

    @property
    def literal_ptr(self) -> Longs:
        """(texts + 1,) where the literals of each text begin."""
        return self.ptr - np.arange(self.ptr.size)

    def skeleton(self, text: int) -> Skeleton:
        return tuple(self.pieces[n] for n in self.numbers[self.ptr[text] : self.ptr[text + 1]].tolist())

    def each_literal(self) -> list[LiteralText]:
        """The literals of all texts, one after the other."""
        return [self.known[number] for number in self.literals.tolist()]

    def slot(self, places: Longs) -> SlotTexts:
        """The literals at some places, one for each of some texts."""
        return _named_ones(self.known, self.literals[places])

    def take(self, chosen: Longs) -> CutTexts:
        """Some of the texts, in this order."""
        places, ptr = take_ranges(self.ptr, chosen)
        literals = self.literals[take_ranges(self.literal_ptr, chosen)[0]]
        return CutTexts(self.pieces, self.numbers[places], ptr, self.known, literals)


def cut_texts(texts: Sequence[str]) -> CutTexts:
    """Cut many texts, as `cut_text` does."""
    if len(texts) == 1:
        return _cut_one(texts[0])
    joined = "" if len(texts) < MANY else _END.join(texts)
    if not joined or joined.count(_END) != len(texts) - 1:
        return _with_others(_NOTHING, texts)
    found, is_plain = _cut_plain(joined, len(texts))
    if has_static_literal("\n".join(found.pieces)):
        is_static = np.fromiter(map(has_static_literal, found.pieces), bool, len(found.pieces))
        has_static = np.add.reduceat(is_static[found.numbers], found.ptr[:-1]) > 0
        is_plain[np.flatnonzero(is_plain)[has_static]] = False
        found = found.take(np.flatnonzero(~has_static))
    if is_plain.all():
        return found
    others = np.flatnonzero(~is_plain)
    both = _with_others(found, [texts[number] for number in others.tolist()])
    return both.take(np.argsort(np.concatenate((np.flatnonzero(is_plain), others))))


def _cut_one(text: str) -> CutTexts:
    """One text: its pieces and literals have the numbers of their places, whether they repeat or not."""
    skeleton, literals = cut_text(text)
    size = len(skeleton)
    places = np.arange(size)
    return CutTexts(list(skeleton), places, np.array([0, size]), list(literals), places[: size - 1])


_NO_NUMBERS = np.zeros(0, np.int64)
_NOTHING = CutTexts([], _NO_NUMBERS, np.zeros(1, np.int64), [], _NO_NUMBERS)


def _with_others(plain: CutTexts, others: Iterable[str]) -> CutTexts:
    """Plain texts, and behind them others, which are cut one by one."""
    pieces = TextNumbers[str](zip(plain.pieces, range(len(plain.pieces)), strict=True))
    known = TextNumbers[LiteralText](zip(plain.known, range(len(plain.known)), strict=True))
    numbers: list[int] = []
    literals: list[int] = []
    ends: list[int] = []
    for text in others:
        skeleton, found = cut_text(text)
        numbers += map(pieces.__getitem__, skeleton)
        literals += map(known.__getitem__, found)
        ends.append(len(numbers))
    return CutTexts(
        list(pieces),
        np.concatenate((plain.numbers, np.array(numbers, np.int64))),
        np.concatenate((plain.ptr, plain.ptr[-1] + np.array(ends, np.int64))),
        list(known),
        np.concatenate((plain.literals, np.array(literals, np.int64))),
    )


def _cut_plain(joined: str, n: int) -> tuple[CutTexts, Bools]:
    """The plain ones of n texts, cut, and which they are."""
    from wherecast.kernels.cutting import cut_plain  # noqa: PLC0415 - what compiles a few texts does not load Numba

    data = (joined + _END).encode("utf-8", "surrogatepass")
    letters = np.frombuffer(data, np.uint8)
    bounds, n_pieces = np.empty(2 * letters.size, np.int64), np.empty(n, np.int64)
    size = cut_plain(letters, bounds, n_pieces)
    first, end = np.ascontiguousarray(bounds[:size].reshape(-1, 2).T)
    is_plain = n_pieces > 0
    ptr = pointer(n_pieces[is_plain], int(np.count_nonzero(is_plain)))
    pieces, numbers = number_texts(data, "utf-8", first, end)
    goes_on = np.ones(first.size, bool)  # a literal follows the piece
    goes_on[ptr[1:] - 1] = False
    known, literals = number_texts(data, "utf-8", end[goes_on], first[np.flatnonzero(goes_on) + 1])
    return CutTexts(pieces, numbers, ptr, list(known), literals), is_plain


def number_texts(data: bytes, encoding: str, first: Longs, end: Longs) -> tuple[list[str], Longs]:
    """The distinct texts between some bounds, in the order in which they first occur, and the number of each."""
    from wherecast.kernels import numbering  # noqa: PLC0415 - as above

    known, numbers = np.empty(first.size, np.int64), np.empty(first.size, np.int64)
    given = np.frombuffer(data, np.uint8), first, end, _SEED, hash_places(first.size)
    known = known[: numbering.number_texts(*given, known, numbers)]
    spans = zip(first[known].tolist(), end[known].tolist(), strict=True)
    return [data[a:b].decode(encoding, "surrogatepass") for a, b in spans], numbers
