"""Texts of many events, by Arrow: the commonest functions, casts and conditions.

Each function is the same as that of single texts in `functions.text`, which says what Spark computes; `tests/property` compares the
two. Arrow counts code points, as Spark does, but has another idea of upper and lower case for some letters, and of
positions. Where the two differ only beyond ASCII, such texts are computed one by one.

Texts are large strings of Arrow, and so are results that are texts. Other arguments are plain values. None means: one by one.

This module is imported where it is called: what only checks filters does not load Arrow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wherecast.kernels.arrays import Bools
from wherecast.language.events.types import Type
from wherecast.language.nullable import Nullable, arrow_valid
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


length, octet_length, reverse = pc.utf8_length, pc.binary_length, pc.utf8_reverse
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


def _trimmed(trim_by: Callable[[pa.Array, str], pa.Array]) -> Callable[..., pa.Array | None]:
    """Spark has what is removed before the text."""

    def compute(*given: Text) -> pa.Array | None:
        texts, characters = given[-1], given[0] if len(given) > 1 else " "
        if isinstance(texts, str) or not isinstance(characters, str):
            return None
        return trim_by(texts, characters) if characters else texts

    return compute


trim, ltrim, rtrim = _trimmed(pc.utf8_trim), _trimmed(pc.utf8_ltrim), _trimmed(pc.utf8_rtrim)


def btrim(texts: Text, characters: Text = " ") -> pa.Array | None:
    return trim(characters, texts)


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


# -- conditions -------------------------------------------------------------------------------------------------------

#: Arrow's searches for one literal, by the form of a pattern.
_BY_FORM = {"infix": pc.match_substring, "suffix": pc.ends_with, "prefix": pc.starts_with}
_COMPARE = {
    "=": pc.equal,
    "<=>": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def are_like(texts: pa.Array, kind: str, pattern: str) -> Bools | None:
    """Which texts match a LIKE pattern of one literal (of ILIKE, texts in lower case); None for other patterns."""
    form = None if kind == "rlike" else like_form(pattern.lower() if kind == "ilike" else pattern)
    search = None if form is None else _BY_FORM.get(form.name)
    return None if form is None or search is None else from_arrow(search(texts, form.literal[1:])).values


def are_among(texts: pa.Array, members: set[str]) -> Bools:
    found: Bools = from_arrow(pc.is_in(texts, pa.array(sorted(members), pa.large_string()), skip_nulls=True)).values
    return found


def compare_texts(op: str, left: Nullable, right: Nullable) -> Bools:
    """The order of UTF-8, which Arrow compares by, is that of code points, which Spark and Python compare by."""
    sides = [pa.scalar(s.values[0], pa.large_string()) if s.is_constant else s.texts for s in (left, right)]
    found: Bools = from_arrow(_COMPARE[op](*sides)).values
    return found


# -- from and to other values -----------------------------------------------------------------------------------------


def texts_of(operand: Nullable) -> pa.Array:
    """Python's strings as Arrow has them."""
    if operand.is_constant:
        return pa.repeat(pa.scalar(operand.values[0], pa.large_string()), operand.valid.size)
    return pa.array(operand.values, pa.large_string(), mask=~operand.valid)


def from_arrow(array: pa.Array) -> Nullable:
    """Texts, numbers or booleans that Arrow computed."""
    if pa.types.is_large_string(array.type):
        return Nullable.of_texts(array)
    valid = arrow_valid(array)
    if pa.types.is_integer(array.type):
        array = array.cast(pa.int64())
    if array.null_count:
        array = array.fill_null(pa.scalar(0).cast(array.type))
    return Nullable(array.to_numpy(zero_copy_only=False), valid)


def choose_texts(use_first: Bools, first: Nullable, other: Nullable) -> Nullable:
    """The texts of the first where the mask says so, else those of the other."""
    return Nullable.of_texts(pc.if_else(pa.array(use_first), first.texts, other.texts))


#: Texts that Arrow reads as Spark does, by the type that is read.
_PLAIN = {
    Type.INT: (r"^-?[0-9]{1,9}$", pa.int64()),
    Type.BIGINT: (r"^-?[0-9]{1,18}$", pa.int64()),
    Type.DOUBLE: (r"^-?[0-9]{1,15}(\.[0-9]{1,15})?$", pa.float64()),
}


def read_numbers(texts: pa.Array, target: Type, read: Callable[[str], Any]) -> Nullable:
    """Numbers in many texts: plain ones by Arrow, the rest one by one."""
    pattern, kind = _PLAIN[target]
    is_plain = pc.match_substring_regex(texts, pattern)
    if pc.all(is_plain).as_py():
        return from_arrow(texts.cast(kind))
    others = np.flatnonzero(from_arrow(pc.invert(is_plain)).values)
    values, valid = from_arrow(pc.if_else(is_plain, texts, pa.scalar(None, texts.type)).cast(kind))
    values, valid = values.copy(), valid.copy()
    for i, text in zip(others.tolist(), texts.take(others).to_pylist(), strict=True):
        value = read(text)
        if value is not None:
            values[i], valid[i] = value, True
    return Nullable(values, valid)


def write_numbers(operand: Nullable) -> Nullable:
    """Integers or booleans as texts."""
    numbers = pa.array(np.ascontiguousarray(operand.values), mask=~operand.valid)
    return Nullable.of_texts(numbers.cast(pa.large_string()))
