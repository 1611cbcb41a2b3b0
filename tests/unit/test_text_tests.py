"""Text tests of residuals: what the kernel says is what the patterns mean, and what the evaluator says."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from wherecast.engine.engine import Engine
from wherecast.index.strings import join_texts, lay_out
from wherecast.kernels.patterns import ANY, NO, ONE, UNKNOWN, match_texts
from wherecast.language.syntax.patterns import text_test

TEXTS = ["", "a", "ab", "ba", "aab", "abab", "a%b", "é", "éa", "aé", "😀", "a😀b", "AB", "aaaaab", "bbaabab", "ébéb"]


def compiled(pattern: str) -> bytes:
    return b"".join({"%": bytes([ANY]), "_": bytes([ONE])}.get(char, char.encode()) for char in pattern)


def answers(texts: list[str | None], patterns: list[str], *, fold: bool = False) -> list[list[int]]:
    offsets, data = join_texts([compiled(p) for p in patterns])
    rows = np.repeat(np.arange(len(texts)), len(patterns))
    numbers = np.tile(np.arange(len(patterns), dtype=np.int32), len(texts))
    out = np.empty(rows.size, np.uint8)
    match_texts(*lay_out(pa.array(texts, pa.string())), fold, rows, offsets, data, numbers, out)
    return out.reshape(len(texts), len(patterns)).tolist()


def test_the_kernel_is_like_as_patterns_are() -> None:
    """Random patterns of a, b, a letter of two bytes and both wildcards, against texts of one to four bytes a character."""
    draw = random.Random(5)
    patterns = ["", "%", "_", "%%", "_%", "%_"]
    patterns += ["".join(draw.choices("aab%_é", k=draw.randint(1, 7))) for _ in range(400)]
    found = answers(list(TEXTS), patterns)
    for text, row in zip(TEXTS, found, strict=True):
        assert row == [int(text_test("like", p)(text)) for p in patterns], text


def test_null_is_neither_like_nor_unlike_and_capitals_are_folded_on_request() -> None:
    assert answers([None, "AB"], ["ab%", "%"]) == [[UNKNOWN, UNKNOWN], [NO, 1]]
    assert answers(["AB", "aB[", "A@"], ["ab%", "_b[", "a@"], fold=True) == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]


def test_a_sliced_column_is_laid_out_with_its_own_nulls() -> None:
    values = pa.array([None, "a", None, *["b"] * 9, None, "c"]).slice(1, 12)
    texts = lay_out(values)
    assert texts.valid.tolist() == values.is_valid().to_pylist()
    shown = [texts.data[a:b].tobytes().decode() for a, b in zip(texts.offsets[:-1], texts.offsets[1:], strict=True)]
    assert shown == ["a", "", *["b"] * 9, ""]


FILTERS = [
    "n > 0 AND NOT a LIKE '%b%'",
    "n > 0 AND NOT a LIKE '%B%' AND NOT b LIKE 'x%y_'",
    "n > 0 AND NOT a ILIKE '%É%' AND NOT a ILIKE '_b'",
    "n > 0 AND NOT lower(a) LIKE '%B%'",
    "n > 0 AND NOT lower(a) LIKE '%é%' AND a < b",
    "n > 0 AND NOT contains(a, 'b') AND NOT endswith(b, 'y')",
    "n > 0 AND (NOT a LIKE '%b') IS NOT TRUE",
    "n > 0 AND a LIKE '%a%b%'",
    "n > 0 AND a ILIKE '%a_b%' AND NOT b RLIKE 'x+y'",
    "n > 0 AND NOT a LIKE '%" + 80 * "b" + "%'",
]
EVENTS = [{"n": 1, "a": a, "b": b} for a in [None, *TEXTS, "É", 100 * "b"] for b in (None, "", "xy", "xéyz", "Xxyy")]


@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_batch_and_a_single_event_agree_with_the_evaluator(ascii_only: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is a text test gives what evaluating the residual gives: negated, folded, unknown, long, beside others."""
    events = [e for e in EVENTS if not ascii_only or (str(e["a"]) + str(e["b"])).isascii()]
    engine = Engine({"n": "int", "a": "string", "b": "string"})
    engine.subscribe_many(dict(enumerate(FILTERS)))
    found = [sorted(ids) for ids in engine.match_batch(events)]
    assert found == [sorted(engine.match(event)) for event in events]
    monkeypatch.setattr("wherecast.index.text_tests.find_test", lambda residual: None)
    plain = Engine({"n": "int", "a": "string", "b": "string"})
    plain.subscribe_many(dict(enumerate(FILTERS)))
    assert found == [sorted(ids) for ids in plain.match_batch(events)]
    assert {number for ids in found for number in ids} == set(range(len(FILTERS)))


NEGATED = [
    "n > 0 AND NOT KEYWORDS(a, 'Chip', 'export')",
    "n > 0 AND NOT ANY_KEYWORD(a, 'chip', 'straße')",
    "n > 0 AND NOT b MATCHES 'x/+'",
    "n > 0 AND KEYWORDS(a, 'chip') AND NOT b MATCHES 'x/#'",
    "n > 0 AND (NOT KEYWORDS(a, 'export')) IS NOT TRUE",
]


def test_negated_topics_and_words_are_answered_by_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of such a filter is evaluated, and the answers are those of the evaluator."""
    bodies, names = (None, "", "chip export", "CHIP", "exports STRASSE"), (None, "x", "x/y", "y")
    events = [{"n": 1, "a": a, "b": b} for a in bodies for b in names]
    evaluating, coding = (Engine({"n": "int", "a": "string", "b": "string"}) for _ in range(2))
    monkeypatch.setattr("wherecast.index.text_tests.find_test", lambda residual: None)
    evaluating.subscribe_many(dict(enumerate(NEGATED)))
    found = [sorted(ids) for ids in evaluating.match_batch(events)]
    assert {number for ids in found for number in ids} == set(range(len(NEGATED)))
    monkeypatch.undo()
    monkeypatch.setattr("wherecast.index.residuals.Residuals._hold", None)
    monkeypatch.setattr("wherecast.index.build._ASKED_BY", 1.0)
    coding.subscribe_many(dict(enumerate(NEGATED)))
    assert [sorted(ids) for ids in coding.match_batch(events)] == found
    assert [sorted(coding.match(event)) for event in events] == found
