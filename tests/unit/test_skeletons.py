from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wherecast.language.syntax.skeletons as skeletons_module
from wherecast.language.syntax.skeletons import cut_text, cut_texts, find_surrogate, literal_spans, locate, shape_of


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


@given(
    st.lists(
        st.sampled_from(
            (
                "a = 1",
                "b",
                "",
                "a = 'x' AND c < 2",
                "'open",
                "x'",
                "a IN (1, 2)",
                '`q` = "s"',
                "5",
                "a = '\0' OR b",
                "\0",
            )
        ),
        max_size=12,
    ),
    st.integers(1, 5),
)
def test_many_texts_are_cut_as_each_is(texts: list[str], chunk: int) -> None:
    """Cut together or one by one, texts have the same skeletons and literals; a quote that is never closed stays in its text."""
    with patch.object(skeletons_module, "_CHUNK", chunk):
        found = cut_texts(texts)
    ptr = found.literal_ptr.tolist()
    cuts = [(found.skeleton(t), tuple(found.literals[ptr[t] : ptr[t + 1]].tolist())) for t in range(len(texts))]
    assert cuts == [cut_text(text) for text in texts]
