from __future__ import annotations

from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples, randoms

import wherecast.language.syntax.cutting as cutting_module
from wherecast.language.syntax.cutting import SlotTexts, cut_texts
from wherecast.language.syntax.skeletons import LiteralText, cut_text, find_surrogate, literal_spans, locate, shape_of


@pytest.mark.parametrize(
    ("text", "skeleton", "literals"),
    [
        ("a = 1", ("a = ", ""), ("1",)),
        ("symbol = 'IBM' AND price < 120.5", ("symbol = ", " AND price < ", ""), ("'IBM'", "120.5")),
        ("a = 'it''s'", ("a = ", ""), ("'it''s'",)),
        ('a = "it\'s"', ("a = ", ""), ("'it''s'",)),
        ('a = "say ""hi"""', ("a = ", ""), ("'say \"hi\"'",)),
        (r"a = 'x\'y'", ("a = ", ""), ("'x''y'",)),
        (r"a = 'tab\tnew\nline\\'", ("a = ", ""), ("'tab\tnew\nline\\'",)),
        (r"a = '\u00e9\U0001F600\101'", ("a = ", ""), ("'é😀A'",)),
        (r"a = '\ud83d\ude00'", ("a = ", ""), ("'😀'",)),
        (r"a = '\ud83d'", ("a = ", ""), ("'?'",)),
        (r"a LIKE '\%\_\q'", ("a LIKE ", ""), (r"'\%\_q'",)),
        ("a = .5 OR a = 5. OR a = 1e-3", ("a = ", " OR a = ", " OR a = ", ""), (".5", "5.", "1e-3")),
        ("a = 12L OR a = 1.5BD OR a = 1e3D", ("a = ", " OR a = ", " OR a = ", ""), ("12L", "1.5BD", "1e3D")),
        ("a1 = b2.c3", ("a1 = b2.c3",), ()),
        ("a = 12abc", ("a = 12abc",), ()),
        ("`a 1` = 1", ("`a 1` = ", ""), ("1",)),
        ("`a``1` = 1", ("`a``1` = ", ""), ("1",)),
        ("a = 1 -- two 2", ("a = ", "         "), ("1",)),
        ("a /* 5 'x */ = 1", ("a            = ", ""), ("1",)),
        ("a = 1 -- x\\\n 2\n", ("a = ", "         \n"), ("1",)),
        ("a /* 5 = 1", ("a /* 5 = 1",), ()),
        ("a /*+ h */ = '1'", ("a /*+ h */ = '1'",), ()),
        ("a = 'abc", ("a = 'abc",), ()),
        (r"a = 'abc\' 1", (r"a = 'abc\' 1",), ()),
        ("`a = 1", ("`a = 1",), ()),
    ],
)
def test_cut(text, skeleton, literals):
    """A text is cut at its literals; comments become blanks, and what has no end stays where it is."""
    assert cut_text(text) == (skeleton, literals)


@pytest.mark.parametrize(
    ("text", "skeleton", "literals"),
    [
        ("a IN (1, 2,3)", ("a IN (", ")"), (("1", "2", "3"),)),
        ("a in( -1 , - 2 )", ("a in( ", " )"), (("-1", "-2"),)),
        ("a IN ('x', 'y') AND b = 1", ("a IN (", ") AND b = ", ""), (("'x'", "'y'"), "1")),
        ("a IN (1)", ("a IN (", ")"), ("1",)),
        ("a IN (1, b, 2)", ("a IN (", ", b, ", ")"), ("1", "2")),
        ("a IN (1, 2 + 3)", ("a IN (", ", ", " + ", ")"), ("1", "2", "3")),
        ("f(1, 2)", ("f(", ", ", ")"), ("1", "2")),
        ("a IN (1, 2", ("a IN (", ", ", ""), ("1", "2")),
        ("a IN (1, /* , */ 2)", ("a IN (", ")"), (("1", "2"),)),
        ("begin (1, 2)", ("begin (", ", ", ")"), ("1", "2")),
    ],
)
def test_cut_lists(text, skeleton, literals):
    """The values of an IN list are one literal, signs and all; a list with anything else in it is not."""
    assert cut_text(text) == (skeleton, literals)


@given(st.text("ab1.'\"`\\-/*, ()in\n", max_size=30))
def test_cut_keeps_the_count(text):
    """There is one part of the skeleton more than literals, and every literal is found again in the text."""
    skeleton, literals = cut_text(text)
    assert len(skeleton) == len(literals) + 1
    spans = list(literal_spans(text))
    assert len(spans) == len(literals)
    at = 0
    for start, end in spans:
        assert at <= start < end <= len(text)
        at = end


def test_shape():
    """A shape has numbered placeholders of the literals' kind, and knows where they are."""
    shape = shape_of(("a = ", " AND b = ", ""), (True, False))
    assert shape.text == "a = '0' AND b = 1"
    assert [shape.text[s:e] for s, e in shape.spans] == ["'0'", "1"]


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("name = 'a long literal' AND nosuch = 1", "nosuch"),
        (r"name = 'a\'b\u0041' AND nosuch = 1", "nosuch"),
        ("a IN (1000, -2000, 3000) AND nosuch = 1", "nosuch"),
        ("a IN (1000, /* one */ 2000) /* x 1 'y */ AND nosuch = 1", "nosuch"),
        ("a = 1 -- first 'line\n AND\n\n nosuch = 1", "nosuch"),
        ("name = 'é😀' AND nosuch = 1", "nosuch"),
    ],
)
def test_locate(text, piece):
    """A place in the shape is found again in the text, after literals of any length, lists, comments and escapes."""
    skeleton, literals = cut_text(text)
    shape = shape_of(skeleton, tuple(str(lit[0]).startswith("'") for lit in literals))
    at = shape.text.index(piece)
    start, end = locate(text, shape, at, at + len(piece))
    assert text[start:end] == piece


def test_locate_literals():
    """A placeholder is the whole literal; a span that ends in one ends with it."""
    text = "name = 'long one' AND a IN (10, 20, 30)"
    skeleton, _ = cut_text(text)
    shape = shape_of(skeleton, (True, False))
    found = [locate(text, shape, *span) for span in shape.spans]
    assert [text[s:e] for s, e in found] == ["'long one'", "10, 20, 30"]
    start, end = locate(text, shape, 0, shape.spans[0][1])
    assert text[start:end] == "name = 'long one'"


def test_surrogates():
    """Half a character is found where it stands."""
    assert find_surrogate("aé😀") == -1
    assert find_surrogate("ab\udc00c") == 2


#: Parts of texts: plain ones, and what makes a text special, inside of literals and outside.
_PARTS = (
    "a", "b1", "a.b", "$", "é", "×", " ", " = ", "(", ")", "-", "+", "/", ".", "..", "1", "007", "1.5", ".5", "5.", "1e5", "1E-3x", "2e", "12L", "3bd",
    "3BD", "3Bd", "4dd", "5F", "6_", "'x'", "'é'", "''", "'a''b'", "'a\\b'", "'\"`,--/*'", "'open", "\\", "`q 1`", '"s"', ",", "--", "/*", "*/", "r'x'",
    "IN (1, 2)", "IN ('a', 'b')", "decimal(10,2)", "LIKE 'a!%' ESCAPE '!'", "SIMILAR(v, ARRAY(1, 2))", "\0", "\ud800",
)  # fmt: skip


@examples(300)
@given(st.lists(st.lists(st.sampled_from(_PARTS), max_size=8).map("".join), max_size=12), st.booleans())
def test_many_texts_are_cut_as_each_is(texts: list[str], together: bool) -> None:
    """Cut together or one by one, texts have the same skeletons and literals; a quote that is never closed stays in its text."""
    with patch.object(cutting_module, "MANY", 1 if together else 64):
        found = cut_texts(texts)
    literals, ptr = found.each_literal(), found.literal_ptr.tolist()
    cuts = [(found.skeleton(t), tuple(literals[ptr[t] : ptr[t + 1]])) for t in range(len(texts))]
    assert cuts == [cut_text(text) for text in texts]
    if len(texts) > 1:
        assert len(set(found.pieces)) == len(found.pieces)
        assert len(set(found.known)) == len(found.known)


@given(st.lists(st.sampled_from(("1", "'a'", "'b'", ("1", "2"))), min_size=1), randoms())
def test_the_literals_of_some_texts_are_those_that_they_have(literals: list[LiteralText], draw: Random) -> None:
    """Of some rows of a slot, the literals are kept, and no others."""
    slot = SlotTexts.of(literals)
    rows = draw.choices(range(len(literals)), k=draw.randint(1, 6))
    taken = slot.take(np.array(rows))
    assert [taken.text(row) for row in range(len(rows))] == [literals[row] for row in rows]
    assert sorted(map(str, taken.known)) == sorted({str(literals[row]) for row in rows})
