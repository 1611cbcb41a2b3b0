"""The automaton of literals: cases that are easy to get wrong, sizes, kinds of columns, and forged arrays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from tests.literals import Literal, codes_in, codes_of

from wherecast.errors import LimitError, SnapshotError
from wherecast.index import literals as module
from wherecast.index.literals import LiteralCodes

#: (literals, text, those that occur); `^` and `$` are anchors.
CASES: list[tuple[str, str, str]] = [
    ("he she his hers", "ushers", "he she hers"),
    ("he she his hers", "", ""),
    ("a", "a", "a"),
    ("a", "bbbb", ""),
    ("abcd bc", "abce", "bc"),
    ("abcd", "abc", ""),
    ("a aa aaa aaaa", "aaa", "a aa aaa"),
    ("ab ba", "abab", "ab ba"),
    ("abab", "ababab", "abab"),
    ("aab aaab", "aaaaab", "aab aaab"),
    ("abx bcx cdx d", "abcdx", "cdx d"),
    ("xab abxa", "abxab", "xab abxa"),
    ("^a a$ ^a$ a", "a", "^a a$ ^a$ a"),
    ("^a a$ ^a$ a", "aa", "^a a$ a"),
    ("^a a$ ^a$ a", "ba", "a$ a"),
    ("^a a$ ^a$ a", "bab", "a"),
    ("^ab b$", "ab", "^ab b$"),
    ("^ab ^abc ^abd", "abd", "^ab ^abd"),
    ("^$ a", "", "^$"),
    ("^$ a", "a", "a"),
    ("é", "e\u0301 è", ""),
    ("é", "café", "é"),
    ("😀 ^😀", "x😀", "😀"),
    ("\x00", "a\x00b", "\x00"),
    ("w0 w1 w10", "w1 w10", "w1 w10"),
    ("abcdefgh defx fgh", "abcdefx", "defx"),
    ("xab1 xab2 abz", "xabz", "abz"),  # a row whose failure is a link
    ("xab1 xab2 abzp abzq", "xabzq", "abzq"),  # and the child of that link has a row
    ("xab1 xab2 yab1 yab2 ab1z b1", "yab1z", "yab1 ab1z b1"),
]


def literal(text: str) -> Literal:
    return Literal(text.removeprefix("^").removesuffix("$"), text.startswith("^"), text.endswith("$"))


def sets_of(codes: LiteralCodes, values: pa.Array | pa.ChunkedArray) -> list[list[int]]:
    ptr, flat = codes.encode(values)
    return [flat[a:b].tolist() for a, b in pairwise(ptr)]


@pytest.mark.parametrize(("room", "small"), [(1 << 21, 1 << 13), (1 << 21, 0), (30, 0), (0, 0)])
@pytest.mark.parametrize(("literals", "text", "found"), CASES)
def test_cases(monkeypatch, literals, text, found, room, small):
    """The literals of a text are found, with rows for all states, for forks, for some of them, and for the root only."""
    monkeypatch.setattr(module, "_TABLE_WORDS", room)
    monkeypatch.setattr(module, "_SMALL_WORDS", small)
    names = literals.split(" ")
    codes = codes_of([literal(name) for name in names])
    expected = [1, *(2 + names.index(name) for name in found.split())]
    assert codes_in(codes, text) == expected
    assert sets_of(codes, pa.array([text, None, text])) == [expected, [0], expected]


def test_no_literal():
    """A column that no filter looks into says only whether a text is there."""
    codes = codes_of([])
    assert codes.width == 2
    assert sets_of(codes, pa.array(["a", None, ""])) == [[1], [0], [1]]
    assert sets_of(LiteralCodes.from_arrays(codes.arrays()), pa.array([], pa.string())) == []


@pytest.mark.parametrize("bad", [Literal(""), Literal("", start=True)])
def test_a_literal_in_every_text_is_refused(bad):
    """An empty literal that is not the whole text would be everywhere."""
    with pytest.raises(ValueError, match="the empty literal is marked"):
        codes_of([Literal("a"), bad])


def test_a_literal_given_twice_is_refused():
    """Two codes for one literal would find only one of them."""
    with pytest.raises(ValueError, match=r"'\*b'.*twice"):
        codes_of([Literal("b"), Literal("b", start=True), Literal("b")])


def test_too_many_bytes_are_refused(monkeypatch):
    """States have 31 bits; more literals than that are refused with the numbers."""
    monkeypatch.setattr(module, "_MOST_BYTES", 4)
    with pytest.raises(LimitError, match="5 bytes"):
        codes_of([Literal("ab"), Literal("abc")])


def test_bytes_that_are_not_text():
    """Bytes that stand for anchors are none in a text, which Arrow does not always check."""
    texts = pa.array([b"\xfea", b"a\xff", b"\xfe\xff"]).view(pa.string())
    codes = codes_of([literal("^a"), literal("a$"), literal("^$")])
    assert sets_of(codes, texts) == [[1, 3], [1, 2], [1]]


def test_kinds_of_columns():
    """Strings of all of Arrow's kinds, in chunks, slices and dictionaries, have the same codes."""
    texts = ["xab", None, "b", "", "abab", None]
    codes = codes_of([Literal("ab"), Literal("b", start=True)])
    expected = [[1, 2], [0], [1, 3], [1], [1, 2], [0]]
    plain = pa.array(texts)
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        column = plain.cast(kind)
        assert sets_of(codes, column) == expected
        assert sets_of(codes, column[1:5]) == expected[1:5]
        assert sets_of(codes, column[3:3]) == []
        assert sets_of(codes, pa.chunked_array([column[:2], column[2:]])) == expected
    assert sets_of(codes, pa.nulls(2, pa.string())) == [[0], [0]]
    assert sets_of(codes, pa.chunked_array([], pa.string())) == []


def test_more_codes_than_expected():
    """A text with very many literals makes room for them; they are sorted, and the next text starts afresh."""
    words = [f"{i:04d}." for i in range(3000)]
    codes = codes_of([Literal(word) for word in reversed(words)])
    text = "".join(words)
    everything = list(range(1, 3002))
    for _ in range(2):
        assert sets_of(codes, pa.array(["0007.", text, "", text])) == [[1, 2994], everything, [1], everything]
        assert codes_in(codes, text) == everything
        assert codes_in(codes, "0007.") == [1, 2994]


@pytest.mark.slow
def test_long_texts_and_literals():
    """Texts of 1 MB, literals of one byte and of 10 KB, and a text that would take a second per failure too many."""
    long = "a" * 10_000
    codes = codes_of([Literal("a"), Literal(long + "b"), Literal("b" + long), Literal(long[:5000], end=True)])
    assert codes_in(codes, "a" * 1_000_000) == [1, 2, 5]
    assert codes_in(codes, "c" + long + "b" + long[:-1]) == [1, 2, 3, 5]
    assert codes_in(codes, "b" + "a" * 1_000_000 + "c") == [1, 2, 4]


@pytest.mark.slow
def test_nested_literals_cost_no_more_than_bytes():
    """2,000 literals that end in one another, and a text of 1 MB at each of whose places all of them occur."""
    codes = codes_of([Literal("a" * (i + 1)) for i in range(2000)])
    assert codes_in(codes, "a" * 1_000_000) == list(range(1, 2002))


@pytest.mark.slow
def test_memory_of_many_literals():
    """100,000 literals over a hundred classes take at most 14 bytes per byte and 9 MB, not a row per state."""
    rng = np.random.default_rng(1)
    letters = np.array([chr(c) for c in (*range(33, 127), *range(0x4E00, 0x4E40))])
    texts = {"".join(row) for row in letters[rng.integers(0, letters.size, (100_000, 12))]}
    codes = codes_of([Literal(text) for text in texts])
    total = sum(len(text.encode()) for text in texts)
    assert codes.nbytes < 14 * total + 9_000_000


def test_threads_share_codes():
    """Several threads encode at the same time."""
    codes = codes_of([Literal(f"w{i}") for i in range(1000)])
    texts = [f"w{i} w{i * 7 % 1000}" for i in range(200)]
    alone = [codes_in(codes, t) for t in texts]
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: sets_of(codes, pa.array(texts * 20)), range(8)):
            assert found == alone * 20
        assert list(pool.map(lambda t: codes_in(codes, t), texts * 10)) == alone * 10


@pytest.fixture
def _links(monkeypatch: pytest.MonkeyPatch) -> None:
    """No automaton is so small that all states have rows."""
    monkeypatch.setattr(module, "_SMALL_WORDS", 0)


#: (array, place, value): each would lead a search astray.
LIES = [
    ("offsets", 1, 10_000),
    ("offsets", 1, -1),
    ("data", 0, 255),
    ("anchors", 0, 4),
    ("classes", 97, 0),
    ("classes", 97, 511),
    ("table", 0, 10_000),
    ("table", 1, 1),
    ("table", 2, 2**31 - 1),
    ("table", -1, 2**30),
    ("links", -1, 2 << 32),
    ("links", 0, 1),
    ("links", 0, 2**31 - 1),
    ("outputs", 0, -1),
    ("outputs", -1, 10_000),
    ("shorter", 2, 10_000),
    ("shorter", 2, -1),
]


@pytest.mark.parametrize(("name", "at", "value"), LIES)
@pytest.mark.usefixtures("_links")
def test_a_lie_is_refused(name, at, value):
    """A value that would lead a kernel out of an array is refused when the file is opened."""
    arrays = {n: a.copy() for n, a in codes_of([literal(a) for a in ("^abc", "abd", "xab$")]).arrays().items()}
    arrays[name][at] = value
    with pytest.raises(SnapshotError, match=name):
        LiteralCodes.from_arrays(arrays)


@pytest.mark.usefixtures("_links")
def test_failures_in_a_circle_are_refused():
    """A search would follow them for ever."""
    arrays = {n: a.copy() for n, a in codes_of([Literal("abcd")]).arrays().items()}
    arrays["links"][:2] = arrays["table"].size + np.array([1, 0])
    with pytest.raises(SnapshotError, match="circle"):
        LiteralCodes.from_arrays(arrays)


@pytest.mark.parametrize("name", ["offsets", "anchors", "classes", "table", "links", "outputs", "shorter"])
@pytest.mark.usefixtures("_links")
def test_arrays_of_another_length_are_refused(name):
    """Arrays fit each other, or the file is not opened."""
    arrays = codes_of([literal(a) for a in ("^abc", "abd", "xab$")]).arrays()
    for changed in (arrays[name][:-1], arrays[name].astype(np.float64), None):
        with pytest.raises(SnapshotError):
            LiteralCodes.from_arrays({**arrays, name: changed})
