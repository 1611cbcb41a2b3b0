"""Codes of a text by the literals in it.

A literal is a piece of text that filters look for: anywhere (`LIKE '%x%'`), at the start (`LIKE 'x%'`), at the end, or as the whole.
An event's text has a set of codes, as an array has: FIRST_CODE if it is there, and one for each distinct literal that
occurs in it; NULL_CODE alone if it is NULL. One automaton finds them all in one pass (see `kernels.automaton`).

Memory: 12 bytes for each distinct beginning of a literal (at most one for each byte of the literals), at most 8 MB for the table,
and one byte per literal for each thread that encodes; while it is built, about 40 bytes for each byte of the literals.
100,000 literals of 10 to 20 bytes take 22 MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wherecast.errors import LimitError
from wherecast.index.bounds import StoredArrays
from wherecast.kernels.automaton import (
    END,
    END_AT,
    FIRST_LITERAL,
    LABEL_SHIFT,
    NO_CHILD,
    START,
    STATE,
    Automaton,
    build_automaton,
    failures_end,
    search_one,
    search_texts,
)
from wherecast.kernels.jit import frozen, plain

Bytes = npt.NDArray[np.uint8]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]

#: Words of the table at most, 8 MB; states beyond it are links.
_TABLE_WORDS = 1 << 21
#: Bytes of all literals of a column: states have 31 bits, and a byte may take two of them.
_MOST_BYTES = 1 << 28
#: Codes per text that are expected at most, and for one text; more are found too, at the price of a second try.
_CODES_PER_TEXT = 16

_ALL_VALID = frozen(np.zeros(0, np.bool_))
_NO_BYTES = frozen(np.zeros(0, np.uint8))


class Literal(NamedTuple):
    """A text to look for; with both anchors it is the whole text."""

    text: str
    start: bool = False
    end: bool = False


class LiteralCodes:
    """Literal i has code i + 2. A text that is there has code 1, NULL is 0."""

    def __init__(self, offsets: Int64s, data: Bytes, anchors: Bytes, automaton: Automaton) -> None:
        self.offsets = offsets
        self.data = data  # the literals in UTF-8, one after the other
        self.anchors = anchors  # per literal: 1 for the start, 2 for the end
        self._automaton = Automaton(*map(frozen, automaton))
        self._read_only = plain(self._automaton)  # what kernels are given
        # Marks and room for codes; a thread takes one and puts it back. Taking and putting are atomic.
        self._spare: list[tuple[Bytes, Int32s]] = []

    @classmethod
    def of(cls, literals: Sequence[Literal]) -> LiteralCodes:
        """Codes for distinct literals. One without text must be the whole text: all others are everywhere."""
        encoded = [literal.text.encode() for literal in literals]
        for literal, text in zip(literals, encoded, strict=True):
            if not text and not (literal.start and literal.end):
                raise ValueError(f"{literal} occurs in every text; ask whether the text is NULL instead")
        anchors = np.array([a.start + 2 * a.end for a in literals], np.uint8)
        offsets, data = _join(encoded)
        if data.size > _MOST_BYTES:
            raise LimitError(
                f"literals of {data.size} bytes on one attribute, at most {_MOST_BYTES}; use fewer patterns"
            )
        before, behind = (b"", bytes([START])), (b"", bytes([END]))
        anchored = [before[a & 1] + text + behind[a >> 1] for a, text in zip(anchors.tolist(), encoded, strict=True)]
        order = sorted(range(len(anchored)), key=anchored.__getitem__)
        ends, symbols = _join([anchored[i] for i in order])
        codes = np.array(order, np.int32) + np.int32(FIRST_LITERAL)
        repeated, automaton = build_automaton(symbols, ends, codes, _TABLE_WORDS)
        if repeated >= 0:
            raise ValueError(f"{literals[order[repeated]]} is given twice")
        return cls(offsets, data, anchors, Automaton(*automaton))

    @property
    def width(self) -> int:
        return int(self.anchors.size) + 2

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays().values())

    def literals(self) -> list[Literal]:
        text, ends = self.data.tobytes(), self.offsets.tolist()
        return [
            Literal(text[a:b].decode(), bool(anchor & 1), bool(anchor & 2))
            for (a, b), anchor in zip(pairwise(ends), self.anchors.tolist(), strict=True)
        ]

    def encode_value(self, value: str) -> Int32s:
        """Codes of one text, ascending."""
        seen, room = self._take_scratch()
        text = np.frombuffer(value.encode(), np.uint8)
        while (n := search_one(self._read_only, text, seen, room)) < 0:
            room = np.empty(2 * room.size, np.int32)
        codes = room[:n].copy()
        self._spare.append((seen, room))
        return codes

    def encode(self, values: pa.Array | pa.ChunkedArray) -> tuple[Int64s, Int32s]:
        """Codes of a column: those of text r are codes[ptr[r]:ptr[r + 1]], ascending."""
        values = _plain_texts(values)
        n, row = len(values), 0
        valid = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else _ALL_VALID
        ptr, codes = np.zeros(n + 1, np.int64), np.empty(_CODES_PER_TEXT * (n + 1), np.int32)
        seen, room = self._take_scratch()
        buffers = _text_buffers(values)
        while (row := search_texts(self._read_only, *buffers, frozen(valid), row, seen, ptr, codes)) < n:
            codes = np.concatenate((codes, np.empty_like(codes)))
        self._spare.append((seen, room))
        return ptr, codes[: ptr[n]]

    def _take_scratch(self) -> tuple[Bytes, Int32s]:
        try:
            return self._spare.pop()
        except IndexError:
            return np.zeros(self.width, np.uint8), np.empty(_CODES_PER_TEXT, np.int32)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The whole state, by name."""
        return {"offsets": self.offsets, "data": self.data, "anchors": self.anchors, **self._automaton._asdict()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> LiteralCodes:
        """The codes whose `arrays()` these are, used in place. Raises SnapshotError if they cannot be."""
        _check(StoredArrays(arrays, "codes of literals"))
        automaton = Automaton(*(arrays[name] for name in Automaton._fields))
        return cls(arrays["offsets"], arrays["data"], arrays["anchors"], automaton)


def _check(stored: StoredArrays) -> None:
    """Texts in Arrow's layout, and an automaton that leads nowhere but to its own states, and to a row in the end."""
    offsets, data = stored.column("offsets", np.int64), stored.column("data", np.uint8)
    stored.offsets(offsets, data.size, "offsets")
    n = offsets.size - 1
    texts = pa.Array.from_buffers(pa.large_string(), n, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    try:
        texts.validate(full=True)
    except pa.ArrowException:
        stored.require(False, "data", "holds no texts")
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


def _join(texts: list[bytes]) -> tuple[Int64s, Bytes]:
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(texts), np.uint8)


def _plain_texts(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array whose texts stand one after the other; a copy only where they do not."""
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        values = values.cast(pa.large_string())
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _text_buffers(values: pa.Array) -> tuple[Int32s | Int64s, Bytes]:
    """Offsets and bytes of a column of strings or large strings, without copying."""
    width = np.int64 if pa.types.is_large_string(values.type) else np.int32
    _, offsets, data = values.buffers()
    if offsets is None or len(values) == 0:
        return frozen(np.zeros(len(values) + 1, width)), _NO_BYTES
    ends = frozen(np.frombuffer(offsets, width)[values.offset : values.offset + len(values) + 1])
    return ends, frozen(np.frombuffer(data, np.uint8)) if data is not None and data.size else _NO_BYTES
