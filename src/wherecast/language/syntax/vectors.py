"""Vectors in filters: the numbers of `SIMILAR(a, ARRAY(0.1, 0.2))`, and how two vectors are compared.

The similarity of two vectors is the cosine of the angle between them, `dot / sqrt(own * other)`, where `dot` is the sum of the
products of their numbers and `own` and `other` are the sums of their squares. Every path gives the same double, bit by bit:

- numbers have 32 bits, so a product of two is a double without rounding;
- sums are doubles, added from the first number to the last;
- the result is kept within -1 and 1.

Two equal vectors have similarity 1 exactly, because `sqrt(s * s)` is `s`. A vector of zeros has no direction: its similarity is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    #: (vectors, size), of 32 bits
    Vectors = npt.NDArray[np.float32]

_NUMBER = re.compile(r"\s*+[-+]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][-+]?[0-9]++)?\s*+")
#: What numbers are made of; of a text that has nothing else, Python reads what SQL calls numbers and refuses the rest.
_PLAIN = re.compile(r"[-+0-9.eE,\s]*+")
_SUFFIX = re.compile(r"[dDfF](?=\s*(?:,|$))")


def read_vectors(texts: Sequence[str], size: int) -> Vectors:
    """Literals, in the form of `skeletons`, as vectors of a size. Raises ValueError."""
    out = np.empty((len(texts), size), np.float32)
    for row, text in enumerate(texts):
        out[row] = _read_vector(text, size)
    return out


def _read_vector(literal: str, size: int) -> npt.NDArray[np.float32]:
    text = literal[2:-2] if literal.startswith("'[") else literal
    is_plain = _PLAIN.fullmatch(text)
    if not is_plain:
        text = _SUFFIX.sub("", text)  # as in 0.5D
        is_plain = _PLAIN.fullmatch(text)
    parts = text.split(",")
    try:
        numbers = np.array(parts, np.float64) if is_plain else np.zeros(0)
    except ValueError:
        numbers = np.zeros(0)
    if not numbers.size:
        wrong = next(part.strip() for part in parts if not _NUMBER.fullmatch(part))
        shown = repr(wrong)[:40] if wrong else "nothing between two commas or parentheses"
        raise ValueError(f"{shown} is not a number; write the numbers of a vector as ARRAY(0.1, -2, 3e-4)")
    if len(parts) != size:
        raise ValueError(f"a vector of {len(parts)} numbers, but the attribute has {size}")
    with np.errstate(over="ignore"):
        vector = numbers.astype(np.float32)
    if not np.isfinite(vector).all():
        number = parts[int(np.argmin(np.isfinite(vector)))].strip()
        raise ValueError(f"{number:.40} is outside the range of a float of 32 bits; use numbers up to 3.4e38")
    if not vector.any():
        raise ValueError("a vector of zeros has no direction, so nothing is similar to it; write another number")
    return vector + np.float32(0)  # no negative zeros: equal vectors are equal bytes


def write_vector(vector: npt.NDArray[Any]) -> str:
    """A vector in SQL; each number is the shortest that is read as the same."""
    return f"ARRAY({', '.join(map(str, vector))})"
