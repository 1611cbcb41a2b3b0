"""Text search at its ends: nothing, everything, one byte, 10 KB, 1 MB, and 100,000 literals on one attribute."""

from __future__ import annotations

import random

import pytest

from wherecast import Engine

LONG = "ab" * 5_000
LITERALS = [
    "a",
    "é",
    "",
    "aba",
    "bab",
    "abab",
    "😀",
    "x\u0301",
    "needle",
    "needl",
    "eedle",
    LONG,
    LONG + "!",
    "日",
    "日本",
]


def test_texts_and_literals_of_all_sizes() -> None:
    """NULL, empty and multi-byte texts, one that ends inside a literal, literals that overlap: as Python's `in`."""
    engine = Engine({"s": "string"})
    engine.subscribe_many((i, f"contains(s, '{literal}')") for i, literal in enumerate(LITERALS))
    engine.subscribe_many((100 + i, f"NOT contains(s, '{literal}')") for i, literal in enumerate(LITERALS))
    engine.subscribe_many((200 + i, f"endswith(s, '{literal}')") for i, literal in enumerate(LITERALS))
    engine.subscribe_many((300 + i, f"startswith(s, '{literal}')") for i, literal in enumerate(LITERALS))
    texts = [
        "",
        "a",
        "need",
        "the needle",
        "ababab",
        "é",
        "e\u0301",
        "😀",
        "\U0001f601",
        "日",
        LONG,
        LONG[:-1],
        LONG + "!",
    ]
    texts += ["b" + LONG + "!", "q" * 1_000_000 + "needle", "ab" * 500_000, ("\0" * 9 + "日本") * 3]
    found = [set(ids) for ids in engine.match_batch([{"s": None}, *({"s": text} for text in texts)])]
    assert found[0] == set()
    for text, ids in zip(texts, found[1:], strict=True):
        expected = set()
        for i, literal in enumerate(LITERALS):
            expected.add(i if literal in text else 100 + i)
            expected |= {200 + i} if text.endswith(literal) else set()
            expected |= {300 + i} if text.startswith(literal) else set()
        assert ids == expected, text[:50]
        assert set(engine.match({"s": text})) == expected


@pytest.mark.slow
def test_memory_of_100_000_literals_on_one_attribute() -> None:
    """What docs/language.md promises: about 300 bytes for a filter with one literal."""
    rng = random.Random(1)
    literals = ["".join(rng.choices("abcdefghijklmnop ", k=rng.randint(6, 20))) for _ in range(100_000)]
    engine = Engine({"s": "string"})
    engine.subscribe_many((i, f"s LIKE '%{literal}%'") for i, literal in enumerate(literals))
    assert {5, 7} <= set(engine.match({"s": f"{literals[5]}-{literals[7]}"}))
    assert engine.stats()["bytes"] < 350 * len(literals)
