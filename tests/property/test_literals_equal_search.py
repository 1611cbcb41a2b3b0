"""Codes of literals equal Python's `in`, `startswith` and `endswith` on bytes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tests.literals import Literal, codes_in, codes_of

from wherecast.errors import SnapshotError
from wherecast.index import literals as module
from wherecast.index.literals import LiteralCodes

#: 'ab' makes literals overlap; the others share bytes but not characters: é is C3 A9, ã is C3 A3, 鎩 is E9 8E A9.
ALPHABETS = st.sampled_from(["a", "ab", "aéã", "鎩é😀x", "\x00\x7f\U0010ffff"])
#: Words of the table: all states have rows, all with several children, some, only the root; and of a table with rows for all.
ROOMS = st.sampled_from([(1 << 21, 1 << 13), (1 << 21, 0), (40, 0), (0, 0)])


def occurs(literal: Literal, text: str) -> bool:
    """The definition."""
    piece, whole = literal.text.encode(), text.encode()
    if literal.start and literal.end:
        return piece == whole
    if literal.start:
        return whole.startswith(piece)
    return whole.endswith(piece) if literal.end else piece in whole


def expected_codes(literals: list[Literal], text: str | None) -> list[int]:
    if text is None:
        return [0]
    return [1, *(code for code, literal in enumerate(literals, 2) if occurs(literal, text))]


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Literal], list[str | None]]:
    """Literals and texts of one alphabet; texts are often made of literals, or end inside one."""
    alphabet = draw(ALPHABETS)
    words = st.text(alphabet, max_size=7)
    literals = draw(st.lists(st.builds(Literal, words, st.booleans(), st.booleans()), max_size=25, unique=True))
    literals = [a for a in literals if a.text or (a.start and a.end)]
    pieces = st.sampled_from([a.text for a in literals] or [""])
    made = st.lists(st.one_of(pieces, words, st.just("z")), max_size=6).map("".join)
    cut = st.tuples(made, st.integers(0, 8)).map(lambda pair: pair[0][: max(len(pair[0]) - pair[1], 0)])
    return literals, draw(st.lists(st.one_of(st.none(), words, made, cut), max_size=12))


@pytest.fixture(scope="module", autouse=True)
def _tables_of_any_size() -> Iterator[None]:
    room = module._TABLE_WORDS, module._SMALL_WORDS
    yield
    module._TABLE_WORDS, module._SMALL_WORDS = room


@given(cases(), ROOMS)
@example(([Literal("ab"), Literal("bc"), Literal("b"), Literal("abcd")], ["abc", "abcd", "xabx", "a", ""]), (0, 0))
def test_codes_are_what_a_search_finds(case, room):
    """Whatever part of the automaton is a table, columns and single texts get the codes of a naive search."""
    literals, texts = case
    module._TABLE_WORDS, module._SMALL_WORDS = room
    codes = codes_of(literals)
    expected = [expected_codes(literals, text) for text in texts]
    for kind in (pa.string(), pa.large_string()):
        ptr, flat = codes.encode(pa.array(texts, kind))
        assert [flat[a:b].tolist() for a, b in pairwise(ptr)] == expected
    assert [codes_in(codes, t) for t in texts if t is not None] == [e for e in expected if e != [0]]
    kept = LiteralCodes.from_arrays(codes.arrays())
    assert kept.strings() == [literal.marked for literal in literals]
    assert kept.encode(pa.array(texts, pa.string()))[1].tolist() == flat.tolist()


@given(cases(), ROOMS, st.data())
def test_forged_arrays_are_refused_or_harmless(case, room, data):
    """An edit of any array is refused, or the codes stay within their width; nothing crashes or runs for ever."""
    literals, texts = case
    module._TABLE_WORDS, module._SMALL_WORDS = room
    codes = codes_of(literals)
    arrays = {name: array.copy() for name, array in codes.arrays().items()}
    name = data.draw(st.sampled_from([n for n, a in arrays.items() if a.size]))
    array, info = arrays[name], np.iinfo(arrays[name].dtype)
    sizes = [a.size + d for a in arrays.values() for d in (-1, 0, 1)]
    near = [int(v) + d for v in array[:20] for d in (-1, 1)]
    value = data.draw(st.one_of(st.sampled_from([info.min, info.max, 0, 1, *sizes, *near]), st.integers(0, 2**33)))
    at = data.draw(st.integers(0, array.size - 1))
    value = min(max(value, info.min), info.max)
    assume(array[at] != value)
    if data.draw(st.booleans()):
        array[at] = value
    else:
        arrays[name] = data.draw(st.sampled_from([array[:-1], array[1:], array[:0], array.repeat(2)]))
    try:
        forged = LiteralCodes.from_arrays(arrays)
    except SnapshotError:
        return
    ptr, flat = forged.encode(pa.array(texts, pa.string()))
    assert ptr[-1] == flat.size
    assert ((flat >= 0) & (flat < forged.width)).all()
    assert [bool(flat[a]) for a in ptr[:-1]] == [text is not None for text in texts]
