"""`lower`, `upper` and `length` of Arrow's texts: any letters, wherever in their buffers texts begin."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from wherecast.language import arrow_texts
from wherecast.language.arrow_texts import _END_OF_CASES, _MOST_BYTES_OF_ONE

_ASCII = ["Ab", "", None, "zZ@[`{", "x" * 9, None, "HOST-1.Example"]
_TEXTS = {
    "ascii": _ASCII,
    "others": [*_ASCII, "ÀÉß", "İI", "ΑΣ"],
    "nulls": [None, None],
    "empty": ["", None, ""],
    "none": [],
    "many": ["A"] * 1025,
}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("name", _TEXTS)
@pytest.mark.parametrize(("of_many", "of_one"), [(arrow_texts.lower, str.lower), (arrow_texts.upper, str.upper)])
def test_slices_of_texts(
    kind: pa.DataType, name: str, of_many: Callable[[pa.Array], pa.Array], of_one: Callable[[str], str]
) -> None:
    """A slice of texts has the case that each of them has alone, and the same NULLs."""
    whole = pa.array(_TEXTS[name], kind)
    for first in range(min(len(whole), 10) + 1):
        for size in (0, 1, 3, len(whole)):
            texts = whole.slice(first, size)
            found = of_many(texts)
            found.validate(full=True)
            assert found.to_pylist() == [None if text is None else of_one(text) for text in texts.to_pylist()]


_CASES = [(arrow_texts.lower, str.lower), (arrow_texts.upper, str.upper)]


def _letters(of_one: Callable[[str], str]) -> list[str]:
    """All characters that have another case."""
    return [c for c in map(chr, range(sys.maxunicode + 1)) if of_one(c) != c]


@pytest.mark.parametrize(("of_many", "of_one"), _CASES)
@pytest.mark.parametrize("around", ["{}", "{}a", "A{}", "é{}É{}", "12345678{}Zz", "日{}😀{}𠀀", ". {}. {}B", "Σ{}σ"])
def test_every_letter(around: str, of_many: Callable[[pa.Array], pa.Array], of_one: Callable[[str], str]) -> None:
    """Every letter of Unicode becomes what Python says, between any others: the capital sigma at the end of a word is another one."""
    texts = [around.format(letter, letter) for letter in _letters(of_one)]
    assert of_many(pa.array(texts)).to_pylist() == list(map(of_one, texts))


@pytest.mark.parametrize("of_one", [str.lower, str.upper])
def test_what_letters_become(of_one: Callable[[str], str]) -> None:
    """It is within the limits that the kernel is told: letters are in its table, and the memory for its result is enough."""
    for letter in _letters(of_one):
        own, new = len(letter.encode()), len(of_one(letter).encode())
        assert ord(letter) < _END_OF_CASES
        assert new <= min(7, own * _MOST_BYTES_OF_ONE)


@pytest.mark.parametrize(("of_many", "of_one"), _CASES)
def test_no_texts_below_nulls(of_many: Callable[[pa.Array], pa.Array], of_one: Callable[[str], str]) -> None:
    """Bytes that are no UTF-8, which a NULL may hide, neither show nor write beyond the memory of the result."""
    hidden = [
        b"\xce",
        b"\x90",
        b"\xce\xce\x90",
        b"\xff\xfe",
        b"\xe1\xbe",
        b"\xce\xa3",
        b"\x90" * 100,
        b"\xf0\x9f\x98",
        b"\xc1\x81",
        b"\xfb\xbf",
    ]
    shown = ["ΐ", "ß", "ǰa", "ΑΣ", ""]
    parts = [part for k, text in enumerate(shown) for part in (*hidden[k:], text.encode())]
    is_shown = [at for k in range(len(shown)) for at in (*[False] * len(hidden[k:]), True)]
    ends = np.cumsum([0, *map(len, parts)], dtype=np.int32)
    valid = pa.py_buffer(np.packbits(is_shown, bitorder="little"))
    for spare in (b"", b"\x90" * 9):  # the last text is read in another way at the end of the buffer
        buffers = [valid, pa.py_buffer(ends), pa.py_buffer(b"".join(parts) + spare)]
        found = of_many(pa.Array.from_buffers(pa.string(), len(parts), buffers))
        known = [text for text in found.to_pylist() if text is not None]
        assert known == list(map(of_one, shown))
        assert found.buffers()[2].size >= np.frombuffer(found.buffers()[1], np.int32)[-1]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("spare", ["", "日" * 9])
def test_lengths_beyond_ascii(kind: pa.DataType, spare: str) -> None:
    """Characters are counted, wherever a text begins and ends in the eight bytes that are looked at together."""
    texts = [None, *("a" * i + "é" * k + "日" * (k % 3) + "😀" * (i % 2) for i in range(12) for k in range(12)), spare]
    whole = pa.array(texts, kind)
    for first in (0, 1, 5, 60):
        found = arrow_texts.length(whole.slice(first, 80))
        expected = [None if text is None else len(text) for text in texts[first : first + 80]]
        assert [
            n if is_there else None for n, is_there in zip(found.values.tolist(), found.valid.tolist(), strict=True)
        ] == expected


def test_texts_of_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where 32 bits might not count the bytes of the result, offsets have 64 bits; texts are padded as long as the result itself fits."""
    monkeypatch.setattr(arrow_texts, "_MOST_BYTES", 60)
    found = arrow_texts.upper(pa.array(["ß" * 20, None, "ΰa"]))
    assert found.type == pa.large_string()
    assert found.to_pylist() == ["SS" * 20, None, "ΰA".upper()]
    few, many = pa.array(["x" * 40, "ab"]), pa.array(["x" * 40, "ab", "c", ""])
    assert arrow_texts.lpad(few, 20, ".").to_pylist() == ["x" * 20, "ab".rjust(20, ".")]
    assert arrow_texts.lpad(many, 20, ".") is None
