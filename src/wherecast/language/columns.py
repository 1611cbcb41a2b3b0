"""The literals of many filters of one shape, read once, as typed columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from wherecast.language.evaluate import Column, as_moments, decimal_scale, member_keys
from wherecast.language.expression import INTEGERS, Attr, Call, Compare, InList, Like, Node, Param, Type
from wherecast.language.filters import LiteralColumns
from wherecast.language.keys import KEY_MAX, KEY_MIN
from wherecast.language.skeletons import LiteralText
from wherecast.language.patterns import like_tokens, rlike_regex
from wherecast.language.reading import read_column
from wherecast.language.keys import days_around, only_walls
from wherecast.language.zone import Zone


class Literals:
    """Literal texts by slot (`texts[slot][row]`), turned into columns on demand.

    Raises ValueError when a literal of any row cannot be read; `check_row` tells which slot of a row is at fault.
    """

    def __init__(self, texts: Sequence[Sequence[LiteralText]], length: int, zone: Zone) -> None:
        self.texts = texts
        self.length = length
        self.zone = zone
        self._scalars: dict[Param, npt.NDArray[Any]] = {}
        self._lists: dict[tuple[Param, Type], tuple[npt.NDArray[Any], npt.NDArray[np.int64]]] = {}

    def scalar(self, param: Param) -> npt.NDArray[Any]:
        """One value per row; decimals as (unscaled, scale)."""
        if param not in self._scalars:
            texts = self.texts[param.slot]
            if not all(isinstance(t, str) for t in texts):
                raise ValueError("a list of values stands where one value is expected")
            self._scalars[param] = _read(param, texts, self.zone)  # type: ignore[arg-type]
        return self._scalars[param]

    def listed(self, param: Param, common: Type) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """All values of an IN slot in one column, with offsets per row."""
        key = (param, common)
        if key not in self._lists:
            rows = [t if isinstance(t, tuple) else (t,) for t in self.texts[param.slot]]
            ptr = np.zeros(len(rows) + 1, np.int64)
            ptr[1:] = np.cumsum([len(r) for r in rows])
            self._lists[key] = (_read(param, [v for row in rows for v in row], self.zone), ptr)
        return self._lists[key]

    def take(self, rests_nodes: Sequence[Node]) -> LiteralColumns:
        """The columns that evaluating these expressions needs, in the form that `ProgramScope` serves."""
        columns: LiteralColumns = {}
        for root in rests_nodes:
            in_lists = {id(v) for n in root.walk() if isinstance(n, InList) for v in n.values}
            for node in root.walk():
                if isinstance(node, InList):
                    for value in node.values:
                        columns[(value, node.common)] = self._member_sets(value, node.common)
                elif isinstance(node, Param) and id(node) not in in_lists:
                    columns[node] = _computable(node, self.scalar(node))
        return columns

    def _member_sets(self, param: Param, common: Type) -> npt.NDArray[np.object_]:
        flat, ptr = self.listed(param, common)
        column = Column(_computable(param, flat), np.ones(flat.size, bool))
        keys = member_keys(param, column, common, self.zone)
        return np.fromiter((frozenset(keys[a:b]) for a, b in pairwise(ptr.tolist())), object, ptr.size - 1)


def _read(param: Param, texts: Sequence[str], zone: Zone) -> npt.NDArray[Any]:
    # With its sign from the start: the least integer has no positive.
    return read_column(param.type, [f"-{t}" for t in texts] if param.negative else texts, zone)


def _computable(param: Param, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Decimals as unscaled integers at the parameter's scale; the rest as it is."""
    if param.type is not Type.DECIMAL:
        return values
    scale = decimal_scale(param)
    return np.fromiter((unscaled * 10 ** (scale - s) for unscaled, s in values), object, values.size)


def nodes_with_literals(root: Node) -> tuple[Node, ...]:
    """The parts of an expression that `check_literals` looks at."""
    in_lists = {v for n in root.walk() if isinstance(n, InList) for v in n.values}
    return tuple(
        n for n in root.walk() if isinstance(n, (InList, Compare, Like)) or (isinstance(n, Param) and n not in in_lists)
    )


def check_literals(nodes: Sequence[Node], literals: Literals, pattern_limit: int, values_limit: int) -> None:
    """Read every literal of an expression, patterns included. Raises LiteralFault for the first that is wrong.

    `nodes` are those of `nodes_with_literals`.
    """
    for node in nodes:
        if isinstance(node, (InList, Compare)) and node.common is Type.DECIMAL:
            _check_decimals(node, literals)
        if isinstance(node, (InList, Compare)) and node.common is Type.TIMESTAMP:
            _check_moments(node, literals)
        if isinstance(node, InList):
            for value in node.values:
                _guard(value, lambda v=value, c=node.common: literals.listed(v, c))  # type: ignore[misc]
                _check_length(value, literals.listed(value, node.common)[1], values_limit)
        elif isinstance(node, Param):
            _guard(node, lambda p=node: literals.scalar(p))  # type: ignore[misc]
        elif isinstance(node, Like):
            _guard(node.pattern, lambda n=node: _check_patterns(n, literals, pattern_limit))  # type: ignore[misc]


class LiteralFault(ValueError):  # noqa: N818 - not raised to callers: it becomes a FilterError
    """A literal that cannot be read, and its slot."""

    def __init__(self, slot: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.slot = slot
        self.reason = reason


def _guard(param: Param, read: Callable[[], object]) -> None:
    try:
        read()
    except LiteralFault:
        raise
    except (ValueError, OverflowError) as error:
        raise LiteralFault(param.slot, "literal", str(error)) from None


def _check_length(param: Param, ptr: npt.NDArray[np.int64], limit: int) -> None:
    longest = int(np.diff(ptr).max(initial=0))
    if longest > limit:
        raise LiteralFault(param.slot, "limit", f"{longest} values in one IN list, at most {limit}; split the filter")


def _check_moments(node: InList | Compare, literals: Literals) -> None:
    """Refuse the instants with which Spark compares a wall clock or a day in two ways.

    By its rules it casts the attribute to an instant; where it can, it casts the literal to a wall clock or a day instead.
    Both say the same, except where clocks change: there two wall clocks are one instant, or none is.
    """
    sides = (node.item, *node.values) if isinstance(node, InList) else (node.left, node.right)
    cast = {side.type for side in sides if not isinstance(side, Param)} & {Type.DATE, Type.TIMESTAMP_NTZ}
    for side in sides if cast else ():
        if isinstance(side, Param):
            _guard(side, lambda p=side: _check_clear(p, node, Type.DATE in cast, literals))  # type: ignore[misc]


def _check_clear(param: Param, node: InList | Compare, is_day: bool, literals: Literals) -> None:
    values = literals.listed(param, node.common)[0] if isinstance(node, InList) else literals.scalar(param)
    zone, moments = literals.zone, as_moments(values, param.type, node.common, literals.zone)
    if is_day:
        floor, ceil = days_around(zone, moments)
        is_clear = floor <= ceil
    else:
        _, is_clear = only_walls(zone, moments)
    if not is_clear.all():
        raise ValueError(
            f"the clocks of {zone.name} change at this time, and Spark has two answers for it; "
            "write TIMESTAMP_NTZ '...' to compare wall clocks, or choose another time"
        )


_INTEGER_SCALE = 18  # an integer needs up to 20 of the 38 digits of a decimal


def _check_decimals(node: InList | Compare, literals: Literals) -> None:
    """Refuse the decimals that Spark does not compare exactly with an integer.

    It rounds those of more than 18 fraction digits, and says that NULL is less than a number beyond 64 bits.
    """
    sides = (node.item, *node.values) if isinstance(node, InList) else (node.left, node.right)
    if not any(side.type in INTEGERS and not isinstance(side, Param) for side in sides):
        return
    ordered = isinstance(node, Compare) and node.op in ("<", "<=", ">", ">=")
    for side in sides:
        if isinstance(side, Param) and side.type is Type.DECIMAL:
            values = literals.listed(side, node.common)[0] if isinstance(node, InList) else literals.scalar(side)
            for unscaled, scale in values:
                if not ordered and scale > _INTEGER_SCALE:
                    message = f"more than {_INTEGER_SCALE} fraction digits are no integer; round the number"
                    raise LiteralFault(side.slot, "literal", message)
                if ordered and not KEY_MIN * 10**scale <= unscaled <= KEY_MAX * 10**scale:
                    message = "an integer is always on one side of a number beyond 64 bits; test IS NOT NULL instead"
                    raise LiteralFault(side.slot, "literal", message)


def _check_patterns(node: Like, literals: Literals, limit: int) -> None:
    for pattern in set(literals.scalar(node.pattern).tolist()):
        if len(pattern) > limit:
            raise LiteralFault(node.pattern.slot, "limit", f"a pattern of {len(pattern)} characters, at most {limit}")
        if node.kind == "rlike":
            rlike_regex(pattern)
        else:
            like_tokens(pattern)  # whatever passes compiles; RE2 gets to see it when there is something to match


class ProgramScope:
    """Columns for evaluating a program: literals by clause row, attributes by a function of the caller."""

    def __init__(
        self,
        columns: LiteralColumns,
        literal_rows: npt.NDArray[np.integer[Any]],
        attribute: Callable[[int], Column],
        zone: Zone,
    ) -> None:
        self.zone = zone
        self.length = int(literal_rows.size)
        self.calls: dict[Call, Column] = {}
        self._columns = columns
        self._rows = literal_rows
        self._attribute = attribute

    def attribute(self, attr: Attr) -> Column:
        return self._attribute(attr.index)

    def literal(self, param: Param) -> Column:
        return Column(self._columns[param][self._rows], np.ones(self.length, bool))

    def literal_keys(self, param: Param, common: Type) -> npt.NDArray[np.object_]:
        keys: npt.NDArray[np.object_] = self._columns[(param, common)][self._rows]
        return keys
