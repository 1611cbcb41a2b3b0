"""Many values of one type at once, some of them NULL, and how values of one type become values of another."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bools
from wherecast.language.expression import Node, Param, digits_of
from wherecast.language.keys import DAY_US, instants
from wherecast.language.types import MAX_PRECISION, Type
from wherecast.language.zone import Zone


class Nullable(NamedTuple):
    """Values with a validity mask. dtype by type: bool, int64, float64, or object (strings, unscaled decimals, lists).

    Integers of every width are int64; a FLOAT is a float64 that 32 bits can hold, so that comparing needs no conversion.
    """

    values: npt.NDArray[Any]
    valid: Bools


def as_moments(values: npt.NDArray[Any], kind: Type, common: Type, zone: Zone) -> npt.NDArray[Any]:
    """Days, wall clocks or instants as what they are compared as."""
    if kind is common:
        return values
    walls = values * DAY_US if kind is Type.DATE else values
    return instants(zone, walls) if common is Type.TIMESTAMP else walls


def filler(kind: Type, n: int) -> npt.NDArray[Any]:
    if kind is Type.STRING:
        return np.full(n, "", object)
    return np.zeros(n, bool if kind in (Type.BOOLEAN, Type.NULL) else np.int64)


def decimal_scale(node: Node) -> int:
    """Scale of the unscaled integers that stand for a DECIMAL (or an integer, scale 0)."""
    if node.type is not Type.DECIMAL:
        return 0
    if isinstance(node, Param) and node.digits == (0, 0):
        return MAX_PRECISION  # compared only, never computed with: any scale that holds every literal
    return digits_of(node)[1]


def to_double(node: Node, operand: Nullable) -> npt.NDArray[np.float64]:
    if node.type is Type.DECIMAL:
        unit = 10 ** decimal_scale(node)
        return np.array([v / unit for v in operand.values], np.float64)
    return operand.values.astype(np.float64)


def rounded(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Numbers as FLOATs: rounded once, straight to 32 bits."""
    return values.astype(np.float32).astype(np.float64)
