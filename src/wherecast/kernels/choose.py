"""Choosing between two values, row by row. NumPy's `where` branches on the mask, and takes ten times as long where that varies."""

from __future__ import annotations

from typing import Any

from wherecast.kernels.arrays import Bools
from wherecast.kernels.jit import hot


@hot
def choose_values(use_first: Bools, first: Any, other: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = first[i] if use_first[i] else other[i]


@hot
def choose_or_one(use_first: Bools, first: Any, one: Any, out: Any) -> None:
    """The same where the other is one value for all rows."""
    for i in range(out.size):
        out[i] = first[i] if use_first[i] else one
