"""Functions of texts by Arrow, for many texts at once.

Each is the same as the function of single texts in `text`, which says what Spark computes; `tests/property` compares the
two. Arrow counts code points, as Spark does, but has another idea of upper and lower case for some letters, and of
positions. Where the two differ only beyond ASCII, such texts are computed one by one.

Texts are large strings of Arrow, and so are results that are texts. Other arguments are plain values. None means: one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from wherecast.language.syntax.patterns import like_form

#: Many texts, or one for all rows; PyArrow has no types.
Text: TypeAlias = Any


def _cased(ascii_only: Callable[[pa.Array], pa.Array], one: Callable[[str], str]) -> Callable[[pa.Array], pa.Array]:
    def compute(texts: pa.Array) -> pa.Array:
        cased = ascii_only(texts)
        others = pc.invert(pc.string_is_ascii(texts))
        if not pc.any(others).as_py():
            return cased
        others = others.fill_null(False)
        own = pa.array([one(text) for text in texts.filter(others).to_pylist()], texts.type)
        return pc.replace_with_mask(cased, others, own)

    return compute


lower = _cased(pc.ascii_lower, str.lower)
upper = _cased(pc.ascii_upper, str.upper)


def bit_length(texts: pa.Array) -> pa.Array:
    return pc.multiply(pc.binary_length(texts), 8)


def _with_constant(search: Callable[[pa.Array, str], pa.Array]) -> Callable[[Text, Text], pa.Array | None]:
    """A search for one text in many."""
    return lambda texts, part: search(texts, part) if isinstance(texts, pa.Array) and isinstance(part, str) else None


contains = _with_constant(pc.match_substring)
startswith = _with_constant(pc.starts_with)
endswith = _with_constant(pc.ends_with)


def _find(texts: pa.Array, part: str) -> pa.Array | None:
    """Positions from 1; Arrow counts bytes."""
    if not pc.all(pc.string_is_ascii(texts)).as_py():
        return None
    return pc.add(pc.find_substring(texts, part), 1)


instr = _with_constant(_find)


def trim(texts: pa.Array) -> pa.Array:
    return pc.ascii_trim(texts, " ")


def ltrim(texts: pa.Array) -> pa.Array:
    return pc.ascii_ltrim(texts, " ")


def rtrim(texts: pa.Array) -> pa.Array:
    return pc.ascii_rtrim(texts, " ")


def btrim(texts: Text, characters: Text = " ") -> pa.Array | None:
    if isinstance(texts, str) or not isinstance(characters, str):
        return None
    return pc.utf8_trim(texts, characters) if characters else texts


def substring(texts: Text, at: int, count: int | None = None) -> pa.Array | None:
    """A start before the text takes as many characters less, so both ends count from the end or both from the start."""
    if isinstance(texts, str):
        return None
    if count is not None and count <= 0:
        return pc.utf8_slice_codeunits(texts, 0, 0)
    start = at - 1 if at > 0 else at
    stop = None if count is None or start < 0 <= start + count else start + count
    return pc.utf8_slice_codeunits(texts, start, stop)


def left(texts: Text, count: int) -> pa.Array | None:
    return None if isinstance(texts, str) else pc.utf8_slice_codeunits(texts, 0, max(count, 0))


def right(texts: Text, count: int) -> pa.Array | None:
    if isinstance(texts, str):
        return None
    return pc.utf8_slice_codeunits(texts, -count, None) if count > 0 else pc.utf8_slice_codeunits(texts, 0, 0)


def concat(*texts: Text) -> pa.Array:
    parts = [pa.scalar(text, pa.large_string()) if isinstance(text, str) else text for text in texts]
    return pc.binary_join_element_wise(*parts, pa.scalar("", pa.large_string()))


def replace(texts: Text, old: Text, new: Text = "") -> pa.Array | None:
    """A text that may become longer is left to the function that looks at its length first."""
    if isinstance(texts, str) or not isinstance(old, str) or not isinstance(new, str) or len(new) > len(old):
        return None
    return pc.replace_substring(texts, old, new) if old else texts


#: Arrow's searches for one literal, by the form of a pattern.
_BY_FORM = {"infix": pc.match_substring, "suffix": pc.ends_with, "prefix": pc.starts_with}


def like(kind: str, pattern: str) -> Callable[[pa.Array], pa.Array] | None:
    """Whether texts match a LIKE pattern of one literal (of ILIKE, texts in lower case); None for other patterns."""
    if kind == "rlike":
        return None
    form = like_form(pattern.lower() if kind == "ilike" else pattern)
    search = _BY_FORM.get(form.name)
    return None if search is None else lambda texts: search(texts, form.literal[1:])
