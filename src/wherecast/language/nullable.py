"""Many values of one type at once, some of them NULL, and how values of one type become values of another."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from wherecast.kernels.arrays import Bools
from wherecast.language.events.keys import DAY_US, float_keys, instants
from wherecast.language.events.types import FLOATS, INTEGERS, MAX_PRECISION, MOMENTS, TEXTS, Type
from wherecast.language.events.zone import Zone
from wherecast.language.expression import Node, Param, digits_of


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
    """Values of a type for rows that are NULL, or not computed yet."""
    if kind in TEXTS:
        return np.full(n, "", object)
    if kind is Type.ARRAY:
        return np.fromiter(([] for _ in range(n)), object, n)
    if kind is Type.MAP:
        return np.fromiter(({} for _ in range(n)), object, n)
    dtypes = {Type.BOOLEAN: bool, Type.NULL: bool, Type.DECIMAL: object, Type.FLOAT: float, Type.DOUBLE: float}
    return np.zeros(n, dtypes.get(kind, np.int64))


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


def member_keys(node: Node, operand: Nullable, common: Type, zone: Zone) -> list[Any]:
    """Hashable stand-ins for values, equal exactly where Spark's `=` holds after casting to `common`."""
    if common in FLOATS:
        values = to_double(node, operand)
        if common is Type.FLOAT and node.type in INTEGERS:
            values = rounded(operand.values)
        return float_keys(values).tolist()  # type: ignore[no-any-return]
    if common is Type.DECIMAL:
        scale = MAX_PRECISION - decimal_scale(node)
        return [int(v) * 10**scale for v in operand.values]
    if common in MOMENTS and node.type in MOMENTS:
        return as_moments(operand.values, node.type, common, zone).tolist()  # type: ignore[no-any-return]
    return operand.values.tolist()  # type: ignore[no-any-return]


def sort_keys(operand: Nullable, kind: Type) -> npt.NDArray[Any]:
    """Values of a type in a form whose plain equality and order are Spark's."""
    return float_keys(operand.values) if kind in FLOATS else operand.values


_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock; instants get their zone


def python_value(node: Node, value: Any) -> object:
    """One value of an expression, as Python has it."""
    if node.type is Type.DECIMAL:
        return Decimal(int(value)).scaleb(-decimal_scale(node))
    if node.type is Type.DATE:
        return _EPOCH.date() + dt.timedelta(days=int(value))
    if node.type is Type.BINARY:
        return bytes.fromhex(value)
    if node.type in MOMENTS:
        wall = _EPOCH + dt.timedelta(microseconds=int(value))
        return wall.replace(tzinfo=dt.UTC) if node.type is Type.TIMESTAMP else wall
    return value.item() if isinstance(value, np.generic) else value
