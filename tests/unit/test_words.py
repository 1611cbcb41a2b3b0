"""Words: KEYWORDS, ANY_KEYWORD and PHRASE, and the languages of a schema."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from wherecast import Engine, Schema
from wherecast.errors import FilterError, SchemaError
from wherecast.index.words import WordCodes
from wherecast.kernels.guards import FIRST_AT, LAST_AT
from wherecast.language.syntax.words import fold_word, words_of

#: A text, a condition on it, whether it holds.
CASES = [
    ("Chip exports, rising", "KEYWORDS(t, 'chip', 'RISING')", True),
    ("Chip exports, rising", "KEYWORDS(t, 'chip', 'export')", False),
    ("Chip exports, rising", "ANY_KEYWORD(t, 'export', 'chip')", True),
    ("Chip exports, rising", "PHRASE(t, 'exports rising')", True),
    ("Chip exports, rising", "PHRASE(t, 'chip rising')", False),
    ("a b a c", "PHRASE(t, 'a c')", True),
    ("a b a c", "PHRASE(t, 'A-B/a')", True),
    ("a", "PHRASE(t, 'a a')", False),
    ("", "KEYWORDS(t, 'a')", False),
    ("don't", "KEYWORDS(t, 'don', 't')", True),
    ("snake_case2", "KEYWORDS(t, 'snake_case2')", True),
    ("snake_case2", "KEYWORDS(t, 'snake')", False),
    ("Die STRASSE", "KEYWORDS(t, 'straße')", True),
    ("cafe\u0301", "KEYWORDS(t, 'CAFÉ')", True),
    ("cafe\u0301", "KEYWORDS(t, 'cafe')", False),
    ("\u212aelvin", "KEYWORDS(t, 'kelvin')", True),
    ("हिन्दी", "KEYWORDS(t, 'हिन्दी')", True),
    ("a\u2014b", "KEYWORDS(t, 'a', 'b')", True),
    ("x😀y", "KEYWORDS(t, 'x', 'y')", True),
    ("supercalifragilistic", "KEYWORDS(t, 'SUPERCALIFRAGILISTIC')", True),
    ("supercalifragilistik", "KEYWORDS(t, 'supercalifragilistic')", False),
    ("abcdefgh", "KEYWORDS(t, 'abcdefgh')", True),
    ("abcdefghi", "KEYWORDS(t, 'abcdefgh')", False),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("text", "condition", "holds"), CASES)
def test_words(text: str, condition: str, holds: bool) -> None:
    """The index, the evaluator behind NOT and a single event say the same."""
    engine = Engine({"t": "string"})
    engine.subscribe_many({"yes": condition, "no": f"NOT {condition}"})
    expected = ["yes" if holds else "no"]
    assert engine.match_batch([{"t": text}]).to_lists() == [expected]
    assert engine.match({"t": text}) == expected
    assert engine.match({"t": None}) == []


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("KEYWORDS(t, 'a b')", 13, "write PHRASE"),
        ("KEYWORDS(t, 'a', '--')", 18, "no letter or digit"),
        ("KEYWORDS(t, '')", 13, "no letter or digit"),
        ("n < 3 AND PHRASE(t, '!')", 21, "no letter or digit"),
        ("KEYWORDS(t)", 1, "2 arguments or more"),
        ("KEYWORDS(n, 'a')", 10, "needs a string"),
        ("KEYWORDS(t, t)", 13, "string literal"),
        ("PHRASE(t, 'a', 'b')", 1, "takes 2 arguments"),
        (f"KEYWORDS(t, '{'a' * 1001}')", 13, "at most 1000"),
    ],
)
def test_errors(text: str, column: int, words: str) -> None:
    """What is not a word is refused, and the error points at it."""
    with pytest.raises(FilterError, match=words) as caught:
        Engine({"t": "string", "n": "int"}).subscribe(1, text)
    assert f"at 1:{column}" in str(caught.value)


def test_stems() -> None:
    """Words of an attribute with a language are compared by stems; a filter keeps the words that it was given."""
    engine = Engine({"t": {"type": "string", "language": "english"}, "u": "string"})
    engine.subscribe_many(
        {1: "KEYWORDS(t, 'running')", 2: "KEYWORDS(t, 'runs')", 3: "PHRASE(t, 'run fast')", 4: "KEYWORDS(u, 'run')"}
    )
    assert sorted(engine.match({"t": "she RUNS faster", "u": "runs"})) == [1, 2]
    assert sorted(engine.match_batch([{"t": "running fast", "u": "run"}]).to_lists()[0]) == [1, 2, 3, 4]
    assert engine[1] == "keywords(t, 'running')"
    assert Schema.from_json(engine.schema.to_json()) == engine.schema


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"type": "string", "language": "klingon"}, "no stemmer for 'klingon'"),
        ({"type": "int", "language": "english"}, "for a string"),
        ({"type": "array<string>", "language": "english"}, "for a string"),
        ({"type": "string", "language": 3}, "a name such as english"),
    ],
)
def test_languages(spec: dict[str, object], words: str) -> None:
    """A language that cannot be used is refused with the schema."""
    with pytest.raises(SchemaError, match=words):
        Schema.of({"t": spec})


def test_without_the_stemmer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the package is missing, the error names the extra."""
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    with pytest.raises(SchemaError, match=r"wherecast\[stems\]"):
        Schema.of({"t": {"type": "string", "language": "english"}})


@pytest.mark.slow
def test_many_words_of_all_lengths() -> None:
    """Texts of thousands of words, and more codes than are expected, equal Python's own sets."""
    rng = np.random.default_rng(5)
    vocabulary = sorted({"".join(rng.choice(list("abcß"), rng.integers(1, 20))).casefold() for _ in range(5_000)})
    codes = WordCodes.of(vocabulary[::2])
    texts = [" ".join(rng.choice(vocabulary, rng.integers(0, 800))).upper() for _ in range(40)]
    ptr, found = codes.encode(pa.array([*texts, None]))
    numbers = {word: i + 2 for i, word in enumerate(vocabulary[::2])}
    for row, text in enumerate(texts):
        expected = sorted({1, *(numbers[w] for w in map(fold_word, text.split()) if w in numbers)})
        assert found[ptr[row] : ptr[row + 1]].tolist() == expected == codes.encode_text(text)
    assert found[ptr[-2] :].tolist() == [0]


@pytest.mark.slow
def test_a_long_text() -> None:
    """Ten megabytes are read in one pass, whatever they are made of."""
    codes = WordCodes.of(["chip", "é"])
    for text in ("x" * 10_000_000, "chip " * 2_000_000, "é" * 5_000_000 + " É chip"):
        assert set(codes.encode_text(text)) >= {1}
    assert words_of("a" * 1_000_000) == ["a" * 1_000_000]


def test_broken_utf_8_is_not_read_beyond_its_end() -> None:
    """Bytes that are not UTF-8, which an Arrow array may hold, end a word."""
    raw = pa.array([b"chip\xf0", b"\xff chip", b"\xe2\x82", b"\xc3chip"]).view(pa.string())
    ptr, found = WordCodes.of(["chip"]).encode(raw)
    assert found[ptr[0] : ptr[2]].tolist() == [1, 2, 1, 2]
    assert ptr.size == 5


@pytest.mark.slow
def test_guards_of_long_lists(tmp_path: Path) -> None:
    """Where texts have many words, guards of leaves have fine buckets; short texts, NULL and a saved engine say the same as the scan."""
    rng = np.random.default_rng(7)
    filters = {i: f"KEYWORDS(t, {', '.join(repr(f'w{w}') for w in rng.integers(0, 600, 3))})" for i in range(3_000)}
    texts = [" ".join(f"w{w}" for w in rng.integers(0, 600, n)) for n in (200, 200, 150, 300, 1, 2, 0)]
    events = pa.table({"t": [*texts, None]})
    engine, scan = Engine({"t": "string"}), Engine({"t": "string"}, matcher="scan")
    for each in (engine, scan):
        each.subscribe_many(filters)
    engine.plan(pa.table({"t": texts[:4]}))
    (segment,) = engine._segments.state.segments
    guards = segment.matcher.arrays()["tree_guards"]
    assert ((guards >> FIRST_AT & 255) > (guards >> LAST_AT & 255)).mean() > 0.9
    expected = scan.match_batch(events).to_lists()
    assert sum(map(len, expected)) > 100
    engine.save(tmp_path / "saved")
    for each in (engine, Engine.open(tmp_path / "saved")):
        assert [sorted(ids) for ids in each.match_batch(events).to_lists()] == [sorted(ids) for ids in expected]
        assert [sorted(each.match({"t": text})) for text in texts] == [sorted(ids) for ids in expected[:-1]]
