"""Functions of texts write into memory of their own: what lies behind it stays as it is."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from wherecast.language import arrow_texts

_BEHIND, _MARK = 64, 0xAB
#: Empty ones, and around the 32 bytes that are copied at a time; the last texts of a column are those that may be written too far.
_TEXTS = ("", "a", "-ß a", "x" * 31, " " + "a-" * 16, "ß" * 33 + "a ")
_FUNCTIONS: list[Callable[[pa.Array], pa.Array]] = [
    arrow_texts.trim,
    arrow_texts.initcap,
    lambda a: arrow_texts.concat(a, a),
    lambda a: arrow_texts.concat("-", a, ""),
    lambda a: arrow_texts.replace(a, "a", "ß"),
    lambda a: arrow_texts.replace(a, "a", "long"),
    lambda a: arrow_texts.replace(a, "ß", ""),
    lambda a: arrow_texts.translate(a, "ax", "-"),
    lambda a: arrow_texts.lpad(a, 7, "ß-"),
    lambda a: arrow_texts.rpad(a, 33, "."),
    lambda a: arrow_texts.rpad(a, 2, ""),
    lambda a: arrow_texts.substring(a, 2, 1),
    lambda a: arrow_texts.substring(a, -3),
    lambda a: arrow_texts.split_part(a, "-", -1),
    lambda a: arrow_texts.substring_index(a, "-", 1),
]


@pytest.mark.parametrize("function", _FUNCTIONS)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_nothing_is_written_behind(
    function: Callable[[pa.Array], pa.Array], kind: pa.DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = [
        pa.array(["ß", *texts, None, last], kind).slice(1)
        for texts in itertools.product(_TEXTS, repeat=2)
        for last in _TEXTS
    ]
    empty, made = np.empty, []

    def with_marks(shape: Any, dtype: Any = float) -> Any:
        if dtype is not np.uint8:
            return empty(shape, dtype)
        made.append(np.full(shape + _BEHIND, _MARK, np.uint8))
        return made[-1][:shape]

    monkeypatch.setattr(np, "empty", with_marks)
    results = [function(column) for column in columns]
    monkeypatch.undo()
    for result in results:
        if result is not None:
            result.validate(full=True)
    assert made
    assert all((memory[-_BEHIND:] == _MARK).all() for memory in made)
