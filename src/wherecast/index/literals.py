"""Codes of a text by the literals in it.

A literal is a piece of text that filters look for: anywhere (`LIKE '%x%'`), at the start (`LIKE 'x%'`), at the end, or as the whole.
An event's text has a set of codes, as an array has: FIRST_CODE if it is there, and one for each distinct literal that
occurs in it; NULL_CODE alone if it is NULL. One automaton finds them all in one pass (see `kernels.automaton`).

Memory: 12 bytes for each distinct beginning of a literal (at most one for each byte of the literals), at most 8 MB for the table,
and one byte per literal for each thread that encodes; while it is built, about 40 bytes for each byte of the literals.
100,000 literals of 10 to 20 bytes take 22 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.errors import LimitError
from wherecast.index.bounds import StoredArrays
from wherecast.index.strings import Texts, check_texts, gather_texts, lay_out
from wherecast.kernels.arrays import Bytes, Ints, Longs
from wherecast.kernels.automaton import (
    END,
    END_AT,
    FIRST_LITERAL,
    LABEL_SHIFT,
    NO_CHILD,
    START,
    STATE,
    Arrays,
    Automaton,
    build_automaton,
    failures_end,
    search_one,
    search_texts,
)
from wherecast.kernels.jit import address_of, direct, frozen, plain
from wherecast.language.filters.columns import ANYWHERE, AT_END, AT_START, WHOLE

__all__ = ["FIRST_LITERAL", "LiteralCodes", "literal_columns"]

#: Words of the table at most, 8 MB; states beyond it are links.
_TABLE_WORDS = 1 << 21
#: Words of a table that has rows for all states, 32 KB.
_SMALL_WORDS = 1 << 13
#: Bytes of all literals of a column: states have 31 bits, and a byte may take two of them.
_MOST_BYTES = 1 << 28
#: Codes per text that are expected at most; more are found too, at the price of a second try.
_CODES_PER_TEXT = 16

_NO_BYTES = frozen(np.zeros(0, np.uint8))


#: `search_one` of some literals: text, marks, column, codes, list_ptr, list_codes, number of lists; the same number, or -1.
TextSearch = Callable[[bytes, Bytes, int, Ints, Longs, Ints, int], int]

#: Anchors by mark: 1 for the start, 2 for the end.
_ANCHORS = {ANYWHERE: 0, AT_START: 1, AT_END: 2, WHOLE: 3}
_MARKS = {anchors: mark for mark, anchors in _ANCHORS.items()}


class LiteralCodes:
    """Literal i has code i + 2. A text that is there has code 1, NULL is 0."""

    def __init__(self, offsets: Longs, data: Bytes, anchors: Bytes, automaton: Automaton) -> None:
        self.offsets = offsets
        self.data = data  # the literals in UTF-8, one after the other
        self.anchors = anchors  # per literal: 1 for the start, 2 for the end
        self._automaton = Automaton(*map(frozen, automaton))
        self._read_only = plain(self._automaton)  # what kernels are given
        self._spare: list[Bytes] = []  # marks; a thread takes one and puts it back, which are atomic

    @cached_property
    def _folding(self) -> Arrays:
        """The automaton for texts of which capital letters are taken for small ones."""
        return plain(self._automaton._replace(classes=_fold(self._automaton.classes)))

    @classmethod
    def of(cls, literals: Sequence[str]) -> LiteralCodes:
        """Codes for distinct literals with their marks (see `language.filters.columns`).

        An empty one needs a mark of the end: without any it is in every text, and one at the start is not looked for.
        """
        return literal_columns(literals, np.arange(len(literals)), np.array([0, len(literals)]))[0]

    @property
    def width(self) -> int:
        return int(self.anchors.size) + 2

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays().values())

    def strings(self) -> list[str]:
        """The literals with their marks."""
        return self.strings_at(np.arange(self.anchors.size))

    def strings_at(self, places: Longs) -> list[str]:
        """Some of them, by their number."""
        starts, ends = self.offsets[places].tolist(), self.offsets[places + 1].tolist()
        anchors = self.anchors[places].tolist()
        return [
            _MARKS[anchor] + self.data[a:b].tobytes().decode()
            for anchor, a, b in zip(anchors, starts, ends, strict=True)
        ]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Codes by literal, with its mark."""
        return {literal: code for code, literal in enumerate(self.strings(), FIRST_LITERAL)}

    @cached_property
    def search(self) -> TextSearch:
        """Finds the codes of one text, see `search_one`."""
        ints, longs = np.zeros(0, np.int32), np.zeros(0, np.int64)
        call = direct(search_one, self._read_only, b"", np.zeros(0, np.uint8), 0, ints, longs, ints, 0)
        return partial(call, self._read_only)

    def encode(self, values: pa.Array | pa.ChunkedArray) -> tuple[Longs, Ints]:
        """Codes of a column: those of text r are codes[ptr[r]:ptr[r + 1]], ascending."""
        return self.encode_texts(lay_out(_plain_texts(values)))

    def encode_texts(self, texts: Texts, *, fold: bool = False) -> tuple[Longs, Ints]:
        """As `encode`; with `fold`, codes of the texts in lower case, which must be ASCII."""
        n, row = len(texts), 0
        ptr, codes = np.zeros(n + 1, np.int64), np.empty(_CODES_PER_TEXT * (n + 1), np.int32)
        try:
            seen = self._spare.pop()
        except IndexError:
            seen = np.zeros(self.width, np.uint8)
        automaton = self._folding if fold else self._read_only
        while (row := search_texts(automaton, *texts, row, seen, ptr, codes)) < n:
            codes = np.concatenate((codes, np.empty_like(codes)))
        self._spare.append(seen)
        return ptr, codes[: ptr[n]]

    def job(self, *, fold: bool) -> tuple[int, ...]:
        """Sizes and addresses of the automaton, as `kernels.stored_columns` wants them."""
        given = self._folding if fold else self._read_only
        return int(self.anchors.size), given[1].size, given[2].size, *map(address_of, given)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The whole state, by name."""
        return {"offsets": self.offsets, "data": self.data, "anchors": self.anchors, **self._automaton._asdict()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> LiteralCodes:
        """The codes whose `arrays()` these are, used in place. Raises SnapshotError if they cannot be."""
        _check(StoredArrays(arrays, "codes of literals"))
        automaton = Automaton(*(arrays[name] for name in Automaton._fields))
        return cls(arrays["offsets"], arrays["data"], arrays["anchors"], automaton)


def literal_columns(literals: Sequence[str], chosen: Longs, ptr: Longs) -> list[LiteralCodes]:
    """The codes of many columns: column c has the literals of `chosen[ptr[c]:ptr[c + 1]]`, see `LiteralCodes.of`.

    An index may have hundreds of columns that look for the same literals. Each of them is put into bytes and ranked once.
    """
    used, place = np.unique(chosen, return_inverse=True)
    texts = [literals[i] for i in used.tolist()]
    for mark in (ANYWHERE, AT_START):
        if mark in texts:
            raise ValueError(f"the empty literal is marked {mark!r}; mark it {AT_END!r}, which says the same")
    encoded = [text[1:].encode() for text in texts]
    anchors = np.fromiter((_ANCHORS[text[0]] for text in texts), np.uint8, len(texts))
    before, behind = (b"", bytes([START])), (b"", bytes([END]))
    anchored = [before[a & 1] + text + behind[a >> 1] for a, text in zip(anchors.tolist(), encoded, strict=True)]
    rank = np.empty(len(texts), np.int64)
    rank[sorted(range(len(texts)), key=anchored.__getitem__)] = np.arange(len(texts))
    column = np.repeat(np.arange(ptr.size - 1), np.diff(ptr))
    order = np.argsort(column * len(texts) + rank[place])
    ends, data = gather_texts(encoded, place)
    symbol_ends, symbols = gather_texts(anchored, place[order])
    codes = (order - ptr[column] + FIRST_LITERAL).astype(np.int32)
    made = []
    for a, b in pairwise(ptr.tolist()):
        offsets, symbol_ptr = ends[a : b + 1] - ends[a], symbol_ends[a : b + 1]
        if offsets[-1] > _MOST_BYTES:
            raise LimitError(
                f"literals of {offsets[-1]} bytes on one attribute, at most {_MOST_BYTES}; use fewer patterns"
            )
        own = symbols[symbol_ptr[0] : symbol_ptr[-1]]
        repeated, automaton = build_automaton(own, symbol_ptr - symbol_ptr[0], codes[a:b], _TABLE_WORDS, _SMALL_WORDS)
        if repeated >= 0:
            raise ValueError(f"the literal {texts[place[order[a + repeated]]]!r} is given twice")
        made.append(LiteralCodes(offsets, data[ends[a] : ends[b]], anchors[place[a:b]], Automaton(*automaton)))
    return made


def _fold(classes: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
    """Classes of bytes by which capital ASCII letters are taken for small ones."""
    folded = classes.copy()
    folded[ord("A") : ord("Z") + 1] = classes[ord("a") : ord("z") + 1]
    return frozen(folded)  # type: ignore[no-any-return]


def _check(stored: StoredArrays) -> None:
    """Texts, and an automaton that leads nowhere but to its own states, and to a row in the end."""
    n = len(check_texts(stored))
    stored.within(stored.column("anchors", np.uint8, size=n), 0, 4, "anchors")
    classes = stored.column("classes", np.uint16, size=END_AT + 1)
    stored.within(classes, 1, int(NO_CHILD), "classes")
    table, links = stored.column("table", np.uint32), stored.column("links", np.uint64)
    row_words = int(classes.max()) + 1
    has_rows = table.size and table.size % row_words == 0
    stored.require(has_rows, "table", f"has {table.size} words in rows of {row_words}")
    stored.require((links[-1:] >> LABEL_SHIFT == NO_CHILD).all(), "links", "has a child behind its end")
    rows = table.reshape(-1, row_words)
    for states, name in ((rows[:, 1:] & np.uint32(STATE), "table"), (links & STATE, "links")):
        stored.within(states, 0, table.size + links.size, name)
        stored.require(((states % row_words == 0) | (states >= table.size)).all(), name, "has a state inside a row")
    stored.require(failures_end(links, table.size), "links", "goes in a circle")
    for name, size in (("outputs", links.size), ("shorter", n + 2)):
        stored.within(stored.column(name, np.int32, size=size), 0, n + 2, name)
    stored.within(rows[:, 0], 0, n + 2, "table")


def _plain_texts(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array whose texts stand one after the other; a copy only where they do not."""
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        values = values.cast(pa.large_string())
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
