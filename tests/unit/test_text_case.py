"""`lower` and `upper` of Arrow's texts, wherever in their buffers these begin."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from wherecast.language import arrow_texts

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
